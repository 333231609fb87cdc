"""Take a difference back: cells by UPDATE, rows that were deleted by INSERT with their keys, new rows by DELETE.

No form, no ``clean``, no hook and no receiver runs. Before anything is written, the rows are compared with what the
difference has recorded, and whatever stands in the way is named.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final, Literal

from django.apps import apps
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections
from django.db.models import Model
from django.db.models.deletion import get_candidate_relations_to_delete
from django.db.transaction import TransactionManagementError

from ..context.databases import PRIMARY
from ..context.stored_columns import Cell
from ..exceptions import ToolError
from ..orm.compiled_queries import prepare
from ..orm.fields import stored_field
from .footprints import Change, Snapshot, StoredDifference
from .restoration_order import (
    ForeignKeyColumn,
    RestorationOrder,
    Step,
    SwappedValues,
    combination,
    foreign_keys,
    unique_columns,
)
from .stored_rows import Key, Row, StoredTable, differing, stored_table

# What is said of rows that triggers do not let go back.
KEPT_AS_THEY_ARE: Final = "A trigger of the database keeps rows of {} as they are."


@dataclass(frozen=True)
class Conflict:
    """Why a row of a difference cannot go back, or what would be left if it does.

    ======== =====================================================================================================
    what
    ======== =====================================================================================================
    changed  the recorded ``columns`` of the row have changed since
    gone     the row is no longer there
    taken    ``other`` has the key of the row, or its values of the unique ``columns``
    missing  the row would point by ``columns`` to ``other``, which is no longer there
    pointed  ``other`` points by its ``columns`` to the row, or to values of it, that would go
    swapped  the row and ``other`` have swapped their values of the unique ``columns``, which no statements undo
    related  as "pointed", but by a generic relation, which no database checks: the row can go back all the same
    ======== =====================================================================================================

    What is in ``other`` may be hidden from the caller: its model, and its key if there is such a row.
    """

    model: type[Model]
    key: Key
    what: Literal["changed", "gone", "taken", "missing", "pointed", "swapped", "related"]
    columns: tuple[str, ...] = ()
    other: tuple[type[Model], Key | None] | None = None

    @property
    def stops(self) -> bool:
        """Whether the difference cannot be taken back because of it."""
        return self.what != "related"


class CannotRestore(Exception):
    """A difference cannot be taken back, for these reasons."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__(conflicts)
        self.conflicts = conflicts


class CurrentRows:
    """Rows as they are now: those that are asked for, each once."""

    def __init__(self, using: str, locked: Collection[type[Model]]) -> None:
        self.using = using
        self.locked = frozenset(locked)
        self.rows: dict[type[Model], dict[Key, Row]] = defaultdict(dict)
        self._wanted: dict[type[Model], dict[tuple[str, ...], dict[tuple[Any, ...], None]]] = {}
        self._read: set[tuple[type[Model], tuple[str, ...], tuple[Any, ...]]] = set()

    def want(self, model: type[Model], names: tuple[str, ...], cells: tuple[Any, ...]) -> None:
        """Ask for the rows with these cells; NULL finds none."""
        place = (model, names, cells)
        if None not in cells and place not in self._read:
            self._read.add(place)
            self._wanted.setdefault(model, {}).setdefault(names, {})[cells] = None

    def read(self) -> None:
        """Read what was asked for since the last time, with one statement for each table."""
        wanted, self._wanted = self._wanted, {}
        for model, groups in wanted.items():
            found = stored_table(model, self.using).read_any(
                [(names, list(cells)) for names, cells in groups.items()], lock=model in self.locked
            )
            self.rows[model].update(found)


