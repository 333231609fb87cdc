"""The columns of an exposure: fields of the model, relations, and what the admin or a serializer computes."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final, Literal
from uuid import UUID

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import ManyToManyField, Model
from django.db.models.query_utils import DeferredAttribute
from django.forms import MultiValueField

from ..exposures.model_exposure import ModelExposure
from .fields import is_stored_as_text, key_field, kind_of, resolve_path
from .serializer_columns import unchanged_fields

logger = logging.getLogger("mcp_django")

Kind = Literal["field", "relation", "many", "reverse", "generic", "computed", "serialized"]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of an exposure: one thing that can be read from a row. There is one object for each column.

    ``kind`` says where the value comes from: a column of the database (``field``, with its ``path`` from the model), a
    foreign key (``relation``), a many-to-many relation (``many``), rows that point here (``reverse``, with the ``path``
    of what they point to), a generic foreign key (``generic``), a function of the instance (``computed``), or the
    exposure's serializer (``serialized``). ``field`` is the model's field, where there is one; ``order_field`` is what
    a computed column is sorted by. ``is_plain`` says that a filter on the name compares the value that the caller
    reads, and ``by_instance`` that only an instance gives this value, although there is a database column. ``through``
    are the relations that lead to a column of a related row.
    """

    name: str
    kind: Kind
    path: str = ""
    field: Any = None
    compute: Callable[[Any], Any] | None = None
    order_field: Any = None
    is_plain: bool = True
    by_instance: bool = False
    through: tuple[str, ...] = ()

    @property
    def is_guarded(self) -> bool:
        """Whether the column is one of a related row, and is null if the caller may not see that row."""
        return bool(self.through) and "__" not in self.path

    def is_countable(self) -> bool:
        """Return whether the column is stored in the database, and shown as stored."""
        # A total must not reveal what an attribute in place of the column hides.
        return self.is_plain and not self.by_instance and self.kind in ("field", "relation")

    def is_summable(self) -> bool:
        """Return whether the column's values can be added."""
        is_number = self.is_countable() and self.kind == "field" and kind_of(self.field).summable
        return is_number and not is_stored_as_text(self.field)

    def is_comparable(self) -> bool:
        """Return whether the column's values can be compared by size; texts are compared in their order."""
        # What only a serializer makes has no field to ask.
        if not self.is_countable() or self.kind != "field":
            return False
        kind = kind_of(self.field)
        return "gt" in kind.lookups or (kind.word == "text" and kind.sortable)

    def is_groupable(self) -> bool:
        """Return whether the column's kind lets the database put rows with equal values together."""
        return self.is_countable() and kind_of(self.field).sortable

    def is_period(self) -> bool:
        """Return whether the column holds dates."""
        return self.is_countable() and kind_of(self.field).word in ("date", "datetime")

    def is_file(self) -> bool:
        """Return whether this is a column of files, which are resources, however the exposure shows them."""
        return self.kind in ("field", "serialized") and self.is_plain and kind_of(self.field).word in ("file", "image")

    def is_ordering(self) -> bool:
        """Return whether the column's kind is one of numbers, dates and durations, which all databases sort alike."""
        return self.is_summable() or self.is_period()

    @property
    def shows_truth(self) -> bool:
        """Whether the column shows true or false, whatever the function behind the column returns."""
        return isinstance(self.compute, partial) and self.compute.func is _as_boolean


# Columns


@lru_cache(maxsize=8192)
def resolve_column(exposure: ModelExposure, name: str) -> Column | None:
    """Return the exposure's column of a name, None if the name is not a column with one value."""
    plain = _model_column(exposure, name)
    if exposure.serializer_class is not None and name != exposure.opts.pk.name:
        same = plain is not None and name in unchanged_fields(exposure)
        field = plain.field if plain is not None else None
        return Column(name, "serialized", path=name, field=field, is_plain=same)
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


def _computed(name: str, compute: Callable[[Any], Any], source: Any = None) -> Column:
    source = source if source is not None else compute
    if isinstance(source, property):
        source = source.fget
    order = getattr(source, "admin_order_field", None)
    if getattr(source, "boolean", False):
        compute = partial(_as_boolean, compute)
    order_field = order if isinstance(order, str) or hasattr(order, "resolve_expression") else None
    return Column(name, "computed", compute=compute, order_field=order_field, is_plain=False)


