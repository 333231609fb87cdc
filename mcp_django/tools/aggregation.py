"""The groups, aggregates and conditions on groups (``having``) of ``aggregate_records``.

Dates can be grouped by periods and weekdays.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

from django.db.models import (
    Avg,
    BigIntegerField,
    Count,
    DateField,
    DateTimeField,
    DecimalField,
    DurationField,
    ExpressionWrapper,
    FloatField,
    Max,
    Min,
    Q,
    Sum,
    Value,
)
from django.db.models.functions import (
    Cast,
    ExtractIsoWeekDay,
    Round,
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
from ..orm.columns import Column, field_renderer, render, render_column, trimmed
from ..orm.kinds import kind_of, parse_operand, parse_value, stored_field
from ..orm.relations import labels_for
from ..orm.spellings import OPERATORS
from ..orm.ways import Target, is_comparable, is_countable, is_groupable, is_period, is_summable, target_of
from ..orm.wording import alternatives, json_or_text

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
}


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
    def expression(self) -> Any:
        """What the query groups by."""
        if not self.period:
            return self.target.expression
        function, _ = PERIODS[self.period]
        # As dates, the values of all but hours can be compared without regard to time zones.
        options = {} if self.period in ("hour", "weekday") else {"output_field": DateField()}
        return function(self.target.expression, **options)

    def equals(self, value: Any) -> Q:
        """Return the condition that the group has a value that the query gave."""
        if value is None:
            return Q((f"{self.alias}__isnull", True))
        if isinstance(value, datetime) and self.period:
            value = TruncHour(Value(value, output_field=DateTimeField()))
        return Q((self.alias, value))

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON; a relation as ``[key, label]``."""
        if self.period:
            _, write = PERIODS[self.period]
            return [None if value is None else write(value) for value in values]
        column = self.target.column
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
    name, _, period = given.partition(":")
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
    if period not in PERIODS:
        raise ToolError(f"Unknown period {period[:40]!r}. {alternatives(period, PERIODS)}")
    target = target_of(request, exposure, name, is_period)
    if period == "hour" and kind_of(target.column.field).word == "date":
        raise ToolError(
            f"{target.name} has no hours. {alternatives(period, (name for name in PERIODS if name != period))}"
        )
    return Group(f"{target.name}:{period}", alias, target, period)


MAX_DECIMALS: Final = 6
MAX_DIGITS: Final = 100
# Decimals of so many digits are floating point numbers without loss.
EXACT_DIGITS: Final = 15
COMPARISONS: Final = ("exact", "gt", "gte", "lt", "lte", "range")
MAX_COMPARISONS: Final = 10
_TITLE: Final = re.compile(r"(?!groups$)[A-Za-z][A-Za-z0-9_]{0,39}")
_CALL: Final = re.compile(r"(\w{1,20})\(([^()]*)\)")
_SPELLING: Final = 'An aggregate is "count", "sum:field", or {"function", "field", "as"}.'

_INTEGER: Final = BigIntegerField()
_FLOAT: Final = FloatField()
_DURATION: Final = DurationField()


@lru_cache(maxsize=32)
def _decimal(places: int | None) -> "DecimalField[Any, Any]":
    return DecimalField(max_digits=MAX_DIGITS, decimal_places=places)


class UnitField(DecimalField):  # type: ignore[type-arg]
    """The type of a sum of decimals, which is on SQLite a whole number: of units of the last place."""

    def get_internal_type(self) -> str:
        """Return a type of its own, whose values Django leaves as they are."""
        return "UnitField"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Return the number as the database compares it with a sum."""
        if connection.vendor != "sqlite" or value is None:
            return value
        return int(self.to_python(value).scaleb(self.decimal_places))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return the decimal."""
        whole = connection.vendor == "sqlite" and value is not None
        return Decimal(value).scaleb(-self.decimal_places) if whole else value


