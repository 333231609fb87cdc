"""Keyset pages: cursors that hold where a page ended, and the segments of rows that come after it.

A cursor is opaque (specification, server/utilities/pagination): the sort values of the last row, encrypted because an
order may use a column that the caller does not see, signed, bound to user, site and query, and good for
``CURSOR_MAX_AGE`` seconds. Nothing is kept on the server, and any worker with the same keys can read it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import orjson
from django.core.exceptions import ValidationError
from django.db.models import F, Q
from django.db.models.expressions import Expression, OrderBy
from django.db.models.fields.tuple_lookups import TupleGreaterThan, TupleLessThan, TupleLookupMixin
from django.db.models.lookups import Exact, GreaterThan, IsNull, LessThan
from django.utils.duration import duration_string

from ..conf import settings
from ..context.request import MCPRequest
from ..context.signing import SEPARATOR, seal, unseal
from ..exceptions import ToolError
from ..protocol.errors import InvalidParams
from .kinds import stored_field

CURSOR_ERROR: Final = (
    "This cursor is not valid for this request: it is damaged, expired, or belongs to another query. "
    "Repeat the call without cursor to start from the first page."
)
SALT: Final = "mcp_django.orm.pagination"
MAX_CURSOR: Final = 4096
MAX_KEY_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One column of an order: its path from the model, its field, its direction, and whether it may be NULL.

    ``nulls_last`` says where NULL stands, None that it stands where the database puts it. With an ``expression``, the
    path is the name that its values get.
    """

    path: str
    field: Any = dataclasses.field(hash=False)
    descending: bool
    nullable: bool
    nulls_last: bool | None = None
    expression: Any = dataclasses.field(default=None, compare=False)


# Cursors


def _salt(request: MCPRequest, purpose: str) -> str:
    return SEPARATOR.join(
        [SALT, request.mcp.site.name, request.mcp.resource.removesuffix("/"), str(request.user.pk), purpose]
    )


def _seal(request: MCPRequest, purpose: str, data: bytes) -> str:
    # Equal pages have equal cursors but for the time.
    return seal(_salt(request, purpose), data)


def _unseal(request: MCPRequest, purpose: str, text: Any) -> bytes | None:
    return unseal(_salt(request, purpose), text, settings.CURSOR_MAX_AGE, MAX_CURSOR)


def write_cursor(request: MCPRequest, purpose: str, keys: Sequence[OrderKey], values: Sequence[Any]) -> str:
    """Return the cursor of the row with these sort values; ``purpose`` names the model and all of its query.

    Raises:
        ToolError: a value is too long to be carried by a cursor, or is none that its column can have.
    """
    try:
        plain = [_plain(value) for value in values]
        _read(keys, plain)
    except (ValueError, ValidationError):
        raise ToolError("This order ends at a value that cannot be read. Choose another ordering.") from None
    data = orjson.dumps(plain)
    if len(data) > MAX_KEY_BYTES:
        raise ToolError("This order cannot be paged: its texts are too long. Choose another ordering.")
    return _seal(request, purpose, data)


def read_cursor(request: MCPRequest, purpose: str, keys: Sequence[OrderKey], text: Any) -> tuple[Any, ...]:
    """Return the sort values that the cursor holds, as Python values of their fields.

    Raises:
        ToolError: the cursor is not one that this caller got for this query, or has expired; one text for all.
    """
    data = _unseal(request, purpose, text)
    try:
        values = orjson.loads(data) if data is not None else []
        if len(values) != len(keys):
            raise ToolError(CURSOR_ERROR)
        return _read(keys, values)
    except (ValueError, ValidationError):
        raise ToolError(CURSOR_ERROR) from None


def _read(keys: Sequence[OrderKey], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        None if value is None else stored_field(key.field).to_python(value)
        for key, value in zip(keys, values, strict=True)
    )


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, timedelta):
        return duration_string(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)


def list_cursor(request: MCPRequest, purpose: str, last: str) -> str:
    """Return the cursor of the page of a list (``resources/list``) after the entry named ``last``."""
    return _seal(request, purpose, last.encode())


def read_list_cursor(request: MCPRequest, purpose: str, text: Any) -> str:
    """Return the name of the entry after which the page starts.

    Raises:
        InvalidParams: the cursor is not one that this caller got for this list, or has expired.
    """
    data = _unseal(request, purpose, text)
    if data is None:
        raise InvalidParams(CURSOR_ERROR)
    return data.decode()


