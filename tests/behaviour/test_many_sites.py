"""Two admins and two endpoints for one model: each has its own rules, and nothing of one is good at the other."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from mcp_django import asgi
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_superuser, make_user
from tests.sitesapp.models import Item

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
FRONT, BACK = "/front/mcp", "/back/mcp"
LEGACY = "2025-11-25"


@pytest.fixture(autouse=True)
def _urls(settings):
    settings.ROOT_URLCONF = "tests.sitesapp.urls"


@pytest.fixture
def items():
    shown = [Item.every.create(kind="a", name=f"Item {number}", size=number) for number in range(25)]
    Item.every.create(kind="a", name="Gone", deleted=True)
    return shown


@pytest.fixture
def root():
    return make_superuser()


def ok(result):
    assert not result.is_error, result.text
    return result.structured


def test_each_endpoint_shows_the_columns_and_rows_of_its_admin(root, items):
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    shown = ok(front.call("query_records", model="sitesapp.item", limit=100))
    assert shown["columns"] == ["id", "name", "kind"]
    assert len(shown["rows"]) == 25
    shown = ok(back.call("query_records", model="sitesapp.item", limit=100))
    assert shown["columns"] == ["id", "name", "size", "deleted"]
    assert len(shown["rows"]) == 26


def test_row_121_a_row_that_one_admin_hides_is_not_there_at_its_endpoint(root, items):
    hidden = Item.every.get(deleted=True).pk
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    assert ok(back.call("get_record", model="sitesapp.item", pk=hidden))["label"] == "Gone"
    missing = front.call("get_record", model="sitesapp.item", pk=10**9)
    found = front.call("get_record", model="sitesapp.item", pk=hidden)
    assert (found.is_error, found.text) == (True, missing.text)


@pytest.mark.parametrize("tool", ["update_record", "delete_record"])
def test_a_row_that_one_admin_hides_is_not_written_at_its_endpoint(root, items, tool):
    values = {"values": {"name": "Mine"}} if tool == "update_record" else {}
    hidden = Item.every.get(deleted=True).pk
    assert MCPClient(root, path=FRONT).call(tool, model="sitesapp.item", pk=hidden, **values).is_error
    assert Item.every.get(pk=hidden).name == "Gone"


def test_row_139_the_admin_of_each_endpoint_says_who_comes_in(items):
    guest = make_user("guest", "sitesapp.view_item", staff=False)
    assert len(ok(MCPClient(guest, path=FRONT).call("query_records", model="sitesapp.item"))["rows"]) == 20
    assert MCPClient(guest, path=BACK).tools() == []
    staff = make_user("staff", "sitesapp.change_item")
    assert MCPClient(staff, path=FRONT).tools() == []


def test_each_endpoint_has_the_actions_of_its_admin(root, items):
    front = {tool["name"] for tool in MCPClient(root, path=FRONT).tools()}
    back = {tool["name"] for tool in MCPClient(root, path=BACK).tools()}
    assert {"grow_sitesapp_item", "shrink_sitesapp_item"} <= back
    assert not {"grow_sitesapp_item", "shrink_sitesapp_item", "run_action"} & front


def test_an_action_of_the_whole_admin_runs_at_its_endpoint_alone(root, items):
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    arguments = {"model": "sitesapp.item", "action": "grow", "pks": [items[0].pk]}
    ok(back.call("run_action", **arguments))
    assert Item.every.get(pk=items[0].pk).size == 1
    answer = front.send("tools/call", {"name": "run_action", "arguments": arguments}).json()
    assert answer.get("error") or answer["result"]["isError"]
    assert Item.every.get(pk=items[0].pk).size == 1


def test_row_165_a_token_for_one_endpoint_is_none_for_the_other(root):
    client = MCPClient(root, path=FRONT)
    client.path = BACK
    answer = client.send("tools/list", {})
    assert answer.status_code == 401
    assert "/.well-known/oauth-protected-resource/back/mcp" in answer["WWW-Authenticate"]


def test_a_cursor_of_one_endpoint_is_none_at_the_other(root, items):
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    arguments = {"model": "sitesapp.item", "fields": ["name"], "limit": 5}
    cursor = ok(back.call("query_records", **arguments))["next_cursor"]
    assert not back.call("query_records", **arguments, cursor=cursor).is_error
    assert front.call("query_records", **arguments, cursor=cursor).is_error


def test_a_confirmation_of_one_endpoint_is_none_at_the_other(root, items):
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    arguments = {"model": "sitesapp.item", "pk": items[0].pk}
    token = ok(back.call("delete_record", **arguments))["confirm_token"]
    assert front.call("delete_record", **arguments, confirm_token=token).is_error
    assert Item.every.filter(pk=items[0].pk).exists()
    ok(back.call("delete_record", **arguments, confirm_token=token))
    assert not Item.every.filter(pk=items[0].pk).exists()


def test_a_version_of_one_endpoint_is_none_at_the_other(root, items):
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    version = ok(back.call("get_record", model="sitesapp.item", pk=items[0].pk))["version"]
    arguments = {"model": "sitesapp.item", "pk": items[0].pk, "values": {"name": "New"}, "version": version}
    assert "has changed since" in front.call("update_record", **arguments).text
    ok(back.call("update_record", **arguments))


def test_an_idempotency_key_of_one_endpoint_says_nothing_at_the_other(root):
    front, back = MCPClient(root, path=FRONT), MCPClient(root, path=BACK)
    arguments = {"model": "sitesapp.item", "values": {"name": "Once", "kind": "a"}, "idempotency_key": "k"}
    ok(front.call("create_record", **arguments))
    ok(front.call("create_record", **arguments))
    assert Item.every.filter(name="Once").count() == 1
    ok(back.call("create_record", **arguments))
    assert Item.every.filter(name="Once").count() == 2


def test_what_is_written_at_either_endpoint_is_in_the_history_of_both_admins(root, client, items):
    for path in (FRONT, BACK):
        values = {"name": f"From {path}"}
        ok(MCPClient(root, path=path).call("update_record", model="sitesapp.item", pk=items[0].pk, values=values))
    assert LogEntry.objects.filter(object_id=str(items[0].pk)).count() == 2
    client.force_login(root)
    for name in ("front_admin", "back_admin"):
        page = client.get(reverse(f"{name}:sitesapp_item_history", args=[items[0].pk]))
        assert page.content.decode().count("via MCP: ") == 2


def test_each_endpoint_has_a_name_of_its_own():
    assert reverse("front:endpoint") == FRONT
    assert reverse("back:endpoint") == BACK


@pytest.fixture
def tokens(transactional_db):
    root = make_superuser()
    return {path: MCPClient(root, path=path).headers["Authorization"] for path in (FRONT, BACK)}


async def test_a_session_of_one_endpoint_is_none_at_the_other(tokens):
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    _, answered, _ = await posted(FRONT, first, authorization=tokens[FRONT], mcp_protocol_version=LEGACY)
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    session = {"mcp_protocol_version": LEGACY, "mcp_session_id": answered["mcp-session-id"]}
    assert (await posted(FRONT, ping, authorization=tokens[FRONT], **session))[0] == 200
    assert (await posted(BACK, ping, authorization=tokens[BACK], **session))[0] == 404


async def posted(path, body, **headers):
    asked = Exchange(asgi.get_asgi_application(), http_scope(path, **headers))
    await asked.send(body)
    return await asked.answer()
