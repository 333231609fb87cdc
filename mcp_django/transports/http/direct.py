"""A call whose messages go out on the connection that it came by, and nowhere else.

That is every call without a session. An answer that is ready at once goes out as JSON; one whose work runs elsewhere
becomes an event stream when there is something to tell or when it takes its time.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from ...conf import settings
from ...context.request import MCPRequest
from ...protocol.errors import InternalError
from ...protocol.messages import encode, error_response
from ...protocol.sse import KEEP_ALIVE, event
from ...runtime.threads import BUSY, Busy, in_thread
from ...runtime.throttling import caller_of
from ...server.dispatch import Reply, resume, resume_async
from ...server.methods.base import Asked, Later
from .connection import KEEP_ALIVE_EVERY, ClientGone, Connection
from .dispatch import Pending
from .outgoing import Waiting

if TYPE_CHECKING:
    from ...protocol.eras import Call
    from .exchange import Exchange

# Seconds after which a call that is still running becomes an event stream.
STREAM_AFTER: Final = 5.0


async def perform(request: MCPRequest, call: "Call", later: Later) -> Reply | Asked:
    """Do work that was put off where it belongs: on the loop, or in the pool for the project's own code."""
    if later.is_async:
        return await resume_async(request, call, later)
    work = lambda: resume(request, call, later)  # noqa: E731
    sensitive = request.mcp.site.needs_middleware
    try:
        return await in_thread("slow", work, owner=caller_of(request), thread_sensitive=sensitive)
    except Busy:
        body = encode(error_response(call.id, InternalError(BUSY), modern=call.era.modern))
        return Reply(body, 503)


def timed_out(call: "Call") -> Reply:
    """Return the reply to a call that took longer than ``CALL_TIMEOUT``."""
    error = InternalError(f"The call took longer than {settings.CALL_TIMEOUT} s and was stopped")
    return Reply(encode(error_response(call.id, error, modern=call.era.modern)))


class DirectCall:
    """One call of ``exchange`` that is answered on ``connection``."""

    def __init__(self, exchange: "Exchange", connection: Connection, pending: Pending) -> None:
        self.exchange, self.connection, self.call = exchange, connection, pending.call
        # Without a session nobody can be asked on the way, so that there is nothing to wait for.
        assert isinstance(pending.work, Later)
        self.later = pending.work
        self.waiting = Waiting()

    async def run(self) -> None:
        """Run the work, while watching the connection and telling what the call has to tell."""
        context = self.exchange.request.mcp
        context.notify = self.waiting.put if self.exchange.accepts_events else None
        work = asyncio.ensure_future(perform(self.exchange.request, self.call, self.later))
        work.add_done_callback(lambda _: self.waiting.wake.set())
        watch = asyncio.ensure_future(self.watch(work))
        try:
            async with asyncio.timeout(self.exchange.time_left):
                await self.pump(work)
            if work.cancelled():
                raise ClientGone
            reply = work.result()
        except TimeoutError:
            reply = timed_out(self.call)
        finally:
            context.cancelled = True
            for task in (work, watch):
                task.cancel()
        assert isinstance(reply, Reply)
        await self.finish(reply)

    async def watch(self, work: "asyncio.Future[Any]") -> None:
        """Stop the work when the client goes, in the era in which that is how a call is cancelled."""
        await self.connection.closed()
        if self.call.era.disconnect_cancels:
            self.exchange.request.mcp.cancelled = True
            work.cancel()

    async def pump(self, work: "asyncio.Future[Any]") -> None:
        """Send what the work has to tell until it is done; a quiet stream is kept alive by comments."""
        wait = STREAM_AFTER
        while not work.done() or self.waiting.wake.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self.waiting.wake.wait()
            messages = [event(data) for data in self.waiting.take()]
            if not messages and not work.done() and self.exchange.accepts_events:
                messages, wait = [KEEP_ALIVE], KEEP_ALIVE_EVERY
            if messages:
                await self.connection.open_stream(self.exchange.cors())
                await self.connection.send_event(b"".join(messages))

    async def finish(self, reply: Reply) -> None:
        """Send the answer, as the end of the stream if one was opened."""
        if self.connection.is_streaming:
            await self.connection.end_stream(event(reply.body))
        else:
            await self.connection.respond(self.exchange.respond(reply))
