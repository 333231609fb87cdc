"""Keyset pages: the order of a page, cursors that hold where it ended, and the segments of rows that come after it.

An order is always total, so that keys can page it. Which orders an index serves is told as far as the model declares
its indexes: the database is not asked.

A cursor is opaque (specification, server/utilities/pagination): the sort values of the last row, encrypted because an
order may use a column that the caller does not see, signed, bound to user, site and query, and good for
``CURSOR_MAX_AGE`` seconds. Nothing is kept on the server, and any worker with the same keys can read it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import orjson
from django.core.exceptions import FieldError, ValidationError
from django.db import connections
from django.db.models import BooleanField, Case, CompositePrimaryKey, F, Model, Q, UniqueConstraint, When
from django.db.models.expressions import Expression, OrderBy
from django.db.models.fields.tuple_lookups import TupleGreaterThan, TupleLessThan, TupleLookupMixin
from django.db.models.lookups import Exact, GreaterThan, IsNull, LessThan
from django.utils.duration import duration_string

from ..conf import settings
from ..context.request import MCPRequest
from ..context.signing import SEPARATOR, seal, unseal
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from ..protocol.errors import InvalidParams
from .access import MAX_NAME, access_of
from .columns import Column, resolve_column
from .kinds import kind_of, resolve_path, stored_field
from .path import Path, Reading, guarded_name, guarded_values, guards_on, order_source

CURSOR_ERROR: Final = (
    "This cursor is not valid for this request: it is damaged, expired, or belongs to another query. "
    "Repeat the call without cursor to start from the first page."
)
SALT: Final = "mcp_django.orm.paging"
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
        """Return the cursor of the row with these sort values; equal ones are equal but for the time."""
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
        """Return the sort values that the cursor holds, as Python values of their fields."""
        data = self._opened(text)
        try:
            return _values(keys, orjson.loads(data) if data is not None else [])
        except (ValueError, ValidationError):
            raise ToolError(CURSOR_ERROR) from None

    def write_name(self, last: str) -> str:
        """Return the cursor of the page of a list (``resources/list``) after the entry named ``last``."""
        return seal(self.salt, last.encode())

    def read_name(self, text: Any) -> str:
        """Return the name of the entry after which the page starts."""
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


# Kinds of indexes that keep an order: Django's own, and PostgreSQL's by its name.
SORTED: Final = ("idx", "btree")
# A column of an index: its attname, and whether it descends.
Part = tuple[str, bool]


def is_served(model: type[Model], keys: Sequence[OrderKey]) -> bool:
    """Return whether a page in this order can be read from an index, without sorting the whole table.

    An index that begins with the first keys is enough, as the database sorts the few rows that are equal by it: few
    they are not where its last column is a boolean or has choices. The first key is read without its NULLs, and of the
    others an index has NULL where the database puts it.
    """
    return any(_serves(model, parts, keys) for parts in _indexes(model))


def _serves(model: type[Model], parts: Sequence[Part], keys: Sequence[OrderKey]) -> bool:
    same = 0
    for (name, descending), key in zip(parts, keys, strict=False):
        # An index is read in both directions.
        if name != key.path or (descending is key.descending) is not (parts[0][1] is keys[0].descending):
            break
        if same and key.nulls_last is not None:
            largest = connections[model._default_manager.db].features.nulls_order_largest
            if key.nulls_last is (key.descending is largest):
                break
        same += 1
    if same == 0 or same == len(keys):
        return same > 0
    field = keys[same - 1].field
    return not isinstance(field, BooleanField) and not field.choices


@lru_cache(maxsize=1024)
def _indexes(model: type[Model]) -> tuple[tuple[Part, ...], ...]:
    return tuple(filter(None, (_parts(model, item) for item in _declared(model))))


def _declared(model: type[Model]) -> Iterator[Sequence[Any]]:
    """Yield the columns of each index of the model's own table, as names with "-" or as expressions."""
    opts = model._meta.concrete_model._meta  # type: ignore[union-attr]
    yield [field.name for field in opts.pk_fields]
    field: Any
    for field in opts.local_concrete_fields:
        if field.unique or field.db_index:
            yield [field.name]
    yield from opts.unique_together
    for index in opts.indexes:
        if index.suffix in SORTED and index.condition is None and not index.opclasses:
            yield index.expressions or index.fields
    unique: list[Any] = [found for found in opts.constraints if isinstance(found, UniqueConstraint)]
    for constraint in unique:
        if constraint.condition is None and not constraint.opclasses:
            yield constraint.expressions or constraint.fields


