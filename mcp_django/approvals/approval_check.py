"""The check of one call against the approval rules: which of them apply to what it does.

A rule is checked against all rows that the call writes, not only those that it names: rows of inlines, links of
many-to-many fields, and what a deletion takes with it. What a call does is found out by trying it. Where it cannot be
tried, a rule that could apply does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from django.apps import apps
from django.db import connections, router
from django.db.models import Model, QuerySet

from ..context.request import MCPRequest
from ..differences.cascades import concrete, with_parents
from ..differences.differing_rows import key_value
from ..differences.footprints import Footprint, StoredDifference, kind_of_change
from ..differences.kept_changes import KeptChange
from ..differences.stored_rows import Key, stored_table
from ..differences.trials import Trial
from ..differences.writes import Write
from ..emulation.action_calls import ActionCall
from ..exceptions import ToolError
from ..models import ApprovalRule
from ..orm.pagination import chunks
from .declared_rules import declared_rules
from .rules import Rule, rules_in_force
from .tables_of_rules import TableGuard, may_touch, named_models, reached_by_deletion, writes_besides

Kind = ApprovalRule.Kind
# What a rule calls the kinds of a difference, and the permissions of writes.
KINDS: Final = {"added": Kind.CREATE, "changed": Kind.UPDATE, "deleted": Kind.DELETE}
DEEDS: Final = {"add": Kind.CREATE, "change": Kind.UPDATE, "delete": Kind.DELETE}
ROW_KINDS: Final = frozenset(KINDS.values())

BLOCKED: Final = "The approval rule {!r} forbids this. Nothing was changed. Tell the user."
TOLD: Final = "The call itself will wait for {}, because of the approval rule {!r}."
NOT_BY_THEM: Final = "By now the approval rule {!r} wants the yes of {}. Nothing was changed."
ASK_AGAIN: Final = (
    "By now the approval rule {!r} applies, which wants the yes of {}. Nothing was changed. Ask for it again with a "
    "new idempotency_key."
)

# The rows of a call by concrete model, with what it does to each.
Effects = Mapping[type[Model], Mapping[Key, str]]


class CallApproval:
    """The rules that may concern one call of the tool with this name: an ``ApprovalCheck``.

    ``needed`` are the rules that apply and want a yes, and ``rows`` the keys of the rows that the call touches, by
    model.
    """

    def __init__(self, request: MCPRequest, tool: str, arguments: Mapping[str, Any], rules: Collection[Rule]) -> None:
        self.request = request
        self.tool = tool
        self.arguments = arguments
        self.rules = rules
        self.is_needed = False
        self.needed: list[Rule] = []
        self.rows: dict[type[Model], Collection[Key]] = {}
        # Rules about rows that hooks turned out to write, and those that the check of a write has left out.
        self._surprises: list[Rule] = []
        self._left_out: list[Rule] = []
        # The keys of the rows that meet a condition as a trial has left them.
        self._after: dict[tuple[Rule, type[Model]], set[Key]] = {}

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
            models = named_models(rule) or list(self.rows)
            for model in models:
                names = found.setdefault(model._meta.label_lower, [])
                names += [name for name in rule.condition.reads(model) if name not in names]
        return found

    def row_keys(self) -> dict[str, list[Any]]:
        """Return the keys of the rows that the call touches as JSON, by label of the model; lists of composite ones."""
        return {
            model._meta.label_lower: [str(key[0]) if len(key) == 1 else list(map(str, key)) for key in keys]
            for model, keys in self.rows.items()
            if keys
        }

    # Writes

    def check_write(self, write: Write, footprint: Footprint, make: Callable[[], Write]) -> Trial | None:
        """Check a prepared write, and return the trial that was needed for that, None for none."""
        on_rows = list(filter(_is_on_rows, self.rules))
        rules = [rule for rule in on_rows if rule in self._surprises or may_touch(rule, footprint.tables)]
        if rules and write.can_be_tried:
            self._left_out = []
            return self._tried(on_rows, make)
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

    def _tried(self, rules: Collection[Rule], make: Callable[[], Write]) -> Trial:
        trial = Trial(make, lambda trial: self._see(rules, trial))
        self._conclude(self._met(rules, trial))
        return trial

    def _planned(self, rules: Iterable[Rule], write: Write, footprint: Footprint) -> list[Rule]:
        """Return the rules that apply to a write whose hooks must not run to try it: after it, nothing is known."""
        kind = DEEDS[write.permission]
        effects = {model: dict.fromkeys(keys, kind.value) for model, keys in footprint.rows.items()}
        self._note(effects)
        found = []
        own = concrete(write.exposure.model)
        for rule in rules:
            # What happens to rows of other models is not known.
            is_of_own = bool(rule.labels) and all(map(partial(_is_part, own), named_models(rule)))
            if is_of_own and rule.kinds and kind.value not in rule.kinds:
                continue
            is_unknown = not is_of_own or kind is Kind.CREATE or rule.condition.needs_after
            if self._arguments_meet(rule) and (is_unknown or self._count(rule, effects, footprint.using) > _most(rule)):
                found.append(rule)
        return found

    # What a trial has done

    def _see(self, rules: Iterable[Rule], trial: Trial) -> None:
        """Look at the rows as a trial has left them."""
        effects = _effects(trial.stored)
        for rule in rules:
            for model in _models(rule, effects):
                rows = _rows_of(model, effects, trial.stored.using)
                keys = [key for key, kind in rows.items() if kind != Kind.DELETE.value]
                met = rule.condition.rows_meeting(model, keys, "after", trial.stored.using)
                self._after[rule, model] = met

    def _met(self, rules: Iterable[Rule], trial: Trial) -> list[Rule]:
        """Return the rules that apply to what a trial has done; call it while the rows are as they were before."""
        stored = trial.stored
        effects = _effects(stored)
        self._note(effects)
        return [
            rule
            for rule in rules
            if self._arguments_meet(rule)
            and (self._count(rule, effects, stored.using) > _most(rule) or writes_besides(rule, trial))
        ]

    def _count(self, rule: Rule, effects: Effects, using: str) -> int:
        """Return the number of rows that a rule is about."""
        return sum(len(self._meeting(rule, model, effects, using)) for model in _models(rule, effects))

    def _meeting(self, rule: Rule, model: type[Model], effects: Effects, using: str) -> set[Key]:
        """Return the keys of the rows of a model that meet a rule's condition."""
        kinds = (rule.kinds & ROW_KINDS) | {Kind.ACTION.value}
        found = _rows_of(model, effects, using)
        rows = {key: kind for key, kind in found.items() if not rule.kinds or kind in kinds}
        condition = rule.condition
        if not condition.is_on_rows:
            return set(rows)
        was_there = [key for key, kind in rows.items() if kind != Kind.CREATE.value]
        before = condition.rows_meeting(model, was_there, "before", using)
        return condition.all_of(before, self._after.get((rule, model), set())).intersection(rows)

    # Actions

    def check_action(self, call: ActionCall, arguments: Mapping[str, Any]) -> None:
        """Check an action on the rows that its call has selected, with its arguments and the values of its form."""
        self.arguments = arguments
        using = router.db_for_write(call.exposure.model)
        keys = _keys_of(call.rows, using)
        effects: Effects = {
            model: dict.fromkeys(keys, Kind.ACTION.value) for model in with_parents(call.exposure.model)
        }
        self._note(effects)
        names = {call.action.name, f"{call.exposure.label}.{call.action.name}"}
        named = [rule for rule in self.rules if _names_action(rule, call.exposure.model, names, self.tool)]
        by_rows = [rule for rule in self.rules if rule not in named and _is_on_rows(rule)]

        trial = None
        if by_rows or any(rule.condition.needs_after for rule in named):
            trial = call.tried(lambda trial: self._see([*named, *by_rows], trial))
        found = [rule for rule in named if self._action_meets(rule, effects, using, trial)]
        if trial is not None:
            found += self._met(by_rows, trial)
        else:
            # Nobody knows which rows it writes.
            found += [rule for rule in by_rows if self._arguments_meet(rule)]
        self._conclude(found)

    def _action_meets(self, rule: Rule, effects: Effects, using: str, trial: Trial | None) -> bool:
        if not self._arguments_meet(rule):
            return False
        if trial is None and rule.condition.needs_after:
            return True
        return self._count(rule, effects, using) > _most(rule)

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
            if rule.labels and not (label and _concerns(rule, apps.get_model(label), kind)):
                continue
            if self._arguments_meet(rule):
                found.append(rule)
        self._conclude(found)

    # The verdict

    def _arguments_meet(self, rule: Rule) -> bool:
        return rule.condition.arguments_meet(self.request, self.arguments)

    def _note(self, effects: Effects) -> None:
        """Note the rows that are there before the call."""
        self.rows = {
            model: [key for key, kind in rows.items() if kind != Kind.CREATE.value] for model, rows in effects.items()
        }

    def _conclude(self, rules: Collection[Rule]) -> None:
        """Note which rules apply; raise ``ToolError`` for one that forbids the call, or what it has to run under."""
        for rule in rules:
            if rule.blocks:
                self.request.mcp.record.settle("refused:approval")
                raise ToolError(BLOCKED.format(rule.name))
        consent = self.request.mcp.consent
        if consent is None:
            self.needed = list(rules)
            self.is_needed = self.is_needed or bool(rules)
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
    if rule.labels and not rule.labels & {parent._meta.label_lower for parent in (model, *with_parents(model))}:
        return False
    if rule.actions:
        return bool(rule.actions.intersection(names))
    if rule.tools:
        return tool in rule.tools
    return not rule.kinds or Kind.ACTION.value in rule.kinds


