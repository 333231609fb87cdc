"""``manage.py mcp_stdio``: the server over standard input and output, for clients on the same machine."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from oauth2_provider.settings import oauth2_settings

from ...oauth.scopes import HIERARCHY
from ...subscriptions.hub import hub
from ...transports.stdio.pipes import claim
from ...transports.stdio.server import StdioServer
from ..accounts import find_scopes, find_site, find_user

# Seconds that the process has to end by itself when it has served: a tool that hangs would keep it.
LEAVE_WITHIN: Final = 0.5


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
        """Serve.

        Raises:
            CommandError: the user, a scope or the site is not acceptable.
        """
        streams = claim()
        with closing_connections():
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

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as a program, which ends in time even if a thread of its own does not."""
        super().run_from_argv(argv)
        timer = threading.Timer(LEAVE_WITHIN, os._exit, [0])
        timer.daemon = True
        timer.start()


@contextlib.contextmanager
def closing_connections() -> Iterator[None]:
    """Close, at the end, the database connections that threads of calls opened meanwhile; others close their own."""
    opened: list[BaseDatabaseWrapper] = []

    def remember(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        if not threading.current_thread().daemon:
            opened.append(connection)

    connection_created.connect(remember)
    try:
        yield
    finally:
        connection_created.disconnect(remember)
        for connection in opened:
            connection.inc_thread_sharing()
            # One that is in use, by a tool that hangs, ends with the process.
            with contextlib.suppress(Exception):
                connection.close()
            connection.dec_thread_sharing()
