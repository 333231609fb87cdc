"""What the log says about a stretch of time: how many calls, how they ended, how long they took, who and what.

All is worked out in one pass over one query of at most ``MOST`` rows. Where there are more, a sample stands for them:
calls have random ids, so that a range of ids is a fair part of them which its index finds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Max, Min, QuerySet
from django.utils.translation import gettext_lazy as _

from ..models import CallEntry

# Rows that one page reads.
MOST: Final = 50_000
# Of each kind, so many are listed.
TOP: Final = 10
# Digits of an id that a sample looks at.
DIGITS: Final = 4

READ: Final = (
    "time", "outcome", "duration", "tokens", "rows_read", "rows_changed", "tool", "model", "user", "username",
    "client_id", "client_name", "session", "queries", "query_time",
)  # fmt: skip


@dataclass(frozen=True)
class Span:
    """A stretch of time up to now, in steps."""

    name: str
    title: Any
    step: timedelta
    steps: int


SPANS: Final = {
    span.name: span
    for span in (
        Span("hour", _("Last hour"), timedelta(minutes=2), 30),
        Span("day", _("Last day"), timedelta(hours=1), 24),
        Span("week", _("Last week"), timedelta(hours=6), 28),
        Span("month", _("Last 30 days"), timedelta(days=1), 30),
    )
}


@dataclass
class Step:
    """The calls of one step: how many of each group, and the durations in ms."""

    begins: datetime
    ends: datetime
    counts: Counter[str] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """One of those that a figure is listed by: the value in the log, what to call it, calls, failures and tokens."""

    value: str
    name: str
    calls: int
    failed: int
    tokens: int


@dataclass
class Figures:
    """What is known of a span.

    ``part`` is of how many calls one was looked at, 1 where all were; all numbers are for all calls. Durations are ms.
    """

    begins: datetime
    ends: datetime
    part: int
    steps: list[Step]
    calls: int = 0
    tokens: int = 0
    rows_read: int = 0
    rows_changed: int = 0
    sessions: int = 0
    p50: float = 0.0
    p95: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    tops: dict[str, list[Entry]] = field(default_factory=dict)

    def of_group(self, group: str) -> int:
        """Return how many calls ended so, as :func:`group_of` says."""
        return sum(count for outcome, count in self.outcomes.items() if group_of(outcome) == group)


def group_of(outcome: str) -> str:
    """Return "ok", "refused" or "failed" for the outcome of a call, and "open" for what had none of its own."""
    if outcome == "ok":
        return "ok"
    if outcome.startswith("refused:"):
        return "refused"
    return "open" if outcome in ("asked", "cancelled") else "failed"


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of the others does not exceed (nearest rank), 0 for none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]


def figures(span: Span, now: datetime) -> Figures:
    """Return what the log says about the span that ends now."""
    begins = now - span.step * span.steps
    rows, part = sample(CallEntry._default_manager.filter(time__gt=begins, time__lte=now))
    steps = [Step(begins + span.step * n, begins + span.step * (n + 1)) for n in range(span.steps)]
    found = Figures(begins, now, part, steps)
    _fill(found, span, rows.values_list(*READ, named=True))
    return found


def sample(rows: QuerySet[CallEntry]) -> tuple[QuerySet[CallEntry], int]:
    """Return rows that stand for these, and for how many each stands: a power of two."""
    if not rows[MOST : MOST + 1].exists():
        return rows, 1
    keys = CallEntry._default_manager.aggregate(first=Min("pk"), last=Max("pk"))
    part = 2
    while part < 16**DIGITS and (keys["last"] - keys["first"]) // part > MOST:
        part *= 2
    return rows.filter(call_id__lt=f"{16**DIGITS // part:0{DIGITS}x}"), part


def _fill(found: Figures, span: Span, rows: Iterable[Any]) -> None:
    durations: list[float] = []
    sessions: set[str] = set()
    listed: dict[str, dict[str, list[Any]]] = {name: defaultdict(lambda: ["", 0, 0, 0]) for name in LISTED}
    for row in rows:
        step = found.steps[min(int((row.time - found.begins) / span.step), span.steps - 1)]
        group = group_of(row.outcome)
        step.counts[group] += found.part
        step.durations.append(row.duration)
        durations.append(row.duration)
        found.outcomes[row.outcome] += found.part
        found.tokens += row.tokens * found.part
        found.rows_read += row.rows_read * found.part
        found.rows_changed += row.rows_changed * found.part
        sessions.add(row.session)
        for name, (value, title) in LISTED.items():
            key = getattr(row, value)
            if key:
                line = listed[name][key]
                line[0] = getattr(row, title) or line[0]
                line[1] += found.part
                line[2] += found.part if group == "failed" else 0
                line[3] += row.tokens * found.part
    found.calls = len(durations) * found.part
    found.sessions = len(sessions - {""})
    durations.sort()
    found.p50, found.p95 = percentile(durations, 0.5), percentile(durations, 0.95)
    found.tops = {name: _top(lines) for name, lines in listed.items()}


# What the calls are listed by: the field that tells them apart, and the one that names them.
LISTED: Final = {
    "tool": ("tool", "tool"),
    "model": ("model", "model"),
    "client_id": ("client_id", "client_name"),
    "user": ("user", "username"),
}


def _top(lines: dict[str, list[Any]]) -> list[Entry]:
    entries = [Entry(value, name or value, *numbers) for value, (name, *numbers) in lines.items()]
    return sorted(entries, key=lambda entry: (-entry.calls, entry.value))[:TOP]
