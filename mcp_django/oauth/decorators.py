"""Decorators of the endpoints for client programs: CORS, and the cause of a refusal in the log."""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Final

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.http.multipartparser import MultiPartParserError

from ..context.refusals import report
from ..problems import REMEDIES, SENT, Problem
from .assertions import InvalidAssertion, read_assertion

# Among the headers that the toolkit makes of Django's request: no client can send one of this name.
NOTED: Final = "mcp_django.refused"
# MCP clients put their protocol headers on every request, so each of these needs leave in the preflight.
ALLOW_HEADERS: Final = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Last-Event-ID, Mcp-Method, Mcp-Name"
)
EXPOSE_HEADERS: Final = "WWW-Authenticate, Mcp-Session-Id"

View = Callable[..., HttpResponseBase]


def cors(*methods: str) -> Callable[[View], View]:
    """Decorate a view: any origin may call it, without cookies, and a preflight gets 204 (Fetch, section 3.2)."""

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            response = HttpResponse(status=204) if request.method == "OPTIONS" else view(request, *args, **kwargs)
            if request.method == "OPTIONS":
                response["Access-Control-Allow-Methods"] = ", ".join((*methods, "OPTIONS"))
                response["Access-Control-Allow-Headers"] = ALLOW_HEADERS
                response["Access-Control-Max-Age"] = "86400"
            response["Access-Control-Allow-Origin"] = "*"
            response["Access-Control-Expose-Headers"] = EXPOSE_HEADERS
            return response

        return wrapper

    return decorate


class _Noted:
    """The cause that was noted last, and the seconds after which the request can come again, 0 for never."""

    reason: Problem | None = None
    wait: int = 0


def begin(request: HttpRequest) -> None:
    """Let causes be noted for the request."""
    request.META[NOTED] = _Noted()


def note(headers: Mapping[str, Any], reason: Problem, wait: int = 0) -> bool:
    """Note why the request with these headers, oauthlib's or Django's own, is refused if it is; return False."""
    noted = headers.get(NOTED)
    if noted is not None:
        noted.reason, noted.wait = reason, wait
    return False


def log_refusal(request: HttpRequest, status: int, error: str, description: str = "") -> None:
    """Log that a request was refused with an error of OAuth: the cause that was noted, or what the client is told."""
    noted = request.META.get(NOTED)
    reason = noted.reason if noted is not None and noted.reason is not None else None
    if reason is None:
        reason = Problem(description or error or "the request was refused", REMEDIES.get(error, SENT), cause=error)
    who = client_id(request) or request.GET.get("client_id", "")
    said = f"{request.method} {request.path}: {reason.what.rstrip('.')}"
    report(status, f"{said} (client {who!r})" if who else said, reason.remedy, reason.cause)


def logged(view: View) -> View:
    """Decorate a view that answers in JSON: its refusals are logged."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        begin(request)
        try:
            response = view(request, *args, **kwargs)
        except (BadRequest, MultiPartParserError, SuspiciousOperation) as error:
            # Django answers it.
            report(400, f"{request.method} {request.path}: the body cannot be read ({type(error).__name__})", SENT)
            raise
        if response.status_code >= 400:
            log_refusal(request, response.status_code, *_told(response))
            if wait := request.META[NOTED].wait:
                response["Retry-After"] = str(wait)
        return response

    return wrapper


def client_id(request: HttpRequest) -> str:
    """Return as whom a client program asks, whether it is or not."""
    kind, _, encoded = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    with suppress(ValueError, InvalidAssertion):
        if kind.lower() == "basic":
            return base64.b64decode(encoded).partition(b":")[0].decode("latin-1")
        # A client may sign for itself (RFC 7523, section 3).
        signed = request.POST.get("client_assertion", "")
        return request.POST.get("client_id") or read_assertion(signed).text("sub")
    return ""


def _told(response: HttpResponseBase) -> tuple[str, str]:
    """Return the error and its description."""
    with suppress(ValueError):
        body = json.loads(response.content if isinstance(response, HttpResponse) else "")
        return str(body.get("error", "")), str(body.get("error_description", ""))
    return "", response.reason_phrase
