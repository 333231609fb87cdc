"""Server-sent events (SSE): the events of a stream, their ids, and the time after which a client reconnects.

An event's id names its stream and how far the client has read, so that the stream can resume there (2025-11-25,
basic/transports, Resumability and Redelivery).
"""

import re
from typing import Final

# A comment, which keeps proxies from closing a quiet stream. No empty line follows it, because some clients would take
# that for an event without data once they have seen an id.
KEEP_ALIVE: Final = b":\n"
# Maximum number of an event in a stream, which databases store as a 32-bit integer.
MAX_SEQUENCE: Final = 2**31 - 1

_BREAKS: Final = re.compile(rb"[\r\n]")
# U+0085, U+2028 and U+2029 do not end lines of an event stream, but some clients split lines there.
_ESCAPES: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
_EVENT_ID: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.(0|[1-9][0-9]{0,9})")


def event(data: bytes, *, identifier: str | None = None) -> bytes:
    """Encode a message, ``data`` in UTF-8, as one server-sent event ``message`` with the id ``identifier``.

    JSON escapes line breaks in strings, and any others are only whitespace and are replaced, so text from a row cannot
    end the event or forge a field.

    Raises:
        ValueError: ``identifier`` was not made by :func:`event_id`.
    """
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return _id_line(identifier) + b"event: message\ndata: " + _BREAKS.sub(b" ", data) + b"\n\n"


def priming(identifier: str, retry_ms: int) -> bytes:
    """Return the server-sent event without a message that tells a client its last event id and when to reconnect.
    Raises ``ValueError`` if ``identifier`` was not made by :func:`event_id`, or ``retry_ms`` is negative."""
    return _id_line(identifier) + _retry_line(retry_ms) + b"data: \n\n"


def retry(ms: int) -> bytes:
    """Return the field of server-sent events that tells a client after how many milliseconds to reconnect. Raises
    ``ValueError`` if ``ms`` is negative."""
    return _retry_line(ms) + b"\n"


def _retry_line(ms: int) -> bytes:
    if ms < 0:
        raise ValueError("a time to wait cannot be negative")
    return b"retry: %d\n" % ms


def _id_line(identifier: str | None) -> bytes:
    if identifier is None:
        return b""
    if parse_event_id(identifier) is None:
        raise ValueError(f"{identifier!r} is not an event id")
    return b"id: " + identifier.encode() + b"\n"


def event_id(stream: str, seq: int) -> str:
    """Return the id of a server-sent event, message number ``seq`` of a stream; 0 is the position before the first.
    Raises ``ValueError`` if the stream's name is not 1 to 64 letters, digits, "-" and "_" of ASCII, or ``seq`` is out
    of range."""
    found = f"{stream}.{seq}"
    if parse_event_id(found) is None:
        raise ValueError(f"{found!r} is not an event id")
    return found


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Parse the id of a server-sent event, as in ``Last-Event-ID``, into stream and number; None if malformed."""
    match = _EVENT_ID.fullmatch(text)
    if match is None or int(match[2]) > MAX_SEQUENCE:
        return None
    return match[1], int(match[2])
