"""Rows of inlines are written by the admin's own rules: what its page would save, refuse and log."""

import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.forms import BaseInlineFormSet, ModelForm

from mcp_django.emulation.inline_formsets import InlinePost
from mcp_django.emulation.saving import RowPage
from mcp_django.orm.access import access_of
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser, make_user
from tests.inlineapp.admin import InvoiceInline, LabelInline, LineInline, NoteInline, OrderAdmin, RemarkInline
from tests.inlineapp.factories import ORDER, make_order, rows_of, shop_request
from tests.inlineapp.models import Claim, Invoice, Label, Line, Note, Order, Product, Remark, Shipment
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]
CREATE, UPDATE = CreateRecord(), UpdateRecord()
ALL = ("view", "add", "change", "delete")


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def staff(**verbs: tuple[str, ...]) -> Any:
    """Return a request of a user with permissions by model: `staff(order=("view", "change"), line=ALL)`."""
    names = [f"inlineapp.{verb}_{model}" for model, given in verbs.items() for verb in given]
    return shop_request(make_user("clerk", *names))


def products(count: int) -> list[Product]:
    return [Product.objects.get_or_create(name=f"P{number}")[0] for number in range(count)]


# What is saved


def test_a_row_is_created_with_rows_of_each_kind_of_inline(root: Any) -> None:
    first, second = products(2)
    label = Label.objects.create(name="red")
    values = {
        "number": "7",
        "lines": [{"product": first.pk, "quantity": 2}, {"product": [second.pk, "P1"], "price": "3.5"}],
        "shipments": [{"code": "S1"}],
        "remarks": [{"text": "hello"}],
        "Order_labels": [{"label": label.pk}],
        "invoice": [{"text": "paid"}],
        "note_set": [{"text": "mind"}],
    }
    created = call(CREATE, root, **ORDER, values=values)
    order = Order.objects.get()
    assert rows_of(order) == [("P0", 2, Decimal("1.00")), ("P1", 1, Decimal("3.50"))]
    assert list(order.shipments.all()) == [Shipment(code="S1")]
    assert list(order.remarks.values_list("text", flat=True)) == ["hello"]
    assert list(order.labels.all()) == [label]
    assert (order.invoice.text, order.note_set.get().text) == ("paid", "mind")
    assert set(values) < set(created["changed"])
    assert created["inlines"]["lines"][1]["product"] == [second.pk, "P1"]


def test_the_add_page_shows_what_the_admin_gives_it_at_first(root: Any) -> None:
    root.GET = {"customer": "a query has no part in it"}
    call(CREATE, root, **ORDER, values={"number": "7"})
    assert Order.objects.get().customer == "root"


def test_rows_are_changed_added_and_deleted_in_one_call_and_others_stay(root: Any) -> None:
    order = make_order("1", 1, 2, 3)
    kept, changed, deleted = order.lines.order_by("pk")
    new = Product.objects.create(name="new")
    rows = [{"product": new.pk}, {"pk": changed.pk, "quantity": 9}, {"pk": str(deleted.pk), "delete": True}]
    found = call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows})
    assert found["changed"] == ["lines"]
    assert rows_of(order) == [("P0", 1, 1), ("P1", 9, 1), ("new", 1, 1)]
    assert Line.objects.get(pk=kept.pk).updated == kept.updated
    assert Order.objects.get().customer == "Ada"


def test_what_get_record_shows_can_be_sent_back(root: Any) -> None:
    from mcp_django.tools.get_record import GetRecord

    order = make_order("1", 1, 2)
    shown = call(GetRecord(), root, **ORDER, pk=order.pk)["inlines"]["lines"]
    rows = [{name: row[name] for name in ("pk", "product", "quantity", "price")} for row in shown]
    before = list(Line.objects.values())
    assert call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows})["changed"] == []
    assert list(Line.objects.values()) == before


