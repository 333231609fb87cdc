"""Approval rules, and people who decide by them."""

from typing import Any

from django.contrib.auth.models import Permission
from django.test import RequestFactory

from mcp_django import site
from mcp_django.approvals.rules import rule_book
from mcp_django.differences.kept_changes import KeptChange
from mcp_django.models import ApprovalRule, Change
from mcp_django.server.kept_calls import KeptCallExecutor
from mcp_django.testing import MCPClient, ToolCall
from tests.factories import make_user
from tests.testapp.models import Book

DECIDES = "testapp.change_author"
BOOK = {"model": "testapp.book"}
AUTHOR = {"model": "testapp.author"}
ON_BOOKS: dict[str, Any] = {"labels": ["testapp.book"]}
DEAR = {"price__gt": 100}


def make_rule(name: str = "Big books", **values: Any) -> ApprovalRule:
    """Make a rule in force at once, by which those decide who may change authors."""
    many = {key: values.pop(key) for key in ("users", "groups", "service_accounts") if key in values}
    if values.get("effect") != ApprovalRule.Effect.BLOCK and "group" not in values:
        values.setdefault("permission", DECIDES)
    rule = ApprovalRule.objects.create(name=name, **values)
    for key, found in many.items():
        getattr(rule, key).set(found)
    rule_book.expire()
    return rule


def make_manager(username: str = "manager") -> Any:
    """Make a user who may decide by the rules of :func:`make_rule`, and view all."""
    manager = make_user(username, DECIDES)
    manager.user_permissions.add(
        *Permission.objects.filter(content_type__app_label="testapp", codename__startswith="view_")
    )
    return manager


def approve(manager: Any, number: int, at: Any = site) -> Change:
    """Say yes as a manager to a call at a site, and return the change as it is then."""
    change = Change.objects.get(pk=number)
    request = RequestFactory().post("/admin/")
    request.user = manager
    KeptCallExecutor(KeptChange(change), at, request, manager.get_username(), approver=manager).run()
    change.refresh_from_db()
    return change


def waits(call: ToolCall) -> int:
    """Return the number of the request that a call waits with."""
    assert call.is_error is False, call.text
    assert call.structured is not None
    assert call.structured.get("state") == "waiting", call.text
    return int(call.structured["change"])


def is_done(call: ToolCall) -> bool:
    """Return whether a call was made at once; it must not have failed."""
    assert call.is_error is False, call.text
    return "state" not in (call.structured or {})


def rename(caller: MCPClient, book: Book, title: str = "New", **more: Any) -> ToolCall:
    """Give a book another title, by the tool that does it."""
    return caller.call("update_record", **BOOK, pk=book.pk, values={"title": title}, **more)
