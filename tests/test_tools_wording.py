"""Objects that clients send as text, and the names that errors offer."""

from typing import Any

import pytest

from mcp_django.tools.wording import alternatives, is_short_text, json_or_text


def test_alternatives_are_bounded() -> None:
    text = alternatives("x" * 10**6, [f"name{number}" for number in range(1000)])
    assert len(text) < 500
    assert "and 960 more" in text


@pytest.mark.parametrize("text", ['{"a": 1}', " [1]", "[1", "plain", 5, None])
def test_json_in_a_text_is_read(text: Any) -> None:
    assert json_or_text(text) == {'{"a": 1}': {"a": 1}, " [1]": [1]}.get(text, text)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("x" * 5, True),
        ("x" * 6, False),
        ("", True),
        ("ø", True),
        ("a\0", False),
        ("\ud800", False),
        (5, False),
        ([], False),
    ],
    ids=["fits", "long", "empty", "letter", "nul", "half", "number", "list"],
)
def test_a_short_text_is_one_that_a_database_takes(value: Any, verdict: bool) -> None:
    assert is_short_text(value, 5) is verdict
