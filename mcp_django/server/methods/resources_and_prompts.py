"""Handlers of the methods for resources, prompts and completions of their arguments."""

from collections.abc import Mapping
from typing import Any, Final

from ...conf import settings
from ...context.request import MCPRequest
from ...exceptions import NotFound
from ...orm.query_limits import read_limits
from ...protocol.errors import InternalError, InvalidParams, ResourceNotFound
from ...resources.model_resources import Resources
from ...runtime.cache_and_rate_limits import Caller, RateLimit
from ...scopes import Scope
from .handler_interface import Later


def list_resources(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``resources/list``: one page of the resources that the caller may read, with models but not rows."""
    items, next_cursor = Resources(request).list(params.get("cursor"))
    page: dict[str, Any] = {"resources": items}
    if next_cursor:
        page["nextCursor"] = next_cursor
    return page


def list_templates(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``resources/templates/list``: the URI templates of rows, pages and files, in one page."""
    if params.get("cursor"):
        raise InvalidParams("Invalid params: cursor")
    return {"resourceTemplates": Resources(request).templates()}


def read_resource(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Handle ``resources/read``: the contents at a URI; missing, hidden and forbidden ones get the same answer."""
    uri: str = params["uri"]
    request.mcp.require_scopes([Scope.READ])
    function = request.mcp.site.get_function_resource(request, uri)
    if function is not None:
        request.mcp.require_scopes(function.scopes)

    def read() -> dict[str, Any]:
        try:
            if function is not None:
                contents = function.read(request, uri)
                # Clients must not cache contents that depend on answers.
                hints = {"ttlMs": 0} if request.mcp.answers.seen else function.cache_hints
                return {"contents": contents, **hints}
            with read_limits():
                resource = Resources(request).find(uri)
                return {"contents": resource.read(), **resource.cache_hints}
        except NotFound:
            raise ResourceNotFound(uri) from None

    return Later(read) if function is not None else read()


def list_prompts(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``prompts/list``: the prompts that the caller may use, in one page."""
    if params.get("cursor"):
        raise InvalidParams("Invalid params: cursor")
    return {"prompts": [prompt.definition() for prompt in request.mcp.site.get_prompts(request)]}


def get_prompt(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Handle ``prompts/get``: the messages of one prompt, made by the project's function."""
    name: str = params["name"]
    prompt = request.mcp.site.get_prompt(request, name)
    if prompt is None:
        raise InvalidParams(f"Unknown prompt: {name[:64]}")
    request.mcp.record.target = prompt.name
    request.mcp.require_scopes(prompt.scopes)
    arguments = dict(params.get("arguments") or {})
    return Later(lambda: prompt.get(request, arguments), is_async=prompt.is_async)


# The same text for missing and forbidden ones, so that it does not reveal which they are.
UNKNOWN: Final = "Unknown prompt, resource template or argument"


def complete(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Handle ``completion/complete``: values for one argument of a prompt or a resource template."""
    request.mcp.require_scopes([Scope.READ])
    # Without a working cache there is no limit, like for the rate of calls in the transport.
    retry_after = RateLimit("completions", settings.RATES["completions"]).hit_if_counted(Caller.of(request))
    if retry_after is not None:
        raise InternalError("Too many completions: try again later", data={"retryAfter": retry_after})
    name = params["argument"]["name"]
    value = params["argument"]["value"]
    source, variables = _source(request, params["ref"])
    if source is None or not source.takes(name):
        raise InvalidParams(UNKNOWN)
    context = {**variables, **((params.get("context") or {}).get("arguments") or {})}
    context.pop(name, None)

    def work() -> dict[str, Any]:
        return {"completion": source.complete(request, name, value, context).to_wire()}

    if source.is_slow(name):
        return Later(work)
    with read_limits():
        return work()


def _source(request: MCPRequest, ref: Mapping[str, Any]) -> tuple[Any, Mapping[str, str]]:
    """Find the prompt or resource template that a client refers to; return its completer, or None, and arguments."""
    site = request.mcp.site
    if ref["type"] == "ref/prompt":
        prompt = site.get_prompt(request, ref["name"])
        if prompt is None:
            return None, {}
        request.mcp.require_scopes(prompt.scopes)
        return prompt.completer, {}
    uri: str = ref["uri"]
    for resource in site.resources.values():
        variables = {} if uri == resource.uri else resource.matches(uri)
        if resource.is_template and variables is not None and resource.has_permission(request):
            request.mcp.require_scopes(resource.scopes)
            return resource.completer, variables
    return Resources(request).completer(uri), {}
