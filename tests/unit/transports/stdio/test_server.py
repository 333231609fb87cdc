import asyncio
import json
import os
import signal
from typing import Annotated

import pytest
from django.contrib.auth import get_user_model
from django.test import override_settings

from mcp_django import MCPSite
from mcp_django.schema.annotations import Header
from mcp_django.transports.stdio import pipes, server
from tests.configured import configured
from tests.factories import make_book, make_superuser, make_user
from tests.protocol_messages import LEGACY, MODERN, PARAMS, VERSION_KEY
from tests.stdio_client import TIMEOUT, Gate, in_thread, talk, tool
from tests.testapp.models import Tag

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def gate(tools):
    gate = Gate()
    tools(gate.wait, name="gate")
    yield gate
    gate.release.set()


# Both eras


@pytest.mark.parametrize("version", LEGACY)
async def test_a_client_shakes_hands_and_calls(version):
    async with talk() as client:
        found = await client.begin(version)
        assert found["protocolVersion"] == version
        assert "query_records" in {item["name"] for item in (await client.call("tools/list"))["tools"]}
        result = await client.call("tools/call", tool("list_models"))
        assert ("structuredContent" in result) is (version >= "2025-06-18")


async def test_a_client_of_the_modern_era_calls_at_once():
    async with talk() as client:
        found = await client.call_modern("server/discover")
        assert found["supportedVersions"][0] == MODERN
        result = await client.call_modern("tools/call", tool("list_models"))
        assert result["resultType"] == "complete"
        assert "testapp.book" in json.dumps(result["structuredContent"])


async def test_both_eras_are_served_in_one_process():
    async with talk() as client:
        assert (await client.call_modern("tools/list"))["resultType"] == "complete"
        await client.begin("2025-06-18")
        assert "resultType" not in await client.call("tools/list")
        assert (await client.call_modern("tools/list"))["resultType"] == "complete"


async def test_before_initialize_nothing_but_ping_is_answered():
    async with talk() as client:
        for method in ("tools/list", "server/discover", "resources/subscribe"):
            answer = await client.answer(client.ask(method))
            assert answer["error"]["code"] in (-32600, -32601)
        assert await client.call("ping") == {}
        await client.begin()
        assert await client.call("tools/list")


async def test_initialize_comes_once():
    async with talk() as client:
        await client.begin("2024-11-05")
        answer = await client.answer(client.ask("initialize"))
        assert "already" in answer["error"]["message"]
        assert "structuredContent" not in await client.call("tools/call", tool("list_models"))


async def test_what_follows_initialize_at_once_is_answered():
    async with talk() as client:
        asked = [client.ask("initialize"), client.ask("tools/list"), client.ask("ping")]
        assert all(["result" in await client.answer(identifier) for identifier in asked])


async def test_an_unknown_revision_is_told_the_known_ones():
    async with talk() as client:
        answer = await client.answer(client.ask_modern("tools/list", **{VERSION_KEY: "1900-01-01"}))
        assert (answer["error"]["code"], answer["error"]["data"]["requested"]) == (-32022, "1900-01-01")


async def test_arguments_that_http_mirrors_in_headers_come_alone(tools):
    def mirrored(request, region: Annotated[str, Header("Region")]):
        return region

    tools(mirrored)
    async with talk() as client:
        result = await client.call_modern("tools/call", tool("mirrored", region="eu"))
        assert result["content"][0]["text"] == "eu"


# Lines


async def test_what_is_no_message_is_refused_and_the_next_one_read():
    async with talk() as client:
        for line in (b"{", b"\xff\xfe", b'"x"', b"nul\x00", b'{"jsonrpc":"1.0","id":7,"method":"ping"}'):
            client.send(line + b"\n")
            answer = await client.receive()
            assert answer["error"]["code"] in (-32700, -32600)
            assert answer.get("id", 7) == 7
        client.send(b"\n  \r\n")
        assert await client.call("ping") == {}


async def test_a_line_that_is_too_long_is_refused_and_the_next_one_read():
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1000):
        async with talk() as client:
            client.send({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 100_000}})
            answer = await client.receive()
            assert "1000 bytes" in answer["error"]["message"]
            assert "id" not in answer
            assert await client.call("ping") == {}


