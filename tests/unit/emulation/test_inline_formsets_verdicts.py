"""The formsets of inlines give the verdicts of the admin's page, whose rows and history they leave."""

from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from mcp_django.context.confirmation import QUOTES
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.inlineapp.admin import LineInline, OrderAdmin
from tests.inlineapp.factories import ORDER, URLS, make_order, rows_of, shop_request
from tests.inlineapp.models import Line, Note, Order, Product, Remark, Shipment
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
CREATE, UPDATE = CreateRecord(), UpdateRecord()


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def test_what_is_not_named_keeps_its_value_exactly(root: Any) -> None:
    order = make_order("1", 1)
    line = order.lines.get()
    Line.objects.update(secret_code=" blank ")
    call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"pk": line.pk, "quantity": 2}]})
    line.refresh_from_db()
    assert (line.quantity, line.secret_code) == (2, " blank ")


def test_inlines_that_are_not_named_stay_as_they_are(root: Any) -> None:
    order = make_order("1", 1, 2)
    Shipment.objects.create(code="S1", order=order)
    before = list(Line.objects.values()), list(Shipment.objects.values())
    assert call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob"})["changed"] == ["customer"]
    assert (list(Line.objects.values()), list(Shipment.objects.values())) == before


def admin_posts(client: Any, user: User, order: Order, rows: list[dict[str, Any]], initial: int) -> Any:
    """Post the page of the order with these rows as its lines, and no rows in its other inlines."""
    data: dict[str, Any] = {"number": order.number, "customer": order.customer}
    if order.express:
        data["express"] = "on"
    names = ["lines", "shipments", "returns", "inlineapp-remark-content_type-object_id", "Order_labels", "invoice"]
    for name in [*names, "note_set"]:
        data |= {f"{name}-TOTAL_FORMS": 0, f"{name}-INITIAL_FORMS": 0}
    data |= {"lines-TOTAL_FORMS": len(rows), "lines-INITIAL_FORMS": initial}
    for index, row in enumerate(rows):
        data |= {f"lines-{index}-{name}": value for name, value in {"order": order.pk or "", **row}.items()}
    client.force_login(user)
    page = f"{order.pk}/change/" if order.pk else "add/"
    with override_settings(ROOT_URLCONF=URLS):
        return client.post(f"/shop/inlineapp/order/{page}", data)


def posted(line: Line, **changes: Any) -> dict[str, Any]:
    row = {"id": line.pk, "product": line.product_id, "quantity": line.quantity, "price": line.price}
    return {**row, "secret_code": line.secret_code, **changes}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a changed row": ({}, {"quantity": 5}),
    "a value that is not valid": ({}, {"quantity": -1}),
    "a value that is missing": ({}, {"quantity": ""}),
    "the form's own rule": ({}, {"price": "13"}),
    "the formset's own rule": ({}, {"quantity": 99}),
    "the model's own rule": ({"express": True}, {"quantity": 11}),
    "a row deleted": ({}, {"DELETE": "on"}),
    "the same product twice": ({}, {"product": "other"}),
}


@pytest.mark.parametrize("case", CASES)
def test_G149_the_admins_page_gives_the_same_verdict_rows_and_history(case: str, client: Any, root: Any) -> None:
    settings, change = CASES[case]
    ours, theirs = make_order("1", 2, 3, **settings), make_order("2", 2, 3, **settings)
    other = Product.objects.get(name="P1")
    change = {name: other.pk if value == "other" else value for name, value in change.items()}
    first, second = theirs.lines.order_by("pk")
    response = admin_posts(client, root.user, theirs, [posted(first, **change), posted(second)], 2)
    row = {"pk": ours.lines.order_by("pk")[0].pk, **change}
    if row.pop("DELETE", None):
        row["delete"] = True
    if response.status_code == 302:
        call(UPDATE, root, **ORDER, pk=ours.pk, values={"lines": [row]})
    else:
        text = refusal(UPDATE, root, **ORDER, pk=ours.pk, values={"lines": [row]})
        formset = response.context["inline_admin_formsets"][0].formset
        told = [*formset.non_form_errors()]
        told += [error for errors in formset.errors for found in errors.values() for error in found]
        assert told
        assert all(error in text for error in told)
    assert rows_of(ours) == rows_of(theirs)
    messages = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert len(messages) in (0, 2)
    if messages:
        assert messages[1].removesuffix(" Changed via MCP: Claude (client-1), update_record.") == messages[0]


@pytest.mark.parametrize("quantity", [2, 99, 2000, ""])
def test_G149_the_add_page_gives_the_same_verdict_rows_and_history(quantity: Any, client: Any, root: Any) -> None:
    first, second = (Product.objects.create(name=name) for name in ("P0", "P1"))
    lines = [{"product": first.pk, "quantity": quantity}, {"product": second.pk, "quantity": 3}]
    theirs = Order(number="1", customer="Ada")
    response = admin_posts(client, root.user, theirs, [{"price": 1, **line} for line in lines], 0)
    values = {"number": "2", "customer": "Ada", "lines": lines}
    if response.status_code != 302:
        formset = response.context["inline_admin_formsets"][0].formset
        told = [*formset.non_form_errors()]
        told += [error for errors in formset.errors for found in errors.values() for error in found]
        text = refusal(CREATE, root, **ORDER, values=values)
        assert told
        # What is said of a whole row is quoted, so that its own quotes are single.
        assert all(error in text or error.translate(QUOTES) in text for error in told)
        assert not Order.objects.exists()
        return
    call(CREATE, root, **ORDER, values=values)
    assert rows_of(Order.objects.get(number="2")) == rows_of(Order.objects.get(number="1"))
    messages = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert messages[1] == f"{messages[0]} Added via MCP “Claude (client-1), create_record”."


