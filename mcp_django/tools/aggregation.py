"""The groups, aggregates and conditions on groups (``having``) of ``aggregate_records``.

Dates can be grouped by periods and weekdays.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.db.models import (
    Count,
    DateField,
    DateTimeField,
    ExpressionWrapper,
    F,
    Q,
    Subquery,
    Value,
)
from django.db.models.functions import (
    Cast,
    Coalesce,
    ExtractDay,
    ExtractHour,
    ExtractIsoWeekDay,
    ExtractMonth,
    ExtractQuarter,
    ExtractWeek,
    Floor,
    NullIf,
    TruncDay,
    TruncHour,
    TruncMonth,
    TruncQuarter,
    TruncWeek,
    TruncYear,
)

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..orm.access import MAX_NAME
from ..orm.aggregates import EDGES, FUNCTIONS, MAX_DECIMALS, Amount, OverGroups, edge, middle, result_of
from ..orm.arithmetic import DURATION, FLOAT, INTEGER, UNITS, is_expression, value_of
from ..orm.columns import Column, field_renderer, render, render_column, trimmed
from ..orm.kinds import kind_of, stored_field
from ..orm.parsing import condition_of
from ..orm.relations import labels_for
from ..orm.repairs import with_field
from ..orm.spellings import aggregate_meant, as_aggregate, group_meant
from ..orm.ways import Link, Target, is_groupable, is_ordering, is_period, is_summable, link_of, linked_rows, target_of
from ..orm.wording import alternatives, json_or_text, misnamed

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MAX_TEXT: Final = 200


def _quarter(value: date) -> str:
    return f"{value.isoformat()[:4]}-Q{(value.month + 2) // 3}"


def _week(value: date) -> str:
    year, week, _ = value.isocalendar()
    return f"{year:04}-W{week:02}"


# What computes a period from a column, and how its value is written.
PERIODS: Final[Mapping[str, tuple[Callable[..., Any], Callable[[Any], str]]]] = {
    "year": (TruncYear, lambda value: value.isoformat()[:4]),
    "quarter": (TruncQuarter, _quarter),
    "month": (TruncMonth, lambda value: value.isoformat()[:7]),
    "week": (TruncWeek, _week),
    "day": (TruncDay, lambda value: value.isoformat()[:10]),
    "hour": (TruncHour, lambda value: value.isoformat()[:13]),
    "weekday": (ExtractIsoWeekDay, lambda value: WEEKDAYS[value - 1]),
    "quarter_of_year": (ExtractQuarter, str),
    "month_of_year": (ExtractMonth, str),
    "week_of_year": (ExtractWeek, str),
    "day_of_month": (ExtractDay, str),
    "hour_of_day": (ExtractHour, str),
}
# Those that are stretches of time, one after the other.
STRETCHES: Final = ("year", "quarter", "month", "week", "day", "hour")
_WIDTH: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


def periods(first: Any, last: Any, period: str) -> Iterator[Any]:
    """Yield where the periods begin from the first to the last; both are dates, or times for hours."""
    months = {"month": 1, "quarter": 3, "year": 12}.get(period)
    step = {"week": timedelta(7), "day": timedelta(1), "hour": timedelta(hours=1)}.get(period)
    yield first
    # Nothing is made that comes after the last: after year 9999 there is no date.
    while first < last:
        if step is not None:
            first += step
        else:
            month = first.year * 12 + first.month - 1 + (months or 1)
            first = first.replace(year=month // 12, month=month % 12 + 1)
        yield first


@dataclass(frozen=True, slots=True)
class Group:
    """One column that rows are grouped by: its ``title`` for the caller, its ``alias`` in the query.

    The alias is made here: what a client writes is never a name in SQL.
    """

    title: str
    alias: str
    target: Target
    period: str = ""

    @property
    def narrowed(self) -> tuple[str, ...]:
        """See :class:`~mcp_django.orm.ways.Target`."""
        return self.target.narrowed

    @property
    def width(self) -> Decimal | None:
        """The width of buckets of numbers, each of which is known by where it begins."""
        return Decimal(self.period) if _WIDTH.fullmatch(self.period) else None

    @property
    def expression(self) -> Any:
        """What the query groups by."""
        if not self.period:
            return self.target.expression
        if self.width is not None:
            width = Value(float(self.width), output_field=FLOAT)
            return ExpressionWrapper(Floor(Cast(self.target.expression, FLOAT) / width) * width, output_field=FLOAT)
        function, _ = PERIODS[self.period]
        # As dates, the values of all but hours can be compared without regard to time zones.
        options = {"output_field": DateField()} if self.period in STRETCHES[:-1] else {}
        return function(self.target.expression, **options)

    def equals(self, value: Any) -> Q:
        """Return the condition that the group has a value that the query gave."""
        if value is None:
            return Q((f"{self.alias}__isnull", True))
        if isinstance(value, datetime) and self.period == "hour":
            value = TruncHour(Value(value, output_field=DateTimeField()))
        return Q((self.alias, value))

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON; a relation as ``[key, label]``."""
        if self.width is not None:
            return [render(_rounded(value)) for value in values]
        if self.period:
            _, write = PERIODS[self.period]
            return [None if value is None else write(value) for value in values]
        return _shown(request, self.target.column, values)


