"""The check of the bearer token, and the challenge that answers a bad one."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.utils import timezone
from oauth2_provider.models import get_access_token_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request as OAuthRequest
from rest_framework.authentication import BaseAuthentication

from ..context.text import plain
from ..exceptions import AuthenticationFailed, Reason
from ..models import TokenFacts
from ..signin import LINKED_IDENTITY, SERVICE_ACCOUNT, is_current
from .facts import checksum_of, facts_of
from .grants import stands
from .resource import same_resource
from .scopes import expand, join
from .tokenplan import TokenRow, find_token, plannable

MAX_HEADER: Final = 8192
# Tokens of one query.
QUERY: Final = 500
# token68 of RFC 7235, section 2.1: neither a comma nor a space, so two joined credentials are none.
CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
UNQUOTABLE: Final = re.compile(r'[^\x20-\x7e]|["\\]')
# Whoever presents a token that is stored here holds its secret and may know why it is refused. An unknown token tells
# nobody anything.
SIGN_IN_AGAIN: Final = "The client has to sign in again; a token of mcp_token has to be made anew."
REVOKED: Final = "The token was revoked, or has expired and was removed. Sign in again."
MALFORMED: Final = Reason(
    "the Authorization header is not Bearer and one token",
    "Look at how the client's configuration writes the header.",
    "The Authorization header must be Bearer, a space and one token.",
)
UNKNOWN: Final = Reason(
    "the token is not known here", f"Is it for another site, or from before a database was reset? {SIGN_IN_AGAIN}"
)
FORMER: Final = Reason("the token was revoked or replaced, or has expired and was removed", SIGN_IN_AGAIN, REVOKED)
FOR_REGISTRATION: Final = Reason(
    "the token is for the registration of clients",
    "Reading data takes a token that a user agreed to.",
    "The token is for the registration of clients alone.",
)
# Facts of tokens that no user agreed to: they hold as long as what they were issued for.
REASONS: Final = frozenset({SERVICE_ACCOUNT, LINKED_IDENTITY})
CLOSED: Final = Reason(
    "the service account or the linked identity of the token has ended, or has another user",
    "Look in the admin at service accounts and linked identities.",
    REVOKED,
)
NOT_ACCEPTED: Final = Reason("OAUTH2_VALIDATOR_CLASS does not accept the token", "Its own rules say why.")


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was accepted: ``scopes`` with all that they imply, the client it was given to, when it ends.

    ``checksum`` is the SHA-256 (hexadecimal) under which it is stored, "" for one that is not. ``facts`` are kept with
    it.
    """

    scopes: frozenset[str]
    client_id: str
    expires: datetime
    checksum: str = field(default="", repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def still_good(tokens: "Collection[Token]") -> "set[Token]":
        """Return those that have not expired, been revoked or lost a scope since; one query for 500 of them."""
        now, rows = timezone.now(), get_access_token_model()._default_manager
        checksums = list({token.checksum for token in tokens if token.checksum})
        found: dict[str, tuple[datetime, str]] = {}
        for start in range(0, len(checksums), QUERY):
            some = rows.filter(token_checksum__in=checksums[start : start + QUERY])
            found.update(
                (checksum, (expires, scope))
                for checksum, expires, scope in some.values_list("token_checksum", "expires", "scope")
            )
        good = {token for token in tokens if not token.checksum and now < token.expires}
        for token in tokens:
            expires, scope = found.get(token.checksum, (now, ""))
            if now < expires and expand(scope.split()) >= token.scopes:
                good.add(token)
        return good


class BearerAuthentication(BaseAuthentication):
    """OAuth 2.1 bearer tokens for the endpoint, from the ``Authorization`` header and nowhere else (RFC 6750, 2.1)."""

    def authenticate(self, request: Any) -> tuple[AbstractBaseUser, Token] | None:
        """Return user and token, or None when the request carries no bearer credentials.

        ``request`` is a Django request with ``request.mcp.resource``, the URL that the token must be for.

        Raises:
            AuthenticationFailed: the credentials are malformed, or the token is not good for this endpoint.
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
    """Return the user of a token and what it grants at ``resource``, the URL of an endpoint.

    The token must be live, issued for exactly this resource (RFC 8707; basic/authorization, Access Token Privilege
    Restriction) and to an active user, who has the password that they had then.

    Raises:
        AuthenticationFailed: any of it does not hold. Of a token that is not in the database its reason tells nothing.
    """
    checksum = checksum_of(token)
    row, is_stored = (find_token(checksum), True) if plannable() else _ask_toolkit(token, resource)
    if row is None:
        raise AuthenticationFailed(invalid=True, reason=_why_not_found(checksum, resource))
    return _accept(row, resource, checksum if is_stored else "")


def _accept(row: TokenRow, resource: str, checksum: str) -> tuple[AbstractBaseUser, Token]:
    if row.user is None or not row.user.is_active:
        raise AuthenticationFailed(invalid=True, reason=_of_nobody(row))
    if row.expires is None or timezone.now() >= row.expires:
        raise AuthenticationFailed(invalid=True, reason=_expired(row))
    scopes = row.scope.split()
    granted = expand(scopes)
    # A registration token manages a client: it is no one's permission to read data.
    if oauth2_settings.DCR_REGISTRATION_SCOPE in scopes:
        raise AuthenticationFailed(invalid=True, reason=FOR_REGISTRATION)
    if not any(map(partial(same_resource, resource), row.resource or ())):
        raise AuthenticationFailed(invalid=True, reason=_for_another(row, resource))
    facts = {} if row.facts is None else row.facts
    if not isinstance(facts, dict) or not is_current(row.user, facts):
        raise AuthenticationFailed(invalid=True, reason=_before_password(row))
    if not REASONS.isdisjoint(facts) and not stands(facts, row.user.pk):
        raise AuthenticationFailed(invalid=True, reason=CLOSED)
    return row.user, Token(granted, row.client_id, row.expires, checksum, facts)


# Why a token is refused


def _why_not_found(checksum: str, resource: str) -> Reason:
    """Return why nothing was found for a token: what is kept beside tokens stays a while longer than they do."""
    row = None if plannable() else find_token(checksum)
    if row is None:
        return FORMER if TokenFacts._default_manager.filter(pk=checksum).exists() else UNKNOWN
    try:
        _accept(row, resource, "")
    except AuthenticationFailed as failure:
        return failure.reason or NOT_ACCEPTED
    return NOT_ACCEPTED


def _of_nobody(row: TokenRow) -> Reason:
    if row.user is None:
        return Reason("the token belongs to no user", "A user has to agree to it.", "The token belongs to no user.")
    return Reason(f"the user of the token ({row.user.pk}) is not active", "Activate the user, or leave it so.", REVOKED)


def _expired(row: TokenRow) -> Reason:
    since = "" if row.expires is None else f" at {row.expires.isoformat(timespec='seconds')}"
    remedy = f"Clients refresh it by themselves. {SIGN_IN_AGAIN}"
    return Reason(f"the token expired{since}", remedy, f"The token expired{since}. Refresh it, or sign in again.")


def _for_another(row: TokenRow, resource: str) -> Reason:
    bound = plain(" and ".join(map(str, row.resource or ())), 300) or "no endpoint"
    told = f"The token is for {bound}; this endpoint is {resource}. Sign in again for this one."
    return Reason(f"the token is for {bound}, this request came to {resource}", "Is BASE_URL right?", told)


def _before_password(row: TokenRow) -> Reason:
    assert row.user is not None
    seen = f"the token is older than the password of its user ({row.user.pk})"
    return Reason(seen, f"REVOKE_ON_PASSWORD_CHANGE ends such tokens. {SIGN_IN_AGAIN}", REVOKED)


def _ask_toolkit(token: str, resource: str) -> tuple[TokenRow | None, bool]:
    """Return what the project's own validator accepts, introspection included, and whether it is stored here."""
    asked = OAuthRequest(resource, "POST", "", {})
    try:
        if not oauth2_settings.OAUTH2_VALIDATOR_CLASS().validate_bearer_token(token, [], asked):
            return None, False
    except ValueError:  # a stored resource that the toolkit cannot parse
        return None, False
    found = asked.access_token
    is_stored = getattr(found, "pk", None) is not None
    row = TokenRow(
        user=found.user,
        expires=found.expires,
        scope=found.scope,
        resource=found.resource,
        client_id=found.application.client_id if found.application else "",
        facts=_facts_of(found, token) if is_stored else None,
    )
    return row, is_stored


def _facts_of(found: Any, token: str) -> Any:
    """Return what is kept with a token, by a query of its own where the validator has not brought it."""
    return found.kept_facts if hasattr(found, "kept_facts") else facts_of(checksum_of(token))


def challenge(
    resource_metadata_url: str, scopes: Iterable[str], *, error: str | None = None, description: str | None = None
) -> str:
    """Return the value of ``WWW-Authenticate`` (RFC 6750, section 3; RFC 9728, section 5.1).

    ``scopes`` are all that the operation needs; for ``error="insufficient_scope"`` those already granted belong to it,
    or clients lose them. Give ``error="invalid_token"`` only when a token was sent.
    """
    params = {"resource_metadata": resource_metadata_url, "scope": join(scopes), "error": error}
    params["error_description"] = description
    # Clients split at commas and expect quotes around each value.
    return "Bearer " + ", ".join(f'{key}="{UNQUOTABLE.sub("", value)}"' for key, value in params.items() if value)
