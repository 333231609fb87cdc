import asyncio
import contextlib
import contextvars
import json
import threading
import time

import pytest
from asgiref.local import Local
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test import override_settings
from django.urls import get_script_prefix, get_urlconf, set_script_prefix, set_urlconf
from django.utils import timezone, translation

from mcp_django import site
from mcp_django.runtime import thread_pools
from mcp_django.runtime.thread_pools import Handover, _run_through, in_thread
from mcp_django.testing import MCPClient
from mcp_django.transports.http import streamable_http
from tests.asgi_client import Exchange, http_scope, nothing_reported
from tests.configured import configured
from tests.factories import make_book, make_superuser
from tests.testapp.admin import BookAdmin

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

MCP = {"BASE_URL": "http://testserver"}
# Seconds in which a call that nothing holds up is answered, on a loaded machine too.
SOON = 8


async def test_work_runs_in_a_thread_of_the_named_pool_with_the_callers_context():
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("mine")

    def work():
        seen = variable.get()
        variable.set("changed")
        return threading.current_thread().name, seen

    name, seen = await in_thread("reads", work)
    assert name.startswith("mcp-reads")
    assert seen == "mine"
    # H155: what a call sets is gone with it.
    assert variable.get() == "mine"
    assert (await in_thread("reads", variable.get)) == "mine"


@pytest.mark.parametrize("hands_over", [False, True])
async def test_threads_have_what_the_request_activated_and_leave_nothing_of_it(hands_over):
    local = Local()

    def seen():
        zone, language = timezone.get_current_timezone_name(), translation.get_language()
        return zone, language, get_script_prefix(), get_urlconf(), getattr(local, "user", None)

    def work():
        found = seen()
        timezone.activate("Africa/Cairo")
        translation.activate("fr")
        set_script_prefix("/other/")
        local.user = "eve"
        return found

    def handing_over():
        local.user = "ada"
        return Handover("queries", "user:1", work)

    async def request():
        timezone.activate("Asia/Tokyo")
        translation.activate("de")
        set_script_prefix("/sub/")
        set_urlconf("tests.sse_urls")
        local.user = "bob" if hands_over else "ada"
        # More than there are threads, so that some of the rest is done in another one.
        begun = [in_thread("door", handing_over) if hands_over else in_thread("reads", work) for _ in range(16)]
        assert {*(await asyncio.gather(*begun))} == {("Asia/Tokyo", "de", "/sub/", "tests.sse_urls", "ada")}

    before = await in_thread("reads", seen)
    await asyncio.create_task(request())
    assert {await in_thread("reads", seen) for _ in range(16)} == {before}


async def test_a_slow_tool_holds_up_no_read():
    release = threading.Event()
    slow = [in_thread("slow", release.wait) for _ in range(8)]
    try:
        assert await asyncio.wait_for(in_thread("reads", lambda: "read"), 5) == "read"
    finally:
        release.set()
        await asyncio.gather(*slow)


async def test_the_rest_of_work_is_done_in_the_same_thread_where_there_is_a_place():
    def work():
        first = threading.current_thread().name
        return Handover("queries", "user:1", lambda: (first, threading.current_thread().name))

    first, second = await in_thread("door", work)
    assert first == second


def test_without_lanes_the_rest_of_work_is_done_at_once():
    assert _run_through(lambda: Handover("queries", "user:1", lambda: "done")) == "done"


async def test_work_that_waited_has_what_the_context_came_to_hold():
    variable = contextvars.ContextVar("variable", default="none")
    release = threading.Event()
    filling = [in_thread("queries", release.wait) for _ in range(4)]

    def work():
        variable.set("found at the door")
        return Handover("queries", "user:1", variable.get)

    waiting = in_thread("door", work)
    release.set()
    assert await asyncio.wait_for(waiting, SOON) == "found at the door"
    await asyncio.gather(*filling)


async def test_those_who_wait_take_turns():
    done, release = [], threading.Event()
    pool = thread_pools.Pool("test", {"slow": thread_pools.Lane(1, share=1)}, threads=1)

    def submit(owner, work):
        job = thread_pools.Job("slow", owner, work)
        pool.submit(job)
        return job.future

    first = submit("user:1", lambda: release.wait(10))
    rest = [submit(who, lambda who=who: done.append(who)) for who in ["user:1", "user:1", "user:2", "user:1", "user:3"]]
    release.set()
    await asyncio.wait_for(asyncio.gather(first, *rest), SOON)
    assert done == ["user:1", "user:2", "user:3", "user:1", "user:1"]
    pool.executor.shutdown()


