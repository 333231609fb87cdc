"""Calls that become tasks, made by the clients of others: two that know tasks, and one that does not.

The server is the example project on two web workers, which run the tasks on their own threads. Each request reaches
whichever of them is free.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cases import whole
from tests.e2e.downloads import Downloader
from tests.e2e.matrix.clients import ENVIRONMENT, install
from tests.e2e.servers import Server, manage, run_example

HERE = Path(__file__).parent
APPLICATION, SETTINGS = "example_project.asgi:application", "tests.e2e.tasks.settings"
TIMEOUT = 120
# Seconds within which a worker hears that its task was cancelled.
TOLD_WITHIN = 10
ANSWERS = {"name": "Ada", "pieces": 3}
# The environment of FastMCP has seventy packages: `make test` is not to wait for them.
CLIENTS = ["ext-tasks", *whole(["fastmcp"])]


@pytest.fixture(scope="module")
def shop(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("tasks")
    with run_example(prepared, directory, "uvicorn-workers", APPLICATION, SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def token(shop: Server) -> str:
    return manage(shop, "mcp_token", "admin").split()[0]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tools say what they do."""
    return tmp_path_factory.mktemp("notes")


def calls(notes: Path, client: str) -> dict[str, Any]:
    """What a client is to call."""
    places = {name: str(notes / f"{client}-{name}") for name in ("counted", "asked", "cancelled")}
    return {
        "counted": {"tool": "count", "params": {"place": places["counted"]}},
        "asked": {"tool": "ask_on_the_way", "params": {"place": places["asked"]}, "answers": ANSWERS},
        "failed": {"tool": "fail", "params": {}},
        "cancelled": {"tool": "count", "params": {"place": places["cancelled"], "steps": 200}, "cancel": True},
        "stock": {"tool": "take_stock", "params": {"seconds": 0.001}},
    }


def send(command: list[str], shop: Server, token: str, calls: Any) -> Any:
    """Let a program make calls; return what it tells."""
    given = json.dumps({"url": shop.url, "token": token, "calls": calls})
    done = subprocess.run([*command, given], env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ext_tasks(node: str) -> list[str]:
    return [node, str(HERE / "node" / "tasks.mjs")]


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def told(client: str, node: str, shop: Server, token: str, notes: Path) -> Any:
    """What the client tells of its calls."""
    if client == "fastmcp":
        # Without the directory of the program, which has modules with the names of packages.
        command = [str(install("fastmcp-4.1.4")), "-P", str(HERE / "tasks" / "fastmcp_client.py")]
    else:
        command = [node, str(HERE / "node" / "tasks.mjs")]
    return send(command, shop, token, calls(notes, client))


def text_of(call: Any) -> str:
    return call["result"]["content"][0]["text"]


def test_a_call_becomes_a_task_and_its_result_arrives(told: Any) -> None:
    counted = told["counted"]
    assert counted["kind"] == "task"
    assert (counted["statuses"][0], counted["statuses"][-1]) == ("working", "completed")
    assert text_of(counted) == "counted to 4"
    assert counted["ttl"] > 60_000


def test_how_far_it_is_is_told(told: Any) -> None:
    messages = told["cancelled"]["messages"]
    assert messages
    assert all(message.endswith(" of 200") for message in messages)


def test_what_is_asked_on_the_way_is_answered(told: Any, client: str, notes: Path) -> None:
    asked = told["asked"]
    assert asked["asked"] == ["Who is it for?", "How many for Ada?"]
    assert "input_required" in asked["statuses"]
    assert text_of(asked) == "3 for Ada"
    assert (notes / f"{client}-asked").read_text().count("done") == 1


def test_an_error_of_the_tool_is_a_result(told: Any) -> None:
    failed = told["failed"]
    assert failed["outcome"] == "completed"
    assert failed["result"]["isError"]
    assert text_of(failed) == "There is nothing to do."


def test_a_cancelled_task_stops(told: Any, client: str, notes: Path) -> None:
    assert told["cancelled"]["outcome"] == "cancelled"
    place = notes / f"{client}-cancelled"
    deadline = time.monotonic() + TOLD_WITHIN
    while "stopped" not in place.read_text():
        assert time.monotonic() < deadline, place.read_text()
        time.sleep(0.1)


def test_the_shop_takes_stock(told: Any) -> None:
    assert told["stock"]["kind"] == "task"
    assert len(json.loads(text_of(told["stock"]))["result"]) == 10


@pytest.mark.whole
def test_a_killed_worker_leaves_its_task_to_another_one(
    ext_tasks: list[str], shop: Server, token: str, notes: Path
) -> None:
    place = notes / "killed"
    call = {"tool": "count", "params": {"place": str(place), "steps": 10}, "leave": True}
    left = send(ext_tasks, shop, token, {"call": call})["call"]
    deadline = time.monotonic() + TOLD_WITHIN
    while not place.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first = place.read_text().split()[0]
    os.kill(int(first), signal.SIGKILL)
    # It is taken by who polls when the lease of the dead one has ended.
    resumed = send(ext_tasks, shop, token, {"call": {"resume": left["reference"]}})["call"]
    assert text_of(resumed) == "counted to 10"
    begun, again, done = place.read_text().splitlines()
    assert begun == f"{first} begun"
    assert again.endswith(" begun")
    assert done == again.replace("begun", "done")
    assert again.split()[0] != first


# A client that knows no tasks


@pytest.mark.parametrize("mode", ["auto", *whole(["legacy"])])
async def test_who_knows_no_tasks_waits_for_the_result_and_then_asks_for_it(
    shop: Server, token: str, notes: Path, mode: str
) -> None:
    heard: list[Any] = []

    async def tell(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total))

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT) as http,
        Client(streamable_http_client(shop.url, http_client=http), mode=mode) as client,
    ):
        place = str(notes / f"plain-{mode}")
        short = await client.call_tool("count", {"place": place, "steps": 3})
        assert short.content[0].text == "counted to 3"
        long = await client.call_tool("count", {"place": place, "steps": 12}, progress_callback=tell)
        assert [total for _, total in heard] == [12] * len(heard)
        assert heard
        task = long.structured_content
        assert task["state"] == "working"
        async with asyncio.timeout(TIMEOUT):
            while (long := await client.call_tool("get_task", {"task": task["task"]})).structured_content:
                await asyncio.sleep(0.5)
        assert long.content[0].text == "counted to 12"


async def test_a_result_that_is_too_long_is_a_file_for_the_python_client_and_its_user(shop: Server, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT) as http,
        Client(streamable_http_client(shop.url, http_client=http), mode="2026-07-28") as client,
    ):
        result = await client.call_tool("recite", {})
        told = result.structured_content["result_file"]
        (link,) = (block for block in result.content if block.type == "resource_link")
        (contents,) = (await client.read_resource(str(link.uri))).contents
    assert not result.is_error
    assert told["lines"] == 10_000
    assert contents.text.splitlines()[-1] == "line 9999"
    found = await asyncio.to_thread(Downloader("admin").open, told["url"])
    assert found.text == contents.text
    assert (await asyncio.to_thread(Downloader("auditor").open, told["url"])).status_code == 404
