"""Whose rights decide on rows that go back: those of the page for inline rows and links, of the model for the rest."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.tools.undo_change import UndoChange
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_book, make_superuser, make_user
from tests.fieldapp.models import Guest, Restaurant, Seat
from tests.inlineapp.admin import LineInline
from tests.inlineapp.factories import make_order, shop_request
from tests.inlineapp.models import Invoice, Label, Line, Note, Order, Product, Remark, Shipment
from tests.testapp.models import Book, Tag
from tests.tool_calls import call, refusal, request_of, site_with
from tests.unit.differences.all_rows import dump, tables_of

pytestmark = pytest.mark.django_db
CREATE, UPDATE, DELETE, UNDO = CreateRecord(), UpdateRecord(), DeleteRecord(), UndoChange()
ORDER = {"model": "inlineapp.order"}


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def rows() -> Any:
    return dump(tables_of("testapp", "inlineapp"))


def confirmed(tool: Any, request: Any, **arguments: Any) -> Any:
    shown = call(tool, request, **arguments)
    if "confirm_token" not in shown:
        return shown
    return call(tool, request, **arguments, confirm_token=shown["confirm_token"])


def update(request: Any, obj: Any, **values: Any) -> int:
    done = confirmed(UPDATE, request, model=obj._meta.label_lower, pk=str(obj.pk), values=values)
    number: int = done["change"]
    return number


def undo(request: Any, number: int) -> int:
    back: int = confirmed(UNDO, request, change=number)["change"]
    return back


def again(request: Any) -> Any:
    """Return a request of the same user with the permissions that they have now."""
    return shop_request(User.objects.get(pk=request.user.pk))


def of_name(codename: str) -> Permission:
    return Permission.objects.get(codename=codename, content_type__app_label__in=["inlineapp", "testapp"])


def lose(request: Any, *codenames: str) -> Any:
    request.user.user_permissions.remove(*map(of_name, codenames))
    return again(request)


EVERY = [f"inlineapp.{deed}_{name}" for deed in ("view", "add", "change", "delete") for name in ("order", "line")]
FULL = {
    "shipments": [{"code": "S1"}],
    "remarks": [{"text": "Fragile"}],
    "invoice": [{"text": "Paid"}],
    "note_set": [{"text": "Ring twice"}],
}


def test_inline_rows_of_every_kind_go_back(root: Any) -> None:
    order = make_order()
    label = Label.objects.create(name="urgent")
    product = Product.objects.create(name="Lamp")
    before = rows()
    values = {**FULL, "lines": [{"product": product.pk, "quantity": 2}], "Order_labels": [{"label": label.pk}]}
    number = update(root, order, customer="Zoe", **values)
    changed = rows()
    assert all(model.objects.exists() for model in (Line, Shipment, Remark, Invoice, Note))
    assert order.labels.get() == label
    back = undo(root, number)
    assert rows() == before
    undo(root, back)
    assert rows() == changed
    number = confirmed(DELETE, root, **ORDER, pk=order.pk)["change"]
    undo(root, number)
    assert rows() == changed


def test_inline_rows_need_the_rights_of_their_page() -> None:
    request = shop_request(make_user("ann", *EVERY, "inlineapp.view_product"))
    order = make_order()
    product = Product.objects.create(name="Lamp")
    number = update(request, order, lines=[{"product": product.pk, "quantity": 2}])
    line = Line.objects.get(product=product)
    second = update(request, order, lines=[{"pk": line.pk, "quantity": 3}])
    before = rows()
    without = lose(request, "change_line", "delete_line")
    assert "You may not change" in refusal(UNDO, without, change=second)
    assert rows() == before
    request.user.user_permissions.add(of_name("change_line"))
    undo(again(request), second)
    assert "You may not delete" in refusal(UNDO, again(request), change=number)
    # Who may no longer change the page, may not change its rows by it either.
    request.user.user_permissions.add(of_name("delete_line"))
    undo(again(request), number)


@pytest.fixture
def own_pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a request to a site where lines are only rows of the page of their order."""
    admin_site = admin.AdminSite(name="admin")
    page = type("OrderPage", (admin.ModelAdmin,), {"inlines": [LineInline], "fields": ["number", "customer", "labels"]})
    admin_site.register(Order, page)
    admin_site.register(Product, type("ProductPage", (admin.ModelAdmin,), {"search_fields": ["name"]}))
    admin_site.register(Label)
    site = MCPSite("own", admin_site=admin_site)

    def make(user: Any) -> Any:
        return request_of(User.objects.get(pk=user.pk), site)

    return make


