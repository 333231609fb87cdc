"""2024-11-05 to 2025-11-25: ``initialize`` first, the version in a header afterwards (or nowhere).

Results are without what a revision does not know, or with what it does know in its place.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from .eras import Call, Era, Headers, SessionFacts, progress_token, trace_context, validate
from .errors import InvalidRequest, ParseError, ProtocolError, UnsupportedVersion
from .messages import ClientResponse, Message
from .modern import VERSION_HEADER
from .versions import ASSUMED, LEGACY, STRUCTURED, SUPPORTED, is_at_least, negotiate

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


class LegacyEra(Era):
    """The era of the handshake.

    Without a session each request says its version, or is taken as 2025-03-26, and nothing is known of its client.
    """

    modern: ClassVar[bool] = False
    disconnect_cancels: ClassVar[bool] = False

    def read(self, message: Message, headers: Headers, session: SessionFacts | None = None) -> Call:
        """Find the version, then check the parameters.

        The request that begins a session is never refused for its version, and says itself who the client is.
        """
        begins = message.method == "initialize"
        version = negotiate(message.params.get("protocolVersion")) if begins else self.version(headers, session)
        meta = self._check(message, version)
        client: Mapping[str, Any] = {}
        capabilities: Mapping[str, Any] = {}
        if begins and message.id is not None:
            client, capabilities = message.params["clientInfo"], message.params["capabilities"]
        elif session is not None and not begins:
            client, capabilities = session.client, session.capabilities
        return Call(
            era=self,
            version=version,
            method=message.method,
            params=message.params,
            id=message.id,
            client=client,
            capabilities=capabilities,
            progress_token=progress_token(meta),
            log_level=session.log_level if session is not None and not begins else None,
            trace=trace_context(meta),
        )

    def _check(self, message: Message, version: str) -> Mapping[str, Any]:
        """Check a request's parameters; return its ``_meta``. A notification is taken as it is."""
        if message.id is None:
            return {}
        validate(message.method, version, message.params)
        return message.params.get("_meta") or {}

    def version(self, headers: Headers, session: SessionFacts | None = None) -> str:
        """Return the revision of a request: that of its header, or else of its session, or else 2025-03-26.

        A header that names another supported revision than the session wins: what the client says now is what it reads.

        Raises:
            UnsupportedVersion: the header names no revision of this era, or is given twice.
        """
        values = headers.get(VERSION_HEADER) if headers else None
        if not values:
            return session.version if session is not None else ASSUMED
        if len(values) != 1 or values[0] not in LEGACY:
            raise UnsupportedVersion(", ".join(values)[:64], SUPPORTED)
        return values[0]

    def accept(self, response: ClientResponse, headers: Headers, session: SessionFacts | None = None) -> ClientResponse:
        """Return the response; only in a session can the server have asked for one."""
        self.version(headers, session)
        if session is None:
            raise InvalidRequest("Invalid request: a response to a request that was not made")
        return response

    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Turn what the revision does not know into what it does."""
        wire = {name: value for name, value in result.items() if name not in MODERN_MEMBERS}
        downgrade = DOWNGRADES.get(call.method)
        return downgrade(wire, call.version) if downgrade else wire

    def status(self, error: ProtocolError) -> int:
        """Return 400 for what is not a message of this era; a method's own errors are answers, 200."""
        return 400 if isinstance(error, (ParseError, InvalidRequest, UnsupportedVersion)) else 200


# Results


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
