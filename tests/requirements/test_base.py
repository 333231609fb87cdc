"""What the manifest demands of every message (`requirements/base.toml`)."""

import json
import re

import pytest

from mcp_django.protocol.errors import MissingClientCapability
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.protocol_messages import CAPABILITIES_KEY, META, VERSION_KEY

pytestmark = pytest.mark.django_db

LEGACY, MODERN = "2025-11-25", "2026-07-28"
# basic, General fields: an optional prefix of dotted labels and a slash, and a name.
LABEL = r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
META_KEY = re.compile(rf"({LABEL}(\.{LABEL})*/)?([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
PROTOCOL_KEY = re.compile(r"io\.modelcontextprotocol/\w+")
# What a client reads, by the name that it gave it.
CLIENT_KEYS = {"anthropic/alwaysLoad"}


def calls_of_every_kind():
    """Requests that are answered, one of each method that both eras have."""
    author = make_author("Ada")
    return [
        ("tools/list", {}),
        ("tools/call", {"name": "list_models", "arguments": {}}),
        ("tools/call", {"name": "get_record", "arguments": {"model": "testapp.author", "pk": author.pk}}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": f"django://testapp/author/{author.pk}"}),
        ("prompts/list", {}),
    ]


def metas(value):
    """The `_meta` objects at any depth."""
    if isinstance(value, dict):
        if "_meta" in value:
            yield value["_meta"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from metas(item)


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_messages_of_errors_are_one_line_and_short(version):
    client = MCPClient(make_superuser(), version=version)
    refused = [
        ("no/such", {}),
        ("tools/call", {"name": "no_such_tool" * 50}),
        ("tools/call", {"arguments": {}}),
        ("tools/call", {"name": "query_records", "arguments": []}),
        ("prompts/get", {"name": "no_such_prompt"}),
        ("resources/read", {"uri": "django://testapp/author/999999"}),
        ("resources/read", {"uri": "django://testapp/author?ordering=no_such_field"}),
        ("resources/list", {"cursor": "x"}),
    ]
    for method, params in refused:
        error = client.send(method, params).json()["error"]
        assert error["message"].isprintable(), (method, error)
        assert 0 < len(error["message"]) <= 500


@pytest.mark.parametrize("missing", [[VERSION_KEY, CAPABILITIES_KEY], [CAPABILITIES_KEY], [VERSION_KEY]])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "resources/templates/list"])
def test_a_request_without_the_required_metadata_is_a_bad_request(method, missing):
    client = MCPClient(make_superuser())
    meta = {key: value for key, value in META.items() if key not in missing}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}}
    response = client.post(json.dumps(body), **{"MCP-Protocol-Version": MODERN, "Mcp-Method": method})
    assert response.status_code == 400
    assert (response.json()["id"], response.json()["error"]["code"]) == (1, -32602)


def test_what_a_client_declares_holds_for_its_request_alone(tools):
    def needy(request) -> str:
        """Need sampling."""
        if "sampling" not in request.mcp.capabilities:
            raise MissingClientCapability({"sampling": {}})
        return f"{request.mcp.client.name} at {request.mcp.version}"

    tools(needy, read_only=True)
    client = MCPClient(make_superuser(), capabilities={"sampling": {}})
    assert client.call("needy").text == f"mcp_django.testing at {MODERN}"
    client.capabilities = {}
    response = client.send("tools/call", {"name": "needy", "arguments": {}})
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32021)
    client.capabilities = {"sampling": {}}
    named = {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "other", "version": "1"}}}
    answer = client.request("tools/call", name="needy", arguments={}, **named)
    assert answer["content"][0]["text"] == f"other at {MODERN}"


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_keys_of_meta_are_well_formed_and_no_invention(version):
    client = MCPClient(make_superuser(), version=version)
    found = [meta for method, params in calls_of_every_kind() for meta in metas(client.request(method, **params))]
    keys = {key for meta in found for key in meta}
    assert ("io.modelcontextprotocol/serverInfo" in keys) is (version == MODERN)
    assert all(META_KEY.fullmatch(key) for key in keys)
    assert all(PROTOCOL_KEY.fullmatch(key) for key in keys - CLIENT_KEYS)
