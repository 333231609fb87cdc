"""Parse the measures that a caller asks for, and derive some from others."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from django.db.models import CompositePrimaryKey, Count, F, Subquery, Value
from django.db.models.functions import Coalesce, NullIf

from ...exceptions import ToolError
from ..access import Link, ModelAccess
from ..alternative_spellings import json_or_text
from ..arithmetic import DURATION, FLOAT, INTEGER, is_expression, value_of
from ..columns import Column
from ..fields import UNITS, kind_of, stored_field
from ..filter_parser import FilterReader
from ..nearest_names import Misnamed, alternatives
from ..path import Target, target_of
from ..suggestions import with_field
from .functions import (
    EDGES,
    FUNCTIONS,
    OverGroups,
    Units,
    edge,
    exact_field,
    middle,
    result_of,
)
from .measures import DATES, NUMBER, Measure, alike, find_title, position_of

_TITLE: Final = re.compile(r"(?!groups$)[A-Za-z][A-Za-z0-9_]{0,39}")
_CALL: Final = re.compile(r"(\w{1,20})\((.*)\)")
_SPELLING: Final = (
    'An aggregate is "count", "sum:field", "sum:quantity*price", or {"function", "field", "where", "as"}; '
    'of two of them {"ratio": ["refunded", "count"]}. Several are a list.'
)
# Members of an object that describes an aggregate of rows.
_MEMBERS: Final = frozenset({"function", "field", "as", "where", "share", "unit", "order"})
SHARES: Final = "a share between 0 and 1, such as 0.9"
DEFAULT_UNIT: Final = "days"
UNIT_SPELLING: Final = (
    'A duration is a number in a unit: {"function": "sum", "field": "working_time", "unit": "hours", "as": "hours"}.'
)
# Synonyms of the members of an aggregate that is an object, and of its functions.
_MEMBER_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("func", "fn", "op", "operation", "operator", "agg", "aggregate", "type"), "function"),
    **dict.fromkeys(("column", "expression", "of", "on"), "field"),
    **dict.fromkeys(("alias", "name", "title", "label"), "as"),
    **dict.fromkeys(("filter", "filters", "condition"), "where"),
}
_FUNCTION_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("average", "mean"), "avg"),
    **dict.fromkeys(("total", "add", "sum_of"), "sum"),
    **dict.fromkeys(("maximum", "largest", "highest", "latest"), "max"),
    **dict.fromkeys(("minimum", "smallest", "lowest", "earliest"), "min"),
    **dict.fromkeys(
        ("countdistinct", "distinct", "distinct_count", "unique", "nunique", "count_unique"), "count_distinct"
    ),
    **dict.fromkeys(("num", "number", "rows", "size"), "count"),
    **dict.fromkeys(("std", "stdev", "standard_deviation"), "stddev"),
    **dict.fromkeys(("var",), "variance"),
}


class Asked(NamedTuple):
    """An aggregate as the client asked for it."""

    function: str
    field: str = ""
    title: str = ""
    where: Any = None
    share: Any = None
    unit: Any = None
    sources: tuple[str, ...] = ()
    order: Any = None


def _asked(given: Any) -> Asked:
    """Parse one measure: an object, or a text such as ``sum:total``, ``sum(total)`` or ``ratio:a/b``."""
    given = json_or_text(given)
    if isinstance(given, str):
        called = _CALL.fullmatch(given.strip())
        name, _, text = (called[1], ":", called[2]) if called else given.strip().partition(":")
        name = name.strip().lower()
        text = text.strip()
        if name in DERIVED:
            separator = {"ratio": "/", "difference": "-"}.get(name)
            return Asked(name, sources=tuple(part.strip() for part in text.split(separator)) if separator else (text,))
        if name == "percentile":
            share = ""
            if ":" in text:
                text, _, share = text.rpartition(":")
            return Asked(name, text.strip(), share=share.strip())
        if name in EDGES:
            text, _, order = (part.strip() for part in text.partition(":"))
            return Asked(name, text, order=order)
        return Asked(name, text)
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
        return Asked(made, title=title, sources=tuple(sources))
    name = given.get("function")
    text = given.get("field") or ""
    if not given.keys() <= _MEMBERS or not isinstance(name, str) or not isinstance(text, str):
        raise ToolError(_SPELLING)
    more = {member: given.get(member) for member in ("where", "share", "unit", "order")}
    return Asked(name.lower(), text, title, **more)


def _turned(given: str) -> str:
    """Return ``sum:total`` for a measure that says it as ``total:sum``, ``total__sum`` or ``sum of total``, else ""."""
    words = re.split(r"__|[\s.:=-]+", given)
    for word, field in ((words[0], given.removeprefix(words[0])), (words[-1], given.removesuffix(words[-1]))):
        name = aggregate_meant(word.lower())
        path = field.strip(" _.:=-").removeprefix("of ")
        if name in FUNCTIONS and path:
            return f"{name}:{path}"
    return ""


def aggregate_meant(name: str) -> str:
    """Return the aggregate function that a synonym such as ``average`` means, or the name itself."""
    return _FUNCTION_SYNONYMS.get(name, name)


def as_aggregate(given: Mapping[str, Any], functions: Collection[str]) -> Mapping[str, Any]:
    """Return an aggregate such as ``{"function": "sum", "field": "total"}`` with the usual names of its members.

    ``{"sum": "total"}`` and ``{"op": "sum", "of": "total"}`` mean the same.
    """
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in functions and isinstance(value, str) and "function" not in {*given, *found}:
            found |= {"function": key, "field": value}
        else:
            name = _MEMBER_SYNONYMS.get(key, key)
            if name in given or name in found:
                name = key
            found[name] = value
    return found


class MeasureReader:
    """Parser of the measures (argument ``aggregates``) that a caller asks for."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure

    def read(self, given: Sequence[Any]) -> tuple[Measure, ...]:
        """Parse measures: ``count``, ``sum:total`` or ``{"function": "sum", "field": "total", "as": "all"}``.

        Some are derived from others, which can come before or after them.
        """
        asked = list(map(_asked, given))
        found = {
            position: self.measure(item, f"mcp_a{position}") for position, item in enumerate(asked) if not item.sources
        }
        while waiting := [position for position in range(len(asked)) if position not in found]:
            titles = [measure.title for measure in found.values()]
            ready = (
                position
                for position in waiting
                if all(find_title(titles, name) is not None for name in asked[position].sources)
            )
            # If none is ready, the first one raises an error that names what it lacks.
            position = next(ready, waiting[0])
            later = [asked[number].title for number in waiting if asked[number].title]
            found[position] = _derived(asked[position], f"mcp_a{position}", list(found.values()), later)
        return tuple(found[position] for position in range(len(asked)))

    def measure(self, asked: Asked, alias: str) -> Measure:
        """Return the measure that aggregates rows, not other measures."""
        name = asked.function
        text = asked.field
        if name not in FUNCTIONS:
            message = f"Unknown aggregate {name[:40]!r}."
            meant = aggregate_meant(name)
            # An unknown function without a field may be a field without its function.
            near: list[str] | None = []
            if text:
                near = [meant] if meant in FUNCTIONS else None
            given = f"{name}:{text}" if text else name
            if meant not in FUNCTIONS and (turned := _turned(given)):
                name = given
                near = [turned]
            repair = partial(with_field, name, within=("aggregates",))
            more = "" if near else ' Write "count", or a function with its field, such as "sum:total".'
            raise Misnamed(message, name, [*FUNCTIONS, *DERIVED], repair, near, more, of=None if near else "")
        where: dict[str, Any] = {}
        if asked.where is not None:
            where["filter"] = FilterReader(self.model).where(asked.where)
        if text in ("", "*"):
            if name != "count":
                raise ToolError(f'The aggregate {name} needs a field, such as "{name}:total".')
            return Measure(asked.title or "count", alias, Count(Value(1), **where) if where else Count("*"))
        function = FUNCTIONS[name]
        suffix = ""
        if name == "percentile":
            try:
                share = float(asked.share)
            except (TypeError, ValueError):
                share = -1.0
            # Accept percent too: people write 90 for 0.9.
            share = share / 100 if 1 < share <= 100 else share
            if not 0 <= share <= 1:
                raise ToolError(
                    f'percentile needs {SHARES}: {{"function": "percentile", "field": "total", "share": 0.9}}.'
                )
            function = middle(share)
            suffix = f"_{share:g}".replace(".", "_")
        several = self.to_several(text)
        if several is not None:
            return self.over_related(asked, alias, *several, where)
        if name in EDGES:
            return self.edge(asked, alias, where)
        target = value_of(self.model, text, function.usable)
        result = result_of(function, target.column)
        unit, word = _unit(asked.unit, result, is_expression(text))
        title = asked.title or f"{name}{suffix}_{target.name}{word}"
        if isinstance(target.column.field, CompositePrimaryKey):
            # Every row has a key of its own, and no database counts keys of several columns.
            expression = Count(Value(1), **where)
        else:
            expression = function.make(target.expression, output_field=result, **where)
        return Measure(
            title, alias, expression, result, name, target.narrowed, unit=unit, column=_text_column(result, target)
        )

    def edge(self, asked: Asked, alias: str, where: Mapping[str, Any]) -> Measure:
        """Return the measure ``first`` or ``last``: the value of one row by an order, then by the key."""
        name = asked.function
        given = asked.order
        if not isinstance(given, str) or not given.strip("+- "):
            raise ToolError(f'{name} needs an order: {{"function": "{name}", "field": "status", "order": "created"}}.')
        turned = given.strip().startswith("-")
        text = given.strip().lstrip("+-")
        target = target_of(self.model, asked.field, lambda column: column.is_groupable())
        order = value_of(self.model, text, lambda column: column.is_ordering())
        keys = [F(field.attname) for field in self.exposure.opts.pk_fields]
        result = stored_field(target.column.field)
        last = (name == "last") is not turned
        value = edge(target.expression, order.expression, keys, last=last, result=result, **where)
        title = asked.title or f"{name}_{target.name}"
        return Measure(title, alias, value, result, name, (*target.narrowed, *order.narrowed), column=target.column)

    def over_related(self, asked: Asked, alias: str, link: Link, text: str, where: Mapping[str, Any]) -> Measure:
        """Return the measure of related rows, each counted once by a subquery."""
        name = asked.function
        if name not in ("count", "sum", "min", "max"):
            raise ToolError(f"{name} of several related rows: aggregate {link.exposure.label} itself.")
        function = FUNCTIONS[name]
        target = value_of(link.related, text, function.usable) if text else None
        result = result_of(function, target.column) if target is not None else INTEGER
        inner = function.make(target.expression, output_field=result) if target is not None else Count("*")
        rows = link.rows().annotate(mcp_all=Value(1)).values("mcp_all")
        each = Subquery(rows.annotate(mcp_value=inner).values("mcp_value"), output_field=result)
        unit, word = _unit(asked.unit, result, is_expression(text))
        assert function.combine is not None
        expression = function.combine(each, output_field=result, **where)
        if name == "count":
            expression = Coalesce(expression, Value(0), output_field=INTEGER)
        title = asked.title or f"{name}_{asked.field.replace('.', '__')}{word}"
        narrowed, column = (target.narrowed, _text_column(result, target)) if target is not None else ((), None)
        return Measure(title, alias, expression, result, name, narrowed, unit=unit, column=column)

    def to_several(self, text: str) -> tuple[Link, str] | None:
        """Return the relation to several rows with which all fields of a measure begin, and the rest.

        Return None for an expression of fields of the row itself.
        """
        paths = re.findall(r"[^\W\d][\w.]*", text)
        roots = {path.replace(".", "__").partition("__")[0] for path in paths}
        links = [self.model.link(root) for root in roots]
        several = [link for link in links if link is not None and link.to_many]
        if not several:
            return None
        if len(roots) > 1:
            raise ToolError(f"{text[:60]!r} mixes rows: all of its fields have to begin with {several[0].name}.")
        root = next(iter(roots))
        return several[0], re.sub(rf"\b{re.escape(root)}(?:\.|__|$|(?=\W))", "", text)


