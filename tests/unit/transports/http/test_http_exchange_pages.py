"""The pages that people get at the endpoint, and that clients never get."""

import asyncio
import base64
import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import Permission
from django.test import AsyncClient, Client
from django.urls import clear_script_prefix, set_script_prefix

from mcp_django import site
from mcp_django.asgi import get_asgi_application
from mcp_django.routing import ENDPOINTS
from mcp_django.testing import MCPClient
from mcp_django.transports.client_configs import CLIENTS
from mcp_django.transports.http.http_exchange import Exchange
from tests.asgi_client import http_scope
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"


def browse(path="/mcp", **headers):
    return Client().get(path, headers={"Accept": CHROME, **headers})


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_a_person_sees_what_it_is_and_how_to_connect(path):
    page = browse(path)
    assert page.status_code == 200
    assert page["Content-Type"] == "text/html; charset=utf-8"
    assert f"http://testserver{path}" in page.text
    for client in CLIENTS.values():
        assert client.title in page.text
    assert 'href="/oauth/access/"' in page.text
    assert "style-src 'sha256-" in page["Content-Security-Policy"]
    assert page["Cache-Control"] == "no-store"


def test_who_is_signed_in_sees_at_once_what_a_client_would_see():
    reader = make_user("reader")
    reader.user_permissions.add(Permission.objects.get(codename="view_author"))
    browser = Client()
    browser.force_login(reader)
    page = browser.get("/mcp", headers={"Accept": CHROME})
    assert "What it would see as <bdi>reader</bdi>" in page.text
    assert "<bdi>Authors</bdi>" in page.text
    assert "<bdi>Books</bdi>" not in page.text
    for tool in MCPClient(reader).tools():
        assert f"<code>{tool['name']}</code>" in page.text
    assert '<a href="/oauth/access/">' in page.text
    assert "Sign in and see" not in page.text
    assert page["Cache-Control"] == "no-store"
    assert "Cookie" in page["Vary"]


def test_others_see_nothing_of_it():
    browser = Client()
    browser.force_login(make_superuser("boss"))
    assert "boss" in browser.get("/mcp", headers={"Accept": CHROME}).text
    browser.logout()
    page = browser.get("/mcp", headers={"Accept": CHROME})
    for word in ("boss", "What it would see as", "Authors", "query_records", "csrfmiddlewaretoken"):
        assert word not in page.text
    stranger = Client()
    stranger.force_login(make_user("stranger"))
    page = stranger.get("/mcp", headers={"Accept": CHROME})
    assert "no permission to view anything" in page.text
    assert "Authors" not in page.text


def test_a_hook_that_fails_costs_what_would_be_seen_and_not_the_page(monkeypatch):
    def fails(*args):
        raise RuntimeError

    monkeypatch.setattr("mcp_django.oauth.access_page.access_of", fails)
    browser = Client()
    browser.force_login(make_superuser("boss"))
    page = browser.get("/mcp", headers={"Accept": CHROME})
    assert page.status_code == 200
    assert "Kinds of records" not in page.text


def test_who_is_signed_in_can_sign_out_there():
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user("ada"))
    page = browser.get("/mcp", headers={"Accept": CHROME}).text
    token = page.partition('name="csrfmiddlewaretoken" value="')[2][:64]
    assert browser.post("/oauth/sign_out/", {"csrfmiddlewaretoken": token}).status_code == 302
    assert "ada" not in browser.get("/mcp", headers={"Accept": CHROME}).text


@pytest.mark.django_db(transaction=True)
async def test_the_fast_road_shows_it_too_and_asks_no_session_of_clients():
    user = await sync_to_async(make_superuser)("boss")
    browser = AsyncClient()
    await browser.aforce_login(user)
    cookie = (b"cookie", f"sessionid={browser.cookies['sessionid'].value}".encode())
    application = get_asgi_application()
    visit = {**http_scope(method="GET"), "headers": [(b"host", b"testserver"), (b"accept", CHROME.encode())]}
    stranger = await answered(application, visit)
    assert b"boss" not in stranger
    assert b"Connect an application" in stranger
    visit["headers"] = [*visit["headers"], cookie]
    assert b"What it would see as <bdi>boss</bdi>" in await answered(application, visit)
    visit["headers"] = [(b"host", b"testserver"), (b"accept", b"text/event-stream"), cookie]
    assert b"Authentication required" in await answered(application, visit)


async def answered(application, scope):
    """The body of the answer to a request without one."""
    async with asyncio.timeout(20):
        communicator = ApplicationCommunicator(application, scope)
        await communicator.send_input({"type": "http.request", "body": b"", "more_body": False})
        body, more = b"", True
        while more:
            message = await communicator.receive_output(10)
            body, more = (
                body + message.get("body", b""),
                message.get("more_body", message["type"] != "http.response.body"),
            )
        await communicator.wait()
        return body


# What is there to be clicked and copied


def links(page):
    return {unescape(found) for found in re.findall(r'<a class="button" href="([^"]+)">Add to', page.text)}


