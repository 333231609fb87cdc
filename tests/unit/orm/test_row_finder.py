"""Rows that are named by a unique field or by their label where a primary key is meant."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import Unreadable
from mcp_django.orm.access import access_of
from mcp_django.orm.row_finder import RowFinder
from mcp_django.testing import MCPClient
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Placement, Profile, Shelf, Tag
from tests.tool_calls import call, refusal

pytestmark = pytest.mark.django_db
QUERY, GET, CREATE, UPDATE, DELETE = QueryRecords(), GetRecord(), CreateRecord(), UpdateRecord(), DeleteRecord()
BOOK = {"model": "testapp.book"}


@pytest.fixture
def root() -> MCPRequest:
    return reader(make_superuser(), site_with(Author, Book, Loan, Profile, Shelf, Tag))


class OwnBooks(ModelExposure):
    """The books of the caller."""

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(owner=request.user)


def own_books(user: User, **options: Any) -> MCPRequest:
    site = site_with(Author, Loan)
    site.register(Book, OwnBooks, **{"fields": ["title", "author", "isbn", "uuid"], **options})
    return reader(user, site)


def test_a_record_is_read_by_a_unique_field_or_its_label(root: MCPRequest) -> None:
    book = make_book("Solaris", isbn="978-1")
    make_book("Solaris 2", isbn="978-2")
    for pk in ("978-1", "Solaris", "solaris", " SOLARIS ", str(book.uuid)):
        assert call(GET, root, **BOOK, pk=pk)["pk"] == book.pk
    # Its label is made by code.
    profile = Profile.objects.create(author=make_author("Lem"))
    Profile.objects.create(author=make_author("Le Guin"))
    assert call(GET, root, model="testapp.profile", pk="profile of lem")["pk"] == profile.pk


def test_what_names_several_rows_is_answered_with_their_keys(root: MCPRequest) -> None:
    first, second = make_book("Solaris"), make_book("Solaris")
    message = refusal(GET, root, **BOOK, pk="solaris")
    assert message.startswith(RowFinder.NOT_FOUND)
    assert f"are named 'solaris', by key: {first.pk}: Solaris; {second.pk}: Solaris. Give the key." in message
    message = refusal(GET, root, **BOOK, pk="Solar")
    assert f"may be meant by 'Solar', by key: {first.pk}: Solaris" in message
    for _ in range(10):
        make_book("Solaris")
    assert refusal(GET, root, **BOOK, pk="Solaris").count("Solaris") == 6
    assert refusal(GET, root, **BOOK, pk="Nothing so") == RowFinder.NOT_FOUND


def test_what_could_be_a_key_is_told_and_never_taken(root: MCPRequest) -> None:
    book = make_book("1984", isbn="1984000")
    for pk in ("1984", 1984, "1984000"):
        for tool, values in ((GET, {}), (UPDATE, {"values": {"title": "x"}}), (DELETE, {})):
            message = refusal(tool, root, **BOOK, pk=pk, **values)
            assert f"is named '{pk}', by key: {book.pk}: 1984. Give the key." in message
    assert Book.objects.get().title == "1984"


def test_writes_and_deletions_take_names(root: MCPRequest) -> None:
    book = make_book("Solaris", isbn="978-1")
    assert call(UPDATE, root, **BOOK, pk="978-1", values={"pages": 7})["pk"] == book.pk
    assert Book.objects.get().pages == 7
    preview = call(UPDATE, root, **BOOK, pks=["Solaris"], values={"pages": 8})
    call(UPDATE, root, **BOOK, pks=["978-1"], values={"pages": 8}, confirm_token=preview["confirm_token"])
    assert Book.objects.get().pages == 8
    preview = call(DELETE, root, **BOOK, pk="Solaris")
    assert (preview["pk"], preview["label"]) == (book.pk, "Solaris")
    call(DELETE, root, **BOOK, pk=str(book.pk), confirm_token=preview["confirm_token"])
    assert not Book.objects.exists()


def test_relations_are_written_and_filtered_by_names(root: MCPRequest) -> None:
    lem, _ = make_author("Lem"), make_author("Le Guin")
    tags = [Tag.objects.create(name=name) for name in ("sea", "space")]
    values = {"title": "Solaris", "isbn": "978-1", "price": "9.90", "author": "Lem", "tags": ["sea", tags[1].pk]}
    made = call(CREATE, root, **BOOK, values=values)
    book = Book.objects.get(pk=made["pk"])
    assert (book.author, set(book.tags.all())) == (lem, set(tags))
    make_book("Other", author=make_author("Other"))
    for filters in (
        {"author": "Lem"},
        {"author": ["lem"]},
        {"author__in": ["Lem", lem.pk]},
        {"tags": "sea"},
        {"or": [{"author": "LEM"}, {"author": "Le Guin"}]},
        {"author__ne": "Other"},
    ):
        assert [row[0] for row in call(QUERY, root, **BOOK, filters=filters)["rows"]] == [book.pk]
    assert "needs an integer. Of testapp.author may be meant by" in refusal(
        QUERY, root, **BOOK, filters={"author": "Guin"}
    )
    assert refusal(QUERY, root, **BOOK, filters={"author": "Nobody"}) == (
        "No testapp.author is named 'Nobody': the filter 'author' with exact needs an integer."
    )
    make_author("Lem")
    several = f"are named 'Lem', by key: {lem.pk}: Lem;"
    assert several in refusal(QUERY, root, **BOOK, filters={"author": "Lem"})
    assert several in refusal(CREATE, root, **BOOK, values={**values, "isbn": "978-2"})


def test_a_label_where_keys_are_texts_is_taken_or_told() -> None:
    request = reader(make_superuser(), site_with(Book, Placement, Shelf))
    shelf, book = Shelf.objects.create(code="A/1"), make_book("Solaris")
    assert call(GET, request, model="testapp.shelf", pk="shelf a/1")["pk"] == "A/1"
    values = {"shelf": "Shelf A/1", "book": "Solaris", "position": 1}
    assert call(CREATE, request, model="testapp.placement", values=values)["created"]
    assert (shelf.placement_set.get().book) == book
    # Any text could be a key: the page is empty, and says which key is meant.
    page = call(QUERY, request, model="testapp.placement", filters={"shelf": "Shelf A/1"})
    assert page["hint"] == ("shelf is compared with primary keys of testapp.shelf, not with labels; 'Shelf A/1' is A/1")
    assert call(QUERY, request, model="testapp.placement", filters={"shelf": "A/1"})["returned"] == 1
    # But one that is longer than any key is none.
    Shelf.objects.update(code="B" * 45)
    Placement.objects.update(shelf="B" * 45)
    assert call(QUERY, request, model="testapp.placement", filters={"shelf": f"Shelf {'B' * 45}"})["returned"] == 1
    assert call(QUERY, request, model="testapp.placement", filters={"shelf": "C" * 51})["returned"] == 0


def test_G124_hidden_rows_and_fields_name_nothing() -> None:
    user, other = make_superuser("seller"), make_superuser()
    mine = make_book("Solaris", isbn="978-1", owner=user)
    hidden = make_book("Fiasco", isbn="978-2", owner=other)
    make_book("Solaris", isbn="978-3", owner=other)
    request = own_books(user)
    # The hidden row of the same label does not make it ambiguous.
    assert call(GET, request, **BOOK, pk="Solaris")["pk"] == mine.pk
    for pk in ("Fiasco", "978-2", str(hidden.uuid), "Fias", hidden.pk, "978-3"):
        assert refusal(GET, request, **BOOK, pk=pk) == refusal(GET, request, **BOOK, pk="nono") == RowFinder.NOT_FOUND
    due = {"borrower": "Ann", "due": "2030-01-02T03:04:05Z"}
    texts = {
        refusal(CREATE, request, model="testapp.loan", values={**due, "book": pk}) for pk in ("Fiasco", "978-2", "nono")
    }
    assert texts == {"Nothing was saved:\nbook: No testapp.book has this primary key."}
    # A unique field that is not shown, or not filtered by, is no name.
    for options in (
        {"fields": ["title"]},
        {"filter_fields": {"title": ["exact"]}},
        {"filter_fields": {"isbn": ["in"]}},
    ):
        assert refusal(GET, own_books(user, **options), **BOOK, pk="978-1") == RowFinder.NOT_FOUND


def test_a_label_of_rows_of_a_model_that_is_not_the_callers_names_nothing() -> None:
    make_book("Solaris", author=make_author("Lem"))
    site = MCPSite()
    site.register(Book, ModelExposure, fields=["title", "author"])
    request = reader(make_superuser(), site)
    assert refusal(QUERY, request, **BOOK, filters={"author": "Lem"}).endswith("needs an integer.")


def test_keys_that_are_right_cost_nothing_more(root: MCPRequest) -> None:
    book = make_book("Solaris", isbn="978-1", author=make_author("Lem"))
    calls = ({"filters": {"author": book.author_id}}, {"filters": {"author": [book.author_id], "tags": 1}})
    for arguments in calls:
        call(QUERY, root, **BOOK, **arguments)
        with CaptureQueriesContext(connection) as queries:
            call(QUERY, root, **BOOK, **arguments)
        assert len(queries) <= 2
    call(GET, root, **BOOK, pk=book.pk)
    with CaptureQueriesContext(connection) as queries:
        call(GET, root, **BOOK, pk=book.pk)
    with CaptureQueriesContext(connection) as named:
        call(GET, root, **BOOK, pk="978-1")
    assert len(named) - len(queries) == 1


def test_a_call_that_is_repeated_may_name_the_row() -> None:
    client = MCPClient(make_superuser())
    book = make_book("Solaris", isbn="978-1")
    for _ in range(2):
        done = client.call("update_record", **BOOK, pk="978-1", values={"pages": 7}, idempotency_key="k")
        assert done.structured["pk"] == book.pk


@pytest.mark.parametrize("pk", ["", " ", "x" * 201, "a\0b", True, 1.5, ["a"], {"pk": 1}, None])
def test_what_is_no_name_is_not_found(root: MCPRequest, pk: Any) -> None:
    make_book("a")
    assert "by key" not in refusal(GET, root, **BOOK, pk=pk)


def test_functions_and_prompts_take_rows_by_name() -> None:
    site = site_with(Book)

    def weigh(request: Any, book: Book) -> int:
        """Weigh a book."""
        return book.pk

    site.add_tool(weigh, read_only=True)
    request = reader(make_superuser(), site)
    book = make_book("Solaris", isbn="978-1")
    tool = site.get_tool(request, "weigh")
    assert tool is not None
    for given in (book.pk, "978-1", "solaris"):
        assert call(tool, request, book=given) == {"result": book.pk}
    make_book("Solaris")
    assert f"by key: {book.pk}: Solaris" in refusal(tool, request, book="Solaris")
    assert "by key" not in refusal(tool, request, book="nothing")


def test_more_rows_than_can_be_compared_have_no_names(root: MCPRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Lem", "Le Guin"):
        Profile.objects.create(author=make_author(name))
    assert "fields" in call(GET, root, model="testapp.profile", pk="profile of lem")
    monkeypatch.setattr("mcp_django.orm.row_finder.MAX_COMPARED", 1)
    assert refusal(GET, root, model="testapp.profile", pk="profile of lem") == RowFinder.NOT_FOUND


def test_rows_that_cannot_be_read_have_no_names(root: MCPRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*given: Any) -> Any:
        raise Unreadable

    make_book("Solaris")
    monkeypatch.setattr("mcp_django.orm.row_finder.RowFinder._read", unreadable)
    assert refusal(GET, root, **BOOK, pk="Solaris") == RowFinder.NOT_FOUND


def test_a_unique_field_that_the_project_does_not_let_them_look_up_is_no_name() -> None:
    class Guarded(ModelExposure):
        fields = "__all__"

        def lookup_allowed(self, request: Any, lookup: str, value: str) -> bool:
            return not lookup.startswith("isbn")

    own = MCPSite()
    own.register(Book, Guarded)
    request = reader(make_superuser(), own)
    book = make_book("Solaris", isbn="978-1")
    assert call(GET, request, **BOOK, pk=str(book.uuid))["pk"] == book.pk
    assert refusal(GET, request, **BOOK, pk="978-1") == RowFinder.NOT_FOUND


def test_a_text_with_a_hidden_part_names_nothing(root: MCPRequest) -> None:
    make_book("https://ann:s3cret@shop.example")
    assert refusal(GET, root, **BOOK, pk="https://ann:s3cret@shop.example") == RowFinder.NOT_FOUND


def test_a_part_of_a_label_that_code_makes_is_searched_for() -> None:
    profile = Profile.objects.create(author=make_author("Stanislaw Lem"))
    for searched, expected in (
        (["author__name"], f"{profile.pk}: Profile of Stanislaw Lem"),
        ([], RowFinder.NOT_FOUND),
    ):
        own = site_with(Author)
        own.register(Profile, ModelExposure, fields="__all__", search_fields=searched)
        request = reader(make_superuser(f"root{len(searched)}"), own)
        assert expected in refusal(GET, request, model="testapp.profile", pk="Stanislaw")


def test_a_key_is_no_hint_to_itself(root: MCPRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = RowFinder(access_of(root)[root.mcp.site.exposures[Shelf]])
    monkeypatch.setattr(RowFinder, "key", lambda self, given, missing: "A/1")
    assert list(finder.hints(["A/1", "Shelf A/1"])) == ["'Shelf A/1' is A/1"]
