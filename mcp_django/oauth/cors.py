"""CORS for what browsers may fetch without credentials: documents and the endpoints of OAuth."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase

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
