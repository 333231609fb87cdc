"""Attacks on approvals by another person, each named by what is safe all the same."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model

from mcp_django import ModelExposure, site
from mcp_django.approvals.rules import rule_book
from mcp_django.differences.trials import Trial
from mcp_django.models import ApprovalRequest, ApprovalRule, Change
from mcp_django.server import approval_calls
from mcp_django.testing import MCPClient
from tests.approval_rules import BOOK, DEAR, ON_BOOKS, approve, is_done, make_manager, make_rule, rename, waits
from tests.approving import allow
from tests.confirming import path_of, signed_in
from tests.factories import make_book, make_superuser, make_user
from tests.service_account import ask_by_secret, make_account
from tests.testapp.models import Book, Loan

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def caller(root: Any) -> MCPClient:
    return MCPClient(root)


@pytest.fixture
def manager() -> Any:
    return make_manager()


def due() -> Any:
    return timezone.now()


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
