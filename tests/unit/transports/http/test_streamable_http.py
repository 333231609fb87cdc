"""What a POST, GET or DELETE is about: sessions, answers, batches, notifications."""

import json

import pytest
from django.test import override_settings

from mcp_django import site
from mcp_django.models import Session
from mcp_django.testing import MCPClient
from mcp_django.transports.http.streamable_http import as_application
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_superuser
from tests.session_client import SessionClient

pytestmark = pytest.mark.django_db(transaction=True)
MCP = {"BASE_URL": "http://testserver"}


@pytest.fixture
async def client(token):
    found = SessionClient(token)
    await found.initialize()
    return found


async def test_each_legacy_revision_gets_a_session_that_knows_its_revision(token):
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        client = SessionClient(token, version=version)
        assert (await client.initialize())["protocolVersion"] == version
        assert (await client.send("ping", mcp_protocol_version=""))[0] == 200


async def test_R4_a_session_is_optional(token):
    assert await SessionClient(token).result("ping") == {}


async def test_89_an_unknown_session_is_not_found_and_allocates_nothing(client):
    for session in ("x", "a" * 300, client.session[:-1], client.session + "A"):
        client.session = session
        assert (await client.send("ping"))[0] == 404
        assert (await client.listen()).status == 404
        assert await client.end() == 404
    assert not await Session.objects.aexists()


async def test_92_a_session_is_not_found_for_another_token(client):
    from asgiref.sync import sync_to_async

    other = await sync_to_async(lambda: MCPClient(make_superuser("other")).headers["Authorization"])()
    client.token = other
    assert (await client.send("ping"))[0] == 404


async def test_99_after_its_end_a_session_is_not_found(client):
    assert await client.end() == 204
    assert (await client.send("ping"))[0] == 404
    assert await client.end() == 404


@pytest.mark.parametrize("old", ["ended", "of another server", "of nobody"])
async def test_initialize_begins_a_new_session_although_the_client_still_sends_an_old_id(client, old):
    if old == "ended":
        assert await client.end() == 204
    else:
        client.session = {"of another server": client.session.swapcase(), "of nobody": "x"}[old]
    before = client.session
    assert (await client.initialize())["protocolVersion"] == client.version
    assert client.session != before
    assert (await client.send("ping"))[0] == 200
    # Nothing but the request itself begins a session.
    client.session = before
    for body in ({"jsonrpc": "2.0", "method": "initialize"}, {"method": "initialize"}, client.message("initialized")):
        assert (await client.post(body))[0] == 404


async def test_99_a_session_is_initialized_once(client):
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    status, headers, body = await client.send("initialize", params)
    assert (status, json.loads(body)["error"]["code"]) == (400, -32600)
    assert "mcp-session-id" not in headers


async def test_the_session_says_the_revision_where_the_header_does_not(client, tools):
    @tools
    def version(request) -> str:
        """Version."""
        return f"{request.mcp.version} {request.mcp.client.name}"

    _, _, body = await client.send("tools/call", {"name": "version", "arguments": {}}, mcp_protocol_version="")
    assert json.loads(body)["result"]["content"][0]["text"] == "2025-11-25 tests"


async def test_63_an_answer_to_nothing_changes_nothing(client):
    await client.answer("nothing", {"action": "accept", "content": {}})
    client.session = None
    status, _, body = await client.post({"jsonrpc": "2.0", "id": "x", "result": {}})
    assert (status, json.loads(body)["error"]["code"]) == (400, -32600)


async def test_what_is_given_up_and_unknown_is_ignored(client):
    await client.notify("notifications/cancelled", {"requestId": "nothing"})
    await client.notify("notifications/cancelled", {"requestId": [1]})
    await client.notify("notifications/cancelled", {})


async def test_a_stream_that_a_client_cannot_read_is_not_opened(client):
    exchange = client.open("GET", accept="application/json")
    await exchange.send(b"")
    assert (await exchange.answer())[0] == 406


# Batches


