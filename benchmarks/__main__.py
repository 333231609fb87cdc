"""The command: makes the data, starts the contenders, measures, prints the table and writes the JSON."""

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from . import depth, endurance, exporting, holding, load, mysql, report, setup
from .calls import LEGACY, MODERN, Call, checker
from .counting import HEADER
from .servers import CONTENDERS, STREAM_CONTENDERS, Contender, Server, cores, running
from .suite import CALL_NAMES, calls

WARM_UP_PART = 0.25
# Rows of the long table after the deep page's beginning.
BEYOND = 200
TOKENS = "tokens"
# All that can be measured.
NAMES = (*CALL_NAMES, *holding.SCENARIOS, endurance.NAME, depth.NAME, setup.NAME, exporting.NAME, TOKENS)
# The one whose memory and deep pages are measured.
OURS = CONTENDERS[0]
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
    parser.add_argument("--long-rows", type=int, default=10_000_000, help="of the table on PostgreSQL")
    parser.add_argument(
        "--postgres",
        default=os.environ.get("TEST_POSTGRES_URL", depth.DEFAULT_URL),
        help="URL of a server on which databases can be created (TEST_POSTGRES_URL)",
    )
    parser.add_argument(
        "--mysql",
        default=os.environ.get("TEST_MYSQL_URL", mysql.DEFAULT_URL),
        help="URL of a server on which databases can be created (TEST_MYSQL_URL)",
    )
    parser.add_argument("--database", choices=("sqlite", "postgresql", "mysql"), default="sqlite", help="of the calls")
    parser.add_argument("--pages", type=int, default=10_000, help="after which a worker's memory is compared")
    parser.add_argument("--streams", type=int, default=5_000, help="whose memory is measured")
    parser.add_argument("--subscribers", type=int, default=1_000, help="streams that hear of a change, or are idle")
    parser.add_argument("--starts", type=int, default=11, help="of a project without the app, and with it")
    parser.add_argument("--settle", type=float, default=1, help="seconds between what is done to streams")
    parser.add_argument("--per-user", type=int, default=MAX_STREAMS, help="streams of one user, at most MAX_STREAMS")
    parser.add_argument("--revision", choices=(LEGACY, MODERN), default=MODERN, help="of the protocol")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"), help="file to write")
    names = [*NAMES, *(contender.name for contender in CONTENDERS)]
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="these measurements and these contenders")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """Tell whoever waits what goes on."""
    print(text, file=sys.stderr, flush=True)


def prepare(database: str, options: argparse.Namespace) -> tuple[list[Call], list[str]]:
    """Make the database; return the calls and the tokens: of who calls, then of those who hold streams."""
    rows, events = options.rows, options.events
    os.environ |= {"BENCH_DATABASE": database, "DJANGO_SETTINGS_MODULE": "benchmarks.project.settings"}
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


@contextmanager
def database_of(options: argparse.Namespace) -> Iterator[str]:
    """Give an empty database for the run, as settings name it: a file, or the URL of one on the server."""
    if options.database == "postgresql":
        with depth.database(options.postgres) as url:
            yield url
        return
    if options.database == "mysql":
        with mysql.database(options.mysql) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        yield str(Path(directory) / "db.sqlite3")


def count_tokens() -> list[dict[str, Any]]:
    """Count what a language model reads, where the tokenizer is installed."""
    from . import tokens

    if not tokens.has_tokenizer():
        say("Tokens are not counted: make tests/node_modules/.installed installs the tokenizer.")
        return []
    return tokens.measured()


