"""What an aggregation groups by: columns, periods and weekdays of dates, steps of numbers."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import timezone as fixed_timezone
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.db import connections
from django.db.models import (
    Count,
    DateField,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    Q,
    QuerySet,
    Value,
    Window,
    functions,
)
from django.db.models.functions import Cast, Lag
from django.db.models.lookups import LessThan
from django.utils import timezone

from ...context.databases import LocalTimes
from ...context.request import MCPRequest
from ...exceptions import ToolError
from ..access import MAX_NAME, ModelAccess
from ..column_values import render
from ..columns import Column
from ..conditions import Condition, Filter, Junction
from ..fields import kind_of, stored_field
from ..generic_links import list_named
from ..labels import plain_label
from ..nearest_names import Misnamed, alternatives
from ..pagination import narrowed
from ..path import Path, Target, target_of
from ..query_limits import read_limits
from ..suggestions import with_field
from .functions import step
from .measures import rounded, shown_values

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class _Week(functions.TruncWeek):
    """The first day of a week."""

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # As Django writes it, a week begins at the time of the day that its moment has.
        sql, params = self.as_sql(compiler, connection, **extra)
        return f"DATE({sql})", params


# The database function that computes each period, and the function that formats its values.
PERIODS: Final[Mapping[str, tuple[Callable[..., Any], Callable[[Any], str]]]] = {
    "year": (functions.TruncYear, lambda value: value.isoformat()[:4]),
    "quarter": (functions.TruncQuarter, lambda value: f"{value.isoformat()[:4]}-Q{(value.month + 2) // 3}"),
    "month": (functions.TruncMonth, lambda value: value.isoformat()[:7]),
    "week": (_Week, lambda value: "{:04}-W{:02}".format(*value.isocalendar())),
    "day": (functions.TruncDay, lambda value: value.isoformat()[:10]),
    "hour": (functions.TruncHour, lambda value: _hour(value)),
    "weekday": (functions.ExtractIsoWeekDay, lambda value: WEEKDAYS[value - 1]),
    "quarter_of_year": (functions.ExtractQuarter, str),
    "month_of_year": (functions.ExtractMonth, str),
    "week_of_year": (functions.ExtractWeek, str),
    "day_of_month": (functions.ExtractDay, str),
    "hour_of_day": (functions.ExtractHour, str),
}
# Periods that follow one another, unlike recurring ones such as weekday.
STRETCHES: Final = ("year", "quarter", "month", "week", "day", "hour")
# Share of the call's time that looking for shared labels can take.
TIME_SHARE: Final = 0.2
_WIDTH: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_GROUP: Final = re.compile(r"(?P<period>\w+)\((?P<name>[\w.]+)\)|(?P<field>[\w.]+)\s+(?:by|per)\s+(?P<unit>\w+)")


# A time longer than each period, and shorter than two of them.
LONGEST: Final[Mapping[str, timedelta]] = {
    "year": timedelta(400),
    "quarter": timedelta(100),
    "month": timedelta(40),
    "week": timedelta(8),
    "day": timedelta(1.5),
    "hour": timedelta(hours=1.5),
}


def hour_zone() -> tzinfo | None:
    """Return the time zone in which hours are counted, None for the current one.

    It has no summer time: in the current zone, two hours of autumn would be one. Its minutes are those of the current
    zone, unless these change with the summer time too.
    """
    if not settings.USE_TZ:
        return None
    zone = timezone.get_current_timezone()
    year = timezone.now().year
    offsets = {datetime(year, month, 1, tzinfo=zone).utcoffset() or timedelta() for month in (1, 7)}
    minutes = {offset % timedelta(hours=1) for offset in offsets}
    return fixed_zone(minutes.pop()) if len(minutes) == 1 else None


def fixed_zone(offset: timedelta) -> tzinfo:
    """Return the zone that is always this far from UTC."""
    return fixed_timezone(offset) if offset else UTC


def _hour(value: datetime) -> str:
    """Return an hour as text in the current zone, with its offset if there are two of this name."""
    if timezone.is_naive(value):
        return value.isoformat()[:13]
    local = timezone.localtime(value)
    text = local.isoformat()[:13]
    is_doubled = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return f"{text}{local:%z}" if is_doubled else text


def periods(first: Any, last: Any, period: str) -> Iterator[Any]:
    """Yield the start of each period, from the first to the last."""
    months = {"month": 1, "quarter": 3, "year": 12}.get(period)
    step = {"week": timedelta(7), "day": timedelta(1), "hour": timedelta(hours=1)}.get(period)
    yield first
    # Compute no period after the last one: there is no date after the year 9999.
    while first < last:
        if step is not None:
            first += step
        else:
            month = first.year * 12 + first.month - 1 + (months or 1)
            first = first.replace(year=month // 12, month=month % 12 + 1)
        yield first


@dataclass(frozen=True, slots=True)
class Group:
    """One column of ``group_by``: its ``title`` for the caller, its ``alias`` in the query.

    The alias is generated: text from a client is never a name in SQL.
    """

    title: str
    alias: str
    target: Target
    period: str = ""

    @classmethod
    def read(cls, model: ModelAccess, given: Any, position: int) -> "Group":
        """Parse one text in ``group_by``: ``status``, ``customer__country`` or ``created:month``."""
        if not isinstance(given, str):
            raise ToolError('group_by is a list of fields, a date also as "created:month".')
        name, _, period = group_meant(given, PERIODS).partition(":")
        alias = f"mcp_g{position}"
        if not period:
            root, _, last = name.rpartition("__")
            try:
                target = target_of(model, name, lambda column: column.is_groupable())
                return cls(target.name, alias, target)
            except ToolError as error:
                if not root or last not in PERIODS:
                    raise _of_several(model, name) or error from None
                # "created__month"
                name = root
                period = last
        if _WIDTH.fullmatch(period) and Decimal(period):
            target = target_of(model, name, lambda column: column.is_summable())
            if kind_of(target.column.field).word == "duration":
                raise ToolError(f"{target.name} is a duration: buckets need a number.")
            return cls(f"{target.name}:{period}", alias, target, period)
        if period not in PERIODS:
            message = f"Unknown period {period[:40]!r}."
            raise Misnamed(message, period, PERIODS, partial(with_field, period, within=("group_by", "per")))
        target = target_of(model, name, lambda column: column.is_period())
        if period in ("hour", "hour_of_day") and kind_of(target.column.field).word == "date":
            raise ToolError(
                f"{target.name} has no hours. {alternatives(period, (name for name in PERIODS if 'hour' not in name))}"
            )
        return cls(f"{target.name}:{period}", alias, target, period)

    @property
    def narrowed(self) -> tuple[str, ...]:
        """See :class:`~mcp_django.orm.path.Target`."""
        return self.target.narrowed

    @property
    def width(self) -> Decimal | None:
        """The width of the steps of a number, such as 100 for ``total:100``; None for another group."""
        if _WIDTH.fullmatch(self.period):
            return Decimal(self.period)
        return None

    @property
    def expression(self) -> Any:
        """What the query groups by."""
        if not self.period:
            return self.target.expression
        if self.width is not None:
            return step(self.target.expression, stored_field(self.target.column.field), self.width)
        function, _ = PERIODS[self.period]
        if self.period == "hour":
            return function(self.target.expression, tzinfo=hour_zone())
        # Use dates for all but hours, because comparing dates involves no time zones.
        options = {"output_field": DateField()} if self.period in STRETCHES else {}
        return function(self.target.expression, **options)

    def local_times(self, using: str) -> LocalTimes | None:
        """Return how the database computes these periods of times, None for another group than one of times."""
        if not self.period or not isinstance(stored_field(self.target.column.field), DateTimeField):
            return None
        return LocalTimes(connections[using], hour_zone() if self.period == "hour" else None)

    def unconverted_hints(self, rows: QuerySet[Any]) -> Iterator[str]:
        """Yield a hint if some of the rows have times that the database leaves as they are stored."""
        times = self.local_times(rows.db)
        if times is None or times.bounds is None:
            return
        first, last = times.bounds
        outside = Q(mcp_time__lt=first) | Q(mcp_time__gte=last)
        try:
            with read_limits(TIME_SHARE):
                are_there = rows.annotate(mcp_time=self.target.expression).filter(outside).exists()
        except ToolError:
            are_there = True
        if are_there:
            yield f"{self.title}: {times.unconverted_text}."

    def is_next(self, window: Mapping[str, Any]) -> Any:
        """Return the condition that the period before in the window is the one before in the calendar."""
        period: Any = F(self.alias)
        if self.period != "hour":
            # On PostgreSQL, the start of a period is a timestamp unless it is cast.
            period = Cast(period, DateField())
        between = ExpressionWrapper(period - Window(Lag(period), **window), output_field=DurationField())
        return LessThan(between, Value(LONGEST[self.period], output_field=DurationField()))

    def start(self, value: Any) -> Any:
        """Return the start of the period in which a date or time is, as the query gives it."""
        if self.period == "hour":
            value = value.astimezone(hour_zone()) if timezone.is_aware(value) else value
            return value.replace(minute=0, second=0, microsecond=0)
        if isinstance(value, datetime):
            value = (timezone.localtime(value) if timezone.is_aware(value) else value).date()
        if self.period == "week":
            return value - timedelta(value.weekday())
        if self.period == "day":
            return value
        month = {"month": value.month, "quarter": (value.month - 1) // 3 * 3 + 1, "year": 1}[self.period]
        return value.replace(month=month, day=1)

    def bounds(self, conditions: Iterable[Filter]) -> tuple[Any, Any]:
        """Return the first and the last period that the conditions on this column leave, None where there is none."""
        low: list[Any] = []
        high: list[Any] = []
        for item in conditions:
            if isinstance(item, Junction) and item.connector == "and":
                first, last = self.bounds(item.parts)
            elif isinstance(item, Condition) and item.path.column == self.target.column.path:
                first, last = self._bounds_of(item)
            else:
                continue
            if first is not None:
                low.append(first)
            if last is not None:
                high.append(last)
        return max(low, default=None), min(high, default=None)

    def _bounds_of(self, item: Condition) -> tuple[Any, Any]:
        """Return the first and the last period that one condition leaves."""
        lookup = item.lookup
        values = item.values
        if lookup == "year":
            return self.start(date(values[0], 1, 1)), self.start(date(values[0], 12, 31))
        least = timedelta(microseconds=1) if isinstance(values[0], datetime) else timedelta(1)
        first = None
        last = None
        try:
            # The nearest values that the condition accepts.
            if lookup == "gt":
                first = self.start(values[0] + least)
            elif lookup == "lt":
                last = self.start(values[0] - least)
            elif lookup == "gte":
                first = self.start(values[0])
            elif lookup == "lte":
                last = self.start(values[0])
            elif lookup in ("exact", "range"):
                first = self.start(values[0])
                last = self.start(values[-1])
        except OverflowError:
            # Before the year 1 and after the year 9999 there is nothing to bound.
            return None, None
        return first, last

    def equals(self, value: Any) -> Q:
        """Return the condition that a row is in the group of this value."""
        if value is None:
            return Q((f"{self.alias}__isnull", True))
        if isinstance(value, datetime) and self.period == "hour":
            value = functions.TruncHour(Value(value, output_field=DateTimeField()), tzinfo=hour_zone())
        return Q((self.alias, value))

    @property
    def shown_column(self) -> Column | None:
        """The column whose values are shown; None if they are periods or buckets."""
        return None if self.period else self.target.column

    @property
    def shown_field(self) -> Any:
        """The field that says of what type the values are, None for that of the column."""
        return None

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return values of the column as JSON; a relation as ``[key, label]``."""
        if self.width is not None:
            return [render(float(value) if isinstance(value, Decimal) else rounded(value)) for value in values]
        if self.period:
            _, write = PERIODS[self.period]
            return [None if value is None else write(value) for value in values]
        return shown_values(request, self.target.column, values)


