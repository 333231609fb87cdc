"""What the manifest demands of tools and of tasks (`requirements/tools.toml`, `requirements/tasks.toml`)."""

import json
import socket
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator

from mcp_django import Param
from mcp_django.protocol.headers import ParamHeader
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db

DIALECT = "https://json-schema.org/draft/2020-12/schema"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@dataclass
class Total:
    """What an order comes to."""

    amount: Decimal
    parts: list[str]
    due: date | None = None


def price(
    request,
    author: Author,
    count: Annotated[int, Param("How many.", minimum=1, maximum=9)] = 1,
    tone: Literal["dry", "kind"] = "dry",
    when: date | None = None,
    tags: list[str] | None = None,
) -> Total:
    """Say what it costs."""
    return Total(Decimal(count), tags or [])


def test_schemas_of_tools_are_valid_2020_12(tools):
    tools(price, read_only=True)
    found = MCPClient(make_superuser()).tools()
    assert {"price", "query_records", "delete_record", "publish_testapp_book"} <= {tool["name"] for tool in found}
    for tool in found:
        for schema in (tool["inputSchema"], tool.get("outputSchema", {"type": "object"})):
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object", tool["name"]
            assert schema.get("$schema", DIALECT) == DIALECT, tool["name"]


def test_structured_results_conform_to_the_announced_schema(tools):
    tools(price, read_only=True)
    client = MCPClient(make_superuser())
    author = make_author()
    calls = {
        "price": {"author": author.pk, "count": 2, "tags": ["a"]},
        "list_models": {},
        "describe_model": {"model": "testapp.author"},
        "query_records": {"model": "testapp.author", "count": True},
        "get_record": {"model": "testapp.author", "pk": author.pk},
        "aggregate_records": {"model": "testapp.author", "aggregates": ["count"]},
    }
    schemas = {tool["name"]: tool.get("outputSchema") for tool in client.tools()}
    announced = [name for name in calls if schemas[name] is not None]
    assert "price" in announced
    for name in announced:
        found = client.call(name, **calls[name])
        assert not found.is_error, found.text
        Draft202012Validator(schemas[name]).validate(found.structured)
        assert json.loads(found.text) == found.structured


def test_the_list_depends_on_the_authority_alone(tools):
    tools(price, read_only=True, permissions=["testapp.view_author"])
    viewer, other = make_user("viewer", "testapp.view_author"), make_user("other", "testapp.view_tag")
    first, second = MCPClient(viewer), MCPClient(viewer)
    before = first.tools()
    first.call("query_records", model="testapp.author")
    first.call("price", author=make_author().pk)
    assert first.tools() == second.tools() == MCPClient(viewer).tools() == before
    assert "price" not in [tool["name"] for tool in MCPClient(other).tools()]
    assert first.tools() == before


def test_a_reference_of_an_authors_schema_is_never_followed(tools, monkeypatch):
    schema = {
        "$schema": DIALECT,
        "type": "object",
        "properties": {"place": {"$ref": "https://schemas.example/place.json"}},
        "required": ["place"],
    }

    def visit(request, place) -> str:
        """Visit a place."""
        return str(place)

    def refuse(*args, **kwargs):
        raise AssertionError("a reference was followed")

    tools(visit, read_only=True, input_schema=schema)
    client = MCPClient(make_superuser())
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    listed = {tool["name"]: tool for tool in client.tools()}
    assert listed["visit"]["inputSchema"]["properties"] == schema["properties"]
    assert client.call("visit", place={"$ref": "https://schemas.example/other.json"}).is_error is False


def test_the_name_of_a_tool_in_another_case_is_unknown(tools):
    tools(price, read_only=True)
    client = MCPClient(make_superuser())
    for name in ("Price", "PRICE", "Query_Records"):
        with pytest.raises(MCPError, match=f"Unknown tool: {name}"):
            client.call(name)


def test_no_generated_tool_mirrors_an_argument_in_a_header():
    found = MCPClient(make_superuser()).tools()
    assert found
    assert not [tool["name"] for tool in found if ParamHeader.of_schema(tool["inputSchema"])]


def test_tasks_are_neither_announced_nor_known():
    client = MCPClient(make_superuser(), version="2025-11-25")
    assert "tasks" not in client.request("initialize", **HELLO)["capabilities"]
    assert not [tool["name"] for tool in client.tools() if "execution" in tool]
    for method in ("tasks/list", "tasks/get", "tasks/result", "tasks/cancel"):
        with pytest.raises(MCPError) as caught:
            client.request(method, taskId="1")
        assert (caught.value.status, caught.value.code) == (200, -32601)


def test_the_metadata_of_a_task_is_ignored(tools):
    def now(request) -> str:
        """Tell the time."""
        return "noon"

    tools(now, read_only=True)
    client = MCPClient(make_superuser(), version="2025-11-25")
    result = client.request("tools/call", name="now", arguments={}, task={"ttl": 60_000})
    assert result["content"] == [{"type": "text", "text": "noon"}]
    assert "task" not in result
