"""Conditions on the measures of groups: the argument ``having``."""

from collections.abc import Sequence
from datetime import timedelta
from math import floor, log10
from typing import Any, Final

from django.db.models import F, IntegerField, Q
from django.db.models.lookups import GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from ...exceptions import ToolError
from ..alternative_spellings import OPERATORS, filters_meant, json_or_text
from ..arithmetic import DURATION, FLOAT
from ..conditions import COMPARISONS as BETWEEN
from ..fields import UNITS, FieldPath, kind_of, parse_boolean, parse_operand, parse_value
from ..lookups import is_dated, parse_condition
from ..nearest_names import alternatives
from .functions import (
    MAX_DECIMALS,
)
from .measures import MAX_FIGURES, NUMBER, Measure, alike, find_title, position_of

# Lookups that ``having`` accepts, and the maximum number of its conditions.
COMPARISONS: Final = (*BETWEEN, "range", "isnull")
MAX_COMPARISONS: Final = 10


def having_of(measures: Sequence[Measure], value: Any) -> Q:
    """Parse the ``having`` of measures: ``{"sum_total__gte": 1000}`` or ``{"sum_total": {"gte": 1000}}``.

    A measure is compared with a value, or with another measure: ``{"sum_total__gt": {"field": "sum_paid"}}``.
    """
    value = json_or_text(value)
    if value is None or value == "":
        return Q()
    value = value if isinstance(value, dict) else filters_meant(value)
    if not isinstance(value, dict):
        raise ToolError('having must be an object such as {"count__gte": 10}.')
    titles = [measure.title for measure in measures]
    comparisons: list[tuple[str, str, Any]] = []
    for name, given in value.items():
        if isinstance(given, dict) and given.keys() != {"field"}:
            comparisons += [(name, lookup, item) for lookup, item in given.items()]
        elif find_title(titles, name) is not None:
            comparisons.append((name, "exact", given))
        else:
            root, _, lookup = name.rpartition("__")
            comparisons.append((root or name, lookup, given))
    if len(comparisons) > MAX_COMPARISONS:
        raise ToolError(f"having takes at most {MAX_COMPARISONS} conditions.")
    condition = Q()
    for name, lookup, given in comparisons:
        message = f"having compares an aggregate of this call, not {name[:60]!r}."
        position = position_of(titles, name, message, "having")
        if isinstance(given, dict) and given.keys() == {"field"}:
            field = given["field"]
            other = find_title(titles, field) if isinstance(field, str) else None
            if other is None:
                known = alternatives(str(field)[:60], titles)
                raise ToolError(f"having: field is an aggregate of this call. {known}")
            condition &= _with_other(measures[position], _lookup(lookup), measures[other])
        else:
            condition &= _compared(measures[position], _lookup(lookup), given)
    return condition


def _lookup(text: str) -> str:
    lookup = text if text in COMPARISONS else OPERATORS.get(text.removeprefix("$"), text)
    if lookup not in COMPARISONS:
        raise ToolError(f"having has no comparison {lookup[:40]!r}. {alternatives(lookup, COMPARISONS)}")
    return lookup


def _with_other(measure: Measure, lookup: str, other: Measure) -> Q:
    """Return the HAVING condition that compares two measures of one kind."""
    measure, other = alike(measure, other)
    compare = BETWEEN.get(lookup)
    kinds = [measure.kind, other.kind]
    if compare is None:
        raise ToolError(f"having compares two aggregates by {', '.join(BETWEEN)}.")
    if kinds == [NUMBER, NUMBER]:
        return Q(compare(measure.amount, other.amount))
    if kinds[0] != kinds[1]:
        names = f"{measure.title} and {other.title}"
        raise ToolError(f"having: {names} cannot be compared: a {kinds[0]} and a {kinds[1]}.")
    return Q(compare(F(measure.alias), F(other.alias)))


def _compared(measure: Measure, lookup: str, given: Any) -> Q:
    try:
        if lookup == "isnull":
            return Q((f"{measure.alias}__isnull", parse_boolean(measure.result, given)))
        if is_dated(measure.result):
            # A date can be relative, or stand for a whole day.
            found = parse_condition(FieldPath(measure.alias, measure.result, False, True), lookup, given)
            single = found.values[0] if found.lookup not in ("in", "range") else list(found.values)
            return Q((f"{measure.alias}__{found.lookup}", single))
        if lookup == "range" and (not isinstance(given, list) or len(given) != 2):
            raise ValueError("a list of two values: the first and the last")
        return _between(measure, lookup, given if lookup == "range" else [given])
    except ValueError as error:
        raise ToolError(f"having: {measure.title} with {lookup} needs {error}.") from None


def _as_shown(measure: Measure, lookup: str, given: Sequence[Any]) -> Q:
    """Return the HAVING condition that compares a measure's number as it is shown, not its further digits."""
    numbers = [parse_operand(FLOAT, item) for item in given]
    is_decimal = kind_of(measure.result).word == "decimal"

    def half(number: float) -> float:
        """Half of the last place that is shown."""
        if is_decimal:
            return 0.5 * 10.0**-MAX_DECIMALS
        if number:
            return 0.5 * 10.0 ** (floor(log10(abs(number))) - MAX_FIGURES + 1)
        return 0.0

    # What is nearer to a number than half of its last place is shown as the number.
    found = Q()
    if lookup in ("gte", "range", "exact"):
        found &= Q(GreaterThanOrEqual(measure.amount, numbers[0] - half(numbers[0])))
    if lookup in ("lte", "range", "exact"):
        found &= Q(LessThanOrEqual(measure.amount, numbers[-1] + half(numbers[-1])))
    if lookup == "gt":
        found &= Q(GreaterThan(measure.amount, numbers[0] + half(numbers[0])))
    if lookup == "lt":
        found &= Q(LessThan(measure.amount, numbers[0] - half(numbers[0])))
    return found


def _length(unit: timedelta, item: Any) -> timedelta:
    """Read a duration that is compared with a measure in a unit: a number of units, or a text such as ``90min``."""
    try:
        return timedelta(seconds=parse_operand(FLOAT, item) * unit.total_seconds())
    except ValueError:
        pass
    try:
        found: timedelta = parse_operand(DURATION, item)
    except ValueError as error:
        word = next(name for name, length in UNITS.items() if length == unit)
        raise ValueError(f"a number of {word}, or {error}") from None
    return found


def _between(measure: Measure, lookup: str, given: Sequence[Any]) -> Q:
    parse: Any = parse_value if lookup == "exact" else parse_operand
    unit = measure.unit
    result = measure.result
    if unit is None and measure.is_rounded and measure.kind == NUMBER and not isinstance(result, IntegerField):
        return _as_shown(measure, lookup, given)
    try:
        if unit is None:
            values = [parse(result, item) for item in given]
        else:
            values = [_length(unit, item) for item in given]
    except ValueError:
        if kind_of(measure.result).word != "decimal":
            raise
        # The number has more digits than the type of the measure: compare as floats.
        numbers = [parse_operand(FLOAT, item) for item in given]
        lookups = ("gte", "lte") if lookup == "range" else (lookup,)
        found = Q()
        for name, number in zip(lookups, numbers, strict=True):
            found &= Q(BETWEEN[name](measure.amount, number))
        return found
    return Q((f"{measure.alias}__{lookup}", values if lookup == "range" else values[0]))
