"""JSON-RPC messages on the wire (JSON-RPC 2.0; basic, Messages): requests, notifications and responses.

Every later step uses the result of one strict parse: UTF-8, no duplicate members, no NaN or infinity, bounded integers
and nesting. Output is compact JSON; optional members are left out, never null.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeGuard

import orjson

from .errors import InvalidRequest, ParseError

MAX_ID_CHARS: Final = 256
MAX_METHOD_CHARS: Final = 128
# The largest integer that every JSON parser reads exactly (RFC 8259, section 6).
MAX_SAFE_INTEGER: Final = 2**53 - 1
# Limits of the ids that an error still echoes; :func:`encode` cannot write larger integers of both signs.
MAX_ECHOED_CHARS: Final = 1024
MAX_ECHOED_INTEGER: Final = 2**63 - 1
NOT_JSON: Final = "Parse error: the body is not one JSON document in UTF-8"
# A character that JSON allows but PostgreSQL cannot store.
NUL: Final = "\0"
# Members of params that the protocol itself reads, not a tool, a prompt or a resource.
OWN_PARAMS: Final = ("_meta", "clientInfo", "inputResponses", "reason", "requestId")

Id = str | int


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON-RPC message: a request (``id`` set) or a notification (``id`` None).

    In the handshake era servers send requests too.
    """

    method: str
    params: Mapping[str, Any]
    id: Id | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object."""
        if self.id is None:
            return {"jsonrpc": "2.0", "method": self.method, "params": self.params}
        return {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params}

    def encode(self) -> bytes:
        """Return the message as JSON in UTF-8; see :func:`encode`."""
        return encode(self.to_wire())

    @staticmethod
    def readable_id(value: Any) -> Id | None:
        """Return the id of a malformed message for the error about it: the id of a request, otherwise None.

        The server chose the id of a response, so the client would take the error as the answer to a request of its own.
        An id that is too long or large for a request is echoed too, up to ``MAX_ECHOED_CHARS``/``MAX_ECHOED_INTEGER``.
        """
        found = value.get("id") if isinstance(value, dict) and not is_response(value) else None
        if not _is_id(found):
            return None
        is_short = len(found) <= MAX_ECHOED_CHARS if isinstance(found, str) else abs(found) <= MAX_ECHOED_INTEGER
        return found if is_short else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse:
    """A JSON-RPC message that answers a request of the server: it has ``result``, an object, or ``error``.

    ``error`` has ``code`` (an integer) and ``message`` (text); its other members are not checked.
    """

    id: Id
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


class TooMuch(ParseError):
    """The JSON of a JSON-RPC message is nested too deeply, or has too many items."""

    MAX_DEPTH: ClassVar = 64
    MAX_ITEMS: ClassVar = 50_000

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
        if depth > TooMuch.MAX_DEPTH or seen > TooMuch.MAX_ITEMS:
            raise TooMuch
        children: list[Any] = []
        for node in level:
            children += node.values() if isinstance(node, dict) else node
        level = [child for child in children if isinstance(child, (dict, list))]


def _check_text(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ParseError("Parse error: a string is not Unicode text") from None


def decode(body: bytes | str) -> Any:
    """Parse JSON as strictly as a message: a message's body, or an argument that holds JSON.

    Raises:
        TooMuch: the JSON exceeds a limit.
        ParseError: it is not JSON, or not UTF-8.
    """
    if isinstance(body, str):
        text = body
    else:
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            raise ParseError(NOT_JSON) from None
    try:
        value = _decoder.decode(text)
    except ValueError:
        raise ParseError(NOT_JSON) from None
    except RecursionError:
        raise TooMuch from None
    # Brackets limit the depth, and brackets and commas the items, so only few messages need to be walked.
    opened = text.count("{") + text.count("[")
    if opened > TooMuch.MAX_DEPTH or opened + text.count(",") > TooMuch.MAX_ITEMS:
        _check_bounds(value)
    # Only an escape can produce an unpaired surrogate, which could not be encoded again.
    if "\\u" in text:
        _check_text(value)
    return value


def encode(value: Any) -> bytes:
    """Encode a JSON-RPC message as JSON, UTF-8, on one line. Raises ``TypeError`` if ``value`` has an unknown class, an
    unpaired surrogate or an integer over 64 bits in it."""
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
    """Refuse a JSON-RPC message with the character NUL in any text at any depth: PostgreSQL cannot store it."""
    try:
        if b"\\u0000" not in orjson.dumps(values):
            return
    except TypeError:  # orjson cannot encode one of the integers or texts
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


def is_response(value: Mapping[str, Any]) -> bool:
    """Return whether a JSON-RPC message is a response, or would be one if it were well-formed."""
    return "method" not in value and ("result" in value or "error" in value)


def read_message(value: Any) -> Message | ClientResponse:
    """Read a JSON-RPC message from a JSON value: a request, a notification or a response. Raises ``InvalidRequest`` if
    the value is none of them, or is a batch."""
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
