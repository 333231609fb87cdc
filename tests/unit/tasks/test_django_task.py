"""Tasks by way of Django's framework, or the package that has it on Django 5.2."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils.module_loading import import_string

from mcp_django.tasks.engines import engine
from mcp_django.tasks.own_threads import RUN
from tests.configured import configured

FRAMEWORK = "django.tasks" if find_spec("django.tasks") else "django_tasks"
PACKAGES = [name for name in ("django.tasks", "django_tasks") if find_spec(name)]
ENQUEUED: list[tuple[Any, ...]] = []
Dummy: Any = import_string(f"{FRAMEWORK}.backends.dummy.DummyBackend")
Base: Any = import_string(f"{FRAMEWORK}.backends.base.BaseTaskBackend")


class Recording(Base):
    """A backend with workers, as others write it."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> None:
        ENQUEUED.append((self.alias, task.queue_name, task.module_path, args, kwargs))


class OwnDummy(Dummy):
    """A backend without workers that a project has written."""


@pytest.fixture(autouse=True)
def nothing_is_enqueued() -> Iterator[None]:
    ENQUEUED.clear()
    yield
    engine.cache_clear()


def backend(path: str = f"{__name__}.Recording", **options: Any) -> Any:
    """Settings with a backend named tasks."""
    return override_settings(TASKS={"tasks": {"BACKEND": path, **options}})


@pytest.mark.parametrize(
    ("options", "queue"),
    [
        ({}, "default"),
        ({"QUEUES": []}, "default"),
        ({"QUEUES": ["slow", "default"]}, "default"),
        ({"QUEUES": ["slow", "fast"]}, "fast"),
    ],
)
def test_a_backend_gets_the_id_and_nothing_else(options: Any, queue: str) -> None:
    with backend(**options), configured(TASK_BACKEND="tasks"):
        assert not engine().runs_inline
        engine().hand_on("a1")
    assert [("tasks", queue, "mcp_django.tasks.django_task.run", ("a1",), {})] == ENQUEUED


def test_a_worker_finds_a_task_at_its_path_that_runs_the_tasks_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(RUN, ran.append, raising=False)
    with backend(), configured(TASK_BACKEND="tasks"):
        engine().hand_on("a1")
        [(_, _, path, args, kwargs)] = ENQUEUED
        found = import_string(path)
        assert isinstance(found, import_string(f"{FRAMEWORK}.base.Task"))
        assert found.call(*args, **kwargs) is None
    assert ran == ["a1"]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", ["immediate.ImmediateBackend", "dummy.DummyBackend"])
def test_backends_without_workers_run_inline(package: str, name: str) -> None:
    with backend(f"{package}.backends.{name}"), configured(TASK_BACKEND="tasks"):
        assert engine().runs_inline


def test_so_do_those_that_are_derived_of_them() -> None:
    with backend(f"{__name__}.OwnDummy"), configured(TASK_BACKEND="tasks"):
        assert engine().runs_inline


def test_without_the_setting_the_only_backend_is_one_of_these() -> None:
    with configured(TASK_BACKEND="default"):
        assert engine().runs_inline


@pytest.mark.parametrize("path", ["nowhere.Backend", "django_tasks_db.Missing"])
def test_a_backend_that_cannot_be_made_is_refused(path: str) -> None:
    with (
        backend(path),
        configured(TASK_BACKEND="tasks"),
        pytest.raises(ImproperlyConfigured, match=r"^TASK_BACKEND is 'tasks', which cannot be used: Could not find"),
    ):
        engine()
