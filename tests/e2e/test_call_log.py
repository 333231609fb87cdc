"""The log of calls under load: two workers, one PostgreSQL, one Redis, and each call in it once, also after a kill."""

import asyncio
import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psycopg
import pytest

from tests.e2e.servers import HOST
from tests.e2e.test_workers import Cluster, Worker
from tests.e2e.test_workers import cluster as cluster

pytestmark = pytest.mark.e2e

# With CALL_LOG_CALLS=20000 the run takes minutes.
CALLS = int(os.environ.get("CALL_LOG_CALLS", "1500"))
# Calls of one request, every so many requests are batches, and connections.
BATCH = 40
SINGLES = 10
CONNECTIONS = 12
# Seconds of reads that a worker that is killed may take with it, and until all else is in the log.
LOST = 2.0
WRITTEN_WITHIN = 2.0
SLACK = 1.0
STORED_WITHIN = 30.0


@dataclass
class Call:
    """One call: its trace is how it is found in the log."""

    number: int
    outcome: str
    writes: bool
    params: dict[str, Any]
    trace: str = field(default_factory=lambda: uuid.uuid4().hex)
    answered: float = 0.0
    by: int = 0
    failed: bool = False

    def message(self) -> dict[str, Any]:
        meta = {"traceparent": f"00-{self.trace}-{self.trace[:16]}-01"}
        params = {**self.params, "_meta": meta}
        return {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}


def call(number: int) -> Call:
    """The calls are mixed: reads, writes, what a model gets wrong, and what is no call of a tool."""
    kind = number % 20
    if kind == 0:
        values = {"name": f"Made {number}", "slug": f"made-{number}"}
        return Call(number, "ok", True, tool("create_record", model="shop.category", values=values))
    if kind == 1:
        return Call(number, "tool_error", True, tool("update_record", model="shop.category", pk="0", values={}))
    if kind == 2:
        return Call(number, "tool_error", False, tool("query_records", model="shop.nothing"))
    if kind == 3:
        return Call(number, "error:-32602", False, tool("no_such_tool"))
    if kind < 12:
        return Call(number, "ok", False, tool("query_records", model="shop.category", limit=3))
    return Call(number, "ok", False, tool("which_worker"))


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def requests() -> Iterator[list[Call]]:
    """Single calls, and batches of the revision that has them."""
    numbers, count = iter(range(1, CALLS + 1)), 0
    while batch := list(islice(numbers, 1 if count % SINGLES else BATCH)):
        yield [call(number) for number in batch]
        count += 1


class Load:
    """Connections that send requests until there are none; one whose worker dies goes on with another worker."""

    def __init__(self, token: str, workers: list[Worker]) -> None:
        self.token, self.workers = token, workers
        self.waiting = requests()
        self.sent: list[Call] = []
        self.half_done = asyncio.Event()

    def request(self, calls: list[Call], port: int) -> bytes:
        messages = [item.message() for item in calls]
        body = json.dumps(messages if len(calls) > 1 else messages[0]).encode()
        headers = {
            "Host": f"{HOST}:{port}",
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "MCP-Protocol-Version": "2025-03-26",
            "Content-Length": str(len(body)),
        }
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""])
        return head.encode() + body

    async def run(self) -> None:
        await asyncio.gather(*(self.connection(number) for number in range(CONNECTIONS)))

    async def connection(self, number: int) -> None:
        reader: Any = None
        writer: Any = None
        while (calls := next(self.waiting, None)) is not None:
            self.sent += calls
            if len(self.sent) > CALLS / 2:
                self.half_done.set()
            try:
                if writer is None:
                    worker = self.workers[number % len(self.workers)]
                    reader, writer = await asyncio.open_connection(HOST, worker.port)
                writer.write(self.request(calls, worker.port))
                await self.answer(reader, calls, worker.port)
            except (OSError, asyncio.IncompleteReadError):
                # Nobody answers them.
                if writer is not None:
                    writer.close()
                writer = None
        if writer is not None:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, calls: list[Call], port: int) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        assert " 200 " in head, (head, body)
        answers = json.loads(body)
        assert len(answers if len(calls) > 1 else [answers]) == len(calls)
        failed = {found["id"] for found in (answers if len(calls) > 1 else [answers]) if "error" in found}
        for item in calls:
            item.answered, item.by, item.failed = time.monotonic(), port, item.number in failed


