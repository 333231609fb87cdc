"""A proxy in front of PostgreSQL that ends the connection at COMMIT, before or after the server has got it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Event, Thread
from typing import Any, Literal

from django.db import connection

# Seconds for which one side may say nothing.
TIMEOUT = 20
Where = Literal["before", "after", ""]


class PostgresProxy:
    """Passes on bytes until a client commits: with `cut` "before" the server never gets COMMIT, with "after" the client
    never gets the answer to it. Each cut is for one COMMIT. `trips` counts what the client has sent."""

    cut: Where = ""
    trips = 0

    def __init__(self, host: str, port: int) -> None:
        self.upstream = host, port
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.threads: list[Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = Thread(target=work, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.server.accept()
                upstream = socket.create_connection(self.upstream)
                client.settimeout(TIMEOUT)
                upstream.settimeout(TIMEOUT)
                is_cut = Event()
                self._start(self._requests, client, upstream, is_cut)
                self._start(self._answers, client, upstream, is_cut)

    def _requests(self, client: socket.socket, upstream: socket.socket, is_cut: Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                self.trips += 1
                if b"COMMIT" in data and self.cut:
                    is_cut.set()
                    where, self.cut = self.cut, ""
                    if where == "before":
                        break
                upstream.sendall(data)
        _shut(client, upstream)

    def _answers(self, client: socket.socket, upstream: socket.socket, is_cut: Event) -> None:
        with suppress(OSError):
            while data := upstream.recv(65536):
                # The server has answered, so it has committed.
                if is_cut.is_set():
                    break
                client.sendall(data)
        _shut(client, upstream)

    def close(self) -> None:
        # A thread that waits in accept() is not woken by close().
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


def _shut(client: socket.socket, upstream: socket.socket) -> None:
    for side in (client, upstream):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()


@contextmanager
def behind_a_proxy() -> Iterator[PostgresProxy]:
    """Let Django's connection go through a proxy."""
    known = connection.settings_dict
    with closing(PostgresProxy(known["HOST"] or "127.0.0.1", int(known["PORT"] or 5432))) as proxy:
        connection.close()
        options = {**known["OPTIONS"], "sslmode": "disable"}
        connection.settings_dict = {**known, "HOST": "127.0.0.1", "PORT": proxy.port, "OPTIONS": options}
        try:
            yield proxy
        finally:
            connection.close()
            connection.settings_dict = known