def _is_part(own: type[Model], model: type[Model]) -> bool:
    """Return whether a row of the model is a row of its own table, or a part of one."""
    return own in with_parents(model) or concrete(model) in with_parents(own)


def _concerns(rule: Rule, model: type[Model], kind: str) -> bool:
    """Return whether a call that does this to a row of a model may write rows that a rule is about."""
    own = concrete(model)
    reached = reached_by_deletion(own) if kind in ("", Kind.DELETE.value) else set()
    return any(_is_part(own, named) or concrete(named) in reached for named in named_models(rule))


def _models(rule: Rule, effects: Effects) -> list[type[Model]]:
    """Return the models that a rule is about, of those that a call writes."""
    if not rule.labels:
        return list(effects)
    return named_models(rule)


def _effects(stored: StoredDifference) -> Effects:
    """Return what a difference does to each row; a link of a many-to-many field is a part of its row."""
    found: dict[type[Model], dict[Key, str]] = {}
    for model, changes in stored.changes.items():
        owner: Any = model._meta.auto_created
        if not owner:
            rows = found.setdefault(model, {})
            rows.update((key, KINDS[kind_of_change(change)].value) for key, change in changes.items())
            continue
        owner = concrete(owner)
        table = stored_table(model, stored.using)
        names = [field.attname for field in model._meta.concrete_fields if _refers_to(field, owner)]
        rows = found.setdefault(owner, {})
        for before, after in changes.values():
            row = before or after
            assert row is not None
            for name in names[:1]:
                rows.setdefault((table.cell_of(row, name),), Kind.UPDATE.value)
    return found


