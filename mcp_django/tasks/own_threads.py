"""Daemon threads of this process that run tasks, where a project names nothing else that does.

They start with the first id and end with the last one. Nothing waits for them when the process ends: what they had not
done by then is handed on again by the next poll.
"""

import logging
import os
import threading
from collections import OrderedDict
from typing import Final

from django.db import connections
from django.utils.module_loading import import_string

logger = logging.getLogger("mcp_django")

# Threads that run tasks in one process.
THREADS: Final = 4
# What is called with the id of each task. It is imported when there is one, because it imports most of the app.
RUN: Final = "mcp_django.tasks.run_task"


class OwnThreads:
    """A queue of ids of tasks, and as many threads as there are ids for them, up to ``THREADS``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._running = 0

    def put(self, task_id: str) -> None:
        """Run a task as soon as a thread has time. An id that waits already waits once.

        Raises:
            RuntimeError: no thread can be started, such as when the interpreter ends.
        """
        with self._lock:
            self._waiting[task_id] = None
            if self._running >= THREADS:
                return
            self._running += 1
        try:
            threading.Thread(target=self._work, name="mcp-tasks", daemon=True).start()
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _next(self) -> str | None:
        """Take the id that has waited longest; without one the calling thread counts as ended."""
        with self._lock:
            if self._waiting:
                return self._waiting.popitem(last=False)[0]
            self._running -= 1
            return None

    def _work(self) -> None:
        while (task_id := self._next()) is not None:
            try:
                import_string(RUN)(task_id)
            except BaseException:
                # Catch even SystemExit, which a hook of the project may raise: other tasks wait for this thread.
                logger.exception("The task %s ended with an error", task_id)
            finally:
                connections.close_all()


own_threads: Final = OwnThreads()
# A fork has none of the threads, and what waited is run by the process that it waited in.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: own_threads.__init__())  # type: ignore[misc]
