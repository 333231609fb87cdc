"""The tasks of one caller: calls that become tasks, how they stand, answers to their questions, and their end."""

import asyncio
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseUnavailable
from django.db import close_old_connections
from django.db.models import Q
from django.urls import get_script_prefix, get_urlconf

from ..conf import settings
from ..context.caller_authority import authority
from ..context.questions import Answers
from ..context.rehearsing import is_rehearsing
from ..context.request import MCPRequest
from ..context.task_desk import BecomesTask
from ..context.tool_results import StoredResult, ToolResult
from ..differences.kept_changes import KeptChange
from ..exceptions import ToolError
from ..exposures.declared_tasks import TaskOptions
from ..models import Task
from ..protocol.errors import InvalidParams
from ..protocol.tasks import DetailedTask
from ..runtime.thread_pools import in_background
from ..server.idempotency_keys import OTHER
from ..server.stored_calls import StoredCall
from .engines import makes_tasks
from .stored_tasks import OPEN, TTL, StoredTask, fitting_columns

State = Task.State
# Maximum number of tasks of one caller that have not ended.
MAX_OPEN: Final = 20
# Maximum seconds for which a call waits for its task, if its client knows of no tasks; seconds that are left of the
# time of the call then; seconds between two looks, at first and at most.
PATIENCE: Final = 25.0
SPARE: Final = 3.0
FIRST_LOOK: Final = 0.1
LOOK_EVERY: Final = 1.0
# Seconds after which a model may ask again.
ASK_AFTER: Final = 10

NOT_FOUND: Final = "Task not found"
CHANGED: Final = "The task was done. Your permissions have changed since, so its result is not shown. Read the data."
TOO_MANY: Final = (
    f"{MAX_OPEN} of your tasks have not ended. Nothing was changed. Wait until one has ended, or cancel one."
)
NEXT: Final = "It goes on without this call. Call get_task with this task in {} seconds, and do not repeat this call."
NOT_ASKED: Final = "Your permissions have changed since, so nothing is asked any more."
CANCELLED: Final = "The task was cancelled."
BY_CLIENT: Final = "Cancelled by the client."
CANNOT_ASK: Final = "It asks something on its way, and this client cannot be asked. Nothing was changed."


