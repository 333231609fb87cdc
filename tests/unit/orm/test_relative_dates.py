"""Dates that are said by their distance from now."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings
from django.utils import timezone

from mcp_django.orm import relative_dates
from mcp_django.orm.relative_dates import local_now, read_period, read_span, seen_from
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser
from tests.filterapp.models import Film
from tests.library import reader, site_with
from tests.tool_calls import call, refusal

pytestmark = pytest.mark.postgresql

# A Saturday.
NOW = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
QUERY = QueryRecords()


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("now", "2026-01-31 12:30", "2026-01-31 12:30"),
        ("today", "2026-01-31", "2026-02-01"),
        (" Yesterday ", "2026-01-30", "2026-01-31"),
        ("tomorrow", "2026-02-01", "2026-02-02"),
        ("today-30d", "2026-01-01", "2026-01-02"),
        ("today - 30 days", "2026-01-01", "2026-01-02"),
        ("yesterday-1d", "2026-01-29", "2026-01-30"),
        ("-2w", "2026-01-17", "2026-01-18"),
        ("+7d", "2026-02-07", "2026-02-08"),
        ("-3m", "2025-10-31", "2025-11-01"),
        ("+1 month", "2026-02-28", "2026-03-01"),
        ("-1y", "2025-01-31", "2025-02-01"),
        ("-1q", "2025-10-31", "2025-11-01"),
        ("now-2h", "2026-01-31 10:30", "2026-01-31 10:30"),
        ("-90min", "2026-01-31 11:00", "2026-01-31 11:00"),
        ("now-1d", "2026-01-30 12:30", "2026-01-30 12:30"),
        ("now+1month", "2026-02-28 12:30", "2026-02-28 12:30"),
        ("30 days ago", "2026-01-01", "2026-01-02"),
        ("2 hours ago", "2026-01-31 10:30", "2026-01-31 10:30"),
        ("in 2 weeks", "2026-02-14", "2026-02-15"),
        ("last 30 days", "2026-01-01", "2026-02-01"),
        ("last_30_days", "2026-01-01", "2026-02-01"),
        ("past 1 month", "2025-12-31", "2026-02-01"),
        ("last 24 hours", "2026-01-30 12:30", "2026-01-31 12:30"),
        ("next 7 days", "2026-01-31", "2026-02-08"),
        ("this day", "2026-01-31", "2026-02-01"),
        ("this week", "2026-01-26", "2026-02-02"),
        ("last week", "2026-01-19", "2026-01-26"),
        ("next week", "2026-02-02", "2026-02-09"),
        ("this month", "2026-01-01", "2026-02-01"),
        ("last month", "2025-12-01", "2026-01-01"),
        ("next month", "2026-02-01", "2026-03-01"),
        ("last quarter", "2025-10-01", "2026-01-01"),
        ("current quarter", "2026-01-01", "2026-04-01"),
        ("previous year", "2025-01-01", "2026-01-01"),
        ("this year", "2026-01-01", "2027-01-01"),
        ("start of month", "2026-01-01", "2026-01-01"),
        ("start of the week", "2026-01-26", "2026-01-26"),
        ("end of last year", "2025-12-31 23:59:59.999999", "2025-12-31 23:59:59.999999"),
        ("start of today", "2026-01-31", "2026-01-31"),
    ],
)
def test_what_each_text_means(text: str, start: str, end: str) -> None:
    span = read_span(text, NOW)
    assert span is not None
    assert (span.start, span.end) == tuple(
        datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in (start, end)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-31",
        "soon",
        "-30",
        "30d",
        "last",
        "last days",
        "last 30 moons",
        "today-30d-1d",
        "today;--",
        "now()",
        "this hour",
        "last 99999 days",
        "start of now",
        "start of start of month",
        "tod\u0430y",
        "-\u0663d",
        "today" * 1000,
        "\0today",
    ],
)
def test_row_115_other_texts_are_no_relative_dates(text: str) -> None:
    assert read_span(text, NOW) is None


@pytest.mark.parametrize("text", ["-9999y", "+9999y", "today+9999y", "last 9999 years", "now-9999y", "in 9999 years"])
def test_row_123_dates_beyond_the_calendar_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        read_span(text, NOW)


def test_row_123_a_moment_that_utc_does_not_have_is_refused() -> None:
    with timezone.override("Asia/Tokyo"), pytest.raises(ValueError, match="years 1 to 9999"):
        read_span("today", datetime(1, 1, 1, 3, tzinfo=ZoneInfo("Asia/Tokyo")))


def test_days_are_those_of_the_time_zone_and_hours_are_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    # The night in which an hour comes twice, seen from the noon after it.
    now = datetime(2026, 10, 25, 12, tzinfo=zone)
    with timezone.override(zone):
        day, hours = read_span("today", now), read_span("now-12h", now)
    assert day is not None
    assert day.end.astimezone(UTC) - day.start.astimezone(UTC) == timedelta(hours=25)
    assert hours is not None
    assert hours.start.isoformat() == "2026-10-25T01:00:00+02:00"


def test_a_project_without_time_zones_has_naive_dates() -> None:
    with override_settings(USE_TZ=False):
        span = read_span("today", datetime(2026, 1, 31, 12))
        assert local_now().tzinfo is None
        assert seen_from(datetime(2026, 1, 31)) == datetime(2026, 1, 31)
    assert span is not None
    assert span.start == datetime(2026, 1, 31)


@pytest.fixture
def films(db: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Films of each of the last hundred days, a day apart, the last one of today; the clock can be moved."""
    clock = {"now": NOW}
    for module in ("orm.row_arguments", "orm.filter_parser"):
        monkeypatch.setattr(f"mcp_django.{module}.local_now", lambda: timezone.localtime(clock["now"]))
    moments = [NOW - timedelta(days=number) for number in range(100)]
    Film.objects.bulk_create(
        Film(title=str(number), year=number, released=moment.date(), shown=moment)
        for number, moment in enumerate(moments)
    )
    Film.objects.create(title="none", year=-1)
    return reader(make_superuser(), site_with(Film)), clock


