"""Which orders an index of the model serves, as far as the model declares its indexes: the database is not asked."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from django.db.models import BooleanField, F, Model, UniqueConstraint
from django.db.models.expressions import OrderBy

from .pagination import OrderKey

__all__ = ["is_served"]

# Kinds of indexes that keep an order: Django's own, and PostgreSQL's by its name.
SORTED: Final = ("idx", "btree")
# A column of an index: its attname, and whether it descends.
Part = tuple[str, bool]


def is_served(model: type[Model], keys: Sequence[OrderKey]) -> bool:
    """Return whether a page in this order can be read from an index, without sorting the whole table.

    An index that begins with the first keys is enough, as the database sorts the few rows that are equal by it: few
    they are not where its last column is a boolean or has choices.
    """
    return any(_serves(parts, keys) for parts in _indexes(model))


def _serves(parts: Sequence[Part], keys: Sequence[OrderKey]) -> bool:
    same = 0
    for (name, descending), key in zip(parts, keys, strict=False):
        # An index is read in both directions.
        if name != key.path or (descending is key.descending) is not (parts[0][1] is keys[0].descending):
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
