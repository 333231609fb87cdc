"""Values of a write that are computed from the row itself, and what they may read."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import connection
from django.test import override_settings
from django.utils import timezone, translation
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.differences.row_expressions import RowExpressions
from mcp_django.orm.access import access_of
from mcp_django.orm.columns import is_replaced
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_book, make_superuser
from tests.fieldapp.models import Sample
from tests.oddapp.fields import Money
from tests.oddapp.models import Page
from tests.testapp.models import AudioBook, Author, Book, Loan
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.django_db

UPDATE = UpdateRecord()
BOOK = {"model": "testapp.book"}
RISE = {"field": "price*1.05", "round": "0.10"}


def keyed(user: Any, *site: Any) -> Any:
    """Return the request of a call with an idempotency key: a repeated rise rises once."""
    request = request_of(user, *site)
    request.mcp.record.is_keyed = True
    return request


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def request_(root: Any) -> Any:
    return keyed(root, site_with(Author, Book, Loan, AudioBook))


def update(request: Any, row: Any, **values: Any) -> Any:
    """Write the values to the row by the tool, and return the row as it is stored then."""
    done = call(UPDATE, request, model=row._meta.label_lower, pk=str(row.pk), values=values)
    assert done["updated"] is True
    return type(row)._base_manager.get(pk=row.pk)


def refused(request: Any, row: Any, **values: Any) -> str:
    """Return why the values are refused for the row, which must stay as it is."""
    before = type(row)._base_manager.filter(pk=row.pk).values().get()
    message = refusal(UPDATE, request, model=row._meta.label_lower, pk=str(row.pk), values=values)
    assert type(row)._base_manager.filter(pk=row.pk).values().get() == before
    return message


def expressions(request: Any, model: Any, **values: Any) -> RowExpressions:
    access = access_of(request)[request.mcp.site.exposures[model]]
    return RowExpressions.read(access, values)


# What is computed


def test_a_price_rises_and_is_rounded(request_: Any) -> None:
    book = make_book("Dune", price="19.99", pages=100)
    assert update(request_, book, price=RISE).price == Decimal("21.00")
    assert update(request_, book, price={"field": "price * 1.1"}).price == Decimal("23.10")
    assert update(request_, book, price={"field": "(price-pages)/3", "round": "0.05"}).price == Decimal("-25.65")
    assert update(request_, book, pages={"field": "pages/7", "round": 5}).pages == 15
    assert update(request_, book, pages={"field": "-(0-pages)*3 - 1"}).pages == 44


def test_all_kinds_of_fields_can_be_computed(request_: Any) -> None:
    book = make_book("Dune", rating=0.1, published=date(2026, 1, 31), reading_time=timedelta(hours=3), pages=3)
    saved = update(
        request_,
        book,
        rating={"field": "rating + 0.2"},
        published={"field": "published + 4w"},
        reading_time={"field": "reading_time/pages + 1min"},
        pages={"field": "pages*2"},
    )
    assert (saved.rating, saved.published, saved.pages) == (0.3, date(2026, 2, 28), 6)
    assert saved.reading_time == timedelta(minutes=61)
    assert update(request_, book, reading_time={"field": "reading_time-2h"}).reading_time == -timedelta(minutes=59)
    assert update(request_, book, rating={"field": "rating/3"}).rating == 0.1


def test_a_time_moves_in_the_current_time_zone(request_: Any, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Vienna"
    loan = Loan.objects.create(book=make_book(), borrower="Ada", due=datetime(2026, 3, 27, 8, 30, 0, 5, tzinfo=UTC))
    assert update(request_, loan, due={"field": "due+7d"}).due == datetime(2026, 4, 3, 7, 30, 0, 5, tzinfo=UTC)
    # This time comes twice, when clocks are put back: the form could not read it without its zone.
    Loan.objects.update(due=datetime(2026, 10, 24, 23, 30, tzinfo=UTC))
    assert update(request_, loan, due={"field": "due+2h"}).due == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_expressions_read_the_row_as_it_was_before(request_: Any) -> None:
    book = make_book("Dune", price="20.00", pages=30)
    saved = update(request_, book, price={"field": "pages"}, pages={"field": "price"})
    assert (saved.price, saved.pages) == (Decimal("30.00"), 20)
    saved = update(request_, book, pages=7, price={"field": "pages + pk*0"}, title="Other")
    assert (saved.price, saved.pages, saved.title) == (Decimal("20.00"), 7, "Other")


def test_the_row_is_read_where_it_is_locked(request_: Any, monkeypatch: Any) -> None:
    book = make_book("Dune", price="20.00")
    Book.objects.update(price="30.00")
    assert update(request_, book, price={"field": "price+1"}).price == Decimal("31.00")


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database locks no rows")
@pytest.mark.django_db(transaction=True)
def test_of_writes_at_the_same_time_each_counts(root: Any) -> None:
    book = make_book("Dune")
    request = request_of(root)
    request.mcp.record.is_keyed = True
    call(UPDATE, request, **BOOK, pk=book.pk, values={"pages": {"field": "pages+1"}})
    ready = threading.Barrier(4)

    def count(number: int) -> None:
        own = request_of(root)
        own.mcp.record.is_keyed = True
        try:
            for _ in range(5):
                ready.wait()
                call(UPDATE, own, **BOOK, pk=book.pk, values={"pages": {"field": f"pages+{number}"}})
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, (1, 10, 100, 1000)))
    assert Book.objects.get().pages == 5556


def test_rows_of_a_child_table_are_computed_too(request_: Any) -> None:
    heard = AudioBook.objects.create(title="Heard", author=make_book().author, isbn="x", price=5, narrator="N")
    assert update(request_, heard, price={"field": "price*2"}).price == 10
    assert "has no field 'book_ptr'" in refused(request_, heard, price={"field": "book_ptr*2"})


def test_a_choice_is_found_by_its_value_and_never_by_its_label(root: Any, monkeypatch: Any) -> None:
    request = keyed(root, site_with(Sample))
    row = Sample.objects.create(name="a", integer=9, level=1, decimal="2.5")
    assert update(request, row, level={"field": "integer+1"}).level == 10
    assert "level of a would be 9, which is not one of its choices" in refused(request, row, level={"field": "integer"})
    field = Sample._meta.get_field("level")
    monkeypatch.setattr(field, "choices", [("x", "5"), (1, "10"), (10, "9")])
    assert "would be 9, which is not" in refused(request, row, level={"field": "integer"})
    decimal = Sample._meta.get_field("decimal")
    monkeypatch.setattr(decimal, "choices", [(None, "-"), (Decimal("2.5"), "two"), (Decimal("5.0"), "five")])
    assert update(request, row, decimal={"field": "decimal*2"}).decimal == 5


def test_a_column_of_any_number_of_digits_takes_all_of_them(root: Any, monkeypatch: Any) -> None:
    request = request_of(root, site_with(Sample))
    row = Sample(name="a", decimal=Decimal("1.2345"), integer=3)
    monkeypatch.setattr(Sample._meta.get_field("decimal"), "decimal_places", None)
    found = expressions(request, Sample, decimal={"field": "decimal*decimal"})
    assert found.values_for(row) == {"decimal": "1.52399025"}
    found = expressions(request, Sample, decimal={"field": "decimal/integer/1000000000000"})
    assert found.values_for(row) == {"decimal": "0.0000000000004115"}
    found = expressions(request, Sample, decimal={"field": "integer/7"})
    with pytest.raises(ToolError, match=r'would be 0\.42857142857142857143…, write .*"round":"0.01"'):
        found.values_for(row)


# What has no value


def test_what_a_row_lacks_is_named(request_: Any) -> None:
    book = make_book("Dune", rating=None)
    assert refused(request_, book, price={"field": "rating*2"}) == "Nothing was saved: Dune has no rating."
    assert refused(request_, book, rating={"field": "rating"}) == "Nothing was saved: Dune has no rating."


def test_a_division_by_zero_is_named(request_: Any) -> None:
    book = make_book("Dune", pages=0)
    assert (
        refused(request_, book, price={"field": "price/pages"})
        == "Nothing was saved: price of Dune is divided by zero."
    )


def test_digits_that_do_not_fit_are_refused_with_the_rounding_that_is_meant(request_: Any) -> None:
    book = make_book("Dune", price="19.99", pages=7)
    message = refused(request_, book, price={"field": "price*1.05"})
    assert message == (
        "Nothing was saved: price of Dune would be 20.9895, more than 2 decimals: "
        'write {"field":"price*1.05","round":"0.01"} to round it half up.'
    )
    message = refused(request_, book, pages={"field": "pages/2"})
    assert message.endswith('would be 3.5, no whole number: write {"field":"pages/2","round":"1"} to round it half up.')
    message = refused(request_, book, price={"field": "pages/3", "round": "0.001"})
    assert "would be 2.333, more" in message
    assert '"round":"0.01"' in message
    assert "would be 2.3333333333333333333…, more" in refused(request_, book, price={"field": "pages/3"})
    assert update(request_, book, price={"field": "price*1.05", "round": "0.01"}).price == Decimal("20.99")


def test_a_date_moves_by_whole_days_alone(request_: Any) -> None:
    book = make_book("Dune", published=date(2026, 1, 31))
    assert "whole days" in refused(request_, book, published={"field": "published+30min"})


def test_the_form_refuses_what_it_refuses_of_any_value(request_: Any, monkeypatch: Any) -> None:
    book = make_book("Dune", price="900000.00", pages=100)
    assert "no more than 8 digits" in refused(request_, book, price={"field": "price*2"})
    assert "greater than or equal to 0" in refused(request_, book, pages={"field": "pages-101"})
    assert "less than or equal to" in refused(request_, book, pages={"field": "pages*999999999999999*999999999999999"})
    monkeypatch.setattr(Book, "clean", lambda self: _refuse(self.pages > 150))
    assert "too many" in refused(request_, book, pages={"field": "pages*2"})
    field = Book._meta.get_field("rating")
    monkeypatch.setattr(field, "validators", [MaxValueValidator(5)])
    assert "less than or equal to 5" in refused(request_, book, rating={"field": "pages"})


def _refuse(is_wrong: bool) -> None:
    if is_wrong:
        raise ValidationError("too many")


def test_values_beyond_every_column_are_refused(request_: Any) -> None:
    book = make_book("Dune", pages=10, published=date(2026, 1, 31), reading_time=timedelta(days=9), rating=1e300)
    assert "published of Dune is out of range" in refused(request_, book, published={"field": "published+999999w"})
    assert "out of range" in refused(request_, book, reading_time={"field": "reading_time*999999999999999"})
    assert "rating of Dune is out of range" in refused(request_, book, rating={"field": "rating*rating"})
    many = "*".join(["rating"] * 20)
    assert "pages of Dune is out of range" in refused(request_, book, pages={"field": many})
    assert "pages" in refused(request_, book, pages={"field": "rating"})
    assert update(request_, book, rating={"field": "rating*10"}).rating == 1e301


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_a_number_is_not_computed_with(request_: Any, number: float) -> None:
    if connection.vendor == "mysql":
        pytest.skip("MySQL stores no such number")
    book = make_book("Dune", rating=None)
    Book.objects.update(rating=number)
    # SQLite stores no NaN: the column is NULL.
    wanted = "Dune has no rating" if connection.vendor == "sqlite" and number != number else "is not a number"
    message = refusal(UPDATE, request_, **BOOK, pk=str(book.pk), values={"price": {"field": "rating"}})
    assert wanted in message


def test_what_sqlite_stores_in_any_column_is_not_computed_with(request_: Any) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("Other databases store only numbers in a column of numbers")
    book = make_book("Dune")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute("UPDATE testapp_book SET rating = 'much'")
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
    message = refusal(UPDATE, request_, **BOOK, pk=str(book.pk), values={"price": {"field": "rating*2"}})
    assert message == "Nothing was saved: rating of Dune cannot be computed with."


# How expressions are written


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("price", {"field": "price*1.05", "factor": 2}, "Write an expression as"),
        ("price", {"field": 5}, "Write an expression as"),
        ("price", {"field": None, "round": "1"}, "Write an expression as"),
        ("published", {"field": "published", "plus": "5d"}, "Write an expression as"),
        ("price", {"field": "price*"}, "not understood at its end"),
        ("price", {"field": ""}, "not understood at its end"),
        ("price", {"field": "price; DROP TABLE"}, "was not understood"),
        ("price", {"field": "9" * 10**6}, "at most 200 characters"),
        ("price", {"field": "9" * 100}, "was not understood"),
        ("price", {"field": "(" * 60 + "price" + ")" * 60}, "at most 40 parts"),
        ("price", {"field": "(" * 12 + "price" + ")" * 12}, "nested 8 deep"),
        ("price", {"field": "5"}, "reads no field of the row"),
        ("published", {"field": "2026-01-31"}, "reads no field of the row"),
        ("price", {"field": "published+price"}, "cannot be computed"),
        ("published", {"field": "published*2"}, "cannot be computed"),
        ("published", {"field": "price"}, "published (date) cannot hold what 'price' gives (decimal)"),
        ("price", {"field": "published-created"}, "price (decimal) cannot hold what"),
        ("published", {"field": "created"}, "published (date) cannot hold what 'created' gives (datetime)"),
        ("reading_time", {"field": "pages"}, "reading_time (duration) cannot hold what"),
        ("published", {"field": "published+1d", "round": "1"}, "round is for numbers"),
        ("reading_time", {"field": "reading_time", "round": "1d"}, "round is for numbers"),
    ],
)
def test_an_expression_that_is_written_wrong_is_refused(request_: Any, name: str, value: Any, message: str) -> None:
    assert message in refused(request_, make_book("Dune"), **{name: value})


@pytest.mark.parametrize(
    "step",
    [
        "0",
        "-1",
        "0.00",
        "",
        "1e2",
        "1d",
        "NaN",
        "Infinity",
        "½",
        "1_0",
        "9" * 16,
        0,
        -1,
        True,
        None,
        [],
        1e300,
        pytest.param(10**5000, id="huge"),
    ],
)
def test_a_step_is_more_than_zero(request_: Any, step: Any) -> None:
    assert "round is a step" in refused(request_, make_book("Dune"), price={"field": "price", "round": step})


@pytest.mark.parametrize(("step", "price"), [("0.05", "9.90"), (1, "10.00"), (0.5, "10.00"), ("500", "0.00")])
def test_a_step_is_a_number_or_its_text(request_: Any, step: Any, price: str) -> None:
    assert update(request_, make_book("Dune"), price={"field": "price", "round": step}).price == Decimal(price)


def test_objects_in_other_fields_are_values(root: Any, request_: Any) -> None:
    request = keyed(root, site_with(Sample))
    row = Sample.objects.create(name="a", integer=3)
    assert update(request, row, data={"field": "integer*2", "round": 1}).data == {"field": "integer*2", "round": 1}
    assert "Give one value" in refused(request, row, integer={"value": 3})
    assert "not a list or an object" in refused(request_, make_book("Dune"), title={"field": "title"})


def test_a_row_that_does_not_exist_yet_has_nothing_to_compute_with(root: Any) -> None:
    created = MCPClient(root).call("create_record", model="testapp.loan", values={"due": {"field": "due+1d"}})
    assert created.is_error
    assert "Give one value" in created.text


def test_a_row_that_is_created_on_the_way_has_nothing_to_compute_with(root: Any) -> None:
    book = make_book("Dune", price="10.00", isbn="A1")
    new = {"isbn": "A2", "title": "Emma", "author": book.author_id, "price": "5.00"}
    values = {"pages": {"field": "price", "round": "1"}}
    rows = [{"isbn": "A1", **values}, {**new, **values}]
    arguments = {**BOOK, "by": "isbn", "rows": rows, "create_missing": True, "idempotency_key": "1"}
    answer = MCPClient(root).call("update_record", **arguments)
    assert answer.is_error
    assert "A2: the row is new, and has nothing to compute pages from." in answer.text
    assert list(Book.objects.values_list("isbn", "pages")) == [("A1", 0)]


# What expressions read


class Keeping(ModelExposure):
    """Shows the rating of some rows alone, and the time of reading to nobody."""

    fields = ("title", "price", "pages", "rating", "created")

    def get_fields(self, request: Any, obj: Any = None) -> Any:
        names = super().get_fields(request, obj)
        if obj is not None and obj.title == "Kept":
            return [name for name in names if name != "rating"]
        return names


def site_of(exposure: type[ModelExposure], *others: Any) -> MCPSite:
    site = site_with(*others)
    site.register(Book, exposure)
    return site


HIDDEN = ("reading_time", "nonsuch", "author", "author_id", "author.name", "author__id", "price_per_page", "title")


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cannot_be_read_is_not_there(root: Any, name: str) -> None:
    request = keyed(root, site_of(Keeping, Author))
    book = make_book("Dune", rating=2.5, reading_time=timedelta(hours=3))
    message = refused(request, book, price={"field": f"{name}*2"})
    assert message.partition(" Valid:")[0].replace(name, "x") == (
        "testapp.book has no field 'x' for an expression, which reads numbers, dates and durations of the row itself."
    )
    assert message.endswith("Valid: id, price, pages, rating, created.")


def test_a_field_that_a_row_hides_is_not_read_from_that_row(root: Any) -> None:
    request = keyed(root, site_of(Keeping))
    seen, kept = make_book("Seen", rating=2.5), make_book("Kept", rating=1234.5)
    assert update(request, seen, price={"field": "rating*2"}).price == 5
    message = refused(request, kept, price={"field": "rating*2"})
    assert message.endswith(
        "has no field 'rating' for an expression, which reads numbers, dates and durations of the row "
        "itself. Valid: id, price, pages, created."
    )
    kept.rating = None
    kept.save()
    assert refused(request, kept, price={"field": "rating*2"}) == message
    assert "has no field 'rating'" in refused(request, kept, price={"field": "rating/0"})


def test_a_hook_that_fails_hides_every_field(root: Any, monkeypatch: Any) -> None:
    request = keyed(root, site_of(Keeping))
    book = make_book("Dune")

    def failing(self: Any, request: Any, obj: Any = None) -> Any:
        if obj is None:
            return ("id", "title", "price", "pages")
        raise RuntimeError

    monkeypatch.setattr(Keeping, "get_fields", failing)
    values = expressions(request, Book, price={"field": "pages"})
    with pytest.raises(Exception, match=r"has no field 'pages' .* Valid: id\."):
        values.values_for(book)


def test_a_hidden_target_is_not_there(root: Any) -> None:
    request = keyed(root, site_of(Keeping))
    book = make_book("Dune", reading_time=timedelta(hours=3))
    for value in ({"field": "pages*"}, {"field": "reading_time"}, {"field": "price/0", "round": 0}):
        messages = {refused(request, book, **{name: value}).replace(name, "x") for name in ("reading_time", "nonsuch")}
        assert len(messages) == 1
        assert "You cannot write 'x'" in messages.pop()
    assert "You cannot write 'created'" in refused(request, book, created={"field": "created+1d"})


class Masked(serializers.ModelSerializer[Book]):
    pages = serializers.SerializerMethodField()

    class Meta:
        model = Book
        fields = ("id", "title", "price", "pages")

    def get_pages(self, book: Book) -> str:
        return "***"


def test_what_a_serializer_makes_is_not_read(root: Any) -> None:
    request = keyed(root, site_of(type("Shown", (ModelExposure,), {"serializer_class": Masked, "fields": None})))
    message = refused(request, make_book("Dune", pages=7), price={"field": "pages*2"})
    assert message.startswith("testapp.book has no field 'pages' for an expression")
    assert message.endswith("Valid: id.")
    assert message.replace("pages", "x") == refused(request, Book.objects.get(), price={"field": "x*2"})
    # The serializer takes what an expression gives.
    assert update(request, Book.objects.get(), price={"field": "pk*0 + 12.5"}).price == Decimal("12.50")


def test_a_column_with_an_attribute_in_its_place_is_not_read(root: Any, monkeypatch: Any) -> None:
    is_replaced.cache_clear()
    monkeypatch.setattr(Book, "pages", property(lambda book: 0, lambda book, value: None))
    request = keyed(root, site_with(Author, Book))
    try:
        message = refused(request, make_book("Dune"), price={"field": "pages"})
    finally:
        is_replaced.cache_clear()
    assert message.startswith("testapp.book has no field 'pages' for an expression")


def test_a_field_with_the_name_of_a_secret_is_not_read(root: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.exposures.model_exposure.is_withheld", lambda name, model: name == "rating")
    message = refused(keyed(root, site_with(Book)), make_book("Dune", rating=7), price={"field": "rating"})
    assert message.startswith("testapp.book has no field 'rating' for an expression")
    assert "rating" not in message.partition("Valid:")[2]


def test_an_object_of_a_custom_field_is_not_computed_with(root: Any) -> None:
    request = keyed(root, site_with(Page))
    page = Page.objects.create(title="Home", body=[], price=Money(Decimal("12.50"), "EUR"))
    assert "has no field 'price' for an expression" in refused(request, page, price={"field": "price*2"})
    assert update(request, page, price={"field": "id*0 + 3"}).price == Money(Decimal("3.00"), "EUR")


def test_a_misspelt_name_is_corrected_in_its_expression_alone(root: Any) -> None:
    book = make_book("Dune")
    values = {"title": "prise", "price": {"field": "prise*2 + pages", "round": "1"}}
    answer = MCPClient(root).call("update_record", **BOOK, pk=str(book.pk), values=values)
    assert answer.is_error
    assert "Did you mean price?" in answer.text
    mended = {"title": "prise", "price": {"field": "price*2 + pages", "round": "1"}}
    assert answer.structured["next"]["arguments"]["values"] == mended


# The whole call


def test_many_rows_are_computed_each_from_itself(root: Any) -> None:
    client = MCPClient(root, version="2025-06-18")
    books = [make_book(title, price=price) for title, price in (("A", "10.00"), ("B", "20.10"))]
    arguments = {
        **BOOK,
        "pks": [str(book.pk) for book in books],
        "values": {"price": RISE, "pages": {"field": "price*10"}},
    }
    preview = client.call("update_record", **arguments)
    assert not preview.is_error
    done = client.call("update_record", **arguments, confirm_token=preview.structured["confirm_token"])
    assert done.structured["changed_rows"] == 2
    stored = list(Book.objects.order_by("title").values_list("price", "pages"))
    assert stored == [(Decimal("10.50"), 100), (Decimal("21.10"), 201)]


def test_rows_without_a_value_are_refused_by_name(root: Any) -> None:
    client = MCPClient(root, version="2025-06-18")
    make_book("A", rating=2)
    make_book("B", rating=None)
    make_book("C", rating=None)
    arguments = {**BOOK, "filters": {"pages": 0}, "values": {"price": {"field": "rating"}}}
    refusal = client.call("update_record", **arguments)
    assert refusal.text == "Nothing was saved, because rows of testapp.book are refused.\nB, C: it has no rating."
    assert set(Book.objects.values_list("price", flat=True)) == {Decimal("9.90")}
    Book.objects.filter(title="A").update(rating=None)
    assert client.call("update_record", **arguments).text == "Nothing was saved: A has no rating."


@pytest.fixture
def german() -> Iterator[None]:
    with translation.override("de"), override_settings(USE_THOUSAND_SEPARATOR=True):
        yield


class Localized(forms.ModelForm):
    class Meta:
        model = Sample
        fields = "__all__"
        localized_fields = "__all__"


@pytest.mark.parametrize("form", [None, Localized])
def test_numbers_and_dates_mean_the_same_in_every_language(root: Any, form: Any, german: None) -> None:
    request = keyed(root, site_with(Sample, form=form))
    row = Sample.objects.create(
        name="a", integer=1234, decimal="1234.5", number=1234.125, day=date(2026, 2, 1), length=timedelta(days=1)
    )
    Sample.objects.update(moment=datetime(2026, 2, 1, 10, 30, tzinfo=UTC))
    names = ("integer", "decimal", "number", "day", "moment", "length")
    values: Mapping[str, Any] = {
        "integer": {"field": "integer*1000"},
        "decimal": {"field": "decimal + 0.0005"},
        "number": {"field": "number*1000"},
        "day": {"field": "day+1d"},
        "moment": {"field": "moment+1d"},
        "length": {"field": "length*1.5"},
    }
    saved = update(request, row, **values)
    assert [getattr(saved, name) for name in names] == [
        1234000,
        Decimal("1234.5005"),
        1234125.0,
        date(2026, 2, 2),
        datetime(2026, 2, 2, 10, 30, tzinfo=UTC),
        timedelta(hours=36),
    ]
    saved = update(
        request,
        row,
        integer={"field": "0-integer"},
        decimal={"field": "integer/1000"},
        number={"field": "number*1000000"},
    )
    assert (saved.integer, saved.decimal, saved.number) == (-1234000, 1234, 1234125000000.0)


@override_settings(USE_TZ=False)
def test_times_without_a_zone(root: Any) -> None:
    if connection.vendor == "postgresql":
        pytest.skip("The columns were made with time zones")
    request = keyed(root, site_with(Sample))
    row = Sample.objects.create(name="a", moment=datetime(2026, 3, 29, 2, 30))
    assert timezone.is_naive(row.moment)
    assert update(request, row, moment={"field": "moment+1d"}).moment == datetime(2026, 3, 30, 2, 30)


def test_a_question_has_expressions_as_they_were_written(root: Any) -> None:
    client = MCPClient(root, version="2025-06-18")
    book = make_book("Dune")
    values = {"price": RISE, "title": "Emma", "pages": {"field": "pages+1"}}
    told = "title = “Emma”, price = “price*1.05, rounded to 0.10”, pages = “pages+1”"
    for which in ({"pk": str(book.pk)}, {"pks": [str(book.pk)]}):
        preview = client.call("update_record", **BOOK, **which, values=values).structured
        assert f": {told}. " in preview["message"]
        assert preview["values"]["price"] == "price*1.05, rounded to 0.10"


# Whether it may be repeated


@pytest.mark.parametrize(
    ("values", "rereads"),
    [
        ({"price": {"field": "price*1.05"}}, True),
        ({"price": {"field": "pages*2"}, "pages": {"field": "rating*1"}}, True),
        ({"price": {"field": "pages*2"}, "pages": 7}, True),
        ({"price": {"field": "pages*2"}, "title": "New"}, False),
        ({"price": "9.90", "title": "New"}, False),
    ],
)
def test_an_expression_over_a_field_that_is_written_gives_another_value_next_time(
    request_: Any, values: Mapping[str, Any], rereads: bool
) -> None:
    found = expressions(request_, Book, **values)
    assert found.rereads is rereads
    assert found.is_empty is not any(isinstance(value, dict) for value in values.values())


def test_a_generated_column_changes_with_what_it_is_made_of(root: Any) -> None:
    request = keyed(root, site_with(Sample))
    found = expressions(request, Sample, integer={"field": "doubled"})
    assert found.rereads
    assert found.expressions["integer"].reads == {"doubled"}
    row = Sample.objects.create(name="a", integer=3)
    assert update(request, row, integer={"field": "doubled"}).integer == 6