async def test_38_a_batch_is_answered_as_one_on_its_revision_alone(token, tools):
    @tools
    def slow(request) -> str:
        """Slow."""
        return "done"

    client = SessionClient(token, version="2025-03-26")
    await client.initialize()
    batch = [
        client.message("ping"),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        client.message("tools/call", {"name": "slow", "arguments": {}}),
        client.message("no/such/method"),
        {"jsonrpc": "2.0", "id": 99, "method": 7},
    ]
    status, _, body = await client.post(batch)
    found = {answer["id"]: answer for answer in json.loads(body)}
    assert status == 200
    assert len(found) == 4
    assert found[batch[0]["id"]]["result"] == {}
    assert found[batch[2]["id"]]["result"]["content"][0]["text"] == "done"
    assert found[batch[3]["id"]]["error"]["code"] == -32601
    assert found[99]["error"]["code"] == -32600
    for version in ("2025-06-18", "2025-11-25"):
        newer = SessionClient(token, version=version)
        await newer.initialize()
        assert (await newer.post([newer.message("ping")]))[0] == 400


async def test_a_batch_of_notifications_has_no_answer(token):
    client = SessionClient(token, version="2025-03-26")
    await client.initialize()
    status, _, body = await client.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2)
    assert (status, body) == (202, b"")


async def test_answers_may_come_in_a_batch(token, tools):
    @tools
    def ask_model(request) -> str:
        """Ask the client's model."""
        return f"It says {request.mcp.sample('2 + 2?', max_tokens=5).text}"

    client = SessionClient(token, version="2025-03-26", capabilities={"sampling": {}})
    await client.initialize()
    stream = await client.call("ask_model")
    request = await stream.message()
    assert request["method"] == "sampling/createMessage"
    result = {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}
    status, _, _ = await client.post([{"jsonrpc": "2.0", "id": request["id"], "result": result}])
    assert status == 202
    [answer] = await stream.rest()
    assert answer["result"]["content"][0]["text"] == "It says 4"


@override_settings(MCP_DJANGO=MCP | {"RATES": {"calls": "4/h"}})
async def test_153_each_member_of_a_batch_counts_as_a_call(token):
    client = SessionClient(token, version="2025-03-26")
    await client.initialize()
    status, headers, _ = await client.post([client.message("ping") for _ in range(5)])
    assert status == 429
    assert int(headers["retry-after"]) > 0


def test_under_wsgi_there_is_no_session_and_no_stream():
    client = MCPClient(make_superuser(), version="2025-11-25")
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    response = client.send("initialize", params)
    assert "Mcp-Session-Id" not in response
    assert "subscribe" not in response.json()["result"]["capabilities"]["resources"]
    assert client.http.get("/mcp", headers=client.headers).status_code == 405


def test_under_wsgi_a_batch_is_answered():
    client = MCPClient(make_superuser(), version="2025-03-26")
    pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)]
    response = client.post(json.dumps(pings), **{"MCP-Protocol-Version": "2025-03-26"})
    assert [answer["id"] for answer in response.json()] == [1, 2]


async def test_62_the_scopes_of_a_call_are_asked_before_its_stream_is_opened(transactional_db, tools):
    from asgiref.sync import sync_to_async

    @tools
    def write(request) -> str:
        """Write."""
        request.mcp.progress(1)
        return "written"

    @sync_to_async
    def read_only():
        return MCPClient(make_superuser(), scopes=["mcp:read"]).headers["Authorization"]

    header = await read_only()
    for version in ("2025-11-25", "2026-07-28"):
        prefix = "io.modelcontextprotocol"
        meta = {"progressToken": "p"}
        headers = {"authorization": header, "mcp_protocol_version": version}
        if version == "2026-07-28":
            meta |= {f"{prefix}/protocolVersion": version, f"{prefix}/clientCapabilities": {}}
            headers |= {"mcp_method": "tools/call", "mcp_name": "write"}
        exchange = Exchange(as_application(site), http_scope(**headers))
        params = {"name": "write", "arguments": {}, "_meta": meta}
        await exchange.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        status, found, _ = await exchange.answer()
        assert status == 403
        assert 'error="insufficient_scope"' in found["www-authenticate"]
        assert 'scope="mcp:read mcp:write"' in found["www-authenticate"]


async def test_192_the_reason_of_a_cancellation_is_logged_cut_and_escaped(client, caplog):
    caplog.set_level("INFO", "mcp_django")
    await client.notify("notifications/cancelled", {"requestId": 7, "reason": "bored\n" + "x" * 9_000})
    [record] = [record for record in caplog.records if "given up" in record.message]
    assert "bored\\n" in record.message
    assert len(record.message) < 300
