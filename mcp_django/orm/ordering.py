"""Orderings: the columns that rows are sorted by, as the project declares them and as clients ask for them.

An ordering is always total, so that keyset pagination works. Whether an index serves it is decided by the indexes that
the model declares: the database is not asked.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Final, NamedTuple, cast

from django.core.exceptions import FieldError
from django.db import connections
from django.db.models import BooleanField, Case, CompositePrimaryKey, F, Model, Q, UniqueConstraint, When
from django.db.models.expressions import OrderBy
from django.db.models.functions import Random

from ..exposures.model_exposure import ModelExposure
from ..schema.secrets import is_withheld
from .access import MAX_NAME, ModelAccess
from .columns import Column, ComputedColumn
from .computed_columns import Reading, order_source, parts_of
from .fields import kind_of, resolve_path, stored_field
from .hidden_parts import can_hide_parts
from .path import Path, guarded_name, guarded_paths, guards_on
from .related_values import RelatedValue
from .shown_texts import Beginning, Sorted, as_shown


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One column of an ordering: its path from the model, its field, its direction, and whether it may be NULL.

    ``nulls_last`` says where NULL is sorted; None leaves that to the database. With an ``expression``, the path is the
    name of its values in the query.
    """

    path: str
    field: Any = dataclasses.field(hash=False)
    descending: bool
    nullable: bool
    nulls_last: bool | None = None
    expression: Any = dataclasses.field(default=None, compare=False)

    def puts_nulls_last(self, nulls_largest: bool) -> bool:
        """Return whether the ordering puts NULL last, for a database that sorts NULL as the largest value or not."""
        if self.nulls_last is not None:
            return self.nulls_last
        return self.descending is not nulls_largest

    @property
    def is_declared_expression(self) -> bool:
        """Whether an expression or annotation of a declared ordering gives the values."""
        return self.path.startswith(COMPUTED)

    def wording(self, readable: Collection[str]) -> str:
        """Return the key in words, ``name`` or ``lower(name)``; "" if a column of it is not ``readable``."""
        if self.path in readable:
            return self.path
        if self.expression is None or not self.is_declared_expression:
            return ""
        names = _names_in(self.expression)
        if not names or any(name not in readable for name in names):
            return ""
        return f"{type(self.expression).__name__.lower()}({', '.join(names)})"


# Suffixes of indexes that keep an order: Django's own, and PostgreSQL's B-tree.
SORTED: Final = ("idx", "btree")
# A column of an index: its attname, and whether it is descending.
Part = tuple[str, bool]


def is_served(model: type[Model], keys: Sequence[OrderKey]) -> bool:
    """Return whether an index of the model serves the ordering, so that the database need not sort the whole table.

    An index on the first keys is enough, because the database then sorts only rows that are equal in them, unless the
    last of these keys is a boolean or has choices: then too many are. NULL in the first key is read separately; in the
    other keys, the index has NULL where the database sorts it.
    """
    return any(_serves(model, parts, keys) for parts in _indexes(model))


def _serves(model: type[Model], parts: Sequence[Part], keys: Sequence[OrderKey]) -> bool:
    same = 0
    for (name, descending), key in zip(parts, keys, strict=False):
        # An index can be read in both directions.
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
    """Yield the model's declared indexes, to compare with an ordering: each as names with "-" or as expressions."""
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
    """Return the leading parts of a declared index that an ordering can use: plain columns, up to anything else."""
    found: list[Part] = []
    opts = model._meta.concrete_model._meta  # type: ignore[union-attr]
    names = {field.name: field.attname for field in opts.local_concrete_fields}
    item: Any
    for item in declared:
        descending = False
        if isinstance(item, OrderBy):
            descending = item.descending
            item = item.expression
        if isinstance(item, F):
            item = getattr(item, "name", None)
        if isinstance(item, str) and item[:1] == "-":
            descending = True
            item = item[1:]
        if item not in names:
            break
        found.append((names[item], descending))
    return tuple(found)


# Beginning of the names of expressions by which an ordering sorts.
COMPUTED: Final = "mcp_order_"
# Prefix of the names of texts without their hidden parts.
SHOWN: Final = "mcp_shown_"
# Maximum number of relations that a declared ordering may follow.
MAX_HOPS: Final = 3


class DefaultOrder(NamedTuple):
    """The default ordering of an exposure, as keys made total by the primary key.

    ``leaves_out`` says that it has an entry by which no page can be sorted, for any caller: one without a place that
    stays the same (``?``), or without a single value for each row. Entries through relations do not count: they may be
    left out because the caller must not know of them.
    """

    keys: tuple[OrderKey, ...]
    leaves_out: bool


