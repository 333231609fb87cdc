"""Tickets: URLs that let whoever holds them do one thing in the place of a user, for some minutes.

A ticket is sealed: it tells nothing, and is good for one use at one site. It holds who asked for it and the token that
they came with, so that it ends with either.
"""

from dataclasses import dataclass
from typing import Final

import orjson
from django.contrib.auth import get_user_model

from .request import MCPRequest
from .sealing import seal, unseal

__all__ = ["MAX_AGE", "TICKET", "Ticket", "can_link", "read_ticket", "ticket_url"]

# Seconds.
MAX_AGE: Final = 600
# What a ticket looks like in the pattern of a URL.
TICKET: Final = r"[\w-]{1,4000}:[\w-]{1,20}:[\w-]{1,100}"


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a ticket is for: ``owner`` is the user's primary key as text, None where nobody signs in.

    ``checksum`` is that of the token (hexadecimal), "" for one that is not stored; ``about`` is the use's own.
    """

    owner: str | None
    checksum: str
    about: tuple[str, ...]


def can_link(request: MCPRequest) -> bool:
    """Return whether the caller came over HTTP, as a user who can be found again."""
    user = request.user
    return bool(request.mcp.resource) and (user.pk is None or isinstance(user, get_user_model()))


def ticket_url(request: MCPRequest, use: str, *about: str) -> str:
    """Return the URL below the endpoint that is good for this use by the caller, who :func:`can_link`."""
    owner = None if request.user.pk is None else str(request.user.pk)
    checksum = bytes.fromhex(getattr(getattr(request, "auth", None), "checksum", ""))
    data = bytes([len(checksum)]) + checksum + orjson.dumps([owner, *about])
    return f"{request.mcp.resource.rstrip('/')}/{use}/{seal(_salt(request.mcp.site.name, use), data)}"


def read_ticket(site_name: str, use: str, text: str, *, max_age: int = MAX_AGE) -> Ticket | None:
    """Return what the ticket is for, None for one that was not made for this use of the site, or is too old."""
    data = unseal(_salt(site_name, use), text, max_age)
    if data is None:
        return None
    checksum, rest = data[1 : 1 + data[0]], data[1 + data[0] :]
    owner, *about = orjson.loads(rest)
    return Ticket(owner, checksum.hex(), tuple(about))


def _salt(site_name: str, use: str) -> str:
    return f"mcp_django.context.tickets.{use}.{site_name}"