def _parts(model: type[Model], declared: Sequence[Any]) -> tuple[Part, ...]:
    """Return the columns that come before the first one that is no plain column."""
    found: list[Part] = []
    opts = model._meta.concrete_model._meta  # type: ignore[union-attr]
    names = {field.name: field.attname for field in opts.local_concrete_fields}
    item: Any
    for item in declared:
        descending = False
        if isinstance(item, OrderBy):
            descending, item = item.descending, item.expression
        if isinstance(item, F):
            item = getattr(item, "name", None)
        if isinstance(item, str) and item[:1] == "-":
            descending, item = True, item[1:]
        if item not in names:
            break
        found.append((names[item], descending))
    return tuple(found)


# Relations that a declared order may follow.
MAX_HOPS: Final = 3


def default_ordering(request: MCPRequest, exposure: ModelExposure) -> tuple[OrderKey, ...]:
    """Return the exposure's own order as keys, made total by the primary key.

    An entry that is no column of one value (an expression, ``?``, an annotation) is left out, and so is one of a model
    that the caller may not view. The project may sort by columns of the rows that callers do not see.
    """
    keys = _keys(exposure, exposure.get_ordering(request))
    seen = [_guarded_key(request, exposure, key) if "__" in key.path else key for key in keys]
    return total_order(exposure, [key for key in seen if key is not None])


def declared_ordering(exposure: ModelExposure) -> tuple[OrderKey, ...]:
    """Return the order that the exposure, its admin or its model declares for all callers."""
    return total_order(exposure, _keys(exposure, exposure.options.ordering))


def _keys(exposure: ModelExposure, entries: Sequence[Any]) -> list[OrderKey]:
    return [key for entry in entries for key in _own_keys(exposure.model, entry, MAX_HOPS)]


def _own_keys(model: type[Model], entry: Any, hops: int) -> list[OrderKey]:
    """Return the keys of an entry of a declared order; as in Django, the name of a relation means its model's order."""
    key = _own_key(model, entry)
    if key is None:
        return []
    name = entry.lstrip("+-") if isinstance(entry, str) else ""
    if not hops or not key.field.is_relation or name.rpartition("__")[2] != key.field.name:
        return [key]
    related = key.field.related_model
    inner = [found for item in related._meta.ordering for found in _own_keys(related, item, hops - 1)]
    return [_through(name, key, found) for found in inner] or [key]


def _through(name: str, key: OrderKey, inner: OrderKey) -> OrderKey:
    """Return the key of the related model as one of the model; a relation that descends turns it round."""
    nulls_last = inner.nulls_last
    if nulls_last is not None and key.descending:
        nulls_last = not nulls_last
    nullable, descending = key.nullable or inner.nullable, inner.descending is not key.descending
    return OrderKey(f"{name}__{inner.path}", inner.field, descending, nullable, nulls_last)


def _own_key(model: type[Model], entry: Any) -> OrderKey | None:
    """Return the key of what may stand in ``Meta.ordering`` and ``admin_order_field``."""
    descending, nulls_last = False, None
    if isinstance(entry, OrderBy):
        nulls_last = True if entry.nulls_last else False if entry.nulls_first else None
        descending, entry = entry.descending, entry.expression
    if isinstance(entry, F):
        entry = getattr(entry, "name", None)
    return _named_key(model, entry, descending, nulls_last) if isinstance(entry, str) else None


@lru_cache(maxsize=4096)
def _named_key(model: type[Model], entry: str, descending: bool, nulls_last: bool | None) -> OrderKey | None:
    if entry[:1] in "+-":
        descending, entry = entry[0] == "-", entry[1:]
    if entry == "pk" and isinstance(model._meta.pk, CompositePrimaryKey):
        return OrderKey(entry, model._meta.pk, descending, False)
    path = resolve_path(model, entry) if entry else None
    if path is None or path.many or not kind_of(path.field).sortable:
        return None
    return OrderKey(path.column, path.field, descending, path.nullable, nulls_last if path.nullable else None)


def client_order_key(
    request: MCPRequest,
    exposure: ModelExposure,
    text: str,
    *,
    descending: bool = False,
    nulls_last: bool | None = None,
) -> OrderKey | None:
    """Return the key of a name that the caller may sort by, None for any other name.

    A column that the admin computes is sorted by its ``admin_order_field``. A path through relations is one that
    ``sortable_by`` declares, or that the caller could follow by reading every row on its way: an order by rows that are
    hidden would tell of them. NULL is last in both directions, where neither the client nor the admin says otherwise.
    """
    if len(text) > MAX_NAME:
        return None
    declared = exposure.get_sortable_by(request)
    name = access_of(request)[exposure].field_named(text) or text
    if declared is not None and name not in declared and text not in declared:
        return None
    column = resolve_column(exposure, name) if name in access_of(request)[exposure].fields else None
    if column is not None:
        key = _column_key(request, exposure, column)
    else:
        key = _readable_key(request, exposure, name)
        if key is None and declared is not None:
            key = _declared_key(request, exposure, name)
    if key is None:
        return None
    if nulls_last is None:
        # Whoever asks for the highest value does not mean a row that has none, on whatever database.
        nulls_last = key.nulls_last is None or key.nulls_last is not descending
    return replace(key, descending=key.descending is not descending, nulls_last=nulls_last if key.nullable else None)


