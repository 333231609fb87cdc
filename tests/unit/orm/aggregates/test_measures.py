"""What is made of other aggregates: of which kinds of values, and of which groups."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

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
            # There are none of March to compare with.
            ["2000-04", 40, None],
            [None, 50, None],
        ]

    @pytest.mark.parametrize(
        ("having", "months_left"),
        [
            ({"sum_pages__gt": 20}, ["2000-02", "2000-04", None]),
            ({"sum_pages__lt": 50, "change_sum_pages__isnull": False}, ["2000-02"]),
            ({"change_sum_pages__gt": 20}, ["2000-02"]),
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
        assert found[1] == ["2000-04", "ann", 40, None]

    def test_the_best_of_each_are_counted_among_those_that_pass(self, months: MCPRequest) -> None:
        asked: dict[str, Any] = {"group_by": ["published:month", "author.name"], "per": "author.name", "top": 1}
        assert ask(months, *self.asked, **asked, having={"sum_pages__lt": 40}) == [
            ["2000-02", "ann", 20, 100.0],
            ["2000-01", "bob", 10, None],
        ]
        assert ask(months, *self.asked, **asked, having={"sum_pages__lt": 10}) == [["2000-02", "bob", 5, -50.0]]


class TestFill:
    """The periods without rows, whatever is asked of them."""

    def test_the_table_of_changes_does_not_contradict_itself(self, months: MCPRequest) -> None:
        asked = ["count", "change:count", "sum:pages", "avg:pages", "ratio:sum_pages/count", "percent_of_total:count"]
        rows = ask(months, *asked, group_by=["published:month"], fill=True, filters={"published__isnull": False})
        assert rows == [
            ["2000-01", 2, None, 20, 10.0, 10.0, 40.0],
            ["2000-02", 2, 0.0, 25, 12.5, 12.5, 40.0],
            ["2000-03", 0, -100.0, 0, None, None, 0.0],
            ["2000-04", 1, None, 40, 40.0, 40.0, 20.0],
        ]
        # It says of each month what it says without the empty ones.
        assert [row for row in rows if row[1]] == ask(
            months, *asked, group_by=["published:month"], filters={"published__isnull": False}
        )

    @pytest.mark.parametrize(
        ("filters", "first", "last", "number"),
        [
            ({"published__gte": "1999-11-15"}, "1999-11", "2000-04", 6),
            ({"published__lt": "2000-07-01"}, "2000-01", "2000-06", 6),
            ({"published__lte": "2000-07-01", "published__gt": "1999-12-31"}, "2000-01", "2000-07", 7),
            ({"published__range": ["1999-12-31", "2000-05-01"]}, "1999-12", "2000-05", 6),
            ({"published": "2000"}, "2000-01", "2000-12", 12),
            ({"published__year": 2000}, "2000-01", "2000-12", 12),
            ({"and": [{"published__gte": "2000-01-01"}, {"published__lt": "2000-06-01"}]}, "2000-01", "2000-05", 5),
            ({"published__gte": "2001-01-01", "published__lt": "2001-04-01"}, "2001-01", "2001-03", 3),
            ({"or": [{"published__lt": "1999-01-01"}, {"published__gt": "2000-01-31"}]}, "2000-02", "2000-04", 3),
        ],
        ids=str,
    )
    def test_it_reaches_the_bounds_of_the_filter(
        self, months: MCPRequest, filters: Any, first: str, last: str, number: int
    ) -> None:
        rows = ask(months, "count", group_by=["published:month"], fill=True, filters=filters)
        assert (rows[0][0], rows[-1][0], len(rows)) == (first, last, number)

    def test_an_empty_period_at_the_beginning_has_no_share(self, months: MCPRequest) -> None:
        filters = {"published__gte": "1999-12-01", "published__lt": "2000-02-01"}
        asked = ["count", "percent_of_total:count", "change:count"]
        rows = ask(months, *asked, group_by=["published:month"], fill=True, filters=filters)
        assert rows == [["1999-12", 0, 0.0, None], ["2000-01", 2, 100.0, None]]

    @pytest.mark.parametrize("way", ["", "-"])
    def test_it_comes_before_the_limit(self, months: MCPRequest, way: str) -> None:
        given: dict[str, Any] = {
            "model": "testapp.book",
            "aggregates": ["count", "sum:pages"],
            "group_by": ["published:month"],
            "ordering": [f"{way}published:month"],
            "fill": True,
        }
        whole = call(AGGREGATE, months, **given)["rows"]
        for limit in (1, 2, 3, 4):
            found = call(AGGREGATE, months, **given, limit=limit)
            assert found["rows"] == whole[:limit]
            assert found["truncated"]
            left = whole[limit:]
            sums = [sum(row[place] for row in left) for place in (1, 2)]
            assert found["rest"] == {"groups": len(left), "count": sums[0], "sum_pages": sums[1]}


class TestHours:
    """The night in October that has an hour twice, and the one in March that lacks one."""

    @pytest.fixture(autouse=True)
    def berlin(self) -> Iterator[None]:
        with timezone.override("Europe/Berlin"):
            yield

    def hours(self, months: MCPRequest, first: datetime, *aggregates: str, **more: Any) -> list[list[Any]]:
        Book.objects.all().delete()
        for number in range(0, 360, 30):
            book = make_book(title="night", pages=number)
            Book.objects.filter(pk=book.pk).update(created=first + timedelta(minutes=number))
        return ask(months, *aggregates, group_by=["created:hour"], **more)

    def test_an_hour_that_is_there_twice_is_two(self, months: MCPRequest) -> None:
        night = datetime(2026, 10, 24, 22, tzinfo=UTC)
        rows = self.hours(months, night, "count", "change:count")
        names = ["25T00", "25T01", "25T02+0200", "25T02+0100", "25T03", "25T04"]
        assert rows == [[f"2026-10-{name}", 2, 0.0 if place else None] for place, name in enumerate(names)]
        assert self.hours(months, night, "count", fill=True) == [row[:2] for row in rows]
        assert self.hours(months, night, "count", top=3, ordering=["created:hour"]) == [row[:2] for row in rows[:3]]

    def test_an_hour_that_is_not_there_is_none(self, months: MCPRequest) -> None:
        rows = self.hours(months, datetime(2026, 3, 28, 23, tzinfo=UTC), "count", "change:count", fill=True)
        names = ["29T00", "29T01", "29T03", "29T04", "29T05", "29T06"]
        assert rows == [[f"2026-03-{name}", 2, 0.0 if place else None] for place, name in enumerate(names)]

    def test_hours_begin_with_the_clock_also_where_it_is_half_an_hour_off(self, months: MCPRequest) -> None:
        with timezone.override("Asia/Kolkata"):
            rows = self.hours(months, datetime(2026, 1, 1, 18, 30, tzinfo=UTC), "count", fill=True)
        assert rows == [[f"2026-01-02T{hour:02}", 2] for hour in range(6)]


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
        assert [row[2:] for row in rows] == [[None, 30.0], [pytest.approx(100 / 3), 40.0], [None, 30.0], [None, None]]

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


class TestTexts:
    def test_the_least_and_the_greatest_text_are_those_of_the_order(self, months: MCPRequest) -> None:
        Book.objects.filter(author__name="ann").update(title="bbb")
        for book, title in zip(Book.objects.filter(author__name="bob").order_by("pk"), "ca", strict=True):
            Book.objects.filter(pk=book.pk).update(title=title)
        rows = ask(months, "min:title", "max:title", group_by=["author.name"], having={"max_title__gte": "b"})
        assert [row[0] for row in rows] == ["ann", "bob"]
        assert rows[1][1:] == ["a", "c"]
        assert rows[0][1] == "bbb"
        assert ask(months, "min:title", "max:author.name") == [["a", "bob"]]
        assert ask(months, "max:title", group_by=["author.name"], ordering=["-max_title"])[0][0] == "bob"
        found = call(AGGREGATE, months, model="testapp.book", aggregates=["max:title"], group_by=["pages"], limit=1)
        assert found["rest"]["max_title"] == "c"
        authors = call(AGGREGATE, months, model="testapp.author", aggregates=["max:books.title"], group_by=["name"])
        assert authors["rows"][1] == ["bob", "c"]

    @pytest.mark.parametrize("field", ["secret_token", "author.secret_token", "tags", "data"])
    def test_what_is_no_text_that_one_sees_is_refused(self, months: MCPRequest, field: str) -> None:
        assert "no field" in refusal(AGGREGATE, months, model="testapp.book", aggregates=[f"max:{field}"])


class TestOfEach:
    """Groups within groups, whatever the groups are made of."""

    @pytest.mark.parametrize(
        "groups",
        [
            ["author", "author.id"],
            ["author.id", "author"],
            ["author.name", "author.id"],
            ["pages", "author", "author.pk"],
        ],
        ids=",".join,
    )
    def test_two_columns_of_one_value_are_two_columns(self, months: MCPRequest, groups: list[str]) -> None:
        plain = ask(months, "count", group_by=groups)
        for per in groups:
            best = ask(months, "count", group_by=groups, per=per, top=10)
            assert sorted(map(str, best)) == sorted(map(str, plain))
        assert ask(months, "count", group_by=groups, top=10) != []
