"""Conditions on groups: what an aggregate is compared with, in whatever spelling, and what it cannot be."""

from datetime import date, timedelta
from typing import Any

import pytest

from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.factories import make_author, make_book, make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
AGGREGATE = AggregateRecords()
ASKED = {
    "model": "testapp.book",
    "aggregates": ["sum:pages", "max:published", "count", "max:pages"],
    "group_by": ["author.name"],
}


@pytest.fixture
def shelf() -> MCPRequest:
    for name, pages in (("ann", [1, 2]), ("bob", [9])):
        author = make_author(name)
        for number in pages:
            make_book(author=author, pages=number, price=number)
    return reader(make_superuser(), site_with(Author, Book))


@pytest.mark.parametrize(
    "having",
    [
        {"sum_pages__gt": {"field": "max_pages"}},
        {"sum_pages": {"gt": {"field": "max:pages"}}},
        {"sum(pages)__gt": {"field": "max(pages)"}},
        '{"sum_pages": {">": {"field": "max_pages"}}}',
        {"count": 2},
        {"count__gte": "2"},
        {"sum_pages__range": [2, 8]},
    ],
)
def test_values_and_other_aggregates_of_the_call_are_compared(shelf: MCPRequest, having: Any) -> None:
    assert [row[0] for row in call(AGGREGATE, shelf, **ASKED, having=having)["rows"]] == ["ann"]


@pytest.mark.parametrize(
    "having",
    [
        {"sum_pages__gt": {"field": "nope"}},
        {"sum_pages__gt": {"field": "max_published"}},
        {"sum_pages__range": {"field": "count"}},
        {"sum_pages__gt": {"field": 3}},
        {"sum_pages__gt": {"field": None}},
        {"sum_pages__gt": {"field": "pages"}},
        {"max_published__gt": {"field": "author__secret_token"}},
        {"max_published__gt": "some day"},
        {"max_published__range": ["2024"]},
        {"sum_pages__near": 3},
        {"sum_pages": None},
        {"sum_pages__gt": {"field": "count", "plus": 3}},
    ],
)
def test_other_values_are_refused(shelf: MCPRequest, having: Any) -> None:
    assert "having" in refusal(AGGREGATE, shelf, **ASKED, having=having)


@pytest.mark.parametrize(
    ("having", "names"),
    [
        ({"sum_price__gt": "2.9999999999"}, ["ann", "bob"]),
        ({"sum_price__gt": 3.0000001}, ["bob"]),
        ({"sum_price": 3.00000001}, []),
        ({"sum_price__range": ["2.123456789", "8.123456789"]}, ["ann"]),
        ({"avg_price__lte": "1.50000000001"}, ["ann"]),
    ],
)
def test_a_number_may_have_more_decimals_than_the_values(shelf: MCPRequest, having: Any, names: list[str]) -> None:
    asked = {**ASKED, "aggregates": ["sum:price", "avg:price"]}
    assert [row[0] for row in call(AGGREGATE, shelf, **asked, having=having)["rows"]] == names


@pytest.mark.parametrize(
    ("having", "names"),
    [
        ({"sum_reading_time__gt": "90min"}, ["bob"]),
        ({"sum_reading_time__gte": "0 01:00:00"}, ["bob", "ann"]),
        ({"hours__lte": 1.5}, ["ann"]),
        ({"hours__gt": {"field": "count"}}, ["bob"]),
        # An hour is no day.
        ({"hours__gt": {"field": "days"}}, []),
    ],
)
def test_durations_are_compared_as_such_and_in_a_unit_as_numbers(
    shelf: MCPRequest, having: Any, names: list[str]
) -> None:
    for pages, hours in ((1, 1), (9, 9)):
        Book.objects.filter(pages=pages).update(reading_time=timedelta(hours=hours))
    units = [{"function": "sum", "field": "reading_time", "unit": unit, "as": unit} for unit in ("hours", "days")]
    asked = {**ASKED, "aggregates": ["sum:reading_time", "count", *units]}
    found = {row[0] for row in call(AGGREGATE, shelf, **asked, having=having)["rows"]}
    assert found == set(names)


