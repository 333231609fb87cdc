"""Plans: a queryset compiled once by Django, run many times with other parameters.

Building a queryset, its SQL and model instances is most of what a page costs. A plan keeps the SQL that Django's
compiler wrote for one shape (columns, filters, order, limit) with numbered slots where the values go; a call binds
its values, runs the SQL by cursor and applies Django's own converters. No SQL is written here.

SQLite's driver reads dates one by one, and Django's converters take each value by itself: that is most of the work of
a page. A column is asked once whether its values are the usual ones; where they are not, each goes Django's way.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import eq
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from django.core.exceptions import EmptyResultSet, ValidationError
from django.core.signals import setting_changed
from django.db import connections
from django.db.models import QuerySet, TextField
from django.db.models.expressions import Col, Expression
from django.db.models.functions import Cast
from django.db.models.lookups import In
from django.utils.dateparse import parse_date, parse_datetime

from ..exceptions import ToolError
from .kinds import stored_field
from .unreadable import LOST

# Of a decimal, which SQLite keeps as a floating-point number.
DIGITS: Final = 15
# Characters of a date and a time, as SQLite has them at least.
LEN_MOMENT: Final = len("2000-01-01 00:00:00")

Converter = Callable[[Sequence[Any], Any, Any], Sequence[Any]]
Reader = Callable[[str], Any]


class Written(Cast):
    """A column of SQLite as the text that it holds, which its driver leaves as it is."""

    def __init__(self, column: Col) -> None:
        super().__init__(column, TextField())
        self.column = column


def as_read(column: Any, using: str) -> Any:
    """Return the column of a query as it is best read from the database."""
    dated = type(column) is Col and column.output_field.get_internal_type() in _READERS
    return Written(column) if dated and connections[using].vendor == "sqlite" else column


def converters_of(expression: Any, connection: Any) -> tuple[list[Converter], Any]:
    """Return what makes Python values of a column, one after the other, and the expression that they are given."""
    is_written = isinstance(expression, Written)
    if is_written:
        expression = expression.column
    own = [*connection.ops.get_db_converters(expression), *expression.get_db_converters(connection)]
    found = list(map(_by_column, own))
    if is_written:
        found.insert(0, _reading(*_READERS[expression.output_field.get_internal_type()]))
        if len(own) == 1 and _name(own[0]) == _MOMENT:
            found = [_written_moments(*found)]
    return found, expression


def _by_column(function: Callable[..., Any]) -> Converter:
    """Return what does to a column what one of Django's converters does to a value."""
    return _QUICK.get(_name(function), _each)(function)


def _name(function: Callable[..., Any]) -> tuple[str, str]:
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", "")


def _each(function: Callable[..., Any]) -> Converter:

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        try:
            return [function(value, expression, connection) for value in values]
        except Exception:
            return [_or_lost(function, value, expression, connection) for value in values]

    return convert


def _or_lost(function: Callable[..., Any], value: Any, expression: Any, connection: Any) -> Any:
    """Return ``LOST`` for what the column cannot hold, such as no JSON in a JSON column of SQLite."""
    try:
        return LOST if value is LOST else function(value, expression, connection)
    except Exception:
        return LOST


def _reading(read: Reader, quick: Reader) -> Converter:
    """Return what reads texts as the driver of SQLite does, which makes NULL of what is no date at all."""
    each = _each(lambda text, expression, connection: None if text is None else read(text))

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        try:
            return list(map(quick, values))
        except (TypeError, ValueError):
            return each(values, expression, connection)

    return convert


def _moments(function: Callable[..., Any]) -> Converter:
    """Return what does the work of SQLite's converter at once where every value is a time without a zone, in UTC."""
    each = _each(function)

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        plain = connection.timezone is UTC and set(map(type, values)) == {datetime}
        if not plain or {value.tzinfo for value in values} != {None}:
            return each(values, expression, connection)
        return [datetime.combine(value, value.time(), UTC) for value in values]

    return convert


def _written_moments(read: Converter, make_aware: Converter) -> Converter:
    """Return what does both at once where every text is date and time without a zone, in UTC."""

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        if None in values:
            known = iter(convert([text for text in values if text is not None], expression, connection))
            return [None if text is None else next(known) for text in values]
        try:
            # The zone of a date alone would be read as its time.
            if connection.timezone is UTC and min(map(len, values), default=LEN_MOMENT) >= LEN_MOMENT:
                return list(map(datetime.fromisoformat, [f"{text}+00:00" for text in values]))
        except (TypeError, ValueError):
            pass
        return make_aware(read(values, expression, connection), expression, connection)

    return convert


