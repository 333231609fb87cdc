"""Looking up a token with its user, its client and its facts: by one query, compiled once, or by the toolkit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.signals import setting_changed
from django.db import router
from django.db.models import F, Q, QuerySet, Subquery
from django.db.models.lookups import Exact
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    get_access_token_model,
    get_application_model,
)
from oauth2_provider.oauth2_validators import validate_resource_as_url_prefix
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request as OAuthRequest

from ..models import TokenFacts
from ..orm.compiled_queries import Bind, CompiledQuery
from ..orm.permission_queries import FOUND, permission_columns
from .stored_tokens import beside_tokens, checksum_of, facts_of

TOKEN_FIELDS: Final = ("expires", "scope", "resource", "application__client_id", "user__pk")
# Validators, and methods of models, whose checks the compiled query reproduces while nothing overrides them.
VALIDATORS: Final = ("mcp_django.oauth.validator.MCPValidator", "oauth2_provider.oauth2_validators.OAuth2Validator")
VERDICTS: Final = (
    (get_access_token_model, AbstractAccessToken, ("is_valid", "is_expired", "allow_scopes", "allows_audience")),
    (get_application_model, AbstractApplication, ("is_usable",)),
)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The stored data that a token is checked by. ``expires`` is None if unreadable, else aware with ``USE_TZ``.

    ``facts`` are those stored with the token, None if there are none.
    """

    user: AbstractBaseUser | None
    expires: datetime | None
    scope: str
    resource: list[str] | None
    client_id: str
    facts: Any = None


@dataclass(frozen=True, slots=True)
class TokenQuery:
    """The query for a token in one database; ``compiled`` is None if the ORM builds it for each call.

    Its columns are ``TOKEN_FIELDS``, the user's ``fields``, the user's permissions, if any, and the token's facts if
    ``has_facts``.
    """

    compiled: CompiledQuery | None
    has_facts: bool
    user_model: Any
    fields: tuple[str, ...]


# By database.
_plans: "dict[str, TokenQuery]" = {}


def find_token(checksum: str) -> TokenRow | None:
    """Return the row of a token by its SHA-256, None if there is none: one query, with user, client and facts."""
    using = router.db_for_read(_token_model())
    if using not in _plans:
        _plans[using] = _compile(using)
    query = _plans[using]
    if query.compiled is not None:
        rows = query.compiled.run(using, [checksum])
    else:
        rows = list(_tokens(using, Bind(checksum), query.fields, query.has_facts))
    if not rows:
        return None
    expires, scope, resource, client_id, user_pk, *user = rows[0]
    facts = user.pop() if query.has_facts else facts_of(checksum)
    person = None
    if user_pk is not None:
        person = query.user_model.from_db(using, query.fields, user[: len(query.fields)])
        if permissions := user[len(query.fields) :]:
            person.__dict__[FOUND] = permissions
    return TokenRow(person, expires, scope, resource, client_id or "", facts)


@lru_cache(maxsize=1)
def plannable() -> bool:
    """Return whether one query can check tokens as the toolkit would: none of its checks is overridden."""
    validator = oauth2_settings.OAUTH2_VALIDATOR_CLASS
    if f"{validator.__module__}.{validator.__qualname__}" not in VALIDATORS:
        return False
    if oauth2_settings.RESOURCE_SERVER_INTROSPECTION_URL:
        return False
    if oauth2_settings.RESOURCE_SERVER_TOKEN_RESOURCE_VALIDATOR is not validate_resource_as_url_prefix:
        return False
    return all(
        getattr(get_model(), name) is getattr(base, name) for get_model, base, names in VERDICTS for name in names
    )


def ask_toolkit(token: str, resource: str) -> tuple[TokenRow | None, bool]:
    """Check a token by the project's ``OAUTH2_VALIDATOR_CLASS``; say also whether this database has the token."""
    oauth_request = OAuthRequest(resource, "POST", "", {})
    try:
        if not oauth2_settings.OAUTH2_VALIDATOR_CLASS().validate_bearer_token(token, [], oauth_request):
            return None, False
    except ValueError:  # a stored resource that the toolkit cannot parse
        return None, False
    row = oauth_request.access_token
    facts = None
    is_stored = getattr(row, "pk", None) is not None
    if is_stored:
        # Takes another query, unless the validator has already fetched the facts.
        facts = row.kept_facts if hasattr(row, "kept_facts") else facts_of(checksum_of(token))
    client_id = row.application.client_id if row.application else ""
    return TokenRow(row.user, row.expires, row.scope, row.resource, client_id, facts), is_stored


@lru_cache(maxsize=1)
def _token_model() -> Any:
    return get_access_token_model()


def _compile(using: str) -> "TokenQuery":
    model = get_user_model()
    fields = tuple(field.attname for field in model._meta.concrete_fields)
    has_facts = beside_tokens()
    compiled = None
    if CompiledQuery.is_on():
        compiled = CompiledQuery.for_values(_tokens(using, Bind.slot(0), fields, has_facts), using)
    return TokenQuery(compiled, has_facts, model, fields)


def _tokens(using: str, checksum: Bind, fields: Sequence[str], has_facts: bool) -> QuerySet[Any]:
    """Return the query for the token with this checksum, in the order of columns of :class:`TokenQuery`."""
    columns: list[Any] = [*TOKEN_FIELDS, *(f"user__{name}" for name in fields), *permission_columns(using, "user_id")]
    if has_facts:
        facts = TokenFacts._default_manager.filter(Q(Exact(F("token"), checksum)))
        columns.append(Subquery(facts.values("facts")))
    rows: QuerySet[Any] = _token_model().objects.using(using)
    return rows.filter(Q(Exact(F("token_checksum"), checksum))).order_by().values_list(*columns)


def _forget(**kwargs: Any) -> None:
    _plans.clear()
    plannable.cache_clear()
    _token_model.cache_clear()


# Many settings affect the query: time zone, databases, models, those of the toolkit.
setting_changed.connect(_forget)
