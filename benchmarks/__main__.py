"""The command: makes the data, starts the contenders, measures, prints the table and writes the JSON."""

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from . import holding, load, report
from .calls import LEGACY, MODERN, Call, calls, checker
from .counting import HEADER
from .servers import CONTENDERS, STREAM_CONTENDERS, Contender, Server, cores, running

WARM_UP_PART = 0.25
# Rows of the long table after the deep page's beginning.
BEYOND = 200
CALL_NAMES = ("tools_list", "query_records", "get_record", "first_page", "deep_page")
# The call that is made beside streams.
BESIDE = "get_record"
# Streams that one user may have open in one worker, as the app's settings have it by default.
MAX_STREAMS = 32


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1, help="of load for each contender, call and round")
    parser.add_argument("--rounds", type=int, default=7, help="of which the medians are shown")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rows", type=int, default=100_000, help="articles")
    parser.add_argument("--events", type=int, default=1_000_200, help="rows of the long table")
    parser.add_argument("--streams", type=int, default=5_000, help="whose memory is measured")
    parser.add_argument("--subscribers", type=int, default=1_000, help="streams that hear of a change, or are idle")
    parser.add_argument("--settle", type=float, default=1, help="seconds between what is done to streams")
    parser.add_argument("--per-user", type=int, default=MAX_STREAMS, help="streams of one user, at most MAX_STREAMS")
    parser.add_argument("--revision", choices=(LEGACY, MODERN), default=MODERN, help="of the protocol")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"), help="file to write")
    names = [*CALL_NAMES, *holding.SCENARIOS, *(contender.name for contender in CONTENDERS)]
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="these measurements and these contenders")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """Tell whoever waits what goes on."""
    print(text, file=sys.stderr, flush=True)


