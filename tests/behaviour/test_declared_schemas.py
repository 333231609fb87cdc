"""The schemas of all tools as clients get them."""

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.schema_walk import check_schemas, walk
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db

Colour = Enum("Colour", {"RED": 1, "BLUE": "blue"})
MIXED = {"BASE_URL": "http://testserver", "TOOL_BUDGET": 1_000}


@dataclass
class Line:
    number: int | None
    colour: Colour
    parts: "list[Line] | None"
    more: dict[str, int | None]
    free: dict  # type: ignore[type-arg]


def everything(
    request: Any,
    key: int | str,
    day: date | None,
    mixed: Literal[1, "a", None],
    lines: list[dict[str, int | None]],
    free: dict,  # type: ignore[type-arg]
    colour: Colour = Colour.RED,
    size: int | None = None,
    many: list[str] | None = None,
    five: int | None = 5,
) -> Line | None:
    """Take everything."""
    return None


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2026-07-28"])
def test_each_schema_has_single_types_and_one_spelling_of_free_objects(tools: Any, version: str) -> None:
    tools(everything)
    with override_settings(MCP_DJANGO=MIXED):
        found = MCPClient(make_superuser(), version=version).tools()
    assert len(found) > 12
    assert check_schemas(found) >= 8


@pytest.mark.urls("tests.restapp.urls")
def test_the_schemas_of_viewsets_too() -> None:
    found = MCPClient(make_superuser()).tools()
    assert len(found) > 10
    check_schemas(found)


def test_a_plain_site_declares_no_free_object(tools: Any) -> None:
    tools(everything)
    client = MCPClient(make_superuser())
    full = {tool["name"]: tool for tool in client.tools()}
    with override_settings(MCP_DJANGO={**MIXED, "SCHEMAS": "plain"}):
        plain = client.tools()
        assert check_schemas(plain) == 0
        pk = make_author("Ada").pk
        query = client.call("query_records", model="testapp.author", filters=json.dumps({"name": "Ada"}))
        assert query.structured["returned"] == 1
        values = json.dumps({"name": "Grace"})
        assert client.call("update_record", model="testapp.author", pk=str(pk), values=values).structured["updated"]
        grouped = {"model": "testapp.author", "group_by": ["name"], "having": json.dumps({"count__gte": 1})}
        assert client.call("aggregate_records", **grouped).structured["rows"] == [["Grace", 1]]
        assert not client.call("create_record", model="testapp.author", values=values).is_error
    assert Author.objects.filter(name="Grace").count() == 2
    for tool in plain:
        for name, schema in tool["inputSchema"]["properties"].items():
            before = full[tool["name"]]["inputSchema"]["properties"][name]
            # Enums have a test of their own.
            if before == schema or "enum" in str(before):
                continue
            assert "anyOf" not in str(schema)
            if "anyOf" in str(before):
                assert schema == {**before, "items": {"type": "string"}} if "items" in before else {"type": "string"}
                continue
            if before["type"] == "array":
                before, schema = before["items"], schema["items"]
            assert before["type"] == "object"
            assert schema["type"] == "string"
            assert schema["description"] == " ".join(filter(None, ["JSON object as text.", before.get("description")]))
    assert full == {tool["name"]: tool for tool in client.tools()}


def choosing(
    request: Any,
    rating: Literal[1, 2, 3],
    size: Literal["", "s", "m"] = "",
    mixed: Literal["auto", 1] = "auto",
    many: list[Literal[10, 20]] | None = None,
    name: Literal["a", "b"] = "a",
) -> str:
    """Choose."""
    return f"{rating} {size} {mixed} {many} {name}"


def test_enums_of_a_plain_site_hold_only_texts_and_every_value_is_taken(tools: Any) -> None:
    tools(choosing)
    tools(everything)
    client = MCPClient(make_superuser())
    with override_settings(MCP_DJANGO={**MIXED, "SCHEMAS": "plain"}):
        [schema] = [tool["inputSchema"] for tool in client.tools() if tool["name"] == "choosing"]
        told = client.call("choosing", rating=3, size="", mixed=1, many=[20], name="b").text
        assert told == "3  1 [20] b"
        assert client.call("choosing", rating=4).is_error
        for tool in client.tools():
            for path, inner in walk(tool["inputSchema"], tool["name"]):
                assert all(isinstance(value, str) and value for value in inner.get("enum", ())), path
                assert "enum" not in inner or inner["type"] == "string", path
    found = schema["properties"]
    assert found["rating"]["type"] == "integer"
    assert "one of 1, 2, 3" in found["rating"]["description"]
    assert found["size"]["enum"] == ["s", "m"]
    assert found["name"]["enum"] == ["a", "b"]
    assert "one of 10, 20" in found["many"]["items"]["description"]


def test_keys_are_declared_as_the_rows_show_them_and_taken_as_text_and_number() -> None:
    """A client that checks arguments itself sends what a row showed; some take nothing beside "anyOf"."""
    pk = make_author("Ada").pk
    client = MCPClient(make_superuser())
    for mode, expected in (
        ("full", {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ("plain", {"type": "string"}),
    ):
        with override_settings(MCP_DJANGO={**MIXED, "SCHEMAS": mode}):
            for tool in client.tools():
                for path, schema in walk(tool["inputSchema"], tool["name"]):
                    if path.rpartition(".")[2] in ("pk",) or path.endswith("pks.items"):
                        assert schema == expected, path
    for key in (pk, str(pk)):
        assert client.call("get_record", model="testapp.author", pk=key).structured["fields"]["name"] == "Ada"


def test_one_record_is_named_by_its_key_alone_where_that_is_its_uri() -> None:
    author = make_author("Ada")
    client = MCPClient(make_superuser())
    [schema] = [tool["inputSchema"] for tool in client.tools() if tool["name"] == "get_record"]
    assert schema["required"] == ["pk"]
    for named in ({"pk": f"django://testapp/author/{author.pk}"}, {"uri": f"django://testapp/author/{author.pk}"}):
        assert client.call("get_record", **named).structured["label"] == str(author)
    assert "Name the record" in client.call("get_record", fields=["name"]).text


def test_a_list_of_tools_costs_no_more_than_before() -> None:
    generic = [tool for tool in MCPClient(make_superuser()).tools() if not tool["name"].endswith("testapp_book")]
    assert len(json.dumps(generic, separators=(",", ":"))) < 9_200


@pytest.mark.parametrize(("value", "expected"), [("full", []), ("plain", []), ("text", ["mcp_django.E008"])])
def test_the_setting_is_checked(value: str, expected: list[str]) -> None:
    with override_settings(MCP_DJANGO={**MIXED, "SCHEMAS": value}):
        assert [found.id for found in run_checks() if found.id == "mcp_django.E008"] == expected
