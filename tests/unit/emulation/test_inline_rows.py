"""Rows of inlines as a model of their own: what the pages show, to whom they show it, and nothing to write."""

from typing import Any

import pytest
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import resolve

from mcp_django import MCPSite
from mcp_django.context.request import MCPRequest
from mcp_django.emulation.inline_rows import InlineRows
from mcp_django.exceptions import NotFound
from mcp_django.resources.model_resources import Resources
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_superuser, make_user
from tests.inlineapp.factories import make_order
from tests.inlineapp.models import Line, Order, Product, Shipment
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]
LINES = {"model": "inlineapp.line"}
QUERY = QueryRecords()
SCOPES = frozenset({"mcp:read", "mcp:write"})


class LineInline(admin.TabularInline):
    model = Line
    fields = ["product", "quantity", "price", "secret_code", "total"]
    readonly_fields = ["total"]

    def total(self, line: Line) -> Any:
        return line.quantity * line.price


def site_of(inline: type[Any] = LineInline, *, page: type[Any] = admin.ModelAdmin, **options: Any) -> MCPSite:
    """Return a site of an admin whose page of orders has the inline."""
    admin_site = admin.AdminSite("of its own")
    admin_site.register(Order, page, inlines=[inline], **options)
    admin_site.register(Product)
    return MCPSite("rows", admin_site=admin_site)


def reader(user: Any, site: MCPSite) -> MCPRequest:
    return request_of(user, site, scopes=SCOPES)


@pytest.fixture
def root() -> MCPRequest:
    make_order("1", 2, 3)
    make_order("2", 5)
    return reader(make_superuser(), site_of())


def test_the_generic_tools_read_them(root: MCPRequest) -> None:
    found = call(QUERY, root, **LINES, filters={"quantity__gte": 3}, ordering=["quantity"])
    assert found["columns"] == ["id", "order", "product", "quantity", "price"]
    first = Line.objects.get(quantity=3)
    assert found["rows"][0] == [
        first.pk,
        [first.order.pk, str(first.order)],
        [first.product.pk, str(first.product)],
        3,
        "1.00",
    ]
    record = call(GetRecord(), root, **LINES, pk=first.pk)
    assert record["permissions"] == {"change": False, "delete": False}
    total = call(AggregateRecords(), root, **LINES, aggregates=["sum:quantity*price"], group_by=["order.number"])
    assert total["rows"] == [["1", "5.00"], ["2", "5.00"]]
    listed = call(ListModels(), root)
    assert "inlineapp.line" in str(listed)
    assert "inlineapp.line" in str(call(DescribeModel(), root, **LINES))


def test_parents_are_asked_about_them(root: MCPRequest) -> None:
    asked = {"model": "inlineapp.order", "filters": {"lines": {"some": {"quantity__gte": 5}}}, "fields": ["number"]}
    assert [row[1] for row in call(QUERY, root, **asked)["rows"]] == ["2"]
    summed = call(AggregateRecords(), root, model="inlineapp.order", aggregates=["sum:lines.quantity*lines.price"])
    assert summed["rows"] == [["10.00"]]


def test_H128_only_what_the_inline_shows_is_there(root: MCPRequest) -> None:
    Line.objects.update(secret_code="s3cret")
    exposure = root.mcp.site.exposures[Line]
    assert isinstance(exposure, InlineRows)
    assert "s3cret" not in str(call(QUERY, root, **LINES))
    for name in ("secret_code", "updated", "total"):
        assert "has no field" in refusal(QUERY, root, **LINES, fields=[name])
        assert "has no filter" in refusal(QUERY, root, **LINES, filters={name: "x"})


def test_H128_a_read_only_field_that_the_inline_leaves_out_is_not_there(root: MCPRequest) -> None:
    class Narrow(admin.TabularInline):
        model = Line
        fields = ["product", "quantity"]
        readonly_fields = ["price"]

    request = reader(root.user, site_of(Narrow))
    assert "has no field" in refusal(QUERY, request, **LINES, fields=["price"])
    order = call(GetRecord(), request, model="inlineapp.order", pk=Order.objects.get(number="2").pk)
    assert set(order["inlines"]["lines"][0]) == {"pk", "product", "quantity"}


def test_row_121_only_rows_under_parents_that_the_caller_may_view(root: MCPRequest) -> None:
    class Some(admin.ModelAdmin):
        def get_queryset(self, request: HttpRequest) -> QuerySet[Order]:
            return super().get_queryset(request).filter(number="2")

    request = reader(root.user, site_of(page=Some))
    assert [row[3] for row in call(QUERY, request, **LINES)["rows"]] == [5]
    hidden = Line.objects.filter(order__number="1").first()
    assert "No such record" in refusal(GetRecord(), request, **LINES, pk=hidden.pk)
    assert call(AggregateRecords(), request, **LINES, aggregates=["count"])["rows"] == [[1]]


@pytest.mark.parametrize(
    ("permissions", "is_there"),
    [
        ((), False),
        (("view_order",), False),
        (("view_line",), False),
        (("view_order", "add_line"), False),
        (("view_order", "view_line"), True),
        (("change_order", "change_line"), True),
    ],
)
def test_row_112_callers_need_the_page_and_the_inline(permissions: tuple[str, ...], is_there: bool) -> None:
    make_order("1", 2)
    request = reader(make_user("u", *(f"inlineapp.{name}" for name in permissions)), site_of())
    if is_there:
        assert call(QUERY, request, **LINES)["returned"] == 1
        assert "product" in call(QUERY, request, **LINES)["columns"]
    else:
        assert "No such model" in refusal(QUERY, request, **LINES)


