"""Queues of notifications on their way to a client: of one call, and of changes for one stream. Both are bounded.

A queue of changes holds one notification for each changed resource or list, and is sent a few times a second. So bursts
do not make it grow, and an open stream occupies neither a thread nor a database connection.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..context.request import MCPRequest
from ..protocol.messages import Message
from ..runtime.thread_pools import in_thread
from ..subscriptions.notifier import open_subscription
from ..subscriptions.subscribers import Subscription

PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
# Maximum number and bytes of one call's notifications that wait to be sent. Beyond them, the queue keeps only the
# newest progress and drops log messages.
MAX_WAITING: Final = 64
MAX_WAITING_BYTES: Final = 256 * 1024
# Seconds between two deliveries of changes on one stream; repeated changes in between become one notification.
DELIVER_EVERY: Final = 0.1


class Box:
    """A queue that any thread fills, and the event loop that made it empties."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Wake the sender of this queue."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.wake.set)

    def end(self, reason: str = "") -> None:
        """End the queue: no more notifications will come. The reason is that of :meth:`Subscription.end`."""
        self.is_over = True
        self.ring()


class Outbox(Box):
    """Queue of the notifications of one call. :meth:`next` waits ``patience`` seconds, or without limit if None."""

    def __init__(self, patience: float | None = None) -> None:
        super().__init__()
        self.patience = patience
        self._waiting: list[tuple[str, bytes]] = []
        self._left_out = 0
        self._level = ""

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification; while too many wait, only the newest progress is kept."""
        data = Message(method, params).encode()
        with self._lock:
            size = sum(len(waiting) for _, waiting in self._waiting)
            if len(self._waiting) >= MAX_WAITING or size + len(data) > MAX_WAITING_BYTES:
                if method != PROGRESS:
                    self._left_out = self._left_out + 1
                    self._level = params.get("level", "")
                    return
                self._waiting = [item for item in self._waiting if item[0] != PROGRESS]
            self._waiting.append((method, data))
        self.ring()

    async def next(self) -> list[bytes] | None:
        """Return the queued notifications when there are any or ``patience`` ran out; None after the end."""
        if not self.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await self.wake.wait()
        is_over = self.is_over
        waiting = self.take()
        return None if is_over and not waiting else waiting

    def take(self) -> list[bytes]:
        """Take all notifications, oldest first; the last one says how many were dropped."""
        self.wake.clear()
        with self._lock:
            waiting = [data for _, data in self._waiting]
            self._waiting = []
            left_out = self._left_out
            self._left_out = 0
        if left_out:
            said = f"{left_out} log messages were left out because they were not read in time."
            waiting.append(Message(MESSAGE, {"level": self._level, "data": said}).encode())
        return waiting


class Mailbox(Box):
    """Queue of the notifications of changes for one stream, one for each changed resource or list."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}
        self._uris: Collection[str] | None = None

    def subscribe(self, request: MCPRequest, *, uris: Sequence[str], lists: Collection[str]) -> Subscription:
        """Open a subscription of the caller that fills this queue. Call it in a worker thread."""
        return open_subscription(request, uris=uris, lists=lists, deliver=self.put, end=self.end)

    async def subscribed(
        self, request: MCPRequest, *, uris: Sequence[str], lists: Collection[str], owner: str = ""
    ) -> Subscription:
        """Open a subscription that fills this queue, from the event loop; it is closed if this is cancelled."""
        opening = in_thread("reads", partial(self.subscribe, request, uris=uris, lists=lists), owner=owner)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close)
            raise

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification; it replaces a waiting one of the same resource or list."""
        with self._lock:
            if self._takes(method, params):
                self._waiting[method, params.get("uri", "")] = method, params
        self.ring()

    def keep_only(self, uris: Collection[str]) -> None:
        """From now on, queue notifications of these resources only, and drop waiting ones of others."""
        with self._lock:
            self._uris = frozenset(uris)
            self._waiting = {key: item for key, item in self._waiting.items() if self._takes(*item)}

    def _takes(self, method: str, params: Mapping[str, Any]) -> bool:
        return self._uris is None or method != Subscription.UPDATED or params["uri"] in self._uris

    def take(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Take all waiting notifications, oldest first."""
        with self._lock:
            waiting = list(self._waiting.values())
            self._waiting = {}
        return waiting


def _close(opened: "asyncio.Future[Subscription]") -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def relay(mailbox: Mailbox, deliver: Callable[[], Awaitable[bool]], every: float | None = None) -> None:
    """Deliver the notifications of a queue until the queue is over.

    ``deliver()`` sends the waiting notifications and returns whether there were any. It is called when there may be
    some, and after ``every`` seconds without any.
    """
    while not mailbox.is_over:
        # Do not use wait_for(), which creates a task each time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every):
                await mailbox.wake.wait()
        mailbox.wake.clear()
        if await deliver():
            await asyncio.sleep(0 if mailbox.is_over else DELIVER_EVERY)
