"""One run of a task in a worker: the call is made again for its caller, from its beginning, and ends the task."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from django.db import Error as DatabaseUnavailable
from django.db import connections
from django.urls import get_script_prefix, get_urlconf, set_script_prefix, set_urlconf
from django.utils import translation

from ..context.caller_authority import authority
from ..context.questions import Answers
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import CallRefused, Cancelled, InsufficientScope, ToolError
from ..operating.daily_budgets import Budgets
from ..operating.recorded_calls import RecordedCall
from ..operating.switches import board
from ..orm.database_writes import refusals
from ..orm.permission_queries import load_permissions
from ..orm.query_limits import write_transaction
from ..protocol.eras import SERVER_KEY
from ..protocol.messages import decode
from ..routing import ENDPOINTS
from ..server.kernel import Kernel, Reply
from ..server.methods.handler_interface import Asked, log_failure
from ..server.stored_calls import StoredCall
from .heartbeats import Heartbeat
from .stored_tasks import StoredTask

logger = logging.getLogger("mcp_django")

UNREADABLE: Final = "What was asked for can no longer be read. Nothing was changed. Make the call again."
NO_ENDPOINT: Final = "The endpoint that was called is no longer there. Nothing was changed."
NO_TOOL: Final = "The tool is no longer there for you."


class TaskRun:
    """One run of a task that this worker has claimed. It is ``request.mcp.task`` of the call."""

    def __init__(self, task: StoredTask) -> None:
        self.task = task
        self.wire: dict[str, Any] | None = None
        self.heartbeat: Heartbeat
        self.request: MCPRequest
        self._stop_async: Callable[[], object] | None = None

    @classmethod
    def claim_and_go(cls, task_id: str) -> None:
        """Run the task with this id if it waits for a worker; raise nothing."""
        close_old_connections()
        try:
            task = StoredTask.claim(task_id)
            if task is not None:
                cls(task).go()
        except DatabaseUnavailable as error:
            # Polls look after it.
            logger.warning("The task %s could not be run", task_id[:32], exc_info=error)
        except Exception as error:
            log_failure(f"task {task_id[:32]}", error)
        finally:
            close_old_connections()

    def go(self) -> None:
        """Make the call, and end the task with its result, or let it wait for answers."""
        data = self.task.kept
        if data is None:
            self._finish(_refused(UNREADABLE))
            return
        self.call = StoredCall(data)
        with self._surroundings():
            try:
                self.request = self._request()
            except ToolError as refused:
                self._finish(_refused(refused.message))
                return
            self._make()

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Give this thread the language, URLconf and script prefix of the call, for as long as the block lasts."""
        data = self.call.data
        with ExitStack() as stack:
            stack.enter_context(translation.override(data["language"]))
            stack.callback(set_urlconf, get_urlconf())
            stack.callback(set_script_prefix, get_script_prefix())
            set_urlconf(data["urlconf"])
            set_script_prefix(f"{data['prefix']}/")
            yield

    def _make(self) -> None:
        request = self.request
        mcp = request.mcp
        mcp.task = self
        self.task.run = mcp.record.id.hex
        mcp.notify = self._note
        mcp.progress_token = self.task.row.pk
        mcp.answers = self._answers()
        self.heartbeat = Heartbeat(self.task, self.refusal, self.stop)
        try:
            with self.heartbeat:
                outcome = Kernel.make(request, self.call)
        except (Cancelled, asyncio.CancelledError):
            # It is no longer this worker's.
            return
        except InsufficientScope as error:
            self._finish(_refused(str(error)))
            return
        if isinstance(outcome, Asked):
            self._ask(outcome)
        else:
            self._finish(self._end_of(outcome))

    # The call

    def _request(self) -> MCPRequest:
        """Return the caller's request; raise ``ToolError`` if they have no access any more."""
        data = self.call.data
        match = ENDPOINTS.match(data["path"])
        if match is None:
            raise ToolError(NO_ENDPOINT)
        user = self.call.user(self.task.row.user or None, outlives_token=True)
        parts = urlsplit(data["resource"])
        port = parts.port or (443 if parts.scheme == "https" else 80)
        scope = {
            "type": "http",
            "method": "POST",
            "scheme": parts.scheme,
            "path": f"{data['prefix']}{data['path']}",
            "root_path": data["prefix"],
            "server": (parts.hostname or "", port),
            "client": (data["address"], 0),
            "headers": [(b"host", parts.netloc.encode("latin1", "replace"))],
        }
        request = self.call.request(scope, match.func.mcp_site, user)  # type: ignore[attr-defined]
        request.mcp.capabilities = data["capabilities"]
        request.mcp.trace = data["trace"]
        request.mcp.can_stream = False
        return request

    def _answers(self) -> Answers:
        """Return the answers that the client has given so far, before the call became a task and since."""
        asked = self.task.asked
        state = asked["state"] or self.call.data["answers"]
        return Answers(asked["given"], state, proven=True)

    def begin_work(self) -> None:
        """Note that the work begins: from here on, a client that knows of no tasks cannot be asked."""
        mcp = self.request.mcp
        if not mcp.takes_tasks:
            mcp.live = False

    def run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of ``work``; if that is one transaction, the task ends in it.

        Raises:
            Cancelled: the task is no longer this worker's; what was done is rolled back.
        """
        if not self.task.row.atomic:
            self.wire = work()
            return self.wire
        with refusals(), write_transaction(StoredTask.rows().db):
            wire = work()
            self.heartbeat.rest()
            if not self.task.finish({"result": wire}, **self._readers()):
                raise Cancelled
        return wire

    async def run_async(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Return the result of ``work``, on the event loop."""
        loop = asyncio.get_running_loop()
        running = asyncio.current_task()
        assert running is not None
        self._stop_async = lambda: loop.call_soon_threadsafe(running.cancel)
        try:
            self.wire = await work()
        finally:
            self._stop_async = None
        return self.wire

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        """Keep the progress of the work; its log messages have nowhere to go."""
        if method == "notifications/progress":
            self.heartbeat.tell(params["progress"], params.get("total"), str(params.get("message", "")))

    # Its end

    def stop(self) -> None:
        """Stop the work, from another thread."""
        self.request.mcp.cancelled = True
        stop = self._stop_async
        if stop is not None:
            stop()

    def refusal(self) -> str:
        """Return why the caller may no longer do this, "" if they may: asked anew, as if the call came now. The thread
        may be another one than that of the work."""
        with self._surroundings():
            return self._refusal()

    def _refusal(self) -> str:
        try:
            request = self._request()
            request.mcp.task = self
            request.mcp.record.method = "tools/call"
            load_permissions(request.user)
            recorded = RecordedCall(request)
            recorded.describe_caller()
            request.mcp.off = off = board.current()
            recorded.refuse_if_off()
            row = self.task.row
            tool = request.mcp.site.get_tool(request, row.tool)
            if tool is None:
                return NO_TOOL
            if off is not None and (switched := off.call(tool.name, row.model, row.action, read_only=tool.read_only)):
                return switched.refusal().message
            budgets = Budgets(request)
            budgets.check()
            if not tool.read_only:
                budgets.check_writes()
        except (ToolError, CallRefused) as refused:
            return refused.message
        return ""

    def _ask(self, outcome: Asked) -> None:
        """Let the task wait for the answers to its questions; each has a key that this task has not used before."""
        state = self.request.mcp.answers.state(outcome.questions)
        before = self.task.asked
        used = list(before["used"])
        questions = {}
        for question in outcome.questions:
            key = question.key
            number = len(used)
            while key in used:
                key = f"{question.key}-{number}"
                number += 1
            used.append(key)
            questions[key] = {"key": question.key, **question.to_wire(self.request.mcp.version)}
        self.task.ask({"questions": questions, "given": {}, "state": state, "used": used, **self._readers()})

    def _end_of(self, reply: Reply) -> dict[str, Any]:
        if self.wire is not None:
            return {"result": self.wire}
        answer = decode(reply.body)
        if "error" in answer:
            return {"error": answer["error"]}
        result = {name: value for name, value in answer["result"].items() if name != "resultType"}
        meta = {name: value for name, value in result.pop("_meta", {}).items() if name != SERVER_KEY}
        return {"result": {**result, "_meta": meta} if meta else result}

    def _finish(self, end: Mapping[str, Any]) -> None:
        """End the task, unless it ended with its work, or is no longer this worker's."""
        self.task.finish(end, **self._readers())

    def _readers(self) -> dict[str, Any]:
        """Return what decides who may read the result, or a question: the rights of the caller, and the arguments."""
        request: MCPRequest | None = getattr(self, "request", None)
        if request is None:
            return {}
        return {"authority": authority(request), "arguments": self.call.data["arguments"]}


def _refused(told: str) -> dict[str, Any]:
    return {"result": ToolResult.of_error(ToolError(told)).to_wire()}


def close_old_connections() -> None:
    """Close this thread's connections that are broken or too old, as Django does between requests: a worker may run
    tasks in one thread for weeks. Within a transaction, such as that of a test, they are left."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
