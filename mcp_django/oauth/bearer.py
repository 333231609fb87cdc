"""Bearer tokens at the MCP endpoint, the :class:`ProtectedResource`: it checks them, and challenges who has none.

One query (:func:`find_token`), compiled once, looks up a token with its user, its client and its facts. The shared
cache keeps the time of each token's last use, to the minute.
"""

import hashlib
import ipaddress
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.signals import setting_changed
from django.db import router
from django.db.models import F, Q, QuerySet, Subquery
from django.db.models.lookups import Exact
from django.utils import timezone
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    get_access_token_model,
    get_application_model,
)
from oauth2_provider.oauth2_validators import validate_resource_as_url_prefix
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request as OAuthRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException

from ..conf import settings
from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..exceptions import AuthenticationFailed
from ..models import TokenFacts
from ..orm.compiled_queries import Bind, CompiledQuery, Slot, is_on
from ..orm.permission_queries import FOUND, permission_columns
from ..problems import NO_TOKEN, NOT_ACTIVE, Problem
from ..runtime.cache_and_rate_limits import cache
from ..scopes import ADMIN, expand, join
from ..signin import LINKED_IDENTITY, SERVICE_ACCOUNT, is_current
from .resource_urls import came_to, metadata_url, own_resource, resource_url, same_resource
from .stored_tokens import beside_tokens, checksum_of, facts_of, stands

MAX_HEADER: Final = 8192
# Maximum number of tokens looked up in one query.
QUERY: Final = 500
# token68 (RFC 7235, section 2.1) has no comma and no space, so two joined credentials do not match.
CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
UNQUOTABLE: Final = re.compile(r'[^\x20-\x7e]|["\\]')
# Facts of tokens that no user agreed to. Such a token is valid while its service account or linked identity is.
REASONS: Final = frozenset({SERVICE_ACCOUNT, LINKED_IDENTITY})
# Whoever presents a stored token holds its secret, so the answer can say why it is refused. For an unknown token the
# answer gives no reason.
SIGN_IN_AGAIN: Final = "The client has to sign in again; a token of mcp_token has to be replaced."
REVOKED: Final = "The token was revoked, or has expired and was removed. Sign in again."
OTHER_SCHEME: Final = Problem(
    "the Authorization header has a scheme that none of AUTHENTICATION_CLASSES accepts",
    "By default it is Bearer, a space and one token.",
    "The Authorization header has a scheme that this endpoint does not accept.",
)
AMBIGUOUS: Final = Problem(
    "below the script prefix, another endpoint has the same path", "Mount one of them elsewhere."
)
MALFORMED: Final = Problem(
    "the Authorization header is not Bearer and one token",
    "Check the header in the client's configuration.",
    "The Authorization header must be Bearer, a space and one token.",
)
UNKNOWN: Final = Problem(
    "the token is not known here", f"Is it for another site, or from before a database was reset? {SIGN_IN_AGAIN}"
)
FORMER: Final = Problem("the token was revoked or replaced, or has expired and was removed", SIGN_IN_AGAIN, REVOKED)
NOBODYS: Final = Problem("the token belongs to no user", "Make one for a user.", "The token belongs to no user.")
FOR_REGISTRATION: Final = Problem(
    "the token is only for registering clients",
    "Reading data needs a token that a user agreed to.",
    "The token is only for registering clients.",
)
CLOSED: Final = Problem(
    "the service account or the linked identity of the token has ended, or has another user",
    "Look in the admin at service accounts and linked identities.",
    REVOKED,
)
NOT_ACCEPTED: Final = Problem("OAUTH2_VALIDATOR_CLASS does not accept the token", "See its own rules.")


