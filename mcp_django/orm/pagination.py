"""Keyset pagination: the query of one page, the segments of the ordering that it reads, and cursors to the next page.

A cursor is opaque (specification, server/utilities/pagination): the sort values of the last row, encrypted because an
ordering may use a column that the caller does not see, signed, bound to user, site and query, and good for
``CURSOR_MAX_AGE`` seconds. Nothing is kept on the server, and any worker with the same keys can read it.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

import orjson
from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import Expression, OrderBy
from django.db.models.fields.tuple_lookups import TupleGreaterThan, TupleLessThan, TupleLookupMixin
from django.db.models.lookups import Exact, GreaterThan, IsNull, LessThan
from django.utils.duration import duration_string

from ..conf import settings
from ..context.request import MCPRequest
from ..context.signing import SEPARATOR, seal, unseal
from ..exceptions import ToolError
from ..exposures.model_exposure import ModelExposure
from ..protocol.errors import InvalidParams
from .access import access_of
from .columns import Column
from .compiled_queries import Bind, CompiledQuery, Shape, Slot, cached_query, prepare, with_slots
from .conditions import Filter, filtered, plannable_params
from .fields import stored_field
from .ordering import OrderKey
from .path import GUARDED
from .search import searched

CURSOR_ERROR: Final = (
    "This cursor is not valid for this request: it is damaged, expired, or belongs to another query. "
    "Repeat the call without cursor to start from the first page."
)
SALT: Final = "mcp_django.orm.pagination"
MAX_CURSOR: Final = 4096
MAX_KEY_BYTES: Final = 2048
T = TypeVar("T")

COUNT_CAP: Final = 10_000
# Keys in one query: databases bound the number of parameters, the lowest being SQLite's 999.
CHUNK: Final = 400
# Databases that find ``(a, b) > (x, y)`` by an index.
ROW_VALUES: Final = ("postgresql", "sqlite")


# Segments of an order


class RowGreaterThan(TupleGreaterThan):
    """``(a, b) > (x, y)`` on SQLite too, which Django does not ask for row values because it lacks ``IN`` for them."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


class RowLessThan(TupleLessThan):
    """The row value comparison ``(a, b) < (x, y)`` on SQLite too, as :class:`RowGreaterThan` is written."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of an ordering that are one range of an index, whatever the directions and places of NULL.

    The first ``len(nulls)`` keys have the values of the cursor, NULL where ``nulls`` says so. Of the keys that follow,
    ``beyond`` are compared with the cursor's as one value; or ``null`` says whether the next one is NULL. With neither,
    the keys that follow are free.
    """

    nulls: tuple[bool, ...] = ()
    beyond: int = 0
    null: bool | None = None

    def condition(self, keys: Sequence[OrderKey], bind: Callable[[int], Expression]) -> Q:
        """Return the condition for the rows of the segment; ``bind`` gives the cursor's sort values by position."""
        found = Q()
        for index, is_null in enumerate(self.nulls):
            column = F(keys[index].path)
            found &= Q(IsNull(column, True)) if is_null else Q(Exact(column, bind(index)))
        start = len(self.nulls)
        if self.null is not None:
            found &= Q(IsNull(F(keys[start].path), self.null))
        if self.beyond:
            positions = range(start, start + self.beyond)
            columns, values = [F(keys[index].path) for index in positions], list(map(bind, positions))
            one, many = (LessThan, RowLessThan) if keys[start].descending else (GreaterThan, RowGreaterThan)
            found &= Q(one(columns[0], values[0]) if self.beyond == 1 else many(tuple(columns), tuple(values)))
        return found

    def order(self, keys: Sequence[OrderKey], *, nulls_largest: bool) -> list[str | OrderBy]:
        """Return the ``order_by`` of the rows of the segment.

        A key that has one value there is left out, and where NULL stands is said only where it is not where the
        database puts it: so an index that knows nothing of either serves.
        """
        start = len(self.nulls) + (self.null is True)
        found: list[str | OrderBy] = []
        for index, key in enumerate(keys[start:]):
            last = key.puts_nulls_last(nulls_largest)
            mixed = key.nullable and (index > 0 or self.null is True)
            if mixed and last is not (key.descending is not nulls_largest):
                places = {"nulls_last": True} if last else {"nulls_first": True}
                found.append(OrderBy(F(key.path), descending=key.descending, **places))
            else:
                found.append(("-" if key.descending else "") + key.path)
        return found

    def filled(self, keys: Sequence[OrderKey]) -> list[int]:
        """Return the positions of the sort keys that are never NULL in the rows of the segment."""
        first = len(self.nulls) if self.beyond or self.null is False else -1
        return [index for index, key in enumerate(keys) if not key.nullable or index == first]


