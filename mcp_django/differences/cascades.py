"""Cascades: all rows that a deletion takes along or changes, found before it happens.

Django's own ``Collector`` looks for them, and not a walk of our own along the relations: it alone knows what an
``on_delete`` function of the project collects, because its methods are what such a function calls. But it leaves out
rows that nobody has to load: those of fast deletions, those that one UPDATE sets to NULL, and those that the database
itself deletes or changes (``DB_CASCADE`` and its siblings of Django 6.1).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from django.db import DatabaseError, models, router, transaction
from django.db.models import DO_NOTHING, Model, QuerySet
from django.db.models.deletion import Collector, get_candidate_relations_to_delete

from ..conf import settings

# Rows that a deletion may take along or change, for each row that one call may write.
ROWS_EACH: Final = 10
# What the database does with rows that refer to a deleted row; before Django 6.1 no foreign key has these.
DB_CASCADE: Final[Any] = getattr(models, "DB_CASCADE", object())
DB_SET_NULL: Final[Any] = getattr(models, "DB_SET_NULL", object())
DB_SET_DEFAULT: Final[Any] = getattr(models, "DB_SET_DEFAULT", object())
# What Django does not follow itself.
NOT_COLLECTED: Final = (DO_NOTHING, DB_CASCADE, DB_SET_NULL, DB_SET_DEFAULT)


class TooManyRows(Exception):
    """A write touches more rows than are kept of one, so it cannot be taken back."""


class DeletionCollector(Collector):
    """Finds the rows that deleting some rows of one class would delete or change.

    Making one reads the database and writes nothing, but what ``on_delete`` functions of the project write while they
    collect, such as ``SET(get_sentinel_user)``. It raises ``ProtectedError`` or ``RestrictedError`` like the deletion,
    and ``TooManyRows`` if these are more than ten times ``MAX_BULK_ROWS`` rows: it stops reading there.

    ``deleted`` and ``changed`` are the primary keys by concrete model, each for the own table of the model: the parents
    in multi-table inheritance are listed themselves. ``looked_at`` are all models in which the deletion can write.
    ``left`` names the foreign keys with ``DO_NOTHING`` that refer to what goes, which are left to the project.
    """

    def __init__(self, using: str, rows: Sequence[Model]) -> None:
        super().__init__(using=using)
        self.changed: dict[type[Model], set[Any]] = defaultdict(set)
        self.looked_at: set[type[Model]] = set()
        self.left: set[str] = set()
        self._room = settings.MAX_BULK_ROWS * ROWS_EACH
        # Rows whose references the database itself takes care of, which are not followed yet.
        self._unfollowed: list[Sequence[Model]] = []

        self.collect(rows)
        while self._unfollowed:
            self._follow(self._unfollowed.pop())

        # Taken now: a deletion takes the keys from its instances.
        self.deleted: dict[type[Model], set[Any]] = defaultdict(set)
        for model, found in self.data.items():
            self.deleted[concrete(model)].update(row.pk for row in found)

    # What the collector and ``on_delete`` functions call

    def can_fast_delete(self, *args: Any, **kwargs: Any) -> bool:
        """Return False: a row that is deleted without being loaded is to be found too."""
        return False

    def _has_signal_listeners(self, model: type[Model]) -> bool:
        # Otherwise the collector would read the rows again that related_objects() returns.
        return True

    def collect(self, objs: Any, *args: Any, **kwargs: Any) -> Any:
        """Collect rows to delete: see ``Collector.collect``."""
        self.looked_at.update(concrete(model) for model in {type(row) for row in self._read(objs)})
        super().collect(objs, *args, **kwargs)

    def add(self, objs: Any, *args: Any, **kwargs: Any) -> list[Model]:
        """Note rows to delete; return those that are new."""
        added: list[Model] = super().add(objs, *args, **kwargs)
        if added:
            self._take(len(added))
            self._unfollowed.append(added)
        return added

    def add_field_update(self, field: Any, value: Any, objs: Any) -> None:
        """Note rows in which a foreign key is to change."""
        owner = concrete(field.model)
        keys = self.changed[owner]
        before = len(keys)
        keys.update(keys_of(row)[owner] for row in self._read(objs))
        self._take(len(keys) - before)

    def related_objects(self, related_model: type[Model], related_fields: Iterable[Any], objs: Any) -> QuerySet[Any]:
        """Return the rows that refer to some rows, with no more columns than the collector needs."""
        rows: QuerySet[Any] = super().related_objects(related_model, related_fields, objs)
        self.looked_at.add(concrete(related_model))
        return self._slim(rows)

    # Reading

    def _slim(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Read rows that refer to others: only keys, unless Django has to make their parent rows of the columns, or a
        constructor of the project may read others: it would be called again for each that is left out."""
        opts = rows.model._meta
        if not opts.concrete_model._meta.parents and rows.model.__init__ is Model.__init__:
            relations: Iterable[Any] = get_candidate_relations_to_delete(opts)
            targets = (relation.field.foreign_related_fields for relation in relations)
            # Without any name, only() would read all columns.
            keys = [field.attname for field in opts.pk_fields]
            rows = rows.only(*keys, *{field.attname for field in chain.from_iterable(targets)})
        self._read(rows)
        return rows

    def _read(self, rows: Any) -> Any:
        """Read a queryset, but not more rows than there is room for; return the rows."""
        if isinstance(rows, QuerySet) and rows._result_cache is None:
            found = list(rows[: self._room + 1])
            self._take(len(found), given=False)
            # Filters of an ``on_delete`` function still apply: the queryset itself has no limit.
            rows._result_cache = found
        return rows

    def _take(self, number: int, *, given: bool = True) -> None:
        """Raise ``TooManyRows`` if there is no room for so many rows; ``given`` says that they now take it up."""
        if number > self._room:
            raise TooManyRows
        if given:
            self._room -= number

    # What the database does

    def _follow(self, rows: Sequence[Model]) -> None:
        """Collect what refers to rows that are to go where Django leaves it to the database or the project."""
        relations: Iterable[Any] = get_candidate_relations_to_delete(rows[0]._meta)
        for relation in relations:
            field = relation.field
            on_delete = field.remote_field.on_delete
            if on_delete not in NOT_COLLECTED:
                continue
            related_model = relation.related_model
            is_inherited = concrete(field.remote_field.model) is not concrete(type(rows[0]))
            # What refers to a parent of the row is followed from there; other databases have tables of their own.
            if is_inherited or not router.allow_migrate_model(self.using, related_model):
                continue
            # No manager: the database sees rows that managers hide.
            every: QuerySet[Any] = QuerySet(related_model, using=self.using)
            for batch in self.get_del_batches(rows, [field]):
                found = every.filter(**{f"{field.name}__in": batch})
                if on_delete is DO_NOTHING:
                    self._leave(field, found)
                    continue
                self.looked_at.add(concrete(related_model))
                if on_delete is DB_CASCADE:
                    self.collect(self._slim(found), source=type(rows[0]), nullable=field.null)
                else:
                    self.add_field_update(field, None, self._slim(found))

    def _leave(self, field: Any, rows: QuerySet[Any]) -> None:
        """Name a foreign key that is left to the project, if rows have it. Django does not ask for them: their table
        may be missing."""
        with suppress(DatabaseError), transaction.atomic(using=self.using):
            if rows.exists():
                self.left.add(str(field))


def concrete(model: type[Model]) -> type[Model]:
    """Return the model that owns the table of a model: of a proxy, the model behind it."""
    owner: type[Model] = model._meta.concrete_model or model
    return owner


def with_parents(model: type[Model]) -> list[type[Model]]:
    """Return the models whose tables hold parts of a row: its own, and all its parents in multi-table inheritance."""
    found = [concrete(model)]
    for child in found:
        links: list[Any] = [link for link in child._meta.parents.values() if link is not None]
        found += [parent for link in links if (parent := concrete(link.remote_field.model)) not in found]
    return found


def keys_of(row: Model) -> dict[type[Model], Any]:
    """Return the primary keys of a row in its own table and in those of all its parents, by concrete model."""
    own = concrete(type(row))
    keys: dict[type[Model], Any] = {own: row.pk}
    if not own._meta.parents:
        return keys
    for model in with_parents(own):
        links: list[Any] = [link for link in model._meta.parents.values() if link is not None]
        keys.update((concrete(link.remote_field.model), getattr(row, link.attname)) for link in links)
    return keys
