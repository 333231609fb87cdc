"""Tasks as operators see them: how each stands by the clock of the database, and which of them need a look."""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from django.db import router
from django.db.models import Count, ExpressionWrapper, F, FloatField, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..context.untrusted_text import plain
from ..models import Task
from ..tasks.database_clock import DatabaseClock
from .durations import lasting, time_of

State = Task.State
# Milliseconds after which a task waits too long for a worker, and after which perhaps no worker runs.
LATE: Final = 10_000
VERY_LATE: Final = 60_000
# The part of its time after which a task that runs is slow.
SLOW: Final = 0.5
NOW: Final = DatabaseClock()
OPEN: Final = Q(state__in=[State.WORKING.value, State.INPUT_REQUIRED.value])
ENDED: Final = (State.COMPLETED, State.FAILED, State.CANCELLED)
WAITS: Final = Q(state=State.WORKING.value, lease=None)
RUNS: Final = Q(state=State.WORKING.value, lease__gte=NOW)
LOST: Final = Q(state=State.WORKING.value, lease__lt=NOW)
# What wrote ``updated`` last made the task wait.
WAITS_VERY_LONG: Final = WAITS & Q(updated__lt=NOW - VERY_LATE)
IS_SLOW: Final = RUNS & Q(
    began__lt=ExpressionWrapper(NOW - F("timeout") * (1000 * SLOW), output_field=FloatField()),
)
# The lists, each with its title, its condition and its order: what has waited or run for longest comes first.
LISTS: Final[Mapping[str, tuple[Any, Q, str]]] = {
    "open": (gettext_lazy("Open"), OPEN, "-created"),
    "waiting": (gettext_lazy("Wait for a worker"), WAITS, "updated"),
    "late": (gettext_lazy("Wait too long"), WAITS & Q(updated__lt=NOW - LATE), "updated"),
    "running": (gettext_lazy("Running"), RUNS, "began"),
    "slow": (gettext_lazy("Slow"), IS_SLOW, "began"),
    "lost": (gettext_lazy("Lost"), LOST, "lease"),
    "asking": (gettext_lazy("Wait for an answer"), Q(state=State.INPUT_REQUIRED.value), "updated"),
    "completed": (gettext_lazy("Completed"), Q(state=State.COMPLETED.value), "-ended"),
    "failed": (gettext_lazy("Failed"), Q(state=State.FAILED.value), "-ended"),
    "cancelled": (gettext_lazy("Cancelled"), Q(state=State.CANCELLED.value), "-ended"),
    "all": (gettext_lazy("All"), Q(), "-created"),
}
# What narrows the lists: the title, and the columns of which one has the value.
NARROWED: Final[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
    "user": (gettext_lazy("User"), ("username",)),
    "client": (gettext_lazy("Client"), ("client_name", "client_id")),
    "tool": (gettext_lazy("Tool, model or action"), ("tool", "model", "action")),
}
# Sealed contents, which the console never reads.
SEALED: Final = ("kept", "asked", "result")


def tasks() -> QuerySet[Any]:
    """Return all tasks, each with ``now``, the time of the database, without what is sealed."""
    return _rows().defer(*SEALED).annotate(now=NOW)


def _rows() -> QuerySet[Task]:
    return Task.objects.using(router.db_for_write(Task))


def count_open(where: Q | None = None, **conditions: Q) -> dict[str, int]:
    """Return how many of the tasks that have not ended, and meet ``where``, meet each of the conditions: one query."""
    counts = {name: Count("pk", filter=condition) for name, condition in conditions.items()}
    return _rows().filter(OPEN, where or Q()).aggregate(**counts)


