"""`tasks/get`, `tasks/update` and `tasks/cancel`: who is let to the caller's tasks, and with what."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from mcp_django import site
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.context.task_desk import TaskDesk
from mcp_django.protocol.errors import InvalidParams, MethodNotFound, MissingClientCapability
from mcp_django.protocol.tasks import METHODS as TASK_METHODS
from mcp_django.server.methods import METHODS
from mcp_django.server.methods.handler_interface import Listen
from mcp_django.server.methods.lifecycle_and_subscriptions import capabilities, listen

pytestmark = pytest.mark.one_django

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED = {"extensions": {EXTENSION: {}}}
ANSWERS = {"a": {"action": "decline"}}
PARAMS = {"taskId": "t1", "inputResponses": ANSWERS}
NAMED = {"notifications": {"taskIds": ["t1"]}}


class Desk:
    """The tasks of a caller who has one: "t1"."""

    makes_tasks = True

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def get(self, task_id: str) -> Mapping[str, Any]:
        if task_id != "t1":
            raise InvalidParams("Task not found")
        return {"taskId": task_id}

    def update(self, task_id: str, responses: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((task_id, responses))
        return {}

    def cancel(self, task_id: str) -> Mapping[str, Any]:
        self.asked.append(task_id)
        return {}


def request_with(desk: Desk | None, declared: Mapping[str, Any] = DECLARED, version: str = "2026-07-28") -> MCPRequest:
    request = MCPRequest()
    tasks = cast(TaskDesk | None, desk)
    scopes = frozenset({"mcp:read"})
    request.mcp = MCPContext(site=site, version=version, capabilities=declared, tasks=tasks, scopes=scopes)
    return request


def handler(method: str) -> Callable[..., Any]:
    return METHODS[method]


def test_the_desk_is_asked_with_what_came() -> None:
    desk = Desk()
    request = request_with(desk)
    assert handler("tasks/get")(request, PARAMS) == {"taskId": "t1"}
    assert handler("tasks/update")(request, PARAMS) == handler("tasks/cancel")(request, PARAMS) == {}
    assert desk.asked == [("t1", ANSWERS), "t1"]


@pytest.mark.parametrize("method", sorted(TASK_METHODS))
def test_where_there_are_no_tasks_there_is_no_method(method: str) -> None:
    with pytest.raises(MethodNotFound):
        handler(method)(request_with(None, {}), PARAMS)


@pytest.mark.parametrize("method", sorted(TASK_METHODS))
@pytest.mark.parametrize("declared", [{}, {"extensions": {}}, {"tasks": {"requests": {"tools": {"call": {}}}}}])
@pytest.mark.parametrize("task_id", ["t1", "unknown"])
def test_a_client_that_does_not_declare_is_told_so_before_the_task_is_looked_for(
    method: str, declared: Mapping[str, Any], task_id: str
) -> None:
    desk = Desk()
    with pytest.raises(MissingClientCapability) as refused:
        handler(method)(request_with(desk, declared), {**PARAMS, "taskId": task_id})
    assert refused.value.data == {"requiredCapabilities": DECLARED}
    assert desk.asked == []


@pytest.mark.parametrize("declared", [{}, {"tasks": {}}])
def test_who_wants_to_be_told_of_tasks_declares_them_too(declared: Mapping[str, Any]) -> None:
    with pytest.raises(MissingClientCapability) as refused:
        listen(request_with(Desk(), declared), NAMED)
    assert refused.value.data == {"requiredCapabilities": DECLARED}


@pytest.mark.parametrize("desk", [Desk(), None])
def test_nobody_is_told_of_tasks(desk: Desk | None) -> None:
    assert listen(request_with(desk), NAMED) == Listen(frozenset(), ())


def test_tasks_are_announced_where_calls_become_some() -> None:
    desk = Desk()
    announced = capabilities(request_with(desk))
    assert announced["extensions"] == {EXTENSION: {}}
    assert "tasks" not in announced
    desk.makes_tasks = False
    assert "extensions" not in capabilities(request_with(desk))
    assert "extensions" not in capabilities(request_with(None))
