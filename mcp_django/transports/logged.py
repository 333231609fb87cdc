"""A call of a session: its messages go into a stream that outlives connections and workers.

:class:`LoggedCall` runs the call, apart from any connection; :class:`Tail` sends a stream to whichever connection the
client has. An answer that is ready at once, with nothing told before, still goes out as JSON and leaves no trace.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .. import sessions, streams
from ..conf import settings
from ..events import hub
from ..exceptions import Cancelled
from ..methods.base import Asked, Later
from ..protocol.eras import Call
from ..protocol.http import Response
from ..protocol.messages import encode, notification
from ..protocol.sse import event, event_id, priming, retry
from ..protocol.versions import is_at_least
from ..server import Reply, in_thread
from .connection import KEEP_ALIVE_EVERY, Connection
from .direct import STREAM_AFTER, perform, timed_out
from .dispatch import rerun
from .shutdown import register

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["LoggedCall", "Tail"]

T = TypeVar("T")

# Seconds between two looks at a stream whose news do not come through the hub, as without a shared channel layer.
LOOK_EVERY: Final = 2.0
# Seconds that a call has left when its worker stops.
LAST_WORDS: Final = 2.0
# Milliseconds after which a client may come back for the rest of a stream.
RETRY: Final = 500
# Older clients take an event without data for a broken message.
PRIMED_SINCE: Final = "2025-11-25"

# Calls at work: the event loop itself holds tasks weakly.
_running: set["asyncio.Task[None]"] = set()


def _in_thread(work: Callable[[], T]) -> "asyncio.Future[T]":
    return in_thread("reads", work)


class LoggedCall:
    """One call that runs on whether or not its client is connected.

    ``started`` is settled with the whole answer, or with the id of the stream that will have it, or with None when the
    call was cancelled before either.
    """

    def __init__(self, exchange: "Exchange", call: Call, message: bytes, stream_id: str | None = None) -> None:
        self.exchange, self.call, self.message, self.stream_id = exchange, call, message, stream_id
        self.loop = asyncio.get_running_loop()
        self.started: asyncio.Future[Response | str | None] = self.loop.create_future()
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.hung_up = asyncio.Event()
        assert exchange.session is not None
        self.session = exchange.session

    @classmethod
    async def resumed(cls, exchange: "Exchange", resumption: streams.Resumption) -> None:
        """Run a call again, in this worker, with the answers to its questions."""
        call, outcome = await _in_thread(lambda: rerun(exchange, resumption))
        cls(exchange, call, resumption.call, resumption.stream_id).start(outcome)

    def start(self, outcome: Reply | Later | Asked) -> None:
        """Begin to run the call, of which ``outcome`` is known so far, in a task of its own."""
        context = self.exchange.request.mcp
        context.notify = self.notify
        if is_at_least(self.call.version, PRIMED_SINCE):
            context.close_stream = self.hang_up
        if self.stream_id is not None:
            self.started.set_result(self.stream_id)
        task = asyncio.ensure_future(self.run(outcome))
        _running.add(task)
        task.add_done_callback(_running.discard)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell the client something, from whatever thread."""
        self.loop.call_soon_threadsafe(self.messages.put_nowait, encode(notification(method, params)))

    def hang_up(self) -> None:
        """Close the connection, but not the stream (2025-11-25, Sending Messages), from whatever thread."""
        self.loop.call_soon_threadsafe(self.hung_up.set)
        self.loop.call_soon_threadsafe(self.messages.put_nowait, b"")

    async def run(self, outcome: Reply | Later | Asked) -> None:
        """Run the call to its end, or to its questions, and write down what comes of it."""
        try:
            await self.run_through(outcome)
        except Exception as error:
            response = self.exchange.failed(error)
            # Who follows the stream is told that the call was interrupted, once the database is back.
            if not self.started.done():
                self.started.set_result(response)

    async def run_through(self, outcome: Reply | Later | Asked | None) -> None:
        """Do what :meth:`run` does, as long as the database answers."""
        unsubscribe = hub.subscribe(sessions.topic(self.session.id), self.heard)
        pump = asyncio.ensure_future(self.pump())
        try:
            if isinstance(outcome, Later):
                outcome = await self.perform(outcome)
        finally:
            unsubscribe()
            self.exchange.request.mcp.cancelled.set()
            self.messages.put_nowait(None)
            self.exchange.close()
        await pump
        await self.conclude(outcome)

    async def perform(self, later: Later) -> Reply | Asked | None:
        """Return what comes of the work, None when it was cancelled."""
        self.work = asyncio.ensure_future(perform(self.exchange, self.call, later))
        try:
            async with asyncio.timeout(settings.CALL_TIMEOUT):
                return await self.work
        except TimeoutError:
            return timed_out(self.call)
        except (asyncio.CancelledError, Cancelled):
            return None

    def heard(self, news: Any) -> None:
        """Stop the work when the client cancels it or ends its session (basic/utilities/cancellation)."""
        if isinstance(news, dict) and (
            news.get("ended") or ("cancelled" in news and news["cancelled"] == self.call.id)
        ):
            self.exchange.request.mcp.cancelled.set()
            self.loop.call_soon_threadsafe(self.cancel)

    def cancel(self) -> None:
        """Stop the work."""
        work = getattr(self, "work", None)
        if work is not None:
            work.cancel()

    async def pump(self) -> None:
        """Write down what the call has to tell until it is done, and that it is still being worked on."""
        wait = STREAM_AFTER
        while True:
            batch: list[bytes | None] = []
            with contextlib.suppress(TimeoutError):
                batch.append(await asyncio.wait_for(self.messages.get(), wait))
            while not self.messages.empty():
                batch.append(self.messages.get_nowait())
            if batch != [None]:
                await self.write([data for data in batch if data])
            if None in batch:
                return
            wait = streams.ALIVE_EVERY

    async def write(self, messages: list[bytes]) -> None:
        """Write messages into the stream, or a sign of life when there are none; the stream is opened by the first."""
        stream_id = await self.open()
        await _in_thread(lambda: streams.append(stream_id, messages) if messages else streams.keep_alive(stream_id))

    async def open(self) -> str:
        """Return the id of the stream."""
        if self.stream_id is None:
            arguments = (self.session, self.call.id, self.message, self.call.version)
            self.stream_id = await _in_thread(lambda: streams.open_stream(*arguments))
            self.started.set_result(self.stream_id)
        return self.stream_id

    async def conclude(self, outcome: Reply | Asked | None) -> None:
        """Write down the answer or the questions, or hand out an answer that needs no stream."""
        if isinstance(outcome, Asked):
            stream_id, answers = await self.open(), self.exchange.request.mcp.answers
            await _in_thread(lambda: streams.ask(stream_id, outcome.questions, answers, self.call.version))
        elif self.stream_id is not None:
            stream_id, body = self.stream_id, outcome.body if outcome is not None else None
            await _in_thread(lambda: streams.finish(stream_id, body))
        else:
            self.started.set_result(self.exchange.respond(outcome) if outcome is not None else None)


