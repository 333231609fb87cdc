"""What packages put in the place of Django's own: attributes, relations, querysets."""

from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, models
from django.db.models import QuerySet
from django.db.models.query_utils import DeferredAttribute
from django.test.utils import isolate_apps
from django.utils import timezone

from mcp_django.orm.column_values import as_written
from mcp_django.orm.columns import is_replaced
from mcp_django.orm.fields import linked_reader
from mcp_django.orm.row_reading import plain_rows
from mcp_django.resources.completions import complete_field
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser
from tests.oddapp.fields import Money
from tests.oddapp.models import Page
from tests.testapp.models import Author, Book, Loan
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.postgresql


class Shout:
    """A descriptor that gives something else than what the column holds."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else instance.__dict__["title"].upper()

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["title"] = value


class Tracker:
    """A descriptor around the field's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.inner.__get__(instance, owner)


@pytest.fixture
def page_model() -> Any:
    with isolate_apps("tests.testapp"):

        class Page(models.Model):
            title = models.CharField(max_length=10)
            image = models.ImageField()
            parent = models.ForeignKey("self", models.CASCADE)

            class Meta:
                app_label = "testapp"

    return Page


def test_what_the_field_makes_itself_is_not_replaced(page_model: Any) -> None:
    assert not any(is_replaced(page_model, field) for field in page_model._meta.get_fields())
    assert not any(is_replaced(Book, field) for field in Book._meta.get_fields())


def test_an_attribute_of_another_class_is_replaced(page_model: Any) -> None:
    page_model.title = Shout()
    assert is_replaced(page_model, page_model._meta.get_field("title"))


def test_a_tracker_around_it_changes_nothing(page_model: Any) -> None:
    field = page_model._meta.get_field("title")
    page_model.title = Tracker(DeferredAttribute(field))
    assert not is_replaced(page_model, field)


def test_only_a_relation_of_another_class_is_read_through_its_manager() -> None:
    assert linked_reader(Book._meta.get_field("tags")) is None
    read = linked_reader(SimpleNamespace(name="labels"))
    assert read is not None
    rows = [SimpleNamespace(pk=1), SimpleNamespace(pk=2)]
    found = read(SimpleNamespace(labels=SimpleNamespace(all=lambda: rows)))
    assert found == [[1, str(rows[0])], [2, str(rows[1])]]


class Rewriting(QuerySet[Any]):
    """Reads other columns than it is asked for."""

    def values_list(self, *fields: Any, **options: Any) -> Any:
        return super().values_list("pk", **options)


@pytest.mark.django_db
def test_plain_rows_are_the_same_rows_and_read_the_columns_that_are_asked_for() -> None:
    make_author("Ada")
    make_author("Bob")
    rows = Rewriting(Author).filter(name="Ada")
    assert list(plain_rows(rows).values_list("name")) == [("Ada",)]
    plain = Author.objects.all()
    assert plain_rows(plain) is plain