async def test_notifications_and_responses_are_never_answered():
    async with talk() as client:
        client.tell("notifications/unknown")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []})
        client.send({"jsonrpc": "2.0", "method": 5})
        client.send({"jsonrpc": "2.0", "method": "x", "params": {"_meta": {VERSION_KEY: "1900-01-01"}}})
        client.send({"jsonrpc": "2.0", "id": 3, "result": {}})
        client.send({"jsonrpc": "2.0", "id": 3, "result": {}, "error": 1})
        for identifier in ([], {}, None, True, 1.5, "x", 99):
            client.tell("notifications/cancelled", requestId=identifier)
        identifier = client.ask("ping")
        assert (await client.receive())["id"] == identifier


async def test_batches_belong_to_the_one_revision_that_has_them():
    ping = {"jsonrpc": "2.0", "id": 50, "method": "ping"}
    listing = {"jsonrpc": "2.0", "id": "b", "method": "tools/list"}
    for version in (None, *LEGACY):
        async with talk(await in_thread(make_superuser)(f"root{version}")) as client:
            if version is not None:
                await client.begin(version)
            client.send([ping, {"jsonrpc": "2.0", "method": "notifications/x"}, listing, {"jsonrpc": "2.0", "id": 52}])
            found = await client.receive()
            if version == "2025-03-26":
                assert [item.get("id") for item in found] == [50, "b", 52]
                assert ["result" in item for item in found] == [True, True, False]
                client.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
                client.send([{**listing, "method": "initialize", "params": PARAMS["initialize"]}])
                assert "error" in (await client.receive())[0]
            else:
                assert found["error"]["code"] == -32600


# Calls at the same time


async def test_calls_run_at_the_same_time_and_one_id_at_a_time(gate):
    async with talk() as client:
        await client.begin()
        slow = client.ask("tools/call", tool("gate"))
        await gate.until_begun()
        assert await client.call("ping") == {}
        client.send({"jsonrpc": "2.0", "id": slow, "method": "ping"})
        assert "is running" in (await client.receive())["error"]["message"]
        gate.release.set()
        assert (await client.answer(slow))["result"]["content"][0]["text"] == "done"
        client.send({"jsonrpc": "2.0", "id": slow, "method": "ping"})
        assert (await client.receive())["result"] == {}


async def test_calls_over_the_limit_are_refused_and_places_come_back(gate):
    with configured(MAX_CONCURRENT_CALLS=1):
        async with talk() as client:
            await client.begin()
            slow = client.ask("tools/call", tool("gate"))
            await gate.until_begun()
            refused = await client.answer(client.ask("ping"))
            assert refused["error"]["message"] == "Too many calls"
            gate.release.set()
            assert "result" in await client.answer(slow)
            assert await client.call("ping") == {}


async def test_calls_over_the_rate_are_told_when_to_come_back():
    with override_settings(MCP_DJANGO={"RATES": {"calls": "2/h"}}):
        async with talk() as client:
            await client.call("ping")
            await client.call("ping")
            refused = await client.answer(client.ask("ping"))
            assert 0 < refused["error"]["data"]["retryAfter"] <= 3600


async def test_a_call_that_takes_too_long_is_stopped(gate):
    with override_settings(MCP_DJANGO={"CALL_TIMEOUT": 0.3}):
        async with talk() as client:
            await client.begin()
            answer = await client.answer(client.ask("tools/call", tool("gate")))
            assert answer["error"]["code"] == -32603


async def test_what_fails_is_answered_under_an_error_id(tools, caplog):
    def broken(request):
        raise RuntimeError("secret")

    tools(broken)
    async with talk() as client:
        await client.begin()
        result = await client.call("tools/call", tool("broken"))
        assert result["isError"]
        assert "secret" not in json.dumps(result)
    assert "secret" in caplog.text


async def test_a_failure_before_the_call_is_an_internal_error(monkeypatch, caplog):
    def fail(self, request):
        raise RuntimeError("secret")

    monkeypatch.setattr(server.LocalUser, "authorize", fail)
    async with talk() as client:
        answer = await client.answer(client.ask("ping"))
        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"]["errorId"] in caplog.text
        assert "secret" not in json.dumps(answer)


# Whom it acts for


async def test_the_users_permissions_are_those_of_the_moment():
    user = await in_thread(make_user)("reader", "testapp.view_book")
    book = await in_thread(make_book)("A title")
    async with talk(user) as client:
        await client.begin()
        reading = tool("get_record", model="testapp.book", pk=book.pk)
        assert "A title" in json.dumps(await client.call("tools/call", reading))
        await in_thread(user.user_permissions.clear)()
        assert "error" in await client.answer(client.ask("tools/call", reading))
        assert await client.call("tools/list") == {"tools": []}