class Restoration:
    """Takes a difference back, in one transaction of the caller: the rows that it looks at are locked until its end."""

    def __init__(self, difference: StoredDifference) -> None:
        self.using = difference.using
        self.changes = difference.changes
        self.current = CurrentRows(self.using, self.changes)
        # The rows as they are and as they would be.
        self.planned: dict[type[Model], dict[Key, Change]] = {}
        self._batches: list[list[Step]] = []

    def conflicts(self) -> list[Conflict]:
        """Return what stands in the way, or would be left behind. Nothing is written.

        The database has the last word on what only it knows: constraints with conditions or expressions, triggers.
        """
        return self._conflicts

    def run(self) -> StoredDifference:
        """Take the difference back, and return what this has done, which can be taken back too.

        Constraints that are checked at the end of a transaction are left to the caller. Columns that a trigger of the
        database sets in each row that is written stay as it sets them. Raises ``CannotRestore`` if there are conflicts,
        ``IntegrityError`` if the database refuses, and ``TransactionManagementError`` outside of a transaction.
        """
        if not connections[self.using].in_atomic_block:
            raise TransactionManagementError("Rows go back in a transaction.")
        in_the_way = [conflict for conflict in self.conflicts() if conflict.stops]
        if in_the_way:
            raise CannotRestore(in_the_way)
        for batch in self._batches:
            _write(batch)
        self._settle()
        return self._done()

    def _settle(self) -> None:
        """Write cells again that triggers of the database have changed meanwhile, and plan the rows as they then are.

        What a trigger does with one column, it may have done to another one that was to go back. Written alone, that
        one stays, unless the trigger sets it each time.
        """
        for model, rows in self.planned.items():
            table = stored_table(model, self.using)
            if not table.columns.has_triggers:
                continue
            wanted = {key: then for key, (_, then) in rows.items() if then is not None}
            there = table.read_keys(wanted)
            again = dict(_differing_cells(table, wanted, there))
            if not again:
                continue
            table.update(again)
            there = table.read_keys(wanted)
            for key, _ in _differing_cells(table, wanted, there):
                now = rows[key][0]
                if there[key] == now:
                    raise IntegrityError(KEPT_AS_THEY_ARE.format(table.columns.table))
                rows[key] = (now, there[key])

    def _done(self) -> StoredDifference:
        """Return what goes back as a difference of its own."""
        now: Snapshot = {}
        then: Snapshot = {}
        for model, rows in self.planned.items():
            now[model] = {key: row for key, (row, _) in rows.items() if row is not None}
            then[model] = {key: row for key, (_, row) in rows.items() if row is not None}
        return StoredDifference.between(self.using, now, then)

    # What is there now

    @cached_property
    def _conflicts(self) -> list[Conflict]:
        self._want_rows()
        self.current.read()
        found = list(self._plan())
        # Of a row of which not all columns are recorded, more is known now.
        self._want_values()
        self.current.read()
        found += [*self._taken_values(), *self._missing_targets(), *self._pointing_rows(), *self._related_rows()]
        if not any(conflict.stops for conflict in found):
            try:
                self._batches = RestorationOrder(self.using, self.planned).batches()
            except SwappedValues as swapped:
                found.append(_swap(swapped))
        return found

    def _want_rows(self) -> None:
        for model, rows in self.changes.items():
            table = stored_table(model, self.using)
            pointers = self._pointers_to(model)
            for key, (before, after) in rows.items():
                self.current.want(model, table.key_names, key)
                for names in unique_columns(model):
                    if before is not None and (after is None or _all_recorded(table, before, after, names)):
                        self.current.want(model, names, tuple(table.cell_of(before, name) for name in names))
                for pointer in foreign_keys(model):
                    if before is not None and (after is None or _all_recorded(table, before, after, (pointer.name,))):
                        self._want_target(pointer, table.cell_of(before, pointer.name))
                for pointer in pointers:
                    if after is not None and (
                        before is None or _all_recorded(table, before, after, (pointer.target_name,))
                    ):
                        self.current.want(pointer.model, (pointer.name,), (table.cell_of(after, pointer.target_name),))

    def _want_target(self, pointer: ForeignKeyColumn, cell: Cell) -> None:
        if pointer.must_exist and self._is_here(pointer.target):
            self.current.want(pointer.target, (pointer.target_name,), (cell,))

    def _want_values(self) -> None:
        for model, rows in self.planned.items():
            table = stored_table(model, self.using)
            for (now, then), names in product(rows.values(), unique_columns(model)):
                if then is not None and combination(table, then, names) != combination(table, now, names):
                    self.current.want(model, names, tuple(table.cell_of(then, name) for name in names))

    def _pointers_to(self, model: type[Model]) -> list[ForeignKeyColumn]:
        """Return the foreign keys of all tables of this database that point to the table of a model."""
        found = []
        relations: Iterable[Any] = get_candidate_relations_to_delete(model._meta)
        for relation in relations:
            owner: Any = relation.field.model._meta.concrete_model
            if self._is_here(owner):
                found += [one for one in foreign_keys(owner) if one.target is model and one.must_exist]
        # Several relations of one table lead to it several times.
        return list(dict.fromkeys(found))

    def _is_here(self, model: type[Model]) -> bool:
        return model in self.changes or (not model._meta.swapped and PRIMARY.home_of(model) == self.using)

    # What would be there

    def _plan(self) -> Iterator[Conflict]:
        """Plan each row as it will be, and yield the rows that are not as the difference left them."""
        for model, rows in self.changes.items():
            table = stored_table(model, self.using)
            planned = self.planned.setdefault(model, {})
            for key, (before, after) in rows.items():
                now = self.current.rows[model].get(key)
                if after is None:
                    if now is not None:
                        yield Conflict(model, key, "taken", table.key_names, (model, key))
                        continue
                    planned[key] = (None, before)
                    continue
                if now is None:
                    yield Conflict(model, key, "gone")
                    continue
                recorded = _recorded(table, before, after)
                changed = [table.names[place] for place in differing(after, now) if place in recorded]
                columns = tuple(name for name in changed if name not in table.volatile)
                if columns:
                    yield Conflict(model, key, "changed", columns)
                if before is None:
                    planned[key] = (now, None)
                    continue
                # A time of the last change that somebody else's change has set since remains.
                restored = [place for place in recorded if table.names[place] not in changed]
                planned[key] = (now, _with_cells(now, before, restored))

    def _rows_after(self, model: type[Model]) -> dict[Key, Row]:
        """Return the rows of a table as they will be, those that are known."""
        rows = dict(self.current.rows.get(model, {}))
        for key, (_, then) in self.planned.get(model, {}).items():
            if then is None:
                rows.pop(key, None)
            else:
                rows[key] = then
        return rows

    # What stands in the way

    def _taken_values(self) -> Iterator[Conflict]:
        for model, rows in self.planned.items():
            table = stored_table(model, self.using)
            # The database may take two keys for the same one that are written in different ways.
            for names in (table.key_names, *unique_columns(model)):
                holders: dict[Any, list[Key]] = defaultdict(list)
                for key, row in self._rows_after(model).items():
                    holders[combination(table, row, names)].append(key)
                for key, (now, then) in rows.items():
                    cells = combination(table, then, names)
                    if cells is None or cells == combination(table, now, names):
                        continue
                    for holder in holders[cells]:
                        if holder != key:
                            yield Conflict(model, key, "taken", names, (model, holder))

    def _missing_targets(self) -> Iterator[Conflict]:
        for model, rows in self.planned.items():
            table = stored_table(model, self.using)
            for pointer in foreign_keys(model):
                if not pointer.must_exist or not self._is_here(pointer.target):
                    continue
                there = self._values_after(pointer.target, pointer.target_name)
                for key, (now, then) in rows.items():
                    cells = combination(table, then, (pointer.name,))
                    if cells is None or cells == combination(table, now, (pointer.name,)):
                        continue
                    if cells not in there:
                        yield Conflict(model, key, "missing", (pointer.name,), (pointer.target, None))

    def _values_after(self, model: type[Model], name: str) -> set[tuple[Cell, ...] | None]:
        table = stored_table(model, self.using)
        return {combination(table, row, (name,)) for row in self._rows_after(model).values()}

    def _pointing_rows(self) -> Iterator[Conflict]:
        for model, rows in self.planned.items():
            table = stored_table(model, self.using)
            for pointer in self._pointers_to(model):
                there = self._values_after(model, pointer.target_name)
                gone: dict[Any, Key] = {}
                for key, (now, _) in rows.items():
                    cells = combination(table, now, (pointer.target_name,))
                    if cells is not None and cells not in there:
                        gone[cells] = key
                yield from self._that_point(pointer, gone)

    def _that_point(self, pointer: ForeignKeyColumn, gone: Mapping[Any, Key]) -> Iterator[Conflict]:
        table = stored_table(pointer.model, self.using)
        planned = self.planned.get(pointer.model, {})
        if not gone:
            return
        for key, row in self.current.rows.get(pointer.model, {}).items():
            cells = combination(table, row, (pointer.name,))
            # What the row would be, if it is one of the difference.
            _, then = planned.get(key, (row, row))
            if cells in gone and combination(table, then, (pointer.name,)) == cells:
                yield Conflict(pointer.target, gone[cells], "pointed", (pointer.name,), (pointer.model, key))

    def _related_rows(self) -> Iterator[Conflict]:
        """Yield the rows that point to rows that would go by a generic relation."""
        for model, rows in self.planned.items():
            going = [key for key, (_, then) in rows.items() if then is None]
            if not going or len(model._meta.pk_fields) > 1:
                continue
            for relation in _generic_relations():
                if self._is_here(relation.model):
                    yield from self._that_relate(relation, model, going)

    def _that_relate(self, relation: Any, model: type[Model], going: Iterable[Key]) -> Iterator[Conflict]:
        owner: Any = relation.model
        table = stored_table(owner, self.using)
        names = (owner._meta.get_field(relation.ct_field).attname, relation.fk_field)
        types = ContentType.objects.db_manager(self.using)
        kind = types.get_for_model(model, for_concrete_model=relation.for_concrete_model).pk
        values = self._values_of(going, model, table.fields[relation.fk_field])
        found = table.read_any([(names, [(kind, value) for value, _ in values])])
        keys = {str(value): key for value, key in values}
        for key, row in found.items():
            _, then = self.planned.get(owner, {}).get(key, (row, row))
            if then is not None:
                going_key = keys[str(table.cell_of(row, relation.fk_field))]
                yield Conflict(model, going_key, "related", names, (owner, key))

    def _values_of(self, keys: Iterable[Key], model: type[Model], column: Any) -> list[tuple[Any, Key]]:
        """Return the keys of rows as a column of a generic relation holds them; not those that it cannot hold."""
        key_field = stored_field(model._meta.pk)
        found = []
        for key in keys:
            with suppress(ToolError, ValidationError):
                value = prepare(column, key_field.to_python(key[0]), self.using)
                # A UUID is a number too, of more bits than a column has.
                if not isinstance(value, int) or value.bit_length() < 64:
                    found.append((value, key))
        return found


