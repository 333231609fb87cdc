"""The order of pages: of columns that the caller sees, and total."""

import pytest
from django.contrib import admin
from django.db.models import F

from mcp_django import MCPSite, ModelExposure
from mcp_django.ordering import client_order_key, default_ordering
from tests.factories import make_superuser
from tests.testapp.models import Book
from tests.writing import request_of, site_with


class Ordered(ModelExposure):
    ordering = (F("rating").desc(), "?", "-author__name", "nothing", "tags", "data", "-id", "title")  # type: ignore[assignment]


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