# Where the clock goes back at midnight: the day, whose last hour comes twice, and the first moment of the next.
LONG_DAYS = [
    ("Africa/Cairo", "2025-10-30", datetime(2025, 10, 30, 22, tzinfo=UTC)),
    ("America/Santiago", "2026-04-04", datetime(2026, 4, 5, 4, tzinfo=UTC)),
    ("Asia/Beirut", "2025-10-25", datetime(2025, 10, 25, 22, tzinfo=UTC)),
    # Goes back at one o'clock, so that midnight itself comes twice.
    ("Atlantic/Azores", "2026-10-25", datetime(2026, 10, 26, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("zone", "day", "end"), LONG_DAYS, ids=[zone for zone, _, _ in LONG_DAYS])
@pytest.mark.parametrize("clock", ["morning", "last hour"])
def test_a_day_on_which_the_clock_goes_back_has_all_of_its_hours(
    films: Any, zone: str, day: str, end: datetime, clock: str
) -> None:
    request, now = films
    now["now"] = end - (timedelta(minutes=10) if clock == "last hour" else timedelta(hours=20))
    Film.objects.all().delete()
    # Half hours, from a day before to a day after; those of the day itself have positive numbers.
    for number in range(-48, 99):
        Film.objects.create(year=number, shown=end - timedelta(hours=25) + number * timedelta(minutes=30))
    inside, after = list(range(50)), list(range(50, 99))
    with timezone.override(zone):
        for text in (day, "today"):
            assert found(request, {"shown": text}) == inside
            assert found(request, {"shown__date": text}) == inside
            assert found(request, {"shown__range": [text, text]}) == inside
            assert found(request, {"shown__gte": text, "shown__lte": text}) == inside
            assert found(request, {"shown__gt": text}) == after
        assert found(request, {"shown__range": "today"}) == inside
        assert found(request, {"shown__gt": "end of day"}) == after
        assert found(request, {"shown__gt": "last 2 days"}) == after


def found(request: Any, filters: Any) -> list[int]:
    rows = call(QUERY, request, model="filterapp.film", filters=filters, fields=["year"], ordering="year", limit=200)[
        "rows"
    ]
    return [row[1] for row in rows]


@pytest.mark.parametrize("field", ["released", "shown"])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"%s": "today"}, [0]),
        ({"%s": "last 30 days"}, list(range(31))),
        ({"%s__range": "last 30 days"}, list(range(31))),
        ({"%s": "last month"}, list(range(31, 62))),
        ({"%s": "yesterday"}, [1]),
        ({"%s__gte": "today-2d"}, [0, 1, 2]),
        ({"%s__gt": "today-2d"}, [0, 1]),
        ({"%s__gt": "yesterday"}, [0]),
        ({"%s__lt": "last month"}, list(range(62, 100))),
        ({"%s__lte": "last month"}, list(range(31, 100))),
        ({"%s__gte": "start of month", "%s__lt": "today"}, list(range(1, 31))),
        ({"%s__range": ["2026-01-29", "today"]}, [0, 1, 2]),
        ({"%s__range": ["today-2d", "yesterday"]}, [1, 2]),
        ({"not": {"%s": "last 90 days"}}, [-1, *range(91, 100)]),
        ({"or": [{"%s": "today"}, {"%s": "90 days ago"}]}, [0, 90]),
        ({"%s__year": 2026, "%s__month": 1, "%s__day": 31}, [0]),
        ({"%s__week_day": 7, "%s__gte": "-8d"}, [0, 7]),
        ({"%s__quarter": 4, "%s__lt": "-91d"}, list(range(92, 100))),
    ],
)
def test_relative_dates_and_parts_of_dates_find_rows(films: Any, field: str, filters: Any, expected: Any) -> None:
    def named(shape: Any) -> Any:
        if isinstance(shape, list):
            return [named(item) for item in shape]
        return {k.replace("%s", field): named(v) for k, v in shape.items()} if isinstance(shape, dict) else shape

    assert found(films[0], named(filters)) == expected


