"""What is made of other aggregates: of which kinds of values, and of which groups."""

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
ROWS = [
    # author, month of 2000, pages, price, rating, hours
    ("ann", None, 50, "9.00", None, None),
    ("ann", 1, 10, "0.10", 0.5, 1),
    ("bob", 1, 10, "0.20", 1.5, 2),
    ("ann", 2, 20, "0.30", None, 4),
    ("bob", 2, 5, "0.70", 0.25, None),
    ("ann", 4, 40, "-0.20", 2.0, 3),
]


@pytest.fixture
def months() -> MCPRequest:
    authors = {name: make_author(name) for name in ("ann", "bob")}
    for name, month, pages, price, rating, hours in ROWS:
        make_book(
            author=authors[name],
            published=None if month is None else date(2000, month, 2),
            pages=pages,
            price=price,
            rating=rating,
            reading_time=None if hours is None else timedelta(hours=hours),
        )
    return reader(make_superuser(), site_with(Book, Author))


def ask(request: MCPRequest, *aggregates: Any, **more: Any) -> list[list[Any]]:
    return call(AGGREGATE, request, model="testapp.book", aggregates=list(aggregates), **more)["rows"]


class TestChanges:
    asked = ("sum:pages", "change:sum_pages")

    def test_rows_without_a_date_are_no_period(self, months: MCPRequest) -> None:
        rows = ask(months, *self.asked, group_by=["published:month"])
        assert rows == [
            ["2000-01", 20, None],
            ["2000-02", 25, 25.0],
            ["2000-04", 40, 60.0],
            [None, 50, None],
        ]

    @pytest.mark.parametrize(
        ("having", "months_left"),
        [
            ({"sum_pages__gt": 20}, ["2000-02", "2000-04", None]),
            ({"sum_pages__gt": 25, "change_sum_pages__isnull": False}, ["2000-04"]),
            ({"change_sum_pages__gt": 50}, ["2000-04"]),
        ],
    )
    def test_having_leaves_out_groups_and_not_what_others_are_compared_with(
        self, months: MCPRequest, having: Any, months_left: list[Any]
    ) -> None:
        whole = {row[0]: row for row in ask(months, *self.asked, group_by=["published:month"])}
        found = ask(months, *self.asked, group_by=["published:month"], having=having)
        assert found == [whole[month] for month in months_left]
        short = call(
            AGGREGATE,
            months,
            model="testapp.book",
            aggregates=[*self.asked],
            group_by=["published:month"],
            having=having,
            limit=1,
        )
        assert short["rows"] == found[:1]
        assert short.get("rest", {"groups": 0})["groups"] == len(found) - 1

    def test_top_leaves_out_groups_in_the_same_way(self, months: MCPRequest) -> None:
        whole = ask(months, *self.asked, group_by=["published:month", "author.name"])
        found = ask(months, *self.asked, group_by=["published:month", "author.name"], top=2)
        # These have the most pages: one of no month, and the last one.
        assert [row[0] for row in found] == [None, "2000-04"]
        assert all(row in whole for row in found)
        assert found[1] == ["2000-04", "ann", 40, 100.0]

    def test_the_best_of_each_are_counted_among_those_that_pass(self, months: MCPRequest) -> None:
        asked: dict[str, Any] = {"group_by": ["published:month", "author.name"], "per": "author.name", "top": 1}
        assert ask(months, *self.asked, **asked, having={"sum_pages__lt": 40}) == [
            ["2000-02", "ann", 20, 100.0],
            ["2000-01", "bob", 10, None],
        ]
        assert ask(months, *self.asked, **asked, having={"sum_pages__lt": 10}) == [["2000-02", "bob", 5, -50.0]]


