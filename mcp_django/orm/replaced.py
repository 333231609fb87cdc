"""Detect attributes, relations and querysets that packages override: no column tells their values."""

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from django.db.models import ManyToManyField, Model, QuerySet
from django.db.models.query_utils import DeferredAttribute


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
