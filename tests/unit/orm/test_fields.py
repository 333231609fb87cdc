"""Kinds of fields: what each takes, and what it refuses."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.fields import kind_of, parse_operand, parse_text, parse_value
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.factories import make_superuser
from tests.fieldapp.models import Club, Guest, Remark, Sample, Seat
from tests.library import reader
from tests.oddapp.fields import Money
from tests.oddapp.models import Page
from tests.testapp.models import Book
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

BOOK = Book._meta.get_field


@pytest.mark.parametrize(
    ("field", "given", "value"),
    [
        ("pages", 5, 5),
        ("pages", "5", 5),
        ("pages", 5.0, 5),
        ("price", "1.50", Decimal("1.50")),
        ("price", 1.5, Decimal("1.5")),
        ("rating", "0.1", 0.1),
        ("active", "true", True),
        ("active", 0, False),
        ("published", "2024-02-29", date(2024, 2, 29)),
        ("created", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("created", "2024-02-29T12:00:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("created", "2024-02-29T12:00:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("reading_time", "1 02:00:00", timedelta(days=1, hours=2)),
        ("reading_time", "3h", timedelta(hours=3)),
        ("reading_time", "0 min", timedelta()),
        ("uuid", "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        ("isbn", 978, "978"),
        ("address", "::1", "::1"),
        ("status", "draft", "draft"),
        ("status", "in preparation", "draft"),
        ("author", "7", 7),
    ],
)
def test_a_value_is_read_by_the_type_of_its_field(field: str, given: Any, value: Any) -> None:
    assert parse_value(BOOK(field), given) == value


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("pages", True),
        ("pages", 1.5),
        ("pages", "٣"),
        ("pages", 2**64),
        ("pages", 10**400),
        ("pages", {"__gt": 1}),
        ("pages", [1]),
        ("pages", -1),
        ("price", "NaN"),
        ("price", "1e999999999"),
        ("price", "1.005"),
        ("price", "10000000"),
        ("rating", "inf"),
        ("rating", float("nan")),
        ("rating", "1e999"),
        ("active", "yes"),
        ("active", 2),
        ("published", "2024-02-30"),
        ("published", 20240229),
        ("created", "0001-01-01T00:00:00+14:00"),
        ("created", "now"),
        ("reading_time", "soon"),
        ("reading_time", ""),
        ("reading_time", "5 parsecs"),
        ("uuid", "1234"),
        ("uuid", {"int": 5}),
        ("isbn", "a\0b"),
        ("isbn", "x" * 1001),
        ("isbn", True),
        ("isbn", None),
        ("address", "999.1.1.1"),
        ("status", "sold"),
        ("status", {}),
        ("data", "x"),
        ("blob", "x"),
        ("cover", "x"),
        ("author", "x"),
    ],
)
def test_rows_71_123_132_a_value_that_does_not_fit_is_refused(field: str, given: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_value(BOOK(field), given)


def test_a_wrong_choice_names_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="one of draft, published, withdrawn"):
        parse_value(BOOK("status"), "sold")


def test_row_211_half_a_surrogate_pair_is_no_text() -> None:
    for bad in ("\ud800", "a\udfffb", "é\ud800"):
        with pytest.raises(ValueError, match="text"):
            parse_text(None, bad)
    assert parse_text(None, "🙂é") == "🙂é"


@pytest.mark.parametrize(
    ("model", "name", "word"),
    [
        (Sample, "length", "duration"),
        (Sample, "doubled", "integer"),
        (Sample, "path", "text"),
        (Sample, "upper", "text"),
        (Sample, "point", "value"),
        (Sample, "document", "file"),
        (Seat, "pk", "key"),
        (Remark, "target", "key"),
        (Guest, "remarks", "integer"),
        (Guest, "passport", "integer"),
        (Guest, "seats", "key"),
        (Guest, "invited", "integer"),
        (Club, "guests", "integer"),
    ],
)
def test_every_field_and_relation_has_a_word(model: Any, name: str, word: str) -> None:
    assert kind_of(model._meta.get_field(name)).word == word


@pytest.mark.parametrize("name", ["remarks", "passport", "invited", "seats"])
def test_row_131_relations_without_a_column_have_no_lookups(name: str) -> None:
    kind = kind_of(Guest._meta.get_field(name))
    assert (kind.lookups, kind.sortable, kind.summable) == ((), False, False)
    with pytest.raises(ValueError, match="no value"):
        kind.parse(None, 1)


def test_a_number_with_choices_is_compared_with_any_number() -> None:
    level = Sample._meta.get_field("level")
    assert parse_operand(level, 5) == 5
    assert parse_operand(level, "high") == 10
    for parse in (parse_value, parse_operand):
        with pytest.raises(ValueError, match="one of 1, 10"):
            parse(level, "no")
    with pytest.raises(ValueError, match="one of 1, 10"):
        parse_value(level, 5)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "asked",
    [
        *({"aggregates": [f"{name}:price"]} for name in ("sum", "avg", "median", "stddev")),
        {"aggregates": ["sum:price*2"]},
        {"aggregates": ["max:id-price"]},
        {"aggregates": [{"function": "last", "field": "title", "order": "price"}]},
        {"group_by": ["price:10"]},
    ],
    ids=str,
)
def test_numbers_that_are_stored_as_text_are_not_computed_with(asked: dict[str, Any]) -> None:
    site = MCPSite()
    site.register(Page, ModelExposure, fields=["title", "price"])
    Page.objects.create(title="a", body=[], price=Money(Decimal("2.50"), "EUR"))
    request = reader(make_superuser(), site)
    assert "price" in refusal(AggregateRecords(), request, model="oddapp.page", **asked)
    assert call(AggregateRecords(), request, model="oddapp.page", aggregates=["count:price"])["rows"] == [[1]]
