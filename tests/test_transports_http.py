import json
import threading

import pytest
from asgiref.sync import sync_to_async
from django.test import override_settings

from mcp_django import site
from mcp_django.transports import http
from tests.asgi_client import Exchange, http_scope

pytestmark = pytest.mark.django_db(transaction=True)
MCP = {"BASE_URL": "http://testserver"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def exchange(token, **headers):
    return Exchange(http.as_application(site), http_scope(authorization=token, **headers))


def calling(tool, version="2025-11-25", progress=None):
    meta = {} if progress is None else {"progressToken": progress}
    headers = {"mcp_protocol_version": version}
    if version == "2026-07-28":
        meta["io.modelcontextprotocol/protocolVersion"] = version
        meta["io.modelcontextprotocol/clientCapabilities"] = {}
        headers |= {"mcp_method": "tools/call", "mcp_name": tool}
    params = {"name": tool, "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


async def test_an_answer_that_is_ready_is_json_with_its_length(token):
    asked = exchange(token)
    await asked.send(PING)
    status, headers, body = await asked.answer()
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert headers["content-length"] == str(len(body))


async def test_C54_a_place_is_given_back_when_the_call_is_over(token):
    with override_settings(MCP_DJANGO=MCP | {"MAX_CONCURRENT_CALLS": 1}):
        for _ in range(3):
            asked = exchange(token)
            await asked.send(PING)
            assert (await asked.answer())[0] == 200


@pytest.fixture
def slow_reads(monkeypatch):
    """Reads begin, and end when they are released."""
    begun, release = threading.Event(), threading.Event()

    def answer(self, body):
        begun.set()
        release.wait(10)
        return http.Response(200, b"{}")

    monkeypatch.setattr(http.Exchange, "answer", answer)
    monkeypatch.setattr(http, "WATCH_AFTER", 0.01)
    yield begun, release
    release.set()


async def test_C46_a_slow_read_is_let_go_when_its_client_leaves(token, slow_reads):
    begun, _ = slow_reads
    asked = exchange(token)
    await asked.send(PING)
    assert await sync_to_async(begun.wait, thread_sensitive=False)(5)
    await asked.disconnect()
    await asked.communicator.wait(2)
    assert await asked.communicator.receive_nothing()


async def test_L207_a_slow_read_is_answered_when_it_is_done(token, slow_reads):
    begun, release = slow_reads
    asked = exchange(token)
    await asked.send(PING)
    assert await sync_to_async(begun.wait, thread_sensitive=False)(5)
    release.set()
    assert (await asked.answer())[0] == 200


@override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.05})
async def test_L206_a_read_over_its_time_is_given_up_with_the_time_to_come_back(token, slow_reads):
    asked = exchange(token)
    await asked.send(PING)
    status, headers, body = await asked.answer()
    assert (status, headers["retry-after"]) == (503, "5")
    assert "took longer" in json.loads(body)["error"]["message"]
