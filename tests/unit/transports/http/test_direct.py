"""Calls without a session: answered on their own connection, as JSON or as a stream."""

import asyncio
import json
import threading

import pytest
from asgiref.sync import sync_to_async
from django.test import override_settings

from mcp_django import site
from mcp_django.transports.http import connection, consumer, direct
from tests.asgi_client import events, http_scope
from tests.unit.transports.http.test_consumer import MCP, calling, exchange

pytestmark = pytest.mark.django_db(transaction=True)


async def test_R5_progress_opens_a_stream_that_ends_with_the_answer(token, tools):
    def count(request) -> str:
        """Count."""
        for done in (1, 2, 3):
            threading.Event().wait(0.03)
            request.mcp.progress(done, 3)
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count", progress="p")
    asked = exchange(token, **headers)
    await asked.send(body)
    status, headers, stream = await asked.answer()
    found = events(stream)
    assert (status, headers["content-type"], headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
    assert [item["params"]["progress"] for item in found[:-1]] == [1, 2, 3]
    assert {item["params"]["progressToken"] for item in found[:-1]} == {"p"}
    assert found[-1]["result"]["content"][0]["text"] == "counted"


async def test_R5_without_a_progress_token_the_answer_is_json(token, tools):
    def count(request) -> str:
        """Count."""
        request.mcp.progress(1, 1)
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count")
    asked = exchange(token, **headers)
    await asked.send(body)
    assert (await asked.answer())[1]["content-type"] == "application/json"


async def test_C50_a_quiet_call_becomes_a_stream_that_is_kept_alive(token, tools, monkeypatch):
    monkeypatch.setattr(direct, "STREAM_AFTER", 0.02)
    monkeypatch.setattr(direct, "KEEP_ALIVE_EVERY", 0.02)

    async def wait(request) -> str:
        """Wait."""
        await asyncio.sleep(0.2)
        return "waited"

    tools(wait, read_only=True)
    body, headers = calling("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    _, headers, stream = await asked.answer()
    assert headers["content-type"] == "text/event-stream"
    assert stream.startswith(b":\n:\n")
    assert events(stream)[-1]["result"]["content"][0]["text"] == "waited"


async def test_C46_closing_the_connection_cancels_a_modern_call_of_an_async_tool(token, tools):
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
    body, headers = calling("wait", "2026-07-28")
    asked = exchange(token, **headers)
    await asked.send(body)
    await asyncio.wait_for(begun.wait(), 20)
    await asked.disconnect()
    await asyncio.wait_for(ended.wait(), 2)
    await asked.communicator.wait(2)
    assert await asked.communicator.receive_nothing()


async def test_C46_closing_the_connection_stops_a_modern_call_in_a_thread_at_its_next_report(token, tools):
    begun, ended = threading.Event(), threading.Event()

    def work(request) -> str:
        """Work."""
        begun.set()
        try:
            for done in range(1_000):
                ended.wait(0.02)
                request.mcp.progress(done)
        except BaseException:
            ended.set()
            raise
        return "worked"

    tools(work, read_only=True)
    body, headers = calling("work", "2026-07-28")
    asked = exchange(token, **headers)
    await asked.send(body)
    assert await sync_to_async(begun.wait, thread_sensitive=False)(5)
    await asked.disconnect()
    assert await sync_to_async(ended.wait, thread_sensitive=False)(2)
    await asked.communicator.wait(2)


async def test_C47_a_legacy_call_goes_on_when_its_connection_drops(token, tools):
    begun, release, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        begun.set()
        await release.wait()
        finished.set()
        return "waited"

    tools(wait, read_only=True)
    body, headers = calling("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    await asyncio.wait_for(begun.wait(), 20)
    await asked.disconnect()
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait_for(finished.wait(), 20)
    await asked.communicator.wait(5)


@override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.05})
async def test_H154_a_call_over_its_time_is_stopped_and_said_to_be(token, tools):
    async def wait(request) -> str:
        """Wait."""
        await asyncio.sleep(30)
        return "waited"

    tools(wait, read_only=True)
    body, headers = calling("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    message = json.loads((await asked.answer())[2])
    assert message["error"]["code"] == -32603
    assert "took longer" in message["error"]["message"]


async def test_V4_a_client_that_reads_nothing_is_given_up(token, tools, monkeypatch):
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 0.05)
    monkeypatch.setattr(direct, "STREAM_AFTER", 0.01)
    ended = asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        return "waited"

    tools(wait, read_only=True)
    body, headers = calling("wait")
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive():
        return messages.pop() if messages else await asyncio.get_running_loop().create_future()

    async def send(message):
        await asyncio.get_running_loop().create_future()

    scope = http_scope(authorization=token, **headers)
    await asyncio.wait_for(consumer.as_application(site)(scope, receive, send), 5)
    await asyncio.wait_for(ended.wait(), 2)


async def test_A4_a_stream_lets_an_allowed_page_have_it(token, tools):
    async def count(request) -> str:
        """Count."""
        request.mcp.progress(1, 1)
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count", progress="p")
    asked = exchange(token, origin="http://testserver", **headers)
    await asked.send(body)
    _, headers, _ = await asked.answer()
    assert headers["content-type"] == "text/event-stream"
    assert headers["access-control-allow-origin"] == "http://testserver"


async def test_56_what_fails_after_the_head_is_out_is_an_error_event_and_the_end(token):
    from mcp_django import site

    def fails(request) -> str:
        """Fails."""
        request.mcp.progress(1)
        raise RuntimeError("secret")

    site.add_prompt(fails)
    try:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "prompts/get",
            "params": {"name": "fails", "_meta": {"progressToken": "p"}},
        }
        asked = exchange(token, mcp_protocol_version="2025-11-25")
        await asked.send(body)
        _, headers, stream = await asked.answer()
    finally:
        site.remove_prompt("fails")
    assert headers["content-type"] == "text/event-stream"
    progress, error = events(stream)
    assert (progress["method"], error["id"], error["error"]["code"]) == ("notifications/progress", 1, -32603)
    assert b"secret" not in stream
