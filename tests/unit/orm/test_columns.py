"""Values as JSON: exact, cut where they are long, and never what fails a page."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import pytest
from django import forms
from django.contrib import admin
from django.db import models
from django.test.utils import isolate_apps
from django.utils.html import format_html

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.column_values import field_renderer, pk_text, render, render_column
from mcp_django.orm.columns import Column
from mcp_django.orm.fields import kind_of
from mcp_django.schema.secrets import clean_text
from mcp_django.tools.describe_model import DescribeModel
from tests.factories import make_superuser
from tests.fieldapp.models import Guest
from tests.library import reader, site_with
from tests.testapp.models import Book, Loan, Note, Tag
from tests.tool_calls import call

pytestmark = pytest.mark.postgresql

SITE = MCPSite()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (2**53 - 1, 2**53 - 1),
        (2**53, str(2**53)),
        (-(2**70), str(-(2**70))),
        (float("nan"), None),
        (float("-inf"), None),
        (0.1, 0.1),
        (Decimal("1E+2"), "100"),
        (Decimal("1.50"), "1.50"),
        (Decimal("NaN"), None),
        (date(2024, 1, 2), "2024-01-02"),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "2024-01-02T03:00:00Z"),
        (time(1, 2), "01:02:00"),
        (timedelta(days=1, seconds=2), "1 day, 0:00:02"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"abc", "<3 bytes>"),
        ("a\ud800b", "a\ufffdb"),
        ({"a\udfff": [1, {"b": float("inf")}]}, {"a\ufffd": [1, {"b": None}]}),
        ((1, 2), [1, 2]),
        (format_html("<b>{}</b> <img src=x>", "a<b"), "a<b"),
        (format_html("<b>{}</b>", "Tom & Jerry's"), "Tom & Jerry's"),
        (format_html("<pre>{}</pre>", '{"password": "x", "user": "ann"}'), '{"password": "<hidden>", "user": "ann"}'),
        (object, str(object)),
    ],
)
def test_any_value_is_json_of_its_own_meaning(value: Any, shown: Any) -> None:
    assert render(value) == shown
    orjson.dumps(render(value))


def test_depth_and_length_of_json_are_bounded() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    orjson.dumps(render(deep))
    assert render(list(range(2000)))[-2:] == [999, "…"]
    assert render({"a": "x" * 50}, 10, "more") == '{"a":"xxxx…(+48 chars; more)'


def test_row_r22_long_text_is_cut_with_a_hint_how_to_get_it() -> None:
    assert clean_text("abcdef", 4, 'use get_record fields=["notes"]') == (
        'abcd…(+2 chars; use get_record fields=["notes"])'
    )
    assert clean_text("abcd", 4) == "abcd"


def test_row_10_one_value_that_fails_is_null_and_the_others_stay() -> None:
    def half(value: Any) -> Any:
        return 1 / value

    assert render_column("x", half, [1, 0, 2]) == ([1.0, None, 0.5], 1)


@pytest.mark.parametrize(
    ("pk", "text"), [(5, "5"), ("a/b", "a/b"), (UUID(int=1), str(UUID(int=1))), ((1, "a"), '["1","a"]')]
)
def test_row_124_a_key_has_one_spelling(pk: Any, text: str) -> None:
    assert pk_text(pk) == text


def test_integers_of_64_bits_are_text_where_json_would_lose_them() -> None:
    wide = field_renderer(Loan._meta.get_field("id"), None, "")
    assert wide is not None
    assert (wide(2**53), wide(7)) == (str(2**53), 7)


class Odd(ModelExposure):
    fields = ("title", "author", "tags", "price_per_page", "author__name", "own", "model", "placement", "loans", "x")

    def own(self, book: Book) -> str:
        return "own"


def test_a_name_is_one_kind_of_column() -> None:
    exposure = Odd(Book, SITE)
    kinds = {name: column.kind if (column := Column.of(exposure, name)) else None for name in Odd.fields}
    assert kinds == {
        "title": "field",
        "author": "relation",
        "tags": "many",
        "price_per_page": "computed",
        "author__name": "field",
        "own": "computed",
        "model": "computed",
        "placement": "reverse",
        "loans": "reverse",
        "x": "computed",
    }


def test_row_131_a_generic_relation_is_a_column_of_its_own_and_nothing_beyond_it() -> None:
    exposure = ModelExposure(Note, SITE)
    column = Column.of(exposure, "target")
    assert column is not None
    assert column.kind == "generic"
    assert Column.of(exposure, "target__name") is None


def test_a_method_of_the_admin_is_a_column_with_its_order() -> None:
    column = Column.of(MCPSite(admin_site=admin.site).exposures[Book], "is_long")
    assert column is not None
    assert column.order_field == "pages"
    assert column.compute is not None
    assert column.compute(Book(pages=501)) is True


def test_a_method_that_shadows_a_field_is_no_filter_on_the_field() -> None:
    class Masking(ModelExposure):
        fields = ("isbn",)

        def isbn(self, book: Book) -> str:
            return "***"

    column = Column.of(Masking(Book, SITE), "isbn")
    assert column is not None
    assert (column.kind, column.is_plain) == ("computed", False)


COLUMNS: dict[str, list[list[Any]]] = {
    "title": [["a", "b"], ["x" * 11], ["\ud800"], ["é", None], [Book.Status.DRAFT], [5]],
    "id": [[1, 2], [2**53, None], [True]],
    "rating": [[1.5, 0.0], [float("nan"), None], [1]],
    "price": [[Decimal("1.50"), Decimal("-0.00")], [Decimal("1E+3"), Decimal("NaN"), None]],
    "created": [
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, 2, 3, 4, tzinfo=UTC)],
        [datetime(1900, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam")), datetime(1, 1, 1), None],
    ],
    "published": [[date(2024, 1, 1), date(1, 1, 1)], [date(2024, 1, 1), None, datetime(2024, 1, 1)]],
    "opens": [[time(1, 2), None]],
}


@pytest.mark.parametrize(("name", "values"), [(name, values) for name, lists in COLUMNS.items() for values in lists])
@pytest.mark.parametrize("limit", [None, 10])
def test_a_column_is_rendered_as_its_values_are(name: str, values: list[Any], limit: int | None) -> None:
    renderer = field_renderer(Loan._meta.get_field("id") if name == "id" else Book._meta.get_field(name), limit, "hint")
    assert renderer is not None
    expected = [renderer(value) for value in values]
    assert render_column(name, renderer, tuple(values)) == (expected, 0)
    assert render_column(name, renderer, []) == ([], 0)


class Several(models.CharField):
    """Holds several of its choices in one text, as packages have it."""

    flatchoices = None

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return self.to_python(value)

    def to_python(self, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) and value else value or []

    def get_prep_value(self, value: Any) -> Any:
        return ",".join(value) if isinstance(value, list) else value

    def formfield(self, **kwargs: Any) -> Any:
        return forms.MultipleChoiceField(choices=self.choices)


@isolate_apps("tests.testapp")
def test_a_field_of_several_choices_is_a_list_and_is_described(db: None) -> None:
    class Shirt(models.Model):
        class Meta:
            app_label = "testapp"

        sizes = Several(max_length=20, choices=[("s", "Small"), ("Groups", [("l", "Large")])])

    field: Any = Shirt._meta.get_field("sizes")
    assert kind_of(field).choices == [("s", "Small"), ("l", "Large")]
    assert render_column("sizes", field_renderer(field, 100, ""), [["s", "l"], [], None]) == ([["s", "l"], [], None], 0)
    request = reader(make_superuser(), site_with(Shirt))
    described = call(DescribeModel(), request, model="testapp.shirt")["fields"]
    assert "sizes* list s=Small|l=Large" in described
    full = call(DescribeModel(), request, model="testapp.shirt", detail=True)
    assert "list of text, required, one of s=Small | l=Large" in full["fields"][1]
    assert full["input_schema"]["properties"]["sizes"]["type"] == "array"


class Amount:
    """A value of a class of the project's own."""

    def __str__(self) -> str:
        return "12.50 EUR"


