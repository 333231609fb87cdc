"""Run a ViewSet as Django would for a REST client that is signed in as the caller: the ViewSet decides everything.

It is also asked, before anything runs, what it would permit this caller.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from io import BytesIO
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.http import Http404, HttpResponseBase, QueryDict
from django.urls import ResolverMatch, get_script_prefix
from rest_framework.exceptions import APIException
from rest_framework.parsers import JSONParser
from rest_framework.permissions import SAFE_METHODS
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from ..context.request import MCPRequest
from ..emulation.page_requests import copy_caller
from ..exceptions import ToolError
from ..orm.database_writes import refusals
from ..orm.query_limits import write_transaction
from ..schema.json_values import to_jsonable
from .parameters import Undecided
from .responses import link_files, refuse
from .routes import Route

logger = logging.getLogger("mcp_django")

JSON: Final = "application/json"
# Prefixes of the caller's headers that concern the MCP transport, and would mean something else to a view.
TRANSPORT: Final = (
    "HTTP_MCP_",
    "HTTP_IF_",
    "HTTP_RANGE",
    "HTTP_ORIGIN",
    "HTTP_LAST_EVENT_ID",
    "HTTP_TRANSFER_ENCODING",
)


class RestRequest(MCPRequest):
    """The request that a ViewSet gets, without token and cookie."""

    def build_absolute_uri(self, location: str | None = None) -> str:
        """Return an absolute URI; that of the request itself names the caller, for caches of whole responses.

        Such caches tell callers apart by headers, which are missing here, and by this URI.
        """
        uri = super().build_absolute_uri(location)
        if location is not None:
            return uri
        caller = hashlib.sha256(f"{self.user.pk}/{self.mcp.client_id}".encode()).hexdigest()[:16]
        return f"{uri}#{caller}"


def rest_request(
    request: MCPRequest,
    route: Route,
    kwargs: Mapping[str, Any],
    *,
    path: str = "/",
    query: QueryDict | None = None,
    body: Any = None,
) -> RestRequest:
    """Return the request for a route: a copy of the caller's request, without token and cookie.

    The copy has its own session and messages, which are never saved. ``mcp`` is the same object; attributes that the
    project's middleware has set are copied.
    """
    copy: Any = RestRequest()
    copy_caller(request, copy)
    copy.__dict__.pop("_current_scheme_host", None)
    copy.method = route.method.upper()
    copy.path = unquote(path)
    copy.path_info = "/" + copy.path.removeprefix(get_script_prefix())
    copy.GET = query if query is not None else QueryDict("")
    encoded = json.dumps(body).encode() if body is not None else b""
    copy.META = {
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        **{name: value for name, value in copy.META.items() if not name.startswith(TRANSPORT)},
        "REQUEST_METHOD": copy.method,
        "SCRIPT_NAME": get_script_prefix().rstrip("/"),
        "PATH_INFO": copy.path_info,
        "QUERY_STRING": copy.GET.urlencode(),
        "CONTENT_LENGTH": str(len(encoded)),
        "HTTP_ACCEPT": JSON,
    }
    if body is not None:
        copy.META["CONTENT_TYPE"] = JSON
        copy.content_type = JSON
        copy.content_params = {}
    copy._stream = BytesIO(encoded)
    copy._read_started = False
    # Keep the parameters in the endpoint's URL, such as a tenant, for the ViewSet's hooks.
    url_kwargs = request.resolver_match.kwargs if request.resolver_match is not None else {}
    namespaces: list[str | None] = [part for part in route.registration.namespace.split(":") if part]
    copy.resolver_match = ResolverMatch(
        route.callback,
        (),
        {**url_kwargs, **kwargs},
        url_name=route.url_name,
        app_names=namespaces,
        namespaces=namespaces,
    )
    # REST framework uses this user and does not run its authenticators.
    copy._force_auth_user = request.user
    copy._force_auth_token = None
    copy._dont_enforce_csrf_checks = True
    made: RestRequest = copy
    return made


# Asking a ViewSet


class Unknown(dict[str, Any]):
    """Parameters that are unknown before the call: reading one raises :class:`Undecided`."""

    def _refuse(self, *args: Any) -> NoReturn:
        raise Undecided

    def __missing__(self, key: str) -> Any:
        raise Undecided

    def get(self, key: str, default: Any = None) -> Any:
        """Return a known value."""
        return self[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    keys = _refuse
    values = _refuse
    items = _refuse
    pop = _refuse
    copy = _refuse
    __len__ = _refuse


def view_for(route: Route, request: RestRequest, kwargs: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
    """Return an instance of the route's ViewSet with its request, ready to be asked; nothing has run yet.

    The view gets ``kwargs`` as the parameters of the URL and ``data`` as the body.
    """
    view = route.viewset(**route.callback.initkwargs)
    view.action_map = {route.method: route.action}
    view.args = ()
    view.kwargs = kwargs
    view.format_kwarg = None
    view.request = request
    view.headers = {}
    drf_request = view.initialize_request(request)
    drf_request._data = data
    drf_request._full_data = data
    view.request = drf_request
    renderer, media_type = view.perform_content_negotiation(drf_request, force=True)
    drf_request.accepted_renderer = renderer
    drf_request.accepted_media_type = media_type
    try:
        drf_request.version, drf_request.versioning_scheme = view.determine_version(drf_request)
    except (APIException, Http404):
        drf_request.version = view.settings.DEFAULT_VERSION
        drf_request.versioning_scheme = None
    return view


def probe(request: MCPRequest, route: Route) -> Any:
    """Return an instance of the route's ViewSet with a request whose parameters are unknown."""
    fixed = route.registration.kwargs
    kwargs = Unknown(fixed) if route.parameters else dict(fixed)
    data = {} if route.method == "get" else Unknown()
    return view_for(route, rest_request(request, route, fixed), kwargs, data)


