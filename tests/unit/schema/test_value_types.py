"""What each type of value takes, refuses and says of itself."""

import contextlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.schema.value_types import (
    PARSED,
    Anything,
    Boolean,
    Choice,
    DecimalNumber,
    Integer,
    Invalid,
    Number,
    Parsed,
    String,
    Type,
    choice_of,
    json_type,
    show,
)
from tests.cases import drawn

IDENTIFIER = UUID("123e4567-e89b-12d3-a456-426614174000")
COLOURS = Choice((("red", "R"), ("green", "G")), ("Red", "Green as grass"))
LEVELS = Choice(((1, "one"), (True, "yes"), (1.5, "half")))


def convert(kind: Type, value: object) -> object:
    return kind.convert(value, None)  # type: ignore[arg-type]


def cause(kind: Type, value: object) -> str:
    with pytest.raises(Invalid) as caught:
        convert(kind, value)
    [(path, text)] = caught.value.problems
    assert path == ""
    return text


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Anything(), None, None),
        (Anything(), {"a": [1]}, {"a": [1]}),
        (String(), "", ""),
        (String(2, 3), "abc", "abc"),
        (Integer(), 5, 5),
        (Integer(), "5", 5),
        (Integer(), " -5 ", -5),
        (Integer(), 5.0, 5),
        (Integer(), 2**63 - 1, 2**63 - 1),
        (Integer(), -(2**63), -(2**63)),
        (Integer(1, 10), 10, 10),
        (Number(), 5, 5.0),
        (Number(), "5.5", 5.5),
        (Number(), "1e3", 1000.0),
        (Boolean(), True, True),
        (Boolean(), "true", True),
        (Boolean(), "False", False),
        (DecimalNumber(), "12.50", Decimal("12.50")),
        (DecimalNumber(), 0.1, Decimal("0.1")),
        (DecimalNumber(), 1e-7, Decimal("1e-7")),
        (DecimalNumber(), 12345678901234567890, Decimal("12345678901234567890")),
        (DecimalNumber(), "0.10000000000000000000000001", Decimal("0.10000000000000000000000001")),
        (PARSED[date], "2026-07-28", date(2026, 7, 28)),
        (PARSED[datetime], "2026-07-28T10:00:00Z", datetime(2026, 7, 28, 10, tzinfo=UTC)),
        (PARSED[datetime], "2026-07-28 10:00+02:00", datetime(2026, 7, 28, 8, tzinfo=UTC)),
        (PARSED[time], "10:15", time(10, 15)),
        (PARSED[timedelta], "1 12:30:00", timedelta(days=1, hours=12, minutes=30)),
        (PARSED[timedelta], "PT12H30M", timedelta(hours=12, minutes=30)),
        (PARSED[timedelta], str(timedelta(days=2, hours=3)), timedelta(days=2, hours=3)),
        (PARSED[UUID], str(IDENTIFIER), IDENTIFIER),
        (PARSED[UUID], IDENTIFIER.hex.upper(), IDENTIFIER),
        (COLOURS, "red", "R"),
        (COLOURS, "RED", "R"),
        (COLOURS, "green as grass", "G"),
        (LEVELS, 1, "one"),
        (LEVELS, "1", "one"),
        (LEVELS, True, "yes"),
        (LEVELS, "true", "yes"),
        (LEVELS, "1.5", "half"),
    ],
)
def test_a_value_is_read(kind: Type, value: object, expected: object) -> None:
    found = convert(kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (String(), 5),
        (String(), None),
        (String(), ["a"]),
        (Integer(), True),
        (Integer(), 5.5),
        (Integer(), 1e300),
        (Integer(), "5.0"),
        (Integer(), "٥"),
        (Integer(), "0x5"),
        (Integer(), "1_000"),
        (Integer(), ""),
        (Integer(), "1; DROP TABLE shop_order"),
        (Integer(), "9" * 5000),
        (Integer(), 10**400),
        (Integer(), None),
        (Integer(), [5]),
        (Integer(), 2**63),
        (Integer(), "9223372036854775808"),
        (Number(), True),
        (Number(), float("nan")),
        (Number(), float("inf")),
        (Number(), "nan"),
        (Number(), "Infinity"),
        (Number(), 10**400),
        (Number(), {}),
        (Boolean(), 1),
        (Boolean(), 0),
        (Boolean(), "yes"),
        (Boolean(), None),
        (DecimalNumber(), "NaN"),
        (DecimalNumber(), "sNaN"),
        (DecimalNumber(), "Infinity"),
        (DecimalNumber(), float("nan")),
        (DecimalNumber(), True),
        (DecimalNumber(), "1e999999999"),
        (DecimalNumber(), "1" * 5000),
        (DecimalNumber(), 10**4000),
        (DecimalNumber(), "١٢"),
        (DecimalNumber(), []),
        (PARSED[date], "2026-02-30"),
        (PARSED[date], "28.7.2026"),
        (PARSED[date], 20260728),
        (PARSED[datetime], "tomorrow"),
        (PARSED[time], "25:00"),
        (PARSED[timedelta], "P" + "9" * 60 + "D"),
        (PARSED[timedelta], "9" * 10_000),
        (PARSED[timedelta], ""),
        (PARSED[timedelta], " "),
        (PARSED[UUID], "{123e4567-e89b-12d3-a456-426614174000}"),
        (PARSED[UUID], "urn:uuid:123e4567-e89b-12d3-a456-426614174000"),
        (PARSED[UUID], None),
        (COLOURS, "grass"),
        (COLOURS, "R"),
        (COLOURS, ["red"]),
        (COLOURS, None),
        (LEVELS, 2),
        (LEVELS, {}),
    ],
)
def test_85_a_value_of_another_type_is_refused_and_quoted_in_short(kind: Type, value: object) -> None:
    text = cause(kind, value)
    assert "expected" in text or "out of range" in text
    assert len(text) < 250


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (String(max_length=3), "abcd", "must have at most 3 characters, got 4"),
        (String(min_length=2), "a", "must have at least 2 characters, got 1"),
        (String(), "a\0b", "must not contain the character NUL"),
        (Integer(1, 10), 11, "must be 1 to 10, got 11"),
        (Integer(minimum=1), 0, "must be at least 1, got 0"),
        (Number(maximum=1.5), 2, "must be at most 1.5, got 2.0"),
        (DecimalNumber(minimum=Decimal("0.01")), "0", 'must be at least 0.01, got "0"'),
        (Integer(), "abc", 'expected an integer, got "abc"'),
        (COLOURS, "blue", 'expected one of "red", "green", got "blue"'),
    ],
)
def test_a_refusal_says_what_is_wanted(kind: Type, value: object, text: str) -> None:
    assert cause(kind, value) == text


