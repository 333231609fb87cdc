"""Event streams on an HTTP connection: of changes (``subscriptions/listen``, the GET of a session), and of calls.

Each message of a session is sent on only one of its streams (basic/transports, Multiple Connections): the one that
holds the session's lease, which it keeps renewing in Django's default cache. If workers do not share a cache, one
stream in each worker holds a lease, and a client can receive a message twice.

The worker that runs a session's call numbers the call's messages in a :class:`CallLog`. :class:`Tail` sends them to the
client's current connection: from the log if the call runs in this worker, otherwise from the database.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from django.db import Error as DatabaseUnavailable

from ...conf import settings
from ...protocol.eras import Call
from ...protocol.errors import ProtocolError
from ...protocol.listen_messages import ListenMessages
from ...protocol.messages import Message, encode
from ...protocol.server_sent_events import EventId, ServerSentEvent
from ...protocol.versions import Revisions
from ...runtime.cache_and_rate_limits import cache
from ...runtime.thread_pools import Worker, in_thread
from ...server.kernel import Reply
from ...server.methods.handler_interface import Listen
from ...server.methods.lifecycle_and_subscriptions import identity
from ...server.sessions import ClientSession
from ...server.stored_streams import Events, StoredStream
from ...subscriptions.bus import bus
from ...subscriptions.subscribers import Subscription
from ..notification_queues import Mailbox, relay
from .asgi_consumer import KEEP_ALIVE_EVERY, Connection
from .http_exchange import Exchange
from .stream_registry import OpenStream, registry

logger = logging.getLogger("mcp_django")

# Seconds after which a lease expires unless renewed: twice the time between a stream's keep-alive comments.
TTL: Final = 30
# Milliseconds that a client waits before it reconnects to a broken stream of changes, and to one of a call.
RETRY: Final = 1_000
CALL_RETRY: Final = 500
# Maximum number and bytes of a call's stored messages kept in memory; maximum bytes of those not stored yet.
MAX_KEPT: Final = 64
MAX_KEPT_BYTES: Final = 64 * 1024
MAX_UNSTORED_BYTES: Final = 512 * 1024
# Seconds that sending a message waits for the message to be stored.
GRACE: Final = 1.0
# Seconds between checks for new messages of a stream when the bus brings none, as without a shared channel layer.
LOOK_EVERY: Final = 2.0
# Seconds that a running call has to finish when its worker stops.
LAST_WORDS: Final = 2.0


def lifetime() -> float:
    """Return the seconds after which a stream of changes ends, so that no worker has to wait for it for ever.

    They differ by a third, so that clients whose streams began together do not all come back together.
    """
    return settings.STREAM_LIFETIME * random.uniform(2 / 3, 1)


class Lease:
    """The lease in the cache: the stream that holds it is the one that sends a session's messages."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.token = secrets.token_hex(8)

    def hold(self, *, take_over: bool = False) -> bool:
        """Take or renew the lease; return whether this stream has it, which it also has while the cache fails."""
        try:
            if not take_over and cache.add(self.key, self.token, TTL):
                return True
            if take_over or cache.get(self.key) == self.token:
                cache.set(self.key, self.token, TTL)
                return True
        except Exception as error:
            logger.warning("Streams are not told apart: the cache does not answer (%s)", type(error).__name__)
            return True
        return False

    def release(self) -> None:
        try:
            if cache.get(self.key) == self.token:
                cache.delete(self.key)
        except Exception as error:
            logger.warning("A closed stream keeps its place: the cache does not answer (%s)", type(error).__name__)


