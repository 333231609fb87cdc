"""The console's overview: charts, figures and lists of calls, by outcome, duration, tool, model, client and user.

The figures of a span are worked out in one pass over one query of at most ``MOST`` rows of the log. Where there are
more, a sample stands for them: calls have random ids, so a range of ids is a fair part of them which the index finds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django.db.models import Max, Min, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import CallEntry, Stream
from .console_pages import Page

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
    """A time span of the overview's charts, in steps."""

    name: str
    title: Any
    step: timedelta
    steps: int


SPANS: Final = {
    span.name: span
    for span in (
        Span("hour", gettext_lazy("Last hour"), timedelta(minutes=2), 30),
        Span("day", gettext_lazy("Last day"), timedelta(hours=1), 24),
        Span("week", gettext_lazy("Last week"), timedelta(hours=6), 28),
        Span("month", gettext_lazy("Last 30 days"), timedelta(days=1), 30),
    )
}


@dataclass
class Step:
    """One step of the overview's charts: calls by outcome group, and their durations in ms."""

    begins: datetime
    ends: datetime
    counts: Counter[str] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """A row of the overview's lists, such as a tool: value, name, calls, failures and tokens."""

    value: str
    name: str
    calls: int
    failed: int
    tokens: int


@dataclass
class Figures:
    """The overview's figures of one time span: totals, steps and lists.

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
        """Return the number of calls in an outcome group of the overview, as :func:`group_of` names the groups."""
        return sum(count for outcome, count in self.outcomes.items() if group_of(outcome) == group)


def group_of(outcome: str) -> str:
    """Return the overview chart's group of a call's outcome: "ok", "refused", "failed", or "open" for a call asked or
    cancelled."""
    if outcome == "ok":
        return "ok"
    if outcome.startswith("refused:"):
        return "refused"
    return "open" if outcome in ("asked", "cancelled") else "failed"


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of call durations for the overview's charts (nearest rank), 0 for none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]


def figures(span: Span, now: datetime) -> Figures:
    """Compute the overview's figures of a time span from the call log."""
    begins = now - span.step * span.steps
    rows, part = sample(CallEntry._default_manager.filter(time__gt=begins, time__lte=now))
    steps = [Step(begins + span.step * n, begins + span.step * (n + 1)) for n in range(span.steps)]
    found = Figures(begins, now, part, steps)
    _fill(found, span, rows.values_list(*READ, named=True))
    return found


def sample(rows: QuerySet[CallEntry]) -> tuple[QuerySet[CallEntry], int]:
    """Sample the calls of an overview's span, and return how many calls each row stands for."""
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
    for name, lines_of in listed.items():
        entries = [Entry(value, called or value, *numbers) for value, (called, *numbers) in lines_of.items()]
        found.tops[name] = sorted(entries, key=lambda entry: (-entry.calls, entry.value))[:TOP]


# What the calls are listed by: the field that tells them apart, and the one that names them.
LISTED: Final = {
    "tool": ("tool", "tool"),
    "model": ("model", "model"),
    "client_id": ("client_id", "client_name"),
    "user": ("user", "username"),
}


# In units of the picture, which is scaled to its place.
WIDTH: Final = 720
HEIGHT: Final = 160
# Of the steps' width, the bars take so much.
BAR: Final = 0.8
# From the axis upwards.
GROUPS: Final = ("ok", "open", "refused", "failed")


@dataclass(frozen=True)
class Bar:
    """A rectangle of the overview's bar chart, with its outcome ``group``, ``count`` and step."""

    group: str
    count: int
    step: Step
    x: str
    y: str
    width: str
    height: str


def bars(steps: Sequence[Step]) -> list[Bar]:
    """Return the overview's stacked bar chart of calls: a bar for each step and outcome group."""
    most = max((sum(step.counts.values()) for step in steps), default=0)
    wide = WIDTH / max(1, len(steps))
    found = []
    for number, step in enumerate(steps):
        top = float(HEIGHT)
        for group in GROUPS:
            if count := step.counts[group]:
                height = count * HEIGHT / most
                top -= height
                place = (number * wide + wide * (1 - BAR) / 2, top, wide * BAR, height)
                found.append(Bar(group, count, step, *(f"{value:.2f}" for value in place)))
    return found


@dataclass(frozen=True)
class Line:
    """A line of the overview's chart of durations: its SVG ``points``, and the ``values`` in ms."""

    name: str
    points: str
    values: list[float]


def lines(steps: Sequence[Step], shares: dict[str, float]) -> tuple[list[Line], float]:
    """Return the overview's line chart of durations: a line for each percentile, such as ``{"p95": 0.95}``, and the
    axis in ms."""
    ordered = [sorted(step.durations) for step in steps]
    values = {name: [percentile(durations, share) for durations in ordered] for name, share in shares.items()}
    most = max((value for found in values.values() for value in found), default=0.0)
    wide = WIDTH / max(1, len(steps))
    made = []
    for name, found in values.items():
        points = [
            f"{number * wide + wide / 2:.2f},{HEIGHT - (value * HEIGHT / most if most else 0):.2f}"
            for number, value in enumerate(found)
            if ordered[number]
        ]
        made.append(Line(name, " ".join(points), found))
    return made, most


