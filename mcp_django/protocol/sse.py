"""Server-sent events (WHATWG HTML, section 9.2): bytes of one event, bytes of a comment."""

import re
from typing import Final

__all__ = ["KEEP_ALIVE", "event"]

# A line that begins with a colon carries nothing and keeps proxies from closing a quiet stream.
KEEP_ALIVE: Final = b":\n\n"

_BREAKS: Final = re.compile(rb"[\r\n]")
# U+0085, U+2028 and U+2029 end no line of an event stream, but they do in clients that split it as text.
_ESCAPES: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def event(data: bytes) -> bytes:
    """Return one ``message`` event that carries ``data``, JSON in UTF-8.

    JSON escapes the line breaks within its strings and may have others only where they mean nothing, so that no text
    of a row can end the event or forge a field.
    """
    for character, escape in _ESCAPES:
        data = data.replace(character, escape)
    return b"event: message\ndata: " + _BREAKS.sub(b" ", data) + b"\n\n"
