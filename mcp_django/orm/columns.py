"""The columns of an exposure: fields of the model, relations, and what the admin or a serializer computes."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import Model
from django.db.models.query_utils import DeferredAttribute

from ..exposures.model_exposure import ModelExposure
from .fields import (
    is_generic_key,
    is_generic_relation,
    is_stored_as_text,
    key_field,
    kind_of,
    linked_reader,
    resolve_path,
)
from .serializer_columns import unchanged_fields


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of an exposure: one thing that can be read from a row. There is one object for each column.

    ``field`` is the model's field, where there is one, and ``path`` what it is called in queries. ``is_plain`` says
    that a filter on the name compares the value that the caller reads, and ``is_replaced`` that an attribute of the
    project gives the value, although there is a database column. ``through`` are the relations that lead to a column of
    a related row, which ``is_guarded`` if it is null where the caller may not see that row.
    """

    name: str
    path: str = ""
    field: Any = None
    is_plain: bool = True
    is_replaced: bool = False
    through: tuple[str, ...] = ()
    is_guarded: bool = False

    # What a class of columns is called where a model is described.
    kind: ClassVar[str]
    # Whether the value is that of a column of the database, and whether this is the key of one related row.
    is_stored: ClassVar[bool] = False
    is_foreign_key: ClassVar[bool] = False
    # Whether the value lists the rows that are linked to this one.
    lists_rows: ClassVar[bool] = False
    # Whether code of the project makes the value, and whether this is a function of the instance.
    is_made: ClassVar[bool] = False
    is_computed: ClassVar[bool] = False

    @classmethod
    @lru_cache(maxsize=8192)
    def of(cls, exposure: ModelExposure, name: str) -> "Column | None":
        """Return the exposure's column of a name, None if the name is not a column with one value."""
        plain = _model_column(exposure, name)
        if exposure.serializer_class is not None and name != exposure.opts.pk.name:
            same = plain is not None and name in unchanged_fields(exposure)
            field = plain.field if plain is not None else None
            return SerializedColumn(name, path=name, field=field, is_plain=same)
        compute = exposure.get_computed(name)
        if compute is not None and name != exposure.opts.pk.name:
            return _computed(name, compute)
        if plain is not None:
            return plain
        if _is_relation(exposure, name):
            return None
        attribute = getattr(exposure.model, name, None)
        # A method such as ``delete``. As in Django's templates, reading never calls it.
        if getattr(attribute, "alters_data", False):
            return None
        return _computed(name, partial(_attribute, name), attribute)

    @classmethod
    def all(cls, exposure: ModelExposure, names: Iterable[str]) -> "tuple[Column, ...]":
        """Return the exposure's columns of these names, each that is one."""
        return _columns(exposure, tuple(names))

    @property
    def needs_instance(self) -> bool:
        """Whether only an instance gives this value, although there may be a database column."""
        return self.is_made or self.is_replaced

    # A total must not reveal what stands in place of a stored value, so a class of columns is used for what it allows.

    def is_countable(self) -> bool:
        """Return whether the column is stored in the database, and shown as stored."""
        return self.is_stored and self.is_plain and not self.is_replaced

    def is_summable(self) -> bool:
        """Return whether the column's values can be added."""
        return False

    def is_comparable(self) -> bool:
        """Return whether the column's values can be compared by size; texts are compared in their order."""
        return False

    def is_groupable(self) -> bool:
        """Return whether the column's kind lets the database put rows with equal values together."""
        return self.is_countable() and kind_of(self.field).sortable

    def is_period(self) -> bool:
        """Return whether the column holds dates."""
        return self.is_countable() and kind_of(self.field).word in ("date", "datetime")

    def is_ordering(self) -> bool:
        """Return whether the column's kind is one of numbers, dates and durations, which all databases sort alike."""
        return self.is_summable() or self.is_period()

    def is_file(self) -> bool:
        """Return whether this is a column of files, which are resources, however the exposure shows them."""
        return False


class FieldColumn(Column):
    """A column of the database that is no foreign key."""

    __slots__ = ()
    kind = "field"
    is_stored = True

    def is_summable(self) -> bool:
        return self.is_countable() and kind_of(self.field).summable and not is_stored_as_text(self.field)

    def is_comparable(self) -> bool:
        kind = kind_of(self.field)
        return self.is_countable() and ("gt" in kind.lookups or (kind.word == "text" and kind.sortable))

    def is_file(self) -> bool:
        return self.is_plain and kind_of(self.field).word in ("file", "image")


class RelationColumn(Column):
    """A foreign key, shown as the key and the label of the row that it points to."""

    __slots__ = ()
    kind = "relation"
    is_stored = True
    is_foreign_key = True


class ManyColumn(Column):
    """A many-to-many relation, from either end."""

    __slots__ = ()
    kind = "many"
    lists_rows = True


class ReverseColumn(Column):
    """The rows that point here; ``path`` is the column that they point to."""

    __slots__ = ()
    kind = "reverse"
    lists_rows = True