@pytest.mark.parametrize("how", ["deactivated", "deleted"])
async def test_a_user_who_is_gone_may_do_nothing(how):
    user = await in_thread(make_superuser)()
    async with talk(user) as client:
        await client.begin()
        users = get_user_model().objects.filter(pk=user.pk)
        await in_thread(lambda: users.delete() if how == "deleted" else users.update(is_active=False))()
        for method in ("tools/list", "ping"):
            answer = await client.answer(client.ask(method))
            assert "can no longer sign in" in answer["error"]["message"]


async def test_scopes_bound_what_the_user_may_do():
    async with talk(scopes=("mcp:read",)) as client:
        await client.begin()
        assert "create_record" not in {item["name"] for item in (await client.call("tools/list"))["tools"]}
        answer = await client.answer(client.ask("tools/call", tool("delete_record", model="testapp.book", pk=1)))
        assert "insufficient scope" in answer["error"]["message"]


async def test_the_request_of_a_tool_is_the_users_at_the_projects_address(tools):
    seen = {}

    def look(request):
        seen.update(user=request.user.username, url=request.build_absolute_uri("/x"), resource=request.mcp.resource)
        seen.update(client=request.mcp.client.name, client_id=request.mcp.client_id, cookies=request.COOKIES)
        return "seen"

    tools(look)
    with override_settings(MCP_DJANGO={"BASE_URL": "https://testserver"}):
        async with talk() as client:
            await client.begin()
            await client.call("tools/call", tool("look"))
    assert seen == {
        "user": "root",
        "url": "https://testserver/x",
        "resource": "stdio:",
        "client": "tests",
        "client_id": "",
        "cookies": {},
    }


async def test_a_site_of_its_own_offers_what_it_has():
    other = MCPSite("other")
    other.register(Tag)
    async with talk(mcp_site=other) as client:
        await client.begin()
        result = await client.call("tools/call", tool("list_models"))
        assert [row[0] for row in result["structuredContent"]["rows"]] == ["testapp.tag"]


# The end


async def test_running_calls_end_before_the_process_does(gate):
    async with talk() as client:
        await client.begin()
        slow = client.ask("tools/call", tool("gate"))
        await gate.until_begun()
        client.leave()
        gate.release.set()
        (answer,) = await client.rest()
        assert answer["id"] == slow
        assert "result" in answer


async def test_a_call_that_does_not_end_is_left(gate, monkeypatch):
    monkeypatch.setattr(server, "CALLS_END", 0.1)
    async with talk() as client:
        await client.begin()
        client.ask("tools/call", tool("gate"))
        await gate.until_begun()
        client.leave()
        assert await client.rest() == []
    assert not gate.ended.is_set()


@pytest.mark.parametrize("number", server.SIGNALS)
async def test_a_signal_ends_it_in_order(number):
    async with talk() as client:
        listening = client.ask_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.receive()
        os.kill(os.getpid(), number)
        (end,) = await client.rest()
        assert end["id"] == listening
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


async def test_it_ends_when_nobody_reads_what_it_says():
    async with talk() as client:
        assert await client.call("ping") == {}
        client.hang_up()
        client.ask("ping")
        # Without an end of its input.
        await asyncio.wait_for(client.running, TIMEOUT)


async def test_it_ends_while_its_client_reads_nothing(monkeypatch, tools):
    monkeypatch.setattr(server, "OUTPUT_END", 0.1)

    def much(request):
        return "x" * 30_000

    tools(much)
    async with talk() as client:
        await client.begin()
        client.stop_reading()
        for _ in range(20):
            client.ask("tools/call", tool("much"))
        client.leave()
        await asyncio.wait_for(client.running, TIMEOUT)


async def test_while_its_client_reads_nothing_no_more_is_read(monkeypatch):
    monkeypatch.setattr(pipes, "FULL", 10_000)
    async with talk() as client:
        assert await client.call("ping") == {}
        client.stop_reading()
        for _ in range(5_000):
            client.send(b"{" + b" " * 1_000 + b"\n")
        client.ask("ping")
        while not client.server.output.is_full:
            await asyncio.sleep(0.01)
        assert not client.outgoing.empty()
        client.go_on_reading()
        for _ in range(5_000):
            assert "error" in await client.receive()
        assert (await client.receive())["result"] == {}
