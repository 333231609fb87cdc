"""A yes that needs a fresh sign-in: how old it may be, the way through the site's login and back, and never a loop."""

import time
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.signals import user_logged_in
from django.contrib.auth.views import LoginView
from django.test import Client
from django.urls import path

from mcp_django.models import Change
from mcp_django.testing import MCPClient
from tests.confirming import page_of, say, signed_in
from tests.factories import make_book, make_superuser
from tests.testapp.models import Book
from tests.urls import urlpatterns as site_urls

pytestmark = pytest.mark.django_db

# The login of a project that passes on whoever is signed in, without asking anything.
urlpatterns = [
    *site_urls,
    path("enter/", LoginView.as_view(redirect_authenticated_user=True, template_name="admin/login.html")),
]
AGAIN = "sign in again"


@pytest.fixture(autouse=True)
def fresh(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": {"all": "person", "sign_in": 300}}


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def page(root):
    return page_of(MCPClient(root).call("delete_record", model="testapp.book", pk=make_book("Dune").pk))


@pytest.fixture
def later(monkeypatch):
    """Let time pass; it stands still otherwise, so that a slow machine is no older than a fast one."""
    start = time.time()

    def pass_by(seconds):
        monkeypatch.setattr("time.time", lambda: start + seconds)

    pass_by(0)

    return pass_by


def sign_in(browser, login):
    """Fill in the login form at an address, and return the page to which it leads."""
    form = browser.get(login)
    # Nobody is passed on without being asked.
    assert form.status_code == 200
    password = {"username": "root", "password": "root", "next": parse_qs(urlsplit(login).query)["next"][0]}
    return browser.post(login, password, follow=True)


def test_a_yes_counts_for_as_long_as_the_sign_in_is_fresh(page, root, later):
    browser = signed_in(root)
    later(299)
    assert "Yes, do it" in browser.get(page).content.decode()
    say(browser, page)
    assert not Book.objects.exists()


@pytest.mark.parametrize("login", ["admin:login", "/enter/"])
def test_an_old_sign_in_leads_through_the_login_and_back_to_the_page(page, root, later, settings, login):
    settings.ROOT_URLCONF = __name__
    settings.LOGIN_URL = login
    browser = signed_in(root)
    later(301)
    # What would happen is still shown, and a yes is not taken.
    for shown in (browser.get(page).content.decode(), say(browser, page)):
        assert AGAIN in shown
        assert "Dune" in shown
        assert "Yes, do it" not in shown
    assert Book.objects.exists()
    away = browser.post(page, {"again": "1"})
    assert away.status_code == 302
    back = sign_in(browser, away["Location"])
    assert back.request["PATH_INFO"] == page
    assert "Yes, do it" in back.content.decode()
    # That somebody has signed in is no yes.
    assert Book.objects.exists()
    say(browser, page)
    assert not Book.objects.exists()


def test_a_no_needs_no_fresh_sign_in(page, root, later):
    browser = signed_in(root)
    later(301)
    say(browser, page, "no")
    assert Change.objects.get().state == "refused"


def test_a_sign_in_elsewhere_makes_no_other_session_fresh(page, root, later):
    browser = signed_in(root)
    later(301)
    signed_in(root)
    say(browser, page)
    assert Book.objects.exists()


def test_a_session_of_which_nobody_knows_when_it_began_is_old_and_the_page_makes_no_loop(page, root, settings):
    asked = settings.MCP_DJANGO
    settings.MCP_DJANGO = {**asked, "CONFIRM": "person"}
    browser = signed_in(root)
    settings.MCP_DJANGO = asked
    response = browser.get(page)
    assert response.status_code == 200
    assert AGAIN in response.content.decode()
    for noted in ("soon", None, 1e12):
        session = browser.session
        session["_mcp_django_signed_in"] = noted
        session.save()
        say(browser, page)
        assert Book.objects.exists()


def test_last_login_is_not_needed(page, root):
    browser = signed_in(root)
    type(root).objects.update(last_login=None)
    say(browser, page)
    assert not Book.objects.exists()


def test_a_sign_in_without_a_session_fails_nothing(root):
    for request in (None, object()):
        user_logged_in.send(sender=type(root), request=request, user=root)


def test_where_it_is_not_asked_for_nothing_is_kept_and_any_sign_in_counts(page, root, settings, later):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": {"all": "person"}}
    browser = signed_in(root)
    assert "_mcp_django_signed_in" not in browser.session
    later(10**6)
    say(browser, page)
    assert not Book.objects.exists()


def test_the_button_of_another_site_signs_nobody_out(page, root):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(root)
    assert browser.post(page, {"again": "1"}).status_code == 403
    assert browser.get(page).status_code == 200