def _flags(function: Callable[..., Any]) -> Converter:
    """Return what leaves a column of booleans to itself, as SQLite's converter does."""
    each = _each(function)

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        return values if set(map(type, values)) == {bool} else each(values, expression, connection)

    return convert


def _decimals(function: Callable[..., Any]) -> Converter:
    """Return what does the work of SQLite's converter at once where no value has more places than the field."""
    each = _each(function)

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        if not isinstance(expression, Col):
            return each(values, expression, connection)
        field: Any = expression.output_field
        written = f"%.{field.decimal_places}f"
        try:
            texts = [written % value for value in values]
        except TypeError:
            return each(values, expression, connection)
        # Of a number that has no more digits than SQLite keeps, and no more places than the field, the text is exact.
        bound = 10 ** (min(field.max_digits, DIGITS) - field.decimal_places)
        same = all(map(eq, map(float, texts), values))
        exact = bool(values) and same and -bound < min(values) and max(values) < bound
        return list(map(Decimal, texts)) if exact else each(values, expression, connection)

    return convert


# What the driver of SQLite reads a column with, and what that itself tries first.
_READERS: Final[Mapping[str, tuple[Reader, Reader]]] = {
    "DateTimeField": (parse_datetime, datetime.fromisoformat),
    "DateField": (parse_date, date.fromisoformat),
}
# By name, so that the module, which needs the driver, is not imported.
_SQLITE: Final = "django.db.backends.sqlite3.operations"
_MOMENT: Final = (_SQLITE, "DatabaseOperations.convert_datetimefield_value")
_QUICK: Final[Mapping[tuple[str, str], Callable[[Callable[..., Any]], Converter]]] = {
    _MOMENT: _moments,
    (_SQLITE, "DatabaseOperations.convert_booleanfield_value"): _flags,
    (_SQLITE, "DatabaseOperations.get_decimalfield_converter.<locals>.converter"): _decimals,
}


MAX_PLANS: Final = 1000


class Kept(Protocol):
    """What can be kept: something that knows whether values of a caller are in it."""

    @property
    def has_own_params(self) -> bool:
        """See :class:`Plan`."""


P = TypeVar("P", bound=Kept)


class Slot(int):
    """The place of one parameter: an index into the values of a call."""


class Bind(Expression):
    """One SQL parameter: a :class:`Slot` that each call fills, or a value that is prepared for the database already."""

    def __init__(self, param: Any) -> None:
        super().__init__(output_field=None)
        self.param = param

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """Return the placeholder and the parameter."""
        return "%s", [self.param]


