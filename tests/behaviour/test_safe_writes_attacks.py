"""Attacks on writes that are tried, confirmed, computed and taken back, each named by what is safe all the same."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.mail import send_mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

import mcp_django
from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.models import Change
from mcp_django.testing import MCPClient
from mcp_django.tools.undo_change import UndoChange
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord, WriteRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Section, Tag
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [
    pytest.mark.django_db,
    # Django 6.1 has new ways to send mail, and warns of the others.
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning"),
]

CREATE, UPDATE, DELETE, WRITE, UNDO = CreateRecord(), UpdateRecord(), DeleteRecord(), WriteRecords(), UndoChange()
BOOK = {"model": "testapp.book"}
TAG = {"model": "testapp.tag"}
DUE = datetime(2030, 1, 1, tzinfo=UTC)


class VisibleBook(ModelExposure):
    fields = ["id", "title", "isbn", "pages", "author", "tags"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(title="hidden")


class VisibleLoan(ModelExposure):
    fields = ["id", "book", "borrower"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(borrower="hidden")


@pytest.fixture
def root() -> Any:
    return request_of(make_superuser())


def guarded(user: Any, *others: Any, book: Any = VisibleBook) -> Any:
    """Return a request of a user who sees not all books, and of these not all columns."""
    site = site_with(*others)
    site.register(Book, book)
    return request_of(user, site)


def everything() -> list[Any]:
    models: list[Any] = [Author, Book, Tag, Section, LogEntry, Change]
    return [*(list(model._base_manager.order_by("pk").values()) for model in models), list(Loan.all_objects.values())]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Uploaded files of one test are not those of the next."""
    yield
    if default_storage.exists("notes"):
        for name in default_storage.listdir("notes")[1]:
            default_storage.delete(f"notes/{name}")


# A dry run as an oracle


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_hidden_row_answers_a_dry_run_as_one_that_is_not_there(root: Any, dry_run: bool) -> None:
    request = guarded(root.user)
    hidden, seen = make_book("hidden", isbn="H1"), make_book("seen", isbn="S1")
    Book.objects.filter(pk=hidden.pk).update(id=7_654_321)
    hidden = Book.objects.get(title="hidden")
    missing = 7_654_322
    values = {"pages": 3}

    def told(key: Any, isbn: str) -> list[str]:
        common = {**BOOK, **({"dry_run": True} if dry_run else {})}
        step = {"op": "update", **BOOK, "pk": key, "values": values}
        steps = {"writes": [step], **({"dry_run": True} if dry_run else {})}
        texts = [
            refusal(UPDATE, request, **common, pk=key, values=values),
            refusal(UPDATE, request, **common, pks=[seen.pk, key], values=values),
            refusal(UPDATE, request, **common, rows=[{"pk": key, **values}]),
            refusal(UPDATE, request, **common, by=["isbn"], rows=[{"isbn": isbn, **values}]),
            refusal(UPDATE, request, **common, filters={"isbn": isbn}, values=values),
            refusal(DELETE, request, **common, pk=key),
            refusal(DELETE, request, **common, pks=[key]),
            refusal(WRITE, request, **steps),
        ]
        return [text.replace(isbn, "ISBN").replace(str(key), "KEY") for text in texts]

    assert told(hidden.pk, "H1") == told(missing, "X1")
    assert Book.objects.filter(pages=3).count() == 0


def test_a_dry_run_tells_of_unique_values_what_the_write_tells_and_costs_as_much(root: Any) -> None:
    request = guarded(root.user)
    make_book("hidden", isbn="H1")
    book = make_book("seen", isbn="S1")
    for values in ({"isbn": "H1"}, {"isbn": "H1", "pages": "x"}):
        arguments = {**BOOK, "pk": book.pk, "values": values}
        texts = [refusal(UPDATE, request, **arguments, **more) for more in ({}, {"dry_run": True})]
        assert texts[0] == texts[1]
        rows = {**BOOK, "rows": [{"pk": book.pk, **values}]}
        texts = [refusal(UPDATE, request, **rows, **more) for more in ({}, {"dry_run": True})]
        assert texts[0] == texts[1]
        new = {**BOOK, "values": {"title": "t", "author": book.author_id, "price": "1", **values}}
        texts = [refusal(CREATE, request, **new, **more) for more in ({}, {"dry_run": True})]
        assert texts[0] == texts[1]
        steps = {"writes": [{"op": "update", **arguments}]}
        texts = [refusal(WRITE, request, **steps, **more) for more in ({}, {"dry_run": True})]
        assert texts[0] == texts[1]