WHOLE: Final = (Segment(),)


def segments(
    keys: Sequence[OrderKey], nulls: Sequence[bool] | None, *, nulls_largest: bool, row_values: bool
) -> Sequence[Segment]:
    """Return the segments of all rows, or of the rows after a cursor, in the order of the keys.

    ``nulls`` says which values of the cursor are NULL, None that there is no cursor; ``nulls_largest`` is where the
    database sorts NULL (PostgreSQL: as the largest value, SQLite: as the smallest); ``row_values`` says that it finds
    ``(a, b) > (x, y)`` by an index.
    """
    if nulls is not None:
        return list(_after(keys, tuple(nulls), 0, nulls_largest, row_values))
    if not keys[0].nullable:
        return WHOLE
    first = not keys[0].puts_nulls_last(nulls_largest)
    return Segment(null=first), Segment(null=not first)


def _after(
    keys: Sequence[OrderKey], nulls: tuple[bool, ...], start: int, nulls_largest: bool, row_values: bool
) -> Iterator[Segment]:
    """Yield the segments of the rows after a cursor whose first ``start`` sort values equal those of the cursor."""
    if start == len(keys):
        return
    key, equal = keys[start], nulls[:start]
    if nulls[start]:
        yield from _after(keys, nulls, start + 1, nulls_largest, row_values)
        if not key.puts_nulls_last(nulls_largest):
            yield Segment(equal, null=False)
        return
    stop = start + 1
    # A row value with NULL in it is neither before nor after another one.
    while row_values and stop < len(keys) and not keys[stop].nullable and keys[stop].descending is key.descending:
        stop += 1
    yield from _after(keys, nulls, stop, nulls_largest, row_values)
    yield Segment(equal, beyond=stop - start)
    if key.nullable and key.puts_nulls_last(nulls_largest):
        yield Segment(equal, null=True)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The query of one page: ``limit`` rows after the sort values ``after``, with these columns, for one caller.

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
        """Whether the query of the page has one SQL for all of its values, so that it can be compiled once."""
        if self.search or self.guarded or not all(item.is_plannable for item in self.conditions):
            return False
        # The SQL of a guarded key depends on which related rows the caller may see.
        for key in self.ordering:
            if key.path.startswith(GUARDED):
                return False
        return not self.exposure.get_listing(self.request).narrows_without_search()

    @property
    def shape(self) -> tuple[Any, ...]:
        """What the SQL of the page's query depends on, apart from the columns."""
        order = [(key.path, key.descending, key.nulls_last) for key in self.ordering]
        return tuple(item.shape() for item in self.conditions), tuple(order), self.limit

    def params(self, using: str) -> list[Any]:
        """Return the values of the page's filters and of its cursor as SQL parameters."""
        found = plannable_params(self.conditions, using)
        for key, value in zip(self.ordering, self.after or (), strict=False):
            found.append(None if value is None else prepare(key.field, value, using))
        return found

    @property
    def computed(self) -> Mapping[str, Any]:
        """The expressions that the page's query computes to show rows and to sort them, by their names."""
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
        """Return the segments from which the page is read, one after the other until it is full."""
        connection = connections[using]
        nulls = None if self.after is None else [value is None for value in self.after]
        return segments(
            self.ordering,
            nulls,
            nulls_largest=connection.features.nulls_order_largest,
            row_values=connection.vendor in ROW_VALUES,
        )

    def of_segment(self, rows: QuerySet[Any], segment: Segment, params: Sequence[Any]) -> QuerySet[Any]:
        """Return the matching rows in the segment, in order, one more than the page shows."""
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
    ) -> Iterator[tuple[Segment, CompiledQuery, Sequence[Any]]]:
        """Yield the compiled query of each segment and its values; the caller stops when the page is full.

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

            def compiled(segment: Segment = segment) -> CompiledQuery:
                found: CompiledQuery = select(self.of_segment(matching(), segment, slots))
                return found

            plan = (
                compiled() if key is None else cached_query((key, shape and shape.key, *self.shape, segment), compiled)
            )
            yield segment, plan, [*params, *shape.values] if shape is not None else params

    def rows(self, queryset: QuerySet[Any]) -> Iterator[QuerySet[Any]]:
        """Yield a queryset for each segment of the page, in order; the caller stops when the page is full."""
        params = self.params(queryset.db)
        rows = self.matching(queryset, params)
        for segment in self.segments(queryset.db):
            yield self.of_segment(rows, segment, params)

    def count(self) -> int:
        """Count the matching rows of the query; return one more than ``COUNT_CAP`` for any number beyond it."""
        rows = narrowed(self.request, self.exposure, self.conditions, self.search)
        return rows.values("pk")[: COUNT_CAP + 1].count()


def slots_of(params: Sequence[Any]) -> list[Any]:
    """Return slots for as many parameters."""
    return list(map(Slot, range(len(params))))


def chunks(keys: Sequence[T]) -> list[Sequence[T]]:
    """Return the primary keys in chunks, each small enough for the parameters of one query."""
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


# Cursors


class Cursor:
    """Writes and reads a caller's pagination cursors for one ``purpose``, which is a list, or a model and its query."""

    def __init__(self, request: MCPRequest, purpose: str) -> None:
        site, resource = request.mcp.site.name, request.mcp.resource.removesuffix("/")
        self.salt = SEPARATOR.join([SALT, site, resource, str(request.user.pk), purpose])

    def write(self, keys: Sequence[OrderKey], values: Sequence[Any]) -> str:
        """Return the cursor after the row with these sort values; the text differs only by the time."""
        try:
            plain = list(map(_plain, values))
            _values(keys, plain)
        except (ValueError, ValidationError):
            raise ToolError("This order ends at a value that cannot be read. Choose another ordering.") from None
        data = orjson.dumps(plain)
        if len(data) > MAX_KEY_BYTES:
            raise ToolError("This order cannot be paged: its texts are too long. Choose another ordering.")
        return seal(self.salt, data)

    def read(self, keys: Sequence[OrderKey], text: Any) -> tuple[Any, ...]:
        """Return the sort values in the cursor, as Python values of their fields."""
        data = self._opened(text)
        try:
            return _values(keys, orjson.loads(data) if data is not None else [])
        except (ValueError, ValidationError):
            raise ToolError(CURSOR_ERROR) from None

    def write_name(self, last: str) -> str:
        """Return the cursor to the next page of a list (``resources/list``), after the entry named ``last``."""
        return seal(self.salt, last.encode())

    def read_name(self, text: Any) -> str:
        """Return the name in a cursor of a list: the entry after which the page starts."""
        data = self._opened(text)
        if data is None:
            raise InvalidParams(CURSOR_ERROR)
        return data.decode()

    def _opened(self, text: Any) -> bytes | None:
        return unseal(self.salt, text, settings.CURSOR_MAX_AGE, MAX_CURSOR)


def _values(keys: Sequence[OrderKey], plain: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        None if value is None else stored_field(key.field).to_python(value)
        for key, value in zip(keys, plain, strict=True)
    )


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, timedelta):
        return duration_string(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)
