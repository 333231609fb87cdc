"""What happens to the hosts and services in the course of a run, in turns."""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cluster import Cluster
from .network import CENTER
from .processes import wait_until
from .promises import Book
from .services import REDIS_PORT, answers

# Seconds for which a host is cut off, a service is away, and the replica stands still.
CUT_OFF = 20
AWAY = 3
STILL = 5
# Seconds before the first fault, and at the end of a run, in which nothing happens.
QUIET = 15


@dataclass
class Happened:
    """A fault: from when until when, and what is to be said of it."""

    name: str
    began: float
    ended: float
    said: str = ""


class Faults:
    """Each fault in turn, and again from the beginning."""

    def __init__(self, cluster: Cluster, book: Book, say: Callable[[str], None]) -> None:
        self.cluster, self.book, self.say = cluster, book, say
        self.happened: list[Happened] = []
        self.each: list[tuple[str, Callable[[], str]]] = [
            ("both hosts deployed anew, one after the other", self.deploy),
            ("a host cut off and back", self.cut_off),
            ("a web worker killed", self.kill_web),
            ("Redis restarted", self.restart_redis),
            ("a worker of tasks killed", self.kill_tasks),
            ("PgBouncer restarted", self.restart_pooler),
            ("the replica stands still", self.hold_replica),
        ]
        self.turn = 0

    async def run(self, seconds: float) -> None:
        """Let faults happen for so many seconds, evenly apart."""
        end = time.monotonic() + seconds
        await asyncio.sleep(min(QUIET, seconds / 10))
        gap = max(0.0, min(60.0, (seconds - QUIET) / len(self.each) - CUT_OFF))
        while end - time.monotonic() > CUT_OFF + QUIET:
            name, act = self.each[self.turn % len(self.each)]
            self.turn += 1
            self.say(f"{self.book.now():6.0f} s: {name}")
            found = Happened(name, self.book.now(), 0)
            self.happened.append(found)
            found.said = await asyncio.to_thread(act)
            found.ended = self.book.now()
            await asyncio.sleep(gap)
        await asyncio.sleep(max(0.0, end - time.monotonic()))

    def machine(self) -> Any:
        """Return the host whose turn it is."""
        return self.cluster.machines[self.turn // len(self.each) % len(self.cluster.machines)]

    def deploy(self) -> str:
        """Deploy the version of today on both hosts: from the version before the first time."""
        self.cluster.migrate(self.cluster.now)
        took = [self.cluster.deploy(machine, self.cluster.now) for machine in self.cluster.machines]
        return f"stopped in {' and '.join(f'{seconds:.1f}' for seconds in took)} s"

    def cut_off(self) -> str:
        """Cut a host off, and let it come back."""
        host = self.machine().host
        host.cut_off()
        time.sleep(CUT_OFF)
        host.join()
        return f"for {CUT_OFF} s"

    def kill_web(self) -> str:
        """Kill a web worker, and wait for the next one."""
        machine = self.machine()
        before = machine.web_workers()
        self.cluster.kill_web_worker(machine)
        seconds = wait_until(lambda: len(set(machine.web_workers()) - set(before)) == 1, "the next web worker")
        return f"its server started another one after {seconds:.1f} s"

    def restart_redis(self) -> str:
        """Kill Redis, and start it again with what it has written down."""
        self.cluster.restart(self.cluster.redis, AWAY, signal.SIGKILL)
        wait_until(lambda: answers(CENTER, REDIS_PORT), "Redis")
        return f"killed, away for {AWAY} s"

    def kill_tasks(self) -> str:
        """Kill a worker of tasks; what keeps it starts it again."""
        self.cluster.kill_tasks(self.machine())
        return "started again at once"

    def restart_pooler(self) -> str:
        """Restart the pooler."""
        self.cluster.restart(self.cluster.pooler, AWAY, signal.SIGKILL)
        return f"away for {AWAY} s"

    def hold_replica(self) -> str:
        """Let the replica stand still."""
        self.cluster.databases.replay("pause")
        time.sleep(STILL)
        self.cluster.databases.replay("resume")
        return f"for {STILL} s"
