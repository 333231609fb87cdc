"""Queries that aggregate rows: all together, or by groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.db.models import ExpressionWrapper, F, QuerySet
from django.db.models.expressions import OrderBy

from ...context.databases import LostDatesAsText
from ..undecodable_values import UNDECODABLE, is_out_of_range, is_undecodable, salvaged_tuples
from .arguments import Way
from .groups import Group
from .measures import Measure
from .ranks import as_computed

PLACE: Final = "mcp_place"


def totals(rows: QuerySet[Any], measures: Sequence[Measure]) -> list[tuple[Any, ...]]:
    """Aggregate all rows without groups: return the values of all measures as one row."""
    plain = _behind(measures)
    try:
        with LostDatesAsText():
            values = rows.aggregate(**_expressions(plain, rows, {}))
    except Exception as error:
        if is_out_of_range(error) or not is_undecodable(error):
            raise
        if len(plain) == 1:
            values = {plain[0].alias: UNDECODABLE}
        else:
            values = {measure.alias: value for measure in plain for (value,) in totals(rows, [measure])}
    return [tuple(_total(measure, values) for measure in measures)]


def _behind(measures: Iterable[Measure]) -> list[Measure]:
    """Return the plain aggregates of rows that others are derived from, each once; a plain one stands for itself."""
    plain: dict[str, Measure] = {}
    for measure in measures:
        for item in _behind(measure.sources) if measure.sources else [measure]:
            plain[item.alias] = item
    return list(plain.values())


def _total(measure: Measure, plain: Mapping[str, Any]) -> Any:
    """Return the value of a measure over all rows; a derived one is computed from the values of the ``plain`` ones."""
    values = [_total(source, plain) for source in measure.sources]
    if any(value is UNDECODABLE for value in values):
        return UNDECODABLE
    if measure.derive is not None:
        return measure.derive(*values)
    if values:
        return 100.0 if values[0] else None
    return plain[measure.alias]


def grouped(
    rows: QuerySet[Any], groups: Sequence[Group], measures: Sequence[Measure], place: Any = None
) -> QuerySet[Any]:
    """Return the queryset of groups with their measures, and with the ``place`` of each group.

    Raises ``ToolError`` for periods of a time zone that the database does not know.
    """
    for group in groups:
        times = group.local_times(rows.db)
        if times is not None:
            times.check()
    names: dict[str, Any] = {group.alias: group.expression for group in groups}
    if len(groups) > 1:
        # A query that ranks its groups needs an expression for each, also for two columns of one value.
        read = rows.annotate(**names).query.annotations
        for position, group in enumerate(groups):
            if any(read[other.alias] == read[group.alias] for other in groups[:position]):
                field = read[group.alias].output_field
                names[group.alias] = ExpressionWrapper(names[group.alias], output_field=field)
    if place is not None:
        names[PLACE] = place
    found = rows.annotate(**names).values(*names)

    # Annotate derived measures after those that they are derived from.
    for depth in sorted({measure.depth for measure in measures}):
        at_depth = [item for item in measures if item.depth == depth]
        found = found.annotate(**_expressions(at_depth, rows, names))
    return found


def _expressions(measures: Iterable[Measure], rows: QuerySet[Any], groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expressions of measures by their aliases, by the rank of rows where the database needs that."""
    return {measure.alias: as_computed(measure.expression, rows, groups) for measure in measures}


def order_by(order: Iterable[tuple[str, Way]]) -> list[OrderBy]:
    """Return the ORDER BY of an order of groups, with NULL at the same end on every database."""
    return [
        OrderBy(F(alias), descending=down, **{"nulls_first" if first else "nulls_last": True})
        for alias, (down, first) in order
    ]


def first_rows(
    rows: QuerySet[Any], aliases: Sequence[str], limit: int
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Read the groups up to the limit, and the one that follows, if there is one."""
    try:
        with LostDatesAsText():
            read = list(rows.values_list(*aliases)[: limit + 1])
    except Exception as error:
        if is_out_of_range(error) or not is_undecodable(error):
            raise
        read = salvaged_tuples(rows, aliases, limit + 1)
    return read[:limit], read[limit:]
