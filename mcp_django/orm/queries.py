"""The rows that a caller asked for, as a queryset: the exposure's own rows, narrowed by filters and search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from django.db import connections
from django.db.models import QuerySet

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from .columns import Column
from .conditions import condition_values, is_plannable
from .filters import filtered, searched
from .lookups import Filter
from .pagination import OrderKey, Segment, segment_condition, segment_order, segments
from .plans import Bind, Slot, prepare
from .ways import GUARDED

T = TypeVar("T")

COUNT_CAP: Final = 10_000
# Keys in one query: databases bound the number of parameters, the lowest being SQLite's 999.
CHUNK: Final = 400
# Databases that find ``(a, b) > (x, y)`` by an index.
ROW_VALUES: Final = ("postgresql", "sqlite")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What one page shows: ``limit`` rows after the sort values ``after``, with these columns.

    ``text_limit`` is where long texts are cut, None for nowhere. ``moment`` is the time from which relative dates among
    the conditions are seen, the same for all pages; None where there are none. ``guarded`` are the values of columns
    that :func:`~mcp_django.orm.ways.guarded_values` gave, by their paths.
    """

    exposure: Exposure
    columns: tuple[Column, ...]
    ordering: tuple[OrderKey, ...]
    limit: int
    conditions: tuple[Filter, ...] = ()
    search: str = ""
    after: tuple[Any, ...] | None = None
    text_limit: int | None = None
    moment: datetime | None = None
    guarded: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_guarded(self) -> bool:
        """Whether the SQL depends on which related rows the caller may see."""
        return bool(self.guarded) or any(key.path.startswith(GUARDED) for key in self.ordering)


def chunks(keys: Sequence[T]) -> list[Sequence[T]]:
    """Return the keys in parts for one query each."""
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def using_of(exposure: Exposure, queryset: QuerySet[Any] | None) -> str:
    """Return the alias of the database that the rows are read from."""
    return queryset.db if queryset is not None else str(exposure.model._default_manager.db)


def params_of(query: PageQuery, using: str) -> list[Any]:
    """Return the values of the query in the order of its slots: filters first, then the cursor.

    Raises:
        ToolError: the database has no such value.
    """
    found: list[Any] = []
    for condition in query.conditions:
        if is_plannable(condition):
            found += condition_values(condition, using)
    for key, value in zip(query.ordering, query.after or (), strict=False):
        found.append(None if value is None else prepare(key.field, value, using))
    return found


def slots_of(params: Sequence[Any]) -> list[Any]:
    """Return slots for as many parameters."""
    return [Slot(index) for index in range(len(params))]


def matching_rows(
    request: MCPRequest, query: PageQuery, queryset: QuerySet[Any], params: Sequence[Any]
) -> QuerySet[Any]:
    """Return the rows that match, on whatever page; ``params`` are slots or values."""
    rows = searched(request, query.exposure, sorted_rows(query, queryset), query.search)
    return filtered(request, query.exposure, rows, query.conditions, params)[0]


def sorted_rows(query: PageQuery, queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows with the values that the query computes to show them and to sort them by."""
    computed = {key.path: key.expression for key in query.ordering if key.expression is not None} | dict(query.guarded)
    return queryset.annotate(**computed) if computed else queryset


def segments_of(query: PageQuery, using: str) -> Sequence[Segment]:
    """Return the segments that the page is read from, one after the other until it is full."""
    connection = connections[using]
    nulls = None if query.after is None else [value is None for value in query.after]
    return segments(
        query.ordering,
        nulls,
        nulls_largest=connection.features.nulls_order_largest,
        row_values=connection.vendor in ROW_VALUES,
    )


def segment_rows(
    rows: QuerySet[Any], query: PageQuery, segment: Segment, params: Sequence[Any], using: str
) -> QuerySet[Any]:
    """Return those of the matching rows that are in the segment, in order, one more than the page shows."""
    used = len(params) - len(query.after or ())
    condition = segment_condition(segment, query.ordering, lambda index: Bind(params[used + index]))
    order = segment_order(segment, query.ordering, nulls_largest=connections[using].features.nulls_order_largest)
    return (rows.filter(condition) if condition else rows).order_by(*order)[: query.limit + 1]


def rows_of(request: MCPRequest, query: PageQuery, queryset: QuerySet[Any]) -> Iterator[QuerySet[Any]]:
    """Yield the rows of the page, and more, in order: a queryset for each segment, to be read until there are enough.

    Raises:
        ToolError: the database has no such value.
    """
    using = queryset.db
    params = params_of(query, using)
    rows = matching_rows(request, query, queryset, params)
    for segment in segments_of(query, using):
        yield segment_rows(rows, query, segment, params, using)


def narrowed(request: MCPRequest, exposure: Exposure, conditions: Sequence[Filter], search: str) -> QuerySet[Any]:
    """Return all rows that match, in no order.

    Raises:
        ToolError: the database has no such value.
    """
    queryset = exposure.get_queryset(request).order_by()
    params = [
        param
        for condition in conditions
        if is_plannable(condition)
        for param in condition_values(condition, queryset.db)
    ]
    rows = searched(request, exposure, queryset, search)
    return filtered(request, exposure, rows, conditions, params)[0].order_by()


def count_rows(request: MCPRequest, query: PageQuery) -> int:
    """Return how many rows match, or one more than ``COUNT_CAP`` for any number beyond it."""
    rows = narrowed(request, query.exposure, query.conditions, query.search)
    return rows.values("pk")[: COUNT_CAP + 1].count()


def check_searchable(request: MCPRequest, exposure: Exposure) -> None:
    """Pass if the exposure can be searched.

    Raises:
        ToolError: it has no search fields, so that a search would give every row.
    """
    if not exposure.has_search(request):
        raise ToolError(f"{exposure.label} has no text search. Use filters instead; describe_model lists them.")
