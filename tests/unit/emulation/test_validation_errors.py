"""A broken constraint is told by fields and rows that the caller sees, and by nothing else."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection
from django.db.models import CheckConstraint, F, Q, UniqueConstraint
from django.db.models.functions import Lower
from django.forms import DateField, ModelForm, modelform_factory

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django import site as default_site
from mcp_django.emulation.validation_errors import broken_constraint, duplicate_note
from mcp_django.orm.access import access_of
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.inlineapp.factories import ORDER, make_order, shop_request
from tests.inlineapp.models import Line, Order, Product
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Shelf
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
CREATE, UPDATE = CreateRecord(), UpdateRecord()
BOOK = {"model": "testapp.book"}


@pytest.fixture
def root() -> Any:
    return request_of(make_superuser())


def values(**more: Any) -> dict[str, Any]:
    return {"title": "Dune", "author": make_author().pk, "price": "1", **more}


# What the form finds


def test_G134_the_row_that_has_the_value_is_named_where_the_caller_sees_it(root: Any) -> None:
    book = make_book()
    text = refusal(CREATE, root, **BOOK, values=values(isbn=book.isbn))
    assert text.endswith(f"isbn: Book with this ISBN already exists. (testapp.book with pk {book.pk} has it)")
    other = make_book()
    text = refusal(UPDATE, root, **BOOK, pk=other.pk, values={"isbn": book.isbn})
    assert text.endswith(f"(testapp.book with pk {book.pk} has it)")


def test_G134_of_a_row_that_the_caller_does_not_see_no_more_is_told_than_in_the_admin() -> None:
    book = make_book(owner=make_superuser())
    user = make_user("seller", "testapp.view_book", "testapp.add_book", "testapp.view_author")
    text = refusal(CREATE, request_of(user), **BOOK, values=values(isbn=book.isbn))
    assert text == "Nothing was saved:\nisbn: Book with this ISBN already exists."


ONE = UniqueConstraint(fields=["title"], condition=Q(status="published"), name="one_published")


@pytest.mark.parametrize(
    ("constraint", "note"),
    [
        (ONE, " It allows one row for each title, depending on status. (testapp.book with pk {pk} has it)"),
        (UniqueConstraint(Lower("title"), name="any_case"), " It allows one row for each title."),
        (UniqueConstraint(Lower("title"), "status", name="both"), " It allows one row for each title, status."),
        (CheckConstraint(condition=Q(pages__lte=F("rating")), name="few"), " It is a rule on pages, rating."),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_a_constraint_that_django_names_alone_is_told_by_its_fields(
    root: Any, constraint: Any, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Book._meta, "constraints", [constraint])
    book = make_book("Dune", status="published")
    given = values(isbn="1", status="published", pages=2, rating=1)
    text = refusal(CREATE, root, **BOOK, values=given)
    told = f"(row): “Constraint '{constraint.name}' is violated.”{note.format(pk=book.pk)}"
    assert text == f"Nothing was saved:\n{told}"
    other = make_book("Other", status="published")
    text = refusal(UPDATE, root, **BOOK, pk=other.pk, values={"title": "Dune", "pages": 2, "rating": 1})
    assert text.endswith(told)
    if constraint is ONE:
        assert call(UPDATE, root, **BOOK, pk=other.pk, values={"title": "Dune", "status": "draft"})["changed"]


class HiddenStatus(AdminExposure):
    exclude = ("status",)


class HiddenTitle(AdminExposure):
    exclude = ("title",)


@pytest.mark.parametrize(
    ("exposure", "note"),
    [(HiddenStatus, " It allows one row for each title, under a condition."), (HiddenTitle, "")],
)
def test_the_fields_of_a_constraint_that_the_caller_does_not_see_are_not_named(
    exposure: Any, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Book._meta, "constraints", [ONE])
    site = MCPSite("hidden", admin_site=admin.site)
    site.register(Book, exposure)
    for title in ("Dune", "Other"):
        make_book(title, status="published")
    other = Book.objects.get(title="Other")

    class Turning(modelform_factory(Book, fields="__all__")):  # type: ignore[misc]
        def clean(self) -> Any:
            self.instance.title = self.cleaned_data["title"] = "Dune"
            return super().clean()

    monkeypatch.setattr(site.exposures[Book].model_admin, "form", Turning)
    text = refusal(UPDATE, request_of(make_superuser(), site), **BOOK, pk=other.pk, values={"pages": 5})
    assert text == f"Nothing was saved:\n(row): “Constraint 'one_published' is violated.”{note}"


# Of the admin's form, whose field has two texts, and of that of an exposure.
@pytest.mark.parametrize("site", [default_site, site_with(Loan, Book)])
@pytest.mark.parametrize("moment", ["now", "tomorrow", "31.01.2026 10:00", "2026-13-01", 5, "now tomorrow"])
def test_a_moment_that_is_not_understood_is_answered_with_one_that_is(site: MCPSite, moment: Any) -> None:
    request = request_of(make_superuser(), site)
    given = {"book": make_book().pk, "borrower": "Ada", "due": moment}
    text = refusal(CREATE, request, model="testapp.loan", values=given)
    assert re.fullmatch(r"Nothing was saved:\n(due: .*\(such as 2026-01-31T10:00:00Z\)\n?)+", text)
    row = call(CREATE, request, model="testapp.loan", values={**given, "due": "2026-01-31T10:00:00Z"})
    text = refusal(UPDATE, request, model="testapp.loan", pk=row["pk"], values={"due": moment})
    assert text.endswith("(such as 2026-01-31T10:00:00Z)")


class LocalForm(ModelForm):
    published = DateField(input_formats=["%d.%m.%Y"])


def test_a_form_that_takes_dates_in_its_own_way_names_that() -> None:
    site = site_with(Author)
    site.register(Book, fields=["title", "author", "price", "published"], form=LocalForm)
    request = request_of(make_superuser(), site)
    text = refusal(CREATE, request, **BOOK, values=values(published="2026-02-01"))
    assert text == "Nothing was saved:\npublished: Enter a valid date. (such as 31.01.2026)"
    assert call(CREATE, request, **BOOK, values=values(published="31.01.2026"))["fields"]["published"] == "2026-01-31"


def test_a_row_does_not_stand_in_its_own_way(root: Any) -> None:
    book = make_book()
    assert call(UPDATE, root, **BOOK, pk=book.pk, values={"isbn": book.isbn})["changed"] == []


def test_fields_that_are_unique_together_name_the_row_too() -> None:
    request = request_of(make_superuser(), site_with(Placement, Shelf, Book))
    shelf, book = Shelf.objects.create(code="A"), make_book()
    placed = Placement.objects.create(shelf=shelf, book=book, position=1)
    text = refusal(CREATE, request, model="testapp.placement", values={"shelf": "A", "book": book.pk, "position": 1})
    assert text.endswith(f"(testapp.placement with pk {placed.pk} has it)")


def test_G134_a_field_that_is_hidden_names_no_row(root: Any) -> None:
    site = MCPSite("narrow")
    form = modelform_factory(Book, fields=["title", "author", "isbn", "price"])
    site.register(Book, ModelExposure, fields=["id", "title", "author", "price"], form=form)
    book = make_book()
    request = request_of(root.user, site)
    error = ValidationError("taken", code="unique", params={"unique_check": ("isbn",)})
    bound = form({}, instance=Book(isbn=book.isbn))
    assert duplicate_note(request, bound, error) == ""
    assert duplicate_note(root, bound, error) == f" (testapp.book with pk {book.pk} has it)"


def test_rows_of_inlines_are_named_as_well() -> None:
    request = shop_request(make_superuser())
    order = make_order("1", 1)
    line, product = order.lines.get(), Product.objects.create(name="new")
    new = Line.objects.create(order=order, product=product)
    rows = [{"pk": new.pk, "product": line.product_id}]
    text = refusal(UPDATE, request, **ORDER, pk=order.pk, values={"lines": rows})
    # Since Django 6 the form of a row finds it before the formset does.
    assert text.startswith("Nothing was saved:\nlines")
    assert "Please correct the duplicate data for product" in text or f"inlineapp.line with pk {line.pk} has it" in text
    new.refresh_from_db()
    assert new.product == product


# What only the database finds


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (Book, AudioBook, Placement, Line, Order):
        for method in ("validate_unique", "validate_constraints", "clean_fields"):
            monkeypatch.setattr(model, method, lambda *args, **kwargs: None)


@pytest.mark.usefixtures("unchecked")
def test_G133_a_unique_field_is_named_without_sql(root: Any) -> None:
    book = make_book()
    text = refusal(CREATE, root, **BOOK, values=values(isbn=book.isbn))
    assert text == "Nothing was changed: there is a row of testapp.book with the same isbn already."
    audio = request_of(root.user, site_with(AudioBook, Book))
    text = refusal(CREATE, audio, model="testapp.audiobook", values=values(isbn=book.isbn, narrator="x", data="{}"))
    assert text == "Nothing was changed: there is a row of testapp.audiobook with the same isbn already."
    assert Book.objects.get() == book


@pytest.mark.usefixtures("unchecked")
def test_G133_constraints_of_the_model_are_named_by_their_fields() -> None:
    request = request_of(make_superuser(), site_with(Placement, Shelf, Book, Line, Order, Product))
    shelf, book = Shelf.objects.create(code="A"), make_book()
    Placement.objects.create(shelf=shelf, book=book, position=1)
    text = refusal(CREATE, request, model="testapp.placement", values={"shelf": "A", "book": book.pk, "position": 1})
    assert text == "Nothing was changed: there is a row of testapp.placement with the same shelf, position already."
    line = make_order("1", 1).lines.get()
    text = refusal(UPDATE, request, model="inlineapp.line", pk=line.pk, values={"quantity": 2000})
    assert text == "Nothing was changed: the values break a rule of the database on quantity."


@pytest.mark.usefixtures("unchecked")
@pytest.mark.skipif(not connection.features.supports_partial_indexes, reason="the database has no such constraints")
@pytest.mark.parametrize(
    ("exposure", "rule"),
    [(AdminExposure, "title, depending on status"), (HiddenStatus, "title, under a condition")],
)
def test_the_condition_of_a_constraint_is_told(exposure: Any, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book._meta, "constraints", [ONE])
    with connection.cursor() as cursor:
        cursor.execute("CREATE UNIQUE INDEX one_published ON testapp_book (title) WHERE status = 'published'")
    site = MCPSite("conditions", admin_site=admin.site)
    site.register(Book, exposure)
    make_book("Dune", status="published")
    other = make_book("Other", status="published")
    text = refusal(UPDATE, request_of(make_superuser(), site), **BOOK, pk=other.pk, values={"title": "Dune"})
    told = "there is a row of testapp.book with the same title already"
    assert text == f"Nothing was changed: {told}. The database allows one for each {rule}."


@pytest.mark.usefixtures("unchecked")
def test_G133_fields_that_the_caller_does_not_see_are_not_named() -> None:
    site = MCPSite("narrow")
    site.register(Line, ModelExposure, fields=["id", "price"])
    request = request_of(make_superuser(), site)
    line = make_order("1", 1).lines.get()

    class Broken(ModelExposure):
        fields = ("id", "price")

        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            obj.quantity = 2000
            obj.save()

    site.unregister(Line)
    site.register(Line, Broken)
    text = refusal(UPDATE, request, model="inlineapp.line", pk=line.pk, values={"price": "2"})
    assert text == "Nothing was changed: the values break a constraint of the database."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UNIQUE constraint failed: other_table.title",
        "UNIQUE constraint failed: index 'x'",
        "FOREIGN KEY failed",
        "%s",
    ],
)
def test_what_is_not_known_is_not_explained(root: Any, text: str) -> None:
    assert broken_constraint(access_of(root)[root.mcp.site.exposures[Book]], IntegrityError(text)) == ""