def test_days_and_moments_in_lists(films: Any) -> None:
    request = films[0]
    assert found(request, {"released": ["today", "yesterday", "2026-01-20"]}) == [0, 1, 11]
    assert found(request, {"shown": ["now", "now-24h"]}) == [0, 1]
    assert found(request, {"shown__date": "today"}) == [0]
    assert found(request, {"shown__hour": 12, "shown__gte": "-3d"}) == [0, 1, 2, 3]
    for filters in ({"released": ["last month"]}, {"shown": ["today"]}, {"shown": ["2026-01-31"]}):
        message = refusal(QUERY, request, model="filterapp.film", filters=filters)
        assert '"or"' in message


@pytest.mark.parametrize(
    "filters",
    [
        {"released": "soon"},
        {"released": "last 30 moons"},
        {"shown__gte": "-9999y"},
        {"shown": "9999-12-31"},
        {"released__year": 0},
        {"shown__year": 10_000},
        {"shown__year__gt": 10_000},
        {"released__month": 13},
        {"released__hour": 5},
        {"released__week_day": "monday"},
        {"shown__range": "today,soon"},
        {"shown__range": ["today"]},
        {"year": "today"},
        {"title__year": 2000},
    ],
)
def test_rows_117_123_what_is_no_date_is_refused_with_what_would_be_one(films: Any, filters: Any) -> None:
    message = refusal(QUERY, films[0], model="filterapp.film", filters=filters)
    assert "SELECT" not in message
    if filters in ({"released": "soon"}, {"shown__range": "today,soon"}):
        assert "last 30 days" in message


def test_row_68_pages_go_on_with_the_bounds_of_the_first_when_the_clock_moves(films: Any) -> None:
    request, clock = films
    arguments = {"model": "filterapp.film", "fields": ["year"], "ordering": "year", "limit": 10}
    filters = {"or": [{"shown": "last 30 days"}, {"year": -5}]}
    page = call(QUERY, request, filters=filters, **arguments)
    rows, clock["now"] = page["rows"], NOW + timedelta(days=20)
    while "next_cursor" in page:
        page = call(QUERY, request, filters=filters, cursor=page["next_cursor"], **arguments)
        rows = rows + page["rows"]
        clock["now"] += timedelta(days=20)
    assert [row[1] for row in rows] == list(range(31))
    # A new question is asked of the new time.
    assert call(QUERY, request, filters=filters, **arguments)["rows"] == []


def test_row_68_a_cursor_with_a_moment_serves_no_other_filter(films: Any) -> None:
    request, _ = films
    arguments = {"model": "filterapp.film", "limit": 1}
    cursor = call(QUERY, request, filters={"shown": "last 30 days"}, **arguments)["next_cursor"]
    for other in ({"shown": "last 31 days"}, {"shown__gte": "2026-01-01"}, {}, {"released": "last 30 days"}):
        assert "not valid" in refusal(QUERY, request, filters=other, cursor=cursor, **arguments)
    plain = call(QUERY, request, filters={"shown__gte": "2026-01-01"}, **arguments)["next_cursor"]
    assert "not valid" in refusal(QUERY, request, filters={"shown": "last 30 days"}, cursor=plain, **arguments)


def test_the_clock_is_asked_once_for_a_call(films: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = films
    asked = []
    monkeypatch.setattr("mcp_django.orm.row_arguments.local_now", lambda: asked.append(1) or timezone.localtime(NOW))
    assert found(request, {"or": [{"shown": "today"}, {"released": "yesterday"}], "shown__lte": "now"}) == [0, 1]
    assert len(asked) == 1


def test_the_examples_in_errors_are_dates_that_are_read() -> None:
    for text in relative_dates.EXAMPLES.split(", "):
        assert read_span(text, NOW) is not None


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2025", "2025-01-01", "2026-01-01"),
        ("2025-12", "2025-12-01", "2026-01-01"),
        ("2025/1", "2025-01-01", "2025-02-01"),
        ("12/2025", "2025-12-01", "2026-01-01"),
        ("2025-Q4", "2025-10-01", "2026-01-01"),
        ("2025q1", "2025-01-01", "2025-04-01"),
        ("Q4 2025", "2025-10-01", "2026-01-01"),
        ("q4/2025", "2025-10-01", "2026-01-01"),
        ("December 2025", "2025-12-01", "2026-01-01"),
        ("Dec. 2025", "2025-12-01", "2026-01-01"),
        ("2025 may", "2025-05-01", "2025-06-01"),
        ("2025-W05", "2025-01-27", "2025-02-03"),
    ],
)
def test_stretches_of_the_calendar_are_read(text: str, start: str, end: str) -> None:
    span = read_period(text)
    assert span is not None
    assert (span.start, span.end) == tuple(
        datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in (start, end)
    )