def test_two_inlines_of_one_model_are_told_apart_by_their_relation(root: Any) -> None:
    order, other = make_order("1"), make_order("2")
    Shipment.objects.create(code="S1", order=other, returned_for=order)
    values = {"shipments": [{"code": "S2"}], "returns": [{"pk": "S1", "order": order.pk}]}
    call(UPDATE, root, **ORDER, pk=order.pk, values=values)
    found = Shipment.objects.order_by("code").values_list("code", "order", "returned_for")
    assert list(found) == [("S1", order.pk, order.pk), ("S2", order.pk, None)]


def test_keys_of_every_kind_select_a_row(root: Any) -> None:
    order = make_order("1")
    Shipment.objects.create(code="S1", order=order)
    Invoice.objects.create(order=order, text="old")
    remark = Remark.objects.create(target=order, text="old")
    line = Line.objects.create(order=order, product=products(1)[0])
    values = {
        "shipments": [{"pk": "S1", "lines": [line.pk]}],
        "invoice": [{"pk": order.pk, "text": "new"}],
        "remarks": [{"pk": remark.pk, "text": "new"}],
    }
    call(UPDATE, root, **ORDER, pk=order.pk, values=values)
    assert (Invoice.objects.get().text, Remark.objects.get().text) == ("new", "new")
    assert list(Shipment.objects.get().lines.all()) == [line]


def test_rows_may_come_as_text_as_some_clients_send_them(root: Any) -> None:
    product = products(1)[0]
    order = make_order("1")
    call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": f'[{{"product": {product.pk}}}]'})
    assert rows_of(order) == [("P0", 1, 1)]


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (5, "lines must be a list of at most 200 rows."),
        ([{}] * 201, "lines must be a list of at most 200 rows."),
        ({"product": 1}, "lines must be a list of at most 200 rows."),
        ([{"quantity": 1}], "lines[0]: it is the same as an empty row"),
        ([{"pk": True, "quantity": 1}], "lines[0]: lines has no row with this pk"),
        ([{"pk": [1], "quantity": 1}], "lines[0]: lines has no row with this pk"),
        ([{"pk": "1", "delete": "perhaps"}], "lines[0]"),
        ([{"delete": True}], "lines[0]: you may not delete such a row"),
        ([{"quantity": 2}], "lines[0].product: This field is required."),
    ],
)
def test_row_85_what_is_no_row_is_refused(root: Any, rows: Any, error: str) -> None:
    order = make_order("1")
    assert error in refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows})
    assert not LogEntry.objects.exists()


def test_a_row_is_named_once(root: Any) -> None:
    order = make_order("1", 1)
    rows = [{"pk": order.lines.get().pk, "quantity": 2}] * 2
    assert "lines[1]: this row is given twice" in refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows})


def test_there_are_no_more_rows_than_the_page_offers(root: Any) -> None:
    order = make_order("1", 1, 2)
    rows = [{"product": Product.objects.create(name=f"new {number}").pk} for number in range(3)]
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows})
    assert "lines: at most 4 rows are allowed, not 5" in text
    call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows[:2]})
    assert order.lines.count() == 4


def test_rows_that_have_to_be_there_are_asked_for(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineInline, "min_num", 1)
    text = refusal(CREATE, root, **ORDER, values={"number": "1"})
    assert text == "Nothing was saved:\nlines[0].product: This field is required."


# Security


def test_H147_rows_and_keys_of_other_parents_are_out_of_reach(root: Any) -> None:
    order, other = make_order("1", 1), make_order("2", 5)
    theirs = other.lines.get()
    before = list(Line.objects.order_by("pk").values())
    missing = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"pk": 10**6, "quantity": 3}]})
    for row in ({"pk": theirs.pk, "quantity": 3}, {"pk": theirs.pk, "delete": True}):
        assert refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [row]}) == missing
    for name in (
        "order",
        "order_id",
        "id",
        "DELETE",
        "ORDER",
        "__prefix__",
        "secret_code",
        "total",
        "updated",
        "_state",
    ):
        row = {"pk": order.lines.get().pk, name: other.pk}
        text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [row]})
        assert f"you cannot write '{name}'; valid: product, quantity, price" in text
        text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"product": theirs.product_id, name: 1}]})
        assert f"you cannot write '{name}'" in text
    for name, row in (("remarks", {"content_type": 1}), ("remarks", {"object_id": other.pk}), ("note_set", {"id": 1})):
        text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={name: [{"text": "x", **row}]})
        assert "you cannot write" in text
    assert list(Line.objects.order_by("pk").values()) == before


