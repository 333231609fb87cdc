"""What the manifest demands of tasks, the extension (`requirements/tasks.toml`)."""

import asyncio
import json
import re

import pytest

from mcp_django import ToolError
from mcp_django import task as task_options
from mcp_django.protocol.errors import InternalError
from mcp_django.tasks import run_task
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_superuser
from tests.protocol_messages import MODERN, VERSION_KEY
from tests.task_calls import ASKS, EXTENSION, TAKES_TASKS, TaskClient

pytestmark = pytest.mark.django_db

REQUIRED = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
MEMBERS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "resultType", "_meta"}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def work(request, label: str = "") -> str:
    """Work for long."""
    request.mcp.progress(1, 2, "half of it")
    request.mcp.log("info", "working")
    return f"done {label}"


def failing(request) -> str:
    """Fail in a way that a model may read."""
    raise ToolError("out of paper")


def broken(request) -> str:
    """End with an error of the protocol."""
    raise InternalError("out of order")


async def compare(request) -> str:
    """Ask for two colours at the same time."""

    async def ask(key):
        return request.mcp.ask(f"Which {key}?", str, key=key)

    async with asyncio.TaskGroup() as group:
        found = [group.create_task(ask(key)) for key in ("first", "second")]
    return " ".join(task.result() for task in found)


def count(request) -> str:
    """Ask for a number."""
    return str(request.mcp.ask("How many?", int, key="number"))


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def client(root):
    return TaskClient(root, capabilities=ASKS)


def refusal(client, method, **params):
    with pytest.raises(MCPError) as caught:
        client.request(method, **params)
    return caught.value


def accept(asked, values):
    """What answers these of the questions that a task has."""
    fields = {key: next(iter(asked[key]["params"]["requestedSchema"]["properties"])) for key in values}
    return {key: {"action": "accept", "content": {fields[key]: value}} for key, value in values.items()}


def test_the_extension_is_announced_and_the_older_experiment_is_not(client, root):
    found = client.request("server/discover")["capabilities"]
    assert found["extensions"][EXTENSION] == {}
    older = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    hello = MCPClient(root, version="2025-11-25").request("initialize", **older)["capabilities"]
    for capabilities in (found, hello):
        assert "tasks" not in capabilities
    assert EXTENSION not in hello.get("extensions", {})


def test_a_task_is_made_as_the_server_decides_and_is_there_at_once(client, tools):
    tools(work, read_only=True, task=True)
    made = client.request("tools/call", name="work", arguments={"label": "a"})
    assert (made["resultType"], made["status"]) == ("task", "working")
    assert made.keys() == MEMBERS
    assert ISO.fullmatch(made["createdAt"])
    assert ISO.fullmatch(made["lastUpdatedAt"])
    assert type(made["ttlMs"]) is type(made["pollIntervalMs"]) is int
    assert min(made["ttlMs"], made["pollIntervalMs"]) > 0
    found = client.poll(made["taskId"])
    assert found == {**made, "resultType": "complete", "_meta": found["_meta"]}
    result = client.end(made["taskId"])
    assert result["content"] == [{"type": "text", "text": "done a"}]
    assert "io.modelcontextprotocol/related-task" not in result.get("_meta", {})


