"""The console's overview: a time line of calls, what changed compared with the period before, and what hurts most.

The figures of a period and of the one before it are computed in one pass over one query of at most ``MOST`` rows of the
log. If there are more, a sample stands for them: calls have random ids, so a range of ids is a fair sample that an
index finds. On databases without such an index, it is one call of each so many that follow each other.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import reduce
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any, Final, NamedTuple, TypeAlias

from django.db import DatabaseError, connections, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..context.untrusted_text import plain
from ..models import CallEntry
from ..templatetags.mcp_console import Outcome, duration_text, local_time
from .call_query import INDEXED, CallQuery
from .console_pages import TASKS, Home, Page

# Maximum rows that a page reads, hex digits of an id that a sample compares, maximum entries of a list, maximum
# characters of their names, and maximum bars and labels of a time line.
MOST = 16_000
DIGITS = 4
TOP = 8
MAX_NAME = 60
BARS = 60
LABELS = 8
# Minutes between two bars or labels, all of them round on a clock.
ROUND: Final = (1 / 60, 1 / 12, 1 / 4, 1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 40320, 524160)
READ: Final = ("time", "outcome", "duration", "tokens", "tool", "client_name", "model", "username")
# What the calls are listed by: its position in a row, the name of its query term, and the title of the list.
LISTED: Final = (
    (4, "tool", gettext_lazy("Tools")),
    (5, "client", gettext_lazy("Clients")),
    (6, "model", gettext_lazy("Models")),
    (7, "user", gettext_lazy("Users")),
    (1, "outcome", gettext_lazy("Refused, failed and open")),
)
SPANS: Final = {
    "last 1h": gettext_lazy("Last hour"),
    "last 24h": gettext_lazy("Last 24 hours"),
    "last 7d": gettext_lazy("Last 7 days"),
    "last 30d": gettext_lazy("Last 30 days"),
}
DEFAULT: Final = "last 24h"
# The parts of a bar from the axis upwards: bad outcomes come first, because heights on the axis compare best.
GROUPS: Final = ("failed", "refused", "open", "ok")
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Height in pixels of the charts of the overview and of the admin's index, and the least height of failures in a bar.
HEIGHT = 160
CARD_HEIGHT = 80
LEAST = 2.0
# Number of lines above 0 on the axis of numbers, share of a step's width that its bar takes, and number of calls below
# which percentiles are not compared, because a single call would change them.
MARKS = 4
BAR = 0.86
FEW = 20
# The numbers below this one have all plural forms: in every language, these depend only on the last two digits.
FORMS: Final = 200


class Tally:
    """Calls that are counted together; each row of the log stands for ``part`` calls."""

    def __init__(self, rows: Sequence[Any], part: int = 1) -> None:
        groups = Counter(Outcome(row[1]).group for row in rows)
        self.calls = part * len(rows)
        self.tokens = part * sum([row[3] for row in rows])
        self.counts = Counter({group: part * count for group, count in groups.items()})
        self.failed = self.counts["failed"]
        self.failed_percent = 100 * self.failed / (self.calls or 1)
        self.durations = sorted([row[2] for row in rows])
        self.p95 = self.percentile(SHARES["p95"])

    def percentile(self, share: float) -> float:
        """Return a percentile of the calls' durations in ms (nearest rank), 0 without calls."""
        if self.durations:
            return self.durations[max(0, ceil(len(self.durations) * share) - 1)]
        return 0.0

    @property
    def slow(self) -> str:
        """The durations of the slowest calls, as the value of a query's term."""
        return f">{max(0, ceil(self.p95) - 1)}"


class Step(NamedTuple):
    """A step of the time line, with its calls."""

    begins: datetime
    ends: datetime
    tally: Tally


# A line of a list, such as a tool: its value, and its calls now and before.
Entry: TypeAlias = tuple[str, Tally, Tally]


