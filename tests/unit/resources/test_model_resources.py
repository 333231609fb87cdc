"""Models as resources: lists, templates, pages down to the last row, records, descriptions."""

import json
from typing import Any

import pytest
from django.contrib import admin

from mcp_django import MCPSite
from mcp_django.exceptions import NotFound
from mcp_django.orm.pagination import CURSOR_ERROR
from mcp_django.protocol.errors import InvalidParams
from mcp_django.resources.model_resources import Resources
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import make_library, reader, site_with
from tests.testapp.models import Author, Book, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture
def request_() -> Any:
    return reader(make_superuser(), site_with(Book, Author, Shelf, Tag, search_fields=["pk"]))


def read(request: Any, uri: str) -> Any:
    contents = Resources(request).find(uri).read()
    assert [content["uri"] for content in contents] == [uri]
    assert contents[0]["mimeType"] == "application/json"
    return json.loads(contents[0]["text"])


def test_row_125_the_list_holds_a_page_and_a_description_of_each_visible_model() -> None:
    site = site_with(Author, Book, description="d")
    definitions, cursor = Resources(reader(make_user("u", "testapp.view_book"), site)).list(None)
    assert cursor is None
    assert [definition["uri"] for definition in definitions] == [
        "django://testapp/book",
        "django://testapp/book/schema",
        "django://asking",
    ]
    assert definitions[0] == {
        "uri": "django://testapp/book",
        "name": "testapp.book",
        "title": "books",
        "description": "d",
        "mimeType": "application/json",
    }


@pytest.mark.parametrize("path", ["book", "book?search=x", "book/schema", "book/7", "book/7/cover"])
def test_an_exposure_says_how_long_what_is_read_of_it_may_be_kept(path: str) -> None:
    user = make_superuser()
    for ttl_ms, hints in ((None, {}), (0, {"ttlMs": 0}), (5000, {"ttlMs": 5000})):
        request = reader(user, site_with(Book, cache_ttl_ms=ttl_ms))
        assert Resources(request).find(f"django://testapp/{path}").cache_hints == hints


def test_125_nothing_is_said_of_a_hidden_model() -> None:
    site = site_with(Author, Book, cache_ttl_ms=5000)
    request = reader(make_user("u", "testapp.view_book"), site)
    for uri in ("django://testapp/author", "django://testapp/nosuch", "x://"):
        with pytest.raises(NotFound):
            Resources(request).find(uri)


def test_the_list_is_paged_by_cursor(request_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = Resources(request_).list(None)
    monkeypatch.setattr("mcp_django.resources.model_resources.LIST_PAGE", 3)
    first, cursor = Resources(request_).list(None)
    second, end = Resources(request_).list(cursor)
    assert (len(first), len(second), end) == (7, 2, None)
    assert [*first[:-1], *second, first[-1]] == whole
    with pytest.raises(InvalidParams, match="not valid"):
        Resources(request_).list("x")
    with pytest.raises(InvalidParams, match="not valid"):
        Resources(reader(make_superuser("b"), request_.mcp.site)).list(cursor)


def test_templates_are_there_for_who_may_view_anything(request_: Any) -> None:
    found = {template["uriTemplate"] for template in Resources(request_).templates()}
    assert "django://{app_label}/{model_name}/{pk}" in found
    assert "django://{app_label}/{model_name}{?cursor,search,ordering,fields}" in found
    assert Resources(reader(make_user("u"), request_.mcp.site)).templates() == []


@pytest.mark.parametrize("query", ["", "?ordering=-pages", "?fields=title,author&ordering=author"])
def test_pages_lead_down_to_the_last_row(request_: Any, query: str) -> None:
    books = make_library(45)
    uri: str | None = f"django://testapp/book{query}"
    found = []
    while uri is not None:
        page = read(request_, uri)
        assert "next_cursor" not in page
        found += [row[0] for row in page["rows"]]
        uri = page.get("next")
    assert len(found) == len(set(found)) == len(books) + 1


def test_a_record_and_a_description_are_read(request_: Any) -> None:
    book = make_book(title="t")
    assert read(request_, f"django://testapp/book/{book.pk}")["fields"]["title"] == "t"
    assert read(request_, "django://testapp/book/schema")["model"] == "testapp.book"


def test_row_124_a_record_whose_key_is_the_word_schema_is_still_a_record(request_: Any) -> None:
    Shelf.objects.create(code="schema")
    found = read(request_, "django://testapp/shelf/%73chema")
    assert (found["pk"], found["uri"]) == ("schema", "django://testapp/shelf/%73chema")


@pytest.mark.parametrize(
    "uri",
    [
        "django://testapp/book/999999",
        "django://testapp/book/01",
        "django://testapp/book/x",
        "django://testapp/book/9223372036854775808",
        "django://testapp/Book",
        "django://testapp/nothing",
        "django://testapp/loan",
        "django://testapp/loan/schema",
        "django://auth/user/1",
        "django://testapp/book?unknown=1",
        "django://testapp/book/1/title",
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "",
    ],
)
def test_rows_121_125_162_what_is_not_there_is_not_found(request_: Any, uri: str) -> None:
    make_book()
    with pytest.raises(NotFound) as error:
        Resources(request_).find(uri).read()
    assert error.value.args == ()


def test_row_121_a_record_of_another_is_not_found() -> None:
    site = MCPSite(admin_site=admin.site)
    book = make_book(owner=make_superuser())
    with pytest.raises(NotFound):
        Resources(reader(make_user("u", "testapp.view_book"), site)).find(f"django://testapp/book/{book.pk}").read()


@pytest.mark.parametrize("query", ["ordering=secret_token", "fields=secret_token", "ordering=nothing"])
def test_row_112_a_query_on_what_is_hidden_is_invalid(query: str) -> None:
    make_author()
    request = reader(make_superuser(), site_with(Author))
    with pytest.raises(InvalidParams):
        Resources(request).find(f"django://testapp/author?{query}").read()


def test_row_68_a_bad_cursor_is_one_fixed_error(request_: Any) -> None:
    for cursor in ("x", "a:b:c", "x" * 5000):
        with pytest.raises(InvalidParams) as error:
            Resources(request_).find(f"django://testapp/book?cursor={cursor}").read()
        assert error.value.message == CURSOR_ERROR
