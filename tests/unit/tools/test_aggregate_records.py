"""`aggregate_records`: numbers over the caller's rows, by groups that the caller may see."""

from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Count, QuerySet
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.own_texts import TEXT
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.filterapp.models import Film, Screening
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
AGGREGATE = AggregateRecords()


@pytest.fixture
def request_() -> Any:
    ann, bob = make_author("Ann"), make_author("Bob")
    rows = [("a", ann, 1, "2024-01-05", 1.0), ("b", ann, 2, "2024-01-20", None), ("c", bob, 4, "2024-03-01", 2.0)]
    for title, author, pages, published, rating in [*rows, ("d", bob, 8, None, None)]:
        make_book(title=title, author=author, pages=pages, published=published, rating=rating, price="1.00")
    return reader(make_superuser(), site_with(Book, Author, search_fields=["title"]))


def test_totals(request_: Any) -> None:
    asked = ["count", "sum:pages", "avg:pages", "avg:price", "min:published", "max:price", "count:rating"]
    found = call(AGGREGATE, request_, model="testapp.book", aggregates=asked)
    assert found == {
        "model": "testapp.book",
        "returned": 1,
        "columns": ["count", "sum_pages", "avg_pages", "avg_price", "min_published", "max_price", "count_rating"],
        "rows": [[4, 15, 3.75, "1", "2024-01-05", "1.00", 2]],
    }
    assert call(AGGREGATE, request_, model="testapp.book")["rows"] == [[4]]


def test_groups_have_labels_and_an_order(request_: Any) -> None:
    found = call(
        AGGREGATE,
        request_,
        model="testapp.book",
        aggregates=[{"function": "sum", "field": "pages", "as": "total"}],
        group_by=["author"],
        ordering="-total",
    )
    assert found["columns"] == ["author", "total"]
    assert [(row[0][1], row[1]) for row in found["rows"]] == [("Bob", 12), ("Ann", 3)]


@pytest.mark.parametrize(
    ("group", "rows"),
    [
        ("published:year", [["2024", 3]]),
        ("published:month", [["2024-01", 2], ["2024-03", 1]]),
        ("published:day", [["2024-01-05", 1], ["2024-01-20", 1], ["2024-03-01", 1]]),
        ("status", [["draft", 3]]),
    ],
)
def test_dates_are_grouped_by_period(request_: Any, group: str, rows: Any) -> None:
    found = call(AGGREGATE, request_, model="testapp.book", group_by=[group], filters={"published__isnull": False})
    assert found["rows"] == rows


def test_rows_without_a_value_are_a_group_of_their_own(request_: Any) -> None:
    rows = call(AGGREGATE, request_, model="testapp.book", group_by="published:month")["rows"]
    assert [None, 1] in rows


def test_datetimes_are_grouped_too(request_: Any) -> None:
    make_loan = Loan.objects.create
    make_loan(book=Book.objects.first(), borrower="x", due="2024-05-06T07:08:09Z")
    request = reader(make_superuser("b"), site_with(Loan))
    assert call(AGGREGATE, request, model="testapp.loan", group_by=["due:month"])["rows"] == [["2024-05", 1]]


def test_filters_and_search_narrow(request_: Any) -> None:
    found = call(AGGREGATE, request_, model="testapp.book", filters={"pages__gte": 2}, search="b")
    assert found["rows"] == [[1]]
    assert call(AGGREGATE, request_, model="testapp.book", filters={"pages": 99}, aggregates=["sum:pages"])["rows"] == [
        [None]
    ]


def test_groups_beyond_the_limit_are_admitted(request_: Any) -> None:
    found = call(AGGREGATE, request_, model="testapp.book", group_by=["title"], limit=3)
    assert found["returned"] == len(found["rows"]) == 3
    assert found["truncated"] is True
    assert list(found)[:5] == ["model", "returned", "truncated", "rest", "hint"]
    assert found["rest"] == {"groups": 1, "count": 1}
    assert found["hint"] == (
        "There are more than 3 groups: raise limit, narrow the filters, group more coarsely or use top."
    )
    among_top = call(AGGREGATE, request_, model="testapp.book", group_by=["title", "pages"], limit=1, top=2)
    assert among_top["hint"].endswith("1 groups: raise limit, narrow the filters or group more coarsely.")
    assert "truncated" not in call(AGGREGATE, request_, model="testapp.book", group_by=["title"], limit=4)


