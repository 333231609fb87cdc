"""Arithmetic on the values of one row, in Python: exact, without the rounding of floating point numbers.

Numbers are fractions, so a third of 10, three times, is 10. The kinds that can be combined, and what comes out, are
those of arithmetic in questions (:mod:`~mcp_django.orm.arithmetic`), which has checked them before.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from math import floor
from operator import add, mul, sub, truediv
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from ..orm.arithmetic import duration_in
from ..orm.expression_grammar import Length, Number, Operation, Part

Value = Fraction | date | timedelta

# Maximum number of digits before the point, and after it, of a number that is computed with.
MAX_DIGITS: Final = 400
# Digits of a number in a message.
SHOWN_DIGITS: Final = 20
# The units of durations that move a time by calendar days.
_DAY_UNITS: Final = ("d", "day", "days", "w", "week", "weeks")
_DAY: Final = timedelta(days=1)
_TICK: Final = timedelta(microseconds=1)
_NUMERIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_EXACTLY: Final = Context(prec=2 * MAX_DIGITS, Emax=2 * MAX_DIGITS, traps=[Inexact])


class NotComputed(Exception):
    """Raised where an expression has no value; the text says why, after the name of what was to be computed."""


class CalendarDays(timedelta):
    """A duration that was written in days or weeks: a time that it is added to keeps its time of day."""


def computed(part: Part, value_of: Callable[[str], Value]) -> Value:
    """Return the value of a parsed expression; ``value_of`` returns those of the fields that it names.

    Raises ``NotComputed`` for a division by zero and for a date out of range.
    """
    if isinstance(part, Operation):
        left = computed(part.left, value_of)
        right = computed(part.right, value_of)
        try:
            return _combined(left, part.sign, right)
        except OverflowError:
            raise NotComputed("is out of range") from None
    if isinstance(part, Number):
        return Fraction(part.value)
    if isinstance(part, Length):
        return _written(part.text)
    return value_of(part.text)


def _written(text: str) -> timedelta:
    length = duration_in(text)
    if text.lstrip("0123456789").strip() in _DAY_UNITS:
        return CalendarDays(length.days)
    return length


def _combined(left: Any, sign: str, right: Any) -> Value:
    if isinstance(left, timedelta) and isinstance(right, Fraction):
        return _scaled(left, sign, right)
    if isinstance(left, date) and isinstance(right, date):
        return _between(left, right)
    if isinstance(left, date):
        return _moved(left, -1 if sign == "-" else 1, right)
    if isinstance(right, date):
        return _moved(right, 1, left)
    if sign == "/" and not right:
        raise NotComputed("is divided by zero")
    result: Value = _NUMERIC[sign](left, right)
    return result


def _scaled(length: timedelta, sign: str, number: Fraction) -> timedelta:
    if sign == "/" and not number:
        raise NotComputed("is divided by zero")
    ticks = _NUMERIC[sign](Fraction(length // _TICK), number)
    # A timedelta of that many microseconds may not exist, and too many do not even become one.
    return timedelta(microseconds=int(rounded(ticks, Fraction(1))))


def _between(one: date, other: date) -> timedelta:
    """Return the time between two dates or times; between a time and a date, the days between the two days."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one - other
    return _day_of(one) - _day_of(other)


def _day_of(moment: date) -> date:
    if not isinstance(moment, datetime):
        return moment
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return local.date()


def _moved(moment: date, direction: int, length: timedelta) -> date:
    """Return a date or a time moved by a duration, forwards (1) or backwards (-1)."""
    change = length * direction
    if not isinstance(moment, datetime):
        if change % _DAY:
            raise NotComputed("is a date, which only whole days can be added to")
        return moment + change
    if timezone.is_naive(moment):
        return moment + change
    if isinstance(length, CalendarDays):
        # 9:00 stays 9:00 in the current time zone, also if clocks are changed in between.
        return (timezone.localtime(moment) + change).astimezone(UTC)
    return moment.astimezone(UTC) + change


# Values of a row


def value_in_row(value: Any, word: str) -> Value:
    """Return the value of a field of kind ``word`` as arithmetic takes it.

    Raises ``NotComputed`` for a value of another kind, such as NaN, and for numbers of too many digits.
    """
    if word == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return value
    if word == "datetime" and isinstance(value, datetime) and timezone.is_aware(value) == settings.USE_TZ:
        return value
    if word == "duration" and isinstance(value, timedelta):
        return value
    if word in ("integer", "decimal", "number") and isinstance(value, (int, float, Decimal)):
        return _number(value)
    raise NotComputed("cannot be computed with")


def _number(value: int | float | Decimal) -> Fraction:
    if isinstance(value, int):
        if value.bit_length() > 3 * MAX_DIGITS:
            raise NotComputed("has too many digits")
        return Fraction(int(value))
    # The shortest decimal that means this floating point number is the one that callers read.
    number = Decimal(repr(float(value))) if isinstance(value, float) else value
    if not number.is_finite():
        raise NotComputed("is not a number")
    digits = number.as_tuple()
    if number.adjusted() > MAX_DIGITS or int(digits.exponent) < -MAX_DIGITS:
        raise NotComputed("has too many digits")
    return Fraction(number)


# Results


def rounded(number: Fraction, step: Fraction) -> Fraction:
    """Round a number half up (half of a step: away from zero) to a multiple of ``step``, which is more than zero."""
    steps = floor(abs(number) / step + Fraction(1, 2))
    return steps * step if number >= 0 else -steps * step


def decimal_of(number: Fraction) -> Decimal | None:
    """Return a number as a decimal; None if its digits do not end, or are too many."""
    try:
        return _EXACTLY.divide(Decimal(number.numerator), Decimal(number.denominator))
    except Inexact:
        return None


def shown(number: Fraction) -> str:
    """Return the text of a number in a message, cut after some digits."""
    exact = decimal_of(number)
    if exact is not None and len(exact.as_tuple().digits) <= SHOWN_DIGITS and abs(exact.adjusted()) <= SHOWN_DIGITS:
        return format(exact, "f")
    cut = Context(prec=SHOWN_DIGITS).divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"{cut}…"