def _shown(request: MCPRequest, column: Column, values: Sequence[Any]) -> list[Any]:
    """Return values of a column as JSON; a relation as ``[key, label]``."""
    places = getattr(column.field, "decimal_places", None)
    whole = [trimmed(value, places) for value in values] if places is not None else values
    keys, _ = render_column(column.name, field_renderer(column.field, MAX_TEXT, ""), whole)
    if column.kind != "relation":
        return keys
    labels = labels_for(request, column.field, values)
    return [None if key is None else [key, labels.get(value)] for key, value in zip(keys, values, strict=True)]


def group_of(request: MCPRequest, exposure: Exposure, given: Any, position: int) -> Group:
    """Return what ``status``, ``customer__country`` or ``created:month`` groups by.

    Raises:
        ToolError: the caller cannot group by that.
    """
    if not isinstance(given, str):
        raise ToolError('group_by is a list of fields, a date also as "created:month".')
    name, _, period = group_meant(given, PERIODS).partition(":")
    alias = f"mcp_g{position}"
    if not period:
        root, _, last = name.rpartition("__")
        try:
            target = target_of(request, exposure, name, is_groupable)
            return Group(target.name, alias, target)
        except ToolError:
            if not root or last not in PERIODS:
                raise
            # "created__month"
            name, period = root, last
    if _WIDTH.fullmatch(period) and Decimal(period):
        target = target_of(request, exposure, name, is_summable)
        if kind_of(target.column.field).word == "duration":
            raise ToolError(f"{target.name} is a duration: buckets are of numbers.")
        return Group(f"{target.name}:{period}", alias, target, period)
    if period not in PERIODS:
        message = f"Unknown period {period[:40]!r}."
        raise misnamed(message, period, PERIODS, partial(with_field, period, within=("group_by", "per")))
    target = target_of(request, exposure, name, is_period)
    if period in ("hour", "hour_of_day") and kind_of(target.column.field).word == "date":
        raise ToolError(
            f"{target.name} has no hours. {alternatives(period, (name for name in PERIODS if 'hour' not in name))}"
        )
    return Group(f"{target.name}:{period}", alias, target, period)