@pytest.mark.parametrize("declared", [{}, {"tasks": {"requests": {"tools": {"call": {}}}}}])
def test_only_the_declaration_of_the_request_itself_counts(client, root, tools, declared):
    tools(work, read_only=True, task=True)
    tools(failing, destructive=False, task=task_options(required=True))
    task_id = client.begin("work")
    other = MCPClient(root, capabilities=declared)
    assert other.request("tools/call", name="work", arguments={})["resultType"] == "complete"
    for method in METHODS:
        for named in (task_id, "unknown"):
            refused = refusal(other, method, taskId=named, inputResponses={})
            assert (refused.status, refused.code, refused.data) == (400, -32021, REQUIRED)
    for method, params in (
        ("tools/call", {"name": "failing", "arguments": {}}),
        ("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}),
    ):
        refused = refusal(other, method, **params)
        assert (refused.status, refused.code, refused.data) == (400, -32021, REQUIRED)
    once = {"io.modelcontextprotocol/clientCapabilities": TAKES_TASKS}
    assert other.request("tasks/get", taskId=task_id, _meta=once)["status"] == "working"


def test_the_metadata_of_the_older_experiment_makes_no_task(client, tools):
    tools(work, read_only=True)
    result = client.request("tools/call", name="work", arguments={}, task={"ttl": 60_000})
    assert result["resultType"] == "complete"
    assert "taskId" not in result


def test_errors_of_a_tool_complete_a_task_and_those_of_the_protocol_fail_it(client, tools):
    tools(failing, destructive=False, task=True)
    tools(broken, destructive=False, task=True)
    assert client.end(client.begin("failing"))["isError"] is True
    task_id = client.begin("broken")
    run_task(task_id)
    found = client.poll(task_id)
    assert found["status"] == "failed"
    assert found["error"] == {"code": -32603, "message": "out of order"}
    assert found["statusMessage"] == "out of order"
    assert "result" not in found


def test_all_that_is_open_is_asked_and_what_was_never_asked_is_ignored(client, tools):
    tools(compare, destructive=False, task=True)
    task_id = client.begin("compare")
    run_task(task_id)
    asked = client.poll(task_id)
    assert asked["status"] == "input_required"
    first, second = questions = asked["inputRequests"]
    ended = [client.request("tasks/update", taskId=task_id, inputResponses={"unknown": {"ignored": True}})]
    assert client.poll(task_id)["inputRequests"].keys() == {first, second}
    ended += [client.request("tasks/update", taskId=task_id, inputResponses=accept(questions, {first: "red"}))]
    left = client.poll(task_id)
    assert (left["status"], set(left["inputRequests"])) == ("input_required", {second})
    answers = accept(questions, {first: "ignored", second: "blue"})
    ended += [client.request("tasks/update", taskId=task_id, inputResponses=answers)]
    assert client.end(task_id)["content"][0]["text"] == "red blue"
    assert all(result.keys() == {"resultType", "_meta"} and result["resultType"] == "complete" for result in ended)


def test_a_key_is_used_once_in_a_task(client, tools):
    tools(count, destructive=False, task=True)
    task_id = client.begin("count")
    seen = []
    for value in ("many", "more", 3):
        run_task(task_id)
        asked = client.poll(task_id)["inputRequests"]
        seen += asked
        answers = accept(asked, dict.fromkeys(asked, value))
        client.request("tasks/update", taskId=task_id, inputResponses=answers)
    assert client.end(task_id)["content"][0]["text"] == "3"
    assert len(seen) == len(set(seen)) == 3


def test_cancelling_is_acknowledged_whether_it_has_ended_or_not(client, tools):
    tools(work, read_only=True, task=True)
    ended, open_one = client.begin("work"), client.begin("work")
    client.end(ended)
    for task_id in (ended, open_one, open_one):
        told = client.request("tasks/cancel", taskId=task_id)
        assert told.keys() == {"resultType", "_meta"}
        assert told["resultType"] == "complete"
    assert [client.poll(task_id)["status"] for task_id in (ended, open_one)] == ["completed", "cancelled"]


def test_a_notification_cancels_no_task(client, tools):
    tools(work, read_only=True, task=True)
    task_id = client.begin("work")
    for request_id in (1, task_id):
        params = {"requestId": request_id, "_meta": {VERSION_KEY: MODERN}}
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert client.post(json.dumps(body), **{"MCP-Protocol-Version": MODERN}).status_code == 202
    assert client.poll(task_id)["status"] == "working"


def test_a_task_sends_no_progress_and_no_log_messages(client, tools):
    tools(work, read_only=True, task=True)
    meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
    answered = client.send("tools/call", {"name": "work", "arguments": {}, "_meta": meta})
    assert answered.headers["content-type"] == "application/json"
    task_id = answered.json()["result"]["taskId"]
    run_task(task_id)
    told = client.send("tasks/get", {"taskId": task_id, "_meta": meta})
    assert told.headers["content-type"] == "application/json"
    assert told.json()["result"]["status"] == "completed"


def test_ids_are_not_guessed(client, tools):
    tools(work, read_only=True, task=True)
    ids = [client.begin("work") for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", task_id) for task_id in ids)
