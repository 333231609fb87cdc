"""What the manifest demands of the standard streams (`requirements/stdio.toml`)."""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from channels.db import database_sync_to_async
from django.db import connection

from mcp_django import site
from mcp_django.subscriptions.model_signals import notify_list_changed
from mcp_django.transports.stdio.server import StdioServer
from tests.configured import configured
from tests.factories import make_superuser
from tests.protocol_messages import META

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# A program whose tool and its child write to standard output, serving until its input ends.
PROGRAM = """
import os, subprocess, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
import django
django.setup()
from django.core.management import ManagementUtility
from mcp_django import site
from mcp_django.subscriptions import notifier

def shout(request) -> str:
    "Write to everything there is."
    print("printed by a tool")
    os.write(1, b"written by a tool\\n")
    subprocess.run(["echo", "written by a child"], check=True)
    return "first line\\nsecond line\\r\\nthird\\u2028line"

site.add_tool(shout, read_only=True)
ManagementUtility(["manage.py", "mcp_stdio", "--user", "root"]).execute()
"""


class Client:
    """A client at the other ends of the server's pipes."""

    def __init__(self):
        self.input, self.to_server = os.pipe()
        self.from_server, self.output = os.pipe()
        self.lines = os.fdopen(self.from_server, "rb")
        self.ids = itertools.count(1)

    def send(self, message):
        os.write(self.to_server, json.dumps(message).encode() + b"\n")

    def call(self, method, params=None):
        identifier = next(self.ids)
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params or {}})
        return identifier

    async def next(self):
        line = await asyncio.wait_for(asyncio.to_thread(self.lines.readline), 10)
        return json.loads(line) if line else None

    async def answer(self, identifier):
        """The answer to a request, and what came before it."""
        found = []
        while True:
            found.append(await self.next())
            if found[-1].get("id") == identifier and "method" not in found[-1]:
                return found[-1], found[:-1]

    def end(self):
        if self.to_server is not None:
            os.close(self.to_server)
            self.to_server = None


@contextlib.asynccontextmanager
async def serving(user):
    """A server that runs until the block ends."""
    client = Client()
    server = StdioServer(site, user, ["mcp:write"], (client.input, client.output))
    task = asyncio.ensure_future(server.run())
    try:
        yield client, task
    finally:
        client.end()
        await asyncio.wait_for(task, 10)
        os.close(client.output)
        client.lines.close()
        os.close(client.input)


@pytest.fixture
def user(transactional_db):
    return make_superuser()


def modern(**params):
    return params | {"_meta": META}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_message_is_one_line_whatever_is_in_it(user, tools, era):
    def speak(request) -> str:
        """Speak."""
        return "first\nsecond\r\nthird\u2028\u0085fourth"

    tools(speak, read_only=True)
    async with serving(user) as (client, _):
        if era == "legacy":
            await client.answer(client.call("initialize", HELLO))
        params = {"name": "speak", "arguments": {}}
        answer, _ = await client.answer(client.call("tools/call", modern(**params) if era == "modern" else params))
        assert answer["result"]["content"][0]["text"].startswith("first\nsecond\r\nthird")
        assert (await client.answer(client.call("tools/list", modern())))[0]["result"]["tools"]


def test_nothing_but_messages_reaches_standard_output(user):
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "shout", "arguments": {}}},
    ]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(connection.settings_dict["NAME"])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # The end of the input is the end of the program, but not before the tool has answered.
    program.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in requests))
    program.stdin.flush()
    lines = [program.stdout.readline() for _ in range(2)]
    rest, errors = program.communicate(timeout=30)
    assert program.returncode == 0, errors
    messages = [json.loads(line) for line in lines + rest.splitlines()]
    assert {message["jsonrpc"] for message in messages} == {"2.0"}
    answers = {message["id"]: message for message in messages if "id" in message}
    assert answers[2]["result"]["content"][0]["text"] == "first line\nsecond line\r\nthird\u2028line"
    for text in (b"printed by a tool", b"written by a tool", b"written by a child"):
        assert text in errors