def test_a_duration_is_no_number(shelf: MCPRequest) -> None:
    asked = {**ASKED, "aggregates": ["sum:reading_time", "count"]}
    text = refusal(AGGREGATE, shelf, **asked, having={"sum_reading_time__gt": 3600})
    assert text == "having: sum_reading_time with gt needs a duration such as 3h, 30min or 1 02:30:00."


@pytest.mark.parametrize("function", ["avg:price", "avg:rating", "median:price", "stddev:rating", "ratio:b/count"])
def test_what_is_shown_is_what_is_compared(function: str) -> None:
    """The digits that are not shown neither leave a group out nor let it in."""
    for number, prices in enumerate(
        (["0.10", "0.10", "0.10"], ["0.10", "0.20"], ["0.70", "0.10"], ["1.10", "2.2", "3"])
    ):
        author = make_author(f"author {number}")
        for price in prices:
            make_book(author=author, price=price, rating=float(price) / 3)
    request = reader(make_superuser(), site_with(Author, Book))
    below = {"function": "count", "as": "b", "where": {"price__lt": "0.2"}}
    asked = {"model": "testapp.book", "group_by": ["author.name"]}
    aggregates = [below, "count", {"ratio": ["b", "count"], "as": "x"}]
    if not function.startswith("ratio"):
        name, _, field = function.partition(":")
        aggregates = [{"function": name, "field": field, "as": "x"}]
    rows = call(AGGREGATE, request, **asked, aggregates=aggregates)["rows"]
    assert len(rows) == 4
    for _, *_, value in rows:
        for lookup, holds in {
            "exact": lambda one, other: one == other,
            "gte": lambda one, other: one >= other,
            "lte": lambda one, other: one <= other,
            "gt": lambda one, other: one > other,
            "lt": lambda one, other: one < other,
        }.items():
            found = call(AGGREGATE, request, **asked, aggregates=aggregates, having={f"x__{lookup}": value})["rows"]
            expected = [row for row in rows if holds(float(row[-1]), float(value))]
            assert found == expected, (lookup, value)
        ranged = call(AGGREGATE, request, **asked, aggregates=aggregates, having={"x__range": [value, value]})["rows"]
        assert ranged == [row for row in rows if float(row[-1]) == float(value)]


@pytest.mark.parametrize(
    ("having", "names"),
    [
        ({"between__gt": "90min"}, ["ann"]),
        ({"between__lt": "90min"}, ["bob"]),
        ({"between": "2d"}, ["ann"]),
        ({"between__range": ["1d", "3 days"]}, ["ann"]),
        ({"between__gte": 2}, ["ann"]),
        ({"between__gt": "2"}, []),
        ({"hours__gte": "3h"}, ["bob"]),
        ({"hours__lt": 3}, ["ann"]),
    ],
)
def test_a_duration_in_a_unit_is_compared_with_a_number_or_a_duration(having: Any, names: list[str]) -> None:
    for name, days, hours in (("ann", [1, 3], 1), ("bob", [5], 3)):
        author = make_author(name)
        for day in days:
            make_book(author=author, published=date(2026, 1, day), reading_time=timedelta(hours=hours))
    request = reader(make_superuser(), site_with(Author, Book))
    asked = ["max:published", "min:published", {"difference": ["max_published", "min_published"], "as": "between"}]
    asked.append({"function": "max", "field": "reading_time", "unit": "hours", "as": "hours"})
    given = {"model": "testapp.book", "aggregates": asked, "group_by": ["author.name"]}
    assert [row[0] for row in call(AGGREGATE, request, **given, having=having)["rows"]] == names
    text = refusal(AGGREGATE, request, **given, having={"between__gt": "long"})
    assert "a number of days, or a duration such as 3h" in text
