"""Approval rules as they are applied."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.db import DatabaseError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

import mcp_django.approvals.rules
from mcp_django.approvals.rules import Rule, RuleBook, rules_in_force
from mcp_django.context.call_record import CallRecord
from mcp_django.exposures.declared_approvals import Approval
from mcp_django.models import ApprovalRule, ServiceAccount
from mcp_django.operating import shared_snapshots
from mcp_django.operating.shared_snapshots import POLL
from tests.factories import make_superuser, make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def clock(monkeypatch: Any) -> Any:
    """A monotonic clock that stands still."""

    class Clock:
        now = 1_000.0

    monkeypatch.setattr(shared_snapshots.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.fixture
def book(clock: Any, monkeypatch: Any) -> RuleBook:
    """The snapshot of a process that has just begun."""
    made = RuleBook()
    monkeypatch.setattr(mcp_django.approvals.rules, "rule_book", made)
    return made


@contextmanager
def asked(expected: int) -> Any:
    with CaptureQueriesContext(connection) as captured:
        yield
    found = [query["sql"] for query in captured if "SAVEPOINT" not in query["sql"]]
    assert len(found) == expected, found


def make_rule(name: str = "refunds", **values: Any) -> ApprovalRule:
    values.setdefault("permission", "testapp.publish_book")
    return ApprovalRule.objects.create(name=name, **values)


def caller(user: User, client_id: str = "", kind: str = "person") -> Any:
    record = CallRecord(user=str(user.pk), kind=kind, client_id=client_id)
    return SimpleNamespace(user=user, mcp=SimpleNamespace(client_id=client_id, record=record))


# Rows of the admin


def test_a_row_becomes_a_rule() -> None:
    ada, group = make_user("ada"), Group.objects.create(name="Managers")
    account = ServiceAccount.objects.create(name="nightly", user=ada)
    row = make_rule(
        effect="block",
        labels=["testapp.Book"],
        kinds=["update"],
        tools=["refund"],
        actions=["testapp.book.withdraw"],
        condition={"pages__gt": 100},
        rows_above=5,
        clients=["codex"],
        permission="",
        group=group,
        hours=4,
    )
    row.users.add(ada)
    row.groups.add(group)
    row.service_accounts.add(account)
    rule = Rule.of_row(ApprovalRule.objects.get())
    assert (rule.key, rule.name, rule.blocks, rule.rows_above, rule.hours) == (row.pk, "refunds", True, 5, 4)
    assert (rule.labels, rule.kinds, rule.tools) == ({"testapp.book"}, {"update"}, {"refund"})
    assert (rule.actions, rule.clients) == ({"testapp.book.withdraw"}, {"codex"})
    assert rule.condition.data == {"pages__gt": 100}
    assert (rule.users, rule.groups, rule.services) == ({str(ada.pk)}, {str(group.pk)}, {account.client_id})
    assert (rule.group, rule.group_key) == ("Managers", group.pk)


@pytest.mark.parametrize("broken", ["text", 3, [1], None, {"a": 1}])
def test_what_cannot_be_read_of_a_row_leaves_the_rule_open(broken: Any) -> None:
    row = ApprovalRule(name="x", labels=broken, kinds=broken, tools=broken, actions=broken, clients=broken)
    row.condition = broken if not isinstance(broken, dict) else "text"
    rule = Rule.of_row(row, (), (), ())
    assert {rule.labels, rule.kinds, rule.tools, rule.actions, rule.clients} == {frozenset()}
    assert not rule.condition.is_on_rows
    assert rule.condition.arguments_meet(None, {})


def test_a_declaration_becomes_a_rule() -> None:
    data = Approval(when={"pages__gt": 1}, permission="testapp.publish_book", rows_above=3, hours=1, name="Large")
    rule = Rule.declared(data, "testapp.book", labels=["testapp.book"])
    assert (rule.name, rule.labels, rule.condition.data) == ("Large", {"testapp.book"}, {"pages__gt": 1})
    assert (rule.key, rule.blocks, rule.rows_above, rule.hours) == (None, False, 3, 1)
    function = Rule.declared(
        Approval(when=lambda request, arguments: True, group="Managers"), "refund", tools=["refund"]
    )
    assert (function.name, function.tools, function.group) == ("refund", {"refund"}, "Managers")
    assert function.condition.function is not None
    assert Rule.declared(Approval(group="Managers"), "x").condition.arguments_meet(None, {})


# For whom


def test_a_rule_is_for_all_or_for_those_that_it_names() -> None:
    ada, ben, group = make_user("ada"), make_user("ben"), Group.objects.create(name="Sales")
    account = ServiceAccount.objects.create(name="nightly", user=ben)
    ben.groups.add(group)
    assert Rule(name="x").concerns(caller(ada))
    assert Rule(name="x", users=frozenset([str(ada.pk)])).concerns(caller(ada))
    assert not Rule(name="x", users=frozenset([str(ada.pk)])).concerns(caller(ben))
    assert Rule(name="x", clients=frozenset(["codex"])).concerns(caller(ada, "codex"))
    assert not Rule(name="x", clients=frozenset(["codex"])).concerns(caller(ada))
    services = Rule(name="x", services=frozenset([account.client_id]))
    assert services.concerns(caller(ben, account.client_id, "service"))
    assert not services.concerns(caller(ben, account.client_id))
    sales = Rule(name="x", groups=frozenset([str(group.pk)]))
    request = caller(ben)
    with asked(1):
        assert sales.concerns(request)
        assert sales.concerns(request)
    assert not sales.concerns(caller(ada))


# Who decides


def test_who_decides_is_told_in_words() -> None:
    assert Rule(name="x", permission="testapp.publish_book").deciders == "somebody with 'Can publish books'"
    assert Rule(name="x", permission="testapp.gone").deciders == "somebody with 'testapp.gone'"
    assert Rule(name="x", group="Managers").deciders == "somebody in the group 'Managers'"
    assert Rule(name="x").deciders == "nobody"


def test_deciders_have_the_permission_or_are_in_the_group() -> None:
    ada, ben, group = make_user("ada", "testapp.publish_book"), make_user("ben"), Group.objects.create(name="Managers")
    ben.groups.add(group)
    by_permission = Rule(name="x", permission="testapp.publish_book")
    assert [by_permission.may_decide(user) for user in (ada, ben, make_superuser())] == [True, False, True]
    for rule in (Rule(name="x", group="Managers", group_key=group.pk), Rule(name="x", group="Managers")):
        assert [rule.may_decide(user) for user in (ada, ben)] == [False, True]
    assert not Rule(name="x", group="Gone", group_key=0).may_decide(ben)
    assert not Rule(name="x").may_decide(make_superuser("other"))
    ada.is_active = ben.is_active = False
    assert not by_permission.may_decide(ada)
    assert not Rule(name="x", group="Managers").may_decide(ben)


# The snapshot


def names() -> list[str]:
    return [rule.name for rule in rules_in_force()]


def test_rules_are_read_once_and_again_after_three_seconds(book: RuleBook, clock: Any) -> None:
    with asked(1):
        assert names() == []
    with asked(0):
        assert names() == []
    ApprovalRule.objects.bulk_create([ApprovalRule(name="one", group=None)])
    clock.now += POLL
    # One query for the rules, and one for each of the three sets.
    with asked(4):
        assert names() == ["one"]


def test_only_active_rules_apply(book: RuleBook) -> None:
    make_rule("off", is_active=False)
    make_rule("on")
    assert names() == ["on"]


def test_the_sets_of_a_rule_are_those_of_its_row(book: RuleBook) -> None:
    ada = make_user("ada")
    account = ServiceAccount.objects.create(name="nightly", user=ada)
    make_rule("one").users.add(ada)
    make_rule("two").service_accounts.add(account)
    one, two = rules_in_force()
    assert (one.users, one.services) == ({str(ada.pk)}, frozenset())
    assert (two.users, two.services) == (frozenset(), {account.client_id})


@pytest.mark.parametrize("change", ["save", "delete", "add", "remove"])
def test_every_change_is_told(change: str, book: RuleBook, django_capture_on_commit_callbacks: Any, clock: Any) -> None:
    row, ada = make_rule(), make_user("ada")
    row.users.add(ada)
    assert names() == ["refunds"]
    before = cache.get(RuleBook.mark)
    with django_capture_on_commit_callbacks(execute=True):
        if change == "save":
            row.save()
        elif change == "delete":
            row.delete()
        elif change == "add":
            row.groups.add(Group.objects.create(name="Sales"))
        else:
            row.users.remove(ada)
    assert cache.get(RuleBook.mark) != before
    # This process knows at once.
    assert names() == ([] if change == "delete" else ["refunds"])


def test_the_mark_of_another_process_is_seen_within_a_second(book: RuleBook, clock: Any) -> None:
    assert names() == []
    ApprovalRule.objects.bulk_create([ApprovalRule(name="one")])
    cache.set(RuleBook.mark, "another")
    clock.now += RuleBook.LOOK
    assert names() == ["one"]


def test_errors_of_the_database_keep_the_last_rules(book: RuleBook, clock: Any, monkeypatch: Any, caplog: Any) -> None:
    make_rule()
    assert names() == ["refunds"]

    def fail(book: RuleBook) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(RuleBook, "_read", fail)
    for _ in range(3):
        clock.now += POLL
        assert names() == ["refunds"]
    assert caplog.text.count("The approval rules cannot be read: OperationalError") == 1


def test_without_the_table_no_rule_applies_and_that_is_logged_once(
    book: RuleBook, clock: Any, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(ApprovalRule._meta, "db_table", "mcp_django_not_migrated")
    for _ in range(3):
        assert names() == []
        clock.now += POLL
    assert caplog.text.count("No approval rule applies: their table is missing. Run manage.py migrate.") == 1


def test_rules_that_were_never_read_stop_the_call(book: RuleBook, clock: Any, monkeypatch: Any) -> None:
    def fail(book: RuleBook) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(RuleBook, "_read", fail)
    for _ in range(2):
        with pytest.raises(DatabaseError, match="approval rules cannot be read"):
            rules_in_force()
