"""Bearer tokens at the MCP endpoint, the :class:`ProtectedResource`: it checks them, and challenges who has none."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from oauth2_provider.models import get_access_token_model
from oauth2_provider.settings import oauth2_settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException

from ..conf import settings
from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..exceptions import AuthenticationFailed
from ..models import TokenFacts
from ..problems import NO_TOKEN, Problem
from ..scopes import Scope, expand, join
from ..signin import FactName, SignIn, is_current
from .last_use import note_use
from .resource_urls import came_to, metadata_url, origin, own_resource, resource_url, same_resource
from .stored_tokens import checksum_of, facts_of, stands
from .token_query import TokenRow, ask_toolkit, find_token, plannable

MAX_HEADER: Final = 8192
# Maximum number of tokens looked up in one query.
QUERY: Final = 500
# token68 (RFC 7235, section 2.1) has no comma and no space, so two joined credentials do not match.
CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
UNQUOTABLE: Final = re.compile(r'[^\x20-\x7e]|["\\]')
# Facts of tokens that no user agreed to. Such a token is valid while its service account or linked identity is.
REASONS: Final = frozenset({FactName.SERVICE_ACCOUNT, FactName.LINKED_IDENTITY})
# Whoever presents a stored token holds its secret, so the answer can say why it is refused. For an unknown token the
# answer gives no reason.
SIGN_IN_AGAIN: Final = "The client has to sign in again; a token of mcp_token has to be replaced."
REVOKED: Final = "The token was revoked, or has expired and was removed. Sign in again."
NOT_ACTIVE: Final = Problem("the user is not active", "Activate the user if they should have access.")
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
    def origin(self) -> str:
        """The origin of this server, to which clients send their requests."""
        return origin(self.request)

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
        context.scopes = auth.scopes if hasattr(auth, "scopes") else expand([Scope.ADMIN])
        context.client_id = getattr(auth, "client_id", "")
        context.facts = getattr(auth, "facts", {})
        if isinstance(auth, Token):
            note_use(auth.checksum, request.META.get("REMOTE_ADDR", ""))

    def resume(self, user: Any, scopes: frozenset[str], checksum: str) -> None:
        """Let the request act as ``user``, who got a link with the token of this checksum, "" for no token.

        Sets what :meth:`authenticate` sets, and restores the sign-in. Raises ``AuthenticationFailed`` if the token has
        ended or lost one of the scopes, or if the user's password has changed.
        """
        facts: dict[str, Any] = {}
        if checksum:
            if not Token.still_good([Token(scopes, "", timezone.now(), checksum)]):
                raise AuthenticationFailed(invalid=True, reason=FORMER)
            facts = facts_of(checksum)
        if not is_current(user, facts):
            raise AuthenticationFailed(invalid=True, reason=FORMER)
        request = self.request
        request.user = user
        context = request.mcp
        context.scopes = scopes
        context.facts = facts
        SignIn(request).restore()
        context.resource = self.url

    def challenge(self, scopes: Iterable[str], *, error: str | None = None, description: str | None = None) -> str:
        """Return the ``WWW-Authenticate`` that answers a bad token, or none (RFC 6750, section 3; RFC 9728, 5.1).

        ``scopes`` are all that the operation needs. For ``error="insufficient_scope"``, include those already granted,
        or clients lose them. Give ``error="invalid_token"`` only when a token was sent.
        """
        params = {
            "resource_metadata": metadata_url(self.request, self.path),
            "scope": join(scopes),
            "error": error,
            "error_description": description,
        }
        # Clients split at commas and expect quotes around each value.
        return "Bearer " + ", ".join(f'{key}="{UNQUOTABLE.sub("", value)}"' for key, value in params.items() if value)


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
    checksum = checksum_of(token)
    if plannable():
        row = find_token(checksum)
        if row is None:
            raise _not_found(checksum)
        return _accept(row, resource, checksum)

    # The project's validator may know tokens that are not stored here.
    row, is_stored = ask_toolkit(token, resource)
    if row is not None:
        return _accept(row, resource, checksum if is_stored else "")

    # It refuses the token. Find out why, for the log and the client.
    row = find_token(checksum)
    if row is None:
        raise _not_found(checksum)
    _accept(row, resource, "")
    raise AuthenticationFailed(invalid=True, reason=NOT_ACCEPTED)


def _not_found(checksum: str) -> AuthenticationFailed:
    # Facts are kept for a while after their token is gone.
    is_former = TokenFacts._default_manager.filter(pk=checksum).exists()
    return AuthenticationFailed(invalid=True, reason=FORMER if is_former else UNKNOWN)


def _accept(row: TokenRow, resource: str, checksum: str) -> tuple[AbstractBaseUser, Token]:
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
