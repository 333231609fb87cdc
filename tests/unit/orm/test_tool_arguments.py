"""What the read tools take for an argument, and how they refuse."""

import json
from typing import Any
from unittest.mock import patch

import pytest

from mcp_django.exceptions import ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.row_arguments import RowArguments
from mcp_django.orm.tool_arguments import Arguments
from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]


@pytest.fixture
def book(db: None) -> Any:
    site = site_with(
        Book, Author, Tag, fields=["title", "author", "pages", "status", "rating"], search_fields=["title"]
    )
    request = reader(make_superuser(), site)
    return request, site.exposures[Book]


def fields_argument(request: Any, exposure: Any, given: Any) -> Any:
    return RowArguments(access_of(request)[exposure], {"fields": given}).columns()


def ordering_argument(request: Any, exposure: Any, given: Any) -> Any:
    return RowArguments(access_of(request)[exposure], {"ordering": given}).ordering()


def search_argument(request: Any, exposure: Any, given: Any) -> Any:
    return RowArguments(access_of(request)[exposure], {"search": given}).search()


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(ToolError) as error:
        function(*arguments)
    assert len(error.value.message) < 1500
    return error.value.message


def test_a_relation_to_several_rows_as_a_field_says_what_reads_them(book: Any) -> None:
    request, _ = book
    author = request.mcp.site.exposures[Author]
    for text in ("books", "books.title", "books__title"):
        assert refused(fields_argument, request, author, [text]) == (
            f"testapp.author has no field '{text}'. books leads to several rows: books.count, books.sum.pages, or "
            "get_record with related."
        )


def test_an_unknown_argument_names_the_nearest() -> None:
    assert "Did you mean limit?" in refused(Arguments.read, {"limts": 5}, ["model", "limit"])
    assert Arguments.read({"wait_for_previous": True, "model": "x", "limit": None}, ["model", "limit"]) == {
        "model": "x"
    }


@pytest.mark.parametrize("name", ["pageSize", "page_size", "LIMIT", "limits", "maxResults", "take"])
def test_another_name_of_an_argument_is_understood_where_nothing_is_written(name: str) -> None:
    assert Arguments.read({name: 5}, ["model", "limit"]) == {"limit": 5}
    assert "Did you mean limit?" in refused(lambda: Arguments.read({name: 5}, ["model", "limit"], strict=True))
    # What is named twice is not chosen between.
    assert "Did you mean limit?" in refused(Arguments.read, {name: 5, "limit": 6}, ["model", "limit"])


def test_a_name_that_can_mean_two_arguments_is_asked_about() -> None:
    assert "Did you mean search?" in refused(Arguments.read, {"query": "x"}, ["search"])
    assert Arguments.read({"offset": 0, "page": "1", "skip": 0}, ["model", "cursor"]) == {}
    assert "next_cursor" in refused(Arguments.read, {"page": 2}, ["model", "cursor"])


def test_row_125_a_hidden_model_is_refused_like_a_missing_one(db: None) -> None:
    site = site_with(Author, Book)
    request = reader(make_user("u", "testapp.view_author"), site)
    hidden = refused(Arguments(model="testapp.book").model, request)
    site.unregister(Book)
    missing = refused(Arguments(model="testapp.book").model, reader(request.user, site))
    assert hidden == missing
    assert "testapp.author" in hidden
    assert "book" not in hidden


def test_row_112_a_hidden_field_is_refused_like_a_missing_one(book: Any) -> None:
    assert refused(ordering_argument, *book, "isbn").replace("isbn", "nono") == refused(
        ordering_argument, *book, "nono"
    )
    assert refused(fields_argument, *book, "isbn").replace("isbn", "nono") == refused(fields_argument, *book, "nono")


@pytest.mark.parametrize(
    ("given", "found"),
    [("-pages", [("pages", True), ("id", True)]), (["status", "-id"], [("status", False), ("id", True)])],
)
def test_an_order_is_made_total(book: Any, given: Any, found: Any) -> None:
    assert [(key.path, key.descending) for key in ordering_argument(book[0], book[1], given)] == found


@pytest.mark.parametrize(
    "given",
    [
        "--pages",
        "pages;",
        "?",
        "author__name",
        ["pages"] * 6,
        {"pages": 1},
        5,
        "-",
        "pages%",
        "pages:up",
        ":nulls_last",
    ],
)
def test_row_116_an_order_outside_the_list_is_refused(book: Any, given: Any) -> None:
    refused(ordering_argument, *book, given)


