"""System checks of what runs calls that go on as tasks."""

from typing import Any

import pytest

from mcp_django import MCPSite, ModelExposure, action
from mcp_django.checks.settings import CHECKS
from mcp_django.checks.tasks import check_engine
from mcp_django.tasks.engines import Engine
from tests.configured import configured
from tests.testapp.models import Book


def enqueue(task_id: str) -> None: ...


def found() -> list[str]:
    return [f"{message.id} {message.msg} {message.hint}" for message in check_engine()]


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a backend without workers."""
    monkeypatch.setattr("mcp_django.checks.tasks.engine", lambda: Engine(enqueue, runs_inline=True))


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Declare a tool and two actions of the only site, with what they say of tasks."""

    def register(of_tool: Any = None, of_action: Any = None, of_admin_action: Any = None) -> None:
        @action
        def withdraw(self: Any, request: Any, queryset: Any) -> None: ...

        def reprint(self: Any, request: Any, queryset: Any) -> None: ...

        def report(request: Any) -> str:
            """Report."""
            return ""

        withdraw.mcp_task = of_action  # type: ignore[attr-defined]
        reprint.mcp_action = withdraw.mcp_action  # type: ignore[attr-defined]
        reprint.mcp_task = of_admin_action  # type: ignore[attr-defined]
        options = {"fields": ["title"], "actions": ["withdraw", "reprint"], "withdraw": withdraw, "reprint": reprint}
        site = MCPSite()
        site.register(Book, type("Books", (ModelExposure,), options))
        site.add_tool(report)
        [tool] = site.function_tools()
        tool.task = of_tool
        monkeypatch.setattr("mcp_django.checks.tasks.all_sites", lambda: [site])

    return register


def test_what_runs_tasks_passes(declare: Any) -> None:
    declare(True, True, True)
    assert found() == []
    with configured(TASK_BACKEND=f"{__name__}.enqueue"):
        assert found() == []
    assert check_engine.__name__ in {getattr(check, "__name__", "") for check in CHECKS}


@pytest.mark.parametrize("name", ["somewhere", f"{__name__}.missing"])
def test_what_cannot_run_tasks_is_found(name: str) -> None:
    with configured(TASK_BACKEND=name):
        [text] = found()
    assert text.startswith(f"mcp_django.E175 TASK_BACKEND is {name!r}, which ")
    assert "pip install django-tasks" in text


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({"of_tool": True}, "report"),
        ({"of_action": True}, "testapp.book.withdraw"),
        ({"of_admin_action": True}, "testapp.book.reprint"),
        ({"of_tool": True, "of_action": True, "of_admin_action": True}, "report and 2 more"),
    ],
)
@pytest.mark.usefixtures("inline")
def test_calls_that_would_run_within_their_request_are_found(declared: Any, named: str, declare: Any) -> None:
    declare(**declared)
    with configured(TASK_BACKEND="default"):
        [text] = found()
    expected = f"W176 TASK_BACKEND is 'default', a backend without workers: calls of {named} run inside their requests."
    assert text.startswith(f"mcp_django.{expected}")


@pytest.mark.usefixtures("inline")
def test_where_nothing_declares_tasks_a_backend_without_workers_passes(declare: Any) -> None:
    declare()
    assert found() == []
