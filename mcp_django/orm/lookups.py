"""The lookups that a field takes, such as ``exact`` and ``gte``, and how their values are parsed.

Only lookups that the field's kind or the exposure allows are accepted: what a client writes never becomes an ORM
keyword.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

from django.db import models, router

from .conditions import Condition, is_pattern_lookup, matches_here
from .fields import (
    MORE_TEXT,
    PARTS,
    TEXTUAL,
    FieldPath,
    kind_of,
    parse_boolean,
    parse_integer,
    parse_operand,
    parse_text,
    parse_value,
    stored_field,
)
from .relative_dates import EXAMPLES, PERIODS, Span, just_before, local_now, midnight, read_period, read_span

MAX_VALUES: Final = 100
MAX_REGEX: Final = 100
# Maximum number of repetitions in a regular expression: many in a row, or a repeated group, may backtrack for ages.
MAX_REPEATS: Final = 3
_REPEAT: Final = re.compile(r"[*+{]|(?<![(*+?}])\?")
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")

# Regular expressions are only for exposures that declare them.
DECLARED_TEXT: Final = ("regex", "iregex")
# Rounding of a number with more decimals than the column: "more than 3.4" becomes "more than 3", "at least" 4.
ROUNDINGS: Final = {"gt": ROUND_FLOOR, "lte": ROUND_FLOOR, "gte": ROUND_CEILING, "lt": ROUND_CEILING}
_FRACTION: Final = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,20}")
_EXACT: Final = Context(prec=60)
# Lookups that compare a part, written after its name: ``year__gte``.
OF_PARTS: Final = ("exact", "gt", "gte", "lt", "lte", "in", "range")
_DAYS: Final = ("date", "datetime")


def _values(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_VALUES:
        raise ValueError(f"a list of 1 to {MAX_VALUES} values")
    return value


def _parse_text_lookup(field: Any, lookup: str, value: Any) -> str:
    text = parse_text(field, value)
    if is_pattern_lookup(lookup):
        if len(text) > MAX_REGEX:
            raise ValueError(f"an expression of at most {MAX_REGEX} characters")
        if _REPEATED_GROUP.search(text) or len(_REPEAT.findall(text)) > MAX_REPEATS:
            raise ValueError(f"an expression without repeated groups and with at most {MAX_REPEATS} repetitions")
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            raise ValueError("a regular expression") from None
    return text


def parse_condition(path: FieldPath, lookup: str, value: Any, now: datetime | None = None) -> Condition:
    """Parse the value of a lookup such as ``gte`` on a field, and return the condition.

    ``null`` means ``isnull`` and a list means ``in``. A bare date compared with a datetime means the whole day, and a
    relative date, counted from ``now``, means the whole period that it names.
    """
    field = path.field
    if value is None and lookup in ("exact", "isnull"):
        return Condition(path, "isnull", (True,))
    if lookup == "isnull":
        return Condition(path, lookup, (parse_boolean(field, value),))
    operand = kind_of(field).operand
    if operand is not None:
        return Condition(path, lookup, (operand(field, lookup, value),))
    part, _, word = lookup.partition("__")
    if part in PARTS:
        if not word and isinstance(value, list):
            lookup = f"{part}__in"
            word = "in"
        if word == "range":
            items = _two(value)
        elif word == "in":
            items = _values(value)
        else:
            items = [value]
        return Condition(path, lookup, tuple(_part(part, item) for item in items))
    if is_dated(field):
        return _temporal(path, lookup, value, now)
    if lookup == "in" or (lookup == "exact" and isinstance(value, list)):
        return Condition(path, "in", tuple(dict.fromkeys(parse_value(field, item) for item in _values(value))))
    if lookup == "range":
        first, last = _two(value)
        first = _as_stored(field, "gte", first)
        last = _as_stored(field, "lte", last)
        return Condition(path, lookup, (parse_operand(field, first), parse_operand(field, last)))
    if lookup in ROUNDINGS:
        return Condition(path, lookup, (parse_operand(field, _as_stored(field, lookup, value)),))
    if lookup in TEXTUAL or lookup in MORE_TEXT or lookup in DECLARED_TEXT:
        return Condition(path, lookup, (_parse_text_lookup(field, lookup, value),))
    return Condition(path, lookup, ((parse_value if lookup == "exact" else parse_operand)(field, value),))


def _as_stored(field: Any, lookup: str, value: Any) -> Any:
    """Round a number for a lookup such as ``gt`` to as many decimals as the column has."""
    text = str(value) if isinstance(value, (str, float)) else ""
    if _FRACTION.fullmatch(text) is None:
        return value
    word = kind_of(field).word
    stored = stored_field(field)
    places = None
    if word == "integer":
        places = 0
    elif word == "decimal" and stored.max_digits is not None:
        places = stored.decimal_places
    if places is None or len(text.partition(".")[2]) <= places:
        return value
    rounded = Decimal(text).quantize(Decimal(1).scaleb(-places), ROUNDINGS[lookup], _EXACT)
    return int(rounded) if word == "integer" else str(rounded)


def _part(lookup: str, value: Any) -> int:
    low, high = PARTS[lookup]
    number = parse_integer(models.IntegerField(), value)
    if not low <= number <= high:
        first = " (Sunday)" if lookup == "week_day" else ""
        raise ValueError(f"a whole number from {low}{first} to {high}")
    return number


def is_dated(field: Any) -> bool:
    """Return whether lookups of the field take dates by words, such as "last 30 days"."""
    return not field.is_relation and kind_of(field).word in _DAYS


def _temporal(path: FieldPath, lookup: str, value: Any, now: datetime | None) -> Condition:
    """Parse the value of a lookup on a date or datetime, which may name a whole period, and return the condition."""
    now = now or local_now()
    items = value[:MAX_VALUES] if isinstance(value, list) else [value]
    is_relative = any(isinstance(item, str) and read_span(item, now) is not None for item in items)
    given = value if is_relative else None
    if lookup == "in" or (lookup == "exact" and isinstance(value, list)):
        spans = [_bounds(path.field, item, now) for item in _values(value)]
        if any(first != last for first, last in spans):
            raise ValueError('single points in time; combine several periods with "or"')
        return Condition(path, "in", tuple(dict.fromkeys(first for first, _ in spans)), given)
    if lookup == "range" and (not isinstance(value, str) or (given is None and "," in value)):
        one, other = _two(value)
        values = _bounds(path.field, one, now)[0], _bounds(path.field, other, now)[1]
        return Condition(path, lookup, values, given)
    first, last = _bounds(path.field, value, now)
    if lookup == "range" or (lookup in ("exact", "date") and first != last):
        return Condition(path, "range", (first, last), given)
    found = last if lookup in ("gt", "lte") else first
    return Condition(path, "exact" if lookup == "date" else lookup, (found,), given)


def _bounds(field: Any, value: Any, now: datetime) -> tuple[Any, Any]:
    """Return the first and last moment that a lookup's value covers: the whole day if a datetime gets a bare date."""
    is_date = kind_of(field).word == "date"
    span = read_span(value, now) if isinstance(value, str) else None
    if span is None:
        # Python would read a week of ISO 8601 as its Monday; here it means the whole week.
        is_week = isinstance(value, str) and value[4:6].upper() == "-W" and len(value) < 10
        expected = "a date"
        try:
            if not is_week:
                found = parse_operand(field, value)
                return found, found if is_date or len(value) > 10 else _end_of_day(found)
        except ValueError as error:
            expected = str(error)
        span = _period(value)
        if span is None:
            raise ValueError(f"{expected}, {PERIODS}, {EXAMPLES}")
    if is_date:
        return (span.start.date(), span.last.date())
    return (span.start, span.last)


def _period(value: Any) -> Span | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return read_period(value) if isinstance(value, str) else None


def _end_of_day(value: datetime) -> datetime:
    try:
        return just_before(midnight(value.date() + timedelta(days=1)))
    except OverflowError:
        raise ValueError("a date within the years 1 to 9999") from None


def _two(value: Any) -> Sequence[Any]:
    values = _values(value)
    if len(values) != 2:
        raise ValueError("a list of two values: the first and the last")
    return values


def declared_lookups(path: FieldPath, lookups: Sequence[str]) -> tuple[str, ...]:
    """Return those of the declared lookups that the field can take, without lookups that are unknown here.

    Regular expressions are left out too if this process would have to match them.
    """
    known = set(kind_of(path.field).usual_lookups)
    if set(MORE_TEXT) <= known and not set(DECLARED_TEXT).isdisjoint(lookups):
        known |= set() if matches_here(router.db_for_read(path.field.model)) else set(DECLARED_TEXT)
    return tuple(lookup for lookup in lookups if lookup in known)
