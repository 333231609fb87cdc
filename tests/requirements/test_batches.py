"""What the manifest demands of batches, which only 2025-03-26 has (`requirements/base.toml`)."""

import json

import pytest

from mcp_django.testing import MCPClient
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db

HELLO = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture
def client():
    return MCPClient(make_superuser(), version="2025-03-26")


def request(identifier, method, **params):
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


def notification(method):
    return {"jsonrpc": "2.0", "method": method}


def post(client, *items):
    return client.post(json.dumps(items), **{"MCP-Protocol-Version": client.version})


def test_a_batch_of_requests_and_notifications_is_answered_for_each_request(client):
    response = post(
        client,
        request("a", "ping"),
        notification("notifications/initialized"),
        request(2, "tools/call", name="list_models", arguments={}),
        request(3, "no/such"),
    )
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    answers = {answer["id"]: answer for answer in response.json()}
    assert len(response.json()) == 3
    assert answers["a"]["result"] == {}
    assert answers[2]["result"]["content"]
    assert answers[3]["error"]["code"] == -32601


def test_a_batch_of_notifications_is_accepted_without_an_answer(client):
    response = post(client, notification("notifications/initialized"), notification("notifications/other"))
    assert (response.status_code, response.content) == (202, b"")


def test_initialize_is_refused_within_a_batch_and_the_others_are_answered(client):
    response = post(client, request(1, "initialize", **HELLO), request(2, "ping"))
    answers = {answer["id"]: answer for answer in response.json()}
    assert answers[1]["error"]["code"] == -32600
    assert "result" not in answers[1]
    assert answers[2]["result"] == {}


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_later_revisions_refuse_batches(client, version):
    client.version = version
    response = post(client, request(1, "ping"), request(2, "ping"))
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
