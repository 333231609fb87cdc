"""Makes the example ready for use and serves it: what `make demo` runs."""

import os
import socket
from typing import Any

from channels.routing import get_default_application
from daphne.access import AccessLogGenerator
from daphne.server import Server
from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from example_project.places.models import City

HOST = "127.0.0.1"

READY = """
MCP endpoint: {url}
Admin:        {base}/admin/

Accounts (the password is the name):
  admin      may do everything
  warehouse  sees the orders of its own country and ships them
  auditor    sees everything and changes nothing
  nobody     may sign in, and then sees no records

Claude Code
  claude mcp add --transport http shop {url}
  then, in claude: /mcp, shop, Authenticate

Codex
  codex mcp add shop --url {url}
  codex mcp login shop

VS Code
  code --add-mcp '{{"name": "shop", "type": "http", "url": "{url}"}}'

Cursor: in ~/.cursor/mcp.json
  {{"mcpServers": {{"shop": {{"url": "{url}"}}}}}}

Gemini CLI
  gemini mcp add --transport http shop {url}
  then, in gemini: /mcp auth shop

MCP Inspector
  npx @modelcontextprotocol/inspector
  then choose Streamable HTTP and enter {url}

Without a browser, as a bearer token
  PORT={port} .venv/bin/python manage.py mcp_token admin

Press Ctrl-C to stop. The data stay.
"""


class Command(BaseCommand):
    help = "Migrates, loads the example data where there are none, creates the accounts and serves the example."

    def handle(self, **options: Any) -> None:
        port = int(os.environ.get("PORT", "8000"))
        check_free(port)
        self.prepare()
        self.serve(port)

    def prepare(self) -> None:
        self.step("Database", "migrate")
        if not City.objects.exists():
            # Only then: what somebody deleted is not to come back with the next start.
            self.step("Places", "load_places")
        self.step("Shop", "load_shop")
        self.step("Accounts", "create_accounts")

    def step(self, title: str, command: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(title))
        self.stdout.flush()
        call_command(command)

    def serve(self, port: int) -> None:
        """Run daphne until it is stopped. What `runserver` adds and is of use here are the static files."""
        server = Server(
            application=ASGIStaticFilesHandler(get_default_application()),
            endpoints=[f"tcp:port={port}:interface={HOST}"],
            action_logger=AccessLogGenerator(self.stdout),
            ready_callable=lambda: self.announce(port),
        )
        server.run()
        if server.abort_start:
            raise CommandError(f"Port {port} could not be opened.")

    def announce(self, port: int) -> None:
        base = settings.MCP_BASE_URL
        self.stdout.write(READY.format(base=base, url=f"{base}/mcp", port=port), self.style.SUCCESS)
        self.stdout.flush()


def check_free(port: int) -> None:
    """Complain before the data are loaded, not after."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(f"Port {port} is not free: choose another one with PORT=N.") from error