@pytest.mark.parametrize(
    "text", ["2025-13", "2025-00-1", "202512", "1/2/2025", "Q5 2025", "Decemberly 2025", "december", "2025-12-01", "\0"]
)
def test_row_115_other_texts_are_no_stretches(text: str) -> None:
    assert read_period(text) is None


@pytest.mark.parametrize("text", ["0000", "9999", "9999-12", "9999-Q4", "2025-W54"])
def test_row_123_stretches_beyond_the_calendar_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        read_period(text)


@pytest.mark.parametrize("text", ["2025-12", "December 2025", "12/2025"])
def test_a_month_is_the_whole_of_it_in_each_comparison(text: str, db: None) -> None:
    for year, shown in enumerate(["2025-11-30 23:59", "2025-12-01 00:00", "2025-12-31 23:59:59.9", "2026-01-01 00:00"]):
        moment = datetime.fromisoformat(shown).replace(tzinfo=UTC)
        Film.objects.create(title="Solaris", year=year, shown=moment, released=moment.date())
    request = reader(make_superuser(), site_with(Film))
    for field in ("shown", "released"):
        assert found(request, {field: text}) == [1, 2]
        assert found(request, {f"{field}__range": text}) == [1, 2]
        assert found(request, {f"{field}__range": [text, "2026-01"]}) == [1, 2, 3]
        assert found(request, {f"{field}__ne": text}) == [0, 3]
        assert found(request, {f"{field}__gte": text}) == [1, 2, 3]
        assert found(request, {f"{field}__gt": text}) == [3]
        assert found(request, {f"{field}__lt": text}) == [0]
        assert found(request, {f"{field}__lte": text}) == [0, 1, 2]
        assert "2026-Q1" in refusal(QUERY, request, model="filterapp.film", filters={field: "Smarch 2025"})
    assert found(request, {"shown__date": text}) == [1, 2]
    assert found(request, {"shown__date__gte": "2026-01-01"}) == [3]
    assert found(request, {"released": "2026-W01"}) == [2, 3]
    # Its pages need no clock.
    page = call(QUERY, request, model="filterapp.film", filters={"shown": 2025}, ordering="year", limit=1)
    again = {"filters": {"shown": 2025}, "ordering": "year", "cursor": page["next_cursor"]}
    assert len(call(QUERY, request, model="filterapp.film", **again)["rows"]) == 2


@pytest.mark.parametrize(
    ("text", "first", "after"),
    [
        ("5 May 2026", "2026-05-05", "2026-05-06"),
        ("May 5, 2026", "2026-05-05", "2026-05-06"),
        ("5th of May 2026", "2026-05-05", "2026-05-06"),
        ("2026/05/06", "2026-05-06", "2026-05-07"),
        ("31.12.2025", "2025-12-31", "2026-01-01"),
        ("12/31/2025", "2025-12-31", "2026-01-01"),
        ("05/05/2026", "2026-05-05", "2026-05-06"),
        ("in May 2026", "2026-05-01", "2026-06-01"),
    ],
)
def test_a_day_in_words_is_read_as_one_day(text: str, first: str, after: str) -> None:
    span = read_period(text)
    assert span is not None
    assert [span.start.date().isoformat(), span.end.date().isoformat()] == [first, after]


@pytest.mark.parametrize("text", ["01/05/2026", "5/6/2026", "30 feb 2026", "May 45, 2026", "13/13/2026", "in", "May 5"])
def test_a_day_that_can_be_two_or_none_is_not_read(text: str) -> None:
    assert read_period(text) is None


@pytest.mark.parametrize(
    ("text", "first", "after"),
    [
        ("year to date", "2026-01-01", "2026-02-01"),
        ("MTD", "2026-01-01", "2026-02-01"),
        ("so far this week", "2026-01-26", "2026-02-01"),
        ("two weeks ago", "2026-01-17", "2026-01-18"),
        ("in the last two days", "2026-01-29", "2026-02-01"),
        ("the last month", "2025-12-01", "2026-01-01"),
        ("on yesterday", "2026-01-30", "2026-01-31"),
    ],
)
def test_more_words_for_stretches_to_now(text: str, first: str, after: str) -> None:
    span = read_span(text, NOW)
    assert span is not None
    assert [span.start.date().isoformat(), span.end.date().isoformat()] == [first, after]
