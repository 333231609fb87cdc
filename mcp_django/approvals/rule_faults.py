"""What is wrong with an approval rule: names that are not there, a condition that does not fit, nobody who decides.

The admin refuses to save such a rule; the doctor finds what has become wrong since.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.db.models import Model, Q
from django.utils.translation import gettext as _

from ..exposures.declared_actions import FunctionAction
from ..exposures.model_exposure import ModelExposure
from ..models import ApprovalRule
from ..operating.switches import ACTION, TOOL, known_names
from ..problems import closest
from .conditions import RuleCondition, WrongCondition
from .rules import Rule

# How like a name has to be to be offered for a wrong one.
LIKENESS: Final = 0.6
RUN_ACTION: Final = "run_action"


class Fault(NamedTuple):
    """Something wrong with a rule: the column of :class:`~mcp_django.models.ApprovalRule`, and the text."""

    column: str
    text: str


class RuleNames:
    """The names that rules can have: of installed models, of the tools and actions of sites, of permissions."""

    def __init__(self, sites: Iterable[Any]) -> None:
        self.sites = list(sites)

    @cached_property
    def labels(self) -> frozenset[str]:
        """The labels of all models."""
        return frozenset(model._meta.label_lower for model in apps.get_models())

    @cached_property
    def tools(self) -> Collection[str]:
        """The names of the tools that rules can be about: functions, methods of ViewSets, and actions."""
        functions = {tool.name for site in self.sites for tool in site.function_tools()}
        return functions | {name for site in self.sites for name, _of in site._action_tools.declared()} | {RUN_ACTION}

    @cached_property
    def functions(self) -> Collection[str]:
        """The names of those tools that are functions of the project, which have no model."""
        return {tool.name for site in self.sites for tool in site.function_tools() if hasattr(tool, "function")}

    @cached_property
    def other_tools(self) -> Collection[str]:
        """The names of the app's own tools: what these do to rows is known by its kind, whichever of them does it."""
        return known_names(self.sites)[TOOL] - set(self.tools)

    @cached_property
    def actions(self) -> Collection[str]:
        """The names of all actions, such as ``shop.order.refund``."""
        return {name for name in known_names(self.sites)[ACTION] if name.count(".") == 2}

    @cached_property
    def permissions(self) -> Collection[str]:
        """The names of all permissions, such as ``shop.approve_refund``."""
        pairs = Permission._default_manager.values_list("content_type__app_label", "codename")
        return {f"{app_label}.{codename}" for app_label, codename in pairs}

    def arguments(self, rule: Rule) -> frozenset[str]:
        """Return the names of the arguments of the tools and actions that a rule names; none if not all are known."""
        found: set[str] = set()
        for name in rule.tools:
            tools = [tool for site in self.sites if (tool := site._declared_tool(name)) is not None]
            if not tools:
                return frozenset()
            found.update(*(tool.input_schema.get("properties", {}) for tool in tools))
        for name in rule.actions:
            names = self._arguments_of_action(name)
            if not names:
                return frozenset()
            found |= names
        return frozenset(found)

    def _arguments_of_action(self, full_name: str) -> set[str]:
        """Return the arguments of an action that an exposure declares: only a call knows those of an admin's."""
        label, _dot, name = full_name.rpartition(".")
        found: set[str] = set()
        for site in self.sites:
            exposure = site.exposures_by_label.get(label)
            if exposure is None or name not in exposure.options.action_names():
                continue
            if type(exposure).get_actions is not ModelExposure.get_actions:
                return set()
            action = FunctionAction(exposure, name)
            found |= {*action.schema.get("properties", {}), *action.questions.names}
        return found


def models_of(rule: Rule) -> list[type[Model]]:
    """Return the models that a rule names, also by the actions of one; those that are no longer there are left out."""
    labels = [*sorted(rule.labels), *(name.rpartition(".")[0] for name in sorted(rule.actions))]
    found = []
    for label in dict.fromkeys(labels):
        try:
            found.append(apps.get_model(label))
        except (LookupError, ValueError):
            continue
    return found


def faults_of(rule: Rule, names: RuleNames) -> Iterator[Fault]:
    """Yield what is wrong with a rule."""
    for column in sorted(rule.unreadable):
        yield Fault(column, _("This cannot be read, so the rule is open for all."))
    yield from _unknown("labels", _("There is no model %(name)s."), rule.labels, names.labels)
    others = rule.tools.intersection(names.other_tools)
    for name in sorted(others):
        text = _("No rule is about the tool %(name)s: choose models and kinds of calls.")
        yield Fault("tools", text % {"name": name})
    yield from _unknown("tools", _("There is no tool %(name)s."), rule.tools - others, names.tools)
    if rule.labels:
        for name in sorted(rule.tools.intersection(names.functions)):
            text = _("The tool %(name)s has no model: a rule about it and a model would never apply.")
            yield Fault("tools", text % {"name": name})
    yield from _unknown("actions", _("There is no action %(name)s."), rule.actions, names.actions)
    yield from _wrong_kinds(rule)
    yield from wrong_condition(rule, names)
    yield from _wrong_deciders(rule, names)


def _unknown(column: str, text: str, given: Iterable[str], known: Collection[str]) -> Iterator[Fault]:
    for name in sorted(set(given).difference(known)):
        yield Fault(column, f"{text % {'name': name}}{_offered(name, known)}")


def _offered(name: str, known: Collection[str]) -> str:
    near = closest(name, known, LIKENESS)
    return f" {_('Did you mean %(name)s?') % {'name': near}}" if near is not None else ""


def _wrong_kinds(rule: Rule) -> Iterator[Fault]:
    for kind in sorted(rule.kinds.difference(ApprovalRule.Kind.values)):
        yield Fault("kinds", _("There is no kind %(name)s.") % {"name": kind})


def wrong_condition(rule: Rule, names: RuleNames) -> Iterator[Fault]:
    """Yield what is wrong with the condition of a rule; a function is not looked at."""
    if rule.condition.function is not None:
        return
    try:
        RuleCondition.read(rule.condition.data, models_of(rule), names.arguments(rule))
    except WrongCondition as error:
        yield Fault("condition", str(error))


def _wrong_deciders(rule: Rule, names: RuleNames) -> Iterator[Fault]:
    if rule.permission and rule.permission not in names.permissions:
        text = _("There is no permission %(name)s.") % {"name": rule.permission}
        yield Fault("permission", f"{text}{_offered(rule.permission, names.permissions)}")
    if rule.group and not Group._default_manager.filter(Q(pk=rule.group_key) | Q(name=rule.group)).exists():
        yield Fault("group", _("There is no group %(name)s.") % {"name": rule.group})
    if rule.permission and rule.group:
        yield Fault("permission", _("Name a permission or a group, not both."))
    elif not (rule.permission or rule.group or rule.blocks):
        yield Fault("permission", _("Name the permission or the group of those who decide."))
