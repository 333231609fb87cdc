"""Bounded queues of calls' messages: :class:`Waiting` until they are sent, :class:`CallLog` until they are stored.

The messages of a session's call are numbered in the worker that runs it. Its connections are sent them from here; the
database, which every other worker reads, is written behind.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from django.db import Error as DatabaseUnavailable

from ...conf import settings
from ...protocol.messages import encode, notification
from ...server import streams
from ...subscriptions.workers import Worker

PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
# Notifications of one call, and bytes of them, that wait to be sent; beyond that the newest progress alone does, and
# log messages are left out.
MAX_WAITING: Final = 64
MAX_WAITING_BYTES: Final = 256 * 1024
# The same of messages that are kept here although they are stored, and bytes of those that are not stored yet.
MAX_KEPT: Final = 64
MAX_KEPT_BYTES: Final = 64 * 1024
MAX_UNSTORED_BYTES: Final = 512 * 1024
# Seconds that a message waits to be stored before it is sent, where it is stored first.
GRACE: Final = 1.0


class Waiting:
    """Notifications of one call that wait to be sent; filled from any thread, emptied on the loop that made it."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._size = self._left_out = 0
        self._level = ""

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Have a notification sent, or nothing but the newest progress while too much waits."""
        data = encode(notification(method, params))
        with self._lock:
            if len(self._waiting) >= MAX_WAITING or self._size + len(data) > MAX_WAITING_BYTES:
                if method != PROGRESS:
                    self._left_out, self._level = self._left_out + 1, params.get("level", "")
                    return
                self._drop_progress()
            self._waiting.append((method, data))
            self._size += len(data)
        self.ring()

    def _drop_progress(self) -> None:
        kept = [item for item in self._waiting if item[0] != PROGRESS]
        self._waiting = deque(kept)
        self._size = sum(len(data) for _, data in kept)

    def ring(self) -> None:
        """Have whoever sends look."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.wake.set)

    def take(self) -> list[bytes]:
        """Return what waits, oldest first; the last says how much was left out, if anything was."""
        self.wake.clear()
        with self._lock:
            found = [data for _, data in self._waiting]
            left_out, self._left_out, self._size = self._left_out, 0, 0
            self._waiting.clear()
        if left_out:
            said = f"{left_out} log messages were left out, as they were not read in time."
            found.append(encode(notification(MESSAGE, {"level": self._level, "data": said})))
        return found


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
