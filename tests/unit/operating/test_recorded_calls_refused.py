"""Refusals are rows of the log of calls on each transport, and nobody can fill its table with them."""

import json

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import Permission, User
from django.test import Client

from mcp_django import site
from mcp_django.operating import call_log_storage, recorded_calls
from mcp_django.runtime.thread_pools import in_thread
from mcp_django.signals import call_finished
from mcp_django.testing import MCPClient, MCPError
from mcp_django.transports.http.http_with_sse import as_application as sse_application
from mcp_django.transports.http.streamable_http import as_application
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_author, make_superuser
from tests.protocol_messages import META
from tests.session_client import SessionClient
from tests.stdio_client import talk, tool
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db(transaction=True)

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}


@pytest.fixture
def rows(call_log):
    """The outcomes and the methods in the log, for tests on a loop."""
    return database_sync_to_async(lambda: [(row.outcome, row.method) for row in call_log()])


def raw(body=LIST, **headers):
    return Client().post("/mcp", json.dumps(body), content_type="application/json", headers=headers)


def told(call_log):
    return [(row.outcome, row.method) for row in call_log()]


# HTTP


def test_a_stranger_is_a_row_that_names_nobody(call_log):
    assert raw().status_code == 401
    (row,) = call_log()
    assert (row.outcome, row.method, row.user, row.kind, row.token) == ("refused:token", "tools/list", "", "", "")
    assert row.site == site.name


def test_strangers_cannot_fill_the_table(call_log, monkeypatch):
    monkeypatch.setattr(recorded_calls, "OF_STRANGERS", 3)
    for number in range(10):
        assert raw(authorization=f"Bearer {number}").status_code == 401
    assert told(call_log) == [("refused:token", "tools/list")] * 3
    # Another cause is counted for itself, and a stranger can make no new one.
    assert raw(origin="https://evil.example").status_code == 403
    assert raw(origin="https://other.example").status_code == 403
    assert [outcome for outcome, _ in told(call_log)][3:] == ["refused:origin"] * 2


def test_what_was_left_out_is_said_with_the_next(call_log, monkeypatch):
    monkeypatch.setattr(recorded_calls, "OF_STRANGERS", 1)
    for _ in range(4):
        raw()
    monkeypatch.setattr(recorded_calls, "PERIOD", 0)
    raw()
    assert "(3 more of these are not in the log)" in call_log()[-1].detail


def test_no_more_causes_are_counted_than_a_bound(call_log, monkeypatch):
    monkeypatch.setattr(recorded_calls, "MAX_COUNTED", 1)
    raw()
    raw(origin="https://evil.example")
    assert len(recorded_calls._counted) == 1


def test_a_caller_over_its_rate_is_named(call_log, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "RATES": {"calls": "1/d"}}
    user = make_superuser()
    client = MCPClient(user)
    client.request("tools/list")
    assert raw(authorization=client.headers["Authorization"]).status_code == 429
    row = call_log()[-1]
    assert (row.outcome, row.user, row.username) == ("refused:rate", str(user.pk), user.username)
    assert len(row.token) == 16
    assert row.token not in client.headers["Authorization"]


@pytest.mark.parametrize(
    ("body", "status", "outcome"),
    [
        ({**LIST, "method": "no/such"}, 404, "error:-32601"),
        ({**LIST, "params": {}}, 400, "error:-32602"),
        ({**LIST, "params": {"_meta": META, "cursor": 3}}, 400, "error:-32602"),
        ([], 400, "error:-32600"),
        ("text", 400, "error:-32600"),
    ],
)
def test_a_message_that_is_no_call_is_an_error_by_its_code(call_log, body, status, outcome):
    token = MCPClient(make_superuser()).headers["Authorization"]
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": body["method"]} if isinstance(body, dict) else {}
    found = raw(body, authorization=token, **headers)
    assert (found.status_code, call_log()[-1].outcome) == (status, outcome), found.content


def test_a_request_that_is_refused_as_such_is_an_error_by_its_status(call_log):
    token = MCPClient(make_superuser()).headers["Authorization"]
    for send in (
        lambda: Client().post("/mcp", "x", content_type="text/plain", headers={"authorization": token}),
        lambda: Client().put("/mcp", "{}", content_type="application/json", headers={"authorization": token}),
    ):
        assert send().status_code in (405, 415)
    assert told(call_log) == [("error:415", "POST"), ("error:405", "PUT")]


def test_each_member_of_a_batch_is_a_row(call_log):
    client = MCPClient(make_superuser())
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"jsonrpc": "2.0", "id": 2, "method": 3}]
    found = raw(batch, authorization=client.headers["Authorization"], **{"mcp-protocol-version": "2025-03-26"})
    assert len(found.json()) == 2, found.content
    assert sorted(outcome for outcome, _ in told(call_log)) == ["error:-32600", "ok"]


def test_a_name_of_a_stranger_is_cut_and_plain(call_log):
    raw({**LIST, "method": "\x1b]0;" + "x" * 500})
    (row,) = call_log()
    assert len(row.method) <= 100
    assert row.method.isprintable()


