"""What the parts that make a call ask about tasks: whether it goes on without its request, and how a task stands."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from .tool_results import ToolResult


class BecomesTask(BaseException):
    """Raised where the work of a call begins that goes on as a task, with the ``TaskOptions`` of how it does so.

    It is a ``BaseException``, so that open transactions roll back and a tool's own ``except Exception`` does not
    swallow it. ``using`` is the database whose one transaction the whole work is, "" if it is none.
    """

    def __init__(self, options: Any, using: str) -> None:
        super().__init__("the call goes on as a task")
        self.options = options
        self.using = using


class TaskDesk(Protocol):
    """The tasks of one caller (``request.mcp.tasks``; None where there are none).

    The three methods of the protocol return results, and raise ``InvalidParams`` for what is no task of the caller.
    """

    @property
    def makes_tasks(self) -> bool:
        """Whether calls of this request can become tasks: the worker does not run them at once anyway."""

    def begin_work(self, options: Any, rows: int, using: str) -> None:
        """Raise ``BecomesTask`` if a call that is about to begin its work goes on as a task."""

    def open(self, begun: BecomesTask, tool: str, arguments: Mapping[str, Any], key: str, digest: str) -> Any:
        """Keep the call as a task; return its result, or a coroutine function that waits for the result.

        ``key`` is the digest of an idempotency key, "" for none, and ``digest`` that of the arguments.
        """

    def repeated(self, key: str, digest: str) -> Any:
        """Return what :meth:`open` has returned for a call with this idempotency key, None for a call that is new."""

    def get(self, task_id: str) -> Mapping[str, Any]:
        """Return how a task stands."""

    def update(self, task_id: str, responses: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Take the client's answers to the questions of a task, by key."""

    def cancel(self, task_id: str) -> Mapping[str, Any]:
        """Cancel a task, if it has not ended."""

    def told(self, task_id: str) -> ToolResult:
        """Return how a task stands for a client that knows of no tasks: its result once there is one."""


class CurrentTask(Protocol):
    """The task that a worker runs (``request.mcp.task``; None for a call in its request)."""

    def begin_work(self) -> None:
        """Note that the work of the call begins."""

    def run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of ``work``; if that is one transaction, the task ends in it."""

    async def run_async(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Return the result of ``work``, on the event loop."""
