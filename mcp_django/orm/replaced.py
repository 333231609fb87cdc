"""Detect attributes, relations and querysets that packages override: no column tells their values."""

import inspect
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

from django.db.models import ManyToManyField, Model, QuerySet
from django.db.models.query_utils import DeferredAttribute
from django.forms import MultiValueField

# Values that need no form to be read.
PLAIN: Final = (str, bytes, bool, int, float, Decimal, date, time, timedelta, UUID, list, tuple, set, frozenset, dict)


@lru_cache(maxsize=8192)
def is_replaced(model: type[Model] | None, field: Any) -> bool:
    """Return whether the attribute of a field is not the one that the field's class makes.

    What is read there is the attribute's, and need not be what the column holds. A tracker that wraps the attribute
    changes nothing.
    """
    if not getattr(field, "concrete", False) or field.is_relation:
        return False
    found = inspect.getattr_static(model, field.attname, None)
    own = (field.descriptor_class, DeferredAttribute)
    kept = (found, *getattr(found, "__dict__", {}).values())
    return found is not None and not any(isinstance(item, own) for item in kept)


def as_written(field: Any, row: Model) -> Any:
    """Return the value of a replaced attribute as forms and serializers take it, where it is of a class of its own.

    Its text is what people read, such as HTML made of the source that is stored. The parts of a value that a form has
    several controls for, such as an amount and its currency, are a list.
    """
    value = getattr(row, field.attname)
    if value is None or isinstance(value, PLAIN):
        return value
    widget = _split_widget(field)
    return field.value_to_string(row) if widget is None else list(map(_part, widget.decompress(value)))


@lru_cache(maxsize=8192)
def _split_widget(field: Any) -> Any:
    made = field.formfield()
    return made.widget if isinstance(made, MultiValueField) else None


def _part(value: Any) -> Any:
    return value if value is None or isinstance(value, PLAIN) else str(value)


def linked_reader(field: Any) -> Callable[[Any], Any] | None:
    """Return what lists the rows of a many-to-many relation as ``[key, label]``, None for a relation of Django's own.

    One of another class keeps its rows in its own way: they are had from its manager alone.
    """
    return None if isinstance(field, ManyToManyField) else partial(_linked, field.name)


def _linked(name: str, row: Any) -> list[Any]:
    return [[linked.pk, str(linked)] for linked in getattr(row, name).all()]


def plain_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows as a queryset of Django's own class, which reads the columns that it is asked for."""
    return rows if type(rows) is QuerySet else QuerySet(rows.model, rows.query, rows._db)  # type: ignore[attr-defined]
