"""What ``list_filter`` names is a filter here too: of users, of proxies and of inherited columns."""

import datetime
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User

from mcp_django import MCPSite
from mcp_django.exceptions import ToolError
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_book, make_superuser, make_user
from tests.testapp.models import AudioBook, Author, Book, PublishedBook
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


class OwnedAdmin(admin.ModelAdmin):
    fields = ["title", "owner"]
    list_filter = ["owner__is_active", "owner__date_joined", "owner__is_superuser", "owner__password"]


class OwnerlessAdmin(OwnedAdmin):
    fields = ["title"]
    list_filter = ["owner", "owner__is_active"]


class RatedAdmin(admin.ModelAdmin):
    fields = ["title"]
    list_filter = ["rating", "created"]


class NarrowUserAdmin(UserAdmin):
    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(is_active=True)


class ShyUserAdmin(UserAdmin):
    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        return [(None, {"fields": ["username"]})]


def site_of(*registered: tuple[type, type]) -> MCPSite:
    pages = admin.AdminSite("of filters")
    for model, model_admin in registered:
        pages.register(model, model_admin)
    return MCPSite("of filters", admin_site=pages)


def titles(user: User, site: MCPSite, model: str = "testapp.book", **filters: Any) -> list[str] | None:
    """Return the titles of the rows that a filter finds, None where there is no such filter."""
    asked = {"model": model, "filters": filters, "fields": ["title"], "ordering": ["title"]}
    try:
        found: Any = QueryRecords().call(request_of(user, site), asked).structured
    except ToolError as error:
        found = error
    if isinstance(found, ToolError):
        assert "has no filter" in found.message
        return None
    return [row[-1] for row in found["rows"]]


@pytest.fixture
def owners() -> None:
    make_book(
        "a", owner=User.objects.create_user("old", date_joined=datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC))
    )
    make_book("b", owner=User.objects.create_user("gone", is_active=False))


@pytest.mark.usefixtures("owners")
@pytest.mark.parametrize("model_admin", [OwnedAdmin, OwnerlessAdmin])
def test_a_path_to_users_filters_for_those_who_view_users_in_the_admin(model_admin: type) -> None:
    site = site_of((User, UserAdmin), (Book, model_admin), (Author, admin.ModelAdmin))
    boss = make_superuser()
    assert titles(boss, site, owner__is_active=False) == ["b"]
    assert titles(boss, site, **{"owner.is_active": True}) == ["a"]
    if model_admin is OwnedAdmin:
        assert titles(boss, site, owner__date_joined__lt="2010-01-01") == ["a"]
    allowed = make_user("allowed", "testapp.view_book", "auth.view_user")
    assert titles(allowed, site, owner__is_active=False) == ["b"]


@pytest.mark.usefixtures("owners")
def test_a_path_to_users_is_closed_to_those_who_do_not_view_them_all() -> None:
    boss, clerk = make_superuser(), make_user("clerk", "testapp.view_book")
    site = site_of((User, UserAdmin), (Book, OwnedAdmin))
    assert titles(clerk, site, owner__is_active=False) is None
    # Rights and secrets are filters for nobody.
    assert titles(boss, site, owner__is_superuser=True) is None
    assert titles(boss, site, owner__password="x") is None
    # What list_filter does not name is none either.
    assert titles(boss, site, owner__username="old") is None
    assert titles(boss, site_of((User, NarrowUserAdmin), (Book, OwnedAdmin)), owner__is_active=False) is None
    assert titles(boss, site_of((User, ShyUserAdmin), (Book, OwnedAdmin)), owner__is_active=False) is None
    assert titles(boss, site_of((Book, OwnedAdmin)), owner__is_active=False) is None


def test_columns_of_a_proxy_and_of_parents_filter_as_the_models_own() -> None:
    make_book("low", rating=1, status="published")
    make_book("high", rating=5, status="published")
    heard = make_book("heard", rating=3)
    AudioBook(book_ptr=heard, narrator="x").save_base(raw=True)
    boss = make_superuser()
    for registered in ([], [(Book, RatedAdmin)]):
        site = site_of((PublishedBook, RatedAdmin), (AudioBook, RatedAdmin), *registered)
        assert titles(boss, site, "testapp.publishedbook", rating__gte=4) == ["high"]
        assert titles(boss, site, "testapp.audiobook", rating=3) == ["heard"]
        assert titles(boss, site, "testapp.audiobook", created__gte="2000-01-01") == ["heard"]


def test_what_the_exposure_of_the_parent_hides_is_no_filter_of_its_children() -> None:
    boss = make_superuser()
    site = site_of((PublishedBook, RatedAdmin), (AudioBook, RatedAdmin), (Book, RatedAdmin))
    site.register(Book, fields=["title"])
    assert titles(boss, site, "testapp.publishedbook", rating__gte=4) is None
    assert titles(boss, site, "testapp.audiobook", rating=3) is None
