"""Arithmetic over columns: ``quantity * unit_price``, ``delivered_at - shipped_at``, ``created + 5d``.

The parts of the text (:mod:`~mcp_django.orm.expression_grammar`) become typed values, and names are looked up by the
caller's own rule (:func:`~mcp_django.orm.path.target_of`), so nothing that a client writes becomes SQL or an ORM
keyword. Numbers, dates and durations can be combined where the result means something; division by zero gives NULL.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from operator import add, mul, sub, truediv
from typing import Any, Final

from django.db.models import (
    BigIntegerField,
    DateField,
    DateTimeField,
    DecimalField,
    DurationField,
    ExpressionWrapper,
    Field,
    FloatField,
    Func,
    Value,
)
from django.db.models.expressions import CombinedExpression, DurationExpression
from django.db.models.functions import Cast, NullIf, TruncDate

from ..context.databases import LocalTimes
from ..exceptions import ToolError
from .access import ModelAccess
from .column_values import MAX_DIGITS
from .columns import Column, FieldColumn
from .expression_grammar import Length, Number, Operation, Part, parsed
from .fields import is_stored_as_text, kind_of, stored_field
from .path import Target, target_of

MAX_SHIFT: Final = 10**15
# Maximum number of digits of a decimal that a floating point number, as SQLite stores it, holds without loss.
EXACT_DIGITS: Final = 15
NUMBERS: Final = ("integer", "decimal", "number")
DATES: Final = ("date", "datetime")

_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": add, "-": sub, "*": mul, "/": truediv}

INTEGER: Final = BigIntegerField()
FLOAT: Final = FloatField()
DURATION: Final = DurationField()
_DATE: Final = DateField()
_MOMENT: Final = DateTimeField()


class Float(Cast):
    """Database function: a number as a floating point number, with all of its digits."""

    def __init__(self, expression: Any) -> None:
        super().__init__(expression, FLOAT)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Django adds a decimal, which gives a decimal of few digits.
        return self.as_sql(compiler, connection, template="(%(expressions)s + 0e0)", **extra)


def is_expression(text: str) -> bool:
    """Return whether a text is arithmetic, and not only the name of a field or a path."""
    return re.search(r"[-+*/()\s]", text.strip()) is not None


def value_of(model: ModelAccess, text: str, usable: Callable[[Column], bool]) -> Target:
    """Return the value of an arithmetic expression, a field or a path, whose column is ``usable``."""
    if not is_expression(text):
        return target_of(model, text.strip(), usable)
    found = target_in(parsed(text), lambda name: target_of(model, name, lambda column: column.is_countable()))
    if not usable(found.column):
        raise ToolError(f"{text[:60]!r} gives a {kind_of(found.column.field).word}, which cannot be used here.")
    return found


def target_in(part: Part, look_up: Callable[[str], Target]) -> Target:
    """Return the value of a parsed expression, whose names ``look_up`` finds.

    Raises ``ToolError`` where a result would mean nothing, such as the sum of two dates.
    """
    if isinstance(part, Operation):
        return combined(target_in(part.left, look_up), part.sign, target_in(part.right, look_up))
    if isinstance(part, Number):
        return _constant(part.value)
    if isinstance(part, Length):
        return length(part.text)
    return look_up(part.text)


def length(text: Any) -> Target:
    """Return the value of a duration in an arithmetic expression, such as ``5d`` or ``2 hours``."""
    return Target(text, FieldColumn(text, field=DURATION), Value(duration_in(text), output_field=DURATION))


def duration_in(text: Any) -> timedelta:
    """Parse a duration such as ``5d`` or ``2 hours``. Raises ``ToolError`` for anything else, also without a unit."""
    # A number alone is not a duration: it has no unit.
    is_length = isinstance(text, str) and text.strip()[-1:].isalpha()
    try:
        found: timedelta = kind_of(DURATION).parse(DURATION, text if is_length else None)
    except ValueError:
        raise ToolError(f"{str(text)[:40]!r} is not a duration: write 5d, 2w, 3h or 30min.") from None
    return found


def shift(given: Any) -> Target:
    """Parse the constant that ``+`` and ``-`` in arithmetic add to a value: a number, or a duration such as ``5d``."""
    if isinstance(given, (int, float)) and not isinstance(given, bool) and abs(given) < MAX_SHIFT:
        return _constant(Decimal(str(given)))
    return length(given)


def _constant(number: Decimal) -> Target:
    whole = number == number.to_integral_value()
    field: Any = INTEGER if whole else decimal_field(-int(number.as_tuple().exponent))
    value = Value(int(number) if whole else number, output_field=field)
    return Target(str(number), FieldColumn(str(number), field=field), value)


def decimal_field(places: int) -> "DecimalField[Any, Any]":
    """Return the decimal field of an arithmetic result that SQLite holds exactly."""
    return DecimalField(max_digits=EXACT_DIGITS, decimal_places=places)


def combined(left: Target, sign: str, right: Target) -> Target:
    """Combine two operands by the arithmetic operator ``+``, ``-``, ``*`` or ``/``."""
    words = (_word(left), _word(right))
    made = _temporal(left, sign, right, words) if {*words} & {*DATES, "duration"} else _numeric(left, sign, right)
    if made is None or not {*words} <= {*NUMBERS, *DATES, "duration"}:
        raise ToolError(f"{left.name} {sign} {right.name} cannot be computed: a {words[0]} and a {words[1]}.")
    name = f"{_bracketed(left, sign)}{sign}{_bracketed(right, sign)}"
    field, expression = made
    return Target(name, FieldColumn(name, field=field), expression, (*left.narrowed, *right.narrowed))


def _bracketed(target: Target, sign: str) -> str:
    if sign in "*/" and re.search(r"[-+]", target.name):
        return f"({target.name})"
    return target.name


def _word(target: Target) -> str:
    if target.column.is_foreign_key:
        return "relation"
    if is_stored_as_text(target.column.field):
        return "text"
    return kind_of(target.column.field).word


def _numeric(left: Target, sign: str, right: Target) -> tuple["Field[Any, Any]", Any] | None:
    words = {_word(left), _word(right)}
    if not words <= {*NUMBERS}:
        return None
    if sign == "/":
        # True division, for integers too, of floats: these divide alike on all databases.
        return FLOAT, _made(Float(left.expression), sign, NullIf(Float(right.expression), Value(0.0)), FLOAT)
    if words == {"integer"}:
        return INTEGER, _made(Cast(left.expression, INTEGER), sign, Cast(right.expression, INTEGER), INTEGER)
    places = [_places(left), _places(right)]
    if "number" in words or None in places:
        return FLOAT, _made(Float(left.expression), sign, Float(right.expression), FLOAT)
    first, second = (place or 0 for place in places)
    exact = decimal_field(first + second if sign == "*" else max(first, second))
    wide: Any = DecimalField(max_digits=MAX_DIGITS, decimal_places=exact.decimal_places)
    return exact, _made(left.expression, sign, right.expression, wide)


def _places(target: Target) -> int | None:
    if _word(target) == "integer":
        return 0
    places: int | None = getattr(stored_field(target.column.field), "decimal_places", None)
    return places


def _made(left: Any, sign: str, right: Any, field: "Field[Any, Any]") -> Any:
    return ExpressionWrapper(_OPERATORS[sign](left, right), output_field=field)


def _temporal(left: Target, sign: str, right: Target, words: tuple[str, str]) -> tuple["Field[Any, Any]", Any] | None:
    first, second = words
    if sign == "-" and first in DATES and second in DATES:
        if words == ("datetime", "datetime"):
            one = left.expression
            other = right.expression
        else:
            one = _as_date(left)
            other = _as_date(right)
        return DURATION, _made(one, sign, other, DURATION)
    if second == "duration" and first in DATES and sign in "+-":
        # SQLite can move a date only by whole days.
        moved = _made(
            Cast(left.expression, _MOMENT) if first == "date" else left.expression, sign, right.expression, _MOMENT
        )
        if first == "datetime":
            return (_MOMENT, moved)
        return (_DATE, Cast(moved, _DATE))
    if first == "duration" and second in DATES and sign == "+":
        return _temporal(right, sign, left, (second, first))
    if words == ("duration", "duration") and sign in "+-":
        return DURATION, _made(left.expression, sign, right.expression, DURATION)
    if first == "duration" and second in NUMBERS and sign in "*/":
        factor = NullIf(Float(right.expression), Value(0.0)) if sign == "/" else Float(right.expression)
        return DURATION, ExpressionWrapper(Scaled(left.expression, sign, factor), output_field=DURATION)
    return None


def _as_date(target: Target) -> Any:
    if _word(target) == "datetime":
        return _Day(target.expression)
    return target.expression


class _Day(TruncDate):
    """The day of a time in the current time zone."""

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        LocalTimes(connection).check()
        return self.as_sql(compiler, connection, **extra)


class Signed(Func):
    """Database function: an integer that may be less than zero, as the difference of two is."""

    arity = 1
    template = "%(expressions)s"

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # What is left of an unsigned column is unsigned too there, and an error if it is less than zero.
        return self.as_sql(compiler, connection, template="CAST(%(expressions)s AS SIGNED)", **extra)


class Scaled(DurationExpression):
    """A duration multiplied or divided by a number."""

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Django writes durations as intervals there, which can only be added to dates. They are stored as numbers.
        return CombinedExpression.as_sql(self, compiler, connection)


class _Exact(Func):
    """Database function: an arithmetic result rounded as SQLite stores decimals, since it computes with floats."""

    arity = 1
    template = "%(expressions)s"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        places = getattr(self.output_field, "decimal_places", None)
        return self.as_sql(compiler, connection, template=f"ROUND(%(expressions)s, {places})", **context)


def _exact(target: Target) -> Target:
    is_computed = _word(target) == "decimal" and isinstance(target.expression, ExpressionWrapper)
    field = target.column.field
    if is_computed:
        return replace(target, expression=_Exact(target.expression, output_field=field))
    return target


def compared(left: Target, right: Target) -> tuple[Target, Target]:
    """Return two arithmetic values in forms that the database can compare: of a datetime and a date, the day."""
    words = [_word(left), _word(right)]
    if set(words) == set(DATES):
        left, right = (replace(target, expression=_as_date(target)) for target in (left, right))
    elif words == ["relation", "relation"]:
        if left.column.field.related_model is not right.column.field.related_model:
            raise ToolError(f"{left.name} and {right.name} lead to different models.")
    elif words[0] != words[1] and not set(words) <= set(NUMBERS):
        raise ToolError(f"{left.name} and {right.name} cannot be compared: a {words[0]} and a {words[1]}.")
    return _exact(left), _exact(right)