class Tail:
    """Sends a stream to a connection, from event number ``after`` on, until the stream or the connection ends."""

    def __init__(self, exchange: "Exchange", connection: Connection, stream_id: str, after: int, version: str) -> None:
        self.exchange, self.connection, self.stream_id, self.after = exchange, connection, stream_id, after
        self.version = version
        self.wake = asyncio.Event()
        self.is_leaving = False
        self.loop = asyncio.get_running_loop()
        # Later connections have greater tokens: news of an earlier one may come after those of this one.
        self.token = f"{time.time_ns():020d}.{secrets.token_hex(4)}"

    async def run(self, hung_up: asyncio.Event | None = None) -> None:
        """Send what is there and what comes; leave early when the call hangs up or the worker stops.

        A message goes out on one connection (Multiple Connections): the one that was there before is closed.
        """
        hub.publish(streams.topic(self.stream_id), {"taken": self.token})
        unsubscribe = hub.subscribe(streams.topic(self.stream_id), self.heard)
        # A call that this worker runs may be over in time for its answer to be sent.
        unregister = register(lambda: self.loop.call_later(0 if hung_up is None else LAST_WORDS, self.leave))
        watch = [asyncio.ensure_future(self.leave_after(self.connection.closed()))]
        if hung_up is not None:
            watch.append(asyncio.ensure_future(self.leave_after(hung_up.wait())))
        try:
            await self.connection.open_stream(self.exchange.cors())
            if is_at_least(self.version, PRIMED_SINCE):
                await self.connection.send_event(priming(event_id(self.stream_id, self.after), RETRY))
            is_over = await self.follow()
            await self.connection.end_stream(b"" if is_over else retry(RETRY))
        finally:
            unsubscribe()
            unregister()
            for task in watch:
                task.cancel()

    async def leave_after(self, event: Any) -> None:
        """Leave when something has happened."""
        await event
        self.leave()

    def leave(self) -> None:
        """Stop sending; the stream itself goes on."""
        self.is_leaving = True
        self.wake.set()

    def heard(self, news: Any) -> None:
        """Look at the stream again, or leave it to another connection; called in the hub's thread."""
        if isinstance(news, dict) and news.get("taken", self.token) > self.token:
            self.is_leaving = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.wake.set)

    async def follow(self) -> bool:
        """Send messages as they come; return whether the stream is over."""
        quiet_since = self.loop.time()
        while True:
            self.wake.clear()
            if self.is_leaving:
                return False
            found = await _in_thread(lambda: streams.read_events(self.stream_id, self.after))
            for number, data in found.messages:
                await self.connection.send_event(event(data, identifier=event_id(self.stream_id, number)))
                self.after, quiet_since = number, self.loop.time()
            if found.is_over:
                return True
            if not found.messages and not self.is_leaving:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), LOOK_EVERY)
            if self.loop.time() - quiet_since > KEEP_ALIVE_EVERY:
                await self.connection.send_event()
                quiet_since = self.loop.time()
