"""The extension for tasks: calls whose client is given a task in place of the result (ext-tasks, 2026-07-28)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .client_requests import check_responses
from .errors import InvalidParams
from .messages import NUL

EXTENSION: Final = "io.modelcontextprotocol/tasks"
# Its methods. Only the newest revision has extensions.
METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
# What a client has to declare in each request that has to do with tasks.
REQUIRED: Final[Mapping[str, Any]] = {"extensions": {EXTENSION: {}}}
# Maximum characters of an id that is looked for, and of ids that one filter names.
MAX_TASK_ID: Final = 256
MAX_TASK_IDS: Final = 100
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_task_id(value: Any) -> bool:
    """Return whether a value could be the id of a task."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TASK_ID and NUL not in value


def check_params(method: str, params: Mapping[str, Any]) -> None:
    """Validate the params of one of the extension's methods: its schema is not among those of the revision.

    The answers of ``tasks/update`` are objects here; whether one fits its question is known where the question is.

    Raises:
        InvalidParams: the params are not valid for the method.
    """
    if not is_task_id(params.get("taskId")):
        raise InvalidParams("Invalid params: taskId must be the id of a task")
    if method == "tasks/update":
        responses: Any = params.get("inputResponses")
        check_responses(responses)
        if not all(isinstance(response, dict) for response in responses.values()):
            raise InvalidParams("Invalid params: inputResponses must be an object of objects")


@dataclass(frozen=True, slots=True)
class DetailedTask:
    """A task on the wire (ext-tasks, Tasks).

    ``status`` is "working", "input_required", "completed", "failed" or "cancelled". ``created`` and ``updated`` are
    milliseconds since 1970, ``ttl`` and ``poll_interval`` milliseconds. ``message`` says how far it is, or why it ended
    as it did; "" for nothing.
    """

    id: str
    status: str
    created: int
    updated: int
    ttl: int
    poll_interval: int
    message: str = ""

    def made(self) -> dict[str, Any]:
        """Return the result of a call that became this task (ext-tasks, Task Creation)."""
        return {"resultType": "task", **self._members()}

    def detailed(
        self,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the result of ``tasks/get`` (ext-tasks, Task Polling), with what belongs to the status: the result, or
        the JSON-RPC error, or the questions by key."""
        wire = self._members()
        if result is not None:
            # It is the result that the call would have had, which has a type in the one revision that has tasks.
            wire["result"] = {"resultType": "complete", **result}
        if error is not None:
            wire["error"] = error
        if asked is not None:
            wire["inputRequests"] = asked
        return wire

    def _members(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": _iso(self.created),
            "lastUpdatedAt": _iso(self.updated),
            "ttlMs": self.ttl,
            "pollIntervalMs": self.poll_interval,
        }
        if self.message:
            wire["statusMessage"] = self.message
        return wire


def _iso(milliseconds: int) -> str:
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