async def test_the_server_ends_with_its_input(user, tools):
    begun = asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        begun.set()
        await asyncio.sleep(60)
        return "waited"

    tools(wait, read_only=True)
    async with serving(user) as (client, task):
        client.call("tools/call", modern(name="wait", arguments={}))
        client.call("subscriptions/listen", modern(notifications={"toolsListChanged": True}))
        await asyncio.wait_for(begun.wait(), 20)
        client.end()
        await asyncio.wait_for(asyncio.shield(task), 10)


async def test_a_call_that_is_cancelled_stops_and_nothing_more_is_sent_for_it(user, tools):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        begun.set()
        try:
            for done in range(10_000):
                request.mcp.progress(done)
                await asyncio.sleep(0.02)
        finally:
            ended.set()
        return "waited"

    tools(wait, read_only=True)
    async with serving(user) as (client, _):
        params = {"name": "wait", "arguments": {}, "_meta": META | {"progressToken": "p"}}
        identifier = client.call("tools/call", params)
        await asyncio.wait_for(begun.wait(), 20)
        assert (await client.next())["method"] == "notifications/progress"
        told = {"requestId": identifier, "reason": "enough", "_meta": META}
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
        await asyncio.wait_for(ended.wait(), 20)
        _, _ = await client.answer(client.call("tools/list", modern()))
        # All that came after the tool had ended is the answer to another request.
        _, between = await client.answer(client.call("server/discover", modern()))
        assert between == []


async def test_no_requests_are_written_in_the_modern_era(user, tools):
    def ask(request) -> str:
        """Ask."""
        return request.mcp.ask("Which?", str, key="which")

    tools(ask, read_only=True)
    asking = META | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with serving(user) as (client, _):
        params = {"name": "ask", "arguments": {}, "_meta": asking}
        answer, before = await client.answer(client.call("tools/call", params))
        assert before == []
        assert answer["result"]["resultType"] == "input_required"
        assert answer["result"]["inputRequests"]["which"]["method"] == "elicitation/create"


@configured(QUESTION_TIMEOUT=0.05)
async def test_a_question_that_is_not_answered_in_time_is_cancelled_by_its_id(user, tools):
    def ask(request) -> str:
        """Ask."""
        return request.mcp.ask("Which?", str, key="which")

    tools(ask, read_only=True)
    async with serving(user) as (client, _):
        await client.answer(client.call("initialize", HELLO))
        answer, before = await client.answer(client.call("tools/call", {"name": "ask", "arguments": {}}))
        assert [message["method"] for message in before] == ["elicitation/create", "notifications/cancelled"]
        assert before[1]["params"]["requestId"] == before[0]["id"]
        assert answer["error"]["code"] == -32603
        late = {"jsonrpc": "2.0", "id": before[0]["id"], "result": {"action": "decline"}}
        client.send(late)
        assert (await client.answer(client.call("ping")))[1] == []


async def test_each_subscription_is_acknowledged_before_its_news_and_answered_at_its_end(user):
    async with serving(user) as (client, task):
        ids = [client.call("subscriptions/listen", modern(notifications={"toolsListChanged": True})) for _ in range(2)]
        found = [await client.next() for _ in ids]
        await database_sync_to_async(notify_list_changed)("tools")
        found += [await client.next() for _ in ids]
        client.end()
        while (message := await client.next()) is not None and len(found) < 20:
            found.append(message)
            if sum("result" in item for item in found) == 2:
                break
        for identifier in ids:
            own = [message for message in found if message.get("id", subscription_of(message)) == identifier]
            methods = [message.get("method") for message in own]
            assert methods[:2] == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
            assert own[-1]["jsonrpc"] == "2.0"
            assert own[-1]["result"]["resultType"] == "complete"
            assert own[-1]["result"]["_meta"][SUBSCRIPTION] == identifier
        await asyncio.wait_for(asyncio.shield(task), 10)


def subscription_of(message):
    return message.get("params", {}).get("_meta", {}).get(SUBSCRIPTION)


async def test_no_token_is_needed_and_the_user_is_the_operators_choice(user):
    async with serving(user) as (client, _):
        answer, _ = await client.answer(client.call("initialize", HELLO))
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        params = {"name": "list_models", "arguments": {}, "_meta": META | {"authorization": "Bearer nonsense"}}
        answer, _ = await client.answer(client.call("tools/call", params))
        assert "testapp.author" in answer["result"]["content"][0]["text"]
