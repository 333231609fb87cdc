"""A body and its headers to a call or a rejection, for whatever bytes come in."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol.eras import Era
from mcp_django.protocol.inbound import LEGACY_ERA, MODERN_ERA, Rejected, classify
from mcp_django.protocol.versions import SUPPORTED

from .protocol_messages import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEGACY,
    META,
    MODERN,
    PARAMS,
    VERSION_KEY,
    accepted,
    answer,
    body_of,
    legacy_headers,
    modern_body,
    modern_headers,
    rejected,
)

HEADERS = [legacy_headers(None), *(legacy_headers(version) for version in LEGACY), modern_headers("ping")]


# Which era


@pytest.mark.parametrize(
    ("body", "headers", "era"),
    [
        (modern_body("tools/list"), modern_headers("tools/list"), MODERN_ERA),
        (body_of("tools/list", {}), legacy_headers(), LEGACY_ERA),
        (body_of("tools/list"), {}, LEGACY_ERA),
        (body_of("tools/list", {"_meta": {}}), legacy_headers(), LEGACY_ERA),
        (body_of("tools/list", {"_meta": {CAPABILITIES_KEY: {}}}), legacy_headers(), LEGACY_ERA),
        (body_of("initialize", PARAMS["initialize"]), {}, LEGACY_ERA),
        (body_of("initialize", {**PARAMS["initialize"], "protocolVersion": MODERN}), {}, LEGACY_ERA),
        (body_of("notifications/cancelled", {"requestId": 1}, id=None), legacy_headers(MODERN), MODERN_ERA),
        (body_of("notifications/initialized", id=None), {}, LEGACY_ERA),
    ],
)
def test_meta_or_else_the_version_header_decides_the_era(body: bytes, headers: Any, era: Era) -> None:
    assert accepted(body, headers).era is era


@pytest.mark.parametrize("method", ["initialize", "tools/list", "ping"])
def test_headers_that_legacy_clients_send_too_do_not_decide_the_era(method: str) -> None:
    headers = legacy_headers() | {"mcp-method": [method], "mcp-name": ["x"], "mcp-session-id": ["y"]}
    assert accepted(body_of(method, PARAMS.get(method)), headers).era is LEGACY_ERA
    assert accepted(body_of(method, PARAMS.get(method)), headers | {"mcp-method": ["other"]}).era is LEGACY_ERA


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_the_name_of_a_method_does_not_decide_the_era(method: str) -> None:
    status, error = rejected(body_of(method, PARAMS.get(method)), {})
    assert (status, error["error"]["code"]) == (200, -32601)


@pytest.mark.parametrize(
    ("body", "headers", "era"),
    [
        (b"{", modern_headers("ping"), MODERN_ERA),
        (b"{", {}, LEGACY_ERA),
        (b"{", {"mcp-protocol-version": ["2025-11-25", MODERN]}, MODERN_ERA),
        (body_of("tools/list", {"_meta": {VERSION_KEY: 1}}), {}, MODERN_ERA),
        (body_of("initialize", PARAMS["initialize"]), modern_headers("initialize"), MODERN_ERA),
    ],
)
def test_a_rejection_knows_its_era(body: bytes, headers: Any, era: Era) -> None:
    with pytest.raises(Rejected) as caught:
        classify(body, headers)
    assert caught.value.era is era
    assert str(caught.value) == caught.value.error.message


@pytest.mark.parametrize("client", ["admin-console", "\u202ereversed", "root\nuser"])
def test_62_the_name_of_the_client_decides_nothing(client: str) -> None:
    plain = accepted(modern_body("tools/list"), modern_headers("tools/list"))
    named = accepted(
        modern_body("tools/list", meta={CLIENT_KEY: {"name": client, "version": "1"}}), modern_headers("tools/list")
    )
    assert (plain.era, plain.version, plain.method, plain.capabilities) == (
        named.era,
        named.version,
        named.method,
        named.capabilities,
    )


# What is no call, in either era


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{} {}",
        b"{}}",
        b"[1,]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        json.dumps({str(number): 1 for number in range(200_000)}).encode(),
        b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"9" * 5_000),
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e999}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"\\ud800":1}}',
        b"\xff\xfe{}",
    ],
)
def test_25_27_28_31_35_40_what_is_not_json_is_400_without_an_id(body: bytes, headers: dict[str, list[str]]) -> None:
    status, error = rejected(body, headers)
    assert (status, error["error"]["code"]) == (400, -32700)
    assert "id" not in error


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize(
    ("body", "identifier"),
    [
        (b"null", None),
        (b"[]", None),
        (b"{}", None),
        (b"true", None),
        (b"[%s]" % body_of("ping"), None),
        (b"[%s]" % modern_body("tools/list"), None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1e2,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}', None),
        (b'{"id":"1","method":"ping"}', "1"),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
        (b'{"jsonrpc":"2.0","id":1,"Method":"ping"}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 1),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"a"}}', None),
    ],
)
def test_31_36_37_38_40_63_what_is_no_request_is_400_and_echoes_what_id_it_has(
    body: bytes, identifier: Any, headers: dict[str, list[str]]
) -> None:
    status, error = rejected(body, headers)
    assert (status, error["error"]["code"]) == (400, -32600)
    assert error.get("id") == identifier
    assert type(error.get("id")) is type(identifier)


@pytest.mark.parametrize("identifier", [0, "0", -1, 2**53 - 1, "", "\u2028", "a" * 256])
def test_36_the_id_is_kept_with_its_type(identifier: Any) -> None:
    call = accepted(body_of("ping", id=identifier), legacy_headers())
    assert (call.id, type(call.id)) == (identifier, type(identifier))
    _, error = rejected(body_of("unknown", id=identifier), legacy_headers())
    assert (error["id"], type(error["id"])) == (identifier, type(identifier))


@pytest.mark.parametrize("name", ["__proto__", "__class__", "self", "request", "cls", "args", "kwargs", "$ref"])
def test_42_43_special_names_in_arguments_are_plain_data(name: str) -> None:
    arguments = {name: {"$ref": "https://evil.example/", "$schema": "urn:unknown", name: 1}}
    params = {"name": "a", "arguments": arguments}
    assert (
        accepted(modern_body("tools/call", params), modern_headers("tools/call", "a")).params["arguments"] == arguments
    )
    assert accepted(body_of("tools/call", params), legacy_headers()).params["arguments"] == arguments


# Whatever comes in


names = st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-a", "mcp-session-id", "accept"])
texts = st.sampled_from([*SUPPORTED, "tools/list", "tools/call", "a", "=?base64?YQ==?=", "=?base64?/?="]) | st.text()
header_dicts = st.dictionaries(names, st.lists(texts, max_size=3), max_size=6)

# Escaped, half a surrogate pair gets into JSON.
any_text = st.text() | st.text(st.characters())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**300) | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text | st.just("_meta"), inner, max_size=4),
    max_leaves=12,
)
methods = st.sampled_from([*PARAMS, "tools/list", "ping", "server/discover", "notifications/cancelled"]) | st.text()
metas = st.dictionaries(st.sampled_from([*META, "progressToken"]), st.sampled_from([*META.values(), 1]) | json_values)
parameters = st.builds(
    lambda base, more, meta: {**base, **more, **meta},
    st.sampled_from(list(PARAMS.values())),
    st.dictionaries(st.sampled_from(["name", "uri", "arguments", "cursor", "ref", "inputResponses"]), json_values),
    st.just({"_meta": META}) | st.builds(lambda meta: {"_meta": meta}, metas | json_values) | st.just({}),
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | json_values, "method": methods | json_values},
    optional={"id": st.integers() | st.text() | json_values, "params": parameters | json_values, "result": json_values},
)


def check_outcome(body: bytes, headers: dict[str, list[str]]) -> None:
    """Either a call that can be answered, or a rejection that is a well-formed error of its era."""
    try:
        call = classify(body, headers)
    except Rejected as rejection:
        status, _ = answer(rejection)
        assert status in (200, 400, 404)
        return
    assert call.version in SUPPORTED
    assert call.era.modern == (call.version == MODERN)
    assert type(call.id) in (int, str, type(None))
    assert isinstance(call.params, dict)
    assert isinstance(call.client, dict)
    assert isinstance(call.capabilities, dict)


@settings(max_examples=300, deadline=None)
@given(st.binary(), header_dicts)
def test_212_any_bytes_are_a_call_or_a_rejection(body: bytes, headers: dict[str, list[str]]) -> None:
    check_outcome(body, headers)


@settings(max_examples=300, deadline=None)
@given(json_values, header_dicts)
def test_212_any_json_is_a_call_or_a_rejection(value: Any, headers: dict[str, list[str]]) -> None:
    check_outcome(json.dumps(value).encode(), headers)


@settings(max_examples=300, deadline=None)
@given(messages, header_dicts)
def test_212_anything_like_a_message_is_a_call_or_a_rejection(value: Any, headers: dict[str, list[str]]) -> None:
    check_outcome(json.dumps(value).encode(), headers)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(PARAMS)), parameters)
def test_212_any_params_under_honest_headers_are_a_call_or_a_rejection(method: str, params: dict[str, Any]) -> None:
    body = body_of(method, params)
    check_outcome(body, modern_headers(method))
    check_outcome(body, legacy_headers())
