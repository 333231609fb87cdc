"""What the server says of itself to anyone, before they connect: its card, and its entry in a registry of servers.

Both have the names and addresses that ``initialize`` and ``server/discover`` also return, but no tools or models. The
card is experimental in MCP (SEP-2127).
"""

import re
from typing import Any, Final
from urllib.parse import urlsplit

from django.http import HttpRequest

from ..oauth.resource_urls import resource_url
from ..protocol.versions import Revisions
from ..server.methods.lifecycle_and_subscriptions import identity

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")
MAX_TITLE: Final = 100


def card(request: HttpRequest | None, path: str) -> dict[str, Any]:
    """Return the server's card for the endpoint at ``path``."""
    remote = {
        "type": "streamable-http",
        "url": resource_url(request, path),
        "supportedProtocolVersions": list(Revisions.SUPPORTED),
    }
    return {"$schema": SCHEMA, **public_identity(request), "remotes": [remote]}


def public_identity(request: HttpRequest | None) -> dict[str, Any]:
    """Return the identity that ``initialize`` gives, as a card or registry needs it: its name begins with the host."""
    info = identity()
    title = str(info.get("title") or info["name"])[:MAX_TITLE]
    host = urlsplit(resource_url(request, "")).hostname or "localhost"
    is_address = _ADDRESS.fullmatch(host)
    reversed_host = _UNUSUAL.sub("-", host).strip("-") if is_address else ".".join(reversed(host.split(".")))
    entry = {
        "name": f"{reversed_host}/{_UNUSUAL.sub('-', info['name']).strip('-') or 'server'}",
        "title": title,
        "description": info.get("description") or title,
        "version": str(info["version"]),
    }
    return entry | {key: info[key] for key in ("websiteUrl", "icons") if key in info}
