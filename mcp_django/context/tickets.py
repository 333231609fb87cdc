"""Tickets: signed URLs that act for a user.

The ticket in a URL is a sealed text, valid for one purpose at one site, for some minutes. It contains the user and the
token of the request that asked for it, so that it ends with either.
"""

from dataclasses import dataclass
from typing import ClassVar

import orjson
from django.contrib.auth import get_user_model

from .request import MCPRequest
from .signing import Seal


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket whose signature was verified: ``owner`` is the user's primary key as text, None if nobody signs in.

    ``checksum`` is that of the token (hexadecimal), "" if it is not stored; the purpose defines ``about``.
    """

    owner: str | None
    checksum: str
    about: tuple[str, ...]

    # Maximum age in seconds.
    MAX_AGE: ClassVar[int] = 600
    # Regular expression in a URL pattern.
    PATTERN: ClassVar[str] = r"[\w-]{1,4000}:[\w-]{1,20}:[\w-]{1,100}"

    @staticmethod
    def suits(request: MCPRequest) -> bool:
        """Return whether a URL can be signed for the caller: who came over HTTP as a user who can be found again."""
        user = request.user
        return "://" in request.mcp.resource and (user.pk is None or isinstance(user, get_user_model()))

    @staticmethod
    def url(request: MCPRequest, use: str, *about: str) -> str:
        """Sign and seal a ticket for this purpose, and return it as a URL; only for callers whom it :meth:`suits`."""
        owner = None if request.user.pk is None else str(request.user.pk)
        checksum = bytes.fromhex(getattr(getattr(request, "auth", None), "checksum", ""))
        data = bytes([len(checksum)]) + checksum + orjson.dumps([owner, *about])
        return f"{request.mcp.resource.rstrip('/')}/{use}/{_seal(request.mcp.site.name, use).seal(data)}"

    @classmethod
    def read(cls, site_name: str, use: str, text: str, *, max_age: int = MAX_AGE) -> "Ticket | None":
        """Verify the ticket of a signed URL; None if it was not signed for this use of the site, or is too old."""
        data = _seal(site_name, use).open(text, max_age)
        if data is None:
            return None
        checksum = data[1 : 1 + data[0]]
        rest = data[1 + data[0] :]
        owner, *about = orjson.loads(rest)
        return cls(owner, checksum.hex(), tuple(about))


def _seal(site_name: str, use: str) -> Seal:
    return Seal(f"mcp_django.context.signing.{use}.{site_name}")
