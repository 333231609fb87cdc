"""Approval rules for operators: what each is about, who decides, and what is wrong with it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..approvals.deciders import Deciders
from ..approvals.declared_rules import declarations
from ..approvals.rule_faults import RuleNames, faults_of
from ..approvals.rules import Rule, rules_in_force
from ..models import ApprovalRule
from .check_results import CheckResult

# Maximum characters of what a rule is about.
MAX_WHAT: Final = 160


@dataclass(frozen=True, slots=True)
class SeenRule:
    """A rule in words: ``faults`` say what is wrong with it."""

    name: str
    effect: str
    what: str
    deciders: str
    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Rule, faults: Iterable[str] = ()) -> "SeenRule":
        """Return a rule in words."""
        effect = ApprovalRule.Effect.BLOCK if rule.blocks else ApprovalRule.Effect.REQUIRE
        deciders = _("nobody") if rule.blocks else rule.permission or rule.group
        return cls(rule.name, str(effect.label), what(rule), deciders, tuple(faults))


def what(rule: Rule) -> str:
    """Return what a rule is about, in a line."""
    kinds = [str(name) for value, name in ApprovalRule.Kind.choices if value in rule.kinds]
    parts = [", ".join(names) for names in (sorted(rule.labels), kinds, sorted(rule.tools), sorted(rule.actions))]
    parts.append(str(rule.condition))
    if rule.rows_above is not None:
        above = ngettext("above %(count)s row", "above %(count)s rows", rule.rows_above)
        parts.append(above % {"count": rule.rows_above})
    text = "; ".join(part for part in parts if part)
    return Truncator(text).chars(MAX_WHAT) if text else _("everything")


def known_rules(sites: Iterable[Any]) -> list[Rule]:
    """Return the active rules of the admin, and those that code declares."""
    return [*rules_in_force(), *(rule for declared in declarations(sites) for rule in declared.rules)]


def rules_for(request: Any, names: RuleNames, label: str = "") -> list[SeenRule]:
    """Return the rules that apply to the caller of a request, of one model if its label is given."""
    found = []
    for rule in known_rules(names.sites):
        about = {*rule.labels, *(name.rpartition(".")[0] for name in rule.actions)}
        if rule.concerns(request) and (not label or not about or label in about):
            found.append(SeenRule.of(rule, wrong_with(rule, names)))
    return found


def wrong_with(rule: Rule, names: RuleNames) -> Iterator[str]:
    """Yield what is wrong with a rule, also that nobody can decide by it."""
    faults = list(faults_of(rule, names))
    yield from (fault.text for fault in faults)
    named = not any(fault.column in ("permission", "group") for fault in faults)
    if named and not rule.blocks and not Deciders.of(rule).somebody_besides(None):
        yield _("Nobody can decide: no active staff member has the permission or is in the group.")


def check_rules(sites: Iterable[Any]) -> Iterator[CheckResult]:
    """Yield what is wrong with the rules in force; nothing if there are no rules."""
    names = RuleNames(sites)
    rules = known_rules(names.sites)
    is_well = True
    for rule in rules:
        for text in wrong_with(rule, names):
            is_well = False
            title = _("Approval rule %(name)s") % {"name": rule.name}
            yield CheckResult(title, "warning", text, _("Correct the rule: until then it applies as it stands."))
    if rules and is_well:
        text = _("Of each, somebody can decide, and what it names is there.")
        yield CheckResult(_("Approval rules"), "ok", text)
