"""The number of queries of a page does not depend on its rows: for every model of the tests, by every exposure."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from rest_framework import serializers

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.orm.prefetch import each_row
from mcp_django.server.methods.resources_and_prompts import read_resource
from mcp_django.sites import HISTORY
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser
from tests.filterapp.admin import sidebar
from tests.inlineapp.admin import shop
from tests.library import reader
from tests.testapp.models import Author, Book, Loan
from tests.tool_calls import call

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
QUERY = QueryRecords()
APPS = ("testapp", "fieldapp", "filterapp", "inlineapp", "restapp")
MODELS = [model for label in APPS for model in apps.get_app_config(label).get_models()]
FEW, MANY = 3, 9
_numbers = itertools.count(1)


def value_of(field: Any) -> Any:
    """Return a value for the field, another one each time."""
    number = next(_numbers)
    if field.is_relation:
        return make_row(field.related_model)
    if isinstance(field, models.DateTimeField):
        return f"2024-01-01T00:00:{number % 60:02}Z"
    if isinstance(field, models.DateField):
        return f"20{number % 90 + 10}-01-{number % 28 + 1:02}"
    if isinstance(field, (models.CharField, models.TextField)):
        return f"{number:05}"[-(field.max_length or 5) :]
    return number if isinstance(field, (models.IntegerField, models.DecimalField, models.FloatField)) else None


def make_row(model: type[Model]) -> Model:
    values = {
        field.name: value
        for field in model._meta.concrete_fields
        if not field.has_default() and not field.generated and not isinstance(field, models.AutoField)
        if not (field.remote_field and field.remote_field.parent_link)
        if not field.null or field.is_relation
        if field.related_model is not model
        if (value := value_of(field)) is not None
    }
    return model._base_manager.create(**values)


def make_entry(site: MCPSite, user: Any) -> None:
    """Add an entry to the history of a row that is there, of the first model that has a history."""
    exposure = next(exposure for exposure in site.exposures.values() if isinstance(exposure, AdminExposure))
    row = exposure.model._default_manager.all()[0]
    message = [{"changed": {"fields": ["Name"]}}]
    LogEntry.objects.log_actions(user.pk, [row], CHANGE, change_message=message)


def every_site() -> Iterator[MCPSite]:
    every = MCPSite("every")
    for model in MODELS:
        many = [field.name for field in model._meta.many_to_many]
        every.register(model, ModelExposure, fields=[*(f.name for f in model._meta.concrete_fields), *many])
    yield every
    for own in (admin.site, sidebar, shop):
        yield MCPSite("admin", admin_site=own)


def counts(site: MCPSite, user: Any, number: int, read: Any) -> dict[str, int]:
    """Return how many queries a page of each model takes when each has so many rows more."""
    # Django keeps the content types of a process.
    ContentType.objects.get_for_models(*site.exposures, for_concrete_models=False)
    for exposure in site.exposures.values():
        for _ in range(number):
            if exposure.label == HISTORY:
                make_entry(site, user)
            else:
                make_row(exposure.model)
    found = {}
    for label in site.exposures_by_label:
        # The first page shows what labels follow, and the next ones read it with their rows.
        read(reader(user, site), label)
        request = reader(user, site)
        with CaptureQueriesContext(connection) as captured:
            read(request, label)
        found[label] = len(captured)
    return found


def read_tool(request: Any, label: str) -> None:
    call(QUERY, request, model=label, limit=200)


def read_page(request: Any, label: str) -> None:
    read_resource(request, {"uri": f"django://{label.replace('.', '/')}"})


# Counts with a query of its own, which only the project can write otherwise: test_a_column_that_…_is_named.
ONE_BY_ONE = {"testapp.author"}


@pytest.mark.parametrize("position", range(4), ids=["every field", "admin", "sidebar", "shop"])
@pytest.mark.parametrize("read", [read_tool, read_page], ids=["tool", "resource"])
def test_row_119_a_page_of_any_exposure_has_a_fixed_number_of_queries(
    position: int, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether a table is long is asked once an hour, of those that have a second page.
    monkeypatch.setattr("mcp_django.tools.query_records._is_long", lambda model, when: False)
    site, user = list(every_site())[position], make_superuser()
    few, many = counts(site, user, FEW, read), counts(site, user, MANY, read)
    grown = {label for label in few if few[label] != many[label]}
    assert grown <= (ONE_BY_ONE if position == 1 else set())
    assert max(number for label, number in few.items() if label not in grown) <= 8


def test_a_column_that_makes_a_query_for_each_row_is_named(django_assert_num_queries: Any) -> None:
    site = MCPSite(admin_site=admin.site)
    for _ in range(6):
        make_author()
    request = reader(make_superuser(), site)
    assert call(QUERY, request, model="testapp.author")["hint"] == (
        "number_of_books needs a query for each row: leave it out of fields for a faster page"
    )
    with django_assert_num_queries(1):
        assert "hint" not in call(QUERY, request, model="testapp.author", fields=["name", "email"])


class Follows(ModelExposure):
    fields = ("borrower", "writer", "title")

    def writer(self, loan: Loan) -> str:
        return loan.book.author.name

    def title(self, loan: Loan) -> str:
        return loan.book.title


def make_loans(number: int) -> None:
    for position in range(number):
        Loan.objects.create(book=make_book(f"Book {position}"), borrower="Ann", due="2024-01-01T00:00:00Z")


@pytest.mark.parametrize("number", [4, 12])
def test_row_119_a_method_that_follows_relations_costs_a_query_for_each_relation(
    number: int, django_assert_num_queries: Any
) -> None:
    site = MCPSite()
    site.register(Loan, Follows)
    make_loans(number)
    request = reader(make_superuser(), site)
    # The page; what the first row follows; the same for all others.
    with django_assert_num_queries(1 + 2 + 2):
        found = call(QUERY, request, model="testapp.loan")
    assert [row[3] for row in found["rows"]] == [f"Book {position}" for position in range(number)]
    assert "hint" not in found


class AuthorSerializer(serializers.ModelSerializer):
    class Meta:
        model = Author
        fields = ("name",)


class BookSerializer(serializers.ModelSerializer):
    author = AuthorSerializer()

    class Meta:
        model = Book
        fields = ("id", "author")


@pytest.mark.parametrize("number", [4, 12])
def test_row_119_a_serializer_within_a_serializer_costs_one_query(number: int, django_assert_num_queries: Any) -> None:
    site = MCPSite()
    site.register(Book, ModelExposure, serializer_class=BookSerializer)
    for position in range(number):
        make_book(author=make_author(f"Author {position}"))
    request = reader(make_superuser(), site)
    with django_assert_num_queries(1 + 1 + 1):
        call(QUERY, request, model="testapp.book", fields=["author"])


def test_a_relation_that_the_first_row_does_not_have_is_loaded_for_the_others(django_assert_num_queries: Any) -> None:
    owner = make_superuser()
    for position in range(10):
        make_book(owner=owner if position else None)
    books = list(Book.objects.order_by("pk"))
    with django_assert_num_queries(1):
        names, one_by_one = each_row(books, lambda book: book.owner and book.owner.username)
    assert names == [None, *["root"] * 9]
    assert not one_by_one
