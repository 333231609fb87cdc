"""The tables that approval rules are about, and what a call writes in them besides the rows that are known of it."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final

from django.apps import apps
from django.db.models import Model

from ..context.approval_checks import Unforeseen
from ..differences.model_tables import ModelTables
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
    if _is_void(rule):
        return False
    return not rule.labels or not tables or tables_of(rule).are_among(tables)


def writes_besides(rule: Rule, trial: Trial) -> bool:
    """Return whether a trial has written rows that a rule may be about, and that are not in its difference: hooks of
    the project wrote them."""
    if _is_void(rule):
        return False
    return any(_is_of(rule, word) for word in tables_of(rule).words_besides(trial))


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
        with ExitStack() as stack:
            for rule in self.rules:
                stack.enter_context(tables_of(rule).watching(partial(self._written, rule)))
            yield

    def _written(self, rule: Rule, word: str) -> None:
        if _is_of(rule, word):
            self.note(rule)
            raise Unforeseen


def _is_void(rule: Rule) -> bool:
    """Return whether none of the models that a rule names is there any more: it is about nothing then."""
    return bool(rule.labels) and not named_models(rule)


def tables_of(rule: Rule) -> ModelTables:
    """Return the tables of the models that a rule names."""
    return ModelTables(named_models(rule))


def _is_of(rule: Rule, word: str) -> bool:
    """Return whether a statement that begins with this word may do what a rule is about."""
    kinds = KINDS_OF_WORDS.get(word)
    return not rule.kinds or kinds is None or bool(rule.kinds & kinds)