def _as_boolean(compute: Callable[[Any], Any], row: Any) -> bool | None:
    value = compute(row)
    return None if value is None else bool(value)


def _attribute(name: str, row: Any) -> Any:
    value = getattr(row, name)
    if callable(value) and not isinstance(value, models.Manager):
        return value()
    return value


@lru_cache(maxsize=8192)
def is_file(exposure: ModelExposure, name: str) -> bool:
    """Return whether the column of a name is one for files, on the exposure's own model."""
    column = resolve_column(exposure, name) if "__" not in name else None
    return column is not None and column.is_file()


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
        return Column(name, "relation" if is_link else "field", path=pk.attname, field=pk)
    path = resolve_path(exposure.model, name)
    if path is None:
        return _relation_column(exposure, name)
    if path.field.many_to_many:
        if "__" in name:
            return None
        reader = linked_reader(path.field)
        column = Column(name, "many", path=name, field=path.field)
        if reader is None:
            return column
        return Column(name, "computed", field=path.field, compute=reader)
    if path.many or isinstance(path.field, models.CompositePrimaryKey):
        return None
    if path.field.is_relation and name == path.field.name:
        return Column(name, "relation", path=path.column, field=path.field)
    # Filters and orderings use the database column, whatever the attribute makes of it.
    own = is_replaced(path.field.model, path.field)
    return Column(name, "field", path=path.column, field=path.field, by_instance=own)


def _relation_column(exposure: ModelExposure, name: str) -> Column | None:
    """Return the column of a relation without a column in the table, by its name or its accessor's."""
    opts = exposure.opts
    for rel in opts.related_objects:
        if name in (rel.name, rel.get_accessor_name()) and not rel.hidden:
            if rel.many_to_many:
                if linked_reader(rel.field) is None:
                    return Column(name, "many", path=name, field=rel, is_plain=False)
                return None
            return Column(name, "reverse", path=rel.field.target_field.attname, field=rel, is_plain=False)
    field = next((field for field in opts.private_fields if field.name == name), None)
    if is_generic_key(field):
        return Column(name, "generic", field=field, is_plain=False)
    if is_generic_relation(field) and not opts.is_composite_pk:
        return Column(name, "reverse", path=opts.pk.attname, field=field, is_plain=False)
    return None


# Recognised by attributes: the module of their classes cannot be imported before the apps are loaded


def is_generic_key(field: Any) -> bool:
    """Return whether the field is a ``GenericForeignKey``."""
    return hasattr(field, "ct_field") and hasattr(field, "fk_field")


def is_generic_relation(field: Any) -> bool:
    """Return whether the field is a ``GenericRelation``."""
    return hasattr(field, "object_id_field_name") and hasattr(field, "content_type_field_name")


# Types of values that forms and serializers take as they are.
PLAIN: Final = (str, bytes, bool, int, float, Decimal, date, time, timedelta, UUID, list, tuple, set, frozenset, dict)


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


def as_written(field: Any, row: Model) -> Any:
    """Read one of the columns whose attribute the project replaced, as forms and serializers take it from a row.

    ``str()`` of such a value is for people, such as HTML made from the stored source. If the form has several controls
    for a value, such as an amount and its currency, the value is a list of its parts.
    """
    value = getattr(row, field.attname)
    if value is None or isinstance(value, PLAIN):
        return value
    widget = _split_widget(field)
    if widget is None:
        return field.value_to_string(row)
    return list(map(_part, widget.decompress(value)))


@lru_cache(maxsize=8192)
def _split_widget(field: Any) -> Any:
    made = field.formfield()
    return made.widget if isinstance(made, MultiValueField) else None


def _part(value: Any) -> Any:
    if value is None or isinstance(value, PLAIN):
        return value
    return str(value)


def linked_reader(field: Any) -> Callable[[Any], Any] | None:
    """Return the reader that an exposure's many-to-many column needs if its class is custom; None if it is Django's.

    A custom class stores its links in its own way, so they can be read only through its manager.
    """
    if isinstance(field, ManyToManyField):
        return None
    return partial(_linked, field.name)


def _linked(name: str, row: Any) -> list[Any]:
    return [[linked.pk, str(linked)] for linked in getattr(row, name).all()]
