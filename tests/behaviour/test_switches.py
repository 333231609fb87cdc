"""What is switched off is refused with its reason, is not listed, and is there again afterwards, in each revision."""

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from mcp_django import site
from mcp_django.models import ServiceAccount
from mcp_django.operating import switches
from mcp_django.operating.switches import end_switch, find_switches, set_switch
from mcp_django.protocol.versions import Revisions
from mcp_django.testing import MCPClient, MCPError, ToolCall
from mcp_django.transports.local_client import LocalClient
from tests.factories import make_author, make_book, make_superuser, make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture(params=Revisions.SUPPORTED)
def client(request: pytest.FixtureRequest) -> MCPClient:
    return MCPClient(make_superuser(), version=request.param)


def names(client: MCPClient) -> set[str]:
    return {tool["name"] for tool in client.tools()}


def refused(answer: ToolCall, words: str) -> None:
    assert answer.is_error
    assert answer.text == words


def test_the_server_is_off_for_everybody_but_for_pings(client: MCPClient, call_log: Any) -> None:
    set_switch("everything", reason="Moving house")
    words = "The server is switched off. Reason given: Moving house"
    refused(client.call("list_models"), words)
    for method in ("tools/list", "resources/list", "prompts/list", "resources/templates/list"):
        with pytest.raises(MCPError, match=words) as raised:
            client.request(method)
        assert raised.value.code == -32600
    if client.version not in Revisions.MODERN:
        client.request("ping")
    rows = [row for row in call_log() if row.method != "initialize"]
    assert {row.outcome for row in rows} == {"refused:switch"}
    assert {row.detail for row in rows} == {words}
    end_switch(find_switches("everything")[0])
    assert names(client)


def test_a_tool_is_refused_and_not_listed(client: MCPClient, call_log: Any) -> None:
    author, before = make_author("Ada"), names(client)
    set_switch("tool", "delete_record", reason="Audit until Friday")
    assert names(client) - {"connection_info"} == before - {"delete_record"}
    answer = client.call("delete_record", model="testapp.author", pk=str(author.pk))
    refused(answer, "The tool delete_record is switched off. Reason given: Audit until Friday")
    assert type(author).objects.filter(pk=author.pk).exists()
    assert call_log()[-1].outcome == "refused:switch"
    end_switch(find_switches("tool", "delete_record")[0])
    assert names(client) == before


def test_changes_are_refused_and_reads_go_on(client: MCPClient) -> None:
    author = make_author("Ada")
    set_switch("writes", reason="Stocktaking")
    words = "Changing data is switched off. Reason given: Stocktaking"
    refused(client.call("create_record", model="testapp.author", values={"name": "Bob"}), words)
    refused(client.call("update_record", model="testapp.author", pk=str(author.pk), values={"name": "Bob"}), words)
    refused(client.call("run_action", model="testapp.book", action="withdraw", all=True), words)
    assert not names(client) & {"create_record", "update_record", "delete_record", "run_action"}
    assert all(tool["annotations"]["readOnlyHint"] for tool in client.tools() if "annotations" in tool)
    found = client.call("get_record", model="testapp.author", pk=str(author.pk))
    assert not found.is_error
    assert "add" not in json.dumps(client.call("list_models").structured or client.call("list_models").text).split()


def test_a_model_is_off_by_each_way_to_it(client: MCPClient, call_log: Any) -> None:
    book = make_book("Emma", author=make_author("Jane"))
    set_switch("model", "testapp.book", reason="Being cleaned")
    words = "The model testapp.book is switched off. Reason given: Being cleaned"
    for tool, more in {
        "query_records": {},
        "get_record": {"pk": str(book.pk)},
        "describe_model": {},
        "aggregate_records": {"aggregates": {"n": "count"}},
        "create_record": {"values": {"title": "Persuasion"}},
        "update_record": {"pk": str(book.pk), "values": {"title": "Persuasion"}},
        "delete_record": {"pk": str(book.pk)},
        "run_action": {"action": "withdraw", "pks": [str(book.pk)]},
    }.items():
        refused(client.call(tool, model="testapp.book", **more), words)
    assert {row.outcome for row in call_log() if row.tool} == {"refused:switch"}
    with pytest.raises(MCPError, match=words):
        client.read(f"django://testapp/book/{book.pk}")
    assert "testapp.book" not in client.call("list_models").text
    assert not [name for name in names(client) if name.endswith("testapp_book")]
    assert "testapp/book" not in json.dumps(client.request("resources/list"))
    related = client.call("query_records", model="testapp.author", filters={"books__title": "Emma"})
    assert related.is_error
    assert "Being cleaned" not in related.text
    end_switch(find_switches("model", "testapp.book")[0])
    assert not client.call("get_record", model="testapp.book", pk=str(book.pk)).is_error


