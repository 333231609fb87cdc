"""Whole columns are the same JSON as their values one by one, or none."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from django.db.models import FileField
from django.db.models.fields.files import FieldFile
from django.utils.safestring import SafeString

from mcp_django.orm.column_values import dates, decimals, floats, integers, plain, render, texts

pytestmark = pytest.mark.postgresql


class Word(StrEnum):
    """A text of another class."""

    ONE = "one"


@pytest.mark.parametrize(
    ("values", "limit"), [(["a", "b"], None), (["", "abc"], 3), (["Bøøk", "漢字", "🙂"], 4), (["\x00\x7f"], None)]
)
def test_texts_stay_as_they_are(values: list[str], limit: int | None) -> None:
    assert texts(tuple(values), limit) == values


@pytest.mark.parametrize(
    "values", [["long"], ["a", None], [], ["\ud800"], ["é\udfff"], ["a", 1], [Word.ONE], [SafeString("a")]]
)
def test_row_211_texts_to_be_cut_mended_or_converted_are_left_to_others(values: list[Any]) -> None:
    assert texts(values, 3) is None


def test_a_file_is_its_name_and_null_where_there_is_none() -> None:
    files = [FieldFile(None, FileField(), name) for name in ("a/b.pdf", "", None)]
    assert render(files) == ["a/b.pdf", None, None]


def test_integers_are_those_that_every_client_reads() -> None:
    assert integers((1, -(2**53) + 1, 2**53 - 1)) == [1, -(2**53) + 1, 2**53 - 1]
    assert integers((None, 2, None)) == [None, 2, None]
    assert integers((None,)) == [None]
    for value in (2**53, -(2**53), True, "1", 1.5, b"1"):
        assert integers((1, value)) is None
        assert integers((None, value)) is None


def test_what_is_json_already_is_left_alone() -> None:
    assert plain((True, None, False)) == [True, None, False]
    assert plain(("::1", "10.0.0.1")) == ["::1", "10.0.0.1"]
    for value in (1, b"1", "\ud800", 1.5):
        assert plain((True, value)) is None
        assert plain(("a", value)) is None


def test_floats_are_finite_or_null() -> None:
    assert floats((0.1, -0.0)) == [0.1, -0.0]
    assert floats((0.1, None)) == [0.1, None]
    for value in (float("nan"), float("inf"), 1):
        assert floats((0.1, value)) is None


@pytest.mark.parametrize("text", ["0.00", "-0.00", "1.50", "-12345678901234567890.123", "0.000001", "1E+2", "1E-7"])
def test_decimals_are_written_without_an_exponent_or_not_at_all(text: str) -> None:
    found = decimals((Decimal(text),))
    assert found == [format(Decimal(text), "f")] if "E" not in text else found is None


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), None, 1.5, "1"])
def test_other_numbers_are_left_to_others(value: Any) -> None:
    assert decimals((Decimal(1), value)) is None


MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30),
    datetime(9999, 12, 31, 23, 59, 59, 100000),
]


def test_dates_are_written_as_python_writes_them() -> None:
    assert dates(tuple(MOMENTS)) == [value.isoformat().replace("+00:00", "Z") for value in MOMENTS]
    assert dates((date(1, 1, 1), date(9999, 12, 31))) == ["0001-01-01", "9999-12-31"]


@pytest.mark.parametrize(
    "value",
    [None, "2024-01-01", date(2024, 1, 1), datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=17, seconds=30)))],
)
def test_moments_of_other_zones_and_classes_are_left_to_others(value: Any) -> None:
    assert dates((MOMENTS[0], value)) is None
