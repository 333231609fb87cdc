"""`manage.py mcp_stdio` through the official clients, which start it themselves."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ElicitResult

from tests.cases import whole
from tests.e2e.python_client import call, every
from tests.e2e.servers import ROOT, environment

# The newest revision is what the first of them comes to as well.
MODES = ["auto", "legacy", *whole(["2026-07-28"])]
TIMEOUT = 60
PROGRAM = Path(__file__).parent / "node" / "stdio.mjs"
# Is added to a record and taken away again.
CATEGORY = {"name": "Stdio", "slug": "stdio"}


class Command(NamedTuple):
    """How a client starts the server."""

    arguments: list[str]
    environment: dict[str, str]
    log: Path


@pytest.fixture
def command(prepared: Path, tmp_path: Path) -> Iterator[Command]:
    """The command over a copy of the example project's data; it must not have logged a traceback by the end."""
    directory = copytree(prepared, tmp_path / "example")
    env = environment(
        "tests.e2e.settings",
        EXAMPLE_DATABASE=str(directory / "example.sqlite3"),
        EXAMPLE_MEDIA=str(directory / "media"),
    )
    log = tmp_path / "stderr"
    log.touch()
    yield Command([str(ROOT / "manage.py"), "mcp_stdio", "--user", "admin"], env, log)
    text = log.read_text(errors="replace")
    assert "Traceback" not in text, text


class Person:
    """Whoever sits at the client: agrees to everything."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: asyncio.Queue[Any] = asyncio.Queue()

    async def elicit(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        fields = params.requested_schema["properties"].items()
        # Of choices the first, which confirms.
        content = {name: field["enum"][0] if "enum" in field else True for name, field in fields}
        return ElicitResult(action="accept", content=content)

    async def hear(self, message: Any) -> None:
        self.told.put_nowait(message)


@asynccontextmanager
async def connect(command: Command, mode: str, person: Person | None = None) -> AsyncIterator[Client]:
    person = person or Person()
    server = StdioServerParameters(command=sys.executable, args=command.arguments, env=command.environment)
    callbacks = {"elicitation_callback": person.elicit, "message_handler": person.hear}
    async with asyncio.timeout(TIMEOUT), Client(server, mode=mode, **callbacks) as client:
        yield client


@pytest.mark.parametrize("mode", MODES)
async def test_the_python_client_lists_queries_reads_writes_and_is_asked(command: Command, mode: str) -> None:
    person = Person()
    async with connect(command, mode, person) as client:
        tools = {tool.name for tool in await every(client.list_tools, "tools")}
        assert {"query_records", "delete_record", "revenue_by_month"} <= tools
        page = await call(client, "query_records", model="shop.order", limit=5)
        assert len(page["rows"]) == 5
        contents = (await client.read_resource("django://shop/order")).contents[0]
        assert json.loads(contents.text)["rows"]
        made = await call(client, "create_record", model="shop.category", values=CATEGORY)
        await call(client, "delete_record", model="shop.category", pk=made["pk"])
        assert len(person.asked) == 1
        with pytest.raises(MCPError):
            await client.read_resource("django://shop/order/0")


async def test_the_python_client_listens(command: Command) -> None:
    async with connect(command, "auto") as client:
        made = await call(client, "create_record", model="shop.category", values=CATEGORY)
        uri = f"django://shop/category/{made['pk']}"
        async with client.listen(resource_subscriptions=[uri]) as subscription:
            assert subscription.honored.resource_subscriptions == [uri]
            await call(client, "update_record", model="shop.category", pk=made["pk"], values={"name": "Pipes"})
            assert (await anext(subscription)).uri == uri


async def test_the_python_client_subscribes(command: Command) -> None:
    person = Person()
    async with connect(command, "legacy", person) as client:
        made = await call(client, "create_record", model="shop.category", values=CATEGORY)
        uri = f"django://shop/category/{made['pk']}"
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(uri)
        await call(client, "update_record", model="shop.category", pk=made["pk"], values={"name": "Pipes"})
        told = await person.told.get()
        assert (told.method, str(told.params.uri)) == ("notifications/resources/updated", uri)


CLIENTS = [("sdk1", "", None), ("client2", "legacy", "2025-11-25"), ("client2", "auto", "2026-07-28")]


@pytest.mark.parametrize(("client", "mode", "version"), CLIENTS, ids=["sdk1", "client2-legacy", "client2-auto"])
def test_the_typescript_clients_list_read_write_and_are_asked(
    command: Command, node: str, client: str, mode: str, version: str | None
) -> None:
    start = {"command": sys.executable, "args": command.arguments, "env": command.environment, "cwd": str(ROOT)}
    given = json.dumps({"client": client, "mode": mode, **start})
    done = subprocess.run([node, str(PROGRAM), given], capture_output=True, text=True, timeout=TIMEOUT)
    command.log.write_text(done.stderr)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"query_records", "delete_record", "revenue_by_month"} <= set(told["tools"])
    assert told["orders"] > 0
    assert len(told["page"]["rows"]) == 5
    assert told["asked"] == 1
    assert told["refused"] in (-32002, -32602)
    assert told["version"] == version