def test_H147_a_key_that_people_choose_is_chosen_once(root: Any) -> None:
    order = make_order("1")
    Shipment.objects.create(code="S1", order=order)
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"shipments": [{"pk": "S1", "code": "S2"}]})
    assert "shipments[0]: you cannot write 'code'" in text
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"shipments": [{"code": "S1"}]})
    assert "shipments[0].code: Shipment with this Code already exists." in text
    assert list(Shipment.objects.values_list("code", flat=True)) == ["S1"]


def test_H127_a_row_that_the_inline_leaves_out_is_not_there(root: Any) -> None:
    order = make_order("1")
    Shipment.objects.create(code="X1", order=make_order("2"), returned_for=order)
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"returns": [{"pk": "X1", "order": order.pk}]})
    assert "returns has no row with this pk" in text


@pytest.mark.parametrize(
    ("verbs", "row", "error"),
    [
        (("view",), {"pk": 0, "quantity": 2}, "You cannot write 'lines'"),
        ((), {"product": 0}, "You cannot write 'lines'"),
        (("view", "add"), {"pk": 0, "quantity": 2}, "lines[0]: you may not change this row"),
        (("view", "add"), {"pk": 0, "delete": True}, "lines[0]: you may not delete this row"),
        (("view", "change"), {"product": 0}, "lines[0]: you may not add such a row"),
        (("view", "change"), {"pk": 0, "delete": True}, "lines[0]: you may not delete this row"),
        (("view", "delete"), {"pk": 0, "quantity": 2}, "lines[0]: you may not change this row"),
        (("add",), {"pk": 0, "quantity": 2}, "lines[0]: lines has no row with this pk"),
        (("view", "add"), {"product": 0}, None),
        (("add",), {"product": 0}, None),
        (("view", "change"), {"pk": 0, "quantity": 2}, None),
        (("view", "delete"), {"pk": 0, "delete": True}, None),
    ],
)
def test_H137_the_permissions_of_the_inline_decide(verbs: Any, row: dict[str, Any], error: str | None) -> None:
    order = make_order("1", 1)
    line, new = order.lines.get(), Product.objects.create(name="new")
    request = staff(order=("view", "change"), product=("view",), line=verbs)
    row = {**row, **({"pk": line.pk} if "pk" in row else {}), **({"product": new.pk} if "product" in row else {})}
    if error is not None:
        assert error in refusal(UPDATE, request, **ORDER, pk=order.pk, values={"lines": [row]})
        assert rows_of(order) == [("P0", 1, 1)]
        assert not LogEntry.objects.exists()
    else:
        assert call(UPDATE, request, **ORDER, pk=order.pk, values={"lines": [row]})["changed"] == ["lines"]
        assert rows_of(order) != [("P0", 1, 1)]


def test_H137_a_row_of_an_inline_may_be_closed_to_all(root: Any) -> None:
    order = make_order("1")
    note = Note.objects.create(order=order, text="old")
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"note_set": [{"pk": str(note.pk), "text": "new"}]})
    assert "note_set[0]: you may not change this row" in text
    call(UPDATE, root, **ORDER, pk=order.pk, values={"note_set": [{"pk": str(note.pk), "delete": True}]})
    assert not Note.objects.exists()
    assert refusal(
        UPDATE, root, **ORDER, pk=order.pk, values={"note_set": [{"pk": str(uuid.uuid4()), "delete": True}]}
    ).endswith("get_record shows its rows")


