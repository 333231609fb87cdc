"""``prompts/list`` and ``prompts/get``."""

from collections.abc import Mapping
from typing import Any

from ...context.request import MCPRequest
from ...protocol.errors import InvalidParams
from ...scopes import READ
from .base import Later, require_scopes


def list_prompts(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with the prompts that the caller may use, in one page."""
    if params.get("cursor") is not None:
        raise InvalidParams("Invalid params: cursor")
    return {"prompts": [prompt.definition() for prompt in request.mcp.site.get_prompts(request)]}


def get_prompt(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Answer with the messages of one prompt, made by the project's function."""
    name: str = params["name"]
    prompt = next((prompt for prompt in request.mcp.site.get_prompts(request) if prompt.name == name), None)
    if prompt is None:
        raise InvalidParams(f"Unknown prompt: {name[:64]}")
    require_scopes(request, [READ])
    arguments = dict(params.get("arguments") or {})
    return Later(lambda: prompt.get(request, arguments), is_async=prompt.is_async)
