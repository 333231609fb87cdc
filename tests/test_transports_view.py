import asyncio
import json
import threading

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.db import connection
from django.test import RequestFactory

from mcp_django import site
from mcp_django.testing import MCPClient
from mcp_django.transports.view import endpoint, middleware_attributes
from tests.asgi_client import Exchange, events, http_scope
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db(transaction=True)
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def exchange(token, **headers):
    handler = ASGIHandler()
    handler.load_middleware(is_async=True)
    return Exchange(handler, http_scope(authorization=token, **headers))


def modern(tool, progress=None):
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    if progress is not None:
        meta["progressToken"] = progress
    params = {"name": tool, "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return body, {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": tool}


async def test_the_view_answers_inside_djangos_own_handler(token):
    asked = exchange(token)
    await asked.send(PING)
    status, headers, body = await asked.answer()
    assert (status, json.loads(body)["result"]) == (200, {})
    assert {name.lower(): value for name, value in headers.items()}["cache-control"] == "no-store"


async def test_C57_events_come_through_the_middleware_one_by_one(token, tools, settings):
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE]

    async def count(request) -> str:
        """Count."""
        request.mcp.progress(1, 2)
        await asyncio.sleep(0.05)
        request.mcp.progress(2, 2)
        return "counted"

    tools(count, read_only=True)
    body, headers = modern("count", progress=1)
    asked = exchange(token, accept_encoding="gzip", **headers)
    await asked.send(body)
    _, _, stream = await asked.answer()
    assert [item.get("params", {}).get("progress") for item in events(stream)] == [1, 2, None]


async def test_C46_closing_the_connection_cancels_a_modern_call(token, tools):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        return "waited"

    tools(wait, read_only=True)
    body, headers = modern("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    await asyncio.wait_for(begun.wait(), 20)
    await asked.disconnect()
    await asyncio.wait_for(ended.wait(), 2)
    await asked.communicator.wait(5)


_of_the_thread = threading.local()


def leaving_something(get_response):
    """A middleware that leaves something in its thread, as those for tenants do."""

    def middleware(request):
        _of_the_thread.tenant = "north"
        try:
            return get_response(request)
        finally:
            del _of_the_thread.tenant

    return middleware


@pytest.mark.parametrize("needed", [True, False])
async def test_H155_what_middleware_leaves_in_its_thread_is_there_for_a_site_that_needs_it(
    needed, token, tools, settings, monkeypatch
):
    def which_tenant(request) -> str:
        """Name the tenant."""
        return getattr(_of_the_thread, "tenant", "none")

    tools(which_tenant, read_only=True)
    settings.MIDDLEWARE = [f"{__name__}.leaving_something"]
    monkeypatch.setattr(site, "needs_middleware", needed)
    body, headers = modern("which_tenant")
    asked = exchange(token, **headers)
    await asked.send(body)
    found = json.loads((await asked.answer())[2])
    assert found["result"]["content"][0]["text"] == ("north" if needed else "none")


def test_a_cross_site_check_and_a_required_login_do_not_apply_to_bearer_tokens():
    view = endpoint(site)
    assert view.csrf_exempt is True
    assert view.login_required is False


def test_what_middleware_put_on_the_request_reaches_hooks_and_authority_does_not():
    request = RequestFactory().post("/mcp")
    request.tenant = "north"
    request.user = "somebody"
    request.session = {}
    assert middleware_attributes(request) == {"tenant": "north"}


def test_under_wsgi_work_of_every_kind_is_answered_in_one_piece(tools):
    async def later(request) -> str:
        """Answer later."""
        return "async"

    def slow(request) -> str:
        """Answer slowly."""
        return "slow"

    tools(later, read_only=True)
    tools(slow, read_only=True)
    client = MCPClient(make_superuser())
    assert client.call("later").text == "async"
    assert client.call("slow").text == "slow"


def test_a_project_may_put_its_views_in_transactions():
    client = MCPClient(make_superuser())
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert client.tools()
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
