"""2026-07-28: every request complete in itself (basic, General fields; basic/transports/streamable-http)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from .eras import Call, Era, Headers, SessionFacts, progress_token, trace_context, validate
from .errors import HeaderMismatch, InvalidParams, InvalidRequest, ProtocolError, UnsupportedVersion
from .headers import check_mirrored
from .messages import ClientResponse, Message, encode
from .versions import MODERN, SUPPORTED

VERSION_HEADER: Final = "mcp-protocol-version"
# Members of ``_meta`` that the revision itself defines (basic, Reserved keys).
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
# Methods whose result says how long it may be kept (server/utilities/caching), and those that may ask back (mrtr).
CACHEABLE_METHODS: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
INPUT_REQUIRED_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
# Methods whose result may be kept by the client and differs by caller, so that no shared cache may hold it.
CACHE_SCOPE: Final = "private"
# How many answers a call may bring, and bytes of them, and characters of the state that it brings back.
MAX_RESPONSES: Final = 32
MAX_RESPONSE_BYTES: Final = 64 * 1024
MAX_STATE_CHARS: Final = 64 * 1024


def client_meta(name: str, version: str = MODERN[-1], capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the ``_meta`` by which a client with this name makes each request complete (basic, Reserved keys)."""
    return {
        VERSION_KEY: version,
        CAPABILITIES_KEY: capabilities or {},
        CLIENT_KEY: {"name": name, "version": "1"},
    }


class ModernEra(Era):
    """The era without a handshake."""

    modern: ClassVar[bool] = True
    disconnect_cancels: ClassVar[bool] = True

    def read(self, message: Message, headers: Headers, session: SessionFacts | None = None) -> Call:
        """Climb the ladder: ``_meta``, version header, version, mirrored headers, method, parameters.

        A session is of the other era, and nothing is taken from one.
        """
        if message.id is None:
            return self._read_notification(message, headers)
        meta = self._meta(message)
        version: str = meta[VERSION_KEY]
        if headers is not None and headers.get(VERSION_HEADER) != [version]:
            raise HeaderMismatch("Header mismatch: MCP-Protocol-Version must be given once and equal _meta")
        self._check_version(version)
        if headers is not None:
            check_mirrored(message.method, message.params, headers)
        responses, state = _input(message)
        validate(message.method, version, message.params)
        return Call(
            era=self,
            version=version,
            method=message.method,
            params=message.params,
            id=message.id,
            client=meta.get(CLIENT_KEY, {}),
            capabilities=meta[CAPABILITIES_KEY],
            progress_token=progress_token(meta),
            log_level=meta.get(LOG_LEVEL_KEY),
            trace=trace_context(meta),
            input_responses=responses,
            request_state=state,
        )

    def accept(self, response: ClientResponse, headers: Headers, session: SessionFacts | None = None) -> ClientResponse:
        """Refuse the response: in this era servers make no requests, and clients MUST NOT send responses."""
        raise InvalidRequest("Invalid request: this revision has no responses of clients")

    def _meta(self, message: Message) -> Mapping[str, Any]:
        meta = message.params.get("_meta")
        if not isinstance(meta, dict):
            raise InvalidParams("Invalid params: _meta is required")
        for key, kind, required in (
            (VERSION_KEY, str, True),
            (CAPABILITIES_KEY, dict, True),
            (CLIENT_KEY, dict, False),
            (LOG_LEVEL_KEY, str, False),
        ):
            if required and key not in meta:
                raise InvalidParams(f"Invalid params: _meta needs {key}")
            if key in meta and not isinstance(meta[key], kind):
                raise InvalidParams(f"Invalid params: _meta {key} has the wrong type")
        return meta

    def _read_notification(self, message: Message, headers: Headers) -> Call:
        """Only requests need ``_meta`` and mirrored headers; wherever a notification names its version, it is one."""
        meta = message.params.get("_meta")
        named: list[Any] = list(headers.get(VERSION_HEADER, [])) if headers is not None else []
        if isinstance(meta, dict) and VERSION_KEY in meta:
            named.append(meta[VERSION_KEY])
        if not named or any(version != named[0] for version in named):
            raise HeaderMismatch("Header mismatch: MCP-Protocol-Version must be given and equal _meta")
        if not isinstance(named[0], str):
            raise InvalidParams(f"Invalid params: _meta {VERSION_KEY} has the wrong type")
        self._check_version(named[0])
        return Call(
            era=self, version=named[0], method=message.method, params=message.params, client={}, capabilities={}
        )

    def _check_version(self, version: str) -> None:
        if version not in MODERN:
            # A version of the other era is supported, but not in this form.
            raise UnsupportedVersion(version[:64], MODERN if version in SUPPORTED else SUPPORTED)

    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Add ``resultType``, the server's identity and, where the method has them, the caching hints."""
        wire = {"resultType": "complete", **result}
        wire["_meta"] = {**result.get("_meta", {}), SERVER_KEY: server}
        # An answer that asks for input first is not one to keep, and one that needed input fits no other call.
        if call.method in CACHEABLE_METHODS and wire["resultType"] == "complete":
            if call.input_responses is not None or call.request_state is not None:
                return {**wire, "ttlMs": 0, "cacheScope": CACHE_SCOPE}
            wire.setdefault("ttlMs", ttl_ms)
            wire.setdefault("cacheScope", CACHE_SCOPE)
        return wire

    def status(self, error: ProtocolError) -> int:
        """Return the status that the error's class names."""
        return error.status


def _input(message: Message) -> tuple[Mapping[str, Mapping[str, Any]] | None, str | None]:
    """Return ``inputResponses`` and ``requestState`` of a call that is made again (basic/patterns/mrtr).

    Whether each response is one that a client gives is the schema's to say; this is cheap and comes first.
    """
    params = message.params
    if message.method not in INPUT_REQUIRED_METHODS or not ("inputResponses" in params or "requestState" in params):
        return None, None
    responses, state = params.get("inputResponses", {}), params.get("requestState", "")
    if not isinstance(responses, dict):
        raise InvalidParams("Invalid params: inputResponses must be an object")
    if not isinstance(state, str) or len(state) > MAX_STATE_CHARS:
        raise InvalidParams("Invalid params: requestState must be a string as this server made it")
    if len(responses) > MAX_RESPONSES or _size(responses) > MAX_RESPONSE_BYTES:
        raise InvalidParams(
            f"Invalid params: inputResponses has over {MAX_RESPONSES} members or {MAX_RESPONSE_BYTES} bytes"
        )
    return responses if "inputResponses" in params else None, state if "requestState" in params else None


def _size(value: Any) -> int:
    try:
        return len(encode(value))
    except TypeError:
        raise InvalidParams("Invalid params: inputResponses has a number over 64 bits") from None