def test_H141_a_row_that_is_protected_stays_and_only_visible_rows_are_named(root: Any) -> None:
    order = make_order("1", 1)
    line = order.lines.get()
    claim = Claim.objects.create(line=line, text="broken")
    values = {"lines": [{"pk": line.pk, "delete": True}]}
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values=values)
    assert text == (
        "Nothing was saved:\nlines[0]: it cannot be deleted, because rows that refer to it are protected: "
        f"1 claim (such as inlineapp.claim {claim.pk}: broken)"
    )
    request = staff(order=("view", "change"), product=("view",), line=ALL)
    text = refusal(UPDATE, request, **ORDER, pk=order.pk, values=values)
    assert "1 claim" in text
    assert "broken" not in text
    assert Line.objects.count() == 1


def test_G133_a_constraint_that_only_the_database_knows_is_told_without_sql(root: Any) -> None:
    order = make_order("1", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Line, "validate_constraints", lambda *args, **kwargs: None)
        patch.setattr(LineInline, "formset", LineInline.formset.__mro__[1])
        rows = [{"pk": order.lines.get().pk, "quantity": 1001}]
        text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": rows})
    assert text == "Nothing was changed: the values break a constraint of the database."
    assert rows_of(order) == [("P0", 1, 1)]


def test_an_inline_of_more_rows_than_a_page_holds_stays_untouched(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.emulation.inline_formsets.MAX_ON_PAGE", 2)
    order = make_order("1", 1, 2, 3)
    call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob"})
    assert Order.objects.get().customer == "Bob"
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"product": 1}]})
    assert text == (
        "lines has more than 2 rows, too many for its page. Write them as rows of inlineapp.line. Nothing was saved."
    )


# Rows that nobody names


class Bad(Exception):
    """Raised by the project's code that a save must call."""


def fail(*args: Any, **kwargs: Any) -> Any:
    raise Bad


class OwnForm(ModelForm):
    clean = fail


OWN_CODE = {
    "form": (RemarkInline, "form", OwnForm),
    "formset": (NoteInline, "formset", type("Own", (BaseInlineFormSet,), {"clean": fail})),
    "get_formset": (RemarkInline, "get_formset", fail),
    "get_min_num": (RemarkInline, "get_min_num", fail),
    "clean of the model": (Remark, "clean", fail),
    "validate_unique of the model": (Remark, "validate_unique", fail),
    "save_related": (OrderAdmin, "save_related", fail),
    "save_formset": (OrderAdmin, "save_formset", fail),
    "construct_change_message": (OrderAdmin, "construct_change_message", fail),
    "get_formset_kwargs": (OrderAdmin, "get_formset_kwargs", fail),
}


@pytest.mark.parametrize("kind", OWN_CODE)
def test_code_of_the_project_gets_the_rows_of_inlines_that_nobody_names(root: Any, monkeypatch: Any, kind: str) -> None:
    order = make_order("1")
    Remark.objects.create(target=order, text="standing")
    Note.objects.create(order=order, text="standing")
    monkeypatch.setattr(OrderAdmin, "inlines", [RemarkInline, LabelInline, NoteInline])
    monkeypatch.setattr(NoteInline, "has_change_permission", NoteInline.has_delete_permission)
    monkeypatch.setattr(*OWN_CODE[kind])
    with pytest.raises(Bad):
        UPDATE.call(root, {**ORDER, "pk": order.pk, "values": {"customer": "Bob"}})


