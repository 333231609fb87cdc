"""One HTTP connection of the ASGI server: its body in, one answer or one event stream out."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ..conf import settings
from ..protocol.http import BASE_HEADERS, Response
from ..protocol.sse import KEEP_ALIVE

__all__ = ["KEEP_ALIVE_EVERY", "BodyTooLarge", "ClientGone", "Connection"]

# Seconds between the comments that keep a quiet stream open.
KEEP_ALIVE_EVERY: Final = 15.0
# Seconds that a client may take to read what was sent before it counts as gone; servers wait for it without end.
WRITE_TIMEOUT: Final = 30.0
STREAM_HEADERS: Final = (*BASE_HEADERS, ("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no"))


class BodyTooLarge(Exception):
    """The body crossed ``MAX_BODY_BYTES``."""


class ClientGone(Exception):
    """The connection closed before the answer."""


class Connection:
    """The two ends that an ASGI server gives an application, and what has gone out so far."""

    def __init__(self, receive: Any, send: Any) -> None:
        self._receive, self._send = receive, send
        self.is_streaming = False

    async def read_body(self) -> bytes:
        """Return the body.

        Raises:
            BodyTooLarge: it crossed the bound; what came so far is dropped.
            ClientGone: the connection closed.
        """
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > settings.MAX_BODY_BYTES:
                raise BodyTooLarge
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def closed(self) -> None:
        """Return when the client has closed the connection. Only one may wait for it at a time."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def respond(self, response: Response) -> None:
        """Send a whole answer."""
        head = _head(response.status, response.header_list())
        await self._write(head, {"type": "http.response.body", "body": response.body})

    async def open_stream(self, headers: Mapping[str, str]) -> None:
        """Send the head of an event stream, with headers beside those that every stream has; once."""
        if not self.is_streaming:
            self.is_streaming = True
            await self._write(_head(200, [*STREAM_HEADERS, *headers.items()]))

    async def send_event(self, data: bytes = KEEP_ALIVE) -> None:
        """Send one event of the stream, or a comment that keeps it open."""
        await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self, data: bytes = b"") -> None:
        """End the stream, with a last event if there is one."""
        await self._write({"type": "http.response.body", "body": data, "more_body": False})

    async def _write(self, *messages: Mapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                for message in messages:
                    await self._send(message)
        except TimeoutError:
            raise ClientGone from None


def _head(status: int, headers: list[tuple[str, str]]) -> dict[str, Any]:
    encoded = [(name.lower().encode(), value.encode("latin1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": encoded}