_TITLE: Final = re.compile(r"(?!groups$)[A-Za-z][A-Za-z0-9_]{0,39}")
_CALL: Final = re.compile(r"(\w{1,20})\((.*)\)")
_SPELLING: Final = (
    'An aggregate is "count", "sum:field", "sum:quantity*price", or {"function", "field", "where", "as"}; '
    'of two of them {"ratio": ["refunded", "count"]}.'
)
# Members of an aggregate as an object, beside those of what is made of other aggregates.
_MEMBERS: Final = frozenset({"function", "field", "as", "where", "share", "unit", "order"})
SHARES: Final = "a share between 0 and 1, such as 0.9"
DEFAULT_UNIT: Final = "days"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a group: its ``title`` for the caller, its ``alias`` in the query.

    The alias is made here: what a client writes is never a name in SQL. ``result`` is the type of the values. One that
    is made of others (``sources``) has an expression of their aliases, and ``derive`` makes it of their values. A
    duration is shown as a number of ``unit``, where there is one, and a value of one row as those of its ``column``.
    """

    title: str
    alias: str
    expression: Any
    result: Any = INTEGER
    function: str = "count"
    narrowed: tuple[str, ...] = ()
    sources: tuple["Measure", ...] = ()
    derive: Callable[..., Any] | None = None
    unit: timedelta | None = None
    column: Column | None = None

    @property
    def depth(self) -> int:
        """How many results come one after the other before this one is known."""
        return 1 + max(source.depth for source in self.sources) if self.sources else 0

    @property
    def has_change(self) -> bool:
        """Whether it is a change, or made of one."""
        return self.function == "change" or any(source.has_change for source in self.sources)

    def combined(self) -> Any:
        """Return what gives the value of several groups together, None where their values do not tell it."""
        function = FUNCTIONS.get(self.function)
        combine = function.combine if function is not None else None
        return combine(self.alias, output_field=self.result) if combine is not None else None

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON."""
        if self.column is not None:
            return _shown(request, self.column, values)
        if self.unit is not None:
            values = [value / self.unit if isinstance(value, timedelta) else value for value in values]
        if self.unit is not None or self.sources or self.function not in ("count", "sum", "min", "max"):
            return [render(_rounded(value)) for value in values]
        places = getattr(self.result, "decimal_places", None)
        return [render(trimmed(value, places)) for value in values]


