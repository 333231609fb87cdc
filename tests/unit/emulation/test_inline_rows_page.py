"""What callers read of inlines: their names, their fields, their rows."""

from typing import Any

import pytest

from mcp_django import MCPSite, ModelExposure
from mcp_django.emulation.inline_rows import PageInlines
from mcp_django.orm.access import access_of
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.inlineapp.admin import HiddenNoteInline, LineInline, NoteInline, OrderAdmin, shop
from tests.inlineapp.factories import ORDER, make_order, rows_of, shop_request
from tests.inlineapp.models import Line, Note, Order, Product
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
GET, UPDATE = GetRecord(), UpdateRecord()


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def read(request: Any, order: Order, **arguments: Any) -> dict[str, Any]:
    return call(GET, request, **ORDER, pk=order.pk, **arguments)


def test_H128_sensitive_names_and_keys_of_the_link_are_not_shown(root: Any) -> None:
    order = make_order("7", 2)
    Line.objects.update(secret_code="s3cret")
    found = read(root, order)
    assert "s3cret" not in str(found)
    assert not {"order", "id", "secret_code"} & set(found["inlines"]["lines"][0])


def test_fields_may_name_an_inline_and_leave_the_others_out(root: Any) -> None:
    order = make_order("7", 2)
    found = read(root, order, fields=["number", "lines"])
    assert found["fields"] == {"id": order.pk, "number": "7"}
    assert list(found["inlines"]) == ["lines"]
    assert "inlines" not in read(root, order, fields=["number"])
    assert "no field" in refusal(GET, root, **ORDER, pk=order.pk, fields=["lines", "nonsense"])


def test_formsets_of_the_projects_own_decide_which_inlines_there_are(
    root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(self: Any, request: Any, obj: Any = None) -> Any:
        for inline in self.get_inline_instances(request, obj):
            if isinstance(inline, LineInline):
                yield inline.get_formset(request, obj), inline

    monkeypatch.setattr(OrderAdmin, "get_formsets_with_inlines", few)
    assert list(read(root, make_order("7", 2))["inlines"]) == ["lines"]


def test_names_that_would_be_the_same_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HiddenNoteInline, "mcp_expose", True)
    monkeypatch.setattr(OrderAdmin, "inlines", [NoteInline, HiddenNoteInline])
    request = shop_request(make_superuser())
    found = PageInlines(access_of(request)[request.mcp.site.exposures[Order]], None).all
    assert [inline.name for inline in found] == ["note_set", "note_set_2"]
    order = make_order("7")
    call(UPDATE, request, **ORDER, pk=order.pk, values={"note_set_2": [{"text": "x"}], "note_set": [{"text": "y"}]})
    assert sorted(Note.objects.values_list("text", flat=True)) == ["x", "y"]


def test_row_129_an_inline_of_a_model_that_is_kept_out_is_not_there() -> None:
    kept_out = MCPSite("kept out", admin_site=shop)
    kept_out.register(Order)
    kept_out.unregister(Line)
    request = request_of(make_superuser(), kept_out)
    order = make_order("7", 2)
    assert "lines" not in read(request, order)["inlines"]
    text = refusal(UPDATE, request, **ORDER, pk=order.pk, values={"lines": []})
    assert "You cannot write 'lines'" in text


def test_an_exposure_names_the_inlines_that_it_shows() -> None:
    class Plain(ModelExposure):
        fields = ("id", "number", "customer")
        inlines = (LineInline,)

    site = MCPSite("plain")
    site.register(Order, Plain)
    site.register(Product, ModelExposure)
    request = request_of(make_superuser(), site)
    product = Product.objects.create(name="P")
    values = {"number": "1", "customer": "Ada", "lines": [{"product": product.pk, "quantity": 3}]}
    created = call(CreateRecord(), request, **ORDER, values=values)
    order = Order.objects.get()
    assert rows_of(order) == [("P", 3, 1)]
    assert created["inlines"]["lines"][0]["quantity"] == 3
    assert "More than a hundred" in refusal(
        UPDATE, request, **ORDER, pk=order.pk, values={"lines": [{"pk": order.lines.get().pk, "quantity": 101}]}
    )


def test_an_admin_exposure_with_fields_of_its_own_shows_the_inlines_that_it_names() -> None:
    for inlines, names in ((None, []), ([LineInline], ["lines"])):
        site = MCPSite(f"own {names}", admin_site=shop)
        site.register(Order, fields=["id", "number"], inlines=inlines)
        request = request_of(make_superuser(f"root {names}"), site)
        order = make_order(str(names), 1)
        assert list(read(request, order).get("inlines", {})) == names
        call(UPDATE, request, **ORDER, pk=order.pk, values={"number": f"new {names}"})
        assert rows_of(order) == [("P0", 1, 1)]


def test_an_inline_that_is_like_no_other_is_left_out(
    root: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> Any:
        raise RuntimeError("no request of a browser")

    monkeypatch.setattr(LineInline, "get_fieldsets", fail)
    order = make_order("7", 2)
    found = read(root, order)
    assert "lines" not in found["inlines"]
    assert found["inlines"]["shipments"] == []
    assert "LineInline of inlineapp.order failed" in caplog.text