def logged(cluster: Cluster) -> list[tuple[str, str, bool]]:
    with psycopg.connect(cluster.env["EXAMPLE_DATABASE"]) as connection:
        query = "SELECT trace, outcome, writes FROM mcp_django_callentry WHERE trace <> ''"
        return connection.execute(query).fetchall()


def check(load: Load, rows: list[tuple[str, str, bool]], killed: int, when: float) -> None:
    counted = Counter(trace for trace, _, _ in rows)
    assert not [trace for trace, count in counted.items() if count > 1]
    found = {trace: (outcome, writes) for trace, outcome, writes in rows}
    answered = [item for item in load.sent if item.answered]
    may_be_lost = {
        item.trace for item in answered if item.by == killed and not item.writes and item.answered > when - LOST
    }
    missing = [item for item in answered if item.trace not in found and item.trace not in may_be_lost]
    assert not missing, missing[:3]
    wrong = [item for item in answered if item.trace in found and found[item.trace] != (item.outcome, item.writes)]
    assert not wrong, (wrong[:3], [found[item.trace] for item in wrong[:3]])


async def test_each_call_is_in_the_log_once_also_when_a_worker_is_killed(cluster: Cluster) -> None:
    token = cluster.token("admin")
    doomed, other = Worker(cluster, "doomed"), Worker(cluster, "other")
    try:
        load = Load(token, [doomed.wait(), other.wait()])
        working = asyncio.ensure_future(load.run())
        await asyncio.wait([working, asyncio.ensure_future(load.half_done.wait())], return_when="FIRST_COMPLETED")
        # Those that it has not answered go to the other one.
        load.workers = [other]
        killed = time.monotonic()
        doomed.kill()
        await working
        assert len(load.sent) == CALLS
        by = Counter(item.by for item in load.sent)
        assert min(by[doomed.port], by[other.port]) > CALLS / 10, by
        assert by[0] <= CONNECTIONS * BATCH
        await asyncio.sleep(WRITTEN_WITHIN + SLACK)
        rows = await asyncio.to_thread(logged, cluster)
        check(load, rows, doomed.port, killed)
    finally:
        doomed.kill()
        other.stop()


async def test_a_worker_that_stops_leaves_nothing_out(cluster: Cluster) -> None:
    """What waits is written when the server is told to stop, though uvicorn ends by the signal itself."""
    token = cluster.token("admin")
    worker = Worker(cluster, "stopped").wait()
    try:
        load = Load(token, [worker])
        load.waiting = iter([[call(20 * number + 4)] for number in range(200)])
        await load.run()
        worker.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(worker.process.wait, 30)
        check(load, await asyncio.to_thread(logged, cluster), 0, 0.0)
        assert all(item.answered for item in load.sent)
    finally:
        worker.stop()


async def test_a_locked_table_holds_no_write_up_and_gets_its_row_later(cluster: Cluster) -> None:
    token = cluster.token("admin")
    worker = Worker(cluster, "locked").wait()
    try:
        load = Load(token, [worker])
        writes = [call(20 * number) for number in range(300_000, 300_003)]
        load.waiting = iter([[item] for item in writes])
        with psycopg.connect(cluster.env["EXAMPLE_DATABASE"]) as holding:
            holding.execute("LOCK TABLE mcp_django_callentry")
            # Only the end of this block lets go of the table.
            await load.run()
            holding.rollback()
        # They would be stopped by CALL_TIMEOUT.
        assert all(item.answered and not item.failed for item in writes)
        async with asyncio.timeout(STORED_WITHIN):
            while not {item.trace for item in writes} <= {
                trace for trace, _, _ in await asyncio.to_thread(logged, cluster)
            }:
                await asyncio.sleep(0.1)
        check(load, await asyncio.to_thread(logged, cluster), 0, 0.0)
        saved = await asyncio.to_thread(slugs, cluster)
        assert {f"made-{item.number}" for item in writes} <= saved
    finally:
        worker.stop()


def slugs(cluster: Cluster) -> set[str]:
    with psycopg.connect(cluster.env["EXAMPLE_DATABASE"]) as connection:
        return {slug for (slug,) in connection.execute("SELECT slug FROM shop_category").fetchall()}