def _rounded(value: Any) -> Any:
    """Return a number without the digits that the division alone made."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    short = round(value, MAX_DECIMALS).normalize()
    return short if short else Decimal(0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """An aggregate as it was asked for."""

    function: str
    field: str = ""
    title: str = ""
    where: Any = None
    share: Any = None
    unit: Any = None
    sources: tuple[str, ...] = ()
    order: Any = None


def measures_of(request: MCPRequest, exposure: Exposure, given: Sequence[Any]) -> tuple[Measure, ...]:
    """Return what ``count``, ``sum:total`` or ``{"function": "sum", "field": "total", "as": "all"}`` computes.

    Some are made of others, in whichever order these were asked for.

    Raises:
        ToolError: the caller cannot compute that.
    """
    asked = [_spelt(item) for item in given]
    found = {
        position: _measure(request, exposure, item, f"mcp_a{position}")
        for position, item in enumerate(asked)
        if not item.sources
    }
    while waiting := [position for position in range(len(asked)) if position not in found]:
        titles = [measure.title for measure in found.values()]
        ready = (
            position
            for position in waiting
            if all(find_title(titles, name) is not None for name in asked[position].sources)
        )
        # Where none is ready, the first one tells what it lacks.
        position = next(ready, waiting[0])
        later = [asked[number].title for number in waiting if asked[number].title]
        found[position] = _derived(asked[position], f"mcp_a{position}", list(found.values()), later)
    return tuple(found[position] for position in range(len(asked)))


def _measure(request: MCPRequest, exposure: Exposure, asked: _Asked, alias: str) -> Measure:
    name, text = asked.function, asked.field
    if name not in FUNCTIONS:
        message, meant = f"Unknown aggregate {name[:40]!r}.", aggregate_meant(name)
        # A function without a field may as well be a field without its function.
        near = ([meant] if meant in FUNCTIONS else None) if text else []
        repair = partial(with_field, name, within=("aggregates",))
        raise misnamed(message, name, [*FUNCTIONS, *DERIVED], repair, near, of=None if near else "")
    where: dict[str, Any] = {}
    if asked.where is not None:
        where["filter"] = condition_of(request, exposure, asked.where)
    if text in ("", "*"):
        if name != "count":
            raise ToolError(f'The aggregate {name} needs a field, such as "{name}:total".')
        return Measure(asked.title or "count", alias, Count(Value(1), **where) if where else Count("*"))
    function, suffix = FUNCTIONS[name], ""
    if name == "percentile":
        share = _share(asked.share)
        function, suffix = middle(share), f"_{share:g}".replace(".", "_")
    several = to_several(request, exposure, text)
    if several is not None:
        return _over_related(request, exposure, asked, alias, *several, where)
    if name in EDGES:
        return _edge(request, exposure, asked, alias, **where)
    target = value_of(request, exposure, text, function.usable)
    result = result_of(function, target.column)
    unit, word = _unit(asked.unit, result, is_expression(text))
    return Measure(
        asked.title or f"{name}{suffix}_{target.name}{word}",
        alias,
        function.make(target.expression, output_field=result, **where),
        result,
        name,
        target.narrowed,
        unit=unit,
    )


def _edge(request: MCPRequest, exposure: Exposure, asked: _Asked, alias: str, **where: Any) -> Measure:
    """Return the value of the first or the last row, by an order of numbers or times and then by the primary key."""
    name, given = asked.function, asked.order
    if not isinstance(given, str) or not given.strip("+- "):
        raise ToolError(f'{name} needs an order: {{"function": "{name}", "field": "status", "order": "created"}}.')
    turned, text = given.strip().startswith("-"), given.strip().lstrip("+-")
    target = target_of(request, exposure, asked.field, is_groupable)
    order = value_of(request, exposure, text, is_ordering)
    keys = [F(field.attname) for field in exposure.opts.pk_fields]
    result = stored_field(target.column.field)
    value = edge(target.expression, order.expression, keys, last=(name == "last") is not turned, result=result, **where)
    title = asked.title or f"{name}_{target.name}"
    return Measure(title, alias, value, result, name, (*target.narrowed, *order.narrowed), column=target.column)


def _over_related(
    request: MCPRequest,
    exposure: Exposure,
    asked: _Asked,
    alias: str,
    link: Link,
    text: str,
    where: Mapping[str, Any],
) -> Measure:
    """Return the measure of values of related rows, of which each is counted once: a subquery for each row here."""
    name = asked.function
    if name not in ("count", "sum", "min", "max"):
        raise ToolError(f"{name} of several related rows: aggregate {link.exposure.label} itself.")
    function = FUNCTIONS[name]
    target = value_of(request, link.exposure, text, function.usable) if text else None
    result = result_of(function, target.column) if target is not None else INTEGER
    inner = function.make(target.expression, output_field=result) if target is not None else Count("*")
    rows = linked_rows(request, link).annotate(mcp_all=Value(1)).values("mcp_all")
    each = Subquery(rows.annotate(mcp_value=inner).values("mcp_value"), output_field=result)
    unit, word = _unit(asked.unit, result, is_expression(text))
    assert function.combine is not None
    expression = function.combine(each, output_field=result, **where)
    if name == "count":
        expression = Coalesce(expression, Value(0), output_field=INTEGER)
    title = asked.title or f"{name}_{asked.field}{word}"
    return Measure(title, alias, expression, result, name, target.narrowed if target else (), unit=unit)


def to_several(request: MCPRequest, exposure: Exposure, text: str) -> tuple[Link, str] | None:
    """Return the relation to several rows that all fields of an expression begin with, and the expression there.

    None stands for an expression of fields of the row itself.

    Raises:
        ToolError: it has fields of both.
    """
    paths = re.findall(r"[^\W\d][\w.]*", text)
    roots = {path.replace(".", "__").partition("__")[0] for path in paths}
    links = {root: link_of(request, exposure, root) for root in roots}
    several = [link for link in links.values() if link is not None and link.to_many]
    if not several:
        return None
    if len(roots) > 1:
        raise ToolError(f"{text[:60]!r} mixes rows: all of its fields have to begin with {several[0].name}.")
    root = next(iter(roots))
    return several[0], re.sub(rf"\b{re.escape(root)}(?:\.|__|$|(?=\W))", "", text)


def _share(given: Any) -> float:
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = -1.0
    # "90" and "p90" are what people say.
    share = share / 100 if 1 < share <= 100 else share
    if not 0 <= share <= 1:
        raise ToolError(f'percentile needs {SHARES}: {{"function": "percentile", "field": "total", "share": 0.9}}.')
    return share


def _unit(given: Any, result: Any, is_computed: bool) -> tuple[timedelta | None, str]:
    """Return the unit of a duration, and how titles say it; none for a stored duration for which none is asked."""
    if result.get_internal_type() != "DurationField" or (given is None and not is_computed):
        return None, ""
    word = given if given is not None else DEFAULT_UNIT
    unit = UNITS.get(word.lower()) if isinstance(word, str) else None
    if unit is None:
        raise ToolError(f"Unknown unit {str(word)[:20]!r}. {alternatives(str(word), UNITS)}")
    return unit, "_" + next(name for name, length in UNITS.items() if length == unit)


# What is made of other aggregates of the call


def _divided(value: Any, by: Any) -> Any:
    return None if value is None or not by else float(value) / float(by)


def _difference(value: Any, other: Any) -> Any:
    return None if value is None or other is None else value - other


def amount(measure: Measure) -> Any:
    """Return the value of a measure as a number that can be divided."""
    return Amount(F(measure.alias), FLOAT)


def _ratio(one: Measure, other: Measure) -> tuple[Any, Any]:
    return amount(one) / NullIf(amount(other), Value(0.0)), FLOAT


def _less(one: Measure, other: Measure) -> tuple[Any, Any]:
    if one.result.get_internal_type() in DATES:
        return F(one.alias) - F(other.alias), DURATION
    kinds = {(field.get_internal_type(), getattr(field, "decimal_places", 0)) for field in (one.result, other.result)}
    if len(kinds) == 1:
        return F(one.alias) - F(other.alias), one.result
    return amount(one) - amount(other), FLOAT


# How many aggregates each takes, and what it makes of them.
DERIVED: Final[Mapping[str, int]] = {"ratio": 2, "difference": 2, "percent_of_total": 1, "change": 1}


def _derived(asked: _Asked, alias: str, measures: Sequence[Measure], later: Sequence[str]) -> Measure:
    """Return what is made of other measures, which ``later`` ones can only be in a circle."""
    titles = [measure.title for measure in measures]
    sources = []
    for name in asked.sources:
        position = find_title(titles, name)
        if position is None and find_title(later, name) is not None:
            raise ToolError(f"{asked.function} is made of {name[:60]!r}, which needs it or is not known either.")
        if position is None:
            message = f"{asked.function} is made of other aggregates of this call, not {name[:60]!r}."
            raise misnamed(message, name, titles, partial(with_field, name, within=("aggregates",)))
        sources.append(measures[position])
    if len(sources) != DERIVED[asked.function]:
        raise ToolError(f'{asked.function} takes {DERIVED[asked.function]}, as in {{"ratio": ["refunded", "count"]}}.')
    _check_sources(asked.function, sources)
    title = asked.title or "_".join([asked.function, *(source.title for source in sources)])[:80]
    made: tuple[Any, Any] = (None, FLOAT)
    if asked.function in ("ratio", "difference"):
        made = (_ratio if asked.function == "ratio" else _less)(*sources)
    derive = {"ratio": _divided, "difference": _difference}.get(asked.function)
    narrowed = tuple(label for source in sources for label in source.narrowed)
    unit = sources[0].unit if asked.function == "difference" else None
    unit = UNITS[DEFAULT_UNIT] if sources[0].result.get_internal_type() in DATES else unit
    expression = OverGroups(made[0], output_field=made[1]) if made[0] is not None else None
    return Measure(title, alias, expression, made[1], asked.function, narrowed, tuple(sources), derive, unit)


NUMBERS: Final = frozenset({"BigIntegerField", "IntegerField", "FloatField", "DecimalField", "UnitField"}) | {
    f"{size}IntegerField" for size in ("Small", "Positive", "PositiveSmall", "PositiveBig")
}


DATES: Final = ("DateField", "DateTimeField")


def _check_sources(function: str, sources: Sequence[Measure]) -> None:
    """Pass unless nothing can be made of these aggregates."""
    kinds = [source.result.get_internal_type() for source in sources]
    for source, kind in zip(sources, kinds, strict=True):
        if kind not in NUMBERS and not (function == "difference" and kind in (*DATES, "DurationField")):
            raise ToolError(f"{function} takes numbers, and {source.title} is none.")
        if function == "change" and source.has_change:
            raise ToolError(f"change cannot be of {source.title}, which is made of a change.")
    if len({"number" if kind in NUMBERS else kind for kind in kinds}) > 1:
        names = " and ".join(source.title for source in sources)
        raise ToolError(f"{function} takes two numbers, two dates or two durations: {names} are of different kinds.")


def _spelt(given: Any) -> _Asked:
    given = json_or_text(given)
    if isinstance(given, str):
        return _spelt_as_text(given.strip())
    if not isinstance(given, dict):
        raise ToolError(_SPELLING)
    given = as_aggregate(given, FUNCTIONS)
    title = given.get("as") or ""
    if not isinstance(title, str) or (title and not _TITLE.fullmatch(title)):
        raise ToolError("as must be a short name of letters, digits and underscores.")
    made = next((name for name in DERIVED if name in given), None)
    if made is not None and given.keys() <= {made, "as"}:
        sources = given[made] if isinstance(given[made], list) else [given[made]]
        if not all(isinstance(source, str) for source in sources):
            raise ToolError(_SPELLING)
        return _Asked(made, title=title, sources=tuple(sources))
    name, text = given.get("function"), given.get("field") or ""
    if not given.keys() <= _MEMBERS or not isinstance(name, str) or not isinstance(text, str):
        raise ToolError(_SPELLING)
    more = {member: given.get(member) for member in ("where", "share", "unit", "order")}
    return _Asked(name.lower(), text, title, **more)


def _spelt_as_text(given: str) -> _Asked:
    called = _CALL.fullmatch(given)
    name, _, text = (called[1], ":", called[2]) if called else given.partition(":")
    name, text = name.strip().lower(), text.strip()
    if name in DERIVED:
        separator = {"ratio": "/", "difference": "-"}.get(name)
        return _Asked(name, sources=tuple(part.strip() for part in text.split(separator)) if separator else (text,))
    if name == "percentile":
        text, _, share = (part.strip() for part in (text.rpartition(":") if ":" in text else (text, "", "")))
        return _Asked(name, text, share=share)
    if name in EDGES:
        text, _, order = (part.strip() for part in text.partition(":"))
        return _Asked(name, text, order=order)
    return _Asked(name, text)


def find_title(titles: Sequence[str], text: str) -> int | None:
    """Return the position of the column that a client means, by its title or as it was asked for (``sum:total``)."""
    if text in titles:
        return titles.index(text)
    plain = _plain(text[:MAX_NAME])
    return next((position for position, title in enumerate(titles) if _plain(title) == plain), None)


def _plain(text: str) -> str:
    return re.sub(r"[:_()]+", "_", text).strip("_").lower()