class ProtectedResource:
    """The MCP endpoint at ``path`` as the resource that a request asks for (RFC 9728): the check of its bearer token.

    ``path`` is that of the URLconf; tokens are issued for the endpoint there.
    """

    __slots__ = ("path", "request")

    def __init__(self, request: MCPRequest, path: str) -> None:
        self.request = request
        self.path = path

    @property
    def url(self) -> str:
        """The URL of the endpoint (RFC 8707), for which tokens are issued."""
        return resource_url(self.request, self.path)

    @property
    def other_origin(self) -> str | None:
        """The origin by which the request reached this server, None if it is that of ``BASE_URL``."""
        return came_to(self.request)

    def authenticate(self) -> None:
        """Authenticate the request by the first of ``AUTHENTICATION_CLASSES`` that knows its credentials.

        Sets ``request.user`` and ``request.auth``. Sets on ``request.mcp`` the scopes, the client, the facts, and
        ``resource``, the URL that a token must be for. Raises ``AuthenticationFailed`` if no credentials are valid.
        """
        request = self.request
        context = request.mcp
        resource = own_resource(request, self.path)
        if resource is None:
            raise AuthenticationFailed(invalid=True, reason=AMBIGUOUS)
        context.resource = resource
        classes = settings.AUTHENTICATION_CLASSES
        found = None
        for authenticator in classes:
            try:
                found = authenticator().authenticate(request)
            except APIException as error:
                text = f"{authenticator.__name__} refuses the credentials: {error.get_codes()}"
                reason = Problem(text, "See the rules of that class.")
                raise AuthenticationFailed(invalid=True, reason=reason) from None
            if found is not None:
                break
        if classes and found is None:
            given = bool(request.META.get("HTTP_AUTHORIZATION"))
            raise AuthenticationFailed(invalid=given, reason=OTHER_SCHEME if given else NO_TOKEN)
        credentials: tuple[Any, Any] = found or (AnonymousUser(), None)
        user, auth = credentials
        if classes and not user.is_active:
            raise AuthenticationFailed(invalid=True, reason=NOT_ACTIVE)
        request.user = user
        request.auth = auth  # type: ignore[attr-defined]
        # The credentials of a project's own class may have no scopes: its callers get all of them.
        context.scopes = auth.scopes if hasattr(auth, "scopes") else expand([ADMIN])
        context.client_id = getattr(auth, "client_id", "")
        context.facts = getattr(auth, "facts", {})
        if isinstance(auth, Token):
            note_use(auth, request.META.get("REMOTE_ADDR", ""))

    def challenge(self, scopes: Iterable[str], *, error: str | None = None, description: str | None = None) -> str:
        """Return the value of ``WWW-Authenticate`` for a refused request; see :func:`challenge`."""
        return challenge(metadata_url(self.request, self.path), scopes, error=error, description=description)


