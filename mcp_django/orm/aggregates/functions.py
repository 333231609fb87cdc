"""Aggregate functions of the database, with equal results on all databases.

Sums of decimals are exact, although SQLite stores them as floating point numbers. Medians, percentiles and spreads are
those of SQL's ordered-set and sample functions; SQLite has none, so they are computed in Python there.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from math import floor
from typing import Any, Final

from django.db import NotSupportedError
from django.db.models import (
    Aggregate,
    Avg,
    Case,
    Count,
    DecimalField,
    DurationField,
    ExpressionWrapper,
    FloatField,
    Func,
    IntegerField,
    Max,
    Min,
    Q,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Abs, Floor, Round
from django.db.models.lookups import IsNull

from ..arithmetic import DURATION, EXACT_DIGITS, FLOAT, INTEGER, Float
from ..column_values import MAX_DIGITS
from ..columns import Column
from ..fields import kind_of, stored_field
from ..query_limits import check_time
from ..shown_texts import as_shown
from .ranks import RankedRows

MAX_DECIMALS: Final = 6
# Maximum number of decimal digits that always fit an integer of SQLite.
MAX_UNITS: Final = 18
# Tolerance, as a share of a step, for floating point numbers that stand for the same number.
NEARLY: Final = 1e-9
# Number of values between two checks of the time limit.
CHECKED: Final = 50_000
# Functions that return the value of one row, the first or the last in an order.
EDGES: Final = ("first", "last")


@lru_cache(maxsize=32)
def _decimal(places: int | None) -> "DecimalField[Any, Any]":
    return DecimalField(max_digits=MAX_DIGITS, decimal_places=places)


class UnitField(DecimalField):  # type: ignore[type-arg]
    """Model field for aggregates with exact sums of decimals; on SQLite an integer of the last decimal place."""

    def get_internal_type(self) -> str:
        return "UnitField"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if connection.vendor != "sqlite" or value is None:
            return value
        return int(self.to_python(value).scaleb(self.decimal_places))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        whole = connection.vendor == "sqlite" and value is not None
        if whole:
            return Decimal(value).scaleb(-self.decimal_places)
        return value


class Units(Func):
    """Database function for aggregates: a decimal as integer units, because SQLite adds decimals as floats."""

    arity = 1
    output_field: UnitField

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        return compiler.compile(self.get_source_expressions()[0])

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        source = self.get_source_expressions()[0]
        sql, params = compiler.compile(source)
        field = source.output_field
        places = self.output_field.decimal_places
        if isinstance(field, (UnitField, IntegerField)):
            return f"({sql} * {10 ** (places - getattr(field, 'decimal_places', 0))})", params
        return f"CAST(ROUND(({sql}) * {10**places}) AS INTEGER)", params


class UnitSum(Sum):
    """The exact sum of decimals."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        copy = self.copy()
        source, *others = copy.get_source_expressions()
        copy.set_source_expressions([Units(source, output_field=self.output_field), *others])
        return super(UnitSum, copy).as_sqlite(compiler, connection, **extra)


class Step(Func):
    """SQL function beside the aggregate functions: the lower edge of a number's bucket, for buckets of one width."""

    arity = 1

    def __init__(self, expression: Any, width: Any, **extra: Any) -> None:
        super().__init__(expression, **extra)
        self.width = width

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        # Subtract the remainder, which is exact for integers and decimals: a quotient may be rounded.
        sql, params = compiler.compile(self.get_source_expressions()[0])
        width = self.width
        if isinstance(self.output_field, UnitField):
            width = self.output_field.get_db_prep_value(width, connection)
        rest = connection.ops.combine_expression("%%", [f"({sql})", "%s"])
        rest = connection.ops.combine_expression("%%", [f"({rest} + %s)", "%s"])
        return f"({sql} - {rest})", [*params, *params, width, width, width]


class OverGroups(ExpressionWrapper):  # type: ignore[type-arg]
    """SQL window function over the groups of aggregate functions, which is not part of GROUP BY."""

    def get_group_by_cols(self) -> list[Any]:
        return []


class AfterWindows(OverGroups):
    """SQL condition on aggregate functions that runs after window functions, which see the groups it leaves out."""

    contains_over_clause = True


class FloatSum(Sum):
    """The sum of floating point numbers."""

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return _within_range(self, compiler, connection, super().as_mysql(compiler, connection, **extra))