def test_each_guess_by_a_dry_run_is_in_the_log_and_uses_up_the_budget(settings: Any, call_log: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"calls": 4}}}
    client = MCPClient(make_superuser(), capabilities={})
    make_book("One", isbn="1")
    book = make_book("Two", isbn="2")
    for isbn in ("1", "3"):
        client.call("update_record", **BOOK, pk=book.pk, values={"isbn": isbn}, dry_run=True)
    assert [entry.outcome for entry in call_log()] == ["tool_error", "tried"]
    for _ in range(2):
        client.call("update_record", **BOOK, pk=book.pk, values={"isbn": "3"}, dry_run=True)
    answer = client.call("update_record", **BOOK, pk=book.pk, values={"isbn": "4"}, dry_run=True)
    assert answer.is_error
    assert "reset in" in answer.text


def test_rows_of_a_dry_run_use_up_the_budget_of_written_rows(settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"rows_written": 3}}}
    client = MCPClient(make_superuser(), capabilities={})
    books = [make_book() for _ in range(3)]
    arguments = {**BOOK, "pks": [book.pk for book in books], "values": {"pages": 3}, "dry_run": True}
    assert client.call("update_record", **arguments).structured["counts"] == {"testapp.book": {"changed": 3}}
    answer = client.call("update_record", **arguments)
    assert answer.is_error
    assert "reset in" in answer.text


def test_a_dry_run_needs_the_right_to_write() -> None:
    book = make_book("Dune")
    reader = MCPClient(make_superuser(), scopes=["mcp:read"], capabilities={})
    response = reader.send(
        "tools/call", {"name": "update_record", "arguments": {**BOOK, "pk": book.pk, "values": {}, "dry_run": True}}
    )
    assert response.status_code == 403
    viewer = request_of(make_user("viewer", "testapp.view_book"))
    assert "not change" in refusal(UPDATE, viewer, **BOOK, pk=book.pk, values={"pages": 3}, dry_run=True)


def test_hooks_that_write_what_is_hidden_show_nothing_of_it(root: Any) -> None:
    """Neither rows, columns nor tables that the caller does not see; also no text of a mail, no name of a file."""

    class Exposure(VisibleBook):
        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            obj.price = 77
            obj.save()
            Loan.objects.update(borrower="TOP SECRET")
            Section.objects.create(name="TOP SECRET")
            Book.objects.filter(title="hidden").update(isbn="SECRET")
            send_mail("TOP SECRET", "TOP SECRET", None, ["secret@example.com"])
            default_storage.save("notes/TOP SECRET.txt", ContentFile("TOP SECRET"))

    request = guarded(root.user, Section, book=Exposure)
    make_book("hidden", isbn="H1")
    book = make_book("Dune")
    Loan.objects.create(book=book, borrower="Ann", due=DUE)
    shown = call(UPDATE, request, **BOOK, pk=book.pk, values={"title": "Dune 2"}, dry_run=True)
    text = str(shown)
    assert "SECRET" not in text.upper().replace("TITLE", "")
    assert "price" not in text
    assert "loan" not in text
    assert shown["counts"] == {"testapp.book": {"changed": 1}}
    # A table that the caller sees has a name, whether its rows are hidden or not.
    assert shown["also_written"] == ["testapp_book", "testapp_section", "other tables"]


