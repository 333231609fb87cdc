"""The check of one call against the approval rules: which of them apply to what it does.

A rule is checked against all rows that the call writes, not only those that it names: rows of inlines, links of
many-to-many fields, and what a deletion takes with it. What a call does is found out by trying it. Where it cannot be
tried, a rule that could apply does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from django.apps import apps
from django.db import router
from django.db.models import Model

from ..context.request import MCPRequest
from ..differences.kept_changes import KeptChange
from ..differences.trials import Trial
from ..differences.writes import Write
from ..differences.written_rows import WrittenRows
from ..emulation.action_calls import ActionCall
from ..exceptions import ToolError
from ..models import ApprovalRule
from .declared_rules import declared_rules
from .rules import Rule, rules_in_force
from .tables_of_rules import TableGuard, may_touch, named_models, tables_of, writes_besides

Kind = ApprovalRule.Kind
# What a rule calls what happens to a row.
KINDS: Final = {
    WrittenRows.ADDED: Kind.CREATE.value,
    WrittenRows.CHANGED: Kind.UPDATE.value,
    WrittenRows.DELETED: Kind.DELETE.value,
    Kind.ACTION.value: Kind.ACTION.value,
}
ROW_KINDS: Final = frozenset({Kind.CREATE.value, Kind.UPDATE.value, Kind.DELETE.value})

BLOCKED: Final = "The approval rule {!r} forbids this. Nothing was changed. Tell the user."
TOLD: Final = "The call itself will wait for {}, because of the approval rule {!r}."
NOT_BY_THEM: Final = "By now the approval rule {!r} wants the yes of {}. Nothing was changed."
SURPRISE: Final = (
    "The approval rule {!r} is about rows that this turned out to write. Nothing was changed. Tell the user that an "
    "operator has to name the action in the rule."
)
ASK_AGAIN: Final = (
    "By now the approval rule {!r} applies, which wants the yes of {}. Nothing was changed. Ask for it again with a "
    "new idempotency_key."
)


class CallApproval:
    """The rules that may concern one call of the tool with this name: an ``ApprovalCheck``.

    ``needed`` are the rules that apply and want a yes, and ``rows`` what the call writes, as far as that is known.
    """

    def __init__(self, request: MCPRequest, tool: str, arguments: Mapping[str, Any], rules: Collection[Rule]) -> None:
        self.request = request
        self.tool = tool
        self.arguments = arguments
        self.rules = rules
        self.needed: list[Rule] = []
        self.rows: WrittenRows | None = None
        # Rules about rows that hooks turned out to write, and those that the check of a write has left out.
        self._surprises: list[Rule] = []
        self._left_out: list[Rule] = []
        # The keys of the rows that meet a condition as a trial has left them.
        self._after: dict[tuple[Rule, type[Model]], set[Any]] = {}

    @classmethod
    def of(cls, request: MCPRequest, tool: Any, arguments: Mapping[str, Any]) -> "CallApproval | None":
        """Return the check of a call of a tool, None if no rule is for this caller."""
        declared = declared_rules(request, tool, arguments)
        rules = [rule for rule in chain(rules_in_force(), declared) if rule.concerns(request)]
        return cls(request, tool.name, arguments, rules) if rules else None

    @staticmethod
    def may_concern(request: MCPRequest) -> bool:
        """Return whether there are rules for what this caller writes."""
        # For each list of tools: without a frame for each exposure.
        is_declared = any(map(attrgetter("approval"), request.mcp.site.exposures.values()))
        return is_declared or any(rule.concerns(request) for rule in rules_in_force())

    @property
    def is_needed(self) -> bool:
        """Whether a rule applies that wants the yes of another person."""
        return bool(self.needed)

    @property
    def rule(self) -> Rule:
        """The first of the rules that want a yes: who decides is said by it."""
        return self.needed[0]

    @property
    def told(self) -> str:
        """What the call has to wait for, in a sentence."""
        return TOLD.format(self.rule.deciders, self.rule.name)

    def read_columns(self) -> dict[str, list[str]]:
        """Return the names of the columns that the conditions of the needed rules read, by label of the model."""
        found: dict[str, list[str]] = {}
        for rule in self.needed:
            for model in _models(rule, self.rows):
                names = found.setdefault(model._meta.label_lower, [])
                names += [name for name in rule.condition.reads(model) if name not in names]
        return found

    def row_keys(self) -> dict[str, list[Any]]:
        """Return the keys of the rows that are there before the call and that it touches, by label of the model."""
        return self.rows.keys_before() if self.rows is not None else {}

    # Writes

    def check_write(self, write: Write, footprint: Any, make: Callable[[], Write]) -> Trial | None:
        """Check a prepared write, and return the trial that was needed for that, None for none."""
        on_rows = list(filter(_is_on_rows, self.rules))
        rules = [rule for rule in on_rows if rule in self._surprises or may_touch(rule, footprint.tables)]
        if rules and write.can_be_tried:
            self._left_out = []
            return self.check_trial(make)
        # Whether hooks write the other rows is seen when they do.
        self._left_out = [rule for rule in on_rows if rule not in rules]
        self._conclude(self._planned(rules, write, footprint) if rules else [])
        return None

    def guard(self) -> AbstractContextManager[None]:
        """Return the block in which a checked write is performed: it raises ``Unforeseen`` instead of writing rows that
        rules are about and that the check has not seen."""
        return TableGuard(self._left_out, self._surprises.append).watching()

    def check_trial(self, make: Callable[[], Write]) -> Trial:
        """Try a write that the caller only wants to try, and return the trial, checked."""
        rules = list(filter(_is_on_rows, self.rules))
        trial = Trial(make, lambda trial: self._see(rules, trial))
        if trial.write.can_be_tried:
            self._conclude(self._met(rules, trial))
        return trial

    def _planned(self, rules: Iterable[Rule], write: Write, footprint: Any) -> list[Rule]:
        """Return the rules that apply to a write whose hooks must not run to try it: after it, nothing is known."""
        self.rows = WrittenRows.of_prepared(write, footprint.rows, footprint.using)
        kind = {"add": Kind.CREATE, "change": Kind.UPDATE, "delete": Kind.DELETE}[write.permission].value
        found = []
        for rule in rules:
            # What happens to rows of other models is not known.
            is_of_own = tables_of(rule).hold_only(write.exposure.model)
            if is_of_own and rule.kinds and kind not in rule.kinds:
                continue
            is_unknown = not is_of_own or kind == Kind.CREATE or rule.condition.needs_after
            if self._arguments_meet(rule) and (is_unknown or self._count(rule, self.rows) > _most(rule)):
                found.append(rule)
        return found

    # What a trial has done

    def _see(self, rules: Iterable[Rule], trial: Trial) -> None:
        """Look at the rows as a trial has left them."""
        written = WrittenRows.of_difference(trial.stored)
        for rule in rules:
            for model in _models(rule, written):
                keys = [key for key, kind in written.of_model(model).items() if kind != written.DELETED]
                self._after[rule, model] = rule.condition.rows_meeting(model, keys, "after", written.using)

    def _met(self, rules: Iterable[Rule], trial: Trial) -> list[Rule]:
        """Return the rules that apply to what a trial has done; call it while the rows are as they were before."""
        written = self.rows = WrittenRows.of_difference(trial.stored)
        return [
            rule
            for rule in rules
            if self._arguments_meet(rule) and (self._count(rule, written) > _most(rule) or writes_besides(rule, trial))
        ]

    def _count(self, rule: Rule, written: WrittenRows) -> int:
        """Return the number of rows that a rule is about."""
        return sum(len(self._meeting(rule, model, written)) for model in _models(rule, written))

    def _meeting(self, rule: Rule, model: type[Model], written: WrittenRows) -> set[Any]:
        """Return the keys of the rows of a model that meet a rule's condition."""
        kinds = (rule.kinds & ROW_KINDS) | {Kind.ACTION.value}
        found = written.of_model(model)
        rows = {key: kind for key, kind in found.items() if not rule.kinds or KINDS[kind] in kinds}
        condition = rule.condition
        if not condition.is_on_rows:
            return set(rows)
        was_there = [key for key, kind in rows.items() if kind != written.ADDED]
        before = condition.rows_meeting(model, was_there, "before", written.using)
        return condition.all_of(before, self._after.get((rule, model), set())).intersection(rows)

    # Actions

    def check_action(self, call: ActionCall, arguments: Mapping[str, Any]) -> None:
        """Check an action on the rows that its call has selected, with its arguments and the values of its form."""
        self.arguments = arguments
        model = call.exposure.model
        picked = WrittenRows.of_instances(model, call.rows, Kind.ACTION.value, router.db_for_write(model))
        self.rows = picked
        names = {call.action.name, f"{call.exposure.label}.{call.action.name}"}
        named = [rule for rule in self.rules if _names_action(rule, model, names, self.tool)]
        by_rows = [rule for rule in self.rules if rule not in named and _is_on_rows(rule)]

        trial = None
        if by_rows or any(rule.condition.needs_after for rule in named):
            trial = call.tried(lambda trial: self._see([*named, *by_rows], trial))
        found = [rule for rule in named if self._action_meets(rule, picked, trial)]
        if trial is not None:
            found += self._met(by_rows, trial)
            self._left_out = []
        else:
            # Nobody knows what it does to rows of its model; whether it writes others is seen when it does.
            possible = [rule for rule in by_rows if not call.action.atomic or _may_hold(rule, model)]
            found += [rule for rule in possible if self._arguments_meet(rule)]
            self._left_out = [rule for rule in by_rows if rule not in possible and not self._has_yes(rule)]
        self._conclude(found)

    def _action_meets(self, rule: Rule, picked: WrittenRows, trial: Trial | None) -> bool:
        if not self._arguments_meet(rule):
            return False
        if trial is None and rule.condition.needs_after:
            return True
        return self._count(rule, picked) > _most(rule)

    # Calls of which only the arguments are known

    def check_arguments(self, arguments: Mapping[str, Any], label: str = "", kind: str = "") -> None:
        """Check a call of which nothing is known but its arguments, and perhaps its model and what it does to a row."""
        self.arguments = arguments
        # What a method of the project's own does to its row is not known.
        kinds = {Kind.TOOL.value, *([kind] if kind else ROW_KINDS if label else ())}
        found = []
        for rule in self.rules:
            if rule.actions or (rule.tools and self.tool not in rule.tools):
                continue
            if rule.kinds and not rule.kinds & kinds:
                continue
            is_named = bool(rule.tools) or Kind.TOOL.value in rule.kinds
            if rule.rows_above and not is_named and (kind or not label):
                # It writes one row, or nobody says that it writes any.
                continue
            if rule.labels and not (label and _concerns(rule, apps.get_model(label), kind)):
                continue
            if self._arguments_meet(rule):
                found.append(rule)
        self._conclude(found)

    # The verdict

    @property
    def surprise(self) -> str:
        """Why a call was undone that turned out to write rows that a rule is about."""
        return SURPRISE.format(self._surprises[-1].name)

    def _has_yes(self, rule: Rule) -> bool:
        """Return whether the call runs under the yes of somebody who may decide by a rule."""
        consent = self.request.mcp.consent
        approver = consent.approver if consent is not None else None
        return approver is not None and not rule.blocks and rule.may_decide(approver)

    def _arguments_meet(self, rule: Rule) -> bool:
        return rule.condition.arguments_meet(self.request, self.arguments)

    def _conclude(self, rules: Collection[Rule]) -> None:
        """Note which rules apply; raise ``ToolError`` for one that forbids the call, or what it has to run under."""
        for rule in rules:
            if rule.blocks:
                self.request.mcp.record.settle("refused:approval")
                raise ToolError(BLOCKED.format(rule.name))
        consent = self.request.mcp.consent
        if consent is None:
            # Once a rule has applied, the call waits.
            self.needed = list(rules) or self.needed
            return
        approver = consent.approver
        for rule in rules:
            if approver is None:
                raise ToolError(ASK_AGAIN.format(rule.name, rule.deciders))
            is_own = KeptChange.owner_of(approver) == KeptChange.owner_of(self.request.user)
            if is_own or not rule.may_decide(approver):
                raise ToolError(NOT_BY_THEM.format(rule.name, rule.deciders))