class Average(Avg):
    """The average, with as many digits on all databases."""

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        copy = self.copy()
        source, *others = copy.get_source_expressions()
        is_float = isinstance(self.output_field, FloatField)
        if is_float:
            source = Float(source)
        elif isinstance(self.output_field, DecimalField):
            source = Func(source, template="(%(expressions)s + 0.0000000000)", output_field=self.output_field)
        copy.set_source_expressions([source, *others])
        compiled = super(Average, copy).as_mysql(compiler, connection, **extra)
        return _within_range(copy, compiler, connection, compiled) if is_float else compiled


def _within_range(aggregate: Aggregate, compiler: Any, connection: Any, compiled: Any) -> tuple[str, list[Any]]:
    """Return the SQL of a sum or an average of floats that fails if it may be too large: MySQL would give 0."""
    source, *_ = aggregate.get_source_expressions()
    condition = _condition(aggregate)
    most, most_params = compiler.compile(Max(Abs(source), filter=condition))
    number, number_params = compiler.compile(Count(source, filter=condition))
    sql, params = compiled
    return f"({sql} + 0e0 * ({most} * {number}))", [*params, *most_params, *number_params]


def _condition(aggregate: Aggregate) -> Any:
    """Return the condition on the rows of an aggregate function, None without one. Django 6 wraps it."""
    return getattr(aggregate.filter, "condition", aggregate.filter)


class Amount(Float):
    """Database function: the value of an aggregate function as a float; a duration in seconds."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Divide units of the last decimal place (microseconds of a duration) by the number of units in one.
        field = self.get_source_expressions()[0].output_field
        sql, params = super().as_sqlite(compiler, connection, **extra)
        places = 0
        if isinstance(field, UnitField):
            places = field.decimal_places
        elif isinstance(field, DurationField):
            places = 6
        if places:
            return (f"({sql} / {10**places}.0)", params)
        return (sql, params)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        (source,) = self.get_source_expressions()
        sql, params = super().as_mysql(compiler, connection, **extra)
        return (f"({sql} / 1e6)", params) if isinstance(source.output_field, DurationField) else (sql, params)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        (source,) = self.get_source_expressions()
        if not isinstance(source.output_field, DurationField):
            return super().as_postgresql(compiler, connection, **extra)
        sql, params = compiler.compile(source)
        return f"EXTRACT(EPOCH FROM {sql})::double precision", params


@lru_cache(maxsize=32)
def _units(places: int) -> UnitField:
    return UnitField(max_digits=MAX_DIGITS, decimal_places=places)


def exact_field(fields: Sequence[Any], places: int = 0) -> Any:
    """Return a field type for exact aggregate functions of all of these fields, with at least so many decimal places.

    Returns None if there is no such type: the result is then a floating point number.
    """
    if all(isinstance(field, IntegerField) for field in fields) and not places:
        return INTEGER
    if not all(isinstance(field, (IntegerField, DecimalField)) for field in fields):
        return None
    places = max(places, *(getattr(field, "decimal_places", 0) or 0 for field in fields))
    for field in fields:
        if isinstance(field, DecimalField) and not isinstance(field, UnitField):
            digits = field.max_digits or MAX_DIGITS
            if digits > EXACT_DIGITS or digits - (field.decimal_places or 0) + places > MAX_UNITS:
                return None
    return _units(places)


def step(expression: Any, field: Any, width: Decimal) -> Any:
    """Return the SQL function that gives a number field's bucket, by which aggregate functions group."""
    whole = width == width.to_integral_value()
    exact = exact_field([field], 0 if whole else max(0, -int(width.normalize().as_tuple().exponent)))
    if exact is INTEGER:
        return Step(expression, int(width), output_field=INTEGER)
    if exact is not None and not isinstance(field, IntegerField):
        return Step(Units(expression, output_field=exact), width, output_field=exact)
    size = Value(float(width), output_field=FLOAT)
    # A number on the border belongs to the step that begins there, although 0.3 / 0.1 is less than 3 as a float.
    place = Floor(ExpressionWrapper(Float(expression) / size + Value(NEARLY), output_field=FLOAT))
    return ExpressionWrapper(place * size, output_field=FLOAT)


def _sum_field(column: Column) -> Any:
    stored = stored_field(column.field)
    if _word(column) == "decimal" and stored.decimal_places is not None and (stored.max_digits or 99) <= EXACT_DIGITS:
        return _units(stored.decimal_places)
    places = getattr(stored, "decimal_places", None)
    return {"integer": INTEGER, "decimal": _decimal(places), "duration": DURATION}.get(_word(column), FLOAT)


