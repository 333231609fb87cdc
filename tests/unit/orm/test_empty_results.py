"""What is said of filters that find nothing: the values that are there, of those that the caller may see."""

from typing import Any

import pytest
from django.db import connection

from mcp_django import MCPSite, ModelExposure
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book
from tests.tool_calls import call, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
BOOK, AUTHOR = "testapp.book", "testapp.author"


@pytest.fixture
def request_() -> Any:
    for name, title in (
        ("Ada Evans", "München"),
        ("Zoë Straße", "Émile"),
        ("Bob Stone", "100 Days"),
        ("Ada Lovelace", "Munich"),
    ):
        make_book(title=title, author=make_author(name, email=f"{name[:3].lower()}@example.com"))
    return request_of(make_superuser(), site_with(Author, Book))


def hint_of(request: Any, **arguments: Any) -> str:
    page = call(QueryRecords(), request, **arguments)
    assert page["rows"] == []
    return str(page.get("hint", ""))


@pytest.mark.parametrize(
    ("model", "filters", "there"),
    [
        (AUTHOR, {"name": "ada evans"}, "no name is 'ada evans': there is 'Ada Evans'"),
        (AUTHOR, {"name": "zoe strasse"}, "there is 'Zoë Straße'"),
        (AUTHOR, {"name": "Ada Evens"}, "there is 'Ada Evans'"),
        (AUTHOR, {"name": "%Stone%"}, "there is 'Bob Stone'"),
        (AUTHOR, {"name": "%Ada%"}, "there is 'Ada Evans' or 'Ada Lovelace'"),
        (AUTHOR, {"name__in": ["nobody at all", "bob stone"]}, "there is 'Bob Stone'"),
        (AUTHOR, {"email": "BOB@EXAMPLE.COM"}, "there is 'bob@example.com'"),
        (AUTHOR, {"books": {"title": "munich"}}, "no title is 'munich': there is 'Munich'"),
        (AUTHOR, {"or": [{"name": "BOB STONE"}, {"name": "x" * 30}]}, "there is 'Bob Stone'"),
        (BOOK, {"author.name": "bob stone"}, "no author.name is 'bob stone': there is 'Bob Stone'"),
        (BOOK, {"title": "Munchen"}, "there is 'München'"),
        (BOOK, {"title": "emile"}, "there is 'Émile'"),
        (BOOK, {"title": "100 days", "pages__gt": 0}, "there is '100 Days'"),
    ],
    ids=str,
)
def test_a_text_that_is_there_in_another_spelling_is_named(request_: Any, model: str, filters: Any, there: str) -> None:
    # MySQL takes texts that differ in case and accents for the same: what is meant is found, or another filter leaves
    # it out.
    page = call(QueryRecords(), request_, model=model, filters=filters)
    if connection.vendor == "mysql" and (page["rows"] or "pages__gt" in filters):
        assert len(page["rows"]) == ("pages__gt" not in filters)
        assert "hint" not in page
        return
    assert there in hint_of(request_, model=model, filters=filters)
    counted = call(AggregateRecords(), request_, model=model, filters=filters)
    assert counted["rows"] == [[0]]
    assert there[1:] in counted["hint"]
    grouped = call(AggregateRecords(), request_, model=model, filters=filters, group_by=["id"])
    assert grouped["rows"] == []
    assert there[1:] in grouped["hint"]


@pytest.mark.parametrize(
    ("model", "filters"),
    [
        (AUTHOR, {"name": "nothing like it"}),
        (AUTHOR, {"name": "Ada Evans", "not": {"name": "Ada Evans"}}),
        (AUTHOR, {"name": "Ada Evans", "email": "zoë@example.com"}),
        (AUTHOR, {"name__startswith": "zzz"}),
        (BOOK, {"title": "München", "pages": 99_999}),
        (BOOK, {"title": "a"}),
        (BOOK, {"pages": 99_999}),
    ],
    ids=str,
)
def test_nothing_is_said_where_nothing_is_meant(request_: Any, model: str, filters: Any) -> None:
    assert hint_of(request_, model=model, filters=filters) == ""


def test_rows_that_are_found_cost_no_further_question(request_: Any, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(1):
        assert "hint" not in call(
            QueryRecords(), request_, model=AUTHOR, filters={"name": "Ada Evans"}, fields=["name"]
        )


class Own(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(name="Bob Stone")


def test_values_that_the_caller_cannot_see_are_not_named(request_: Any) -> None:
    site = MCPSite()
    site.register(Author, Own)
    site.register(Book, ModelExposure, fields=["title", "author"])
    request = request_of(make_superuser("other"), site)
    assert "Ada Evans" in hint_of(request, model=AUTHOR, filters={"name": "ada evens"})
    assert hint_of(request, model=AUTHOR, filters={"name": "bob stone"}) == ""
    assert hint_of(request, model=BOOK, filters={"author.name": "bob stone"}) == ""