class SessionChanges:
    """What a stream of a session's changes sends: its mailbox, subscription and lease, kept up to date."""

    def __init__(self, exchange: Exchange, session: ClientSession, mailbox: Mailbox) -> None:
        self.exchange = exchange
        self.session = session
        self.mailbox = mailbox
        self.lease = Lease(session.lease_key)
        self.subscription: Subscription | None = None
        # New lists of the session's subscribed resources, each with the token that the changing request waits for.
        self.pending: deque[tuple[Sequence[str], str]] = deque()
        # Whether the list has to be read from the database again because the bus lost messages.
        self.is_stale = False

    @contextlib.asynccontextmanager
    async def followed(self, *, take_over: bool = False) -> AsyncIterator[None]:
        unsubscribe = bus.subscribe(self.session.topic, self.on_message)
        try:
            await self.hold(take_over=take_over)
            uris = await in_thread("reads", self.session.stored_uris)
            request = self.exchange.request
            owner = self.exchange.caller
            self.subscription = await self.mailbox.subscribed(request, uris=uris, lists=Subscription.LISTS, owner=owner)
            with contextlib.closing(self.subscription):
                self.mailbox.wake.set()
                yield
        finally:
            unsubscribe()
            await in_thread("reads", self.lease.release)

    async def hold(self, *, take_over: bool = False) -> bool:
        """Take or renew the lease; return whether this stream sends the session's messages."""
        return await in_thread("reads", lambda: self.lease.hold(take_over=take_over))

    def on_message(self, message: Any) -> None:
        """Receive a message of the bus about the session: it has ended, or is subscribed to other resources.

        This runs in the bus's thread.
        """
        if not isinstance(message, dict):
            # The subscription reports changes that it may have missed; its resources are read again.
            self.is_stale = True
        elif message.get("ended"):
            self.mailbox.end()
        elif "uris" in message:
            uris = message["uris"]
            token = message["token"]
            # Drop waiting notifications of resources that the session is no longer subscribed to.
            self.mailbox.keep_only(uris)
            self.pending.append((uris, token))
            if self.subscription is not None and set(uris).issubset(self.subscription.uris):
                self.confirm(token)
        self.mailbox.ring()

    async def catch_up(self) -> None:
        """Subscribe to the session's resources of now, and queue notifications of those that may have changed."""
        if not (self.is_stale or self.pending):
            return
        assert self.subscription is not None
        self.is_stale = False
        # The bus's thread can add more meanwhile.
        pending = [self.pending.popleft() for _ in range(len(self.pending))]

        # The database has the newest list: another change may have followed the last message.
        uris = await in_thread("reads", self.session.stored_uris)
        added_meanwhile: set[str] = set()
        if pending:
            newest, _token = pending[-1]
            added_meanwhile = set(uris).difference(newest)
        if added_meanwhile or not pending:
            self.mailbox.keep_only(uris)

        await in_thread("reads", partial(self.subscription.set_uris, uris), owner=self.exchange.caller)
        for uri in added_meanwhile.intersection(self.subscription.uris):
            self.mailbox.put(Subscription.UPDATED, {"uri": uri})
        for _uris, token in pending:
            self.confirm(token)

    def confirm(self, token: str) -> None:
        """Confirm that the stream has the session's new resources; the request that changed them waits for it."""
        if token:
            bus.publish(self.session.topic, {"known": token})

    def notify_everything(self) -> None:
        """Notify the client of everything that may have changed while this stream did not send."""
        for kind in sorted(Subscription.LISTS):
            self.mailbox.put(f"notifications/{kind}/list_changed", {})
        for uri in self.subscription.uris if self.subscription is not None else ():
            self.mailbox.put(Subscription.UPDATED, {"uri": uri})


class ChangeStream:
    """Base of streams of changes; subclasses render notifications, begin and end the stream."""

    # The method that opens the stream, for the list of open streams.
    method: ClassVar[str]
    connection: Connection
    mailbox: Mailbox

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.is_gone = False

    async def run(self, connection: Connection) -> None:
        self.exchange.swap_place()
        self.connection = connection
        self.mailbox = Mailbox()
        await self.tell()

    async def tell(self) -> None:
        raise NotImplementedError

    async def send_changes(self) -> None:
        """Send notifications until the mailbox is over or the client goes."""
        exchange = self.exchange
        stream = OpenStream.of(exchange.request, exchange.session, self.method)
        leave_registry = registry.enter(self.mailbox.end, stream)
        limit = asyncio.get_running_loop().call_later(lifetime(), self.mailbox.end)
        watch = asyncio.ensure_future(self._watch())
        try:
            # Use a task, so that a notification does not resume the whole chain of coroutines from the server to here.
            await asyncio.ensure_future(relay(self.mailbox, self.deliver, KEEP_ALIVE_EVERY))
        finally:
            leave_registry()
            limit.cancel()
            watch.cancel()
        if not self.is_gone:
            await self.goodbye()

    async def _watch(self) -> None:
        await self.connection.closed()
        self.is_gone = True
        self.mailbox.end()

    async def deliver(self) -> bool:
        """Send waiting notifications, or a comment without any; return whether there were any."""
        waiting = self.mailbox.take()
        if waiting:
            await self.connection.send_event(b"".join(self.render(*item) for item in waiting))
        elif not self.mailbox.is_over:
            await self.connection.send_event()
        return bool(waiting)

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        raise NotImplementedError

    async def goodbye(self) -> None:
        """End the stream normally; unless a subclass overrides this, the client may reconnect."""
        await self.connection.end_stream()


