"""The task by which backends of Django's task framework run tasks: their workers import it by its path.

Only engines and workers of such a backend import this module. Django 5.2 has the framework as a package, django-tasks.
"""

from typing import Any

from django.utils.module_loading import import_string

from ..conf import settings
from .own_threads import RUN

try:
    from django.tasks import task, task_backends
except ImportError:
    from django_tasks import task, task_backends  # type: ignore[no-redef,assignment]


def backend_of(alias: str) -> Any:
    """Return the backend with an alias of ``TASKS``; raises the framework's error where it cannot be made."""
    return task_backends[alias]


def queue_of(alias: str) -> str:
    """Return the queue of a backend that tasks go to: ``default``, or else the first by its name."""
    queues = backend_of(alias).queues
    return "default" if not queues or "default" in queues else min(queues)


@task(backend=settings.TASK_BACKEND, queue_name=queue_of(settings.TASK_BACKEND))
def run(task_id: str) -> None:
    """Run a task."""
    import_string(RUN)(task_id)


def task_for(alias: str) -> Any:
    """Return the task as a backend takes it."""
    return run.using(backend=alias, queue_name=queue_of(alias))