def is_permitted(request: MCPRequest, route: Route) -> bool:
    """Return whether the ViewSet's permissions would admit the caller, as far as they need no parameters.

    A permission that depends on parameters is decided by the call; one that raises an error admits nobody.
    """
    try:
        view = probe(request, route)
        view.check_permissions(view.request)
    except Undecided:
        return True
    except (APIException, PermissionDenied, Http404):
        return False
    except Exception:
        logger.warning("The permissions of %s failed", route.name, exc_info=True)
        return False
    return True


# Running


def run(
    request: MCPRequest, route: Route, kwargs: Mapping[str, Any], query: QueryDict, body: Any
) -> tuple[RestRequest, HttpResponseBase]:
    """Run the ViewSet; return the request that it got, and its response."""
    made = rest_request(request, route, kwargs, path=route.path(kwargs), query=query, body=body)
    probed = view_for(route, made, kwargs, {})
    # Read and write JSON even if REST clients of this view have to use another format.
    other: dict[str, Any] = {}
    if not any(_is_json(item.media_type) for item in probed.get_renderers()):
        other["renderer_classes"] = [JSONRenderer]
    if not any(_is_json(item.media_type) for item in probed.get_parsers()):
        other["parser_classes"] = [JSONParser]
    view: Any = route.callback
    if other:
        view = route.viewset.as_view({route.method: route.action}, **{**route.callback.initkwargs, **other})
    handler: Any = BaseHandler().make_view_atomic(view)
    apart = getattr(view, "_non_atomic_requests", ())
    atomic = [alias for alias, entry in connections.settings.items() if entry["ATOMIC_REQUESTS"] and alias not in apart]
    try:
        with ExitStack() as stack:
            if route.method.upper() not in SAFE_METHODS:
                # What REST framework leaves to Django's page for errors.
                stack.enter_context(refusals(undone=bool(atomic)))
            # ATOMIC_REQUESTS would begin a read transaction. Open one that waits for its turn to write around it.
            for alias in atomic if route.method.upper() not in SAFE_METHODS else ():
                stack.enter_context(write_transaction(alias))
            response = handler(made, **kwargs)
    except RequestDataTooBig:
        raise ToolError("The arguments are larger than this project takes.") from None
    link_files(request, getattr(response, "data", None))
    return made, response


def check_object(request: MCPRequest, route: Route, kwargs: Mapping[str, Any], *, throttled: bool) -> None:
    """Raise ``ToolError`` unless the ViewSet's permissions let the caller act on the row; the action is not run."""
    view = view_for(route, rest_request(request, route, kwargs, path=route.path(kwargs)), kwargs, {})
    try:
        view.check_permissions(view.request)
        if throttled:
            view.check_throttles(view.request)
        # get_object() asserts that the view has a queryset, which a view need not have.
        if route.callback.initkwargs.get("detail") and hasattr(view, "get_object"):
            with suppress(AssertionError):
                view.get_object()
    except Exception as error:
        # Refuse the call as the view itself would.
        refuse(route, view.finalize_response(view.request, view.handle_exception(error)))


def show_object(request: MCPRequest, route: Route, kwargs: Mapping[str, Any]) -> Any:
    """Return the data of one row as the ViewSet shows it, None if it does not show it.

    Throttles are not checked, because the call has been counted already.
    """
    view = view_for(route, rest_request(request, route, kwargs, path=route.path(kwargs)), kwargs, {})
    try:
        view.check_permissions(view.request)
        response = getattr(view, route.action)(view.request, **kwargs)
    except (APIException, PermissionDenied, Http404):
        return None
    if not isinstance(response, Response) or response.status_code != 200:
        return None
    link_files(request, response.data)
    return to_jsonable(json.loads(JSONRenderer().render(response.data) or b"null"))


def _is_json(media_type: str | None) -> bool:
    plain = (media_type or "").split(";")[0].strip()
    return plain in ("application/json", "*/*", "application/*")
