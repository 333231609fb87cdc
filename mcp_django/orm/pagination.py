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

    def puts_nulls_last(self, nulls_largest: bool) -> bool:
        """Return whether NULL stands last, in a database that sorts it as the largest value, or as the smallest."""
        return self.nulls_last if self.nulls_last is not None else self.descending is not nulls_largest


# Cursors


class Cursor:
    """Writes and reads cursors of a caller for one ``purpose``, which names a list, or a model and its query."""

    def __init__(self, request: MCPRequest, purpose: str) -> None:
        site, resource = request.mcp.site.name, request.mcp.resource.removesuffix("/")
        self.salt = SEPARATOR.join([SALT, site, resource, str(request.user.pk), purpose])

    def write(self, keys: Sequence[OrderKey], values: Sequence[Any]) -> str:
        """Return the cursor of the row with these sort values; equal ones are equal but for the time.

        Raises:
            ToolError: a value is too long to be carried by a cursor, or is none that its column can have.
        """
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
        """Return the sort values that the cursor holds, as Python values of their fields.

        Raises:
            ToolError: the cursor is not one that this caller got for this query, or has expired; one text for all.
        """
        data = self._opened(text)
        try:
            return _values(keys, orjson.loads(data) if data is not None else [])
        except (ValueError, ValidationError):
            raise ToolError(CURSOR_ERROR) from None

    def write_name(self, last: str) -> str:
        """Return the cursor of the page of a list (``resources/list``) after the entry named ``last``."""
        return seal(self.salt, last.encode())

    def read_name(self, text: Any) -> str:
        """Return the name of the entry after which the page starts.

        Raises:
            InvalidParams: the cursor is not one that this caller got for this list, or has expired.
        """
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


# Segments of an order


class RowGreaterThan(TupleGreaterThan):
    """``(a, b) > (x, y)`` on SQLite too, which Django does not ask for row values because it lacks ``IN`` for them."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


class RowLessThan(TupleLessThan):
    """``(a, b) < (x, y)``, as :class:`RowGreaterThan` is written."""

    def get_fallback_sql(self, compiler: Any, connection: Any) -> Any:
        return super(TupleLookupMixin, self).as_sql(compiler, connection)


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

    def condition(self, keys: Sequence[OrderKey], bind: Callable[[int], Expression]) -> Q:
        """Return the condition for the rows of the segment; ``bind`` gives the cursor's values by position."""
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
        """Return the order of the rows of the segment.

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
        """Return the positions of the keys that are not NULL in the rows of the segment, whatever was read of them."""
        first = len(self.nulls) if self.beyond or self.null is False else -1
        return [index for index, key in enumerate(keys) if not key.nullable or index == first]


WHOLE: Final = (Segment(),)


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
    first = not keys[0].puts_nulls_last(nulls_largest)
    return Segment(null=first), Segment(null=not first)


def _after(
    keys: Sequence[OrderKey], nulls: tuple[bool, ...], start: int, nulls_largest: bool, row_values: bool
) -> Iterator[Segment]:
    """Yield the segments after the cursor of the rows whose first ``start`` keys are the cursor's."""
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
