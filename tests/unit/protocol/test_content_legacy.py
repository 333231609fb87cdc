"""What is sent to clients of 2024-11-05 to 2025-11-25: nothing that the schema of their revision does not know."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types.methods import SERVER_RESULTS, serialize_server_result

from mcp_django.protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from mcp_django.protocol.eras import LEGACY_ERA, Call
from mcp_django.protocol.errors import ResourceNotFound
from mcp_django.protocol.messages import Message, encode
from tests.protocol_messages import LEGACY, PARAMS, accepted, body_of, legacy_headers
from tests.protocol_schemas import check_wire, has_definition

pytestmark = pytest.mark.one_django

PAIRS = sorted((version, method) for method, version in SERVER_RESULTS if version in LEGACY)
BLOCKS: list[Content] = [
    Text("a"),
    Image(b"a"),
    EmbeddedResource("a:b", "a"),
    ResourceLink("django://shop/order/1", "Order 1", "d", "application/json"),
    Audio(b"a", "audio/wav"),
]
CALL_RESULT: dict[str, Any] = {
    "content": [block.to_wire() for block in BLOCKS],
    "structuredContent": {"a": 1},
    "isError": False,
}
PROMPT_RESULT: dict[str, Any] = {
    "description": "d",
    "messages": [{"role": "user", "content": block.to_wire()} for block in BLOCKS],
}
# Neutral results, as handlers give them.
ABOUT: dict[str, Any] = {"name": "a", "title": "A", "description": "d"}
RESULTS: dict[str, dict[str, Any]] = {
    "completion/complete": {"completion": {"values": ["a", "b"], "total": 3, "hasMore": True}},
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "logging": {},
            "completions": {},
        },
        "serverInfo": {"name": "tests", "title": "Tests", "version": "1"},
        "instructions": "i",
    },
    "prompts/get": PROMPT_RESULT,
    "prompts/list": {"prompts": [{**ABOUT, "arguments": [{**ABOUT, "required": True}]}]},
    "resources/list": {
        "resources": [{**ABOUT, "uri": "a:b", "mimeType": "application/json", "size": 3}],
        "nextCursor": "c",
    },
    "resources/read": {
        "contents": [
            {"uri": "a:b", "mimeType": "application/json", "text": "a"},
            {"uri": "a:c", "mimeType": "image/png", "blob": "YQ=="},
        ]
    },
    "resources/templates/list": {
        "resourceTemplates": [{**ABOUT, "uriTemplate": "a:{b}", "mimeType": "application/json"}]
    },
    "tools/call": CALL_RESULT,
    "tools/list": {
        "tools": [
            {
                **ABOUT,
                "inputSchema": {
                    "type": "object",
                    "properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": ["integer", "null"]}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
                "outputSchema": {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]},
                "annotations": {"readOnlyHint": True, "openWorldHint": False},
                "_meta": {"anthropic/alwaysLoad": True},
            }
        ]
    },
}
# What the specification calls the result of each method.
NAMES = {
    "completion/complete": "CompleteResult",
    "initialize": "InitializeResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}


def call_of(version: str, method: str) -> Call:
    params = {**PARAMS.get(method, {}), **({"protocolVersion": version} if method == "initialize" else {})}
    call = accepted(body_of(method, params), legacy_headers(version))
    assert call.version == version
    return call


def shaped(version: str, method: str, result: Mapping[str, Any]) -> dict[str, Any]:
    call = call_of(version, method)
    return LEGACY_ERA.shape(call, result, server={"name": "tests", "version": "1"}, ttl_ms=5_000)


@pytest.mark.parametrize(("version", "method"), PAIRS)
def test_the_result_of_each_method_is_one_that_the_schema_knows(version: str, method: str) -> None:
    wire = shaped(version, method, RESULTS.get(method, {}))
    assert serialize_server_result(method, version, wire) == wire, "the schema drops what it does not know"


@pytest.mark.parametrize(("version", "method"), PAIRS)
def test_the_result_of_each_method_is_one_of_the_revision(version: str, method: str) -> None:
    wire = json.loads(encode(call_of(version, method).response(shaped(version, method, RESULTS.get(method, {})))))
    check_wire(version, NAMES.get(method, "EmptyResult"), wire["result"])
    check_wire(version, "JSONRPCResultResponse" if version == "2025-11-25" else "JSONRPCResponse", wire)


@pytest.mark.parametrize("version", LEGACY)
def test_a_revision_learns_of_capabilities_that_it_knows(version: str) -> None:
    offered = {**RESULTS["initialize"]["capabilities"], "extensions": {"a/b": {}}, "experimental": {"c": {}}}
    result = {**RESULTS["initialize"], "capabilities": offered}
    wire = shaped(version, "initialize", result)
    check_wire(version, "InitializeResult", wire)
    unknown = {"extensions", "completions"} if version == "2024-11-05" else {"extensions"}
    assert wire["capabilities"] == {name: value for name, value in offered.items() if name not in unknown}
    assert result["capabilities"] is offered
    assert "extensions" in offered


NOTIFICATIONS: list[tuple[str, dict[str, Any]]] = [
    ("notifications/cancelled", {"requestId": 1, "reason": "r"}),
    ("notifications/message", {"level": "info", "logger": "a", "data": {"b": [1]}}),
    ("notifications/progress", {"progressToken": "a", "progress": 1.5, "total": 2, "message": "m"}),
    ("notifications/prompts/list_changed", {}),
    ("notifications/resources/list_changed", {}),
    ("notifications/resources/updated", {"uri": "django://shop/order/1"}),
    ("notifications/tools/list_changed", {}),
]


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize(("method", "params"), NOTIFICATIONS)
def test_notifications_are_those_of_every_revision(version: str, method: str, params: dict[str, Any]) -> None:
    wire = json.loads(Message(method, params).encode())
    check_wire(version, "JSONRPCNotification", wire)
    check_wire(version, "ServerNotification", wire)


@pytest.mark.parametrize("version", LEGACY)
def test_errors_are_those_of_every_revision(version: str) -> None:
    wire = json.loads(encode(ResourceNotFound("a:b").response(1, modern=False)))
    check_wire(
        version, "JSONRPCErrorResponse" if has_definition(version, "JSONRPCErrorResponse") else "JSONRPCError", wire
    )


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
def test_an_empty_result_stays_empty(version: str, method: str) -> None:
    assert shaped(version, method, {}) == {}


@pytest.mark.parametrize("version", LEGACY)
def test_what_only_the_modern_era_has_is_left_out(version: str) -> None:
    result = {"tools": [], "resultType": "complete", "ttlMs": 1, "cacheScope": "private", "_meta": {"a": 1}}
    assert shaped(version, "tools/list", result) == {"tools": [], "_meta": {"a": 1}}


LINK_AS_TEXT = {"type": "text", "text": "Order 1: django://shop/order/1"}
AUDIO_AS_TEXT = {"type": "text", "text": "[audio, audio/wav]"}


@pytest.mark.parametrize(
    ("version", "changed"),
    [
        ("2024-11-05", {3: LINK_AS_TEXT, 4: AUDIO_AS_TEXT}),
        ("2025-03-26", {3: LINK_AS_TEXT}),
        ("2025-06-18", {}),
        ("2025-11-25", {}),
    ],
)
def test_blocks_that_a_revision_does_not_know_become_text(version: str, changed: dict[int, Any]) -> None:
    expected = [changed.get(number, block.to_wire()) for number, block in enumerate(BLOCKS)]
    called = shaped(version, "tools/call", CALL_RESULT)
    assert called["content"] == expected
    assert called["isError"] is False
    assert ("structuredContent" in called) is (version >= "2025-06-18")
    prompted = shaped(version, "prompts/get", PROMPT_RESULT)
    assert [message["content"] for message in prompted["messages"]] == expected
    assert {message["role"] for message in prompted["messages"]} == {"user"}


def test_a_neutral_result_is_left_as_it_was() -> None:
    shaped("2024-11-05", "tools/call", CALL_RESULT)
    shaped("2024-11-05", "prompts/get", PROMPT_RESULT)
    assert CALL_RESULT["content"][3]["type"] == "resource_link"
    assert "structuredContent" in CALL_RESULT
    assert PROMPT_RESULT["messages"][4]["content"]["type"] == "audio"
