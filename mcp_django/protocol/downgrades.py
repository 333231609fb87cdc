"""Results for older revisions: without what they do not know, or with what they do know in its place."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from .versions import STRUCTURED, is_at_least

AUDIO_SINCE: Final = "2025-03-26"
MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
# Capabilities of servers, by the first revision that knows them; those of the modern era alone are in none.
CAPABILITIES: Final[Mapping[str, str]] = {
    "experimental": "2024-11-05",
    "logging": "2024-11-05",
    "prompts": "2024-11-05",
    "resources": "2024-11-05",
    "tools": "2024-11-05",
    "completions": "2025-03-26",
}


def downgraded(method: str, version: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a method, as handlers give it, for a revision of the legacy era."""
    wire = {name: value for name, value in result.items() if name not in MODERN_MEMBERS}
    downgrade = DOWNGRADES.get(method)
    return downgrade(wire, version) if downgrade else wire


def _block(block: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    kind = block.get("type")
    if kind == "resource_link" and version not in STRUCTURED:
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    if kind == "audio" and not is_at_least(version, AUDIO_SINCE):
        return {"type": "text", "text": f"[audio, {block['mimeType']}]"}
    return block


def _call_result(wire: dict[str, Any], version: str) -> dict[str, Any]:
    if version not in STRUCTURED:
        wire.pop("structuredContent", None)
        wire["content"] = [_block(block, version) for block in wire["content"]]
    return wire


def _prompt(wire: dict[str, Any], version: str) -> dict[str, Any]:
    if version not in STRUCTURED:
        wire["messages"] = [{**item, "content": _block(item["content"], version)} for item in wire["messages"]]
    return wire


def _initialize(wire: dict[str, Any], version: str) -> dict[str, Any]:
    known = {name for name, since in CAPABILITIES.items() if is_at_least(version, since)}
    wire["capabilities"] = {name: value for name, value in wire["capabilities"].items() if name in known}
    return wire


DOWNGRADES: Final[Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]]] = {
    "initialize": _initialize,
    "prompts/get": _prompt,
    "tools/call": _call_result,
}
