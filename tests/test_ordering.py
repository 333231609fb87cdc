"""The order of pages: of columns that the caller sees, and total."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import F, QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context import MCPRequest
from mcp_django.ordering import client_order_key, declared_ordering, default_ordering, sortable_names
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Section
from tests.writing import request_of, site_with


class Ordered(ModelExposure):
    ordering = (F("rating").desc(), "?", "-author__name", "nothing", "tags", "data", "-id", "title")


@pytest.mark.django_db
class TestOrder:
    def test_the_order_is_total_and_of_columns(self) -> None:
        request = request_of(make_superuser(), site_with(Book))
        keys = default_ordering(request, Ordered(Book, request.mcp.site))
        assert [(k.path, k.descending, k.nullable) for k in keys] == [
            ("rating", True, True),
            ("author__name", True, False),
            ("id", True, False),
        ]

    def test_a_computed_column_is_sorted_by_its_order_field(self) -> None:
        site = MCPSite(admin_site=admin.site)
        key = client_order_key(request_of(make_superuser(), site), site.exposures[Book], "is_long", descending=True)
        assert key is not None
        assert (key.path, key.descending) == ("pages", True)

    def test_the_place_of_null_that_is_declared_is_kept(self) -> None:
        class Placed(ModelExposure):
            ordering = (F("rating").desc(nulls_last=True), F("published").asc(nulls_first=True), F("title").asc())

        request = request_of(make_superuser(), site_with(Book))
        exposure = Placed(Book, request.mcp.site)
        for keys in (default_ordering(request, exposure), declared_ordering(exposure)):
            assert [(k.path, k.nulls_last) for k in keys] == [
                ("rating", True),
                ("published", False),
                ("title", None),
                ("id", None),
            ]

    def test_an_order_of_the_admin_may_be_an_expression(self) -> None:
        class BookAdmin(admin.ModelAdmin):
            ordering = (F("rating").desc(nulls_last=True),)
            list_display = ("title", "stars")

            @admin.display(ordering=F("rating").desc(nulls_last=True))
            def stars(self, book: Book) -> str:
                return "*"

        own = admin.AdminSite()
        own.register(Book, BookAdmin)
        site = MCPSite(admin_site=own)
        request = request_of(make_superuser(), site)
        first = default_ordering(request, site.exposures[Book])[0]
        assert (first.path, first.descending, first.nulls_last) == ("rating", True, True)
        # As a click on the column's head does in the admin.
        for descending in (False, True):
            key = client_order_key(request, site.exposures[Book], "stars", descending=descending)
            assert key is not None
            assert (key.path, key.descending, key.nulls_last) == ("rating", not descending, not descending)

    def test_a_client_says_where_null_stands_of_what_may_be_null(self) -> None:
        request = request_of(make_superuser(), site_with(Book))
        exposure = request.mcp.site.exposures[Book]
        for name, expected in {"rating": True, "title": None}.items():
            key = client_order_key(request, exposure, name, nulls_last=True)
            assert key is not None
            assert key.nulls_last is expected

    def test_a_relation_in_a_declared_order_means_the_order_of_its_model_as_in_django(self) -> None:
        class ByAuthor(ModelExposure):
            ordering = ("-author", "owner")

        request = request_of(make_superuser(), site_with(Book))
        keys = default_ordering(request, ByAuthor(Book, request.mcp.site))
        assert [(k.path, k.descending) for k in keys] == [
            ("author__name", True),
            ("author__id", True),
            ("owner_id", False),
            ("id", False),
        ]
        for name, owner in (("b", None), ("a", None), ("b", request.user)):
            make_book(author=make_author(name), owner=owner)
        order = [("-" if k.descending else "") + k.path for k in keys]
        assert list(Book.objects.order_by(*order)) == list(Book.objects.order_by("-author", "owner", "id"))


class Some(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="hidden")


def is_sortable(user: User, site: MCPSite, name: str, model: Any = Book) -> bool:
    return client_order_key(request_of(user, site), site.exposures[model], name) is not None


@pytest.mark.django_db
class TestRelations:
    def test_a_path_that_the_caller_can_read_row_by_row_is_sortable(self) -> None:
        site = site_with(Book, Author, Section)
        assert is_sortable(make_superuser(), site, "author__name")
        assert is_sortable(make_superuser("other"), site, "parent__parent__name", Section)
        assert not is_sortable(make_superuser("third"), site, "parent__" * 4 + "name", Section)

    def test_row_112_a_path_to_what_is_hidden_is_not_sortable(self) -> None:
        site = site_with(Book, Author)
        root, user = make_superuser(), make_user("u", "testapp.view_book")
        assert is_sortable(user, site, "author")
        assert not is_sortable(user, site, "author__name")
        for name in ("author__secret_token", "author__nothing", "owner__username", "tags__name", "loans__borrower"):
            assert not is_sortable(root, site, name), name
        for name in (
            "author__",
            "__name",
            "-author__name",
            "author__name__x",
            "author__pk__x",
            "",
            "_",
            "?",
            "author.name",
        ):
            assert not is_sortable(root, site, name), name

    def test_row_112_rows_that_are_hidden_are_not_told_apart_by_an_order(self) -> None:
        site = site_with(Book)
        site.register(Author, Some)
        assert not is_sortable(make_superuser(), site, "author__name")

    def test_what_the_exposure_declares_is_sortable_and_nothing_else(self) -> None:
        site = site_with(Book, sortable_by=["title", "author__name"])
        site.register(Author, Some)
        root = make_superuser()
        assert sortable_names(request_of(root, site), site.exposures[Book]) == ["title", "author__name"]
        assert not is_sortable(root, site, "rating")
        assert not is_sortable(root, site, "author__born")

    def test_row_112_a_declared_path_begins_with_what_the_caller_sees(self) -> None:
        site = site_with(Book, fields=["title"], sortable_by=["author__name", "rating"])
        request = request_of(make_superuser(), site)
        assert sortable_names(request, site.exposures[Book]) == []


@pytest.mark.django_db
@pytest.mark.parametrize("given", [["title"], []], ids=["title", "none"])
def test_what_the_admin_does_not_let_people_sort_by_callers_cannot(given: list[str]) -> None:
    class BookAdmin(admin.ModelAdmin):
        list_display = ("title", "pages")
        sortable_by = given

    own = admin.AdminSite()
    own.register(Book, BookAdmin)
    site = MCPSite(admin_site=own)
    request = request_of(make_superuser(), site)
    assert sortable_names(request, site.exposures[Book]) == given
    # The order of the list stays.
    assert [key.path for key in default_ordering(request, site.exposures[Book])] == ["title", "id"]
