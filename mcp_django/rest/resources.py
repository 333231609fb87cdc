"""The rows of a ViewSet as resources: ``rest://orders{?page}`` for a page, ``rest://orders/{pk}`` for one."""

import inspect
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from keyword import iskeyword
from typing import Any, Final
from urllib.parse import quote, urlencode

from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..protocol.uri_templates import UriTemplate
from ..resources.base import FunctionResource
from .parameters import query_parameters
from .responses import LINKS
from .routes import Route
from .tools import ViewSetTool

logger = logging.getLogger("mcp_django")

SCHEME: Final = "rest://"
JSON: Final = "application/json"
READ_BY: Final = ("list", "retrieve")
# What a URI template and a parameter of a function may both be called.
NAME: Final = re.compile(r"(?!request$)[A-Za-z_][A-Za-z0-9_]{0,63}")


def resources_of(tool: ViewSetTool) -> Iterator[FunctionResource]:
    """Yield the resources of a tool: none but for ``list`` and ``retrieve``."""
    route = tool.route
    if route.action not in READ_BY or route.method != "get":
        return
    base = "/".join([SCHEME + quote(route.registration.name), *(f"{{{name}}}" for name in route.parameters)])
    if route.action == "list" and not route.parameters:
        yield _resource(tool, base, ())
    query = _static_query(route) if route.action == "list" else []
    uri = f"{base}{{?{','.join(query)}}}" if query else base
    if UriTemplate(uri).is_template:
        yield _resource(tool, uri, query)


def _static_query(route: Route) -> list[str]:
    """Return the names of the query parameters, as far as they depend on no caller."""
    view = route.viewset(**route.callback.initkwargs)
    view.args, view.kwargs, view.request, view.action, view.format_kwarg = (), {}, None, route.action, None
    try:
        known = query_parameters(route, view)
    except Exception:
        logger.debug("The query parameters of %s depend on the caller", route.name, exc_info=True)
        return []
    return [name for name in known if NAME.fullmatch(name) and not iskeyword(name) and name not in route.parameters]


def _resource(tool: ViewSetTool, uri: str, query: Collection[str]) -> FunctionResource:
    def read(request: MCPRequest, **given: str) -> Any:
        arguments = {name: value for name, value in given.items() if value != "" or name in tool.route.parameters}
        try:
            result = tool.call(request, arguments)
        except ToolError as error:
            if tool.route.action == "retrieve":
                raise NotFound from None
            raise error
        payload = dict(result.structured or {})
        return _with_links(uri, payload, arguments) if tool.route.action == "list" else payload

    first = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=str,
            default="" if name in query else inspect.Parameter.empty,
        )
        for name in (*tool.route.parameters, *query)
    ]
    read.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    return FunctionResource(
        uri,
        read,
        name=f"rest_{tool.name}",
        title=tool.title,
        description=tool.description.split("\n", 1)[0],
        mime_type=JSON,
        permission=tool.has_permission,
    )


def _with_links(uri: str, payload: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page whose links are URIs of resources instead of arguments."""
    base = uri.partition("{?")[0]
    for name, value in arguments.items():
        base = base.replace(f"{{{name}}}", quote(str(value), safe=""))
    for link in LINKS:
        if isinstance(changed := payload.get(link), dict):
            query = {name: value for name, value in {**arguments, **changed}.items() if value is not None}
            own = {name: value for name, value in query.items() if f"{{{name}}}" not in uri}
            payload[link] = f"{base}?{urlencode(own, doseq=True, quote_via=quote)}" if own else base
    return payload