def test_the_top_of_the_first_group_by_the_others_is_one_call(request_: Any) -> None:
    make_book(title="e", author=make_author("Cid"), pages=5, published="2024-01-09", rating=4.0, price="1.00")
    found = call(
        AGGREGATE,
        request_,
        model="testapp.book",
        aggregates=["sum:pages", "count", "avg:pages"],
        group_by=["author__name", "published:month"],
        top=2,
    )
    assert found["columns"] == ["author__name", "published:month", "sum_pages", "count", "avg_pages"]
    assert found["rows"] == [
        ["Bob", "2024-03", 4, 1, 4.0],
        ["Bob", None, 8, 1, 8.0],
        ["Cid", "2024-01", 5, 1, 5.0],
    ]
    assert found["rest"] == {"groups": 1, "sum_pages": 3, "count": 2}
    assert "truncated" not in found
    asked: dict[str, Any] = {"group_by": ["author__name", "published:month"], "top": 3}
    whole = call(AGGREGATE, request_, model="testapp.book", per="author__name", **asked)
    assert whole["returned"] == 4
    assert not {"rest", "hint", "truncated"} & whole.keys()


@pytest.mark.parametrize(
    ("ordering", "names"),
    [([], ["Bob"]), (["-sum_pages"], ["Bob"]), (["sum_pages"], ["Ann"]), (["author__name", "count"], ["Ann"])],
)
def test_the_top_of_one_group_is_the_first_by_the_first_measure(
    request_: Any, ordering: list[str], names: list[str]
) -> None:
    asked: dict[str, Any] = {"aggregates": ["sum:pages", "count"], "group_by": ["author__name"], "top": 1}
    found = call(AGGREGATE, request_, model="testapp.book", ordering=ordering, **asked)
    assert [row[0] for row in found["rows"]] == names
    assert found["rest"]["sum_pages"] + found["rows"][0][1] == 15


def test_the_rest_keeps_what_having_asks_for(request_: Any) -> None:
    asked: dict[str, Any] = {"aggregates": ["sum:pages", "count"], "group_by": ["title"], "limit": 1}
    found = call(AGGREGATE, request_, model="testapp.book", **asked, having={"sum_pages__gte": 2}, ordering="-title")
    assert found["rows"] == [["d", 8, 1]]
    assert found["rest"] == {"groups": 2, "sum_pages": 6, "count": 2}


def test_row_118_a_call_costs_few_queries_and_holds_few_rows(request_: Any) -> None:
    for number in range(210):
        make_book(title=f"n{number:03}", author=Author.objects.first(), pages=0)
    costs = {}
    for name, options in {"whole": {"limit": 200}, "top": {"top": 2}, "many": {"limit": 10**6}}.items():
        with CaptureQueriesContext(connection) as captured:
            found = call(AGGREGATE, request_, model="testapp.book", group_by=["title", "author__name"], **options)
        costs[name] = sum(1 for query in captured if "testapp_book" in query["sql"])
        assert found["returned"] <= 200
        assert found["returned"] + found["rest"]["count"] == 214
    assert costs == {"whole": 2, "top": 3, "many": 2}


def test_null_is_last_in_either_direction(request_: Any) -> None:
    for ordering in ("max_rating", "-max_rating"):
        asked: dict[str, Any] = {"aggregates": ["max:rating"], "group_by": ["title"], "ordering": [ordering]}
        rows = call(AGGREGATE, request_, model="testapp.book", **asked)["rows"]
        assert [row[1] for row in rows[2:]] == [None, None]


class Joined(ModelExposure):
    fields = ("title", "pages")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(number=Count("tags"), loans_=Count("loans"))


