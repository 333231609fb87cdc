"""HTTP headers, and mirrored ones (2026-07-28): their encoding, annotations, and agreement with the body."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol.errors import HeaderMismatch
from mcp_django.protocol.headers import (
    MediaType,
    ParamHeader,
    RequestHeaders,
    check_mirrored,
    cors_headers,
    decode_value,
)

pytestmark = pytest.mark.one_django

JSON = "application/json"


def accepting(accept: str | None, media_type: MediaType) -> bool:
    return RequestHeaders({} if accept is None else {"accept": [accept]}).accepts(media_type)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(kind: str, name: Any = "Value", **keywords: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **keywords}


# What a request accepts and sends, and where it comes from


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON",
        " application/json\t;x=y",
    ],
)
def test_json_is_told_by_its_type(value: str) -> None:
    assert RequestHeaders({"content-type": [value]}).has_json


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["application/json", "application/json"],
        [""],
        ["text/plain"],
        ["application/jsonx"],
        ["application/json-patch+json"],
        ["application/vnd.api+json"],
        ["text/html; a=application/json"],
        ["application/json, text/plain"],
        ["text/plain, application/json"],
        ["application/json application/json"],
        ["application/json,application/json"],
        ["*/*"],
        ["\xa0application/json"],
        ["application/json\x0b"],
        ["application/ json"],
    ],
)
def test_7_another_content_type_is_refused(values: list[str]) -> None:
    assert not RequestHeaders({"content-type": values}).has_json
    assert not RequestHeaders().has_json


@pytest.mark.parametrize(
    ("accept", "json", "events"),
    [
        (None, True, True),
        ("application/json, text/event-stream", True, True),
        ("text/event-stream, application/json", True, True),
        ("APPLICATION/JSON , Text/Event-Stream", True, True),
        ("*/*", True, True),
        ("application/*, text/*", True, True),
        ("application/json", True, False),
        ("text/event-stream", False, True),
        ("text/*", False, True),
        ("application/json;q=0, */*", False, True),
        ("*/*, text/event-stream; q=0.000", True, False),
        ("*/*;q=0, application/json;q=0.5", True, False),
        ("application/*;q=0, application/json", True, False),
        ("*/*;q=0", False, False),
        ("application/json;q=0.001", True, False),
        ("application/json;profile=x", True, False),
        ("", True, True),
        ("text/html", False, False),
        ("application/jsonx, text/event-streams", False, False),
        (",;,;q=0,,", False, False),
    ],
)
def test_8_accept_admits_what_its_most_specific_range_admits(accept: str | None, json: bool, events: bool) -> None:
    assert accepting(accept, MediaType.JSON) is json
    assert accepting(accept, MediaType.EVENTS) is events


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (", ".join(["a/b"] * 200 + [JSON]), True),
        ("a/b," * 1000 + JSON, False),
        (JSON + ";" * 100_000, False),
        (JSON + ';x="' + ";" * 1900 + '"', True),
    ],
)
def test_8_a_long_accept_is_bounded(accept: str, expected: bool) -> None:
    assert accepting(accept, MediaType.JSON) is expected


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("0", 0), ("2621440", 2_621_440), ("007", 7)])
def test_the_length_of_a_body_is_a_decimal_number(value: str | None, expected: int | None) -> None:
    assert RequestHeaders.body_length(value) == expected


@pytest.mark.parametrize(
    "value", ["", "+5", "-1", " 5", "5 ", "5\n", "5, 5", "1_000", "0x10", "1e3", "5.0", "\u0665", "9" * 16]
)
def test_23_any_other_length_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="Content-Length"):
        RequestHeaders.body_length(value)


def test_pages_of_an_origin_may_send_the_headers_of_clients() -> None:
    headers = cors_headers("https://app.example", "POST, GET")
    assert headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert headers["Access-Control-Allow-Methods"] == "POST, GET"
    allowed = headers["Access-Control-Allow-Headers"].lower().split(", ")
    assert {RequestHeaders.VERSION, "mcp-session-id", "last-event-id", "mcp-method", "mcp-name"} <= {*allowed}


# Values


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
    ],
)
def test_values_are_encoded_as_the_examples_of_the_specification(text: str, header: str) -> None:
    assert ParamHeader.encode(text) == header
    assert decode_value(header) == text


@given(st.text())
def test_every_text_survives_the_header(text: str) -> None:
    header = ParamHeader.encode(text)
    assert header.isascii()
    assert not set(header) & {"\r", "\n", "\0"}
    assert decode_value(header) == text


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVsbG9=?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVsbG8=\t?=",
        "=?base64?SGVs-G8=?=",
        "=?base64?/w==?=",
        "caf\xe9",
        "a\rb",
        "a\nb",
        "a\0b",
        "a\x7fb",
    ],
)
def test_12_a_broken_sentinel_or_character_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_value(value)
    with pytest.raises(HeaderMismatch, match="cannot be decoded"):
        check_mirrored("tools/call", {"name": value}, {"mcp-method": ["tools/call"], "mcp-name": [value]})


@pytest.mark.parametrize("value", ["=?BASE64?SGVsbG8=?=", "SGVsbG8=", "=?base64?SGVsbG8=", "=?base64?=", "=?base64"])
def test_12_what_only_looks_like_a_sentinel_is_literal(value: str) -> None:
    assert decode_value(value) == value


def test_12_a_doubly_encoded_name_is_decoded_once() -> None:
    once = "=?base64?SGVsbG8=?="
    assert decode_value(ParamHeader.encode(once)) == once


# Mcp-Method and Mcp-Name


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "get_record"}, "get_record"),
        ("tools/call", {"name": "get_record"}, "  get_record\t"),
        ("prompts/get", {"name": "é"}, "=?base64?w6k=?="),
        ("resources/read", {"uri": "django://shop/order/1"}, "django://shop/order/1"),
        ("tasks/get", {"taskId": "786512e2"}, "786512e2"),
        ("tasks/update", {"taskId": "786512e2"}, "786512e2"),
        ("tasks/cancel", {"taskId": "786512e2"}, "786512e2"),
    ],
)
def test_a_name_that_equals_the_body_passes(method: str, params: dict[str, Any], name: str) -> None:
    check_mirrored(method, params, {"mcp-method": [method], "mcp-name": [name]})


def test_methods_that_name_nothing_need_no_name() -> None:
    check_mirrored("tools/list", {}, {"mcp-method": ["tools/list"]})


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_methods_of_tasks_need_no_name_but_a_different_one_is_a_mismatch(method: str) -> None:
    check_mirrored(method, {"taskId": "786512e2"}, {"mcp-method": [method]})
    with pytest.raises(HeaderMismatch):
        check_mirrored(method, {"taskId": "786512e2"}, {"mcp-method": [method], "mcp-name": ["786512e3"]})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"mcp-name": ["x"]},
        {"mcp-method": ["tools/list"], "mcp-name": ["x"]},
        {"mcp-method": ["TOOLS/CALL"], "mcp-name": ["x"]},
        {"mcp-method": ["tools/call", "tools/call"], "mcp-name": ["x"]},
        {"mcp-method": ["=?base64?dG9vbHMvY2FsbA==?="], "mcp-name": ["x"]},
        {"mcp-method": ["tools/call"]},
        {"mcp-method": ["tools/call"], "mcp-name": []},
        {"mcp-method": ["tools/call"], "mcp-name": ["X"]},
        {"mcp-method": ["tools/call"], "mcp-name": ["x", "x"]},
        {"mcp-method": ["tools/call"], "mcp_name": ["x"]},
    ],
)
def test_11_a_missing_repeated_or_different_header_is_a_mismatch(headers: dict[str, list[str]]) -> None:
    with pytest.raises(HeaderMismatch) as caught:
        check_mirrored("tools/call", {"name": "x"}, headers)
    assert (caught.value.code, caught.value.status) == (-32020, 400)


def test_a_body_without_the_name_is_a_mismatch_too() -> None:
    with pytest.raises(HeaderMismatch):
        check_mirrored("tools/call", {}, {"mcp-method": ["tools/call"], "mcp-name": ["x"]})


# Annotations


def test_annotated_parameters_are_found_with_their_paths() -> None:
    nested = schema(inner={"type": "object", "properties": {"deep": marked("integer", "Deep")}}, flat=marked("string"))
    assert [(param.header, param.path, param.type) for param in ParamHeader.of_schema(nested)] == [
        ("mcp-param-deep", ("inner", "deep"), "integer"),
        ("mcp-param-value", ("flat",), "string"),
    ]


def test_a_parameter_that_is_called_like_the_annotation_is_none() -> None:
    data = {"x-mcp-header": "Data"}
    harmless = {**schema(**{"x-mcp-header": {"type": "string"}}, a={"enum": [data], "default": data, "const": data})}
    assert ParamHeader.of_schema(harmless) == ()
    assert ParamHeader.of_schema({**schema(), "$defs": {"x-mcp-header": {"type": "string"}}}) == ()


def test_lists_of_schemas_without_an_annotation_are_passed_over() -> None:
    found = ParamHeader.of_schema(
        schema(a={"anyOf": [{"type": "string"}, True], "required": ["b"]}, b=marked("string"))
    )
    assert [param.path for param in found] == [("b",)]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "é", "a\r\nX: y", "a\n", 5, None, ["a"]])
def test_a_name_that_no_header_can_have_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="token"):
        ParamHeader.of_schema(schema(a=marked("string", name)))


@pytest.mark.parametrize("kind", ["number", "object", "array", "null", ["string", "null"], None])
def test_only_primitive_parameters_may_be_mirrored(kind: Any) -> None:
    with pytest.raises(ValueError, match="not a string, integer or boolean"):
        ParamHeader.of_schema(schema(a=marked(kind)))


def test_names_are_unique_without_regard_to_case() -> None:
    with pytest.raises(ValueError, match="twice"):
        ParamHeader.of_schema(schema(a=marked("string", "Region"), b=marked("string", "REGION")))


@pytest.mark.parametrize(
    "misplaced",
    [
        marked("string"),
        schema(a={"type": "array", "items": marked("string")}),
        schema(a={"type": "array", "items": schema(b=marked("string"))}),
        schema(a={"anyOf": [marked("string")]}),
        schema(a={"not": marked("string")}),
        {**schema(), "$defs": {"b": marked("string")}},
        {**schema(), "$defs": {"default": marked("string")}},
        {**schema(), "patternProperties": {"b": marked("string")}},
        {**schema(), "if": schema(b=marked("string"))},
        {**schema(), "allOf": [schema(b=marked("string"))]},
        {**schema(), "additionalProperties": marked("string")},
    ],
)
def test_an_annotation_that_properties_alone_do_not_lead_to_is_refused(misplaced: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="only properties"):
        ParamHeader.of_schema(misplaced)


# Mcp-Param-*


def check(kind: str, arguments: dict[str, Any], *values: str) -> None:
    ParamHeader.check_all(schema(value=marked(kind)), arguments, {"mcp-param-value": list(values)} if values else {})


@pytest.mark.parametrize(
    ("kind", "value", "header"),
    [
        ("string", "Hello", "Hello"),
        ("string", "Hello", "=?base64?SGVsbG8=?="),
        ("string", "SGVsbG8=", "SGVsbG8="),
        ("string", "=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("string", "", ""),
        ("string", "", "=?base64??="),
        ("integer", 42, "42"),
        ("integer", 42, "42.0"),
        ("integer", 42.0, "42"),
        ("integer", -7, "-7"),
        ("integer", 2**53 - 1, "9007199254740991"),
        ("integer", "42", "42"),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
    ],
)
def test_13_a_header_that_equals_the_argument_passes(kind: str, value: Any, header: str) -> None:
    check(kind, {"value": value}, header)


@pytest.mark.parametrize(
    ("kind", "value", "header"),
    [
        ("string", "Hello", "hello"),
        ("string", " Hello", " Hello"),
        ("string", "42", "42.0"),
        ("integer", 42, "43"),
        ("integer", 42, "042"),
        ("integer", 42, "+42"),
        ("integer", 42, "4.2e1"),
        ("integer", 42, "0x2A"),
        ("integer", 42, "42.0000001"),
        ("integer", 42, ""),
        ("integer", 1, "true"),
        ("integer", 2**53, "9007199254740992"),
        ("integer", 10**300, "1" + "0" * 300),
        ("boolean", True, "True"),
        ("boolean", True, "1"),
        ("string", {"a": 1}, "{}"),
        ("string", 42, "42"),
        ("integer", 42, "9" * 5_000),
    ],
)
def test_13_a_header_that_differs_is_a_mismatch(kind: str, value: Any, header: str) -> None:
    with pytest.raises(HeaderMismatch, match="mcp-param-value does not equal"):
        check(kind, {"value": value}, header)


@pytest.mark.parametrize(
    ("arguments", "values", "message"),
    [
        ({"value": "x"}, (), "missing"),
        ({"value": None}, ("null",), "the argument is not"),
        ({}, ("x",), "the argument is not"),
        ({"value": "x"}, ("x", "x"), "more than once"),
    ],
)
def test_13_missing_orphaned_and_repeated_headers_are_a_mismatch(
    arguments: dict[str, Any], values: tuple[str, ...], message: str
) -> None:
    with pytest.raises(HeaderMismatch, match=message):
        check("string", arguments, *values)


@pytest.mark.parametrize("arguments", [{}, {"value": None}])
def test_no_value_needs_no_header(arguments: dict[str, Any]) -> None:
    check("string", arguments)


def test_a_nested_parameter_is_compared_at_its_path() -> None:
    nested = schema(inner={"type": "object", "properties": {"deep": marked("string")}})
    ParamHeader.check_all(nested, {"inner": {"deep": "x"}}, {"mcp-param-value": ["x"]})
    ParamHeader.check_all(nested, {"inner": "no object"}, {})
    with pytest.raises(HeaderMismatch):
        ParamHeader.check_all(nested, {"inner": {"deep": "x"}}, {"mcp-param-value": ["y"]})


def test_without_headers_there_is_nothing_to_compare() -> None:
    ParamHeader.check_all(schema(value=marked("string")), {"value": "x"}, None)


def test_headers_that_the_schema_does_not_know_are_left_alone() -> None:
    ParamHeader.check_all(schema(a={"type": "string"}), {"a": "x"}, {"mcp-param-other": ["y"]})
