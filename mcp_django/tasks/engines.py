"""Engines: how the id of a task comes to what runs it. The setting ``TASK_BACKEND`` names one.

What runs a task is a thread of this process, a worker of Django's task framework, or whatever a function of the project
hands the id to. Each calls ``mcp_django.tasks.run_task`` with the id, and gets nothing else of the task.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from ..conf import settings
from ..problems import nearest
from .own_threads import own_threads

logger = logging.getLogger("mcp_django")

# Modules of backends that run a task where it is enqueued, or never.
INLINE: Final = frozenset(
    f"{package}.backends.{name}" for package in ("django.tasks", "django_tasks") for name in ("immediate", "dummy")
)


@dataclass(frozen=True)
class Engine:
    """What runs tasks: ``enqueue`` takes the id of one. If it ``runs_inline``, no call becomes a task."""

    enqueue: Callable[[str], object]
    runs_inline: bool = False

    def hand_on(self, task_id: str) -> None:
        """Hand on a task, to be run soon. A failure, such as a broker that is down, is logged and nothing else: polls
        hand on again what nobody has claimed."""
        try:
            self.enqueue(task_id)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            logger.warning("The task %s could not be handed on (%s): the next poll tries again", task_id, why)
            logger.debug("The task %s could not be handed on", task_id, exc_info=error)


# Whether calls of this context run in their requests, whatever the setting says.
_is_off: Final[ContextVar[bool]] = ContextVar("mcp_django_without_tasks", default=False)


@contextmanager
def without_tasks() -> Iterator[None]:
    """Let no call in the block become a task, such as in a test that is one transaction."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def makes_tasks() -> bool:
    """Return whether calls can become tasks; raise as :func:`engine` does."""
    return not _is_off.get() and not engine().runs_inline


@cache
def engine() -> Engine:
    """Return the engine that the setting ``TASK_BACKEND`` names.

    Raises:
        ImproperlyConfigured: there is no such engine, or it cannot be made.
    """
    name = settings.TASK_BACKEND
    if name is None:
        return Engine(own_threads.put)
    aliases = getattr(django_settings, "TASKS", None) or {"default": {}}
    if name in aliases:
        return _engine_of_backend(name)
    if "." in name:
        return Engine(_function(name))
    raise ImproperlyConfigured(f"TASK_BACKEND is {name!r}, which TASKS does not have.{nearest(name, aliases)}")


def _engine_of_backend(alias: str) -> Engine:
    try:
        from .django_task import backend_of, task_for  # only with such a backend, which may be a package of its own

        backend = backend_of(alias)
        return Engine(task_for(alias).enqueue, runs_inline=runs_inline(backend))
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise ImproperlyConfigured(f"TASK_BACKEND is {alias!r}, which cannot be used: {error}") from error
        text = f"TASK_BACKEND is {alias!r}, but Django has tasks since 6.0, and django-tasks is not installed."
        raise ImproperlyConfigured(text) from error
    except Exception as error:
        raise ImproperlyConfigured(f"TASK_BACKEND is {alias!r}, which cannot be used: {error}") from error


def runs_inline(backend: Any) -> bool:
    """Return whether a backend of the framework runs tasks where they are enqueued, or never."""
    return any(base.__module__ in INLINE for base in type(backend).__mro__)


def _function(name: str) -> Callable[[str], object]:
    try:
        found: Callable[[str], object] = import_string(name)
    except ImportError as error:
        raise ImproperlyConfigured(f"TASK_BACKEND is {name!r}, which cannot be imported: {error}") from error
    if not callable(found) or iscoroutinefunction(found):
        raise ImproperlyConfigured(f"TASK_BACKEND is {name!r}, which is no function that takes the id of a task.")
    return found


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in ("MCP_DJANGO", "TASKS"):
        engine.cache_clear()


setting_changed.connect(_forget)