def test_joins_of_the_exposures_own_do_not_multiply_sums(request_: Any) -> None:
    book = Book.objects.get(title="d")
    book.tags.set([Tag.objects.create(name=f"t{number}") for number in range(3)])
    site = MCPSite()
    site.register(Book, Joined)
    request = reader(make_superuser("b"), site)
    assert call(AGGREGATE, request, model="testapp.book", aggregates=["count", "sum:pages"])["rows"] == [[4, 15]]
    found = call(AGGREGATE, request, model="testapp.book", aggregates=["sum:pages"], group_by=["title"])
    assert found["rows"] == [["a", 1], ["b", 2], ["c", 4], ["d", 8]]


def test_row_121_only_the_callers_rows_are_counted(request_: Any) -> None:
    user = make_user("u", "testapp.view_book")
    Book.objects.update(owner=make_superuser("other"))
    make_book(owner=user, pages=100)
    request = reader(user, MCPSite(admin_site=admin.site))
    assert call(AGGREGATE, request, model="testapp.book", aggregates=["count", "sum:pages"])["rows"] == [[1, 100]]


def test_a_label_of_a_group_is_there_for_who_may_view_it(request_: Any) -> None:
    member = reader(make_user("u", "testapp.view_book"), request_.mcp.site)
    rows = call(AGGREGATE, member, model="testapp.book", group_by=["author"])["rows"]
    assert {row[0][1] for row in rows} == {None}


@pytest.mark.parametrize(
    "arguments",
    [
        {"aggregates": ["sum:secret_token"]},
        {"aggregates": ["max:isbn_"]},
        {"aggregates": ["sum:title"]},
        {"aggregates": ["sum"]},
        {"aggregates": ["mode:pages"]},
        {"aggregates": [{"function": "sum", "field": "pages", "as": 'x" FROM auth_user --'}]},
        {"aggregates": [{"function": "sum", "field": "pages", "filter": {}}]},
        {"aggregates": [{"function": ["sum"], "field": "pages"}]},
        {"aggregates": ["count"] * 11},
        {"aggregates": ["count", "count"]},
        {"aggregates": 5},
        {"group_by": ["author__secret_token"]},
        {"group_by": ["author__books__title"]},
        {"group_by": ["data"]},
        {"group_by": ["tags"]},
        {"group_by": ["title:month"]},
        {"group_by": ["published:century"]},
        {"group_by": [5]},
        {"group_by": ["x" * 100_000]},
        {"ordering": ["-nothing"]},
        {"ordering": ["pages; DROP"]},
        {"limit": -1},
        {"limit": "all"},
        {"top": -1, "group_by": ["title"]},
        {"top": 5},
        {"having": {"count__gte": 1}},
        {"having": {"pages__gte": 1}, "group_by": ["title"]},
        {"having": {"count__regex": 1}, "group_by": ["title"]},
        {"having": {"count__gte__exact": 1}, "group_by": ["title"]},
        {"having": {"_connector": "OR"}, "group_by": ["title"]},
        {"having": {"mcp_a0__gte": 1}, "group_by": ["title"]},
        {"ordering": ["mcp_g0"], "group_by": ["title"]},
        {"filters": {"_connector": "OR"}},
    ],
)
def test_rows_112_115_116_what_is_outside_the_lists_is_refused(request_: Any, arguments: dict[str, Any]) -> None:
    with CaptureQueriesContext(connection) as captured:
        message = refusal(AGGREGATE, request_, model="testapp.book", **arguments)
    assert "SELECT" not in message
    assert not any('FROM "testapp_book"' in query["sql"] for query in captured)


def test_row_116_a_title_is_never_a_name_in_sql(request_: Any) -> None:
    asked = [{"function": "sum", "field": "pages", "as": "password"}]
    with CaptureQueriesContext(connection) as captured:
        found = call(AGGREGATE, request_, model="testapp.book", aggregates=asked, group_by=["title"])
    assert found["columns"] == ["title", "password"]
    assert not any("password" in query["sql"] for query in captured if "testapp_book" in query["sql"])