class Orderings:
    """The orderings of a model's rows for one caller: the default, and those that the caller may choose."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.exposure = model.exposure

    def default(self) -> DefaultOrder:
        """Return the default ordering of the model, without the entries of models that the caller may not view.

        The project may sort by columns that nobody sees, but not by those that hold secrets, give rights, or are hidden
        from this caller alone.
        """
        model = self.model
        fields = model.fields
        keys: list[OrderKey] = []
        leaves_out = False
        declared = self.exposure.get_ordering(model.request)
        entries = [found for entry in declared for found in _own_keys(self.exposure.model, entry, MAX_HOPS)]
        for place, entry in enumerate(entries):
            names = [entry.path] if isinstance(entry, OrderKey) else _names_in(entry)
            # What the caller reads tells them nothing new by its order.
            unread = [name for name in names if name not in fields]
            if unread and any(model.is_kept_from(name) or _is_secret(model, name) for name in unread):
                continue
            if not isinstance(entry, OrderKey):
                is_random = _is_random(entry)
                key = None if is_random else _computed_key(model, str(place), entry, declared=True)
                leaves_out |= key is None and not any("__" in name for name in names)
            elif "__" in entry.path:
                key = _guarded_key(model, entry)
            else:
                key = entry
            if key is not None:
                keys.append(key)
        return DefaultOrder(total_order(self.exposure, keys), leaves_out)

    def by_key(self) -> tuple[OrderKey, ...]:
        """Return the ordering by the primary key alone."""
        return total_order(self.exposure, ())

    def key(self, text: str, *, descending: bool = False, nulls_last: bool | None = None) -> OrderKey | None:
        """Return the ordering key of a name by which a client sorts; None for one by which the caller may not sort.

        A column that the admin computes is sorted by its ``admin_order_field``. A path through relations must be
        declared in ``sortable_by``, or be one that the caller could follow by reading every row on it: an order by
        hidden rows would reveal them. NULL is last in both directions, unless the client or the admin says otherwise.
        """
        model = self.model
        if len(text) > MAX_NAME:
            return None
        declared = self.exposure.get_sortable_by(model.request)
        name = model.field_named(text) or text
        if declared is not None and name not in declared and text not in declared:
            return None
        column = model.column(name)
        if column is not None:
            key = _column_key(model, column)
        else:
            key = _readable_key(model, name)
            if key is None and declared is not None:
                key = _declared_key(model, name)
        if key is None:
            return None
        key = _shown_key(self.exposure, key)
        if nulls_last is None:
            # Clients that ask for the highest value do not mean a row without one, whatever the database sorts first.
            nulls_last = key.nulls_last is None or key.nulls_last is not descending
        if not key.nullable:
            nulls_last = None
        return replace(key, descending=key.descending is not descending, nulls_last=nulls_last)

    def names(self) -> list[str]:
        """Return the names that an ordering of the caller may use; of paths through relations only declared ones."""
        declared = self.exposure.get_sortable_by(self.model.request)
        names = self.model.fields if declared is None else declared
        return [name for name in names if self.key(name) is not None]

    def is_served(self, keys: Sequence[OrderKey]) -> bool:
        """Return whether an index that the model declares serves the ordering, see :func:`is_served`."""
        return is_served(self.exposure.model, keys)


class DeclaredOrdering:
    """The ordering that an exposure, its admin or its model declares for all callers."""

    def __init__(self, exposure: ModelExposure) -> None:
        self.exposure = exposure
        declared = exposure.options.ordering
        self._entries = [found for entry in declared for found in _own_keys(exposure.model, entry, MAX_HOPS)]

    @property
    def keys(self) -> tuple[OrderKey, ...]:
        """The keys of the ordering, up to an entry that is an expression, made total by the primary key."""
        return total_order(self.exposure, list(takewhile(lambda entry: isinstance(entry, OrderKey), self._entries)))

    @property
    def is_served(self) -> bool:
        """Whether an index of the model serves the ordering, see :func:`is_served`."""
        return is_served(self.exposure.model, self.keys)

    def unsortable_entries(self) -> list[str]:
        """Return the entries by which no page can be sorted, as far as the declaration tells."""
        rows = self.exposure.model._default_manager.all()
        others = [entry for entry in self._entries if not isinstance(entry, OrderKey)]
        return [str(entry) for entry in others if _is_random(entry) or _several_values(rows, entry)]


def _is_secret(model: ModelAccess, name: str) -> bool:
    """Return whether an ordering by the name is one by a secret, or by a right, that the caller does not read."""
    path = resolve_path(model.exposure.model, name)
    is_held = path is not None and is_withheld(path.field.name, path.field.model)
    return is_held and model.field_named(name) is None


def _names_in(entry: Any) -> list[str]:
    """Return the names that an entry of an ordering, or an expression, is made of."""
    if isinstance(entry, str):
        return [entry.lstrip("+-")]
    parts: list[Any] = [part for part in parts_of(entry) if isinstance(part, F)]
    return [part.name for part in parts]


def _is_random(entry: Any) -> bool:
    return entry == "?" or (not isinstance(entry, str) and any(isinstance(part, Random) for part in parts_of(entry)))


def _several_values(rows: Any, entry: Any) -> bool:
    """Return whether an entry of the ordering has several values for one row, as one through a to-many relation has."""
    computed = _computed(rows, "several", entry)
    if computed is None or computed.value.contains_aggregate:
        return False
    joins = (getattr(join, "join_field", None) for join in computed.rows.query.alias_map.values())
    return any(field is not None and (field.one_to_many or field.many_to_many) for field in joins)


def _own_keys(model: type[Model], entry: Any, hops: int) -> list[Any]:
    """Return the ordering keys of a declared entry; as in Django, a relation means its model's ordering.

    An entry that is not a column (an expression, an annotation, ``?``) is returned as it is.
    """
    key = _own_key(model, entry)
    if key is None:
        return [entry]
    name = entry.lstrip("+-") if isinstance(entry, str) else ""
    if not hops or not key.field.is_relation or name.rpartition("__")[2] != key.field.name:
        return [key]
    related = key.field.related_model
    inner = [found for item in related._meta.ordering for found in _own_keys(related, item, hops - 1)]
    through: list[Any] = []
    for found in inner:
        if isinstance(found, OrderKey):
            through.append(_through(name, key, found))
        elif not isinstance(found, str):
            through.append(_expression_through(name, key, found))
    return through or [key]


def _expression_through(name: str, key: OrderKey, inner: Any) -> OrderBy:
    """Return an expression of the related model's ordering as one of the model, as Django does."""
    order: Any = inner.copy() if isinstance(inner, OrderBy) else OrderBy(inner)
    if key.descending:
        order.reverse_ordering()
    return cast("OrderBy", order.prefix_references(f"{name}__"))


