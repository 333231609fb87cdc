"""Tasks as they are stored: each change of state is one UPDATE with a condition, so that of several at a time one wins.

A worker has a task by a lease, which ends by the database's clock unless the worker renews it. Each worker that takes
a task raises its ``attempt``, and ends it only under its own: one that was frozen, and comes back late, changes
nothing. No process watches over tasks: a poll looks after the task that it asks for, and the daily command after all.

Reads and writes go to the database for writes, because a replica may be late.
"""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import orjson
from django.db import Error as DatabaseUnavailable
from django.db import IntegrityError, router, transaction
from django.db.models import BigIntegerField, F, Q, QuerySet, Value

from ..context.database_errors import Trouble
from ..context.databases import writing
from ..context.signing import StoredSeal
from ..models import Task
from ..orm.database_writes import refusals
from ..orm.own_tables import fitting_texts, text_lengths
from ..orm.query_limits import write_transaction
from .database_clock import DatabaseClock
from .engines import engine

State = Task.State
# Milliseconds for which a worker has a task before it must renew the lease.
LEASE: Final = 15_000
# Milliseconds after which a poll hands on again what no worker has taken: at first, and at most.
HAND_ON_AFTER: Final = 10_000
LONGEST_HAND_ON: Final = 300_000
# Seconds to wait for a worker that has the row of its task.
LOCK_WAIT: Final = 1.0
# Milliseconds for which the result of a task can be read, counted from when the task was made.
TTL: Final = 24 * 3600 * 1000
# How often work that can be done again is begun anew after its worker was lost.
MAX_LAPSES: Final = 2
# Milliseconds between two polls: at first, and at most. In between they are a tenth of the task's age.
SHORTEST_POLL: Final = 1_000
LONGEST_POLL: Final = 30_000
OPEN: Final = (State.WORKING.value, State.INPUT_REQUIRED.value)
LENGTHS: Final = text_lengths(Task)
# JSON-RPC: Internal error.
INTERNAL_ERROR: Final = -32603

LOST: Final = "The worker was lost that did this. It may have been done: look at the data before you do it again."
LOST_AGAIN: Final = "Each worker was lost that did this. Nothing was changed."
TOO_LONG: Final = "It took longer than {:g} s and was stopped. {}"
UNDONE: Final = "Nothing was changed."
UNSURE: Final = "It may have been done in part: look at the data."