class UnitSum(Sum):
    """The exact sum of decimals: SQLite holds and adds them as floating point numbers."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Return the sum of whole numbers."""
        copy = self.copy()
        source, *others = copy.get_source_expressions()
        field: Any = self.output_field
        units = ExpressionWrapper(source * Value(10**field.decimal_places), output_field=_FLOAT)
        copy.set_source_expressions([Cast(Round(units), _INTEGER), *others])
        return super(UnitSum, copy).as_sqlite(compiler, connection, **extra)


@lru_cache(maxsize=32)
def _units(places: int) -> UnitField:
    return UnitField(max_digits=MAX_DIGITS, decimal_places=places)


def _sum_field(column: Column) -> Any:
    stored = stored_field(column.field)
    if _word(column) == "decimal" and stored.decimal_places is not None and (stored.max_digits or 99) <= EXACT_DIGITS:
        return _units(stored.decimal_places)
    places = getattr(stored, "decimal_places", None)
    return {"integer": _INTEGER, "decimal": _decimal(places), "duration": _DURATION}.get(_word(column), _FLOAT)


def _sum(expression: Any, output_field: Any) -> Any:
    """Return the sum, of decimals with no more digits than they have."""
    if isinstance(output_field, UnitField):
        return UnitSum(expression, output_field=output_field)
    return _sum_of_sums(expression, output_field)


def _sum_of_sums(expression: Any, output_field: Any) -> Any:
    found = Sum(expression, output_field=output_field)
    places = getattr(output_field, "decimal_places", None)
    if places is None or isinstance(output_field, UnitField):
        return found
    return Round(found, precision=places, output_field=output_field)


def _average_field(column: Column) -> Any:
    return {"decimal": _decimal(MAX_DECIMALS), "duration": _DURATION}.get(_word(column), _FLOAT)


