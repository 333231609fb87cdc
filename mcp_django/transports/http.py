"""The Channels consumer: Streamable HTTP, one instance for each request.

``AsyncHttpConsumer`` dispatches neither disconnects nor layer events while its ``handle()`` runs, so the loop is this
module's own. An answer that is ready at once goes out as JSON; one whose work runs elsewhere is watched, and becomes an
event stream when there is progress to tell or when it takes its time.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from channels.consumer import AsyncConsumer

from ..conf import settings
from ..exceptions import Cancelled
from ..protocol.errors import InternalError
from ..protocol.http import BASE_HEADERS, Response
from ..protocol.messages import encode, error_response, notification
from ..protocol.sse import KEEP_ALIVE, event
from ..server import Pool, in_thread, resume_async
from ..sites import MCPSite
from .exchange import Exchange, Pending

__all__ = ["MCPConsumer", "as_application"]

T = TypeVar("T")

# Seconds after which a call that is still running becomes an event stream, and between its keep-alives.
STREAM_AFTER: Final = 5.0
KEEP_ALIVE_EVERY: Final = 15.0
# Seconds after which a read is watched for its client leaving: most are over sooner.
WATCH_AFTER: Final = 0.5
# Seconds that a client may take to read what was sent before it counts as gone; servers wait for it without end.
WRITE_TIMEOUT: Final = 30.0
STREAM_HEADERS: Final = (*BASE_HEADERS, ("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no"))


class BodyTooLarge(Exception):
    """The body crossed ``MAX_BODY_BYTES``."""


class ClientGone(Exception):
    """The connection closed before the answer."""


class MCPConsumer(AsyncConsumer):
    """Answers one HTTP request to the endpoint of ``site``."""

    def __init__(self, site: MCPSite, attributes: Mapping[str, Any] | None = None) -> None:
        self.site, self.attributes = site, attributes

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Run the request as an ASGI application does."""
        self.scope, self.receive, self.base_send = scope, receive, send
        self.streaming = False
        self.watch_read: asyncio.Task[None] | None = None
        self.exchange = Exchange(self.site, scope, self.attributes)
        try:
            await self.http_request()
        except (ClientGone, Cancelled):
            return
        finally:
            self.exchange.close()

    async def http_request(self) -> None:
        """Take the request through the front door, the body, the answer."""
        response = self.exchange.front_door()
        if response is None:
            try:
                async with asyncio.timeout(settings.BODY_TIMEOUT):
                    body = await self.read_body()
            except BodyTooLarge:
                response = self.exchange.too_large()
            except TimeoutError:
                response = self.exchange.too_slow()
            else:
                response = await self.answer(body)
        await self.send_response(response)

    async def read_body(self) -> bytes:
        """Return the body.

        Raises:
            BodyTooLarge: it crossed the bound; what came so far is dropped.
            ClientGone: the connection closed.
        """
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > settings.MAX_BODY_BYTES:
                raise BodyTooLarge
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    # Answers

    async def answer(self, body: bytes) -> Response | None:
        """Return the whole answer, or None when it has gone out as a stream."""
        work = self.in_thread("reads", lambda: self.exchange.answer(body))
        watching = asyncio.get_running_loop().call_later(WATCH_AFTER, self.begin_watch, work)
        try:
            outcome = await work
        finally:
            watching.cancel()
            if self.watch_read is not None:
                self.watch_read.cancel()
        return outcome if isinstance(outcome, Response) else await self.follow(outcome)

    def begin_watch(self, work: asyncio.Future[Any]) -> None:
        """Watch a read that takes its time."""
        self.watch_read = asyncio.ensure_future(self.give_up(work))

    async def give_up(self, work: asyncio.Future[Any]) -> None:
        """End the wait for a read when its client has gone, for it has changed nothing, or its time is over."""
        try:
            async with asyncio.timeout(settings.CALL_TIMEOUT):
                await self.disconnected()
        except TimeoutError:
            outcome: Any = self.exchange.too_long()
        else:
            outcome = ClientGone()
        if not work.done():
            (work.set_exception if isinstance(outcome, ClientGone) else work.set_result)(outcome)

    async def disconnected(self) -> None:
        """Return when the client has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def follow(self, pending: Pending) -> Response | None:
        """Run work that was put off, while watching the connection and telling its progress."""
        loop = asyncio.get_running_loop()
        messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        context = self.exchange.request.mcp

        def notify(method: str, params: Mapping[str, Any]) -> None:
            data = event(encode(notification(method, params)))
            loop.call_soon_threadsafe(messages.put_nowait, data)

        context.notify = notify if self.exchange.accepts_events else None
        work = asyncio.ensure_future(self.work(pending))
        work.add_done_callback(lambda _: messages.put_nowait(None))
        watch = asyncio.ensure_future(self.watch(pending, work))
        try:
            async with asyncio.timeout(settings.CALL_TIMEOUT):
                await self.pump(messages)
            if work.cancelled():
                raise ClientGone
            return await self.finish(work.result())
        except TimeoutError:
            return await self.finish(self.timed_out(pending))
        finally:
            context.cancelled.set()
            for task in (work, watch):
                task.cancel()

    async def work(self, pending: Pending) -> Response:
        """Run the work where it belongs: on the loop, or in the pool for the project's own code."""
        if pending.later.is_async:
            return self.exchange.respond(await resume_async(pending.call, pending.later))
        return await self.in_thread("slow", lambda: self.exchange.resume(pending))

    def in_thread(self, pool: Pool, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run work in a thread: of the pool, or of the middleware that the site needs."""
        return in_thread(pool, work, thread_sensitive=self.site.needs_middleware)

    async def watch(self, pending: Pending, work: asyncio.Future[Response]) -> None:
        """Stop the work when the client goes, in the era in which that is how a call is cancelled."""
        await self.disconnected()
        if pending.call.era.disconnect_cancels:
            self.exchange.request.mcp.cancelled.set()
            work.cancel()

    async def pump(self, messages: "asyncio.Queue[bytes | None]") -> None:
        """Send what the work has to tell until it is done; a quiet stream is kept alive by comments."""
        wait = STREAM_AFTER
        while True:
            try:
                data = await asyncio.wait_for(messages.get(), wait)
            except TimeoutError:
                if not self.exchange.accepts_events:
                    continue
                data, wait = KEEP_ALIVE, KEEP_ALIVE_EVERY
            if data is None:
                return
            await self.send_event(data)

    def timed_out(self, pending: Pending) -> Response:
        """Return the answer to a call that took longer than ``CALL_TIMEOUT``."""
        error = InternalError(f"The call took longer than {settings.CALL_TIMEOUT} s and was stopped")
        return Response(200, encode(error_response(pending.call.id, error, modern=pending.call.era.modern)))

    async def finish(self, response: Response) -> Response | None:
        """Return the answer, or end the stream with it when one was opened."""
        if not self.streaming:
            return response
        await self.send_message({"type": "http.response.body", "body": event(response.body), "more_body": False})
        return None

    async def send_event(self, data: bytes) -> None:
        """Send one event, after the headers of the stream if it is the first."""
        if not self.streaming:
            self.streaming = True
            await self.start(200, [*STREAM_HEADERS, *self.exchange.cors().items()])
        await self.send_message({"type": "http.response.body", "body": data, "more_body": True})

    async def send_response(self, response: Response | None) -> None:
        """Send a whole answer."""
        if response is None:
            return
        await self.start(response.status, response.header_list())
        await self.send_message({"type": "http.response.body", "body": response.body})

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Send the head of an answer."""
        encoded = [(name.lower().encode(), value.encode("latin1")) for name, value in headers]
        await self.send_message({"type": "http.response.start", "status": status, "headers": encoded})

    async def send_message(self, message: Mapping[str, Any]) -> None:
        """Send a message of the protocol between server and application.

        Raises:
            ClientGone: the client does not read what it is sent.
        """
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self.base_send(message)
        except TimeoutError:
            raise ClientGone from None


def as_application(site: MCPSite, attributes: Mapping[str, Any] | None = None) -> Any:
    """Return an ASGI application that answers for ``site``; a new consumer serves each request."""
    return MCPConsumer.as_asgi(site=site, attributes=attributes)
