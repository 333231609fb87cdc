"""``prompts/list`` and ``prompts/get``."""

from collections.abc import Mapping
from typing import Any

from ...context.request import MCPRequest
from ...protocol.errors import InvalidParams
from .base import Later, require_scopes


def list_prompts(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with the prompts that the caller may use, in one page."""
    if params.get("cursor"):
        raise InvalidParams("Invalid params: cursor")
    return {"prompts": [prompt.definition() for prompt in request.mcp.site.get_prompts(request)]}


def get_prompt(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Answer with the messages of one prompt, made by the project's function."""
    name: str = params["name"]
    prompt = request.mcp.site.get_prompt(request, name)
    if prompt is None:
        raise InvalidParams(f"Unknown prompt: {name[:64]}")
    request.mcp.record.target = prompt.name
    require_scopes(request, prompt.scopes)
    arguments = dict(params.get("arguments") or {})
    return Later(lambda: prompt.get(request, arguments), is_async=prompt.is_async)