def table(steps: Sequence[Step], shares: dict[str, float]) -> list[dict[str, Any]]:
    """Return the overview's charts as a table for screen readers, the newest step first."""
    rows = []
    for step in reversed(steps):
        if step.durations:
            ordered = sorted(step.durations)
            counts = {group: step.counts[group] for group in GROUPS}
            times = {name: percentile(ordered, share) for name, share in shares.items()}
            rows.append({"step": step, "calls": sum(counts.values()), **counts, **times})
    return rows


# A session with a call in this time is in use.
IN_USE: Final = timedelta(minutes=15)


def counted() -> dict[str, int]:
    """Count the overview's live figures: recent ``sessions``, ``running`` calls, and calls ``asking`` their clients.

    ``streams`` are those that tell of changes, of the workers that share a channel layer with this one. Calls that are
    answered at once are over before anybody could count them; these have a stream of events.
    """
    # The admin is loaded where no call is served, too: by migrate and the shell.
    from ..server.stored_streams import DEAD_AFTER
    from ..transports.http.open_streams import registry

    now = timezone.now()
    used = CallEntry._default_manager.filter(time__gt=now - IN_USE).exclude(session="")
    alive = Stream._default_manager.filter(state=Stream.State.RUNNING, alive__gt=now - timedelta(seconds=DEAD_AFTER))
    return {
        "streams": registry.ask_workers().count,
        "sessions": used.order_by().values("session").distinct().count(),
        "running": alive.count(),
        "asking": Stream._default_manager.filter(state=Stream.State.ASKING).count(),
    }


SHARES: Final = {"p50": 0.5, "p95": 0.95}


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Answer with the overview."""
    span = SPANS.get(request.GET.get("span", ""), SPANS["day"])
    return page.render(request, Overview(page.home.calls_url).context(span))


class Overview:
    """The overview of one span: figures, charts and lists that link to the call log at ``calls_url``."""

    def __init__(self, calls_url: str) -> None:
        self.calls_url = calls_url

    def context(self, span: Span) -> dict[str, Any]:
        """Return what the page shows of a span."""
        found = figures(span, timezone.now())
        curves, most = lines(found.steps, SHARES)
        titles = {"tool": _("Tools"), "model": _("Models"), "client_id": _("Clients"), "user": _("Users")}
        return {
            "span": span,
            "spans": SPANS.values(),
            "figures": found,
            "numbers": self._numbers(found),
            "live": counted(),
            "bars": bars(found.steps),
            "curves": curves,
            "most_ms": most,
            "most_calls": max((sum(step.counts.values()) for step in found.steps), default=0),
            "box": f"0 0 {WIDTH} {HEIGHT}",
            "rows": [self._linked(span, row) for row in table(found.steps, SHARES)],
            "tops": [
                {
                    "title": titles[name],
                    "entries": [
                        {"entry": entry, "url": self._link(found, **{f"{name}__exact": entry.value})}
                        for entry in entries
                    ],
                }
                for name, entries in found.tops.items()
            ],
            "refusals": [
                {"outcome": outcome, "count": count, "url": self._link(found, outcome__exact=outcome)}
                for outcome, count in found.outcomes.most_common()
                if outcome != "ok"
            ],
        }

    def _link(self, found: Figures, **chosen: str) -> str:
        query = {"time__gte": found.begins.isoformat(), "time__lte": found.ends.isoformat(), **chosen}
        return f"{self.calls_url}?{urlencode(query)}"

    def _numbers(self, found: Figures) -> list[dict[str, Any]]:
        refused, failed = found.of_group("refused"), found.of_group("failed")
        return [
            {"title": _("Calls"), "value": found.calls, "url": self._link(found)},
            {"title": _("Refused"), "value": refused, "url": self._link(found, outcome__startswith="refused:")},
            {"title": _("Failed"), "value": failed, "url": self._link(found, outcome__contains="error")},
            {"title": _("p50 (ms)"), "value": found.p50, "url": ""},
            {"title": _("p95 (ms)"), "value": found.p95, "url": self._link(found, duration__gte=f"{found.p95:.3f}")},
            {"title": _("Rows read"), "value": found.rows_read, "url": self._link(found, rows_read__gt="0")},
            {"title": _("Rows changed"), "value": found.rows_changed, "url": self._link(found, rows_changed__gt="0")},
            {"title": _("Tokens sent (about)"), "value": found.tokens, "url": ""},
        ]

    def _linked(self, span: Span, row: dict[str, Any]) -> dict[str, Any]:
        step = row["step"]
        query = urlencode({"time__gte": step.begins.isoformat(), "time__lt": step.ends.isoformat()})
        return {**row, "url": f"{self.calls_url}?{query}"}
