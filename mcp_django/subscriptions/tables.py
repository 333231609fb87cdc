"""Which rows are one row: those of proxies, of parents and children, and the two ends of a many-to-many relation."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.db.models import ManyToManyField, Model

__all__ = ["ends_of", "relations_of", "same_rows"]

Models = tuple[tuple[type[Model], str | None], ...]


@lru_cache(maxsize=4096)
def same_rows(model: type[Model]) -> Models:
    """Return the models of which a row is a row too, and the attribute of an instance with the primary key there.

    These are the model itself and its proxies, its parents and their other children. The attribute is None where the
    primary key there is not known from the instance.
    """
    concrete = model._meta.concrete_model or model
    tables = {concrete, *(parent._meta.concrete_model or parent for parent in concrete._meta.get_parent_list())}
    found: list[tuple[type[Model], str | None]] = []
    for other in apps.get_models():
        table = other._meta.concrete_model or other
        if table is concrete:
            found.append((other, "pk"))
        elif table in tables:
            found.append((other, table._meta.pk.attname))
        elif not tables.isdisjoint(table._meta.get_parent_list()):
            found.append((other, _key_of_parent(table, tables)))
    return tuple(found)


def _key_of_parent(child: Any, tables: set[type[Model]]) -> str | None:
    """Return the attribute of the parent among the tables whose primary key is the child's."""
    while child not in tables:
        relation = child._meta.pk.remote_field
        if relation is None or not relation.parent_link:
            return None
        child = relation.model._meta.concrete_model
    name: str = child._meta.pk.attname
    return name


def relations_of(model: type[Model]) -> Iterator[type[Model]]:
    """Yield the tables of the many-to-many relations from and to the model."""
    for field in model._meta.get_fields(include_hidden=True):
        relation: Any = getattr(field, "field", field)
        through = relation.remote_field.through if isinstance(relation, ManyToManyField) else None
        if through is not None:
            yield through


@lru_cache(maxsize=4096)
def ends_of(model: type[Model]) -> tuple[tuple[type[Model], str], ...]:
    """Return what the rows of a many-to-many relation's own model relate: models, and attributes of an instance.

    It is empty for a model that is no table of such a relation.
    """
    found: dict[str, type[Model]] = {}
    for owner in apps.get_models():
        for field in owner._meta.local_many_to_many:
            relation: Any = field.remote_field
            if relation.through is model:
                for name in (field.m2m_field_name(), field.m2m_reverse_field_name()):
                    key: Any = model._meta.get_field(name)
                    if key.target_field.primary_key:
                        found[key.attname] = key.related_model
    return tuple((target, attname) for attname, target in found.items())