def _text_column(result: Any, target: Target) -> Column | None:
    """Return the column in which the texts of a measure are shown, None for a measure of other values."""
    return target.column if kind_of(result).word == "text" else None


def _unit(given: Any, result: Any, is_computed: bool) -> tuple[timedelta | None, str]:
    """Return the unit of a measure that is a duration, and the word for the unit in titles."""
    if result.get_internal_type() != "DurationField" or (given is None and not is_computed):
        return None, ""
    word = given if given is not None else DEFAULT_UNIT
    unit = UNITS.get(word.lower()) if isinstance(word, str) else None
    if unit is None:
        raise ToolError(f"Unknown unit {str(word)[:20]!r}. {alternatives(str(word), UNITS)}")
    return unit, "_" + next(name for name, length in UNITS.items() if length == unit)


# Derived measures


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
    elif exact is not None and exact is not INTEGER:
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


# The derived functions, and how many measures each takes.
DERIVED: Final[Mapping[str, int]] = {"ratio": 2, "difference": 2, "percent_of_total": 1, "change": 1}


def _derived(asked: Asked, alias: str, measures: Sequence[Measure], later: Sequence[str]) -> Measure:
    """Derive a measure from others (ratio, difference); a reference to ``later`` ones would be a circle."""
    function = asked.function
    titles = [measure.title for measure in measures]
    sources = []
    for name in asked.sources:
        if find_title(titles, name) is None and find_title(later, name) is not None:
            raise ToolError(f"{function} uses {name[:60]!r}, which needs it or is not known.")
        message = f"{function} uses other aggregates of this call, not {name[:60]!r}."
        sources.append(measures[position_of(titles, name, message, "aggregates")])
    if len(sources) != DERIVED[function]:
        raise ToolError(f'{function} takes {DERIVED[function]}, as in {{"ratio": ["refunded", "count"]}}.')
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
    title = asked.title or "_".join([function, *(source.title for source in sources)])[:80]
    made: tuple[Any, Any, Any] = (None, FLOAT, None)
    if function in ("ratio", "difference"):
        made = (_ratio if function == "ratio" else _less)(*alike(*sources))
    narrowed = tuple(label for source in sources for label in source.narrowed)
    expression, result, derive = made
    unit = None
    if result is DURATION:
        unit = UNITS[DEFAULT_UNIT] if sources[0].kind in DATES else sources[0].unit
    if expression is not None:
        expression = OverGroups(expression, output_field=result)
    return Measure(title, alias, expression, result, function, narrowed, tuple(sources), derive, unit)
