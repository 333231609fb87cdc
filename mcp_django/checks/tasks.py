"""System checks of what runs calls that go on as tasks."""

from collections.abc import Iterator
from typing import Any, Final

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from ..conf import settings
from ..exposures.model_exposure import ModelExposure
from ..tasks.engines import engine
from .check_rules import Check, check, problem
from .declarations import all_sites

CHECKS: Final[list[Check]] = []


@check(CHECKS)
def check_engine() -> Iterator[CheckMessage]:
    try:
        found = engine()
    except ImproperlyConfigured as error:
        hint = (
            'Name a backend of TASKS, or a function enqueue(task_id) such as "shop.celery.enqueue"; without the '
            "setting, threads of the web server's processes run tasks. On Django 5.2, TASKS needs "
            "pip install django-tasks."
        )
        yield problem("E175", str(error), hint)
        return
    if found.runs_inline and (names := list(_with_tasks())):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        text = f"TASK_BACKEND is {settings.TASK_BACKEND!r}, a backend without workers: calls of {names[0]}{more} run "
        yield problem("W176", f"{text}inside their requests.", "Name a backend with workers, or leave the setting out.")


def _with_tasks() -> Iterator[str]:
    """Yield the tools and actions whose calls may go on as tasks, as the project declares them."""
    for site in all_sites():
        yield from (tool.name for tool in site.function_tools() if getattr(tool, "task", None))
        for exposure in site.exposures.values():
            names = exposure.options.action_names()
            yield from (f"{exposure.label}.{name}" for name in names if _task_of(exposure, name))


def _task_of(exposure: ModelExposure, name: str) -> Any:
    """Return what an action declares, by the decorator or, in an admin, by an attribute."""
    function = getattr(exposure, name, None) or getattr(exposure.model_admin, name, None)
    return getattr(function, "mcp_task", getattr(getattr(function, "mcp_action", None), "task", None))
