"""What the manifest demands of log messages to clients (`requirements/utilities.toml`)."""

import asyncio
import json

import pytest

from mcp_django import site
from mcp_django.testing import MCPClient
from mcp_django.transports.http.streamable_http import as_application
from tests.asgi_client import Exchange, events, http_scope
from tests.factories import make_superuser
from tests.protocol_messages import LOG_LEVEL_KEY, META, MODERN
from tests.session_client import SessionClient

pytestmark = pytest.mark.django_db(transaction=True)

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
HELLO = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture
def talk(tools):
    """A tool that logs at every level."""

    async def talk(request) -> str:
        """Talk."""
        for level in LEVELS:
            request.mcp.log(level, {"said": level}, logger="shop")
        await asyncio.sleep(0)
        return "talked"

    tools(talk, read_only=True)


async def answered(token, **meta):
    """The messages that answer a call of 2026-07-28."""
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "talk"}
    exchange = Exchange(as_application(site), http_scope(authorization=token, **headers))
    params = {"name": "talk", "arguments": {}, "_meta": META | meta}
    await exchange.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    _, found, body = await exchange.answer()
    return events(body) if found["content-type"] == "text/event-stream" else [json.loads(body)]


def levels(messages):
    logged = [message["params"] for message in messages if message.get("method") == "notifications/message"]
    assert all(item["logger"] == "shop" and item["data"] == {"said": item["level"]} for item in logged)
    return [item["level"] for item in logged]


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
def test_logging_is_announced(version):
    client = MCPClient(make_superuser(), version=version)
    params = {} if version == MODERN else {"protocolVersion": version, **HELLO}
    found = client.request("server/discover" if version == MODERN else "initialize", **params)
    assert found["capabilities"]["logging"] == {}


async def test_without_a_level_nothing_is_logged(token, talk):
    *told, answer = await answered(token)
    assert told == []
    assert answer["result"]["content"][0]["text"] == "talked"
    *told, _ = await answered(token, progressToken="p")
    assert told == []


@pytest.mark.parametrize("level", LEVELS)
async def test_messages_of_the_level_and_above_come_on_the_stream_of_the_request(token, talk, level):
    *told, answer = await answered(token, **{LOG_LEVEL_KEY: level})
    assert levels(told) == LEVELS[LEVELS.index(level) :]
    assert answer["result"]["content"][0]["text"] == "talked"


async def test_messages_come_on_no_stream_but_that_of_the_request(token, talk):
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "subscriptions/listen", "authorization": token}
    listening = Exchange(as_application(site), http_scope(**headers))
    params = {"notifications": {"toolsListChanged": True}, "_meta": META | {LOG_LEVEL_KEY: "debug"}}
    await listening.send({"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen", "params": params})
    assert (await listening.next())["status"] == 200
    acknowledged = await listening.next()
    assert b"acknowledged" in acknowledged["body"]
    assert levels(await answered(token, **{LOG_LEVEL_KEY: "debug"})) == LEVELS
    assert await listening.communicator.receive_nothing()
    await listening.disconnect()
    await listening.communicator.wait(5)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_session_gets_messages_of_the_level_that_it_set_and_above(token, talk, version):
    client = SessionClient(token, version=version)
    await client.initialize()
    for level in ("warning", "debug", "emergency"):
        assert await client.result("logging/setLevel", {"level": level}) == {}
        stream = await client.call("talk")
        assert levels(await stream.rest()) == LEVELS[LEVELS.index(level) :]


async def test_what_fails_inside_is_logged_for_the_operator_and_not_for_the_client(token, tools, caplog):
    async def fail(request) -> str:
        """Fail."""
        request.mcp.log("info", "begun")
        raise RuntimeError("SELECT secret FROM somewhere")

    tools(fail, read_only=True, name="talk")
    *told, answer = await answered(token, **{LOG_LEVEL_KEY: "debug"})
    assert [message["params"]["data"] for message in told] == ["begun"]
    assert "secret" not in json.dumps([*told, answer])
    assert "SELECT secret" in caplog.text


async def test_a_flood_of_messages_is_bounded(token, tools):
    async def flood(request) -> str:
        """Flood."""
        for number in range(5_000):
            request.mcp.log("info", "x" * 10 if number else "x" * 100_000)
        return "done"

    tools(flood, read_only=True, name="talk")
    *told, _ = await answered(token, **{LOG_LEVEL_KEY: "debug"})
    assert 0 < len(told) <= 1_001
    assert max(len(json.dumps(message)) for message in told) < 20_000
