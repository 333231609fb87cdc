"""What open streams cost: memory, the time until all of them hear of a change, and calls beside them."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

from . import load
from .calls import MODERN, OK, Call, checker, mcp_request
from .servers import Contender, Server
from .streams import ACKNOWLEDGED, HEAD_END, Opening, Streams, handshake, listen, streams

PK = 1
URI = f"django://bench/author/{PK}"
WARM_UP_STREAMS = 16
WARM_UP_SECONDS = 0.5
# Descriptors that a process needs beside those of its streams.
SPARE_FILES = 512
SCENARIOS = ("stream_memory", "one_change", "beside_streams")


@dataclass(frozen=True)
class Kind:
    """A way to open a stream: by one request, or by a session with a subscription and its GET."""

    name: str
    title: str
    opening: Callable[..., Opening]
    ready: bytes


LISTEN = Kind("listen", "subscriptions/listen", listen, ACKNOWLEDGED)
SESSION = Kind("session", "GET of a session", handshake, HEAD_END)
KINDS = (LISTEN, SESSION)

Start = Callable[[Contender], AbstractContextManager[Server]]


def allow_files(number: int) -> None:
    """Let this process and its children open ``number`` files each and some more.

    Raises:
        RuntimeError: the system does not allow as many.
    """
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < number + SPARE_FILES:
        raise RuntimeError(f"{number} streams need {number + SPARE_FILES} open files, and `ulimit -Hn` is {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (number + SPARE_FILES, most))


class Holding:
    """The measurements of one run.

    ``tokens`` are those of the users whose streams are held, in turns; ``settle`` are the seconds until what the
    streams left behind, or what came of opening them, is done with.
    """

    def __init__(
        self,
        start: Start,
        database: str,
        tokens: Sequence[str],
        call: Call,
        contenders: Iterable[Contender],
        settle: float,
    ) -> None:
        self.start, self.database, self.tokens, self.call, self.settle = start, database, tokens, call, settle
        self.contenders = list(contenders)
        self.changes = 0

    async def run(self, chosen: Sequence[str], options: Any, say: Callable[[str], None]) -> dict[str, Any]:
        """Run the chosen scenarios and return what they gave, by scenario, kind of stream and contender."""
        found: dict[str, Any] = {}
        for kind in KINDS:
            if "stream_memory" in chosen:
                say(f"Holding {options.streams:,} streams ({kind.title}) ...")
                found.setdefault("stream_memory", {})[kind.name] = await self.memory(kind, options.streams)
            if "one_change" in chosen:
                say(f"Telling {options.subscribers:,} streams ({kind.title}) of a change ...")
                if told := await self.one_change(kind, options.subscribers, options.rounds):
                    found.setdefault("one_change", {})[kind.name] = told
        if "beside_streams" in chosen:
            say(f"Calling beside {options.subscribers:,} idle streams ...")
            found["beside_streams"] = {LISTEN.name: await self.beside(options)}
        return found

    def hold(self, server: Server, kind: Kind, number: int) -> AbstractAsyncContextManager[Streams]:
        """Hold streams of a kind."""
        subscribing = {"subscribe": server.contender.subscribes} if kind is SESSION else {}
        openings = [
            kind.opening(server.port, URI, token, **subscribing) for token in islice(cycle(self.tokens), number)
        ]
        return streams(server.port, openings, kind.ready)

    async def warm_up(self, server: Server, kind: Kind) -> None:
        """Let a server do once what is measured next."""
        async with self.hold(server, kind, WARM_UP_STREAMS):
            await load.fetch(server.port, self.request(server))
        await asyncio.sleep(self.settle)

    def request(self, server: Server) -> bytes:
        """Return the call that is made beside the streams."""
        return self.call.requests(server.contender, server.port, self.tokens[0], MODERN)[0]

    # Memory

    async def memory(self, kind: Kind, number: int) -> dict[str, Any]:
        """Return by contender what ``number`` streams of one worker take."""
        found = {}
        for contender in self.contenders:
            with self.start(contender) as server:
                await self.warm_up(server, kind)
                before, connections = resident_kib(server), self.connections(server)
                began = time.perf_counter()
                async with self.hold(server, kind, number) as held:
                    opened = time.perf_counter() - began
                    await asyncio.sleep(self.settle)
                    held.check()
                    found[contender.name] = {
                        "streams": number,
                        "kib_each": round((resident_kib(server) - before) / number, 1),
                        "opened_per_second": round(number / opened),
                        "database_connections_without": connections,
                        "database_connections": self.connections(server),
                    }
                await asyncio.sleep(self.settle)
        return found

    def connections(self, server: Server) -> int:
        """Return how often the server has the database file open."""
        return sum(target == self.database for target in descriptors(server))

    # One change

    async def one_change(self, kind: Kind, number: int, rounds: int) -> dict[str, Any]:
        """Return by contender how long it takes from asking for a change until all streams were told of it."""
        found = {}
        for contender in self.contenders:
            if kind is SESSION and not contender.subscribes:
                continue
            with self.start(contender) as server:
                await self.warm_up(server, kind)
                async with self.hold(server, kind, number) as held:
                    await self.change(server, held)
                    seconds, cpu = [], server.cpu_seconds()
                    for _ in range(rounds):
                        await asyncio.sleep(self.settle)
                        seconds.append(await self.change(server, held))
                    used = server.cpu_seconds()
                    held.check()
                await asyncio.sleep(self.settle)
            found[contender.name] = {
                "streams": number,
                "median_ms": round(statistics.median(seconds) * 1000, 1),
                "slowest_ms": round(max(seconds) * 1000, 1),
                # On a machine that does other things too, it says more; what the server does in between is in it.
                "server_cpu_ms": None if cpu is None or used is None else round((used - cpu) / rounds * 1000, 1),
                "rounds_ms": [round(value * 1000, 1) for value in seconds],
            }
        return found

    async def change(self, server: Server, held: Streams) -> float:
        """Change the record by a call; return the seconds until the last stream was told."""
        self.changes += 1
        arguments = {
            "model": "bench.author",
            "pk": PK,
            "values": {"name": f"Author {PK}, {self.changes} times changed"},
        }
        params = {"name": "update_record", "arguments": arguments}
        request = mcp_request(server.port, "tools/call", params, token=self.tokens[0], revision=MODERN)
        began = time.perf_counter()
        async with held.next_change():
            answer = await load.fetch(server.port, request)
            if answer.status != OK or result_of(answer.body).get("isError"):
                raise load.BadAnswer(f"no change: {answer.status} {answer.body[:500]!r}")
        return time.perf_counter() - began

    # Calls beside streams

    async def beside(self, options: Any) -> dict[str, Any]:
        """Return by contender the calls a second without streams, with idle ones, and the ratio.

        One server does both in turns, so that what its streams cost is not paid by a server that has none.
        """
        found = {}
        for contender in self.contenders:
            alone, with_streams = [], []
            with self.start(contender) as server:
                await self.warm_up(server, LISTEN)
                check = checker(await self.answer(server))
                await self.rate(server, check, options.connections, WARM_UP_SECONDS)
                for _ in range(options.rounds):
                    alone.append(await self.rate(server, check, options.connections, options.seconds))
                    async with self.hold(server, LISTEN, options.subscribers) as held:
                        await asyncio.sleep(self.settle)
                        with_streams.append(await self.rate(server, check, options.connections, options.seconds))
                        held.check()
                    await asyncio.sleep(self.settle)
            found[contender.name] = {
                "streams": options.subscribers,
                "alone_per_second": round(statistics.median(alone), 1),
                "beside_per_second": round(statistics.median(with_streams), 1),
                "ratio": round(statistics.median(b / a for a, b in zip(alone, with_streams, strict=True)), 3),
            }
        return found

    async def answer(self, server: Server) -> load.Answer:
        """Return the answer to the call, which must be right."""
        answer = await load.fetch(server.port, self.request(server))
        self.call.read(server.contender, answer)
        return answer

    async def rate(self, server: Server, check: load.Check, connections: int, seconds: float) -> float:
        """Return the calls a second under load."""
        request = self.request(server)
        sample = await load.run(server.port, repeat(request), check, connections=connections, seconds=seconds)
        return sample.rate


def resident_kib(server: Server) -> int:
    """Return the memory that a server occupies, in KiB."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("the system does not tell a process's memory")


def descriptors(server: Server) -> list[str]:
    """Return what a server has open."""
    directory = f"/proc/{server.process.pid}/fd"
    found = []
    for name in os.listdir(directory):
        try:
            found.append(os.readlink(f"{directory}/{name}"))
        except FileNotFoundError:  # closed by now
            continue
    return found


def result_of(body: bytes) -> dict[str, Any]:
    """Return the result in an answer, be it JSON or the last event of a stream.

    Raises:
        BadAnswer: there is none.
    """
    text = body.decode()
    if not text.startswith("{"):
        text = [line for line in text.splitlines() if line.startswith("data:")][-1].removeprefix("data:")
    message = json.loads(text)
    if "result" not in message:
        raise load.BadAnswer(text[:500])
    result: dict[str, Any] = message["result"]
    return result
