"""Makes the example ready for use and serves it: what `make demo` runs."""

import os
import socket
import sys
from textwrap import indent
from typing import Any

from channels.routing import get_default_application
from daphne.access import AccessLogGenerator
from daphne.server import Server
from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from example_project.places.models import City
from example_project.shop.views import ACCOUNTS, set_ups

HOST = "127.0.0.1"

READY = """
Start page:   {base}/
MCP endpoint: {url}
Admin:        {base}/admin/

Accounts (the password is the name):
{accounts}

Clients:
{clients}

Without a browser, as a bearer token:
  PORT={port} {manage} mcp_token admin

Press Ctrl-C to stop. Your data is kept.
"""


class Command(BaseCommand):
    help = "Migrates, loads the example data where there are none, creates the accounts and serves the example."

    def handle(self, **options: Any) -> None:
        port = int(os.environ.get("PORT", "8000"))
        check_free(port)
        self.prepare()
        self.serve(port)

    def prepare(self) -> None:
        self.step("Database", "migrate", verbosity=0)
        if not City.objects.exists():
            # Only then: what somebody deleted is not to come back with the next start.
            self.step("Places", "load_places")
            self.step("Rules", "create_rules")
        # The history that comes with the shop's data is of these.
        self.step("Accounts", "create_accounts")
        self.step("Shop", "load_shop")

    def step(self, title: str, command: str, **options: Any) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(title))
        self.stdout.flush()
        call_command(command, **options)

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
        text = READY.format(
            base=base,
            url=f"{base}/mcp",
            port=port,
            accounts="\n".join(f"  {name:<10} {what}" for name, what in ACCOUNTS.items()),
            clients="\n".join(f"  {title}\n{indent(line, '    ')}" for title, _, line in set_ups(f"{base}/mcp")),
            manage=f"{os.path.relpath(sys.executable)} manage.py",
        )
        self.stdout.write(text, self.style.SUCCESS)
        self.stdout.flush()


def check_free(port: int) -> None:
    """Complain before the data are loaded, not after."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(f"Port {port} is not free: choose another one with PORT=N.") from error
