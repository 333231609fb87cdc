"""Columns compared with aggregates over the caller's own rows: as plain Python compares them, and blind to others."""

import statistics
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from mcp_django import ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.field_comparisons import is_field
from mcp_django.testing import MCPClient
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser
from tests.fieldapp.models import Seat
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY, AGGREGATE = QueryRecords(), AggregateRecords()
HIDDEN = "hidden"
ROWS = [
    ("a", 3, "10.10", "x"),
    ("b", 0, "0.20", "x"),
    ("c", 7, "40.50", "y"),
    ("d", 7, "9.99", "y"),
    ("e", 2, "1.00", "y"),
]


class Visible(ModelExposure):
    fields = ("title", "pages", "price", "status", "published", "author", "loans")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(title=HIDDEN)


@pytest.fixture(params=["without hidden rows", "with hidden rows"])
def library(request: pytest.FixtureRequest) -> MCPRequest:
    authors = {name: make_author(name, secret_token=name) for name in "xy"}
    for title, pages, price, author in ROWS:
        make_book(title, pages=pages, price=price, author=authors[author], published="2024-01-05")
    if request.param == "with hidden rows":
        make_book(HIDDEN, pages=1000, price="900.00", author=authors["x"], published="2024-02-05")
    site = site_with(Author, Loan)
    site.register(Book, Visible)
    return reader(make_superuser(), site)


def titles(request: MCPRequest, **filters: Any) -> list[str]:
    found = call(QUERY, request, model="testapp.book", filters=filters, fields=["title"], ordering=["title"])
    return [row[1] for row in found["rows"]]


PAGES = [pages for _, pages, _, _ in ROWS]
PRICES = [Decimal(price) for _, _, price, _ in ROWS]
Row = tuple[str, int, str, str]


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({"pages__gt": {"avg": "pages"}}, lambda row: row[1] > statistics.mean(PAGES)),
        ({"pages": {"lt": {"avg": "pages"}}}, lambda row: row[1] < statistics.mean(PAGES)),
        ({"pages": {"max": "pages"}}, lambda row: row[1] == max(PAGES)),
        ({"pages": {"min": "pages"}}, lambda row: row[1] == min(PAGES)),
        ({"price": {"max": "price"}}, lambda row: Decimal(row[2]) == max(PRICES)),
        ({"price__lte": {"median": "price"}}, lambda row: Decimal(row[2]) <= statistics.median(PRICES)),
        ({"price__gte": {"avg": "price", "minus": 3}}, lambda row: Decimal(row[2]) >= statistics.mean(PRICES) - 3),
        ({"not": {"price__gt": {"avg": "price"}}}, lambda row: Decimal(row[2]) <= statistics.mean(PRICES)),
        ({"pages__gte": {"max": "pages", "where": {"author.name": "x"}}}, lambda row: row[1] >= 3),
        ({"pages__gt": {"avg": "pages", "where": {"or": [{"title": "a"}, {"title": "b"}]}}}, lambda row: row[1] > 1.5),
        ({"pages__gt": {"avg": "pages", "where": {"title": "none"}}}, lambda row: False),
        ({"price__gt": {"avg": "price*2"}}, lambda row: Decimal(row[2]) > statistics.mean(PRICES) * 2),
        # What some clients call limits.
        ({"pages": {"min": 2, "max": 3}}, lambda row: 2 <= row[1] <= 3),
        ({"pages": {"max": "3"}}, lambda row: row[1] <= 3),
    ],
    ids=lambda given: None if callable(given) else str(given),
)
def test_rows_are_compared_with_an_aggregate(library: MCPRequest, filters: Any, passes: Callable[[Row], bool]) -> None:
    assert titles(library, **filters) == [row[0] for row in ROWS if passes(row)]
    found = call(AGGREGATE, library, model="testapp.book", filters=filters)
    assert found["rows"] == [[sum(map(passes, ROWS))]]


def test_it_holds_below_a_relation_and_as_the_condition_of_an_aggregate(library: MCPRequest) -> None:
    above = {"pages__gt": {"avg": "pages"}}
    some = {"model": "testapp.author", "filters": {"books": {"some": above}}, "fields": ["name"]}
    assert [row[1] for row in call(QUERY, library, **some)["rows"]] == ["y"]
    asked = [{"function": "count", "where": above}]
    assert call(AGGREGATE, library, model="testapp.book", aggregates=asked)["rows"] == [[2]]
    dear = {"price__gt": {"median": "price", "plus": 5}}
    found = call(QUERY, library, model="testapp.author", filters={"books": {"some": dear}}, fields=["name"])
    assert [row[1] for row in found["rows"]] == ["y"]


