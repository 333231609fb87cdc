"""What rows are grouped by: fields, relations, and the parts of dates in the current time zone."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.utils import timezone

from mcp_django.context.request import MCPRequest
from mcp_django.orm.aggregates.groups import PERIODS
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.factories import make_author, make_book, make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal

pytestmark = pytest.mark.django_db
AGGREGATE = AggregateRecords()


@pytest.fixture
def loans() -> MCPRequest:
    """Return a request after two loans around midnight in Berlin, at the end of an ISO year."""
    book = make_book(published=date(2024, 12, 30), author=make_author("Ann", born=date(999, 1, 1)))
    for moment in (datetime(2024, 12, 29, 22, 30, tzinfo=UTC), datetime(2024, 12, 29, 23, 30, tzinfo=UTC)):
        Loan.objects.create(book=book, borrower="x", due=moment)
    return reader(make_superuser(), site_with(Loan, Book, Author))


@pytest.mark.parametrize(
    ("period", "in_utc", "in_berlin"),
    [
        ("year", ["2024"], ["2024"]),
        ("quarter", ["2024-Q4"], ["2024-Q4"]),
        ("month", ["2024-12"], ["2024-12"]),
        ("week", ["2024-W52"], ["2024-W52", "2025-W01"]),
        ("day", ["2024-12-29"], ["2024-12-29", "2024-12-30"]),
        ("hour", ["2024-12-29T22", "2024-12-29T23"], ["2024-12-29T23", "2024-12-30T00"]),
        ("weekday", ["Sun"], ["Mon", "Sun"]),
    ],
)
def test_periods_are_those_of_the_current_time_zone(
    loans: MCPRequest, period: str, in_utc: list[str], in_berlin: list[str]
) -> None:
    for zone, expected in (("UTC", in_utc), ("Europe/Berlin", in_berlin)):
        with timezone.override(zone):
            for spelt in (f"due:{period}", f"due__{period}"):
                found = call(AGGREGATE, loans, model="testapp.loan", group_by=[spelt])
                assert found["columns"] == [f"due:{period}", "count"]
                assert [row[0] for row in found["rows"]] == expected


@pytest.mark.parametrize("period", PERIODS)
def test_the_top_of_each_period_is_found_again_in_any_time_zone(loans: MCPRequest, period: str) -> None:
    Loan.objects.create(book=Book.objects.get(), borrower="y", due=datetime(2023, 7, 4, 12, 5, tzinfo=UTC))
    with timezone.override("Asia/Kolkata"):
        asked: dict[str, Any] = {"model": "testapp.loan", "group_by": [f"due:{period}", "borrower"]}
        found = call(AGGREGATE, loans, **asked, top=1)
        whole = call(AGGREGATE, loans, **asked)
    assert found["returned"] == 1
    assert found["rows"][0] in whole["rows"]
    assert found["rows"][0][2] + found["rest"]["count"] == 3


@pytest.mark.parametrize(
    ("period", "shown"),
    [("year", "2024"), ("quarter", "2024-Q4"), ("month", "2024-12"), ("week", "2025-W01"), ("weekday", "Mon")],
)
def test_dates_have_periods_too_behind_relations_as_well(loans: MCPRequest, period: str, shown: str) -> None:
    assert call(AGGREGATE, loans, model="testapp.book", group_by=[f"published:{period}"])["rows"] == [[shown, 1]]
    found = call(AGGREGATE, loans, model="testapp.loan", group_by=[f"book__published:{period}"])
    assert found["rows"] == [[shown, 2]]


def test_years_of_three_digits_keep_their_nought(loans: MCPRequest) -> None:
    for period, shown in (("year", "0999"), ("month", "0999-01"), ("week", "0999-W01"), ("quarter", "0999-Q1")):
        found = call(AGGREGATE, loans, model="testapp.book", group_by=[f"author__born:{period}"])
        assert found["rows"] == [[shown, 1]]


def test_what_has_no_such_part_is_refused(loans: MCPRequest) -> None:
    assert "has no hours" in refusal(AGGREGATE, loans, model="testapp.book", group_by=["published:hour"])
    assert "Did you mean month?" in refusal(AGGREGATE, loans, model="testapp.book", group_by=["published:mont"])
    assert "has no field" in refusal(AGGREGATE, loans, model="testapp.book", group_by=["title:month"])
    assert "has no field" in refusal(AGGREGATE, loans, model="testapp.book", group_by=["title__month"])


def test_values_are_shown_as_a_page_shows_them(loans: MCPRequest) -> None:
    book = Book.objects.get()
    asked = ["author", "price", "status", "active", "uuid", "isbn"]
    (row,) = call(AGGREGATE, loans, model="testapp.book", group_by=asked)["rows"]
    assert row == [[book.author_id, "Ann"], "9.90", "draft", True, str(book.uuid), book.isbn, 1]


@pytest.mark.parametrize(
    ("width", "begins"),
    [
        ("0.1", [-0.4, -0.1, 0.3, 0.6, 0.7, 0.9]),
        ("0.3", [-0.6, -0.3, 0.3, 0.6, 0.6, 0.9]),
        ("0.35", [-0.35, -0.35, 0.0, 0.35, 0.7, 0.7]),
        ("2", [-2.0, -2.0, 0.0, 0.0, 0.0, 0.0]),
        ("0.001", [-0.35, -0.1, 0.3, 0.6, 0.7, 0.99]),
    ],
)
def test_a_number_on_a_border_is_in_the_step_that_begins_there(db: None, width: str, begins: list[float]) -> None:
    request = reader(make_superuser(), site_with(Book))
    for number, price in enumerate(("-0.35", "-0.10", "0.30", "0.60", "0.70", "0.99")):
        make_book(price=price, rating=float(price), pages=number)
    for field in ("price", "rating"):
        asked: dict[str, Any] = {"model": "testapp.book", "group_by": [f"{field}:{width}", "pages"]}
        found = call(AGGREGATE, request, **asked, ordering=["pages"])["rows"]
        assert [row[0] for row in found] == begins, field
        # The leading steps are found again by where they begin.
        led = call(AGGREGATE, request, **asked, top=50)["rows"]
        assert sorted(row[1] for row in led) == [row[1] for row in found]


def test_steps_of_whole_numbers_are_whole_and_hold_any(db: None) -> None:
    request = reader(make_superuser(), site_with(Book))
    for pages in (2_000_000_001, 7):
        make_book(pages=pages)
    for width, begins in (("10", [0, 2_000_000_000]), ("0.5", [7.0, 2_000_000_001.0])):
        found = call(AGGREGATE, request, model="testapp.book", group_by=[f"pages:{width}"])["rows"]
        assert [row[0] for row in found] == begins


def test_a_relation_to_several_rows_is_refused_with_the_way_out(db: None) -> None:
    request = reader(make_superuser(), site_with(Book, Author, Loan, Tag))
    for name in ("tags", "tags.name"):
        text = refusal(AGGREGATE, request, model="testapp.book", group_by=[name])
        assert text.startswith(
            'tags leads to several rows: aggregate testapp.tag itself, grouped by its own fields, with "count:'
        )
    book = make_book()
    book.tags.add(Tag.objects.create(name="new"))
    counted = text.partition('"')[2].partition('"')[0]
    assert call(AGGREGATE, request, model="testapp.tag", group_by=["name"], aggregates=[counted])["rows"] == [
        ["new", 1]
    ]
    text = refusal(AGGREGATE, request, model="testapp.book", group_by=["loans.borrower"])
    assert text == "loans leads to several rows: aggregate testapp.loan itself, grouped by its own fields."
    # Of models that the caller does not know, nothing is told.
    request = reader(request.user, site_with(Book))
    assert "several" not in refusal(AGGREGATE, request, model="testapp.book", group_by=["tags"])
    assert "several" not in refusal(AGGREGATE, request, model="testapp.book", group_by=["loans"])


@pytest.mark.django_db
def test_related_rows_of_one_name_that_are_put_together_are_told() -> None:
    for name in ("ann", "ann", "bob"):
        make_book(author=make_author(name))
    request = reader(make_superuser(), site_with(Author, Book))
    told = "1 of these author.name belong to several testapp.author: group by author to tell them apart."
    for groups, is_told in (
        (["author.name"], True),
        (["author.name", "status"], True),
        (["author"], False),
        (["author.name", "author"], False),
        (["author.name", "author.id"], False),
        (["author.email"], False),
        (["title"], False),
    ):
        found = call(AggregateRecords(), request, model="testapp.book", group_by=groups)
        assert (told in found.get("hint", "")) is is_told, groups
    only = call(
        AggregateRecords(), request, model="testapp.book", group_by=["author.name"], filters={"author.name": "bob"}
    )
    assert "hint" not in only
