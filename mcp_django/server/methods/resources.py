"""``resources/list``, ``resources/templates/list`` and ``resources/read``."""

from collections.abc import Callable, Mapping
from typing import Any

from ...context.request import MCPRequest
from ...exceptions import NotFound
from ...orm.query_limits import read_limits
from ...protocol.errors import InvalidParams, ResourceNotFound
from ...resources.base import FunctionResource
from ...scopes import READ
from .base import Later, require_scopes


def list_resources(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with one page of the resources that the caller may read: models, not rows."""
    items, next_cursor = request.mcp.site.list_resources(request, params.get("cursor"))
    page: dict[str, Any] = {"resources": items}
    if next_cursor:
        page["nextCursor"] = next_cursor
    return page


def list_templates(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with the templates by which rows, pages and files are reached, in one page."""
    if params.get("cursor"):
        raise InvalidParams("Invalid params: cursor")
    return {"resourceTemplates": request.mcp.site.list_resource_templates(request)}


def read_resource(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Answer with the contents behind a URI; missing, filtered out and forbidden are one answer."""
    uri: str = params["uri"]
    require_scopes(request, [READ])
    site = request.mcp.site
    function = site.get_function_resource(request, uri)
    if function is not None:
        require_scopes(request, function.scopes)
        return Later(lambda: _read(uri, lambda: {"contents": function.read(request, uri), **_hints(request, function)}))
    with read_limits():
        return _read(uri, lambda: _read_model(request, uri))


def _read_model(request: MCPRequest, uri: str) -> dict[str, Any]:
    resource = request.mcp.site.get_model_resource(request, uri)
    return {"contents": resource.read(), **resource.cache_hints}


def _hints(request: MCPRequest, function: FunctionResource) -> Mapping[str, Any]:
    """Return how long the client may keep what the function gave: not at all what answers went into."""
    return {"ttlMs": 0} if request.mcp.answers.seen else function.cache_hints


def _read(uri: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read()
    except NotFound:
        raise ResourceNotFound(uri) from None
