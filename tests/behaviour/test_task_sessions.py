"""Clients of the older revisions, which know of no tasks, in sessions: they wait, cancel and are asked as before."""

import asyncio
import json
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import Task
from mcp_django.tasks import caller_tasks, heartbeats
from mcp_django.tasks.stored_tasks import StoredTask
from tests.session_client import SessionClient

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

OLD = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
PATIENCE = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: Any) -> None:
    monkeypatch.setattr(StoredTask, "HEARTBEAT", 0.2)
    monkeypatch.setattr(heartbeats, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(caller_tasks, "LOOK_EVERY", 0.1)


async def begin(token: str, version: str, **options: Any) -> SessionClient:
    client = SessionClient(token, version=version, **options)
    await client.initialize()
    return client


def text_of(message: Any) -> str:
    return str(message["result"]["content"][0]["text"])


async def states() -> list[str]:
    return await sync_to_async(lambda: list(Task.objects.values_list("state", flat=True)))()


@pytest.mark.parametrize("version", OLD)
async def test_progress_and_the_result_come_on_the_stream_of_the_call(token: str, tools: Any, version: str) -> None:
    go_on = threading.Event()

    def work(request: Any) -> str:
        """Work."""
        request.mcp.progress(1, 3, "begun")
        assert go_on.wait(PATIENCE)
        return "worked"

    tools(work, destructive=False, task=True)
    client = await begin(token, version)
    stream = await client.call("work", progress="p")
    told = await stream.message()
    assert told["method"] == "notifications/progress"
    assert (told["params"]["progressToken"], told["params"]["progress"], told["params"]["total"]) == ("p", 1, 3)
    go_on.set()
    assert text_of((await stream.rest())[-1]) == "worked"
    assert await states() == ["completed"]


@pytest.mark.parametrize("version", OLD)
async def test_a_call_that_is_cancelled_ends_its_task(token: str, tools: Any, version: str) -> None:
    outcome: list[str] = []
    over = threading.Event()

    def work(request: Any) -> str:
        """Work."""
        try:
            for number in range(400):
                request.mcp.progress(number)
                threading.Event().wait(0.05)
            outcome.append("worked")
        except BaseException:
            outcome.append("stopped")
            raise
        finally:
            over.set()
        return "worked"

    tools(work, destructive=False, task=True)
    client = await begin(token, version)
    stream = await client.call("work", progress="p")
    assert (await stream.message())["method"] == "notifications/progress"
    await client.notify("notifications/cancelled", {"requestId": next(client.ids) - 1})
    assert await asyncio.to_thread(over.wait, PATIENCE)
    assert outcome == ["stopped"]
    assert await states() == ["cancelled"]


@pytest.mark.parametrize("version", OLD)
async def test_a_client_that_goes_on_to_ask_for_the_task_gets_its_result(
    token: str, tools: Any, version: str, monkeypatch: Any
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(caller_tasks, "PATIENCE", 0.2)

    def work(request: Any) -> str:
        """Work."""
        assert go_on.wait(PATIENCE)
        return "worked"

    tools(work, destructive=False, task=True)
    client = await begin(token, version)
    assert "get_task" in [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
    first = json.loads((await client.result("tools/call", {"name": "work", "arguments": {}}))["content"][0]["text"])
    assert first["state"] == "working"
    stranger = await begin(token, version, name="another")
    go_on.set()
    for _ in range(100):
        again = await client.result("tools/call", {"name": "get_task", "arguments": {"task": first["task"]}})
        if again["content"][0]["text"] == "worked":
            break
        await asyncio.sleep(0.1)
    assert again["content"][0]["text"] == "worked"
    assert (await stranger.error("tasks/get", {"taskId": first["task"]}))["code"] == -32601


@pytest.mark.parametrize("version", [version for version in OLD if version >= "2025-06-18"])
async def test_what_the_work_asks_of_a_client_that_cannot_be_asked_then_changes_nothing(
    token: str, tools: Any, version: str
) -> None:
    named: list[str] = []

    def name_it(request: Any) -> str:
        """Name."""
        named.append(request.mcp.ask("Which name?", str, key="name"))
        return f"named {named[-1]}"

    tools(name_it, destructive=False, task=True)
    client = await begin(token, version, capabilities={"elicitation": {}})
    last = await client.result("tools/call", {"name": "name_it", "arguments": {}})
    assert named == []
    assert json.loads(last["content"][0]["text"])["input_required"]
    assert await states() == ["completed"]


@pytest.mark.parametrize("version", [version for version in OLD if version >= "2025-06-18"])
async def test_what_is_asked_before_the_work_is_asked_of_a_session(token: str, tools: Any, version: str) -> None:
    wiped: list[int] = []

    def wipe(request: Any) -> str:
        """Wipe."""
        wiped.append(1)
        return "wiped"

    tools(wipe, destructive=True, task=True)
    client = await begin(token, version, capabilities={"elicitation": {}})
    stream = await client.call("wipe")
    question = await stream.message()
    assert question["method"] == "elicitation/create"
    assert await states() == []
    await client.answer(question["id"], {"action": "accept", "content": {"_confirm": "yes"}})
    assert text_of((await stream.rest())[-1]) == "wiped"
    assert wiped == [1]
    assert await states() == ["completed"]
    stream = await client.call("wipe")
    await client.answer((await stream.message())["id"], {"action": "decline"})
    await stream.rest()
    assert wiped == [1]
    assert await states() == ["completed"]
