"""What may be filtered on: names in allow-lists, never keywords of the ORM."""

from collections.abc import Mapping, Sequence

import pytest
from django.contrib import admin

from mcp_django import MCPSite
from mcp_django.filtering import filters_of, find_filter
from mcp_django.ordering import client_order_key
from tests.factories import make_superuser, make_user
from tests.testapp.models import Author, Book
from tests.writing import request_of, site_with


@pytest.mark.django_db
class TestFilters:
    def test_row_112_a_hidden_field_and_no_field_are_alike(self) -> None:
        site = site_with(Book, Author, fields=["id", "author"])
        request, exposure = request_of(make_superuser(), site), site.exposures[Book]
        for name in ("title", "nothing", "author__secret_token", "author__name", "owner", "tags", "pk__in", "", "__"):
            assert find_filter(request, exposure, name) is None
            assert client_order_key(request, exposure, name, descending=False) is None

    @pytest.mark.parametrize(
        "name", ["_connector", "_negated", "__or", "x" * 5000, "id;--", "id__gt__", "id%s", "\0", "?"]
    )
    def test_rows_115_116_a_keyword_of_the_orm_is_no_filter(self, name: str) -> None:
        site = site_with(Book)
        request = request_of(make_superuser(), site)
        assert find_filter(request, site.exposures[Book], name) is None
        assert client_order_key(request, site.exposures[Book], name, descending=False) is None

    def test_declared_filters_narrow_to_what_they_name(self) -> None:
        declared: Mapping[str, Sequence[str]] = {"pages": ["gte"], "author__name": ["exact", "iexact"], "title": ["in"]}
        site = site_with(Book, fields=["pages", "author"], filter_fields=declared)
        request = request_of(make_superuser(), site)
        found = {name: lookups for name, _, lookups in filters_of(request, site.exposures[Book])}
        # The title is not among the fields: a filter on it would tell what it holds.
        assert found == {"pages": ("gte",), "author__name": ("exact", "iexact")}
        assert find_filter(request, site.exposures[Book], "author") is None

    def test_paths_of_the_admin_are_followed_as_far_as_the_caller_sees(self) -> None:
        site = MCPSite(admin_site=admin.site)
        exposure = site.exposures[Book]
        assert find_filter(request_of(make_superuser(), site), exposure, "tags__name") is not None
        member = make_user("u", "testapp.view_book")
        assert find_filter(request_of(member, site), exposure, "tags__name") is None

    def test_aliases_lead_to_the_visible_field(self) -> None:
        site = site_with(Book, fields=["author"])
        request, exposure = request_of(make_superuser(), site), site.exposures[Book]
        assert find_filter(request, exposure, "author_id") == find_filter(request, exposure, "author")
        assert find_filter(request, exposure, "pk") == find_filter(request, exposure, "id")
        assert find_filter(request, exposure, "owner_id") is None
