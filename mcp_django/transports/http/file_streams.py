"""Open files as the bodies of responses.

A file that is not as long as was announced, or that cannot be read to its end, ends the connection: otherwise a client
would take a part for the whole, or the next answer on the connection for the rest of the file.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.wsgi import LimitedStream
from django.http import FileResponse, HttpRequest

from ...server.methods.handler_interface import log_failure
from . import asgi_consumer
from .asgi_consumer import cut_off, cut_unless_read, twisted_transport
from .stream_registry import socket_of

CHUNK: Final = 64 * 1024
# Seconds in which a server notices that a connection was cut.
GRACE: Final = 5


class OtherSize(Exception):
    """A file is shorter or longer than was announced."""


class OpenFile:
    """An open file that has ``size`` bytes, None if that is not known; the log calls it ``what`` if it fails."""

    def __init__(self, stream: Any, size: int | None, what: str) -> None:
        self.stream = stream
        self.size = size
        self.what = what
        self.sent = 0

    def send_as(self, response: FileResponse, request: HttpRequest) -> None:
        """Make it the body of a response to the request; the response closes it."""
        if isinstance(request, ASGIRequest):
            # With a synchronous iterator, Django would read the whole file before sending any of it.
            response.streaming_content = self._pieces_for(request.scope.get("client"))
        else:
            response.streaming_content = self._pieces(request.META)

    def _read(self) -> bytes:
        """Return the next piece, b"" at the end; raise an error, which is logged, for a file that is not whole."""
        try:
            data: bytes = self.stream.read(CHUNK)
            self.sent += len(data)
            self._check_size(is_end=not data)
        except Exception as error:
            log_failure(self.what, error)
            raise
        return data

    def _check_size(self, *, is_end: bool) -> None:
        if self.size is None:
            return
        if self.sent > self.size:
            raise OtherSize(f"The file is longer than its {self.size} bytes.")
        if is_end and self.sent < self.size:
            raise OtherSize(f"The file is shorter than its {self.size} bytes.")

    def _pieces(self, environ: Mapping[str, Any]) -> Iterator[bytes]:
        try:
            while data := self._read():
                yield data
        except Exception:
            _end_connection(environ)
            raise

    async def _pieces_for(self, client: Sequence[Any] | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        # Other servers wait by themselves until the client has read.
        daphne = twisted_transport(client)
        read = sync_to_async(self._read, thread_sensitive=False)
        try:
            while data := await read():
                # Django itself waits forever for a client that does not read.
                limit = loop.call_later(asgi_consumer.WRITE_TIMEOUT, cut_off, client)
                try:
                    yield data
                finally:
                    limit.cancel()
                if daphne is not None and daphne.producerPaused:
                    await cut_unless_read(daphne)
        except Exception:
            # Not every server ends the connection for an error within a body.
            if cut_off(client):
                await asyncio.sleep(GRACE)
            raise


def _end_connection(environ: Mapping[str, Any]) -> None:
    """End the connection of a request to Django's development server, which would go on with the next answer.

    Other WSGI servers end it by themselves.
    """
    body: Any = environ.get("wsgi.input")
    if type(body).__module__ != LimitedStream.__module__:
        return
    # Nothing public leads to the connection.
    with contextlib.suppress(AttributeError, OSError), socket_of(body._read.__self__.fileno()) as connection:
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
