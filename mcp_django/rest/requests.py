"""The request that a ViewSet gets: that of a REST client who has been signed in as the caller."""

import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote

from django.http import QueryDict
from django.urls import ResolverMatch, get_script_prefix

from ..context.admin_page import MemoryMessages, MemorySession
from ..context.request import MCPRequest
from ..forms.requests import LEFT_OUT, LEFT_OUT_META
from .routes import Route

JSON: Final = "application/json"
# Headers of the caller's own request that say how it came here, and would mean something else to a view.
TRANSPORT: Final = (
    "HTTP_MCP_",
    "HTTP_IF_",
    "HTTP_RANGE",
    "HTTP_ORIGIN",
    "HTTP_LAST_EVENT_ID",
    "HTTP_TRANSFER_ENCODING",
)


class RestRequest(MCPRequest):
    """A request that was made for a view, without token and cookie."""

    def build_absolute_uri(self, location: str | None = None) -> str:
        """Return the absolute form of the location, or of the request's own, which then names the caller.

        Caches of whole responses tell callers apart by the headers that are missing here, and otherwise by this.
        """
        uri = super().build_absolute_uri(location)
        return uri if location is not None else f"{uri}#{_caller(self)}"


def rest_request(
    request: MCPRequest,
    route: Route,
    kwargs: Mapping[str, Any],
    *,
    path: str = "/",
    query: QueryDict | None = None,
    body: Any = None,
) -> RestRequest:
    """Return a request of the same caller for a route; ``kwargs`` are the parameters of its URL.

    It has a session and messages of its own, which are never stored. ``mcp`` is the same object; attributes that the
    project's middleware set are kept.
    """
    copy: Any = RestRequest()
    left_out = LEFT_OUT | vars(copy).keys() | {"_current_scheme_host"}
    copy.__dict__.update({name: value for name, value in vars(request).items() if name not in left_out})
    copy.method = route.method.upper()
    copy.path = unquote(path)
    copy.path_info = "/" + copy.path.removeprefix(get_script_prefix())
    copy.GET = query if query is not None else QueryDict("")
    encoded = json.dumps(body).encode() if body is not None else b""
    copy.META = _environment(request, copy, len(encoded))
    if body is not None:
        copy.META["CONTENT_TYPE"] = copy.content_type = JSON
        copy.content_params = {}
    copy._stream, copy._read_started = BytesIO(encoded), False
    # A tenant that the URL of the endpoint names is that of the ViewSet's hooks too.
    given = request.resolver_match.kwargs if request.resolver_match is not None else {}
    copy.resolver_match = _resolver_match(route, {**given, **kwargs})
    # REST framework takes this user for the one whom its authenticators found; none of them is run.
    copy._force_auth_user, copy._force_auth_token = request.user, None
    copy._dont_enforce_csrf_checks = True
    copy.session = MemorySession()
    copy._messages = MemoryMessages(copy)
    made: RestRequest = copy
    return made


def _environment(request: MCPRequest, made: RestRequest, length: int) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in request.META.items()
        if name not in LEFT_OUT_META and not name.startswith(TRANSPORT)
    }
    return {
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        **kept,
        "REQUEST_METHOD": made.method,
        "SCRIPT_NAME": get_script_prefix().rstrip("/"),
        "PATH_INFO": made.path_info,
        "QUERY_STRING": made.GET.urlencode(),
        "CONTENT_LENGTH": str(length),
        "HTTP_ACCEPT": JSON,
    }


def _resolver_match(route: Route, kwargs: Mapping[str, Any]) -> ResolverMatch:
    namespaces: list[str | None] = [part for part in route.registration.namespace.split(":") if part]
    return ResolverMatch(
        route.callback, (), dict(kwargs), url_name=route.url_name, app_names=namespaces, namespaces=namespaces
    )


def _caller(request: MCPRequest) -> str:
    return hashlib.sha256(f"{request.user.pk}/{request.mcp.client_id}".encode()).hexdigest()[:16]