def _through(name: str, key: OrderKey, inner: OrderKey) -> OrderKey:
    """Return an ordering key of the related model as one of the model; a descending relation reverses it."""
    nulls_last = inner.nulls_last
    if nulls_last is not None and key.descending:
        nulls_last = not nulls_last
    nullable = key.nullable or inner.nullable
    descending = inner.descending is not key.descending
    return OrderKey(f"{name}__{inner.path}", inner.field, descending, nullable, nulls_last)


def _nulls_last(order: OrderBy) -> bool | None:
    """Return whether NULL is last in an order, None where the database decides."""
    if order.nulls_last:
        return True
    if order.nulls_first:
        return False
    return None


def _own_key(model: type[Model], entry: Any) -> OrderKey | None:
    """Return the ordering key of an entry of ``Meta.ordering`` or of ``admin_order_field``."""
    descending = False
    nulls_last = None
    if isinstance(entry, OrderBy):
        nulls_last = _nulls_last(entry)
        descending = entry.descending
        entry = entry.expression
    if isinstance(entry, F):
        entry = getattr(entry, "name", None)
    if isinstance(entry, str):
        return _named_key(model, entry, descending, nulls_last)
    return None


@lru_cache(maxsize=4096)
def _named_key(model: type[Model], entry: str, descending: bool, nulls_last: bool | None) -> OrderKey | None:
    if entry[:1] in "+-":
        descending = entry[0] == "-"
        entry = entry[1:]
    if entry == "pk" and isinstance(model._meta.pk, CompositePrimaryKey):
        return OrderKey(entry, model._meta.pk, descending, False)
    path = resolve_path(model, entry) if entry else None
    if path is None or path.many or not kind_of(path.field).sortable:
        return None
    return OrderKey(path.column, path.field, descending, path.nullable, nulls_last if path.nullable else None)


def _shown_key(exposure: ModelExposure, key: OrderKey) -> OrderKey:
    """Return the ordering key by which texts of which a part is hidden are all in one place, as they are shown.

    A column with an index, which is rarely a free text, keeps its order: the database would have to sort all rows.
    """
    if not can_hide_parts(key.field) or (key.expression is None and is_served(exposure.model, (key,))):
        return key
    value = key.expression or F(key.path)
    path = _shown_name(key.path) if key.expression is None else guarded_name(f"shown {key.path}")
    if key.field.model._meta.managed:
        return replace(key, path=path, expression=Beginning.of(as_shown(value, key.field), key.field))
    # A column of other people's tables can have another type, which has an order of its own and takes no text.
    shown = Sorted(value, stored_field(key.field))
    return replace(key, path=path, nullable=True, expression=Beginning.of(shown, key.field))