def test_a_median_of_rows_without_a_single_key_is_there_or_refused_in_words() -> None:
    for number in range(3):
        Seat.objects.create(hall="A", number=number)
    request = reader(make_superuser(), site_with(Seat))
    asked = {"model": "fieldapp.seat", "filters": {"number__gt": {"median": "number"}}, "fields": ["number"]}
    if connection.vendor == "mysql":
        assert "The database cannot compute that: it ranks rows by their keys" in refusal(QUERY, request, **asked)
    else:
        assert [row[-1] for row in call(QUERY, request, **asked)["rows"]] == [2]


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"pages__gt": {"avg": "nope"}}, "nope"),
        ({"pages__gt": {"avg": "isbn"}}, "isbn"),
        ({"pages__gt": {"avg": "title"}}, "title"),
        ({"pages__gt": {"max": "author.secret_token", "where": {}}}, "secret_token"),
        ({"pages__gt": {"avg": "pages", "where": {"isbn": "x"}}}, "isbn"),
        ({"pages__gt": {"avg": "pages", "where": "x"}}, "where"),
        ({"pages__gt": {"avg": "pages", "where": 3}}, "where"),
        ({"pages__in": {"avg": "pages"}}, "compares"),
        ({"title": {"max": "pages"}}, "cannot be compared"),
        ({"pages__gt": {"avg": "pages", "plus": "x"}}, "duration"),
        ({"pages__gt": {"avg": 3}}, "pages"),
        ({"pages__gt": {"avg": "pages", "where": {"pages__gt": {"avg": "pages"}}}}, "cannot have another aggregate"),
        ({"pages__gt": {"sum": "pages"}}, "pages"),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_told(library: MCPRequest, filters: Any, told: str) -> None:
    text = refusal(QUERY, library, model="testapp.book", filters=filters)
    assert told in text
    assert HIDDEN not in text


def test_an_aggregate_counts_as_its_conditions(library: MCPRequest) -> None:
    many = {"or": [{"pages__gt": {"avg": "pages", "where": {"pages__gt": number}}} for number in range(11)]}
    assert "at most 20" in refusal(QUERY, library, model="testapp.book", filters=many)


def test_pages_are_of_one_moment_and_of_one_question(library: MCPRequest) -> None:
    def asked(days: int) -> dict[str, Any]:
        where = {"published__lt": f"{days} days ago"}
        return {"model": "testapp.book", "filters": {"pages__gte": {"min": "pages", "where": where}}, "limit": 2}

    first = call(QUERY, library, **asked(3))
    second = call(QUERY, library, **asked(3), cursor=first["next_cursor"])
    assert not {row[0] for row in first["rows"]} & {row[0] for row in second["rows"]}
    assert "cursor" in refusal(QUERY, library, **asked(4), cursor=first["next_cursor"])


def test_a_field_has_no_more_than_its_shifts() -> None:
    assert is_field({"field": "pages", "plus": 1})
    assert not is_field({"field": "pages", "value": 1})


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"price": {"field": "price*3-price-price"}}, "abcde"),
        ({"price__gte": {"field": "price+0.1-0.1"}}, "abcde"),
        ({"price__lt": {"field": "price*1.000000001"}}, "abcde"),
        ({"published": {"field": "published", "plus": "5h"}}, "abcde"),
        ({"published__gt": {"field": "published", "minus": "5h"}}, "abcde"),
        ({"published__gt": {"field": "published-30min"}}, "abcde"),
        ({"published": {"field": "published-24h"}}, ""),
        ({"published__gt": {"max": "published", "minus": "5h"}}, "abcde"),
    ],
)
def test_every_database_computes_decimals_and_moves_dates_alike(library: MCPRequest, filters: Any, found: str) -> None:
    rows = call(QUERY, library, model="testapp.book", filters=filters, fields=["title"])["rows"]
    assert sorted(row[1] for row in rows) == [*found]


def test_a_question_that_is_nested_too_deep_for_the_database_is_refused_in_words() -> None:
    """PostgreSQL answers it."""
    make_book()
    price = "price-(" * 8 + "price" + ")" * 8
    inner: dict[str, Any] = {"price__gte": {"field": price}}
    for _ in range(2):
        inner = {"author": {"every": {"books": {"every": inner}}}}
    found = MCPClient(make_superuser()).call("query_records", model="testapp.book", filters=inner)
    assert not found.is_error or found.text.startswith("The query is nested too deeply for the database.")
