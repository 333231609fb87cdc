"""What the manifest demands of cancellation, progress, pagination and caching (`requirements/utilities.toml`)."""

import asyncio
import contextlib
import json

import pytest
from django.test import override_settings

from mcp_django import site
from mcp_django.exceptions import Cancelled
from mcp_django.testing import MCPClient, MCPError
from mcp_django.transports.http import streamable_http
from tests.asgi_client import Exchange, events, http_scope
from tests.factories import make_author, make_superuser

pytestmark = pytest.mark.django_db(transaction=True)

ALL = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MODERN = ALL[-1]
MCP = {"BASE_URL": "http://testserver"}


def calling(tool, version):
    """The body and headers of a call that wants to be told its progress."""
    meta = {"progressToken": "p"}
    headers = {"mcp_protocol_version": version}
    if version == MODERN:
        meta["io.modelcontextprotocol/protocolVersion"] = version
        meta["io.modelcontextprotocol/clientCapabilities"] = {}
        headers |= {"mcp_method": "tools/call", "mcp_name": tool}
    params = {"name": tool, "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


# Cancellation


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("params", [{"requestId": 99, "reason": "none"}, {"requestId": "x"}, {"requestId": []}, {}])
def test_a_cancellation_of_nothing_is_accepted_and_ignored(version, params):
    client = MCPClient(make_superuser(), version=version)
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": version}} if version == MODERN else {}
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {**params, **meta}}
    response = client.post(json.dumps(body), **{"MCP-Protocol-Version": version})
    assert (response.status_code, response.content) == (202, b"")


# Progress


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_progress_that_is_reported_after_the_answer_goes_nowhere(version, token, tools):
    contexts = []

    async def keep(request) -> str:
        """Keep the request."""
        contexts.append(request.mcp)
        request.mcp.progress(1, 3)
        return "kept"

    tools(keep, read_only=True)
    body, headers = calling("keep", version)
    asked = Exchange(streamable_http.as_application(site), http_scope(authorization=token, **headers))
    await asked.send(body)
    found = events((await asked.answer())[2])
    assert [item.get("params", {}).get("progress") for item in found] == [1, None]
    with contextlib.suppress(Cancelled):
        contexts[0].progress(3, 3)
    await asyncio.sleep(0)
    assert await asked.communicator.receive_nothing()


async def test_a_modern_stream_has_notifications_and_a_response_and_no_requests(token, tools):
    async def ask(request) -> str:
        """Report, then ask."""
        request.mcp.progress(1, 2)
        await asyncio.sleep(0.03)
        return request.mcp.ask("Which?", str, key="which")

    tools(ask, read_only=True)
    body, headers = calling("ask", MODERN)
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
    asked = Exchange(streamable_http.as_application(site), http_scope(authorization=token, **headers))
    await asked.send(body)
    told, answer = events((await asked.answer())[2])
    assert (told["method"], "id" in told) == ("notifications/progress", False)
    assert (answer["id"], "method" in answer) == (1, False)
    assert answer["result"]["resultType"] == "input_required"


@override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.3})
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_progress_does_not_put_off_the_end_of_a_call(version, token, tools):
    ended = asyncio.Event()

    async def count(request) -> str:
        """Count for ever."""
        try:
            for done in range(10_000):
                request.mcp.progress(done)
                await asyncio.sleep(0.02)
        finally:
            ended.set()
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count", version)
    asked = Exchange(streamable_http.as_application(site), http_scope(authorization=token, **headers))
    await asked.send(body)
    *told, answer = events((await asked.answer(timeout=10))[2])
    assert told
    assert "took longer" in answer["error"]["message"]
    await asyncio.wait_for(ended.wait(), 20)


# Pagination


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("cursor", ["x", " ", "a:b:c"])
@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
def test_a_cursor_that_no_list_gave_is_invalid(method, cursor, version):
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser(), version=version).request(method, cursor=cursor)
    assert caught.value.code == -32602


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
def test_an_empty_cursor_begins_a_list_as_none_does(method):
    client = MCPClient(make_superuser())
    assert client.request(method, cursor="") == client.request(method)


# Caching


CACHEABLE = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "django://testapp/author"}),
]


@pytest.mark.parametrize("ttl", [0, 60_000])
@pytest.mark.parametrize(("method", "params"), CACHEABLE)
def test_results_that_clients_may_keep_are_private_and_have_a_lifetime(method, params, ttl):
    make_author()
    with override_settings(MCP_DJANGO=MCP | {"CACHE_TTL_MS": ttl}):
        result = MCPClient(make_superuser()).request(method, **params)
    assert result["resultType"] == "complete"
    assert (type(result["ttlMs"]), result["cacheScope"]) == (int, "private")
    assert 0 <= result["ttlMs"] <= ttl


def test_all_pages_of_a_list_have_one_scope(monkeypatch):
    monkeypatch.setattr("mcp_django.resources.model_resources.LIST_PAGE", 2)
    client = MCPClient(make_superuser())
    page = client.request("resources/list")
    scopes = [page["cacheScope"]]
    while "nextCursor" in page:
        page = client.request("resources/list", cursor=page["nextCursor"])
        scopes.append(page["cacheScope"])
    assert len(scopes) > 2
    assert len(set(scopes)) == 1
