"""The way from one page of the console to the next, and who may open them."""

import subprocess
import sys

import pytest
from django.contrib import admin as admins
from django.test import Client
from django.utils import timezone

from mcp_django.console import console_pages
from mcp_django.console.call_log_admin import CallEntryAdmin
from mcp_django.models import CallEntry
from tests.factories import make_superuser, make_user
from tests.unit.console.conftest import url

CALLS = "/admin/mcp_django/callentry/"
VIEW = "mcp_django.view_callentry"
PAGES = {page.name: page for page in console_pages.PAGES}
# Open to all staff, who see there what concerns them.
OPEN = {"approvals"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_there_under_its_name(admin, name):
    assert url(name) == f"{CALLS}{name}/"
    assert f'aria-current="page">{PAGES[name].title}' in admin.get(url(name)).text


@pytest.mark.parametrize("name", sorted(PAGES.keys() - OPEN))
def test_staff_without_permission_see_none(browser_of, name):
    clerk = browser_of("clerk", "testapp.view_book", "testapp.change_book")
    assert clerk.get(url(name)).status_code == 403
    assert clerk.post(url(name), {"x": "1"}).status_code == 403


@pytest.mark.parametrize("name", PAGES)
def test_who_is_no_staff_is_asked_to_sign_in(db, name):
    stranger, customer = Client(), Client()
    customer.force_login(make_user("customer", VIEW, staff=False))
    for browser in (stranger, customer):
        answer = browser.get(url(name))
        assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (302, "/admin/login/")


@pytest.mark.parametrize("name", PAGES)
def test_a_post_needs_its_csrf_token(admin, name):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = admin.cookies
    assert strict.post(url(name), {"x": "1"}).status_code == 403


@pytest.mark.parametrize("name", PAGES)
def test_methods_that_are_none_of_the_page_are_refused(admin, name):
    assert admin.put(url(name)).status_code == 405
    assert admin.head(url(name)).status_code == 200
    if "POST" not in PAGES[name].methods:
        assert admin.post(url(name)).status_code == 405


def test_the_tabs_have_what_the_user_may_open(admin, browser_of):
    reader = browser_of("reader", VIEW)
    tabs = reader.get(f"{CALLS}overview/").text
    assert url("seen") in admin.get(f"{CALLS}overview/").text
    for name in PAGES:
        assert (reader.get(url(name)).status_code == 200) is (url(name) in tabs)


def test_without_the_toolkit_there_is_nothing_to_call(db, rf, monkeypatch):
    request = rf.get("/")
    request.user = make_superuser("root")
    pages = {page.name: page for page in CallEntryAdmin(CallEntry, admins.site).pages}
    assert pages["seen"].may_open(request)
    monkeypatch.setattr("mcp_django.console.console_pages.apps.is_installed", lambda name: False)
    assert not pages["seen"].may_open(request)
    assert pages["overview"].may_open(request)


def test_staff_without_permission_sees_none_of_it(browser_of):
    staff = browser_of("ann")
    assert staff.get(CALLS).status_code == 403
    assert b"callentry" not in staff.get("/admin/").content


def test_the_list_of_calls_is_a_tab(browser_of):
    staff = browser_of("ann", VIEW)
    assert f'<li><a href="{CALLS}">' in staff.get(url("overview")).text
    assert staff.get(CALLS).status_code == 200


def test_nobody_adds_or_changes_calls(admin):
    assert admin.get(f"{CALLS}add/").status_code == 403


@pytest.mark.parametrize("name", PAGES)
def test_wrong_settings_are_told_on_each_page_and_take_no_other_page_of_the_admin(admin, settings, name):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READONLY": True}
    for answer in (admin.get(url(name)), admin.get(url(name), {"user": "root"})):
        assert "Did you mean &#x27;READ_ONLY&#x27;?" in answer.text
    assert admin.get("/admin/").status_code == admin.get(CALLS).status_code == 200


@pytest.mark.parametrize("place", [CALLS, f"{CALLS}overview/", f"{CALLS}conversations/", f"{CALLS}try/", "/admin/"])
def test_a_log_that_is_off_says_so_and_how_to_turn_it_on(admin, settings, place):
    assert "The log of calls is off" not in admin.get(place).text
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": False}
    for has_calls in (False, True):
        if has_calls:
            CallEntry.objects.create(call_id="a" * 32, time=timezone.now(), outcome="ok")
        text = admin.get(place).text
        assert text.count("The log of calls is off") == 1
        assert "remove CALL_LOG: False from MCP_DJANGO" in text
        # Nobody knows whether one has.
        assert "No client has called yet." not in text
        assert "Calls are logged" not in text


STRICT = "default-src 'self'; img-src 'self' data:; "
POLICY = "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"


@pytest.mark.parametrize("place", [*(f"{name}/" for name in PAGES if name not in OPEN), ""])
def test_a_page_says_what_it_may_load(admin, place):
    assert admin.get(CALLS + place).headers["Content-Security-Policy"] == STRICT + POLICY


def test_files_of_another_host_are_let_in(admin, settings):
    settings.STATIC_URL = "https://static.example/x/"
    policy = admin.get(url("switches")).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self' https://static.example; img-src 'self' https://static.example data:; ")


def test_the_page_of_a_call_has_the_policy(admin):
    call = CallEntry.objects.create(call_id="a" * 32, time=timezone.now(), outcome="ok")
    assert admin.get(f"{CALLS}{call.pk}/change/").headers["Content-Security-Policy"] == STRICT + POLICY


def test_another_look_of_the_admin_keeps_its_scripts(admin, settings, tmp_path):
    (tmp_path / "admin").mkdir()
    (tmp_path / "admin" / "base_site.html").write_text("{% extends 'admin/base.html' %}")
    [engine] = settings.TEMPLATES
    settings.TEMPLATES = [{**engine, "DIRS": [tmp_path]}]
    assert admin.get(url("switches")).headers["Content-Security-Policy"] == POLICY


def test_a_policy_of_the_project_is_left_alone(admin, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.unit.console.test_console_pages.own_csp"]
    assert admin.get(url("switches")).headers["Content-Security-Policy"] == "default-src x"


def own_csp(get_response):
    def middleware(request):
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", "default-src x")
        return response

    return middleware


def test_what_local_pages_import_needs_no_toolkit_among_the_apps() -> None:
    code = """
import django
from django.conf import settings

apps = "admin auth contenttypes messages sessions".split()
settings.configure(INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "mcp_django"])
django.setup()
from importlib import import_module
from mcp_django.console.console_pages import CALL, PAGES, UNDO

for page in (*PAGES, CALL, UNDO):
    if page.is_local:
        import_module(f"mcp_django.console.{page.answer.rpartition('.')[0]}")
import_module("mcp_django.console.object_history")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-1000:]