def _word(column: Column) -> str:
    return kind_of(column.field).word


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate: ``make`` gives its expression, for columns that are ``usable``.

    ``result`` gives the type of its values, which a sum may not have from its column: a sum outgrows it. ``combine``
    gives the value of several groups together from their values; where it is None, that cannot be told from them.
    """

    make: Callable[..., Any]
    usable: Callable[[Column], bool]
    result: Callable[[Column], Any]
    combine: Callable[..., Any] | None = None


FUNCTIONS: Final[Mapping[str, Function]] = {
    "count": Function(Count, is_countable, lambda column: _INTEGER, Sum),
    "count_distinct": Function(partial(Count, distinct=True), is_countable, lambda column: _INTEGER),
    "sum": Function(_sum, is_summable, _sum_field, _sum_of_sums),
    "avg": Function(Avg, is_summable, _average_field),
    "min": Function(Min, is_comparable, lambda column: stored_field(column.field), Min),
    "max": Function(Max, is_comparable, lambda column: stored_field(column.field), Max),
}


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a group: its ``title`` for the caller, its ``alias`` in the query.

    The alias is made here: what a client writes is never a name in SQL. ``result`` is the type of the values.
    """

    title: str
    alias: str
    expression: Any
    result: Any = _INTEGER
    function: str = "count"
    narrowed: tuple[str, ...] = ()

    def combined(self) -> Any:
        """Return what gives the value of several groups together, None where their values do not tell it."""
        combine = FUNCTIONS[self.function].combine
        return combine(self.alias, output_field=self.result) if combine is not None else None

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON."""
        if self.function == "avg":
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


def measure_of(request: MCPRequest, exposure: Exposure, given: Any, position: int) -> Measure:
    """Return what ``count``, ``sum:total`` or ``{"function": "sum", "field": "total", "as": "all"}`` computes.

    Raises:
        ToolError: the caller cannot compute that.
    """
    name, text, title = _spelt(given)
    if name not in FUNCTIONS:
        raise ToolError(f"Unknown aggregate {name[:40]!r}. {alternatives(name, FUNCTIONS)}")
    alias = f"mcp_a{position}"
    if text in ("", "*"):
        if name != "count":
            raise ToolError(f'The aggregate {name} needs a field, such as "{name}:total".')
        return Measure(title or "count", alias, Count("*"))
    function = FUNCTIONS[name]
    target = target_of(request, exposure, text, function.usable)
    result = _result(function, target.column)
    return Measure(
        title or f"{name}_{target.name}",
        alias,
        function.make(target.expression, output_field=result),
        result,
        name,
        target.narrowed,
    )


def _result(function: Function, column: Column) -> Any:
    # A field of the project's own may give any class, and knows best how to make it.
    stored = stored_field(column.field)
    own = hasattr(stored, "from_db_value") and function.result in (_sum_field, _average_field)
    return stored if own else function.result(column)


def _spelt(given: Any) -> tuple[str, str, str]:
    """Return function, field and title."""
    given = json_or_text(given)
    if isinstance(given, str):
        called = _CALL.fullmatch(given.strip())
        name, _, text = (called[1], ":", called[2]) if called else given.partition(":")
        return name.strip().lower(), text.strip(), ""
    if not isinstance(given, dict) or not given.keys() <= {"function", "field", "as"}:
        raise ToolError(_SPELLING)
    name, text, title = given.get("function"), given.get("field") or "", given.get("as") or ""
    if not isinstance(name, str) or not isinstance(text, str) or not isinstance(title, str):
        raise ToolError(_SPELLING)
    if title and not _TITLE.fullmatch(title):
        raise ToolError("as must be a short name of letters, digits and underscores.")
    return name.lower(), text, title


def find_title(titles: Sequence[str], text: str) -> int | None:
    """Return the position of the column that a client means, by its title or as it was asked for (``sum:total``)."""
    if text in titles:
        return titles.index(text)
    plain = _plain(text[:MAX_NAME])
    return next((position for position, title in enumerate(titles) if _plain(title) == plain), None)


def _plain(text: str) -> str:
    return re.sub(r"[:_()]+", "_", text).strip("_").lower()


def having_of(measures: Sequence[Measure], value: Any) -> Q:
    """Return the condition of ``{"sum_total__gte": 1000}`` or ``{"sum_total": {"gte": 1000}}`` on the groups.

    Raises:
        ToolError: it names no measure, or compares it with what it cannot be.
    """
    value = json_or_text(value)
    if value is None or value == "":
        return Q()
    if not isinstance(value, dict):
        raise ToolError('having must be an object such as {"count__gte": 10}.')
    condition, titles = Q(), [measure.title for measure in measures]
    comparisons = [item for name, given in value.items() for item in _comparisons(titles, name, given)]
    if len(comparisons) > MAX_COMPARISONS:
        raise ToolError(f"having takes at most {MAX_COMPARISONS} conditions.")
    for name, lookup, given in comparisons:
        position = find_title(titles, name)
        if position is None:
            raise ToolError(
                f"having compares an aggregate of this call, not {name[:60]!r}. {alternatives(name, titles)}"
            )
        condition &= _compared(measures[position], lookup, given)
    return condition


def _comparisons(titles: Sequence[str], name: str, given: Any) -> list[tuple[str, str, Any]]:
    if isinstance(given, dict):
        return [(name, lookup, item) for lookup, item in given.items()]
    if find_title(titles, name) is not None:
        return [(name, "exact", given)]
    root, _, lookup = name.rpartition("__")
    return [(root or name, lookup, given)]


def _compared(measure: Measure, lookup: str, given: Any) -> Q:
    lookup = lookup if lookup in COMPARISONS else OPERATORS.get(lookup.removeprefix("$"), lookup)
    if lookup not in COMPARISONS:
        raise ToolError(f"having has no comparison {lookup[:40]!r}. {alternatives(lookup, COMPARISONS)}")
    try:
        if lookup == "range":
            if not isinstance(given, list) or len(given) != 2:
                raise ValueError("a list of two values: the first and the last")
            value: Any = [parse_operand(measure.result, item) for item in given]
        else:
            value = (parse_value if lookup == "exact" else parse_operand)(measure.result, given)
    except ValueError as error:
        raise ToolError(f"having: {measure.title} with {lookup} needs {error}.") from None
    return Q((f"{measure.alias}__{lookup}", value))
