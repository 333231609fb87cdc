"""What a call does to the rows of each model, as far as that is known of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django.db import connections
from django.db.models import Model, QuerySet

from ..orm.pagination import chunks
from .cascades import concrete, with_parents
from .differing_rows import key_value
from .footprints import KINDS, StoredDifference, kind_of_change
from .stored_rows import Key, stored_table
from .writes import Write


class WrittenRows:
    """The rows that a call writes, on one of the ``DATABASES``: by concrete model and key what happens to them,
    "changed", "added" or "deleted", or another word of the caller for all of them.

    A link of a many-to-many field is a part of the row that has the field. A row of multi-table inheritance has its
    parts in several tables: each of them counts for the others.
    """

    CHANGED: ClassVar[str]
    ADDED: ClassVar[str]
    DELETED: ClassVar[str]
    CHANGED, ADDED, DELETED = KINDS

    def __init__(self, using: str, kinds: Mapping[type[Model], Mapping[Key, str]]) -> None:
        self.using = using
        self._kinds = kinds

    @classmethod
    def of_difference(cls, stored: StoredDifference) -> "WrittenRows":
        """Return the rows that differ once something was tried or done."""
        found: dict[type[Model], dict[Key, str]] = {}
        for model, changes in stored.changes.items():
            owner: Any = model._meta.auto_created
            if not owner:
                rows = found.setdefault(model, {})
                rows.update((key, kind_of_change(change)) for key, change in changes.items())
                continue
            owner = concrete(owner)
            rows = found.setdefault(owner, {})
            rows.update((key, cls.CHANGED) for key in _owners(model, owner, stored) if key not in rows)
        return cls(stored.using, found)

    @classmethod
    def of_prepared(cls, write: Write, rows: Mapping[type[Model], Iterable[Key]], using: str) -> "WrittenRows":
        """Return the rows that a prepared write may touch, with what it does to those that it names."""
        kind = {"add": cls.ADDED, "change": cls.CHANGED, "delete": cls.DELETED}[write.permission]
        return cls(using, {model: dict.fromkeys(keys, kind) for model, keys in rows.items()})

    @classmethod
    def of_instances(cls, model: type[Model], rows: Iterable[Model], kind: str, using: str) -> "WrittenRows":
        """Return rows of a model, to which something happens that the caller has a word for."""
        connection = connections[using]
        keys = [
            tuple(field.get_db_prep_value(getattr(row, field.attname), connection) for field in row._meta.pk_fields)
            for row in rows
        ]
        return cls(using, {part: dict.fromkeys(keys, kind) for part in with_parents(model)})

    @staticmethod
    def by_value(model: type[Model], keys: Iterable[Key]) -> dict[Any, Key]:
        """Return keys by what they are in Python. Raises what the fields raise for a key that is none."""
        return {key_value(model, key): key for key in keys}

    @property
    def models(self) -> Sequence[type[Model]]:
        """The concrete models in whose tables rows are written."""
        return list(self._kinds)

    def of_model(self, model: type[Model]) -> dict[Key, str]:
        """Return what happens to the rows of a model, by their keys."""
        own, *parents = with_parents(model)
        found: dict[Key, str] = {}
        for child, rows in self._kinds.items():
            if own in with_parents(child)[1:]:
                found.update(dict.fromkeys(rows, self.CHANGED))
        of_parents = [key for parent in parents for key in self._kinds.get(parent, ())]
        if of_parents:
            # Not every row of a parent is a part of one of these.
            found.update(dict.fromkeys(self._those_there(own, of_parents), self.CHANGED))
        found.update(self._kinds.get(own, {}))
        return found

    def keys_before(self) -> dict[str, list[Any]]:
        """Return the keys of the rows that are there before, as texts, by the labels of their models: lists of those
        that are composite."""
        found = {}
        for model, rows in self._kinds.items():
            keys = [key for key, kind in rows.items() if kind != self.ADDED]
            if keys:
                found[model._meta.label_lower] = [str(key[0]) if len(key) == 1 else list(map(str, key)) for key in keys]
        return found

    def _those_there(self, model: type[Model], keys: Iterable[Key]) -> list[Key]:
        """Return those of these keys of which there is a row of the model."""
        by_value = self.by_value(model, keys)
        rows: QuerySet[Any] = QuerySet(model, using=self.using)
        found: list[Any] = []
        for chunk in chunks(list(by_value)):
            found += rows.filter(pk__in=chunk).order_by().values_list("pk", flat=True)
        return [by_value[value] for value in found]


def _owners(links: type[Model], owner: type[Model], stored: StoredDifference) -> list[Key]:
    """Return the keys of the rows whose many-to-many links differ."""
    table = stored_table(links, stored.using)
    fields: list[Any] = [field for field in links._meta.concrete_fields if field.is_relation]
    name = next(field.attname for field in fields if concrete(field.related_model) is owner)
    return [(table.cell_of(before or after or (), name),) for before, after in stored.changes[links].values()]
