"""The wire of tasks: the methods of the extension, what they bring, and what is answered."""

from typing import Any

import pytest

from mcp_django.protocol.client_requests import MAX_RESPONSE_BYTES, MAX_RESPONSES
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.tasks import EXTENSION, MAX_TASK_ID, METHODS, DetailedTask, check_params
from tests.protocol_messages import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEGACY,
    MODERN,
    accepted,
    body_of,
    legacy_headers,
    modern_body,
    modern_headers,
    rejected,
)

pytestmark = pytest.mark.one_django

ID = "786512e29e0d44bd8f29789f320fe840"
ACCEPTED = {"action": "accept", "content": {"confirm": True}}
UPDATE = {"taskId": ID, "inputResponses": {"a": ACCEPTED}}
TASK = DetailedTask(ID, "working", 1_795_883_416_007, 1_795_883_417_000, 86_400_000, 1_000)
MEMBERS = {
    "taskId": ID,
    "status": "working",
    "createdAt": "2026-11-28T16:30:16.007Z",
    "lastUpdatedAt": "2026-11-28T16:30:17.000Z",
    "ttlMs": 86_400_000,
    "pollIntervalMs": 1_000,
}


def sent(method: str, **meta: Any) -> tuple[bytes, dict[str, list[str]]]:
    return modern_body(method, UPDATE, meta=meta), modern_headers(method, ID)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_newest_revision_has_the_methods_of_the_extension(method: str) -> None:
    declared = {"extensions": {EXTENSION: {}}}
    call = accepted(*sent(method, **{CAPABILITIES_KEY: declared}))
    assert (call.version, call.params["taskId"]) == (MODERN, ID)
    assert call.capabilities == declared


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_older_revisions_do_not_have_them(version: str, method: str) -> None:
    status, error = rejected(body_of(method, UPDATE), legacy_headers(version))
    assert (status, error["error"]["code"]) == (200, -32601)


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_the_methods_of_the_older_experiment_are_unknown(method: str) -> None:
    status, error = rejected(*sent(method))
    assert (status, error["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("names", [{"mcp-name": ["other"]}, {"mcp-name": [ID, ID]}])
def test_a_header_that_names_another_task_is_refused(method: str, names: dict[str, list[str]]) -> None:
    status, error = rejected(modern_body(method, UPDATE), {**modern_headers(method), **names})
    assert (status, error["error"]["code"]) == (400, -32020)


def test_what_every_request_brings_is_validated() -> None:
    status, error = rejected(*sent("tasks/get", **{CLIENT_KEY: {"name": 7}}))
    assert (status, error["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("value", [None, 7, "", [], {}, "a\0b", "x" * (MAX_TASK_ID + 1)])
def test_what_can_be_no_id_is_refused(method: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match="taskId"):
        check_params(method, {**UPDATE, "taskId": value})


WIDE = {str(number): ACCEPTED for number in range(MAX_RESPONSES + 1)}
LONG = {"a": {"action": "accept", "content": {"text": "x" * MAX_RESPONSE_BYTES}}}


@pytest.mark.parametrize("responses", [None, [], "a", {"a": None}, {"a": [ACCEPTED]}, {"a": 10**30}, WIDE, LONG])
def test_malformed_answers_are_refused(responses: Any) -> None:
    with pytest.raises(InvalidParams, match="inputResponses"):
        check_params("tasks/update", {"taskId": ID, "inputResponses": responses})


@pytest.mark.parametrize("responses", [{}, {"a": {}}, {"unknown": {"ignored": True}}])
def test_whether_an_answer_fits_is_not_known_here(responses: Any) -> None:
    check_params("tasks/update", {"taskId": ID, "inputResponses": responses})


def test_only_an_update_brings_answers() -> None:
    check_params("tasks/get", {"taskId": ID, "inputResponses": 1})
    with pytest.raises(InvalidParams):
        check_params("tasks/update", {"taskId": ID})


def test_a_call_is_answered_with_the_task_and_nothing_in_it() -> None:
    assert TASK.made() == {"resultType": "task", **MEMBERS}


def test_how_it_stands_is_told_with_what_belongs_to_it() -> None:
    assert TASK.detailed() == MEMBERS
    completed = {"resultType": "complete", "content": []}
    assert TASK.detailed(result={"content": []}) == {**MEMBERS, "result": completed}
    assert TASK.detailed(asked={"a": {}}) == {**MEMBERS, "inputRequests": {"a": {}}}
    assert TASK.detailed(error={"code": -32603, "message": ""})["error"] == {"code": -32603, "message": ""}


def test_a_message_is_told_where_there_is_one() -> None:
    told = DetailedTask(ID, "failed", 0, 0, 1, 1, "The worker was lost.").detailed()
    assert told["statusMessage"] == "The worker was lost."
    assert told["createdAt"] == "1970-01-01T00:00:00.000Z"
