"""What the manifest demands of HTTP with SSE, the transport of 2024-11-05 (`requirements/transports.toml`, "sse")."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from mcp_django import site
from mcp_django.testing import MCPClient
from mcp_django.transports.http.http_with_sse import as_application
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_superuser
from tests.session_client import EventStream

pytestmark = pytest.mark.django_db(transaction=True)

VERSION = "2024-11-05"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture
def sse_token(transactional_db):
    """A token for the endpoint of the older transport, which is a resource of its own."""
    return MCPClient(make_superuser(), path="/sse").headers["Authorization"]


def exchange(token, path="/sse", method="GET", **headers):
    url = urlsplit(path)
    scope = http_scope(url.path, method, authorization=token, **headers)
    return Exchange(as_application(site), scope | {"query_string": url.query.encode()})


async def connect(token, **headers):
    opened = exchange(token, **headers)
    await opened.send(b"")
    return await EventStream(opened).start()


async def post(token, path, body, **headers):
    sent = exchange(token, path, "POST", **headers)
    await sent.send(body)
    return await sent.answer()


async def begin(token):
    """A stream, the address to post to, and the answer to initialize."""
    stream = await connect(token)
    first = await stream.block()
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    status, _, body = await post(token, first["data"], message)
    assert (status, body) == (202, b"")
    return stream, first["data"], await stream.message()


async def test_the_first_event_names_where_to_post_and_answers_come_on_the_stream(sse_token):
    stream = await connect(sse_token)
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
    first = await stream.block()
    assert first["event"] == "endpoint"
    assert first["data"].startswith("/sse/")
    message = {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": HELLO}
    status, _, body = await post(sse_token, first["data"], message)
    assert (status, body) == (202, b"")
    answer = await stream.block()
    assert answer["event"] == "message"
    assert json.loads(answer["data"])["id"] == "a"
    assert json.loads(answer["data"])["result"]["protocolVersion"] == VERSION
    await stream.close()


async def test_calls_are_posted_to_one_endpoint_and_answered_at_the_other(sse_token, tools):
    async def count(request) -> str:
        """Count."""
        request.mcp.progress(1, 2)
        await asyncio.sleep(0.03)
        request.mcp.progress(2, 2)
        return "counted"

    tools(count, read_only=True)
    stream, address, _ = await begin(sse_token)
    params = {"name": "count", "arguments": {}, "_meta": {"progressToken": "p"}}
    for number, (method, sent) in enumerate((("ping", {}), ("tools/call", params)), 2):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": sent}
        assert (await post(sse_token, address, message))[0] == 202
    found = [await stream.message() for _ in range(4)]
    assert {"jsonrpc": "2.0", "id": 2, "result": {}} in found
    told = [message for message in found if message.get("id") != 2]
    assert [message["params"]["progress"] for message in told[:2]] == [1, 2]
    assert told[2]["result"]["content"] == [{"type": "text", "text": "counted"}]
    assert (await post(sse_token, "/sse", {"jsonrpc": "2.0", "id": 3, "method": "ping"}))[0] == 405
    await stream.close()


async def test_both_endpoints_ask_for_a_token_and_check_the_origin(sse_token):
    stream, address, _ = await begin(sse_token)
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await connect("Bearer nonsense")).status == 401
    assert (await post("Bearer nonsense", address, ping))[0] == 401
    assert (await connect(sse_token, origin="https://evil.example")).status == 403
    assert (await post(sse_token, address, ping, origin="https://evil.example"))[0] == 403
    await stream.close()
    assert (await post(sse_token, address, ping))[0] == 404
