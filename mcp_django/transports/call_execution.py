"""Execute calls over any transport: begin a call, and run its deferred work in the right place, within its timeout."""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync

from ..conf import settings
from ..context.call_record import CallRecord
from ..context.request import Client, MCPRequest
from ..operating.recorded_calls import RecordedCall
from ..orm.permission_queries import load_permissions
from ..protocol.eras import Call
from ..protocol.errors import InternalError
from ..protocol.messages import encode
from ..runtime.cache_and_rate_limits import Caller
from ..runtime.thread_pools import BUSY, Busy, LaneName, give_up, in_background, in_thread
from ..server.kernel import Kernel, Reply
from ..server.methods.handler_interface import Asked, Later, Listen

T = TypeVar("T")

# Thread pool lane for each method, "reads" for all others: so reading rows and running functions does not delay lists.
LANES: Final[Mapping[str, LaneName]] = dict.fromkeys(
    ("tools/call", "resources/read", "prompts/get", "completion/complete"), "queries"
)


def begin(request: MCPRequest, call: Call) -> Reply | Later | Asked | Listen:
    """Fill in the request's context, load permissions, and run the first part of the call; return its outcome."""
    context = request.mcp
    if context.record.method:
        # Other calls of a batch share this request.
        context.record = CallRecord()
    context.version = call.version
    context.capabilities = call.capabilities
    context.client = Client(str(call.client.get("name", "")), str(call.client.get("version", "")))
    context.progress_token = call.progress_token
    context.log_level = call.log_level
    context.trace = call.trace
    if call.method != "ping":
        load_permissions(request.user)
    return Kernel(request, call).serve()


def conclude(request: MCPRequest, call: Call, outcome: Reply | Later | Asked | Listen) -> Reply:
    """Run the rest of a call in this thread, deferred work included, and return its reply."""
    if isinstance(outcome, Later):
        kernel = Kernel(request, call)
        outcome = async_to_sync(kernel.resume_async)(outcome) if outcome.is_async else kernel.resume(outcome)
    assert isinstance(outcome, Reply)
    return outcome


async def perform(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Run the deferred part of a call, on the event loop or in the thread pool for the project's own code."""
    if later.is_async:
        return await Kernel(request, call).resume_async(later)
    record = request.mcp.record
    since = perf_counter()

    def work() -> Reply | Asked:
        record.waiting = (record.waiting or 0.0) + (perf_counter() - since) * 1000
        return Kernel(request, call).resume(later)

    sensitive = request.mcp.site.needs_middleware
    try:
        return await in_thread("slow", work, owner=Caller.of(request), thread_sensitive=sensitive)
    except Busy:
        RecordedCall(request).refuse(503, BUSY)
        return Reply(encode(InternalError(BUSY).response(call.id, modern=call.era.modern)), 503)


async def in_time(request: MCPRequest, call: Call, seconds: float, work: Coroutine[Any, Any, T]) -> T | Reply:
    """Return the result of a call's work, or after ``seconds`` the reply that the call took too long.

    Cancelling this coroutine cancels the work and does not wait for it. Work that continues in a thread stops when it
    next reports progress.
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
            task.add_done_callback(give_up)
            # The work may never end by itself, so finish the call's record now.
            in_background(partial(RecordedCall(request).finish, outcome))
    if done:
        return task.result()
    error = InternalError(f"The call took longer than {settings.CALL_TIMEOUT} s and was stopped")
    return Reply(encode(error.response(call.id, modern=call.era.modern)))