@pytest.fixture
def shouted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Titles of books are read in capitals."""
    with monkeypatch.context() as patch:
        is_replaced.cache_clear()
        patch.setattr(Book, "title", Shout())
        yield
    is_replaced.cache_clear()


@pytest.mark.django_db
@pytest.mark.usefixtures("shouted")
def test_a_page_shows_what_the_attribute_gives_and_filters_on_the_column_behind_it() -> None:
    book = make_book(isbn="1")
    Book.objects.update(title="Dune")
    request = request_of(make_superuser(), site_with(Book, fields=["title", "isbn"]))
    query = {"model": "testapp.book", "fields": ["title", "isbn"]}
    assert call(QueryRecords(), request, **query)["rows"] == [[book.pk, "DUNE", "1"]]
    assert call(QueryRecords(), request, **query, filters={"title": "Dune"})["returned"] == 1
    # MySQL compares texts without regard to case.
    folds = connection.vendor == "mysql"
    assert call(QueryRecords(), request, **query, filters={"title": "DUNE"})["returned"] == folds
    assert "no field 'title'" in refusal(AggregateRecords(), request, model="testapp.book", group_by=["title"])
    assert list(complete_field(request, "testapp.book", "title", "D").values) == []


@pytest.mark.django_db
@pytest.mark.usefixtures("shouted")
@pytest.mark.parametrize("fields", [["title"], ["isbn"]])
def test_an_order_by_such_a_column_pages_by_what_it_holds(fields: list[str]) -> None:
    for title in ("b", "A", "a", "C", "B", "c"):
        Book.objects.filter(pk=make_book().pk).update(title=title)
    request = request_of(make_superuser(), site_with(Book, fields=["title", "isbn"]))
    for ordering in ("title", "-title"):
        found, cursor = [], {}
        for _ in range(6):
            page = call(
                QueryRecords(), request, model="testapp.book", limit=1, fields=fields, ordering=[ordering], **cursor
            )
            found += [row[0] for row in page["rows"]]
            cursor = {"cursor": page.get("next_cursor")}
        # Where the database takes two titles for equal, keys decide.
        expected = Book.objects.order_by(ordering, ordering.replace("title", "pk"))
        assert found == list(expected.values_list("pk", flat=True))
        assert cursor == {"cursor": None}


@pytest.mark.django_db
@pytest.mark.usefixtures("shouted")
def test_an_order_by_the_column_behind_it_loses_no_row() -> None:
    for number in range(5):
        make_book("Dune", isbn=str(number))
    request = request_of(make_superuser(), site_with(Book, fields=["isbn"], ordering=["isbn", "title"]))
    found, cursor = [], {}
    for _ in range(3):
        page = call(QueryRecords(), request, model="testapp.book", limit=2, **cursor)
        found += [row[-1] for row in page["rows"]]
        cursor = {"cursor": page.get("next_cursor")}
    assert found == list("01234")


@pytest.mark.django_db
@pytest.mark.usefixtures("shouted")
def test_a_path_to_a_related_row_shows_what_its_attribute_gives() -> None:
    loan = Loan.objects.create(book=make_book(), borrower="Ann", due=timezone.now())
    Book.objects.update(title="Dune")
    request = request_of(make_superuser(), site_with(Loan, fields=["borrower", "book__title"]))
    page = call(QueryRecords(), request, model="testapp.loan", fields=["borrower", "book__title"])
    assert page["rows"] == [[loan.pk, "Ann", "DUNE"]]
    record = call(GetRecord(), request, model="testapp.loan", pk=loan.pk)
    assert "DUNE" in str(record)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["delete", "save", "full_save"])
def test_reading_never_calls_a_method_that_alters_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_save(self: Author) -> str:
        self.delete()
        return "saved"

    full_save.alters_data = True  # type: ignore[attr-defined]
    monkeypatch.setattr(Author, "full_save", full_save, raising=False)
    author = make_author("Ada")
    request = request_of(make_superuser(), site_with(Author, fields=["name", name]))
    assert call(QueryRecords(), request, model="testapp.author")["columns"] == ["id", "name"]
    assert call(GetRecord(), request, model="testapp.author", pk=str(author.pk))["fields"]["name"] == "Ada"
    assert Author.objects.filter(pk=author.pk).exists()


def test_a_value_is_written_as_a_form_would_take_it() -> None:
    price, title = (Page._meta.get_field(name) for name in ("price", "title"))
    page = Page(title="Home", price=Money(Decimal("12.50"), "EUR"))
    assert as_written(title, page) == "Home"
    assert as_written(price, page) == [Decimal("12.50"), "EUR"]
    page.title = Currency("EUR")  # type: ignore[assignment]
    assert as_written(title, page) == "Dollar EUR"
    page.price = None
    assert as_written(price, page) is None
    page.price = Money(Decimal(1), Currency("USD"))  # type: ignore[arg-type]
    assert as_written(price, page) == [Decimal(1), "Dollar USD"]


class Currency:
    """A part of a value that is an object itself."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"Dollar {self.code}"
