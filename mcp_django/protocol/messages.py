"""JSON-RPC messages on the wire (JSON-RPC 2.0; basic, Messages), and HTTP responses, headers and SSE events around
them.

One strict parse that every later step uses: UTF-8, no duplicate members, no NaN or infinity, integers and nesting
bounded. Output is compact JSON; optional members are left out, never null.

The rules of HTTP here need no I/O (Streamable HTTP, Security & Endpoint and Sending Messages). An event's id says which
stream it is of and how far the client has read, so that the stream can go on from there (2025-11-25, basic/transports,
Resumability and Redelivery).
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeGuard

import orjson

from .errors import InvalidRequest, ParseError, ProtocolError
from .versions import MODERN

MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 50_000
MAX_ID_CHARS: Final = 256
MAX_METHOD_CHARS: Final = 128
# Integers that a JSON number carries exactly (RFC 8259, section 6).
MAX_SAFE_INTEGER: Final = 2**53 - 1
# What an error echoes of ids beyond these bounds; :func:`encode` writes no larger integers of either sign.
MAX_ECHOED_CHARS: Final = 1024
MAX_ECHOED_INTEGER: Final = 2**63 - 1
NOT_JSON: Final = "Parse error: the body is not one JSON document in UTF-8"
# What JSON text may hold and PostgreSQL cannot store.
NUL: Final = "\0"
# Members of params that are the protocol's own, and not the business of a tool, a prompt or a resource.
OWN_PARAMS: Final = ("_meta", "clientInfo", "inputResponses", "reason", "requestId")

Id = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A JSON-RPC message: a request (``id`` set) or a notification (``id`` None)."""

    method: str
    params: Mapping[str, Any]
    id: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse:
    """A JSON-RPC message in which the client responds to a request of the server's: ``result``, an object, or
    ``error``.

    ``error`` has ``code`` (an integer) and ``message`` (text); the rest is the client's.
    """

    id: Id
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


class TooMuch(ParseError):
    """The JSON of a JSON-RPC message is nested too deeply, or has too many items."""

    def __init__(self) -> None:
        super().__init__("Parse error: the message is nested too deeply or has too many items")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ParseError("Parse error: an object has two members of the same name")
    return found


def _constant(literal: str) -> Any:
    raise ParseError(f"Parse error: {literal} is not JSON")


def _float(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ParseError("Parse error: a number is out of range")
    return value


def _integer(literal: str) -> int:
    if len(literal) > 400:
        raise ParseError("Parse error: a number is out of range")
    return int(literal)


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer, strict=True
)


def _check_bounds(root: Any) -> None:
    level = [root] if isinstance(root, (dict, list)) else []
    depth = seen = 0
    while level:
        depth += 1
        seen += sum(map(len, level))
        if depth > MAX_DEPTH or seen > MAX_ITEMS:
            raise TooMuch
        children = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in children if isinstance(child, (dict, list))]


