"""The way from the admin to the page of the applications that have access."""

import pytest
from django.contrib.admin import AdminSite
from django.test import Client, RequestFactory

from mcp_django.admin import ConnectedApplicationAdmin
from mcp_django.models import ConnectedApplication, TokenFacts
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db
ENTRY = "/admin/mcp_django/connectedapplication/"


def browser_of(user) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


def test_everybody_who_may_enter_the_admin_finds_the_page():
    staff = make_user("ada")
    browser = browser_of(staff)
    index = browser.get("/admin/")
    assert f'href="{ENTRY}"' in index.text
    assert "Applications with access" in index.text
    assert browser.get(ENTRY)["Location"] == "/oauth/authorized_tokens/"


def test_who_may_not_enter_the_admin_is_not_let_through():
    assert "/admin/login/" in browser_of(make_user("bob", staff=False)).get(ENTRY)["Location"]


def test_there_is_nothing_but_the_way_not_even_for_a_superuser():
    root = make_superuser()
    TokenFacts.objects.create(token="a" * 64, user=root, facts={"credential": "x"}, created="2026-01-01T00:00Z")
    browser = browser_of(root)
    for path in ("add/", f"{'a' * 64}/change/", f"{'a' * 64}/delete/", f"{'a' * 64}/history/"):
        assert browser.get(ENTRY + path).status_code == 404


def test_it_asks_for_no_permissions_of_its_own():
    from django.contrib.auth.models import Permission

    assert not Permission.objects.filter(content_type__model="connectedapplication").exists()


def test_without_the_pages_there_is_no_way(settings):
    settings.ROOT_URLCONF = "tests.two_sites"
    request = RequestFactory().get("/")
    request.user = make_superuser()
    entry = ConnectedApplicationAdmin(ConnectedApplication, AdminSite())
    assert not entry.has_module_permission(request)
    assert not entry.has_view_permission(request)


def test_another_admin_site_can_have_it_too():
    own = AdminSite("own")
    own.register(ConnectedApplication, ConnectedApplicationAdmin)
    request = RequestFactory().get("/")
    request.user = make_superuser()
    assert own._registry[ConnectedApplication].has_module_permission(request)
    assert not own._registry[ConnectedApplication].get_queryset(request).exists()