@configured(QUEUE_TIMEOUT=0.05)
async def test_work_that_found_no_place_in_time_is_never_done():
    begun, release = [], threading.Event()
    filling = [in_thread("slow", lambda: release.wait(10)) for _ in range(8)]
    late = in_thread("slow", lambda: begun.append("late"))
    with pytest.raises(thread_pools.Busy):
        await asyncio.wait_for(late, SOON)
    release.set()
    await asyncio.gather(*filling)
    assert await in_thread("slow", lambda: "next") == "next"
    assert begun == []


async def test_work_that_nobody_waits_for_any_more_is_never_done():
    begun, release = [], threading.Event()
    filling = [in_thread("slow", lambda: release.wait(10)) for _ in range(8)]
    given_up = in_thread("slow", lambda: begun.append("given up"))
    given_up.cancel()
    release.set()
    await asyncio.gather(*filling)
    assert await in_thread("slow", lambda: "next") == "next"
    assert begun == []


async def test_L206_work_in_djangos_own_thread_that_fails_when_it_was_given_up_is_reported_nowhere():
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        begun.set()
        release.wait(SOON)
        ended.set()
        raise LookupError("nobody asks any more")

    with nothing_reported():
        given_up = in_thread("slow", work, thread_sensitive=True)
        await asyncio.to_thread(begun.wait, SOON)
        given_up.cancel()
        release.set()
        # What comes after it in the same thread is over only when it is.
        assert await in_thread("slow", ended.is_set, thread_sensitive=True)
        del given_up


@configured(QUEUE_TIMEOUT=0.05)
async def test_L206_work_that_nobody_waits_for_is_done_however_long_it_finds_no_place():
    done, release = [], threading.Event()
    with nothing_reported():
        filling = [in_thread("streams", lambda: release.wait(10)) for _ in range(thread_pools.STREAM_THREADS)]
        thread_pools.in_background(lambda: done.append("work"))
        # What is asked for later has waited too long, and so has the work before it.
        with pytest.raises(thread_pools.Busy):
            await in_thread("streams", lambda: None)
        release.set()
        await asyncio.gather(*filling)
        assert await in_thread("streams", lambda: "next") == "next"
    assert done == ["work"]


# Users beside each other, over HTTP


