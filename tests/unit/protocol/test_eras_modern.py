"""2026-07-28: what a request must carry, and what a result looks like."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types.methods import CACHEABLE_METHODS, SERVER_RESULTS, serialize_server_result

from mcp_django.protocol.client_requests import MAX_RESPONSE_BYTES, MAX_RESPONSES
from mcp_django.protocol.eras import LEGACY_ERA, MAX_STATE_CHARS, MODERN_ERA
from mcp_django.protocol.errors import (
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MissingClientCapability,
    ResourceNotFound,
)
from mcp_django.protocol.messages import ClientResponse, Message, encode
from mcp_django.protocol.versions import Revisions
from tests.protocol_messages import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEGACY,
    LOG_LEVEL_KEY,
    META,
    MODERN,
    PARAMS,
    SERVER_KEY,
    VERSION_KEY,
    Facts,
    accepted,
    body_of,
    legacy_headers,
    modern_body,
    modern_headers,
    rejected,
)
from tests.protocol_schemas import check_wire

pytestmark = pytest.mark.one_django

SERVER = {"name": "tests", "version": "1"}
METHODS = sorted(method for method, version in SERVER_RESULTS if version == MODERN)
TOOL = {"name": "a", "inputSchema": {"type": "object"}}
# Neutral results, as handlers give them.
RESULTS: dict[str, dict[str, Any]] = {
    "completion/complete": {"completion": {"values": ["a"], "hasMore": False}},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]},
    "prompts/list": {"prompts": [{"name": "a"}]},
    "resources/list": {"resources": [{"uri": "a:b", "name": "a"}], "nextCursor": "c"},
    "resources/read": {"contents": [{"uri": "a:b", "text": "a"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "a"}]},
    "server/discover": {"supportedVersions": list(Revisions.SUPPORTED), "capabilities": {}},
    "subscriptions/listen": {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}},
    "tools/call": {"content": [], "structuredContent": {"a": 1}},
    "tools/list": {"tools": [TOOL]},
}
# What the specification calls the result of each method.
NAMES = {
    "completion/complete": "CompleteResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}


# Requests


@pytest.mark.parametrize("method", METHODS)
def test_a_complete_request_of_each_method_is_a_call(method: str) -> None:
    call = accepted(modern_body(method), modern_headers(method))
    assert (call.era, call.version, call.method, call.id) == (MODERN_ERA, MODERN, method, 1)
    assert call.params == {**PARAMS.get(method, {}), "_meta": META}
    assert (call.client, call.capabilities) == (META[CLIENT_KEY], {})
    assert (call.progress_token, call.log_level) == (None, None)


def test_a_call_carries_what_its_meta_says() -> None:
    meta = {"progressToken": 7, LOG_LEVEL_KEY: "warning", CAPABILITIES_KEY: {"elicitation": {}, "x": 1}}
    call = accepted(modern_body("tools/call", meta=meta), modern_headers("tools/call"))
    assert (call.progress_token, call.log_level) == (7, "warning")
    assert call.capabilities == {"elicitation": {}, "x": 1}


def test_client_info_is_optional() -> None:
    meta = {key: value for key, value in META.items() if key != CLIENT_KEY}
    call = accepted(body_of("server/discover", {"_meta": meta}), modern_headers("server/discover"))
    assert call.client == {}


@pytest.mark.parametrize("missing", [VERSION_KEY, CAPABILITIES_KEY])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "unknown/method"])
def test_60_a_missing_required_key_is_named(method: str, missing: str) -> None:
    meta = {key: value for key, value in META.items() if key != missing}
    status, error = rejected(body_of(method, {"_meta": meta}), modern_headers(method))
    assert (status, error["error"]["code"], error["id"]) == (400, -32602, 1)
    assert missing in error["error"]["message"]


@pytest.mark.parametrize("params", [None, {}, {"_meta": None}, {"_meta": []}, {"_meta": "a"}, {"_meta": {}}])
def test_60_a_modern_header_without_meta_is_answered_as_modern(params: Any) -> None:
    status, error = rejected(body_of("server/discover", params), modern_headers("server/discover"))
    assert (status, error["error"]["code"], error["id"]) == (400, -32602, 1)
    assert "_meta" in error["error"]["message"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (VERSION_KEY, 20260728),
        (VERSION_KEY, None),
        (VERSION_KEY, [MODERN]),
        (CAPABILITIES_KEY, None),
        (CAPABILITIES_KEY, []),
        (CAPABILITIES_KEY, {"elicitation": 1}),
        (CLIENT_KEY, None),
        (CLIENT_KEY, "tests"),
        (CLIENT_KEY, {"name": "tests"}),
        (CLIENT_KEY, {"name": 1, "version": "1"}),
        (LOG_LEVEL_KEY, 1),
        (LOG_LEVEL_KEY, "verbose"),
        ("progressToken", {}),
        ("progressToken", 1.5),
        ("progressToken", 10**300),
        ("progressToken", "a" * 10_000),
    ],
)
def test_60_66_67_a_key_of_the_wrong_type_is_named(key: str, value: Any) -> None:
    status, error = rejected(modern_body("tools/list", meta={key: value}), modern_headers("tools/list"))
    assert (status, error["error"]["code"], error["id"]) == (400, -32602, 1)
    assert key in error["error"]["message"]


@pytest.mark.parametrize("key", ["io.modelcontextprotocol/junk", "dev.mcp/x", "traceparent", "//", "", "é"])
def test_60_other_keys_decide_nothing(key: str) -> None:
    assert (
        accepted(modern_body("tools/list", meta={key: [{"a": None}]}), modern_headers("tools/list")).version == MODERN
    )


@pytest.mark.parametrize(
    "versions",
    [
        [],
        [""],
        ["2025-11-25"],
        ["v999.0.0"],
        [MODERN + " "],
        [MODERN.replace("-", "\u2010")],
        [f"{MODERN}, {MODERN}"],
        [MODERN, MODERN],
        [MODERN, "2025-11-25"],
    ],
)
def test_59_a_version_header_that_does_not_equal_meta_is_a_mismatch(versions: list[str]) -> None:
    headers = modern_headers("tools/list") | {"mcp-protocol-version": versions}
    status, error = rejected(modern_body("tools/list"), headers)
    assert (status, error["error"]["code"], error["id"]) == (400, -32020, 1)


def test_59_a_mismatch_comes_before_an_unsupported_version() -> None:
    status, error = rejected(
        modern_body("server/discover", meta={VERSION_KEY: "v999.0.0"}), modern_headers("server/discover")
    )
    assert (status, error["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("version", ["v999.0.0", "2099-01-01", "", "DRAFT-2026-v1"])
def test_59_an_unknown_version_is_told_the_supported_ones(version: str) -> None:
    headers = modern_headers("server/discover", version=version)
    status, error = rejected(modern_body("server/discover", meta={VERSION_KEY: version}), headers)
    assert (status, error["error"]["code"], error["id"]) == (400, -32022, 1)
    assert error["error"]["data"] == {"supported": list(Revisions.SUPPORTED), "requested": version}


@pytest.mark.parametrize("version", LEGACY)
def test_59_a_legacy_version_in_meta_is_told_what_meta_may_say(version: str) -> None:
    headers = modern_headers("tools/list", version=version)
    status, error = rejected(modern_body("tools/list", meta={VERSION_KEY: version}), headers)
    assert (status, error["error"]["code"]) == (400, -32022)
    assert error["error"]["data"] == {"supported": [MODERN], "requested": version}


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-method": []},
        {"mcp-method": ["tools/list"]},
        {"mcp-method": ["TOOLS/CALL"]},
        {"mcp-name": []},
        {"mcp-name": ["delete_record"]},
    ],
)
def test_11_mirrored_headers_are_checked(headers: dict[str, list[str]]) -> None:
    status, error = rejected(modern_body("tools/call"), modern_headers("tools/call") | headers)
    assert (status, error["error"]["code"], error["id"]) == (400, -32020, 1)


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "unknown/method",
        "rpc.discover",
        "__init__",
    ],
)
def test_58_a_method_of_no_or_another_era_is_404(method: str) -> None:
    headers = {"mcp-protocol-version": [MODERN], "mcp-method": [method]}
    status, error = rejected(modern_body(method), headers)
    assert (status, error["error"]["code"], error["id"]) == (404, -32601, 1)


def test_a_call_takes_nothing_from_a_session() -> None:
    call = accepted(modern_body("tools/list"), modern_headers("tools/list"), Facts())
    assert (call.version, call.client, call.capabilities, call.log_level) == (MODERN, META[CLIENT_KEY], {}, None)


def test_60_a_call_carries_its_trace() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
    meta = {"traceparent": parent, "tracestate": "a=1", "baggage": "b=2"}
    assert accepted(modern_body("tools/list", meta=meta), modern_headers("tools/list")).trace == meta


@pytest.mark.parametrize("level", ["INFO", "warn", "", "verbose", None, 3, ["info"], True])
def test_67_another_log_level_is_refused(level: Any) -> None:
    status, error = rejected(modern_body("tools/list", meta={LOG_LEVEL_KEY: level}), modern_headers("tools/list"))
    assert (status, error["error"]["code"]) == (400, -32602)
    assert LOG_LEVEL_KEY in error["error"]["message"]


def test_63_responses_are_refused_in_a_session_too() -> None:
    with pytest.raises(InvalidRequest):
        MODERN_ERA.accept(ClientResponse(id=1, result={}), legacy_headers(MODERN), Facts())


# Without headers


@pytest.mark.parametrize("method", METHODS)
def test_without_headers_none_are_asked_for(method: str) -> None:
    call = accepted(modern_body(method), None)
    assert (call.era, call.version, call.method) == (MODERN_ERA, MODERN, method)


def test_59_without_headers_an_unknown_version_is_told_the_supported_ones() -> None:
    _, error = rejected(modern_body("server/discover", meta={VERSION_KEY: "v999.0.0"}), None)
    assert error["error"]["data"] == {"supported": list(Revisions.SUPPORTED), "requested": "v999.0.0"}


def test_without_headers_a_notification_is_of_the_era_that_its_meta_names() -> None:
    body = body_of("notifications/cancelled", {"requestId": 1, "_meta": {VERSION_KEY: MODERN}}, id=None)
    assert accepted(body, None).era is MODERN_ERA
    assert accepted(body_of("notifications/cancelled", {"requestId": 1}, id=None), None).era is LEGACY_ERA


# Calls that are made again with answers


ACCEPTED = {"action": "accept", "content": {"name": "a"}}
AGAIN = ["tools/call", "prompts/get", "resources/read"]


@pytest.mark.parametrize("method", AGAIN)
def test_a_call_carries_the_answers_and_the_state_that_it_brings(method: str) -> None:
    brought = {"inputResponses": {"a": ACCEPTED, "b": {"roots": []}}, "requestState": "sealed"}
    call = accepted(modern_body(method, brought), modern_headers(method))
    assert (call.input_responses, call.request_state) == (brought["inputResponses"], "sealed")


@pytest.mark.parametrize(
    ("brought", "responses", "state"),
    [({}, None, None), ({"inputResponses": {}}, {}, None), ({"requestState": ""}, None, "")],
)
def test_what_a_call_does_not_bring_is_none(brought: Any, responses: Any, state: Any) -> None:
    call = accepted(modern_body("tools/call", brought), modern_headers("tools/call"))
    assert (call.input_responses, call.request_state) == (responses, state)


def test_answers_to_what_cannot_ask_are_left_alone() -> None:
    call = accepted(modern_body("tools/list", {"inputResponses": 1, "requestState": 1}), modern_headers("tools/list"))
    assert (call.input_responses, call.request_state) == (None, None)


WIDE = {str(number): {"action": "cancel"} for number in range(MAX_RESPONSES + 1)}
LONG = {"a": {"action": "accept", "content": {"text": "x" * MAX_RESPONSE_BYTES}}}


@pytest.mark.parametrize(
    "brought",
    [
        {"inputResponses": None},
        {"inputResponses": []},
        {"inputResponses": "a"},
        {"inputResponses": {"a": None}},
        {"inputResponses": {"a": 12345}},
        {"inputResponses": {"a": [ACCEPTED]}},
        {"inputResponses": {"a": {}}},
        {"inputResponses": {"a": {"action": "approve"}}},
        {"inputResponses": {"a": {"action": "accept", "content": {"b": {"c": 1}}}}},
        {"inputResponses": {"a": {"action": "accept", "content": {"b": 10**30}}}},
        {"inputResponses": WIDE},
        {"inputResponses": LONG},
        {"requestState": None},
        {"requestState": 1},
        {"requestState": {}},
        {"requestState": "s" * (MAX_STATE_CHARS + 1)},
    ],
)
@pytest.mark.parametrize("method", AGAIN)
def test_73_78_malformed_answers_and_states_are_refused(method: str, brought: dict[str, Any]) -> None:
    status, error = rejected(modern_body(method, brought), modern_headers(method))
    assert (status, error["error"]["code"], error["id"]) == (400, -32602, 1)
    assert next(iter(brought)) in error["error"]["message"]


# Notifications


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"requestId": 1, "_meta": META}, modern_headers("notifications/cancelled")),
        ({"requestId": 1, "_meta": {VERSION_KEY: MODERN}}, {}),
        ({"requestId": 1}, {"mcp-protocol-version": [MODERN]}),
        (None, {"mcp-protocol-version": [MODERN]}),
        ({"_meta": {"progressToken": {}}}, {"mcp-protocol-version": [MODERN]}),
    ],
)
def test_a_notification_needs_no_more_than_its_version(params: Any, headers: dict[str, list[str]]) -> None:
    call = accepted(body_of("notifications/cancelled", params, id=None), headers)
    assert (call.era, call.version, call.id, call.progress_token) == (MODERN_ERA, MODERN, None, None)


@pytest.mark.parametrize(
    ("version", "headers", "code"),
    [
        (MODERN, {"mcp-protocol-version": ["2025-11-25"]}, -32020),
        ("2025-11-25", {"mcp-protocol-version": [MODERN]}, -32020),
        ([], {"mcp-protocol-version": [MODERN]}, -32020),
        (MODERN, {"mcp-protocol-version": [MODERN, "2025-11-25"]}, -32020),
        ("v999.0.0", {}, -32022),
        (1, {}, -32602),
        (None, {}, -32602),
    ],
)
def test_59_a_notification_of_another_version_is_an_http_error(
    version: Any, headers: dict[str, list[str]], code: int
) -> None:
    body = body_of("notifications/cancelled", {"_meta": {VERSION_KEY: version}}, id=None)
    status, error = rejected(body, headers)
    assert (status, error["error"]["code"]) == (400, code)
    assert "id" not in error


def test_a_notification_that_names_no_version_at_all_is_a_mismatch() -> None:
    with pytest.raises(HeaderMismatch):
        MODERN_ERA.read(Message(method="notifications/cancelled", params={}), {})


# Results


def shaped(method: str, result: Mapping[str, Any], ttl_ms: int = 5_000) -> dict[str, Any]:
    call = accepted(modern_body(method), modern_headers(method))
    return MODERN_ERA.shape(call, result, server=SERVER, ttl_ms=ttl_ms)


@pytest.mark.parametrize("method", METHODS)
def test_the_result_of_each_method_is_one_that_the_schema_knows(method: str) -> None:
    wire = shaped(method, RESULTS[method])
    assert serialize_server_result(method, MODERN, wire) == wire, "the schema drops what it does not know"
    check_wire(MODERN, NAMES[method], json.loads(encode(wire)))
    assert wire["resultType"] == "complete"
    assert wire["_meta"][SERVER_KEY] == SERVER


@pytest.mark.parametrize("method", METHODS)
def test_194_only_cacheable_results_have_hints_and_those_are_private(method: str) -> None:
    wire = shaped(method, RESULTS[method], ttl_ms=0)
    hints = {name: wire[name] for name in ("ttlMs", "cacheScope") if name in wire}
    assert hints == ({"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE_METHODS else {})


def test_a_handler_may_set_hints_and_meta_of_its_own() -> None:
    result = {**RESULTS["tools/list"], "ttlMs": 1, "cacheScope": "public", "_meta": {"a": 1}}
    wire = shaped("tools/list", result)
    assert (wire["ttlMs"], wire["cacheScope"]) == (1, "public")
    assert wire["_meta"] == {"a": 1, SERVER_KEY: SERVER}


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_result_that_asks_for_input_has_no_hints(method: str) -> None:
    asked = {"resultType": "input_required", "requestState": "sealed"}
    wire = shaped(method, asked)
    assert wire == {**asked, "_meta": {SERVER_KEY: SERVER}}
    assert serialize_server_result(method, MODERN, wire) == wire


@pytest.mark.parametrize("brought", [{"requestState": "s"}, {"inputResponses": {}}])
@pytest.mark.parametrize("own", [{}, {"ttlMs": 60_000, "cacheScope": "public"}])
def test_194_a_result_that_needed_input_is_not_to_be_kept(brought: dict[str, Any], own: dict[str, Any]) -> None:
    call = accepted(modern_body("resources/read", brought), modern_headers("resources/read"))
    wire = MODERN_ERA.shape(call, {**RESULTS["resources/read"], **own}, server=SERVER, ttl_ms=5_000)
    assert (wire["ttlMs"], wire["cacheScope"]) == (0, "private")


def test_a_result_that_asks_for_input_is_one_of_the_revision() -> None:
    question = {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a.example/"}}
    asked = {"resultType": "input_required", "inputRequests": {"a": question}, "requestState": "sealed"}
    check_wire(MODERN, "InputRequiredResult", shaped("tools/call", asked))


def test_a_neutral_result_is_left_as_it_was() -> None:
    result: dict[str, Any] = {"tools": [], "_meta": {"a": 1}}
    shaped("tools/list", result)
    assert result == {"tools": [], "_meta": {"a": 1}}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidParams(), 400),
        (ResourceNotFound("a:b"), 400),
        (MissingClientCapability({}), 400),
    ],
)
def test_errors_of_handlers_have_the_status_of_their_class(error: Any, status: int) -> None:
    assert MODERN_ERA.status(error) == status


def test_closing_the_connection_cancels_in_this_era_alone() -> None:
    assert MODERN_ERA.disconnect_cancels
    assert not LEGACY_ERA.disconnect_cancels
