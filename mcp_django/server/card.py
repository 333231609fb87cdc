"""What anyone may know of a server before they connect: its card, and its entry in a registry.

Both tell names and addresses, as ``initialize`` and ``server/discover`` do, and name no tool and no model. The card is
experimental in MCP (SEP-2127).
"""

import re
from typing import Any, Final
from urllib.parse import urlsplit

from django.http import HttpRequest

from ..oauth.resource import origin, resource_url
from ..protocol.versions import SUPPORTED
from .methods.lifecycle import identity

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
REGISTRY_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")
MAX_TITLE: Final = 100


def card(request: HttpRequest | None, path: str) -> dict[str, Any]:
    """Return the card of the endpoint at ``path``."""
    remote = {
        "type": "streamable-http",
        "url": resource_url(request, path),
        "supportedProtocolVersions": list(SUPPORTED),
    }
    return {"$schema": SCHEMA, **_described(request), "remotes": [remote]}


def registry_entry(path: str, name: str = "") -> dict[str, Any]:
    """Return the ``server.json`` of the endpoint at ``path`` for the registry of MCP servers.

    ``name`` is the name there, such as "com.example/shop"; without one it is made of the host and ``SERVER_NAME``.
    """
    described = _described(None)
    remote = {"type": "streamable-http", "url": resource_url(None, path)}
    return {"$schema": REGISTRY_SCHEMA, **described, **({"name": name} if name else {}), "remotes": [remote]}


def _described(request: HttpRequest | None) -> dict[str, Any]:
    known = identity()
    title = str(known.get("title") or known["name"])[:MAX_TITLE]
    found = {
        "name": f"{_reversed_host(request)}/{_UNUSUAL.sub('-', known['name']).strip('-') or 'server'}",
        "title": title,
        "description": known.get("description") or title,
        "version": str(known["version"]),
    }
    return found | {key: known[key] for key in ("websiteUrl", "icons") if key in known}


def _reversed_host(request: HttpRequest | None) -> str:
    host = urlsplit(origin(request)).hostname or "localhost"
    if _ADDRESS.fullmatch(host):
        return _UNUSUAL.sub("-", host).strip("-")
    return ".".join(reversed(host.split(".")))
