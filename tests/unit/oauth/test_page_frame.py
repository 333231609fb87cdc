"""What stands around each page."""

import sys
from types import ModuleType
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import path

import tests.urls
from tests.factories import connection_lost, make_superuser, make_user

pytestmark = pytest.mark.django_db
CHROME = "text/html,application/xhtml+xml,*/*;q=0.8"


def page(user: Any = None, at: str = "/oauth/authorized_tokens/") -> Any:
    browser = Client()
    if user is not None:
        browser.force_login(user)
    return browser.get(at, headers={"Accept": CHROME})


def test_every_page_says_whose_site_it_is(settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"title": "Shop & Co", "icon": "/static/icon.png"}}
    for found in (page(at="/mcp"), page(make_user("ada")), page(make_user("bob"), "/oauth/authorize/")):
        assert "Shop &amp; Co" in found.text
        assert '<bdi class="fine">testserver</bdi>' in found.text
        assert '<img src="/static/icon.png" alt=""' in found.text
        assert "img-src 'self';" in found["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("icon", "source"),
    [
        ("https://cdn.example/a;b/icon.png", "https://cdn.example"),
        ("data:image/png;base64,AAAA", "data:"),
        (None, None),
    ],
)
def test_the_policy_allows_the_icon_and_no_other_image(settings: Any, icon: Any, source: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"icon": icon}}
    policy = page(at="/mcp")["Content-Security-Policy"]
    assert (f"img-src {source};" in policy) if source else ("img-src" not in policy)


def test_who_may_enter_the_admin_goes_back_there() -> None:
    found = page(make_superuser())
    assert '<a href="/admin/">' in found.text
    assert '<a href="/oauth/access/">' in found.text


def test_others_go_back_to_the_site_where_it_has_a_page(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert '<a href="/admin/">' not in page(make_user("ada", staff=False)).text
    assert '<a href="/">' not in page(make_user("bob", staff=False)).text
    urls = ModuleType("urls_with_a_page")
    urls.urlpatterns = [path("", lambda request: None), *tests.urls.urlpatterns]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "urls_with_a_page", urls)
    settings.ROOT_URLCONF = "urls_with_a_page"
    assert '<a href="/">' in page(make_user("eve", staff=False)).text


def test_an_admin_whose_hook_fails_is_no_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib import admin

    def fails(request: Any) -> bool:
        raise RuntimeError

    monkeypatch.setattr(admin.site, "has_permission", fails)
    found = page(make_superuser())
    assert found.status_code == 200
    assert '<a href="/admin/">' not in found.text


def test_signing_out_takes_a_form_and_leaves_the_access() -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user("ada"))
    assert browser.get("/oauth/sign_out/").status_code == 405
    assert browser.post("/oauth/sign_out/").status_code == 403
    token = browser.get("/oauth/authorized_tokens/").text.partition('name="csrfmiddlewaretoken" value="')[2][:64]
    answer = browser.post("/oauth/sign_out/", {"csrfmiddlewaretoken": token})
    assert answer["Location"] == "/admin/login/?next=/oauth/authorized_tokens/"
    assert "_auth_user_id" not in browser.session


def test_a_project_says_where_people_go_after_they_signed_out(settings: Any) -> None:
    settings.LOGOUT_REDIRECT_URL = "/bye/"
    assert Client().post("/oauth/sign_out/")["Location"] == "/bye/"


# The language


@pytest.mark.parametrize(
    ("accepted", "language", "direction", "words"),
    [
        ("de-AT,de;q=0.9", "de", "ltr", "Anwendungen mit Zugriff"),
        ("fr", "fr", "ltr", "Applications autorisées"),
        ("es-MX", "es-mx", "ltr", "Aplicaciones con acceso"),
        ("ja", "ja", "ltr", "アクセスできるアプリケーション"),
        ("ko-KR,ko;q=0.9", "ko", "ltr", "액세스 권한이 있는 애플리케이션"),
        ("pl", "pl", "ltr", "Aplikacje z dostępem"),
        ("it-CH", "it", "ltr", "Applicazioni con accesso"),
        ("nl-BE", "nl", "ltr", "Applicaties met toegang"),
        ("pt", "pt", "ltr", "Aplicações com acesso"),
        ("pt-br", "pt-br", "ltr", "Aplicações com acesso"),
        ("zh-CN,zh;q=0.9", "zh-hans", "ltr", "有访问权限的应用"),
        ("ar-EG", "ar", "rtl", "التطبيقات التي لديها إذن وصول"),
        # There is no catalogue: the text is English, and says so.
        ("he", "en", "ltr", "Applications with access"),
        ("sv", "en", "ltr", "Applications with access"),
        ("en-gb", "en-gb", "ltr", "Applications with access"),
        ("", "en-us", "ltr", "Applications with access"),
    ],
)
def test_a_page_is_in_the_language_of_the_browser_and_says_which_it_is_in(
    accepted: str, language: str, direction: str, words: str
) -> None:
    browser = Client()
    browser.force_login(make_user("ada"))
    found = browser.get("/oauth/authorized_tokens/", headers={"Accept-Language": accepted})
    assert f'<html lang="{language}" dir="{direction}">' in found.text
    assert f"<h1>{words}</h1>" in found.text


def test_where_the_sites_own_language_takes_the_place_of_one_that_is_not_there_the_page_says_so(settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    browser = Client()
    browser.force_login(make_user("ada"))
    found = browser.get("/oauth/authorized_tokens/", headers={"Accept-Language": "uk"})
    assert '<html lang="de" dir="ltr">' in found.text
    assert "<h1>Anwendungen mit Zugriff</h1>" in found.text


def test_the_page_of_the_endpoint_and_refusals_are_translated_too() -> None:
    headers = {"Accept": CHROME, "Accept-Language": "ar"}
    found = Client().get("/mcp", headers=headers)
    assert '<html lang="ar" dir="rtl">' in found.text
    assert "ربط تطبيق" in found.text
    assert "Accept-Language" in found["Vary"]
    refused = Client().get("/mcp", headers={**headers, "Origin": "https://evil.example"})
    assert '<html lang="ar" dir="rtl">' in refused.text
    assert '<p lang="en" dir="ltr">Origin not allowed</p>' in refused.text


def fail(*arguments: Any) -> None:
    raise connection_lost()


@pytest.mark.parametrize(
    "at",
    [
        "/oauth/authorize/?client_id=x&response_type=code",
        "/oauth/access/",
        "/oauth/authorized_tokens/",
        "/oauth/authorized_tokens/1/delete/",
    ],
)
def test_every_page_of_the_sign_in_says_that_the_database_is_away(at: str, caplog: pytest.LogCaptureFixture) -> None:
    browser = Client()
    browser.force_login(make_user("ada"))
    with connection.execute_wrapper(fail):
        found = browser.get(at)
    assert (found.status_code, found["Retry-After"]) == (503, "5")
    assert "the connection to the database was lost" in found.text
    assert "connection refused" in caplog.text
