"""URIs that name one thing each, and are read in linear time."""

from typing import Any

import pytest

from mcp_django import MCPSite, ModelExposure
from mcp_django.exceptions import NotFound
from mcp_django.orm.uris import page_uri, parse_uri, row_uri, row_uri_pattern, schema_uri
from tests.steps import is_linear
from tests.testapp.models import Book, Shelf

SHELF = ModelExposure(Shelf, MCPSite())
BOOK = ModelExposure(Book, MCPSite())
ODD = ["A/1", "50 %", "?x=1", "..", ".", "schema", "%2F", "ünï", "é", "é", "a#b", "😀", "a&b=c", "+", "a b", "\\"]


@pytest.mark.parametrize("pk", ODD)
def test_row_124_a_key_of_any_text_comes_back(pk: str) -> None:
    address = parse_uri(row_uri(SHELF, pk))
    assert (address.label, address.pk, address.is_schema, address.field_name) == ("testapp.shelf", pk, False, None)


def test_row_124_no_two_keys_have_one_uri() -> None:
    assert len({row_uri(SHELF, pk) for pk in ODD}) == len(set(ODD))


def test_models_pages_files_and_schemas_have_their_forms() -> None:
    assert row_uri_pattern(BOOK) == "django://testapp/book/{id}"
    assert row_uri(BOOK, 5) == "django://testapp/book/5"
    assert parse_uri(schema_uri(BOOK)).is_schema
    assert parse_uri("django://testapp/book/5/cover").field_name == "cover"
    uri = page_uri(BOOK, search="a b&c", ordering="-title", cursor=None)
    assert uri == "django://testapp/book?search=a%20b%26c&ordering=-title"
    assert parse_uri(uri).query == {"search": "a b&c", "ordering": "-title"}


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "http://testapp/book/1",
        "data:text/plain,x",
        "gopher://x",
        "DJANGO://testapp/book/1",
        "django:/testapp/book/1",
        "django://testapp",
        "django://",
        "django://testapp/book/1/cover/x",
        "django://testapp/book/1?x=1",
        "django://testapp/book?x=1",
        "django://testapp/book?cursor=a&cursor=b",
        "django://testapp/book/%zz",
        "django://testapp/book/%ff",
        "django://testapp/book/%00",
        "django://testapp/book/1#x",
        "django://testapp/book/%31",
        "django://testapp/book/1/c%6fver",
        "django://testapp/shelf/a b",
        "django://testapp/shelf/a+b",
        "django://testapp/shelf/s%63hema",
        "django://testapp/shelf/%2E%2E",
        "",
        None,
        5,
        [],
    ],
)
def test_rows_162_161_another_uri_is_not_found(uri: Any) -> None:
    with pytest.raises(NotFound):
        parse_uri(uri)


@pytest.mark.parametrize("part", ["/", "%", "%25", "?", "&cursor=", "{", "a/"])
def test_row_161_a_hostile_uri_of_64_kib_takes_linear_time(part: str) -> None:
    assert is_linear(lambda size: parse_uri("django://testapp/book" + (part * size)[:size]))
    with pytest.raises(NotFound):
        parse_uri("django://testapp/book" + part * (65_536 // len(part)))
