"""Execute calls over any transport: begin a call, and run its deferred work in the right place, within its timeout."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import Any, Final, Literal, TypeVar

from ..conf import settings
from ..context.call_record import CallRecord
from ..context.request import Client, MCPRequest
from ..exceptions import InsufficientScope
from ..operating.recorded_calls import RecordedCall
from ..orm.permission_queries import load_permissions
from ..protocol.eras import Call
from ..protocol.errors import InternalError, InvalidRequest, ProtocolError
from ..protocol.messages import encode
from ..runtime.cache_and_rate_limits import Caller
from ..runtime.thread_pools import Busy, give_up, in_background, in_thread
from ..server.kernel import Kernel, Reply
from ..server.methods.handler_interface import Asked, Later, Listen
from ..tasks.caller_tasks import CallerTasks

T = TypeVar("T")

# Methods that read rows or run functions: they have a thread pool lane of their own, so they do not delay lists.
QUERIES: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
# Methods that make or handle tasks, or tell of them. Not subscriptions: later looks at the lists have no call.
WITH_TASKS: Final = frozenset(
    {"tools/call", "tools/list", "server/discover", "tasks/get", "tasks/update", "tasks/cancel"}
)


class CallExecution:
    """The execution of one call, which came with ``request``."""

    def __init__(self, request: MCPRequest, call: Call) -> None:
        self.request = request
        self.call = call

    @property
    def lane(self) -> Literal["reads", "queries"]:
        """The thread pool lane in which the call begins."""
        return "queries" if self.call.method in QUERIES else "reads"

    def begin(self) -> Reply | Later | Asked | Listen:
        """Fill in the request's context, load permissions, and run the first part of the call; return its outcome."""
        call = self.call
        context = self.request.mcp
        if context.record.method:
            # Other calls of a batch share this request.
            context.record = CallRecord()
        context.version = call.version
        context.capabilities = call.capabilities
        context.client = Client(str(call.client.get("name", "")), str(call.client.get("version", "")))
        context.progress_token = call.progress_token
        context.log_level = call.log_level
        context.trace = call.trace
        if call.method in WITH_TASKS:
            context.tasks = CallerTasks(self.request)
        if call.method != "ping":
            load_permissions(self.request.user)
        return Kernel(self.request, call).serve()

    def begin_late(self) -> Reply | Later | Asked:
        """Begin the call when the HTTP head may be sent already: missing scopes become a JSON-RPC error."""
        try:
            outcome = self.begin()
        except InsufficientScope as error:
            return self._refusal(InvalidRequest(str(error)))
        # Only the modern era, which has no sessions, has subscriptions/listen.
        assert not isinstance(outcome, Listen)
        return outcome

    def conclude(self, outcome: Reply | Later | Asked | Listen) -> Reply:
        """Run the rest of the call in this thread, deferred work included, and return its reply."""
        concluded = Kernel(self.request, self.call).conclude(outcome)
        assert isinstance(concluded, Reply)
        return concluded

    async def perform(self, later: Later) -> Reply | Asked:
        """Run the deferred part of the call, on the event loop or in the thread pool for the project's own code."""
        kernel = Kernel(self.request, self.call)
        outcome: Reply | Asked | Later = later
        while isinstance(outcome, Later):
            outcome = await (kernel.resume_async(outcome) if outcome.is_async else self._in_thread(kernel, outcome))
        return outcome

    async def _in_thread(self, kernel: Kernel, later: Later) -> Reply | Asked | Later:
        request = self.request
        record = request.mcp.record
        since = perf_counter()

        def work() -> Reply | Asked | Later:
            record.waiting = (record.waiting or 0.0) + (perf_counter() - since) * 1000
            return kernel.resume(later)

        sensitive = request.mcp.site.needs_middleware
        try:
            return await in_thread("slow", work, owner=Caller.of(request), thread_sensitive=sensitive)
        except Busy as busy:
            RecordedCall(request).refuse(503, str(busy))
            return self._refusal(InternalError(str(busy)), 503)

    async def in_time(self, seconds: float, work: Coroutine[Any, Any, T]) -> T | Reply:
        """Return the result of the call's work, or after ``seconds`` the reply that the call took too long.

        Cancelling this coroutine cancels the work and does not wait for it. Work that continues in a thread stops when
        it next reports progress.
        """
        task = asyncio.ensure_future(work)
        outcome = "cancelled"
        done: set[asyncio.Task[T]] = set()
        try:
            done, _ = await asyncio.wait([task], timeout=seconds)
            outcome = "error:timeout"
        finally:
            self.request.mcp.cancelled = True
            task.cancel()
            if not done:
                task.add_done_callback(give_up)
                # The work may never end by itself, so finish the call's record now.
                in_background(partial(RecordedCall(self.request).finish, outcome))
        if done:
            return task.result()
        return self._refusal(InternalError(f"The call took longer than {settings.CALL_TIMEOUT} s and was stopped"))

    def _refusal(self, error: ProtocolError, status: int = 200) -> Reply:
        return Reply(encode(error.response(self.call.id, modern=self.call.era.modern)), status)