class ListenStream(ChangeStream):
    """The stream that answers ``subscriptions/listen`` (2026-07-28, basic/patterns/subscriptions)."""

    method = "subscriptions/listen"

    def __init__(self, exchange: Exchange, call: Call, wanted: Listen) -> None:
        super().__init__(exchange)
        assert call.id is not None
        self.call = call
        self.messages = ListenMessages(call)
        self.wanted = wanted

    async def tell(self) -> None:
        """Send the acknowledgement, then changes; a bad filter is answered by an error."""
        exchange = self.exchange
        wanted = self.wanted
        try:
            subscription = await self.mailbox.subscribed(
                exchange.request, uris=wanted.uris, lists=wanted.lists, owner=exchange.caller
            )
        except ProtocolError as error:
            body = encode(error.response(self.call.id, modern=True))
            await self.connection.respond(exchange.respond(Reply(body, self.call.era.status(error))))
            return
        with contextlib.closing(subscription):
            await self.connection.open_stream(exchange.cors())
            acknowledged = self.messages.acknowledged(subscription.lists, subscription.uris)
            await self.connection.send_event(ServerSentEvent(acknowledged).encode())
            await self.send_changes()

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        return ServerSentEvent(self.messages.tagged(method, params)).encode()

    async def goodbye(self) -> None:
        """End the stream with the answer to the request."""
        ended = self.messages.ended(identity())
        await self.connection.end_stream(ServerSentEvent(ended).encode())


class SessionStream(ChangeStream):
    """The event stream that a GET of a session opens (2025-11-25, Listening for Messages from the Server).

    If a session has several open, one sends the messages and the others wait to take its place. ``missed`` says that
    the client is reconnecting and may have missed changes.
    """

    method = "GET"

    def __init__(self, exchange: Exchange, session: ClientSession, *, missed: bool = False) -> None:
        super().__init__(exchange)
        self.session = session
        self.missed = missed
        self.number = 0

    async def tell(self) -> None:
        self.changes = SessionChanges(self.exchange, self.session, self.mailbox)
        async with self.changes.followed(take_over=self.missed):
            # Open the stream after subscribing: a client that sees it open misses no change from then on.
            await self.connection.open_stream(self.exchange.cors())
            if self.session.version in Revisions.PRIMED:
                priming = ServerSentEvent(id=EventId(self.session.id, 0), retry=RETRY)
                await self.connection.send_event(priming.encode())
            await self.send_changes()

    async def deliver(self) -> bool:
        """Send waiting notifications if this stream has the lease, otherwise only a comment."""
        await self.changes.catch_up()
        if not await self.changes.hold():
            self.missed |= bool(self.mailbox.take())
            await self.connection.send_event()
            return True
        if self.missed:
            self.missed = False
            self.changes.notify_everything()
        return await super().deliver()

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        self.number += 1
        message = Message(method, params).encode()
        return ServerSentEvent(message, EventId(self.session.id, self.number)).encode()


# The streams of calls


