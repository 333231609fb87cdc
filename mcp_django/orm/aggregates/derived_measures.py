"""Measures derived from others: ratios, differences, shares of the total and changes since the period before."""

from collections.abc import Sequence
from typing import Any, Final

from django.db.models import F, Value
from django.db.models.functions import NullIf

from ...exceptions import ToolError
from ..arithmetic import DURATION, FLOAT, INTEGER, Signed
from ..fields import UNITS, kind_of
from .asked_measures import DERIVED, AskedMeasure
from .functions import OverGroups, Units, exact_field
from .measures import DATES, DEFAULT_UNIT, NUMBER, Measure, alike, find_title, position_of

UNIT_SPELLING: Final = (
    'A duration is a number in a unit: {"function": "sum", "field": "working_time", "unit": "hours", "as": "hours"}.'
)


def derived(asked: AskedMeasure, alias: str, measures: Sequence[Measure], later: Sequence[str]) -> Measure:
    """Derive a measure from others. Raises ``ToolError`` if these do not fit, or if it needs a ``later`` measure."""
    function = asked.function
    sources = _sources(asked, measures, later)
    _check_kinds(function, sources)

    # The expression, the type of its values, and the same as a function of the sources' values. What depends on all
    # groups gets its expression when these are known.
    expression: Any = None
    result: Any = FLOAT
    derive: Any = None
    if function == "ratio":
        expression, result, derive = _ratio(*alike(*sources))
    elif function == "difference":
        expression, result, derive = _less(*alike(*sources))
    if expression is not None:
        expression = OverGroups(expression, output_field=result)

    unit = None
    if result is DURATION:
        unit = UNITS[DEFAULT_UNIT] if sources[0].kind in DATES else sources[0].unit
    title = asked.title or "_".join([function, *(source.title for source in sources)])[:80]
    narrowed = tuple(label for source in sources for label in source.narrowed)
    return Measure(title, alias, expression, result, function, narrowed, tuple(sources), derive, unit)


def _sources(asked: AskedMeasure, measures: Sequence[Measure], later: Sequence[str]) -> list[Measure]:
    """Return the measures that a derived one names as its sources."""
    function = asked.function
    titles = [measure.title for measure in measures]
    sources = []
    for name in asked.sources:
        # A reference to a later one is a circle: all others come before.
        if find_title(titles, name) is None and find_title(later, name) is not None:
            raise ToolError(f"{function} uses {name[:60]!r}, which needs it or is not known.")
        message = f"{function} uses other aggregates of this call, not {name[:60]!r}."
        sources.append(measures[position_of(titles, name, message, "aggregates")])
    if len(sources) != DERIVED[function]:
        raise ToolError(f'{function} takes {DERIVED[function]}, as in {{"ratio": ["refunded", "count"]}}.')
    return sources


def _check_kinds(function: str, sources: Sequence[Measure]) -> None:
    """Check that a function can be derived from values of these kinds."""
    kinds = [source.kind for source in alike(*sources)]
    for source, kind in zip(sources, kinds, strict=True):
        if kind not in (NUMBER, "duration") and not (function == "difference" and kind in DATES):
            raise ToolError(f"{function} takes numbers and durations; {source.title} is neither.")
        if function == "change" and source.has_change:
            raise ToolError(f"change cannot use {source.title}, which is made from a change.")
    if len(set(kinds)) > 1:
        names = " and ".join(source.title for source in sources)
        ways = "two numbers, two dates or two durations" if function == "difference" else "two numbers or two durations"
        message = f"{function} takes {ways}: {names} are of different kinds."
        if "duration" in kinds and NUMBER in kinds:
            message += f" {UNIT_SPELLING}"
        raise ToolError(message)


def _ratio(one: Measure, other: Measure) -> tuple[Any, Any, Any]:
    def derive(value: Any, by: Any) -> Any:
        dividend = one.number(value)
        divisor = other.number(by)
        if dividend is None or not divisor:
            return None
        return dividend / divisor

    return one.amount / NullIf(other.amount, Value(0.0)), FLOAT, derive


def _less(one: Measure, other: Measure) -> tuple[Any, Any, Any]:
    words = {kind_of(measure.result).word for measure in (one, other)}
    exact = exact_field([one.result, other.result])
    plain: Any = F(one.alias) - F(other.alias)
    if len(words) == 1 and words <= {"date", "datetime", "duration"}:
        exact = DURATION
    elif exact is INTEGER:
        plain = Signed(F(one.alias), output_field=exact) - Signed(F(other.alias), output_field=exact)
    elif exact is not None:
        plain = Units(F(one.alias), output_field=exact) - Units(F(other.alias), output_field=exact)

    def derive(value: Any, by: Any) -> Any:
        if value is None or by is None:
            return None
        if exact is not None:
            return value - by
        return (one.number(value) or 0.0) - (other.number(by) or 0.0)

    if exact is not None:
        return (plain, exact, derive)
    return (one.amount - other.amount, FLOAT, derive)
