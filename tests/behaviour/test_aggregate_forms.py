"""What aggregates can be asked for beyond a function of a field, compared with plain Python over the same rows."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import QuerySet

from mcp_django import ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.factories import make_superuser, new_book
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
AGGREGATE = AggregateRecords()
HIDDEN = "hidden"
ROWS = [
    # title, author, pages, price, rating, published, status, minutes of reading
    ("a", "ann", 3, "10.10", 1.0, date(2024, 1, 5), "draft", 90),
    ("b", "ann", 0, "0.20", None, date(2024, 1, 31), "published", None),
    ("c", "ann", 7, "1234.50", 4.5, date(2024, 3, 1), "published", 30),
    ("d", "bob", 2, "10.10", 2.0, date(2024, 4, 30), "draft", 60),
    ("e", "bob", 2, "99.99", None, None, "published", 0),
    ("f", "cid", 250, "0.00", 5.0, date(2025, 1, 1), "draft", 24 * 60),
    (HIDDEN, "cid", 90, "7.00", 3.0, date(2024, 2, 2), "published", 15),
]


class Visible(ModelExposure):
    fields = [field.name for field in Book._meta.concrete_fields] + ["tags"]

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(title=HIDDEN)


@pytest.fixture(params=["all rows", "hidden rows"])
def library(request: pytest.FixtureRequest) -> MCPRequest:
    names = ("ann", "bob", "cid", "dan")
    authors = dict(zip(names, Author.objects.bulk_create(Author(name=name) for name in names), strict=True))
    made, loans = [], []
    for title, author, pages, price, rating, published, status, minutes in ROWS:
        book = new_book(
            title,
            author=authors[author],
            pages=pages,
            price=price,
            rating=rating,
            published=published,
            status=status,
            reading_time=None if minutes is None else timedelta(minutes=minutes),
        )
        made.append(book)
        for number in range(pages % 3):
            due = datetime(2024, 6, 1 + number, 12, tzinfo=UTC)
            loans.append(Loan(book=book, borrower=author, due=due))
    Book.objects.bulk_create(made)
    Loan.objects.bulk_create(loans)
    site = site_with(Author, Loan, Tag)
    if request.param == "hidden rows":
        site.register(Book, Visible)
    else:
        site.register(Book, ModelExposure, fields=Visible.fields)
    return reader(make_superuser(), site)


def books(request: MCPRequest) -> list[Book]:
    return list(request.mcp.site.exposures[Book].get_queryset(request).select_related("author").order_by("pk"))


def ask(request: MCPRequest, model: str = "testapp.book", **arguments: Any) -> list[list[Any]]:
    return call(AGGREGATE, request, model=model, **arguments)["rows"]


def total(request: MCPRequest, *aggregates: Any, model: str = "testapp.book", **more: Any) -> list[Any]:
    return ask(request, model, aggregates=list(aggregates), **more)[0]


def by_author(request: MCPRequest) -> dict[str, list[Book]]:
    found = defaultdict(list)
    for book in books(request):
        found[book.author.name].append(book)
    return found


def cents(value: Decimal) -> str:
    return f"{value:.2f}"


class TestConditions:
    def test_a_measure_counts_only_the_rows_of_its_condition(self, library: MCPRequest) -> None:
        where = {"status": "draft", "pages__gte": 2}
        asked = [
            {"function": "count", "where": where, "as": "drafts"},
            {"function": "sum", "field": "price", "where": where, "as": "worth"},
            '{"function": "max", "field": "pages", "where": {"author.name": "bob"}, "as": "longest"}',
            "count",
        ]
        mine = [book for book in books(library) if book.status == "draft" and book.pages >= 2]
        longest = max(book.pages for book in books(library) if book.author.name == "bob")
        worth = cents(sum((book.price for book in mine), Decimal()))
        assert total(library, *asked) == [len(mine), worth, longest, len(books(library))]

    def test_conditions_go_through_relations(self, library: MCPRequest) -> None:
        where = {"loans": {"some": {"borrower": "bob"}}}
        rows = ask(library, aggregates=[{"function": "count", "where": where, "as": "lent"}], group_by=["author.name"])
        expected = {
            name: sum(b.loans.filter(borrower="bob").exists() for b in mine)
            for name, mine in by_author(library).items()
        }
        assert dict(rows) == expected

    @pytest.mark.parametrize("where", [{"secret_token": "x"}, {"author__secret_token": "x"}, "x", [], {"nope": 1}])
    def test_row_112_a_condition_names_what_the_caller_can_filter_by(self, library: MCPRequest, where: Any) -> None:
        refused = {"aggregates": [{"function": "count", "where": where}]}
        assert refusal(AGGREGATE, library, model="testapp.author", **refused)


class TestArithmetic:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("sum:pages*price", lambda book: book.pages * book.price),
            ("sum:(pages+1)*price", lambda book: (book.pages + 1) * book.price),
            ("sum:price-pages*2", lambda book: book.price - book.pages * 2),
            ("sum:-price", lambda book: -book.price),
            ("sum:1.5*pages", lambda book: Decimal("1.5") * book.pages),
        ],
    )
    def test_decimals_stay_exact(self, library: MCPRequest, text: str, value: Callable[[Book], Decimal]) -> None:
        found = total(library, text)[0]
        assert Decimal(found) == sum((value(book) for book in books(library)), Decimal())
        assert isinstance(found, str)

    def test_integers_stay_integers_and_are_divided_exactly(self, library: MCPRequest) -> None:
        mine = books(library)
        assert total(library, "sum:pages*pages", "max:pages/4") == [
            sum(book.pages**2 for book in mine),
            max(book.pages / 4 for book in mine),
        ]

    def test_what_is_divided_by_zero_is_null(self, library: MCPRequest) -> None:
        found = total(library, "sum:price/pages", "count:price/pages")
        mine = [book for book in books(library) if book.pages]
        assert found[0] == pytest.approx(sum(float(book.price) / book.pages for book in mine))
        assert found[1] == len(mine)

    def test_dates_are_subtracted_and_shown_in_a_unit(self, library: MCPRequest) -> None:
        mine = [book for book in books(library) if book.published]
        days = [(book.created.astimezone(UTC).date() - book.published).days for book in mine]
        found = call(
            AGGREGATE, library, model="testapp.book", aggregates=["avg:created-published", "max:created-published"]
        )
        assert found["columns"] == ["avg_created-published_days", "max_created-published_days"]
        assert found["rows"][0] == [pytest.approx(sum(days) / len(days)), max(days)]
        weeks = {"function": "max", "field": "created-published", "unit": "weeks", "as": "age"}
        assert total(library, weeks)[0] == pytest.approx(max(days) / 7)

    def test_durations(self, library: MCPRequest) -> None:
        known = [book.reading_time for book in books(library) if book.reading_time is not None]
        asked = {"function": "sum", "field": "reading_time", "unit": "hours", "as": "hours"}
        assert total(library, asked, "max:reading_time*2") == [
            pytest.approx(sum(known, timedelta()) / timedelta(hours=1)),
            pytest.approx(2 * max(known) / timedelta(days=1)),
        ]

    def test_paths_and_null(self, library: MCPRequest) -> None:
        rows = ask(library, model="testapp.loan", aggregates=["sum:book.pages*book.price", "count:book.rating+1"])
        seen = set(books(library))
        mine = [loan.book for loan in Loan.objects.select_related("book") if loan.book in seen]
        assert Decimal(rows[0][0]) == sum((book.pages * book.price for book in mine), Decimal())
        assert rows[0][1] == sum(book.rating is not None for book in mine)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("sum:pages*", "not understood at its end"),
            ("sum:pages**2", "not understood at '*'"),
            ("sum:(pages", "not understood at its end"),
            ("sum:pages;drop", "has no field"),
            ("sum:pages*;drop", "was not understood"),
            ("sum:title*2", "cannot be computed"),
            ("sum:published*2", "cannot be computed"),
            ("sum:published-pages", "cannot be computed"),
            ("sum:published+5d", "cannot be used here"),
            ("sum:nope*2", "has no field 'nope'"),
            ("sum:author.secret_token*2", "has no field"),
            ("sum:" + "(" * 12 + "pages" + ")" * 12, "nested 8 deep"),
            ("sum:" + "+".join(["id"] * 30), "at most 40 parts"),
            ("sum:" + "1+" * 150 + "1", "at most 200 characters"),
        ],
    )
    def test_what_is_no_expression_is_told(self, library: MCPRequest, text: str, told: str) -> None:
        assert told in refusal(AGGREGATE, library, model="testapp.book", aggregates=[text])


class TestMoreFunctions:
    @pytest.mark.parametrize("field", ["pages", "price", "rating"])
    def test_middles_and_spreads(self, library: MCPRequest, field: str) -> None:
        values = sorted(float(value) for book in books(library) if (value := getattr(book, field)) is not None)
        percentile = {"function": "percentile", "field": field, "share": 0.9, "as": "p90"}
        found = total(
            library, f"median:{field}", percentile, f"percentile:{field}:25", f"stddev:{field}", f"variance:{field}"
        )
        place = 0.9 * (len(values) - 1)
        low = values[int(place)]
        assert found == [
            pytest.approx(statistics.median(values)),
            pytest.approx(low + (values[min(int(place) + 1, len(values) - 1)] - low) * (place - int(place))),
            pytest.approx(statistics.quantiles(values, n=4, method="inclusive")[0]),
            pytest.approx(statistics.stdev(values)),
            pytest.approx(statistics.variance(values)),
        ]

    def test_of_groups_with_one_value_or_none(self, library: MCPRequest) -> None:
        rows = ask(library, aggregates=["median:rating", "stddev:rating"], group_by=["author.name"])
        for name, middle, spread in rows:
            values = [book.rating for book in by_author(library)[name] if book.rating is not None]
            assert middle == (statistics.median(values) if values else None)
            assert spread == (pytest.approx(statistics.stdev(values)) if len(values) > 1 else None)

    def test_of_nothing(self, library: MCPRequest) -> None:
        assert total(library, "median:pages", "stddev:pages", filters={"pages__gt": 9_000}) == [None, None]

    def test_of_durations(self, library: MCPRequest) -> None:
        known = [book.reading_time for book in books(library) if book.reading_time is not None]
        asked = {"function": "median", "field": "reading_time", "unit": "minutes", "as": "m"}
        assert total(library, asked)[0] == pytest.approx(statistics.median(known) / timedelta(minutes=1))

    def test_a_condition_holds_for_them_too(self, library: MCPRequest) -> None:
        asked = {"function": "median", "field": "pages", "where": {"status": "draft"}, "as": "m"}
        mine = [book.pages for book in books(library) if book.status == "draft"]
        assert total(library, asked)[0] == statistics.median(mine)

    @pytest.mark.parametrize("text", ["percentile:pages", "percentile:pages:x", "percentile:pages:-1"])
    def test_a_percentile_needs_its_share(self, library: MCPRequest, text: str) -> None:
        assert "share between 0 and 1" in refusal(AGGREGATE, library, model="testapp.book", aggregates=[text])

    @pytest.mark.parametrize("text", ["stddev:reading_time", "median:title", "variance:published"])
    def test_row_112_they_are_of_numbers(self, library: MCPRequest, text: str) -> None:
        assert "has no field" in refusal(AGGREGATE, library, model="testapp.book", aggregates=[text])


class TestResultsOfResults:
    drafts: Any = {"function": "count", "where": {"status": "draft"}, "as": "drafts"}

    def test_ratios_can_be_sorted_by_and_compared(self, library: MCPRequest) -> None:
        asked = [self.drafts, "count", {"ratio": ["drafts", "count"], "as": "share"}]
        expected = sorted(
            (
                [
                    name,
                    sum(b.status == "draft" for b in mine),
                    len(mine),
                    pytest.approx(sum(b.status == "draft" for b in mine) / len(mine)),
                ]
                for name, mine in by_author(library).items()
            ),
            key=lambda row: (-row[1] / row[2], row[0]),
        )
        by_name = {"group_by": ["author.name"], "ordering": ["-share"]}
        assert ask(library, aggregates=asked, **by_name) == expected
        some = ask(library, aggregates=asked, **by_name, having={"share__lt": 0.6})
        assert some == [row for row in expected if row[1] / row[2] < 0.6]
        assert ask(library, aggregates=asked, **by_name, top=1) == expected[:1]
        mine = books(library)
        assert total(library, *asked)[2] == pytest.approx(sum(b.status == "draft" for b in mine) / len(mine))

    def test_of_decimals_and_of_nothing(self, library: MCPRequest) -> None:
        asked = ["sum:price", "count", "ratio:sum_price/count", "difference:sum_price-count"]
        found = total(library, *asked)
        mine = books(library)
        worth = sum((book.price for book in mine), Decimal())
        assert [found[2], float(found[3])] == [
            pytest.approx(float(worth) / len(mine)),
            pytest.approx(float(worth) - len(mine)),
        ]
        rows = {row[0]: row[1:] for row in ask(library, aggregates=asked, group_by=["author.name"])}
        for name, group in by_author(library).items():
            worth = sum((book.price for book in group), Decimal())
            assert rows[name][2] == pytest.approx(float(worth) / len(group))
            assert float(rows[name][3]) == pytest.approx(float(worth) - len(group))
        assert total(library, *asked, filters={"pages__gt": 9_000})[2] is None

    def test_percent_of_all(self, library: MCPRequest) -> None:
        asked = ["sum:price", {"percent_of_total": "sum_price", "as": "percent"}]
        worth = sum((book.price for book in books(library)), Decimal())
        for name, mine, percent in ask(library, aggregates=asked, group_by=["author.name"]):
            own = sum((book.price for book in by_author(library)[name]), Decimal())
            assert (mine, percent) == (cents(own), pytest.approx(100 * float(own) / float(worth)))
        assert total(library, *asked)[1] == 100
        assert ask(library, aggregates=asked, group_by=["author.name"], limit=1)[0][1:] != [cents(worth), 100.0]

    @pytest.mark.parametrize(
        ("having", "are_null"),
        [
            ({"max_rating__isnull": True}, True),
            ({"max_rating": {"isnull": "false"}}, False),
            ({"share__isnull": False}, False),
        ],
        ids=str,
    )
    def test_having_asks_for_groups_without_a_value(
        self, library: MCPRequest, having: dict[str, Any], are_null: bool
    ) -> None:
        asked = ["max:rating", "count:rating", {"ratio": ["max_rating", "count_rating"], "as": "share"}]
        ratings = defaultdict(list)
        for book in books(library):
            ratings[book.status, book.author.name].append(book.rating)
        rows = ask(library, aggregates=asked, group_by=["status", "author.name"], having=having)
        expected = [key for key, found in ratings.items() if (set(found) == {None}) is are_null]
        assert sorted((status, name) for status, name, *_ in rows) == sorted(expected)
        text = refusal(
            AGGREGATE,
            library,
            model="testapp.book",
            aggregates=asked,
            group_by=["status"],
            having={"share__isnull": "maybe"},
        )
        assert "share with isnull needs" in text

    def test_results_are_made_of_results(self, library: MCPRequest) -> None:
        asked = [
            {"ratio": ["rest", "count"], "as": "share"},
            {"difference": ["count", "drafts"], "as": "rest"},
            self.drafts,
            "count",
            {"percent_of_total": "rest", "as": "percent"},
            "ratio:percent/share",
        ]
        everything = books(library)
        left = sum(book.status != "draft" for book in everything)
        expected = []
        for name, mine in by_author(library).items():
            rest = sum(book.status != "draft" for book in mine)
            share, percent = rest / len(mine), 100 * rest / left
            row = [name, share, rest, len(mine) - rest, len(mine), percent, percent / share if share else None]
            expected.append([pytest.approx(value) if isinstance(value, float) else value for value in row])
        for more in ({}, {"top": 3}, {"top": 3, "ordering": ["-share"]}, {"having": {"share__gte": 0}}):
            rows = ask(library, aggregates=asked, group_by=["author.name"], **more)
            assert sorted(rows) == sorted(expected, key=lambda row: row[0])
        only = ask(library, aggregates=asked, group_by=["author.name"], having={"share__gt": 0.5})
        assert sorted(only) == sorted((row for row in expected if row[2] / row[4] > 0.5), key=lambda row: row[0])
        everywhere = [left / len(everything), left, len(everything) - left, len(everything), 100]
        assert total(library, *asked)[:5] == [pytest.approx(value) for value in everywhere]

    def test_results_are_made_of_changes(self, library: MCPRequest) -> None:
        asked = ["count", "change:count", {"difference": ["change_count", "count"], "as": "less"}]
        rows = ask(library, aggregates=asked, group_by=["published:month"], filters={"published__isnull": False})
        assert len(rows) > 2
        for _, count, change, less in rows:
            assert less == (None if change is None else pytest.approx(change - count))
        text = refusal(
            AGGREGATE, library, model="testapp.book", aggregates=[*asked, "change:less"], group_by=["published:month"]
        )
        assert "made from a change" in text

    @pytest.mark.parametrize(
        "asked",
        [
            [{"ratio": ["a", "count"], "as": "a"}, "count"],
            [{"ratio": ["b", "count"], "as": "a"}, {"ratio": ["a", "count"], "as": "b"}, "count"],
        ],
        ids=["itself", "each other"],
    )
    def test_a_circle_is_told(self, library: MCPRequest, asked: Any) -> None:
        assert "needs it" in refusal(AGGREGATE, library, model="testapp.book", aggregates=asked)

    def test_the_change_from_period_to_period(self, library: MCPRequest) -> None:
        rows = ask(
            library,
            aggregates=["count", "change:count"],
            group_by=["published:quarter"],
            filters={"published__isnull": False},
        )
        counts = {name: count for name, count, _ in rows}
        for name, _, change in rows:
            year, quarter = int(name[:4]), int(name[-1])
            before = counts.get(f"{year}-Q{quarter - 1}" if quarter > 1 else f"{year - 1}-Q4")
            assert change == (None if before is None else pytest.approx(100 * (counts[name] - before) / before))

    @pytest.mark.parametrize(
        ("aggregates", "told"),
        [
            (["count", {"ratio": ["count"]}], "ratio takes 2"),
            (["count", {"ratio": ["count", "nope"]}], "uses other aggregates of this call"),
            (["max:published", "count", "ratio:max_published/count"], "takes numbers"),
            (["count", "change:count"], "needs one period"),
            ([{"ratio": [1, 2]}], "An aggregate is"),
            (["mode:pages"], "Unknown aggregate 'mode'"),
            (["pages"], 'Write "count", or a function with its field, such as "sum:total".'),
            ({"sum": "pages", "count": "*"}, "Several are a list."),
            ({"pages": "sum"}, 'An aggregate is "count", "sum:field"'),
            (["Pages:Sum"], "Did you mean sum:pages?"),
        ],
    )
    def test_what_cannot_be_is_told(self, library: MCPRequest, aggregates: Any, told: str) -> None:
        assert told in refusal(AGGREGATE, library, model="testapp.book", aggregates=aggregates)


class TestSeveralRelatedRows:
    def test_each_is_counted_once(self, library: MCPRequest) -> None:
        asked = [
            "count",
            "count:books",
            "sum:books.price",
            "sum:books.pages*books.price",
            "max:books.pages",
            "count:books.rating",
        ]
        found = total(library, *asked, model="testapp.author")
        mine = books(library)
        assert found[:2] == [Author.objects.count(), len(mine)]
        assert found[2] == cents(sum((book.price for book in mine), Decimal()))
        assert Decimal(found[3]) == sum((book.pages * book.price for book in mine), Decimal())
        assert found[4:] == [max(book.pages for book in mine), sum(book.rating is not None for book in mine)]

    def test_two_relations_do_not_multiply_each_other(self, library: MCPRequest) -> None:
        found = ask(library, model="testapp.book", aggregates=["count:loans", "sum:pages"], group_by=["author.name"])
        for name, loans, pages in found:
            mine = by_author(library)[name]
            assert (loans, pages) == (sum(book.loans.count() for book in mine), sum(book.pages for book in mine))

    def test_who_has_none_counts_as_nothing(self, library: MCPRequest) -> None:
        rows = ask(library, model="testapp.author", aggregates=["count:books", "sum:books.pages"], group_by=["name"])
        assert ["dan", 0, None] in rows

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("median:books.pages", "aggregate testapp.book itself"),
            ("sum:books.pages*id", "mixes rows"),
            ("sum:books.secret", "has no field"),
            ("sum:audiobooks.pages", "has no field"),
        ],
    )
    def test_what_cannot_be_is_told(self, library: MCPRequest, text: str, told: str) -> None:
        assert told in refusal(AGGREGATE, library, model="testapp.author", aggregates=[text])


class TestGroups:
    def test_the_first_of_each(self, library: MCPRequest) -> None:
        found = call(
            AGGREGATE,
            library,
            model="testapp.book",
            aggregates=["sum:pages"],
            group_by=["title"],
            top=1,
            per="author.name",
        )
        assert found["columns"] == ["author__name", "title", "sum_pages"]
        best = {name: max(mine, key=lambda book: book.pages) for name, mine in by_author(library).items()}
        assert found["rows"] == [[name, book.title, book.pages] for name, book in sorted(best.items())]
        left = len(books(library)) - len(best)
        assert found["rest"] == {"groups": left}
        assert "Only the first 1 of each author__name" in found["hint"]

    def test_per_needs_what_it_is_about(self, library: MCPRequest) -> None:
        for arguments in ({"group_by": ["title"], "per": "author"}, {"per": "author", "top": 2}):
            assert '"per" needs "top"' in refusal(AGGREGATE, library, model="testapp.book", **arguments)

    def test_buckets_of_numbers(self, library: MCPRequest) -> None:
        for field, width in (("pages", 100), ("price", 50), ("rating", 2.5)):
            expected: dict[Any, int] = defaultdict(int)
            for book in books(library):
                value = getattr(book, field)
                expected[None if value is None else float(value) // width * width] += 1
            rows = ask(library, aggregates=["count"], group_by=[f"{field}:{width}"])
            assert dict(rows) == dict(expected)
        assert "is a duration" in refusal(AGGREGATE, library, model="testapp.book", group_by=["reading_time:5"])

    def test_parts_of_dates(self, library: MCPRequest) -> None:
        rows = ask(library, aggregates=["count"], group_by=["published:month_of_year"])
        expected: dict[Any, int] = defaultdict(int)
        for book in books(library):
            expected[None if book.published is None else str(book.published.month)] += 1
        assert dict(rows) == dict(expected)

    def test_periods_without_rows(self, library: MCPRequest) -> None:
        asked: dict[str, Any] = {
            "aggregates": ["count", "sum:pages", "avg:pages"],
            "filters": {"published__lt": "2025"},
        }
        rows = ask(library, **asked, group_by=["published:month"], fill=True)
        assert [row[0] for row in rows] == [f"2024-{month:02}" for month in range(1, 13)]
        hides = not any(book.title == HIDDEN for book in books(library))
        assert rows[1][1:] == ([0, 0, None] if hides else [1, 90, 90.0])
        down = ask(library, **asked, group_by=["published:month"], fill=True, ordering=["-published:month"])
        assert down == rows[::-1]
        quarters = ask(library, aggregates=["count"], group_by=["published:quarter"], fill=True)
        assert [row[0] for row in quarters] == ["2024-Q1", "2024-Q2", "2024-Q3", "2024-Q4", "2025-Q1", None]

    def test_row_115_few_rows_do_not_make_many_periods(self, library: MCPRequest) -> None:
        Book.objects.filter(title="a").update(published=date(1, 1, 1))
        Book.objects.filter(title="f").update(published=date(9999, 12, 31))
        asked = {"model": "testapp.book", "group_by": ["published:day"], "fill": True}
        assert "more than 1000 periods to fill" in refusal(AGGREGATE, library, **asked)
        Book.objects.filter(title="a").delete()
        last = {"model": "testapp.book", "group_by": ["published:month"], "fill": True, "filters": {"title": "f"}}
        assert call(AGGREGATE, library, **last)["rows"] == [["9999-12", 1]]

    @pytest.mark.parametrize(
        "arguments", [{"group_by": ["title"]}, {}, {"group_by": ["published:month"], "ordering": ["count"]}]
    )
    def test_only_an_order_of_periods_has_gaps(self, library: MCPRequest, arguments: dict[str, Sequence[str]]) -> None:
        assert '"fill" needs' in refusal(AGGREGATE, library, model="testapp.book", fill=True, **arguments)


def edge_of(rows: Sequence[Book], order: str, *, last: bool) -> Book | None:
    """Return the first or the last row, of those that have a value to order by."""
    placed = sorted(
        (book for book in rows if getattr(book, order) is not None), key=lambda b: (getattr(b, order), b.pk)
    )
    return (placed[-1] if last else placed[0]) if placed else None


class TestFirstAndLast:
    @pytest.mark.parametrize("last", [False, True])
    @pytest.mark.parametrize("order", ["published", "pages", "price", "rating", "reading_time", "created", "id"])
    def test_values_of_one_row_by_an_order(self, library: MCPRequest, order: str, last: bool) -> None:
        name = "last" if last else "first"
        asked = [
            {"function": name, "field": field, "order": order} for field in ("title", "price", "published", "author")
        ]
        rows = ask(library, aggregates=asked, group_by=["author.name"])
        for author, *found in rows:
            book = edge_of(by_author(library)[author], order, last=last)
            assert book is not None
            published = book.published and book.published.isoformat()
            assert found == [book.title, cents(book.price), published, [book.author.pk, book.author.name]]
        of_all = edge_of(books(library), order, last=last)
        assert total(library, f"{name}:title:{order}") == [of_all and of_all.title]

    def test_they_take_conditions_and_turned_orders(self, library: MCPRequest) -> None:
        drafts = [book for book in books(library) if book.status == "draft"]
        last = edge_of(drafts, "pages", last=True)
        asked = {
            "function": "first",
            "field": "title",
            "order": "-pages",
            "where": {"status": "draft"},
            "as": "longest",
        }
        assert last is not None
        assert total(library, asked) == [last.title]
        nothing = {"function": "last", "field": "title", "order": "pages", "where": {"title": "nope"}}
        assert total(library, nothing) == [None]
        ordered = ask(library, aggregates=[asked], group_by=["author.name"], ordering=["-longest"])
        assert sorted((row[1] for row in ordered if row[1]), reverse=True) == [row[1] for row in ordered if row[1]]
        assert total(library, "last:author.name:published", filters={"published__isnull": True}) == [None]

    @pytest.mark.parametrize(
        "asked",
        [
            "last:title",
            "last:title:",
            "last:title:title",
            "last:title:nope",
            "first:nope:pages",
            {"function": "last", "field": "title", "order": ["pages"]},
            {"function": "last", "field": "title", "order": "author__secret_token"},
            {"function": "last", "field": "author__secret_token", "order": "pages"},
            {"function": "last", "order": "pages"},
            {"function": "first", "field": "loans.borrower", "order": "pages"},
        ],
    )
    def test_what_has_no_first_is_refused(self, library: MCPRequest, asked: Any) -> None:
        assert refusal(AGGREGATE, library, model="testapp.book", aggregates=[asked])


class TestHaving:
    def test_aggregates_are_compared_with_each_other(self, library: MCPRequest) -> None:
        asked = ["sum:pages", "sum:price", "count", {"function": "count", "where": {"status": "draft"}, "as": "drafts"}]
        found = ask(
            library, aggregates=asked, group_by=["author.name"], having={"sum_price__gt": {"field": "sum_pages"}}
        )
        mine = by_author(library).items()
        rich = {name for name, rows in mine if sum(b.price for b in rows) > sum(b.pages for b in rows)}
        assert {row[0] for row in found} == rich
        having = {"count": {"gt": {"field": "drafts"}}}
        found = ask(library, aggregates=asked, group_by=["author.name"], having=having)
        assert {row[0] for row in found} == {n for n, rows in mine if any(b.status != "draft" for b in rows)}
        having = {"min_published__lt": {"field": "max_published"}}
        found = ask(library, aggregates=["min:published", "max:published"], group_by=["author.name"], having=having)
        dates = {name: {b.published for b in rows if b.published} for name, rows in mine}
        assert {row[0] for row in found} == {name for name, known in dates.items() if len(known) > 1}

    def test_dates_may_be_relative_or_whole_periods(self, library: MCPRequest) -> None:
        Loan.objects.filter(borrower="bob").update(due=datetime.now(tz=UTC) - timedelta(days=3))
        latest: dict[str, datetime] = {}
        for loan in Loan.objects.filter(book__in=books(library)):
            latest[loan.borrower] = max(loan.due, latest.get(loan.borrower, loan.due))
        long_ago = datetime.now(tz=UTC) - timedelta(days=30)
        asked: dict[str, Any] = {"model": "testapp.loan", "aggregates": ["max:due"], "group_by": ["borrower"]}
        for having, passes in (
            ({"max_due__gte": "today-30d"}, lambda due: due >= long_ago),
            ({"max_due__lt": "30 days ago"}, lambda due: due < long_ago),
            ({"max_due": "2024-06"}, lambda due: (due.year, due.month) == (2024, 6)),
            ({"max_due__lte": "2024-06-01"}, lambda due: due.date() <= date(2024, 6, 1)),
            ({"max_due__range": ["2024-06-01", "2024-06-01"]}, lambda due: due.date() == date(2024, 6, 1)),
        ):
            rows = ask(library, **asked, having=having, filters={"borrower__in": [*latest]})
            assert {row[0] for row in rows} == {name for name, due in latest.items() if passes(due)}, having


def test_the_difference_of_two_dates_is_in_days(library: MCPRequest) -> None:
    asked = ["max:published", "min:published", {"difference": ["max_published", "min_published"], "as": "days"}]
    known = [book.published for book in books(library) if book.published]
    assert total(library, *asked)[2] == (max(known) - min(known)).days
    found = {row[0]: row[3] for row in ask(library, aggregates=asked, group_by=["author.name"])}
    for name, rows in by_author(library).items():
        days = [book.published for book in rows if book.published]
        assert found[name] == ((max(days) - min(days)).days if days else None)
    late = ask(library, aggregates=asked, group_by=["author.name"], having={"days__gte": 1})
    assert {row[0] for row in late} == {name for name, days in found.items() if days}


@pytest.mark.parametrize(
    ("one", "other"), [("max:published", "avg:pages"), ("max:opens", "min:opens"), ("count", "max:reading_time")]
)
def test_a_difference_of_different_kinds_is_refused(library: MCPRequest, one: str, other: str) -> None:
    asked = [one, other, {"difference": [one, other]}]
    text = refusal(AGGREGATE, library, model="testapp.book", aggregates=asked)
    assert "difference takes" in text
