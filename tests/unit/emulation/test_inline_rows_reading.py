"""Rows of inlines are read with the row that they belong to, bounded and by the inline's own rules."""

from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_superuser, make_user
from tests.inlineapp.admin import LineFormSet, LineInline, shop
from tests.inlineapp.factories import ORDER, make_order, rows_of, shop_request
from tests.inlineapp.models import Label, Line, Order, Remark, Shipment
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
GET, UPDATE = GetRecord(), UpdateRecord()


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def read(request: Any, order: Order, **arguments: Any) -> dict[str, Any]:
    return call(GET, request, **ORDER, pk=order.pk, **arguments)


def test_a_record_shows_the_rows_of_its_inlines_as_they_are_sent_back(root: Any) -> None:
    order = make_order("7", 2)
    make_order("8", 5)
    line = order.lines.get()
    Remark.objects.create(target=order, text="hello")
    Remark.objects.create(target=line, text="of another model")
    order.labels.add(Label.objects.create(name="red"))
    Shipment.objects.create(code="S1", order=order).lines.add(line)
    shown = read(root, order)["inlines"]
    assert list(shown) == ["lines", "shipments", "returns", "remarks", "Order_labels", "invoice", "note_set"]
    assert shown["lines"] == [
        {
            "pk": line.pk,
            "product": [line.product_id, "P0"],
            "quantity": 2,
            "price": "1.00",
            "total": "7/P0: 2.00",
            "updated": line.updated.isoformat().replace("+00:00", "Z"),
        }
    ]
    assert shown["shipments"] == [{"pk": "S1", "lines": [[line.pk, "2 of P0"]]}]
    assert [row["text"] for row in shown["remarks"]] == ["hello"]
    assert [row["label"][1] for row in shown["Order_labels"]] == ["red"]
    assert (shown["returns"], shown["note_set"]) == ([], [])


def test_only_so_many_rows_are_shown_and_the_rest_is_told_of(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.emulation.inline_rows.MAX_SHOWN", 2)
    order = make_order("7", 1, 2, 3)
    found = read(root, order)
    assert [row["quantity"] for row in found["inlines"]["lines"]] == [1, 2]
    assert found["hint"] == "lines: only 2 rows shown, there are more, query_records on inlineapp.line gives them"


def test_row_83_rows_of_inlines_are_bounded_together(root: Any) -> None:
    order = make_order("7")
    for number in range(15):
        Remark.objects.create(target=order, text=f"{number:02} " + "x" * 90)
    with override_settings(MCP_DJANGO={"RESULT_CHARS": 2000}):
        found = read(root, order)
    assert len(found["inlines"]["remarks"]) < 10
    assert "remarks: only " in found["hint"]


@pytest.mark.parametrize(
    ("permissions", "names"),
    [
        ([], []),
        (["view_line"], ["lines"]),
        (["change_line"], ["lines"]),
        (["add_line", "delete_line"], []),
        (["view_line", "view_remark"], ["lines", "remarks"]),
        (["view_label"], ["Order_labels"]),
    ],
)
def test_row_125_rows_of_an_inline_take_its_own_permission(permissions: list[str], names: list[str]) -> None:
    user = make_user("clerk", "inlineapp.view_order", *(f"inlineapp.{name}" for name in permissions))
    order = make_order("7", 2)
    order.labels.add(Label.objects.create(name="red"))
    found = read(shop_request(user), order)
    assert list(found.get("inlines", {})) == names


def test_H127_rows_that_the_inline_leaves_out_are_not_shown(root: Any) -> None:
    order = make_order("7")
    for code in ("S1", "X1"):
        Shipment.objects.create(code=code, order=make_order(code), returned_for=order)
    assert [row["pk"] for row in read(root, order)["inlines"]["returns"]] == ["S1"]


def test_a_formset_of_the_projects_own_decides_which_rows_there_are(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    order = make_order("7", 1, 2)

    class FewLines(LineFormSet):
        def get_queryset(self) -> Any:
            return super().get_queryset().filter(quantity=2)

    monkeypatch.setattr(LineInline, "formset", FewLines)
    shown = read(root, order)["inlines"]["lines"]
    assert [row["quantity"] for row in shown] == [2]
    hidden = order.lines.get(quantity=1)
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"pk": hidden.pk, "quantity": 3}]})
    assert "lines has no row with this pk" in text


def test_row_119_the_queries_of_a_record_do_not_grow_with_the_rows(root: Any) -> None:
    few, many = make_order("1", 1), make_order("2", *[1] * 9)
    read(root, few)
    counts = []
    for order in (few, many):
        with CaptureQueriesContext(connection) as queries:
            read(root, order)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_row_130_an_inline_shows_no_more_than_the_exposure_of_its_model() -> None:
    site = MCPSite("narrow", admin_site=shop)

    class LineExposure(ModelExposure):
        fields = ("id", "quantity")

        def get_queryset(self, request: Any) -> Any:
            return Line.objects.filter(quantity__gt=1)

    site.register(Line, LineExposure)
    request = request_of(make_superuser(), site)
    order = make_order("7", 1, 2)
    small, big = order.lines.order_by("quantity")
    assert read(request, order)["inlines"]["lines"] == [{"pk": big.pk, "quantity": 2}]
    text = refusal(UPDATE, request, **ORDER, pk=order.pk, values={"lines": [{"pk": small.pk, "quantity": 3}]})
    assert "lines has no row with this pk" in text
    text = refusal(UPDATE, request, **ORDER, pk=order.pk, values={"lines": [{"pk": big.pk, "price": "3"}]})
    assert "you cannot write 'price'; valid: quantity" in text
    call(UPDATE, request, **ORDER, pk=order.pk, values={"lines": [{"pk": big.pk, "quantity": 3}]})
    assert [quantity for _, quantity, _ in rows_of(order)] == [1, 3]


def lose_date(line: Line) -> None:
    """Store a date that is none, as old applications do; MySQL takes it without the strict mode of SQL."""
    unchecked, checked = ("SET @mode = @@sql_mode, sql_mode = ''", "SET sql_mode = @mode")
    is_mysql = connection.vendor == "mysql"
    with connection.cursor() as cursor:
        if is_mysql:
            cursor.execute(unchecked)
        cursor.execute("UPDATE inlineapp_line SET updated = '0000-00-00 00:00:00' WHERE id = %s", [line.pk])
        if is_mysql:
            cursor.execute(checked)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="the database keeps no such value")
def test_a_value_that_cannot_be_read_costs_one_value(root: Any) -> None:
    order = make_order("7", 1, 2)
    line = order.lines.get(quantity=1)
    lose_date(line)
    found = read(root, order)
    assert [(row["quantity"], row["updated"] is None) for row in found["inlines"]["lines"]] == [(1, True), (2, False)]
    assert found["version"] == read(root, order)["version"]


@pytest.mark.skipif(connection.vendor == "postgresql", reason="the database keeps no such value")
def test_a_row_with_a_value_that_cannot_be_read_is_not_written_below_its_parent(root: Any) -> None:
    order = make_order("7", 1, 2)
    line = order.lines.get(quantity=1)
    lose_date(line)
    values = {"lines": [{"pk": line.pk, "quantity": 3}]}
    assert "cannot be read" in refusal(UPDATE, root, **ORDER, pk=order.pk, values=values)
    assert [quantity for _, quantity, _ in rows_of(order)] == [1, 2]
