"""``manage.py mcp_server_json``: print the entry of this server for the registry of MCP servers."""

import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...oauth.document_fetcher import is_public
from ...oauth.resource_urls import resource_url
from ...routing import ENDPOINTS
from ...transports.server_card import public_identity

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
NAME: Final = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")


def registry_entry(path: str, name: str = "") -> dict[str, Any]:
    """Return the ``server.json`` of the endpoint at ``path``, for the registry of MCP servers.

    ``name`` is the name in the registry, such as "com.example/shop"; by default, host and ``SERVER['name']`` make it.
    """
    entry = public_identity(None)
    remote = {"type": "streamable-http", "url": resource_url(None, path)}
    return {"$schema": SCHEMA, **entry, **({"name": name} if name else {}), "remotes": [remote]}


class Command(BaseCommand):
    """Print the ``server.json`` of an endpoint."""

    help = "Prints the server.json of this server, for the registry of MCP servers."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", default="", help="name in the registry, such as com.example/shop")
        parser.add_argument("--path", help="path of the endpoint, if urls.py mounts several")

    def handle(self, *args: Any, name: str, path: str | None, **options: Any) -> None:
        if name and not NAME.fullmatch(name):
            raise CommandError(f"{name!r} is not a name for the registry: write a reversed domain, a slash and a name.")
        paths = [paths.removesuffix("/") for paths in ENDPOINTS.by_path()]
        if path is None and len(paths) != 1:
            which = ", ".join(paths) or "none"
            raise CommandError(f"Name the endpoint with --path. There is {which}.")
        wanted = paths[0] if path is None else "/" + path.strip("/")
        if wanted not in paths:
            raise CommandError(f"There is no endpoint at {wanted}; there is {', '.join(paths) or 'none'}.")
        try:
            entry = registry_entry(wanted, name)
        except ImproperlyConfigured as error:
            raise CommandError(f"{error} The registry wants the public address.") from None
        host = urlsplit(entry["remotes"][0]["url"]).hostname or ""
        is_address = host.replace(".", "").isdigit() or ":" in host
        if (
            host == "localhost"
            or host.endswith((".localhost", ".local", ".internal"))
            or (is_address and not is_public(host))
        ):
            raise CommandError(f"{host} is not an address that the internet reaches. The registry wants a public one.")
        self.stdout.write(json.dumps(entry, indent=2, ensure_ascii=False))
