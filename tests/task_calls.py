"""Calls that become tasks, which a test runs when it wants to: as workers would, and in its own thread."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django.models import Task
from mcp_django.protocol.eras import client_meta
from mcp_django.tasks import run_task
from mcp_django.tasks.stored_tasks import StoredTask
from mcp_django.testing import MCPClient
from tests.confirming import tool_of

EXTENSION = "io.modelcontextprotocol/tasks"
TAKES_TASKS = {"extensions": {EXTENSION: {}}}
ASKS = {**TAKES_TASKS, "elicitation": {"form": {}}}


METHODS = (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}}))


class TaskClient(MCPClient):
    """A client that takes tasks, and polls only when it is told to."""

    def __init__(self, user: Any = None, *, capabilities: Any = None, **options: Any) -> None:
        super().__init__(user, capabilities=capabilities or TAKES_TASKS, **options)

    def begin(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and return the id of the task that the call has become."""
        made = self.request("tools/call", name=tool, arguments=arguments)
        assert made["resultType"] == "task", made
        task_id: str = made["taskId"]
        return task_id

    def poll(self, task_id: str) -> dict[str, Any]:
        """Return how a task stands."""
        return self.request("tasks/get", taskId=task_id)

    def end(self, task_id: str) -> dict[str, Any]:
        """Let a worker run a task, and return the result that its client then gets."""
        run_task(task_id)
        found = self.poll(task_id)
        assert found["status"] == "completed", found
        result: dict[str, Any] = found["result"]
        return result


class WaitingClient(MCPClient):
    """A client that knows of no tasks, whose calls become tasks all the same, as outside of a project's tests."""

    def __init__(self, user: Any = None, **options: Any) -> None:
        super().__init__(user, **options)
        self.makes_tasks = True


@contextmanager
def noting() -> Iterator[list[Any]]:
    """Offer a tool ``note`` that can be a task; give the requests of its runs."""
    done: list[Any] = []

    def note(request: Any, label: str = "") -> str:
        """Note."""
        done.append(request)
        return f"noted {label}"

    with tool_of(note, destructive=False, task=True):
        yield done


@contextmanager
def asking() -> Iterator[list[str]]:
    """Offer a tool ``name_it`` that can be a task, and asks on its way; give the names that it got."""
    named: list[str] = []

    def name_it(request: Any) -> str:
        """Name."""
        named.append(request.mcp.ask("Which name?", str, key="name"))
        return f"named {named[-1]}"

    with tool_of(name_it, destructive=False, task=True):
        yield named


def put_aside(task_id: str) -> None:
    """Give a task to no worker: what a test names as ``TASK_BACKEND`` that claims tasks itself."""


def text_of(result: dict[str, Any]) -> str:
    """Return the text of the first block of a tool's result."""
    text: str = result["content"][0]["text"]
    return text


def row_of(task_id: str) -> Task:
    return Task.objects.get(pk=task_id)


def later(task_id: str, **moved: int) -> None:
    """Let so many milliseconds pass for columns of a task that hold times."""
    row = row_of(task_id)
    Task.objects.filter(pk=task_id).update(**{name: getattr(row, name) - ms for name, ms in moved.items()})


def make_task(**columns: Any) -> StoredTask:
    """Store a task that waits for a worker."""
    given = {"tool": "tool", "timeout": 60, "call": "0" * 32, **columns}
    return StoredTask.make(kept={"tool": "tool"}, key=given.pop("key", ""), **given)


def is_unknown(client: MCPClient, task_id: Any, code: int = -32602) -> bool:
    """Return whether a client learns no more of an id than of one that nobody knows."""
    return codes_of(client, task_id) == {code}


def codes_of(client: MCPClient, task_id: Any) -> set[int]:
    """Return the codes of the errors that a client gets for an id, which it does not repeat in a header."""
    codes = set()
    for method, more in METHODS:
        meta = client_meta(client.name, client.version, client.capabilities)
        params = {"taskId": task_id, **more, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = {"MCP-Protocol-Version": client.version, "Mcp-Method": method}
        codes.add(json.loads(client.post(body, **headers).content)["error"]["code"])
    return codes
