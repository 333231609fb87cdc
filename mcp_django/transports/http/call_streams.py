"""The stream of a session's call: :class:`CallLog` holds what the call has told, :class:`Tail` sends it to its client.

Messages are numbered in the worker that runs the call. Connections of this worker are sent them from here; the
database, which every other worker reads, is written behind.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django.db import Error as DatabaseUnavailable

from ...conf import settings
from ...protocol.sse import event, event_id, priming, retry
from ...protocol.versions import PRIMED
from ...runtime.threads import in_thread
from ...server import streams
from ...subscriptions.hub import hub
from ...subscriptions.workers import Worker
from .connection import KEEP_ALIVE_EVERY, Connection
from .roll import enter
from .shutdown import register

if TYPE_CHECKING:
    from .exchange import Exchange

# Messages of a call, and bytes of them, that are kept here although they are stored; bytes of those that are not yet.
MAX_KEPT: Final = 64
MAX_KEPT_BYTES: Final = 64 * 1024
MAX_UNSTORED_BYTES: Final = 512 * 1024
# Seconds that a message waits to be stored before it is sent, where it is stored first.
GRACE: Final = 1.0
# Seconds between two looks at a stream whose news do not come through the hub, as without a shared channel layer.
LOOK_EVERY: Final = 2.0
# Seconds that a call has left when its worker stops.
LAST_WORDS: Final = 2.0
# Milliseconds after which a client may come back for the rest of a stream.
RETRY: Final = 500


class CallLog:
    """The numbered messages of one stream that its worker has: those that are not stored, and the newest that are.

    With ``sends_first`` a message is sent without being stored; otherwise it is stored first, if that takes no longer
    than ``GRACE``. All of it happens on one loop.
    """

    def __init__(self, stream_id: str, last: int = 0, *, sends_first: bool = False) -> None:
        self.id, self.sends_first = stream_id, sends_first
        # Numbers of the newest message, the newest that is stored, that may be sent, and that is not here any more.
        self.last = self.stored = self.sendable = self.gone = last
        # Whether nothing will be added, whether nothing will be sent that was not, and whether the stream ends with it.
        self.is_complete = self.is_closed = self.is_over = False
        self.changed, self.has_row = asyncio.Event(), asyncio.Event()
        self.followers: set[asyncio.Event] = set()
        self._messages: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Let connections of this worker find it, and others know that the worker is there."""
        _logs[self.id] = self
        if not streams.has_one_writer():
            _alive.wake()

    def add(self, *messages: bytes, is_over: bool = False) -> None:
        """Number messages and have them sent; ``is_over`` says that they end the stream."""
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
        """Drop the oldest messages beyond the bounds: never the newest, which may be the answer."""
        size = sum(map(len, self._messages))
        while len(self._messages) > 1:
            is_stored = self.gone < self.stored
            most, most_bytes = (MAX_KEPT, MAX_KEPT_BYTES) if is_stored else (settings.STREAM_EVENTS, MAX_UNSTORED_BYTES)
            if len(self._messages) <= most and size <= most_bytes:
                return
            size -= len(self._messages.popleft())
            self.gone += 1

    def release(self, number: int | None = None) -> None:
        """Let messages up to a number be sent, or all of them."""
        self.sendable = max(self.sendable, self.last if number is None else number)
        for wake in self.followers:
            wake.set()

    def unstored(self) -> tuple[int, list[bytes]]:
        """Return the messages that are not stored yet, with the number of the first of them."""
        first = max(self.stored, self.gone) + 1
        return first, list(self._messages)[first - self.gone - 1 :]

    def was_stored(self, last: int) -> None:
        """Note that all messages up to a number are stored."""
        self.stored = max(self.stored, last)
        self.release(last)
        self._forget()

    def complete(self) -> None:
        """Note that nothing more will be added before all of it is stored."""
        self.is_complete = True
        self.changed.set()

    def close(self) -> None:
        """Add nothing more, and send all of it."""
        self.release()
        self._leave()

    def abandon(self) -> None:
        """Send nothing more of it: the stream was ended by another worker, which took this one for dead."""
        while self.last > self.sendable and self._messages:
            self._messages.pop()
            self.last -= 1
        self.is_over = False
        self._leave()

    def _leave(self) -> None:
        self.is_closed = True
        if _logs.get(self.id) is self:
            del _logs[self.id]
        self.changed.set()
        self.release(self.last)

    def read(self, after: int) -> streams.Events | None:
        """Return what may be sent of what comes after a number; None where the database has to be asked."""
        if after < min(self.gone, self.stored):
            return None
        start = max(after, self.gone)
        if start >= self.last and self.is_closed and not self.is_over:
            return None
        messages = [
            (number, data)
            for number, data in enumerate(self._messages, self.gone + 1)
            if start < number <= self.sendable
        ]
        reached = messages[-1][0] if messages else start
        return streams.Events(messages, self.is_over and reached >= self.last)


# Of streams that are written in this process, by id.
_logs: dict[str, CallLog] = {}


def find_log(stream_id: str) -> CallLog | None:
    """Return the log of a stream whose call this worker runs."""
    return _logs.get(stream_id)


def say_alive() -> float | None:
    """Write a sign of life of all calls at once; return the seconds until the next."""
    if not (running := list(_logs)):
        return None
    # The calls go on, and so do the attempts.
    with contextlib.suppress(DatabaseUnavailable):
        streams.keep_alive(running)
    return streams.ALIVE_EVERY


_alive: Final = Worker("mcp-alive", say_alive)


# Who sends each stream in this worker.
_tails: dict[str, "Tail"] = {}


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
        if hung_up is None:
            unregister = enter(self.exchange, "GET", self.leave)
        else:
            # A call that this worker runs has its last words first.
            unregister = register(lambda: self.loop.call_later(LAST_WORDS + 0.8, self.leave))
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
