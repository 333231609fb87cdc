"""The history of actions: rows that they touched, from what to what."""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

import mcp_django as mcp
from mcp_django.context.request import MCPRequest
from mcp_django.tools.action_tools import RunAction
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, request_of

pytestmark = pytest.mark.django_db
RUN, GET, UPDATE = RunAction(), GetRecord(), UpdateRecord()
BOOK: dict[str, Any] = {"model": "testapp.book"}


class BookExposure(mcp.ModelExposure):
    fields = ["title", "author", "price", "status", "published", "tags", "pages"]
    actions = ["work"]
    todo: Any = None

    @mcp.action(destructive=False)
    def work(self, request: MCPRequest, queryset: Any) -> Any:
        """Do what the test says."""
        return type(self).todo(queryset)


class AuthorExposure(mcp.ModelExposure):
    fields = ["name", "email"]
    actions = ["work"]

    @mcp.action(destructive=False)
    def work(self, request: MCPRequest, queryset: Any) -> None:
        """Change everything."""
        queryset.update(name="B", secret_token="new secret")


@pytest.fixture
def root() -> MCPRequest:
    site = mcp.MCPSite()
    site.register(Book, BookExposure)
    site.register(Author, AuthorExposure)
    return request_of(make_superuser(), site)


def history_after(root: MCPRequest, todo: Any, *books: Book) -> dict[str, str]:
    """Return what the history says of each row when the action has done that."""
    LogEntry.objects.all().delete()
    BookExposure.todo = staticmethod(todo)
    assert call(RUN, root, **BOOK, action="work", pks=[book.pk for book in books])["rows"] == len(books)
    mark = "Changed via MCP: Claude (client-1), work."
    entries = {entry.object_id: entry.get_change_message() for entry in LogEntry.objects.all()}
    assert all(message.endswith(mark) for message in entries.values())
    return {pk: message.removesuffix(mark).strip() for pk, message in entries.items()}


def test_rows_that_an_action_touched_are_told_from_what_to_what(root: MCPRequest) -> None:
    one, two = make_book("One", pages=1, price="2.50"), make_book("Two", status="published")

    def publish(queryset: Any) -> None:
        queryset.filter(status="draft").update(status="published", published="2026-01-02", price=F("price") * 2)

    assert history_after(root, publish, one, two) == {
        str(one.pk): "Changed Price: 2.50 → 5.00, Published: - → 2026-01-02 and Status: In preparation → Published."
    }
    assert Book.objects.get(pk=one.pk).price == Decimal(5)


def test_an_action_that_changes_no_row_leaves_no_history(root: MCPRequest) -> None:
    book = make_book("One")
    assert history_after(root, lambda queryset: "sent", book) == {}
    assert history_after(root, lambda queryset: queryset.get().save(), book) == {}


def test_rows_have_their_own_words_and_few_queries(root: MCPRequest) -> None:
    books = [make_book(f"Book {number}", pages=number * 10) for number in range(30)]

    def count(some: list[Book]) -> int:
        with CaptureQueriesContext(connection) as queries:
            found = history_after(root, lambda queryset: queryset.update(pages=F("pages") + 1), *some)
        assert len(set(found.values())) == len(some)
        return len(queries)

    count(books[:2])
    assert count(books[:2]) == count(books)
    assert history_after(root, lambda queryset: queryset.update(pages=0), books[7]) == {
        str(books[7].pk): "Changed Pages: 71 → 0."
    }


def test_linked_rows_count_and_what_is_deleted_is_told(root: MCPRequest) -> None:
    book, other = make_book("One"), make_book("Two")
    tag = Tag.objects.create(name="t")
    assert history_after(root, lambda queryset: tag.books.add(queryset.first()), book, other) == {
        str(book.pk): "Changed Tags."
    }
    assert history_after(root, lambda queryset: tag.books.add(queryset.first()), book, other) == {}
    assert history_after(root, lambda queryset: queryset.first().delete(), book, other) == {str(book.pk): ""}


def test_secrets_and_hidden_values_are_not_in_the_history(root: MCPRequest) -> None:
    author = make_author("A", secret_token="old secret")
    call(RUN, root, model="testapp.author", action="work", pks=[author.pk])
    entry = LogEntry.objects.get()
    assert entry.get_change_message().startswith("Changed Name: A → B and Secret token. Changed via MCP")
    assert "secret" not in entry.change_message.replace("Secret token", "")
    book = make_book("One", isbn="1")
    # The caller does not see the field: not even its new value is written down.
    assert history_after(root, lambda queryset: queryset.update(isbn="2"), book) == {str(book.pk): "Changed ISBN."}


def test_who_reads_the_history_learns_nothing_of_hidden_fields(root: MCPRequest) -> None:
    book = make_book("One", pages=4711)
    history_after(root, lambda queryset: queryset.update(pages=4712, title="Two"), book)
    told = call(GET, root, **BOOK, pk=book.pk, history=True)["history"][0]["message"]
    assert "Title: One → Two and Pages: 4711 → 4712" in told
    site = mcp.MCPSite()
    site.register(Book, mcp.ModelExposure, fields=["title"])
    told = call(GET, request_of(root.user, site), **BOOK, pk=book.pk, history=True)["history"][0]["message"]
    assert told.startswith("Changed Title: One → Two. Changed via MCP")
    assert "471" not in told


def test_long_values_are_cut(root: MCPRequest) -> None:
    book = make_book("One")
    found = history_after(root, lambda queryset: queryset.update(title="x\n" * 90), book)
    assert len(found[str(book.pk)]) < 120


def test_a_write_that_changes_nothing_leaves_no_history(root: MCPRequest) -> None:
    book = make_book("One", pages=3)
    done = call(UPDATE, root, **BOOK, pk=book.pk, values={"title": "One", "pages": "3"})
    assert done["changed"] == []
    assert not LogEntry.objects.exists()
    assert call(UPDATE, root, **BOOK, pk=book.pk, values={"pages": 4})["changed"] == ["pages"]
    assert LogEntry.objects.count() == 1
