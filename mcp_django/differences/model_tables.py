"""The tables of models: whether a write may write them, and what statements do."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Final

from django.db import connections
from django.db.models import DO_NOTHING, Model
from django.db.models.deletion import get_candidate_relations_to_delete

from .cascades import concrete, with_parents
from .rehearsals import OTHER_STATEMENTS, OWN_APPS, name_of
from .statements import Statement, TableName
from .trials import Trial

# What writes no rows, of the statements whose table is not understood.
HARMLESS: Final = frozenset({"SET", "RESET", "LOCK", "ANALYZE", "NOTIFY", "LISTEN", "DISCARD"})


class ModelTables:
    """The tables that hold rows of models: their own, those of their parents, and those of the many-to-many links of
    their own fields. Without a model, they are all tables."""

    # In place of the first word of a statement that nobody can read.
    UNKNOWN: ClassVar = ""

    def __init__(self, models: Collection[type[Model]]) -> None:
        self.models = models

    @property
    def _parts(self) -> Iterator[type[Model]]:
        for model in self.models:
            yield from with_parents(model)
            links: list[Any] = [field.remote_field.through for field in model._meta.many_to_many]
            yield from (through for through in links if through._meta.auto_created)

    def are_among(self, tables: Collection[str]) -> bool:
        """Return whether one of them is among tables (``db_table``)."""
        return not self.models or any(part._meta.db_table in tables for part in self._parts)

    def may_hold(self, model: type[Model]) -> bool:
        """Return whether a row of a model is a row of them, or has a part in them."""
        return any(_is_part(concrete(model), one) for one in self.models)

    def hold_only(self, model: type[Model]) -> bool:
        """Return whether they hold nothing but rows of a model, and parts of them."""
        return bool(self.models) and all(_is_part(concrete(model), one) for one in self.models)

    def may_go_with(self, model: type[Model]) -> bool:
        """Return whether rows of them may be deleted or changed with a deleted row of a model."""
        reached = _reached_by_deletion(concrete(model))
        return any(concrete(one) in reached for one in self.models)

    def words_besides(self, trial: Trial) -> set[str]:
        """Return the first words of the statements, such as "INSERT", by which hooks of the project have written them
        when a write was tried, other rows than those of its difference."""
        rehearsal = trial.rehearsal
        if rehearsal is None:
            return set()
        besides = rehearsal.also_written
        if OTHER_STATEMENTS in besides or (besides and not self.models):
            return {self.UNKNOWN}
        found: set[str] = set()
        for part in self._parts:
            table = part._meta.db_table
            if table not in rehearsal.tables and part._meta.app_label not in OWN_APPS:
                found |= rehearsal.words(trial.stored.using, table)
        return found

    @contextmanager
    def watching(self, written: Callable[[str], Any]) -> Iterator[None]:
        """Call ``written`` with the first word of each statement that is going to write them, on all databases, or with
        ``UNKNOWN`` for one that nobody can read.

        Tables that every write may write, such as that of the admin's history, are left out.
        """
        with ExitStack() as stack:
            for using in connections:
                names = {
                    name_of(using, part._meta.db_table) for part in self._parts if part._meta.app_label not in OWN_APPS
                }
                stack.enter_context(connections[using].execute_wrapper(_Watch(names, written)))
            yield


class _Watch:
    def __init__(self, names: Collection[TableName], written: Callable[[str], Any]) -> None:
        self.names = names
        self.written = written

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        for statement in Statement.read(Statement.text(sql, context["connection"])):
            if statement.table in self.names:
                self.written(statement.word)
            elif statement.table is None and not (statement.reads or statement.ends or statement.word in HARMLESS):
                self.written(ModelTables.UNKNOWN)
        return execute(sql, params, many, context)


def _is_part(own: type[Model], model: type[Model]) -> bool:
    """Return whether a row of the model is a row of its own table, or a part of one."""
    return own in with_parents(model) or concrete(model) in with_parents(own)


def _reached_by_deletion(model: type[Model]) -> set[type[Model]]:
    """Return the concrete models whose rows may be deleted or changed with a row of a concrete model."""
    found: set[type[Model]] = set()
    left = [model]
    while left:
        opts = left.pop()._meta
        relations: Any = get_candidate_relations_to_delete(opts)
        new: Sequence[Any] = [concrete(one.related_model) for one in relations if one.on_delete is not DO_NOTHING]
        left += [one for one in new if one not in found]
        found.update(new)
    return found