class CallLog:
    """The numbered messages of a call that runs in this worker: those not stored yet, and the newest stored ones.

    With ``sends_first`` messages are sent before they are stored; otherwise they are stored first, if that takes no
    longer than ``GRACE``. All methods run on one event loop.
    """

    def __init__(self, stream_id: str, last: int = 0, *, sends_first: bool = False) -> None:
        self.id = stream_id
        self.sends_first = sends_first
        # Numbers of the newest message, the newest stored, the newest that may be sent, and the newest dropped one.
        self.last = last
        self.stored = last
        self.sendable = last
        self.gone = last
        # Whether no message will be added, whether the log is closed, and whether the last message ends the stream.
        self.is_complete = False
        self.is_closed = False
        self.is_over = False
        self.changed = asyncio.Event()
        self.has_row = asyncio.Event()
        self.followers: set[asyncio.Event] = set()
        self._messages: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Let connections of this worker find the log, and start to mark the call's stream as alive."""
        registry.logs[self.id] = self
        if not StoredStream.has_one_writer():
            _alive.wake()

    def add(self, *messages: bytes, is_over: bool = False) -> None:
        """Number messages and queue them for sending; ``is_over`` ends the stream after them."""
        self._messages.extend(messages)
        self.last += len(messages)
        self.is_over |= is_over
        self._forget()
        if self.sends_first:
            self.release()
        else:
            self._loop.call_later(GRACE, self.release, self.last)
        self.changed.set()

    def _forget(self) -> None:
        """Drop the oldest messages beyond the limits, but never the newest one."""
        size = sum(map(len, self._messages))
        while len(self._messages) > 1:
            is_stored = self.gone < self.stored
            most, most_bytes = (MAX_KEPT, MAX_KEPT_BYTES) if is_stored else (settings.STREAM_EVENTS, MAX_UNSTORED_BYTES)
            if len(self._messages) <= most and size <= most_bytes:
                return
            size -= len(self._messages.popleft())
            self.gone += 1

    def release(self, number: int | None = None) -> None:
        """Let connections send the messages up to a number, or all of them."""
        self.sendable = max(self.sendable, self.last if number is None else number)
        for wake in self.followers:
            wake.set()

    def unstored(self) -> tuple[int, list[bytes]]:
        first = max(self.stored, self.gone) + 1
        return first, list(self._messages)[first - self.gone - 1 :]

    def was_stored(self, last: int) -> None:
        self.stored = max(self.stored, last)
        self.release(last)
        self._forget()

    def complete(self) -> None:
        self.is_complete = True
        self.changed.set()

    def close(self) -> None:
        self.release()
        self._leave()

    def abandon(self) -> None:
        """Drop what has not been sent, and end: another worker took this one for dead."""
        while self.last > self.sendable and self._messages:
            self._messages.pop()
            self.last -= 1
        self.is_over = False
        self._leave()

    def _leave(self) -> None:
        self.is_closed = True
        if registry.logs.get(self.id) is self:
            del registry.logs[self.id]
        self.changed.set()
        self.release(self.last)

    def read(self, after: int) -> Events | None:
        """Return the messages after a number that may be sent; None if only the database has them."""
        if after < min(self.gone, self.stored):
            return None
        start = max(after, self.gone)
        if start >= self.last and self.is_closed and not self.is_over:
            return None
        numbered = enumerate(self._messages, self.gone + 1)
        messages = [(number, data) for number, data in numbered if start < number <= self.sendable]
        reached = messages[-1][0] if messages else start
        return Events(messages, self.is_over and reached >= self.last)


def say_alive() -> float | None:
    """Mark the streams of all calls in this worker as alive; return the seconds until the next time."""
    if not (running := list(registry.logs)):
        return None
    # The calls go on without the database, and the next attempt may succeed.
    with contextlib.suppress(DatabaseUnavailable):
        StoredStream.keep_alive(running)
    return StoredStream.ALIVE_EVERY


_alive: Final = Worker("mcp-alive", say_alive)


