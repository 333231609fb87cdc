"""The token check as one compiled query.

Django's own query for a token, its user and its client is compiled once for each database; a check binds the checksum,
runs it and applies Django's converters. Nothing of the ORM runs for a call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.signals import setting_changed
from django.db import connections, router
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    get_access_token_model,
    get_application_model,
)
from oauth2_provider.oauth2_validators import OAuth2Validator, validate_resource_as_url_prefix
from oauth2_provider.settings import oauth2_settings

from .validator import MCPValidator

__all__ = ["TokenRow", "find_token", "plannable"]

# Stands for the checksum in the compiled parameters; no SHA-256 looks like it.
CHECKSUM: Final = "token checksum"
TOKEN_FIELDS: Final = ("expires", "scope", "resource", "application__client_id")
# What decides on a token in the toolkit, and the class whose answer the plan reproduces.
VERDICTS: Final = (
    (get_access_token_model, AbstractAccessToken, ("is_valid", "is_expired", "allow_scopes", "allows_audience")),
    (get_application_model, AbstractApplication, ("is_usable",)),
)

Converter = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What the database says of a token. ``expires`` is aware when ``USE_TZ`` is on."""

    user: AbstractBaseUser | None
    expires: datetime
    scope: str
    resource: list[str]
    client_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled query: SQL, parameters, converters by column, and the columns of the user."""

    sql: str
    params: tuple[Any, ...]
    converters: Mapping[int, tuple[list[Converter], Any]]
    user_fields: tuple[str, ...]
    user_pk: int

    def run(self, checksum: str, using: str) -> TokenRow | None:
        """Return the token with this SHA-256 (hexadecimal), or None: one query."""
        connection = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, [checksum if param == CHECKSUM else param for param in self.params])
            found = cursor.fetchone()
        if found is None:
            return None
        row = list(found)
        for position, (converters, expression) in self.converters.items():
            for convert in converters:
                row[position] = convert(row[position], expression, connection)
        expires, scope, resource, client_id, *user = row
        person = None if user[self.user_pk] is None else get_user_model().from_db(using, self.user_fields, user)
        return TokenRow(user=person, expires=expires, scope=scope, resource=resource, client_id=client_id or "")


_plans: dict[str, Plan] = {}
_plannable: list[bool] = []


def find_token(checksum: str) -> TokenRow | None:
    """Return the token with this SHA-256 (hexadecimal), its user a full instance of the user model; one query."""
    using = router.db_for_read(get_access_token_model())
    plan = _plans.get(using)
    if plan is None:
        plan = _plans[using] = _compile(using)
    return plan.run(checksum, using)


def plannable() -> bool:
    """Tell whether the plan gives the toolkit's verdict: nothing of the project's own takes part in it."""
    if not _plannable:
        _plannable.append(_is_stock())
    return _plannable[0]


def _is_stock() -> bool:
    if oauth2_settings.OAUTH2_VALIDATOR_CLASS not in (MCPValidator, OAuth2Validator):
        return False
    if oauth2_settings.RESOURCE_SERVER_INTROSPECTION_URL:
        return False
    if oauth2_settings.RESOURCE_SERVER_TOKEN_RESOURCE_VALIDATOR is not validate_resource_as_url_prefix:
        return False
    return all(
        getattr(get_model(), name) is getattr(base, name) for get_model, base, names in VERDICTS for name in names
    )


def _compile(using: str) -> Plan:
    user = get_user_model()._meta
    fields = tuple(field.attname for field in user.concrete_fields)
    assert user.pk is not None
    queryset = (
        get_access_token_model()
        .objects.using(using)
        .filter(token_checksum=CHECKSUM)
        .order_by()
        .values_list(*TOKEN_FIELDS, *(f"user__{name}" for name in fields))
    )
    compiler = queryset.query.get_compiler(using=using)
    sql, params = compiler.as_sql()
    converters = compiler.get_converters([expression for expression, _, _ in compiler.select])
    return Plan(sql, tuple(params), converters, fields, fields.index(user.pk.attname))


def _forget(**kwargs: Any) -> None:
    _plans.clear()
    _plannable.clear()


# Any setting may bear on it: time zone, databases, models, the toolkit's own.
setting_changed.connect(_forget)
