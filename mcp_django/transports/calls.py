"""What every call goes through, over any transport: its caller's places, its beginning, its time, its work."""

import asyncio
import threading
from collections import Counter
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
from ..protocol.messages import encode, error_response
from ..runtime.cache import caller_of, hit_if_counted
from ..runtime.threads import BUSY, Busy, LaneName, in_thread
from ..server.dispatch import Kernel, Reply
from ..server.methods.base import Asked, Later, Listen

T = TypeVar("T")

# Where calls of a method run: those that read rows and run functions hold up nobody who asks for a list ("reads").
LANES: Final[Mapping[str, LaneName]] = dict.fromkeys(
    ("tools/call", "resources/read", "prompts/get", "completion/complete"), "queries"
)
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
    """Hold room for a long body of the caller in this worker."""
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = _bodies[who]
        if _bodies.total() + size > total or (own and own + size > total // 4):
            raise LimitExceeded("MAX_WORKER_BODY_BYTES")
        return Held(_bodies, who, size)


# The work


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
