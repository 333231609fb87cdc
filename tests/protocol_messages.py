"""Messages and headers as clients of each era send them, and the check that every error has to pass."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp_types import MissingRequiredClientCapabilityErrorData, UnsupportedProtocolVersionErrorData
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    JSONRPCError,
)

from mcp_django.protocol.eras import Call, Headers, Rejected, SessionFacts, classify
from mcp_django.protocol.messages import encode

MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

META: dict[str, Any] = {
    VERSION_KEY: MODERN,
    CLIENT_KEY: {"name": "tests", "version": "1"},
    CAPABILITIES_KEY: {},
}
# The least that each method asks for.
PARAMS: dict[str, dict[str, Any]] = {
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "triage"},
        "argument": {"name": "order", "value": ""},
    },
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    },
    "logging/setLevel": {"level": "info"},
    "prompts/get": {"name": "triage"},
    "resources/read": {"uri": "django://shop/order/1"},
    "resources/subscribe": {"uri": "django://shop/order/1"},
    "resources/unsubscribe": {"uri": "django://shop/order/1"},
    "subscriptions/listen": {"notifications": {}},
    "tools/call": {"name": "list_models"},
}
ERROR_CODES = {
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
}
LEGACY_RESOURCE_NOT_FOUND = -32002


@dataclass(frozen=True)
class Facts:
    """A session of the legacy era."""

    version: str = "2025-11-25"
    client: Mapping[str, Any] = field(default_factory=lambda: {"name": "tests", "version": "1"})
    capabilities: Mapping[str, Any] = field(default_factory=lambda: {"elicitation": {}})
    log_level: str | None = "warning"


def body_of(method: str, params: Any = None, **members: Any) -> bytes:
    """The JSON of a request with id 1; a member given as None is left out."""
    found = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **members}
    return json.dumps({name: value for name, value in found.items() if value is not None}).encode()


def modern_body(
    method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
) -> bytes:
    """The JSON of a request of 2026-07-28 with id 1."""
    return body_of(method, {**PARAMS.get(method, {}), **(params or {}), "_meta": {**META, **(meta or {})}})


def modern_headers(method: str, name: str | None = None, version: str = MODERN) -> dict[str, list[str]]:
    """The headers that go with it."""
    source = PARAMS.get(method, {})
    mirrored = name or (source.get("name") or source.get("uri") if method != "completion/complete" else None)
    found = {"mcp-protocol-version": [version], "mcp-method": [method]}
    return found | ({"mcp-name": [mirrored]} if mirrored else {})


def legacy_headers(version: str | None = "2025-11-25") -> dict[str, list[str]]:
    """The headers of a request of the legacy era."""
    return {} if version is None else {"mcp-protocol-version": [version]}


def accepted(body: bytes, headers: Headers, session: SessionFacts | None = None) -> Call:
    """The call that a good request makes."""
    call = classify(body, headers, session=session)
    assert isinstance(call, Call)
    return call


def rejected(body: bytes, headers: Headers, session: SessionFacts | None = None) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the JSON of the error that a bad request gets."""
    with pytest.raises(Rejected) as caught:
        classify(body, headers, session=session)
    return answer(caught.value)


def answer(rejection: Rejected) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the JSON of the error."""
    wire = rejection.error.response(rejection.id, modern=rejection.era.modern)
    sent = json.loads(encode(wire))
    check_error(sent, modern=rejection.era.modern)
    return rejection.era.status(rejection.error), sent


def check_error(wire: dict[str, Any], *, modern: bool) -> None:
    """Assert that the message is an error response of the era."""
    assert wire.keys() <= {"jsonrpc", "id", "error"}
    assert type(wire.get("id", 1)) in (int, str), "an id that could not be read is left out"
    parsed = JSONRPCError.model_validate({"id": None, **wire}).error
    assert wire["error"].keys() <= {"code", "message", "data"}
    assert "data" not in wire["error"] or isinstance(parsed.data, dict)
    assert parsed.code in (ERROR_CODES if modern else ERROR_CODES | {LEGACY_RESOURCE_NOT_FOUND})
    assert 0 < len(parsed.message) <= 1000
    match parsed.code:
        case -32022:
            assert UnsupportedProtocolVersionErrorData.model_validate(parsed.data).supported
        case -32021:
            MissingRequiredClientCapabilityErrorData.model_validate(parsed.data)
