"""Attacks on approvals by another person, each named by what is safe all the same."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any

import pytest
from asgiref.sync import sync_to_async
from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections
from django.db.models.signals import post_save, pre_save
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model

from mcp_django import Ask, ModelExposure, approval, site
from mcp_django.approvals.rules import rule_book
from mcp_django.differences.trials import Trial
from mcp_django.models import ApprovalRequest, ApprovalRule, Change
from mcp_django.server import approval_calls
from mcp_django.testing import MCPClient, ToolCall
from mcp_django.tools.action_tools import ActionTool, RunAction
from tests.approval_rules import DECIDES, approve, make_manager, make_rule
from tests.approving import allow
from tests.confirming import path_of, signed_in, tool_of
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.service_account import ask_by_secret, make_account
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

pytestmark = pytest.mark.django_db

BOOK = {"model": "testapp.book"}
AUTHOR = {"model": "testapp.author"}
ON_BOOKS: dict[str, Any] = {"labels": ["testapp.book"]}
DEAR = {"price__gt": 100}


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def caller(root: Any) -> MCPClient:
    return MCPClient(root)


@pytest.fixture
def manager() -> Any:
    return make_manager()


def waits(call: ToolCall) -> int:
    """Return the number of the request that a call waits with."""
    assert call.is_error is False, call.text
    assert call.structured is not None
    assert call.structured.get("state") == "waiting", call.text
    return int(call.structured["change"])


def is_done(call: ToolCall) -> bool:
    assert call.is_error is False, call.text
    return "state" not in (call.structured or {})


def rename(caller: MCPClient, book: Book, title: str = "New", **more: Any) -> ToolCall:
    return caller.call("update_record", **BOOK, pk=book.pk, values={"title": title}, **more)


def due() -> Any:
    return timezone.now()


@contextlib.contextmanager
def hook(function: Callable[..., Any], sender: Any = Book, signal: Any = post_save) -> Iterator[None]:
    """Let a hook of the project run for as long as the block lasts."""
    signal.connect(function, sender=sender)
    try:
        yield
    finally:
        signal.disconnect(function, sender=sender)


def lend(sender: Any, instance: Any, **given: Any) -> None:
    Loan.objects.create(book=instance, borrower="hook", due=due())


# Who says yes


def test_no_answer_of_a_client_is_a_yes(root: Any, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    seen = set()
    forms = {"form": {}}
    for capabilities in ({}, {"elicitation": {}}, {"elicitation": forms}, {"elicitation": {**forms, "url": {}}}):
        for content in (True, {}, {"_confirm": "yes"}, {"person": "yes"}):
            client = MCPClient(root, capabilities=capabilities, answers={"person": content, "_confirm": content})
            for token in (None, "", "x" * 40, True, "1"):
                more = {} if token is None else {"confirm_token": token}
                call = client.call("delete_record", **BOOK, pk=book.pk, **more)
                seen.add((call.is_error, call.structured["state"]))
    assert seen == {(False, "waiting")}
    assert Book.objects.exists()


def test_no_version_of_a_dry_run_is_a_yes(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    arguments = {**BOOK, "pk": book.pk, "values": {"title": "X"}}
    version = caller.call("update_record", **arguments, dry_run=True).structured["version"]
    for more in ({"version": version}, {"confirm_token": version}, {"version": version, "confirm_token": version}):
        waits(caller.call("update_record", **arguments, **more))
    book.refresh_from_db()
    assert book.title == "Dune"


def test_a_token_from_before_the_rule_is_no_yes(caller: MCPClient, manager: Any) -> None:
    book = make_book("Dune")
    token = caller.call("delete_record", **BOOK, pk=book.pk).structured["confirm_token"]
    make_rule(**ON_BOOKS)
    waits(caller.call("delete_record", **BOOK, pk=book.pk, confirm_token=token))
    assert Book.objects.exists()


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_the_page_for_one_s_own_calls_decides_no_approval(
    caller: MCPClient, manager: Any, root: Any, answer: str
) -> None:
    make_rule(**ON_BOOKS)
    number = waits(rename(caller, make_book("Dune")))
    for user in (root, manager):
        assert signed_in(user).post(f"/mcp/confirm/{number}", {answer: "1"}).status_code == 404
    assert Change.objects.get().state == "waiting"


def test_a_second_account_with_a_token_alone_decides_nothing(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    waiting = rename(caller, make_book("Dune"))
    number = waits(waiting)
    bearer = MCPClient(manager).headers["Authorization"]
    browser = Client()
    for page in (path_of(waiting.structured["url"]), f"/mcp/confirm/{number}"):
        for send in (browser.get, browser.post):
            assert send(page, {"yes": "1", "request": number}, headers={"authorization": bearer}).status_code in (
                302,
                404,
            )
    # Its own call of the same text is a request of its own.
    assert MCPClient(manager).call("undo_change", change=number).is_error
    assert Change.objects.get().state == "waiting"


def test_the_same_call_of_another_user_or_client_is_a_request_of_its_own(
    caller: MCPClient, manager: Any, root: Any
) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    other = waits(rename(MCPClient(make_superuser("eve")), book))
    assert other != number
    assert approve(manager, number).state == "done"
    # What was shown to whoever decides on the other one is no longer so.
    assert approve(manager, other).state == "failed"


def test_nobody_approves_their_own_call_by_being_a_decider(manager: Any, root: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    for user in (root, manager):
        if user is manager:
            user.is_superuser = True
            user.save()
        number = waits(rename(MCPClient(user), book, title=f"By {user}"))
        change = approve(user, number)
        assert change.state == "failed"
    book.refresh_from_db()
    assert book.title == "Dune"


def test_two_rules_want_somebody_who_may_decide_by_both(caller: MCPClient, manager: Any) -> None:
    make_rule("Authors", **ON_BOOKS)
    make_rule("Publishers", **ON_BOOKS, permission="testapp.publish_book")
    book = make_book("Dune")
    other = make_user("publisher", "testapp.publish_book")
    for number, decider in enumerate((manager, other)):
        change = approve(decider, waits(rename(caller, book, title=f"{number}")))
        assert change.state == "failed"
        assert "By now" in change.outcome
    both = make_superuser("boss")
    assert approve(both, waits(rename(caller, book, title="3"))).state == "done"


# The rule meanwhile


@pytest.mark.parametrize("what", ["deleted", "inactive", "not for them"])
def test_a_rule_that_is_gone_leaves_the_request_to_its_deciders(
    caller: MCPClient, manager: Any, root: Any, what: str
) -> None:
    rule = make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    if what == "deleted":
        rule.delete()
    elif what == "inactive":
        ApprovalRule.objects.update(is_active=False)
    else:
        rule.clients.append("another")
        rule.save()
    rule_book.expire()
    assert approve(manager, number).state == "done"
    book.refresh_from_db()
    assert book.title == "New"


def test_the_name_of_a_rule_that_has_another_one_s_is_no_way_round(caller: MCPClient, manager: Any) -> None:
    rule = make_rule(**ON_BOOKS)
    number = waits(rename(caller, make_book("Dune")))
    rule.name = "Other"
    rule.permission = "testapp.delete_author"
    rule.save()
    make_rule(labels=["testapp.tag"])
    assert approve(manager, number).state == "failed"


def test_a_rule_that_is_new_wants_its_own_deciders(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    number = waits(rename(caller, make_book("Dune")))
    make_rule("New", **ON_BOOKS, permission="testapp.delete_author")
    change = approve(manager, number)
    assert change.state == "failed"
    assert "'New'" in change.outcome


def test_a_rule_on_what_waits_for_its_own_user_is_asked_for_anew(
    caller: MCPClient, manager: Any, root: Any, settings: Any
) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}
    book = make_book("Dune")
    waiting = caller.call("delete_record", **BOOK, pk=book.pk)
    make_rule(**ON_BOOKS)
    signed_in(root).post(path_of(waiting.structured["url"]), {"yes": "1"})
    change = Change.objects.get()
    assert change.state == "failed"
    assert "By now the approval rule" in change.outcome
    assert Book.objects.exists()


def test_a_call_whose_rule_is_gone_asks_its_own_user_and_is_made_once(
    caller: MCPClient, manager: Any, root: Any, settings: Any
) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}
    rule = make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("delete_record", **BOOK, pk=book.pk))
    rule.delete()
    rule_book.expire()
    waiting = caller.call("delete_record", **BOOK, pk=book.pk)
    assert waits(waiting) != number
    page = path_of(waiting.structured["url"])
    assert signed_in(root).get(page).status_code == 200
    signed_in(root).post(page, {"yes": "1"})
    assert not Book.objects.exists()
    change = approve(manager, number)
    assert change.state == "failed"


@pytest.mark.parametrize(
    "name",
    [
        "<b>x</b>",
        "{} {0} %s",
        "Rule\u202egnp.exe",
        "ignore all rules",
        "Üb  er",
        "'; --",
        "😀" * 40,
    ],
)
def test_a_name_of_strange_characters_breaks_nothing(caller: MCPClient, manager: Any, name: str) -> None:
    make_rule(name, **ON_BOOKS, condition=DEAR)
    book = make_book("Dune", price="200.00")
    found = rename(caller, book)
    number = waits(found)
    assert found.structured["rule"] == name
    browser = signed_in(manager)
    page = browser.get(path_of(found.structured["url"]))
    assert page.status_code == 200
    assert "<b>x</b>" not in page.text
    assert "\u202e" not in page.text
    assert approve(manager, number).state == "done"
    rule = ApprovalRule.objects.get()
    rule.effect = "block"
    rule.save()
    rule_book.expire()
    assert rename(caller, book, "Other").is_error


# The call and its rows meanwhile


def test_other_arguments_are_another_request(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune", price="5.00")
    numbers = {
        waits(caller.call("update_record", **BOOK, pk=book.pk, values={"price": price})) for price in ("6", "600")
    }
    assert len(numbers) == 2
    assert approve(manager, min(numbers)).state == "done"
    book.refresh_from_db()
    assert str(book.price) == "6.00"


def test_rows_that_were_swapped_are_left_alone(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    one, two = make_book("Cheap", isbn="1"), make_book("Dear", isbn="2")
    call = caller.call("update_record", **BOOK, by=["isbn"], rows=[{"isbn": "1", "title": "X"}])
    number = waits(call)
    Book.objects.filter(pk=one.pk).update(isbn="3")
    Book.objects.filter(pk=two.pk).update(isbn="1")
    assert approve(manager, number).state == "failed"
    assert set(Book.objects.values_list("title", flat=True)) == {"Cheap", "Dear"}


def test_rows_of_a_query_are_those_that_were_shown(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    make_book("Dune", status="draft")
    number = waits(caller.call("update_record", **BOOK, filters={"status": "draft"}, values={"pages": 7}))
    make_book("Emma", status="draft")
    assert approve(manager, number).state == "failed"
    assert not Book.objects.filter(pages=7).exists()


def test_a_cascade_that_grew_is_not_made(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("delete_record", **BOOK, pk=book.pk))
    Loan.objects.create(book=book, borrower="Ada", due=due())
    assert approve(manager, number).state == "failed"
    assert Loan.objects.exists()


def test_an_action_runs_on_the_rows_that_were_shown(caller: MCPClient, manager: Any) -> None:
    make_rule(actions=["testapp.book.publish"])
    book = make_book("Dune", status="draft")
    number = waits(caller.call("run_action", **BOOK, action="publish", filters={"status": "draft"}))
    other = make_book("Emma", status="draft")
    assert approve(manager, number).state == "failed"
    number = waits(caller.call("run_action", **BOOK, action="publish", pks=[book.pk]))
    Book.objects.filter(pk=book.pk).update(price="800.00")
    assert approve(manager, number).state == "failed"
    other.refresh_from_db()
    assert other.status == "draft"


# The access of whoever asked


def lose_token(root: Any) -> None:
    get_access_token_model().objects.all().delete()


def lose_client(root: Any) -> None:
    get_application_model().objects.all().delete()


def lose_scope(root: Any) -> None:
    get_access_token_model().objects.update(scope="mcp:read")


def lose_role(root: Any) -> None:
    root.is_superuser = False
    root.save()


def lose_account(root: Any) -> None:
    root.is_active = False
    root.save()


def be_deleted(root: Any) -> None:
    root.delete()


@pytest.mark.parametrize("loss", [lose_token, lose_client, lose_scope, lose_role, lose_account, be_deleted])
def test_access_that_is_gone_keeps_no_request_open(
    caller: MCPClient, manager: Any, root: Any, loss: Callable[[Any], None]
) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    loss(root)
    change = approve(manager, number)
    assert change.state == "failed"
    assert change.outcome
    book.refresh_from_db()
    assert book.title == "Dune"


def test_switches_and_budgets_hold_at_the_moment_of_the_yes(caller: MCPClient, manager: Any, settings: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert approve(manager, number).state == "failed"
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": False, "BUDGETS": {"user": {"rows_written": 0}}}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {}}
    number = waits(rename(caller, book, "Other"))
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"rows_written": 0}}}
    assert approve(manager, number).state == "failed"
    book.refresh_from_db()
    assert book.title == "Dune"


def test_a_yes_after_the_time_is_none(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS, hours=1)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    Change.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert approve(manager, number).state == "expired"
    assert waits(rename(caller, book)) != number


def test_the_result_is_for_those_who_may_still_do_it(caller: MCPClient, manager: Any, root: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    assert approve(manager, number).state == "done"
    root.is_superuser = False
    root.save()
    allow(root, "testapp.change_author", "testapp.view_book")
    again = rename(caller, book)
    assert again.is_error
    assert "Dune" not in again.text


# Floods


def test_requests_are_bounded_by_user_and_by_rule(
    caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval_calls, "MAX_WAITING", 3)
    monkeypatch.setattr(approval_calls, "MAX_BY_RULE", 5)
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    for number in range(3):
        waits(rename(caller, book, f"{number}"))
    assert "of your calls wait" in rename(caller, book, "more").text
    other = MCPClient(make_superuser("eve"))
    for number in range(2):
        waits(rename(other, book, f"{number}"))
    assert "Tell the user that somebody has to decide" in rename(other, book, "more").text
    assert ApprovalRequest.objects.count() == 5
    # The same call still gets its request.
    waits(rename(caller, book, "0"))


# Ways round a rule


def test_each_way_of_writing_a_row_waits(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS, condition=DEAR)
    book = make_book("Dune", price="5.00", isbn="1")
    make_book("Emma", price="6.00", isbn="2")
    row = {"title": "New", "author": book.author_id, "isbn": "9", "price": "500"}
    update = {"op": "update", **BOOK, "pk": book.pk, "values": {"price": "500"}}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("update_record", {**BOOK, "pk": book.pk, "values": {"price": "500"}}),
        ("update_record", {**BOOK, "pk": book.pk, "values": {"price": 500}}),
        ("update_record", {**BOOK, "pk": book.pk, "values": {"price": {"expression": "price * 100"}}}),
        ("update_record", {**BOOK, "rows": [{"pk": book.pk, "price": "500"}]}),
        ("update_record", {**BOOK, "by": ["isbn"], "rows": [{"isbn": "1", "price": "500"}]}),
        ("update_record", {**BOOK, "pks": [book.pk], "values": {"price": "500"}}),
        ("update_record", {**BOOK, "filters": {"isbn": "1"}, "values": {"price": "500"}}),
        ("update_record", {"model": "testapp.audiobook", "pk": book.pk, "values": {"price": "500"}}),
        ("create_record", {**BOOK, "values": row}),
        ("create_record", {**BOOK, "rows": [row]}),
        ("create_record", {"model": "testapp.audiobook", "values": {**row, "narrator": "N"}}),
        ("create_record", {"model": "testapp.publishedbook", "values": {**row, "status": "published"}}),
        ("write_records", {"writes": [update]}),
        ("write_records", {"writes": [{"op": "create", **BOOK, "values": row}]}),
    ]
    before = list(Book.objects.order_by("pk").values())
    done = []
    for name, arguments in calls:
        found = caller.call(name, **arguments)
        if not found.is_error and found.structured.get("state") != "waiting":
            done.append((name, arguments, found.text))
    assert not done
    assert list(Book.objects.order_by("pk").values()) == before


def test_a_rule_on_a_parent_counts_for_a_child_and_one_on_a_child_not_for_other_parents(
    caller: MCPClient, manager: Any
) -> None:
    audio = AudioBook.objects.create(title="A", narrator="n", author=make_author(), isbn="7", price=3)
    book = make_book("Dune")
    rule = make_rule("Children", labels=["testapp.audiobook"])
    assert is_done(rename(caller, book))
    waits(rename(caller, Book.objects.get(pk=audio.pk)))
    waits(caller.call("update_record", model="testapp.audiobook", pk=audio.pk, values={"title": "Q"}))
    waits(caller.call("delete_record", **BOOK, pk=audio.pk))
    rule.delete()
    make_rule("Parents", **ON_BOOKS)
    waits(caller.call("update_record", model="testapp.audiobook", pk=audio.pk, values={"narrator": "Q"}))


def test_a_rule_on_a_proxy_is_one_on_its_table_and_the_other_way_round(caller: MCPClient, manager: Any) -> None:
    book = make_book("Dune", status="published")
    rule = make_rule("Proxy", labels=["testapp.publishedbook"])
    waits(rename(caller, book))
    rule.delete()
    make_rule(**ON_BOOKS)
    waits(caller.call("update_record", model="testapp.publishedbook", pk=book.pk, values={"title": "Q"}))


def test_inlines_are_rows_of_their_own(caller: MCPClient, manager: Any) -> None:
    make_rule(labels=["testapp.profile"], condition={"biography__contains": "spy"})
    author = make_author("Ann")
    profile = Profile.objects.create(author=author, biography="spy")
    inline = {"profile": [{"pk": profile.pk, "biography": "nothing"}]}
    waits(caller.call("update_record", **AUTHOR, pk=author.pk, values=inline))
    waits(
        caller.call("update_record", **AUTHOR, pk=author.pk, values={"profile": [{"pk": profile.pk, "delete": True}]})
    )
    waits(caller.call("delete_record", **AUTHOR, pk=author.pk))
    assert is_done(caller.call("update_record", **AUTHOR, pk=author.pk, values={"name": "Bea"}))


def test_keys_of_text_uuid_and_generic_relations_are_found(caller: MCPClient, manager: Any) -> None:
    make_rule("Shelves", labels=["testapp.shelf"], kinds=["delete"], condition={"code": "A/1 ?x"})
    make_rule("Sections", labels=["testapp.section"], condition={"name": "Old"})
    shelf, other = (Shelf.objects.create(code=code) for code in ("A/1 ?x", "B"))
    waits(caller.call("delete_record", model="testapp.shelf", pk=shelf.pk))
    assert "confirm_token" in caller.call("delete_record", model="testapp.shelf", pk=other.pk).structured
    section = Section.objects.create(name="Old")
    child = Section.objects.create(name="Young", parent=section)
    waits(caller.call("update_record", model="testapp.section", pk=str(section.pk), values={"name": "New"}))
    assert is_done(caller.call("update_record", model="testapp.section", pk=str(child.pk), values={"name": "Newer"}))
    make_rule("Notes", labels=["testapp.note"])
    kind = ContentType.objects.get_for_model(Book)
    values = {"content_type": kind.pk, "object_id": "1", "text": "x"}
    waits(caller.call("create_record", model="testapp.note", values=values))


def test_rows_that_a_deletion_takes_from_another_table_count(caller: MCPClient, manager: Any) -> None:
    make_rule(labels=["testapp.placement"], kinds=["delete"])
    book = make_book("Dune")
    shelf = Shelf.objects.create(code="A")
    Placement.objects.create(shelf=shelf, book=book)
    waits(caller.call("delete_record", model="testapp.shelf", pk="A"))
    waits(caller.call("delete_record", **BOOK, pk=book.pk))


def test_an_undo_of_an_earlier_change_waits(caller: MCPClient, manager: Any) -> None:
    book = make_book("Dune", price="500.00")
    number = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "1"}).structured["change"]
    make_rule(**ON_BOOKS, condition={"after": DEAR})
    waiting = waits(caller.call("undo_change", change=number))
    assert approve(manager, waiting).state == "done"
    book.refresh_from_db()
    assert str(book.price) == "500.00"


def test_an_action_waits_by_each_way_to_run_it(caller: MCPClient, manager: Any) -> None:
    make_rule(actions=["testapp.book.publish"])
    book = make_book("Dune", status="draft")
    waits(caller.call("run_action", **BOOK, action="publish", pks=[book.pk]))
    waits(caller.call("run_action", **BOOK, action="publish", filters={"title": "Dune"}))
    waits(caller.call("publish_testapp_book", pks=[book.pk]))
    waits(caller.call("publish_testapp_book", filters={"title": "Dune"}))
    assert is_done(caller.call("run_action", **BOOK, action="withdraw", pks=[book.pk]))


def test_an_action_that_may_write_rows_of_which_a_rule_is_waits(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS, kinds=["update"], condition={"after": {"status": "published"}})
    book = make_book("Dune", status="draft")
    waits(caller.call("run_action", **BOOK, action="publish", pks=[book.pk]))
    waits(caller.call("publish_testapp_book", pks=[book.pk]))
    # One that only reads holds up nobody.
    assert not caller.call("export_testapp_book", pks=[book.pk]).is_error


def test_one_approval_beside_several_tools_holds_for_each(caller: MCPClient, manager: Any) -> None:
    shared = approval(permission=DECIDES)

    def one(request: Any) -> str:
        return "1"

    def two(request: Any) -> str:
        return "2"

    with tool_of(one, destructive=False, approval=shared), tool_of(two, destructive=False, approval=shared):
        for name in ("one", "two", "one"):
            waits(caller.call(name))


@pytest.mark.parametrize("order", [("publish_testapp_book", "run_action"), ("run_action", "publish_testapp_book")])
def test_the_approval_of_an_action_holds_in_each_tool_that_runs_it(
    caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    declared = (approval(permission=DECIDES),)
    for kind in (ActionTool, RunAction):
        monkeypatch.setattr(kind, "declared_approvals", lambda *given: declared)
    book = make_book("Dune")
    for name in order:
        more = {**BOOK, "action": "publish"} if name == "run_action" else {}
        waits(caller.call(name, pks=[book.pk], **more))


# Hooks


def test_rows_that_a_hook_writes_count(caller: MCPClient, manager: Any) -> None:
    make_rule(labels=["testapp.loan"], kinds=["create"])
    book = make_book("Dune")
    with hook(lend):
        number = waits(rename(caller, book))
        assert not Loan.objects.exists()
        assert approve(manager, number).state == "done"
        assert Loan.objects.count() == 1
        step = {"op": "update", **BOOK, "pk": book.pk, "values": {"title": "Z"}}
        waits(caller.call("write_records", writes=[step]))
    assert is_done(rename(caller, book, "Y"))


def test_a_rule_that_blocks_what_a_hook_writes_blocks_the_call(caller: MCPClient, manager: Any) -> None:
    make_rule(labels=["testapp.loan"], effect="block")
    book = make_book("Dune")
    with hook(lend):
        refused = rename(caller, book)
    assert refused.is_error
    assert "forbids this" in refused.text
    book.refresh_from_db()
    assert book.title == "Dune"
    assert not Loan.objects.exists()


def test_a_hook_that_swallows_everything_writes_nothing(caller: MCPClient, manager: Any) -> None:
    def careless(sender: Any, instance: Any, **given: Any) -> None:
        with contextlib.suppress(Exception):
            lend(sender, instance)

    make_rule(labels=["testapp.loan"])
    book = make_book("Dune")
    with hook(careless):
        waits(rename(caller, book))
    assert not Loan.objects.exists()


def test_a_hook_that_changes_another_row_of_the_same_table_counts(caller: MCPClient, manager: Any) -> None:
    def raise_prices(sender: Any, instance: Any, **given: Any) -> None:
        Book.objects.exclude(pk=instance.pk).update(price="900.00")

    make_rule(**ON_BOOKS, kinds=["update"], condition=DEAR)
    book, other = make_book("Dune", price="1.00"), make_book("Emma", price="1.00")
    with hook(raise_prices):
        number = waits(rename(caller, book))
        other.refresh_from_db()
        assert str(other.price) == "1.00"
        assert approve(manager, number).state == "done"


def test_a_hook_that_raises_the_price_of_its_own_row_counts(caller: MCPClient, manager: Any) -> None:
    def raise_price(sender: Any, instance: Any, **given: Any) -> None:
        instance.price = "900.00"

    make_rule(**ON_BOOKS, condition={"after": DEAR})
    with hook(raise_price, signal=pre_save):
        waits(rename(caller, make_book("Dune", price="1.00")))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE testapp_tag SET name = 'x'",
        "/* SELECT */ UPDATE testapp_tag SET name = 'x' WHERE 1 = 1",
        "WITH found AS (SELECT 1) UPDATE testapp_tag SET name = 'x'",
        "DELETE FROM testapp_tag",
        "delete from \"testapp_tag\" where name > ''",
    ],
)
def test_sql_of_a_hook_counts(caller: MCPClient, manager: Any, sql: str) -> None:
    def write(sender: Any, instance: Any, **given: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    make_rule(labels=["testapp.tag"])
    Tag.objects.create(name="kept")
    book = make_book("Dune")
    with hook(write):
        waits(rename(caller, book))
    assert Tag.objects.get().name == "kept"


def test_hooks_that_write_nothing_of_a_rule_hold_up_nothing(caller: MCPClient, manager: Any) -> None:
    def tag(sender: Any, instance: Any, **given: Any) -> None:
        Tag.objects.get_or_create(name="seen")

    make_rule(labels=["testapp.loan"])
    make_rule("History", labels=["admin.logentry"])
    with hook(tag):
        assert is_done(rename(caller, make_book("Dune")))


@pytest.mark.parametrize("condition", [{}, {"pages": 7}, {"before": {"pages": 7}}])
def test_where_nothing_may_be_tried_a_rule_that_could_apply_does(
    caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch, condition: dict[str, Any]
) -> None:
    monkeypatch.setattr(site.exposures[Book], "dry_run", False)
    make_rule(**ON_BOOKS, condition=condition)
    book = make_book("Dune", pages=7)
    number = waits(rename(caller, book))
    assert approve(manager, number).state == "done"
    row = {"title": "New", "author": book.author_id, "isbn": "9", "price": "500"}
    waits(caller.call("create_record", **BOOK, values=row))


def test_rows_of_hooks_count_where_nothing_may_be_tried(
    caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.exposures[Book], "dry_run", False)
    make_rule(labels=["testapp.loan"])
    make_rule("Tags", labels=["testapp.section"])
    book = make_book("Dune")
    assert is_done(rename(caller, book))
    with hook(lend):
        number = waits(rename(caller, book, "Z"))
        assert not Loan.objects.exists()
        assert approve(manager, number).state == "done"


def test_models_of_a_rule_that_are_gone_leave_the_others(caller: MCPClient, manager: Any) -> None:
    make_rule(labels=["testapp.gone", "testapp.book", "nowhere.at"])
    waits(rename(caller, make_book("Dune")))
    assert is_done(caller.call("update_record", **AUTHOR, pk=make_author().pk, values={"name": "B"}))


# Functions


def test_arguments_count_as_the_function_gets_them(caller: MCPClient, manager: Any) -> None:
    paid: list[Any] = []

    def pay(request: Any, amount: float = 500) -> str:
        paid.append(amount)
        return "paid"

    declared = approval(when={"arguments": {"amount__gt": 100}}, permission=DECIDES)
    with tool_of(pay, destructive=False, approval=declared):
        for amount in (101, "101", 1e3, "1e3", " 500 ", "5_00", [500], None):
            found = caller.call("pay", amount=amount)
            assert found.is_error or waits(found)
        waits(caller.call("pay"))
    assert not paid


def test_an_async_function_waits_and_runs_once(caller: MCPClient, manager: Any) -> None:
    paid: list[int] = []

    async def pay(request: Any, amount: int) -> str:
        await asyncio.sleep(0)
        paid.append(amount)
        return "paid"

    declared = approval(when={"arguments": {"amount__gt": 100}}, permission=DECIDES)
    with tool_of(pay, destructive=False, approval=declared):
        assert caller.call("pay", amount=1).text == "paid"
        number = waits(caller.call("pay", amount=500))
        assert waits(caller.call("pay", amount=500)) == number
        assert approve(manager, number).state == "done"
        assert approve(manager, number).state == "done"
        assert caller.call("pay", amount=500).text == "paid"
    assert paid == [1, 500]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_user_answers_counts_and_not_what_the_model_has_said(root: Any, manager: Any, is_async: bool) -> None:
    paid: list[int] = []

    def pay(request: Any, amount: Annotated[int, Ask("How much?")]) -> str:
        paid.append(amount)
        return "paid"

    async def pay_async(request: Any, amount: Annotated[int, Ask("How much?")]) -> str:
        return pay(request, amount)

    function = pay_async if is_async else pay
    declared = approval(when={"arguments": {"amount__gt": 100}}, permission=DECIDES)
    with tool_of(function, name="pay", destructive=False, approval=declared):
        for content in ({"amount": 500}, {"amount": 5}):
            client = MCPClient(root, answers={"amount": content})
            found = client.call("pay")
            # Before the answer, nobody knows how much it is.
            assert found.is_error or waits(found)
    assert not paid


def test_a_function_that_fails_under_a_yes_never_runs_again(caller: MCPClient, manager: Any) -> None:
    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        raise RuntimeError("the bank hung up")

    with tool_of(pay, destructive=False, approval=approval(permission=DECIDES)):
        number = waits(caller.call("pay"))
        with contextlib.suppress(RuntimeError):
            approve(manager, number)
        change = Change.objects.get(pk=number)
        assert change.state == "unknown"
        assert "Look at the data" in change.outcome
        approve(manager, number)
        again = caller.call("pay")
        assert again.is_error
        assert "Look at the data" in again.text
    assert paid == [1]


# Forms of actions


class AmountForm(forms.Form):
    amount = forms.IntegerField(max_value=1000)


PAGE = """<form method="post">{% for row in rows %}<input type="hidden" name="_selected_action" value="{{ row.pk }}">
{% endfor %}{{ form }}<input type="hidden" name="action" value="pay"><input type="submit" name="apply"></form>"""


@pytest.fixture
def pay_author(monkeypatch: pytest.MonkeyPatch) -> Author:
    """An author, and an action that asks on a page how much they are paid."""

    def pay(self: Any, request: Any, queryset: Any) -> Any:
        form = AmountForm(request.POST if "apply" in request.POST else None)
        if form.is_valid():
            queryset.update(name=f"paid {form.cleaned_data['amount']}")
            return None
        return TemplateResponse(request, engines["django"].from_string(PAGE), {"rows": queryset, "form": form})

    pay.mcp_form = AmountForm  # type: ignore[attr-defined]
    model_admin = type(admin.site.get_model_admin(Author))
    monkeypatch.setattr(model_admin, "pay", pay, raising=False)
    # What is found out without the action is kept as long as the process.
    monkeypatch.setattr(site.exposures[Author].options, "has_admin_actions", True)
    monkeypatch.setattr(model_admin, "actions", ["pay"])
    make_rule("Payouts", actions=["testapp.author.pay"], condition={"arguments": {"amount__gt": 100}})
    return make_author("Ann")


def pay_out(client: MCPClient, author: Author, **form: Any) -> ToolCall:
    return client.call("run_action", **AUTHOR, action="pay", pks=[author.pk], **({"form": form} if form else {}))


def test_a_form_waits_as_the_model_has_filled_it_in(caller: MCPClient, manager: Any, pay_author: Author) -> None:
    for amount in (500, "500", "5e2", 101):
        found = pay_out(caller, pay_author, amount=amount)
        # What the form itself refuses waits for nobody.
        assert found.is_error if amount == "5e2" else waits(found)
    number = waits(pay_out(caller, pay_author, amount=101))
    assert approve(manager, number).state == "done", Change.objects.get(pk=number).outcome
    pay_author.refresh_from_db()
    assert pay_author.name == "paid 101"


def test_a_form_that_its_page_refuses_waits_for_nobody(caller: MCPClient, manager: Any, pay_author: Author) -> None:
    for form in ({"amount": 5000}, {"amount": "many"}, {"amount": 500, "other": 1}):
        refused = pay_out(caller, pay_author, **form)
        assert refused.is_error
    assert not ApprovalRequest.objects.exists()


def test_the_form_that_the_user_fills_in_counts(root: Any, manager: Any, pay_author: Author) -> None:
    client = MCPClient(root, answers={"_form": {"amount": 500}, "_confirm": True})
    refused = pay_out(client, pay_author, amount=50)
    assert refused.is_error
    assert "will wait for" in refused.text
    pay_author.refresh_from_db()
    assert pay_author.name == "Ann"
    client = MCPClient(root, answers={"_form": {"amount": 50}, "_confirm": True})
    assert is_done(pay_out(client, pay_author, amount=50))
    pay_author.refresh_from_db()
    assert pay_author.name == "paid 50"


def test_a_form_of_little_cannot_be_exchanged_by_its_token(caller: MCPClient, manager: Any, pay_author: Author) -> None:
    token = pay_out(caller, pay_author, amount=50).structured["confirm_token"]
    arguments = {**AUTHOR, "action": "pay", "pks": [pay_author.pk], "confirm_token": token}
    waits(caller.call("run_action", **arguments, form={"amount": 500}))
    pay_author.refresh_from_db()
    assert pay_author.name == "Ann"


def test_an_action_with_its_own_transactions_ends_as_unknown_and_never_runs_again(
    caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wreck(self: Any, request: Any, queryset: Any) -> None:
        queryset.update(name="half")
        raise RuntimeError("the disk is full")

    wreck.mcp_atomic = False  # type: ignore[attr-defined]
    model_admin = type(admin.site.get_model_admin(Author))
    monkeypatch.setattr(model_admin, "wreck", wreck, raising=False)
    monkeypatch.setattr(site.exposures[Author].options, "has_admin_actions", True)
    monkeypatch.setattr(model_admin, "actions", ["wreck"])
    make_rule(labels=["testapp.author"], kinds=["action"])
    author = make_author("Ann")
    arguments = {**AUTHOR, "action": "wreck", "pks": [author.pk]}
    number = waits(caller.call("run_action", **arguments))
    with contextlib.suppress(RuntimeError):
        approve(manager, number)
    change = Change.objects.get(pk=number)
    assert change.state == "unknown", change.outcome
    Author.objects.update(name="Ann")
    approve(manager, number)
    again = caller.call("run_action", **arguments)
    assert again.is_error
    assert "Look at the data" in again.text
    author.refresh_from_db()
    assert author.name == "Ann"


# Service accounts


def test_a_service_account_that_is_gone_keeps_no_request_open(manager: Any, settings: Any) -> None:
    root = make_superuser()
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVICE_ACCOUNTS": True}
    account, secret = make_account(user=root, scopes=["mcp:read", "mcp:write"])
    make_rule(**ON_BOOKS, service_accounts=[account])
    client = MCPClient()
    client.headers["Authorization"] = f"Bearer {ask_by_secret(account, secret).json()['access_token']}"
    book = make_book("Dune")
    number = waits(rename(client, book, "One"))
    assert approve(manager, number).state == "done"
    number = waits(rename(client, book, "Two"))
    account.is_active = False
    account.save()
    assert approve(manager, number).state == "failed"
    # Another client of the same user is not concerned.
    assert is_done(rename(MCPClient(root), book, "Three"))


# Once


@contextlib.contextmanager
def approving(manager: Any, waiting: ToolCall) -> Iterator[Callable[[Any], int]]:
    """Give a function with which a browser says yes on the page."""
    number = waits(waiting)
    page = path_of(waiting.structured["url"]).partition("?")[0]
    yield lambda browser: browser.post(page, {"request": number, "yes": "1"}).status_code


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tool", ["update_record", "function"])
def test_twenty_yeses_at_once_make_the_call_once(caller: MCPClient, manager: Any, tool: str) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the threads of a test share SQLite's memory")
    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        return "paid"

    make_rule(labels=["testapp.author"])
    author = make_author("Ann")
    seen: list[int] = []
    with tool_of(pay, destructive=False, approval=approval(permission=DECIDES)):
        if tool == "function":
            waiting = caller.call("pay")
        else:
            waiting = caller.call("update_record", **AUTHOR, pk=author.pk, values={"name": "Bob"})
        browsers = [signed_in(manager) for _ in range(20)]
        together = threading.Barrier(20)
        with approving(manager, waiting) as press:

            def click(browser: Client) -> None:
                together.wait()
                try:
                    seen.append(press(browser))
                finally:
                    connections.close_all()

            threads = [threading.Thread(target=click, args=[browser]) for browser in browsers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert set(seen) == {302}
    change = Change.objects.get()
    assert change.state == "done", change.outcome
    assert Change.objects.get().state == "done"
    assert paid == ([1] if tool == "function" else [])
    assert LogEntry.objects.count() == (0 if tool == "function" else 1)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_at_any_statement_leaves_an_atomic_write_open_or_done(caller: MCPClient, manager: Any) -> None:
    class Killed(BaseException):
        pass

    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    waiting = rename(caller, book, "Emma")
    browser = signed_in(manager)
    number = 0
    with approving(manager, waiting) as press:
        while Book.objects.filter(title="Dune").exists():
            assert Change.objects.get().state == "waiting"
            number += 1
            left = number

            def kill(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
                nonlocal left
                left -= 1
                if not left:
                    raise Killed
                return execute(sql, params, many, context)

            with connection.execute_wrapper(kill), contextlib.suppress(Killed):
                press(browser)
    assert Change.objects.get().state == "done"
    assert LogEntry.objects.count() == 1
    assert number > 10


@pytest.mark.parametrize("is_async", [False, True])
def test_a_late_yes_leaves_the_call_alone_that_runs(caller: MCPClient, manager: Any, is_async: bool) -> None:
    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        assert approve(manager, number).state == "running"
        return "paid"

    async def pay_async(request: Any) -> str:
        return str(await sync_to_async(pay)(request))

    function = pay_async if is_async else pay
    with tool_of(function, name="pay", destructive=False, approval=approval(permission=DECIDES)):
        number = waits(caller.call("pay"))
        change = approve(manager, number)
        assert change.state == "done", change.outcome
        assert caller.call("pay").text == "paid"
    assert paid == [1]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_whose_worker_is_killed_never_runs_again(caller: MCPClient, manager: Any, is_async: bool) -> None:
    class Killed(BaseException):
        pass

    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        raise Killed

    async def pay_async(request: Any) -> str:
        return pay(request)

    function = pay_async if is_async else pay
    with tool_of(function, name="pay", destructive=False, approval=approval(permission=DECIDES)):
        number = waits(caller.call("pay"))
        with contextlib.suppress(Killed):
            approve(manager, number)
        assert Change.objects.get().state == "unknown"
        # So too where the worker could not even note that it was killed.
        Change.objects.update(state="running")
        assert approve(manager, number).state == "running"
        again = caller.call("pay")
        assert again.is_error is False
        assert "Repeat the same call" in again.text or again.structured["state"] == "running"
    assert paid == [1]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_the_same_call_twice_at_once_is_made_once(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    # The other call came at the same time, and saw no request.
    approval_row = ApprovalRequest.objects.get()
    twin = Change.objects.get()
    twin.pk = None
    twin.save()
    approval_row.pk = twin.pk
    approval_row.save(force_insert=True)
    assert approve(manager, number).state == "done"
    change = approve(manager, twin.pk)
    assert change.state == "failed"
    assert LogEntry.objects.count() == 1


# What is left of it


def test_history_and_log_name_both_people_and_the_client(
    caller: MCPClient, manager: Any, root: Any, call_log: Any
) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    waiting = rename(caller, book)
    with approving(manager, waiting) as press:
        assert press(signed_in(manager)) == 302
    entry = LogEntry.objects.get()
    message = entry.get_change_message()
    assert entry.user == root
    assert "mcp_django.testing" in message
    assert "approved by manager" in message
    rows = [(row.method, row.tool, row.outcome, row.username, row.rows_changed) for row in reversed(call_log())]
    assert sorted(rows) == sorted(
        [
            ("tools/call", "update_record", "asked", "root", 0),
            ("tools/call", "update_record", "ok", "root", 1),
            ("console/approve", "update_record", "ok", "manager", 0),
        ]
    )


def test_a_no_is_in_the_log(caller: MCPClient, manager: Any, call_log: Any) -> None:
    make_rule(**ON_BOOKS)
    waiting = rename(caller, make_book("Dune"))
    page = path_of(waiting.structured["url"]).partition("?")[0]
    sent = {"request": waits(waiting), "no": "1", "word": "Never."}
    assert signed_in(manager).post(page, sent).status_code == 302
    decided = [row for row in call_log() if row.method.startswith("console/")]
    assert [(row.method, row.outcome, row.username) for row in decided] == [("console/refuse", "ok", "manager")]


def test_a_call_that_a_rule_blocks_is_in_the_log(caller: MCPClient, call_log: Any) -> None:
    make_rule(**ON_BOOKS, effect="block")
    assert rename(caller, make_book("Dune")).is_error
    assert [row.outcome for row in call_log()] == ["refused:approval"]


# What an application learns of hidden columns


class FewColumns(ModelExposure):
    fields = ("title", "pages", "isbn")


def test_of_a_hidden_column_an_application_learns_that_the_call_waits_and_no_more(
    monkeypatch: pytest.MonkeyPatch, manager: Any
) -> None:
    make_rule(**ON_BOOKS, condition={"after": DEAR})
    exposures: dict[Any, Any] = {Book: FewColumns(Book, site)}
    monkeypatch.setattr(type(site), "exposures", exposures)
    monkeypatch.setattr(site, "_labels", {"testapp.book": exposures[Book]})
    client = MCPClient(make_superuser("eve"))

    def told(price: str, **arguments: Any) -> str:
        book = make_book("Dune", price=price, isbn="1")
        found = client.call("update_record", **BOOK, pk=book.pk, **arguments)
        text = found.text.replace(f'"pk":{book.pk}', '"pk":0').replace(f"book/{book.pk}", "book/0")
        if isinstance(found.structured, dict):
            assert "price" not in text
            # By design: whether it waits, and for whom.
            number = found.structured.get("change")
            text = text.replace(f'"change":{number}', '"change":0').replace(f"Request {number}", "Request 0")
            text = text.replace(f"request={number}", "request=0")
        Book.objects.all().delete()
        return text

    # Two rows that both meet the condition, or both do not, cannot be told from each other.
    for price, other in (("101.00", "99999.00"), ("1.00", "99.99")):
        tried = [told(one, values={"title": "New"}, dry_run=True) for one in (price, other)]
        assert _without_version(tried[0]) == _without_version(tried[1])
        made = [told(one, values={"title": "New"}) for one in (price, other)]
        assert _without_version(made[0]) == _without_version(made[1])
    # An error is the same whether the rule would have applied or not.
    refused = [told(one, values={"pages": -1}) for one in ("101.00", "1.00")]
    assert refused[0] == refused[1]
    # What is tried tells the same, but for the sentence that the call will wait.
    one, two = (told(price, values={"title": "New"}, dry_run=True) for price in ("101.00", "1.00"))
    assert "will wait for" in one
    assert "will wait for" not in two


def _without_version(text: str) -> str:
    found = json.loads(text)
    for name in ("version", "message"):
        found.pop(name, None)
    return str(sorted(found.items(), key=str))


# What it costs


def test_a_rule_of_another_model_makes_no_trial(
    caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    begin = Trial._begin
    monkeypatch.setattr(Trial, "_begin", lambda self, make: (tried.append(1), begin(self, make))[1])
    make_rule(labels=["testapp.loan"])
    assert is_done(rename(caller, make_book("Dune")))
    assert not tried
    make_rule("Books", **ON_BOOKS, condition=DEAR)
    assert is_done(rename(caller, make_book("Emma")))
    assert len(tried) == 1


def test_a_call_that_waits_is_tried_once(caller: MCPClient, manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    begin = Trial._begin
    monkeypatch.setattr(Trial, "_begin", lambda self, make: (tried.append(1), begin(self, make))[1])
    make_rule(**ON_BOOKS)
    waits(rename(caller, make_book("Dune")))
    assert len(tried) == 1


def test_the_list_of_tools_grows_by_few_tokens_and_only_where_there_are_rules(caller: MCPClient) -> None:
    before = len(json.dumps(caller.request("tools/list")))
    make_rule(**ON_BOOKS)
    # Four characters to a token.
    assert 0 < len(json.dumps(caller.request("tools/list"))) - before <= 200
    ApprovalRule.objects.all().delete()
    rule_book.expire()
    assert len(json.dumps(caller.request("tools/list"))) == before