def test_cursor_vs_code_and_goose_are_one_click_away():
    cursor, goose, vscode = sorted(links(browse()))
    scheme, _, query = cursor.partition("?")
    assert scheme == "cursor://anysphere.cursor-deeplink/mcp/install"
    asked = dict(parse_qsl(query))
    assert asked["name"] == "django"
    assert json.loads(base64.b64decode(asked["config"])) == {"url": "http://testserver/mcp"}
    assert vscode.startswith("vscode:mcp/install?%7B")
    server = {"name": "django", "type": "http", "url": "http://testserver/mcp"}
    assert json.loads(unquote(vscode.partition("?")[2])) == server
    assert goose.startswith("goose://extension?")
    assert dict(parse_qsl(goose.partition("?")[2])) == {
        "url": "http://testserver/mcp",
        "type": "streamable_http",
        "id": "django",
        "name": "django",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('Ada\'s "Shop" & <Söhne> 商店', "Ada-s-Shop-S-hne"),
        ("商店", "django"),
        ("x" * 60, "x" * 40),
        ("shop", "shop"),
    ],
)
def test_a_name_with_odd_characters_is_one_that_clients_take(settings, name, expected):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"name": name}}
    page = browse()
    assert f"[mcp_servers.{expected}]" not in page.text
    assert f"claude mcp add --transport http {expected} http://testserver/mcp" in page.text
    (cursor,) = (link for link in links(page) if link.startswith("cursor:"))
    assert dict(parse_qsl(cursor.partition("?")[2]))["name"] == expected
    for word in ("<Söhne>", "&amp;amp;"):
        assert word not in page.text


def test_nothing_of_this_machine_is_on_the_page():
    page = browse()
    assert str(Path.home()) not in page.text
    assert "~/.codeium/windsurf/mcp_config.json" in page.text


def test_below_a_prefix_links_and_script_have_it():
    set_script_prefix("/shop/")
    try:
        page = browse()
    finally:
        clear_script_prefix()
    assert "http://testserver/shop/mcp" in page.text
    (cursor,) = (link for link in links(page) if link.startswith("cursor:"))
    assert b"/shop/mcp" in base64.b64decode(dict(parse_qsl(cursor.partition("?")[2]))["config"])


def test_each_of_several_endpoints_has_its_own_address(settings):
    settings.ROOT_URLCONF = "tests.two_sites"
    seen = {path: browse(path).text for path in ENDPOINTS.by_path()}
    assert len(seen) > 1
    for path, text in seen.items():
        assert f'aria-label="http://testserver{path}"' in text


def test_the_script_of_the_copy_buttons_is_all_that_the_policy_lets_in(settings):
    page = browse()
    assert '<script src="/static/mcp_django/copy.js" defer></script>' in page.text
    assert " script-src 'self';" in page["Content-Security-Policy"]
    assert page.text.count("<script") == 1
    assert "script-src" not in Client().get("/oauth/authorize/")["Content-Security-Policy"]
    refused = browse(Origin="https://evil.example")
    assert "script-src" not in refused["Content-Security-Policy"]


def test_without_static_files_the_page_goes_without_the_script(settings):
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
    }
    page = browse()
    assert page.status_code == 200
    assert "<script" not in page.text
    assert "script-src" not in page["Content-Security-Policy"]


def test_scripts_of_another_host_are_let_in_by_that_host(settings):
    settings.STATIC_URL = "https://cdn.example/static/"
    page = browse()
    assert " script-src https://cdn.example;" in page["Content-Security-Policy"]
    assert '<script src="https://cdn.example/static/mcp_django/copy.js"' in page.text


@pytest.mark.parametrize(
    ("method", "accept", "has_token"),
    [
        ("GET", "text/event-stream", False),
        ("GET", "application/json, text/event-stream", False),
        ("GET", "*/*", False),
        ("GET", None, False),
        ("GET", "application/json, text/html", False),
        ("GET", "text/htmlx", False),
        ("GET", CHROME, True),
        ("POST", CHROME, False),
    ],
)
def test_a_client_gets_no_page(method, accept, has_token):
    scope = http_scope(method=method, **({"authorization": "Bearer x"} if has_token else {}))
    scope["headers"] = [item for item in scope["headers"] if item[0] != b"accept"]
    scope["headers"] += [(b"accept", accept.encode())] if accept is not None else []
    assert not Exchange(site, scope).wants_page


def test_a_client_that_opens_a_stream_without_a_token_is_challenged_as_before():
    answer = Client().get("/mcp", headers={"Accept": "text/event-stream"})
    assert answer.status_code == 401
    assert "resource_metadata" in answer["WWW-Authenticate"]


def test_a_refusal_is_a_page_too():
    page = browse(Origin="https://evil.example")
    assert page.status_code == 403
    assert "Origin not allowed" in page.text
    assert page["Content-Type"].startswith("text/html")
    other = browse(Host="evil.example")
    assert other.status_code == 400
    assert "evil.example" not in other.text


def test_without_the_pages_of_oauth_there_is_no_link_to_them(settings):
    settings.ROOT_URLCONF = "tests.two_sites"
    page = browse()
    assert page.status_code == 200
    assert "http://testserver/mcp" in page.text
    assert "/oauth/access/" not in page.text