def _shown_name(path: str) -> str:
    """Return the name under which a query keeps a column's texts as they are shown, the same for all callers."""
    return f"{SHOWN}{blake2b(path.encode(), digest_size=8).hexdigest()}"


def _column_key(model: ModelAccess, column: Column) -> OrderKey | None:
    """Return the ordering key of a visible column; a computed one is sorted by a column that the caller could read."""
    exposure = model.exposure
    if column.is_plain:
        return _own_key(exposure.model, column.name)
    if not isinstance(column, ComputedColumn):
        return None
    order = column.order_field
    if order is None or order == "?":
        return None
    key = _own_key(exposure.model, order)
    if key is None:
        return _computed_key(model, column.name, order)
    found = _readable_key(model, order_source(column))
    if found is None:
        return None
    return replace(found, descending=key.descending, nulls_last=key.nulls_last if found.nullable else None)


class _Computed(NamedTuple):
    """An entry of an ordering that is an expression or an annotation, and the rows that have its ``value``."""

    rows: Any
    path: str
    value: Any
    expression: Any
    descending: bool
    nulls_last: bool | None


def _computed(rows: Any, name: str, order: Any) -> _Computed | None:
    """Annotate rows with the expression of an ordering; None if it is none of these rows, or cannot be sorted."""
    descending = False
    nulls_last = None
    if isinstance(order, OrderBy):
        nulls_last = _nulls_last(order)
        descending = order.descending
        order = order.expression
    if isinstance(order, str):
        descending = order[0] == "-"
        order = F(order.lstrip("+-"))
    own = getattr(order, "name", "") if isinstance(order, F) else ""
    is_annotated = own in rows.query.annotation_select and "__" not in own
    path, expression = (own, None) if is_annotated else (f"{COMPUTED}{name}", order)
    try:
        rows = rows if expression is None else rows.annotate(**{path: expression})
        found = rows.query.annotations[path]
        is_sortable = kind_of(found.output_field).sortable
    except (FieldError, TypeError, ValueError):
        return None
    if is_sortable:
        return _Computed(rows, path, found, expression, descending, nulls_last)
    return None


def _computed_key(model: ModelAccess, name: str, order: Any, *, declared: bool = False) -> OrderKey | None:
    """Return the ordering key of a column that is sorted by an expression or by an annotation of the queryset.

    A ``declared`` order of the exposure may use columns of the row that the caller does not see.
    """
    found = _computed(model.exposure.get_queryset(model.request), name, order)
    if found is None:
        return None
    reading = Reading(model, found.rows, has_own=declared)
    if not reading.allows(found.value, nested=True):
        return None
    return OrderKey(found.path, found.value.output_field, found.descending, True, found.nulls_last, found.expression)


def _readable_key(model: ModelAccess, text: str) -> OrderKey | None:
    """Return the ordering key of a column, here or behind relations, that the caller could read row by row."""
    exposure = model.exposure
    own = model.column_named(text)
    if own is not None:
        if own.is_plain:
            return _own_key(exposure.model, own.name)
        return None
    value = RelatedValue.read(model, text)
    if value is not None:
        return OrderKey(value.column.path, value.field, False, value.is_nullable, None, value.expression)
    column = Path.read(model, text).shown_column
    key = _own_key(exposure.model, column.name) if column is not None else None
    if column is None or key is None or not column.is_guarded:
        return key
    # Values that the caller may not see sort as NULL, as they are shown.
    expression = guarded_paths(model, [column])[column.path]
    return OrderKey(column.path, column.field, False, True, None, expression)


def _declared_key(model: ModelAccess, text: str) -> OrderKey | None:
    """Return the ordering key of a path in ``sortable_by``, also through models that are not exposed."""
    column = model.column(text.partition("__")[0])
    key = _own_key(model.exposure.model, text) if column is not None and column.is_foreign_key else None
    is_known = key is not None and key.field.model in model.request.mcp.site.exposures
    if key is not None and not is_known:
        return _guarded_key(model, key)
    return None


def _guarded_key(model: ModelAccess, key: OrderKey) -> OrderKey | None:
    """Return the ordering key that sorts hidden related rows as NULL; None where the caller may not view the model."""
    guards = guards_on(model.access, model.exposure.model, key.path)
    if not guards:
        return key if guards is not None else None
    return replace(key, path=guarded_name(key.path), nullable=True, expression=Case(When(Q(*guards), then=F(key.path))))


def total_order(exposure: ModelExposure, keys: Sequence[OrderKey]) -> tuple[OrderKey, ...]:
    """Make an ordering total: add the primary key to the keys, so that no two rows are equal."""
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
