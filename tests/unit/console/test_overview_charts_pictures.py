"""The pictures of the overview: round numbers and times on their axes, bars and lines in their places."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mcp_django.console.overview_charts import HEIGHT, LEAST, Chart, Step, Tally, round_times, steps_of

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def step(number: int, *calls: tuple[str, float]) -> Step:
    begins = BEGIN + HOUR * number
    return Step(begins, begins + HOUR, Tally([(begins, outcome, duration, 0) for outcome, duration in calls]))


def test_failures_stand_on_the_axis_and_all_others_upon_them() -> None:
    steps = [step(0, *[("ok", 1.0)] * 3, ("tool_error", 1.0)), step(1), step(2, *[("refused:rate", 1.0)] * 2)]
    chart = Chart(steps)
    assert [(part["group"], float(part["y"]), float(part["height"])) for part in chart.bars(steps[0])] == [
        ("failed", HEIGHT * 3 / 4, HEIGHT / 4),
        ("ok", 0.0, HEIGHT * 3 / 4),
    ]
    assert chart.bars(steps[1]) == []
    assert [part["group"] for part in chart.bars(steps[2])] == ["refused"]


def test_one_failure_among_thousands_is_seen() -> None:
    steps = [step(0, *[("ok", 1.0)] * 5_000, ("error:-32603", 1.0))]
    assert float(Chart(steps).bars(steps[0])[0]["height"]) == LEAST


@pytest.mark.parametrize(
    ("most", "marks"),
    [
        (0, ["0", "1"]),
        (1, ["0", "1"]),
        (7, ["0", "2", "4", "6", "8"]),
        (597, ["0", "200", "400", "600"]),
        (2_450, ["0", "1,000", "2,000", "3,000"]),
        (20_000, ["0", "5,000", "10,000", "15,000", "20,000"]),
    ],
)
def test_the_numbers_of_the_axis_are_round(most: int, marks: list[str]) -> None:
    chart = Chart([step(0, *[("ok", 1.0)] * most)])
    assert [text for _place, text in chart.numbers] == marks
    assert (chart.numbers[0][0], chart.numbers[-1][0]) == (f"{HEIGHT:.1f}", "0.0")


def test_one_call_of_half_a_minute_leaves_the_others_to_be_seen() -> None:
    steps = [step(0, *[("ok", 20.0)] * 10), step(1), step(2, ("error:timeout", 30_000.0))]
    chart = Chart(steps)
    assert [text for _place, text in chart.durations] == ["10 ms", "100 ms", "1 s", "10 s", "100 s"]
    # Where there are no calls the line has no points.
    points = [tuple(map(float, point.split(","))) for point in chart.curve(0.95).split()]
    assert [x for x, _y in points] == [0.0, 33.333, 66.667, 100.0]
    assert 10 < HEIGHT - points[0][1] < HEIGHT / 4
    assert 0 < points[2][1] < HEIGHT / 4


def test_calls_that_took_no_time_lie_on_the_axis() -> None:
    assert Chart([step(0, ("ok", 0.0))]).curve(0.5) == f"0.000,{HEIGHT:.1f} 100.000,{HEIGHT:.1f}"


@pytest.mark.parametrize(
    ("length", "texts"),
    [
        (timedelta(minutes=15), ["14:06", "14:08", "14:10", "14:12", "14:14", "14:16", "14:18", "14:20"]),
        (timedelta(hours=24), ["15:00", "18:00", "21:00", "Mon 2", "03:00", "06:00", "09:00", "12:00"]),
        (timedelta(days=7), ["Mon 2", "Tue 3", "Wed 4", "Thu 5", "Fri 6", "Sat 7", "Sun 8"]),
    ],
)
def test_the_times_of_the_axis_are_round(length: timedelta, texts: list[str]) -> None:
    begins = datetime(2026, 3, 1, 14, 5, 17, tzinfo=UTC)
    found = Chart(steps_of([], begins, begins + length, 1)).times
    assert [text for _place, text in found] == texts
    assert all(0 <= float(place) <= 100 for place, _text in found)


def test_days_begin_at_midnight_of_the_reader_also_when_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    begins = datetime(2026, 3, 27, 13, tzinfo=berlin)
    found = round_times(begins, begins + timedelta(days=7), 8)
    assert [(time.day, time.hour) for time in found] == [
        (27, 0),
        (28, 0),
        (29, 0),
        (30, 0),
        (31, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
    ]


def test_each_call_is_in_the_step_of_its_time() -> None:
    begins = datetime(2026, 3, 1, 14, 5, tzinfo=UTC)
    ends = begins + timedelta(hours=1)
    rows = [(begins + timedelta(minutes=minute), "ok", 1.0, 0) for minute in (0, 1, 59)]
    found = [step for step in steps_of(rows, begins, ends, 1) if step.tally.calls]
    assert [step.begins.minute for step in found] == [5, 6, 4]