class TaskList:
    """The lists of tasks, narrowed to those of a user, client or tool; ``given`` are the texts of the request."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.narrowed = {name: text for name in NARROWED if (text := given.get(name, "").replace("\0", "")[:255])}
        self._asked = given.get("list", "")

    @property
    def _where(self) -> Q:
        where = Q()
        for name, text in self.narrowed.items():
            columns = NARROWED[name][1]
            where &= Q(*((column, text) for column in columns), _connector=Q.OR)
        return where

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of tasks in each list, and under ``very_late`` of those for which perhaps no worker runs."""
        where = self._where
        lists = {name: condition for name, (_title, condition, _order) in LISTS.items()}
        states = _rows().filter(where).values_list("state").annotate(number=Count("pk"))
        by_state: dict[str, int] = dict(states)
        ended = {state.value: by_state.get(state.value, 0) for state in ENDED}
        open_lists = {name: condition for name, condition in lists.items() if name not in {*ended, "all"}}
        counts = count_open(where, **open_lists, very_late=WAITS_VERY_LONG)
        return {**counts, **ended, "all": sum(by_state.values())}

    @property
    def name(self) -> str:
        """The name of the list that is shown: the one that is asked for, or else what is open, if anything is."""
        if self._asked in LISTS:
            return self._asked
        return "open" if self.counts["open"] else "all"

    def rows(self) -> QuerySet[Any]:
        """Return the tasks of the list that is shown."""
        _title, condition, order = LISTS[self.name]
        # Both in one direction, as an index has them.
        sign = "-" if order.startswith("-") else ""
        return tasks().filter(condition & self._where).order_by(order, f"{sign}pk")


class SeenTask:
    """One task for an operator. Texts that come from clients or tools are cleaned."""

    def __init__(self, row: Any) -> None:
        self.row = row
        self.now: int = row.now
        self.user = plain(row.username)
        self.client = plain(row.client_name or row.client_id)
        self.message = plain(row.message, 200)
        self.outcome = plain(row.outcome, 200)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.row.state in (State.WORKING, State.INPUT_REQUIRED)

    @cached_property
    def standing(self) -> str:
        """How it stands: its state, or for one that works "waiting", "running" or "lost"."""
        if self.row.state == State.INPUT_REQUIRED:
            return "asking"
        if self.row.state != State.WORKING:
            return str(self.row.state)
        if self.row.lease is None:
            return "waiting"
        return "running" if self.row.lease >= self.now else "lost"

    @property
    def needs_look(self) -> bool:
        """Whether it waits too long for a worker, is slow, or has lost its worker."""
        if self.standing == "waiting":
            return self.now - self._since > LATE
        if self.standing == "running":
            return self.now - self._since > 1000 * SLOW * float(self.row.timeout)
        return self.standing == "lost"

    @property
    def group(self) -> str:
        """The group of its mark's colour and sign, as outcomes of calls have it."""
        if self.needs_look:
            return "refused"
        return {"completed": "ok", "failed": "failed"}.get(self.standing, "open")

    @property
    def word(self) -> str:
        """How it stands, in words."""
        words = {"waiting": _("waits for a worker"), "running": _("running"), "lost": _("its worker is gone")}
        if self.standing == "waiting" and self.needs_look:
            return _("waits too long for a worker")
        if self.standing == "running" and self.needs_look:
            return _("runs for a long time")
        return words.get(self.standing) or str(self.row.get_state_display())

    @property
    def _since(self) -> int:
        """When it came to stand as it does."""
        row = self.row
        if self.standing == "running":
            return int(row.began or row.updated)
        if self.standing == "lost":
            return int(row.lease)
        return int(row.updated if row.ended is None else row.ended)

    @property
    def since(self) -> datetime:
        """The time since which it stands so."""
        return time_of(self._since)

    @property
    def length(self) -> str:
        """How long it has stood so, or how long its last run took, in words."""
        row = self.row
        return lasting(row.began or row.created, row.ended) if row.ended is not None else lasting(self._since, self.now)

    @property
    def percent(self) -> float | None:
        """How much of it is done, None if that is not known."""
        if self.row.progress is None or not self.row.total or self.row.total < 0:
            return None
        return min(100.0, max(0.0, 100.0 * self.row.progress / self.row.total))

    @property
    def timeout(self) -> str:
        """How long one run may take, in words."""
        return lasting(0, int(1000 * self.row.timeout))

    @property
    def times(self) -> dict[str, datetime]:
        """Its times by column, as far as it has them."""
        columns = ("created", "handed", "began", "updated", "ended", "expires", "lease")
        return {name: time_of(value) for name in columns if (value := getattr(self.row, name)) is not None}

    @property
    def what(self) -> str:
        """The model and the action, as far as it has them."""
        return ".".join(filter(None, (plain(self.row.model), plain(self.row.action))))
