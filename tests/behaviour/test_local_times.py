"""Days, months and hours of times in the current time zone, on a database that cannot compute all of them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from mcp_django.exceptions import ToolError
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_book, make_superuser
from tests.testapp.models import Author, Book, Loan
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
IS_MYSQL = connection.vendor == "mysql"
BERLIN = "Europe/Berlin"
# An hour before midnight in UTC.
EVENING = datetime(2024, 5, 31, 23, tzinfo=UTC)
COMPUTED: list[tuple[Tool, dict[str, Any]]] = [
    (AggregateRecords(), {"group_by": ["due:day"]}),
    (AggregateRecords(), {"group_by": ["due:week"], "fill": True}),
    (AggregateRecords(), {"group_by": ["borrower", "due:hour_of_day"]}),
    (AggregateRecords(), {"group_by": ["due:weekday"], "top": 1}),
    (QueryRecords(), {"filters": {"due__month": 6}}),
    (QueryRecords(), {"filters": {"due__year__in": [2024]}}),
    (QueryRecords(), {"filters": {"not": {"due__week_day": [1, 7]}}}),
    (QueryRecords(), {"model": "testapp.book", "filters": {"loans": {"some": {"due__hour__gt": 5}}}}),
]
if IS_MYSQL:
    COMPUTED.append((QueryRecords(), {"filters": {"due__gt": {"field": "book.published"}}}))
SIMPLE: list[tuple[Tool, dict[str, Any]]] = [
    (AggregateRecords(), {"group_by": ["due:hour"]}),
    (AggregateRecords(), {"group_by": ["book.published:month"]}),
    (QueryRecords(), {"filters": {"due__date": "2024-06-01"}}),
    (QueryRecords(), {"filters": {"due": "2024-06"}}),
    (QueryRecords(), {"filters": {"due__year": 2024, "book.published__month": 5}}),
]


@pytest.fixture
def request_on_loans() -> Any:
    book = make_book(published=EVENING.date())
    Loan.objects.create(book=book, borrower="Ann", due=EVENING)
    return request_of(make_superuser(), site_with(Author, Book, Loan))


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "has_zoneinfo_database", False)


def asked(given: dict[str, Any]) -> dict[str, Any]:
    return {"model": "testapp.loan", **given}


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize(("tool", "given"), COMPUTED)
def test_without_tables_of_time_zones_the_question_is_refused_with_the_remedy(
    request_on_loans: Any, tool: Tool, given: dict[str, Any]
) -> None:
    with override_settings(TIME_ZONE=BERLIN):
        said = refusal(tool, request_on_loans, **asked(given))
    assert "no tables of time zones" in said
    assert BERLIN in said
    assert "mysql_tzinfo_to_sql /usr/share/zoneinfo" in said


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize(("tool", "given"), COMPUTED)
def test_in_the_zone_of_the_stored_times_no_tables_are_needed(
    request_on_loans: Any, tool: Tool, given: dict[str, Any]
) -> None:
    with override_settings(TIME_ZONE="UTC"):
        assert "hint" not in call(tool, request_on_loans, **asked(given)) or given.get("filters")


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize(("tool", "given"), SIMPLE)
def test_what_needs_no_conversion_is_answered_without_tables(
    request_on_loans: Any, tool: Tool, given: dict[str, Any]
) -> None:
    with override_settings(TIME_ZONE=BERLIN):
        found = call(tool, request_on_loans, **asked(given))
    assert found["returned"] == 1
    assert found["rows"][0][0] is not None


@pytest.mark.parametrize("group", ["due:day", "due:month_of_year"])
def test_times_that_the_database_does_not_convert_are_told_of(request_on_loans: Any, group: str) -> None:
    given = asked({"group_by": [group]})
    with override_settings(TIME_ZONE=BERLIN):
        assert "hint" not in call(AggregateRecords(), request_on_loans, **given)
        Loan.objects.create(book=Book.objects.get(), borrower="Bob", due=datetime(1960, 3, 31, 23, 30, tzinfo=UTC))
        found = call(AggregateRecords(), request_on_loans, **given)
    day = {"due:day": ["1960-04-01", "1960-03-31"], "due:month_of_year": ["4", "3"]}[group][IS_MYSQL]
    assert [day, 1] in found["rows"]
    told = f"{group}: the database server converts no times before 1970-01-01 or from "
    assert found.get("hint", "").startswith(told) is IS_MYSQL
    with override_settings(TIME_ZONE="UTC"):
        assert "hint" not in call(AggregateRecords(), request_on_loans, **given)


def test_times_whose_rows_take_too_long_to_look_for_are_told_of(
    request_on_loans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_time(share: float) -> Any:
        raise ToolError("It takes too long.")

    monkeypatch.setattr("mcp_django.orm.aggregates.groups.read_limits", no_time)
    with override_settings(TIME_ZONE=BERLIN):
        found = call(AggregateRecords(), request_on_loans, **asked({"group_by": ["due:day"]}))
    assert ("hint" in found) is IS_MYSQL


def test_filters_by_parts_of_times_say_which_times_are_not_converted(request_on_loans: Any) -> None:
    with override_settings(TIME_ZONE=BERLIN):
        for tool in (QueryRecords(), AggregateRecords()):
            found = call(tool, request_on_loans, **asked({"filters": {"due__month": 6}}))
            assert found["returned"] == 1
            assert ("the parts of these are in UTC" in found.get("hint", "")) is IS_MYSQL
