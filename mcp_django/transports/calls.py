"""Run the work of a call, over any transport: in its place, within its time, with a queue for its notifications."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from ..conf import settings
from ..context.request import MCPRequest
from ..operating.calls import finish
from ..operating.refused import outcome_of, refused
from ..protocol.eras import Call
from ..protocol.errors import InternalError
from ..protocol.messages import encode, error_response, notification
from ..runtime.threads import BUSY, Busy, in_thread
from ..runtime.throttling import caller_of
from ..server.dispatch import Reply, resume, resume_async
from ..server.methods.base import Asked, Later

T = TypeVar("T")

PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
# Notifications of one call, and bytes of them, that wait to be sent; beyond that the newest progress alone does, and
# log messages are left out.
MAX_WAITING: Final = 64
MAX_WAITING_BYTES: Final = 256 * 1024


async def perform(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do work that was put off where it belongs: on the loop, or in the pool for the project's own code."""
    if later.is_async:
        return await resume_async(request, call, later)
    work = partial(resume, request, call, later)
    sensitive = request.mcp.site.needs_middleware
    try:
        return await in_thread("slow", work, owner=caller_of(request), thread_sensitive=sensitive)
    except Busy:
        refused(request, outcome_of(503), BUSY)
        body = encode(error_response(call.id, InternalError(BUSY), modern=call.era.modern))
        return Reply(body, 503)


async def in_time(request: MCPRequest, call: Call, seconds: float, work: Coroutine[Any, Any, T]) -> T | Reply:
    """Return what comes of the work of a call, or the reply that it took longer than ``CALL_TIMEOUT``.

    The work is given ``seconds``. Who cancels this cancels the work, and it is waited for no longer: what goes on in a
    thread all the same stops at its next report.
    """
    task = asyncio.ensure_future(work)
    outcome = "cancelled"
    done: set[asyncio.Task[T]] = set()
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        outcome = "error:timeout"
    finally:
        request.mcp.cancelled = True
        task.cancel()
        if not done:
            # It may never come to an end of its own.
            in_thread("streams", partial(finish, request, outcome))
    if done:
        return task.result()
    error = InternalError(f"The call took longer than {settings.CALL_TIMEOUT} s and was stopped")
    return Reply(encode(error_response(call.id, error, modern=call.era.modern)))


class Waiting:
    """Notifications of one call that wait to be sent; filled from any thread, emptied on the loop that made it.

    ``patience`` is for how many seconds :meth:`next` waits for one, None for as long as it takes.
    """

    def __init__(self, patience: float | None = None) -> None:
        self.patience = patience
        self.wake = asyncio.Event()
        self.is_over = False
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

    def end(self) -> None:
        """Say that the work is done; on the loop."""
        self.is_over = True
        self.wake.set()

    async def next(self) -> list[bytes] | None:
        """Return what waits, as soon as anything does, or nothing when it is time to look; None after the end."""
        if not self.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await self.wake.wait()
        is_over = self.is_over
        found = self.take()
        return None if is_over and not found else found

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
