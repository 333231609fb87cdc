"""JSON-RPC errors: mistakes of a client program.

There is one class for each code; code and HTTP status are class attributes. Mistakes that a model could correct are not
here: they are tool results with ``isError`` (specification, server/tools, Error Handling).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

# JSON-RPC 2.0, section 5.1.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# 2026-07-28, schema.
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
# 2025-11-25 and older (server/resources, Error Handling); 2026-07-28 forbids this code and uses INVALID_PARAMS.
LEGACY_RESOURCE_NOT_FOUND = -32002


class ProtocolError(Exception):
    """A JSON-RPC error of the protocol: ``code``, ``message`` and, for some errors, ``data`` (a JSON object).

    ``status`` is the HTTP status in revision 2026-07-28 (basic/transports/streamable-http). The legacy era answers 200
    if a method handler refused the request.
    """

    code: ClassVar[int]
    status: ClassVar[int] = 400
    default_message: ClassVar[str] = ""

    def __init__(self, message: str | None = None, *, data: Mapping[str, Any] | None = None) -> None:
        self.message = message or self.default_message
        self.data = data
        super().__init__(self.message)

    def code_for(self, *, modern: bool) -> int:
        """Return the code of the JSON-RPC error for a modern client or an older one."""
        return self.code

    def response(self, identifier: str | int | None, *, modern: bool) -> dict[str, Any]:
        """Return the error as a JSON-RPC response; without an id if it could not be read (basic, Responses)."""
        body: dict[str, Any] = {"code": self.code_for(modern=modern), "message": self.message}
        if self.data is not None:
            body["data"] = self.data
        wire: dict[str, Any] = {"jsonrpc": "2.0"}
        if identifier is not None:
            wire["id"] = identifier
        wire["error"] = body
        return wire


class ParseError(ProtocolError):
    """JSON-RPC error: the body is not valid JSON."""

    code = PARSE_ERROR
    default_message = "Parse error"


class InvalidRequest(ProtocolError):
    """JSON-RPC error: the JSON is not a JSON-RPC 2.0 request or notification."""

    code = INVALID_REQUEST
    default_message = "Invalid request"


class MethodNotFound(ProtocolError):
    """JSON-RPC error: the revision of the request has no such method."""

    code = METHOD_NOT_FOUND
    status = 404
    default_message = "Method not found"


class InvalidParams(ProtocolError):
    """JSON-RPC error: the parameters are not valid for the method."""

    code = INVALID_PARAMS
    default_message = "Invalid params"


class ResourceNotFound(InvalidParams):
    """JSON-RPC error: no such resource for this caller, whether missing, filtered out or forbidden."""

    default_message = "Resource not found"

    def __init__(self, uri: str) -> None:
        super().__init__(data={"uri": uri})

    def code_for(self, *, modern: bool) -> int:
        """Return -32602 on 2026-07-28 and -32002 on older revisions."""
        return self.code if modern else LEGACY_RESOURCE_NOT_FOUND


class InternalError(ProtocolError):
    """JSON-RPC error: an internal failure; ``data.errorId`` finds it in the server's log."""

    code = INTERNAL_ERROR
    status = 200
    default_message = "Internal error"


class HeaderMismatch(ProtocolError):
    """JSON-RPC error: a mirrored header is missing, malformed or not equal to the body (Server Validation)."""

    code = HEADER_MISMATCH
    default_message = "Header mismatch"


class MissingClientCapability(ProtocolError):
    """JSON-RPC error: the request needs a capability that the client did not declare."""

    code = MISSING_REQUIRED_CLIENT_CAPABILITY
    default_message = "Missing required client capability"

    def __init__(self, required: Mapping[str, Any]) -> None:
        super().__init__(data={"requiredCapabilities": dict(required)})


class UnsupportedVersion(ProtocolError):
    """JSON-RPC error: the server does not implement the requested revision."""

    code = UNSUPPORTED_PROTOCOL_VERSION
    default_message = "Unsupported protocol version"

    def __init__(self, requested: str, supported: Iterable[str]) -> None:
        super().__init__(data={"supported": list(supported), "requested": requested})