def test_a_missing_row_of_an_inline_that_nobody_names_is_asked_for(root: Any, monkeypatch: Any) -> None:
    order = make_order("1")
    monkeypatch.setattr(OrderAdmin, "inlines", [RemarkInline])
    monkeypatch.setattr(RemarkInline, "min_num", 1)
    assert "remarks[0]" in refusal(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob"})


@pytest.mark.parametrize("named", [False, True], ids=["no inline", "another inline"])
def test_standing_rows_are_not_read_where_only_djangos_code_would_see_them(
    root: Any, monkeypatch: Any, named: bool
) -> None:
    order = make_order("1")
    for number in range(3):
        Remark.objects.create(target=order, text=f"standing {number}")
    monkeypatch.setattr(OrderAdmin, "inlines", [RemarkInline, InvoiceInline])
    read: list[int] = []
    monkeypatch.setattr(Remark, "from_db", classmethod(lambda cls, *values: read.append(1)))
    values = {"customer": "Bob", **({"invoice": [{"text": "paid"}]} if named else {})}
    page = RowPage(access_of(root)[root.mcp.site.exposures[Order]], order)
    page.saving(values, "update_record").save()
    assert read == []
    order.refresh_from_db()
    assert order.customer == "Bob"
    assert Invoice.objects.count() == named
    assert Remark.objects.count() == 3


@pytest.mark.parametrize("may_change", [True, False], ids=["all", "without change"])
def test_rows_of_an_inline_with_too_many_for_its_page_are_written_one_by_one(
    root: Any, monkeypatch: Any, may_change: bool
) -> None:
    monkeypatch.setattr("mcp_django.emulation.inline_formsets.MAX_ON_PAGE", 3)
    monkeypatch.setattr(OrderAdmin, "inlines", [NoteInline])
    if may_change:
        monkeypatch.setattr(NoteInline, "has_change_permission", NoteInline.has_delete_permission)
    monkeypatch.setattr(NoteInline, "max_num", 6)
    order = make_order("1")
    notes = [Note.objects.create(order=order, text=str(number)) for number in range(5)]
    first, second, third, *_ = sorted(notes, key=lambda note: note.pk)
    given = [{"pk": str(second.pk), "delete": True}, {"text": "new"}]
    if may_change:
        given.append({"pk": str(third.pk), "text": "changed"})
    updated = call(UPDATE, root, **ORDER, pk=order.pk, values={"note_set": given})
    assert updated["changed"] == ["note_set"]
    kept = {note.text for note in notes if note not in (second, third)}
    texts = {"new", *kept, "changed" if may_change else third.text}
    assert set(order.note_set.values_list("text", flat=True)) == texts
    # The others count.
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"note_set": [{"text": "6"}, {"text": "7"}]})
    assert "at most 6 rows are allowed, not 7" in text
    other = Note.objects.create(order=make_order("2"), text="of another order")
    for wrong in (str(other.pk), "x", True, first.order_id):
        values = {"note_set": [{"pk": wrong, "delete": True}]}
        assert "has no row with this pk" in refusal(UPDATE, root, **ORDER, pk=order.pk, values=values)


def test_rows_of_a_long_inline_that_cannot_be_written_say_so(root: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.emulation.inline_formsets.MAX_ON_PAGE", 0)
    monkeypatch.setattr(OrderAdmin, "inlines", [NoteInline])
    monkeypatch.setattr(NoteInline, "form", OwnForm)
    order = make_order("1")
    Note.objects.create(order=order, text="a")
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"note_set": [{"text": "b"}]})
    assert "They cannot be written here" in text


def test_a_field_called_delete_is_a_field_and_rows_are_deleted_by_another_name(root: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(OrderAdmin, "inlines", [RemarkInline])
    begin = InlinePost.__init__

    def with_delete(post: Any, *given: Any) -> None:
        begin(post, *given)
        post.inline = replace(post.inline, fields=(*post.inline.fields, "delete"))

    monkeypatch.setattr(InlinePost, "__init__", with_delete)
    order = make_order("1")
    remarks = [Remark.objects.create(target=order, text=text) for text in "ab"]
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"remarks": [{"pk": remarks[0].pk, "delete": True}]})
    assert "you cannot write 'delete'" in text
    call(UPDATE, root, **ORDER, pk=order.pk, values={"remarks": [{"pk": remarks[0].pk, "DELETE": True}]})
    assert [remark.text for remark in order.remarks.all()] == ["b"]
