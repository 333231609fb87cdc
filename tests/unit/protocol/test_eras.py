"""What both eras share: parameters against the schema, progress tokens, trace context."""

from typing import Any

import pytest
from mcp_types.methods import CLIENT_REQUESTS

from mcp_django.protocol.eras import progress_token, trace_context, validate
from mcp_django.protocol.errors import InvalidParams, MethodNotFound
from mcp_django.protocol.versions import Revisions
from tests.protocol_messages import CAPABILITIES_KEY, META, PARAMS

pytestmark = pytest.mark.one_django

METHODS = sorted({method for method, _ in CLIENT_REQUESTS})


def good(method: str, version: str) -> dict[str, Any]:
    return {**PARAMS.get(method, {}), **({"_meta": META} if version in Revisions.MODERN else {})}


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
@pytest.mark.parametrize("method", METHODS)
def test_58_a_revision_has_its_own_methods_and_no_others(method: str, version: str) -> None:
    if (method, version) in CLIENT_REQUESTS:
        validate(method, version, good(method, version))
    else:
        with pytest.raises(MethodNotFound, match=method):
            validate(method, version, good(method, version))


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
@pytest.mark.parametrize(
    "method",
    [
        "unknown/method",
        "rpc.discover",
        "__init__",
        "__class__",
        "tools/list/",
        "TOOLS/LIST",
        "tools/list\n",
        "tasks/list",
    ],
)
def test_58_no_revision_has_an_unknown_method(method: str, version: str) -> None:
    with pytest.raises(MethodNotFound):
        validate(method, version, good(method, version))


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
@pytest.mark.parametrize(
    ("method", "params", "where"),
    [
        ("tools/call", {}, "params.name"),
        ("tools/call", {"name": 1}, "params.name"),
        ("tools/call", {"name": None}, "params.name"),
        ("tools/call", {"name": "a", "arguments": []}, "params.arguments"),
        ("tools/call", {"name": "a", "arguments": "{}"}, "params.arguments"),
        ("tools/list", {"cursor": 1}, "params.cursor"),
        ("prompts/get", {"name": "a", "arguments": {"a": 1}}, "params.arguments.a"),
        ("resources/read", {"uri": {}}, "params.uri"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a"}}, "params.argument"),
        ("tools/list", {"_meta": []}, "params._meta"),
    ],
)
def test_params_of_the_wrong_shape_are_named(method: str, version: str, params: dict[str, Any], where: str) -> None:
    meta = {"_meta": META} if version in Revisions.MODERN else {}
    with pytest.raises(InvalidParams, match=f"Invalid params: {where}"):
        validate(method, version, {**meta, **params})


def test_85_a_message_about_params_repeats_no_value() -> None:
    with pytest.raises(InvalidParams) as caught:
        validate("tools/call", "2026-07-28", {"name": ["s3cret"], "_meta": META})
    assert "s3cret" not in caught.value.message


def test_a_message_about_params_is_short_whatever_the_names_are() -> None:
    meta = {**META, CAPABILITIES_KEY: {"experimental": {"k" * 100_000: 1}}}
    with pytest.raises(InvalidParams) as caught:
        validate("tools/list", "2026-07-28", {"_meta": meta})
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("wrong", [{f"k{number}": 1 for number in range(2_000)}, {"a": {"content": [1] * 5_000}}])
def test_27_thousands_of_mistakes_are_not_spelled_out(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match="too many mistakes"):
        validate("tools/call", "2026-07-28", {"name": "a", "inputResponses": wrong, "_meta": META})


@pytest.mark.parametrize("name", ["$ref", "__class__", "self", "request", "cls", "kwargs", "meta", "__proto__"])
def test_42_43_special_names_in_arguments_are_plain_data(name: str) -> None:
    arguments = {name: {"$ref": "https://evil.example/", "$schema": "urn:unknown"}}
    params = {"name": "a", "arguments": arguments, "_meta": META}
    validate("tools/call", "2026-07-28", params)
    assert params["arguments"] == {name: {"$ref": "https://evil.example/", "$schema": "urn:unknown"}}


@pytest.mark.parametrize("token", ["", "abc", "a" * 256, 0, 7, -1, 2**53 - 1])
def test_66_a_progress_token_is_kept_with_its_type(token: str | int) -> None:
    found = progress_token({"progressToken": token})
    assert (found, type(found)) == (token, type(token))


@pytest.mark.parametrize("meta", [{}, {"progressToken": None}])
def test_66_no_progress_token_is_none(meta: dict[str, Any]) -> None:
    assert progress_token(meta) is None


@pytest.mark.parametrize("token", [{}, [], ["a"], True, False, 1.0, 1.5, "a" * 257, "a" * 10_000, 2**53, 10**300])
def test_66_any_other_progress_token_is_refused(token: Any) -> None:
    with pytest.raises(InvalidParams, match="progressToken"):
        progress_token({"progressToken": token})


# Trace context: what follows its format, and nothing else

PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({}, {}),
        ({"tracestate": "a=1"}, {}),
        ({"traceparent": PARENT}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a=1,b=2"}, {"traceparent": PARENT, "tracestate": "a=1,b=2"}),
        ({"traceparent": PARENT, "tracestate": "a\n=1"}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a" * 513}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": ""}, {"traceparent": PARENT}),
        ({"traceparent": "x", "tracestate": "a=1"}, {}),
        ({"traceparent": "x", "baggage": "user=1"}, {"baggage": "user=1"}),
        ({"baggage": "a" * 8_192}, {"baggage": "a" * 8_192}),
        ({"baggage": "a" * 8_193}, {}),
        ({"baggage": "user=\r\nX: y"}, {}),
        ({"baggage": "user=é"}, {}),
        ({"baggage": {"user": 1}}, {}),
    ],
)
def test_60_a_trace_is_taken_where_it_follows_its_format(meta: dict[str, Any], found: dict[str, str]) -> None:
    assert trace_context(meta) == found


@pytest.mark.parametrize(
    "parent",
    [
        "",
        1,
        None,
        [],
        PARENT.upper(),
        PARENT + "\n",
        PARENT + "-00",
        " " + PARENT,
        PARENT.replace("00-0af", "ff-0af"),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        PARENT[:-1],
        PARENT.replace("-", "_"),
        "\u0660" + PARENT[1:],
    ],
)
def test_60_another_traceparent_is_left_out(parent: Any) -> None:
    assert trace_context({"traceparent": parent}) == {}
