"""What runs tasks, as the setting names it."""

import logging
import sys
from collections.abc import Iterator

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django.tasks import engines
from mcp_django.tasks.engines import Engine, engine, makes_tasks, without_tasks
from mcp_django.tasks.own_threads import own_threads
from tests.configured import configured

ENQUEUED: list[str] = []
NO_FUNCTION = "enqueue"


def enqueue(task_id: str) -> None:
    """What a project names."""
    ENQUEUED.append(task_id)


async def enqueue_later(task_id: str) -> None: ...


def fail(task_id: str) -> None:
    raise ConnectionRefusedError(111, "Connection refused")


@pytest.fixture(autouse=True)
def nothing_is_enqueued() -> Iterator[None]:
    ENQUEUED.clear()
    yield
    engine.cache_clear()


def test_without_a_setting_the_threads_of_this_process_run_tasks() -> None:
    assert engine() == Engine(own_threads.put)
    assert not engine().runs_inline


def test_a_function_of_the_project_gets_the_id_and_nothing_else() -> None:
    with configured(TASK_BACKEND=f"{__name__}.enqueue"):
        engine().hand_on("a1")
        assert not engine().runs_inline
    assert ENQUEUED == ["a1"]


def test_the_engine_is_kept_until_the_setting_changes() -> None:
    first = engine()
    assert engine() is first
    with configured(TASK_BACKEND=f"{__name__}.enqueue"):
        second = engine()
        assert second.enqueue is enqueue
        assert engine() is second
        with override_settings(TASKS={"default": {"BACKEND": "somewhere"}}):
            assert engine() is not second
    assert engine() == first


def test_a_failure_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mcp_django"):
        Engine(fail).hand_on("a1")
    told, where = caplog.records
    why = "ConnectionRefusedError: [Errno 111] Connection refused"
    assert told.getMessage() == f"The task a1 could not be handed on ({why}): the next poll tries again"
    assert (told.levelname, told.exc_info, where.levelname) == ("WARNING", None, "DEBUG")
    assert where.exc_info is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{__name__}.missing", r"which cannot be imported: .* does not define a \"missing\""),
        ("nowhere.enqueue", "which cannot be imported: No module named 'nowhere'"),
        (f"{__name__}.NO_FUNCTION", "which is no function that takes the id of a task"),
        (f"{__name__}.enqueue_later", "which is no function that takes the id of a task"),
        ("defaults", r"which TASKS does not have\. Did you mean 'default'\?"),
        ("elsewhere", r"which TASKS does not have\.$"),
    ],
)
def test_what_cannot_run_tasks_is_refused(name: str, text: str) -> None:
    with configured(TASK_BACKEND=name):
        for _ in range(2):
            with pytest.raises(ImproperlyConfigured, match=f"^TASK_BACKEND is '{name}', {text}"):
                engine()


def test_a_dotted_name_that_is_an_alias_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(engines, "_engine_of_backend", lambda alias: made.append(alias) or Engine(fail))
    with configured(TASK_BACKEND="eu.tasks"), override_settings(TASKS={"eu.tasks": {"BACKEND": "somewhere"}}):
        assert engine() == Engine(fail)
    assert made == ["eu.tasks"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Django 5.2, where the framework is a package."""
    monkeypatch.setitem(sys.modules, "django.tasks", None)
    monkeypatch.setitem(sys.modules, "django_tasks", None)
    monkeypatch.delitem(sys.modules, "mcp_django.tasks.django_task", raising=False)
    with configured(TASK_BACKEND="default"), pytest.raises(ImproperlyConfigured) as caught:
        engine()
    assert str(caught.value).endswith("Django has tasks since 6.0, and django-tasks is not installed.")


def test_calls_become_tasks_unless_their_engine_or_block_runs_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert makes_tasks()
    with without_tasks():
        with without_tasks():
            assert not makes_tasks()
        assert not makes_tasks()
    assert makes_tasks()
    monkeypatch.setattr(engines, "engine", lambda: Engine(enqueue, runs_inline=True))
    assert not makes_tasks()