def _sum(expression: Any, output_field: Any, **options: Any) -> Any:
    """Return the aggregate function for a sum, exact for decimals."""
    if isinstance(output_field, UnitField):
        return UnitSum(expression, output_field=output_field, **options)
    return sum_of_sums(expression, output_field, **options)


def sum_of_sums(expression: Any, output_field: Any, **options: Any) -> Any:
    """Return the aggregate function that adds up sums."""
    function = FloatSum if isinstance(output_field, FloatField) else Sum
    found = function(expression, output_field=output_field, **options)
    places = getattr(output_field, "decimal_places", None)
    if places is None or isinstance(output_field, UnitField):
        return found
    return Round(found, precision=places, output_field=output_field)


def _average_field(column: Column) -> Any:
    return {"decimal": _decimal(MAX_DECIMALS), "duration": DURATION}.get(_word(column), FLOAT)


def _word(column: Column) -> str:
    return kind_of(column.field).word


# Aggregate functions for SQLite, which passes them the values of a group one by one


class _Collected:
    """SQLite aggregate function in Python that collects all values but NULL."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.share = 0.5

    def step(self, value: Any, share: float = 0.5) -> None:
        self.share = share
        if value is not None:
            self.values.append(value)

    def timely(self) -> Iterator[Any]:
        """Yield an aggregate function's values until the time is over: SQLite finishes interrupted aggregates too."""
        for position, value in enumerate(self.values):
            if not position % CHECKED:
                check_time()
            yield value