def _column_key(request: MCPRequest, exposure: ModelExposure, column: Column) -> OrderKey | None:
    """Return the key of a visible column; one that is computed is sorted by what the caller could read, as filtered."""
    if column.is_plain:
        return _own_key(exposure.model, column.name)
    order = column.order_field
    if order is None or order == "?":
        return None
    key = _own_key(exposure.model, order)
    if key is None:
        return _computed_key(request, exposure, column.name, order)
    found = _readable_key(request, exposure, order_source(column))
    if found is None:
        return None
    return replace(found, descending=key.descending, nulls_last=key.nulls_last if found.nullable else None)


def _computed_key(request: MCPRequest, exposure: ModelExposure, name: str, order: Any) -> OrderKey | None:
    """Return the key of a column that is sorted by an expression, or by an annotation of the exposure's rows."""
    descending, nulls_last = False, None
    if isinstance(order, OrderBy):
        nulls_last = True if order.nulls_last else False if order.nulls_first else None
        descending, order = order.descending, order.expression
    if isinstance(order, str):
        descending, order = order[0] == "-", F(order.lstrip("+-"))
    rows = exposure.get_queryset(request)
    own = getattr(order, "name", "") if isinstance(order, F) else ""
    is_annotated = own in rows.query.annotation_select and "__" not in own
    path, expression = (own, None) if is_annotated else (f"mcp_order_{name}", order)
    try:
        rows = rows if expression is None else rows.annotate(**{path: expression})
        found = rows.query.annotations[path]
        is_sortable = kind_of(found.output_field).sortable
    except (FieldError, TypeError, ValueError):
        return None
    if not is_sortable or not Reading(access_of(request)[exposure], rows).allows(found, nested=True):
        return None
    return OrderKey(path, found.output_field, descending, True, nulls_last, expression)


def _readable_key(request: MCPRequest, exposure: ModelExposure, text: str) -> OrderKey | None:
    """Return the key of a column, here or behind relations, that the caller could read row by row."""
    name = access_of(request)[exposure].field_named(text)
    own = resolve_column(exposure, name) if name is not None else None
    if own is not None:
        return _own_key(exposure.model, own.name) if own.is_plain else None
    column = Path.read(access_of(request)[exposure], text).shown_column
    key = _own_key(exposure.model, column.name) if column is not None else None
    if column is None or key is None or not column.is_guarded:
        return key
    # What the caller may not see is null, as it is in a column.
    value = guarded_values(access_of(request)[exposure], [column])[column.path]
    return OrderKey(column.path, column.field, False, True, None, value)


def _declared_key(request: MCPRequest, exposure: ModelExposure, text: str) -> OrderKey | None:
    """Return the key of a path that the project declares: through models, too, that are exposed to nobody."""
    root = text.partition("__")[0]
    column = resolve_column(exposure, root) if root in access_of(request)[exposure].fields else None
    key = _own_key(exposure.model, text) if column is not None and column.kind == "relation" else None
    is_known = key is not None and key.field.model in request.mcp.site.exposures
    return _guarded_key(request, exposure, key) if key is not None and not is_known else None


def _guarded_key(request: MCPRequest, exposure: ModelExposure, key: OrderKey) -> OrderKey | None:
    """Return the key, which is null behind rows that the caller may not see; None behind such a model."""
    guards = guards_on(access_of(request), exposure.model, key.path)
    if not guards:
        return key if guards is not None else None
    return replace(key, path=guarded_name(key.path), nullable=True, expression=Case(When(Q(*guards), then=F(key.path))))


def sortable_names(request: MCPRequest, exposure: ModelExposure) -> list[str]:
    """Return the names that the caller may sort by; of paths through relations those that are declared."""
    declared = exposure.get_sortable_by(request)
    names = access_of(request)[exposure].fields if declared is None else declared
    return [name for name in names if client_order_key(request, exposure, name) is not None]


def total_order(exposure: ModelExposure, keys: Sequence[OrderKey]) -> tuple[OrderKey, ...]:
    """Return the keys with the primary key added, and nothing after it: no two rows are equal."""
    found: dict[str, OrderKey] = {}
    pk_fields = {field.attname: field for field in exposure.opts.pk_fields}
    for key in keys:
        parts = pk_fields.values() if isinstance(key.field, CompositePrimaryKey) else [key.field]
        for part in parts:
            path = part.attname if len(parts) > 1 else key.path
            found.setdefault(path, replace(key, path=path, field=part))
        if found.keys() >= pk_fields.keys():
            return tuple(found.values())
    descending = bool(keys) and keys[-1].descending
    for attname, field in pk_fields.items():
        found.setdefault(attname, OrderKey(attname, field, descending, False))
    return tuple(found.values())
