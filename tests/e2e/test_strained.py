"""Calls that take their database for themselves, and clients that do not read: nobody else pays for either."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.cases import whole
from tests.e2e.browser import obtain_token
from tests.e2e.database import Database
from tests.e2e.servers import Server, run_example
from tests.e2e.workers.client import MODERN, Client

# Seconds: longer than the database lets a writer wait.
HELD = 1.5


@pytest.fixture(scope="module", params=[("fast", "uvicorn")], ids="-".join)
def server(
    request: pytest.FixtureRequest, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    road, program = request.param
    directory = tmp_path_factory.mktemp("strained")
    settings = "tests.e2e.strained.settings"
    with run_example(prepared, directory, program, f"tests.e2e.roads.{road}:application", settings) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    token = await asyncio.to_thread(obtain_token, server.origin, "admin")
    async with httpx2.AsyncClient() as http:
        found = Client(http, token)
        await found.initialize(server.url)
        yield found


def prices(server: Server) -> list[int]:
    rows = Database(server.database).rows("SELECT price FROM shop_product ORDER BY id")
    return [round(price * 100) for (price,) in rows]


def call(tool: str) -> dict[str, Any]:
    return {"name": tool, "arguments": {"seconds": HELD}, "_meta": {"progressToken": "p"}}


async def test_a_call_that_holds_the_write_lock_tells_its_progress_while_it_runs(
    client: Client, server: Server
) -> None:
    before, started, times = prices(server), time.monotonic(), []
    async with client.stream(server.url, "tools/call", call("raise_prices")) as stream:
        while "result" not in (message := await stream.message()):
            assert message["method"] == "notifications/progress", message
            times.append(time.monotonic() - started)
    assert message["result"]["content"][0]["text"] == f"raised {len(before)}"
    assert times[0] < HELD / 2
    assert len(times) == 15
    assert prices(server) == [price + 100 for price in before]


async def test_the_answer_to_a_call_that_held_the_write_lock_is_there_for_who_comes_back(
    client: Client, server: Server
) -> None:
    before = prices(server)
    async with client.stream(server.url, "tools/call", call("raise_prices")) as stream:
        await stream.message()
        last_id = stream.last_id
    # Once while the call still runs, and once when all that is left of it is stored.
    for _ in range(2):
        async with client.listen(server.url, last_id) as stream:
            messages = await stream.rest()
        assert messages[-1]["result"]["content"][0]["text"] == f"raised {len(before)}"
        assert [message["params"]["progress"] for message in messages[:-1]] == list(range(2, 16))
    assert prices(server) == [price + 100 for price in before]


async def test_a_call_beside_one_that_holds_the_write_lock_is_answered_too(client: Client, server: Server) -> None:
    """Nothing of it can be stored before the other one is over."""
    async with client.stream(server.url, "tools/call", call("raise_prices")) as holding:
        await holding.message()
        async with client.stream(server.url, "tools/call", call("look_around")) as beside:
            progress = await beside.message()
            messages = await beside.rest()
        assert progress["params"]["progress"] == 1
        assert messages[-1]["result"]["content"][0]["text"] == "looked"
        assert "result" in (await holding.rest())[-1]


# Clients that do not read

# Each road and each server once, and then the rest.
ROADS = [("fast", "uvicorn"), ("plain", "daphne"), *whole([("fast", "daphne"), ("plain", "uvicorn")])]
# Seconds after which a client that reads nothing is cut off, with those that a loaded machine takes.
CUT_OFF_WITHIN = 40


def ask_and_never_read(
    stack: ExitStack, server: Server, client: Client, method: str, params: Any, times: int = 1
) -> None:
    """Make calls, one after the other, on a connection of its own, whose answers stay where they are."""
    message = client.message(method, params)
    body = json.dumps(message).encode()
    name = params.get("name") or params.get("uri")
    headers = client.headers(Mcp_Method=method, Mcp_Name=name, Host=server.origin.removeprefix("http://"))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    address = urlsplit(server.origin)
    connection = stack.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((address.hostname, address.port))
    connection.sendall((f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body) * times)


async def strain(server: Server, client: Client) -> dict[str, int]:
    name = {"name": "strain", "arguments": {}}
    headers = client.headers(Mcp_Method="tools/call", Mcp_Name="strain")
    message = client.message("tools/call", name)
    response = await client.http.post(server.url, json=message, headers=headers, timeout=30)
    found: dict[str, int] = response.json()["result"]["structuredContent"]
    return found


@pytest.mark.parametrize("server", ROADS, indirect=True, ids="-".join, scope="module")
@pytest.mark.parametrize(
    ("method", "params", "clients", "mib"),
    [
        ("tools/call", {"name": "chatter", "arguments": {"seconds": 12}, "_meta": {"progressToken": "p"}}, 24, 60),
        # All of the answers are made at once, of 5 MB each and in several copies, before any of them has to wait. They
        # take 550 MiB and more where nothing bounds what is held (MAX_HELD), and under 400 where something does.
        ("resources/read", {"uri": "strained://large"}, 60, 470),
    ],
    ids=["progress", "answer"],
)
async def test_clients_that_never_read_are_cut_off_and_cost_little(
    server: Server, method: str, params: Any, clients: int, mib: int
) -> None:
    token = await asyncio.to_thread(obtain_token, server.origin, "admin")
    async with httpx2.AsyncClient() as http:
        client = Client(http, token, version=MODERN)
        before = await strain(server, client)
        most, deadline = before["mib"], time.monotonic() + CUT_OFF_WITHIN
        with ExitStack() as stack:
            for _ in range(clients):
                await asyncio.to_thread(ask_and_never_read, stack, server, client, method, params)
            await asyncio.sleep(2)
            while (now := await strain(server, client))["sockets"] > before["sockets"] + 2:
                most = max(most, now["mib"])
                assert time.monotonic() < deadline, now
                await asyncio.sleep(0.5)
    print(server.url, method, before, most)
    assert most - before["mib"] < mib


@pytest.mark.parametrize("server", [("fast", "daphne-hasty")], indirect=True, ids="-".join, scope="module")
async def test_a_client_that_reads_no_short_answer_is_cut_off_whatever_the_server_ends_before(server: Server) -> None:
    token = await asyncio.to_thread(obtain_token, server.origin, "admin")
    async with httpx2.AsyncClient() as http:
        client = Client(http, token, version=MODERN)
        before, deadline = await strain(server, client), time.monotonic() + CUT_OFF_WITHIN
        with ExitStack() as stack:
            asked = {"uri": "strained://piece"}
            await asyncio.to_thread(ask_and_never_read, stack, server, client, "resources/read", asked, times=100)
            # More than the system takes for a client is on its way by then.
            await asyncio.sleep(2)
            while (now := await strain(server, client))["sockets"] > before["sockets"]:
                assert time.monotonic() < deadline, now
                await asyncio.sleep(0.5)