def _check_text(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ParseError("Parse error: a string is not Unicode text") from None


def decode(body: bytes) -> Any:
    """Parse the JSON of a JSON-RPC message, the ``body``.

    Raises:
        ParseError: the body is not UTF-8, not JSON, or over a bound.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise ParseError(NOT_JSON) from None
    return decode_text(text)


def decode_text(text: str) -> Any:
    """Parse JSON as strictly as a message: the text of a message's body, or an argument that holds JSON.

    Raises:
        TooMuch: it is over a bound.
        ParseError: it is not JSON.
    """
    try:
        value = _decoder.decode(text)
    except ValueError:
        raise ParseError(NOT_JSON) from None
    except RecursionError:
        raise TooMuch from None
    # No more levels than brackets that open, no more items than those and commas: few messages need to be walked.
    opened = text.count("{") + text.count("[")
    if opened > MAX_DEPTH or opened + text.count(",") > MAX_ITEMS:
        _check_bounds(value)
    # Only an escape can bring half of a surrogate pair, which could not be written again.
    if "\\u" in text:
        _check_text(value)
    return value


def encode(value: Any) -> bytes:
    """Encode a JSON-RPC message as JSON, UTF-8, on one line.

    Raises:
        TypeError: ``value`` holds what JSON cannot: an unknown class, half a surrogate pair, an integer over 64 bits.
    """
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def _read_id(value: Mapping[str, Any]) -> Id | None:
    if "id" not in value:
        return None
    found = value["id"]
    if not _is_id(found):
        raise InvalidRequest("Invalid request: id must be a string or an integer")
    if isinstance(found, int):
        if abs(found) > MAX_SAFE_INTEGER:
            bounds = f"from -{MAX_SAFE_INTEGER} to {MAX_SAFE_INTEGER}"
            raise InvalidRequest(f"Invalid request: id must be a string, or an integer {bounds}")
    elif len(found) > MAX_ID_CHARS:
        raise InvalidRequest(f"Invalid request: id must have at most {MAX_ID_CHARS} characters")
    elif NUL in found:
        raise InvalidRequest("Invalid request: id has the character NUL")
    return found


def _is_id(value: Any) -> TypeGuard[Id]:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _check_nul(values: list[Any]) -> None:
    """Refuse a JSON-RPC message with the character NUL in any text, however deep: PostgreSQL could not store it."""
    try:
        if b"\\u0000" not in orjson.dumps(values):
            return
    except TypeError:  # an integer or a text that it has no JSON for
        pass
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if NUL in value:
                raise InvalidRequest("Invalid request: a text has the character NUL")
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


def readable_id(value: Any) -> Id | None:
    """Return the id of a malformed JSON-RPC message for the error about it: that of a request, otherwise None.

    The id of a response is the other side's: the client would take the error as the answer to a request of its own.
    One that is too long or too large for a request is echoed as well, within bounds of its own.
    """
    found = value.get("id") if isinstance(value, dict) and not is_response(value) else None
    if not _is_id(found):
        return None
    is_short = len(found) <= MAX_ECHOED_CHARS if isinstance(found, str) else abs(found) <= MAX_ECHOED_INTEGER
    return found if is_short else None


def is_response(value: Mapping[str, Any]) -> bool:
    """Return whether a JSON-RPC message is a response, or would be one if it were well-formed."""
    return "method" not in value and ("result" in value or "error" in value)


def read_message(value: Any) -> Message | ClientResponse:
    """Read a JSON-RPC message from a JSON value: a request, a notification or a response.

    Raises:
        InvalidRequest: it is none of them; a batch is refused too.
    """
    if not isinstance(value, dict):
        raise InvalidRequest("Invalid request: the body must be one JSON-RPC object")
    identifier = _read_id(value)
    if value.get("jsonrpc") != "2.0":
        raise InvalidRequest('Invalid request: jsonrpc must be "2.0"')
    if is_response(value):
        _check_nul([value.get("result"), value.get("error")])
        return _read_response(value, identifier)
    method = value.get("method")
    if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD_CHARS:
        raise InvalidRequest("Invalid request: method must be a short string")
    params = value.get("params", {})
    if not isinstance(params, dict):
        raise InvalidRequest("Invalid request: params must be an object")
    own = [params[name] for name in OWN_PARAMS if name in params]
    if own:
        _check_nul(own)
    return Message(method=method, params=params, id=identifier)


def _read_response(value: Mapping[str, Any], identifier: Id | None) -> ClientResponse:
    if identifier is None:
        raise InvalidRequest("Invalid request: a response must have an id")
    if "result" in value and "error" in value:
        raise InvalidRequest("Invalid request: a response has either a result or an error")
    if "result" in value:
        if not isinstance(value["result"], dict):
            raise InvalidRequest("Invalid request: a result must be an object")
        return ClientResponse(id=identifier, result=value["result"])
    error = value["error"]
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(error.get("message"), str):
        raise InvalidRequest("Invalid request: an error must have an integer code and a message")
    return ClientResponse(id=identifier, error=error)


def request(identifier: Id, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON-RPC message of a request, as a server of the handshake era sends one to its client."""
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


def result_response(identifier: Id, result: Any) -> dict[str, Any]:
    """Return a JSON-RPC result response."""
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def error_response(identifier: Id | None, error: ProtocolError, *, modern: bool) -> dict[str, Any]:
    """Return the JSON-RPC message of an error response; without an id if it could not be read (basic, Responses)."""
    body: dict[str, Any] = {"code": error.code_for(modern=modern), "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    wire: dict[str, Any] = {"jsonrpc": "2.0"}
    if identifier is not None:
        wire["id"] = identifier
    wire["error"] = body
    return wire


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON-RPC notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


# Values of ``Allow``: of an endpoint without sessions, and of one with them, which has streams to open and sessions to
# end (2025-11-25, basic/transports).
ALLOWED_METHODS: Final = "POST"
SESSION_METHODS: Final = "POST, GET, DELETE"
# Names of headers as they are sent; requests have them in any case.
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
SESSION_HEADER: Final = "Mcp-Session-Id"
LAST_EVENT_HEADER: Final = "Last-Event-ID"
MAX_ACCEPT_CHARS: Final = 2_000
_NOT: Final = re.compile(r"q=0(\.0{0,3})?")
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
# 2025-11-25, basic/transports, Session Management: visible ASCII. The bound is this server's.

BASE_HEADERS: Final[tuple[tuple[str, str], ...]] = (
    ("Cache-Control", "no-store"),
    ("Vary", "Authorization, Origin"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole HTTP response around a message: status, body and the headers beside those that every response has."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def header_list(self) -> list[tuple[str, str]]:
        """Return all headers, in order."""
        found = [*BASE_HEADERS, *self.headers.items()]
        if self.body:
            found.append(("Content-Type", self.content_type))
        # RFC 9110, section 8.6: a 204 has none.
        if self.status != 204:
            found.append(("Content-Length", str(len(self.body))))
        return found


def is_json(content_type: str | None) -> bool:
    """Return whether an HTTP message's ``Content-Type`` is ``application/json``, with or without parameters."""
    return content_type is not None and content_type.partition(";")[0].strip(" \t").lower() == "application/json"


def accepts(accept: str | None, media_type: str) -> bool:
    """Return whether an HTTP message's ``Accept`` admits the media type (RFC 9110, section 12.5.1).

    An absent header admits everything, as HTTP says; a value over 2,000 characters admits nothing.
    """
    if accept is None:
        return True
    return len(accept) <= MAX_ACCEPT_CHARS and _admits(accept, media_type)


# Clients send one of a few values with every request.
@lru_cache(maxsize=256)
def _admits(accept: str, media_type: str) -> bool:
    kind = media_type.partition("/")[0]
    # The most specific range that matches decides, so that "q=0" can exclude one type from "*/*".
    best, allowed = -1, False
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        rank = {media_type: 2, f"{kind}/*": 1, "*/*": 0}.get(name, -1)
        if rank > best:
            best, allowed = rank, not any(_NOT.fullmatch(parameter.replace(" ", "")) for parameter in parameters)
    return allowed


def body_length(value: str | None) -> int | None:
    """Return the ``Content-Length`` of an HTTP message in bytes, None when there is none.

    Raises:
        ValueError: it is not a plain decimal number.
    """
    if value is None:
        return None
    if not _DIGITS.fullmatch(value):
        raise ValueError("Content-Length is not a number")
    return int(value)


def allowed_methods(version: str | None, *, sessions: bool) -> str:
    """Return ``Allow`` in answer to an HTTP message whose ``MCP-Protocol-Version`` is ``version``, None when it has
    none.

    GET and DELETE are for sessions, which 2026-07-28 does not have (basic/transports/streamable-http).
    """
    return SESSION_METHODS if sessions and version not in MODERN else ALLOWED_METHODS


def origin_allowed(origin: str | None, allowed: Collection[str]) -> bool:
    """Return whether an HTTP message's ``Origin`` is allowed; programs that are not browsers send none."""
    return origin is None or origin in allowed


# A line that begins with a colon carries nothing and keeps proxies from closing a quiet stream. No empty line follows:
# some clients take that for an event without data, once they have seen an id.
KEEP_ALIVE: Final = b":\n"
# Events of one stream: what a database's integer holds.
MAX_SEQUENCE: Final = 2**31 - 1

_BREAKS: Final = re.compile(rb"[\r\n]")
# U+0085, U+2028 and U+2029 end no line of an event stream, but they do in clients that split it as text.
_ESCAPES: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_EVENT_ID: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.(0|[1-9][0-9]{0,9})")


def event(data: bytes, *, identifier: str | None = None) -> bytes:
    """Encode a JSON-RPC message, ``data`` in UTF-8, as one SSE ``message`` event with the id ``identifier``.

    JSON escapes the line breaks within its strings and may have others only where they mean nothing, so that no text
    of a row can end the event or forge a field.

    Raises:
        ValueError: ``identifier`` is not one of :func:`event_id`.
    """
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return _id_line(identifier) + b"event: message\ndata: " + _BREAKS.sub(b" ", data) + b"\n\n"


def priming(identifier: str, retry_ms: int) -> bytes:
    """Return the SSE event without a message that tells a client its last event id and when to reconnect.

    Raises:
        ValueError: ``identifier`` is not one of :func:`event_id`, or ``retry_ms`` is negative.
    """
    return _id_line(identifier) + _retry_line(retry_ms) + b"data: \n\n"


def retry(ms: int) -> bytes:
    """Return the SSE field, sent without a message, that tells a client after how many milliseconds to reconnect.

    Raises:
        ValueError: ``ms`` is negative.
    """
    return _retry_line(ms) + b"\n"


def _id_line(identifier: str | None) -> bytes:
    if identifier is None:
        return b""
    if parse_event_id(identifier) is None:
        raise ValueError(f"{identifier!r} is no event id")
    return b"id: " + identifier.encode() + b"\n"


def _retry_line(ms: int) -> bytes:
    if ms < 0:
        raise ValueError("a time to wait is not negative")
    return b"retry: %d\n" % ms


def event_id(stream: str, seq: int) -> str:
    """Return the SSE event id of message number ``seq`` of a stream; number 0 stands before the first message.

    Raises:
        ValueError: the stream's name is not 1 to 64 letters, digits, "-" and "_" of ASCII, or ``seq`` is out of range.
    """
    found = f"{stream}.{seq}"
    if parse_event_id(found) is None:
        raise ValueError(f"{found!r} is no event id")
    return found


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Parse a message's SSE event id, as in ``Last-Event-ID``, into stream and number; None if malformed."""
    match = _EVENT_ID.fullmatch(text)
    if match is None or int(match[2]) > MAX_SEQUENCE:
        return None
    return match[1], int(match[2])