def prepare(database: Path, options: argparse.Namespace) -> tuple[list[Call], list[str]]:
    """Make the database; return the calls and the tokens: of who calls, then of those who hold streams."""
    rows, events = options.rows, options.events
    os.environ |= {"BENCH_DATABASE": str(database), "DJANGO_SETTINGS_MODULE": "benchmarks.project.settings"}
    import django

    django.setup()
    from .project import data, pages

    started = time.perf_counter()
    say(f"Making {rows:,} articles and {events:,} events ...")
    holders = -(-max(options.streams, options.subscribers, 1) // options.per_user)
    tokens = data.create(rows, events, holders)
    deep_row = max(events - BEYOND, 1)
    uri = pages.uri_after(deep_row)
    say(f"... in {time.perf_counter() - started:.1f} s")
    return calls(rows, uri, deep_row), [data.TOKEN, *tokens]


def count_tokens() -> list[dict[str, Any]]:
    """Count what a language model reads, where the tokenizer is installed."""
    from . import tokens

    if not tokens.has_tokenizer():
        say("Tokens are not counted: make tests/node_modules/.installed installs the tokenizer.")
        return []
    return tokens.measured()


class Harness:
    """One run: what is asked of whom, and what came of it."""

    def __init__(self, options: argparse.Namespace, database: Path, known: list[Call], tokens: list[str]) -> None:
        only = set(options.only)
        self.options, self.database, self.tokens = options, database, tokens
        everything = not only.intersection([*CALL_NAMES, *holding.SCENARIOS])
        self.calls = [call for call in known if call.name in only or everything]
        self.scenarios = [name for name in holding.SCENARIOS if name in only or everything]
        self.beside = next(call for call in known if call.name == BESIDE)
        chosen = {contender.name for contender in CONTENDERS} & only
        self.contenders = [item for item in CONTENDERS if item.name in chosen or not chosen]
        self.cells: dict[report.Key, report.Cell] = {}

    def request(self, call: Call, server: Server) -> bytes:
        """Return the bytes of a call to a server."""
        return call.request(server.contender, server.port, self.tokens[0], self.options.revision)

    async def count(self, contender: Contender) -> None:
        """Count the queries of each call, in a server that does so."""
        with running(contender, self.database, counting=True) as server:
            for call in self.calls:
                if call.has(contender):
                    # The first call of a process fills its caches.
                    await load.fetch(server.port, self.request(call, server))
                    answer = await load.fetch(server.port, self.request(call, server))
                    call.read(contender, answer)
                    cell = self.cells[call.name, contender.name] = report.Cell()
                    cell.queries, cell.size = int(answer.headers[HEADER]), len(answer.body)

    async def measure(self, calls: Sequence[Call], servers: Sequence[Server]) -> None:
        """Measure calls that are to be compared: one contender after the other, in rounds."""
        cells = [(call, server) for server in servers for call in calls if call.has(server.contender)]
        essences: dict[str, set[str]] = {}
        checks = []
        for call, server in cells:
            answer = await load.fetch(server.port, self.request(call, server))
            essences.setdefault(call.name, set()).add(repr(call.read(server.contender, answer)))
            checks.append(checker(answer))
        if any(len(found) > 1 for found in essences.values()):
            raise load.BadAnswer(f"the contenders' answers are not the same: {essences}")
        for (call, server), check in zip(cells, checks, strict=True):
            await self.press(call, server, check, max(self.options.seconds * WARM_UP_PART, 0.01))
        for _ in range(self.options.rounds):
            for (call, server), check in zip(cells, checks, strict=True):
                before = server.cpu_seconds()
                sample = await self.press(call, server, check, self.options.seconds)
                self.record(self.cells[call.name, server.contender.name], sample, before, server.cpu_seconds())

    async def press(self, call: Call, server: Server, check: load.Check, seconds: float) -> load.Sample:
        """Put load on a server."""
        request, connections = self.request(call, server), self.options.connections
        return await load.run(server.port, request, check, connections=connections, seconds=seconds)

    def record(self, cell: report.Cell, sample: load.Sample, before: float | None, after: float | None) -> None:
        """Add one round."""
        cell.rates.append(sample.rate)
        cell.p50.append(sample.quantile(0.5))
        cell.p99.append(sample.quantile(0.99))
        cell.calls += len(sample.latencies)
        if before is not None and after is not None:
            cell.cpu.append((after - before) / len(sample.latencies))

    async def run(self) -> dict[str, Any]:
        """Do all of it and return the document."""
        server_core, load_core = cores()
        if self.calls:
            say("Counting queries ...")
            for contender in self.contenders:
                await self.count(contender)
        with ExitStack() as stack:
            servers = [
                stack.enter_context(running(contender, self.database, cpu=server_core))
                for contender in self.contenders
                if self.calls
            ]
            if load_core is not None:
                os.sched_setaffinity(0, {load_core})
            for _, group in itertools.groupby(self.calls, key=lambda call: call.group or call.name):
                together = list(group)
                say(f"Measuring {' and '.join(call.title for call in together)} ...")
                await self.measure(together, servers)
        names = ("seconds", "rounds", "connections", "rows", "events", "streams", "subscribers", "per_user", "revision")
        streams = await self.streams(server_core)
        return report.document(self.cells, streams, {name: getattr(self.options, name) for name in names})

    async def streams(self, server_core: int | None) -> dict[str, Any]:
        """Measure what open streams cost."""
        if not self.scenarios:
            return {}
        holding.allow_files(max(self.options.streams, self.options.subscribers))
        start = partial(running, database=self.database, cpu=server_core)
        contenders = [item for item in STREAM_CONTENDERS if item.name in {item.name for item in self.contenders}]
        held = holding.Holding(start, self.database, self.tokens[1:], self.beside, contenders, self.options.settle)
        return await held.run(self.scenarios, self.options, say)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        database = Path(directory) / "db.sqlite3"
        harness = Harness(options, database, *prepare(database, options))
        result = asyncio.run(harness.run())
        result["tokens"] = count_tokens() if not options.only else []
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(report.table(harness.calls, result))
    say(f"Written to {options.json}")


if __name__ == "__main__":
    main()
