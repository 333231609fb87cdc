"""What is done to right messages and headers to make them wrong."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from mcp_django.protocol.headers import NAME_SOURCES
from tests.fuzz.shapes import Draw, below, chance, messages, pick
from tests.protocol_messages import LEGACY, MODERN


def nested(depth: int, leaf: Any) -> Any:
    """A value within lists and objects, by turns."""
    for level in range(depth):
        leaf = [leaf] if level % 2 else {"x": leaf}
    return leaf


JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    -(2**64),
    10**300,
    float("inf"),
    float("nan"),
    -0.0,
    "",
    "\x00",
    "\ud800",
    "\N{RIGHT-TO-LEFT OVERRIDE}\N{SNOWMAN}\N{PILE OF POO}",
    "x" * 5_000,
    "../../etc/passwd",
    "' OR 1=1 --",
    "%s%n{0}${7*7}",
    "\r\nX: y",
    "2026-07-28",
    [],
    {},
    [None],
    {"": ""},
    {"__proto__": 1, "constructor": {}, "__class__": "x"},
    {"$ref": "#"},
    ["x"] * 300,
    {str(number): number for number in range(300)},
    nested(30, 1),
    nested(80, 1),
    nested(300, 1),
)
BYTES = st.binary(min_size=1, max_size=4)
KEYS = ("id", "method", "params", "jsonrpc", "result", "error", "_meta", "name", "uri", "arguments", "x", "", "\ud800")


def mutate(draw: Draw, value: Any) -> Any:
    """The value with something wrong in it, somewhere."""
    if isinstance(value, dict) and value and not chance(draw, 4):
        key = pick(draw, list(value))
        match below(draw, 8):
            case 0:
                return {name: member for name, member in value.items() if name != key}
            case 1:
                return {**value, pick(draw, KEYS): pick(draw, JUNK)}
            case 2:
                return {(pick(draw, KEYS) if name == key else name): member for name, member in value.items()}
            case _:
                return {**value, key: mutate(draw, value[key])}
    if isinstance(value, list) and value and chance(draw, 2):
        index = below(draw, len(value))
        return [*value[:index], mutate(draw, value[index]), *value[index + 1 :]]
    if isinstance(value, str) and chance(draw, 3):
        return pick(draw, [value + " ", value.upper(), value + "\x00", value[:-1], value * 50, [value]])
    return pick(draw, JUNK)


def scramble(draw: Draw, text: bytes) -> bytes:
    """The bytes of a message with something wrong in them."""
    at = below(draw, len(text) + 1)
    match below(draw, 8):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + draw(BYTES) + text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case 3:
            return text + pick(draw, [b"{}", b"]", b"\n\n", b"\x00", text])
        case 4:
            return b"\xef\xbb\xbf" + text
        case 5:
            return text.replace(b"{", b'{"jsonrpc":"2.0",', 1)
        case 6:
            return text.decode("utf-8").encode("utf-16")
    return b"[" * pick(draw, [1, 100, 100_000]) + text


def encoded(value: Any, *, escape: bool = True) -> bytes:
    """The JSON of a value, half surrogate pairs as escapes."""
    try:
        return json.dumps(value, ensure_ascii=escape).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def mutate_message(draw: Draw, message: dict[str, Any]) -> Any:
    """The message with something wrong in it: mostly deep within, as what is wrong at the top is refused at once."""
    params = message.get("params")
    if isinstance(params, dict) and params and not chance(draw, 4):
        names = [name for name in params if name != "_meta" or chance(draw, 3)] or list(params)
        name = pick(draw, names)
        return {**message, "params": {**params, name: mutate(draw, params[name])}}
    return mutate(draw, message)


@st.composite
def bodies(draw: Draw, version: str) -> tuple[dict[str, Any], bytes]:
    """A message of a revision, as far as headers repeat it, and the bytes that became of it."""
    message = draw(messages(version))
    value: Any = message
    for _ in range(pick(draw, [0, 0, 1, 1, 1, 2])):
        value = mutate_message(draw, value) if isinstance(value, dict) else mutate(draw, value)
    meant = value if isinstance(value, dict) and not chance(draw, 4) else message
    match below(draw, 24):
        case 7:
            value = [value, *(draw(messages(version)) for _ in range(below(draw, 3)))]
        case 17:
            value = [value] * pick(draw, [0, 1, 51])
    text = encoded(value, escape=chance(draw, 2))
    return meant, scramble(draw, text) if chance(draw, 12) else text


# Headers

SESSIONS = ("", "x", "AAAA", "a" * 2_000, "x,y", "\x7f")
VERSIONS = (MODERN, *LEGACY, "", "x", f"{MODERN},{MODERN}", "2026-07-28 ")
VALUES = ("", " ", "tools/call", "list_models", "=?base64?eA==?=", "=?base64?x?=", "=?base64??=", "\xff", "x" * 5_000)


@st.composite
def headers(draw: Draw, message: Mapping[str, Any], version: str) -> list[tuple[str, str]]:
    """The headers of a message of a revision, by names in lower case, often with something wrong in them."""
    found = {"mcp-protocol-version": version}
    if version == MODERN:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        found["mcp-method"] = str(message.get("method", ""))
        if isinstance(name := params.get(NAME_SOURCES.get(found["mcp-method"], "")), str):
            found["mcp-name"] = name
    elif chance(draw, 2):
        del found["mcp-protocol-version"]
    wrong = list(found.items())
    for _ in range(pick(draw, [0, 0, 0, 0, 0, 1, 1, 2])):
        wrong = _wrong(draw, wrong)
    return [(name, value) for name, value in wrong if _fits(value)]


def _wrong(draw: Draw, given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    match below(draw, 7):
        case 0 if given:
            return given[1:]
        case 1:
            return [*given, *given[:1]]
        case 2:
            return [*given, ("mcp-protocol-version", pick(draw, VERSIONS))]
        case 3:
            return [("mcp-session-id", pick(draw, SESSIONS)), *given]
        case 4:
            name = pick(draw, ["mcp-method", "mcp-name", "mcp-param-region", "mcp-param-", "last-event-id"])
            return [*given, (name, pick(draw, VALUES))]
        case 5 if given:
            return [(given[0][0], pick(draw, [*VERSIONS, *VALUES])), *given[1:]]
    return [*given, ("x-junk", "y" * 100)]


def _fits(value: str) -> bool:
    """Whether a server's parser of HTTP lets a value pass at all: what it refuses is no test of this project."""
    return all(char == "\t" or 32 <= ord(char) < 127 or 128 <= ord(char) < 256 for char in value)
