"""Decorators of the OAuth endpoints for client programs: CORS headers, and the log of refusals with their cause."""

import base64
import ipaddress
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from types import SimpleNamespace
from typing import Any, Final

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.http.multipartparser import MultiPartParserError

from ..context.refused_request_log import report
from ..problems import IS_IT_RIGHT, NO_DOCUMENT, Problem
from ..protocol.headers import cors_headers
from .assertions_and_keys import InvalidAssertion, read_assertion

# Key in ``request.META``, which the toolkit passes on as headers. No client can send a header of this name.
NOTED: Final = "mcp_django.refused"
SENT: Final = "The client's program sent it."
ENTER_AGAIN: Final = "Enter the client's secret again, or let the client register again."
# Remedies for OAuth errors whose cause is not known, by error code.
REMEDIES: Final = {
    "invalid_client": ENTER_AGAIN,
    "invalid_client_metadata": "An administrator can add the application in the admin instead.",
    "invalid_grant": "The code_verifier is not from this sign-in, or two processes of the client used one code.",
    "invalid_redirect_uri": "An administrator can add the application in the admin instead.",
    "invalid_scope": "The client asks for a scope that OAUTH2_PROVIDER['SCOPES'] lacks, or for more than was granted.",
    "invalid_target": IS_IT_RIGHT,
    "not_found": NO_DOCUMENT,
    "unauthorized_client": "In the admin, the application needs the grant type 'Authorization code'.",
    "unsupported_grant_type": "Clients get tokens only by authorization_code and refresh_token.",
    "unsupported_response_type": "Clients sign in only by response_type=code.",
}
NOT_RESTORED: Final = Problem(
    "too many requests were refused, and those of all clients count as one address, that of the proxy",
    "Let the server set REMOTE_ADDR to the client's address, from the header of a proxy that it trusts.",
)

View = Callable[..., HttpResponseBase]


def cors(*methods: str) -> Callable[[View], View]:
    """Decorate a view with CORS headers for any origin, without cookies, and answer preflights (Fetch, section 3.2)."""

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            headers = cors_headers("*", ", ".join((*methods, "OPTIONS")))
            if request.method == "OPTIONS":
                return HttpResponse(status=204, headers={**headers, "Access-Control-Max-Age": "86400"})
            response = view(request, *args, **kwargs)
            for name in ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers"):
                response[name] = headers[name]
            return response

        return wrapper

    return decorate


def begin(request: HttpRequest) -> None:
    """Prepare a request for :func:`note`."""
    # Not a dict, because oauthlib copies those.
    request.META[NOTED] = SimpleNamespace(reason=None, wait=0)


def note(headers: Mapping[str, Any], reason: Problem, wait: int = 0) -> bool:
    """Note why a request would be refused, for the log in case it is; return False.

    ``headers`` are oauthlib's or Django's. ``wait`` is the number of seconds after which the client can send the
    request again, 0 for never.
    """
    if NOTED in headers:
        vars(headers[NOTED]).update(reason=reason, wait=wait)
    return False


def log_refusal(request: HttpRequest, status: int, error: str, description: str = "") -> None:
    """Log a refusal with the noted cause, or else the error that the client is told."""
    reason: Problem | None = getattr(request.META.get(NOTED), "reason", None)
    if reason is None:
        reason = Problem(description or error or "the request was refused", REMEDIES.get(error, SENT), cause=error)
    who = client_id(request) or request.GET.get("client_id", "")
    said = f"{request.method} {request.path}: {reason.what.rstrip('.')}"
    report(status, f"{said} (client {who!r})" if who else said, reason.remedy, reason.cause)


def logged(view: View) -> View:
    """Decorate a view that answers in JSON, so that its refusals are logged."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        begin(request)
        try:
            response = view(request, *args, **kwargs)
        except (BadRequest, MultiPartParserError, SuspiciousOperation) as error:
            # Django answers these with 400.
            report(400, f"{request.method} {request.path}: the body cannot be read ({type(error).__name__})", SENT)
            raise
        if response.status_code >= 400:
            log_refusal(request, response.status_code, *_told(response))
            if wait := request.META[NOTED].wait:
                response["Retry-After"] = str(wait)
        return response

    return wrapper


def client_id(request: HttpRequest) -> str:
    """Return the client id that a request claims, for the log."""
    kind, _, encoded = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    with suppress(ValueError, InvalidAssertion):
        if kind.lower() == "basic":
            return base64.b64decode(encoded).partition(b":")[0].decode("latin-1")
        # An assertion that the client signed has its id as the subject (RFC 7523, section 3).
        return request.POST.get("client_id") or read_assertion(request.POST.get("client_assertion", "")).text("sub")
    return ""


def unrestored_address(request: HttpRequest) -> Problem | None:
    """Return the problem that ``REMOTE_ADDR`` is a proxy's that names its client in ``X-Forwarded-For``, None if not.

    The rates of refusals and registrations then count all clients as one address. The header decides nothing here.
    """
    address = request.META.get("REMOTE_ADDR", "")
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
    if not forwarded or forwarded == address:
        return None
    try:
        # A server on a Unix socket has no address. Those of other proxies cannot be told from those of clients.
        is_proxy = not address or ipaddress.ip_address(address).is_private
    except ValueError:
        return None
    return NOT_RESTORED if is_proxy else None


def _told(response: HttpResponseBase) -> tuple[str, str]:
    """Return error and description in a refusal's JSON body (RFC 6749, section 5.2)."""
    with suppress(ValueError):
        body = json.loads(response.content if isinstance(response, HttpResponse) else "")
        return str(body.get("error", "")), str(body.get("error_description", ""))
    return "", response.reason_phrase
