"""What the filters of the console's templates make of outcomes and times."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.template import Context, Template
from django.utils import timezone, translation

from mcp_django.operating import recorded_calls
from mcp_django.templatetags.mcp_console import REASONS, WORDS, group_of, moment, outcome_mark, word_of

EVIL = 'refused:<b onclick="x">\u202eevil'


@pytest.mark.parametrize(
    ("outcome", "group"),
    [
        ("ok", "ok"),
        ("tried", "ok"),
        ("refused:rate", "refused"),
        ("asked", "open"),
        ("cancelled", "open"),
        ("", "open"),
        ("task", "open"),
        ("tool_error", "failed"),
        ("error:-32602", "failed"),
        ("error:timeout", "failed"),
    ],
)
def test_outcomes_are_of_four_groups(outcome: str, group: str) -> None:
    assert group_of(outcome) == group


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        ("ok", "answered"),
        ("tried", "tried"),
        ("task", "task"),
        ("refused:scope", "refused: missing scope"),
        ("tool_error", "failed: tool error"),
        ("error:-32602", "failed: invalid arguments"),
        ("error:418", "failed: 418"),
        ("refused:closed for the night", "refused: closed for the night"),
        ("of another version", "failed: of another version"),
    ],
)
def test_an_outcome_has_a_word_and_an_unknown_one_is_shown_as_it_is(outcome: str, word: str) -> None:
    assert word_of(outcome) == word
    mark = outcome_mark(outcome)
    assert f">{word}<" in mark
    assert f'title="{outcome}"' in mark


def test_every_reason_of_the_package_has_a_word() -> None:
    assert {*recorded_calls.REASONS.values(), *recorded_calls.STOPPED} <= {*REASONS, *WORDS}


def test_a_reason_cannot_break_the_page() -> None:
    text = Template("{% load mcp_console %}{{ outcome|outcome_mark }}").render(Context({"outcome": EVIL}))
    assert "<b " not in text
    assert "\u202e" not in text
    assert text.startswith('<span class="mcp-mark mcp-refused"')


def test_words_are_in_the_readers_language() -> None:
    with translation.override("de"):
        assert word_of("ok") == "beantwortet"


def test_a_time_is_told_to_the_second_in_the_zone_of_the_reader() -> None:
    time = datetime(2026, 3, 1, 23, 30, 5, tzinfo=UTC)
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        assert moment(time) == ('<time dir="ltr" datetime="2026-03-02T08:30:05+09:00">2026-03-02 08:30:05</time>')


def test_a_time_without_a_zone_is_told_as_it_is() -> None:
    assert ">2026-03-01 23:30:05<" in moment(datetime(2026, 3, 1, 23, 30, 5))
    assert moment(None) == ""
