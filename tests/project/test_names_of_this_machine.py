"""While developing, `localhost`, `127.0.0.1` and `[::1]` of one port are one host; otherwise they are not."""

import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from mcp_django.context import refused_request_log
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.oauth.toolkit_settings import provider_settings
from tests.factories import make_superuser
from tests.oauth_flow import Flow, redirected

pytestmark = [pytest.mark.one_django, pytest.mark.django_db]

NAMES = ("localhost", "127.0.0.1", "[::1]")
BASE = "http://127.0.0.1:8000"
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})


@pytest.fixture(params=[BASE, None], ids=["BASE_URL", "no BASE_URL"])
def developing(request: pytest.FixtureRequest, settings: Any) -> None:
    settings.DEBUG = True
    settings.ALLOWED_HOSTS = [*NAMES, "testserver", ".localhost"]
    settings.MCP_DJANGO = {"BASE_URL": request.param}
    settings.OAUTH2_PROVIDER = provider_settings(base_url=request.param)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    caplog.set_level(logging.INFO, "mcp_django")
    return lambda: [
        f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.name == "mcp_django"
    ]


def at(origin: str) -> Client:
    """A program, or a browser, that opens this origin."""
    return Client(headers={"Host": urlsplit(origin).netloc})


def ping(origin: str, token: str | None = None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return at(origin).post("/mcp", PING, content_type="application/json", headers=headers)


@pytest.mark.parametrize("name", NAMES)
def test_all_documents_answer_for_the_name_that_was_asked(name: str, developing: None) -> None:
    origin = f"http://{name}:8000"
    where = f"{origin}/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{where}"' in ping(origin)["WWW-Authenticate"]
    resource = at(origin).get(urlsplit(where).path).json()
    assert (resource["resource"], resource["authorization_servers"]) == (f"{origin}/mcp", [origin])
    server = at(origin).get("/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == origin
    assert {urlsplit(url).netloc for key, url in server.items() if key.endswith("_endpoint")} == {f"{name}:8000"}
    page = at(origin).get("/mcp", headers={"Accept": "text/html"})
    assert f"{origin}/mcp" in page.text
    assert "You opened this page at" not in page.text


@pytest.mark.parametrize(("first", "later"), list(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True)))
def test_who_signed_in_by_one_name_goes_on_by_another(first: str, later: str, developing: None) -> None:
    flow = Flow()
    one, other = f"http://{first}:8000", f"http://{later}:8000"
    for client in (flow.browser, flow.application):
        client.defaults["HTTP_HOST"] = f"{first}:8000"
    answer = redirected(flow.answer(resource=f"{one}/mcp"))
    assert answer["iss"] == one
    tokens = flow.exchange(answer["code"], resource=f"{one}/mcp").json()
    for origin in (one, other):
        assert ping(origin, tokens["access_token"]).status_code == 200
    # The same program, whose configuration has the other name by now.
    flow.application.defaults["HTTP_HOST"] = f"{later}:8000"
    renewed = flow.refresh(tokens["refresh_token"], resource=f"{other}/mcp")
    assert renewed.status_code == 200, renewed.content
    for origin in (one, other):
        assert ping(origin, renewed.json()["access_token"]).status_code == 200
    # And one that mixes them: the browser has one name, the program the other.
    mixed = flow.exchange(flow.code(resource=f"{other}/mcp"), resource=f"{one}/mcp")
    assert mixed.status_code == 200, mixed.content
    assert ping(other, mixed.json()["access_token"]).status_code == 200


@pytest.mark.parametrize("origin", ["http://localhost:8001", "http://localhost", "http://shop.localhost:8000"])
def test_another_port_or_machine_is_another_host(origin: str, developing: None) -> None:
    token = issue_token(make_superuser(), scopes=["mcp:read"], resource=f"{origin}/mcp")
    answer = ping(BASE, token)
    assert answer.status_code == 401
    assert f"The token is for {origin}/mcp; this endpoint is {BASE}/mcp." in answer["WWW-Authenticate"]


def test_a_wrong_port_is_said_in_the_log_and_on_the_page(settings: Any, log: Callable[[], list[str]]) -> None:
    settings.DEBUG, settings.ALLOWED_HOSTS = True, []
    settings.MCP_DJANGO = {"BASE_URL": BASE}
    where = "http://127.0.0.1:8401"
    answer = ping(where)
    assert f'resource_metadata="{BASE}/' in answer["WWW-Authenticate"]
    assert log() == [
        f"WARNING 401: the request has no token; its Host says {where}, BASE_URL {BASE}. Is BASE_URL right?"
    ]
    page = at(where).get("/mcp", headers={"Accept": "text/html"})
    assert f"You opened this page at {where}" in page.text
    assert f"{BASE}/mcp" in page.text
    assert log()[1:] == [
        f"WARNING 200: the page was opened at {where}, but BASE_URL sends clients to {BASE}. Is BASE_URL right?"
    ]


def test_a_proxy_that_takes_tls_off_is_no_other_address(settings: Any, log: Callable[[], list[str]]) -> None:
    settings.DEBUG, settings.ALLOWED_HOSTS = True, ["shop.example"]
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example"}
    assert "You opened" not in at("http://shop.example").get("/mcp", headers={"Accept": "text/html"}).text
    ping("http://shop.example")
    assert [line[:4] for line in log()] == ["INFO"]


# Without DEBUG


@pytest.mark.parametrize("name", NAMES)
def test_in_production_the_setting_alone_decides(name: str, settings: Any, log: Callable[[], list[str]]) -> None:
    settings.ALLOWED_HOSTS = list(NAMES)
    settings.MCP_DJANGO = {"BASE_URL": BASE}
    settings.OAUTH2_PROVIDER = provider_settings(base_url=BASE)
    origin = f"http://{name}:8000"
    assert f'resource_metadata="{BASE}/' in ping(origin)["WWW-Authenticate"]
    assert at(origin).get("/.well-known/oauth-protected-resource/mcp").json()["resource"] == f"{BASE}/mcp"
    assert at(origin).get("/.well-known/oauth-authorization-server").json()["issuer"] == BASE
    token = issue_token(make_superuser(), scopes=["mcp:read"], resource=f"{origin}/mcp")
    assert ping(origin, token).status_code == (200 if origin == BASE else 401)
    assert "You opened this page at" not in at("http://localhost:1").get("/mcp", headers={"Accept": "text/html"}).text
    assert [line[:8] for line in log()][:1] == ["INFO 401"]
