"""Converters for SQLite that turn a whole column of dates, decimals or booleans into Python values at once.

SQLite's driver reads dates one by one, and Django's converters take one value at a time, which is most of the work of a
page. Here a whole column is checked at once; only if its values are unusual is each converted as Django does.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import repeat
from operator import eq
from typing import Any, Final

from django.db import connections
from django.db.models import TextField
from django.db.models.expressions import Col
from django.db.models.functions import Cast
from django.utils.dateparse import parse_date, parse_datetime

from .undecodable_values import UNDECODABLE

# Digits of a decimal that survive SQLite's storage as a floating point number.
DIGITS: Final = 15
# Minimum number of characters of a datetime in SQLite.
LEN_MOMENT: Final = len("2000-01-01 00:00:00")

Converter = Callable[[Sequence[Any], Any, Any], Sequence[Any]]
Reader = Callable[[str], Any]


class Written(Cast):
    """Cast of a SQLite date column to the text that it stores, so that a faster converter takes the driver's place."""

    def __init__(self, column: Col) -> None:
        super().__init__(column, TextField())
        self.column = column


def as_read(column: Any, using: str) -> Any:
    """Return the column of a query as the SQLite converters take it: a date column is cast to text."""
    dated = type(column) is Col and column.output_field.get_internal_type() in _READERS
    if dated and connections[using].vendor == "sqlite":
        return Written(column)
    return column


def converters_of(expression: Any, connection: Any) -> tuple[list[Converter], Any]:
    """Return the converters for a column of a query, on SQLite those of whole columns, and their expression."""
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
    """Return a SQLite converter of a whole column for one of Django's converters of a single value."""
    return _QUICK.get(_name(function), _each)(function)


def _name(function: Callable[..., Any]) -> tuple[str, str]:
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", "")


def _each(function: Callable[..., Any]) -> Converter:
    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        try:
            return list(map(function, values, repeat(expression), repeat(connection)))
        except Exception:
            return [_or_undecodable(function, value, expression, connection) for value in values]

    return convert


def _or_undecodable(function: Callable[..., Any], value: Any, expression: Any, connection: Any) -> Any:
    """Run a converter on a value of a SQLite column; return ``UNDECODABLE`` if it fails, as for broken JSON."""
    try:
        if value is UNDECODABLE:
            return UNDECODABLE
        return function(value, expression, connection)
    except Exception:
        return UNDECODABLE


def _reading(read: Reader, quick: Reader) -> Converter:
    """Return a converter of SQLite texts to dates like SQLite's driver, which makes NULL of a text that is no date."""
    each = _each(lambda text, expression, connection: None if text is None else read(text))

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        try:
            return list(map(quick, values))
        except (TypeError, ValueError):
            return each(values, expression, connection)

    return convert


def _moments(function: Callable[..., Any]) -> Converter:
    """Return a converter that makes a whole SQLite column of naive datetimes aware at once, on a connection in UTC."""
    each = _each(function)

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        plain = connection.timezone is UTC and set(map(type, values)) == {datetime}
        if not plain or {value.tzinfo for value in values} != {None}:
            return each(values, expression, connection)
        return [datetime.combine(value, value.time(), UTC) for value in values]

    return convert


def _written_moments(read: Converter, make_aware: Converter) -> Converter:
    """Return a converter of a whole SQLite column of texts, each with date and time in UTC, to aware datetimes."""

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        if None in values:
            known = iter(convert([text for text in values if text is not None], expression, connection))
            return [None if text is None else next(known) for text in values]
        try:
            # fromisoformat() would read the zone as the time if there were only a date before it.
            if connection.timezone is UTC and min(map(len, values), default=LEN_MOMENT) >= LEN_MOMENT:
                return list(map(datetime.fromisoformat, [f"{text}+00:00" for text in values]))
        except (TypeError, ValueError):
            pass
        return make_aware(read(values, expression, connection), expression, connection)

    return convert


def _flags(function: Callable[..., Any]) -> Converter:
    """Return a SQLite converter that leaves a column of booleans as it is, and converts each value of any other."""
    each = _each(function)

    def convert(values: Sequence[Any], expression: Any, connection: Any) -> Sequence[Any]:
        if set(map(type, values)) == {bool}:
            return values
        return each(values, expression, connection)

    return convert


def _decimals(function: Callable[..., Any]) -> Converter:
    """Return a converter of a whole column of SQLite floats with no more places than the field to decimals."""
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
        # The text is exact if the number has no more digits than SQLite keeps, and no more places than the field.
        bound = 10 ** (min(field.max_digits, DIGITS) - field.decimal_places)
        same = all(map(eq, map(float, texts), values))
        exact = bool(values) and same and -bound < min(values) and max(values) < bound
        if exact:
            return list(map(Decimal, texts))
        return each(values, expression, connection)

    return convert


# For each date field, the function with which SQLite's driver reads a column, and the one that it tries first.
_READERS: Final[Mapping[str, tuple[Reader, Reader]]] = {
    "DateTimeField": (parse_datetime, datetime.fromisoformat),
    "DateField": (parse_date, date.fromisoformat),
}
# Recognised by name, because importing their module needs SQLite's driver.
_SQLITE: Final = "django.db.backends.sqlite3.operations"
_MOMENT: Final = (_SQLITE, "DatabaseOperations.convert_datetimefield_value")
_QUICK: Final[Mapping[tuple[str, str], Callable[[Callable[..., Any]], Converter]]] = {
    _MOMENT: _moments,
    (_SQLITE, "DatabaseOperations.convert_booleanfield_value"): _flags,
    (_SQLITE, "DatabaseOperations.get_decimalfield_converter.<locals>.converter"): _decimals,
}
