"""Ways round an approval rule, each named by what is safe all the same."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models.signals import post_save, pre_save
from django.template import engines
from django.template.response import TemplateResponse
from django.utils import timezone

from mcp_django import Ask, approval, site
from mcp_django.models import ApprovalRequest, Change
from mcp_django.testing import MCPClient, ToolCall
from mcp_django.tools.action_tools import ActionTool, RunAction
from tests.approval_rules import (
    AUTHOR,
    BOOK,
    DEAR,
    DECIDES,
    ON_BOOKS,
    approve,
    is_done,
    make_manager,
    make_rule,
    rename,
    waits,
)
from tests.confirming import tool_of
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

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

    if connection.vendor == "mysql" and ("WITH" in sql or '"' in sql):
        pytest.skip("MariaDB has no such statement")
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


def test_a_rule_of_which_all_models_are_gone_is_about_nothing(caller: MCPClient, manager: Any) -> None:
    make_rule(labels=["testapp.gone", "nowhere.at"])
    assert is_done(rename(caller, make_book("Dune")))


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
