"""What the read tools take for an argument, and how they refuse."""

from typing import Any

import pytest

from mcp_django.exceptions import ToolError
from mcp_django.tools.arguments import (
    alternatives,
    check_names,
    exposure_argument,
    fields_argument,
    filters_argument,
    flag_argument,
    json_or_text,
    limit_argument,
    ordering_argument,
    search_argument,
)
from tests.factories import make_superuser, make_user
from tests.reading import reader, site_with
from tests.testapp.models import Author, Book, Tag


@pytest.fixture
def book(db: None) -> Any:
    site = site_with(
        Book, Author, Tag, fields=["title", "author", "pages", "status", "rating"], search_fields=["title"]
    )
    request = reader(make_superuser(), site)
    return request, site.exposures[Book]


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(ToolError) as error:
        function(*arguments)
    assert len(error.value.message) < 1500
    return error.value.message


def test_an_unknown_argument_names_the_nearest() -> None:
    assert "Did you mean limit?" in refused(check_names, {"limits": 5}, ["model", "limit"])
    assert check_names({"wait_for_previous": True, "model": "x", "limit": None}, ["model", "limit"]) == {"model": "x"}


def test_alternatives_are_bounded() -> None:
    text = alternatives("x" * 10**6, [f"name{number}" for number in range(1000)])
    assert len(text) < 500
    assert "and 960 more" in text


@pytest.mark.parametrize("text", ['{"a": 1}', " [1]", "[1", "plain", 5, None])
def test_json_in_a_text_is_read(text: Any) -> None:
    assert json_or_text(text) == {'{"a": 1}': {"a": 1}, " [1]": [1]}.get(text, text)


def test_row_125_a_hidden_model_is_refused_like_a_missing_one(db: None) -> None:
    site = site_with(Author, Book)
    request = reader(make_user("u", "testapp.view_author"), site)
    hidden = refused(exposure_argument, request, "testapp.book")
    site.unregister(Book)
    missing = refused(exposure_argument, reader(request.user, site), "testapp.book")
    assert hidden == missing
    assert "testapp.author" in hidden
    assert "book" not in hidden


def test_row_112_a_filter_on_a_hidden_field_is_refused_like_one_on_a_missing_field(book: Any) -> None:
    hidden = refused(filters_argument, *book, {"isbn": "1"})
    missing = refused(filters_argument, *book, {"nono": "1"})
    assert hidden.replace("isbn", "nono") == missing
    assert refused(ordering_argument, *book, "isbn").replace("isbn", "nono") == refused(
        ordering_argument, *book, "nono"
    )
    assert refused(fields_argument, *book, "isbn").replace("isbn", "nono") == refused(fields_argument, *book, "nono")


@pytest.mark.parametrize(
    "filters",
    [
        {"_connector": "OR"},
        {"_negated": True},
        {"__or": [{"id": 1}]},
        {"or": {"id": 1}},
        {"id": {"__gt": 1}},
        {"id": {"gt": {"x": 1}}},
        {"id": [{"pk": 1}]},
        {"author__secret_token__startswith": "a"},
        {"author__name": "x"},
        {"title__regex": "^(a+)+$"},
        {"title__iregex": "x"},
        {"pages__contains": "x"},
        {"status": "sold"},
        {"pages": "٣"},
        {"pages": 2**63},
        {"pages__in": list(range(101))},
        {"title": "a\0b"},
        {"title": {"isnull": True}},
        {"id": {}, **{f"pages__{lookup}": 1 for lookup in ("gt", "gte", "lt", "lte", "exact")}, "x": 1},
        {"title" * 1000: 1},
        "id=1",
        ["id"],
        5,
        "[1]",
    ],
)
def test_rows_112_115_116_117_118_a_filter_outside_the_list_is_refused(book: Any, filters: Any) -> None:
    message = refused(filters_argument, *book, filters)
    assert "SELECT" not in message
    assert "Traceback" not in message


