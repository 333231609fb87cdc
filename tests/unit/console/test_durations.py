"""Durations are told in the reader's language, and as exactly as a reader needs."""

from datetime import UTC, datetime

import pytest
from django.utils import translation

from mcp_django.console.durations import lasting, time_of
from mcp_django.templatetags.mcp_console import duration_text, lasted
from tests.making_tasks import HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *[(0, "0 ms"), (0.04, "0 ms"), (4.25, "4.2 ms"), (9.96, "10 ms"), (12.4, "12 ms"), (999.4, "999 ms")],
        *[(999.6, "1 s"), (1000, "1 s"), (1500, "1.5 s"), (9_960, "10 s"), (12_345, "12 s"), (3_600_000, "3600 s")],
    ],
)
def test_a_duration_of_a_call_is_told_in_milliseconds_or_seconds(ms: float, text: str) -> None:
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-SECOND, "0 ms"),
        (59 * SECOND, "59 s"),
        (MINUTE, "1\xa0minute"),
        (90 * MINUTE, "1\xa0hour, 30\xa0minutes"),
        (50 * HOUR, "2\xa0days, 2\xa0hours"),
    ],
)
def test_what_lasts_longer_is_told_in_minutes_hours_and_days(ms: int, text: str) -> None:
    begins = 1_796_000_000_000
    assert lasting(begins, begins + ms) == text


def test_it_is_told_in_the_language_of_the_reader() -> None:
    with translation.override("de"):
        assert lasting(0, 90 * MINUTE) == "1\xa0Stunde, 30\xa0Minuten"
        assert duration_text(1500) == "1,5 s"
        assert lasted(1234.56) == '<bdi title="1.234,6 ms">1,2 s</bdi>'


def test_a_time_of_the_database_is_a_time() -> None:
    assert time_of(1_796_000_000_500) == datetime(2026, 11, 30, 0, 53, 20, 500_000, UTC)
