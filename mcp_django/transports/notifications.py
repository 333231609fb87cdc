"""Notifications of changes on their way to a client: kept once for each thing that changed, told a few times a second.

So no burst can make what waits grow, and an open stream holds neither a thread nor a connection to the database.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..context.request import MCPRequest
from ..runtime.threads import in_thread
from ..subscriptions.audience import UPDATED, Subscription
from ..subscriptions.signals import KINDS
from ..subscriptions.subscriptions import open_subscription

LISTS: Final = frozenset(KINDS)
# Seconds between two deliveries on one stream: what changes again meanwhile is told once.
DELIVER_EVERY: Final = 0.1


class Mailbox:
    """Notifications that wait for their stream, one for each thing; filled from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.wake = asyncio.Event()
        self.ended = False
        self._waiting: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}
        self._uris: Collection[str] | None = None
        self._lock = threading.Lock()

    def subscribe(self, request: MCPRequest, *, uris: Sequence[str], lists: Collection[str]) -> Subscription:
        """Open a subscription of the caller that is delivered here; in a worker thread."""
        return open_subscription(request, uris=uris, lists=lists, deliver=self.put, end=self.end)

    async def subscribed(
        self, request: MCPRequest, *, uris: Sequence[str], lists: Collection[str], owner: str = ""
    ) -> Subscription:
        """Do the same on the loop. Whoever gives up meanwhile leaves nothing behind: it is closed once it is open."""
        opening = in_thread("reads", partial(self.subscribe, request, uris=uris, lists=lists), owner=owner)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close)
            raise

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Have a notification sent; it takes the place of one of the same thing that waits."""
        with self._lock:
            if self._takes(method, params):
                self._waiting[method, params.get("uri", "")] = method, params
        self.ring()

    def keep_only(self, uris: Collection[str]) -> None:
        """Take updates of these resources and of no other from now on, and drop what waits of others."""
        with self._lock:
            self._uris = frozenset(uris)
            self._waiting = {key: item for key, item in self._waiting.items() if self._takes(*item)}

    def _takes(self, method: str, params: Mapping[str, Any]) -> bool:
        return self._uris is None or method != UPDATED or params["uri"] in self._uris

    def end(self, reason: str = "") -> None:
        self.ended = True
        self.ring()

    def take(self) -> list[tuple[str, Mapping[str, Any]]]:
        with self._lock:
            found = list(self._waiting.values())
            self._waiting.clear()
        return found

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.wake.set)


def _close(opened: "asyncio.Future[Subscription]") -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def relay(mailbox: Mailbox, deliver: Callable[[], Awaitable[bool]], every: float | None = None) -> None:
    """Have what comes into the mailbox delivered, until the mailbox says that it is over.

    ``deliver()`` takes what waits to the client and returns whether there was anything. It is called when there may be,
    and after ``every`` seconds without.
    """
    while not mailbox.ended:
        # Not wait_for(), which makes a task each time.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every):
                await mailbox.wake.wait()
        mailbox.wake.clear()
        if await deliver():
            await asyncio.sleep(0 if mailbox.ended else DELIVER_EVERY)