class _Percentile(_Collected):
    def finalize(self) -> Any:
        # Sort in chunks, to check the time limit between them.
        values = self.values
        for start in range(0, len(values), CHECKED):
            check_time()
            values[start : start + CHECKED] = sorted(values[start : start + CHECKED])
        # The chunks are sorted already, so merging them is quick.
        values.sort()
        if not values:
            return None
        place = self.share * (len(values) - 1)
        low = floor(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (values[high] - values[low]) * (place - low)


class _Deviation(_Collected):
    spread = staticmethod(statistics.stdev)

    def finalize(self) -> float | None:
        if len(self.values) > 1:
            return self.spread(self.timely())
        return None


class _Variance(_Deviation):
    spread = staticmethod(statistics.variance)


class _Computed(Aggregate):
    """Aggregate function that SQLite lacks, registered with the connection as Python code."""

    name: str
    collector: type[Any]

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Register the aggregate function with the SQLite connection, and compile its call."""
        connection.ensure_connection()
        connection.connection.create_aggregate(self.name, -1, self.collector)
        return Aggregate.as_sql(self, compiler, connection, function=self.name, **extra)


# The filter of an aggregate in its template, in versions of Django that have it there.
_FILTER: Final = "%(filter)s" if "%(filter)s" in Aggregate.template else ""


class Percentile(_Computed):
    """Aggregate function ``percentile_cont`` of SQL; the median by default."""

    name = "mcp_percentile"
    collector = _Percentile
    share = 0.5

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # The share is a number that was parsed, so it is safe in SQL.
        copy = self.copy()
        copy.template = f"%(function)s(%(expressions)s, {self.share!r}){_FILTER}"
        return super(Percentile, copy).as_sqlite(compiler, connection, **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        copy = self.copy()
        copy.template = f"PERCENTILE_CONT({self.share!r}) WITHIN GROUP (ORDER BY %(expressions)s){_FILTER}"
        return Aggregate.as_sql(copy, compiler, connection, **extra)

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        raise NotSupportedError(f"{connection.display_name} has no percentiles here.")

    def by_rank(self, rows: RankedRows) -> Any:
        """Return the percentile of these rows as the sum of what each of them adds to it."""
        value, *_ = self.get_source_expressions()
        condition = _condition(self)
        counted = value if condition is None else Case(When(condition, then=value))
        return Sum(rows.percentile(counted, self.share), output_field=self.output_field)


class Deviation(_Computed):
    """The standard deviation of a sample."""

    function = "STDDEV_SAMP"
    name = "mcp_deviation"
    collector = _Deviation


class Variation(_Computed):
    """The variance of a sample."""

    function = "VAR_SAMP"
    name = "mcp_variance"
    collector = _Variance


class _Edge:
    """SQLite aggregate function for the first or last value by an order; NULLs in the order do not count."""

    direction = 1

    def __init__(self) -> None:
        self.best: tuple[Any, ...] | None = None
        self.value: Any = None

    def step(self, value: Any, *place: Any) -> None:
        if place[0] is None:
            return
        if self.best is None or (place < self.best if self.direction > 0 else place > self.best):
            self.best = place
            self.value = value

    def finalize(self) -> Any:
        return self.value


class _LastEdge(_Edge):
    direction = -1


class First(_Computed):
    """Aggregate function for the value of the first row by an order."""

    name = "mcp_first"
    collector = _Edge
    order = "ASC"

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        parts = [compiler.compile(part) for part in self.get_source_expressions() if part is not None]
        (value, _), *places = parts
        order = ", ".join(f"{sql} {self.order} NULLS LAST" for sql, _ in places)
        return f"(ARRAY_AGG({value} ORDER BY {order}))[1]", [param for _, params in parts for param in params]

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        raise NotSupportedError(f"{connection.display_name} has no first and last here.")

    def by_rank(self, rows: RankedRows) -> Any:
        """Return the value of the first one of these rows as the greatest of what they add: no other adds a value."""
        value, *places = (part for part in self.get_source_expressions() if part is not None)
        first = rows.edge(value, places, descending=self.order == "DESC")
        return Max(first, output_field=self.output_field)


class Last(First):
    """Aggregate function for the value of the last row by an order."""

    name = "mcp_last"
    collector = _LastEdge
    order = "DESC"


def edge(value: Any, order: Any, keys: Sequence[Any], *, last: bool, result: Any, filter: Q | None = None) -> Any:
    """Return the aggregate function for the first or last row's value by an order, of rows that pass ``filter``.

    Rows whose order value is NULL do not count.
    """
    place = order if filter is None else Case(When(filter, then=order))
    # Rows that do not count must not give their value either.
    counted = Case(When(IsNull(place, False), then=value), output_field=result)
    return (Last if last else First)(counted, place, *keys, output_field=result)


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate function: ``make`` gives its expression, for columns that are ``usable``.

    ``usable`` asks the column itself, because a class of columns may know better than the one that it is derived from.
    ``result`` returns the field type of its values, which can differ from the column's: a sum outgrows its column.
    ``combine`` computes the value of several groups together from their values; None if that is impossible.
    """

    make: Callable[..., Any]
    usable: Callable[[Column], bool]
    result: Callable[[Column], Any]
    combine: Callable[..., Any] | None = None

    def result_of(self, column: Column) -> Any:
        """Return the field type of the function's values for a column."""
        # A custom field may return any class, and knows best how to make it.
        stored = stored_field(column.field)
        if hasattr(stored, "from_db_value") and self.result in (_sum_field, _average_field):
            return stored
        return self.result(column)


def middle(share: float) -> "Function":
    """Return the aggregate function for a percentile; its share is between 0 and 1."""

    def make(expression: Any, output_field: Any, **options: Any) -> Any:
        value = expression if output_field is DURATION else Float(expression)
        found = Percentile(value, output_field=output_field, **options)
        found.share = share
        return found

    return Function(
        make, lambda column: column.is_summable(), lambda column: DURATION if _word(column) == "duration" else FLOAT
    )


def _own_field(column: Column) -> Any:
    return stored_field(column.field)


def _extreme(function: type[Aggregate]) -> "Function":
    """Return the aggregate function for the first or last value in order; a text with a secret counts as shown."""

    def make(expression: Any, output_field: Any, **options: Any) -> Any:
        return function(as_shown(expression, output_field), output_field=output_field, **options)

    return Function(make, lambda column: column.is_comparable(), _own_field, function)


def _spread(function: type[Aggregate]) -> "Function":
    """Return the aggregate function for a spread of numbers, such as the variance."""

    def make(expression: Any, output_field: Any, **options: Any) -> Any:
        return function(Float(expression), output_field=output_field, **options)

    return Function(make, lambda column: column.is_summable() and _word(column) != "duration", lambda column: FLOAT)


FUNCTIONS: Final[Mapping[str, Function]] = {
    "count": Function(Count, lambda column: column.is_countable(), lambda column: INTEGER, Sum),
    "count_distinct": Function(
        partial(Count, distinct=True), lambda column: column.is_countable(), lambda column: INTEGER
    ),
    "sum": Function(_sum, lambda column: column.is_summable(), _sum_field, sum_of_sums),
    "avg": Function(Average, lambda column: column.is_summable(), _average_field),
    "min": _extreme(Min),
    "max": _extreme(Max),
    "median": middle(0.5),
    "percentile": middle(0.5),
    "stddev": _spread(Deviation),
    "variance": _spread(Variation),
    **dict.fromkeys(EDGES, Function(edge, lambda column: column.is_groupable(), _own_field)),
}