def _generic_relations() -> list[Any]:
    """Return the generic relations of all models."""
    models = apps.get_models(include_auto_created=True)
    return [
        one
        for model in models
        for one in model._meta.private_fields
        if isinstance(one, GenericForeignKey) and one.model is model
    ]


def _recorded(table: StoredTable, before: Row | None, after: Row) -> list[int]:
    """Return the places of the cells that the difference has recorded: all of a new row."""
    if before is None:
        return list(range(len(table.names)))
    return differing(before, after)


def _differing_cells(
    table: StoredTable, wanted: Mapping[Key, Row], there: Mapping[Key, Row]
) -> Iterator[tuple[Key, dict[str, Cell]]]:
    """Yield the cells of rows that are not as wanted, by key and attname."""
    for key, then in wanted.items():
        if key not in there:
            raise IntegrityError(KEPT_AS_THEY_ARE.format(table.columns.table))
        if places := differing(then, there[key]):
            yield key, {table.names[place]: then[place] for place in places}


def _all_recorded(table: StoredTable, before: Row, after: Row, names: Iterable[str]) -> bool:
    """Return whether all of these columns of a changed row are recorded."""
    changed = {table.names[place] for place in differing(before, after)}
    return changed.issuperset(names)


def _with_cells(row: Row, other: Row, places: Collection[int]) -> Row:
    """Return a row with the cells of another one in these places."""
    cells = list(row)
    for place in places:
        cells[place] = other[place]
    return tuple(cells)


def _swap(swapped: SwappedValues) -> Conflict:
    step, holder = swapped.wait.step, swapped.wait.first
    return Conflict(step.table.model, step.key, "swapped", swapped.wait.names, (holder.table.model, holder.key))


def _write(batch: list[Step]) -> None:
    """Run one batch of steps: one statement."""
    kind, table = batch[0].kind, batch[0].table
    if kind == "insert":
        table.insert([tuple(step.cells[name] for name in table.names) for step in batch])
    elif kind == "update":
        table.update({step.key: step.cells for step in batch})
    else:
        table.delete([step.key for step in batch])
