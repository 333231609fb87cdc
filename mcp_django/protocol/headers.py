"""HTTP headers: content type and ``Accept``; and headers that repeat the body, compared with it.

The rules for the former are in Streamable HTTP, Security & Endpoint and Sending Messages. The latter are
``Mcp-Method``, ``Mcp-Name`` and one ``Mcp-Param-*`` for each parameter that a tool's schema marks with
``x-mcp-header`` (2026-07-28, basic/transports/streamable-http, Request Metadata). Header names are in lower case here.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final

from .errors import HeaderMismatch

MAX_ACCEPT_CHARS: Final = 2_000
ANNOTATION: Final = "x-mcp-header"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
# The member of ``params`` that Mcp-Name repeats, by method.
NAME_SOURCES: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
# Methods that are answered without Mcp-Name, which FastMCP 4.1 leaves out: ext-tasks, Streamable HTTP: Routing Headers,
# obliges only the client.
NAME_OPTIONAL: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
PRIMITIVES: Final = ("string", "integer", "boolean")
# Keywords whose values are data, and keywords that map names to schemas. Any other object or array holds schemas.
DATA_KEYWORDS: Final = frozenset({"const", "default", "enum", "examples", "required", "type"})
MAP_KEYWORDS: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties"})
MAX_SAFE_INTEGER: Final = 2**53 - 1

_PREFIX = "=?base64?"
_SUFFIX = "?="
_NOT: Final = re.compile(r"q=0(\.0{0,3})?")
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN: Final = re.compile(r"[\x20-\x7e\t]*")
# Numbers have only one spelling, without leading zeros or exponent, so that intermediaries can compare them.
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?")


class MediaType(StrEnum):
    """The media types of the protocol."""

    JSON = "application/json"
    EVENTS = "text/event-stream"


class RequestHeaders(dict[str, list[str]]):
    """The headers of an HTTP request: all values of each, by its name in lower case."""

    VERSION: Final = "mcp-protocol-version"

    @property
    def accept(self) -> str | None:
        """The header ``Accept``, which may be given in several lines; None if it is absent or empty."""
        return ",".join(self.get("accept", [])) or None

    def accepts(self, media_type: MediaType) -> bool:
        """Return whether the header ``Accept`` admits the media type (RFC 9110, section 12.5.1).

        An absent or empty header admits everything; a value longer than 2,000 characters admits nothing.
        """
        accept = self.accept
        if accept is None:
            return True
        return len(accept) <= MAX_ACCEPT_CHARS and _admits(accept, media_type)

    @property
    def has_json(self) -> bool:
        """Whether the header ``Content-Type``, given once, is ``application/json``, with or without parameters."""
        values = self.get("content-type", [])
        return len(values) == 1 and values[0].partition(";")[0].strip(" \t").lower() == MediaType.JSON

    @staticmethod
    def body_length(value: str | None) -> int | None:
        """Return the length of a body in bytes from the header ``Content-Length``; None if it is absent. Raises
        ``ValueError`` if the header is not a plain decimal number."""
        if value is None:
            return None
        if not _DIGITS.fullmatch(value):
            raise ValueError("Content-Length is not a number")
        return int(value)


# Cached, because clients send the same few values with every request.
@lru_cache(maxsize=256)
def _admits(accept: str, media_type: str) -> bool:
    kind = media_type.partition("/")[0]
    # The most specific range that matches decides, so that "q=0" can exclude one type from "*/*".
    best = -1
    allowed = False
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        rank = {media_type: 2, f"{kind}/*": 1, "*/*": 0}.get(name, -1)
        if rank > best:
            best = rank
            allowed = not any(_NOT.fullmatch(parameter.replace(" ", "")) for parameter in parameters)
    return allowed


# MCP clients send their protocol headers with every request, so the preflight has to allow each of them.
ALLOW_HEADERS: Final = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Last-Event-ID, Mcp-Method, Mcp-Name"
)


def cors_headers(origin: str, methods: str) -> dict[str, str]:
    """Return the headers that let pages of an origin send these methods and read the response (Fetch, section 3.2)."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": ALLOW_HEADERS,
        "Access-Control-Expose-Headers": "WWW-Authenticate, Mcp-Session-Id",
    }


def decode_value(value: str) -> str:
    """Decode the value of an HTTP header to its text; white space around the value is not part of it (RFC 9110, 5.5).
    Raises ``ValueError`` if a header may not hold one of the characters, or the content of a sentinel is not the
    canonical Base64 form of UTF-8 text (RFC 4648, 3.5)."""
    text = value.strip(" \t")
    if not _PLAIN.fullmatch(text):
        raise ValueError("invalid characters")
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        return text
    payload = text[len(_PREFIX) : -len(_SUFFIX)]
    raw = base64.b64decode(payload, validate=True)
    if base64.b64encode(raw).decode("ascii") != payload:
        raise ValueError("Base64 that is not canonical")
    return raw.decode("utf-8")


def _read(headers: Mapping[str, list[str]], header: str) -> str | None:
    values = headers.get(header, [])
    if not values:
        return None
    # An intermediary and this server could read different copies of a repeated header.
    if len(values) > 1:
        raise HeaderMismatch(f"Header mismatch: {header} is given more than once")
    try:
        return decode_value(values[0])
    except ValueError:
        raise HeaderMismatch(f"Header mismatch: {header} has a value that cannot be decoded") from None