def test_an_action_is_off_as_a_tool_and_by_run_action(client: MCPClient) -> None:
    book = make_book("Emma")
    (tool,) = (name for name in names(client) if name.startswith("withdraw_"))
    set_switch("action", "testapp.book.withdraw", reason="Ask Ann")
    words = "The action testapp.book.withdraw is switched off. Reason given: Ask Ann"
    refused(client.call("run_action", model="testapp.book", action="withdraw", pks=[str(book.pk)]), words)
    refused(client.call(tool, pks=[str(book.pk)]), words)
    assert tool not in names(client)
    described = json.loads(client.call("describe_model", model="testapp.book").text)
    assert described["actions"] == "publish, export"


def test_who_is_off_is_refused_and_others_are_not(client: MCPClient) -> None:
    other = MCPClient(make_superuser("ada"), version=client.version)
    set_switch("user", "ada", reason="On leave", until=timedelta(hours=2))
    answer = other.call("list_models")
    assert answer.is_error
    assert answer.text.startswith("This account is switched off until 2")
    assert answer.text.endswith(" UTC. Reason given: On leave")
    with pytest.raises(MCPError, match="On leave"):
        other.tools()
    assert not client.call("list_models").is_error


def test_one_without_permission_learns_nothing_of_what_is_off() -> None:
    client = MCPClient(make_user("reader", "testapp.view_author"))
    set_switch("model", "testapp.book", reason="A secret merger")
    set_switch("tool", "delete_record", reason="A secret merger")
    assert "secret" not in client.call("query_records", model="testapp.book").text
    with pytest.raises(MCPError) as raised:
        client.call("delete_record", model="testapp.author", pk="1")
    assert "secret" not in str(raised.value)


def test_a_switch_asks_the_database_nothing_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long a call takes, it is not time for the next look.
    monkeypatch.setattr(switches, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    author, client = make_author("Ada"), MCPClient(make_superuser())

    def queries() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            assert not client.call("get_record", model="testapp.author", pk=str(author.pk)).is_error
        return [query["sql"] for query in captured]

    queries()
    before = queries()
    set_switch("tool", "delete_record")
    set_switch("model", "testapp.book")
    assert any("mcp_django_switch" in sql for sql in queries())
    assert len(queries()) == len(before)


def test_a_service_is_off_while_its_user_goes_on() -> None:
    from mcp_django.context.call_record import CallRecord
    from mcp_django.operating.switches import board

    user = make_superuser()
    account = ServiceAccount.objects.create(name="nightly", user=user)
    set_switch("service", "nightly")
    off = board.current()
    assert off is not None
    assert off.caller(CallRecord(user=str(user.pk), kind="service", client_id=account.client_id)) is not None
    assert off.caller(CallRecord(user=str(user.pk), kind="person", client_id="another")) is None
    assert not MCPClient(user).call("list_models").is_error


@pytest.mark.parametrize(
    "switched",
    [("everything", ""), ("writes", ""), ("tool", "delete_record"), ("user", "admin")],
    ids=lambda pair: pair[0],
)
def test_calls_of_this_machine_without_a_token_obey(switched: tuple[str, str]) -> None:
    author = make_author("Ada")
    local = LocalClient(site, make_superuser("admin"), ["mcp:read", "mcp:write"])
    set_switch(*switched, reason="Audit")
    result = local.request("tools/call", name="delete_record", arguments={"model": "testapp.author", "pk": author.pk})
    assert result["isError"]
    assert "switched off. Reason given: Audit" in result["content"][0]["text"]
    end_switch(find_switches(*switched)[0])
    result = local.request("tools/call", name="get_record", arguments={"model": "testapp.author", "pk": str(author.pk)})
    assert not result.get("isError")


def test_the_admin_shows_what_was_off_and_changes_nothing() -> None:
    set_switch("tool", "delete_record", reason="<b>Audit</b>", by=make_superuser("admin"))
    browser = Browser()
    browser.force_login(make_superuser("root"))
    page = browser.get("/admin/mcp_django/switch/").text
    assert "delete_record" in page
    assert "<b>Audit" not in page
    pk = find_switches("tool", "delete_record")[0].pk
    for path in ("add/", f"{pk}/delete/"):
        assert browser.post(f"/admin/mcp_django/switch/{path}", {"post": "yes"}).status_code == 403
    assert browser.post(f"/admin/mcp_django/switch/{pk}/change/", {"reason": "none"}).status_code == 403
    assert find_switches("tool", "delete_record")
    reader = Browser()
    reader.force_login(make_user("reader", "mcp_django.view_callentry"))
    assert reader.get("/admin/mcp_django/switch/").status_code == 403
