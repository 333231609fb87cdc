"""What the manifest demands of Streamable HTTP (`requirements/transports.toml`)."""

import base64
import json
from typing import Annotated

import pytest

from mcp_django import Header
from mcp_django.testing import MCPClient
from tests.factories import make_superuser
from tests.protocol_messages import META, MODERN

pytestmark = pytest.mark.django_db


def encoded(text):
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def send(client, arguments, **headers):
    """Call the tool with the headers given, beside those that each call has."""
    params = {"name": "deploy", "arguments": arguments, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    always = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "deploy"}
    return client.post(json.dumps(body), **(always | headers))


@pytest.fixture
def client(tools):
    def deploy(
        request, region: Annotated[str, Header("Region")], size: Annotated[int, Header("Size")] = 1, note: str = ""
    ) -> str:
        """Deploy."""
        return f"{region} {size}"

    tools(deploy, read_only=True)
    return MCPClient(make_superuser())


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}),
        ({"region": "eu"}, {"mcp-param-region": "eu"}),
        ({"region": "eu"}, {"Mcp-Param-Region": encoded("eu")}),
        ({"region": "Köln "}, {"Mcp-Param-Region": encoded("Köln ")}),
        ({"region": "eu", "size": 42}, {"Mcp-Param-Region": "eu", "Mcp-Param-Size": "42"}),
        ({"region": "eu", "size": 42}, {"Mcp-Param-Region": "eu", "Mcp-Param-Size": "42.0"}),
        ({"region": "eu", "note": "x"}, {"Mcp-Param-Region": "eu", "Mcp-Param-Other": "y"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "Mcp-Name": encoded("deploy")}),
    ],
)
def test_a_call_whose_headers_equal_its_arguments_runs(client, arguments, headers):
    response = send(client, arguments, **headers)
    assert response.status_code == 200
    assert response.json()["result"]["content"][0]["text"] == f"{arguments['region']} {arguments.get('size', 1)}"


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "EU"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?ZXU?="}),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?BASE64?ZXU=?="}),
        ({"region": "eu"}, {"Mcp-Param-Region": "caf\xe9"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "Mcp-Param-Size": "1"}),
        ({"region": "eu", "size": 42}, {"Mcp-Param-Region": "eu", "Mcp-Param-Size": "43"}),
        ({"region": "eu", "size": 42}, {"Mcp-Param-Region": "eu"}),
        ({"region": "eu", "size": None}, {"Mcp-Param-Region": "eu", "Mcp-Param-Size": "null"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "Mcp-Name": "other"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "Mcp-Method": "tools/list"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "Mcp-Method": "Tools/Call"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu", "MCP-Protocol-Version": "2025-11-25"}),
    ],
)
def test_a_call_whose_headers_do_not_equal_its_arguments_is_a_bad_request(client, arguments, headers):
    response = send(client, arguments, **headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)
    assert response.json()["id"] == 1


def test_arguments_are_not_mirrored_in_the_older_revisions(client):
    client.version = "2025-11-25"
    assert client.call("deploy", region="eu").text == "eu 1"