class StoredTask:
    """One row of a task, and the time of the database when the row was read, in ms."""

    # The seconds from one sign of life of its worker to the next one.
    HEARTBEAT: ClassVar = 5.0

    def __init__(self, row: Task, now: int) -> None:
        self.row = row
        self.now = now
        # The id of the run in the log of calls, which its worker sets.
        self.run: str = row.run

    # Making and finding

    @staticmethod
    def rows() -> QuerySet[Task]:
        """Return all tasks."""
        return Task.objects.using(router.db_for_write(Task))

    @classmethod
    def make(cls, *, kept: Mapping[str, Any], key: str, **columns: Any) -> "StoredTask":
        """Insert a task that waits for a worker; return it, or the one that has its idempotency ``key`` already.

        ``kept`` is the call, a value for JSON; ``columns`` are others of the row.
        """
        using = router.db_for_write(Task)
        now: Any = DatabaseClock()
        task_id = secrets.token_hex(16)
        row = Task(
            id=task_id,
            key=key or None,
            created=now,
            updated=now,
            handed=now,
            expires=now + Value(TTL, output_field=BigIntegerField()),
            kept=_sealed("kept", task_id, kept),
            **fitting_columns(columns),
        )
        with refusals(), writing(using):
            try:
                with transaction.atomic(using=using):
                    row.save(using=using, force_insert=True)
            except IntegrityError:
                found = cls._read(Q(key=key)) if key else None
                if found is None:
                    raise
                return found
            made = cls._read(Q(pk=row.pk))
            assert made is not None
            made.hand_on()
        return made

    @staticmethod
    def by_id(task_id: str) -> Q:
        """Return the condition that a task has this id."""
        return Q(pk=task_id)

    @classmethod
    def find(cls, where: Q) -> "StoredTask | None":
        """Return the task that meets a condition, None if there is none, or its result can no longer be read."""
        found = cls._read(where)
        return None if found is None or found.row.expires <= found.now else found

    @classmethod
    def _read(cls, where: Q) -> "StoredTask | None":
        row = cls.rows().filter(where).annotate(now=DatabaseClock()).first()
        return None if row is None else cls(row, row.now)

    # What is in it

    @property
    def kept(self) -> Any:
        """The call, None if the task has ended or the call can no longer be opened."""
        return self._opened("kept")

    @property
    def asked(self) -> dict[str, Any]:
        """What the task asks: ``questions`` by key on the wire, ``given`` answers, the ``state`` of earlier ones."""
        return self._opened("asked") or {"questions": {}, "given": {}, "state": None, "used": []}

    @property
    def result(self) -> dict[str, Any]:
        """How it ended: ``result`` or ``error``, and what is needed to decide who may read it; {} before."""
        return self._opened("result") or {}

    def _opened(self, name: str) -> Any:
        sealed = getattr(self.row, name)
        data = _seal(name, self.row.pk).open(bytes(sealed)) if sealed else None
        return None if data is None else orjson.loads(data)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.row.state in OPEN

    @property
    def _waits(self) -> bool:
        """Whether it waits for a worker."""
        return self.row.state == State.WORKING.value and self.row.lease is None

    @property
    def repeatable(self) -> bool:
        """Whether its work can be begun anew: it leaves nothing behind, or may be done twice."""
        return self.row.atomic or self.row.idempotent

    @property
    def poll_interval(self) -> int:
        """Milliseconds until the next poll."""
        return min(LONGEST_POLL, max(SHORTEST_POLL, (self.now - self.row.created) // 10))

    # A worker has it

    @classmethod
    def claim(cls, task_id: str) -> "StoredTask | None":
        """Take a task that waits for a worker; None if it does not."""
        task = cls._read(Q(pk=task_id))
        if task is None or not task._waits:
            return None
        now: Any = DatabaseClock()
        waiting = task._mine().filter(lease=None, expires__gt=now)
        if not waiting.update(attempt=F("attempt") + 1, lease=now + LEASE, began=now, updated=now):
            return None
        # It is not read from the row: by then the task may be another worker's, if this one was frozen in between.
        task.row.attempt += 1
        return task

    def renew(self, **columns: Any) -> bool:
        """Renew the lease of the worker, and set other columns; return whether the worker still has the task."""
        now: Any = DatabaseClock()
        if columns:
            columns = {**fitting_columns(columns), "updated": now}
        return bool(self._mine().update(lease=now + LEASE, run=self.run, **columns))

    def finish(self, end: Mapping[str, Any], **kept: Any) -> bool:
        """End the task with ``{"result": ...}`` or ``{"error": ...}`` if its worker still has it; return whether.

        Inside a transaction, this is so at its end. ``kept`` is stored beside it.
        """
        state = State.FAILED if "error" in end else State.COMPLETED
        outcome = str(end["error"]["message"]) if "error" in end else ""
        result = self._sealed("result", {**end, **kept})
        return self._end(self._mine(), state, outcome, run=self.run, result=result)

    def ask(self, asked: Mapping[str, Any]) -> bool:
        """Let the task wait for answers, without a worker; return whether its worker still had it."""
        now: Any = DatabaseClock()
        columns = {"state": State.INPUT_REQUIRED.value, "asked": self._sealed("asked", asked)}
        return bool(self._mine().update(**columns, run=self.run, lease=None, updated=now))

    def _mine(self) -> QuerySet[Task]:
        """The task while this worker has it."""
        return self.rows().filter(pk=self.row.pk, state=State.WORKING.value, attempt=self.row.attempt)

    # Others change it

    def cancel(self, reason: str) -> bool:
        """Cancel the task, and return whether it had not ended. Its worker is told by its next sign of life."""
        rows = self.rows().filter(pk=self.row.pk, state__in=OPEN)
        return self._beside_worker(lambda: self._end(rows, State.CANCELLED, reason))

    def answer(self, responses: Mapping[str, Mapping[str, Any]]) -> None:
        """Take answers to questions of the task, by key; what is no open question is ignored. With the last one the
        task goes on. Raises ``ToolError`` if the database is busy."""
        with refusals(), write_transaction(self.rows().db):
            row = self.rows().select_for_update().filter(pk=self.row.pk, state=State.INPUT_REQUIRED.value).first()
            if row is None:
                return
            asked = StoredTask(row, self.now).asked
            taken = {key: answer for key, answer in responses.items() if key in asked["questions"]}
            if not taken:
                return
            for key, answer in taken.items():
                asked["given"][asked["questions"].pop(key)["key"]] = answer
            now: Any = DatabaseClock()
            columns: dict[str, Any] = {"asked": self._sealed("asked", asked), "updated": now}
            if not asked["questions"]:
                columns |= {"state": State.WORKING.value, "handed": now}
            self.rows().filter(pk=row.pk).update(**columns)
            if not asked["questions"]:
                self.hand_on()

    def look_after(self) -> "StoredTask":
        """Hand on again what no worker has taken, and end or begin anew what a lost worker had; return it as it is
        then."""
        row = self.row
        if self._waits:
            if row.handed + self._hand_on_after <= self.now:
                self._beside_worker(self._hand_on_again)
            return self
        if row.lease is None or row.lease >= self.now:
            return self
        self._beside_worker(self._lapse)
        return self._read(Q(pk=row.pk)) or self

    @property
    def _hand_on_after(self) -> int:
        """Milliseconds for which no worker has to take it before it is handed on again: each time twice as many, so
        that the polls for many tasks do not fill the queue in which they wait."""
        return min(LONGEST_HAND_ON, max(HAND_ON_AFTER, self.row.handed - self.row.updated))

    def _hand_on_again(self) -> bool:
        now: Any = DatabaseClock()
        is_handed = bool(self._mine().filter(lease=None, handed=self.row.handed).update(handed=now))
        if is_handed:
            self.hand_on()
        return is_handed

    def _lapse(self, *, can_begin_anew: bool = True) -> bool:
        """End what a lost worker had, or let another one begin it anew; return whether."""
        now: Any = DatabaseClock()
        lost = self._mine().filter(lease__lt=now)
        if not can_begin_anew or not self.repeatable or self.row.lapses >= MAX_LAPSES:
            told = LOST_AGAIN if self.row.atomic else LOST
            return self._end(lost, State.FAILED, told, result=self._error(told))
        is_lost = bool(lost.update(lease=None, lapses=F("lapses") + 1, handed=now, updated=now))
        if is_lost:
            self.hand_on()
        return is_lost

    def _beside_worker(self, change: Callable[[], bool]) -> bool:
        """Change the task in a transaction, and return what ``change`` returns.

        It is left as it is, and False returned, if its worker has the row, or SQLite's database, for longer: the worker
        stores the end of the task, or its work.
        """
        try:
            with write_transaction(self.rows().db, max_wait=LOCK_WAIT):
                return change()
        except DatabaseUnavailable as error:
            if Trouble.of(error) is not Trouble.BUSY:
                raise
            return False

    def refuse(self, told: str) -> bool:
        """End a run whose caller may no longer do this, if its worker still has the task; return whether."""
        text = f"{told} {UNDONE if self.row.atomic else UNSURE}"
        wire = {"content": [{"type": "text", "text": text}], "isError": True}
        result = self._sealed("result", {"result": wire})
        return self._end(self._mine(), State.COMPLETED, text, run=self.run, result=result)

    def stop_late(self) -> bool:
        """End a run that took too long, if its worker still has the task; return whether."""
        told = TOO_LONG.format(self.row.timeout, UNDONE if self.row.atomic else UNSURE)
        return self._end(self._mine(), State.FAILED, told, run=self.run, result=self._error(told))

    def hand_on(self) -> None:
        """Give the id to the engine, once the open transaction is stored."""
        transaction.on_commit(partial(engine().hand_on, self.row.pk), using=self.rows().db, robust=True)

    @classmethod
    def clear_expired(cls) -> int:
        """End what lost workers had and nobody has asked for; delete tasks whose result can no longer be read, and
        return how many."""
        lapsed = cls.rows().filter(state=State.WORKING.value, lease__lt=DatabaseClock())
        for row in lapsed.annotate(now=DatabaseClock()):
            task = cls(row, row.now)
            # Nothing begins anew here: threads of a command end with it, and nobody waits for the result.
            task._beside_worker(partial(task._lapse, can_begin_anew=False))
        return cls.rows().filter(expires__lte=DatabaseClock())._raw_delete(cls.rows().db)

    def _error(self, told: str) -> bytes:
        return self._sealed("result", {"error": {"code": INTERNAL_ERROR, "message": told}})

    def _sealed(self, name: str, value: Any) -> bytes:
        return _sealed(name, self.row.pk, value)

    def _end(self, rows: QuerySet[Task], state: State, outcome: str = "", **columns: Any) -> bool:
        now: Any = DatabaseClock()
        told = fitting_columns({"outcome": outcome})
        ended = rows.update(
            state=state.value, lease=None, ended=now, updated=now, kept=b"", asked=b"", **told, **columns
        )
        return bool(ended)


def _seal(name: str, task_id: str) -> StoredSeal:
    """Return the seal of a column; nobody can put the contents of one task into another one."""
    return StoredSeal("mcp_django.tasks", name, task_id)


def _sealed(name: str, task_id: str, value: Any) -> bytes:
    return _seal(name, task_id).seal(orjson.dumps(value))


def fitting_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of columns of a task, with texts that fit."""
    return fitting_texts(columns, LENGTHS, Task._meta.db_table, router.db_for_write(Task))
