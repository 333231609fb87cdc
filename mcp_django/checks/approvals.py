"""System checks of the approvals that a project declares, beside its exposures, actions and tools."""

import sys
from collections.abc import Iterator
from typing import Any, Final

from django.contrib.auth.models import Group, Permission
from django.core.checks import CheckMessage
from django.db import DatabaseError, connections, router

from ..approvals.declared_rules import declarations
from ..approvals.rule_faults import RuleNames, wrong_condition
from ..approvals.rules import Rule
from ..exposures.declared_approvals import Approval
from ..problems import nearest
from .check_rules import Check, check, problem
from .declarations import all_sites, model_permissions

CHECKS: Final[list[Check]] = []
WRITE: Final = 'Write mcp.approval(when={"total__gt": 100}, permission="shop.approve_refund"), or a list of these.'
WHOEVER: Final = "Until then, nobody can decide such a request."
# How like another permission a name has to be, to be taken for a misspelt one: code can make permissions of its own.
LIKENESS: Final = 0.85


@check(CHECKS)
def check_approvals() -> Iterator[CheckMessage]:
    for declared in declarations(all_sites()):
        for item in declared.items:
            if not isinstance(item, Approval):
                yield problem("E173", f"approval of {declared.where} has {item!r}, which is no approval.", WRITE)
    names = RuleNames(all_sites())
    permissions = model_permissions()
    for where, rule in _rules():
        # Whether it is there is in the database, which only other checks ask.
        if rule.permission not in permissions and (hint := nearest(rule.permission, permissions, LIKENESS)):
            text = f"By approval of {where}, those with {rule.permission!r} decide, a permission that no model has."
            yield problem("E173", text, hint.strip())
        try:
            faults = list(wrong_condition(rule, names))
        except DatabaseError:
            # A row that the condition names by its label cannot be looked up now.
            continue
        for fault in faults:
            yield problem("E173", f"approval of {where}: {fault.text}", "Correct the condition: until then it applies.")


def check_deciders(using: str) -> Iterator[CheckMessage]:
    """Find declared approvals whose permission or group is not in the database."""
    if sys.argv[1:2] == ["migrate"]:
        # It runs the checks of its database before it makes the tables and permissions.
        return
    tables = connections[using].introspection.table_names()
    for where, rule in _rules():
        owner: Any = Permission if rule.permission else Group
        if router.db_for_read(owner) != using or owner._meta.db_table not in tables:
            continue
        rows = owner._default_manager.using(using)
        if rule.permission:
            app_label, _, codename = rule.permission.partition(".")
            is_there = rows.filter(content_type__app_label=app_label, codename=codename).exists()
            text = f"By approval of {where}, those with the permission {rule.permission!r} decide, which is not there."
        else:
            is_there = rows.filter(name=rule.group).exists()
            text = f"By approval of {where}, those in the group {rule.group!r} decide, which is not there."
        if not is_there:
            yield problem("E174", text, f"Create it, or name another. {WHOEVER}")


def _rules() -> Iterator[tuple[str, Rule]]:
    """Yield each approval that is declared, with where that is."""
    for declared in declarations(all_sites()):
        yield from ((declared.where, rule) for rule in declared.rules)