@pytest.mark.parametrize("text", ["1" * 65, "1 " * 500_000, "١٢"])
def test_86_long_or_odd_text_is_refused_before_any_expression_runs_over_it(text: str) -> None:
    read: list[str] = []
    kind = Parsed("a thing", "this", read.append)
    assert len(cause(kind, text)) < 250
    assert read == []
    cause(kind, "1" * 64)
    assert read == ["1" * 64]


@override_settings(USE_TZ=True, TIME_ZONE="Europe/Berlin")
def test_a_moment_without_a_zone_is_in_the_projects_one() -> None:
    found = convert(PARSED[datetime], "2026-07-28T10:00:00")
    assert found == datetime(2026, 7, 28, 8, tzinfo=UTC)


@override_settings(USE_TZ=False, TIME_ZONE="UTC")
def test_a_moment_with_a_zone_loses_it_where_the_project_has_none() -> None:
    assert convert(PARSED[datetime], "2026-07-28T10:00:00+02:00") == datetime(2026, 7, 28, 8)


@pytest.mark.parametrize(
    ("kind", "schema", "words"),
    [
        (Anything(), {}, ""),
        (String(1, 5), {"type": "string", "minLength": 1, "maxLength": 5}, "1 to 5 characters"),
        (Integer(1), {"type": "integer", "minimum": 1}, "at least 1"),
        (Number(0, 1), {"type": "number", "minimum": 0, "maximum": 1}, "0 to 1"),
        (DecimalNumber(0), {"type": "string"}, "decimal number as text, such as 12.50, at least 0"),
        (Boolean(), {"type": "boolean"}, ""),
        (PARSED[date], {"type": "string"}, "ISO 8601 date, such as 2026-07-28"),
        (COLOURS, {"type": "string", "enum": ["red", "green"]}, "green = Green as grass"),
        (
            LEVELS,
            {
                "anyOf": [
                    {"type": "integer", "enum": [1]},
                    {"type": "boolean", "enum": [True]},
                    {"type": "number", "enum": [1.5]},
                ]
            },
            "",
        ),
    ],
)
def test_R18_constraints_are_in_the_schema_and_in_words(kind: Type, schema: dict[str, object], words: str) -> None:
    assert (kind.schema(), kind.words()) == (schema, words)


def test_limits_go_with_the_types_that_know_them() -> None:
    assert Integer().limited({"minimum": 1}) == Integer(1)
    assert Boolean().limited({}) == Boolean()
    with pytest.raises(ImproperlyConfigured, match="max_length cannot be used with an integer"):
        Integer().limited({"max_length": 1})
    with pytest.raises(ImproperlyConfigured, match="minimum"):
        PARSED[date].limited({"minimum": 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=5,
)


@settings(max_examples=drawn(100))
@given(JSON)
def test_no_value_raises_anything_else(value: object) -> None:
    for kind in [String(1, 2), Integer(), Number(), Boolean(), DecimalNumber(), *PARSED.values(), COLOURS, LEVELS]:
        with contextlib.suppress(Invalid):
            convert(kind, value)


@pytest.mark.parametrize(
    ("value", "name", "shown"),
    [
        (None, "null", "null"),
        (True, "boolean", "true"),
        (1, "integer", "1"),
        (1.5, "number", "1.5"),
        ("é", "string", '"é"'),
        ("x" * 100, "string", '"' + "x" * 40 + '…"'),
        ([1], "array", "an array"),
        ({"a": 1}, "object", "an object"),
        (10**4000, "integer", "a huge integer"),
    ],
)
def test_values_are_named_and_quoted_in_short(value: object, name: str, shown: str) -> None:
    assert (json_type(value), show(value)) == (name, shown)


def test_problems_have_the_way_to_them() -> None:
    inner = Invalid(problems=[*Invalid("odd").within("[1]"), ("name", "missing")])
    assert inner.within("lines") == [("lines[1]", "odd"), ("lines.name", "missing")]


CHOICES = [("L", "m"), ("M", "Medium"), ("m", "Mini"), ("X", "mini"), (10, "High"), (20, "10"), (None, "none")]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("M", "M"),
        ("m", "m"),
        ("l", "L"),
        ("Mini", "m"),
        ("mini", "X"),
        ("MINI", None),
        ("medium", "M"),
        (10, 10),
        ("10", 10),
        ("none", None),
        ("other", None),
    ],
)
def test_a_choice_is_what_is_spelt_exactly_so_and_otherwise_the_only_one(given: object, stored: object) -> None:
    assert choice_of(CHOICES, given) == stored
