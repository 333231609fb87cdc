"""The Channels consumer: Streamable HTTP, one instance for each request.

``AsyncHttpConsumer`` dispatches neither disconnects nor layer events while its ``handle()`` runs, so the loop is this
package's own: each kind of answer watches its connection while it works.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from channels.consumer import AsyncConsumer

from ...conf import settings
from ...exceptions import Cancelled
from ...protocol.http import Response
from ...runtime.threads import Busy, in_thread
from ...sites import MCPSite
from . import dispatch, shutdown
from .call_streams import Tail
from .calls import DirectCall, LoggedCall
from .connection import BodyTooLarge, ClientGone, Connection
from .dispatch import Outcome
from .exchange import SHORT_BODY, Exchange
from .shutdown import is_closing
from .streams import ListenStream, SessionStream

# Seconds after which a read is watched for its client leaving: most are over sooner.
WATCH_AFTER: Final = 0.5


class MCPConsumer(AsyncConsumer):
    """Answers one HTTP request to the endpoint of ``site``."""

    def __init__(self, site: MCPSite, attributes: Mapping[str, Any] | None = None) -> None:
        self.site, self.attributes = site, attributes

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Run the request as an ASGI application does."""
        self.scope, self.connection = scope, Connection(receive, send, scope.get("client"))
        self.watch_read: asyncio.Task[None] | None = None
        self.exchange = Exchange(self.site, scope, self.attributes)
        self.owns_place = True
        if not shutdown.installed:
            shutdown.install()
        try:
            await self.carry_out(await self.outcome())
        except (ClientGone, Cancelled):
            return
        except Exception as error:
            await self.fail(error)
        finally:
            if self.owns_place:
                self.exchange.close()

    async def fail(self, error: Exception) -> None:
        """Say that something failed, or end the stream, for the client to come back, where the head is out already."""
        response = self.exchange.failed(error)
        with contextlib.suppress(ClientGone):
            if self.connection.is_streaming:
                await self.connection.end_stream()
            else:
                await self.connection.respond(response)

    async def outcome(self) -> Any:
        """Take the request through the front door and the body, and return what it comes to."""
        refusal = self.exchange.front_door()
        if refusal is not None:
            return refusal
        try:
            async with asyncio.timeout(settings.BODY_TIMEOUT):
                body = await self.body()
        except BodyTooLarge:
            return self.exchange.too_large()
        except TimeoutError:
            return self.exchange.too_slow()
        return body if isinstance(body, Response) else await self.read(body)

    async def body(self) -> bytes | Response:
        """Return the body; a long one is read once it is known who sends it, or the refusal is returned instead."""
        if self.exchange.body_is_short:
            body = await self.connection.read_body(SHORT_BODY)
            if body is not None:
                return body
        refusal = await self.at_the_door(self.exchange.admit_body)
        return refusal or await self.connection.read_body() or b""

    def at_the_door(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Do work in a thread that no call holds up; the rest of it, if any, where it belongs."""
        return in_thread("door", work, thread_sensitive=self.site.needs_middleware)

    def answer(self, body: bytes) -> Any:
        """Return what the message in the body comes to, or the rest of the work; called in a thread."""
        return dispatch.answer(self.exchange, body)

    async def read(self, body: bytes) -> Any:
        """Return what the message in the body comes to; the wait ends with the client's or with the call's time."""
        work = self.at_the_door(partial(self.answer, body))
        loop = work.get_loop()
        watching = loop.call_at(loop.time() + WATCH_AFTER, self.begin_watch, work)
        try:
            return await work
        except Busy:
            return self.exchange.busy()
        finally:
            watching.cancel()
            if self.watch_read is not None:
                self.watch_read.cancel()

    def begin_watch(self, work: asyncio.Future[Any]) -> None:
        """Watch a read that takes its time."""
        self.watch_read = asyncio.ensure_future(self.give_up(work))

    async def give_up(self, work: asyncio.Future[Any]) -> None:
        """End the wait for a read when its client has gone, for it has changed nothing, or its time is over."""
        try:
            async with asyncio.timeout(self.exchange.time_left):
                await self.connection.closed()
        except TimeoutError:
            outcome: Any = self.exchange.too_long()
        else:
            outcome = ClientGone()
        if not work.done():
            (work.set_exception if isinstance(outcome, ClientGone) else work.set_result)(outcome)

    async def carry_out(self, outcome: Any) -> None:
        """Answer as the outcome says."""
        exchange, connection = self.exchange, self.connection
        if hasattr(exchange.request, "user"):
            connection.owner = exchange.caller
        match outcome:
            case Response():
                await connection.respond(outcome)
            case dispatch.Pending():
                await self.call(outcome)
            case dispatch.Batched():
                await self.batch(outcome)
            case dispatch.Resumed():
                await connection.respond(Response(202, headers=exchange.cors()))
                await self.resume(outcome.resumption)
            case _:
                await self.stream(outcome)

    async def call(self, pending: dispatch.Pending) -> None:
        """Run a call whose work was put off."""
        exchange = self.exchange
        if exchange.session is None or not exchange.accepts_events:
            await DirectCall(exchange, self.connection, pending).run()
            return
        call = LoggedCall(exchange, pending.call, pending.message)
        self.owns_place = False
        call.start(pending.work)
        started = await self.unless_gone(asyncio.shield(call.started))
        if isinstance(started, Response):
            await self.connection.respond(started)
        elif isinstance(started, str):
            await Tail(exchange, self.connection, started, 0, pending.call.version, call.log).run(call.hung_up)
        else:
            # A cancelled call has no answer, and the request must have one.
            await self.connection.open_stream(exchange.cors())
            await self.connection.end_stream()

    async def unless_gone(self, future: "asyncio.Future[Any]") -> Any:
        """Return the future's result.

        Raises:
            ClientGone: the client closed the connection first.
        """
        gone = asyncio.ensure_future(self.connection.closed())
        try:
            await asyncio.wait([future, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not future.done():
            raise ClientGone
        return future.result()

    async def batch(self, batched: dispatch.Batched) -> None:
        """Answer several messages at once."""
        exchange = self.exchange
        work = lambda: exchange.guarded(lambda: dispatch.run_batch(exchange, batched.batch))  # noqa: E731
        try:
            async with asyncio.timeout(exchange.time_left):
                found = await in_thread(
                    "slow", work, owner=exchange.caller, thread_sensitive=self.site.needs_middleware
                )
        except Busy:
            found = exchange.busy()
        except TimeoutError:
            # The thread goes no further than to the end of the message that it is at.
            exchange.request.mcp.cancelled = True
            found = exchange.too_long()
        response, resumptions = (found, []) if isinstance(found, Response) else found
        await self.connection.respond(response)
        for resumption in resumptions:
            await self.resume(resumption)

    async def resume(self, resumption: Any) -> None:
        """Go on, in this worker, with a call whose questions are answered."""
        self.owns_place = False
        await LoggedCall.resumed(self.exchange, resumption)

    def no_room(self) -> Response | None:
        """Return the refusal when the caller has no place for a stream, or the worker is about to stop."""
        refusal = self.exchange.change_place()
        if is_closing():
            return self.exchange.refuse(503, "The server is about to stop", "Clients come back.", {"Retry-After": "1"})
        return refusal

    async def stream(self, outcome: Outcome) -> None:
        """Open a stream, if there is room for one."""
        exchange, connection = self.exchange, self.connection
        if (refusal := self.no_room()) is not None:
            await connection.respond(refusal)
            return
        match outcome:
            case dispatch.Listening():
                await ListenStream(exchange, connection, outcome).run()
            case dispatch.Changes():
                await SessionStream(exchange, connection, outcome).run()
            case dispatch.Following():
                await Tail(exchange, connection, outcome.stream_id, outcome.after, outcome.version).run()


def as_application(site: MCPSite, attributes: Mapping[str, Any] | None = None) -> Any:
    """Return an ASGI application that answers for ``site``; a new consumer serves each request."""
    return MCPConsumer.as_asgi(site=site, attributes=attributes)
