"""Server-sent events (SSE): the events of a stream, their ids, and the time after which a client reconnects.

An event's id names its stream and how far the client has read, so that the stream can resume there (2025-11-25,
basic/transports, Resumability and Redelivery).
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

# Maximum number of an event in a stream, which databases store as a 32-bit integer.
MAX_SEQUENCE: Final = 2**31 - 1

_BREAKS: Final = re.compile(rb"[\r\n]")
# U+0085, U+2028 and U+2029 do not end lines of an event stream, but some clients split lines there.
_ESCAPES: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_EVENT_ID: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class EventId:
    """The id of a server-sent event, message ``number`` of a stream; 0 is the position before the first.

    Raises:
        ValueError: the stream's name is not 1 to 64 letters, digits, "-" and "_" of ASCII, or the number is out of
            range.
    """

    stream: str
    number: int

    def __post_init__(self) -> None:
        if _EVENT_ID.fullmatch(str(self)) is None or self.number > MAX_SEQUENCE:
            raise ValueError(f"{str(self)!r} is not an event id")

    def __str__(self) -> str:
        return f"{self.stream}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "EventId | None":
        """Parse the id of an event, as in ``Last-Event-ID``; return None if it is malformed."""
        match = _EVENT_ID.fullmatch(text)
        if match is None or int(match[2]) > MAX_SEQUENCE:
            return None
        return cls(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One server-sent event: a message, ``data`` in UTF-8, with or without an id.

    An event with an id and no data tells a client where it is. ``retry`` says after how many milliseconds to reconnect.
    """

    # A comment, which keeps proxies from closing a quiet stream. No empty line follows it, because some clients would
    # take that for an event without data once they have seen an id.
    KEEP_ALIVE: ClassVar = b":\n"

    data: bytes | None = None
    id: EventId | None = None
    retry: int | None = None

    def encode(self) -> bytes:
        """Return the event as it is on the wire.

        JSON escapes line breaks in strings, and any others are only whitespace and are replaced, so text from a row
        cannot end the event or forge a field.

        Raises:
            ValueError: the time to reconnect is negative.
        """
        if self.retry is not None and self.retry < 0:
            raise ValueError("a time to wait cannot be negative")
        wire = b""
        if self.id is not None:
            wire = f"id: {self.id}\n".encode()
        if self.retry is not None:
            wire += b"retry: %d\n" % self.retry
        if self.data is not None:
            data = self.data
            for character, escape in _ESCAPES:
                data = data.replace(character, escape)
            wire += b"event: message\ndata: " + _BREAKS.sub(b" ", data) + b"\n"
        elif self.id is not None:
            wire += b"data: \n"
        return wire + b"\n"
