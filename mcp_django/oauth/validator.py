"""The validator of the authorization server, a subclass of django-oauth-toolkit's OAuth2Validator."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings as django_settings
from django.db import router, transaction
from django.db.models import F, Subquery
from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.scopes import get_scopes_backend
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request as OAuthRequest
from oauthlib.oauth2.rfc6749 import errors

from ..context.databases import again_after_deadlocks, writing
from ..models import TokenFacts
from ..problems import IS_IT_RIGHT, Problem
from ..runtime.cache_and_rate_limits import RateLimit
from ..scopes import expand, join
from ..signals import client_connected
from ..signin import credential_of, is_current
from . import resource_urls
from .assertions_and_keys import (
    ASSERTION_TYPE,
    NOT_THE_CLIENT,
    Assertion,
    InvalidAssertion,
    KeySource,
    check_assertion,
    read_assertion,
)
from .bearer import NOT_ACTIVE
from .client_documents import DOCUMENTS_OFF, is_admitted, is_document_id, keys_of_client, renewed, takes_documents
from .cors_and_refusals import ENTER_AGAIN, note
from .stored_tokens import (
    beside_tokens,
    checksum_of,
    facts_of,
    facts_of_family,
    forget_former,
    hashed_secret,
    is_hashed_here,
    same_secret,
    store_facts,
    until_of,
)

# Key in ``request.META``, which the toolkit passes on as headers. No client can send a header of this name.
BEGAN: Final = "mcp_django.began"
# Rate at which secrets of one client, from all addresses, are compared with a slow hash; and the number of characters
# from which on a secret counts as random and needs no slow hash.
SLOW_RATE: Final = RateLimit("secrets", "30/m")
RANDOM: Final = 32
GRANT_TYPES: Final = frozenset({"authorization_code", "refresh_token"})
# A code challenge is a SHA-256 in base64url, made from a code verifier (RFC 7636, sections 4.1 and 4.2).
S256_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
AGAIN: Final = "The user has to disconnect the application in the client and connect it again."
# Reasons why a client is refused.
UNKNOWN_CLIENT: Final = Problem("the client is not known here", f"It was deleted, or the database was reset. {AGAIN}")
WRONG_SECRET: Final = Problem("the client sends no secret or a wrong one", ENTER_AGAIN)
BLOCKED_HOST: Final = Problem(
    "the host of the client's metadata document is not (or no longer) allowed",
    "See CLIENT_DOCUMENTS, and hosts of applications in the admin.",
)
# Clients that sign, by metadata documents.
NO_SIGNATURE: Final = Problem(
    "the client's metadata document says that it signs, but it sends no signed assertion",
    "The client has to send one (client_assertion), or its makers have to change the document.",
)
NO_KEYS: Final = "Only clients with keys in a metadata document can sign. Others send their secret, or nothing."
WRONG_KEY: Final = "Does the client sign with a key in its metadata document, or at its jwks_uri?"
# Codes
UNKNOWN_CODE: Final = Problem(
    "the code is not known: it was used before, or made elsewhere",
    "A code works once. Do all workers share one database?",
)
OLD_CODE: Final = Problem(
    "the code has expired", "It lasts AUTHORIZATION_CODE_EXPIRE_SECONDS. Do the servers' clocks agree?"
)
OTHER_CLIENTS: Final = Problem(
    "the code or refresh token belongs to another client", f"The client mixes up registrations. {AGAIN}"
)
WRONG_VERIFIER: Final = Problem("the code_verifier is not well-formed", "It has 43 to 128 letters, digits, or -._~")
# Refresh tokens
UNKNOWN_REFRESH: Final = Problem(
    "the refresh token is not known here", "It was removed, or the database was reset. The user must sign in again."
)
GRANT_OVER: Final = Problem("the time for which the user allowed the client has ended", "The user must sign in again.")
SPENT: Final = Problem(
    "the refresh token was used before or was revoked; all tokens made from it are revoked now",
    "Does the client run twice with one token store? If not, the user removed its access. The user must sign in again.",
)
UNUSED: Final = Problem(
    "the refresh token was unused for too long",
    "Unused, it lasts REFRESH_TOKEN_EXPIRE_SECONDS. The user must sign in again.",
)
SIGNED_OUT: Final = Problem(
    "the user's password or sign-in has changed since",
    "A new password ends such grants. The user must sign in again.",
)


def check_challenge(challenge: str | None, method: str | None, state: str | None = None) -> None:
    """Raise ``InvalidRequestError`` unless there is a PKCE challenge by S256 (OAuth 2.1, section 7.5.2)."""
    if method != "S256" or S256_CHALLENGE.fullmatch(challenge or "") is None:
        raise errors.InvalidRequestError(description="PKCE with code_challenge_method=S256 is required.", state=state)


def check_resources(asked: Iterable[str], request: HttpRequest | None, state: str | None = None) -> list[str]:
    """Return the endpoints that ``resource`` names, in their own spelling; the only one by default (RFC 8707)."""
    named = list(asked)
    found = [resource_urls.canonical(request, item) for item in named] or [resource_urls.default_resource(request)]
    known = [url for url in found if url is not None]
    if len(known) < len(found):
        if request is not None:
            known = [resource_urls.resource_url(request, path) for path in resource_urls.endpoints()]
            seen = f"the resource is {' and '.join(named) or 'none'}, but the endpoints are {' and '.join(known)}"
            note(request.META, Problem(seen, IS_IT_RIGHT))
        text = "The resource is not an MCP endpoint of this server." if named else "The resource parameter is required."
        raise errors.CustomOAuth2Error(error="invalid_target", description=text, state=state)
    return list(dict.fromkeys(known))


def check_scopes(request: HttpRequest, granted: Iterable[str]) -> frozenset[str]:
    """Return those of the scopes a program asks for that its client may have; by default all that it may have.

    Clients request the scopes that the endpoint names, so those that they may not have are left out, and the answer
    names the others (RFC 6749, section 3.3).
    """
    scopes = list(granted)
    reach = expand(scopes).intersection(oauth2_settings.SCOPES)
    scopes_to_grant = reach.intersection(request.POST.get("scope", "").split() or scopes)
    if not scopes_to_grant:
        raise no_scope(reach)
    return scopes_to_grant


def no_scope(known: Iterable[str], request: OAuthRequest | None = None) -> errors.OAuth2Error:
    """Return the error ``invalid_scope`` for a request none of whose scopes can be granted, with those that can be."""
    text = f"None of these scopes can be granted. There are: {join(known)}."
    return errors.InvalidScopeError(description=text, request=request)


def invalid_client(request: HttpRequest, reason: Problem, description: str) -> errors.OAuth2Error:
    """Return the error ``invalid_client`` for a client that is refused; note the cause for the log."""
    note(request.META, reason)
    return errors.InvalidClientError(description=description)


def check_signature(
    request: HttpRequest, client_id: str, assertion: Assertion, keys: KeySource | None, remedy: str
) -> None:
    """Raise ``InvalidClientError`` unless the signed assertion is the client's; ``remedy`` is for the log."""
    try:
        if keys is None:
            raise InvalidAssertion("This client has no keys here.", remedy)
        check_assertion(request, client_id, assertion, keys)
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(remedy), refusal.wait)
        raise errors.InvalidClientError(description=str(refusal)) from None


