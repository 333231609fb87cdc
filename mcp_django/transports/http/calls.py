"""Calls over HTTP: without a session on the connection that each came by, in a session on a stream that outlives it.

:class:`LoggedCall` runs a call of a session apart from any connection. An answer that is ready at once, with nothing
told before, still goes out as JSON and leaves no trace. A failure to store never changes the answer: messages are sent
to who is connected here, and stored as soon as the database takes them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.db import Error as DatabaseUnavailable

from ...exceptions import Cancelled
from ...protocol.eras import Call
from ...protocol.http import Response
from ...protocol.sse import KEEP_ALIVE, event
from ...protocol.versions import PRIMED
from ...runtime.threads import Busy, in_thread
from ...server import sessions, streams
from ...server.dispatch import Reply
from ...server.methods.base import Asked, Later
from ...subscriptions.hub import hub
from ..calls import Waiting, in_time, perform
from .call_streams import GRACE, LAST_WORDS, CallLog
from .connection import KEEP_ALIVE_EVERY, ClientGone, Connection
from .dispatch import Pending, rerun
from .shutdown import register

if TYPE_CHECKING:
    from .exchange import Exchange

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

# Seconds after which a call that is still running becomes an event stream.
STREAM_AFTER: Final = 5.0
# Seconds for which a message is tried to be stored, and between two attempts.
KEEP_TRYING: Final = 60.0
TRY_EVERY: Final = 0.5

# Calls at work: the event loop itself holds tasks weakly.
_running: set["asyncio.Task[None]"] = set()


class DirectCall:
    """One call of ``exchange`` that is answered on ``connection`` and nowhere else, as every call without a session.

    An answer that is ready at once goes out as JSON; one whose work runs elsewhere becomes an event stream when there
    is something to tell or when it takes its time.
    """

    def __init__(self, exchange: "Exchange", connection: Connection, pending: Pending) -> None:
        self.exchange, self.connection, self.call = exchange, connection, pending.call
        # Without a session nobody can be asked on the way, so that there is nothing to wait for.
        assert isinstance(pending.work, Later)
        self.later = pending.work
        self.waiting = Waiting(STREAM_AFTER)

    async def run(self) -> None:
        """Run the work, while watching the connection and telling what the call has to tell."""
        exchange, request = self.exchange, self.exchange.request
        request.mcp.notify = self.waiting.put if exchange.accepts_events else None
        work = asyncio.ensure_future(
            in_time(request, self.call, exchange.time_left, perform(request, self.call, self.later))
        )
        work.add_done_callback(lambda _: self.waiting.end())
        watch = asyncio.ensure_future(self.watch(work))
        try:
            await self.pump()
            if work.cancelled():
                raise ClientGone
            reply = work.result()
        finally:
            for task in (work, watch):
                task.cancel()
        assert isinstance(reply, Reply)
        await self.finish(reply)

    async def watch(self, work: "asyncio.Future[Any]") -> None:
        """Stop the work when the client goes, in the era in which that is how a call is cancelled."""
        await self.connection.closed()
        if self.call.era.disconnect_cancels:
            work.cancel()

    async def pump(self) -> None:
        """Send what the work has to tell until it is done; a quiet stream is kept alive by comments."""
        while (messages := await self.waiting.next()) is not None:
            if not messages:
                if not self.exchange.accepts_events:
                    continue
                self.waiting.patience = KEEP_ALIVE_EVERY
            await self.connection.open_stream(self.exchange.cors())
            await self.connection.send_event(b"".join(map(event, messages)) or KEEP_ALIVE)

    async def finish(self, reply: Reply) -> None:
        """Send the answer, as the end of the stream if one was opened."""
        if self.connection.is_streaming:
            await self.connection.end_stream(event(reply.body))
        else:
            await self.connection.respond(self.exchange.respond(reply))


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
        self.waiting = Waiting(STREAM_AFTER)
        self.hung_up = asyncio.Event()
        # Whether nothing can be stored before the work is done, as its transaction may be the one that can write.
        self.holds_lock = False
        self.log = CallLog(stream_id or streams.new_id(), last)
        if stream_id is not None:
            self.log.has_row.set()
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
            self.waiting.end()
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
            await in_thread("streams", partial(streams.open_stream, *arguments))
            self.log.has_row.set()

    async def perform(self, later: Later) -> Reply | Asked | None:
        """Return what comes of the work, None when it was cancelled."""
        exchange = self.exchange
        work = perform(exchange.request, self.call, later)
        self.work = asyncio.ensure_future(in_time(exchange.request, self.call, exchange.time_left, work))
        try:
            return await self.work
        except (asyncio.CancelledError, Cancelled):
            return self.last_words

    def heard(self, news: Any) -> None:
        """Stop the work when the client cancels it or ends its session (basic/utilities/cancellation)."""
        if isinstance(news, dict) and (
            news.get("ended") or ("cancelled" in news and news["cancelled"] == self.call.id)
        ):
            self.loop.call_soon_threadsafe(self.cancel)

    def cancel(self) -> None:
        """Stop the work, or have it stop at its first report where it has not begun."""
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
        while (messages := await self.waiting.next()) is not None:
            await self.open()
            self.tell(messages)
            self.waiting.patience = None

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
            if not self.holds_lock or self.waiting.is_over:
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
                return await in_thread("streams", write)
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
        elif self.keeper is None and self.stream_id is None and not self.hung_up.is_set():
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
                await in_thread("streams", partial(streams.discard, self.log.id))