class Caller:
    """A user with a token, who sends requests to the endpoint without waiting for the answers."""

    def __init__(self, name):
        self.authorization = MCPClient(make_superuser(name)).headers["Authorization"]
        self.name = name

    async def send(self, method="ping", **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.post(message, version="2025-11-25")

    async def post(self, message, version):
        asked = Exchange(
            streamable_http.as_application(site),
            http_scope(authorization=self.authorization, mcp_protocol_version=version),
        )
        await asked.send(message)
        return asked

    async def call(self, tool, **arguments):
        return await self.send("tools/call", name=tool, arguments=arguments)


async def answered(asked, timeout=SOON):
    status, headers, body = await asked.answer(timeout)
    return status, headers, json.loads(body)


async def result(asked):
    status, _, message = await answered(asked)
    assert status == 200, message
    return message["result"]


@pytest.fixture
def book(transactional_db):
    return make_book("Dune", price="5.00")


@pytest.fixture
def callers(book):
    with override_settings(MCP_DJANGO=MCP):
        yield [Caller("greedy"), Caller("second"), Caller("third")]


class Gate:
    """Where the work of the users named stands until it is opened."""

    def __init__(self):
        self.open, self.shut_for, self.inside = threading.Event(), {"greedy"}, []

    def pass_through(self, request):
        if request.user.username in self.shut_for:
            self.inside.append(request.user.username)
            assert self.open.wait(60)


async def eventually(condition):
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def standing(gate, asked):
    """Have calls stand at the gate while the block runs, and be answered afterwards."""
    try:
        yield
    finally:
        gate.open.set()
        for each in asked:
            with contextlib.suppress(TimeoutError):
                await each.answer(20)


@pytest.fixture
def gate(monkeypatch):
    """Queries of books stand at it."""
    gate, found = Gate(), BookAdmin.get_queryset

    def get_queryset(self, request):
        gate.pass_through(request)
        return found(self, request)

    monkeypatch.setattr(BookAdmin, "get_queryset", get_queryset)
    yield gate
    gate.open.set()


@pytest.fixture
def slow_tool(tools):
    gate = Gate()

    def ponder(request) -> str:
        gate.pass_through(request)
        return "done"

    tools(ponder)
    yield gate
    gate.open.set()


async def test_queries_of_one_user_hold_up_nobody_else(callers, book, gate):
    greedy, other, _ = callers
    asked = [await greedy.call("query_records", model="testapp.book") for _ in range(20)]
    async with standing(gate, asked):
        await eventually(lambda: gate.inside)
        nobody = Exchange(streamable_http.as_application(site), http_scope())
        await nobody.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert (await answered(nobody))[0] == 401
        assert (await result(await other.send("tools/list")))["tools"]
        assert await result(await other.send("ping")) == {}
        found = await result(await other.call("query_records", model="testapp.book", fields=["title"]))
        assert found["structuredContent"]["rows"][0][-1] == "Dune"
        written = await other.call("update_record", model="testapp.book", pk=book.pk, values={"title": "Dune II"})
        assert not (await result(written)).get("isError")
        # They have half of the threads, and not one more.
        assert gate.inside == ["greedy"] * 2


async def test_lists_and_refusals_wait_for_no_query_when_every_thread_has_one(callers, gate):
    greedy, second, third = callers
    gate.shut_for.add("second")
    asked = [await who.call("query_records", model="testapp.book") for who in [greedy, second] for _ in range(10)]
    async with standing(gate, asked):
        await eventually(lambda: len(gate.inside) == 4)
        nobody = Exchange(streamable_http.as_application(site), http_scope())
        await nobody.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert (await answered(nobody))[0] == 401
        for who in callers:
            assert (await result(await who.send("tools/list")))["tools"]
            assert await result(await who.send("ping")) == {}
        with configured(QUEUE_TIMEOUT=0.1):
            status, headers, message = await answered(await third.call("query_records", model="testapp.book"))
        assert (status, headers["retry-after"]) == (503, "5")
        assert "Repeat the call" in message["error"]["message"]
    assert not (await result(await third.call("query_records", model="testapp.book"))).get("isError")


async def test_slow_tools_of_one_user_hold_up_no_write_of_another(callers, book, slow_tool):
    greedy, other, _ = callers
    asked = [await greedy.call("ponder") for _ in range(20)]
    async with standing(slow_tool, asked):
        await eventually(lambda: len(slow_tool.inside) == 4)
        written = await other.call("update_record", model="testapp.book", pk=book.pk, values={"title": "Dune II"})
        assert not (await result(written)).get("isError")
        assert (await result(await other.call("ponder")))["content"][0]["text"] == "done"
        assert len(slow_tool.inside) == 4


async def test_a_write_that_was_told_to_be_repeated_is_not_done_afterwards(callers, slow_tool):
    greedy, second, third = callers
    slow_tool.shut_for.add("second")
    asked = [await who.call("ponder") for who in [greedy, second] for _ in range(4)]
    async with standing(slow_tool, asked):
        await eventually(lambda: len(slow_tool.inside) == 8)
        with configured(QUEUE_TIMEOUT=0.1):
            late = await third.call("create_record", model="testapp.author", values={"name": "Late"})
            status, _, message = await answered(late)
        assert status == 503
        assert "Nothing was done" in message["error"]["message"]
    assert not (await result(await third.call("ponder"))).get("isError")
    found = await third.call("query_records", model="testapp.author", search="Late")
    assert (await result(found))["structuredContent"]["rows"] == []


async def test_the_time_of_a_call_counts_its_waiting(callers, slow_tool):
    greedy, second, third = callers
    slow_tool.shut_for.add("second")
    asked = [await who.call("ponder") for who in [greedy, second] for _ in range(4)]
    async with standing(slow_tool, asked):
        await eventually(lambda: len(slow_tool.inside) == 8)
        with override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.3}):
            _, _, message = await answered(await third.call("ponder"))
        assert "longer than 0.3 s" in message["error"]["message"]


async def test_a_batch_ends_with_the_time_of_a_call(callers, slow_tool):
    greedy, _, _ = callers
    creating = {"name": "create_record", "arguments": {"model": "testapp.author", "values": {"name": "Late"}}}
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ponder", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": creating},
    ]
    with override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.5}):
        asked = await greedy.post(batch, version="2025-03-26")
        status, _, message = await answered(asked)
    assert (status, slow_tool.inside) == (503, ["greedy"])
    assert "longer than 0.5 s" in message["error"]["message"]
    slow_tool.open.set()
    # The thread that the batch had is free again, and has done nothing more of it.
    await eventually(lambda: thread_pools._pool("slow").lanes["slow"].free == 8)
    found = await greedy.call("query_records", model="testapp.author", search="Late")
    assert (await result(found))["structuredContent"]["rows"] == []


@pytest.mark.parametrize("ends", ["result", "error", "given up"])
async def test_what_runs_in_djangos_own_thread_can_be_waited_for_and_given_up(ends):
    gate = threading.Event()

    def work():
        gate.wait(SOON)
        if ends == "error":
            raise LookupError("no")
        return 1

    waiting = in_thread("queries", work, thread_sensitive=True)
    if ends == "given up":
        waiting.set_result(2)
        assert await waiting == 2
    gate.set()
    if ends == "error":
        with pytest.raises(LookupError):
            await waiting
    elif ends == "result":
        assert await waiting == 1