def test_a_dry_run_counts_rows_that_are_hidden_among_others_of_no_name(root: Any) -> None:
    book = make_book("Dune")
    site = site_with()
    site.register(Book, VisibleBook)
    site.register(Loan, VisibleLoan)
    request = request_of(root.user, site)
    for borrower in ("Ann", "hidden", "hidden"):
        Loan.objects.create(book=book, borrower=borrower, due=DUE)
    shown = call(DELETE, request, **BOOK, pk=book.pk, dry_run=True)
    assert shown["counts"] == {"testapp.book": {"deleted": 1}, "testapp.loan": {"deleted": 1}, "other": 2}


def test_a_dry_run_of_many_writes_counts_only_what_is_seen_by_name(root: Any) -> None:
    book = make_book("Dune")
    site = site_with()
    site.register(Book, VisibleBook)
    site.register(Loan, VisibleLoan)
    for number in range(30):
        Loan.objects.create(book=book, borrower="hidden" if number % 2 else "Ann", due=DUE)
    shown = call(DELETE, request_of(root.user, site), **BOOK, pk=book.pk, dry_run=True)
    assert shown["counts"] == {"testapp.book": {"deleted": 1}, "testapp.loan": {"deleted": 15}, "other": 15}


# Undo as a way to write


def update(request: Any, obj: Any, **values: Any) -> int:
    return call(UPDATE, request, model=obj._meta.label_lower, pk=str(obj.pk), values=values)["change"]


def test_undo_writes_no_row_that_its_caller_may_not_write_now() -> None:
    user = make_user("ann", "testapp.view_tag", "testapp.change_tag")
    tag = Tag.objects.create(name="one")
    number = update(request_of(user), tag, name="two")
    user.user_permissions.remove(Permission.objects.get(codename="change_tag"))
    user = type(user).objects.get(pk=user.pk)
    before = everything()
    refusal(UNDO, request_of(user), change=number)
    assert everything() == before


def test_undo_writes_no_field_of_a_row_that_is_hidden_by_now(root: Any) -> None:
    book = make_book("Dune")
    request = guarded(root.user)
    number = update(request, book, pages=3)
    Book.objects.filter(pk=book.pk).update(title="hidden")
    before = everything()
    assert refusal(UNDO, request, change=number)
    assert everything() == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_change_of_another_user_is_taken_back_by_nobody_else(root: Any, dry_run: bool) -> None:
    tag = Tag.objects.create(name="one")
    number = update(root, tag, name="two")
    other = request_of(make_superuser("other"))
    arguments = {"dry_run": True} if dry_run else {}
    texts = {refusal(UNDO, other, change=one, **arguments).replace(str(one), "N") for one in (number, number + 1000)}
    assert len(texts) == 1


def test_undo_brings_back_no_value_that_a_form_would_have_been_asked_for_by_another_call(root: Any) -> None:
    """What goes back is what was there: nothing of the arguments is written."""
    tag = Tag.objects.create(name="one")
    number = update(root, tag, name="two")
    assert "Unknown argument" in refusal(UNDO, root, change=number, values={"name": "three"})
    for odd in (f"{number} OR 1=1", [number], {"pk": number}, True, -number, 1.5, "9" * 400, None):
        refusal(UNDO, root, change=odd)
    tag.refresh_from_db()
    assert tag.name == "two"


def test_an_undo_that_was_done_is_not_done_again(root: Any) -> None:
    tag = Tag.objects.create(name="one")
    number = update(root, tag, name="two")
    call(UNDO, root, change=number)
    Tag.objects.update(name="two")
    assert "cannot be taken back" in refusal(UNDO, root, change=number)
    tag.refresh_from_db()
    assert tag.name == "two"


# Tokens


def asked(client: MCPClient, tool: str, **arguments: Any) -> str:
    structured = client.call(tool, **arguments).structured
    assert structured["confirmation_required"] is True
    return str(structured["confirm_token"])


