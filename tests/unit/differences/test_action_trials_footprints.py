"""What actions that can be tried do besides the columns of their rows: links, and what goes with rows they delete."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

from mcp_django import MCPSite, ModelExposure, action
from mcp_django.models import Change
from mcp_django.testing import MCPClient, ToolCall
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag
from tests.unit.differences.all_rows import dump, tables_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
NOT_RECORDED = "What it did was not recorded row by row."
TABLES = tables_of("testapp")


class BookExposure(ModelExposure):
    fields = ["title", "pages", "tags", "author"]
    actions = ["retag", "remove", "remove_each", "clear", "shelve", "count_all", "empty_first", "with_others"]

    @action(dry_run=True, destructive=False)
    def retag(self, request, queryset):
        for book in queryset:
            book.tags.add(*Tag.objects.filter(name="new"))
            book.tags.remove(*Tag.objects.filter(name="old"))

    @action(dry_run=True, destructive=False)
    def clear(self, request, queryset):
        for book in queryset:
            book.tags.clear()

    @action(dry_run=True, permissions=["delete"])
    def remove(self, request, queryset):
        queryset.delete()

    @action(dry_run=True, permissions=["delete"])
    def remove_each(self, request, queryset):
        for book in queryset:
            book.delete()

    @action(dry_run=True, destructive=False)
    def shelve(self, request, queryset):
        for number, book in enumerate(queryset):
            Placement.objects.create(shelf_id="A", book=book, position=number)

    @action(dry_run=True, destructive=False)
    def count_all(self, request, queryset):
        queryset.update(pages=1)
        Book.objects.update(pages=F("pages") + 1)

    @action(dry_run=True, permissions=["delete"])
    def empty_first(self, request, queryset):
        Loan.objects.filter(book__in=queryset).update(borrower="gone")
        queryset.delete()

    @action(dry_run=True, permissions=["delete"])
    def with_others(self, request, queryset):
        queryset.delete()
        Loan.objects.update(borrower="changed")


class TagExposure(ModelExposure):
    fields = ["name"]
    actions = ["put_on_all", "rename"]

    @action(dry_run=True, destructive=False)
    def put_on_all(self, request, queryset):
        for tag in queryset:
            tag.books.set(Book.objects.all())

    @action(dry_run=True, destructive=False)
    def rename(self, request, queryset):
        queryset.update(name="renamed")


class AuthorExposure(ModelExposure):
    fields = ["name"]
    actions = ["remove"]

    @action(dry_run=True, permissions=["delete"])
    def remove(self, request, queryset):
        queryset.delete()


class SectionExposure(ModelExposure):
    fields = ["name", "parent"]
    actions = ["remove"]

    @action(dry_run=True, permissions=["delete"])
    def remove(self, request, queryset):
        queryset.delete()


own = MCPSite("footprints")
own.register(Book, BookExposure)
own.register(Tag, TagExposure)
own.register(Author, AuthorExposure)
own.register(Section, SectionExposure)
own.register(Loan, ModelExposure, fields=["borrower", "book"])
own.register(Placement, ModelExposure, fields="__all__")
urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]


@pytest.fixture
def client() -> MCPClient:
    return MCPClient(make_superuser(), capabilities={})


def run(client: MCPClient, name: str, row: Any, **more: Any) -> ToolCall:
    """Run an action on one row, confirmed where it asks."""
    arguments = {"model": row._meta.label_lower, "action": name, "pks": [str(row.pk)], **more}
    answer = client.call("run_action", **arguments)
    if (answer.structured or {}).get("confirmation_required"):
        answer = client.call("run_action", **arguments, confirm_token=answer.structured["confirm_token"])
    assert not answer.is_error, answer.text
    return answer


def tried(client: MCPClient, name: str, row: Any) -> dict[str, Any]:
    before = dump(TABLES)
    answer = client.call("run_action", model=row._meta.label_lower, action=name, pks=[str(row.pk)], dry_run=True)
    assert not answer.is_error, answer.text
    assert dump(TABLES) == before
    return dict(answer.structured)


def undo(client: MCPClient, done: ToolCall) -> None:
    arguments = {"change": done.structured["change"]}
    undone = client.call("undo_change", **arguments)
    if (undone.structured or {}).get("confirmation_required"):
        undone = client.call("undo_change", **arguments, confirm_token=undone.structured["confirm_token"])
    assert not undone.is_error, undone.text


def full_book() -> Book:
    """Return a book with something in each table that a deletion reaches."""
    author = make_author("Ada")
    book = AudioBook.objects.create(title="Dune", narrator="Ann", author=author, isbn="1", price=1).book_ptr
    book.tags.add(Tag.objects.create(name="old"), Tag.objects.create(name="other"))
    Tag.objects.create(name="new")
    for borrower in ("Ann", "Bob"):
        Loan.objects.create(book=book, borrower=borrower, due="2030-01-01T00:00:00Z")
    # The default manager hides it.
    Loan.objects.create(book=book, borrower="Eve", due="2030-01-01T00:00:00Z", deleted="2030-01-01T00:00:00Z")
    Placement.objects.create(shelf=Shelf.objects.create(code="A"), book=book, position=7)
    make_book("Other")
    return book


# Links


def test_links_that_an_action_writes_are_shown_and_taken_back(client):
    book = full_book()
    shown = tried(client, "retag", book)
    [row] = shown["changed"]["testapp.book"]
    tags = row["columns"]["tags"]
    assert [{label for _, label in side} for side in tags] == [{"old", "other"}, {"new", "other"}]
    assert not {"also_written", "cannot_undo"} & shown.keys()
    before = dump(TABLES)
    done = run(client, "retag", book)
    assert {tag.name for tag in book.tags.all()} == {"new", "other"}
    undo(client, done)
    assert dump(TABLES) == before


@pytest.mark.parametrize("name", ["clear", "shelve"])
def test_other_links_of_the_picked_rows_are_taken_back(client, name):
    book = full_book()
    shown = tried(client, name, book)
    assert "cannot_undo" not in shown
    before = dump(TABLES)
    done = run(client, name, book)
    assert dump(TABLES) != before
    undo(client, done)
    assert dump(TABLES) == before


def test_links_from_other_rows_are_changes_of_those(client):
    book = full_book()
    other = Book.objects.get(title="Other")
    tag = Tag.objects.get(name="old")
    shown = tried(client, "put_on_all", tag)
    assert shown["counts"] == {"testapp.book": {"changed": 1}}
    [row] = shown["changed"]["testapp.book"]
    assert (row["pk"], row["columns"]) == (other.pk, {"tags": [[], [[tag.pk, "old"]]]})
    before = dump(TABLES)
    undo(client, run(client, "put_on_all", tag))
    assert dump(TABLES) == before
    assert list(book.tags.all())


def test_links_of_rows_that_the_caller_does_not_see_are_counted_as_others(client):
    full_book()
    tag = Tag.objects.get(name="old")
    clerk = make_user("clerk", "testapp.view_tag", "testapp.change_tag")
    shown = tried(MCPClient(clerk, capabilities={}), "put_on_all", tag)
    assert shown["counts"] == {"other": 1}


def test_a_relation_with_more_links_than_a_call_writes_is_left_out(client, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 1}
    tag = Tag.objects.create(name="tag")
    for number in range(3):
        make_book(f"B{number}").tags.add(tag)
    before = dump(TABLES)
    shown = tried(client, "rename", tag)
    assert "cannot_undo" not in shown
    undo(client, run(client, "rename", tag))
    assert dump(TABLES) == before
    make_book("new")
    shown = tried(client, "put_on_all", tag)
    assert (shown["also_written"], shown["cannot_undo"]) == (["testapp_book_tags"], NOT_RECORDED)
    change = Change.objects.get(pk=run(client, "put_on_all", tag).structured["change"])
    assert change.cannot_undo == NOT_RECORDED


# Deletions


@pytest.mark.parametrize("name", ["remove", "remove_each"])
def test_what_goes_with_rows_that_an_action_deletes_is_shown_and_taken_back(client, name):
    book = full_book()
    shown = tried(client, name, book)
    counts = {f"testapp.{name}": {"deleted": number} for name, number in (("book", 1), ("loan", 2), ("placement", 1))}
    # The hidden loan, and the row of the audio book.
    assert shown["counts"] == {**counts, "other": 2}
    assert shown["deleted"]["testapp.book"] == [[book.pk, "Dune"]]
    assert not {"also_written", "cannot_undo"} & shown.keys()
    before = dump(TABLES)
    done = run(client, name, book)
    assert not Loan.all_objects.exists()
    undo(client, done)
    assert dump(TABLES) == before


def test_a_tree_of_rows_that_an_action_deletes_comes_back(client):
    root = Section.objects.create(name="root")
    child = Section.objects.create(name="child", parent=root)
    Section.objects.create(name="leaf", parent=child)
    shown = tried(client, "remove", root)
    assert shown["counts"] == {"testapp.section": {"deleted": 3}}
    before = dump(TABLES)
    done = run(client, "remove", root)
    assert not Section.objects.exists()
    undo(client, done)
    assert dump(TABLES) == before


def test_rows_that_protect_others_refuse_the_action_as_before(client):
    book = make_book("Dune")
    answer = client.call("run_action", model="testapp.author", action="remove", pks=[book.author_id], dry_run=True)
    assert answer.is_error
    assert Author.objects.count() == 1
    lonely = make_author("Bob")
    Profile.objects.create(author=lonely, biography="x")
    before = dump(TABLES)
    undo(client, run(client, "remove", lonely))
    assert dump(TABLES) == before


def test_more_than_is_kept_of_a_deletion_can_be_shown_but_not_taken_back(client, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 1}
    root = Section.objects.create(name="root")
    for number in range(11):
        Section.objects.create(name=str(number), parent=root)
    shown = tried(client, "remove", root)
    assert shown["cannot_undo"] == "It changes more than the server keeps to take changes back."
    done = run(client, "remove", root)
    change = Change.objects.get(pk=done.structured["change"])
    assert change.cannot_undo == shown["cannot_undo"]
    assert not Section.objects.exists()


# What is outside


def test_rows_of_the_same_tables_that_an_action_writes_besides_are_told_and_stop_the_undo(client):
    book = full_book()
    shown = tried(client, "count_all", book)
    assert (shown["also_written"], shown["cannot_undo"]) == (["testapp_book"], NOT_RECORDED)
    change = Change.objects.get(pk=run(client, "count_all", book).structured["change"])
    assert change.cannot_undo == NOT_RECORDED


@pytest.mark.parametrize("name", ["empty_first", "with_others"])
def test_rows_that_were_written_before_they_were_known_stop_the_undo(client, name):
    book = full_book()
    Loan.objects.create(book=Book.objects.get(title="Other"), borrower="Zoe", due="2030-01-01T00:00:00Z")
    shown = tried(client, name, book)
    assert (shown["also_written"], shown["cannot_undo"]) == (["testapp_loan"], NOT_RECORDED)
    change = Change.objects.get(pk=run(client, name, book).structured["change"])
    assert change.cannot_undo == NOT_RECORDED


def test_rows_that_are_named_by_their_keys_cost_no_query_more(client):
    """Only for statements whose rows nobody knows are they asked for."""
    numbers = []
    for count in (1, 5):
        tags = [Tag.objects.create(name=f"{count} {number}") for number in range(count)]
        books = [make_book(f"{count} {number}") for number in range(count)]
        for book in books:
            book.tags.add(*tags)
        with CaptureQueriesContext(connection) as asked:
            given = {"model": "testapp.book", "action": "remove_each", "pks": [book.pk for book in books]}
            token = client.call("run_action", **given).structured["confirm_token"]
            client.call("run_action", **given, confirm_token=token)
        numbers.append(sum("WHERE " in one["sql"] and "SELECT" in one["sql"] for one in asked))
    assert numbers[1] < 5 * numbers[0]


# The version of a dry run


def test_the_version_of_a_dry_run_holds_an_action_to_its_rows(client):
    book = full_book()
    given = {"model": "testapp.book", "action": "retag", "pks": [book.pk]}
    version = client.call("run_action", **given, dry_run=True).structured["version"]
    Book.objects.filter(pk=book.pk).update(pages=99)
    refused = client.call("run_action", **given, version=version)
    assert refused.is_error
    assert "Nothing was changed" in refused.text
    assert {tag.name for tag in book.tags.all()} == {"old", "other"}
    version = client.call("run_action", **given, dry_run=True).structured["version"]
    assert client.call("retag_testapp_book", pks=[book.pk], version=version).structured["done"] is True


def test_the_version_holds_an_action_to_what_goes_with_its_rows_and_confirms_nothing(client):
    book = full_book()
    given = {"model": "testapp.book", "action": "remove", "pks": [book.pk]}
    version = client.call("run_action", **given, dry_run=True).structured["version"]
    loan = Loan.objects.create(book=book, borrower="New", due="2030-01-01T00:00:00Z")
    assert client.call("run_action", **given, version=version).is_error
    loan.delete()
    asked = client.call("run_action", **given, version=version)
    assert asked.structured["confirmation_required"] is True
    token = asked.structured["confirm_token"]
    Loan.objects.filter(borrower="Ann").update(borrower="Anna")
    assert client.call("run_action", **given, version=version, confirm_token=token).is_error
    assert Book.objects.filter(pk=book.pk).exists()


def test_the_version_is_of_one_call(client):
    book = full_book()
    given = {"model": "testapp.book", "pks": [book.pk]}
    version = client.call("run_action", **given, action="retag", dry_run=True).structured["version"]
    for wrong in ({"action": "clear"}, {"action": "retag", "pks": [Book.objects.get(title="Other").pk]}):
        assert client.call("run_action", **{**given, **wrong}, version=version).is_error
    for wrong_version in ("tried:x", "x", 7):
        assert client.call("run_action", **given, action="retag", version=wrong_version).is_error
    other = MCPClient(make_superuser("other"), capabilities={})
    assert other.call("run_action", **given, action="retag", version=version).is_error
    assert {tag.name for tag in book.tags.all()} == {"old", "other"}