def test_receivers_are_told_of_refusals_by_a_thread_of_no_loop(call_log):
    found = []

    def receive(record, **kwargs):
        # Which a loop would not let.
        found.append((record.outcome, Author.objects.count()))

    call_finished.connect(receive)
    try:
        raw(origin="https://evil.example")
    finally:
        call_finished.disconnect(receive)
    assert found == [("refused:origin", 0)]


async def test_a_loop_is_not_held_up_by_a_receiver(rows, monkeypatch):
    works = []
    monkeypatch.setattr(recorded_calls, "in_background", works.append)
    done = []
    receiver = lambda record, **kwargs: done.append(record.outcome)  # noqa: E731
    call_finished.connect(receiver)
    try:
        exchange = Exchange(as_application(site), http_scope(origin="https://evil.example"))
        await exchange.send(PING)
        assert (await exchange.answer())[0] == 403
        assert done == []
        await in_thread("streams", *works)
    finally:
        call_finished.disconnect(receiver)
    assert done == ["refused:origin"]


# Sessions, HTTP with SSE, and stdio


async def test_a_session_that_is_gone_is_a_row(token, rows):
    client = SessionClient(token)
    await client.initialize()
    await client.end()
    assert (await client.send("tools/list"))[0] == 404
    assert (await rows())[-1] == ("error:404", "tools/list")


async def test_over_sse_a_message_that_is_no_call_is_a_row(token, rows):
    exchange = Exchange(sse_application(site), http_scope("/mcp/messages"))
    await exchange.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert (await exchange.answer())[0] == 401
    assert (await rows())[-1] == ("refused:token", "tools/list")


async def test_over_stdio_refusals_name_the_user(call_log):
    async with talk() as client:
        client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert "error" in await client.receive()
        client.send(b"{]\n")
        assert "error" in await client.receive()
        client.leave()
        await client.rest()
    found = await database_sync_to_async(call_log)()
    assert [(row.outcome, row.kind) for row in found] == [("error:-32600", "stdio"), ("error:-32700", "stdio")]
    assert {row.user for row in found} == {str(await database_sync_to_async(lambda: User.objects.get().pk)())}


async def test_over_stdio_a_user_who_may_not_sign_in_any_more_is_refused(call_log):
    async with talk() as client:
        await client.begin()
        await database_sync_to_async(lambda: User.objects.update(is_active=False))()
        asked = client.ask("tools/call", tool("query_records", model="testapp.author"))
        assert "error" in await client.answer(asked)
        client.leave()
        await client.rest()
    row = (await database_sync_to_async(call_log)())[-1]
    assert (row.outcome, row.method, row.kind) == ("refused:token", "tools/call", "stdio")


# What the caller may not do


@pytest.fixture
def viewer():
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_author", "add_book", "view_book"]))
    return MCPClient(user)


def test_a_tool_that_the_caller_may_not_use_is_refused_for_permission(viewer, call_log):
    with pytest.raises(MCPError):
        viewer.call("delete_record", model="testapp.author", pk="1")
    row = call_log()[-1]
    assert (row.tool, row.model, row.outcome) == ("delete_record", "testapp.author", "refused:permission")


def test_a_model_that_the_caller_may_not_see_is_refused_for_permission(viewer, call_log):
    viewer.call("query_records", model="testapp.Tag")
    row = call_log()[-1]
    assert (row.model, row.outcome) == ("testapp.tag", "refused:permission")


def test_a_model_that_is_not_there_is_a_mistake(viewer, call_log):
    viewer.call("query_records", model="testapp.nothing")
    assert call_log()[-1].outcome == "tool_error"


def test_a_row_that_the_caller_may_not_write_is_refused_for_permission(viewer, call_log):
    viewer.call("create_record", model="testapp.author", values={"name": "Ada"})
    row = call_log()[-1]
    assert (row.tool, row.writes, row.outcome) == ("create_record", True, "refused:permission")
    assert not Author.objects.exists()


def test_a_call_that_is_shown_first_is_asked_and_a_token_that_fits_nothing_is_refused(call_log):
    client, author = MCPClient(make_superuser()), make_author("Ada")
    shown = client.call("delete_record", model="testapp.author", pk=str(author.pk)).structured
    assert call_log()[-1].outcome == "asked"
    client.call("delete_record", model="testapp.author", pk=str(author.pk), confirm_token="x" * 40)
    assert call_log()[-1].outcome == "refused:confirmation"
    client.call("delete_record", model="testapp.author", pk=str(author.pk), confirm_token=shown["confirm_token"])
    row = call_log()[-1]
    assert (row.outcome, row.rows_changed) == ("ok", 1)


# The end of what is counted


def test_a_log_that_is_off_counts_nothing(call_log, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": False}
    raw()
    assert (call_log(), len(recorded_calls._counted), call_log_storage.state().waiting) == ([], 0, 0)
