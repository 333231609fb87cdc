"""``prompts/list`` and ``prompts/get``."""

from collections.abc import Mapping
from typing import Any

from ..context import MCPRequest
from ..exceptions import InsufficientScope
from ..protocol.errors import InvalidParams
from .base import Later

__all__ = ["get_prompt", "list_prompts"]

SCOPES = frozenset({"mcp:read"})


def list_prompts(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with the prompts that the caller may use."""
    return {"prompts": [prompt.definition() for prompt in request.mcp.site.get_prompts(request)]}


def get_prompt(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Answer with the messages of one prompt, made by the project's function."""
    name: str = params["name"]
    prompt = next((prompt for prompt in request.mcp.site.get_prompts(request) if prompt.name == name), None)
    if prompt is None:
        raise InvalidParams(f"Unknown prompt: {name[:64]}")
    if not request.mcp.scopes >= SCOPES:
        raise InsufficientScope(SCOPES)
    arguments = dict(params.get("arguments") or {})
    return Later(lambda: prompt.get(request, arguments), is_async=prompt.is_async)
