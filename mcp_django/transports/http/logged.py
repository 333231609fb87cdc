"""A call of a session: its messages go into a stream that outlives connections and workers.

:class:`LoggedCall` runs the call, apart from any connection; :class:`Tail` sends a stream to whichever connection the
client has. An answer that is ready at once, with nothing told before, still goes out as JSON and leaves no trace.

A failure to store never changes the answer: messages are sent to who is connected here, and stored as soon as the
database takes them.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.db import Error as DatabaseUnavailable

from ...exceptions import Cancelled
from ...protocol.eras import Call
from ...protocol.http import Response
from ...protocol.sse import event, event_id, priming, retry
from ...protocol.versions import PRIMED
from ...runtime.threads import Busy, in_thread
from ...server import sessions, streams
from ...server.dispatch import Reply
from ...server.methods.base import Asked, Later
from ...subscriptions.hub import hub
from .connection import KEEP_ALIVE_EVERY, Connection
from .direct import STREAM_AFTER, perform, timed_out
from .dispatch import rerun
from .outgoing import GRACE, CallLog, Waiting, find_log
from .shutdown import register

if TYPE_CHECKING:
    from .exchange import Exchange

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

# Seconds between two looks at a stream whose news do not come through the hub, as without a shared channel layer.
LOOK_EVERY: Final = 2.0
# Seconds that a call has left when its worker stops.
LAST_WORDS: Final = 2.0
# Seconds for which a message is tried to be stored, and between two attempts.
KEEP_TRYING: Final = 60.0
TRY_EVERY: Final = 0.5
# Milliseconds after which a client may come back for the rest of a stream.
RETRY: Final = 500

# Calls at work: the event loop itself holds tasks weakly.
_running: set["asyncio.Task[None]"] = set()
# Who sends each stream in this worker.
_tails: dict[str, "Tail"] = {}


def _in_thread(work: Callable[[], T]) -> "asyncio.Future[T]":
    return in_thread("streams", work)


class LoggedCall:
    """One call that runs on whether or not its client is connected.

    ``started`` is settled with the whole answer, or with the id of the stream that will have it, or with None when the
    call was cancelled before either. ``last`` is the number of the newest message of a stream that is there already.
    """

    # Whether its stream is that of other calls, too.
    is_shared = False

    def __init__(
        self, exchange: "Exchange", call: Call, message: bytes, stream_id: str | None = None, last: int = 0
    ) -> None:
        self.exchange, self.call, self.message, self.stream_id = exchange, call, message, stream_id
        self.loop = asyncio.get_running_loop()
        self.started: asyncio.Future[Response | str | None] = self.loop.create_future()
        self.waiting = Waiting()
        self.hung_up = asyncio.Event()
        # Whether nothing can be stored before the work is done, as its transaction may be the one that can write.
        self.holds_lock = False
        self.log = CallLog(stream_id or streams.new_id(), last)
        if stream_id is not None:
            self.log.has_row.set()
        # Whether the call's own transaction, if it has one, is over.
        self.is_worked_out = False
        self.keeper: asyncio.Future[None] | None = None
        # Whether the database has answered, or failed to, at least once.
        self.was_tried = asyncio.Event()
        self.work: asyncio.Future[Any] | None = None
        self.row_task: asyncio.Future[None] | None = None
        # What is given as the answer when the work is stopped.
        self.last_words: Reply | None = None
        assert exchange.session is not None
        self.session = exchange.session

    @classmethod
    async def resumed(cls, exchange: "Exchange", resumption: streams.Resumption) -> None:
        """Run a call again, in this worker, with the answers to its questions."""
        work = lambda: rerun(exchange, resumption)  # noqa: E731
        call, outcome = await in_thread("queries", work, owner=exchange.caller)
        cls(exchange, call, resumption.call, resumption.stream_id, resumption.last).start(outcome)

    def start(self, outcome: Reply | Later | Asked) -> None:
        """Begin to run the call, of which ``outcome`` is known so far, in a task of its own."""
        context = self.exchange.request.mcp
        context.notify = self.waiting.put
        if self.call.version in PRIMED:
            context.close_stream = self.hang_up
        is_write = self.call.method == "tools/call" and isinstance(outcome, Later) and not outcome.is_async
        self.holds_lock = self.log.sends_first = is_write and streams.has_one_writer()
        if self.stream_id is not None:
            self.started.set_result(self.stream_id)
        task = asyncio.ensure_future(self.run(outcome))
        _running.add(task)
        task.add_done_callback(_running.discard)

    def hang_up(self) -> None:
        """Close the connection, but not the stream (2025-11-25, Sending Messages), from whatever thread."""
        self.loop.call_soon_threadsafe(self.hung_up.set)
        self.waiting.ring()

    async def run(self, outcome: Reply | Later | Asked) -> None:
        """Run the call to its end, or to its questions, and write down what comes of it."""
        unregister = register(lambda: self.loop.call_later(LAST_WORDS, self.interrupt))
        try:
            await self.run_through(outcome)
        except Exception as error:
            response = self.exchange.failed(error)
            if not self.started.done():
                self.started.set_result(response)
        finally:
            unregister()
            self.log.close()

    async def run_through(self, outcome: Reply | Later | Asked | None) -> None:
        """Do what :meth:`run` does, as long as nothing fails."""
        unsubscribe = hub.subscribe(sessions.topic(self.session.id), self.heard)
        pump = asyncio.ensure_future(self.pump())
        try:
            if isinstance(outcome, Later):
                await self.prepare()
                outcome = await self.perform(outcome)
        finally:
            unsubscribe()
            self.exchange.request.mcp.cancelled = True
            self.is_worked_out = True
            self.waiting.wake.set()
            self.exchange.close()
        await pump
        await self.conclude(outcome)

    async def prepare(self) -> None:
        """Make the stream's row before the work begins, where it cannot be made while the work writes."""
        if self.holds_lock and self.stream_id is None:
            self.row_task = asyncio.ensure_future(self.make_row())
            await asyncio.wait([self.row_task], timeout=GRACE)

    async def make_row(self) -> None:
        """Try once to make the stream's row."""
        arguments = (self.session, self.call.id, self.message, self.call.version, self.log.id)
        with contextlib.suppress(DatabaseUnavailable, Busy):
            await _in_thread(lambda: streams.open_stream(*arguments))
            self.log.has_row.set()

    async def perform(self, later: Later) -> Reply | Asked | None:
        """Return what comes of the work, None when it was cancelled."""
        self.work = asyncio.ensure_future(perform(self.exchange.request, self.call, later))
        try:
            async with asyncio.timeout(self.exchange.time_left):
                return await self.work
        except TimeoutError:
            return timed_out(self.call)
        except (asyncio.CancelledError, Cancelled):
            return self.last_words

    def heard(self, news: Any) -> None:
        """Stop the work when the client cancels it or ends its session (basic/utilities/cancellation)."""
        if isinstance(news, dict) and (
            news.get("ended") or ("cancelled" in news and news["cancelled"] == self.call.id)
        ):
            self.exchange.request.mcp.cancelled = True
            self.loop.call_soon_threadsafe(self.cancel)

    def cancel(self) -> None:
        """Stop the work."""
        self.exchange.request.mcp.cancelled = True
        if self.work is not None:
            self.work.cancel()

    def interrupt(self) -> None:
        """Stop the work and say so, as the worker itself stops."""
        assert self.call.id is not None
        self.last_words = Reply(streams.interrupted(self.call.id))
        self.cancel()

    async def pump(self) -> None:
        """Take what the call has to tell, until its work is done; the stream is opened by the first of it."""
        wait: float | None = STREAM_AFTER
        while True:
            timed = asyncio.timeout(wait)
            with contextlib.suppress(TimeoutError):
                async with timed:
                    await self.waiting.wake.wait()
            is_last = self.is_worked_out
            messages = self.waiting.take()
            if messages or timed.expired() or (self.hung_up.is_set() and not self.started.done()):
                await self.open()
                self.tell(messages)
            if is_last:
                return
            wait = None if self.started.done() else wait

    def tell(self, messages: list[bytes], *, is_over: bool = False) -> None:
        """Have messages sent and stored, unless another worker has ended the stream."""
        if not self.log.is_closed:
            self.log.add(*messages, is_over=is_over)

    async def open(self) -> None:
        """Open the stream, if it is not open."""
        if self.keeper is None:
            if not self.is_shared:
                self.log.open()
            self.keeper = asyncio.ensure_future(self.keep())
            if not (self.holds_lock or self.log.has_row.is_set()):
                # Who is told of the stream can come back to it.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.was_tried.wait(), GRACE)
        if not self.started.done():
            self.started.set_result(self.log.id)

    async def keep(self) -> None:
        """Store what the log has, until there will be no more."""
        log = self.log
        while True:
            log.changed.clear()
            is_last = log.is_complete
            first, messages = log.unstored()
            if not self.holds_lock or self.is_worked_out:
                if messages or not log.has_row.is_set() or log.is_over:
                    is_over = log.is_over
                    if not await self.persist(lambda: self.write(first, messages, is_over)):  # noqa: B023
                        log.abandon()
                        self.cancel()
                        return
                    log.was_stored(first + len(messages) - 1)
                if is_last:
                    return
            await log.changed.wait()

    async def persist(self, write: Callable[[], T]) -> T:
        """Return what a write gives; while the database does not answer it is tried again.

        Raises:
            django.db.Error, Busy: it did not answer for ``KEEP_TRYING`` seconds.
        """
        deadline = self.loop.time() + KEEP_TRYING
        while True:
            try:
                return await _in_thread(write)
            except (DatabaseUnavailable, Busy) as error:
                # Who is connected here does not wait for it.
                self.log.release()
                if self.loop.time() > deadline:
                    logger.error("What a call told is not kept, as the database did not answer", exc_info=error)
                    raise
            finally:
                self.was_tried.set()
            await asyncio.sleep(TRY_EVERY)

    def write(self, first: int, messages: list[bytes], is_over: bool) -> bool:
        """Store messages in a thread; return False when the stream was ended by another worker."""
        if not self.log.has_row.is_set():
            streams.open_stream(self.session, self.call.id, self.message, self.call.version, self.log.id)
            self.loop.call_soon_threadsafe(self.log.has_row.set)
        if is_over:
            return streams.finish(self.log.id, *messages, first=first)
        return not messages or streams.append(self.log.id, messages, first=first)

    async def conclude(self, outcome: Reply | Asked | None) -> None:
        """Tell the answer or the questions, or hand out an answer that needs no stream."""
        if isinstance(outcome, Asked):
            await self.open()
            await self.ask(outcome)
        elif self.keeper is None and self.stream_id is None:
            self.started.set_result(self.exchange.respond(outcome) if outcome is not None else None)
            await self.discard()
        else:
            await self.open()
            self.tell([outcome.body] if outcome is not None else [], is_over=True)
            await self.kept()

    async def kept(self) -> None:
        """Wait until everything is stored, or nothing can be."""
        self.log.complete()
        assert self.keeper is not None
        with contextlib.suppress(DatabaseUnavailable, Busy):
            await self.keeper

    async def ask(self, asked: Asked) -> None:
        """Put questions to the client: once they are stored, as the answers may reach any worker."""
        await self.kept()
        answers = self.exchange.request.mcp.answers
        questions = await self.persist(lambda: streams.ask(self.log.id, asked.questions, answers, self.call.version))
        self.log.add(*questions)
        self.log.was_stored(self.log.last)

    async def discard(self) -> None:
        """Delete the stream's row, if it was made and is not needed."""
        if self.row_task is not None:
            await self.row_task
            with contextlib.suppress(DatabaseUnavailable, Busy):
                await _in_thread(lambda: streams.discard(self.log.id))


