"""Runners of calls over HTTP: on the call's own connection, in a batch, or in a session on a stream that outlives it.

A session's call does not depend on any connection. If it sends no notifications and its answer is ready soon, the
answer is one JSON response and nothing is stored. Otherwise the messages are numbered in a
:class:`~mcp_django.transports.http.event_streams.CallLog` and stored from there. A failure to store never changes the
answer: clients connected to this worker get the messages, which are stored as soon as the database accepts them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from django.db import Error as DatabaseUnavailable

from ...exceptions import Cancelled
from ...protocol.eras import Batch, Call, Rejected, classify
from ...protocol.headers import RequestHeaders
from ...protocol.messages import ClientResponse
from ...protocol.server_sent_events import ServerSentEvent
from ...protocol.versions import Revisions
from ...runtime.thread_pools import Busy, give_up, in_thread
from ...server.kernel import Reply
from ...server.methods.handler_interface import Asked, Later
from ...server.stored_streams import Resumption, SessionStreams, StoredStream
from ...subscriptions.bus import bus
from ..call_execution import CallExecution
from ..notification_queues import Outbox
from .asgi_consumer import KEEP_ALIVE_EVERY, ClientGone, Connection
from .event_streams import GRACE, LAST_WORDS, CallLog, Tail
from .http_exchange import Exchange, Response
from .stream_registry import registry

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

# Seconds after which the response of a call that is still running becomes an event stream.
STREAM_AFTER: Final = 5.0
# Seconds for which a runner keeps trying to store messages, and seconds between two attempts.
KEEP_TRYING: Final = 60.0
TRY_EVERY: Final = 0.5


class CallRunner:
    """Base of runners: runs the work of one call within its timeout, and passes on its notifications (:meth:`tell`)."""

    outbox: Outbox

    def __init__(self, exchange: Exchange, call: Call, outcome: Reply | Later | Asked) -> None:
        self.exchange = exchange
        self.call = call
        self.outcome = outcome
        self.work: asyncio.Future[Reply | Asked] | None = None

    async def do(self, later: Later) -> Reply | Asked:
        """Run the work of the call, and send its notifications; return its reply or its questions."""
        execution = CallExecution(self.exchange.request, self.call)
        in_time = execution.in_time(self.exchange.time_left, execution.perform(later))
        self.work = asyncio.ensure_future(in_time)
        self.work.add_done_callback(lambda _: self.outbox.end())
        try:
            while (messages := await self.outbox.next()) is not None:
                await self.tell(messages)
            if self.work.cancelled():
                raise Cancelled
            return self.work.result()
        except BaseException:
            give_up(self.work)
            raise

    async def tell(self, messages: list[bytes]) -> None:
        """Send these notifications to the client; an empty list says that there were none for long."""
        raise NotImplementedError


class DirectCall(CallRunner):
    """Runner of a call without a session, answered on its own connection.

    An answer that is ready soon is one JSON response. The response becomes an event stream when the call sends a
    notification or takes longer than ``STREAM_AFTER`` seconds.
    """

    connection: Connection

    async def run(self, connection: Connection) -> None:
        self.connection = connection
        self.outbox = Outbox(STREAM_AFTER)
        self.exchange.request.mcp.notify = self.outbox.put if self.exchange.accepts_events else None
        assert isinstance(self.outcome, Later)
        watch = asyncio.ensure_future(self._watch())
        try:
            reply = await self.do(self.outcome)
        finally:
            watch.cancel()
        assert isinstance(reply, Reply)
        if connection.is_streaming:
            await connection.end_stream(ServerSentEvent(reply.body).encode())
        else:
            await connection.respond(self.exchange.respond(reply))

    async def _watch(self) -> None:
        """Stop the running call when its client disconnects, in the era in which that cancels a call."""
        await self.connection.closed()
        if self.call.era.disconnect_cancels and self.work is not None:
            self.work.cancel()

    async def tell(self, messages: list[bytes]) -> None:
        """Send notifications of the running call on its own connection; comments keep a quiet connection alive."""
        if not messages:
            if not self.exchange.accepts_events:
                return
            self.outbox.patience = KEEP_ALIVE_EVERY
        await self.connection.open_stream(self.exchange.cors())
        events = [ServerSentEvent(message).encode() for message in messages]
        await self.connection.send_event(b"".join(events) or ServerSentEvent.KEEP_ALIVE)

    def in_this_thread(self) -> Response:
        """Run the call to its end in this thread and return the response, for WSGI servers."""
        exchange = self.exchange
        execution = CallExecution(exchange.request, self.call)
        return exchange.guarded(lambda: exchange.respond(execution.conclude(self.outcome)))


class BatchCall:
    """Runner of a batch: several messages in one body, one after the other (2025-03-26)."""

    def __init__(self, exchange: Exchange, batch: Batch) -> None:
        self.exchange = exchange
        self.batch = batch
        self.resumptions: list[Resumption] = []

    async def run(self, connection: Connection) -> None:
        exchange = self.exchange
        sensitive = exchange.request.mcp.site.needs_middleware
        try:
            async with asyncio.timeout(exchange.time_left):
                response = await in_thread(
                    "slow", self.in_this_thread, owner=exchange.caller, thread_sensitive=sensitive
                )
        except TimeoutError:
            # The thread stops after the message that it is running.
            exchange.request.mcp.cancelled = True
            raise exchange.too_long() from None
        await connection.respond(response)
        for resumption in self.resumptions:
            await Resumed(exchange, resumption).resume()

    def in_this_thread(self) -> Response:
        """Run the calls of the batch in this thread; return one response, keep resumptions for :meth:`run`."""
        return self.exchange.guarded(self._answer)

    def _answer(self) -> Response:
        exchange = self.exchange
        bodies = []
        for item in self.batch.items:
            if exchange.request.mcp.cancelled:
                # The client already got the error that the batch took too long.
                break
            match item:
                case ClientResponse():
                    assert exchange.session is not None
                    resumption = SessionStreams(exchange.session).answer(item)
                    self.resumptions += [resumption] if resumption is not None else []
                case Rejected():
                    bodies.append(exchange.rejected(item).body)
                case Call(id=None):
                    exchange.take_notification(item)
                case Call():
                    execution = CallExecution(exchange.request, item)
                    bodies.append(execution.conclude(execution.begin_late()).body)
        if not bodies:
            return Response(202, headers=exchange.cors())
        return exchange.respond(Reply(b"[" + b",".join(bodies) + b"]"))


class Resumed:
    """Runner of a call that runs again because this request brought the last answer to its questions."""

    def __init__(self, exchange: Exchange, resumption: Resumption) -> None:
        self.exchange = exchange
        self.resumption = resumption

    async def run(self, connection: Connection) -> None:
        await connection.respond(Response(202, headers=self.exchange.cors()))
        await self.resume()

    async def resume(self) -> None:
        exchange = self.exchange
        resumption = self.resumption
        exchange.outlives_connection = True
        call, outcome = await in_thread("queries", self._run_again, owner=exchange.caller)
        SessionCall(exchange, call, outcome, resumption.stream_id, resumption.last).start()

    def _run_again(self) -> tuple[Call, Reply | Later | Asked]:
        """Begin the call again, with the answers and the permissions of the new request."""
        request = self.exchange.request
        resumption = self.resumption
        call = classify(resumption.call, {RequestHeaders.VERSION: [resumption.version]}, session=self.exchange.session)
        assert isinstance(call, Call)
        request.mcp.live = True
        request.mcp.answers = resumption.answers
        return call, CallExecution(request, call).begin_late()


class SessionCall(CallRunner):
    """Runner of a session's call, which runs on whether or not its client is connected.

    ``last`` is the number of the newest message on an existing stream ``stream_id``.
    """

    # Whether other calls use the same stream.
    is_shared = False

    def __init__(
        self,
        exchange: Exchange,
        call: Call,
        outcome: Reply | Later | Asked,
        stream_id: str | None = None,
        last: int = 0,
    ) -> None:
        super().__init__(exchange, call, outcome)
        assert exchange.session is not None
        self.session = exchange.session
        self.stream_id = stream_id
        self.last = last
        # The reply to send when the work is stopped.
        self.last_words: Reply | None = None
        self.keeper: asyncio.Future[None] | None = None
        self.row_task: asyncio.Future[None] | None = None

    async def run(self, connection: Connection) -> None:
        self.exchange.outlives_connection = True
        self.start()
        gone: asyncio.Future[Any] = connection.closed()
        either: list[asyncio.Future[Any]] = [self.started, gone]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not self.started.done():
            raise ClientGone
        response = self.started.result()
        if isinstance(response, Response):
            await connection.respond(response)
        elif response is None:
            # A cancelled call has no answer, but the HTTP request needs a response.
            await connection.open_stream(self.exchange.cors())
            await connection.end_stream()
        else:
            await Tail(self.exchange, response.id, 0, self.call.version, response).send(connection, self.hung_up)

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        # The response, or the log of the stream that will carry it, or None for a call that was cancelled before.
        self.started: asyncio.Future[Response | CallLog | None] = self.loop.create_future()
        self.outbox = Outbox(STREAM_AFTER)
        self.hung_up = asyncio.Event()
        # Set after the first attempt to store a message, whether it worked or failed.
        self.was_tried = asyncio.Event()
        later = self.outcome if isinstance(self.outcome, Later) else None
        is_write = self.call.method == "tools/call" and later is not None and not later.is_async
        # Whether nothing can be stored before the work is done: its transaction may hold SQLite's only write lock.
        self.holds_lock = is_write and StoredStream.has_one_writer()
        self.log = CallLog(self.stream_id or SessionStreams.new_id(), self.last, sends_first=self.holds_lock)
        if self.stream_id is not None:
            self.log.has_row.set()
            self.started.set_result(self.log)
        context = self.exchange.request.mcp
        context.notify = self.outbox.put
        if self.call.version in Revisions.PRIMED:
            context.close_stream = self.hang_up
        registry.keep(asyncio.ensure_future(self._run()))

    def hang_up(self) -> None:
        """Close the connection, but not the stream (2025-11-25, Sending Messages), from any thread."""
        self.loop.call_soon_threadsafe(self.hung_up.set)
        self.outbox.ring()

    async def _run(self) -> None:
        """Run the session's call to its end, or to its questions, and store its messages."""
        leave = registry.enter(lambda: self.loop.call_later(LAST_WORDS, self.interrupt))
        try:
            outcome: Reply | Asked | Later | None = self.outcome
            unsubscribe = bus.subscribe(self.session.topic, self.on_message)
            try:
                if isinstance(outcome, Later):
                    if self.holds_lock and self.stream_id is None:
                        # Insert the stream's row first: it cannot be inserted while the work writes.
                        self.row_task = asyncio.ensure_future(self.make_row())
                        await asyncio.wait([self.row_task], timeout=GRACE)
                    outcome = await self.do(outcome)
            except Cancelled:
                outcome = self.last_words
            finally:
                unsubscribe()
                self.outbox.end()
                self.exchange.close()
            await self.conclude(outcome)
        except Exception as error:
            response = self.exchange.failed(error)
            if not self.started.done():
                self.started.set_result(response)
        finally:
            leave()
            self.log.close()

    async def make_row(self) -> None:
        with contextlib.suppress(DatabaseUnavailable, Busy):
            await in_thread("streams", self.write_row)
            self.log.has_row.set()

    def write_row(self) -> None:
        SessionStreams(self.session).open(self.call.id, self.exchange.body, self.call.version, self.log.id)

    def on_message(self, message: Any) -> None:
        """Stop the call when the client cancels it or ends the session (basic/utilities/cancellation)."""
        if isinstance(message, dict) and (
            message.get("ended") or ("cancelled" in message and message["cancelled"] == self.call.id)
        ):
            self.loop.call_soon_threadsafe(self.cancel)

    def cancel(self) -> None:
        """Cancel the work; work in a thread stops when it next reports progress."""
        self.exchange.request.mcp.cancelled = True
        if self.work is not None:
            self.work.cancel()

    def interrupt(self) -> None:
        assert self.call.id is not None
        self.last_words = Reply(SessionStreams.interrupted(self.call.id))
        self.cancel()

    async def tell(self, messages: list[bytes]) -> None:
        """Send and store messages of the running call; the first of them opens its stream."""
        await self.open()
        self.add(messages)
        self.outbox.patience = None

    def add(self, messages: list[bytes], *, is_over: bool = False) -> None:
        """Send and store messages of the running call, unless another worker has ended its stream."""
        if not self.log.is_closed:
            self.log.add(*messages, is_over=is_over)

    async def open(self) -> None:
        if self.keeper is None:
            if not self.is_shared:
                self.log.open()
            self.keeper = asyncio.ensure_future(self.keep())
            if not (self.holds_lock or self.log.has_row.is_set()):
                # Wait for the row, so that a client that sees the stream can resume it.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.was_tried.wait(), GRACE)
        if not self.started.done():
            self.started.set_result(self.log)

    async def keep(self) -> None:
        """Store messages from the log, until the log is complete."""
        log = self.log
        while True:
            log.changed.clear()
            is_last = log.is_complete
            is_over = log.is_over
            first, messages = log.unstored()
            if not self.holds_lock or self.outbox.is_over:
                if messages or not log.has_row.is_set() or is_over:
                    if not await self.persist(partial(self.write, first, messages, is_over)):
                        log.abandon()
                        self.cancel()
                        return
                    log.was_stored(first + len(messages) - 1)
                if is_last:
                    return
            await log.changed.wait()

    async def persist(self, write: Callable[[], T]) -> T:
        """Run ``write``, and retry for ``KEEP_TRYING`` seconds while the database does not answer."""
        deadline = self.loop.time() + KEEP_TRYING
        while True:
            try:
                return await in_thread("streams", write)
            except (DatabaseUnavailable, Busy) as error:
                # Clients that are connected here do not have to wait for the database.
                self.log.release()
                if self.loop.time() > deadline:
                    logger.error("Messages of a call are lost because the database did not answer", exc_info=error)
                    raise
            finally:
                self.was_tried.set()
            await asyncio.sleep(TRY_EVERY)

    def write(self, first: int, messages: list[bytes], is_over: bool) -> bool:
        """Store messages, in a thread; return False if another worker has ended the stream."""
        if not self.log.has_row.is_set():
            self.write_row()
            self.loop.call_soon_threadsafe(self.log.has_row.set)
        stream = StoredStream(self.log.id)
        if is_over:
            return stream.finish(*messages, first=first)
        return not messages or stream.append(messages, first=first)

    async def conclude(self, outcome: Reply | Asked | None) -> None:
        """Send the reply or the questions, on the stream or as one JSON response."""
        if isinstance(outcome, Asked):
            # Store questions before sending them: the answers may reach any worker.
            await self.open()
            await self.kept()
            answers = self.exchange.request.mcp.answers
            version = self.call.version
            ask = partial(StoredStream(self.log.id).ask, outcome.questions, answers, version)
            self.log.add(*await self.persist(ask))
            self.log.was_stored(self.log.last)
        elif self.keeper is None and self.stream_id is None and not self.hung_up.is_set():
            self.started.set_result(self.exchange.respond(outcome) if outcome is not None else None)
            if self.row_task is not None:
                await self.row_task
                with contextlib.suppress(DatabaseUnavailable, Busy):
                    await in_thread("streams", StoredStream(self.log.id).discard)
        else:
            await self.open()
            self.add([outcome.body] if outcome is not None else [], is_over=True)
            await self.kept()

    async def kept(self) -> None:
        """Wait until all messages are stored, or storing them has failed."""
        self.log.complete()
        assert self.keeper is not None
        with contextlib.suppress(DatabaseUnavailable, Busy):
            await self.keeper
