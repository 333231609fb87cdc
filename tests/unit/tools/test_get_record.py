"""`get_record`: one row in full, named by model and pk or by its address."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.test import override_settings

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.emulation.record import Record
from mcp_django.orm.access import access_of
from mcp_django.orm.row_finder import RowFinder
from mcp_django.tools.get_record import GetRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Profile, Shelf, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
GET = GetRecord()


@pytest.fixture
def request_() -> Any:
    return reader(make_superuser(), site_with(Book, Author, Tag, Profile, Shelf, search_fields=["id"]))


def test_it_is_named_by_model_and_pk_or_by_uri(request_: Any) -> None:
    book = make_book(title="t")
    found = call(GET, request_, model="testapp.Book", pk=book.pk)
    assert found == call(GET, request_, uri=f"django://testapp/book/{book.pk}")
    assert found == call(GET, request_, model="testapp.book", pk=str(book.pk))
    assert list(found) == ["model", "pk", "uri", "label", "permissions", "admin_url", "version", "fields"]
    assert (found["pk"], found["label"]) == (book.pk, "t")
    assert found["fields"]["author"] == [book.author_id, book.author.name]
    assert found["permissions"] == {"change": True, "delete": True}


def test_row_124_a_key_of_odd_text_round_trips(request_: Any) -> None:
    shelf = Shelf.objects.create(code="A/1 %2F?x=1 ü")
    found = call(GET, request_, model="testapp.shelf", pk=shelf.code)
    assert call(GET, request_, uri=found["uri"]) == found


def test_row_121_missing_hidden_and_forbidden_are_one_answer() -> None:
    site = MCPSite(admin_site=admin.site)
    owner, other = make_user("a", "testapp.view_book"), make_user("b", "testapp.view_book")
    book = make_book(owner=owner)
    request = reader(other, site)
    answers = {
        refusal(GET, request, model="testapp.book", pk=book.pk),
        refusal(GET, request, model="testapp.book", pk=10**6),
        refusal(GET, request, model="testapp.book", pk="x"),
        refusal(GET, request, model="testapp.book", pk=2**64),
        refusal(GET, request, uri=f"django://testapp/book/{book.pk}"),
        refusal(GET, request, uri="django://testapp/author/1"),
        refusal(GET, request, uri="django://testapp/nothing/1"),
        refusal(GET, request, uri="django://testapp/book"),
        refusal(GET, request, uri="file:///etc/passwd"),
        refusal(GET, request, uri=5),
    }
    assert answers == {RowFinder.NOT_FOUND}
    assert call(GET, reader(owner, site), model="testapp.book", pk=book.pk)["pk"] == book.pk


def test_it_needs_a_name(request_: Any) -> None:
    assert "by model and pk" in refusal(GET, request_, model="testapp.book")


def test_fields_are_chosen_and_checked(request_: Any) -> None:
    author = make_author("n")
    assert call(GET, request_, model="testapp.author", pk=author.pk, fields=["name"])["fields"] == {
        "id": author.pk,
        "name": "n",
    }
    assert "no field" in refusal(GET, request_, model="testapp.author", pk=author.pk, fields=["secret_token"])


def test_permissions_are_those_of_the_row_the_token_and_the_site() -> None:
    user = make_user("u", "testapp.view_book", "testapp.change_book", "testapp.delete_book")
    site = MCPSite(admin_site=admin.site)
    mine, nobodys = make_book(owner=user, status="published"), make_book()
    request = reader(user, site)
    exposure = site.exposures[Book]
    assert Record(access_of(request)[exposure], mine).payload()["permissions"] == {"change": True, "delete": False}
    assert Record(access_of(request)[exposure], nobodys).payload()["permissions"] == {"change": False, "delete": True}
    only_read = request_of(user, site, scopes=frozenset({"mcp:read"}))
    assert Record(access_of(only_read)[exposure], mine).payload()["permissions"] == {"change": False, "delete": False}
    with override_settings(MCP_DJANGO={"READ_ONLY": True}):
        assert Record(access_of(request)[exposure], mine).payload()["permissions"] == {"change": False, "delete": False}


def test_row_83_a_record_beyond_the_bound_is_cut_with_a_hint(request_: Any) -> None:
    profile = Profile.objects.create(author=make_author(), biography="x" * 9000, website="https://example.com")
    with override_settings(MCP_DJANGO={"RESULT_CHARS": 2000}):
        found = call(GET, request_, model="testapp.profile", pk=profile.pk)
    assert len(json.dumps(found["fields"], ensure_ascii=False)) <= 2000
    assert "biography" in found["hint"]
    assert found["fields"]["website"] == "https://example.com"


def test_an_exposure_of_nothing_shows_the_key_and_the_label() -> None:
    author = make_author("n")
    site = MCPSite()
    site.register(Author, ModelExposure)
    found = call(GET, reader(make_superuser(), site), model="testapp.author", pk=author.pk)
    assert (found["fields"], found["label"]) == ({"id": author.pk}, "n")


class TestRelatedRows:
    """The first rows of relations, of which only those count that the caller may see."""

    @pytest.fixture
    def author(self) -> Any:
        author = make_author("Ada")
        for number in range(7):
            book = make_book(f"book {number}", author=author, pages=number)
            book.tags.add(Tag.objects.create(name=f"tag {number}"))
        make_book("another", author=make_author("Bob"))
        return author

    def test_they_come_with_their_number(self, author: Any) -> None:
        request = reader(make_superuser(), site_with(Author, Book, Tag, list_display=["title"]))
        found = call(GetRecord(), request, model="testapp.author", pk=str(author.pk), related=["books:2"])
        books = found["related"]["books"]
        assert (books["model"], books["count"], len(books["rows"])) == ("testapp.book", 7, 2)
        title = books["columns"].index("title")
        assert [row[title] for row in books["rows"]] == ["book 0", "book 1"]
        by_text = call(GetRecord(), request, model="testapp.author", pk=str(author.pk), related="books")
        assert len(by_text["related"]["books"]["rows"]) == 5

    def test_of_many_to_many_relations_from_both_sides(self, author: Any) -> None:
        request = reader(make_superuser(), site_with(Author, Book, Tag))
        book = author.books.first()
        found = call(GetRecord(), request, model="testapp.book", pk=str(book.pk), related=["tags"])
        assert found["related"]["tags"]["rows"] == [[tag.pk, tag.name] for tag in book.tags.all()]
        tag = book.tags.get()
        found = call(GetRecord(), request, model="testapp.tag", pk=str(tag.pk), related=["books"])
        assert found["related"]["books"]["count"] == 1
        assert found["related"]["books"]["rows"][0][0] == book.pk

    def test_row_121_hidden_rows_are_none(self, author: Any) -> None:
        class Long(ModelExposure):
            fields = ("title", "author")

            def get_queryset(self, request: MCPRequest) -> Any:
                return super().get_queryset(request).filter(pages__gt=4)

        site = site_with(Author)
        site.register(Book, Long)
        request = reader(make_superuser(), site)
        found = call(GetRecord(), request, model="testapp.author", pk=str(author.pk), related=["books"])
        assert [row[1] for row in found["related"]["books"]["rows"]] == ["book 5", "book 6"]
        assert found["related"]["books"]["count"] == 2

    @pytest.mark.parametrize("name", ["book", "nothing", "owner", "audiobooks", "books:x"])
    def test_row_112_only_relations_that_the_caller_can_follow(self, author: Any, name: str) -> None:
        site = site_with(Author, Book)
        told = refusal(GetRecord(), reader(make_superuser(), site), model="testapp.author", pk=author.pk, related=name)
        assert "no relation" in told or "whole number" in told
        alone = reader(make_user("u", "testapp.view_author"), site)
        told = refusal(GetRecord(), alone, model="testapp.author", pk=author.pk, related="books")
        assert "has no relation 'books'" in told