def _refers_to(field: Any, owner: type[Model]) -> bool:
    return field.is_relation and concrete(field.related_model) is owner


def _rows_of(model: type[Model], effects: Effects, using: str) -> dict[Key, str]:
    """Return what a call does to the rows of a model, whose parts may be in the tables of its parents and children
    too."""
    own, *parents = with_parents(model)
    found: dict[Key, str] = {}
    for child, rows in effects.items():
        if own in with_parents(child)[1:]:
            found.update(dict.fromkeys(rows, Kind.UPDATE.value))
    of_parents = [key for parent in parents for key in effects.get(parent, ())]
    if of_parents:
        # Not every row of a parent is a part of one of these.
        found.update(dict.fromkeys(_those_there(own, of_parents, using), Kind.UPDATE.value))
    found.update(effects.get(own, {}))
    return found


def _those_there(model: type[Model], keys: Iterable[Key], using: str) -> list[Key]:
    """Return those of these keys of which there is a row of the model."""
    by_value = {key_value(model, key): key for key in keys}
    rows: QuerySet[Any] = QuerySet(model, using=using)
    found: list[Any] = []
    for chunk in chunks(list(by_value)):
        found += rows.filter(pk__in=chunk).order_by().values_list("pk", flat=True)
    return [by_value[value] for value in found]


def _keys_of(rows: Iterable[Model], using: str) -> list[Key]:
    """Return the keys of rows as the database holds them."""
    connection = connections[using]
    return [
        tuple(field.get_db_prep_value(getattr(row, field.attname), connection) for field in row._meta.pk_fields)
        for row in rows
    ]