class Tail:
    """Sends a call's messages after number ``after`` to a connection, until the stream or the connection ends."""

    def __init__(
        self, exchange: Exchange, stream_id: str, after: int, version: str, log: CallLog | None = None
    ) -> None:
        self.exchange = exchange
        self.stream = StoredStream(stream_id)
        self.after = after
        self.version = version
        self.log = log
        self.is_leaving = False
        self.is_taken = False
        self.was_silent = False
        self.wake = asyncio.Event()
        # Newer connections have greater tokens: the bus may bring the message of an older one late.
        self.token = f"{time.time_ns():020d}.{secrets.token_hex(4)}"

    async def run(self, connection: Connection) -> None:
        self.exchange.swap_place()
        await self.send(connection)

    async def send(self, connection: Connection, hung_up: asyncio.Event | None = None) -> None:
        """Send stored and new messages, until the call hangs up or the worker stops.

        A message is sent on one connection only (Multiple Connections), so an older connection is closed.
        """
        self.connection = connection
        self.loop = asyncio.get_running_loop()
        exchange = self.exchange
        taken = {"taken": self.token}
        # Tell an older connection in this worker directly: the bus may be slower than the next message.
        if older := registry.tails.get(self.stream.id):
            older.on_message(taken)
        registry.tails[self.stream.id] = self
        bus.publish(self.stream.topic, taken)
        unsubscribe = bus.subscribe(self.stream.topic, self.on_message)
        if hung_up is None:
            leave_registry = registry.enter(self.leave, OpenStream.of(exchange.request, exchange.session, "GET"))
        else:
            # The call runs in this worker: let it send that it was interrupted first.
            leave_registry = registry.enter(lambda: self.loop.call_later(LAST_WORDS + 0.8, self.leave))
        watch = [asyncio.ensure_future(self.leave_after(connection.closed))]
        if hung_up is not None:
            watch.append(asyncio.ensure_future(self.leave_after(hung_up.wait)))
        try:
            await connection.open_stream(exchange.cors())
            if self.version in Revisions.PRIMED:
                priming = ServerSentEvent(id=EventId(self.stream.id, self.after), retry=CALL_RETRY)
                await connection.send_event(priming.encode())
            is_over = await self.follow()
            await connection.end_stream(b"" if is_over else ServerSentEvent(retry=CALL_RETRY).encode())
        finally:
            unsubscribe()
            leave_registry()
            if registry.tails.get(self.stream.id) is self:
                del registry.tails[self.stream.id]
            if self.log is not None:
                self.log.followers.discard(self.wake)
            for task in watch:
                task.cancel()

    async def leave_after(self, wait: Callable[[], Any]) -> None:
        await wait()
        self.leave()

    def leave(self) -> None:
        self.is_leaving = True
        self.wake.set()

    def on_message(self, message: Any) -> None:
        """Wake the stream to read on, or end it in favour of a newer connection; in the bus's thread."""
        if isinstance(message, dict) and message.get("taken", self.token) > self.token:
            self.is_taken = True
            self.is_leaving = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.wake.set)

    async def follow(self) -> bool:
        """Send messages as they arrive, and comments while there are none; return whether the stream is over."""
        quiet_since = self.loop.time()
        while True:
            self.wake.clear()
            if self.is_leaving:
                return False
            events = await self.read()
            for number, data in events.messages:
                if self.is_taken:
                    return False
                event = ServerSentEvent(data, EventId(self.stream.id, number))
                await self.connection.send_event(event.encode())
                self.after = number
                quiet_since = self.loop.time()
            if events.is_over:
                return not self.is_taken
            # Where the worker is being replaced, only a call that runs in it keeps the connection.
            if not events.messages and registry.has_stopped_listening and self.stream.id not in registry.logs:
                return False
            if not events.messages and not self.is_leaving:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), LOOK_EVERY)
            if self.loop.time() - quiet_since > KEEP_ALIVE_EVERY:
                await self.connection.send_event()
                quiet_since = self.loop.time()

    async def read(self) -> Events:
        """Return the next messages, from this worker's log or from the database."""
        self.log = registry.logs.get(self.stream.id) or self.log
        if self.log is not None:
            self.log.followers.add(self.wake)
            events = self.log.read(self.after)
            if events is not None:
                return events
        read = partial(self.stream.read, self.after, end_if_abandoned=self.was_silent)
        stored = await in_thread("reads", read)
        self.was_silent = stored.is_silent and not stored.messages
        return stored
