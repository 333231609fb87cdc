"""2024-11-05 to 2025-11-25: ``initialize`` first, the version in a header afterwards (or nowhere)."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from .eras import Call, Era, Headers, progress_token, validate
from .errors import InvalidRequest, ParseError, ProtocolError, UnsupportedVersion
from .messages import Message
from .modern import VERSION_HEADER
from .versions import ASSUMED, LEGACY, SUPPORTED, is_at_least, negotiate

__all__ = ["LegacyEra"]

STRUCTURED_SINCE: Final = "2025-06-18"
AUDIO_SINCE: Final = "2025-03-26"
MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})


class LegacyEra(Era):
    """The era of the handshake, served without a session: each request says its version or is taken as 2025-03-26."""

    modern: ClassVar[bool] = False
    disconnect_cancels: ClassVar[bool] = False

    def read(self, message: Message, headers: Headers) -> Call:
        """Find the version, then check the parameters; ``initialize`` is never refused for its version."""
        opens = message.method == "initialize"
        version = negotiate(message.params.get("protocolVersion")) if opens else self._version(headers)
        client: Mapping[str, Any] = {}
        token = None
        if message.id is not None:
            validate(message.method, version, message.params)
            client = message.params["clientInfo"] if opens else {}
            token = progress_token(message.params.get("_meta") or {})
        return Call(
            era=self,
            version=version,
            method=message.method,
            params=message.params,
            id=message.id,
            client=client,
            capabilities={},
            progress_token=token,
        )

    def _version(self, headers: Headers) -> str:
        values = headers.get(VERSION_HEADER, [])
        if not values:
            return ASSUMED
        if len(values) != 1 or values[0] not in LEGACY:
            raise UnsupportedVersion(", ".join(values)[:64], SUPPORTED)
        return values[0]

    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Turn what the revision does not know into what it does."""
        wire = {name: value for name, value in result.items() if name not in MODERN_MEMBERS}
        downgrade = DOWNGRADES.get(call.method)
        return downgrade(wire, call.version) if downgrade else wire

    def status(self, error: ProtocolError) -> int:
        """Return 400 for what is not a message of this era; a method's own errors are answers, 200."""
        return 400 if isinstance(error, (ParseError, InvalidRequest, UnsupportedVersion)) else 200


def _block(block: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    kind = block.get("type")
    if kind == "resource_link" and not is_at_least(version, STRUCTURED_SINCE):
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    if kind == "audio" and not is_at_least(version, AUDIO_SINCE):
        return {"type": "text", "text": f"[audio, {block['mimeType']}]"}
    return block


def _call_result(wire: dict[str, Any], version: str) -> dict[str, Any]:
    if not is_at_least(version, STRUCTURED_SINCE):
        wire.pop("structuredContent", None)
        wire["content"] = [_block(block, version) for block in wire["content"]]
    return wire


def _prompt(wire: dict[str, Any], version: str) -> dict[str, Any]:
    if not is_at_least(version, STRUCTURED_SINCE):
        wire["messages"] = [{**item, "content": _block(item["content"], version)} for item in wire["messages"]]
    return wire


DOWNGRADES: Final[Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]]] = {
    "tools/call": _call_result,
    "prompts/get": _prompt,
}
