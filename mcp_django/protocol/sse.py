"""Server-sent events (WHATWG HTML, section 9.2): bytes of one event, bytes of a comment."""

from typing import Final

__all__ = ["KEEP_ALIVE", "event"]

# A line that begins with a colon carries nothing and keeps proxies from closing a quiet stream.
KEEP_ALIVE: Final = b":\n\n"


def event(data: bytes) -> bytes:
    """Return one ``message`` event that carries ``data``, JSON on one line.

    JSON escapes every line break within strings, so that row text can neither end the event nor forge a field.
    """
    return b"event: message\ndata: " + data + b"\n\n"
