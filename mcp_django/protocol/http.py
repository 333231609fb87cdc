"""The HTTP rules of the endpoint that need no I/O: types, origins, hosts, sizes, headers.

Streamable HTTP, Security & Endpoint and Sending Messages; the functions take header values as text and say yes or no.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from .versions import MODERN

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
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
# 2025-11-25, basic/transports, Session Management: visible ASCII. The bound is this server's.

BASE_HEADERS: Final[tuple[tuple[str, str], ...]] = (
    ("Cache-Control", "no-store"),
    ("Vary", "Authorization, Origin"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole HTTP answer: status, body and the headers beside the ones that every answer has."""

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
    """Return whether the ``Content-Type`` is ``application/json``, with or without parameters."""
    return content_type is not None and content_type.partition(";")[0].strip(" \t").lower() == "application/json"


def accepts(accept: str | None, media_type: str) -> bool:
    """Return whether ``Accept`` admits the media type (RFC 9110, section 12.5.1).

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
            best, allowed = rank, not _is_zero(parameters)
    return allowed


def _is_zero(parameters: Iterable[str]) -> bool:
    return any(re.fullmatch(r"q=0(\.0{0,3})?", parameter.replace(" ", "")) for parameter in parameters)


def body_length(value: str | None) -> int | None:
    """Return the ``Content-Length`` in bytes, None when there is none.

    Raises:
        ValueError: it is not a plain decimal number.
    """
    if value is None:
        return None
    if not _DIGITS.fullmatch(value):
        raise ValueError("Content-Length is not a number")
    return int(value)


def allowed_methods(version: str | None, *, sessions: bool) -> str:
    """Return ``Allow`` for a request whose ``MCP-Protocol-Version`` is ``version``, None when it has none.

    GET and DELETE are for sessions, which 2026-07-28 does not have (basic/transports/streamable-http).
    """
    return SESSION_METHODS if sessions and version not in MODERN else ALLOWED_METHODS


def origin_allowed(origin: str | None, allowed: Collection[str]) -> bool:
    """Return whether a request with this ``Origin`` may be served; programs that are not browsers send none."""
    return origin is None or origin in allowed
