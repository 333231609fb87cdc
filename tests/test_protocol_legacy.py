"""2024-11-05 to 2025-11-25: which version a request is of, and results without what that version does not know."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types.methods import SERVER_RESULTS, serialize_server_result

from mcp_django.protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from mcp_django.protocol.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    ResourceNotFound,
    UnsupportedVersion,
)
from mcp_django.protocol.inbound import LEGACY_ERA
from mcp_django.protocol.versions import SUPPORTED

from .protocol_messages import LEGACY, MODERN, PARAMS, accepted, body_of, legacy_headers, rejected

PAIRS = sorted((version, method) for method, version in SERVER_RESULTS if version in LEGACY)
BLOCKS: list[Content] = [
    Text("a"),
    Image(b"a"),
    EmbeddedResource("a:b", "a"),
    ResourceLink("django://shop/order/1", "Order 1"),
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
RESULTS: dict[str, dict[str, Any]] = {
    "completion/complete": {"completion": {"values": ["a"], "total": 1}},
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "tests", "version": "1"},
        "instructions": "i",
    },
    "prompts/get": PROMPT_RESULT,
    "prompts/list": {"prompts": [{"name": "a"}]},
    "resources/list": {"resources": [{"uri": "a:b", "name": "a"}], "nextCursor": "c"},
    "resources/read": {"contents": [{"uri": "a:b", "text": "a"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "a"}]},
    "tools/call": CALL_RESULT,
    "tools/list": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]},
}


# Requests


@pytest.mark.parametrize(("version", "method"), PAIRS)
def test_a_request_of_each_method_is_a_call_of_the_version_in_its_header(version: str, method: str) -> None:
    call = accepted(body_of(method, PARAMS.get(method)), legacy_headers(version))
    assert (call.era, call.method, call.id, call.params) == (LEGACY_ERA, method, 1, PARAMS.get(method, {}))
    assert call.version == (version if method != "initialize" else "2025-11-25")
    assert (call.capabilities, call.log_level) == ({}, None)


def test_59_a_request_without_a_version_is_of_2025_03_26() -> None:
    assert accepted(body_of("ping"), {}).version == "2025-03-26"


@pytest.mark.parametrize(
    "versions",
    [
        ["1.0"],
        [""],
        ["2025-11-25 "],
        ["2025-11-25, 2025-06-18"],
        ["2025-11-25", "2025-11-25"],
        ["2025-11-25", "2025-06-18"],
        [f"{MODERN}, {MODERN}"],
        ["2099-01-01"],
    ],
)
def test_59_another_version_is_told_the_supported_ones(versions: list[str]) -> None:
    status, error = rejected(body_of("ping"), {"mcp-protocol-version": versions})
    assert (status, error["error"]["code"], error["id"]) == (400, -32022, 1)
    assert error["error"]["data"] == {"supported": list(SUPPORTED), "requested": ", ".join(versions)}


def test_59_a_long_version_is_cut() -> None:
    _, error = rejected(body_of("ping"), legacy_headers("9" * 10_000))
    assert error["error"]["data"]["requested"] == "9" * 64


@pytest.mark.parametrize(
    ("requested", "offered"),
    [*((version, version) for version in LEGACY), (MODERN, "2025-11-25"), ("1.0", "2025-11-25"), ("", "2025-11-25")],
)
@pytest.mark.parametrize("header", [None, "2024-11-05", "1.0"])
def test_59_initialize_is_never_refused_for_its_version(requested: str, offered: str, header: str | None) -> None:
    params = {**PARAMS["initialize"], "protocolVersion": requested}
    call = accepted(body_of("initialize", params), legacy_headers(header))
    assert call.version == offered
    assert call.client == {"name": "tests", "version": "1"}


@pytest.mark.parametrize(
    "change", [{"protocolVersion": 1}, {"clientInfo": None}, {"clientInfo": "a"}, {"capabilities": []}]
)
def test_a_malformed_initialize_is_an_invalid_request_of_the_method(change: dict[str, Any]) -> None:
    status, error = rejected(body_of("initialize", {**PARAMS["initialize"], **change}), {})
    assert (status, error["error"]["code"], error["id"]) == (200, -32602, 1)


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "unknown/method", "rpc.x", "__init__"])
def test_58_a_method_of_no_or_another_era_is_an_answer(version: str, method: str) -> None:
    status, error = rejected(body_of(method, PARAMS.get(method)), legacy_headers(version))
    assert (status, error["error"]["code"], error["id"]) == (200, -32601, 1)


@pytest.mark.parametrize("token", ["a", 7])
def test_a_call_carries_its_progress_token(token: str | int) -> None:
    body = body_of("tools/call", {"name": "a", "_meta": {"progressToken": token}})
    assert accepted(body, legacy_headers()).progress_token == token


@pytest.mark.parametrize("token", [{}, [], True, 1.5, 10**300, "a" * 10_000])
def test_66_another_progress_token_is_refused(token: Any) -> None:
    status, error = rejected(body_of("tools/call", {"name": "a", "_meta": {"progressToken": token}}), legacy_headers())
    assert (status, error["error"]["code"], error["id"]) == (200, -32602, 1)


@pytest.mark.parametrize("level", ["verbose", "", "INFO", None, 3])
def test_67_another_log_level_is_refused(level: Any) -> None:
    status, error = rejected(body_of("logging/setLevel", {"level": level}), legacy_headers())
    assert (status, error["error"]["code"]) == (200, -32602)


@pytest.mark.parametrize("version", [None, *LEGACY])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/initialized", None),
        ("notifications/cancelled", {"requestId": 1, "_meta": {"progressToken": {}}}),
        ("notifications/unknown", {"_meta": []}),
        ("tools/call", {"name": 1}),
        ("initialize", {"clientInfo": "a", "protocolVersion": []}),
    ],
)
def test_a_notification_is_taken_as_it_is(version: str | None, method: str, params: Any) -> None:
    call = accepted(body_of(method, params, id=None), legacy_headers(version))
    assert (call.era, call.id, call.client, call.progress_token) == (LEGACY_ERA, None, {}, None)


def test_59_a_notification_of_another_version_is_an_http_error() -> None:
    status, error = rejected(body_of("notifications/initialized", id=None), legacy_headers("1.0"))
    assert (status, error["error"]["code"]) == (400, -32022)
    assert "id" not in error


# Results


def shaped(version: str, method: str, result: Mapping[str, Any]) -> dict[str, Any]:
    params = {**PARAMS.get(method, {}), **({"protocolVersion": version} if method == "initialize" else {})}
    call = accepted(body_of(method, params), legacy_headers(version))
    assert call.version == version
    return LEGACY_ERA.shape(call, result, server={"name": "tests", "version": "1"}, ttl_ms=5_000)


@pytest.mark.parametrize(("version", "method"), PAIRS)
def test_the_result_of_each_method_is_one_that_the_schema_knows(version: str, method: str) -> None:
    wire = shaped(version, method, RESULTS.get(method, {}))
    assert serialize_server_result(method, version, wire) == wire, "the schema drops what it does not know"


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


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ParseError(), 400),
        (InvalidRequest(), 400),
        (UnsupportedVersion("a", SUPPORTED), 400),
        (MethodNotFound(), 200),
        (InvalidParams(), 200),
        (ResourceNotFound("a:b"), 200),
        (InternalError(), 200),
    ],
)
def test_errors_of_a_method_are_answers(error: Any, status: int) -> None:
    assert LEGACY_ERA.status(error) == status
