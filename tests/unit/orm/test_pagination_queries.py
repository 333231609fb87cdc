"""Filters, search and counts over the caller's rows."""

from typing import Any

import pytest
from django.contrib import admin
from django.db.models import QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import ToolError
from mcp_django.orm import pagination
from mcp_django.orm.access import access_of
from mcp_django.orm.fields import resolve_path
from mcp_django.orm.lookups import parse_condition
from mcp_django.orm.pagination import PageQuery, chunks, narrowed
from mcp_django.orm.search import TextSearch
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import query_of, reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def condition(model: Any, text: str, lookup: str, value: Any) -> Any:
    path = resolve_path(model, text)
    assert path is not None
    return parse_condition(path, lookup, value)


def found(request: MCPRequest, model: Any, *conditions: Any, search: str = "") -> set[Any]:
    exposure = request.mcp.site.exposures[model]
    return set(narrowed(access_of(request)[exposure], conditions, search).values_list("pk", flat=True))


def test_a_many_to_many_filter_gives_each_row_once() -> None:
    book, other = make_book(), make_book()
    tags = [Tag.objects.create(name=f"t{i}") for i in range(3)]
    book.tags.set(tags)
    request = reader(make_superuser(), site_with(Book, Tag))
    rows = narrowed(
        access_of(request)[request.mcp.site.exposures[Book]], [condition(Book, "tags", "in", [t.pk for t in tags])], ""
    )
    assert list(rows) == [book]
    assert other.pk not in found(request, Book, condition(Book, "tags__name", "startswith", "t"))


def test_a_many_to_many_filter_finds_by_visible_rows_only() -> None:
    class Some(ModelExposure):
        fields = ("name",)

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(name="hidden")

    book = make_book()
    hidden, seen = Tag.objects.create(name="hidden"), Tag.objects.create(name="seen")
    book.tags.set([hidden, seen])
    site = site_with(Book)
    site.register(Tag, Some)
    request = reader(make_superuser(), site)
    assert found(request, Book, condition(Book, "tags", "exact", seen.pk)) == {book.pk}
    assert found(request, Book, condition(Book, "tags", "exact", hidden.pk)) == set()
    assert found(request, Book, condition(Book, "tags__name", "exact", "hidden")) == set()


def test_row_115_filters_are_joined_by_and_within_the_callers_rows() -> None:
    class Mine(ModelExposure):
        fields = ("title", "pages")

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).filter(owner=request.user)

    user = make_user("u", "testapp.view_book")
    mine, _ = make_book(owner=user, title="a", pages=1), make_book(title="a", pages=1)
    make_book(owner=user, title="b", pages=1)
    site = MCPSite()
    site.register(Book, Mine)
    request = reader(user, site)
    conditions = [condition(Book, "title", "icontains", "A"), condition(Book, "pages", "exact", 1)]
    assert found(request, Book, *conditions) == {mine.pk}


def test_row_127_rows_that_the_manager_hides_are_never_found() -> None:
    book = make_book()
    Loan.objects.create(book=book, borrower="gone", due="2024-01-01T00:00:00Z", deleted="2024-01-01T00:00:00Z")
    seen = Loan.objects.create(book=book, borrower="here", due="2024-01-01T00:00:00Z")
    request = reader(make_superuser(), site_with(Loan, search_fields=["borrower"]))
    assert found(request, Loan) == {seen.pk}
    assert found(request, Loan, search="gone") == set()
    assert found(request, Loan, condition(Loan, "borrower", "exact", "gone")) == set()


def test_a_search_is_the_admins_and_gives_each_row_once() -> None:
    book = make_book(title="Solaris")
    book.tags.set([Tag.objects.create(name="solar"), Tag.objects.create(name="solaris")])
    make_book(title="Eden")
    request = reader(make_superuser(), site_with(Book, search_fields=["title", "tags__name"]))
    exposure = request.mcp.site.exposures[Book]
    assert list(narrowed(access_of(request)[exposure], [], "sola")) == [book]
    query = query_of(request, exposure, ["id"], search="sola", limit=1)
    assert [list(rows) for rows in query.rows(exposure.get_queryset(request))] == [[book]]


def test_a_search_without_search_fields_is_refused_rather_than_ignored() -> None:
    site = site_with(Author)
    request = reader(make_superuser(), site)
    with pytest.raises(ToolError, match="Use filters instead"):
        TextSearch(access_of(request)[site.exposures[Author]]).check()
    admins = MCPSite(admin_site=admin.site)
    TextSearch(access_of(reader(make_superuser("root2"), admins))[admins.exposures[Author]]).check()


def test_row_118_a_count_is_exact_up_to_its_cap_and_bounded_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    author = make_author()
    for _ in range(4):
        make_book(author=author)
    request = reader(make_superuser(), site_with(Book))
    query = query_of(request, request.mcp.site.exposures[Book], ["id"], limit=1)
    assert PageQuery.COUNT_CAP == 10_000
    assert query.total() == 4
    monkeypatch.setattr(PageQuery, "COUNT_CAP", 2)
    assert query.total() == "more than 2"


def test_the_related_exposure_decides_about_a_filter_through_it() -> None:
    site = site_with(Book, Tag)
    request = reader(make_user("u", "testapp.view_book"), site)
    assert access_of(request).model_of(Book._meta.get_field("tags").related_model) is None
    make_book().tags.set([Tag.objects.create(name="t")])
    assert found(request, Book, condition(Book, "tags__name", "exact", "t")) == set()


def test_keys_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "CHUNK", 2)
    assert list(chunks([1, 2, 3, 4, 5])) == [[1, 2], [3, 4], [5]]
