"""2024-11-05 to 2025-11-25: which version a request is of, and what its session knows."""

from typing import Any

import pytest
from mcp_types.methods import SERVER_RESULTS

from mcp_django.protocol.eras import LEGACY_ERA
from mcp_django.protocol.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    ResourceNotFound,
    UnsupportedVersion,
)
from mcp_django.protocol.messages import ClientResponse
from mcp_django.protocol.versions import Revisions
from tests.protocol_messages import LEGACY, MODERN, PARAMS, Facts, accepted, body_of, legacy_headers, rejected

pytestmark = pytest.mark.one_django

PAIRS = sorted((version, method) for method, version in SERVER_RESULTS if version in LEGACY)


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
    assert error["error"]["data"] == {"supported": list(Revisions.SUPPORTED), "requested": ", ".join(versions)}


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


# Sessions


@pytest.mark.parametrize("headers", [{}, None])
@pytest.mark.parametrize("version", LEGACY)
def test_59_a_request_without_a_version_is_of_its_session(version: str, headers: Any) -> None:
    assert accepted(body_of("ping"), headers, Facts(version)).version == version
    assert accepted(body_of("notifications/initialized", id=None), headers, Facts(version)).version == version


@pytest.mark.parametrize("version", LEGACY)
def test_59_a_supported_version_in_the_header_wins_over_that_of_the_session(version: str) -> None:
    assert accepted(body_of("ping"), legacy_headers(version), Facts("2025-06-18")).version == version


@pytest.mark.parametrize("versions", [["1.0"], [""], ["2025-06-18", "2025-06-18"], ["2025-06-18 "]])
def test_59_a_session_does_not_excuse_another_version(versions: list[str]) -> None:
    status, error = rejected(body_of("ping"), {"mcp-protocol-version": versions}, Facts("2025-06-18"))
    assert (status, error["error"]["code"]) == (400, -32022)


def test_without_headers_a_request_of_no_session_is_of_2025_03_26() -> None:
    assert accepted(body_of("ping"), None).version == "2025-03-26"


def test_a_call_carries_what_its_session_knows() -> None:
    session = Facts("2025-06-18", {"name": "c", "version": "2"}, {"sampling": {}}, "error")
    call = accepted(body_of("tools/call", {"name": "a"}), {}, session)
    assert (call.client, call.capabilities, call.log_level) == (
        {"name": "c", "version": "2"},
        {"sampling": {}},
        "error",
    )


def test_initialize_takes_nothing_from_a_session() -> None:
    params = {**PARAMS["initialize"], "protocolVersion": "2024-11-05", "capabilities": {"roots": {}}}
    call = accepted(body_of("initialize", params), {}, Facts("2025-11-25"))
    assert (call.version, call.client, call.capabilities, call.log_level) == (
        "2024-11-05",
        {"name": "tests", "version": "1"},
        {"roots": {}},
        None,
    )


def test_60_a_call_carries_its_trace() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
    meta = {"traceparent": parent, "tracestate": "a=1", "baggage": "b=2", "other": "c"}
    call = accepted(body_of("tools/call", {"name": "a", "_meta": meta}), legacy_headers())
    assert call.trace == {"traceparent": parent, "tracestate": "a=1", "baggage": "b=2"}
    assert accepted(body_of("tools/call", {"name": "a"}), legacy_headers()).trace == {}


def test_73_this_era_has_no_answers_in_a_call() -> None:
    params = {"name": "a", "inputResponses": {"a": {"action": "accept"}}, "requestState": "s"}
    call = accepted(body_of("tools/call", params), legacy_headers())
    assert (call.input_responses, call.request_state) == (None, None)


def test_63_a_response_is_taken_in_a_session_alone() -> None:
    response = ClientResponse(id=1, result={})
    assert LEGACY_ERA.accept(response, {}, Facts()) is response
    with pytest.raises(InvalidRequest, match="not made"):
        LEGACY_ERA.accept(response, {}, None)
    with pytest.raises(UnsupportedVersion):
        LEGACY_ERA.accept(response, legacy_headers("1.0"), Facts())


def test_59_a_notification_of_another_version_is_an_http_error() -> None:
    status, error = rejected(body_of("notifications/initialized", id=None), legacy_headers("1.0"))
    assert (status, error["error"]["code"]) == (400, -32022)
    assert "id" not in error


# Errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ParseError(), 400),
        (InvalidRequest(), 400),
        (UnsupportedVersion("a", Revisions.SUPPORTED), 400),
        (MethodNotFound(), 200),
        (InvalidParams(), 200),
        (ResourceNotFound("a:b"), 200),
        (InternalError(), 200),
    ],
)
def test_errors_of_a_method_are_answers(error: Any, status: int) -> None:
    assert LEGACY_ERA.status(error) == status