class Figures(NamedTuple):
    """The figures of a period and of the one before it; each row of the log stands for ``part`` calls."""

    part: int
    now: Tally
    before: Tally
    steps: list[Step]
    tops: list[list[Entry]]


def figures(query: CallQuery, begins: datetime, ends: datetime) -> Figures:
    """Return the figures of a period, from the calls that a query finds in it and in the one before."""
    calls = CallEntry._default_manager.order_by().filter(time__gte=begins - (ends - begins), time__lt=ends)
    entries, part = sample(without(query, "time"), calls)
    rows: tuple[list[Any], list[Any]] = ([], [])
    for row in entries.values_list(*READ):
        rows[row[0] < begins].append(row)
    tops = [_top(*rows, part, place) for place, _term, _title in LISTED]
    return Figures(part, Tally(rows[0], part), Tally(rows[1], part), steps_of(rows[0], begins, ends, part), tops)


def steps_of(rows: Sequence[Any], begins: datetime, ends: datetime, part: int) -> list[Step]:
    """Return the steps of the time line between two times, with their calls."""
    bounds = round_times(begins, ends, BARS)
    marks = [bound.timestamp() for bound in bounds]
    rows_by_step: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        rows_by_step[bisect_right(marks, row[0].timestamp()) - 1].append(row)
    # The first step begins and the last one ends with the period, which need not be at round times.
    edges = [begins, *bounds[1:-1], ends]
    return [Step(*step, Tally(rows_by_step[number], part)) for number, step in enumerate(pairwise(edges))]


def without(query: CallQuery, *names: str) -> CallQuery:
    """Return the query without its terms of these names."""
    return reduce(CallQuery.without, [term for term in query.terms if term.name in names], query)


def sample(query: CallQuery, calls: QuerySet[CallEntry]) -> tuple[QuerySet[CallEntry], int]:
    """Return the calls that a query finds, or a sample of them, and how many calls each stands for."""
    names = {term.name for term in query.terms}
    unindexed = {term.name for term in query.terms if query.known.look(term.name, term.value)[0] not in INDEXED}
    # If the time, alone or with one indexed term, leaves few calls, read all that match.
    for name in ("", *sorted(names - unindexed)):
        if not without(query, *(names - {name})).filter(calls)[MOST : MOST + 1].exists():
            return query.filter(calls), 1
    # Primary keys are nearly in the order of time, so their range tells about how many calls there are.
    orders = (("time", "pk"), ("-time", "-pk"))
    first, last = sorted(calls.order_by(*order).values_list("pk", flat=True)[0] for order in orders)
    part = 2
    while part < 16**DIGITS and (last - first) // part > MOST / 2:
        part *= 2
    if not connections[calls.db].features.supports_partial_indexes:
        # No index has the samples alone, and the one on ids leads to calls of all times.
        return query.filter(calls.filter(pk__in=spread_keys(first, last, part))), part
    calls = calls.filter(call_id__lt=f"{16**DIGITS // part:0{DIGITS}x}")
    # An index has the smaller samples. SQLite uses it only if the query says so.
    if part >= 16:
        calls = calls.filter(call_id__lt="1")
    return query.filter(calls), part