def test_errors_bear_the_callers_own_positions(root: Any) -> None:
    order = make_order("1", 1)
    line = order.lines.get()
    rows = [{"product": 0}, {"pk": line.pk, "quantity": "many"}, {"nonsense": 1}, {"pk": 99, "quantity": 1}, 5, {}]
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "", "lines": rows})
    assert [row.partition(": ")[0] for row in text.splitlines()[1:]] == [
        *["customer", "lines[2]", "lines[3]", "lines[4]", "lines[1].quantity"],
        *["lines[0].product", "lines[5]"],
    ]
    assert "lines[2]: you cannot write 'nonsense'; valid: product, quantity, price" in text
    assert "lines[1].quantity: Enter a whole number." in text
    assert "lines[0].product: No inlineapp.product has this primary key." in text
    assert rows_of(order) == [("P0", 1, 1)]


def test_H126_a_hidden_inline_cannot_be_named_and_posts_what_it_shows(
    root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LineInline, "mcp_expose", False, raising=False)
    order = make_order("1", 1)
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"pk": order.lines.get().pk, "quantity": 2}]})
    assert "You cannot write 'lines'" in text
    call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob"})
    assert rows_of(order) == [("P0", 1, 1)]
    # Its rules hold all the same, and nothing is told of them.
    Line.objects.update(quantity=11)
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"express": True})
    assert text == "Nothing was saved:\n(another field): its value is missing or not valid, and you cannot set it here"


def test_H142_one_entry_tells_of_the_row_and_its_inlines(root: Any) -> None:
    order = make_order("1", 1, 2)
    first, second = order.lines.order_by("pk")
    rows = [{"pk": first.pk, "quantity": 5}, {"pk": second.pk, "delete": True}]
    call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob", "lines": rows})
    entry = LogEntry.objects.get()
    assert (entry.user, entry.action_flag, entry.object_id) == (root.user, CHANGE, str(order.pk))
    assert entry.get_change_message() == (
        "Changed Customer. Changed Quantity for line “5 of P0”. Deleted line “2 of P1”. "
        "Changed via MCP: Claude (client-1), update_record."
    )


@pytest.mark.parametrize("hook", ["save_formset", "log_change", "save_related"])
def test_H143_what_fails_undoes_rows_of_inlines_and_history(
    root: Any, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = make_order("1", 1)
    real = getattr(OrderAdmin, hook)

    def fail(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        raise RuntimeError(hook)

    monkeypatch.setattr(OrderAdmin, hook, fail)
    rows = [{"pk": order.lines.get().pk, "quantity": 7}]
    with pytest.raises(RuntimeError, match=hook):
        call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob", "lines": rows, "remarks": [{"text": "x"}]})
    assert (Order.objects.get().customer, rows_of(order)) == ("Ada", [("P0", 1, 1)])
    assert not Remark.objects.exists()
    assert not LogEntry.objects.exists()
    assert (root.method, dict(root.POST)) == ("POST", {})


def test_the_hooks_see_what_a_page_would_post(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    order = make_order("1", 1)
    real = OrderAdmin.save_related

    def look(self: Any, request: Any, form: Any, formsets: Any, change: bool) -> None:
        seen.append((request.method, request.POST["lines-0-quantity"], request.POST["lines-TOTAL_FORMS"], change))
        seen.append([formset.prefix for formset in formsets][:3])
        real(self, request, form, formsets, change)

    monkeypatch.setattr(OrderAdmin, "save_related", look)
    call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [{"pk": order.lines.get().pk, "quantity": 7}]})
    assert seen == [("POST", "7", "1", True), ["lines", "shipments", "returns"]]


def test_row_119_the_queries_of_an_update_do_not_grow_with_the_rows(root: Any) -> None:
    few, many = make_order("1", 1), make_order("2", *[1] * 9)

    def count(order: Order) -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            order.customer += "!"
            call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": order.customer})
        return len(queries)

    count(few)
    assert count(many) == count(few)


def test_a_row_that_may_only_be_viewed_takes_no_value_of_a_wrong_type_either(root: Any) -> None:
    order = make_order("1")
    note = Note.objects.create(order=order, text="old")
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"note_set": [{"pk": str(note.pk), "text": ["a"]}]})
    assert text == "Nothing was saved:\nnote_set[0]: you may not change this row"


def test_slugs_of_new_rows_are_filled_in_as_the_page_does(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineInline, "prepopulated_fields", {"price": ("quantity",)})
    order = make_order("1")
    row = {"product": Product.objects.create(name="P").pk, "quantity": 7}
    call(UPDATE, root, **ORDER, pk=order.pk, values={"lines": [row]})
    assert rows_of(order) == [("P", 7, 7)]