class CallerTasks:
    """The tasks of the caller of one request, as :class:`~mcp_django.context.task_desk.TaskDesk` describes them.

    They belong to a user, a client and an endpoint; a caller that nobody has signed in has those of all such callers,
    whose ids nobody can guess.
    """

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    @property
    def makes_tasks(self) -> bool:
        """Whether calls of this request can become tasks."""
        mcp = self.request.mcp
        # A worker has no request of the kind that such an endpoint needs, and no process at the other end of a pipe.
        is_here = mcp.site.needs_middleware or "://" not in mcp.resource
        return not is_here and makes_tasks()

    # Making them

    def begin_work(self, options: TaskOptions | None, rows: int, using: str) -> None:
        """Raise ``BecomesTask`` if a call that is about to begin its work goes on as a task."""
        mcp = self.request.mcp
        if options is None:
            most = settings.TASK_ROWS
            if most is None or rows <= most or not mcp.takes_tasks:
                return
            options = TaskOptions()
        if self.makes_tasks and not is_rehearsing():
            raise BecomesTask(options, using)

    def open(self, begun: BecomesTask, tool: str, arguments: Mapping[str, Any], key: str, digest: str) -> Any:
        """Keep the call as a task; return its result, or a coroutine function that waits for the result.

        Raises ``ToolError`` if the caller has too many tasks.
        """
        mcp = self.request.mcp
        own = StoredTask.rows().filter(self._own(), state__in=OPEN)
        if own.count() >= MAX_OPEN:
            # The yes of its user counts for the next try.
            Answers.give_back()
            raise ToolError(TOO_MANY)
        named = self.request.mcp.site.get_tool(self.request, tool)
        timeout = begun.options.timeout
        task = StoredTask.make(
            kept=self._kept(tool, arguments),
            key=key,
            arguments=digest,
            tool=tool,
            model=mcp.record.model,
            action=mcp.record.action,
            timeout=settings.TASK_TIMEOUT if timeout is None else timeout,
            atomic=begun.using == StoredTask.rows().db,
            idempotent=named is not None and (named.idempotent or named.read_only),
            call=mcp.record.id.hex,
            username=getattr(self.request.user, "get_username", str)(),
            client_name=mcp.client.name,
            **self._owner,
        )
        return self._given(task)

    def repeated(self, key: str, digest: str) -> Any:
        """Return what :meth:`open` has returned for a call with this idempotency key, None for a call that is new.

        Raises ``ToolError`` if the key belongs to a call with other arguments.
        """
        task = self._find(Q(key=key))
        if task is None:
            return None
        if task.row.arguments != digest:
            raise ToolError(OTHER)
        return self._given(task.look_after())

    def _given(self, task: StoredTask) -> Any:
        """Return what the client of a call gets: the task, or what waits for its result."""
        if self.request.mcp.takes_tasks:
            return _described(task).made()
        self.request.mcp.record.settle("task")
        return partial(self._wait, task.row.pk)

    def _kept(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return all that is needed to make the call in a process that has no request."""
        request = self.request
        mcp = request.mcp
        urlconf = get_urlconf()
        return {
            **StoredCall.of(request, tool, arguments).data,
            # Questions that were asked are asked in the same way once more, and find their answers.
            "capabilities": dict(mcp.capabilities) if mcp.live else {},
            "answers": mcp.answers.state(()),
            "prefix": get_script_prefix().rstrip("/"),
            "urlconf": urlconf if isinstance(urlconf, str) else None,
            "address": request.META.get("REMOTE_ADDR", ""),
            "trace": dict(mcp.trace),
        }

    # Waiting for them

    async def _wait(self, task_id: str) -> dict[str, Any]:
        """Return the result of a task, or after some seconds how it stands; without a thread in between."""
        mcp = self.request.mcp
        until = monotonic() + max(0.0, min(PATIENCE, settings.CALL_TIMEOUT - SPARE))
        pause = FIRST_LOOK
        try:
            while True:
                task = await sync_to_async(self._look)(task_id)
                if task.row.progress is not None:
                    mcp.progress(task.row.progress, task.row.total, task.row.message)
                if task.row.state != State.WORKING or monotonic() >= until:
                    return await sync_to_async(self._told)(task)
                await asyncio.sleep(pause)
                pause = min(LOOK_EVERY, pause * 2)
        except asyncio.CancelledError:
            # Its client has cancelled the call, and nobody else knows of the task.
            in_background(partial(self._cancel_waiting, task_id))
            raise

    def _look(self, task_id: str) -> StoredTask:
        """Return the task, by a new connection if the one of this thread is broken."""
        try:
            return self._found(task_id)
        except DatabaseUnavailable:
            close_old_connections()
            return self._found(task_id)

    def _cancel_waiting(self, task_id: str) -> None:
        task = StoredTask.find(Q(pk=task_id))
        if task is not None:
            task.cancel(BY_CLIENT)

    def told(self, task_id: str) -> ToolResult:
        """Return how a task stands for a client that knows of no tasks: its result once there is one.

        Raises ``ToolError`` if there is no such task.
        """
        try:
            task = self._found(task_id)
        except InvalidParams:
            raise ToolError(f"{NOT_FOUND}.") from None
        return StoredResult(wire=self._told(task))

    def _told(self, task: StoredTask) -> dict[str, Any]:
        row = task.row
        match State(row.state):
            case State.COMPLETED:
                return self._result(task)
            case State.FAILED:
                return _error(row.outcome)
            case State.CANCELLED:
                return _error(CANCELLED)
            case State.INPUT_REQUIRED:
                # Its work began before the client could be asked.
                task.cancel(CANNOT_ASK)
                return _error(CANNOT_ASK)
        told: dict[str, Any] = {"task": row.pk, "state": row.state}
        if row.message:
            told["message"] = row.message
        if row.progress is not None:
            told["progress"] = row.progress
        if row.total is not None:
            told["total"] = row.total
        return ToolResult(structured={**told, "next": NEXT.format(ASK_AFTER)}).to_wire()

    # The methods of the protocol

    def get(self, task_id: str) -> Mapping[str, Any]:
        """Return how a task stands (``tasks/get``). Only the result of one is in the log of calls."""
        task = self._found(task_id)
        record = self.request.mcp.record
        record.target = task.row.tool
        described = _described(task)
        match State(task.row.state):
            case State.COMPLETED:
                return described.detailed(result=self._result(task))
            case State.FAILED:
                return described.detailed(error=task.result.get("error"))
            case State.INPUT_REQUIRED:
                record.is_silent = True
                if not self._may_see(task, task.asked):
                    task.cancel(NOT_ASKED)
                    return _described(self._found(task_id)).detailed()
                questions = task.asked["questions"]
                asked = {key: {"method": item["method"], "params": item["params"]} for key, item in questions.items()}
                return described.detailed(asked=asked)
        record.is_silent = True
        return described.detailed()

    def update(self, task_id: str, responses: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Take the client's answers to the questions of a task, by key (``tasks/update``)."""
        self._found(task_id).answer(responses)
        return {}

    def cancel(self, task_id: str) -> Mapping[str, Any]:
        """Cancel a task, if it has not ended (``tasks/cancel``)."""
        self._found(task_id).cancel(BY_CLIENT)
        return {}

    # Who they belong to

    def _found(self, task_id: str) -> StoredTask:
        """Return the caller's task with this id, looked after; raise ``InvalidParams`` if there is none."""
        task = self._find(Q(pk=task_id)) if len(task_id) <= 32 else None
        if task is None or task.row.pk != task_id:
            raise InvalidParams(NOT_FOUND)
        return task.look_after()

    def _find(self, where: Q) -> StoredTask | None:
        """Return the caller's task that meets a condition, None for none. MySQL compares texts without their case."""
        task = StoredTask.find(self._own() & where)
        if task is None or any(getattr(task.row, name) != value for name, value in self._owner.items()):
            return None
        return task

    @property
    def _owner(self) -> dict[str, str]:
        mcp = self.request.mcp
        owner = {
            "user": KeptChange.owner_of(self.request.user),
            "client_id": mcp.client_id,
            "site": mcp.site.name,
            "resource": mcp.resource,
        }
        return fitting_columns(owner)

    def _own(self) -> Q:
        return Q(**self._owner)

    def _result(self, task: StoredTask) -> dict[str, Any]:
        """Return the result of a task that was completed, if the caller may still do what it did."""
        kept = task.result
        if not self._may_see(task, kept):
            return _error(CHANGED)
        result: dict[str, Any] = kept.get("result", {})
        if result.get("isError"):
            self.request.mcp.record.settle("tool_error")
        return result

    def _may_see(self, task: StoredTask, kept: Mapping[str, Any]) -> bool:
        """Return whether the caller may still do what the task did or asks for, by what is kept with that."""
        request = self.request
        row = task.row
        off = request.mcp.off
        tool = request.mcp.site.get_tool(request, row.tool)
        if tool is None or ("authority" in kept and kept["authority"] != authority(request)):
            return False
        if off is not None and off.call(tool.name, row.model, row.action, read_only=tool.read_only):
            return False
        may: bool = tool.may_repeat(request, kept.get("arguments", {}))
        return may


def _described(task: StoredTask) -> DetailedTask:
    row = task.row
    message = row.message if task.is_open else row.outcome
    return DetailedTask(row.pk, row.state, row.created, row.updated, TTL, task.poll_interval, message)


def _error(text: str) -> dict[str, Any]:
    return ToolResult.of_error(ToolError(text)).to_wire()