def spread_keys(first: int, last: int, part: int) -> list[int]:
    """Return one of each ``part`` primary keys between two, so that a row is as likely as any other.

    Rows found by them stand for ``part`` rows each, whether or not there is a row for every key.
    """
    keys = []
    for number in range(first // part, last // part + 1):
        # A multiplicative hash: a fixed place would meet the same client of several that take turns.
        place = number * 2_654_435_761 % 2**32 * part // 2**32
        keys.append(number * part + place)
    return keys


def round_times(begins: datetime, ends: datetime, most: int) -> list[datetime]:
    """Return at most ``most + 2`` round times; the first and the last may lie outside of the period."""
    minutes = (ends - begins) / timedelta(minutes=1)
    size = timedelta(minutes=next((size for size in ROUND if minutes / size <= most), ceil(minutes / most)))
    midnight = begins.replace(hour=0, minute=0, second=0, microsecond=0)
    # Count from midnight in wall-clock time.
    times = [midnight + (begins - midnight) // size * size]
    while times[-1] < ends:
        times.append(times[-1] + size)
    return times


def _top(rows_now: list[Any], rows_before: list[Any], part: int, place: int) -> list[Entry]:
    """Return the entries of a list, what hurts most first: failures, then long durations."""
    found: tuple[dict[str, list[Any]], ...] = (defaultdict(list), defaultdict(list))
    for rows, by_value in zip((rows_now, rows_before), found, strict=True):
        for row in rows:
            by_value[row[place]].append(row)
    kept = [(value, rows) for value, rows in found[0].items() if value and value != "ok"]
    entries = [(value, Tally(rows, part), Tally(found[1].get(value, ()), part)) for value, rows in kept]
    failed = max((now.failed for _value, now, _before in entries), default=0) or 1
    slow = max((now.p95 for _value, now, _before in entries), default=0.0) or 1.0
    entries.sort(key=lambda each: (-each[1].failed / failed - each[1].p95 / slow, -each[1].calls, each[0]))
    return entries[:TOP]


class Chart:
    """The coordinates in the charts: percent of the width, and pixels of the height."""

    def __init__(self, steps: Sequence[Step], height: int = HEIGHT) -> None:
        self.steps = steps
        self.height = height
        self.begins = steps[0].begins
        self.ends = steps[-1].ends
        # Show seconds if the period is short.
        self.format = "Y-m-d H:i" if self.ends - self.begins > timedelta(minutes=30) else "Y-m-d H:i:s"
        most = max(step.tally.calls for step in steps)
        least = 10 ** floor(log10(max(1, most / MARKS)))
        self.scale = next(least * factor for factor in (1, 2, 5, 10) if least * factor * MARKS >= most)
        self.most = self.scale * max(1, ceil(most / self.scale))
        times = [value for step in steps for value in map(step.tally.percentile, SHARES.values()) if value > 0]
        # A logarithmic axis in powers of ten: on a linear one, a call of half a minute would flatten all others.
        self.low = floor(log10(max(1.0, min(times, default=1.0))))
        self.high = max(self.low + 1, ceil(log10(max(1.0, max(times, default=1.0)))))
        counts = range(0, self.most + 1, self.scale)
        powers = [10.0**n for n in range(self.low, self.high + 1)]
        self.numbers = [(f"{height * (1 - n / self.most):.1f}", number_format(n, force_grouping=True)) for n in counts]
        self.durations = [(f"{self.y(value):.1f}", duration_text(value)) for value in powers]
        marks = [time for time in round_times(self.begins, self.ends, LABELS) if self.begins <= time <= self.ends]
        self.times: list[tuple[str, str]] = []
        for time in marks:
            form = "H:i" if time.hour or time.minute else "D j"
            self.times.append((f"{self.x(time):.3f}", date_format(time, form)))

    def x(self, time: datetime) -> float:
        """Return the place of a time, in percent of the width."""
        return 100 * ((time - self.begins) / (self.ends - self.begins))

    def y(self, duration: float) -> float:
        """Return the place of a duration in ms, by its logarithm, in pixels from the top."""
        return self.height * (1 - (log10(max(10**self.low, duration)) - self.low) / (self.high - self.low))

    def bars(self, step: Step) -> list[dict[str, str]]:
        """Return the parts of a step's bar, from the axis upwards."""
        bars = []
        top = float(self.height)
        for group in GROUPS:
            if count := step.tally.counts[group]:
                height = max(LEAST if group == GROUPS[0] else 0.0, self.height * count / self.most)
                top -= height
                bars.append({"group": group, "y": f"{top:.1f}", "height": f"{height:.1f}"})
        return bars

    def curve(self, share: float) -> str:
        """Return the points of a percentile's line: level within each step, without steps that have no calls."""
        return " ".join(
            f"{self.x(edge):.3f},{self.y(step.tally.percentile(share)):.1f}"
            for step in self.steps
            if step.tally.calls
            for edge in (step.begins, step.ends)
        )


class Overview:
    """What a query finds, as figures, charts and lists that lead to its calls at ``calls_url``."""

    def __init__(self, calls_url: str, query: CallQuery, now: datetime) -> None:
        self.calls_url = calls_url
        self.query = query
        begins, ends = query.period or (None, None)
        ends = min(ends or now, now)
        if begins is None or begins >= ends:
            begins = ends - timedelta(days=1)
        self.begins = local_time(begins)
        self.ends = local_time(ends)
        self.is_about = False

    def context(self) -> dict[str, Any]:
        """Return the figures, charts and lists for the template."""
        found = figures(self.query, self.begins, self.ends)
        self.is_about = found.part > 1
        chart = Chart(found.steps)
        sentences = [self.told(number, "{calls}", "{failed}") for number in range(FORMS)]
        forms = list(dict.fromkeys(sentences))
        return {
            "query": self.query,
            "figures": found,
            "begins": self.begins,
            "before": self.begins - (self.ends - self.begins),
            "rest": str(without(self.query, "time")),
            "list_url": self.query.url(self.calls_url),
            "yesterday": self.query.adding(time="yesterday"),
            "is_new": not found.now.calls and not CallEntry._default_manager.exists(),
            "spans": self.query.spans(SPANS),
            "numbers": self.numbers(found),
            "forms": json.dumps(forms),
            "form_of": "".join(str(forms.index(text)) for text in sentences),
            "chart": chart,
            "columns": [self.column(chart, step) for step in found.steps],
            "curves": [(name, chart.curve(share)) for name, share in SHARES.items()],
            "lists": [
                {"title": title, "term": term, "lines": [self.line(*entry, term) for entry in entries]}
                for (_place, term, title), entries in zip(LISTED, found.tops, strict=True)
                if entries
            ],
        }

    def numbers(self, found: Figures) -> list[dict[str, Any]]:
        """Return the numbers, with what changed since the period before, and the URL of the calls behind each."""
        (now, before) = found[1:3]
        tokens = _("Tokens sent (about)")
        points = now.failed_percent - before.failed_percent
        failed = {
            **{"title": _("Failed"), "value": f"{number_format(now.failed_percent, 1)} %", "is_worse": points >= 1},
            "change": before.calls and _("%s points") % f"{'+' if points > 0 else ''}{number_format(points, 1)}",
        }
        slow = self.query.adding(duration=now.slow).url(self.calls_url)
        url = self.query.url(self.calls_url)
        return [
            {"title": _("Calls"), "value": self.about(now.calls), "url": url, **change(now.calls, before.calls)},
            {"url": self.query.adding(outcome="failed").url(self.calls_url), **failed},
            {"title": _("Slowest 5 %, from"), "value": duration_text(now.p95), "url": slow}
            | change(now.p95, before.p95, bad=1.2),
            {"title": tokens, "value": number_format(now.tokens, force_grouping=True), "url": url}
            | change(now.tokens, before.tokens),
        ]

    def about(self, number: int | str) -> str:
        """Return a number of calls, or the text in its place, marked if it is an estimate."""
        if self.is_about and not isinstance(number, str):
            number = rounded(number)
        text = number if isinstance(number, str) else number_format(number, force_grouping=True)
        return _("about %s") % text if self.is_about else text

    def told(self, number: int, calls: int | str, failed: int | str) -> str:
        """Return the text for these numbers of calls and failed calls, in the plural form for ``number``."""
        counts = {"calls": self.about(calls), "failed": self.about(failed)}
        return ngettext("%(calls)s call, %(failed)s failed", "%(calls)s calls, %(failed)s failed", number) % counts

    def column(self, chart: Chart, step: Step) -> dict[str, Any]:
        """Return a step of the time line: its place, the parts of its bar, its text, and where it leads."""
        tally = step.tally
        there = self.query.adding(time=(step.begins, step.ends))
        times = {name: duration_text(tally.percentile(share)) for name, share in SHARES.items()}
        label = f"{date_format(step.begins, chart.format)}\N{EN DASH}{date_format(step.ends, chart.format[6:])}: "
        width = chart.x(step.ends) - chart.x(step.begins)
        # A step this short has so few calls that its bar leads to the list of calls.
        is_short = step.ends - step.begins <= timedelta(minutes=1)
        return {
            **{"step": step, "parts": chart.bars(step), "times": times},
            **{"x": f"{chart.x(step.begins):.3f}", "width": f"{width:.3f}", "bar": f"{BAR * width:.3f}"},
            "label": label + self.told(tally.calls, tally.calls, tally.failed),
            "slow_label": label + ", ".join(f"{name} {text}" for name, text in times.items()),
            "url": there.url(self.calls_url if is_short else ""),
            "slow_url": there.adding(duration=tally.slow).url(self.calls_url) if tally.calls else "",
            "failed_url": (there.adding(outcome="failed") if tally.failed else there).url(self.calls_url) + "&o=0",
        }

    def line(self, value: str, now: Tally, before: Tally, term: str) -> dict[str, Any]:
        """Return a line of a list, with the URLs of its calls and of its own overview."""
        query = self.query.adding(**{term: value})
        list_url = self.calls_url
        return {
            **{"now": now, "p95": duration_text(now.p95), "url": query.url(), "calls_url": query.url(list_url)},
            "value": value,
            "name": Outcome(value).word if term == "outcome" else plain(value, MAX_NAME),
            "failed_url": query.adding(outcome="failed").url(list_url),
            "slow_url": query.adding(duration=now.slow).url(list_url),
            **(change(now.p95, before.p95, bad=1.5) if len(before.durations) >= FEW else {}),
        }


def rounded(number: int) -> int:
    """Return an estimate with its first two digits: a sample tells no more."""
    return round(number, 2 - len(str(number)))


def change(now: float, before: float, bad: float = 0.0) -> dict[str, Any]:
    """Return how a number changed, and whether for the worse: at ``bad`` times as much."""
    times = now / before if before else 1.0
    text = f"\N{MULTIPLICATION SIGN}{number_format(times, 1)}" if times >= 2 else f"{100 * (times - 1):+.0f} %"
    return {"change": text if before else "", "is_worse": bool(bad) and times >= bad}


def card(request: HttpRequest, home: Home) -> dict[str, Any]:
    """Return the overview of the last day for the admin's index, with a chart; nothing if the log cannot be read."""
    now = timezone.now()
    overview = Overview(home.calls_url, CallQuery.parse(DEFAULT, now), now)
    calls = CallEntry._default_manager.order_by().filter(time__gte=overview.begins, time__lt=now)
    # If the log cannot be read, the index must still work, and so must a transaction around it.
    with suppress(DatabaseError), transaction.atomic(using=calls.db):
        rows, part = sample(overview.query, calls)
        entries = list(rows.values_list(*READ[:4]))
        steps = steps_of(entries, overview.begins, overview.ends, part)
        overview.is_about = part > 1
        tally = Tally(entries, part)
        chart = Chart(steps, CARD_HEIGHT)
        return {
            **{"tabs": home.get_tabs(request, ""), "tally": tally, "chart": chart},
            **{"calls": overview.about(tally.calls), "failed": overview.about(tally.failed)},
            "calls_url": overview.query.url(home.calls_url),
            "failed_url": overview.query.adding(outcome="failed").url(home.calls_url),
            "columns": [overview.column(chart, step) for step in steps],
        }
    return {}


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the overview page."""
    now = timezone.now()
    query = CallQuery.parse(request.GET.get("q", ""), now)
    timed = query if query.period else query.adding(time=DEFAULT)
    context = Overview(page.home.calls_url, timed, now).context()
    return page.render(request, {**context, "open_tasks": TASKS.count_open(request)})
