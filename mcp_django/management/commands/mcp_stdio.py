"""``manage.py mcp_stdio``: the server over standard input and output, for clients on the same machine."""

import asyncio
import os
import threading
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from oauth2_provider.settings import oauth2_settings

from ...oauth.scopes import HIERARCHY
from ...runtime.threads import close_connections
from ...subscriptions.hub import hub
from ...transports.stdio.pipes import claim
from ...transports.stdio.server import StdioServer
from ..accounts import find_scopes, find_site, find_user

# Seconds that the process has to end by itself when it has served: a tool that hangs would keep it.
LEAVE_WITHIN: Final = 0.5
# Seconds before, in which calls that were cut off are written down and connections to the database are closed.
CLOSE_WITHIN: Final = 1.0


class Command(BaseCommand):
    """Serve one client as one user until it closes standard input."""

    # As with any server: they are for those who develop and deploy, and clients wait for the start.
    requires_system_checks = ()
    help = "Serves MCP over standard input and output, as USER. For clients that start the server themselves."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare user, scopes and site."""
        parser.add_argument("--user", required=True, help="the name with which the user signs in")
        parser.add_argument("--scope", nargs="+", default=None, help="default: what clients are asked to request")
        parser.add_argument("--site", default=None, help="name of an MCPSite that urls.py mounts")

    def handle(self, *args: Any, user: str, site: str | None, **options: Any) -> None:
        """Serve."""
        streams = claim()
        # Without tokens, it does not matter which scopes the project's authorization server gives.
        scopes = find_scopes(options["scope"], {*oauth2_settings.SCOPES, *HIERARCHY})
        found = find_site(site)
        server = StdioServer(found, find_user(user), scopes, streams)
        found.prepare()
        # What was asked above is not needed while the server waits for its client.
        connections.close_all()
        try:
            asyncio.run(server.run())
        finally:
            hub.close()
            connections.close_all()
            close_connections(CLOSE_WITHIN)

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as a program, which ends in time even if a thread of its own does not."""
        super().run_from_argv(argv)
        timer = threading.Timer(LEAVE_WITHIN, os._exit, [0])
        timer.daemon = True
        timer.start()
