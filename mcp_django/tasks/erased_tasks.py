"""Erases one record from what is kept of tasks, for somebody who asks for it.

A task that names the record is deleted, with its arguments, answers and result. If it has not ended, its worker finds
at the next sign of life that it is gone, and stops. Contents that no known ``SECRET_KEY`` opens are left: no worker and
no client can read them either, and the daily command deletes them within days.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.db import router

from ..differences.erased_values import Record
from ..models import Task
from .stored_tasks import StoredTask

# Number of tasks that are read at a time, with all their contents.
READ_AT_ONCE: Final = 50


class TaskErasure:
    """Erases a record from all tasks.

    What a tool of the project is given may be the key of anything. So only the texts of the record find such a task,
    and its key finds those of calls that name a model.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.rows = Task.objects.using(router.db_for_write(Task)).order_by("pk")

    def found(self) -> Iterator[str]:
        """Yield the ids of the tasks that hold something of the record."""
        last = ""
        while batch := list(self.rows.filter(pk__gt=last)[:READ_AT_ONCE]):
            last = batch[-1].pk
            yield from (row.pk for row in batch if self._is_in(row))

    def _is_in(self, row: Task) -> bool:
        task = StoredTask(row, row.updated)
        kept: Any = task.kept or {}
        told = [row.message, row.outcome, kept.get("arguments"), kept.get("answers"), task.asked, task.result]
        return self.record.is_told(told, [row.model.lower()])

    def run(self) -> int:
        """Delete these tasks, and return their number."""
        ids = list(self.found())
        for task_id in ids:
            self.rows.filter(pk=task_id).delete()
        return len(ids)