class TestKinds:
    def test_keys_are_numbers(self, months: MCPRequest) -> None:
        first = Book.objects.earliest("pk").pk
        asked = ["min:id", "max:id", "ratio:max_id/min_id", {"difference": ["max_id", "min_id"], "as": "between"}]
        assert ask(months, *asked) == [[first, first + 5, pytest.approx((first + 5) / first), 5]]
        rows = ask(months, "max:id", "change:max_id", group_by=["published:month"])
        assert rows[1][2] == pytest.approx(100 * (first + 4) / (first + 2) - 100)

    @pytest.mark.parametrize("group_by", [[], ["author.name"]])
    def test_a_difference_of_whole_numbers_is_one(self, months: MCPRequest, group_by: list[str]) -> None:
        row = ask(months, "max:pages", "count", "difference:max_pages-count", group_by=group_by)[0]
        assert row[-1] == row[-3] - row[-2]
        assert isinstance(row[-1], int)

    @pytest.mark.parametrize("group_by", [[], ["status"]])
    def test_a_difference_of_decimals_is_exact_and_one_with_a_float_is_none(
        self, months: MCPRequest, group_by: list[str]
    ) -> None:
        asked = ["sum:price", "max:price", "count", "sum:rating"]
        names = [("sum_price", "max_price"), ("max_price", "count"), ("sum_price", "sum_rating")]
        made = [{"difference": pair, "as": f"d{number}"} for number, pair in enumerate(map(list, names))]
        row = ask(months, *asked, *made, group_by=group_by)[0]
        assert row[-7:] == ["10.10", "9.00", 6, 4.25, "1.10", "3.00", pytest.approx(5.85)]
        found = ask(months, *asked, *made, group_by=["status"], having={"d0": "1.10", "d2__lt": 5.8501})
        assert [row[1:] for row in found] == [row[-7:]]

    @pytest.mark.parametrize("group_by", [[], ["status"]])
    def test_durations_are_divided_by_durations_and_in_a_unit_by_numbers(
        self, months: MCPRequest, group_by: list[str]
    ) -> None:
        hours = {"function": "sum", "field": "reading_time", "unit": "hours", "as": "hours"}
        asked = [
            hours,
            "max:reading_time",
            "count",
            {"ratio": ["hours", "max_reading_time"], "as": "times"},
            {"ratio": ["hours", "count"], "as": "each"},
            {"difference": ["hours", "count"], "as": "more"},
            "percent_of_total:hours",
        ]
        assert ask(months, *asked, group_by=group_by)[0][-7:] == [10.0, "4:00:00", 6, 2.5, 1.666666667, 4.0, 100.0]

    def test_shares_and_changes_of_durations(self, months: MCPRequest) -> None:
        asked = ["sum:reading_time", "change:sum_reading_time", "percent_of_total:sum_reading_time"]
        rows = ask(months, *asked, group_by=["published:month"])
        assert [row[2:] for row in rows] == [[None, 30.0], [pytest.approx(100 / 3), 40.0], [-25.0, 30.0], [None, None]]

    @pytest.mark.parametrize("function", ["ratio", "difference"])
    def test_a_duration_without_a_unit_is_no_number_and_the_refusal_names_the_way(
        self, months: MCPRequest, function: str
    ) -> None:
        asked = ["sum:reading_time", "count", {function: ["sum_reading_time", "count"]}]
        text = refusal(AGGREGATE, months, model="testapp.book", aggregates=asked)
        assert '"unit": "hours"' in text

    def test_shares_of_nothing_can_be_sorted_by(self, months: MCPRequest) -> None:
        asked = [{"function": "sum", "field": "pages", "where": {"pages__gt": 999}, "as": "long"}]
        given = {"group_by": ["author.name"], "ordering": ["-percent_of_total_long"], "limit": 1}
        assert ask(months, *asked, "percent_of_total:long", **given) == [["ann", None, None]]


@pytest.mark.parametrize("way", ["", "-"])
def test_null_is_first_where_that_is_written(months: MCPRequest, way: str) -> None:
    for spelt, place in (
        (f"{way}max_rating", -1),
        (f"{way}max_rating:nulls_first", 0),
        (f"{way}max:rating:nulls_last", -1),
    ):
        rows = ask(months, "max:rating", group_by=["pages"], ordering=[spelt], filters={"pages__in": [10, 20, 5]})
        assert rows[place] == [20, None], spelt
    whole = ask(
        months, "count", group_by=["published:month"], ordering=[f"{way}published:month:nulls_first"], fill=True
    )
    assert whole[0][0] is None
    assert sorted(row[0] for row in whole[1:]) == ["2000-01", "2000-02", "2000-03", "2000-04"]
    found = ask(months, "count", group_by=["published:month"], ordering=["published:month desc nulls first"])
    assert [row[0] for row in found] == [None, "2000-04", "2000-02", "2000-01"]
