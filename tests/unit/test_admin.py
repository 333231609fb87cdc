"""The way from the admin to the page of the applications that have access, and the hosts of applications."""

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.test import Client, RequestFactory
from oauth2_provider.models import Application

from mcp_django.admin import ClientHostAdmin, ConnectedApplicationAdmin
from mcp_django.models import ClientHost, ConnectedApplication, TokenFacts
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db
ENTRY = "/admin/mcp_django/connectedapplication/"
HOSTS = "/admin/mcp_django/clienthost/"


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


def test_operators_who_may_view_all_tokens_are_led_to_all_of_them():
    operator = make_user("op", "oauth2_provider.view_accesstoken")
    everybody = "/admin/oauth2_provider/accesstoken/"
    for browser in (browser_of(operator), browser_of(make_superuser("root"))):
        assert browser.get(ENTRY)["Location"] == everybody
        assert browser.get(everybody).status_code == 200


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


def described(url, source="cimd") -> Application:
    return Application.objects.create(
        client_id=url, registration_source=source, client_type="public", authorization_grant_type="authorization-code"
    )


def test_hosts_are_decided_on_together_and_the_history_says_by_whom():
    root = make_superuser()
    hosts = [ClientHost.objects.create(host=f"{name}.example") for name in ("a", "b", "c")]
    browser = browser_of(root)
    chosen = [host.pk for host in hosts[:2]]
    for action, decision in (("allow", "allowed"), ("block", "blocked")):
        assert browser.post(HOSTS, {"action": action, "_selected_action": chosen}).status_code == 302
        found = dict(ClientHost.objects.values_list("host", "decision"))
        assert found == {"a.example": decision, "b.example": decision, "c.example": "waiting"}
    logged = LogEntry.objects.filter(content_type__model="clienthost", user=root)
    assert logged.count() == 4


def test_what_is_blocked_takes_the_clients_with_it_and_what_is_allowed_leaves_them():
    described("https://a.example/c")
    described("https://b.example/c")
    described("https://a.example/manual", "manual")
    browser = browser_of(make_superuser())
    browser.post(f"{HOSTS}add/", {"host": "b.example", "decision": "allowed"})
    assert Application.objects.count() == 3
    browser.post(f"{HOSTS}add/", {"host": "a.example", "decision": "blocked"})
    assert set(Application.objects.values_list("client_id", flat=True)) == {
        "https://b.example/c",
        "https://a.example/manual",
    }
    host = ClientHost.objects.get(host="b.example")
    browser.post(f"{HOSTS}{host.pk}/change/", {"host": "b.example", "decision": "blocked"})
    assert Application.objects.count() == 1


def test_who_asked_is_shown_and_not_to_be_changed():
    ada = make_user("ada")
    host = ClientHost.objects.create(host="a.example", url="https://a.example/c", user=ada)
    browser = browser_of(make_superuser())
    page = browser.get(f"{HOSTS}{host.pk}/change/").text
    assert "https://a.example/c" in page
    assert "ada" in page
    browser.post(f"{HOSTS}{host.pk}/change/", {"host": "a.example", "decision": "allowed", "url": "x", "user": ""})
    host.refresh_from_db()
    assert (host.decision, host.url, host.user) == ("allowed", "https://a.example/c", ada)


def test_without_permission_there_are_no_hosts():
    ClientHost.objects.create(host="a.example")
    staff = browser_of(make_user("ada"))
    assert staff.get(HOSTS).status_code == 403
    assert HOSTS not in staff.get("/admin/").text
    assert HOSTS in browser_of(make_superuser()).get("/admin/").text


def test_without_the_pages_there_are_no_hosts_in_the_list_of_apps(settings):
    settings.ROOT_URLCONF = "tests.two_sites"
    request = RequestFactory().get("/")
    request.user = make_superuser()
    assert not ClientHostAdmin(ClientHost, AdminSite()).has_module_permission(request)


def test_no_model_of_a_client_reaches_the_hosts():
    from mcp_django import site

    assert all(exposure.model is not ClientHost for exposure in site.exposures.values())
