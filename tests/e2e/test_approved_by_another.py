"""Calls that wait for another person, through official clients of both eras, on two workers and PostgreSQL."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.types import ElicitResult

from tests.e2e.orm import Orm, new_postgres_database, orm_of
from tests.e2e.python_client import TIMEOUT
from tests.e2e.servers import Server, manage, prepare_example, run_example
from tests.e2e.test_confirmed_by_a_person import ERAS, TOKEN, connected

PROGRAM = Path(__file__).parent / "node" / "calls.mjs"
# Refunds above 100 wait for the manager, and so do orders with a note.
RULES = """
from mcp_django.models import ApprovalRule
ApprovalRule.objects.create(
    name="Notes", labels=["shop.order"], kinds=["update"], condition={"after": {"note__startswith": "by"}},
    permission="shop.approve_refund",
)
"""
COUNT = """
from django.contrib.admin.models import LogEntry
from mcp_django.models import CallEntry, Change
change = Change.objects.get(pk={})
decided = CallEntry.objects.filter(method="console/approve", time__gte=change.decided)
print(CallEntry.objects.filter(call_id=change.call).count(), decided.count())
print(LogEntry.objects.filter(action_time__gte=change.decided).count())
"""
APPROVALS = "/admin/mcp_django/callentry/approvals/"
# Clients by the language of their SDK, and the revision that they speak.
PYTHON = [("python", era) for era in ERAS]
NODE = [("client2", "legacy"), ("client2", "auto"), ("sdk1", "")]


@pytest.fixture(scope="module")
def server(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("approved")
    with new_postgres_database(postgres) as url:
        prepared = prepare_example(directory / "prepared", url, 2_000_000)
        application = "example_project.asgi:application"
        with run_example(prepared, directory / "served", "uvicorn-workers", application, url=url) as found:
            manage(found, "create_rules")
            manage(found, "shell", "-v", "0", "-c", RULES)
            yield found


@pytest.fixture(scope="module")
def orm(server: Server) -> Iterator[Orm]:
    with orm_of(server) as evaluate:
        yield evaluate


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return manage(server, "mcp_token", "admin").split()[-1]


class Caller:
    """One official client, of whichever language, that accepts whatever it is asked."""

    def __init__(self, server: Server, token: str, client: str, mode: str, node: str) -> None:
        self.server = server
        self.token = token
        self.client = client
        self.mode = mode
        self.node = node

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool once, in a session of its own, and return the result; the client must not be asked."""
        if self.client == "python":
            return await self._call_by_python(name, arguments)
        task = {"client": self.client, "mode": self.mode, "url": self.server.url, "token": self.token}
        text = json.dumps({**task, "calls": [{"name": name, "arguments": arguments}]})
        command = [self.node, str(PROGRAM), text]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["asked"] == []
        [result] = told["results"]
        assert not result.get("isError"), result
        return dict(result["structuredContent"])

    async def _call_by_python(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked: list[Any] = []

        async def accept(context: Any, params: Any) -> ElicitResult:
            asked.append(params)
            return ElicitResult(action="accept")

        async with connected(self.server, self.token, self.mode, elicitation_callback=accept) as client:
            result = await client.call_tool(name, arguments)
        assert asked == []
        assert not result.is_error, result.content
        assert result.structured_content is not None
        return result.structured_content


@pytest.fixture(params=[*PYTHON, *NODE], ids=lambda param: "-".join(filter(None, param)))
def caller(request: pytest.FixtureRequest, server: Server, token: str) -> Caller:
    client, mode = request.param
    node = "" if client == "python" else request.getfixturevalue("node")
    return Caller(server, token, client, mode, node)


def decide(url: str, **answer: str) -> str:
    """Sign in as the manager on the way to the page of a request, decide, and return what it then shows."""
    with httpx2.Client(timeout=TIMEOUT, follow_redirects=True) as browser:
        page = browser.get(url)
        assert "/login/" in str(page.url)
        form = {"username": "manager", "password": "manager", "csrfmiddlewaretoken": TOKEN.findall(page.text)[0]}
        page = browser.post(str(page.url), data=form, headers={"Referer": str(page.url)})
        assert str(page.url) == url
        sent = {"csrfmiddlewaretoken": TOKEN.findall(page.text)[0], "request": url.rpartition("=")[2], **answer}
        return browser.post(url.partition("?")[0], data=sent, headers={"Referer": url}).text


async def test_a_call_waits_is_approved_and_taken_back(caller: Caller, orm: Orm) -> None:
    note = f"by {caller.client} {caller.mode}".strip()
    key = orm("Order.objects.filter(note='').order_by('pk')[0].pk")
    arguments = {"model": "shop.order", "pk": str(key), "values": {"note": note}}
    waiting = await caller.call("update_record", **arguments)
    number = waiting["change"]
    assert waiting["state"] == "waiting"
    assert waiting["rule"] == "Notes"
    assert waiting["url"] == f"{caller.server.origin}{APPROVALS}?request={number}"
    assert waiting["message"].startswith(f"Request {number} waits for somebody with 'Can approve refunds' until ")
    assert waiting["difference"]["changed"]["shop.order"][0]["columns"]["note"] == ["", note]
    assert (await caller.call("update_record", **arguments))["change"] == number
    assert orm(f"Order.objects.get(pk={key}).note") == ""
    assert "approved and done" in await asyncio.to_thread(decide, waiting["url"], yes="1")
    assert orm(f"Order.objects.get(pk={key}).note") == note
    done = await caller.call("update_record", **arguments)
    assert (done["updated"], done["change"]) == (True, number)
    undone = await caller.call("undo_change", change=number)
    assert undone["undone"] is True
    assert orm(f"Order.objects.get(pk={key}).note") == ""


async def test_a_refund_of_much_waits_and_one_of_little_does_not(caller: Caller, orm: Orm) -> None:
    key = orm("Order.objects.filter(status='delivered', total__gt=200).order_by('pk')[0].pk")
    form = {"amount": "99999.00", "reason": "damaged"}
    arguments = {"model": "shop.order", "action": "refund", "pks": [str(key)], "form": form}
    waiting = await caller.call("run_action", **arguments, reason="The customer has sent photographs.")
    assert waiting["rule"] == "Refunds above 100"
    page = await asyncio.to_thread(decide, waiting["url"], no="1", word="Ask for the parcel first.")
    assert "Ask for the parcel first." in page
    assert "The customer has sent photographs." in page
    assert orm(f"Order.objects.get(pk={key}).status") == "delivered"
    again = await caller.call("run_action", **arguments, idempotency_key=f"again {caller.client} {caller.mode}")
    assert again["change"] != waiting["change"]
    assert "approved and done" in await asyncio.to_thread(decide, again["url"], yes="1")
    assert orm(f"Order.objects.get(pk={key}).status") == "refunded"


async def test_twenty_people_at_two_workers_make_it_once(server: Server, token: str, orm: Orm) -> None:
    caller = Caller(server, token, *PYTHON[0], node="")
    key = orm("Order.objects.filter(note='').order_by('-pk')[0].pk")
    waiting = await caller.call("update_record", model="shop.order", pk=str(key), values={"note": "by twenty"})
    pages = await asyncio.gather(*(asyncio.to_thread(decide, waiting["url"], yes="1") for _ in range(20)))
    assert all("approved and done" in page for page in pages)
    rows = manage(server, "shell", "-v", "0", "-c", COUNT.format(waiting["change"])).split()
    # One run, one decision, one line in the history of the row.
    assert rows == ["1", "1", "1"]
    assert orm(f"Order.objects.get(pk={key}).note") == "by twenty"
