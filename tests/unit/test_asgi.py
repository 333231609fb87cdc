import json

import pytest
from channels.db import database_sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished
from django.db import connection, connections
from django.test.client import AsyncClientHandler
from django.urls import path

from mcp_django import MCPSite, asgi, site
from mcp_django.oauth.stored_tokens import issue_token
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db(transaction=True)
# A URLconf in which the path of one endpoint ends with that of the other.
urlpatterns = [path("mcp", site.urls), path("front/mcp", MCPSite("front").urls)]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def issued(transactional_db):
    """Tokens by the path that they are for."""
    user, paths = make_superuser(), ("/mcp", "/below/mcp", "/front/mcp")
    return {path: issue_token(user, scopes=["mcp:read"], resource=f"http://testserver{path}") for path in paths}


async def fallback(scope, receive, send):
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"project"})


async def answer(path, root_path="", **headers):
    scope = http_scope(path, **headers) | {"root_path": root_path}
    asked = Exchange(asgi.get_asgi_application(fallback), scope)
    await asked.send(PING)
    return await asked.answer()


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_requests_to_the_endpoint_go_straight_to_the_consumer(path, token):
    status, _, body = await answer(path, authorization=token)
    assert (status, json.loads(body)["result"]) == (200, {})


@pytest.mark.parametrize("path", ["/", "/admin/", "/mcp//", "/mcp/x", "/mcpx", "/MCP"])
async def test_everything_else_goes_to_the_project(path, token):
    assert (await answer(path, authorization=token))[2] == b"project"


async def test_a_server_is_told_that_there_is_nothing_to_start_or_stop():
    asked = Exchange(asgi.get_asgi_application(), {"type": "lifespan", "asgi": {"version": "3.0"}})
    for stage in ("lifespan.startup", "lifespan.shutdown"):
        await asked.communicator.send_input({"type": stage})
        assert await asked.next() == {"type": f"{stage}.complete"}
    await asked.communicator.wait()


@pytest.mark.parametrize("path", ["/mcp", "/elsewhere"])
async def test_a_websocket_is_closed_where_nothing_of_the_project_takes_it(path):
    scope = {"type": "websocket", "path": path, "headers": [(b"host", b"testserver")]}
    asked = Exchange(asgi.get_asgi_application(), scope)
    await asked.communicator.send_input({"type": "websocket.connect"})
    assert await asked.next() == {"type": "websocket.close"}
    await asked.communicator.wait()


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_what_is_no_request_is_left_to_an_application_of_the_project_s_own(kind):
    seen = []

    async def own(scope, receive, send):
        seen.append((scope["type"], receive, send))

    await asgi.get_asgi_application(own)({"type": kind}, "receive", "send")
    assert seen == [(kind, "receive", "send")]


async def test_A1_the_host_is_checked_though_django_is_not_asked():
    status, _, body = await answer("/mcp", host="evil.example")
    assert (status, json.loads(body)["error"]["message"]) == (400, "Host not allowed")


async def test_a_site_that_needs_middleware_stays_with_the_project(token, monkeypatch):
    monkeypatch.setattr(site, "needs_middleware", True)
    assert (await answer("/mcp", authorization=token))[2] == b"project"


@pytest.mark.parametrize("path", ["/below/mcp", "/mcp"])
@pytest.mark.parametrize("told", ["server", "setting"])
async def test_a_token_is_for_the_endpoint_below_the_script_prefix(issued, path, told, settings):
    if told == "setting":
        settings.FORCE_SCRIPT_NAME = "/below/"
    root = "/below" if told == "server" else ""
    for mount, expected in (("/below/mcp", 200), ("/mcp", 401)):
        status, headers, body = await answer(path, root, authorization=f"Bearer {issued[mount]}")
        assert (status, body == b"project") == (expected, False)
    where = "http://testserver/below/.well-known/oauth-protected-resource/below/mcp"
    assert f'resource_metadata="{where}"' in headers["www-authenticate"]


async def test_what_only_begins_like_the_script_prefix_is_not_below_it(token):
    assert (await answer("/below/mcp", "/bel", authorization=token))[2] == b"project"
    assert (await answer("/belowmcp", "/below", authorization=token))[2] == b"project"


@pytest.mark.parametrize("path", ["/front/mcp", "/mcp"])
async def test_no_header_that_a_server_takes_for_its_prefix_makes_a_token_good_elsewhere(issued, settings, path):
    # daphne takes `Daphne-Root-Path` from whoever sends it.
    settings.ROOT_URLCONF = "tests.unit.test_asgi"
    raw = issued["/front/mcp"]
    status, _, _ = await answer("/front/mcp", authorization=f"Bearer {raw}")
    assert status == 200
    status, _, _ = await answer(path, "/front", authorization=f"Bearer {raw}")
    assert status == 401


@pytest.mark.parametrize(
    ("sender", "closed"), [(ASGIHandler, True), (AsyncClientHandler, False), (WSGIHandler, False), (None, False)]
)
async def test_the_connections_of_a_thread_that_django_made_for_a_request_end_with_it(sender, closed, monkeypatch):
    monkeypatch.setitem(connections.databases["default"], "CONN_MAX_AGE", None)
    asgi.get_asgi_application()

    def answered():
        connection.close()
        connection.ensure_connection()
        request_finished.send(sender=sender)
        is_closed = connection.connection is None
        connection.close()
        return is_closed

    assert await database_sync_to_async(answered)() is closed
