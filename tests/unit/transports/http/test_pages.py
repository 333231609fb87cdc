"""The pages that people get at the endpoint, and that clients never get."""

import pytest
from django.test import Client

from mcp_django import site
from mcp_django.transports.client_configs import CLIENTS
from mcp_django.transports.http.http_exchange import Exchange
from tests.asgi_client import http_scope
from tests.factories import make_superuser

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


def test_the_page_is_the_same_whoever_is_signed_in():
    browser = Client()
    browser.force_login(make_superuser("root"))
    assert browser.get("/mcp", headers={"Accept": CHROME}).content == browse().content


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
