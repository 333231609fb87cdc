"""``manage.py mcp_stdio``: the server over standard input and output, for clients on the same machine."""

import asyncio
import os
import threading
from typing import Any, Final

from django.db import connections

from ...runtime.thread_pools import close_connections
from ...subscriptions.bus import bus
from ...transports.stdio.pipes import claim
from ...transports.stdio.server import StdioServer
from ..command_arguments import CallerCommand

# Seconds that the process has to end by itself after serving: a tool that hangs would keep it alive.
LEAVE_WITHIN: Final = 0.5
# Seconds before that, for logging calls that were cut off and for closing database connections.
CLOSE_WITHIN: Final = 1.0


class Command(CallerCommand):
    """Serve one client as one user, until standard input closes."""

    # No system checks run, as with other servers: clients wait for the start.
    needs_user = True
    help = "Serves MCP over standard input and output, as USER. For clients that start the server themselves."

    def handle(self, *args: Any, **options: Any) -> None:
        streams = claim()
        site, user, scopes = self.find_caller(options)
        server = StdioServer(site, user, scopes, streams)
        site.prepare()
        # Close the connections that the queries above have opened: the server may wait for its client for long.
        connections.close_all()
        try:
            asyncio.run(server.run())
        finally:
            bus.close()
            connections.close_all()
            close_connections(CLOSE_WITHIN)

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command as a program, which exits in time even if one of its threads hangs."""
        super().run_from_argv(argv)
        timer = threading.Timer(LEAVE_WITHIN, os._exit, [0])
        timer.daemon = True
        timer.start()