@pytest.mark.parametrize(("given", "found"), [(None, 20), (5, 5), ("50", 50), (5.0, 5), (10**9, 200), (10**400, 200)])
def test_row_71_a_limit_is_clamped(given: Any, found: int) -> None:
    assert Arguments(limit=given).limit(20) == found


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "many", "-5", [], {}, "٥", "9" * 5000])
def test_row_71_what_is_no_limit_is_refused(given: Any) -> None:
    assert refused(Arguments(limit=given).limit, 20) == "limit must be a whole number from 1 to 200."


@pytest.mark.parametrize(("given", "found"), [(None, False), (True, True), ("TRUE", True), ("false", False)])
def test_flags_are_read(given: Any, found: bool) -> None:
    assert Arguments(count=given).flag("count") is found


@pytest.mark.parametrize("given", [1, 0, "yes", [], {}])
def test_other_flags_are_refused(given: Any) -> None:
    refused(Arguments(count=given).flag, "count")


@pytest.mark.parametrize("given", ["x" * 201, "a\0b", "a " * 13, 5, ["a"]])
def test_row_118_a_search_is_a_short_text(book: Any, given: Any) -> None:
    refused(search_argument, *book, given)


def test_fields_are_read_in_each_spelling(book: Any) -> None:
    for given in (["title", "author"], "title, author", '["title","author","title"]', ["title", "author_id"]):
        assert [column.name for column in fields_argument(book[0], book[1], given)] == ["id", "title", "author"]


def test_very_many_unknown_arguments_are_told_without_looking_for_their_meaning(db: None) -> None:
    client = MCPClient(make_superuser())
    many = {f"x{number}": 1 for number in range(20_000)}
    for name, arguments in {
        "query_records": {"model": "testapp.book"},
        "aggregate_records": {"model": "testapp.book", "aggregates": ["count"]},
        "list_models": {},
        "update_record": {"model": "testapp.book", "pk": "1", "values": {}},
    }.items():
        with patch("mcp_django.orm.tool_arguments.argument_meant") as meant:
            result = client.call(name, **arguments, **many)
        assert result.is_error
        assert "Unknown arguments: 'x0', 'x1', 'x2', 'x3', 'x4' and 19995 more." in result.text
        meant.assert_not_called()


def test_very_many_conditions_are_refused_before_they_are_read(db: None) -> None:
    client = MCPClient(make_superuser())
    many = {f"title{number}": 1 for number in range(20_000)}
    with patch("mcp_django.orm.suggestions.FilterSuggestions.unknown") as unknown:
        for filters in (many, json.dumps(many), {"or": [many]}, {"author": many}, [{"pages": 1}] * 20_000):
            result = client.call("query_records", model="testapp.book", filters=filters)
            assert result.text == "filters takes at most 20 conditions."
    unknown.assert_not_called()


def test_D85_arguments_are_known_and_set() -> None:
    assert Arguments.of_write({"a": 1, "b": None, "wait_for_previous": True}, ["a", "b"], ["a"]) == {"a": 1}
    assert refused(Arguments.of_write, {"aa": 1}, ["a", "b"]).startswith("Unknown argument 'aa'.")
    assert refused(Arguments.of_write, {"a": None}, ["a", "b"], ["a"]).startswith("Missing argument: a.")


def test_an_object_may_be_left_out_but_not_be_something_else() -> None:
    assert Arguments(form=None).object("form") == {}
    assert Arguments(form='{"a": 1}').object("form") == {"a": 1}
    wrong: list[Any] = ["x", 5, [], True]
    for value in wrong:
        assert "form must be an object" in refused(Arguments(form=value).object, "form")
    assert "one row a call" in refused(Arguments(values=[{"name": "a"}, {"name": "b"}]).object, "values")


def test_keys_are_a_list_of_texts_and_integers() -> None:
    assert Arguments(pks='[1, "a"]').pks() == [1, "a"]
    wrong: list[Any] = [None, "1", 5, [], [True], [1.5], [{}], [1] * 1001]
    for value in wrong:
        assert "pks" in refused(Arguments(pks=value).pks)