class BoundIn(In):
    """``IN`` with as many parameters as ``rhs`` has items, each as :class:`Bind` takes it."""

    prepare_rhs = False

    def get_prep_lookup(self) -> Any:
        """Return the parameters as they are."""
        return self.rhs

    def process_rhs(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """Return the placeholders and the parameters."""
        return "(" + ", ".join(["%s"] * len(self.rhs)) + ")", list(self.rhs)

    def get_rhs_op(self, connection: Any, rhs: str) -> str:
        """Return the operator."""
        return f"IN {rhs}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Plan:
    """One compiled query: ``sql`` with ``params``, of which a :class:`Slot` is replaced for each call.

    ``expressions`` are the columns of the result, which know how a value of the driver becomes a Python value.
    ``sql`` None stands for a query that Django proved to have no rows. ``has_own_params`` says that the queryset
    brought values of its own, which may be the caller's. ``names`` are those of the parameters, None where the SQL
    counts them.
    """

    sql: str | None
    params: tuple[Any, ...]
    expressions: tuple[Any, ...]
    has_own_params: bool
    names: tuple[str, ...] | None = None

    def run(self, using: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows, as tuples of Python values; ``values`` are prepared for the database by :func:`prepare`."""
        return list(zip(*self.columns(using, values), strict=True))

    def columns(self, using: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Return what :meth:`run` does by the column; no columns where there are no rows."""
        if self.sql is None:
            return []
        params = [values[param] if type(param) is Slot else param for param in self.params]
        connection = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, params if self.names is None else dict(zip(self.names, params, strict=True)))
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return _convert(self, connection, rows)


def compile_plan(queryset: QuerySet[Any], using: str) -> Plan:
    """Return the plan of a queryset of ``values_list`` rows, whose filters may hold :class:`Bind` expressions."""
    query: Any = queryset.query.chain()
    # Columns in their order, and annotations after them.
    if not query.distinct and list((query.selected or {}).values()) == [
        *range(len(query.select)),
        *query.annotation_select,
    ]:
        query.select = tuple(as_read(column, using) for column in query.select)
        # Without names: by the name of a column the order would be that of its text, which no index has.
        query.selected = None
    return plan_of(query.get_compiler(using=using))


def plan_of(compiler: Any) -> Plan:
    """Return the plan that one of Django's compilers writes."""
    try:
        sql, params = compiler.as_sql()
    except EmptyResultSet:
        return Plan(None, (), (), False)
    expressions = tuple(item[0] for item in compiler.select[: compiler.col_count])
    has_own_params = any(type(param) is not Slot for param in params)
    names = _names(sql, len(params)) if compiler.connection.vendor == "sqlite" else None
    if names is not None:
        sql = sql.replace("%%", "%%%%") % tuple(f"%({name})s" for name in names)
    return Plan(sql, tuple(params), expressions, has_own_params, names)


def _names(sql: str, count: int) -> tuple[str, ...] | None:
    """Return names for the parameters of the SQL, None where a lone percent sign in it is not one of them.

    For SQLite Django looks for parameters without names in all of the text, each time that it runs.
    """
    rest = sql.replace("%%", "")
    return tuple(f"p{number}" for number in range(count)) if rest.count("%") == rest.count("%s") == count else None


# Values


def prepare(field: Any, value: Any, using: str) -> Any:
    """Return the value as the database driver takes it for a column of the field.

    Raises:
        ToolError: the database has no such value.
    """
    connection = connections[using]
    try:
        found = stored_field(field).get_db_prep_value(value, connection, prepared=False)
        # A duration is an integer on SQLite, whose driver takes those of 64 bits.
        if connection.vendor == "sqlite" and isinstance(found, int) and not -(2**63) <= found < 2**63:
            raise OverflowError
    except (ValueError, ArithmeticError, TypeError, ValidationError):
        raise ToolError(f"{str(value)[:60]!r} is out of range.") from None
    return found


Converters = list[tuple[int, list[Converter], Any]]
# Converters are bound to a connection, so that each thread has its own and none outlives its thread.
_local = threading.local()


def _converters(plan: Plan, connection: Any) -> Converters:
    kept: WeakKeyDictionary[Plan, tuple[Any, Converters]] | None = getattr(_local, "converters", None)
    if kept is None:
        kept = _local.converters = WeakKeyDictionary()
    entry = kept.get(plan)
    if entry is None or entry[0] is not connection:
        columns = [(position, *converters_of(column, connection)) for position, column in enumerate(plan.expressions)]
        entry = kept[plan] = (connection, [column for column in columns if column[1]])
    return entry[1]


def _convert(plan: Plan, connection: Any, rows: list[tuple[Any, ...]]) -> list[Sequence[Any]]:
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    if rows:
        for position, functions, expression in _converters(plan, connection):
            for function in functions:
                columns[position] = function(columns[position], expression, connection)
    return columns


# The cache

_plans: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def cached_plan(key: Hashable, build: Callable[[], P]) -> P:
    """Return the plan of the shape, compiled by ``build`` when it is not there.

    A plan that holds values which are not slots is not kept: they may be those of one caller.
    """
    with _lock:
        plan: P | None = _plans.get(key)
        if plan is not None:
            _plans.move_to_end(key)
            return plan
    plan = build()
    if not plan.has_own_params:
        with _lock:
            _plans[key] = plan
            while len(_plans) > MAX_PLANS:
                _plans.popitem(last=False)
    return plan


def clear() -> None:
    """Forget every plan. A registry that changes makes new exposures, which are in the key: this frees memory."""
    with _lock:
        _plans.clear()


def _clear(**kwargs: Any) -> None:
    clear()


setting_changed.connect(_clear)
