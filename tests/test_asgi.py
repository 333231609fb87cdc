import json

import pytest

from mcp_django import asgi, site
from tests.asgi_client import Exchange, http_scope

pytestmark = pytest.mark.django_db(transaction=True)
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def fallback(scope, receive, send):
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"project"})


async def answer(path, **headers):
    asked = Exchange(asgi.get_asgi_application(fallback), http_scope(path, **headers))
    await asked.send(PING)
    return await asked.answer()


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_requests_to_the_endpoint_go_straight_to_the_consumer(path, token):
    status, _, body = await answer(path, authorization=token)
    assert (status, json.loads(body)["result"]) == (200, {})


@pytest.mark.parametrize("path", ["/", "/admin/", "/mcp//", "/mcp/x", "/mcpx", "/MCP"])
async def test_everything_else_goes_to_the_project(path, token):
    assert (await answer(path, authorization=token))[2] == b"project"


async def test_A1_the_host_is_checked_though_django_is_not_asked():
    status, _, body = await answer("/mcp", host="evil.example")
    assert (status, json.loads(body)["error"]["message"]) == (400, "Host not allowed")


async def test_a_site_that_needs_middleware_stays_with_the_project(token, monkeypatch):
    monkeypatch.setattr(site, "needs_middleware", True)
    assert (await answer("/mcp", authorization=token))[2] == b"project"


async def test_a_script_prefix_is_taken_off_before_the_endpoint_is_looked_up(token):
    scope = http_scope("/below/mcp", authorization=token) | {"root_path": "/below"}
    asked = Exchange(asgi.get_asgi_application(fallback), scope)
    await asked.send(PING)
    assert (await asked.answer())[2] != b"project"
