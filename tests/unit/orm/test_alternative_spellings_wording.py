"""Objects that clients send as text, and the names that errors offer."""

from typing import Any

import pytest

from mcp_django import ToolError
from mcp_django.orm.alternative_spellings import is_short_text, json_or_text
from mcp_django.orm.nearest_names import alternatives
from mcp_django.protocol.messages import TooMuch, decode
from mcp_django.testing import MCPClient
from tests.factories import make_book, make_superuser


def test_alternatives_are_bounded() -> None:
    text = alternatives("x" * 10**6, [f"name{number}" for number in range(1000)])
    assert len(text) < 500
    assert "and 960 more" in text


@pytest.mark.parametrize("text", ['{"a": 1}', " [1]", "[1", "plain", 5, None])
def test_json_in_a_text_is_read(text: Any) -> None:
    assert json_or_text(text) == {'{"a": 1}': {"a": 1}, " [1]": [1]}.get(text, text)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_json_in_a_text_has_the_bounds_of_a_message() -> None:
    assert json_or_text(nested(TooMuch.MAX_DEPTH)) == decode(nested(TooMuch.MAX_DEPTH).encode())
    for text in (nested(TooMuch.MAX_DEPTH + 1), nested(900), nested(100_000), "[" + "1," * TooMuch.MAX_ITEMS + "1]"):
        with pytest.raises(ToolError, match="nested over 64 levels deep or has over 50000 items"):
            json_or_text(text)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[NaN]", "[1e999]", '["\\ud800"]', "[" * 100])
def test_what_is_no_json_of_a_message_stays_a_text(text: str) -> None:
    assert json_or_text(text) == text


@pytest.mark.django_db
@pytest.mark.parametrize("depth", [65, 200, 900, 5000])
@pytest.mark.parametrize("whole", [True, False], ids=["values", "one value"])
def test_no_way_of_sending_a_record_takes_json_that_is_too_deep(depth: int, whole: bool) -> None:
    client, book = MCPClient(make_superuser()), make_book()
    data = f'{{"a": {nested(depth - 1)}}}'
    values: Any = f'{{"data": {data}}}' if whole else {"data": data}
    refused = client.call("update_record", model="testapp.book", pk=book.pk, values=values)
    assert refused.is_error
    assert "nested over 64 levels" in refused.text
    book.refresh_from_db()
    assert book.data == {}


@pytest.mark.django_db
@pytest.mark.parametrize("argument", ["filters", "fields", "order_by"])
def test_an_argument_of_a_read_that_is_too_deep_is_refused_in_words(argument: str) -> None:
    refused = MCPClient(make_superuser()).call("query_records", model="testapp.book", **{argument: nested(900)})
    assert refused.is_error
    assert "error id" not in refused.text


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
