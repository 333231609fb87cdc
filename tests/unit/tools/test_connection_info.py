import json
from typing import Any

import pytest

from mcp_django.operating.switches import set_switch
from mcp_django.protocol.versions import Revisions
from mcp_django.testing import MCPClient, MCPError
from tests.configured import configure
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def offered(settings):
    """Have a budget, though one that none of the callers has."""
    configure(settings, BUDGETS={"service": {"calls": 5}})


def offers(client):
    return "connection_info" in {tool["name"] for tool in client.tools()}


def test_it_is_not_offered_where_it_has_nothing_to_say():
    client = MCPClient(make_superuser())
    assert not offers(client)
    with pytest.raises(MCPError, match="Unknown tool: connection_info"):
        client.call("connection_info")


def test_it_is_offered_where_something_is_off():
    client = MCPClient(make_superuser())
    make_user("ada")
    set_switch("user", "ada")
    assert not offers(client)
    set_switch("tool", "delete_record")
    assert offers(client)


def test_it_is_offered_where_there_are_budgets(offered):
    assert offers(MCPClient(make_superuser()))


def test_it_costs_few_tokens(offered):
    (found,) = (tool for tool in MCPClient(make_superuser()).tools() if tool["name"] == "connection_info")
    assert len(json.dumps(found, separators=(",", ":"))) < 340


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
def test_it_says_who_the_caller_is_and_what_it_may_do(offered, version):
    client = MCPClient(make_superuser(), scopes=["mcp:read"], version=version)
    found = json.loads(client.call("connection_info").text)
    assert found["user"] == "root"
    assert found["kind"] == "person"
    assert found["endpoint"].endswith("/mcp")
    assert found["protocol"] == version
    assert found["scopes"] == ["mcp:read"]
    assert found["writes"] is False
    assert found["client"]["id"]
    assert "switched_off" not in found
    assert "left_today" not in found


def test_it_says_that_the_caller_may_write_unless_that_is_off():
    client = MCPClient(make_superuser())
    set_switch("tool", "delete_record", reason="Audit")
    found = client.call("connection_info").structured
    assert found["writes"] is True
    assert found["switched_off"] == ["The tool delete_record is switched off. Reason given: Audit"]
    set_switch("writes", reason="Stocktaking")
    found = client.call("connection_info").structured
    assert found["writes"] is False
    assert "Changing data is switched off. Reason given: Stocktaking" in found["switched_off"]


def test_it_tells_of_no_switch_for_what_the_caller_may_not_know_of():
    ada = make_user("ada", "testapp.view_author")
    make_user("bob")
    client = MCPClient(ada)
    set_switch("user", "bob", reason="secret")
    set_switch("model", "testapp.book", reason="secret")
    set_switch("action", "testapp.book.withdraw", reason="secret")
    set_switch("tool", "delete_record", reason="secret")
    set_switch("model", "testapp.author", reason="open")
    found = client.call("connection_info")
    assert found.structured["switched_off"] == ["The model testapp.author is switched off. Reason given: open"]
    assert "secret" not in found.text


def test_it_takes_no_arguments(offered):
    assert MCPClient(make_superuser()).call("connection_info", user="ada").is_error


def test_a_tool_of_the_project_of_that_name_goes_before(offered, tools):
    def connection_info(request: Any) -> str:
        """Say something else."""
        return "mine"

    tools(connection_info, read_only=True)
    client = MCPClient(make_superuser())
    assert [tool["name"] for tool in client.tools()].count("connection_info") == 1
    assert client.call("connection_info").text == "mine"