def test_half_of_one_thread_is_one():
    assert [thread_pools.half(number) for number in (1, 2, 4, 5)] == [1, 1, 2, 2]


# Connections that died while nobody used them


@pytest.fixture
def end_backends(transactional_db, monkeypatch):
    """What ends the connections that worker threads keep, and do not try before each use."""
    monkeypatch.setitem(connections.databases["default"], "CONN_MAX_AGE", None)
    monkeypatch.setitem(connections.databases["default"], "CONN_HEALTH_CHECKS", False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        own = cursor.fetchone()
    killer = connection.copy()
    killer.inc_thread_sharing()

    def end():
        with killer.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)",
                own,
            )
            return cursor.fetchone()[0]

    kept = []
    connection_created.connect(keep := lambda connection, **kwargs: kept.append(connection))
    yield end
    connection_created.disconnect(keep)
    for each in (*kept, killer):
        each.inc_thread_sharing()
        each.close()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no backends that end")
async def test_no_call_fails_because_its_connection_died_before_it_began(end_backends, callers, book):

    async def each_kind():
        asked = []
        for who in callers:
            asked += [await who.call("query_records", model="testapp.book") for _ in range(5)]
            asked.append(await who.call("update_record", model="testapp.book", pk=book.pk, values={"pages": 7}))
            asked.append(await who.send("tools/list"))
        return [await result(each) for each in asked]

    for _ in range(3):
        assert not any(found.get("isError") for found in await each_kind())
        assert await sync_to_async(end_backends)() > 1


async def listen(caller):
    scope = http_scope(
        authorization=caller.authorization, mcp_protocol_version="2026-07-28", mcp_method="subscriptions/listen"
    )
    asked = Exchange(streamable_http.as_application(site), scope)
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"notifications": {"resourceSubscriptions": ["django://testapp/book/1"]}, "_meta": meta}
    await asked.send({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
    return asked


async def test_subscriptions_of_one_user_hold_up_no_list(callers, gate):
    greedy, other, _ = callers
    asked = [await listen(greedy) for _ in range(8)]
    try:
        await eventually(lambda: gate.inside)
        assert (await result(await other.send("tools/list")))["tools"]
        assert await result(await other.send("ping")) == {}
        assert gate.inside == ["greedy"]
    finally:
        gate.open.set()
        for each in asked:
            await each.disconnect()
            await each.communicator.wait(20)


async def test_a_subscription_that_found_no_place_is_told_to_come_back(callers, gate, caplog):
    with configured(QUEUE_TIMEOUT=0.1):
        asked = [await listen(callers[0]) for _ in range(2)]
        answers = [asyncio.ensure_future(answered(each)) for each in asked]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    refused = done.pop()
    status, headers, _ = refused.result()
    assert (status, headers["retry-after"]) == (503, "5")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    gate.open.set()
    for each, answer in zip(asked, answers, strict=True):
        if answer is not refused:
            await each.disconnect()
            answer.cancel()
            await each.communicator.wait(20)


@pytest.fixture
def closed(monkeypatch):
    """The threads that close their connections, which are none here."""
    found = []

    class Connections:
        def all(self, **kwargs):
            return []

        def close_all(self):
            found.append(threading.get_ident())

    monkeypatch.setattr(thread_pools, "connections", Connections())
    return found


@pytest.mark.parametrize("lane", ["reads", "slow"])
async def test_each_thread_closes_its_own_connections(closed, lane):
    used = {await in_thread(lane, threading.get_ident), await sync_to_async(threading.get_ident)()}
    thread_pools.close_connections(SOON)
    assert used <= set(closed)
    assert len(closed) == len(set(closed))


async def test_no_connection_is_closed_that_a_thread_works_with(closed):
    works, goes_on = threading.Event(), threading.Event()

    def work():
        works.set()
        goes_on.wait(SOON)
        return threading.get_ident()

    idle, busy = await in_thread("reads", threading.get_ident), in_thread("slow", work)
    assert await asyncio.to_thread(works.wait, SOON)
    thread_pools.close_connections(0.2)
    at_once = list(closed)
    goes_on.set()
    assert await busy not in at_once
    assert idle in at_once


async def test_who_ends_its_work_in_time_closes_them_too(closed):
    works = threading.Event()

    def work():
        works.set()
        time.sleep(0.1)
        return threading.get_ident()

    busy = in_thread("slow", work)
    assert await asyncio.to_thread(works.wait, SOON)
    thread_pools.close_connections(SOON)
    assert await busy in closed