def test_rows_of_models_without_a_page_of_their_own_need_the_inline_and_its_page(own_pages: Any) -> None:
    user = make_user("ann", *EVERY, "inlineapp.view_product")
    order = make_order()
    product = Product.objects.create(name="Lamp")
    number = update(own_pages(user), order, lines=[{"product": product.pk, "quantity": 2}])
    before = rows()
    for lost in ("delete_line", "change_order"):
        permission = of_name(lost)
        user.user_permissions.remove(permission)
        assert "cannot see or may not write" in refusal(UNDO, own_pages(user), change=number)
        assert rows() == before
        user.user_permissions.add(permission)
    undo(own_pages(user), number)
    assert not Line.objects.filter(product=product).exists()


def test_links_need_the_page_of_the_row_that_has_the_field(own_pages: Any) -> None:
    user = make_user("ann", *EVERY, "inlineapp.view_label")
    label = Label.objects.create(name="urgent")
    order = make_order()
    number = update(own_pages(user), order, labels=[label.pk])
    before = rows()
    permission = of_name("change_order")
    user.user_permissions.remove(permission)
    assert refusal(UNDO, own_pages(user), change=number) == (
        "It also wrote rows that you cannot see or may not write now. Nothing was changed. Ask somebody who may write "
        "all of these rows to take it back in the admin, or write the values that you want to the rows that you see."
    )
    assert rows() == before
    user.user_permissions.add(permission)
    shown = call(UNDO, own_pages(user), change=number, dry_run=True)
    assert shown["counts"] == {"inlineapp.order": {"changed": 1}}
    undo(own_pages(user), number)
    assert not order.labels.exists()


def test_what_a_deletion_took_along_needs_the_right_of_its_model() -> None:
    names = [f"testapp.{deed}_{name}" for deed in ("view", "add", "delete") for name in ("book", "loan", "placement")]
    user = make_user("ann", *names, "testapp.change_book")
    book = make_book("Dune", owner=user)
    book.tags.add(Tag.objects.create(name="sand"))
    book.loans.create(borrower="Ann", due="2030-01-01T00:00Z")
    before = rows()
    number = confirmed(DELETE, request_of(user), model="testapp.book", pk=book.pk)["change"]
    gone = rows()
    user.user_permissions.remove(of_name("add_loan"))
    assert "may not add testapp.loan" in refusal(UNDO, request_of(User.objects.get(pk=user.pk)), change=number)
    assert rows() == gone
    user.user_permissions.add(of_name("add_loan"))
    undo(request_of(User.objects.get(pk=user.pk)), number)
    assert rows() == before


def test_rows_that_the_queryset_hides_by_now_are_not_written(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[str] = []

    class Own(ModelExposure):
        fields = ["id", "name"]

        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).exclude(name__in=hidden)

    site = MCPSite("own")
    site.register(Tag, Own)
    request = request_of(root.user, site)
    tag = Tag.objects.create(name="sand")
    for hide in ("dust", "sand"):
        hidden.clear()
        number = update(request, Tag.objects.get(), name="dust")
        hidden.append(hide)
        before = rows()
        told = refusal(UNDO, request, change=number)
        assert "cannot see" in told
        assert "dust" not in told
        assert "sand" not in told
        assert rows() == before
        Tag.objects.filter(pk=tag.pk).update(name="sand")