def group_meant(text: str, periods: Collection[str]) -> str:
    """Return ``created:month`` for the alternative spellings ``month(created)`` and ``created by month``."""
    found = _GROUP.fullmatch(text.strip()) if len(text) <= MAX_NAME else None
    if found is None:
        return text
    name = found["name"] or found["field"]
    period = (found["period"] or found["unit"]).lower()
    if period in periods:
        return f"{name}:{period}"
    return text


def shared_labels(model: ModelAccess, groups: Sequence[Group], columns: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield a hint for each ``group_by`` of a related row's label that puts several related rows together.

    ``columns`` are the values of the groups in the result.
    """
    names = {group.target.name for group in groups}
    for group, column in zip(groups, columns, strict=True):
        path = Path.read(model, group.target.name)
        related = path.end
        relation = "__".join(path.hops)
        if (
            group.period
            or not relation
            or path.last != plain_label(related.exposure)
            or group.target.column.field.unique
        ):
            continue
        if names & {relation, f"{relation}__pk", f"{relation}__{related.exposure.opts.pk.name}"}:
            continue
        shown = {value for value in column if isinstance(value, str)}
        several = _shared(related, path.last, shown)
        if several:
            name = group.title.replace("__", ".")
            label = related.exposure.label
            yield f"{several} of these {name} belong to several {label}: group by {relation} to tell them apart."


def _shared(model: ModelAccess, label: str, values: Collection[str]) -> int:
    """Return how many of the values are labels of several rows; 0 if there is no time to count."""
    try:
        with read_limits(TIME_SHARE):
            rows = narrowed(model, (), "").filter(**{f"{label}__in": list(values)})
            return rows.values(label).annotate(mcp_rows=Count("pk")).filter(mcp_rows__gt=1).count()
    except ToolError:
        return 0


def _of_several(model: ModelAccess, name: str) -> ToolError | None:
    """Return the error for a relation to several rows, None for any other."""
    link = list_named(model, name.partition("__")[0])
    if link is None or not link.to_many:
        return None
    backs = (item.name for item in link.related.links if item.field == link.field.remote_field)
    counted = next((f', with "count:{back}"' for back in backs), "")
    label = link.exposure.label
    return ToolError(
        f"{link.name} leads to several rows: aggregate {label} itself, grouped by its own fields{counted}."
    )