def test_row_118_the_number_of_conditions_is_bounded(book: Any) -> None:
    many = {"pages": {"gt": 1, "gte": 1, "lt": 1, "lte": 1}, "id": {"gt": 1, "gte": 1, "lt": 1, "lte": 1}}
    assert len(filters_argument(book[0], book[1], many)) == 8
    more = {**many, **{f"{n}__{k}": 1 for n in ("rating", "author") for k in ("gt", "gte", "lt", "lte", "exact", "in")}}
    assert refused(filters_argument, *book, {**more, **{f"pk__{k}": 1 for k in ("gt", "gte", "lt", "lte")}})


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"pages": 5}, [("pages", "exact", (5,))]),
        ({"pages__gte": "5"}, [("pages", "gte", (5,))]),
        ({"pages": {"gte": 5, "lt": 9}}, [("pages", "gte", (5,)), ("pages", "lt", (9,))]),
        ('{"pages": 5}', [("pages", "exact", (5,))]),
        ({"status": ["draft", "published"]}, [("status", "in", ("draft", "published"))]),
        ({"rating": None}, [("rating", "isnull", (True,))]),
        ({"rating__isnull": "false"}, [("rating", "isnull", (False,))]),
        ({"pk": 7, "author_id": 3}, [("author_id", "exact", (3,)), ("id", "exact", (7,))]),
        ({}, []),
        (None, []),
        ("", []),
    ],
)
def test_filters_are_read_in_each_spelling(book: Any, filters: Any, found: Any) -> None:
    assert [(c.path.column, c.lookup, c.values) for c in filters_argument(book[0], book[1], filters)] == found


def test_the_lookups_that_a_field_takes_are_named(book: Any) -> None:
    assert "contains, icontains" in refused(filters_argument, *book, {"title__regex": "x"})
    assert "Did you mean title?" in refused(filters_argument, *book, {"titel": "x"})


@pytest.mark.parametrize(
    ("given", "found"),
    [("-pages", [("pages", True), ("id", True)]), (["title", "-id"], [("title", False), ("id", True)])],
)
def test_an_order_is_made_total(book: Any, given: Any, found: Any) -> None:
    assert [(key.path, key.descending) for key in ordering_argument(book[0], book[1], given)] == found


@pytest.mark.parametrize(
    "given", ["--pages", "pages;", "?", "author__name", ["pages"] * 6, {"pages": 1}, 5, "-", "pages%"]
)
def test_row_116_an_order_outside_the_list_is_refused(book: Any, given: Any) -> None:
    refused(ordering_argument, *book, given)


@pytest.mark.parametrize(("given", "found"), [(None, 20), (5, 5), ("50", 50), (10**9, 200), (10**400, 200)])
def test_row_71_a_limit_is_clamped(given: Any, found: int) -> None:
    assert limit_argument(given, 20) == found


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "many", "-5", [], {}, "٥", "9" * 5000])
def test_row_71_what_is_no_limit_is_refused(given: Any) -> None:
    assert refused(limit_argument, given, 20) == "limit must be a whole number from 1 to 200."


@pytest.mark.parametrize(("given", "found"), [(None, False), (True, True), ("TRUE", True), ("false", False)])
def test_flags_are_read(given: Any, found: bool) -> None:
    assert flag_argument(given, "count") is found


@pytest.mark.parametrize("given", [1, 0, "yes", [], {}])
def test_other_flags_are_refused(given: Any) -> None:
    refused(flag_argument, given, "count")


@pytest.mark.parametrize("given", ["x" * 201, "a\0b", "a " * 13, 5, ["a"]])
def test_row_118_a_search_is_a_short_text(book: Any, given: Any) -> None:
    refused(search_argument, *book, given)


def test_fields_are_read_in_each_spelling(book: Any) -> None:
    for given in (["title", "author"], "title, author", '["title","author","title"]', ["title", "author_id"]):
        assert [column.name for column in fields_argument(book[0], book[1], given)] == ["id", "title", "author"]