class Tail:
    """Sends a stream to a connection, from event number ``after`` on, until the stream or the connection ends."""

    def __init__(
        self,
        exchange: "Exchange",
        connection: Connection,
        stream_id: str,
        after: int,
        version: str,
        log: CallLog | None = None,
    ) -> None:
        self.exchange, self.connection, self.stream_id, self.after = exchange, connection, stream_id, after
        self.version = version
        self.wake = asyncio.Event()
        self.is_leaving = self.is_taken = self.was_silent = False
        self.log = log
        self.loop = asyncio.get_running_loop()
        # Later connections have greater tokens: news of an earlier one may come after those of this one.
        self.token = f"{time.time_ns():020d}.{secrets.token_hex(4)}"

    async def run(self, hung_up: asyncio.Event | None = None) -> None:
        """Send what is there and what comes; leave early when the call hangs up or the worker stops.

        A message goes out on one connection (Multiple Connections): the one that was there before is closed.
        """
        news = {"taken": self.token}
        # News of the hub come later than the next message may.
        if before := _tails.get(self.stream_id):
            before.heard(news)
        _tails[self.stream_id] = self
        hub.publish(streams.topic(self.stream_id), news)
        unsubscribe = hub.subscribe(streams.topic(self.stream_id), self.heard)
        # A call that this worker runs has its last words first.
        unregister = register(lambda: self.loop.call_later(0 if hung_up is None else LAST_WORDS + 0.8, self.leave))
        watch = [asyncio.ensure_future(self.leave_after(self.connection.closed))]
        if hung_up is not None:
            watch.append(asyncio.ensure_future(self.leave_after(hung_up.wait)))
        try:
            await self.connection.open_stream(self.exchange.cors())
            if self.version in PRIMED:
                await self.connection.send_event(priming(event_id(self.stream_id, self.after), RETRY))
            is_over = await self.follow()
            await self.connection.end_stream(b"" if is_over else retry(RETRY))
        finally:
            unsubscribe()
            unregister()
            if _tails.get(self.stream_id) is self:
                del _tails[self.stream_id]
            if self.log is not None:
                self.log.followers.discard(self.wake)
            for task in watch:
                task.cancel()

    async def leave_after(self, happened: Callable[[], Any]) -> None:
        """Leave when something has happened."""
        await happened()
        self.leave()

    def leave(self) -> None:
        """Stop sending; the stream itself goes on."""
        self.is_leaving = True
        self.wake.set()

    def heard(self, news: Any) -> None:
        """Look at the stream again, or leave it to another connection; called in the hub's thread."""
        if isinstance(news, dict) and news.get("taken", self.token) > self.token:
            self.is_leaving = self.is_taken = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.wake.set)

    async def follow(self) -> bool:
        """Send messages as they come; return whether the stream is over."""
        quiet_since = self.loop.time()
        while True:
            self.wake.clear()
            if self.is_leaving:
                return False
            found = await self.read()
            for number, data in found.messages:
                if self.is_taken:
                    return False
                await self.connection.send_event(event(data, identifier=event_id(self.stream_id, number)))
                self.after, quiet_since = number, self.loop.time()
            if found.is_over:
                return not self.is_taken
            if not found.messages and not self.is_leaving:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), LOOK_EVERY)
            if self.loop.time() - quiet_since > KEEP_ALIVE_EVERY:
                await self.connection.send_event()
                quiet_since = self.loop.time()

    async def read(self) -> streams.Events:
        """Return what is to be sent now: from the call itself where this worker runs it, or as it is stored."""
        self.log = find_log(self.stream_id) or self.log
        if self.log is not None:
            self.log.followers.add(self.wake)
        found = self.log.read(self.after) if self.log is not None else None
        if found is not None:
            return found
        bury, after = self.was_silent, self.after
        found = await in_thread("reads", lambda: streams.read_events(self.stream_id, after, bury=bury))
        self.was_silent = found.is_silent and not found.messages
        return found
