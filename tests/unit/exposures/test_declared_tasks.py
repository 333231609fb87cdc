"""Which function tools and actions may go on as tasks, and how."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

import mcp_django as mcp
from mcp_django.emulation.admin_actions import AdminAction
from mcp_django.exposures.declared_tasks import TaskOptions
from tests.testapp.models import Author


@pytest.mark.parametrize("declared", [None, False])
def test_what_declares_nothing_is_no_task(declared: Any) -> None:
    assert TaskOptions.read(declared) is None


def test_true_declares_a_task_with_the_usual_limit() -> None:
    assert TaskOptions.read(True) == mcp.task() == TaskOptions(timeout=None, atomic=False, required=False)


def test_options_are_read_as_they_are() -> None:
    options = mcp.task(timeout=7200, atomic=True, required=True)
    assert TaskOptions.read(options) is options


@pytest.mark.parametrize("declared", [1, 0, "yes", 3600, {"timeout": 5}, mcp.task])
def test_anything_else_is_refused_where_it_is_declared(declared: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="must be True, False or mcp"):
        TaskOptions.read(declared)


@pytest.mark.parametrize("seconds", [0, -1, True, "60", float("inf"), float("nan")])
def test_a_limit_is_a_number_of_seconds_above_zero(seconds: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="seconds above 0"):
        mcp.task(timeout=seconds)


def test_an_action_declares_its_task_by_the_decorator() -> None:
    @mcp.action(task=mcp.task(timeout=5))
    def recount(self: Any, request: Any, queryset: Any) -> None: ...

    assert recount.mcp_action.task == TaskOptions(timeout=5)


def test_an_action_that_manages_its_own_transactions_has_no_atomic_task() -> None:
    with pytest.raises(ImproperlyConfigured, match="atomic=False"):

        @mcp.action(task=mcp.task(atomic=True), atomic=False)
        def recount(self: Any, request: Any, queryset: Any) -> None: ...


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(
    ("declared", "found"),
    [(True, TaskOptions()), (mcp.task(timeout=5), TaskOptions(timeout=5)), (False, None), ("yes", None)],
)
def test_an_action_of_an_admin_declares_its_task_by_an_attribute(atomic: bool, declared: Any, found: Any) -> None:
    def recount(modeladmin: Any, request: Any, queryset: Any) -> None: ...

    recount.mcp_task = declared  # type: ignore[attr-defined]
    recount.mcp_atomic = atomic  # type: ignore[attr-defined]
    exposure = mcp.site.exposures[Author]
    assert AdminAction(exposure, "recount", recount, "").options.task == found
