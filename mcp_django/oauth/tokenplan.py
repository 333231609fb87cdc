"""The token check as one compiled query: a token, its user and its client, with nothing of the ORM run for a call."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.signals import setting_changed
from django.db import router
from django.db.models import F, Q, Subquery
from django.db.models.lookups import Exact
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    get_access_token_model,
    get_application_model,
)
from oauth2_provider.oauth2_validators import OAuth2Validator, validate_resource_as_url_prefix
from oauth2_provider.settings import oauth2_settings

from ..models import TokenFacts
from ..orm.permissions import FOUND, permission_columns
from ..orm.plans import Bind, Plan, Slot, compile_plan
from .facts import beside_tokens, facts_of
from .validator import MCPValidator

TOKEN_FIELDS: Final = ("expires", "scope", "resource", "application__client_id")
# What decides on a token in the toolkit, and the class whose answer the plan reproduces.
VERDICTS: Final = (
    (get_access_token_model, AbstractAccessToken, ("is_valid", "is_expired", "allow_scopes", "allows_audience")),
    (get_application_model, AbstractApplication, ("is_usable",)),
)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What the database says of a token. ``expires`` is aware when ``USE_TZ`` is on, None where it cannot be read.

    ``facts`` are those kept with it, None where there are none.
    """

    user: AbstractBaseUser | None
    expires: datetime | None
    scope: str
    resource: list[str] | None
    client_id: str
    facts: Any = None


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """The compiled query for one database, the user's model, its columns in it, and which of them is the primary key.

    Behind them are those of the user's permissions, if there are any. ``has_facts`` says that what is kept with the
    token is in that database, and its last column.
    """

    plan: Plan
    has_facts: bool
    user_model: Any
    user_fields: tuple[str, ...]
    user_pk: int


_plans: dict[str, TokenPlan] = {}
_plannable: list[bool] = []


def find_token(checksum: str) -> TokenRow | None:
    """Return the token with this SHA-256 (hexadecimal), its user a full instance of the user model; one query."""
    using = router.db_for_read(_token_model())
    found = _plans.get(using)
    if found is None:
        found = _plans[using] = _compile(using)
    rows = found.plan.run(using, [checksum])
    if not rows:
        return None
    expires, scope, resource, client_id, *user = rows[0]
    facts = user.pop() if found.has_facts else facts_of(checksum)
    person = None
    if user[found.user_pk] is not None:
        count = len(found.user_fields)
        person = found.user_model.from_db(using, found.user_fields, user[:count])
        if permissions := user[count:]:
            person.__dict__[FOUND] = permissions
    return TokenRow(
        user=person, expires=expires, scope=scope, resource=resource, client_id=client_id or "", facts=facts
    )


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


@cache
def _token_model() -> Any:
    return get_access_token_model()


def _compile(using: str) -> TokenPlan:
    model = get_user_model()
    fields = tuple(field.attname for field in model._meta.concrete_fields)
    facts = Subquery(TokenFacts._default_manager.filter(Q(Exact(F("token"), Bind(Slot(0))))).values("facts"))
    has_facts = beside_tokens()
    permissions = permission_columns(using, "user_id")
    queryset = (
        _token_model()
        .objects.using(using)
        .filter(Q(Exact(F("token_checksum"), Bind(Slot(0)))))
        .order_by()
        .values_list(
            *TOKEN_FIELDS, *(f"user__{name}" for name in fields), *permissions, *([facts] if has_facts else [])
        )
    )
    return TokenPlan(compile_plan(queryset, using), has_facts, model, fields, fields.index(model._meta.pk.attname))


def _forget(**kwargs: Any) -> None:
    _plans.clear()
    _plannable.clear()
    _token_model.cache_clear()


# Any setting may bear on it: time zone, databases, models, the toolkit's own.
setting_changed.connect(_forget)