# Segments of an order


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of an order that are one range of an index, whatever the directions and places of NULL.

    The first ``len(nulls)`` keys have the values of the cursor, NULL where ``nulls`` says so. Of the keys that follow,
    ``beyond`` are compared with the cursor's as one value; or ``null`` says whether the next one is NULL. With neither,
    the keys that follow are free.
    """

    nulls: tuple[bool, ...] = ()
    beyond: int = 0
    null: bool | None = None


WHOLE: Final = (Segment(),)


class RowGreaterThan(TupleGreaterThan):
    """``(a, b) > (x, y)`` on SQLite too, which Django does not ask for row values because it lacks ``IN`` for them."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        """Return what other databases get."""
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


class RowLessThan(TupleLessThan):
    """``(a, b) < (x, y)``, as :class:`RowGreaterThan` is written."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        """Return what other databases get."""
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


def segments(
    keys: Sequence[OrderKey], nulls: Sequence[bool] | None, *, nulls_largest: bool, row_values: bool
) -> Sequence[Segment]:
    """Return the segments of all rows, or of those after a cursor, one after the other in the order of the keys.

    ``nulls`` says which values of the cursor are NULL, None that there is no cursor; ``nulls_largest`` is where the
    database sorts NULL (PostgreSQL: as the largest value, SQLite: as the smallest); ``row_values`` says that it finds
    ``(a, b) > (x, y)`` by an index.
    """
    if nulls is not None:
        return list(_after(keys, tuple(nulls), 0, nulls_largest, row_values))
    if not keys[0].nullable:
        return WHOLE
    first = not _nulls_last(keys[0], nulls_largest)
    return Segment(null=first), Segment(null=not first)


def _nulls_last(key: OrderKey, nulls_largest: bool) -> bool:
    return key.nulls_last if key.nulls_last is not None else key.descending is not nulls_largest


def _after(
    keys: Sequence[OrderKey], nulls: tuple[bool, ...], start: int, nulls_largest: bool, row_values: bool
) -> Iterator[Segment]:
    """Yield the segments after the cursor of the rows whose first ``start`` keys are the cursor's."""
    if start == len(keys):
        return
    key, equal = keys[start], nulls[:start]
    if nulls[start]:
        yield from _after(keys, nulls, start + 1, nulls_largest, row_values)
        if not _nulls_last(key, nulls_largest):
            yield Segment(equal, null=False)
        return
    stop = start + 1
    # A row value with NULL in it is neither before nor after another one.
    while row_values and stop < len(keys) and not keys[stop].nullable and keys[stop].descending is key.descending:
        stop += 1
    yield from _after(keys, nulls, stop, nulls_largest, row_values)
    yield Segment(equal, beyond=stop - start)
    if key.nullable and _nulls_last(key, nulls_largest):
        yield Segment(equal, null=True)


def segment_condition(segment: Segment, keys: Sequence[OrderKey], bind: Callable[[int], Expression]) -> Q:
    """Return the condition for the rows of the segment; ``bind`` gives the cursor's values by position."""
    found = Q()
    for index, is_null in enumerate(segment.nulls):
        column = F(keys[index].path)
        found &= Q(IsNull(column, True)) if is_null else Q(Exact(column, bind(index)))
    start = len(segment.nulls)
    if segment.null is not None:
        found &= Q(IsNull(F(keys[start].path), segment.null))
    if segment.beyond:
        positions = range(start, start + segment.beyond)
        columns, values = [F(keys[index].path) for index in positions], [bind(index) for index in positions]
        one, many = (LessThan, RowLessThan) if keys[start].descending else (GreaterThan, RowGreaterThan)
        found &= Q(one(columns[0], values[0]) if segment.beyond == 1 else many(tuple(columns), tuple(values)))
    return found


def segment_values(segment: Segment, keys: Sequence[OrderKey]) -> Iterator[int]:
    """Yield the positions of the keys that are not NULL in the rows of the segment, whatever was read of them."""
    first = len(segment.nulls)
    for index, key in enumerate(keys):
        if not key.nullable or (index == first and (segment.beyond or segment.null is False)):
            yield index


def segment_order(segment: Segment, keys: Sequence[OrderKey], *, nulls_largest: bool) -> list[str | OrderBy]:
    """Return the order of the rows of a segment.

    A key that has one value there is left out, and where NULL stands is said only where it is not where the database
    puts it: so an index that knows nothing of either serves.
    """
    start = len(segment.nulls) + (segment.null is True)
    found: list[str | OrderBy] = []
    for index, key in enumerate(keys[start:]):
        last = _nulls_last(key, nulls_largest)
        mixed = key.nullable and (index > 0 or segment.null is True)
        if mixed and last is not (key.descending is not nulls_largest):
            places = {"nulls_last": True} if last else {"nulls_first": True}
            found.append(OrderBy(F(key.path), descending=key.descending, **places))
        else:
            found.append(("-" if key.descending else "") + key.path)
    return found
