"""What is computed of a group, and what a group has to reach."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import BigAutoField, DecimalField, FloatField, IntegerField
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import ToolError
from mcp_django.orm.aggregates.functions import exact_field
from mcp_django.orm.aggregates.having import COMPARISONS
from mcp_django.orm.aggregates.measures import find_title
from mcp_django.orm.column_values import trimmed
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.factories import make_author, make_book, make_superuser
from tests.filterapp.models import Screening
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Placement, Shelf
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
AGGREGATE = AggregateRecords()


@pytest.fixture
def books() -> MCPRequest:
    rows = [
        ("a", 1, "0.10", 1.0, 90),
        ("a", 2, "0.20", None, None),
        ("b", 4, "1234.50", 0.5, 30),
        ("c", 8, "7", None, None),
    ]
    authors = {name: make_author(name) for name in "abc"}
    for name, pages, price, rating, minutes in rows:
        make_book(
            author=authors[name],
            pages=pages,
            price=price,
            rating=rating,
            published=None if rating is None else date(2024, 1, pages),
            reading_time=None if minutes is None else timedelta(minutes=minutes),
        )
    return reader(make_superuser(), site_with(Book, Author))


def totals(request: MCPRequest, *asked: Any) -> list[Any]:
    found = call(AGGREGATE, request, model="testapp.book", aggregates=list(asked))
    return list(found["rows"][0])


def test_decimals_keep_their_places_and_averages_lose_what_the_division_made(books: MCPRequest) -> None:
    asked = ["sum:price", "min:price", "max:price", "avg:price", "avg:pages", "avg:rating", "sum:rating"]
    assert totals(books, *asked) == ["1241.80", "0.10", "1234.50", "310.45", 3.75, 0.75, 1.5]
    Book.objects.filter(pages=8).delete()
    assert totals(books, "avg:pages", "avg:price") == [2.333333333, "411.6"]


def test_durations_are_added_and_averaged(books: MCPRequest) -> None:
    asked = [f"{function}:reading_time" for function in ("sum", "avg", "min", "max", "count")]
    assert totals(books, *asked) == ["2:00:00", "1:00:00", "0:30:00", "1:30:00", 2]


def test_dates_and_times_have_a_first_and_a_last(books: MCPRequest) -> None:
    assert totals(books, "min:published", "max:published") == ["2024-01-01", "2024-01-04"]
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    Book.objects.update(created=moment)
    assert totals(books, "max:created") == ["2024-05-06T07:08:09Z"]


def test_values_are_counted_all_or_once(books: MCPRequest) -> None:
    assert totals(books, "count", "count:author", "count_distinct:author", "count:rating") == [4, 4, 3, 2]


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("count", "count"),
        ("SUM:pages", "sum_pages"),
        ("sum(pages)", "sum_pages"),
        (" sum( pages ) ", "sum_pages"),
        ("count(*)", "count"),
        ("count(distinct)", None),
        ('{"function": "sum", "field": "pages", "as": "all"}', "all"),
        ({"function": "sum", "field": "pages"}, "sum_pages"),
        ({"function": "count"}, "count"),
    ],
)
def test_a_measure_is_spelt_in_several_ways(books: MCPRequest, given: Any, title: str | None) -> None:
    if title is None:
        refusal(AGGREGATE, books, model="testapp.book", aggregates=[given])
    else:
        assert call(AGGREGATE, books, model="testapp.book", aggregates=[given])["columns"] == [title]


@pytest.mark.parametrize(
    ("having", "names"),
    [
        ({"count__gte": 2}, ["a"]),
        ({"count": {"gte": 2}}, ["a"]),
        ({"count": 1}, ["b", "c"]),
        ({"sum_pages__gt": "3"}, ["b", "c"]),
        ({"sum:pages__lt": 4}, ["a"]),
        ({"sum_pages": {"gt": 3, "lt": 8}}, ["b"]),
        ({"sum_pages__range": [3, 4]}, ["a", "b"]),
        ({"sum_price__lte": "7.00"}, ["a", "c"]),
        ({"sum_price__exact": 0.3}, ["a"]),
        ({"avg_price__gt": 0.149999, "avg_price__lt": 0.150001}, ["a"]),
        ({"max_published__gte": "2024-01-02"}, ["b"]),
        ({"sum_reading_time__gte": "01:00:00"}, ["a"]),
        ({"avg_rating__lt": 0.75}, ["b"]),
        ({"sum_pages__gt": 10**15}, []),
        ('{"count__gte": 2}', ["a"]),
        ({}, ["a", "b", "c"]),
        ("", ["a", "b", "c"]),
    ],
)
def test_groups_have_to_reach_what_having_says(books: MCPRequest, having: Any, names: list[str]) -> None:
    asked = ["count", "sum:pages", "sum:price", "avg:price", "max:published", "sum:reading_time", "avg:rating"]
    found = call(AGGREGATE, books, model="testapp.book", aggregates=asked, group_by=["author__name"], having=having)
    assert [row[0] for row in found["rows"]] == names


@pytest.mark.parametrize(
    ("having", "says"),
    [
        ({"sum_pages__gte": "many"}, "needs an integer"),
        ({"sum_pages__gte": None}, "needs an integer"),
        ({"sum_pages__range": 5}, "two values"),
        ({"sum_pages__contains": 5}, "Valid: exact, gt"),
        ({"pages__gte": 5}, "Did you mean sum_pages?"),
        ({"author__name": "a"}, "an aggregate of this call"),
        ({"sum_pages": {lookup: {"gte": 1} for lookup in COMPARISONS}}, "needs"),
        ({"sum_pages": {f"l{number}": 1 for number in range(11)}}, "at most 10"),
        (["count", 5], "must be an object"),
        ({"x" * 100_000: 5}, "an aggregate of this call"),
    ],
)
def test_row_115_having_takes_no_other_operators(books: MCPRequest, having: Any, says: str) -> None:
    asked: dict[str, Any] = {"aggregates": ["sum:pages"], "group_by": ["author__name"], "having": having}
    with CaptureQueriesContext(connection) as captured:
        assert says in refusal(AGGREGATE, books, model="testapp.book", **asked)
    assert not any('FROM "testapp_book"' in query["sql"] for query in captured)


def test_sums_may_outgrow_their_column() -> None:
    shelf = Shelf.objects.create(code="x")
    for position in (32_000, 32_001):
        Placement.objects.create(shelf=shelf, book=make_book(price="999999.99"), position=position)
    request = reader(make_superuser(), site_with(Placement, Shelf, Book))
    asked: dict[str, Any] = {"model": "testapp.placement", "group_by": ["shelf"], "aggregates": ["sum:position"]}
    found = call(AGGREGATE, request, **asked, having={"sum_position__gt": 60_000})
    assert found["rows"] == [[["x", "Shelf x"], 64_001]]
    found = call(
        AGGREGATE, request, **asked | {"aggregates": ["sum:book__price"]}, having={"sum_book__price__gt": 10**6}
    )
    assert found["rows"] == [[["x", "Shelf x"], "1999999.98"]]


def test_no_rows_count_nothing_and_add_up_to_null(books: MCPRequest) -> None:
    Book.objects.all().delete()
    assert totals(books, "count", "sum:price", "avg:pages", "max:published", "count_distinct:author") == [
        0,
        None,
        None,
        None,
        0,
    ]
    assert call(AGGREGATE, books, model="testapp.book", group_by=["author"], top=3)["rows"] == []


def test_a_computed_or_masked_column_is_not_added() -> None:
    class Masked(ModelExposure):
        fields = ("title", "pages")

        def pages(self, book: Book) -> int:
            return 0

    site = MCPSite()
    site.register(Book, Masked)
    assert "has no field" in refusal(
        AGGREGATE, reader(make_superuser(), site), model="testapp.book", aggregates=["sum:pages"]
    )


def test_columns_are_found_by_title_or_as_they_were_asked_for() -> None:
    titles = ["created:month", "sum_total", "count"]
    assert [find_title(titles, text) for text in ("created:month", "created__month", "sum:total", "sum(total)")] == [
        0,
        0,
        1,
        1,
    ]
    assert find_title(titles, "nothing") is None
    assert find_title(titles, "") is None


def test_values_that_are_no_numbers_stay() -> None:
    assert trimmed(Decimal("1.5"), 2) == Decimal("1.50")
    assert trimmed(Decimal("NaN"), 2).is_nan()
    assert trimmed(None, 2) is None
    assert str(trimmed(Decimal("1.5"), None)) == "1.5"


TAKINGS = [Decimal("999999999999.999"), Decimal("0.001"), Decimal("-0.007"), Decimal("13000010658.756"), Decimal("0.1")]


def test_a_sum_of_decimals_is_exact() -> None:
    rows = [Screening(takings=value, seats=int(number % 3 == 0)) for number, value in enumerate(TAKINGS * 60)]
    Screening.objects.bulk_create(rows)
    request = reader(make_superuser(), site_with(Screening))
    total = sum(TAKINGS) * 60
    found = call(AGGREGATE, request, model="filterapp.screening", aggregates=["sum:takings"])
    assert found["rows"] == [[str(total)]]
    halves = [sum((row.takings for row in rows if row.seats == half), Decimal(0)) for half in (0, 1)]
    asked = {"model": "filterapp.screening", "aggregates": ["sum:takings"], "group_by": ["seats"]}
    assert call(AGGREGATE, request, **asked)["rows"] == [[half, str(sum_)] for half, sum_ in enumerate(halves)]
    # The order, the condition and what is left over are computed by the database.
    first = max((0, 1), key=lambda half: halves[half])
    found = call(AGGREGATE, request, **asked, ordering=["-sum_takings"], limit=1)
    assert found["rows"] == [[first, str(halves[first])]]
    assert found["rest"]["sum_takings"] == str(halves[1 - first])
    for lookup, given, count in (
        ("exact", halves[0], 1),
        ("gt", min(halves), 1),
        ("gte", min(halves), 2),
        ("lt", min(halves), 0),
        ("range", [str(min(halves)), str(max(halves) - Decimal("0.001"))], 1),
    ):
        value = given if isinstance(given, list) else str(given)
        found = call(AGGREGATE, request, **asked, having={f"sum_takings__{lookup}": value})
        assert len(found["rows"]) == count, lookup
    found = call(AGGREGATE, request, **{**asked, "group_by": ["seats", "size"]}, top=1)
    assert found["rest"]["sum_takings"] == str(halves[1 - first])


def test_a_sum_of_no_decimals_is_null() -> None:
    request = reader(make_superuser(), site_with(Screening))
    found = call(AGGREGATE, request, model="filterapp.screening", aggregates=["sum:takings"])
    assert found["rows"] == [[None]]


@pytest.mark.parametrize(
    ("values", "aggregate"),
    [
        ({"seats": 2**63 - 1}, "sum:seats"),
        ({"weight": 1.7e308}, "avg:weight"),
        ({"weight": 1.7e308}, "sum:weight"),
        ({"takings": Decimal("999999999999.999")}, "sum:takings"),
    ],
)
@pytest.mark.parametrize("group", [{}, {"group_by": ["size"]}, {"group_by": ["size", "level"], "top": 1}])
def test_what_outgrows_the_database_is_right_or_refused_in_words(
    values: Any, aggregate: str, group: dict[str, Any]
) -> None:
    number = 9300 if "takings" in values else 3
    Screening.objects.bulk_create([Screening(**values) for _ in range(number)])
    request = reader(make_superuser(), site_with(Screening))
    arguments = {"model": "filterapp.screening", "aggregates": [aggregate], **group}
    value = next(iter(values.values()))
    right = (str(value * number),) if isinstance(value, (int, Decimal)) else (None, "Infinity", "inf")
    try:
        with transaction.atomic():
            outcome = call(AGGREGATE, request, **arguments)["rows"][0][-1]
    except ToolError as error:
        outcome = error.message
    assert outcome in (*right, "A sum or an average is too large for the database. Narrow the filters.")


@pytest.mark.parametrize(
    ("fields", "places", "expected"),
    [
        ([IntegerField(), BigAutoField(primary_key=True)], 0, 0),
        ([IntegerField()], 2, 2),
        ([DecimalField(max_digits=10, decimal_places=2), IntegerField()], 0, 2),
        ([DecimalField(max_digits=10, decimal_places=2), DecimalField(max_digits=6, decimal_places=4)], 3, 4),
        ([DecimalField(max_digits=15, decimal_places=2)], 5, 5),
        # More than the whole numbers of SQLite hold, and than its floating point numbers do.
        ([DecimalField(max_digits=15, decimal_places=2)], 6, None),
        ([DecimalField(max_digits=16, decimal_places=2)], 0, None),
        ([DecimalField(max_digits=10, decimal_places=2), FloatField()], 0, None),
    ],
)
def test_what_all_databases_hold_exactly(fields: list[Any], places: int, expected: int | None) -> None:
    found = exact_field(fields, places)
    assert (found and getattr(found, "decimal_places", 0)) == expected
