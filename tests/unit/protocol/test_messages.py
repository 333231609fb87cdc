"""Bytes to messages and back: strict, bounded, exact."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol.errors import InvalidRequest, ParseError
from mcp_django.protocol.messages import ClientResponse, Message, TooMuch, decode, encode, is_response, read_message
from tests.cases import drawn
from tests.protocol_messages import check_error

pytestmark = pytest.mark.one_django

DEEP = 100_000

# What JSON and orjson both hold exactly.
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5), max_leaves=20
)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


# Decoding


@settings(max_examples=drawn(300), deadline=None)
@given(json_values)
def test_every_value_survives_encoding_and_decoding(value: Any) -> None:
    found = decode(encode(value))
    assert found == value
    assert repr(found) == repr(value), "types and signs are kept"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        nested(DEEP),
        b'{"a":' * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        nested(TooMuch.MAX_DEPTH + 1),
    ],
)
def test_25_deep_nesting_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError):
        decode(body)


def test_25_nesting_up_to_the_bound_is_read() -> None:
    assert encode(decode(nested(TooMuch.MAX_DEPTH))) == nested(TooMuch.MAX_DEPTH)


@pytest.mark.parametrize(
    "value",
    [
        {str(number): number for number in range(200_000)},
        list(range(200_000)),
        [[]] * 200_000,
        {"a": [{"b": [1] * 1_000}] * 60},
        {"a": [0] * (TooMuch.MAX_ITEMS // 2), "b": [0] * (TooMuch.MAX_ITEMS // 2)},
    ],
)
def test_27_a_wide_message_is_a_parse_error(value: Any) -> None:
    with pytest.raises(ParseError, match="too many items"):
        decode(json.dumps(value).encode())


def test_brackets_and_commas_within_a_text_are_not_counted() -> None:
    text = "[{" * 1_000 + "," * 100_000
    assert decode(json.dumps({"a": [text]}).encode()) == {"a": [text]}


def test_json_within_a_text_is_read_as_strictly_as_a_message() -> None:
    assert decode('{"a": [1, "é"]}') == {"a": [1, "é"]}
    with pytest.raises(ParseError):
        decode("{'a': 1}")
    with pytest.raises(TooMuch):
        decode("[" * 100 + "]" * 100)


def test_27_items_up_to_the_bound_are_read() -> None:
    value = [0] * TooMuch.MAX_ITEMS
    assert decode(json.dumps(value).encode()) == value


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "nan", "+1", ".5", "1.", "01"])
@pytest.mark.parametrize("frame", ["%s", "[%s]", '{"a": {"b": %s}}'])
def test_28_numbers_that_are_not_json_are_parse_errors(literal: str, frame: str) -> None:
    with pytest.raises(ParseError):
        decode((frame % literal).encode())


@pytest.mark.parametrize("literal", ["9" * 5_000, "-" + "9" * 5_000, "1" * 401])
@pytest.mark.parametrize("frame", ["%s", '{"id": %s}', '{"params": {"arguments": {"pk": [%s]}}}'])
def test_35_an_oversized_integer_is_a_parse_error(literal: str, frame: str) -> None:
    with pytest.raises(ParseError):
        decode((frame % literal).encode())


def test_35_a_large_integer_within_the_bound_is_exact() -> None:
    assert decode(str(10**399).encode()) == 10**399


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n\t",
        b"{} {}",
        b"{}{}",
        b"[1,]",
        b'{"a":1,}',
        b"{}garbage",
        b"{}\x00",
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32"),
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\xaf"}',
        b"{'a':1}",
        b"{a:1}",
        b'{"a":"\n"}',
        b'{"a":"\x00"}',
        b'"\\x41"',
        b"// comment\n{}",
        b"undefined",
    ],
)
def test_40_what_is_not_one_json_document_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError):
        decode(body)


@pytest.mark.parametrize(
    "body", [b'{"a":1,"a":1}', b'{"a":{"id":1,"id":2}}', b'[{"method":"a","m\\u0065thod":"b"}]', b'{"":1,"":2}']
)
def test_31_members_of_the_same_name_are_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError, match="same name"):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        rb'"\ud800"',
        rb'{"a":"\udc00"}',
        rb'{"\ud800":1}',
        rb'{"a":[{"b\uDFFF":null}]}',
        rb'["\ud83d"]',
        rb'["\ude00\ud83d"]',
        rb'["\\\ud800"]',
    ],
)
def test_half_a_surrogate_pair_is_a_parse_error_in_names_too(body: bytes) -> None:
    with pytest.raises(ParseError, match="Unicode"):
        decode(body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', "\\ud800"),
        (b' {"a" : [ 1 , 2 ] }\n', {"a": [1, 2]}),
        (b"null", None),
        (rb'{"\u0000":"\u2028"}', {"\0": "\u2028"}),
    ],
)
def test_json_that_is_only_unusual_is_read(body: bytes, value: Any) -> None:
    assert decode(body) == value


@pytest.mark.parametrize(
    "name", ["__proto__", "__class__", "constructor", "self", "request", "cls", "args", "kwargs", "$ref", "$schema"]
)
def test_42_43_special_names_are_plain_data(name: str) -> None:
    value = {name: {name: "https://evil.example/schema.json"}}
    found = decode(json.dumps(value).encode())
    assert found == value
    assert type(found) is dict


# Encoding


def test_output_is_compact_utf_8_on_one_line() -> None:
    assert encode({"a": ["é\n", 1.5, None, True]}) == '{"a":["é\\n",1.5,null,true]}'.encode()


def test_numbers_that_json_lacks_become_null() -> None:
    assert encode([float("nan"), float("inf")]) == b"[null,null]"


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, 2**64, object()])
def test_what_cannot_be_written_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        encode(value)


# Reading


def ping(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "ping", **members}


@pytest.mark.parametrize("identifier", [0, 1, -1, 2**53 - 1, -(2**53) + 1, "1", "", "é", "a" * 256])
def test_36_an_id_is_echoed_with_its_type(identifier: str | int) -> None:
    value = ping(id=identifier)
    for found in (read_message(value).id, Message.readable_id(value), Message("ping", {}, identifier).to_wire()["id"]):
        assert (found, type(found)) == (identifier, type(identifier))


@pytest.mark.parametrize("literal", ["null", "true", "1.5", "1e2", "1.0", "{}", "[]", "[1]", str(2**63), str(-(2**70))])
def test_36_any_other_id_is_refused_and_not_echoed(literal: str) -> None:
    value = decode(f'{{"jsonrpc":"2.0","method":"ping","id":{literal}}}'.encode())
    with pytest.raises(InvalidRequest):
        read_message(value)
    assert Message.readable_id(value) is None


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        (2**53, "id must be a string, or an integer from -9007199254740991 to 9007199254740991"),
        (-(2**60), "id must be a string, or an integer from -9007199254740991 to 9007199254740991"),
        ("a" * 257, "id must have at most 256 characters"),
        ("a\0", "id has the character NUL"),
    ],
)
def test_36_an_id_out_of_bounds_is_refused_with_the_reason_and_echoed(identifier: str | int, reason: str) -> None:
    value = ping(id=identifier)
    with pytest.raises(InvalidRequest, match=reason):
        read_message(value)
    assert Message.readable_id(value) == identifier
    assert encode(InvalidRequest().response(Message.readable_id(value), modern=True))


def test_36_a_long_id_is_refused_and_not_echoed() -> None:
    value = ping(id="a" * 10_000)
    with pytest.raises(InvalidRequest):
        read_message(value)
    assert Message.readable_id(value) is None


def test_36_minus_zero_is_zero() -> None:
    assert repr(decode(b'{"id":-0}')["id"]) == "0"


@pytest.mark.parametrize(
    "members",
    [
        {"jsonrpc": "1.0"},
        {"jsonrpc": 2},
        {"jsonrpc": 2.0},
        {"jsonrpc": None},
        {"jsonrpc": "2.0 "},
        {"params": []},
        {"params": ["a"]},
        {"params": None},
        {"params": "a"},
        {"params": 1},
        {"params": False},
        {"method": ""},
        {"method": None},
        {"method": 1},
        {"method": ["ping"]},
        {"method": "m" * 129},
    ],
)
def test_37_a_malformed_member_is_an_invalid_request_with_its_id(members: dict[str, Any]) -> None:
    value = ping(**members)
    with pytest.raises(InvalidRequest):
        read_message(value)
    assert Message.readable_id(value) == 1


@pytest.mark.parametrize("missing", ["jsonrpc", "method"])
def test_37_a_missing_member_is_an_invalid_request(missing: str) -> None:
    value = ping()
    del value[missing]
    with pytest.raises(InvalidRequest):
        read_message(value)
    assert Message.readable_id(value) == 1


def test_37_unknown_members_are_ignored() -> None:
    value = ping(params={"a": 1}, result={}, extra=None, _meta={"b": 1})
    assert read_message(value) == Message(method="ping", params={"a": 1}, id=1)


@pytest.mark.parametrize(
    "variant",
    [
        {"JSONRPC": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "Method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method ": "ping"},
        {"\u017fonrpc": "2.0", "jsonrpc": "", "id": 1, "method": "ping"},
    ],
)
def test_31_names_in_another_case_count_as_absent(variant: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        read_message(variant)


@pytest.mark.parametrize("name", ["PARAMS", "Params", "param\u017f", "params\u200b"])
def test_31_params_under_another_name_are_not_params(name: str) -> None:
    assert read_message(ping(**{name: {"name": "delete_record"}})).params == {}


def test_31_an_id_under_another_name_makes_a_notification() -> None:
    assert read_message({"jsonrpc": "2.0", "ID": 1, "method": "ping"}).id is None


@pytest.mark.parametrize("value", [[], [ping()], [ping(), ping(id=2)], None, "ping", 1, 1.5, True])
def test_38_40_a_body_that_is_no_object_is_an_invalid_request(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        read_message(value)
    assert Message.readable_id(value) is None


def test_40_an_empty_object_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest):
        read_message({})


ERROR = {"code": -1, "message": "no", "data": [1]}


@pytest.mark.parametrize("identifier", [0, "", "a", -5, 2**53 - 1])
def test_a_response_is_read_as_what_the_client_answers(identifier: str | int) -> None:
    value = {"jsonrpc": "2.0", "id": identifier, "result": {"action": "accept"}, "extra": 1}
    found = read_message(value)
    assert found == ClientResponse(id=identifier, result={"action": "accept"})
    assert type(found.id) is type(identifier)
    assert read_message({"jsonrpc": "2.0", "id": identifier, "error": ERROR}) == ClientResponse(
        id=identifier, error=ERROR
    )


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"result": None},
        {"result": []},
        {"result": "a"},
        {"result": True},
        {"result": {}, "error": ERROR},
        {"result": None, "error": ERROR},
        {"result": {}, "error": None},
        {"error": None},
        {"error": "a"},
        {"error": {}},
        {"error": {"code": 1}},
        {"error": {"message": "a"}},
        {"error": {"code": "1", "message": "a"}},
        {"error": {"code": True, "message": "a"}},
        {"error": {"code": 1.0, "message": "a"}},
        {"error": {"code": 1, "message": None}},
        {"result": {}, "jsonrpc": "1.0"},
        {"result": {}, "jsonrpc": None},
        {"result": {}, "id": None},
        {"result": {}, "id": True},
        {"result": {}, "id": 1.5},
        {"result": {}, "id": []},
        {"result": {}, "id": "a" * 257},
        {"error": ERROR, "id": None},
    ],
)
def test_63_a_malformed_response_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        read_message({"jsonrpc": "2.0", "id": 7, **members})


@pytest.mark.parametrize("members", [{"result": {}}, {"error": ERROR}])
def test_63_a_response_must_have_an_id(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="must have an id"):
        read_message({"jsonrpc": "2.0", **members})


@pytest.mark.parametrize("members", [{"result": {}}, {"error": ERROR}, {"result": None}, {"result": {}, "error": {}}])
def test_63_the_id_of_a_response_is_never_echoed(members: dict[str, Any]) -> None:
    value = {"jsonrpc": "2.0", "id": 7, **members}
    assert is_response(value)
    assert Message.readable_id(value) is None


@pytest.mark.parametrize(
    "members", [{}, {"params": {}}, {"method": "ping", "result": {}}, {"method": None, "error": 1}]
)
def test_63_what_has_a_method_or_no_outcome_is_no_response(members: dict[str, Any]) -> None:
    assert not is_response({"jsonrpc": "2.0", "id": 7, **members})


def test_a_message_without_an_id_is_a_notification() -> None:
    assert read_message({"jsonrpc": "2.0", "method": "notifications/initialized"}) == Message(
        method="notifications/initialized", params={}
    )


# Writing


def test_an_error_without_a_readable_id_has_none() -> None:
    wire = ParseError().response(None, modern=True)
    assert wire == {"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}}
    check_error(wire, modern=True)


@pytest.mark.parametrize("identifier", [0, "", "a", -5])
def test_an_error_echoes_its_id_even_if_that_is_falsy(identifier: str | int) -> None:
    wire = InvalidRequest("no", data={}).response(identifier, modern=False)
    assert wire == {"jsonrpc": "2.0", "id": identifier, "error": {"code": -32600, "message": "no", "data": {}}}
    check_error(wire, modern=False)


def test_requests_and_notifications_are_json_rpc() -> None:
    assert Message("roots/list", {}, "a.1").to_wire() == {
        "jsonrpc": "2.0",
        "id": "a.1",
        "method": "roots/list",
        "params": {},
    }
    assert Message("notifications/message", {"level": "info"}).to_wire() == {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info"},
    }


@pytest.mark.parametrize(
    "message",
    [
        {"id": "a\0", "method": "tools/call"},
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "a\0b", "version": "1"}}},
        {"id": 1, "method": "tools/call", "params": {"_meta": {"progressToken": "\0"}}},
        {"id": 1, "method": "tools/call", "params": {"inputResponses": {"who": {"content": {"name": ["\0"]}}}}},
        {"method": "notifications/cancelled", "params": {"requestId": "\0"}},
        {"id": "q", "result": {"action": "accept", "content": {"name": "A\0"}}},
        {"id": "q", "result": {"action": "accept", "content": {"A\0": 1}}},
        {"id": "q", "error": {"code": 1, "message": "\0"}},
    ],
)
def test_what_is_kept_of_a_message_has_no_character_that_cannot_be_stored(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        read_message({"jsonrpc": "2.0", **message})


def test_what_is_a_tools_own_is_for_the_tool_to_refuse() -> None:
    params = {"name": "x", "arguments": {"text": "\0"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert read_message(message).params == params  # type: ignore[union-attr]
