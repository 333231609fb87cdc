"""Dynamic client registration (RFC 7591), for clients that know nothing else: throttled, bounded, and no more."""

import hashlib
import json
import logging
import time
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from .. import problems
from ..conf import settings
from ..context.request import MCPContext
from ..exceptions import AuthenticationFailed
from ..runtime.cache import cache, hit
from .bearer import BearerAuthentication
from .client_metadata import ClientMetadata, InvalidMetadata, read_metadata
from .decorators import cors, logged, note
from .resource import endpoints, is_loopback, resource_url
from .tokens import hashed_secret

logger = logging.getLogger(__name__)

MAX_BODY: Final = 16 * 1024
# Seconds for which a registration with the same metadata is the same one.
REMEMBERED: Final = 3600
CACHE_DOWN: Final = 30
NOTHING: Final = ClientMetadata((), "", "")


@csrf_exempt
@login_not_required
@cors("POST")
@logged
def register(request: HttpRequest) -> HttpResponseBase:
    """Register a client and answer 201 with its metadata (RFC 7591, section 3).

    ``MCP_DJANGO["REGISTRATION"]``: "open"; "authenticated", which asks for a token of this server as the initial access
    token; or "off".
    """
    if settings.REGISTRATION == "off":
        note(request.META, problems.NO_REGISTRATION)
        return _error("not_found", "Clients are registered by the administrators of this server.", 404)
    if request.method != "POST":
        return _error("invalid_request", "Use POST.", 405, Allow="POST, OPTIONS")
    registration = Registration(request)
    wait = registration.throttle()
    if registration.is_uncounted:
        note(request.META, problems.NO_CACHE)
        text = f"{problems.NO_CACHE.told} Try again in {CACHE_DOWN} seconds."
        return _error("temporarily_unavailable", text, 503, Retry_After=str(CACHE_DOWN))
    if wait is not None:
        note(request.META, problems.MANY_CLIENTS)
        minutes = f"{-(-wait // 60)} minutes" if wait > 60 else f"{wait} seconds"
        text = f"Too many clients were registered from this address, or in all. Try again in {minutes}."
        return _error("temporarily_unavailable", text, 429, Retry_After=str(wait))
    try:
        user = _registrant(request)
    except AuthenticationFailed as failure:
        note(request.META, problems.TOKEN_TO_REGISTER)
        code = ', error="invalid_token"' if failure.invalid else ""
        described = "Registration needs an access token of this server."
        return _error("invalid_token", described, 401, WWW_Authenticate=f'Bearer realm="registration"{code}')
    if registration.invalid is not None:
        return _error(registration.invalid.error, registration.invalid.description, 400)
    return JsonResponse(registration.complete(user), status=201, headers={"Cache-Control": "no-store"})


class Registration:
    """What a client registers, beside what was registered before from its address, which is the connection's.

    A header would let anyone have as many addresses as they like. Programs register again with each sign-in, and those
    of hosted clients from few addresses: one with the same metadata is not counted again. A public client then gets the
    id that it has already, as the server may choose (RFC 7591, section 3.2.1); a confidential one a secret of its own.
    """

    def __init__(self, request: HttpRequest) -> None:
        self.address = request.META.get("REMOTE_ADDR", "")
        self.metadata = NOTHING
        self.invalid: InvalidMetadata | None = None
        same: list[str] = []
        try:
            found = self.metadata = read_metadata(_body(request), oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES)
            same = [self.address, found.name, found.auth_method, *map(_portless, found.redirect_uris)]
        except InvalidMetadata as failure:
            self.invalid = failure
        self.is_public = self.metadata.auth_method == "none"
        # A public client that registered itself before.
        self.client: Any = None
        self.is_uncounted = False
        self._who = json.dumps(same)
        self._key = f"mcp_django:registered:{hashlib.sha256(self._who.encode()).hexdigest()}"

    def throttle(self) -> int | None:
        """Count it by address, then in total, where it counts; return the seconds to wait when either is used up."""
        try:
            known = cache.get(self._key) if self.invalid is None else None
            if known is not None and self.is_public and settings.REGISTRATION == "open":
                model = get_application_model()
                mine = {"registration_source": model.RegistrationSource.DCR, "client_type": model.CLIENT_PUBLIC}
                self.client = model._default_manager.filter(client_id=known, **mine).first()
            if self.client is not None:
                return None
            who = self.address if known is None else self._who
            wait = hit("registration", who, settings.REGISTRATION_RATE)
            return wait if wait is not None else hit("registrations", "", settings.REGISTRATION_TOTAL_RATE)
        except DatabaseError:
            raise
        except Exception:  # whatever the cache's client library raises
            logger.exception("The cache does not count registrations: refused until it does")
            self.is_uncounted = True
            return None

    def complete(self, user: AbstractBaseUser | None) -> dict[str, Any]:
        """Store the client, unless it is there, and return its information (RFC 7591, section 3.2.1)."""
        client, secret = self.client, ""
        if client is None:
            model = get_application_model()
            client = model(
                user=user,
                name=self.metadata.name,
                redirect_uris=" ".join(self.metadata.redirect_uris),
                client_type=model.CLIENT_PUBLIC if self.is_public else model.CLIENT_CONFIDENTIAL,
                authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
                registration_source=model.RegistrationSource.DCR,
                # It is random and long: to stretch it would be a fifth of a second for anyone to spend, each time.
                hash_client_secret=False,
            )
            if not self.is_public:
                secret = client.client_secret
                client.client_secret = hashed_secret(secret)
            client.save()
        with suppress(Exception):  # it is counted the next time
            cache.set(self._key, client.client_id, timeout=REMEMBERED)
        answer = {
            "client_id": client.client_id,
            "client_id_issued_at": int(time.time()),
            "redirect_uris": list(self.metadata.redirect_uris),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.metadata.auth_method,
        }
        if self.metadata.name:
            answer["client_name"] = self.metadata.name
        if secret:
            answer |= {"client_secret": secret, "client_secret_expires_at": 0}
        return answer


def _portless(uri: str) -> str:
    """Return a redirect URI as it is compared: the port of loopback is another one each time (RFC 8252, 7.3)."""
    parts = urlsplit(uri)
    if not is_loopback(uri) or (parts.hostname == "localhost" and not oauth2_settings.ALLOW_LOCALHOST_LOOPBACK):
        return uri
    return parts._replace(netloc=parts.hostname or "").geturl()


def _registrant(request: HttpRequest) -> AbstractBaseUser | None:
    """Return the user whose token came along where one is required."""
    if settings.REGISTRATION == "open":
        return None
    for path, site in endpoints().items():
        request.mcp = MCPContext(site, resource_url(request, path))  # type: ignore[attr-defined]
        try:
            found = BearerAuthentication().authenticate(request)
        except AuthenticationFailed:
            continue
        if found is None:
            raise AuthenticationFailed(invalid=False)
        return found[0]
    raise AuthenticationFailed(invalid=True)


def _body(request: HttpRequest) -> Any:
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        body = request.read(MAX_BODY + 1) if length <= MAX_BODY else b""
    except (ValueError, OSError):
        body, length = b"", 0
    if length > MAX_BODY or len(body) > MAX_BODY:
        raise InvalidMetadata("invalid_client_metadata", f"The request body is over {MAX_BODY} bytes.")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidMetadata("invalid_client_metadata", "The request body must be JSON.") from None


def _error(error: str, description: str, status: int, **headers: str) -> JsonResponse:
    response = JsonResponse({"error": error, "error_description": description}, status=status)
    response["Cache-Control"] = "no-store"
    for name, value in headers.items():
        response[name.replace("_", "-")] = value
    return response