class Harness:
    """One run: what is asked of whom, and what came of it."""

    def __init__(self, options: argparse.Namespace, database: str, known: list[Call], tokens: list[str]) -> None:
        only = set(options.only)
        self.options, self.database, self.tokens = options, database, tokens
        self.chosen = only.intersection(NAMES) or set(NAMES)
        self.calls = [call for call in known if call.name in self.chosen]
        self.scenarios = [name for name in holding.SCENARIOS if name in self.chosen]
        self.beside = next(call for call in known if call.name == BESIDE)
        contenders = {contender.name for contender in CONTENDERS} & only
        self.contenders = [item for item in CONTENDERS if item.name in contenders or not contenders]
        self.cores = cores()
        self.cells: dict[report.Key, report.Cell] = {}
        # What was not measured, and why.
        self.skipped: dict[str, str] = {}

    def requests(self, call: Call, server: Server) -> Iterator[bytes]:
        """Return the bytes of a call to a server, without end."""
        return itertools.cycle(call.requests(server.contender, server.port, self.tokens[0], self.options.revision))

    async def compare(self, calls: Sequence[Call], contenders: Sequence[Contender], database: str) -> None:
        """Measure calls, those of one group together."""
        asked = [contender for contender in contenders if any(call.has(contender) for call in calls)]
        if not asked:
            return
        say("Counting queries ...")
        for contender in asked:
            await self.count(calls, contender, database)
        server_core, load_core = self.cores
        with ExitStack() as stack:
            servers = [stack.enter_context(running(contender, database, cpu=server_core)) for contender in asked]
            if load_core is not None:
                os.sched_setaffinity(0, {load_core})
            for _, group in itertools.groupby(calls, key=lambda call: call.group or call.name):
                together = list(group)
                say(f"Measuring {' and '.join(call.title for call in together)} ...")
                await self.measure(together, servers)

    async def count(self, calls: Sequence[Call], contender: Contender, database: str) -> None:
        """Count the queries of each call, in a server that does so."""
        with running(contender, database, counting=True) as server:
            for call in calls:
                if call.has(contender):
                    requests = self.requests(call, server)
                    # The first call of a process fills its caches.
                    await load.fetch(server.port, next(requests))
                    answer = await load.fetch(server.port, next(requests))
                    call.read(contender, answer)
                    cell = self.cells[call.name, contender.name] = report.Cell()
                    cell.queries, cell.size = int(answer.headers[HEADER]), len(answer.body)

    async def measure(self, calls: Sequence[Call], servers: Sequence[Server]) -> None:
        """Measure calls that are to be compared: one contender after the other, in rounds."""
        cells = [
            (call, server, self.requests(call, server))
            for server in servers
            for call in calls
            if call.has(server.contender)
        ]
        essences: dict[str, set[str]] = {}
        checks = []
        for call, server, requests in cells:
            answer = await load.fetch(server.port, next(requests))
            essences.setdefault(call.essence_of or call.name, set()).add(repr(call.read(server.contender, answer)))
            checks.append(checker(answer))
        if any(len(found) > 1 for found in essences.values()):
            raise load.BadAnswer(f"the contenders' answers are not the same: {essences}")
        for (_, server, requests), check in zip(cells, checks, strict=True):
            await self.press(server, requests, check, max(self.options.seconds * WARM_UP_PART, 0.01))
        for _ in range(self.options.rounds):
            for (call, server, requests), check in zip(cells, checks, strict=True):
                before = server.cpu_seconds()
                sample = await self.press(server, requests, check, self.options.seconds)
                self.record(self.cells[call.name, server.contender.name], sample, before, server.cpu_seconds())

    async def press(self, server: Server, requests: Iterator[bytes], check: load.Check, seconds: float) -> load.Sample:
        """Put load on a server."""
        return await load.run(server.port, requests, check, connections=self.options.connections, seconds=seconds)

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
        await self.compare(self.calls, self.contenders, self.database)
        streams = await self.streams()
        memory = await self.memory()
        await self.long_pages()
        shown = {name: value for name, value in vars(self.options).items() if name not in ("json", "only", "postgres")}
        return report.document(self.cells, streams, memory, self.skipped, shown)

    async def long_pages(self) -> None:
        """Measure the pages of the very long table, where there is a server to make it on."""
        if depth.NAME not in self.chosen or OURS not in self.contenders:
            return
        try:
            with depth.database(self.options.postgres) as url:
                calls = depth.prepare(url, self.options.long_rows, say)
                self.calls += calls
                await self.compare(calls, [OURS], url)
        except depth.Unavailable as error:
            self.skipped[depth.NAME] = f"{error}"
            say(f"The {self.options.long_rows:,} rows on PostgreSQL are not measured: {error}")

    async def memory(self) -> dict[str, Any]:
        """Measure the memory of a worker over many pages."""
        if endurance.NAME not in self.chosen or OURS not in self.contenders:
            return {}
        options = self.options
        say(f"Reading {options.pages:,} pages ...")
        start = partial(running, OURS, self.database, cpu=self.cores[0])
        return await endurance.measure(start, self.tokens[0], options.pages, options.rows, options.connections)

    def setup(self) -> dict[str, Any]:
        """Measure what it costs to have the app installed."""
        if setup.NAME not in self.chosen or OURS not in self.contenders:
            return {}
        say(f"Starting a project {self.options.starts} times, without the app and with it ...")
        return setup.measure(self.options.starts)

    def exports(self) -> dict[str, Any]:
        """Measure what files of all rows of the long table cost."""
        if exporting.NAME not in self.chosen or OURS not in self.contenders:
            return {}
        say(f"Writing files of {self.options.events:,} rows ...")
        return exporting.measure(self.database, self.options.events)

    async def streams(self) -> dict[str, Any]:
        """Measure what open streams cost."""
        if not self.scenarios:
            return {}
        holding.allow_files(max(self.options.streams, self.options.subscribers))
        start = partial(running, database=self.database, cpu=self.cores[0])
        contenders = [item for item in STREAM_CONTENDERS if item.name in {item.name for item in self.contenders}]
        held = holding.Holding(start, self.database, self.tokens[1:], self.beside, contenders, self.options.settle)
        return await held.run(self.scenarios, self.options, say)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parse(arguments)
    with database_of(options) as database:
        harness = Harness(options, database, *prepare(database, options))
        result = asyncio.run(harness.run())
        result["setup"] = harness.setup()
        result["exports"] = harness.exports()
        result["tokens"] = count_tokens() if TOKENS in harness.chosen else []
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(report.table(harness.calls, result))
    say(f"Written to {options.json}")


if __name__ == "__main__":
    main()
