"""A body and its headers to a call or a rejection, for whatever bytes come in."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol.eras import (
    LEGACY_ERA,
    MAX_BATCH,
    MODERN_ERA,
    Batch,
    Call,
    Era,
    Headers,
    Rejected,
    SessionFacts,
    classify,
)
from mcp_django.protocol.messages import ClientResponse
from mcp_django.protocol.versions import Revisions
from tests.cases import drawn
from tests.protocol_messages import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEGACY,
    META,
    MODERN,
    PARAMS,
    VERSION_KEY,
    Facts,
    accepted,
    answer,
    body_of,
    legacy_headers,
    modern_body,
    modern_headers,
    rejected,
)

pytestmark = pytest.mark.one_django

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
        (b"[%s]" % modern_body("tools/list"), None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1e2,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}', 9007199254740993),
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


# Without headers


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "resources/read"])
def test_without_headers_meta_alone_decides_the_era(method: str) -> None:
    for session in (None, Facts()):
        modern = accepted(modern_body(method), None, session)
        assert (modern.era, modern.version, modern.method) == (MODERN_ERA, MODERN, method)
        assert accepted(body_of(method, PARAMS.get(method)), None, session).era is LEGACY_ERA


def test_without_headers_a_rejection_of_no_message_is_of_the_legacy_era() -> None:
    with pytest.raises(Rejected) as caught:
        classify(b"{", None)
    assert caught.value.era is LEGACY_ERA


# Responses of clients


RESULT = b'{"jsonrpc":"2.0","id":"a.1","result":{"action":"accept","content":{}}}'
ERROR = b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}'


@pytest.mark.parametrize("headers", [None, {}, *(legacy_headers(version) for version in LEGACY)])
def test_in_a_session_a_client_may_answer(headers: Headers) -> None:
    assert classify(RESULT, headers, session=Facts()) == ClientResponse(
        id="a.1", result={"action": "accept", "content": {}}
    )
    assert classify(ERROR, headers, session=Facts()) == ClientResponse(id=7, error={"code": -1, "message": "no"})


@pytest.mark.parametrize("headers", [None, *HEADERS])
@pytest.mark.parametrize("body", [RESULT, ERROR, b"[%s,%s]" % (RESULT, ERROR)])
def test_63_without_a_session_a_response_answers_nothing(body: bytes, headers: Headers) -> None:
    status, error = rejected(body, headers)
    assert (status, error["error"]["code"]) == (400, -32600)
    assert "id" not in error


@pytest.mark.parametrize("headers", [legacy_headers(MODERN), modern_headers("tools/call")])
def test_63_the_modern_era_has_no_responses_of_clients(headers: Headers) -> None:
    status, error = rejected(RESULT, headers, Facts())
    assert (status, error["error"]["code"]) == (400, -32600)
    assert "id" not in error


def test_59_a_response_of_an_unknown_version_is_an_http_error() -> None:
    status, error = rejected(RESULT, legacy_headers("1.0"), Facts())
    assert (status, error["error"]["code"]) == (400, -32022)
    assert "id" not in error


# Batches


def batch(*members: bytes) -> bytes:
    return b"[" + b",".join(members) + b"]"


def items(body: bytes, headers: Headers, session: SessionFacts | None = None) -> tuple[Any, ...]:
    found = classify(body, headers, session=session)
    assert isinstance(found, Batch)
    return found.items


CALLS = batch(body_of("ping", id=1), body_of("notifications/initialized", id=None), body_of("tools/list", id="2"))


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({}, None),
        (legacy_headers("2025-03-26"), None),
        ({}, Facts("2025-03-26")),
        (legacy_headers("2025-03-26"), Facts("2025-03-26")),
        (None, None),
        (None, Facts("2025-03-26")),
    ],
)
def test_2025_03_26_has_batches(headers: Headers, session: SessionFacts | None) -> None:
    found = items(CALLS, headers, session)
    assert [(call.method, call.id, call.version, call.era) for call in found] == [
        ("ping", 1, "2025-03-26", LEGACY_ERA),
        ("notifications/initialized", None, "2025-03-26", LEGACY_ERA),
        ("tools/list", "2", "2025-03-26", LEGACY_ERA),
    ]
    assert {call.log_level for call in found} == {session.log_level if session else None}


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        *((legacy_headers(version), None) for version in (*LEGACY, MODERN) if version != "2025-03-26"),
        *(({}, Facts(version)) for version in LEGACY if version != "2025-03-26"),
        *((None, Facts(version)) for version in LEGACY if version != "2025-03-26"),
        (legacy_headers("2025-03-26"), Facts("2025-06-18")),
        (legacy_headers("2025-06-18"), Facts("2025-03-26")),
        (legacy_headers(MODERN), Facts("2025-03-26")),
    ],
)
@pytest.mark.parametrize("body", [CALLS, batch(body_of("ping")), batch(RESULT)])
def test_38_no_other_revision_has(body: bytes, headers: Headers, session: SessionFacts | None) -> None:
    status, error = rejected(body, headers, session)
    assert (status, error["error"]["code"]) == (400, -32600)
    assert "id" not in error


def test_38_a_batch_of_an_unknown_version_is_told_the_supported_ones() -> None:
    status, error = rejected(CALLS, legacy_headers("1.0"))
    assert (status, error["error"]["code"]) == (400, -32022)


@pytest.mark.parametrize(
    "body",
    [
        batch(),
        batch(*[body_of("notifications/initialized", id=None)] * (MAX_BATCH + 1)),
        batch(body_of("ping"), modern_body("tools/list")),
        batch(body_of("ping"), RESULT),
        batch(RESULT, b"1"),
        batch(RESULT, b'{"jsonrpc":"2.0","id":1,"result":1}'),
    ],
)
def test_38_a_batch_that_is_wrong_as_a_whole_is_refused_as_a_whole(body: bytes) -> None:
    status, error = rejected(body, {}, Facts("2025-03-26"))
    assert (status, error["error"]["code"]) == (400, -32600)
    assert "id" not in error


@pytest.mark.parametrize("size", [1, MAX_BATCH])
def test_38_a_batch_up_to_the_bound_is_read(size: int) -> None:
    assert len(items(batch(*[body_of("ping")] * size), {})) == size


def test_a_batch_of_responses_is_read_in_a_session() -> None:
    assert [response.id for response in items(batch(RESULT, ERROR), {}, Facts("2025-03-26"))] == ["a.1", 7]


def test_one_bad_member_of_a_batch_has_an_error_of_its_own() -> None:
    good, *bad = items(
        batch(
            body_of("ping", id=1),
            body_of("unknown/method", id=2),
            body_of("tools/call", {"name": 1}, id=3),
            b'{"jsonrpc":"2.0","id":4,"method":""}',
            b"1",
            b"[]",
            b"{}",
            body_of("initialize", PARAMS["initialize"], id=5),
        ),
        {},
    )
    assert (good.method, good.id) == ("ping", 1)
    assert [(wire["error"]["code"], wire.get("id")) for _, wire in map(answer, bad)] == [
        (-32601, 2),
        (-32602, 3),
        (-32600, 4),
        (-32600, None),
        (-32600, None),
        (-32600, None),
        (-32600, 5),
    ]


# Whatever comes in


names = st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-a", "mcp-session-id", "accept"])
texts = (
    st.sampled_from([*Revisions.SUPPORTED, "tools/list", "tools/call", "a", "=?base64?YQ==?=", "=?base64?/?="])
    | st.text()
)
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
responses = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers() | st.text() | json_values},
    optional={"result": json_values, "error": st.just({"code": 1, "message": "a"}) | json_values},
)
sessions = st.none() | st.sampled_from([Facts(version) for version in LEGACY])


def check_outcome(body: bytes, headers: Headers, session: SessionFacts | None = None) -> None:
    """A call or batch that can be answered, an answer, or a rejection that is a well-formed error of its era."""
    try:
        found = classify(body, headers, session=session)
    except Rejected as rejection:
        check_rejection(rejection)
        return
    members = found.items if isinstance(found, Batch) else (found,)
    assert 0 < len(members) <= MAX_BATCH
    for member in members:
        match member:
            case Call():
                check_call(member)
            case ClientResponse():
                assert session is not None
                assert (member.result is None) is not (member.error is None)
            case Rejected():
                check_rejection(member)


def check_rejection(rejection: Rejected) -> None:
    status, _ = answer(rejection)
    assert status in (200, 400, 404)


def check_call(call: Call) -> None:
    assert call.version in Revisions.SUPPORTED
    assert call.era.modern == (call.version == MODERN)
    assert type(call.id) in (int, str, type(None))
    assert isinstance(call.params, dict)
    assert isinstance(call.client, dict)
    assert isinstance(call.capabilities, dict)
    assert all(isinstance(value, str) and value.isprintable() for value in call.trace.values())
    assert all(isinstance(value, dict) for value in (call.input_responses or {}).values())
    assert isinstance(call.request_state, str | None)


@settings(max_examples=drawn(200), deadline=None)
@given(st.binary(), st.none() | header_dicts, sessions)
def test_212_any_bytes_are_read_or_rejected(body: bytes, headers: Headers, session: SessionFacts | None) -> None:
    check_outcome(body, headers, session)


@settings(max_examples=drawn(200), deadline=None)
@given(json_values, st.none() | header_dicts, sessions)
def test_212_any_json_is_read_or_rejected(value: Any, headers: Headers, session: SessionFacts | None) -> None:
    check_outcome(json.dumps(value).encode(), headers, session)


@settings(max_examples=drawn(300), deadline=None)
@given(messages | responses, st.none() | header_dicts, sessions)
def test_212_anything_like_a_message_is_read_or_rejected(
    value: Any, headers: Headers, session: SessionFacts | None
) -> None:
    check_outcome(json.dumps(value).encode(), headers, session)


@settings(max_examples=drawn(100), deadline=None)
@given(st.lists(messages | responses | json_values, max_size=4), sessions)
def test_212_anything_like_a_batch_is_read_or_rejected(value: list[Any], session: SessionFacts | None) -> None:
    check_outcome(json.dumps(value).encode(), {}, session)


@settings(max_examples=drawn(300), deadline=None)
@given(st.sampled_from(list(PARAMS)), parameters)
def test_212_any_params_under_honest_headers_are_a_call_or_a_rejection(method: str, params: dict[str, Any]) -> None:
    body = body_of(method, params)
    check_outcome(body, modern_headers(method))
    check_outcome(body, legacy_headers())
    check_outcome(body, None)
