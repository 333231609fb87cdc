"""How many SQL queries an answer took, told in a header of it. For requests that come one after the other."""

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created

HEADER = b"bench-queries"


class Counter:
    """Queries of all connections, whatever thread they belong to."""

    def __init__(self) -> None:
        self.number = 0
        self.lock = threading.Lock()

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        with self.lock:
            self.number += 1
        return execute(sql, params, many, context)

    def install(self, connection: Any, **kwargs: Any) -> None:
        """Watch a connection, from when it is opened."""
        if self not in connection.execute_wrappers:
            connection.execute_wrappers.append(self)


def count_queries(application: Any) -> Any:
    """Return the application with a header on each answer: the number of queries since the request came in."""
    counter = Counter()
    connection_created.connect(counter.install, weak=False)
    for connection in connections.all(initialized_only=True):
        counter.install(connection)

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        before = counter.number

        async def send_counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                number = str(counter.number - before).encode()
                message = {**message, "headers": [*message["headers"], (HEADER, number)]}
            await send(message)

        await application(scope, receive, send_counted)

    return counting
