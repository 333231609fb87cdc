"""What every call goes through, over any transport: its caller's places, its beginning, its time, what it tells."""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync

from ..conf import settings
from ..context.record import CallRecord
from ..context.request import Client, MCPRequest
from ..operating.calls import finish, outcome_of, refused
from ..operating.telemetry import gauge
from ..orm.permissions import load_permissions
from ..protocol.eras import Call
from ..protocol.errors import InternalError
from ..protocol.messages import encode, error_response, notification
from ..runtime.cache import caller_of, hit_if_counted
from ..runtime.threads import BUSY, Busy, LaneName, in_thread
from ..server.dispatch import Kernel, Reply
from ..server.methods.base import Asked, Later, Listen

T = TypeVar("T")

# Methods whose work is the project's rows and functions.
QUERYING: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"
# Notifications of one call, and bytes of them, that wait to be sent; beyond that the newest progress alone does, and
# log messages are left out.
MAX_WAITING: Final = 64
MAX_WAITING_BYTES: Final = 256 * 1024
# Seconds after which a caller who has no place left may try again.
RETRY_AFTER: Final = 1


# The limits of one caller: calls in a period, counted by all workers; what is held at once, in this worker.


class LimitExceeded(Exception):
    """The caller is over a limit, which ``setting`` sets; ``retry_after`` is in seconds."""

    def __init__(self, setting: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(f"{setting}: retry after {retry_after} s")
        self.retry_after, self.setting = retry_after, setting


def count_call(who: str) -> None:
    """Count one call of a caller against ``CALL_RATE``.

    A cache that is out of order limits nothing: tokens and permissions are checked all the same.
    """
    retry_after = hit_if_counted("calls", who, settings.CALL_RATE)
    if retry_after is not None:
        raise LimitExceeded("CALL_RATE", retry_after)


class Held:
    """Something of a caller's, held until it is given back, or until the end of the block that it is the context of."""

    __slots__ = ("amount", "held", "who")

    def __init__(self, held: Counter[str], who: str, amount: int = 1) -> None:
        self.held, self.who, self.amount = held, who, amount
        held[who] += amount

    def give_back(self) -> None:
        """Hold it no longer; once."""
        with _lock:
            self.held[self.who] -= self.amount
            if not self.held[self.who]:
                del self.held[self.who]

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None:
        self.give_back()


_calls: Counter[str] = Counter()
_streams: Counter[str] = Counter()
_bodies: Counter[str] = Counter()
_lock = threading.Lock()
gauge("running_calls", "Calls that run now.", _calls.total)
gauge("open_streams", "Streams of changes that are open now.", _streams.total)


def concurrent(who: str) -> Held:
    """Hold one of the caller's ``MAX_CONCURRENT_CALLS`` in this worker, or raise :class:`LimitExceeded`."""
    with _lock:
        if _calls[who] >= settings.MAX_CONCURRENT_CALLS:
            raise LimitExceeded("MAX_CONCURRENT_CALLS")
        return Held(_calls, who)


def streaming(who: str) -> Held:
    """Hold one of the caller's ``MAX_STREAMS``, and of the ``MAX_WORKER_STREAMS`` of all, or raise LimitExceeded."""
    with _lock:
        if _streams[who] >= settings.MAX_STREAMS:
            raise LimitExceeded("MAX_STREAMS")
        if _streams.total() >= settings.MAX_WORKER_STREAMS:
            raise LimitExceeded("MAX_WORKER_STREAMS")
        return Held(_streams, who)


def body_room(who: str, size: int) -> Held:
    """Hold room for a long body of the caller in this worker.

    Raises:
        LimitExceeded: bodies that are being read or worked on have ``MAX_WORKER_BODY_BYTES``, or the caller's a quarter
            of it. One body of a caller who has no other is bounded by all alone.
    """
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = _bodies[who]
        if _bodies.total() + size > total or (own and own + size > total // 4):
            raise LimitExceeded("MAX_WORKER_BODY_BYTES")
        return Held(_bodies, who, size)


# The work


def lane_of(method: str) -> LaneName:
    return "queries" if method in QUERYING else "reads"


def begin(request: MCPRequest, call: Call) -> Reply | Later | Asked | Listen:
    """Run a call, or as much of it as runs in this thread."""
    context = request.mcp
    if context.record.method:
        # Others of a batch have the same request.
        context.record = CallRecord()
    context.version, context.capabilities = call.version, call.capabilities
    context.client = Client(str(call.client.get("name", "")), str(call.client.get("version", "")))
    context.progress_token, context.log_level = call.progress_token, call.log_level
    context.trace = call.trace
    if call.method != "ping":
        load_permissions(request.user)
    return Kernel(request, call).serve()


def conclude(request: MCPRequest, call: Call, outcome: Reply | Later | Asked | Listen) -> Reply:
    """Return the reply of a call that has begun, its work done in this thread, as where nobody can be asked."""
    if isinstance(outcome, Later):
        kernel = Kernel(request, call)
        outcome = async_to_sync(kernel.resume_async)(outcome) if outcome.is_async else kernel.resume(outcome)
    assert isinstance(outcome, Reply)
    return outcome


async def perform(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do work that was put off where it belongs: on the loop, or in the pool for the project's own code."""
    if later.is_async:
        return await Kernel(request, call).resume_async(later)
    work = partial(Kernel(request, call).resume, later)
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


class Outbox:
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
                self._waiting = deque(item for item in self._waiting if item[0] != PROGRESS)
                self._size = sum(len(kept) for _, kept in self._waiting)
            self._waiting.append((method, data))
            self._size += len(data)
        self.ring()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.wake.set)

    def end(self) -> None:
        self.is_over = True
        self.wake.set()

    async def next(self) -> list[bytes] | None:
        """Return what waits, as soon as anything does, or nothing when it is time to look; None after the end."""
        if not self.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await self.wake.wait()
        is_over = self.is_over
        waiting = self.take()
        return None if is_over and not waiting else waiting

    def take(self) -> list[bytes]:
        """Return what waits, oldest first; the last says how much was left out, if anything was."""
        self.wake.clear()
        with self._lock:
            waiting = [data for _, data in self._waiting]
            left_out, self._left_out, self._size = self._left_out, 0, 0
            self._waiting.clear()
        if left_out:
            said = f"{left_out} log messages were left out, as they were not read in time."
            waiting.append(encode(notification(MESSAGE, {"level": self._level, "data": said})))
        return waiting