@dataclass(frozen=True, slots=True)
class Token:
    """A valid bearer token: ``scopes`` with the scopes that they imply, the client, and the time of expiry.

    ``checksum`` is the hexadecimal SHA-256 under which the token is stored, "" if it is not stored here. ``facts`` are
    those stored with the token.
    """

    scopes: frozenset[str]
    client_id: str
    expires: datetime
    checksum: str = field(default="", repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def still_good(tokens: "Collection[Token]") -> "set[Token]":
        """Return those of the tokens that are still unexpired, unrevoked and of the same scopes; 500 take one query."""
        now = timezone.now()
        rows = get_access_token_model()._default_manager
        checksums = list({token.checksum for token in tokens if token.checksum})
        stored: dict[str, tuple[datetime, str]] = {}
        for start in range(0, len(checksums), QUERY):
            some = rows.filter(token_checksum__in=checksums[start : start + QUERY])
            stored.update(
                (checksum, (expires, scope))
                for checksum, expires, scope in some.values_list("token_checksum", "expires", "scope")
            )
        good = {token for token in tokens if not token.checksum and now < token.expires}
        for token in tokens:
            expires, scope = stored.get(token.checksum, (now, ""))
            if now < expires and _expanded(scope) >= token.scopes:
                good.add(token)
        return good


class BearerAuthentication(BaseAuthentication):
    """An authentication class of REST framework, for tokens in the ``Authorization`` header (RFC 6750, section 2.1)."""

    def authenticate(self, request: Any) -> tuple[AbstractBaseUser, Token] | None:
        """Return user and token, None for a request without bearer credentials; raise ``AuthenticationFailed``.

        ``request`` is a Django request with ``request.mcp.resource``, the URL that the token must be for.
        """
        header = request.META.get("HTTP_AUTHORIZATION")
        if header is None:
            return None
        if len(header) > MAX_HEADER or not header.strip():
            raise AuthenticationFailed(invalid=True, reason=MALFORMED)
        if header.split(maxsplit=1)[0].lower() != "bearer":
            return None
        match = CREDENTIALS.fullmatch(header.strip())
        if match is None:
            raise AuthenticationFailed(invalid=True, reason=MALFORMED)
        return verify(match[1], request.mcp.resource)


def verify(token: str, resource: str) -> tuple[AbstractBaseUser, Token]:
    """Return the user and the grant of a token that is valid for ``resource``, the URL of an endpoint.

    The token must be live and issued for exactly this resource (RFC 8707; basic/authorization, Access Token Privilege
    Restriction), to an active user whose password has not changed since.
    """
    checksum = hashlib.sha256(token.encode()).hexdigest()
    if plannable():
        row = find_token(checksum)
        is_stored = True
    else:
        row, is_stored = _ask_toolkit(token, resource)
    if row is not None:
        return _accept(row, resource, checksum if is_stored else "")
    refused = None if plannable() else find_token(checksum)
    reason: Problem | None = NOT_ACCEPTED
    if refused is not None:
        try:
            _accept(refused, resource, "")
        except AuthenticationFailed as failure:
            reason = failure.reason
    else:
        # Facts are kept for a while after their token is gone.
        reason = FORMER if TokenFacts._default_manager.filter(pk=checksum).exists() else UNKNOWN
    raise AuthenticationFailed(invalid=True, reason=reason)


def _accept(row: "TokenRow", resource: str, checksum: str) -> tuple[AbstractBaseUser, Token]:
    """Check active user, expiry, resource, password and link of a token's row; return user and grant."""
    user = row.user
    bound = row.resource or ()
    facts: Any = {} if row.facts is None else row.facts
    if user is None:
        reason = NOBODYS
    elif not user.is_active:
        reason = Problem(f"the user of the token ({user.pk}) is not active", NOT_ACTIVE.remedy, REVOKED)
    elif row.expires is None or timezone.now() >= row.expires:
        since = "" if row.expires is None else f" at {row.expires.isoformat(timespec='seconds')}"
        told = f"The token expired{since}. Refresh it, or sign in again."
        reason = Problem(f"the token expired{since}", f"Clients refresh it by themselves. {SIGN_IN_AGAIN}", told)
    elif oauth2_settings.DCR_REGISTRATION_SCOPE in row.scope.split():
        # The token manages a client's registration; it does not allow reading data.
        reason = FOR_REGISTRATION
    elif resource not in bound and not any(same_resource(resource, url) for url in bound):
        urls = plain(" and ".join(map(str, bound)), 300) or "no endpoint"
        told = f"The token is for {urls}; this endpoint is {resource}. Sign in again for this one."
        reason = Problem(f"the token is for {urls}, this request came to {resource}", "Is BASE_URL right?", told)
    elif not isinstance(facts, dict) or not is_current(user, facts):
        text = f"the token is older than the password of its user ({user.pk})"
        reason = Problem(text, f"A new password ends such tokens. {SIGN_IN_AGAIN}", REVOKED)
    elif not REASONS.isdisjoint(facts) and not stands(facts, user.pk):
        reason = CLOSED
    else:
        return user, Token(_expanded(row.scope), row.client_id, row.expires, checksum, facts)
    raise AuthenticationFailed(invalid=True, reason=reason)


# Most tokens have one of a few scope strings.
@lru_cache(maxsize=256)
def _expanded(scope: str) -> frozenset[str]:
    return expand(scope.split())


def _ask_toolkit(token: str, resource: str) -> tuple["TokenRow | None", bool]:
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


def challenge(
    resource_metadata_url: str, scopes: Iterable[str], *, error: str | None = None, description: str | None = None
) -> str:
    """Return the value of ``WWW-Authenticate`` that answers a bad token, or none (RFC 6750, section 3; RFC 9728, 5.1).

    ``scopes`` are all that the operation needs. For ``error="insufficient_scope"``, include those already granted, or
    clients lose them. Give ``error="invalid_token"`` only when a token was sent.
    """
    params = {"resource_metadata": resource_metadata_url, "scope": join(scopes), "error": error}
    params["error_description"] = description
    # Clients split at commas and expect quotes around each value.
    return "Bearer " + ", ".join(f'{key}="{UNQUOTABLE.sub("", value)}"' for key, value in params.items() if value)


# Token lookup

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


@lru_cache(maxsize=1)
def _token_model() -> Any:
    return get_access_token_model()


def _compile(using: str) -> "TokenQuery":
    model = get_user_model()
    fields = tuple(field.attname for field in model._meta.concrete_fields)
    has_facts = beside_tokens()
    compiled = None
    if is_on():
        compiled = CompiledQuery.for_values(_tokens(using, Bind(Slot(0)), fields, has_facts), using)
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


# The last use

# Seconds between two notes of a token's use by one worker, and seconds for which the cache keeps a note.
EVERY: Final = 60
KEPT: Final = 90 * 24 * 3600
# Maximum number of tokens whose notes a worker remembers.
MAX_NOTED: Final = 10_000

_noted: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Use:
    """The last use of a token: its time, and the network of the caller's address, "" for unknown."""

    moment: datetime
    place: str


def note_use(token: Token, address: str = "") -> None:
    """Note in the cache that a request from this address came with the token now."""
    checksum = token.checksum
    now = time.monotonic()
    if not checksum or now < _noted.get(checksum, 0.0):
        return
    if len(_noted) >= MAX_NOTED:
        _noted.clear()
    _noted[checksum] = now + EVERY
    with suppress(Exception):
        cache.set(_key(checksum), (int(time.time()), shortened(address)), timeout=KEPT)


def last_uses(checksums: Iterable[str]) -> dict[str, Use]:
    """Return the last use of each token by its checksum, as far as the cache knows."""
    keys = {_key(checksum): checksum for checksum in checksums}
    zone = UTC if django_settings.USE_TZ else None
    with suppress(Exception):
        uses = cache.get_many(list(keys))
        return {keys[key]: Use(datetime.fromtimestamp(moment, tz=zone), place) for key, (moment, place) in uses.items()}
    return {}


def shortened(address: str) -> str:
    """Return the network of an IP address, which may be noted."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return ":".join(f"{int(part, 16):x}" for part in ip.exploded.split(":")[:3]) + ":…"
        ip = ip.ipv4_mapped
    return str(ip).rpartition(".")[0] + ".…"


def _key(checksum: str) -> str:
    return f"mcp_django:use:{checksum[:32]}"