def test_hidden_columns_go_back_with_the_whole_write_alone(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(ModelExposure):
        fields = ["id", "title"]

        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            obj.pages = 99
            obj.save()

    site = MCPSite("own")
    site.register(Book, Own)
    request = request_of(root.user, site)
    book = make_book("Dune")
    before = rows()
    number = update(request, book, title="Dune 2")
    shown = call(UNDO, request, change=number, dry_run=True)
    assert "pages" not in str(shown)
    Book.objects.filter(pk=book.pk).update(pages=98)
    told = refusal(UNDO, request, change=number)
    assert "Book Dune 2 was changed since." in told
    assert "pages" not in told
    Book.objects.filter(pk=book.pk).update(pages=99)
    undo(request, number)
    assert rows() == before


def test_statements_of_an_undo_do_not_depend_on_the_number_of_rows(root: Any) -> None:
    request = request_of(root.user)
    author = make_book("First").author

    def statements(number_of_rows: int) -> int:
        for number in range(number_of_rows):
            make_book(author=author, isbn=f"{number_of_rows}-{number}")
        filters = {"isbn__startswith": f"{number_of_rows}-"}
        change = confirmed(UPDATE, request, model="testapp.book", filters=filters, values={"pages": 7})["change"]
        shown = call(UNDO, request_of(root.user), change=change)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            call(UNDO, request_of(root.user), change=change, confirm_token=shown["confirm_token"])
        return len(queries)

    assert statements(25) == statements(60)


@pytest.mark.parametrize("hook", ["get_readonly_fields", "get_fields"])
def test_a_field_that_is_closed_to_the_caller_by_now_is_not_written(root: Any, hook: str) -> None:
    closed: list[str] = []

    class Own(ModelExposure):
        fields = ["id", "title", "price", "pages"]

        def get_readonly_fields(self, request: Any, obj: Any = None) -> Any:
            return closed if hook == "get_readonly_fields" else []

        def get_fields(self, request: Any, obj: Any = None) -> Any:
            names = super().get_fields(request, obj)
            return [name for name in names if hook != "get_fields" or name not in closed]

        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            obj.pages += 1
            obj.save()

    site = MCPSite("own")
    site.register(Book, Own)
    book = make_book("Dune", price="5.00")
    number = update(request_of(root.user, site), book, price="6.00")
    before = rows()
    closed.append("price")
    told = refusal(UNDO, request_of(root.user, site), change=number)
    refused = f"You may not change price of testapp.book {book.pk} now, which this needs. Nothing was changed."
    assert told.startswith(f"{refused} Ask somebody who may write all of these rows")
    assert rows() == before
    # What hooks wrote besides goes back all the same.
    closed[:] = ["pages"]
    back = undo(request_of(root.user, site), number)
    assert str(Book.objects.get().price) == "5.00"
    closed[:] = ["price"]
    assert "may not change price" in refusal(UNDO, request_of(root.user, site), change=back)


def test_a_field_that_the_state_of_the_row_has_closed_goes_back(root: Any) -> None:
    class Own(ModelExposure):
        fields = ["id", "title", "status"]

        def get_readonly_fields(self, request: Any, obj: Any = None) -> Any:
            return ["status"] if obj is not None and obj.status == "published" else []

    site = MCPSite("own")
    site.register(Book, Own)
    book = make_book("Dune")
    number = update(request_of(root.user, site), book, status="published")
    undo(request_of(root.user, site), number)
    assert Book.objects.get().status == "draft"


def test_rows_with_keys_of_two_columns_go_back_with_what_they_refer_to(root: Any) -> None:
    site = site_with(Guest, Seat)
    request = request_of(root.user, site)
    guest = Guest.objects.create(name="Ann")
    Seat.objects.create(hall="a", number=1, guest=guest)
    before = dump(tables_of("fieldapp"))
    number = confirmed(UPDATE, request, model="fieldapp.seat", pk=["a", 1], values={"note": "Window"})["change"]
    undo(request, number)
    assert dump(tables_of("fieldapp")) == before
    # The deletion of the guest leaves an empty seat.
    number = confirmed(DELETE, request, model="fieldapp.guest", pk=guest.pk)["change"]
    assert Seat.objects.get().guest is None
    back = undo(request, number)
    assert dump(tables_of("fieldapp")) == before
    undo(request, back)
    assert Seat.objects.get().guest is None
    number = confirmed(DELETE, request, model="fieldapp.seat", pk=["a", 1])["change"]
    assert Seat.objects.count() == 0
    undo(request, number)
    assert Seat.objects.get().pk == ("a", 1)


def test_a_parent_that_nobody_registered_goes_back_with_its_child(root: Any) -> None:
    request = request_of(root.user, site_with(Restaurant))
    restaurant = Restaurant.objects.create(name="Chez Ann", cuisine="French")
    before = dump(tables_of("fieldapp"))
    number = update(request, restaurant, name="Chez Bob")
    assert undo(request, number)
    assert dump(tables_of("fieldapp")) == before
    number = confirmed(DELETE, request, model="fieldapp.restaurant", pk=restaurant.pk)["change"]
    undo(request, number)
    assert dump(tables_of("fieldapp")) == before
