"""What the parts that make a call ask about tasks."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.context.request import MCPContext
from mcp_django.context.task_desk import BecomesTask

DECLARED = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def context(version: str = "2026-07-28", capabilities: Any = None) -> MCPContext:
    return MCPContext(site=None, version=version, capabilities=capabilities or {})


def test_work_begins_in_its_request_where_there_are_no_tasks() -> None:
    context().begin_work("options", 10_000)


def test_the_desk_decides_whether_a_call_goes_on_as_a_task() -> None:
    asked = []

    def begin_work(*told: Any) -> None:
        asked.append(told)
        raise BecomesTask("options", "default")

    mcp = context()
    mcp.tasks = SimpleNamespace(begin_work=begin_work)  # type: ignore[assignment]
    with pytest.raises(BecomesTask) as raised:
        mcp.begin_work("options", 3, "default")
    assert asked == [("options", 3, "default")]
    assert raised.value.using == "default"
    assert not isinstance(raised.value, Exception)


def test_a_client_takes_tasks_if_the_request_itself_says_so() -> None:
    assert context(capabilities=DECLARED).takes_tasks


@pytest.mark.parametrize(
    "capabilities", [{}, {"extensions": {}}, {"extensions": []}, {"extensions": None}, {"tasks": {}}]
)
def test_other_clients_take_no_tasks(capabilities: Any) -> None:
    assert not context(capabilities=capabilities).takes_tasks


def test_older_revisions_have_no_tasks() -> None:
    assert not context("2025-11-25", DECLARED).takes_tasks
