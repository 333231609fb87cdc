"""The sign of life of a worker that runs a task: a thread beside the work."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from typing import Any, Final

from django.db import Error as DatabaseUnavailable
from django.db import close_old_connections, connections

from ..context.databases import stop_query
from .stored_tasks import StoredTask

logger = logging.getLogger("mcp_django")

# Seconds between two looks at whether there is progress to store.
LOOK_EVERY: Final = 1.0
# Maximum seconds to wait until the database has received a cancel request.
CANCEL_TIMEOUT: Final = 2.0


class Heartbeat:
    """Renews the lease of a running task, stores its progress, and stops its work when that has to end.

    That is when the task was cancelled or is another worker's by now, when it takes too long, and when its caller may
    no longer do it: ``refusal()`` then says why. ``stop()`` is called once, from the thread of the heartbeat; the
    queries that the thread of the work has running are interrupted too.
    """

    def __init__(self, task: StoredTask, refusal: Callable[[], str], stop: Callable[[], None]) -> None:
        self.task = task
        self.refusal = refusal
        self.stop = stop
        self.progress: dict[str, Any] = {}
        self.connections = connections.all()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="mcp-heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.rest()
        # A query that is being interrupted must not be the next one of this connection.
        self._thread.join(CANCEL_TIMEOUT)

    def rest(self) -> None:
        """Stop nothing any more: the work is over, and its end is being stored."""
        self._is_over.set()

    def tell(self, progress: float, total: float | None, message: str) -> None:
        """Store this progress with the next sign of life. What is no number that all databases store is left out, so
        that it does not keep the lease from being renewed."""
        self.progress = {"progress": _number(progress), "total": _number(total), "message": message}

    def _beat(self) -> None:
        began = beat = time.monotonic()
        try:
            while not self._is_over.wait(LOOK_EVERY):
                now = time.monotonic()
                if now - began > self.task.row.timeout:
                    self._end(self.task.stop_late)
                    return
                if not self.progress and now - beat < self.task.HEARTBEAT:
                    continue
                is_due = now - beat >= self.task.HEARTBEAT
                has_it = self._renewed() and (not is_due or self._is_permitted())
                if self._is_over.is_set():
                    return
                if not has_it:
                    self._end(None)
                    return
                beat = now if is_due else beat
        finally:
            connections.close_all()

    def _renewed(self) -> bool:
        """Return whether the worker still has the task; True if the database cannot say."""
        progress, self.progress = self.progress, {}
        try:
            return self.task.renew(**progress)
        except DatabaseUnavailable as error:
            # SQLite lets nobody write while the work itself writes: nobody can take the task then.
            logger.debug("The lease of a task could not be renewed: %s", error)
            # A connection that broke is a new one next time.
            close_old_connections()
            return True

    def _is_permitted(self) -> bool:
        try:
            told = self.refusal()
        except Exception as error:
            # The work goes on until that can be said.
            logger.warning("Whether the caller of a task may go on could not be asked", exc_info=error)
            return True
        if told:
            self.task.refuse(told)
        return not told

    def _end(self, end: Callable[[], object] | None) -> None:
        if end is not None:
            with suppress(DatabaseUnavailable):
                end()
        self.stop()
        while not self._is_over.wait(0.1):
            for connection in self.connections:
                with suppress(Exception):
                    stop_query(connection, CANCEL_TIMEOUT)


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if isfinite(found) else None