def confirming() -> list[tuple[str, dict[str, Any]]]:
    """Return calls that ask, each of which would leave no tag with the name "old"."""
    tags = [Tag.objects.create(name=f"old {number}") for number in range(3)]
    keys = [tag.pk for tag in tags]
    return [
        ("delete_record", {**TAG, "pk": keys[0]}),
        ("delete_record", {**TAG, "pks": keys}),
        ("update_record", {**TAG, "pks": keys[:1], "values": {"name": "new"}}),
        ("write_records", {"writes": [{"op": "delete", **TAG, "pk": keys[0]}]}),
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_token_counts_once(number: int) -> None:
    client = MCPClient(make_superuser(), capabilities={})
    tool, arguments = confirming()[number]
    before = list(Tag.objects.order_by("pk").values_list("pk", "name"))
    token = asked(client, tool, **arguments)
    assert not client.call(tool, **arguments, confirm_token=token).is_error
    # The same rows are there again, as they were.
    Tag.objects.all().delete()
    Tag.objects.bulk_create(Tag(pk=pk, name=name) for pk, name in before)
    again = client.call(tool, **arguments, confirm_token=token)
    assert again.is_error or again.structured["confirmation_required"]
    assert list(Tag.objects.order_by("pk").values_list("pk", "name")) == before


def test_a_token_that_one_worker_has_used_is_used_on_all_that_share_the_cache() -> None:
    user = make_superuser()
    tag = Tag.objects.create(name="old")
    # Two requests have nothing in common but the cache, as those of two workers.
    token = call(DELETE, request_of(user), **TAG, pk=tag.pk)["confirm_token"]
    call(DELETE, request_of(user), **TAG, pk=tag.pk, confirm_token=token)
    Tag.objects.bulk_create([Tag(pk=tag.pk, name="old")])
    assert "not valid" in refusal(DELETE, request_of(user), **TAG, pk=tag.pk, confirm_token=token)
    # Without what the cache knows it would count again: it is not the token itself that changes.
    cache.clear()
    call(DELETE, request_of(user), **TAG, pk=tag.pk, confirm_token=token)


@pytest.mark.parametrize("number", range(4))
def test_a_token_is_worth_nothing_to_another_client_user_or_endpoint(number: int) -> None:
    user = make_superuser()
    tools = {"delete_record": DELETE, "update_record": UPDATE, "write_records": WRITE}
    name, arguments = confirming()[number]
    token = call(tools[name], request_of(user), **arguments)["confirm_token"]
    others = [
        request_of(user, client_id="client-2"),
        request_of(make_superuser("other")),
        request_of(user, MCPSite("another", admin_site=mcp_django.site.admin_site)),
        request_of(user, resource="https://another.example.com/mcp"),
    ]
    for other in others:
        with suppress(ToolError):
            answer = tools[name].call(other, {**arguments, "confirm_token": token}).structured
            assert answer is not None
            assert answer["confirmation_required"]
    assert Tag.objects.filter(name__startswith="old").count() == 3


@pytest.mark.parametrize("number", range(4))
def test_a_token_is_worth_nothing_after_rights_are_lost(number: int) -> None:
    user = make_user("ann", "testapp.view_tag", "testapp.change_tag", "testapp.delete_tag")
    tools = {"delete_record": DELETE, "update_record": UPDATE, "write_records": WRITE}
    name, arguments = confirming()[number]
    token = call(tools[name], request_of(user), **arguments)["confirm_token"]
    user.user_permissions.set(Permission.objects.filter(codename="view_tag"))
    user = type(user).objects.get(pk=user.pk)
    refusal(tools[name], request_of(user), **arguments, confirm_token=token)
    assert Tag.objects.filter(name__startswith="old").count() == 3


@pytest.mark.parametrize("number", range(4))
def test_the_version_of_a_dry_run_is_no_yes(number: int) -> None:
    client = MCPClient(make_superuser(), capabilities={})
    tool, arguments = confirming()[number]
    version = client.call(tool, **arguments, dry_run=True).structured["version"]
    for name in ("version", "confirm_token"):
        answer = client.call(tool, **arguments, **{name: version})
        assert answer.is_error or answer.structured["confirmation_required"]
    both = client.call(tool, **arguments, version=version, confirm_token=version)
    assert both.is_error or both.structured["confirmation_required"]
    assert Tag.objects.filter(name__startswith="old").count() == 3


@pytest.mark.parametrize("number", range(4))
def test_a_dry_run_with_a_token_uses_up_none_and_writes_nothing(number: int) -> None:
    client = MCPClient(make_superuser(), capabilities={})
    tool, arguments = confirming()[number]
    token = asked(client, tool, **arguments)
    tried = client.call(tool, **arguments, confirm_token=token, dry_run=True)
    assert tried.structured["dry_run"] is True
    assert Tag.objects.filter(name__startswith="old").count() == 3
    assert not client.call(tool, **arguments, confirm_token=token).is_error
    assert Tag.objects.filter(name__startswith="old").count() < 3


# Expressions


@pytest.mark.parametrize("name", ["price", "rating", "nonsense", "author.born", "author__name", "secret_token"])
def test_an_expression_reads_only_what_its_caller_may_read(root: Any, name: str) -> None:
    """A field that is hidden answers as one that does not exist: in one row, in many, and when it is tried."""
    request = guarded(root.user)
    book = make_book("seen", isbn="S1", price="12.34", rating=4.0)
    texts = set()
    for field in (name, "missing"):
        value = {"pages": {"field": f"{field}*1"}}
        common = {**BOOK, "dry_run": True}
        for arguments in (
            {"pk": book.pk, "values": value},
            {"pks": [book.pk], "values": value},
            {"rows": [{"pk": book.pk, **value}]},
        ):
            texts.add(refusal(UPDATE, request, **common, **arguments).replace(field, "FIELD"))
        step = {"op": "update", **BOOK, "pk": book.pk, "values": value}
        told = refusal(WRITE, request, writes=[step]).removeprefix("Write 1 of 1: ")
        texts.add(told.replace(field, "FIELD"))
    assert len(texts) <= 2, texts
    assert not any("12.34" in text for text in texts)
    book.refresh_from_db()
    assert book.pages == 0


# Too much


def test_ten_thousand_rows_are_refused_before_anything_is_read(root: Any) -> None:
    book = make_book("Dune")
    rows = [{"pk": book.pk + number, "pages": 1} for number in range(10_000)]
    steps = [{"op": "update", **BOOK, "pk": book.pk, "values": {"pages": 1}}] * 10_000
    with CaptureQueriesContext(connection) as queries:
        for dry_run in (False, True):
            assert "list of 1 to" in refusal(UPDATE, root, **BOOK, rows=rows, dry_run=dry_run)
            assert "list of 1 to" in refusal(WRITE, root, writes=steps, dry_run=dry_run)
    assert len(queries) == 0
    step = {"op": "update", **BOOK, "rows": rows}
    assert "list of 1 to" in refusal(WRITE, root, writes=[step])


def test_several_writes_have_no_more_rows_than_one(root: Any, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 5}
    books = [make_book() for _ in range(4)]
    rows = [{"pk": book.pk, "pages": 1} for book in books]
    steps = [{"op": "update", **BOOK, "rows": rows}] * 2
    assert "at most 5 rows" in refusal(WRITE, root, writes=steps)
    assert not Book.objects.filter(pages=1).exists()


# References


def section(ref: str, parent: Any) -> dict[str, Any]:
    return {"op": "create", "model": "testapp.section", "ref": ref, "values": {"name": ref, "parent": parent}}


@pytest.mark.parametrize(
    "writes",
    [
        [section("a", {"ref": "a"})],
        [section("a", {"ref": "b"}), section("b", {"ref": "a"})],
        [section("a", None), section("b", {"ref": "c"}), section("c", {"ref": "b"})],
        [section("a", None), section("a", {"ref": "a"})],
        [section("a", {"ref": {"ref": "a"}})],
        [section("a", None), section("b", {"ref": "a", "pk": 1})],
        [section("a", None), section("b", [{"ref": "a"}])],
    ],
)
def test_references_in_circles_and_to_nothing_are_refused(root: Any, writes: Any) -> None:
    for arguments in ({"dry_run": True}, {}):
        refusal(WRITE, root, writes=writes, **arguments)
    assert not Section.objects.exists()


def test_a_reference_names_no_row_of_another_call(root: Any) -> None:
    call(WRITE, root, writes=[section("a", None)])
    assert "refs so far: none" in refusal(WRITE, root, writes=[section("b", {"ref": "a"})])
    assert Section.objects.count() == 1


# A hook that must not run twice


class PayingExposure(ModelExposure):
    fields = ["id", "title", "author", "isbn", "price", "pages"]
    dry_run = False
    paid: list[Any] = []

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        self.paid.append(obj.title)
        obj.save()

    def delete_model(self, request: Any, obj: Any) -> None:
        self.paid.append(obj.title)
        obj.delete()

    def delete_queryset(self, request: Any, queryset: Any) -> None:
        self.paid += [book.title for book in queryset]
        queryset.delete()


PAYING = MCPSite("paying")
PAYING.register(Book, PayingExposure)
PAYING.register(Author, ModelExposure, fields="__all__")


@pytest.fixture
def paid() -> Iterator[list[Any]]:
    PayingExposure.paid.clear()
    yield PayingExposure.paid
    PayingExposure.paid.clear()


def test_a_hook_that_pays_runs_in_no_dry_run_and_in_no_preview(root: Any, paid: list[Any]) -> None:
    request = request_of(root.user, PAYING)
    book = make_book("Dune", isbn="1")
    author = book.author_id
    new = {"title": "New", "author": author, "isbn": "2", "price": "1"}
    calls: list[tuple[Any, dict[str, Any]]] = [
        (CREATE, {"values": new}),
        (UPDATE, {"pk": book.pk, "values": {"pages": 3}}),
        (UPDATE, {"pk": book.pk, "values": {"pages": {"field": "pages+1"}}}),
        (UPDATE, {"pks": [book.pk], "values": {"pages": 3}}),
        (UPDATE, {"rows": [{"pk": book.pk, "pages": 3}]}),
        (UPDATE, {"rows": [{"isbn": "2", **new}], "by": ["isbn"], "create_missing": True}),
        (DELETE, {"pk": book.pk}),
        (DELETE, {"pks": [book.pk]}),
    ]
    for tool, arguments in calls:
        shown = call(tool, request, **BOOK, **arguments, dry_run=True)
        assert shown["not_tried"] == ["hooks of the project"], arguments
    for tool, arguments in (calls[2], calls[3], calls[6], calls[7]):
        assert call(tool, request, **BOOK, **arguments)["confirmation_required"], arguments
    assert paid == []
    assert Book.objects.filter(pages=0).count() == 1
    # Once it is confirmed, it pays once.
    arguments = {**BOOK, "pk": book.pk}
    token = call(DELETE, request, **arguments)["confirm_token"]
    call(DELETE, request, **arguments, confirm_token=token)
    assert paid == ["Dune"]


def test_several_writes_pay_nothing_to_find_out_whether_they_ask(root: Any, paid: list[Any]) -> None:
    request = request_of(root.user, PAYING)
    book = make_book("Dune")
    author = {"op": "create", "model": "testapp.author", "values": {"name": "Ann"}}
    for step in ({"op": "update", "pk": book.pk, "values": {"pages": 3}}, {"op": "delete", "pk": book.pk}):
        for arguments in ({}, {"dry_run": True}):
            refusal(WRITE, request, writes=[author, {**BOOK, **step}], **arguments)
    assert paid == []
    assert Book.objects.get().pages == 0
    assert not Author.objects.filter(name="Ann").exists()


def test_an_undo_pays_nothing(root: Any, paid: list[Any]) -> None:
    request = request_of(root.user, PAYING)
    number = update(request, make_book("Dune"), pages=3)
    assert paid == ["Dune"]
    call(UNDO, request, change=number, dry_run=True)
    call(UNDO, request, change=number)
    assert paid == ["Dune"]
    assert Book.objects.get().pages == 0


def test_authors_are_made_by_nobody_who_only_tries(root: Any) -> None:
    before = everything()
    make = {"model": "testapp.author", "values": {"name": "Ann"}}
    shown = call(CREATE, root, **make, dry_run=True, idempotency_key="k")
    assert shown["counts"]["testapp.author"] == {"added": 1}
    assert everything() == before
    assert make_author("Ann").pk
