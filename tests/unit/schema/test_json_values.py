"""Python values to JSON values."""

import enum
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.core.files.base import ContentFile
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.schema.json_values import to_jsonable
from tests.cases import drawn
from tests.testapp.models import Author, Book, Shelf


@dataclass
class Month:
    month: date
    revenue: Decimal
    rows: list[Any]


class Level(enum.IntEnum):
    LOW = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (2**53 - 1, 2**53 - 1),
        (2**53, "9007199254740992"),
        (-(10**40), "-1" + "0" * 40),
        (1.5, 1.5),
        (float("nan"), None),
        (float("-inf"), None),
        (Decimal("1.10"), "1.10"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E+99999"), "1E+99999"),
        (Decimal("NaN"), None),
        (Decimal("Infinity"), None),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (time(3, 4), "03:04:00"),
        (timedelta(days=1, hours=2), "1 day, 2:00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Book.Status.DRAFT, "draft"),
        (Level.LOW, 1),
        ("a\ud800b", "a\ufffdb"),
        (mark_safe("<b>"), "<b>"),
        (gettext_lazy("name"), "name"),
        (ContentFile(b"content", name="a.txt"), "a.txt"),
        (b"\x00\xff", "AP8="),
        ((1, 2), [1, 2]),
        ({1}, [1]),
        (Pair(1, 2), [1, 2]),
        (iter([1, 2]), [1, 2]),
        ({1: "a", None: "b", Level.LOW: "c", "\ud800": "d", date(2026, 1, 2): "e"}, None),
        (Author(pk=7, name="Ada\ud800"), {"pk": 7, "label": "Ada\ufffd"}),
        (Shelf(code="A/1"), {"pk": "A/1", "label": "Shelf A/1"}),
        (
            Month(date(2026, 1, 2), Decimal("1.50"), [float("nan")]),
            {"month": "2026-01-02", "revenue": "1.50", "rows": [None]},
        ),
        (Month, "<class 'tests.unit.schema.test_json_values.Month'>"),
    ],
)
def test_a_value_becomes_json(value: Any, expected: Any) -> None:
    found = to_jsonable(value)
    if isinstance(value, dict):
        expected = {"1": "c", "None": "b", "\ufffd": "d", "2026-01-02": "e"}
    assert found == expected
    orjson.dumps(found)


def test_a_value_that_contains_itself_is_an_error_and_no_endless_loop() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="too deeply"):
        to_jsonable(loop)


@settings(max_examples=drawn(100))
@given(
    st.recursive(
        st.none() | st.floats() | st.integers() | st.text(st.characters()) | st.decimals() | st.binary(),
        lambda children: st.lists(children) | st.dictionaries(st.text(st.characters()), children),
        max_leaves=20,
    )
)
def test_whatever_comes_out_can_be_written(value: Any) -> None:
    orjson.dumps(to_jsonable(value))
