"""Values by which a caller may filter, of rows that the caller may view."""

from datetime import date
from decimal import Decimal

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import F
from django.db.models.functions import Length
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django import site as default_site
from mcp_django.resources.completions import complete_field
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Note, Section, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def root():
    return reader(make_superuser(), default_site)


def values(request, label, field, text=""):
    return list(complete_field(request, label, field, text).values)


def pks(*rows):
    return [str(row.pk) for row in rows]


def test_choices_are_completed_by_value_and_label(root):
    assert values(root, "testapp.book", "status") == ["draft", "published", "withdrawn"]
    assert values(root, "testapp.book", "status", "in prep") == ["draft"]
    assert values(root, "testapp.book", "status", "d") == ["draft", "published", "withdrawn"]


def test_truth_values_are_completed(root):
    assert values(root, "testapp.book", "active", "t") == ["true"]


def test_a_foreign_key_is_completed_by_the_search_of_the_related_exposure(root):
    author = make_author("Ursula", email="u@example.org")
    make_author("Somebody")
    assert values(root, "testapp.book", "author", "u@example.org") == pks(author)
    tag = Tag.objects.create(name="green")
    assert values(root, "testapp.book", "tags", "gre") == pks(tag)


def test_a_column_is_completed_from_the_values_that_rows_have(root):
    for title in ("Winter", "Spring", "Winter", "Midwinter"):
        make_book(title)
    assert values(root, "testapp.book", "title", "winter") == ["Winter", "Midwinter"]
    assert values(root, "testapp.book", "title") == ["Midwinter", "Spring", "Winter"]


def test_columns_of_other_types_are_completed_where_they_have_beginnings_or_are_met():
    request = reader(make_superuser(), site_with(Book))
    make_book("A", pages=12, price=Decimal("9.90"), published=date(2024, 1, 31), rating=None)
    make_book("B", pages=125, price=Decimal("10.00"), published=None)
    assert values(request, "testapp.book", "pages", "12") == ["12", "125"]
    assert values(request, "testapp.book", "published") == ["2024-01-31"]
    assert values(request, "testapp.book", "published", "2024-01-31") == ["2024-01-31"]
    assert values(request, "testapp.book", "published", "2024") == []
    assert values(request, "testapp.book", "price", "9.9") == ["9.90"]
    assert values(request, "testapp.book", "price") == ["9.90", "10.00"]
    assert values(request, "testapp.book", "rating") == []


def test_135_values_come_from_rows_that_the_caller_may_view():
    user = make_user("viewer", "testapp.view_book")
    make_book("Mine", owner=user)
    make_book("Theirs", owner=make_user("other"))
    request = reader(user, default_site)
    assert values(request, "testapp.book", "title") == ["Mine"]


def test_135_keys_of_a_model_that_the_caller_may_not_view_are_not_given():
    make_book("Mine", author=make_author("Ursula"))
    request = reader(make_user("viewer", "testapp.view_book"), default_site)
    assert values(request, "testapp.book", "author") == []


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("testapp.book", "nosuch"),
        ("testapp.nosuch", "title"),
        ("auth.user", "username"),
        ("testapp.author", "secret_token"),
        ("testapp.book", "author__name"),
        ("testapp.book", "data"),
        ("testapp.book", "cover"),
        ("testapp.author", "number_of_books"),
    ],
)
def test_135_hidden_missing_and_odd_fields_have_no_values(root, label, field):
    make_book("Mine", author=make_author("Ursula", secret_token="hidden"), data={"a": 1}, cover="covers/a.txt")
    assert values(root, label, field) == []
    assert values(root, label, field, "hid") == []


def test_125_fields_of_a_model_that_the_caller_may_not_view_have_no_values():
    make_author("Ursula")
    request = reader(make_user("viewer", "testapp.view_book"), default_site)
    assert values(request, "testapp.author", "name") == []


def test_only_declared_filters_are_completed():
    site = site_with(Author, filter_fields={"name": ["icontains"]})
    make_author("Ursula", email="u@example.org")
    request = reader(make_superuser(), site)
    assert values(request, "testapp.author", "name") == ["Ursula"]
    assert values(request, "testapp.author", "email") == []


def test_a_column_is_read_in_at_most_two_bounded_queries(root):
    for _ in range(5):
        make_book("Same")
    values(root, "testapp.book", "title")
    with CaptureQueriesContext(connection) as queries:
        assert values(root, "testapp.book", "title", "sam") == ["Same"]
    assert len(queries) == 2
    assert all("DISTINCT" in query["sql"] and "LIMIT 101" in query["sql"] for query in queries)


def test_a_text_that_is_too_long_to_choose_is_left_out():
    site = site_with(Note)
    section = Section.objects.create(name="Here")
    for text in ("short", "x" * 2000):
        Note.objects.create(target=section, text=text)
    assert values(reader(make_superuser(), site), "testapp.note", "text") == ["short"]


def test_a_field_that_is_shown_as_something_else_has_no_values():
    class Masked(ModelExposure):
        fields = ["email"]

        def email(self, obj):
            return "***"

    site = site_with()
    site.register(Author, Masked)
    make_author("Ursula", email="u@example.org")
    assert values(reader(make_superuser(), site), "testapp.author", "email") == []


class CountingAdmin(admin.ModelAdmin):
    list_display = ["title", "worth", "letters", "initial"]

    def get_queryset(self, request):
        return super().get_queryset(request).annotate(size=Length("title")).exclude(title="hidden")

    @admin.display(ordering=F("price") * F("pages"))
    def worth(self, book):
        return ""

    @admin.display(ordering="-size")
    def letters(self, book):
        return ""

    @admin.display(ordering="pages")
    def initial(self, book):
        return ""


def test_a_column_that_the_admin_computes_is_completed_by_what_it_is_filtered_by():
    pages = admin.AdminSite("completed")
    pages.register(Book, CountingAdmin)
    request = reader(make_superuser(), MCPSite("completed", admin_site=pages))
    for title, number in (("one", 2), ("three", 10), ("hidden", 7)):
        make_book(title, pages=number, price=Decimal("1.50"))
    assert values(request, "testapp.book", "letters") == ["3", "5"]
    assert values(request, "testapp.book", "initial") == ["2", "10"]
    assert [Decimal(value) for value in values(request, "testapp.book", "worth")] == [3, 15]
    assert values(request, "testapp.book", "letters", "5") == ["5"]
    assert values(request, "testapp.book", "size") == []