def test_H129_they_are_written_on_the_page_of_their_parent_alone(root: MCPRequest) -> None:
    line = Line.objects.first()
    assert line is not None
    before = list(Line.objects.values())
    for tool, arguments in (
        (CreateRecord(), {"values": {"order": line.order.pk, "product": line.product.pk, "quantity": 1}}),
        (UpdateRecord(), {"pk": line.pk, "values": {"quantity": 9}}),
        (DeleteRecord(), {"pk": line.pk}),
    ):
        assert refusal(tool, root, **LINES, **arguments)
    assert list(Line.objects.values()) == before


def test_an_attribute_keeps_them_on_their_page() -> None:
    class OnThePage(LineInline):
        mcp_readable = False

    class NotAtAll(LineInline):
        mcp_expose = False

    for inline in (OnThePage, NotAtAll):
        assert Line not in site_of(inline).exposures


def test_what_decides_row_by_row_keeps_them_on_their_page() -> None:
    class FewLines(LineInline.formset):  # type: ignore[misc, name-defined]
        def get_queryset(self) -> Any:
            return super().get_queryset()[:1]

    class Formset(LineInline):
        formset = FewLines

    class Permission(LineInline):
        def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
            return obj is not None and obj.number == "1"

    for inline in (Formset, Permission):
        assert Line not in site_of(inline).exposures


def test_a_model_that_is_registered_speaks_for_itself() -> None:
    site = site_of()
    site.register(Line, fields=["quantity"])
    assert not isinstance(site.exposures[Line], InlineRows)
    other = site_of()
    other.register(Line)
    other.unregister(Line)
    assert Line not in other.exposures


def test_of_two_pages_the_fields_that_both_show() -> None:
    class Sent(admin.TabularInline):
        model = Shipment
        fk_name = "order"
        fields = ["code", "returned_for"]

    class Returned(admin.TabularInline):
        model = Shipment
        fk_name = "returned_for"
        fields = ["order"]

        def get_queryset(self, request: HttpRequest) -> QuerySet[Shipment]:
            return super().get_queryset(request).exclude(code="X")

    admin_site = admin.AdminSite("of two")
    admin_site.register(Order, inlines=[Sent, Returned])
    one, other = make_order("1"), make_order("2")
    for code in ("A", "X"):
        Shipment.objects.create(order=one, returned_for=other, code=code)
    request = reader(make_superuser(), MCPSite("two", admin_site=admin_site))
    found = call(QUERY, request, model="inlineapp.shipment")
    assert found["columns"] == ["code", "order", "returned_for"]
    assert found["returned"] == 2


def test_resources_have_them_too(root: MCPRequest) -> None:
    line = Line.objects.first()
    assert line is not None
    assert '"quantity"' in str(Resources(root).find(f"django://inlineapp/line/{line.pk}").read())
    nobody = reader(make_user("nobody"), root.mcp.site)
    with pytest.raises(NotFound):
        Resources(nobody).find(f"django://inlineapp/line/{line.pk}").read()


class OfItsPage(LineInline):
    """A known idiom: the rows depend on the row whose page it is."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Line]:
        lines = super().get_queryset(request)
        return lines.filter(order=request.resolver_match.kwargs["object_id"])


class OfItsPageOrAll(LineInline):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Line]:
        pk = self.page_of(request)
        lines = super().get_queryset(request)
        return lines.filter(order=pk, quantity__gt=2) if pk else lines

    def page_of(self, request: HttpRequest) -> Any:
        return request.resolver_match.kwargs.get("object_id")


class BelowItsPage(OfItsPageOrAll):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Line]:
        return super().get_queryset(request).exclude(quantity=7)


class ByPath(LineInline):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Line]:
        return super().get_queryset(request).filter(order=resolve(request.path_info).kwargs["object_id"])


class OfTenant(LineInline):
    """Asks for what the URL of the endpoint names."""

    mcp_readable = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Line]:
        match = request.resolver_match
        return super().get_queryset(request).filter(quantity__gt=int(match.kwargs.get("least", 2)) if match else 2)


@pytest.mark.parametrize("inline", [OfItsPage, OfItsPageOrAll, BelowItsPage, ByPath])
def test_rows_that_could_depend_on_their_page_are_on_their_page_alone(inline: type[Any]) -> None:
    request = reader(make_superuser(), site_of(inline))
    assert Line not in request.mcp.site.exposures
    assert "inlineapp.line" not in str(call(ListModels(), request))
    assert "No such model" in refusal(QUERY, request, **LINES)
    assert Line in site_of(type("Declared", (inline,), {"mcp_readable": True})).exposures


def test_rows_that_depend_on_the_url_of_the_endpoint_are_a_model() -> None:
    make_order("1", 2, 3)
    assert call(QUERY, reader(make_superuser(), site_of(OfTenant)), **LINES, fields=["quantity"])["rows"][0][1:] == [3]
