"""The footprint of a page's form is what saving it writes, with links and inlines, in all tables."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.contenttypes.admin import GenericTabularInline
from django.db import connection, transaction
from django.db.models import F
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django import site as default_site
from mcp_django.differences.footprints import Footprint, StoredDifference
from mcp_django.differences.restoring import Restoration
from mcp_django.emulation.saving import RowPage
from mcp_django.exceptions import ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.database_writes import one_transaction
from tests.factories import make_author, make_book, make_superuser
from tests.fieldapp.models import Club, Guest, Membership, Night, Passport, Place, Restaurant
from tests.fieldapp.models import Remark as GuestRemark
from tests.inlineapp.admin import InvoiceInline, OrderAdmin, RemarkInline, ShipmentInline
from tests.inlineapp.factories import make_order, shop_request
from tests.inlineapp.models import Claim, Invoice, Label, Line, Note, Order, Product, Remark, Shipment
from tests.oddapp.admin import odd
from tests.oddapp.models import Task
from tests.project.test_work import calls_of
from tests.testapp.models import AudioBook, Author, Book, Tag
from tests.tool_calls import request_of
from tests.unit.differences.all_rows import changes_of, changing, dump, tables_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
APPS = tables_of("testapp", "fieldapp", "inlineapp", "oddapp")


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def own_request(model: Any, model_admin: Any, **options: Any) -> Any:
    """Return a request to a site with this page alone, registered as an exposure if there are options."""
    admin_site = admin.AdminSite(name="admin")
    admin_site.register(model, model_admin)
    site = MCPSite("own", admin_site=admin_site)
    if options:
        site.register(model, ModelExposure, **options)
    user = User.objects.filter(username="root").first()
    return request_of(user or make_superuser(), site)


def save(
    request: Any, model: Any, obj: Any, values: dict[str, Any], unsure: Any = ()
) -> tuple[StoredDifference, Footprint]:
    """Save a page; what its footprint tells must be what has happened in all tables."""
    access = access_of(request)[request.mcp.site.exposures[model]]
    page = RowPage(access, obj)
    footprint = Footprint("default")
    were = dump(APPS)
    with changing(APPS) as happened, one_transaction(model, request):
        footprint.add_form(page, values)
        footprint.before()
        with footprint.watching():
            saved, _ = page.saving(values, "update_record").save()
        if obj is None:
            footprint.created(saved)
        difference = footprint.after()
    assert changes_of(difference) == happened
    assert happened.keys() <= footprint.tables
    assert not footprint.unsure

    # Taken back, all rows are as they were.
    with transaction.atomic():
        Restoration(StoredDifference.from_json(difference.to_json())).run()
        assert dump(APPS) == were
        transaction.set_rollback(True)
    return difference, footprint


# Rows and links


def test_a_page_without_inlines_reads_its_row_and_its_links(django_assert_num_queries: Any) -> None:
    request = own_request(Book, admin.ModelAdmin)
    book = make_book()
    book.tags.add(*[Tag.objects.create(name=f"T{number}") for number in range(5)])
    difference, footprint = save(request, Book, book, {"title": "New"})
    assert difference.changes.keys() == {Book}
    assert footprint.tables == {"testapp_book", "testapp_book_tags"}


def test_links_that_are_named_or_written_by_a_hook() -> None:
    first, second, third = (Tag.objects.create(name=name) for name in "ABC")

    class Hooked(admin.ModelAdmin):
        def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
            super().save_related(request, form, formsets, change)
            Book.tags.through.objects.filter(tag=second).update(tag=third)
            Book.objects.filter(pk=form.instance.pk).update(pages=F("pages") + 1)

    request = own_request(Book, Hooked)
    book = make_book()
    book.tags.add(first, second)
    difference, _ = save(request, Book, book, {"title": "New"})
    assert difference.counts()[Book.tags.through] == {"changed": 1, "added": 0, "deleted": 0}
    book = Book.objects.get()
    difference, _ = save(request, Book, book, {"tags": [second.pk]})
    assert difference.counts()[Book.tags.through] == {"changed": 0, "added": 1, "deleted": 2}


def test_links_to_the_same_model_go_in_both_directions() -> None:
    request = own_request(Guest, admin.ModelAdmin)
    ada, bob, eve = (Guest.objects.create(name=name) for name in ("Ada", "Bob", "Eve"))
    ada.friends.add(bob)
    difference, _ = save(request, Guest, ada, {"friends": [eve.pk]})
    assert difference.counts()[Guest.friends.through] == {"changed": 0, "added": 2, "deleted": 2}


def test_links_with_columns_of_their_own_are_read_where_a_form_writes_them() -> None:
    guest = Guest.objects.create(name="G")
    clubs = [Club.objects.create(name=name) for name in "AB"]
    membership = Membership.objects.create(guest=guest, club=clubs[0])
    _, footprint = save(own_request(Guest, admin.ModelAdmin), Guest, guest, {"name": "H"})
    assert Membership._meta.db_table not in footprint.tables

    class GuestSerializer(serializers.ModelSerializer):
        clubs = serializers.PrimaryKeyRelatedField(many=True, queryset=Club.objects.all())

        class Meta:
            model = Guest
            fields = ["id", "name", "clubs"]

    request = own_request(Guest, admin.ModelAdmin, fields=["id", "name", "clubs"], serializer_class=GuestSerializer)
    difference, _ = save(request, Guest, guest, {"name": "I", "clubs": [clubs[1].pk]})
    assert difference.counts()[Membership] == {"changed": 0, "added": 1, "deleted": 1}
    assert next(iter(difference.keys(Membership))) in [(membership.pk,), (str(membership.pk),)]
    difference, _ = save(request, Guest, None, {"name": "J", "clubs": [clubs[1].pk]})
    assert difference.counts()[Membership]["added"] == 1


def test_fields_of_the_list_are_columns_of_the_row() -> None:
    request = request_of(make_superuser(), MCPSite("odd", admin_site=odd))
    task = Task.objects.create(name="T")
    difference, _ = save(request, Task, task, {"rank": 7, "name": "U"})
    assert changes_of(difference)["oddapp_task"] == {str(task.pk): {"rank", "name"}}


def test_a_child_table_and_its_parent() -> None:
    request = own_request(Restaurant, admin.ModelAdmin)
    made, _ = save(request, Restaurant, None, {"name": "R", "cuisine": "C"})
    assert made.counts() == {model: {"changed": 0, "added": 1, "deleted": 0} for model in (Restaurant, Place)}
    difference, _ = save(request, Restaurant, Restaurant.objects.get(), {"name": "S"})
    assert difference.changes.keys() == {Place}


# Inlines


def test_a_new_row_with_rows_of_every_kind_of_inline(root: Any) -> None:
    product = Product.objects.create(name="P")
    label = Label.objects.create(name="red")
    values = {
        "number": "7",
        "lines": [{"product": product.pk, "quantity": 2}],
        "shipments": [{"code": "S1"}],
        "remarks": [{"text": "hello"}],
        "Order_labels": [{"label": label.pk}],
        "invoice": [{"text": "paid"}],
        "note_set": [{"text": "mind"}],
    }
    difference, _ = save(root, Order, None, values)
    assert {model: kinds["added"] for model, kinds in difference.counts().items()} == dict.fromkeys(
        [Order, Line, Shipment, Remark, Order.labels.through, Invoice, Note], 1
    )


@pytest.mark.parametrize("as_text", [False, True], ids=["list", "text"])
def test_rows_of_inlines_that_are_changed_added_and_deleted(root: Any, as_text: bool) -> None:
    order = make_order("1", 1, 2, 3)
    other = make_order("2", 4)
    kept, changed, deleted = order.lines.order_by("pk")
    shipment = Shipment.objects.create(code="S", order=order)
    shipment.lines.add(kept, deleted)
    other_shipment = Shipment.objects.create(code="O", order=other)
    other_shipment.lines.add(deleted)
    remark = Remark.objects.create(target=order, text="old")
    rows: Any = [{"pk": changed.pk, "quantity": 9}, {"pk": str(deleted.pk), "delete": True}]
    values = {
        "lines": json.dumps(rows) if as_text else rows,
        "shipments": [{"pk": "S", "lines": [changed.pk]}],
        "remarks": [{"pk": remark.pk, "delete": True}, {"text": "new"}],
    }
    difference, _ = save(root, Order, order, values)

    # The deleted line takes its links to shipments along, of another order too.
    assert difference.counts() == {
        Line: {"changed": 1, "added": 0, "deleted": 1},
        Shipment.lines.through: {"changed": 0, "added": 1, "deleted": 3},
        Remark: {"changed": 0, "added": 1, "deleted": 1},
    }


def test_inlines_that_are_left_out_are_not_read(monkeypatch: Any) -> None:
    monkeypatch.setattr(OrderAdmin, "inlines", [RemarkInline, InvoiceInline, ShipmentInline])
    root = shop_request(make_superuser())
    order = make_order("1")
    Remark.objects.create(target=order, text="old")
    _, footprint = save(root, Order, order, {"customer": "Bob"})
    assert footprint.tables == {"inlineapp_order", "inlineapp_order_labels"}
    _, footprint = save(root, Order, order, {"customer": "Eve", "invoice": [{"text": "paid"}]})
    assert footprint.tables == {"inlineapp_order", "inlineapp_order_labels", "inlineapp_invoice"}


def test_inlines_of_which_a_hook_sees_the_rows_are_read(monkeypatch: Any) -> None:
    order = make_order("1", 1, 2)

    def save_related(self: Any, request: Any, form: Any, formsets: Any, change: bool) -> None:
        admin.ModelAdmin.save_related(self, request, form, formsets, change)
        Line.objects.filter(order=form.instance).update(price=F("price") * 2)

    monkeypatch.setattr(OrderAdmin, "save_related", save_related)
    difference, _ = save(shop_request(make_superuser()), Order, order, {"customer": "Bob"})
    assert difference.counts()[Line]["changed"] == 2


def test_a_row_that_a_hook_moves_to_another_parent_is_read_by_its_key(monkeypatch: Any) -> None:
    order = make_order("1", 1)
    other = make_order("2")

    def save_related(self: Any, request: Any, form: Any, formsets: Any, change: bool) -> None:
        admin.ModelAdmin.save_related(self, request, form, formsets, change)
        Line.objects.update(order=other)

    monkeypatch.setattr(OrderAdmin, "save_related", save_related)
    difference, _ = save(shop_request(make_superuser()), Order, order, {"customer": "Bob"})
    assert changes_of(difference)["inlineapp_line"] == {str(Line.objects.get().pk): {"order_id"}}


def test_protected_inline_rows_are_refused_by_the_form(root: Any) -> None:
    order = make_order("1", 1)
    line = order.lines.get()
    Claim.objects.create(line=line, text="broken")
    with pytest.raises(ToolError, match="protected"):
        save(root, Order, order, {"lines": [{"pk": line.pk, "delete": True}]})


def test_only_rows_of_the_page_are_read_whatever_keys_are_given(root: Any) -> None:
    order = make_order("1", 1)
    foreign = make_order("2", 2).lines.get()
    access = access_of(root)[root.mcp.site.exposures[Order]]
    footprint = Footprint("default")
    rows = [{"pk": foreign.pk, "delete": True}, {"pk": "x'y", "delete": True}, {"pk": None, "delete": True}, 7]
    footprint.add_form(RowPage(access, order), {"lines": rows})
    footprint.before()
    assert {int(str(key)) for (key,) in footprint._before[Line]} == {order.lines.get().pk}


class AudioInline(admin.StackedInline):
    model = AudioBook
    fields = ["title", "isbn", "price", "narrator"]


class AuthorPage(admin.ModelAdmin):
    inlines = [AudioInline]


def test_inline_rows_of_several_tables() -> None:
    request = own_request(Author, AuthorPage)
    author = make_author()
    first = AudioBook.objects.create(title="A", author=author, isbn="1", price=1, narrator="N")
    second = AudioBook.objects.create(title="B", author=author, isbn="2", price=1, narrator="N")
    second.tags.add(Tag.objects.create(name="T"))
    plain = make_book("Plain", author=author)
    rows = [
        {"pk": first.pk, "title": "C", "narrator": "M"},
        {"pk": second.pk, "delete": True},
        {"title": "D", "isbn": "3", "price": "2", "narrator": "O"},
    ]
    difference, _ = save(request, Author, author, {"books": rows})
    assert difference.counts() == {
        Book: {"changed": 1, "added": 1, "deleted": 1},
        AudioBook: {"changed": 1, "added": 1, "deleted": 1},
        Book.tags.through: {"changed": 0, "added": 0, "deleted": 1},
    }
    assert Book.objects.filter(pk=plain.pk).exists()


class RemarkOfGuestInline(GenericTabularInline):
    model = GuestRemark


class PassportInline(admin.TabularInline):
    model = Passport


class NightInline(admin.TabularInline):
    model = Night


class GuestPage(admin.ModelAdmin):
    inlines = [RemarkOfGuestInline, PassportInline]


def test_a_generic_inline_reads_rows_of_other_models_and_leaves_them() -> None:
    request = own_request(Guest, GuestPage)
    guest = Guest.objects.create(name="G")
    club = Club.objects.create(pk=guest.pk, name="C")
    GuestRemark.objects.create(target=club, text="of the club")
    mine = GuestRemark.objects.create(target=guest, text="of the guest")
    difference, _ = save(
        request, Guest, guest, {"remarks": [{"pk": mine.pk, "text": "new"}], "passport": [{"number": "1"}]}
    )
    assert difference.counts() == {
        GuestRemark: {"changed": 1, "added": 0, "deleted": 0},
        Passport: {"changed": 0, "added": 1, "deleted": 0},
    }


def test_many_pages_cost_two_statements_a_table(django_assert_num_queries: Any) -> None:
    request = own_request(Book, admin.ModelAdmin)
    access = access_of(request)[request.mcp.site.exposures[Book]]
    books = [make_book(f"B{number}") for number in range(30)]
    books[0].tags.add(Tag.objects.create(name="T"))
    footprint = Footprint("default")
    for book in books:
        footprint.add_form(RowPage(access, book), {"title": "New"})
    with django_assert_num_queries(2):
        footprint.before()
    with django_assert_num_queries(2):
        assert not footprint.after()


# Rows that only seem new


def test_a_row_that_a_hook_moves_here_is_not_taken_for_a_new_one(monkeypatch: Any) -> None:
    product = Product.objects.create(name="P")
    order = make_order("1", 1)
    other = make_order("2", 2, 3)

    def save_related(self: Any, request: Any, form: Any, formsets: Any, change: bool) -> None:
        admin.ModelAdmin.save_related(self, request, form, formsets, change)
        moved = other.lines.order_by("pk").last()
        Line.objects.filter(pk=moved.pk).update(order=form.instance)

    monkeypatch.setattr(OrderAdmin, "save_related", save_related)
    access = access_of(root := shop_request(make_superuser()))[root.mcp.site.exposures[Order]]
    lines = [{"product": product.pk}]
    for values in ({"customer": "Bob"}, {"lines": lines}):
        footprint = Footprint("default")
        with transaction.atomic():
            footprint.add_form(RowPage(access, order), values)
            footprint.before()
            with footprint.watching():
                RowPage(access, order).saving(values, "update_record").save()
            footprint.after()
            assert footprint.unsure == [Line]
            transaction.set_rollback(True)


def test_an_older_row_that_a_hook_saves_in_place_of_a_new_one() -> None:
    old = Tag.objects.create(name="old")

    class Merging(admin.ModelAdmin):
        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            obj.pk = old.pk
            obj.save(force_update=True)

    request = own_request(Tag, Merging)
    access = access_of(request)[request.mcp.site.exposures[Tag]]
    page = RowPage(access, None)
    footprint = Footprint("default")
    footprint.add_form(page, {"name": "new"})
    footprint.before()
    with footprint.watching():
        saved, _ = page.saving({"name": "new"}, "create_record").save()
    footprint.created(saved)
    assert footprint.after().counts()[Tag]["added"] == 1
    assert footprint.unsure == [Tag]


def test_rows_that_one_statement_makes_are_new(monkeypatch: Any) -> None:
    order = make_order("1", 1)
    products = [Product.objects.create(name=f"New {number}") for number in range(3)]

    def save_related(self: Any, request: Any, form: Any, formsets: Any, change: bool) -> None:
        admin.ModelAdmin.save_related(self, request, form, formsets, change)
        Line.objects.bulk_create(Line(order=order, product=product) for product in products)

    monkeypatch.setattr(OrderAdmin, "save_related", save_related)
    difference, _ = save(shop_request(make_superuser()), Order, order, {"customer": "Bob"})
    assert difference.counts()[Line]["added"] == 3


# Cost


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other drivers are more functions")
def test_a_form_and_both_reads_of_its_row_are_few_calls_of_functions() -> None:
    root = request_of(make_superuser())
    page = RowPage(access_of(root)[default_site.exposures[Author]], make_author())

    def act() -> None:
        footprint = Footprint("default")
        footprint.add_form(page, {"name": "New"})
        footprint.before()
        footprint.after()

    made = calls_of(act)
    assert made <= 250, made
