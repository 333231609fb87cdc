"""The aggregates of ``aggregate_records``, and what is made of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.db.models import Count, F, Subquery, Value
from django.db.models.functions import Coalesce, NullIf

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..orm.access import MAX_NAME
from ..orm.aggregates import (
    EDGES,
    FUNCTIONS,
    Amount,
    OverGroups,
    UnitField,
    Units,
    edge,
    exact_field,
    middle,
    result_of,
)
from ..orm.arithmetic import DURATION, FLOAT, INTEGER, UNITS, is_expression, value_of
from ..orm.columns import Column, render, trimmed
from ..orm.kinds import kind_of, stored_field
from ..orm.parsing import condition_of
from ..orm.repairs import with_field
from ..orm.spellings import aggregate_meant, as_aggregate
from ..orm.ways import Link, is_groupable, is_ordering, link_of, linked_rows, target_of
from ..orm.wording import alternatives, json_or_text, misnamed
from .grouping import rounded, shown_values

_TITLE: Final = re.compile(r"(?!groups$)[A-Za-z][A-Za-z0-9_]{0,39}")
_CALL: Final = re.compile(r"(\w{1,20})\((.*)\)")
_SPELLING: Final = (
    'An aggregate is "count", "sum:field", "sum:quantity*price", or {"function", "field", "where", "as"}; '
    'of two of them {"ratio": ["refunded", "count"]}.'
)
# Members of an aggregate as an object, beside those of what is made of other aggregates.
_MEMBERS: Final = frozenset({"function", "field", "as", "where", "share", "unit", "order"})
SHARES: Final = "a share between 0 and 1, such as 0.9"
DEFAULT_UNIT: Final = "days"
# Kinds of values.
NUMBER: Final = "number"
DATES: Final = ("date", "datetime")
UNIT_SPELLING: Final = (
    'A duration is a number in a unit: {"function": "sum", "field": "working_time", "unit": "hours", "as": "hours"}.'
)


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a group: its ``title`` for the caller, its ``alias`` in the query.

    The alias is made here: what a client writes is never a name in SQL. ``result`` is the type of the values. One that
    is made of others (``sources``) has an expression of their aliases, and ``derive`` makes it of their values. A
    duration is shown as a number of ``unit``, where there is one, and a value of one row as those of its ``column``.
    """

    title: str
    alias: str
    expression: Any
    result: Any = INTEGER
    function: str = "count"
    narrowed: tuple[str, ...] = ()
    sources: tuple["Measure", ...] = ()
    derive: Callable[..., Any] | None = None
    unit: timedelta | None = None
    column: Column | None = None

    @property
    def depth(self) -> int:
        """How many results come one after the other before this one is known."""
        return 1 + max(source.depth for source in self.sources) if self.sources else 0

    @property
    def has_change(self) -> bool:
        """Whether it is a change, or made of one."""
        return self.function == "change" or any(source.has_change for source in self.sources)

    def combined(self) -> Any:
        """Return what gives the value of several groups together, None where their values do not tell it."""
        function = FUNCTIONS.get(self.function)
        combine = function.combine if function is not None else None
        return combine(self.alias, output_field=self.result) if combine is not None else None

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON."""
        if self.column is not None:
            return shown_values(request, self.column, values)
        if self.unit is not None:
            values = [value / self.unit if isinstance(value, timedelta) else value for value in values]
        has_places = isinstance(self.result, UnitField) or self.function in ("count", "sum", "min", "max")
        if self.unit is not None or not has_places:
            return [render(rounded(value)) for value in values]
        places = getattr(self.result, "decimal_places", None)
        return [render(trimmed(value, places)) for value in values]


@dataclass(frozen=True, slots=True)
class _Asked:
    """An aggregate as it was asked for."""

    function: str
    field: str = ""
    title: str = ""
    where: Any = None
    share: Any = None
    unit: Any = None
    sources: tuple[str, ...] = ()
    order: Any = None


def measures_of(request: MCPRequest, exposure: Exposure, given: Sequence[Any]) -> tuple[Measure, ...]:
    """Return what ``count``, ``sum:total`` or ``{"function": "sum", "field": "total", "as": "all"}`` computes.

    Some are made of others, in whichever order these were asked for.

    Raises:
        ToolError: the caller cannot compute that.
    """
    asked = [_spelt(item) for item in given]
    found = {
        position: _measure(request, exposure, item, f"mcp_a{position}")
        for position, item in enumerate(asked)
        if not item.sources
    }
    while waiting := [position for position in range(len(asked)) if position not in found]:
        titles = [measure.title for measure in found.values()]
        ready = (
            position
            for position in waiting
            if all(find_title(titles, name) is not None for name in asked[position].sources)
        )
        # Where none is ready, the first one tells what it lacks.
        position = next(ready, waiting[0])
        later = [asked[number].title for number in waiting if asked[number].title]
        found[position] = _derived(asked[position], f"mcp_a{position}", list(found.values()), later)
    return tuple(found[position] for position in range(len(asked)))


def _measure(request: MCPRequest, exposure: Exposure, asked: _Asked, alias: str) -> Measure:
    name, text = asked.function, asked.field
    if name not in FUNCTIONS:
        message, meant = f"Unknown aggregate {name[:40]!r}.", aggregate_meant(name)
        # A function without a field may as well be a field without its function.
        near = ([meant] if meant in FUNCTIONS else None) if text else []
        repair = partial(with_field, name, within=("aggregates",))
        raise misnamed(message, name, [*FUNCTIONS, *DERIVED], repair, near, of=None if near else "")
    where: dict[str, Any] = {}
    if asked.where is not None:
        where["filter"] = condition_of(request, exposure, asked.where)
    if text in ("", "*"):
        if name != "count":
            raise ToolError(f'The aggregate {name} needs a field, such as "{name}:total".')
        return Measure(asked.title or "count", alias, Count(Value(1), **where) if where else Count("*"))
    function, suffix = FUNCTIONS[name], ""
    if name == "percentile":
        share = _share(asked.share)
        function, suffix = middle(share), f"_{share:g}".replace(".", "_")
    several = to_several(request, exposure, text)
    if several is not None:
        return _over_related(request, exposure, asked, alias, *several, where)
    if name in EDGES:
        return _edge(request, exposure, asked, alias, **where)
    target = value_of(request, exposure, text, function.usable)
    result = result_of(function, target.column)
    unit, word = _unit(asked.unit, result, is_expression(text))
    return Measure(
        asked.title or f"{name}{suffix}_{target.name}{word}",
        alias,
        function.make(target.expression, output_field=result, **where),
        result,
        name,
        target.narrowed,
        unit=unit,
    )


def _edge(request: MCPRequest, exposure: Exposure, asked: _Asked, alias: str, **where: Any) -> Measure:
    """Return the value of the first or the last row, by an order of numbers or times and then by the primary key."""
    name, given = asked.function, asked.order
    if not isinstance(given, str) or not given.strip("+- "):
        raise ToolError(f'{name} needs an order: {{"function": "{name}", "field": "status", "order": "created"}}.')
    turned, text = given.strip().startswith("-"), given.strip().lstrip("+-")
    target = target_of(request, exposure, asked.field, is_groupable)
    order = value_of(request, exposure, text, is_ordering)
    keys = [F(field.attname) for field in exposure.opts.pk_fields]
    result = stored_field(target.column.field)
    value = edge(target.expression, order.expression, keys, last=(name == "last") is not turned, result=result, **where)
    title = asked.title or f"{name}_{target.name}"
    return Measure(title, alias, value, result, name, (*target.narrowed, *order.narrowed), column=target.column)


def _over_related(
    request: MCPRequest,
    exposure: Exposure,
    asked: _Asked,
    alias: str,
    link: Link,
    text: str,
    where: Mapping[str, Any],
) -> Measure:
    """Return the measure of values of related rows, of which each is counted once: a subquery for each row here."""
    name = asked.function
    if name not in ("count", "sum", "min", "max"):
        raise ToolError(f"{name} of several related rows: aggregate {link.exposure.label} itself.")
    function = FUNCTIONS[name]
    target = value_of(request, link.exposure, text, function.usable) if text else None
    result = result_of(function, target.column) if target is not None else INTEGER
    inner = function.make(target.expression, output_field=result) if target is not None else Count("*")
    rows = linked_rows(request, link).annotate(mcp_all=Value(1)).values("mcp_all")
    each = Subquery(rows.annotate(mcp_value=inner).values("mcp_value"), output_field=result)
    unit, word = _unit(asked.unit, result, is_expression(text))
    assert function.combine is not None
    expression = function.combine(each, output_field=result, **where)
    if name == "count":
        expression = Coalesce(expression, Value(0), output_field=INTEGER)
    title = asked.title or f"{name}_{asked.field}{word}"
    return Measure(title, alias, expression, result, name, target.narrowed if target else (), unit=unit)


def to_several(request: MCPRequest, exposure: Exposure, text: str) -> tuple[Link, str] | None:
    """Return the relation to several rows that all fields of an expression begin with, and the expression there.

    None stands for an expression of fields of the row itself.

    Raises:
        ToolError: it has fields of both.
    """
    paths = re.findall(r"[^\W\d][\w.]*", text)
    roots = {path.replace(".", "__").partition("__")[0] for path in paths}
    links = {root: link_of(request, exposure, root) for root in roots}
    several = [link for link in links.values() if link is not None and link.to_many]
    if not several:
        return None
    if len(roots) > 1:
        raise ToolError(f"{text[:60]!r} mixes rows: all of its fields have to begin with {several[0].name}.")
    root = next(iter(roots))
    return several[0], re.sub(rf"\b{re.escape(root)}(?:\.|__|$|(?=\W))", "", text)


def _share(given: Any) -> float:
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = -1.0
    # "90" and "p90" are what people say.
    share = share / 100 if 1 < share <= 100 else share
    if not 0 <= share <= 1:
        raise ToolError(f'percentile needs {SHARES}: {{"function": "percentile", "field": "total", "share": 0.9}}.')
    return share


def _unit(given: Any, result: Any, is_computed: bool) -> tuple[timedelta | None, str]:
    """Return the unit of a duration, and how titles say it; none for a stored duration for which none is asked."""
    if result.get_internal_type() != "DurationField" or (given is None and not is_computed):
        return None, ""
    word = given if given is not None else DEFAULT_UNIT
    unit = UNITS.get(word.lower()) if isinstance(word, str) else None
    if unit is None:
        raise ToolError(f"Unknown unit {str(word)[:20]!r}. {alternatives(str(word), UNITS)}")
    return unit, "_" + next(name for name, length in UNITS.items() if length == unit)


# What is made of other aggregates of the call


def kind_of_values(measure: Measure) -> str:
    """Return what kind of values these are: a duration that is shown as a number of its unit is a number."""
    word = kind_of(measure.result).word
    return NUMBER if word in ("integer", "decimal", "number") or measure.unit is not None else word


def alike(*measures: Measure) -> list[Measure]:
    """Return measures that are put together: durations as such, one beside a number as a number of its unit."""
    durations = all(kind_of(measure.result).word == "duration" for measure in measures)
    return [replace(measure, unit=None) if durations else measure for measure in measures]


def amount(measure: Measure) -> Any:
    """Return the value of a measure as a number that can be divided."""
    found = Amount(F(measure.alias), FLOAT)
    return found / Value(measure.unit.total_seconds()) if measure.unit is not None else found


def number(measure: Measure, value: Any) -> float | None:
    """Return what :func:`amount` gives of a value."""
    if isinstance(value, timedelta):
        return value / (measure.unit or timedelta(seconds=1))
    return None if value is None else float(value)


def _ratio(one: Measure, other: Measure) -> tuple[Any, Any, Any]:
    def derive(value: Any, by: Any) -> Any:
        dividend, divisor = number(one, value), number(other, by)
        return None if dividend is None or not divisor else dividend / divisor

    return amount(one) / NullIf(amount(other), Value(0.0)), FLOAT, derive


def _less(one: Measure, other: Measure) -> tuple[Any, Any, Any]:
    words = {kind_of(measure.result).word for measure in (one, other)}
    exact = exact_field([one.result, other.result])
    plain: Any = F(one.alias) - F(other.alias)
    if len(words) == 1 and words <= {"date", "datetime", "duration"}:
        exact = DURATION
    elif exact is not None and exact is not INTEGER:
        plain = Units(F(one.alias), output_field=exact) - Units(F(other.alias), output_field=exact)

    def derive(value: Any, by: Any) -> Any:
        if value is None or by is None:
            return None
        return value - by if exact is not None else (number(one, value) or 0.0) - (number(other, by) or 0.0)

    return (plain, exact, derive) if exact is not None else (amount(one) - amount(other), FLOAT, derive)


# How many aggregates each takes, and what it makes of them.
DERIVED: Final[Mapping[str, int]] = {"ratio": 2, "difference": 2, "percent_of_total": 1, "change": 1}


def _derived(asked: _Asked, alias: str, measures: Sequence[Measure], later: Sequence[str]) -> Measure:
    """Return what is made of other measures, which ``later`` ones can only be in a circle."""
    titles = [measure.title for measure in measures]
    sources = []
    for name in asked.sources:
        position = find_title(titles, name)
        if position is None and find_title(later, name) is not None:
            raise ToolError(f"{asked.function} is made of {name[:60]!r}, which needs it or is not known either.")
        if position is None:
            message = f"{asked.function} is made of other aggregates of this call, not {name[:60]!r}."
            raise misnamed(message, name, titles, partial(with_field, name, within=("aggregates",)))
        sources.append(measures[position])
    if len(sources) != DERIVED[asked.function]:
        raise ToolError(f'{asked.function} takes {DERIVED[asked.function]}, as in {{"ratio": ["refunded", "count"]}}.')
    _check_sources(asked.function, sources)
    title = asked.title or "_".join([asked.function, *(source.title for source in sources)])[:80]
    made: tuple[Any, Any, Any] = (None, FLOAT, None)
    if asked.function in ("ratio", "difference"):
        made = (_ratio if asked.function == "ratio" else _less)(*alike(*sources))
    narrowed = tuple(label for source in sources for label in source.narrowed)
    expression, result, derive = made
    unit = None
    if result is DURATION:
        unit = UNITS[DEFAULT_UNIT] if kind_of_values(sources[0]) in DATES else sources[0].unit
    if expression is not None:
        expression = OverGroups(expression, output_field=result)
    return Measure(title, alias, expression, result, asked.function, narrowed, tuple(sources), derive, unit)


def _check_sources(function: str, sources: Sequence[Measure]) -> None:
    """Pass unless nothing can be made of these aggregates."""
    kinds = [kind_of_values(source) for source in alike(*sources)]
    for source, kind in zip(sources, kinds, strict=True):
        if kind not in (NUMBER, "duration") and not (function == "difference" and kind in DATES):
            raise ToolError(f"{function} takes numbers and durations, and {source.title} is none.")
        if function == "change" and source.has_change:
            raise ToolError(f"change cannot be of {source.title}, which is made of a change.")
    if len(set(kinds)) > 1:
        names = " and ".join(source.title for source in sources)
        ways = "two numbers, two dates or two durations" if function == "difference" else "two numbers or two durations"
        message = f"{function} takes {ways}: {names} are of different kinds."
        if "duration" in kinds and NUMBER in kinds:
            message += f" {UNIT_SPELLING}"
        raise ToolError(message)


def _spelt(given: Any) -> _Asked:
    given = json_or_text(given)
    if isinstance(given, str):
        return _spelt_as_text(given.strip())
    if not isinstance(given, dict):
        raise ToolError(_SPELLING)
    given = as_aggregate(given, FUNCTIONS)
    title = given.get("as") or ""
    if not isinstance(title, str) or (title and not _TITLE.fullmatch(title)):
        raise ToolError("as must be a short name of letters, digits and underscores.")
    made = next((name for name in DERIVED if name in given), None)
    if made is not None and given.keys() <= {made, "as"}:
        sources = given[made] if isinstance(given[made], list) else [given[made]]
        if not all(isinstance(source, str) for source in sources):
            raise ToolError(_SPELLING)
        return _Asked(made, title=title, sources=tuple(sources))
    name, text = given.get("function"), given.get("field") or ""
    if not given.keys() <= _MEMBERS or not isinstance(name, str) or not isinstance(text, str):
        raise ToolError(_SPELLING)
    more = {member: given.get(member) for member in ("where", "share", "unit", "order")}
    return _Asked(name.lower(), text, title, **more)


def _spelt_as_text(given: str) -> _Asked:
    called = _CALL.fullmatch(given)
    name, _, text = (called[1], ":", called[2]) if called else given.partition(":")
    name, text = name.strip().lower(), text.strip()
    if name in DERIVED:
        separator = {"ratio": "/", "difference": "-"}.get(name)
        return _Asked(name, sources=tuple(part.strip() for part in text.split(separator)) if separator else (text,))
    if name == "percentile":
        text, _, share = (part.strip() for part in (text.rpartition(":") if ":" in text else (text, "", "")))
        return _Asked(name, text, share=share)
    if name in EDGES:
        text, _, order = (part.strip() for part in text.partition(":"))
        return _Asked(name, text, order=order)
    return _Asked(name, text)


def find_title(titles: Sequence[str], text: str) -> int | None:
    """Return the position of the column that a client means, by its title or as it was asked for (``sum:total``)."""
    if text in titles:
        return titles.index(text)
    plain = _plain(text[:MAX_NAME])
    return next((position for position, title in enumerate(titles) if _plain(title) == plain), None)


def _plain(text: str) -> str:
    return re.sub(r"[:_()]+", "_", text).strip("_").lower()