def test_row_112_a_hidden_field_is_refused_like_a_missing_one() -> None:
    request = reader(make_superuser(), site_with(Book, fields=["pages"]))
    hidden = refusal(AGGREGATE, request, model="testapp.book", aggregates=["sum:price"])
    assert hidden.replace("price", "nonono") == refusal(
        AGGREGATE, request, model="testapp.book", aggregates=["sum:nonono"]
    )
    assert refusal(AGGREGATE, request, model="testapp.book", group_by=["isbn"]).replace("isbn", "nono") == refusal(
        AGGREGATE, request, model="testapp.book", group_by=["nono"]
    )


@pytest.mark.parametrize("title", ["groups", "x" * 41, "a.b", "a%s", "a'", "a\x00", "__", "1"])
def test_row_116_titles_are_short_plain_words(request_: Any, title: str) -> None:
    asked = [{"function": "sum", "field": "pages", "as": title}]
    assert "short name" in refusal(AGGREGATE, request_, model="testapp.book", aggregates=asked, group_by=["title"])


@pytest.mark.parametrize("group_by", [["author", "published:month"], ["status", "title"], ["created:hour", "title"]])
def test_the_top_of_no_rows_is_nothing(request_: Any, group_by: list[str]) -> None:
    found = call(
        AGGREGATE,
        request_,
        model="testapp.book",
        aggregates=["sum:pages", "count"],
        group_by=group_by,
        filters={"title": "no such"},
        having={"count__gt": 0},
        ordering=["-sum_pages"],
        top=3,
    )
    assert found["rows"] == []
    assert found["columns"] == [*group_by, "sum_pages", "count"]
    assert not {"rest", "truncated"} & found.keys()


def test_a_field_comes_before_a_period_of_the_same_name() -> None:
    for year, title in ((1990, "a"), (1990, "b"), (2001, "c")):
        film = Film.objects.create(title=title, year=year, released=f"{year}-05-01")
        Screening.objects.create(film=film)
    request = reader(make_superuser(), site_with(Screening, Film))
    for group, rows in {
        "film__year": [[1990, 2], [2001, 1]],
        "film__released__year": [["1990", 2], ["2001", 1]],
        "film__released:month": [["1990-05", 2], ["2001-05", 1]],
    }.items():
        assert call(AGGREGATE, request, model="filterapp.screening", group_by=[group])["rows"] == rows
    assert "has no field" in refusal(AGGREGATE, request, model="filterapp.screening", group_by=["film__month"])


def test_equal_values_that_a_limit_cuts_are_told(request_: Any) -> None:
    for title, number in (("a", 3), ("b", 2), ("c", 2), ("d", 1)):
        for _ in range(number):
            make_book(title=title, status="withdrawn")
    asked: dict[str, Any] = {
        "model": "testapp.book",
        "aggregates": ["count"],
        "group_by": ["title"],
        "filters": {"status": "withdrawn"},
    }
    tie = "The last place is shared: others have the same count."
    for given, is_tied in (
        ({"top": 2}, True),
        ({"top": 1}, False),
        ({"top": 3}, False),
        ({"ordering": ["-count"], "limit": 2}, True),
        ({"ordering": ["title"], "limit": 2}, False),
        ({"limit": 4}, False),
    ):
        found = call(AGGREGATE, request_, **asked, **given)
        assert (tie in found.get("hint", "")) is is_tied, given


def test_columns_of_paths_have_the_names_that_the_guide_gives(request_: Any) -> None:
    found = call(
        AGGREGATE,
        request_,
        model="testapp.author",
        aggregates=["sum:books.pages", "count"],
        group_by=["name"],
        having={"sum:books.pages__gte": 0, "sum_books__pages__gte": 0},
        ordering=["-sum_books.pages"],
    )
    assert found["columns"] == ["name", "sum_books__pages", "count"]
    assert "`sum_total`" in TEXT