class GenericColumn(Column):
    """A generic foreign key, shown as the key, label and model of any row."""

    __slots__ = ()
    kind = "generic"


@dataclass(frozen=True, slots=True, eq=False)
class ComputedColumn(Column):
    """What ``compute`` makes of an instance; ``order_field`` is what it is sorted by.

    ``shows_truth`` says that it shows true or false, whatever the function behind it returns. The column has a
    ``field`` if it is a many-to-many relation whose class is custom.
    """

    compute: Callable[[Any], Any] = str
    order_field: Any = None
    shows_truth: bool = False

    kind = "computed"
    is_made = True
    is_computed = True


class SerializedColumn(Column):
    """What the exposure's serializer makes of a row; it is plain if the serializer shows the field as it is stored."""

    __slots__ = ()
    kind = "serialized"
    is_made = True

    def is_file(self) -> bool:
        return self.is_plain and kind_of(self.field).word in ("file", "image")


@lru_cache(maxsize=2048)
def _columns(exposure: ModelExposure, names: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(column for name in names if (column := Column.of(exposure, name)) is not None)


def _computed(name: str, compute: Callable[[Any], Any], source: Any = None) -> Column:
    source = source if source is not None else compute
    if isinstance(source, property):
        source = source.fget
    order = getattr(source, "admin_order_field", None)
    order_field = order if isinstance(order, str) or hasattr(order, "resolve_expression") else None
    truth = bool(getattr(source, "boolean", False))
    if truth:
        compute = partial(_as_boolean, compute)
    return ComputedColumn(name, is_plain=False, compute=compute, order_field=order_field, shows_truth=truth)


def _as_boolean(compute: Callable[[Any], Any], row: Any) -> bool | None:
    value = compute(row)
    return None if value is None else bool(value)


def _attribute(name: str, row: Any) -> Any:
    value = getattr(row, name)
    if callable(value) and not isinstance(value, models.Manager):
        return value()
    return value


def _is_relation(exposure: ModelExposure, name: str) -> bool:
    try:
        return bool(exposure.opts.get_field(name).is_relation)
    except FieldDoesNotExist:
        return "__" in name


def _model_column(exposure: ModelExposure, name: str) -> Column | None:
    pk = exposure.opts.pk
    if name == pk.name:
        # If the relation shows another column of the related row (``to_field``), the row's key is still its own column.
        is_link = pk.is_relation and key_field(pk) is pk.target_field  # type: ignore[attr-defined]
        if is_link:
            return RelationColumn(name, path=pk.attname, field=pk)
        return FieldColumn(name, path=pk.attname, field=pk)
    path = resolve_path(exposure.model, name)
    if path is None:
        return _relation_column(exposure, name)
    if path.field.many_to_many:
        if "__" in name:
            return None
        reader = linked_reader(path.field)
        if reader is None:
            return ManyColumn(name, path=name, field=path.field)
        return ComputedColumn(name, field=path.field, compute=reader)
    if path.many or isinstance(path.field, models.CompositePrimaryKey):
        return None
    if path.field.is_relation and name == path.field.name:
        return RelationColumn(name, path=path.column, field=path.field)
    # Filters and orderings use the database column, whatever the attribute makes of it.
    replaced = is_replaced(path.field.model, path.field)
    return FieldColumn(name, path=path.column, field=path.field, is_replaced=replaced)


def _relation_column(exposure: ModelExposure, name: str) -> Column | None:
    """Return the column of a relation without a column in the table, by its name or its accessor's."""
    opts = exposure.opts
    for rel in opts.related_objects:
        if name in (rel.name, rel.get_accessor_name()) and not rel.hidden:
            if rel.many_to_many:
                if linked_reader(rel.field) is None:
                    return ManyColumn(name, path=name, field=rel, is_plain=False)
                return None
            return ReverseColumn(name, path=rel.field.target_field.attname, field=rel, is_plain=False)
    field = next((field for field in opts.private_fields if field.name == name), None)
    if is_generic_key(field):
        return GenericColumn(name, field=field, is_plain=False)
    if is_generic_relation(field) and not opts.is_composite_pk:
        return ReverseColumn(name, path=opts.pk.attname, field=field, is_plain=False)
    return None


@lru_cache(maxsize=8192)
def is_replaced(model: type[Model] | None, field: Any) -> bool:
    """Return whether one of a model's columns is replaced: the project put an attribute in place of the field's own.

    Such an attribute decides what is read, which need not be what the column holds. A tracker that wraps the field's
    attribute changes nothing.
    """
    if not getattr(field, "concrete", False) or field.is_relation:
        return False
    found = inspect.getattr_static(model, field.attname, None)
    own = (field.descriptor_class, DeferredAttribute)
    kept = (found, *getattr(found, "__dict__", {}).values())
    return found is not None and not any(isinstance(item, own) for item in kept)
