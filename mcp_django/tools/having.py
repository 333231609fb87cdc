"""Conditions on the groups of ``aggregate_records``: ``having``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from django.db.models import F, Q

from ..exceptions import ToolError
from ..orm.arithmetic import FLOAT, length
from ..orm.conditions import COMPARISONS as BETWEEN
from ..orm.kinds import kind_of, parse_boolean, parse_operand, parse_value
from ..orm.lookups import Path, is_dated, parse_condition
from ..orm.repairs import with_field
from ..orm.spellings import OPERATORS, filters_meant
from ..orm.wording import alternatives, json_or_text, misnamed
from .aggregation import NUMBER, Measure, alike, amount, find_title, kind_of_values

COMPARISONS: Final = (*BETWEEN, "range", "isnull")
MAX_COMPARISONS: Final = 10


def having_of(measures: Sequence[Measure], value: Any) -> Q:
    """Return the condition of ``{"sum_total__gte": 1000}`` or ``{"sum_total": {"gte": 1000}}`` on the groups.

    An aggregate is compared with a value, or with another one of the call: ``{"sum_total__gt": {"field": "budget"}}``.

    Raises:
        ToolError: it names no measure, or compares it with what it cannot be.
    """
    value = json_or_text(value)
    if value is None or value == "":
        return Q()
    value = value if isinstance(value, dict) else filters_meant(value)
    if not isinstance(value, dict):
        raise ToolError('having must be an object such as {"count__gte": 10}.')
    condition, titles = Q(), [measure.title for measure in measures]
    comparisons = [item for name, given in value.items() for item in _comparisons(titles, name, given)]
    if len(comparisons) > MAX_COMPARISONS:
        raise ToolError(f"having takes at most {MAX_COMPARISONS} conditions.")
    for name, lookup, given in comparisons:
        position = find_title(titles, name)
        if position is None:
            message = f"having compares an aggregate of this call, not {name[:60]!r}."
            raise misnamed(message, name, titles, partial(with_field, name, within=("having",)))
        other = _measure_named(measures, given["field"]) if _is_field(given) else None
        measure = measures[position]
        condition &= _compared(measure, lookup, given) if other is None else _with_other(measure, lookup, other)
    return condition


def _comparisons(titles: Sequence[str], name: str, given: Any) -> list[tuple[str, str, Any]]:
    if isinstance(given, dict) and not _is_field(given):
        return [(name, lookup, item) for lookup, item in given.items()]
    if find_title(titles, name) is not None:
        return [(name, "exact", given)]
    root, _, lookup = name.rpartition("__")
    return [(root or name, lookup, given)]


def _is_field(given: Any) -> bool:
    return isinstance(given, dict) and given.keys() == {"field"}


def _measure_named(measures: Sequence[Measure], name: Any) -> Measure:
    titles = [measure.title for measure in measures]
    position = find_title(titles, name) if isinstance(name, str) else None
    if position is None:
        raise ToolError(f"having: field is an aggregate of this call. {alternatives(str(name)[:60], titles)}")
    return measures[position]


def _lookup(text: str) -> str:
    lookup = text if text in COMPARISONS else OPERATORS.get(text.removeprefix("$"), text)
    if lookup not in COMPARISONS:
        raise ToolError(f"having has no comparison {lookup[:40]!r}. {alternatives(lookup, COMPARISONS)}")
    return lookup


def _with_other(measure: Measure, lookup: str, other: Measure) -> Q:
    """Return the comparison of two aggregates of a group, which hold values of one kind."""
    measure, other = alike(measure, other)
    compare, kinds = BETWEEN.get(_lookup(lookup)), [kind_of_values(measure), kind_of_values(other)]
    if compare is None:
        raise ToolError(f"having compares two aggregates by {', '.join(BETWEEN)}.")
    if kinds == [NUMBER, NUMBER]:
        return Q(compare(amount(measure), amount(other)))
    if kinds[0] != kinds[1]:
        names = f"{measure.title} and {other.title}"
        raise ToolError(f"having: {names} cannot be compared: a {kinds[0]} and a {kinds[1]}.")
    return Q(compare(F(measure.alias), F(other.alias)))


def _compared(measure: Measure, lookup: str, given: Any) -> Q:
    lookup = _lookup(lookup)
    try:
        if lookup == "isnull":
            return Q((f"{measure.alias}__isnull", parse_boolean(measure.result, given)))
        if is_dated(measure.result):
            # A relative date, or one that names a whole day.
            found = parse_condition(Path(measure.alias, measure.result, False, True), lookup, given)
            single = found.values[0] if found.lookup not in ("in", "range") else list(found.values)
            return Q((f"{measure.alias}__{found.lookup}", single))
        if lookup == "range" and (not isinstance(given, list) or len(given) != 2):
            raise ValueError("a list of two values: the first and the last")
        return _between(measure, lookup, given if lookup == "range" else [given])
    except ValueError as error:
        raise ToolError(f"having: {measure.title} with {lookup} needs {error}.") from None


def _between(measure: Measure, lookup: str, given: Sequence[Any]) -> Q:
    try:
        values = [_operand(measure, parse_value if lookup == "exact" else parse_operand, item) for item in given]
    except ValueError:
        if kind_of(measure.result).word != "decimal":
            raise
        # A number with more digits than values of this type have.
        numbers = [parse_operand(FLOAT, item) for item in given]
        lookups = ("gte", "lte") if lookup == "range" else (lookup,)
        found = Q()
        for name, number in zip(lookups, numbers, strict=True):
            found &= Q(BETWEEN[name](amount(measure), number))
        return found
    return Q((f"{measure.alias}__{lookup}", values if lookup == "range" else values[0]))


def _operand(measure: Measure, parse: Callable[[Any, Any], Any], given: Any) -> Any:
    if measure.unit is not None:
        number: float = parse(FLOAT, given)
        return number * measure.unit
    try:
        return parse(measure.result, given)
    except ValueError:
        if kind_of(measure.result).word != "duration":
            raise
        try:
            return length(given).expression.value
        except ToolError:
            raise ValueError("a duration such as 3h, 30min or 1 02:30:00") from None
