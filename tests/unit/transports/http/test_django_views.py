import asyncio
import json
import threading
import zlib
from io import BytesIO

import pytest
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import connection
from django.test import RequestFactory

from mcp_django import site
from mcp_django.testing import MCPClient
from mcp_django.transports.http.django_views import endpoint, middleware_attributes, run_consumer
from tests.asgi_client import PATIENCE, Exchange, Waiting, events, http_scope
from tests.factories import make_superuser
from tests.unit.transports.http.test_streamable_http_consumer import MCP

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
    waiting = Waiting(tools)
    body, headers = modern("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    await asyncio.wait_for(waiting.begun.wait(), PATIENCE)
    await asked.disconnect()
    await asyncio.wait_for(waiting.ended.wait(), PATIENCE)
    await asked.over()


@pytest.mark.parametrize(("size", "encoding"), [(1_000, "gzip"), (200_000, "gzip"), (1_000_000, "identity")])
async def test_an_answer_says_how_long_it_is_and_any_client_can_read_it_through_the_middleware(
    size, encoding, token, tools, settings
):
    """Middleware that compresses a stream piece by piece makes what many clients read only the beginning of."""

    def text(request) -> str:
        """Write much."""
        return "x" * size

    tools(text, read_only=True)
    settings.MCP_DJANGO = MCP | {"RESULT_CHARS": 2_000_000}
    body, headers = modern("text")
    for middleware in (
        [],
        ["django.middleware.gzip.GZipMiddleware", "django.middleware.http.ConditionalGetMiddleware"],
    ):
        settings.MIDDLEWARE = middleware
        asked = exchange(token, accept_encoding="gzip", **headers)
        await asked.send(body)
        status, found, data = await asked.answer()
        found = {name.lower(): value for name, value in found.items()}
        assert (status, int(found["content-length"]), found["content-type"]) == (200, len(data), "application/json")
        if middleware or size > 256 * 1024:
            assert found["content-encoding"] == encoding
        else:
            assert "content-encoding" not in found
        if found.get("content-encoding") == "gzip":
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data)
        assert json.loads(data)["result"]["content"][0]["text"] == "x" * size


async def test_a_request_for_the_head_alone_is_answered(token):
    handler = ASGIHandler()
    asked = Exchange(handler, http_scope(method="HEAD", authorization=token))
    await asked.send(b"")
    assert (await asked.answer())[0] == 405


async def test_a_client_that_left_stays_gone_whoever_asks():
    """Whoever watches the connection next has to hear of it, too."""
    told = []

    async def application(scope, receive, send):
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"event", "more_body": True})
        told.extend([(await receive())["type"] for _ in range(2)])
        # Nothing that it still sends waits for anybody.
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"event", "more_body": True})
        told.append("over")

    request = ASGIRequest(http_scope(), BytesIO(b"{}"))
    chunks = aiter(await run_consumer(application, request))
    assert await anext(chunks) == b"event"
    await chunks.aclose()
    async with asyncio.timeout(PATIENCE):
        while len(told) < 3:
            await asyncio.sleep(0.01)
    assert told == ["http.disconnect", "http.disconnect", "over"]


async def test_an_answer_that_breaks_off_has_no_end_that_would_make_it_look_whole():
    async def application(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a part", "more_body": True})

    chunks = aiter(await run_consumer(application, ASGIRequest(http_scope(), BytesIO(b"{}"))))
    assert await anext(chunks) == b"a part"
    rest = asyncio.ensure_future(anext(chunks))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not rest.done()
    # As Django does when the server says that the client has gone.
    rest.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rest


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