def check_mirrored(method: str, params: Mapping[str, Any], headers: Mapping[str, list[str]]) -> None:
    """Compare the headers ``Mcp-Method`` and, for methods that name something, ``Mcp-Name`` with the body.

    ``headers`` maps lower-case names to all their values.

    Raises:
        HeaderMismatch: a header is missing, given twice, malformed or not equal to the body. The methods of tasks
            do not need ``Mcp-Name``.
    """
    # Mcp-Method is never encoded; only Mcp-Name and Mcp-Param-* may be.
    given = headers.get(METHOD_HEADER, [])
    if len(given) != 1 or given[0].strip(" \t") != method:
        raise HeaderMismatch("Header mismatch: Mcp-Method must be given once and equal the method in the body")
    source = NAME_SOURCES.get(method)
    if source is None:
        return
    name = _read(headers, NAME_HEADER)
    if name is None:
        if method in NAME_OPTIONAL:
            return
        raise HeaderMismatch("Header mismatch: Mcp-Name is missing")
    if name != params.get(source):
        raise HeaderMismatch(f"Header mismatch: Mcp-Name does not equal params.{source}")


# Headers in schemas


@dataclass(frozen=True, slots=True)
class ParamHeader:
    """One ``Mcp-Param-*`` header: its name, the path to the parameter's value in ``arguments``, the JSON type."""

    # The beginning of each name, in lower case.
    PREFIX: ClassVar = "mcp-param-"

    header: str
    path: tuple[str, ...]
    type: str

    def value(self, arguments: Mapping[str, Any]) -> Any:
        """Return the argument that the ``Mcp-Param-*`` header has to repeat, None if it is absent."""
        found: Any = arguments
        for step in self.path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return found

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any]) -> "tuple[ParamHeader, ...]":
        """Return the parameters of an ``inputSchema`` that clients repeat in ``Mcp-Param-*`` headers.

        Raises:
            ValueError: an annotation breaks a rule of "Schema Extension", so clients would drop the whole tool.
        """
        found: dict[str, ParamHeader] = {}
        for path, position in _positions(schema, ()):
            if ANNOTATION not in position:
                continue
            name = position[ANNOTATION]
            kind = position.get("type")
            if not path:
                raise ValueError(f"{ANNOTATION} {name!r} is not on a property that only properties lead to")
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                raise ValueError(f"{ANNOTATION} {name!r} is not a token that a header's name can hold")
            if kind not in PRIMITIVES:
                raise ValueError(f"{ANNOTATION} {name!r} is on a parameter that is not a string, integer or boolean")
            header = cls.PREFIX + name.lower()
            if header in found:
                raise ValueError(f"{ANNOTATION} {name!r} is used twice")
            found[header] = cls(header, path, kind)
        return tuple(found.values())

    @classmethod
    def check_all(
        cls, schema: Mapping[str, Any], arguments: Mapping[str, Any], headers: Mapping[str, list[str]] | None
    ) -> None:
        """Compare the ``Mcp-Param-*`` headers of a ``tools/call`` with its arguments, as ``schema`` marks them.

        A parameter that is absent or null has no header; headers that the schema does not know are ignored.
        ``headers`` is None on transports without headers: then nothing is compared.

        Raises:
            HeaderMismatch: a header is missing, superfluous, given twice, malformed or not equal to the argument.
            ValueError: the schema's annotations are invalid, which registration excludes.
        """
        if headers is None:
            return
        for param in cls.of_schema(schema):
            value = param.value(arguments)
            given = _read(headers, param.header)
            if value is None and given is None:
                continue
            if given is None:
                raise HeaderMismatch(f"Header mismatch: {param.header} is missing")
            if value is None:
                raise HeaderMismatch(f"Header mismatch: {param.header} is given, but the argument is not")
            if not param._agrees(value, given):
                raise HeaderMismatch(f"Header mismatch: {param.header} does not equal the argument")

    @staticmethod
    def encode(text: str) -> str:
        """Encode a text as a header's value: the text itself, or sentinel Base64 if a header cannot hold it."""
        looks_encoded = text.startswith(_PREFIX) and text.endswith(_SUFFIX)
        if _PLAIN.fullmatch(text) and text == text.strip(" \t") and not looks_encoded:
            return text
        return f"{_PREFIX}{base64.b64encode(text.encode()).decode('ascii')}{_SUFFIX}"

    def _agrees(self, value: Any, given: str) -> bool:
        if isinstance(value, bool):
            return given == ("true" if value else "false")
        if isinstance(value, str):
            return given == value
        if self.type != "integer" or not isinstance(value, (int, float)) or not abs(value) <= MAX_SAFE_INTEGER:
            return False
        return bool(_NUMBER.fullmatch(given)) and Decimal(given) == Decimal(value)


def _positions(schema: Any, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Find parameters for headers: yield each subschema with its path, None unless only ``properties`` lead to it."""
    if isinstance(schema, list):
        for item in schema:
            yield from _positions(item, None)
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for keyword, value in schema.items():
        if keyword in DATA_KEYWORDS:
            continue
        if keyword == "properties" and isinstance(value, Mapping):
            for name, child in value.items():
                yield from _positions(child, None if path is None else (*path, name))
        elif keyword in MAP_KEYWORDS and isinstance(value, Mapping):
            for child in value.values():
                yield from _positions(child, None)
        elif isinstance(value, (Mapping, list)):
            yield from _positions(value, None)
