"""Writes that are tried first: what is shown is what is then done, and trying leaves nothing."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.differences.kept_changes import Changes
from mcp_django.models import Change
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser
from tests.fieldapp.models import Sample, Seat
from tests.inlineapp.admin import shop
from tests.inlineapp.models import Line, Order, Product
from tests.testapp.models import Author, Book, Loan, Note, Tag
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.django_db

CREATE, UPDATE, DELETE = CreateRecord(), UpdateRecord(), DeleteRecord()
BOOK = {"model": "testapp.book"}


@pytest.fixture
def root():
    return request_of(make_superuser())


def everything():
    return [list(model._base_manager.order_by("pk").values()) for model in (Author, Book, Loan, Tag, LogEntry, Change)]


def tried(tool, request, **arguments):
    """Try a call, which must leave nothing, and return what it shows."""
    before = everything()
    shown = call(tool, request, dry_run=True, **arguments)
    assert everything() == before
    assert shown.pop("dry_run") is True
    return shown


def test_a_dry_run_shows_the_columns_of_a_row_before_and_after(root):
    author = make_author("Frank")
    book = make_book("Dune", price="5.00")
    shown = tried(UPDATE, root, **BOOK, pk=book.pk, values={"price": "6.00", "author": author.pk})
    assert shown["summary"] == f"book Dune: author {book.author.name} -> Frank, price 5.00 -> 6.00"
    assert shown["counts"] == {"testapp.book": {"changed": 1}}
    [row] = shown["changed"]["testapp.book"]
    assert row == {
        "pk": book.pk,
        "label": "Dune",
        "columns": {
            "author": [[book.author_id, book.author.name], [author.pk, "Frank"]],
            "price": ["5.00", "6.00"],
        },
    }


def test_what_hooks_change_is_part_of_the_difference(root, monkeypatch):
    def save_model(self, request, obj, form, change):
        super(type(self), self).save_model(request, obj, form, change)
        Book.objects.filter(pk=obj.pk).update(pages=99)
        Loan.objects.filter(book=obj).update(borrower="Zoe")

    monkeypatch.setattr(type(admin.site.get_model_admin(Book)), "save_model", save_model)
    book = make_book("Dune")
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    shown = tried(UPDATE, root, **BOOK, pk=book.pk, values={"title": "Dune 2"})
    [row] = shown["changed"]["testapp.book"]
    assert row["columns"] == {"title": ["Dune", "Dune 2"], "pages": [0, 99]}
    # The write does not take these back, as it does not know of them.
    assert shown["also_written"] == ["testapp_loan"]


def test_the_table_of_other_rows_that_hooks_change_is_told(root, monkeypatch):
    others = [make_book(), make_book()]

    def save_model(self, request, obj, form, change):
        super(type(self), self).save_model(request, obj, form, change)
        Book.objects.filter(pages=77).update(pages=78)

    monkeypatch.setattr(type(admin.site.get_model_admin(Book)), "save_model", save_model)
    book = make_book("Dune")
    arguments = {**BOOK, "pk": book.pk, "values": {"title": "Dune 2"}}
    assert "also_written" not in tried(UPDATE, root, **arguments)
    Book.objects.filter(pk=others[0].pk).update(pages=77)
    shown = tried(UPDATE, root, **arguments)
    assert shown["counts"] == {"testapp.book": {"changed": 1}}
    assert shown["also_written"] == ["testapp_book"]


@pytest.mark.parametrize("make", [lambda: make_author(), lambda: Author.objects.filter(name="old").delete()])
def test_the_table_of_other_rows_that_hooks_make_or_delete_is_told(root, monkeypatch, make):
    def save_model(self, request, obj, form, change):
        super(type(self), self).save_model(request, obj, form, change)
        make()

    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "save_model", save_model)
    author = make_author("Ada")
    make_author("old")
    shown = tried(UPDATE, root, model="testapp.author", pk=author.pk, values={"name": "Ann"})
    assert "testapp_author" in shown["also_written"]


def test_a_new_row_is_shown_without_what_is_set_when_it_is_written(root):
    values = {"title": "Dune", "author": make_author("Frank").pk, "isbn": "1", "price": "1"}
    shown = tried(CREATE, root, **BOOK, values=values)
    assert shown["summary"] == "book Dune added"
    [row] = shown["added"]["testapp.book"]
    assert "pk" not in row
    assert row["columns"]["price"] == "1.00"
    assert row["columns"].get("created", "(set when written)") == "(set when written)"


def test_defaults_that_are_drawn_at_random_are_set_when_the_row_is_written(root):
    request = request_of(root.user, site_with(Author, Book))
    values = {"title": "Dune", "author": make_author("Frank").pk, "isbn": "1", "price": "1", "data": {}}
    columns = tried(CREATE, request, **BOOK, values=values)["added"]["testapp.book"][0]["columns"]
    assert columns["uuid"] == "(set when written)"
    # One that is the same each time is shown.
    assert columns["status"] == "draft"
    given = str(uuid4())
    request = request_of(root.user, site_with(Author, Book, Sample))
    shown = tried(CREATE, request, model="fieldapp.sample", values={"name": "a", "key": given})
    assert shown["added"]["fieldapp.sample"][0]["columns"]["key"] == given


def test_times_of_inline_rows_are_set_when_they_are_written(root):
    request = request_of(root.user, MCPSite(admin_site=shop))
    order = Order.objects.create(number="1", customer="Ann")
    products = [Product.objects.create(name=name) for name in "ab"]
    line = Line.objects.create(order=order, product=products[0])
    rows = [{"pk": line.pk, "quantity": 7}, {"product": products[1].pk, "quantity": 2}]
    shown = tried(UPDATE, request, model="inlineapp.order", pk=order.pk, values={"lines": rows})
    changed, added = shown["changed"]["inlineapp.order"][0]["inlines"]["lines"]
    assert changed["changed"]["quantity"] == [1, 7]
    assert changed["changed"]["updated"][1] == "(set when written)"
    assert added["added"]["updated"] == "(set when written)"
    # A row that is not written shows no time.
    alone = tried(UPDATE, request, model="inlineapp.order", pk=order.pk, values={"lines": rows[1:]})
    assert [list(row) for row in alone["changed"]["inlineapp.order"][0]["inlines"]["lines"]] == [["added"]]


def test_a_key_of_several_columns_is_shown_whole(root):
    request = request_of(root.user, site_with(Seat))
    Seat.objects.create(hall="A", number=1)
    shown = tried(UPDATE, request, model="fieldapp.seat", pk=["A", 1], values={"note": "b"})
    assert shown["changed"]["fieldapp.seat"][0]["pk"] == ["A", 1]


def test_a_deletion_shows_all_that_goes(root):
    book = make_book("Dune")
    for name in ("Ann", "Bob"):
        Loan.objects.create(book=book, borrower=name, due=datetime(2030, 1, 1, tzinfo=UTC))
    shown = tried(DELETE, root, **BOOK, pk=book.pk)
    assert shown["counts"] == {"testapp.book": {"deleted": 1}, "testapp.loan": {"deleted": 2}}
    assert shown["deleted"]["testapp.book"] == [[book.pk, "Dune"]]
    assert shown["summary"] == "book Dune deleted; 2 loans deleted"
    assert shown["next"] == "The call itself will ask for confirmation."


def test_a_dry_run_of_many_rows_counts_all_and_shows_the_first(root):
    Book.objects.bulk_create(
        Book(title=f"T{number}", author=author, isbn=str(number), price=5)
        for author in [make_author()]
        for number in range(30)
    )
    shown = tried(UPDATE, root, **BOOK, filters={"price": "5"}, values={"status": "published"})
    assert shown["counts"] == {"testapp.book": {"changed": 30}}
    assert shown["summary"] == "30 books: status draft -> published"
    assert len(shown["changed"]["testapp.book"]) == 20
    assert shown["more_rows"] == 10


def test_a_dry_run_refuses_what_the_write_would_refuse(root):
    make_book("One", isbn="1")
    book = make_book("Two", isbn="2")
    values = {"isbn": "1"}
    assert refusal(UPDATE, root, **BOOK, pk=book.pk, values=values, dry_run=True) == refusal(
        UPDATE, root, **BOOK, pk=book.pk, values=values
    )


def test_hidden_columns_and_rows_are_not_in_a_difference(root, monkeypatch):
    class Exposure(ModelExposure):
        fields = ["id", "title"]

    site = site_with()
    site.register(Book, Exposure)
    request = request_of(root.user, site)
    book = make_book("Dune")
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))

    def save_model(self, request, obj, form, change):
        obj.price = 77
        obj.save()

    monkeypatch.setattr(Exposure, "save_model", save_model, raising=False)
    shown = tried(UPDATE, request, **BOOK, pk=book.pk, values={"title": "Dune 2"})
    assert shown["changed"]["testapp.book"][0]["columns"] == {"title": ["Dune", "Dune 2"]}
    gone = tried(DELETE, request, **BOOK, pk=book.pk)
    assert gone["counts"] == {"testapp.book": {"deleted": 1}, "other": 1}
    assert "Ann" not in str(gone)


def test_the_version_of_a_dry_run_holds_the_call_to_what_was_shown(root):
    book = make_book("Dune")
    arguments = {**BOOK, "pk": book.pk, "values": {"pages": 3}}
    version = call(UPDATE, root, dry_run=True, **arguments)["version"]
    other = {**arguments, "values": {"pages": 4}}
    assert "no longer do what it did" in refusal(UPDATE, root, **other, version=version)
    Book.objects.filter(pk=book.pk).update(price=9)
    assert "no longer do what it did" in refusal(UPDATE, root, **arguments, version=version)
    version = call(UPDATE, root, dry_run=True, **arguments)["version"]
    assert call(UPDATE, root, **arguments, version=version)["updated"] is True


def test_the_version_of_a_dry_run_never_confirms():
    book = make_book("Dune")
    client = MCPClient(make_superuser(), capabilities={})
    version = client.call("delete_record", **BOOK, pk=book.pk, dry_run=True).structured["version"]
    assert client.call("delete_record", **BOOK, pk=book.pk, version=version).structured["confirmation_required"]
    answer = client.call("delete_record", **BOOK, pk=book.pk, confirm_token=version)
    assert answer.is_error
    assert Book.objects.exists()


def test_what_was_written_is_kept_with_its_summary(root):
    book = make_book("Dune", price="5.00")
    done = call(UPDATE, root, **BOOK, pk=book.pk, values={"price": "6.00"})
    change = Change.objects.get()
    assert done["change"] == change.pk
    assert (change.tool, change.model, change.rows, change.state) == ("update_record", "testapp.book", 1, "done")
    assert change.summary == "book Dune changed: price"
    assert change.footprint
    assert change.cannot_undo == ""


def test_what_is_kept_of_an_update_shows_both_sides_as_the_caller_sees_them(monkeypatch):
    class BookSerializer(serializers.ModelSerializer):
        isbn = serializers.SerializerMethodField()

        class Meta:
            model = Book
            fields = ("title", "author", "isbn", "pages")
            read_only_fields = ("title",)

        def get_isbn(self, book):
            return f"...{book.isbn[-2:]}"

    def save(self, *args, **kwargs):
        self.isbn = "0000-22"
        super(Book, self).save(*args, **kwargs)

    monkeypatch.setattr(Book, "save", save)
    site = site_with(Author)
    site.register(Book, serializer_class=BookSerializer, fields=None)
    request = request_of(make_superuser(), site)
    author = make_author("Frank")
    book = make_book("Dune", author=make_author("Ada"))
    Book.objects.filter(pk=book.pk).update(isbn="1111-33")
    done = call(UPDATE, request, **BOOK, pk=book.pk, values={"author": author.pk})
    [row] = Changes(request).own(done["change"]).shown
    assert row["changed"] == {"author": [book.author_id, author.pk], "isbn": ["...33", "...22"]}


def test_an_exposure_can_say_that_its_hooks_are_not_tried(root, monkeypatch):
    class Exposure(ModelExposure):
        fields = "__all__"
        dry_run = False
        paid = []

        def save_model(self, request, obj, form, change):
            self.paid.append(obj.pk)
            obj.save()

        def delete_model(self, request, obj):
            self.paid.append(obj.pk)
            obj.delete()

    site = site_with(Author)
    site.register(Book, Exposure)
    request = request_of(root.user, site)
    book = make_book("Dune")
    shown = tried(UPDATE, request, **BOOK, pk=book.pk, values={"pages": 3})
    assert shown["not_tried"] == ["hooks of the project"]
    assert shown["summary"] == "book Dune: pages 0 -> 3"
    assert "pages: Enter a whole number." in refusal(
        UPDATE, request, **BOOK, pk=book.pk, values={"pages": "x"}, dry_run=True
    )
    gone = tried(DELETE, request, **BOOK, pk=book.pk)
    assert (gone["summary"], gone["not_tried"]) == ("book Dune deleted", ["hooks of the project"])
    assert call(DELETE, request, **BOOK, pk=book.pk)["confirmation_required"] is True
    assert Exposure.paid == []


def test_a_dry_run_is_logged_as_tried_and_counts_as_written_rows():
    user = make_superuser()
    book = make_book("Dune")
    request = request_of(user)
    call(UPDATE, request, **BOOK, pk=book.pk, values={"pages": 3}, dry_run=True)
    assert (request.mcp.record.outcome, request.mcp.record.rows_changed) == ("tried", 1)


def test_a_dry_run_is_no_result_of_an_idempotency_key():
    book = make_book("Dune")
    client = MCPClient(make_superuser(), capabilities={})
    arguments = {**BOOK, "pk": book.pk, "values": {"pages": 3}, "idempotency_key": "k"}
    for _ in range(2):
        assert client.call("update_record", **arguments, dry_run=True).structured["dry_run"] is True
    book.refresh_from_db()
    assert book.pages == 0
    done = client.call("update_record", **arguments)
    assert done.structured["updated"] is True
    book.refresh_from_db()
    assert book.pages == 3


@pytest.mark.parametrize("version", ["tried:", "tried:x", "tried:1xXBME:abc", f"tried:{'x' * 500}", "tried:é"])
def test_a_version_of_no_dry_run_is_refused(root, version):
    book = make_book("Dune")
    text = refusal(UPDATE, root, **BOOK, pk=book.pk, values={"pages": 3}, version=version)
    assert "no longer do what it did" in text
    book.refresh_from_db()
    assert book.pages == 0


def test_a_change_at_the_end_of_a_long_text_is_shown(root):
    note = Note.objects.create(content_type=ContentType.objects.first(), object_id="1", text="a" * 1_000)
    shown = tried(UPDATE, root, model="testapp.note", pk=note.pk, values={"text": f"{'a' * 999}b"})
    [row] = shown["changed"]["testapp.note"]
    assert row["columns"] == {"text": [f"…{'a' * 41}", f"…{'a' * 40}b"]}
    shown = tried(UPDATE, root, model="testapp.note", pk=note.pk, values={"text": "b" * 1_000})
    [row] = shown["changed"]["testapp.note"]
    assert row["columns"] == {"text": [f"{'a' * 300}…", f"{'b' * 300}…"]}
