"""Parse the measures that a caller asks for."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from django.db.models import CompositePrimaryKey, Count, F, Subquery, Value
from django.db.models.functions import Coalesce

from ...exceptions import ToolError
from ..access import Link, ModelAccess
from ..arithmetic import INTEGER, is_expression, value_of
from ..columns import Column
from ..fields import UNITS, kind_of, stored_field
from ..filter_parser import FilterReader
from ..generic_links import GenericLink, list_named
from ..nearest_names import alternatives
from ..path import Target, target_of
from .asked_measures import AskedMeasure
from .derived_measures import derived
from .functions import (
    EDGES,
    FUNCTIONS,
    edge,
    middle,
)
from .measures import DEFAULT_UNIT, Measure, find_title

SHARES: Final = "a share between 0 and 1, such as 0.9"
# A path in the field of a measure, which may be an expression.
PATH: Final = re.compile(r"[^\W\d][\w.]*")


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
        asked = list(map(AskedMeasure.read, given))
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
            found[position] = derived(asked[position], f"mcp_a{position}", list(found.values()), later)
        return tuple(found[position] for position in range(len(asked)))

    def measure(self, asked: AskedMeasure, alias: str) -> Measure:
        """Return the measure that aggregates rows, not other measures."""
        name = asked.function
        text = asked.field
        if name not in FUNCTIONS:
            raise asked.unknown_function()
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
            share = _share(asked.share)
            function = middle(share)
            suffix = f"_{share:g}".replace(".", "_")
        several = self.to_several(text)
        if several is not None:
            return self.over_related(asked, alias, *several, where)
        if name in EDGES:
            return self.edge(asked, alias, where)
        target = value_of(self.model, text, function.usable)
        result = function.result_of(target.column)
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

    def edge(self, asked: AskedMeasure, alias: str, where: Mapping[str, Any]) -> Measure:
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

    def over_related(self, asked: AskedMeasure, alias: str, link: Link, text: str, where: Mapping[str, Any]) -> Measure:
        """Return the measure of related rows, each counted once by a subquery."""
        name = asked.function
        if name not in ("count", "sum", "min", "max"):
            raise ToolError(f"{name} of several related rows: aggregate {link.exposure.label} itself.")
        function = FUNCTIONS[name]
        target = value_of(link.related, text, function.usable) if text else None
        result = function.result_of(target.column) if target is not None else INTEGER
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
        roots = {path.replace(".", "__").partition("__")[0] for path in PATH.findall(text)}
        links = [list_named(self.model, root) for root in roots]
        several = [link for link in links if link is not None and link.to_many]
        if not several:
            return None
        for link in several:
            if isinstance(link, GenericLink):
                raise ToolError(f"{link.name} is a generic relation: aggregate {link.exposure.label} itself.")
        if len(roots) > 1:
            raise ToolError(f"{text[:60]!r} mixes rows: all of its fields have to begin with {several[0].name}.")
        root = next(iter(roots))
        return several[0], re.sub(rf"\b{re.escape(root)}(?:\.|__|$|(?=\W))", "", text)


def _share(given: Any) -> float:
    """Return the share of a percentile, between 0 and 1."""
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = -1.0
    # Accept percent too: people write 90 for 0.9.
    share = share / 100 if 1 < share <= 100 else share
    if not 0 <= share <= 1:
        raise ToolError(f'percentile needs {SHARES}: {{"function": "percentile", "field": "total", "share": 0.9}}.')
    return share


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
