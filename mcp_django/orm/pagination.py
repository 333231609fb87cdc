"""Keyset pagination: the query of one page, the segments of the ordering that it reads, and cursors to the next page.

A cursor is opaque (specification, server/utilities/pagination). It holds the sort values of the last row, encrypted
because an ordering may use a column that the caller does not see, and signed for one user, site and query. It is valid
for ``CURSOR_MAX_AGE`` seconds. Nothing is kept on the server: any worker with the same keys can read it.

Sort values are read, kept and compared as the database stores them, never as Python values: what Python makes of a
value may stand at another place in the order.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from hashlib import blake2b
from math import isfinite
from typing import Any, ClassVar, Final, TypeVar

import orjson
from django.db import connections
from django.db.models import F, Model, Q, QuerySet
from django.db.models.expressions import Expression, OrderBy
from django.db.models.fields.tuple_lookups import TupleGreaterThan, TupleLessThan, TupleLookupMixin
from django.db.models.lookups import Exact, GreaterThan, IsNull, LessThan

from ..conf import settings
from ..context.databases import Collation
from ..context.request import MCPRequest
from ..context.signing import BriefSeal
from ..exceptions import ToolError
from ..exposures.model_exposure import Listing
from ..protocol.errors import InvalidParams
from .access import Link, ModelAccess
from .columns import Column
from .compiled_queries import AsStored, Bind, CompiledQuery, Shape, Slot, with_slots
from .conditions import Applied, Condition, Filter, filtered, plannable_params, plannable_shapes
from .fields import resolve_path
from .named_filters import Narrowed
from .ordering import Orderings, OrderKey
from .path import GUARDED
from .related_values import guarded_values
from .search import TextSearch

CURSOR_ERROR: Final = (
    "This cursor is not valid for this request: it is damaged, expired, or belongs to another query. "
    "Repeat the call without cursor to start from the first page."
)
REPEATED: Final = (
    "This order cannot be paged: the database does not find the end of the last page again, so that rows would come "
    "twice. Choose another ordering, or raise limit."
)
TOO_LONG: Final = "This order cannot be paged: its texts are too long. Choose another ordering."
SALT: Final = "mcp_django.orm.pagination"
MAX_CURSOR: Final = 4096
MAX_KEY_BYTES: Final = 2048
T = TypeVar("T")

# Maximum number of keys in one query: databases limit the parameters, and the lowest limit is SQLite's 999.
CHUNK: Final = 400
# Vendors of databases that can find ``(a, b) > (x, y)`` in an index.
ROW_VALUES: Final = ("postgresql", "sqlite")


# Segments of an ordering


class RowGreaterThan(TupleGreaterThan):
    """Compares ``(a, b) > (x, y)`` on SQLite too, which Django does not ask for row values."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


