"""Server-sent events: one event for each message, whatever text is in it."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol.messages import encode
from mcp_django.protocol.server_sent_events import EventId, ServerSentEvent
from tests.cases import drawn

pytestmark = pytest.mark.one_django

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
    last_id: str = ""
    wait: int | None = None
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
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isdigit():
            self.wait = int(value)

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


def check(stream: bytes, value: Any, identifier: str = "") -> None:
    for split in (standard, as_text):
        parser = Parser()
        [(kind, data)] = parser.read(split(stream))
        assert kind == "message"
        assert json.loads(data) == value
        assert parser.seen == ({"event", "data", "id"} if identifier else {"event", "data"})
        assert (parser.last_id, parser.wait) == (identifier, None)


@pytest.mark.parametrize("text", HOSTILE)
def test_55_row_text_cannot_forge_fields_or_events(text: str) -> None:
    value = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}], text: 1}}
    check(ServerSentEvent(encode(value)).encode(), value)
    check(ServerSentEvent(encode(value), EventId("a", 1)).encode(), value, "a.1")


@settings(max_examples=drawn(300), deadline=None)
@given(st.text() | st.text(alphabet='\r\n\x85\u2028\u2029:dat \\"'))
def test_55_no_text_can_forge_fields_or_events(text: str) -> None:
    check(ServerSentEvent(encode({"text": text})).encode(), {"text": text})


def test_json_on_many_lines_is_one_event() -> None:
    value = {"text": "a\nb", "list": [1, {"x": None}]}
    check(ServerSentEvent(json.dumps(value, indent=2).replace("\n", "\r\n").encode()).encode(), value)


@settings(max_examples=drawn(100), deadline=None)
@given(st.binary())
def test_even_bytes_that_are_not_json_end_no_event(data: bytes) -> None:
    lines = ServerSentEvent(data).encode().replace(b"\r", b"\n").split(b"\n")
    assert len(lines) == 4
    assert lines[0] == b"event: message"
    assert lines[1].startswith(b"data: ")
    assert lines[2:] == [b"", b""]


def test_a_keep_alive_carries_nothing() -> None:
    value = {"id": 1}
    assert Parser().read(standard(ServerSentEvent.KEEP_ALIVE)) == []
    check(ServerSentEvent.KEEP_ALIVE + ServerSentEvent(encode(value)).encode() + ServerSentEvent.KEEP_ALIVE, value)


# Going on with a stream


def test_the_priming_event_says_where_and_when_to_come_back_and_nothing_else() -> None:
    assert ServerSentEvent(id=EventId("a", 0), retry=500).encode() == b"id: a.0\nretry: 500\ndata: \n\n"
    for split in (standard, as_text):
        parser = Parser()
        assert parser.read(split(ServerSentEvent(id=EventId("a", 0), retry=500).encode())) == [("message", "")]
        assert (parser.last_id, parser.wait) == ("a.0", 500)


def test_a_time_to_wait_is_no_event() -> None:
    assert ServerSentEvent(retry=0).encode() == b"retry: 0\n\n"
    parser = Parser()
    assert parser.read(standard(ServerSentEvent(retry=1_500).encode())) == []
    assert parser.wait == 1_500


@pytest.mark.parametrize("ms", [-1, -1_000])
def test_a_time_to_wait_is_not_negative(ms: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        ServerSentEvent(retry=ms).encode()
    with pytest.raises(ValueError, match="negative"):
        ServerSentEvent(id=EventId("a", 0), retry=ms).encode()


@pytest.mark.parametrize("stream", ["a", "0", "f" * 32, "A-b_9", "x" * 64])
@pytest.mark.parametrize("seq", [0, 1, 10, 2**31 - 1])
def test_93_an_event_id_is_read_as_it_was_written(stream: str, seq: int) -> None:
    found = EventId(stream, seq)
    assert EventId.parse(str(found)) == found
    check(ServerSentEvent(b"1", found).encode(), 1, f"{stream}.{seq}")


GARBLED = [
    "",
    ".",
    "a",
    "a.",
    ".1",
    "a.-1",
    "a.+1",
    "a.01",
    "a.1 ",
    " a.1",
    "a.1\n",
    "a.1.2",
    "a..1",
    "a.1e3",
    "a.1_0",
    "a.0x1",
    "a.\u0661",
    "a.\uff11",
    f"a.{2**31}",
    "a." + "9" * 5_000,
    "x" * 65 + ".1",
    "a b.1",
    "a/b.1",
    "a,b.1",
    "\u00e9.1",
    "a\0.1",
    "a\r\nid: b.1",
]


@pytest.mark.parametrize("text", GARBLED, ids=range(len(GARBLED)))
def test_93_any_other_event_id_is_none(text: str) -> None:
    assert EventId.parse(text) is None


@pytest.mark.parametrize("stream", ["a\r\nid: b", "a\nretry: 1", "a\0", "a: b", "a\u2028"])
def test_55_an_event_id_cannot_forge_fields(stream: str) -> None:
    with pytest.raises(ValueError, match="event id"):
        EventId(stream, 1)


@pytest.mark.parametrize(
    ("stream", "seq"),
    [("", 1), ("a.b", 1), ("a b", 1), ("a\n", 1), ("\u00e9", 1), ("x" * 65, 1), ("a", -1), ("a", 2**31)],
)
def test_93_what_could_not_be_read_again_is_not_written(stream: str, seq: int) -> None:
    with pytest.raises(ValueError, match="event id"):
        EventId(stream, seq)


@settings(max_examples=drawn(200), deadline=None)
@given(st.text() | st.from_regex(r"[A-Za-z0-9_.-]{1,70}\.[0-9]{1,12}"))
def test_93_whatever_is_read_is_what_was_written(text: str) -> None:
    found = EventId.parse(text)
    assert found is None or str(found) == text