class Mute:
    """One without a text."""


@pytest.mark.parametrize("field", [models.DecimalField(), models.FloatField(), models.DateField(), models.CharField()])
def test_a_value_that_its_kind_does_not_know_is_its_text(field: Any, caplog: pytest.LogCaptureFixture) -> None:
    renderer = field_renderer(field, 100, "")
    assert render_column("x", renderer, [Amount(), None]) == (["12.50 EUR", None], 0)
    assert not caplog.records


def test_a_value_without_a_text_is_null() -> None:
    assert render_column("x", field_renderer(models.DecimalField(), 100, ""), [Mute(), None]) == ([None, None], 1)


def test_an_attribute_is_read_and_a_method_is_called() -> None:
    exposure = ModelExposure(Book, SITE)
    book = Book(price=Decimal(10), pages=5, status="draft")
    for name, value in (("price_per_page", Decimal(2)), ("get_status_display", "In preparation")):
        column = Column.of(exposure, name)
        assert column is not None
        assert column.compute is not None
        assert column.compute(book) == value


def test_links_are_a_column_from_both_ends_and_none_behind_another_relation(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Column.of(ModelExposure(Tag, SITE), "books")
    assert column is not None
    assert column.kind == "many"
    assert Column.of(ModelExposure(Loan, SITE), "book__tags") is None
    # The links of a class of its own can only be read from the end that declares it.
    monkeypatch.setattr("mcp_django.orm.columns.linked_reader", lambda field: list)
    assert Column.of(ModelExposure(Tag, SITE), "books") is None


def test_rows_that_refer_to_any_model_are_a_column_of_the_one_that_declares_them() -> None:
    column = Column.of(ModelExposure(Guest, SITE), "remarks")
    assert column is not None
    assert (column.kind, column.path) == ("reverse", "id")
