"""Approval rules for operators."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command

from mcp_django import site
from mcp_django.approvals.rule_faults import RuleNames
from mcp_django.approvals.rules import Rule
from mcp_django.console.health_checks_page import ProjectChecks
from mcp_django.console.rule_report import SeenRule, check_rules, wrong_with
from mcp_django.exposures.declared_approvals import Approval
from mcp_django.models import ApprovalRule
from tests.factories import make_superuser, make_user
from tests.testapp.models import Book

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]


def make_rule(name: str = "Refunds", **values: Any) -> ApprovalRule:
    values.setdefault("permission", "testapp.publish_book")
    return ApprovalRule.objects.create(name=name, **values)


def results() -> list[tuple[str, str, str]]:
    return [(item.title, item.verdict, item.seen) for item in check_rules([site])]


def test_without_rules_there_is_nothing_to_say() -> None:
    assert results() == []


def test_rules_that_are_well_are_told_in_a_line() -> None:
    make_superuser()
    make_rule(labels=["testapp.book"], condition={"pages__gt": 100})
    assert results() == [("Approval rules", "ok", "Of each, somebody can decide, and what it names is there.")]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"labels": ["testapp.gone"]}, "There is no model testapp.gone."),
        ({"tools": ["run_acton"]}, "There is no tool run_acton. Did you mean run_action?"),
        ({"tools": ["delete_record"]}, "No rule is about the tool delete_record"),
        ({"actions": ["testapp.book.gone"]}, "There is no action testapp.book.gone."),
        ({"kinds": ["fly"]}, "There is no kind fly."),
        ({"labels": ["testapp.book"], "condition": {"renamed": 1}}, "The condition does not fit testapp.book"),
        ({"permission": "testapp.gone"}, "There is no permission testapp.gone."),
        ({"permission": ""}, "Name the permission or the group of those who decide."),
        ({"labels": "text"}, "This cannot be read, so the rule is open for all."),
        ({"condition": "text"}, "This cannot be read, so the rule is open for all."),
    ],
)
def test_what_a_rule_names_and_is_not_there_is_told(values: dict[str, Any], text: str) -> None:
    make_superuser()
    make_rule(**values)
    [(title, verdict, seen)] = results()
    assert (title, verdict) == ("Approval rule Refunds", "warning")
    assert seen.startswith(text)


def test_rules_that_nobody_can_decide_are_told() -> None:
    nobody = "Nobody can decide: no active staff member has the permission or is in the group."
    rule = make_rule()
    assert [seen for _, _, seen in results()] == [nobody]
    ada = make_user("ada", "testapp.publish_book")
    assert [verdict for _, verdict, _ in results()] == ["ok"]
    ada.is_active = False
    ada.save()
    assert [seen for _, _, seen in results()] == [nobody]
    # Superusers have every permission, and are in no group by that.
    make_superuser()
    assert [verdict for _, verdict, _ in results()] == ["ok"]
    group = Group.objects.create(name="Managers")
    rule.permission, rule.group = "", group
    rule.save()
    assert [seen for _, _, seen in results()] == [nobody]
    make_user("ben").groups.add(group)
    assert [verdict for _, verdict, _ in results()] == ["ok"]
    rule.group, rule.effect = None, "block"
    rule.save()
    assert [verdict for _, verdict, _ in results()] == ["ok"]


def test_rules_that_are_off_are_not_looked_at() -> None:
    make_rule(labels=["testapp.gone"], is_active=False)
    assert results() == []


def test_declared_rules_are_looked_at(monkeypatch: Any) -> None:
    exposure = site.exposures[Book]
    monkeypatch.setattr(exposure, "approval", Approval(group="Managers", name="Large"))
    found = [item for item in results() if item[0] == "Approval rule Large"]
    assert "There is no group Managers." in {seen for _, _, seen in found}


def test_the_doctor_tells_it() -> None:
    make_rule(labels=["shop.nothing"])
    assert "There is no model shop.nothing." in {item.seen for item in ProjectChecks().parts()}


def test_a_rule_is_told_in_words() -> None:
    rule = Rule(
        name="x",
        labels=frozenset(["testapp.book"]),
        kinds=frozenset(["delete", "update"]),
        rows_above=1,
        permission="testapp.publish_book",
    )
    seen = SeenRule.of(rule)
    assert (seen.effect, seen.deciders) == ("require approval", "testapp.publish_book")
    assert seen.what == "testapp.book; change rows, delete rows; above 1 row"
    assert SeenRule.of(Rule(name="x", blocks=True)).deciders == "nobody"
    assert SeenRule.of(Rule(name="x")).what == "everything"
    assert list(wrong_with(Rule(name="x", blocks=True), RuleNames([site]))) == []


# manage.py mcp_inspect


def inspected(*arguments: str) -> str:
    out = StringIO()
    call_command("mcp_inspect", "--user", "ada", *arguments, stdout=out, no_color=True)
    return out.getvalue()


def test_inspect_tells_which_rules_apply_to_a_user() -> None:
    ada = make_user("ada", "testapp.view_book")
    ben = make_user("ben")
    make_rule("For all", labels=["testapp.book"], condition={"pages__gt": 100})
    make_rule("For Ada", labels=["testapp.author"], effect="block", permission="").users.add(ada)
    make_rule("For Ben").users.add(ben)
    text = inspected()
    assert "Approval rules: 2" in text
    assert (
        '  For all (require approval): testapp.book; {"pages__gt": 100}; decided by testapp.publish_book\n'
        "    - Nobody can decide" in text
    )
    assert "  For Ada (block): testapp.author\n" in text
    assert "For Ben" not in text
    assert "Approval rules: 1" in inspected("--model", "testapp.book")
    assert '"name": "For all"' in inspected("--json")


def test_inspect_says_nothing_of_rules_where_there_are_none() -> None:
    make_user("ada", "testapp.view_book")
    assert "Approval rules" not in inspected()