class MCPValidator(OAuth2Validator):
    """The OAuth2Validator: codes with S256 for known endpoints, rotating refresh tokens, no other grants."""

    # Time for which a spent refresh token still works, so that parallel processes and lost responses do no harm.
    refresh_grace = timedelta(seconds=30)

    def _check_secret(self, provided_secret: str, stored_secret: str) -> bool:
        """Return whether a secret fits its stored hash; slow hashes are rate-limited.

        When a long secret matches, it is stored again with the fast hash that this server uses for its own secrets.
        """
        if is_hashed_here(stored_secret):
            return same_secret(provided_secret, stored_secret)
        if SLOW_RATE.hit_if_counted(stored_secret) is not None:
            return False
        if not super()._check_secret(provided_secret, stored_secret):
            return False
        SLOW_RATE.give_back(stored_secret)
        if len(provided_secret) >= RANDOM and provided_secret != stored_secret:
            clients = get_application_model()._default_manager
            rows = clients.filter(client_secret=stored_secret).values_list("pk", "client_secret")
            # The database may ignore case.
            same = [pk for pk, secret in rows if secret == stored_secret]
            clients.filter(pk__in=same).update(client_secret=hashed_secret(provided_secret), hash_client_secret=False)
        return True

    # Clients

    def _load_application(self, client_id: str, request: OAuthRequest) -> Any:
        client = super()._load_application(client_id, request)
        # The database may ignore case, and spaces at the end.
        if client is not None and client.client_id != client_id:
            request.client = client = None
        if client is None:
            is_off = is_document_id(client_id or "") and not takes_documents()
            note(request.headers, DOCUMENTS_OFF if is_off else UNKNOWN_CLIENT)
            return None
        if not is_admitted(client):
            note(request.headers, BLOCKED_HOST)
            request.client = None
            return None
        request.client = renewed(client, _HeadersOnly(request.headers))
        return request.client

    def client_authentication_required(self, request: OAuthRequest, *args: Any, **kwargs: Any) -> bool:
        """Return whether the client is confidential, or sends an assertion."""
        return bool(_assertions(request)) or super().client_authentication_required(request, *args, **kwargs)

    def authenticate_client(self, request: OAuthRequest, *args: Any, **kwargs: Any) -> bool:
        """Return whether the secret or the signed assertion is right (RFC 6749, section 2.3; RFC 7523, section 3)."""
        if assertions := _assertions(request):
            headers = request.headers
            try:
                if len(assertions) > 1 or ("client_assertion_type", ASSERTION_TYPE) not in request.decoded_body:
                    raise InvalidAssertion(
                        f"Send one client_assertion, and {ASSERTION_TYPE} as its client_assertion_type."
                    )
                assertion = read_assertion(assertions[0])
                client_id = assertion.text("sub")
                if request.client_id not in (None, "", client_id) or not client_id.isprintable():
                    raise InvalidAssertion(NOT_THE_CLIENT)
                client = self._load_application(client_id, request)
                if client is None or client.client_id != client_id:
                    return False
                asked = _HeadersOnly(headers)
                keys = keys_of_client(client, asked)
                if keys is None:
                    raise InvalidAssertion("This client has no document with keys.", NO_KEYS)
                check_assertion(asked, client_id, assertion, keys)
            except InvalidAssertion as refusal:
                return note(headers, refusal.reason(WRONG_KEY), refusal.wait)
            request.client_id = client_id
            return True
        accepted = bool(super().authenticate_client(request, *args, **kwargs))
        if not accepted and request.client is not None:
            is_described = request.client.registration_source == request.client.RegistrationSource.CIMD
            note(request.headers, NO_SIGNATURE if is_described else WRONG_SECRET)
        return accepted

    def validate_redirect_uri(self, client_id: str, redirect_uri: str, request: OAuthRequest, *args: Any) -> bool:
        """Return whether a redirect URI is registered for the client."""
        if super().validate_redirect_uri(client_id, redirect_uri, request, *args):
            return True
        text = f"the redirect URI {redirect_uri!r} is not one of the client's: {request.client.redirect_uris}"
        remedy = "Add it to the application in the admin, or let the client register again."
        return note(request.headers, Problem(text, remedy))

    # Authorization codes

    def validate_scopes(
        self, client_id: str, scopes: list[str], client: Any, request: OAuthRequest, *args: Any, **kwargs: Any
    ) -> bool:
        """Validate the requested scopes: leave out those that are not known here, and repeats (RFC 6749, section 3.3).

        The answer names the scopes that were granted. A request that names none gets the default scopes.
        Raises ``InvalidScopeError`` if it names only unknown ones.
        """
        available = get_scopes_backend().get_available_scopes(application=client, request=request)
        requested = list(dict.fromkeys(filter(None, scopes)))
        usable = [scope for scope in requested if scope in available]
        if requested and not usable:
            raise no_scope(available, request)
        request.scopes = usable or list(self.get_default_scopes(client_id, request))
        return True

    def validate_response_type(self, client_id: str, response_type: str, *args: Any, **kwargs: Any) -> bool:
        """Return whether the response type is ``code``."""
        return response_type == "code" and super().validate_response_type(client_id, response_type, *args, **kwargs)

    def validate_grant_type(self, client_id: str, grant_type: str, *args: Any, **kwargs: Any) -> bool:
        """Return whether the grant type is that of authorization codes or of refresh tokens."""
        return grant_type in GRANT_TYPES and super().validate_grant_type(client_id, grant_type, *args, **kwargs)

    def is_pkce_required(self, client_id: str, request: OAuthRequest) -> bool:
        """Return True: every client needs PKCE (OAuth 2.1, section 7.5.2)."""
        return True

    def _create_authorization_code(self, request: OAuthRequest, code: dict[str, str], expires: Any = None) -> Any:
        # Check again what the view has checked, because the consent form could have been changed since.
        check_challenge(request.code_challenge, request.code_challenge_method, request.state)
        resources = getattr(request, "resource", None) or []
        resources = [resources] if isinstance(resources, str) else resources
        request.resource = check_resources(resources, _HeadersOnly(request.headers), request.state)
        facts = getattr(request, "facts", None) or credential_of(request.user)
        store_facts(checksum_of(code["code"]), request.user, facts, _family_of(code["code"]))
        return super()._create_authorization_code(request, code, expires)

    def validate_code(self, client_id: str, code: str, client: Any, request: OAuthRequest, *args: Any) -> bool:
        """Validate an authorization code of an active user; a reused code revokes the tokens made from it.

        A request that began before these tokens were made is not a replay: it lost a race, and they stay valid.
        """
        is_valid = super().validate_code(client_id, code, client, request, *args)
        row = get_grant_model().objects.filter(code=code).first()
        # The database may ignore case. The facts of a sign-in are stored under the code as it was made.
        is_known = row is not None and row.code == code
        if not is_valid or not is_known:
            refresh = get_refresh_token_model()
            family = _family_of(code)
            began: datetime | None = request.headers.get(BEGAN)
            if began is None or not refresh.objects.filter(token_family=family, created__gte=began).exists():
                # Revoke what was issued for a code that is used twice (OAuth 2.1, section 4.1.3).
                refresh.revoke_family(family)
            if not is_known:
                return note(request.headers, UNKNOWN_CODE)
            return note(request.headers, OTHER_CLIENTS if row.application != client else OLD_CODE)
        verifier = request.code_verifier
        if verifier is not None and VERIFIER.fullmatch(verifier) is None:
            return note(request.headers, WRONG_VERIFIER)
        return self._goes_on(request, facts_of(checksum_of(code)), _family_of(code))

    def invalidate_authorization_code(self, client_id: str, code: str, request: OAuthRequest, *args: Any) -> None:
        """Do nothing: the code was deleted in the transaction that stored its tokens."""

    # Refresh tokens

    def validate_refresh_token(self, refresh_token: str, client: Any, request: OAuthRequest, *args: Any) -> bool:
        """Validate a refresh token of an active user; a spent one works for a moment, later its family is revoked.

        The row is read once: between two queries another request could spend the token.
        """
        rows = get_refresh_token_model().objects.select_related("access_token", "application", "user")
        matching = rows.filter(token_checksum=checksum_of(refresh_token))
        row = matching.order_by(F("revoked").desc(nulls_first=True)).first()
        if row is None:
            return note(request.headers, UNKNOWN_REFRESH)
        # Within the grace, a spent token is valid while its successor exists.
        successors = get_access_token_model().objects.filter(source_refresh_token=row)
        if row.revoked is not None and not (row.revoked > timezone.now() - self.refresh_grace and successors.exists()):
            note(request.headers, SPENT)
            return bool(super().validate_refresh_token(refresh_token, client, request, *args))
        # The grant has ended, or was not used for too long.
        lifetime = refresh_token_expire_timedelta()
        access = row.access_token
        is_late = access is None or (lifetime is not None and access.expires + lifetime <= timezone.now())
        if row.revoked is None and is_late:
            return note(request.headers, UNUSED)
        if row.application != client:
            return note(request.headers, OTHER_CLIENTS)
        request.user = row.user
        request.refresh_token = refresh_token
        request.refresh_token_instance = row
        facts = facts_of_family(row.token_family)
        if not is_current(row.user, facts) or _has_ended(facts):
            get_refresh_token_model().revoke_family(row.token_family)
        return self._goes_on(request, facts, row.token_family)

    def _goes_on(self, request: OAuthRequest, facts: dict[str, Any], family: UUID | None) -> bool:
        """Return whether the user is active, and the grant neither ended nor made with a former password."""
        request.facts = {**facts, **credential_of(request.user)}
        request.family = family
        if not request.user.is_active:
            return note(request.headers, Problem(f"the user ({request.user.pk}) is not active", NOT_ACTIVE.remedy))
        if _has_ended(facts):
            return note(request.headers, GRANT_OVER)
        return is_current(request.user, facts) or note(request.headers, SIGNED_OUT)

    def is_within_original_scope(self, request_scopes: list[str], refresh_token: str, request: OAuthRequest) -> bool:
        """Return whether the scopes of a refresh are implied by the granted ones (RFC 6749, section 6).

        Scopes that are not known here are left out, as they were at the sign-in; all are meant if none is left.
        """
        original = self.get_original_scopes(refresh_token, request)
        granted = original.split() if isinstance(original, str) else list(original)
        requested = [scope for scope in dict.fromkeys(request_scopes) if scope in oauth2_settings.SCOPES]
        request.scopes = requested or granted
        if expand(granted).issuperset(request.scopes):
            return True
        text = f"The refresh token is for {join(granted)} only."
        raise errors.InvalidScopeError(description=text, request=request)

    def save_bearer_token(self, token: dict[str, Any], request: OAuthRequest, *args: Any, **kwargs: Any) -> None:
        """Save the tokens of a validated request; again after a deadlock with another request."""
        spent = getattr(request, "refresh_token_instance", None)

        def save() -> None:
            request.refresh_token_instance = spent
            super(MCPValidator, self).save_bearer_token(token, request, *args, **kwargs)

        again_after_deadlocks(router.db_for_write(get_access_token_model()), save)

    def _save_bearer_token(self, token: dict[str, Any], request: OAuthRequest, *args: Any, **kwargs: Any) -> None:
        """Save the tokens of a validated request; a refresh token spent a moment ago gets a sibling pair in its family.

        The toolkit would return the earlier pair again, but only hashes of it are stored.
        """
        spent = getattr(request, "refresh_token_instance", None)
        if request.grant_type == "authorization_code":
            # Write before reading: a second request for this code waits, on SQLite too, and then finds the code gone.
            codes = get_grant_model().objects.filter(code=request.code, application=request.client)
            if not codes.filter(expires__gt=timezone.now()).update(expires=timezone.now()):
                raise errors.InvalidGrantError(request=request)
        elif spent is not None:
            # A concurrent request with the same token waits here, on SQLite too, and then finds it spent.
            rows = get_refresh_token_model().objects.filter(pk=spent.pk)
            rows.update(updated=timezone.now())
            # With a lock: without one, MySQL may read the row as it was when the transaction began.
            spent = rows.select_for_update().get()
        if spent is None or spent.revoked is None:
            if request.grant_type == "authorization_code":
                _tell_if_new(token, request)
            super()._save_bearer_token(token, request, *args, **kwargs)
            get_grant_model().objects.filter(code=request.code or "", application=request.client).delete()
            return
        if not get_access_token_model().objects.filter(source_refresh_token=spent).exists():
            raise errors.InvalidGrantError(request=request)
        self._check_and_set_request_resource(request)
        seconds = token.get("expires_in", oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS)
        access_token = self._create_access_token(timezone.now() + timedelta(seconds=seconds), request, token)
        self._create_refresh_token(request, token["refresh_token"], access_token, spent)

    def revoke_token(self, token: str, token_type_hint: str, request: OAuthRequest, *args: Any, **kwargs: Any) -> None:
        """Revoke a token of the client; a refresh token's whole family goes too (RFC 7009, section 2.1)."""
        access = get_access_token_model()
        refresh = get_refresh_token_model()
        mine = {"token_checksum": checksum_of(token), "application": request.client}
        # Refresh tokens first, as a refresh locks them: the other way around, two requests wait for each other.
        with writing(router.db_for_write(access)):
            for family in set(refresh.objects.filter(**mine).values_list("token_family", flat=True)):
                refresh.revoke_family(family)
            super().revoke_token(token, token_type_hint, request, *args, **kwargs)

    def _create_access_token(
        self, expires: Any, request: OAuthRequest, token: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        until = until_of(getattr(request, "facts", {}))
        if until is not None and until < expires:
            expires = until
            token["expires_in"] = max(0, int((until - timezone.now()).total_seconds()))
        row = super()._create_access_token(expires, request, token, *args, **kwargs)
        family = getattr(request, "family", None)
        if request.user is not None:
            is_renewed = request.grant_type == "refresh_token" and family is not None
            facts = getattr(request, "facts", {})
            store_facts(row.token_checksum, request.user, facts, family, is_renewed=is_renewed)
        if family is not None:
            forget_former(family)
        return row

    def _create_refresh_token(self, request: OAuthRequest, code: str, access_token: Any, previous: Any) -> Any:
        row = super()._create_refresh_token(request, code, access_token, previous)
        if previous is None and request.code:
            row.token_family = _family_of(request.code)
            row.save(update_fields=["token_family"])
        return row

    def _load_access_token(self, token: str) -> Any:
        """Return the access token of this text, with user, client and facts."""
        checksum = checksum_of(token)
        rows = get_access_token_model().objects.select_related("application", "user").filter(token_checksum=checksum)
        if beside_tokens():
            rows = rows.annotate(kept_facts=Subquery(TokenFacts._default_manager.filter(pk=checksum).values("facts")))
        return rows.first()

    # Resources

    def _check_and_set_request_resource(self, request: OAuthRequest) -> None:
        """Validate the requested resources, and bind the token to them in the endpoints' own spelling."""
        requested = [value for key, value in request.decoded_body or [] if key == "resource"]
        resources = check_resources(requested, _HeadersOnly(request.headers)) if requested else []
        if resources and django_settings.DEBUG:
            # Use the spelling of the grant, which may have another name of this machine.
            row = getattr(request, "refresh_token_instance", None)
            if row is None:
                row = get_grant_model().objects.filter(code=request.code or "", application=request.client).first()
            granted = (row.resource if row is not None else None) or []
            same = resource_urls.same_resource
            resources = [next((url for url in granted if same(url, item)), item) for item in resources]
        request.resource = resources
        super()._check_and_set_request_resource(request)
        request.resource = request.resource or check_resources([], _HeadersOnly(request.headers))

    # ID tokens are not access tokens, and this server issues none.

    def validate_id_token(self, token: str, scopes: list[str], request: OAuthRequest) -> bool:
        """Return False: this server makes no ID tokens."""
        return False

    def validate_jwt_bearer_token(self, token: str, scopes: list[str], request: OAuthRequest) -> bool:
        """Return False: tokens of this server are no JWTs."""
        return False


def _assertions(request: OAuthRequest) -> list[str]:
    """Return each ``client_assertion`` in the body of the request."""
    return [value for key, value in request.decoded_body or [] if key == "client_assertion"]


def _family_of(code: str) -> UUID:
    """Return the family of the tokens made from an authorization code, by which a reused code is recognised."""
    # MariaDB's columns of UUIDs take no other 16 bytes than those of a version.
    return UUID(bytes=hashlib.sha256(b"mcp_django.oauth code " + code.encode()).digest()[:16], version=5)


def _has_ended(facts: Mapping[str, Any]) -> bool:
    """Return whether the grant has ended, at a time that its user chose."""
    until = until_of(facts)
    return until is not None and until <= timezone.now()


def _tell_if_new(token: dict[str, Any], request: OAuthRequest) -> None:
    """Send the signal ``client_connected`` after commit, if this is the client's first token for the user."""
    user = request.user
    client = request.client
    tables = get_access_token_model(), get_refresh_token_model()
    if any(table._default_manager.filter(user=user, application=client).exists() for table in tables):
        return
    arguments = {"sender": type(client), "application": client, "user": user, "scopes": token["scope"].split()}

    transaction.on_commit(lambda: client_connected.send_robust(**arguments), using=router.db_for_write(tables[0]))


class _HeadersOnly(HttpRequest):
    """A Django request with the headers of oauthlib's request, to compute the origin."""

    def __init__(self, headers: dict[str, Any]) -> None:
        super().__init__()
        self.META = headers

    def _get_scheme(self) -> str:
        # The toolkit sets this header if Django's own request came over TLS.
        if self.META.get("X_DJANGO_OAUTH_TOOLKIT_SECURE"):
            return "https"
        return "http"
