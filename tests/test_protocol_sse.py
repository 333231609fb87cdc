"""Server-sent events: one event for each message, whatever text is in it."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol.messages import encode
from mcp_django.protocol.sse import KEEP_ALIVE, event

HOSTILE = [
    "\n\n",
    "\r\rdata: {}",
    "\r\nevent: forged\r\nid: 7\r\nretry: 1\r\n\r\n",
    "\u2028data: {}\u2028\u2028",
    "\u2029\u2029event: forged",
    "\x85\x85data: {}",
    "\x0b\x0c\x1c\x1d\x1e\x00",
    'x"}\n\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n',
    "data: a\nevent: b\nid: c\nretry: 1\n:",
    "\ufeffdata: \N{GRINNING FACE}",
]


@dataclass
class Parser:
    """The algorithm of WHATWG HTML 9.2.6 over lines that were split before."""

    events: list[tuple[str, str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    kind: str = ""
    data: list[str] = field(default_factory=list)

    def read(self, lines: list[str]) -> list[tuple[str, str]]:
        for line in lines:
            if not line:
                self.dispatch()
            elif not line.startswith(":"):
                name, _, value = line.partition(":")
                self.field(name, value.removeprefix(" "))
        return self.events

    def field(self, name: str, value: str) -> None:
        self.seen.add(name)
        if name == "event":
            self.kind = value
        elif name == "data":
            self.data.append(value)

    def dispatch(self) -> None:
        if self.data:
            self.events.append((self.kind or "message", "\n".join(self.data)))
        self.kind, self.data = "", []


def standard(stream: bytes) -> list[str]:
    """Lines as the standard splits them."""
    return stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")


def as_text(stream: bytes) -> list[str]:
    """Lines as clients split them that treat the stream as any text."""
    return stream.decode().splitlines()


def check(stream: bytes, value: Any) -> None:
    for split in (standard, as_text):
        parser = Parser()
        [(kind, data)] = parser.read(split(stream))
        assert kind == "message"
        assert json.loads(data) == value
        assert parser.seen == {"event", "data"}


@pytest.mark.parametrize("text", HOSTILE)
def test_55_row_text_cannot_forge_fields_or_events(text: str) -> None:
    value = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}], text: 1}}
    check(event(encode(value)), value)


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text(alphabet='\r\n\x85\u2028\u2029:dat \\"'))
def test_55_no_text_can_forge_fields_or_events(text: str) -> None:
    check(event(encode({"text": text})), {"text": text})


def test_json_on_many_lines_is_one_event() -> None:
    value = {"text": "a\nb", "list": [1, {"x": None}]}
    check(event(json.dumps(value, indent=2).replace("\n", "\r\n").encode()), value)


@settings(max_examples=100, deadline=None)
@given(st.binary())
def test_even_bytes_that_are_not_json_end_no_event(data: bytes) -> None:
    lines = event(data).replace(b"\r", b"\n").split(b"\n")
    assert len(lines) == 4
    assert lines[0] == b"event: message"
    assert lines[1].startswith(b"data: ")
    assert lines[2:] == [b"", b""]


def test_a_keep_alive_carries_nothing() -> None:
    value = {"id": 1}
    assert Parser().read(standard(KEEP_ALIVE)) == []
    check(KEEP_ALIVE + event(encode(value)) + KEEP_ALIVE, value)
