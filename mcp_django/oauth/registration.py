"""Dynamic client registration (RFC 7591), for clients that know nothing else: throttled, bounded, and no more."""

import json
import logging
import time
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context import MCPContext
from ..exceptions import AuthenticationFailed
from ..rates import hit
from .bearer import BearerAuthentication
from .clients import ClientMetadata, InvalidMetadata, read_metadata
from .cors import cors
from .resource import endpoints, resource_url

__all__ = ["register"]

logger = logging.getLogger(__name__)

MAX_BODY: Final = 16 * 1024
CACHE_DOWN: Final = 30


@csrf_exempt
@login_not_required
@cors("POST")
def register(request: HttpRequest) -> HttpResponseBase:
    """Register a client and answer 201 with its metadata (RFC 7591, section 3).

    ``MCP_DJANGO["REGISTRATION"]``: "open"; "authenticated", which asks for a token of this server as the initial access
    token; or "off".
    """
    if settings.REGISTRATION == "off":
        return _error("not_found", "Clients are registered by the administrators of this server.", 404)
    if request.method != "POST":
        return _error("invalid_request", "Use POST.", 405, Allow="POST, OPTIONS")
    wait = _throttle(request.META.get("REMOTE_ADDR", ""))
    if wait is not None:
        return _error("temporarily_unavailable", "Too many registrations; try again later.", 429, Retry_After=str(wait))
    try:
        user = _registrant(request)
        metadata = read_metadata(_body(request), oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES)
    except AuthenticationFailed as failure:
        code = ', error="invalid_token"' if failure.invalid else ""
        described = "Registration needs an access token of this server."
        return _error("invalid_token", described, 401, WWW_Authenticate=f'Bearer realm="registration"{code}')
    except InvalidMetadata as failure:
        return _error(failure.error, failure.description, 400)
    return JsonResponse(_create(metadata, user), status=201, headers={"Cache-Control": "no-store"})


def _throttle(address: str) -> int | None:
    """Count this request by address, then in total; return the seconds to wait when either is used up.

    The address is the connection's: a header would let anyone have as many as they like.
    """
    try:
        wait = hit("registration", address, settings.REGISTRATION_RATE)
        return wait if wait is not None else hit("registrations", "", settings.REGISTRATION_TOTAL_RATE)
    except Exception:  # whatever the cache's client library raises
        logger.exception("The cache does not count registrations: refused until it does")
        return CACHE_DOWN


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


def _create(metadata: ClientMetadata, user: AbstractBaseUser | None) -> dict[str, Any]:
    """Store the client and return the answer, with the secret where there is one."""
    model = get_application_model()
    public = metadata.auth_method == "none"
    client = model(
        user=user,
        name=metadata.name,
        redirect_uris=" ".join(metadata.redirect_uris),
        client_type=model.CLIENT_PUBLIC if public else model.CLIENT_CONFIDENTIAL,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
        registration_source=model.RegistrationSource.DCR,
        # A public client never sees its random secret; to stretch it would be a fifth of a second for anyone to spend.
        hash_client_secret=not public,
    )
    secret = client.client_secret
    client.save()
    answer = {
        "client_id": client.client_id,
        "client_id_issued_at": int(time.time()),
        "redirect_uris": list(metadata.redirect_uris),
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": metadata.auth_method,
    }
    if metadata.name:
        answer["client_name"] = metadata.name
    if not public:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    return answer


def _error(error: str, description: str, status: int, **headers: str) -> JsonResponse:
    response = JsonResponse({"error": error, "error_description": description}, status=status)
    response["Cache-Control"] = "no-store"
    for name, value in headers.items():
        response[name.replace("_", "-")] = value
    return response
