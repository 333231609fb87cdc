"""In which order rows are inserted, changed and deleted, so that each statement finds what it needs.

A row comes after the rows that its foreign keys point to, goes before them, and takes a unique value after the row that
gives it up. Where rows wait for each other, a column that may be NULL is NULL meanwhile, or a unique one has some other
value.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import randbelow, token_hex
from typing import Any, Literal
from uuid import uuid4

from django.db import connections
from django.db.models import (
    DO_NOTHING,
    CharField,
    Deferrable,
    GeneratedField,
    IntegerField,
    Model,
    TextField,
    UUIDField,
)

from ..context.stored_columns import Cell
from .stored_rows import Key, Row, StoredTable, differing, stored_table

# Rows as they are and as they will be, by the model of their table.
Changes = Mapping[type[Model], Mapping[Key, tuple[Row | None, Row | None]]]
Kind = Literal["insert", "update", "delete"]


@dataclass(frozen=True)
class ForeignKeyColumn:
    """A column that points to a row of another table, or of its own.

    ``must_exist`` says whether there always is such a row: the database or Django sees to that. A column with
    ``DO_NOTHING`` may be one of a view, or is without a constraint on purpose.
    """

    model: type[Model]
    name: str
    target: type[Model]
    target_name: str
    must_exist: bool


@lru_cache(maxsize=1024)
def foreign_keys(model: type[Model]) -> tuple[ForeignKeyColumn, ...]:
    """Return the foreign keys among the columns of a model's own table."""
    found = []
    columns: Iterable[Any] = model._meta.local_concrete_fields
    for one in columns:
        if not one.is_relation or isinstance(one.target_field, GeneratedField):
            continue
        has_constraint = one.db_constraint and model._meta.managed
        must_exist = has_constraint or one.remote_field.on_delete is not DO_NOTHING
        target = one.target_field.model._meta.concrete_model
        found.append(ForeignKeyColumn(model, one.attname, target, one.target_field.attname, must_exist))
    return tuple(found)


