"""The page on which a person confirms a call: whose it is, what it shows, and what it takes."""

from datetime import UTC, datetime

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.test import Client
from django.utils.html import escape

from mcp_django.models import Change
from mcp_django.testing import MCPClient
from tests.confirming import page_of, say, signed_in, tool_of
from tests.factories import make_book, make_superuser
from tests.testapp.models import Book, Loan, Tag

pytestmark = pytest.mark.django_db

BOOK = {"model": "testapp.book"}


@pytest.fixture(autouse=True)
def by_person(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def caller(root):
    return MCPClient(root)


@pytest.fixture
def page(caller):
    return page_of(caller.call("delete_record", **BOOK, pk=make_book("Dune").pk))


def is_waiting():
    return Change.objects.get().state == "waiting" and Book.objects.exists()


# Whose page it is


def test_who_is_not_signed_in_is_sent_to_the_login_of_the_project(page):
    for send in (Client().get, Client().post):
        response = send(page)
        assert response.status_code == 302
        assert response["Location"] == f"/admin/login/?next={page}"
    assert is_waiting()


@pytest.mark.parametrize("send", ["get", "post"])
def test_the_page_of_another_user_is_not_there(page, send):
    eve = signed_in(make_superuser("eve"))
    own = getattr(eve, send)(page, {"yes": "1"})
    missing = getattr(eve, send)("/mcp/confirm/99999", {"yes": "1"})
    assert own.status_code == missing.status_code == 404
    assert is_waiting()


def test_a_bearer_token_opens_nothing(page, caller, root):
    token = {"authorization": caller.headers["Authorization"]}
    for browser in (Client(), signed_in(root)):
        for send in (browser.get, browser.post):
            response = send(page, {"yes": "1"}, headers=token)
            assert response.status_code == 302
            assert "/login/" in response["Location"]
    assert is_waiting()


def test_a_user_whom_middleware_found_by_a_token_is_nobody_here(page, root, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.TokenMiddleware"]
    assert Client().post(page, {"yes": "1"}).status_code == 302
    assert is_waiting()


class TokenMiddleware:
    """Finds the user by a token, as some packages do."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.user = User.objects.get(username="root")
        return self.get_response(request)


def test_a_form_of_another_site_is_refused(page, root):
    browser = signed_in(root, enforce_csrf_checks=True)
    assert browser.post(page, {"yes": "1"}).status_code == 403
    assert is_waiting()
    token = browser.get(page).context["csrf_token"]
    browser.post(page, {"yes": "1", "csrfmiddlewaretoken": str(token)})
    assert not Book.objects.exists()


def test_csrf_is_checked_without_the_middleware_too(page, root, settings):
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "Csrf" not in name]
    assert signed_in(root, enforce_csrf_checks=True).post(page, {"yes": "1"}).status_code == 403
    assert is_waiting()


def test_the_page_cannot_be_framed_or_kept(page, root):
    response = signed_in(root).get(page)
    assert response["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
    assert "no-store" in response["Cache-Control"]
    assert "<script" not in response.content.decode()


def test_opening_the_page_decides_nothing(page, root):
    browser = signed_in(root)
    browser.get(page, {"yes": "1"})
    browser.head(page)
    browser.post(page, {})
    assert is_waiting()


def test_a_change_that_never_waited_has_no_page(caller, root):
    book = make_book("Dune")
    number = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "9"}).structured["change"]
    assert signed_in(root).get(f"/mcp/confirm/{number}").status_code == 404


@pytest.mark.parametrize("number", ["0", "x", "1" * 18, "-1"])
def test_no_number_of_a_page_fails(root, number):
    assert signed_in(root).get(f"/mcp/confirm/{number}").status_code == 404


def test_the_page_of_another_endpoint_is_not_there(page, root):
    Change.objects.update(resource="http://testserver/other")
    assert signed_in(root).get(page).status_code == 404


# What it shows


def test_the_page_shows_the_difference_as_tables(caller, root):
    book = make_book("Dune", price="5.00")
    loan = Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    updated = page_of(caller.call("update_record", **BOOK, filters={"title": "Dune"}, values={"price": "9.00"}))
    shown = signed_in(root).get(updated).content.decode()
    for text in (
        "Dune",
        "5.00",
        "9.00",
        "Before",
        "After",
        "changed: 1",
        "mcp_django.testing",
        "taken back afterwards",
    ):
        assert text in shown, text
    deleted = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    shown = signed_in(root).get(deleted).content.decode()
    assert escape(str(loan)) in shown
    assert shown.count("deleted: 1") == 2


def test_the_page_says_what_was_asked_for_where_it_does_not_show_each_row(caller, root):
    for number in range(25):
        make_book(f"Book {number}", price="10.00")
    rise = {"price": {"field": "price*1.05", "round": "0.10"}}
    asked = page_of(caller.call("update_record", **BOOK, filters={"price": "10.00"}, values=rise))
    shown = signed_in(root).get(asked).content.decode()
    assert "More rows: 5" in shown
    assert "This changes 25 rows of testapp.book: price = “price*1.05, rounded to 0.10”." in shown


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning")
def test_the_page_shows_what_happens_besides(caller, root, monkeypatch):
    def save_model(self, request, obj, form, change):
        super(type(self), self).save_model(request, obj, form, change)
        Tag.objects.create(name="made by a hook")
        send_mail("Subject", "Body", None, ["ann@example.com", "bob@example.com"])

    monkeypatch.setattr(type(admin.site.get_model_admin(Book)), "save_model", save_model)
    make_book("Dune")
    asked = page_of(caller.call("update_record", **BOOK, filters={"title": "Dune"}, values={"price": "9.00"}))
    shown = signed_in(root).get(asked).content.decode()
    for text in ("Also writes", "testapp_tag", "Mails", "a mail to 2"):
        assert text in shown, text


def test_what_a_row_is_called_is_no_markup_on_the_page(caller, root):
    book = make_book("<script>alert(1)</script>")
    shown = signed_in(root).get(page_of(caller.call("delete_record", **BOOK, pk=book.pk))).content.decode()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_function_shows_its_arguments(caller, root):
    def pay(request, amount: int) -> str:
        return ""

    with tool_of(pay):
        page = page_of(caller.call("pay", amount=77))
    shown = signed_in(root).get(page).content.decode()
    assert "77" in shown
    assert "Not tried" in shown


def test_the_page_speaks_the_language_of_the_browser(page, root):
    shown = signed_in(root).get(page, headers={"accept-language": "de"}).content.decode()
    assert "Soll das ausgeführt werden?" in shown
    assert 'lang="de"' in shown


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("running", "It is being done."),
        ("unknown", "It stopped half-way."),
        ("withdrawn", "It is no longer asked for."),
        ("undone", "It was done and taken back."),
        ("failed", "It was not done."),
    ],
)
def test_the_page_says_how_it_ended(page, root, state, text):
    Change.objects.update(state=state, outcome="Because.")
    shown = signed_in(root).get(page).content.decode()
    assert text in shown
    assert "Yes, do it" not in shown
    assert ("Because." in shown) is (state == "failed")


def test_a_page_can_be_left_open_after_the_decision(page, root):
    browser = signed_in(root)
    say(browser, page, "no")
    assert "You have said no" in say(browser, page)
    assert Book.objects.exists()


def test_why_a_call_was_not_made_is_said_in_the_language_of_the_page(page, root):
    browser = signed_in(root, headers={"accept-language": "de"})
    Book.objects.update(title="Emma")
    assert "Die Zeilen haben sich seit der Frage geändert" in say(browser, page)
    Change.objects.update(outcome="Disk <full>.")
    shown = browser.get(page).content.decode()
    assert '<p class="notice" role="note" lang="en" dir="ltr">Disk &lt;full&gt;.</p>' in shown
    Change.objects.update(outcome="")
    assert "Project-Id" not in browser.get(page).content.decode()
