"""System checks of declared approvals."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure, action
from mcp_django.approvals.conditions import RuleCondition
from mcp_django.checks.approvals import check_approvals, check_deciders
from mcp_django.checks.settings import CHECKS
from mcp_django.exposures.declared_approvals import Approval
from tests.testapp.models import Book

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]

DECIDES = {"permission": "testapp.publish_book"}


@pytest.fixture
def declare(monkeypatch: Any) -> Any:
    """Declare approvals of an exposure, an action and a tool of the only site."""

    def register(exposure: Any = None, of_action: Any = None, of_tool: Any = None) -> None:
        @action
        def withdraw(self: Any, request: Any, queryset: Any, *, amount: int) -> None: ...

        def refund(request: Any, amount: int) -> str:
            """Refund."""
            return ""

        withdraw.mcp_approval = of_action  # type: ignore[attr-defined]
        options = {"fields": ["title", "pages"], "actions": ["withdraw"], "withdraw": withdraw, "approval": exposure}
        site = MCPSite()
        site.register(Book, type("Books", (ModelExposure,), options))
        site.add_tool(refund)
        [tool] = site.function_tools()
        tool.approval = of_tool
        monkeypatch.setattr("mcp_django.checks.approvals.all_sites", lambda: [site])

    return register


def found(messages: Any) -> list[str]:
    return [f"{message.id} {message.msg} {message.hint}" for message in messages]


def test_approvals_that_fit_pass_without_a_query(declare: Any) -> None:
    declare(
        [Approval(when={"pages__gt": 100}, **DECIDES), Approval(when={"after": {"status": "withdrawn"}}, group="x")],
        Approval(when={"arguments": {"amount__gt": 100}, "before": {"pages": 1}}, **DECIDES),
        Approval(when=lambda request, arguments: True, **DECIDES),
    )
    with CaptureQueriesContext(connection) as captured:
        assert found(check_approvals()) == []
    assert len(captured) == 0
    assert check_approvals.__name__ in {getattr(check, "__name__", "") for check in CHECKS}


@pytest.mark.parametrize("value", ["shop.approve", {"when": {}}, [{"when": {}}], [Approval(**DECIDES), 3]])
def test_what_is_no_approval_is_found(value: Any, declare: Any) -> None:
    declare(value)
    [text] = found(check_approvals())
    assert text.startswith("mcp_django.E173 approval of Books has ")


@pytest.mark.parametrize(
    ("place", "when", "text"),
    [
        ("exposure", {"page__gt": 100}, "approval of Books: The condition does not fit testapp.book"),
        ("of_action", {"renamed": 1}, "approval of Books.withdraw: The condition does not fit testapp.book"),
        ("of_action", {"arguments": {"amout": 1}}, "no argument 'amout'. Did you mean 'amount'"),
        ("of_tool", {"arguments": {"amout": 1}}, "approval of refund: There is no argument 'amout'."),
        ("of_tool", {"pages": 1}, "Name the models"),
    ],
)
def test_conditions_that_do_not_fit_are_found(place: str, when: Any, text: str, declare: Any) -> None:
    declare(**{place: Approval(when=when, **DECIDES)})
    [message] = found(check_approvals())
    assert message.startswith("mcp_django.E173")
    assert text in message


def test_a_misspelt_permission_is_found(declare: Any) -> None:
    declare(Approval(permission="testapp.publish_bok"))
    [message] = found(check_approvals())
    assert "'testapp.publish_bok'" in message
    assert "Did you mean 'testapp.publish_book'?" in message


def test_a_database_that_does_not_answer_stops_no_check(declare: Any, monkeypatch: Any) -> None:
    def fail(*args: Any) -> None:
        raise DatabaseError

    declare(Approval(when={"author": "Ada Lovelace"}, **DECIDES))
    monkeypatch.setattr(RuleCondition, "read", fail)
    assert found(check_approvals()) == []


def test_deciders_that_are_not_in_the_database_are_found(declare: Any, monkeypatch: Any) -> None:
    declare(Approval(group="Managers"), Approval(permission="testapp.sign_off"), Approval(**DECIDES))
    messages = found(check_deciders("default"))
    assert len(messages) == 2
    assert all(text.startswith("mcp_django.E174") for text in messages)
    assert "'Managers'" in messages[0]
    assert "'testapp.sign_off'" in messages[1]
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])
    assert found(check_deciders("default")) == []
    monkeypatch.undo()


def test_deciders_that_are_in_the_database_pass(declare: Any) -> None:
    Group.objects.create(name="Managers")
    kind = ContentType.objects.get_for_model(Book)
    Permission.objects.create(codename="sign_off", name="Can sign off", content_type=kind)
    declare(Approval(group="Managers"), Approval(permission="testapp.sign_off"), Approval(**DECIDES))
    assert found(check_deciders("default")) == []