@lru_cache(maxsize=1024)
def unique_columns(model: type[Model]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns, other than the key, of which no two rows of a table can have the same values.

    A constraint with a condition, an expression or a generated column is not among them, nor one that is checked at the
    end of the transaction: the database has the last word on these.
    """
    meta: Any = model._meta
    own = {one.attname: one for one in meta.local_concrete_fields if not isinstance(one, GeneratedField)}
    groups = [(one.name,) for one in own.values() if one.unique]
    groups += meta.unique_together
    groups += [one.fields for one in meta.total_unique_constraints if one.deferrable != Deferrable.DEFERRED]
    found = dict.fromkeys(tuple(meta.get_field(name).attname for name in group) for group in groups)
    key = tuple(one.attname for one in meta.pk_fields)
    return tuple(group for group in found if group != key and own.keys() >= set(group))


def combination(table: StoredTable, row: Row | None, names: tuple[str, ...]) -> tuple[Cell, ...] | None:
    """Return the cells of a row in these columns as the database compares them, None without the row or with NULL."""
    if row is None:
        return None
    cells = tuple(table.columns.compared(table.cell_of(row, name)) for name in names)
    return None if None in cells else cells


@dataclass(eq=False)
class Step:
    """What is done with one row: its cells are all of a new row, or those that an update sets."""

    kind: Kind
    table: StoredTable
    key: Key
    cells: dict[str, Cell] = field(default_factory=dict)
    waits: list["Wait"] = field(default_factory=list)
    # Whether it only sets one column, so that another step need not.
    is_extra: bool = False

    @property
    def group(self) -> tuple[Kind, type[Model]]:
        """What one statement can do: steps of one kind with rows of one table."""
        return self.kind, self.table.model


@dataclass(eq=False)
class Wait:
    """That another step comes first; ``names`` are the columns for which it does.

    The row of ``by`` can have NULL in one of these meanwhile: that of the step that waits, which points to a row that
    comes, or that of the other one, which points to a row that goes or holds a unique value.
    """

    step: Step
    first: Step
    names: tuple[str, ...]
    by: Step
    is_unique: bool = False

    def nullable(self) -> str | None:
        """Return the column that may be NULL meanwhile, None if there is none."""
        if self.by.is_extra:
            return None
        for name in self.names:
            if self.by.table.fields[name].null:
                return name
        return None

    def replaceable(self) -> str | None:
        """Return the column of a unique value that may be another one meanwhile, None if there is none."""
        if not self.is_unique or self.by.is_extra:
            return None
        for name in self.names:
            if isinstance(self.by.table.fields[name], (CharField, TextField, IntegerField, UUIDField)):
                return name
        return None


class SwappedValues(Exception):
    """Rows wait for each other, mostly for unique values, and no column can hold another value meanwhile."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait)
        self.wait = wait


class RestorationOrder:
    """The steps from the rows as they are to the rows as they will be."""

    def __init__(self, using: str, changes: Changes) -> None:
        self.using = using
        self.changes = changes
        self.steps: dict[tuple[type[Model], Key], Step] = {}
        self.extra: list[Step] = []
        for model, rows in changes.items():
            table = stored_table(model, using)
            for key, (now, then) in rows.items():
                step = _step(table, key, now, then)
                if step is not None:
                    self.steps[model, key] = step
        self._wait_for_targets()
        self._wait_for_values()

    # What waits for what

    def _wait_for_targets(self) -> None:
        pointers = [one for model in self.changes for one in foreign_keys(model) if one.target in self.changes]
        comes: dict[tuple[type[Model], str, Cell], Step] = {}
        goes: dict[tuple[type[Model], str, Cell], Step] = {}
        for target, name in {(one.target, one.target_name) for one in pointers}:
            for step, old, new in self._cells(target, (name,)):
                if new is not None:
                    comes[target, name, new[0]] = step
                if old is not None:
                    goes[target, name, old[0]] = step
        for one in pointers:
            for step, old, new in self._cells(one.model, (one.name,)):
                if new is not None:
                    first = comes.get((one.target, one.target_name, new[0]))
                    _add_wait(step, first, (one.name,), step)
                if old is not None:
                    last = goes.get((one.target, one.target_name, old[0]))
                    _add_wait(last, step, (one.name,), step)
                    if last is step and step.kind == "delete" and step.table.columns.checks_each_row:
                        self._part_from_itself(step, one.name)

    def _part_from_itself(self, step: Step, name: str) -> None:
        """Let a row that points to itself point to nothing: where each row is checked, it cannot be deleted."""
        if step.table.fields[name].null:
            early = Step("update", step.table, step.key, {name: None}, is_extra=True)
            _add_wait(step, early, (name,), early)
            self.extra.append(early)

    def _wait_for_values(self) -> None:
        for model in self.changes:
            for names in unique_columns(model):
                cells = list(self._cells(model, names))
                holders = {old: step for step, old, _ in cells if old is not None}
                for step, _, new in cells:
                    if new is not None:
                        holder = holders.get(new)
                        _add_wait(step, holder, names, holder, is_unique=True)

    def _cells(
        self, model: type[Model], names: tuple[str, ...]
    ) -> Iterator[tuple[Step, tuple[Cell, ...] | None, tuple[Cell, ...] | None]]:
        """Yield the steps that change these columns, with the cells that go and those that come."""
        table = stored_table(model, self.using)
        for key, (now, then) in self.changes[model].items():
            old, new = combination(table, now, names), combination(table, then, names)
            if old != new:
                yield self.steps[model, key], old, new

    # The order

    def batches(self) -> list[list[Step]]:
        """Return the steps in order; what one statement can do is together.

        Raises ``SwappedValues``.
        """
        waiting = dict.fromkeys((*self.steps.values(), *self.extra))
        done: set[Step] = set()
        batches: list[list[Step]] = []
        while waiting:
            ready = [step for step in waiting if all(wait.first in done for wait in step.waits)]
            if not ready:
                self._break_circle(waiting, done)
                continue
            batch = self._batch(ready, waiting)
            done.update(batch)
            for step in batch:
                del waiting[step]
            batches.append(batch)
        return batches

    def _batch(self, ready: list[Step], waiting: dict[Step, None]) -> list[Step]:
        """Return the next steps that one statement can do: of a group of which all are ready, if there is one."""
        numbers: dict[Any, int] = defaultdict(int)
        for step in waiting:
            numbers[step.group] += 1
        batches: list[list[Step]] = []
        for group in dict.fromkeys(step.group for step in ready):
            batch = self._with_followers([step for step in ready if step.group == group], waiting)
            if len(batch) == numbers[group]:
                return batch
            batches.append(batch)
        return batches[0]

    def _with_followers(self, batch: list[Step], waiting: dict[Step, None]) -> list[Step]:
        """Return the steps with those that only wait for them, if the same statement can do these after them."""
        kind, _ = group = batch[0].group
        in_order = kind == "insert" or (kind == "delete" and not batch[0].table.columns.checks_each_row)
        if not in_order:
            return batch
        followers: dict[Step, list[Step]] = defaultdict(list)
        missing: dict[Step, int] = {}
        for step in waiting:
            firsts = {wait.first for wait in step.waits if wait.first in waiting}
            if step.group == group and firsts and all(first.group == group for first in firsts):
                missing[step] = len(firsts)
                for first in firsts:
                    followers[first].append(step)
        found = list(batch)
        for step in found:
            for follower in followers[step]:
                missing[follower] -= 1
                if missing[follower] == 0:
                    found.append(follower)
        return found

    def _break_circle(self, waiting: dict[Step, None], done: set[Step]) -> None:
        """Let one of several steps that wait for each other go first."""
        circle = _circle(next(iter(waiting)), done)
        for wait in circle:
            name = wait.nullable()
            if name is not None:
                if wait.by is wait.step:
                    self._postpone(wait, name, waiting)
                else:
                    self._give_up(wait, name, None, waiting)
                return
        for wait in circle:
            if not wait.is_unique and not wait.by.table.columns.checks_each_row:
                # Foreign keys are checked later, when all rows are there.
                wait.step.waits.remove(wait)
                return
        for wait in circle:
            name = wait.replaceable()
            if name is not None:
                self._give_up(wait, name, _placeholder(wait.by.table.fields[name], self.using), waiting)
                return
        raise SwappedValues(circle[0])

    def _postpone(self, wait: Wait, name: str, waiting: dict[Step, None]) -> None:
        """Let a row point to nothing until the row that it points to is there."""
        step = wait.step
        later = Step("update", step.table, step.key, {name: step.cells[name]}, is_extra=True)
        step.cells[name] = None
        moved = [one for one in step.waits if name in one.names and (one.by is step or one.is_unique)]
        for one in moved:
            step.waits.remove(one)
            _add_wait(later, one.first, one.names, later if one.by is step else one.by, is_unique=one.is_unique)
        _add_wait(later, step, (name,), later)
        waiting[later] = None

    def _give_up(self, wait: Wait, name: str, cell: Any, waiting: dict[Step, None]) -> None:
        """Let a row point to nothing, or hold another value, before it is changed or deleted."""
        holder = wait.first
        early = Step("update", holder.table, holder.key, {name: cell}, is_extra=True)
        for step in waiting:
            for one in step.waits:
                if one.first is holder and one.by is holder and name in one.names:
                    one.first = one.by = early
        _add_wait(holder, early, (name,), early)
        waiting[early] = None


def _step(table: StoredTable, key: Key, now: Row | None, then: Row | None) -> Step | None:
    if then is None:
        return None if now is None else Step("delete", table, key)
    cells = dict(zip(table.names, then, strict=True))
    if now is None:
        return Step("insert", table, key, cells)
    changed = {table.names[place] for place in differing(now, then)}
    if not changed:
        return None
    return Step("update", table, key, {name: cell for name, cell in cells.items() if name in changed})


def _placeholder(column: Any, using: str) -> Any:
    """Return a value of a column that hardly any row has."""
    connection: Any = connections[using]
    value: Any = uuid4()
    if isinstance(column, IntegerField):
        _, highest = connection.ops.integer_field_range(column.get_internal_type())
        highest = min(highest or 2**31 - 1, 2**63 - 1)
        value = highest - randbelow(highest // 2)
    elif not isinstance(column, UUIDField):
        value = token_hex(16)[: column.max_length]
    return column.get_db_prep_value(value, connection)


def _add_wait(
    step: Step | None, first: Step | None, names: tuple[str, ...], by: Step | None, *, is_unique: bool = False
) -> None:
    if step is None or first is None or by is None or step is first:
        return
    step.waits.append(Wait(step, first, names, by, is_unique))


def _circle(start: Step, done: set[Step]) -> list[Wait]:
    """Return waits each of which is for the step that waits in the next one, and the last for the first."""
    path: list[Wait] = []
    places: dict[Step, int] = {}
    step = start
    while step not in places:
        places[step] = len(path)
        wait = next(wait for wait in step.waits if wait.first not in done)
        path.append(wait)
        step = wait.first
    return path[places[step] :]
