"""What the run costs: work and queries of a call, and how far each resource is used."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.calls import LEGACY

from . import services
from .client import Client, Stream, last_of
from .cluster import Cluster
from .people import STEPS, Run

SAMPLE_SECONDS = 5
# How often each call is made where its work is counted, after one that fills caches.
TIMES = 10
# Of all processors' time, so much has to be idle for a rate to say something of the app.
FREE = 0.25
# Fields of the first line of /proc/stat: idle and waiting for the disk.
IDLE, DISK = 4, 5


def queries() -> int:
    """Return how many statements the pooler has passed on."""
    return sum(
        int(row["total_query_count"]) for row in services.pooler_numbers("STATS") if row["database"] != "pgbouncer"
    )


def processor_times() -> tuple[float, float]:
    """Return the time of all processors, and how much of it they were idle."""
    fields = [float(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[IDLE - 1] + fields[DISK - 1]


class Work:
    """Counts the queries and the processor time of calls, one after the other, while nobody else calls."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self.cluster, self.run = cluster, run
        token = run.people[0]["token"]
        self.client = Client(run.http, token)
        self.session = Client(run.http, token, era=LEGACY)
        self.turn = 0

    def cpu(self) -> float:
        """Return the processor time of the web workers."""
        return sum(machine.web.cpu_seconds() for machine in self.cluster.machines)

    async def measure(self) -> dict[str, dict[str, float]]:
        """Return by the kind of call its queries and the milliseconds of work of the web workers."""
        await self.session.initialize()
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "tools/list": lambda: self.client.result("tools/list"),
            "get_record": lambda: self.client.call("get_record", uri="django://ledger/row/1"),
            "query_records, 50 rows": lambda: self.client.call("query_records", model="ledger.row", limit=50),
            "aggregate_records": lambda: self.client.call(
                "aggregate_records", model="ledger.row", aggregates=["count"]
            ),
            "create_record with a key": self.create,
            f"a call of a session with {STEPS} messages": self.count,
        }
        found = {}
        idle = await self.rate_of_idling()
        for name, call in calls.items():
            # Each worker has caches of its own.
            for _ in range(8):
                await call()
            await asyncio.sleep(0.5)
            before, cpu, began = queries(), self.cpu(), time.monotonic()
            for _ in range(TIMES):
                await call()
            # What is stored after the answer counts too.
            await asyncio.sleep(1)
            seconds = time.monotonic() - began
            spent = queries() - before - idle * seconds
            found[name] = {
                "queries": round(spent / TIMES, 1),
                "web_worker_ms": round((self.cpu() - cpu) / TIMES * 1000, 1),
            }
        return found

    async def rate_of_idling(self) -> float:
        """Return the queries a second while nobody calls: workers of tasks look whether there is something to do."""
        before = queries()
        await asyncio.sleep(5)
        return (queries() - before) / 5

    async def create(self) -> None:
        """Create an entry."""
        self.turn += 1
        key = f"work-{self.turn}"
        self.run.book.expect("write", key, 1)
        await self.client.call("create_record", model="ledger.entry", values={"key": key}, idempotency_key=key)

    async def count(self) -> None:
        """Make a call that streams."""
        params = {"name": "count_to", "arguments": {"steps": STEPS, "pause": 0.02}, "_meta": {"progressToken": "work"}}
        async with self.session.post(self.session.message("tools/call", params)) as response:
            await last_of(Stream(response))


class Samples:
    """Looks every few seconds at what may run out first, and keeps the most of each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.most: dict[str, float] = {}
        self.began = processor_times()
        self.load = os.getloadavg()[0]
        self.memory: list[float] = []

    async def keep(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(SAMPLE_SECONDS)

    def see(self, name: str, value: float) -> None:
        """Remember the most of a number."""
        self.most[name] = max(self.most.get(name, 0), value)

    def look(self) -> None:
        """Look once."""
        self.memory.append(sum(machine.web.resident_mib() for machine in self.cluster.machines))
        self.see("MiB of a host's web workers", max(machine.web.resident_mib() for machine in self.cluster.machines))
        try:
            pools = [row for row in services.pooler_numbers("POOLS") if row["database"] != "pgbouncer"]
        except Exception:
            # It is away, or restarted at this moment.
            return
        for row in pools:
            self.see(f"connections of the pooler to {row['database']}, of {services.POOL}", int(row["sv_active"]))
            self.see(f"clients of the pooler that wait for {row['database']}", int(row["cl_waiting"]))
            self.see(f"seconds that they wait for {row['database']}", int(row["maxwait"]))
        clients = sum(int(row["cl_active"]) + int(row["cl_waiting"]) for row in pools)
        self.see(f"clients of the pooler, of {services.POOLER_CLIENTS}", clients)

    def summary(self) -> dict[str, Any]:
        """Return what was seen."""
        whole, idle = (now - then for now, then in zip(processor_times(), self.began, strict=True))
        free = idle / whole if whole else 0
        third = max(len(self.memory) // 3, 1)
        return {
            "processors": os.cpu_count(),
            "idle_part": round(free, 2),
            "cores_are_free": free >= FREE,
            "load_at_the_beginning": round(self.load, 1),
            "web_mib_first_third": round(sum(self.memory[:third]) / third) if self.memory else 0,
            "web_mib_last_third": round(sum(self.memory[-third:]) / third) if self.memory else 0,
            "most": {name: round(value, 1) for name, value in sorted(self.most.items())},
            "cpu_seconds": {program.name: round(program.cpu_seconds(), 1) for program in self.cluster.programs()},
        }
