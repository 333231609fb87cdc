"""Arithmetic with the values of one row, and what has no value."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.utils import timezone as current

from mcp_django.differences.exact_arithmetic import NotComputed, computed, decimal_of, rounded, shown, value_in_row
from mcp_django.orm.expression_grammar import parsed

DAY = date(2026, 3, 27)
MOMENT = datetime(2026, 3, 27, 8, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
# pytest would write the digits in the name of a test.
HUGE = pytest.param("integer", 10**1_000_000, "too many digits", id="huge")


def result(text: str, **values: Any) -> Any:
    return computed(parsed(text), values.__getitem__)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("a + b*2", 16),
        ("(a + b)*2", 26),
        ("a/3*3", 10),
        ("a - 2.5", "7.5"),
        ("-a", -10),
        ("a/4", "2.5"),
        ("0.1 + 0.2", "0.3"),
    ],
)
def test_numbers_are_exact(text: str, number: Any) -> None:
    assert result(text, a=Fraction(10), b=Fraction(3)) == Fraction(number)


def test_dates_move_by_whole_days() -> None:
    assert result("a + 1w", a=DAY) == date(2026, 4, 3)
    assert result("2d + a", a=DAY) == date(2026, 3, 29)
    assert result("a - 48h", a=DAY) == date(2026, 3, 25)
    with pytest.raises(NotComputed, match="only whole days"):
        result("a + 36h", a=DAY)


def test_the_time_between_two_dates_or_times() -> None:
    assert result("a - b", a=DAY, b=date(2026, 3, 20)) == timedelta(days=7)
    assert result("a - b", a=MOMENT, b=MOMENT - HOUR) == HOUR
    with current.override("Asia/Tokyo"):
        # 23:00 in London is already the next day in Tokyo.
        assert result("a - b", a=datetime(2026, 3, 27, 23, tzinfo=UTC), b=DAY) == timedelta(days=1)


def test_durations_are_added_and_multiplied() -> None:
    assert result("a + 30min", a=HOUR) == timedelta(minutes=90)
    assert result("a - b", a=HOUR, b=HOUR) == timedelta(0)
    assert result("a * 1.5", a=HOUR) == timedelta(minutes=90)
    assert result("a / n", a=HOUR, n=Fraction(7)) == timedelta(microseconds=514285714)


def test_a_time_keeps_its_hour_if_it_is_moved_by_days() -> None:
    with current.override("Europe/Vienna"):
        # Clocks are put forward on March 29.
        assert result("a + 1w", a=MOMENT) == MOMENT + timedelta(days=7) - HOUR
        assert result("a - 7 days", a=MOMENT + timedelta(days=7) - HOUR) == MOMENT
        assert result("a + 168h", a=MOMENT) == MOMENT + timedelta(days=7)
        assert result("a + b", a=MOMENT, b=timedelta(days=7)) == MOMENT + timedelta(days=7)
        # There is no 2:30 on that day.
        assert result("a + 2d", a=datetime(2026, 3, 27, 1, 30, tzinfo=UTC)) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert result("a + 1d", a=MOMENT.replace(tzinfo=None)) == datetime(2026, 3, 28, 8, 30)
    assert result("a + 1h", a=MOMENT.astimezone(timezone(HOUR))) == MOMENT + HOUR


@pytest.mark.parametrize("text", ["a/0", "a/(a-a)", "b/0", "b/(a-a)"])
def test_nothing_is_divided_by_zero(text: str) -> None:
    with pytest.raises(NotComputed, match="divided by zero"):
        result(text, a=Fraction(2), b=HOUR)


@pytest.mark.parametrize(
    "text",
    [
        "day + 999999w",
        "day - 999999d",
        "moment + 999999w",
        "long*999999999999999",
        "long+long",
        "moment+long",
        "long/tiny",
    ],
)
def test_dates_and_durations_out_of_range_have_no_value(text: str) -> None:
    values = {"day": DAY, "moment": MOMENT, "long": timedelta.max, "tiny": Fraction(1, 10**300)}
    with pytest.raises(NotComputed, match="out of range"):
        result(text, **values)


@pytest.mark.parametrize(
    ("number", "step", "wanted"),
    [
        ("20.9895", "0.01", "20.99"),
        ("20.945", "0.10", "20.9"),
        ("20.95", "0.10", "21"),
        ("2.5", "1", "3"),
        ("-2.5", "1", "-3"),
        ("-2.4", "1", "-2"),
        ("12", "5", "10"),
        ("12.5", "5", "15"),
        ("0.074", "0.05", "0.05"),
        ("0.075", "0.05", "0.1"),
        ("0", "0.05", "0"),
    ],
)
def test_half_of_a_step_is_rounded_up(number: str, step: str, wanted: str) -> None:
    assert rounded(Fraction(number), Fraction(step)) == Fraction(wanted)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("integer", 7),
        ("decimal", Decimal("7.00")),
        ("number", 7.0),
        ("date", DAY),
        ("datetime", MOMENT),
        ("duration", HOUR),
    ],
)
def test_values_of_a_row(word: str, value: Any) -> None:
    assert value_in_row(value, word) == value


def test_a_floating_point_number_is_the_decimal_that_callers_read() -> None:
    assert value_in_row(0.1, "number") == Fraction(1, 10)


@pytest.mark.parametrize(
    ("word", "value", "refusal"),
    [
        ("number", float("nan"), "not a number"),
        ("number", float("-inf"), "not a number"),
        ("decimal", Decimal("NaN"), "not a number"),
        ("decimal", Decimal("sNaN"), "not a number"),
        ("decimal", Decimal("1E+1000000"), "too many digits"),
        ("decimal", Decimal("1E-1000000"), "too many digits"),
        HUGE,
        ("integer", "7", "cannot be computed"),
        ("date", MOMENT, "cannot be computed"),
        ("datetime", DAY, "cannot be computed"),
        ("datetime", MOMENT.replace(tzinfo=None), "cannot be computed"),
        ("duration", 7, "cannot be computed"),
        ("decimal", object(), "cannot be computed"),
    ],
)
def test_values_that_arithmetic_cannot_take(word: str, value: Any, refusal: str) -> None:
    with pytest.raises(NotComputed, match=refusal):
        value_in_row(value, word)


def test_a_decimal_has_all_digits_or_there_is_none() -> None:
    assert decimal_of(Fraction(1, 8)) == Decimal("0.125")
    assert decimal_of(Fraction(1, 3)) is None
    assert decimal_of(Fraction(10**700 + 1)) == Decimal(10**700 + 1)
    assert decimal_of(Fraction(10**900 + 1)) is None
    assert decimal_of(Fraction(10**900)) is None


def test_a_message_shows_the_first_digits() -> None:
    assert shown(Fraction("20.9895")) == "20.9895"
    assert shown(Fraction(1, 3)) == "0.33333333333333333333…"
    assert len(shown(Fraction(10**900 + 1))) < 40
