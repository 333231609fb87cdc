"""Queues of notifications on their way to a client: of one call, and of changes for one stream. Both are bounded.

Changes are kept once for each thing that changed, and told a few times a second: no burst can make what waits grow, and
an open stream holds neither a thread nor a connection to the database.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..context.request import MCPRequest
from ..protocol.messages import encode, notification
from ..runtime.thread_pools import in_thread
from ..subscriptions.changes import KINDS
from ..subscriptions.notifier import open_subscription
from ..subscriptions.subscribers import UPDATED, Subscription

LISTS: Final = frozenset(KINDS)
PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
# Notifications of one call, and bytes of them, that wait to be sent; beyond that the newest progress alone does, and
# log messages are left out.
MAX_WAITING: Final = 64
MAX_WAITING_BYTES: Final = 256 * 1024
# Seconds between two deliveries of changes on one stream: what changes again meanwhile is told once.
DELIVER_EVERY: Final = 0.1


class Box:
    """Queue of notifications, filled from any thread and emptied on the event loop that made it."""

    def __init__(self) -> None:
        self.wake, self.is_over = asyncio.Event(), False
        self._loop, self._lock = asyncio.get_running_loop(), threading.Lock()

    def ring(self) -> None:
        """Have whoever sends look."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.wake.set)

    def end(self, reason: str = "") -> None:
        """Say that nothing more will come."""
        self.is_over = True
        self.ring()


class Outbox(Box):
    """Queue of the notifications of one call. :meth:`next` waits ``patience`` seconds, None as long as it takes."""

    def __init__(self, patience: float | None = None) -> None:
        super().__init__()
        self.patience = patience
        self._waiting: list[tuple[str, bytes]] = []
        self._left_out, self._level = 0, ""

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification of the call, or nothing but the newest progress while too many wait."""
        data = encode(notification(method, params))
        with self._lock:
            size = sum(len(waiting) for _, waiting in self._waiting)
            if len(self._waiting) >= MAX_WAITING or size + len(data) > MAX_WAITING_BYTES:
                if method != PROGRESS:
                    self._left_out, self._level = self._left_out + 1, params.get("level", "")
                    return
                self._waiting = [item for item in self._waiting if item[0] != PROGRESS]
            self._waiting.append((method, data))
        self.ring()

    async def next(self) -> list[bytes] | None:
        """Return the call's queued notifications, once there are any or ``patience`` is over; None after the end."""
        if not self.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await self.wake.wait()
        is_over = self.is_over
        waiting = self.take()
        return None if is_over and not waiting else waiting

    def take(self) -> list[bytes]:
        """Take all notifications from the call's queue, oldest first; the last says how many were left out."""
        self.wake.clear()
        with self._lock:
            waiting, self._waiting = [data for _, data in self._waiting], []
            left_out, self._left_out = self._left_out, 0
        if left_out:
            said = f"{left_out} log messages were left out, as they were not read in time."
            waiting.append(encode(notification(MESSAGE, {"level": self._level, "data": said})))
        return waiting


class Mailbox(Box):
    """Queue of the notifications of changes for one stream, one for each changed thing."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}
        self._uris: Collection[str] | None = None

    def subscribe(self, request: MCPRequest, *, uris: Sequence[str], lists: Collection[str]) -> Subscription:
        """Have a subscription of the caller fill this queue of notifications; in a worker thread."""
        return open_subscription(request, uris=uris, lists=lists, deliver=self.put, end=self.end)

    async def subscribed(
        self, request: MCPRequest, *, uris: Sequence[str], lists: Collection[str], owner: str = ""
    ) -> Subscription:
        """Have a subscription fill this queue of notifications, opened from the event loop; one given up is closed."""
        opening = in_thread("reads", partial(self.subscribe, request, uris=uris, lists=lists), owner=owner)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close)
            raise

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification of a change, in the place of one of the same thing that waits."""
        with self._lock:
            if self._takes(method, params):
                self._waiting[method, params.get("uri", "")] = method, params
        self.ring()

    def keep_only(self, uris: Collection[str]) -> None:
        """Queue notifications of these resources only, and drop those of others that wait."""
        with self._lock:
            self._uris = frozenset(uris)
            self._waiting = {key: item for key, item in self._waiting.items() if self._takes(*item)}

    def _takes(self, method: str, params: Mapping[str, Any]) -> bool:
        return self._uris is None or method != UPDATED or params["uri"] in self._uris

    def take(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return what waits, oldest first."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        return waiting


def _close(opened: "asyncio.Future[Subscription]") -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def relay(mailbox: Mailbox, deliver: Callable[[], Awaitable[bool]], every: float | None = None) -> None:
    """Deliver notifications from a stream's queue until the queue is over.

    ``deliver()`` takes what waits to the client and returns whether there was anything. It is called when there may be,
    and after ``every`` seconds without.
    """
    while not mailbox.is_over:
        # Not wait_for(), which makes a task each time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every):
                await mailbox.wake.wait()
        mailbox.wake.clear()
        if await deliver():
            await asyncio.sleep(0 if mailbox.is_over else DELIVER_EVERY)
