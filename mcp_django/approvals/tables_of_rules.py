"""The tables that approval rules are about, and what a call writes in them besides the rows that are known of it."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from django.apps import apps
from django.db import connections
from django.db.models import DO_NOTHING, Model
from django.db.models.deletion import get_candidate_relations_to_delete

from ..context.approval_checks import Unforeseen
from ..differences.cascades import concrete, with_parents
from ..differences.rehearsals import OTHER_STATEMENTS, OWN_APPS, name_of
from ..differences.statements import Statement, TableName
from ..differences.trials import Trial
from ..models import ApprovalRule
from .rules import Rule

Kind = ApprovalRule.Kind
# What statements can do to rows, by their first word; any other one can do all of it.
KINDS_OF_WORDS: Final = {
    "INSERT": frozenset({Kind.CREATE.value, Kind.UPDATE.value}),
    "UPDATE": frozenset({Kind.UPDATE.value}),
    "DELETE": frozenset({Kind.DELETE.value}),
}


def named_models(rule: Rule) -> list[type[Model]]:
    """Return the models that a rule names, without those that are no longer there."""
    found = []
    for label in rule.labels:
        with suppress(LookupError):
            found.append(apps.get_model(label))
    return found


def may_touch(rule: Rule, tables: Collection[str]) -> bool:
    """Return whether a write in these tables may write rows that a rule is about; also where nobody knows which."""
    if not rule.labels or not tables:
        return True
    return any(part._meta.db_table in tables for part in _parts(rule))


def reached_by_deletion(model: type[Model]) -> set[type[Model]]:
    """Return the concrete models whose rows may be deleted or changed with a row of a concrete model."""
    found: set[type[Model]] = set()
    left = [model]
    while left:
        opts = left.pop()._meta
        relations: Any = get_candidate_relations_to_delete(opts)
        new = {concrete(one.related_model) for one in relations if one.on_delete is not DO_NOTHING} - found
        found |= new
        left += new
    return found


def writes_besides(rule: Rule, trial: Trial) -> bool:
    """Return whether a trial has written rows that a rule may be about, and that are not in its difference: hooks of
    the project wrote them."""
    rehearsal = trial.rehearsal
    if rehearsal is None:
        return False
    if OTHER_STATEMENTS in rehearsal.also_written:
        return True
    if not rule.labels:
        return bool(rehearsal.also_written)
    using = trial.stored.using
    return any(
        _is_of(rule, word)
        for part in _parts(rule)
        if part._meta.db_table not in rehearsal.tables and part._meta.app_label not in OWN_APPS
        for word in rehearsal.words(using, part._meta.db_table)
    )


class TableGuard:
    """Watches what a write writes, for rules that its check has left out.

    ``note`` is called with each rule about a table that is going to be written all the same, and then ``Unforeseen`` is
    raised.
    """

    def __init__(self, rules: Collection[Rule], note: Callable[[Rule], Any]) -> None:
        self.rules = rules
        self.note = note

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the statements of the block, on all databases."""
        if not self.rules:
            yield
            return
        with ExitStack() as stack:
            for using in connections:
                watch = _Watch(self._tables(using), self.note)
                stack.enter_context(connections[using].execute_wrapper(watch))
            yield

    def _tables(self, using: str) -> dict[TableName, list[Rule]]:
        """Return the rules by the names of the tables that they are about."""
        found: dict[TableName, list[Rule]] = {}
        for rule in self.rules:
            for part in _parts(rule):
                # Every write may write these, the history of the admin for one.
                if part._meta.app_label not in OWN_APPS:
                    found.setdefault(name_of(using, part._meta.db_table), []).append(rule)
        return found


class _Watch:
    def __init__(self, tables: dict[TableName, list[Rule]], note: Callable[[Rule], Any]) -> None:
        self.tables = tables
        self.note = note

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        found = [
            rule
            for statement in Statement.read(Statement.text(sql, context["connection"]))
            if statement.table is not None
            for rule in self.tables.get(statement.table, ())
            if _is_of(rule, statement.word)
        ]
        if not found:
            return execute(sql, params, many, context)
        for rule in found:
            self.note(rule)
        raise Unforeseen


def _is_of(rule: Rule, word: str) -> bool:
    """Return whether a statement that begins with this word may do what a rule is about."""
    kinds = KINDS_OF_WORDS.get(word)
    return not rule.kinds or kinds is None or bool(rule.kinds & kinds)


def _parts(rule: Rule) -> Iterator[type[Model]]:
    """Yield the models in whose tables the rows of a rule are, with the many-to-many links of their own fields."""
    for model in named_models(rule):
        yield from with_parents(model)
        links: list[Any] = [field.remote_field.through for field in model._meta.many_to_many]
        yield from (through for through in links if through._meta.auto_created)