class RowLessThan(TupleLessThan):
    """Compares ``(a, b) < (x, y)`` on SQLite too, like :class:`RowGreaterThan`."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows that are one range of an index, wherever NULL is sorted.

    The first ``len(nulls)`` keys equal the cursor's values, which are NULL where ``nulls`` says so. The next ``beyond``
    keys are compared with the cursor's values as one row value; or ``null`` says whether the next key is NULL. With
    neither, the remaining keys are free.
    """

    nulls: tuple[bool, ...] = ()
    beyond: int = 0
    null: bool | None = None

    def condition(self, keys: Sequence[OrderKey], bind: Callable[[int], Expression]) -> Q:
        """Return the condition for the rows of the segment; ``bind`` gives the sort values by position."""
        found = Q()
        for index, is_null in enumerate(self.nulls):
            column = F(keys[index].path)
            found &= Q(IsNull(column, True)) if is_null else Q(Exact(column, bind(index)))
        start = len(self.nulls)
        if self.null is not None:
            found &= Q(IsNull(F(keys[start].path), self.null))
        if self.beyond:
            positions = range(start, start + self.beyond)
            columns = [F(keys[index].path) for index in positions]
            values = list(map(bind, positions))
            one, many = (LessThan, RowLessThan) if keys[start].descending else (GreaterThan, RowGreaterThan)
            found &= Q(one(columns[0], values[0]) if self.beyond == 1 else many(tuple(columns), tuple(values)))
        return found

    def order(self, keys: Sequence[OrderKey], *, nulls_largest: bool) -> list[str | OrderBy]:
        """Return the arguments of ``order_by()`` for the rows of the segment.

        Keys that are constant in the segment are left out, and NULLS FIRST or LAST is written only if the database
        would sort NULL otherwise, so that a plain index can be used.
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


WHOLE: Final = (Segment(),)


def segments(
    keys: Sequence[OrderKey], nulls: Sequence[bool] | None, *, nulls_largest: bool, row_values: bool
) -> Sequence[Segment]:
    """Return the segments of all rows, or of the rows after a cursor, in the order of the keys.

    ``nulls`` says which values of the cursor are NULL; it is None without a cursor. ``nulls_largest`` says that the
    database sorts NULL as the largest value (PostgreSQL does, SQLite sorts it as the smallest); ``row_values`` says
    that it can find ``(a, b) > (x, y)`` in an index.
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
    """Yield the segments of the rows that are after a cursor and have its first ``start`` sort values."""
    if start == len(keys):
        return
    key = keys[start]
    equal = nulls[:start]
    if nulls[start]:
        yield from _after(keys, nulls, start + 1, nulls_largest, row_values)
        if not key.puts_nulls_last(nulls_largest):
            yield Segment(equal, null=False)
        return
    stop = start + 1
    # A row value that contains NULL is neither before nor after another one.
    while row_values and stop < len(keys) and not keys[stop].nullable and keys[stop].descending is key.descending:
        stop += 1
    yield from _after(keys, nulls, stop, nulls_largest, row_values)
    yield Segment(equal, beyond=stop - start)
    if key.nullable and key.puts_nulls_last(nulls_largest):
        yield Segment(equal, null=True)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The query of one page: ``limit`` rows of a model with these columns, after the sort values ``after``.

    The sort values are those of :attr:`key_names`, as stored: see :class:`~mcp_django.orm.compiled_queries.AsStored`.
    ``text_limit`` is the number of characters at which texts are cut, None for no limit. ``moment`` is the time from
    which relative dates in the conditions are counted, the same for all pages; None without such dates. ``guarded`` has
    the expressions of :func:`~mcp_django.orm.related_values.guarded_values`, by path.

    Arguments named ``params`` are the values of :meth:`compiled_key`, or slots in their place.
    """

    # Number up to which rows are counted.
    COUNT_CAP: ClassVar = 10_000

    model: ModelAccess
    columns: tuple[Column, ...]
    ordering: tuple[OrderKey, ...]
    limit: int
    conditions: tuple[Filter, ...] = ()
    search: str = ""
    after: tuple[Any, ...] | None = None
    text_limit: int | None = None
    moment: datetime | None = None
    guarded: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_row(cls, model: ModelAccess, row: Model, columns: tuple[Column, ...]) -> "PageQuery":
        """Return the query of these columns of one row."""
        paths = [resolve_path(model.exposure.model, part.name) for part in model.exposure.opts.pk_fields]
        key = [Condition(path, "exact", (getattr(row, path.field.attname),)) for path in paths if path is not None]
        order = Orderings(model).by_key()
        return cls(model, columns, order, 1, tuple(key), guarded=guarded_values(model, columns))

    @classmethod
    def of_related(cls, link: Link, row: Model, columns: tuple[Column, ...], limit: int) -> "PageQuery":
        """Return the query of the rows that a row is linked to, in their own order."""
        linked = Applied(Narrowed(partial(link.rows_of, row)), {})
        order = Orderings(link.related).default().keys
        return cls(link.related, columns, order, limit, (linked,), text_limit=settings.TEXT_CHARS)

    def compiled_key(self, using: str) -> tuple[Hashable, list[Any]]:
        """Return the key of the page's SQL, and the values of its parameters.

        The key depends neither on values nor on columns; it is None if the SQL depends on the values, so that it cannot
        be kept. The parameters are the values of the filters, then those of the cursor.
        """
        shapes, params = plannable_shapes(self.conditions, using)
        params += self.after or ()
        # The SQL of a guarded key depends on which related rows the caller may see.
        guarded = [key for key in self.ordering if key.path.startswith(GUARDED)]
        listing = self.model.exposure.get_listing(self.model.request)
        if shapes is None or self.guarded or guarded or _is_searched(listing, self.search):
            return None, params
        order = tuple([(key.path, key.descending, key.nulls_last) for key in self.ordering])
        # Expressions of a declared ordering have names by their places, and may depend on the request.
        computed = tuple([key.expression for key in self.ordering if key.is_declared_expression])
        if computed and not _is_hashable(computed):
            return None, params
        return (shapes, order, computed, self.limit), params

    @property
    def computed(self) -> Mapping[str, Any]:
        """The expressions by which rows are shown and sorted, by their names in the query."""
        return {key.path: key.expression for key in self.ordering if key.expression is not None} | {**self.guarded}

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names in the query of the sort values as stored, from which the next page goes on."""
        return key_names(len(self.ordering))

    def with_values(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the values that the page needs to show them, to sort them and to go on after them."""
        computed = self.computed
        rows = queryset.annotate(**computed) if computed else queryset
        keys = zip(self.key_names, self.ordering, strict=True)
        return rows.annotate(**{name: AsStored(F(key.path)) for name, key in keys})

    def matching(self, queryset: QuerySet[Any], params: Sequence[Any]) -> QuerySet[Any]:
        """Return the rows of all pages: those of the queryset that match the filters and the search."""
        return _matching(self.model, self.with_values(queryset), self.conditions, self.search, params)

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
        """Return the first rows of one segment, in order, one more than the page shows."""
        used = len(params) - len(self.after or ())
        largest = connections[rows.db].features.nulls_order_largest
        condition = segment.condition(self.ordering, lambda index: Bind(params[used + index]))
        order = segment.order(self.ordering, nulls_largest=largest)
        return (rows.filter(condition) if condition else rows).order_by(*order)[: self.limit + 1]

    def rows(self, queryset: QuerySet[Any]) -> Iterator[QuerySet[Any]]:
        """Yield a queryset for each segment of the page, in order; the caller stops when the page is full."""
        params = self.compiled_key(queryset.db)[1]
        rows = self.matching(queryset, params)
        for segment in self.segments(queryset.db):
            yield self.of_segment(rows, segment, params)

    def total(self) -> int | str:
        """Return the number of matching rows of all pages, or that there are more than ``COUNT_CAP``."""
        rows = narrowed(self.model, self.conditions, self.search)
        count = rows.values("pk")[: self.COUNT_CAP + 1].count()
        if count > self.COUNT_CAP:
            return f"more than {self.COUNT_CAP}"
        return count

    def after_cursor(self, text: Any) -> "PageQuery":
        """Return the query of the page that a cursor leads to, with its ``moment`` if relative dates need one.

        Raises ``ToolError`` for a text that is no cursor of this query, or has expired.
        """
        number = len(self.ordering)
        if self.moment is None:
            return replace(self, after=self._cursor.read(text, number))
        # The last value is the time when the first page was read: relative dates mean the same on all pages.
        *last, moment = self._cursor.read(text, number + 1)
        return replace(self, after=tuple(last), moment=datetime.fromisoformat(moment))

    def next_cursor(self, values: Sequence[Any]) -> str:
        """Return the cursor to the page after the row with these sort values.

        Raises ``ToolError`` if a cursor cannot hold them.
        """
        chars = Collation.of(self.model.exposure.model).sorted_chars
        if chars is not None and any(isinstance(value, str) and len(value) > chars for value in values):
            # The rows that begin so are sorted by their next value, and cannot be gone on after.
            raise ToolError(TOO_LONG)
        if self.moment is not None:
            values = (*values, self.moment.isoformat())
        return self._cursor.write(values)

    @property
    def _cursor(self) -> "Cursor":
        """The cursors of the query, bound to model, filters, ordering and search."""
        conditions = [condition.wording() for condition in self.conditions]
        order: list[Any] = [[key.path, key.descending, key.nulls_last] for key in self.ordering]
        order += [str(key.expression) for key in self.ordering if key.is_declared_expression]
        digest = blake2b(orjson.dumps([conditions, order, self.search]), digest_size=16).hexdigest()
        return Cursor(self.model.request, f"{self.model.exposure.label}:{digest}")


class CompiledPage:
    """The compiled queries of a page: one for each of its segments, in their order.

    ``rows`` gives the exposure's rows, and ``shape`` is their shape, None if they have none. ``compile`` compiles the
    query for the rows of a segment, which is cached under ``key`` unless that is None. ``params`` are the values of the
    page's filters and cursor, and ``values`` those of all slots.
    """

    def __init__(
        self,
        query: PageQuery,
        using: str,
        *,
        params: Sequence[Any],
        shape: Shape | None,
        key: Hashable,
        rows: Callable[[], QuerySet[Any]],
        compile: Callable[[QuerySet[Any]], CompiledQuery],
    ) -> None:
        self.query = query
        self.using = using
        self.params = params
        self.shape = shape
        self.key = key
        self.rows = rows
        self.compile = compile
        self.values = params if shape is None else [*params, *shape.values]
        self._matching: QuerySet[Any] | None = None

    def __iter__(self) -> Iterator[CompiledQuery]:
        shape_key = None if self.shape is None else self.shape.key
        for segment in self.query.segments(self.using):
            build = partial(self._build, segment)
            if self.key is None:
                yield build()
            else:
                yield CompiledQuery.for_key((self.key, shape_key, segment), build)

    def _build(self, segment: Segment) -> CompiledQuery:
        slots = [Slot(number) for number in range(len(self.params))]
        if self._matching is None:
            rows = self.rows()
            if self.shape is not None:
                rows = with_slots(rows, len(slots))
            self._matching = self.query.matching(rows, slots)
        return self.compile(self.query.of_segment(self._matching, segment, slots))


@cache
def key_names(number: int) -> tuple[str, ...]:
    """Return the names of so many sort values in the query of a page."""
    return tuple(f"mcp_key_{position}" for position in range(number))


def chunks(keys: Sequence[T]) -> list[Sequence[T]]:
    """Split primary keys into chunks, each small enough for the parameters of one query."""
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def narrowed(model: ModelAccess, conditions: Sequence[Filter], search: str) -> QuerySet[Any]:
    """Return all rows of a model that match, in no order and on no page."""
    rows = model.exposure.get_queryset(model.request).order_by()
    params = plannable_params(conditions, rows.db)
    return _matching(model, rows, conditions, search, params).order_by()


def _is_hashable(expressions: Hashable) -> bool:
    """Return whether expressions can be part of a key: some are made of lists."""
    try:
        hash(expressions)
    except TypeError:
        return False
    return True


def _is_searched(listing: Listing, search: str) -> bool:
    """Return whether rows are searched: for a term, or without one where the search narrows the list."""
    return bool(search) or listing.narrows_without_search()


def _matching(
    model: ModelAccess, rows: QuerySet[Any], conditions: Sequence[Filter], search: str, params: Sequence[Any]
) -> QuerySet[Any]:
    """Return those of the rows that match the search and the filters."""
    if _is_searched(model.exposure.get_listing(model.request), search):
        rows = TextSearch(model).found_in(rows, search)
    return filtered(model, rows, conditions, params)


# Cursors


class Cursor:
    """Writes and reads a caller's cursors for one ``purpose``: a list, or a model and its query."""

    def __init__(self, request: MCPRequest, purpose: str) -> None:
        site = request.mcp.site.name
        resource = request.mcp.resource.removesuffix("/")
        self.seal = BriefSeal(SALT, site, resource, str(request.user.pk), purpose)

    def write(self, values: Sequence[Any]) -> str:
        """Return the cursor after the row with these sort values; the text differs only by the time.

        Raises ``ToolError`` if a value cannot be read, or if the values are too long.
        """
        try:
            data = orjson.dumps(list(map(_plain, values)))
        except (ValueError, TypeError):
            raise ToolError("This order ends at a value that cannot be read. Choose another ordering.") from None
        if len(data) > MAX_KEY_BYTES:
            raise ToolError(TOO_LONG)
        return self.seal.seal(data)

    def read(self, text: Any, number: int) -> tuple[Any, ...]:
        """Return the sort values of a cursor, of which there have to be this ``number``.

        Raises ``ToolError`` for a text that is no cursor of this caller and purpose, or has expired.
        """
        data = self._opened(text)
        values = orjson.loads(data) if data is not None else []
        if data is None or len(values) != number:
            raise ToolError(CURSOR_ERROR)
        return tuple(map(_value, values))

    def write_name(self, last: str) -> str:
        """Return the cursor to the next page of a list, after the entry named ``last``."""
        return self.seal.seal(last.encode())

    def read_name(self, text: Any) -> str:
        """Return the name of the entry after which the page starts.

        Raises ``InvalidParams`` for a text that is no cursor of this caller and list, or has expired.
        """
        data = self._opened(text)
        if data is None:
            raise InvalidParams(CURSOR_ERROR)
        return data.decode()

    def _opened(self, text: Any) -> bytes | None:
        return self.seal.open(text, settings.CURSOR_MAX_AGE, MAX_CURSOR)


def _plain(value: Any) -> Any:
    """Return a sort value as JSON can hold it; raise ``ValueError`` for one that could not be decoded."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else {"float": repr(value)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    # Dates and times, which a database that gives them as such also compares with their text.
    return str(value)


# How each value that JSON does not have is read from a cursor.
_READ: Final[Mapping[str, Callable[[str], Any]]] = {"float": float, "bytes": bytes.fromhex, "decimal": Decimal}


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((word, text),) = plain.items()
    return _READ[word](text)