def _most(rule: Rule) -> int:
    """Return the number of rows above which a rule applies."""
    return rule.rows_above or 0


def _is_on_rows(rule: Rule) -> bool:
    """Return whether a rule is about what a call does to rows, whatever its tool."""
    return not rule.tools and not rule.actions and (not rule.kinds or bool(rule.kinds & ROW_KINDS))


def _names_action(rule: Rule, model: type[Model], names: Collection[str], tool: str) -> bool:
    """Return whether a rule is about running this action."""
    if not _may_hold(rule, model):
        return False
    if rule.actions:
        return bool(rule.actions.intersection(names))
    if rule.tools:
        return tool in rule.tools
    return not rule.kinds or Kind.ACTION.value in rule.kinds


def _may_hold(rule: Rule, model: type[Model]) -> bool:
    """Return whether a rule is about all rows, or may be about those of a model."""
    return not rule.labels or tables_of(rule).may_hold(model)


def _concerns(rule: Rule, model: type[Model], kind: str) -> bool:
    """Return whether a call that does this to a row of a model may write rows that a rule is about."""
    tables = tables_of(rule)
    may_delete = kind in ("", Kind.DELETE.value)
    return tables.may_hold(model) or (may_delete and tables.may_go_with(model))


def _models(rule: Rule, written: WrittenRows | None) -> Sequence[type[Model]]:
    """Return the models that a rule is about, of those that a call writes."""
    if rule.labels:
        return named_models(rule)
    return written.models if written is not None else ()
