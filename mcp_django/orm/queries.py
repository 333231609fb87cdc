"""The rows that a caller asked for, as a queryset: the exposure's own rows, narrowed by filters and search."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

from django.db import connections
from django.db.models import QuerySet

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from .access import access_of
from .columns import Column
from .conditions import Filter, filtered, plannable_params
from .filters import searched
from .paging import OrderKey, Segment, segments
from .path import GUARDED
from .plans import Bind, Plan, Shape, Slot, cached_plan, prepare, with_slots

T = TypeVar("T")

COUNT_CAP: Final = 10_000
# Keys in one query: databases bound the number of parameters, the lowest being SQLite's 999.
CHUNK: Final = 400
# Databases that find ``(a, b) > (x, y)`` by an index.
ROW_VALUES: Final = ("postgresql", "sqlite")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What one page shows a caller: ``limit`` rows after the sort values ``after``, with these columns.

    ``text_limit`` is where long texts are cut, None for nowhere. ``moment`` is the time from which relative dates among
    the conditions are seen, the same for all pages; None where there are none. ``guarded`` are the values of columns
    that :func:`~mcp_django.orm.path.guarded_values` gave, by their paths.

    Its values are the parameters of its SQL, those of the filters first, then those of the cursor: what takes
    ``params`` takes these values, or slots in their place.
    """

    request: MCPRequest
    exposure: ModelExposure
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
    def has_one_sql(self) -> bool:
        """Whether what is asked of the exposure's rows has one SQL for all of its values."""
        if self.search or self.guarded or not all(item.is_plannable for item in self.conditions):
            return False
        # The SQL of a guarded key depends on which related rows the caller may see.
        for key in self.ordering:
            if key.path.startswith(GUARDED):
                return False
        return not self.exposure.get_listing(self.request).narrows_without_search()

    @property
    def shape(self) -> tuple[Any, ...]:
        """What that SQL depends on, but for the columns."""
        order = [(key.path, key.descending, key.nulls_last) for key in self.ordering]
        return tuple(item.shape() for item in self.conditions), tuple(order), self.limit

    def params(self, using: str) -> list[Any]:
        """Return the values of the query, prepared for the database."""
        found = plannable_params(self.conditions, using)
        for key, value in zip(self.ordering, self.after or (), strict=False):
            found.append(None if value is None else prepare(key.field, value, using))
        return found

    @property
    def computed(self) -> Mapping[str, Any]:
        """The expressions of the values that the query computes to show rows and to sort them by, by their names."""
        return {key.path: key.expression for key in self.ordering if key.expression is not None} | {**self.guarded}

    def with_values(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with these values."""
        computed = self.computed
        return queryset.annotate(**computed) if computed else queryset

    def matching(self, queryset: QuerySet[Any], params: Sequence[Any]) -> QuerySet[Any]:
        """Return the rows that match, on whatever page."""
        rows = searched(access_of(self.request)[self.exposure], self.with_values(queryset), self.search)
        return filtered(self.request, self.exposure, rows, self.conditions, params)

    def segments(self, using: str) -> Sequence[Segment]:
        """Return the segments that the page is read from, one after the other until it is full."""
        connection = connections[using]
        nulls = None if self.after is None else [value is None for value in self.after]
        return segments(
            self.ordering,
            nulls,
            nulls_largest=connection.features.nulls_order_largest,
            row_values=connection.vendor in ROW_VALUES,
        )

    def of_segment(self, rows: QuerySet[Any], segment: Segment, params: Sequence[Any]) -> QuerySet[Any]:
        """Return those of the matching rows that are in the segment, in order, one more than the page shows."""
        used = len(params) - len(self.after or ())
        largest = connections[rows.db].features.nulls_order_largest
        condition = segment.condition(self.ordering, lambda index: Bind(params[used + index]))
        order = segment.order(self.ordering, nulls_largest=largest)
        return (rows.filter(condition) if condition else rows).order_by(*order)[: self.limit + 1]

    def plans(
        self,
        base: Callable[[], QuerySet[Any]],
        shape: Shape | None,
        key: Hashable,
        select: Callable[[Any], Any],
        using: str,
    ) -> Iterator[tuple[Segment, Plan, Sequence[Any]]]:
        """Yield the plan of each segment and the values that it is run with; to be read until the page is full.

        ``base`` gives the exposure's rows, of which ``shape`` is the shape, if they have one. ``select`` turns the
        rows of a segment into a plan, which is kept by the ``key``, None for nowhere.
        """
        params = self.params(using)
        slots = slots_of(params)

        @cache
        def matching() -> QuerySet[Any]:
            rows = base()
            return self.matching(with_slots(rows, len(params)) if shape is not None else rows, slots)

        for segment in self.segments(using):

            def compiled(segment: Segment = segment) -> Plan:
                found: Plan = select(self.of_segment(matching(), segment, slots))
                return found

            plan = (
                compiled() if key is None else cached_plan((key, shape and shape.key, *self.shape, segment), compiled)
            )
            yield segment, plan, [*params, *shape.values] if shape is not None else params

    def rows(self, queryset: QuerySet[Any]) -> Iterator[QuerySet[Any]]:
        """Yield the rows of the page, and more, in order: a queryset for each segment, to be read until it is full."""
        params = self.params(queryset.db)
        rows = self.matching(queryset, params)
        for segment in self.segments(queryset.db):
            yield self.of_segment(rows, segment, params)

    def count(self) -> int:
        """Return how many rows match, or one more than ``COUNT_CAP`` for any number beyond it."""
        rows = narrowed(self.request, self.exposure, self.conditions, self.search)
        return rows.values("pk")[: COUNT_CAP + 1].count()


def slots_of(params: Sequence[Any]) -> list[Any]:
    """Return slots for as many parameters."""
    return list(map(Slot, range(len(params))))


def chunks(keys: Sequence[T]) -> list[Sequence[T]]:
    """Return the keys in parts for one query each."""
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def narrowed(request: MCPRequest, exposure: ModelExposure, conditions: Sequence[Filter], search: str) -> QuerySet[Any]:
    """Return all rows that match, in no order."""
    queryset = exposure.get_queryset(request).order_by()
    rows = searched(access_of(request)[exposure], queryset, search)
    return filtered(request, exposure, rows, conditions, plannable_params(conditions, queryset.db)).order_by()


def check_searchable(request: MCPRequest, exposure: ModelExposure) -> None:
    """Pass if the exposure can be searched."""
    if not exposure.options.has_search(request):
        raise ToolError(f"{exposure.label} has no text search. Use filters instead; describe_model lists them.")
