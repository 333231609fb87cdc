"""Run the endpoint on two network hosts of this machine, with faults, and check what was promised to 64 clients.

It needs root, for the hosts are namespaces. It ends with 1 if anything that was promised is lost, with 2 if it cannot
run at all."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import report, services
from .cluster import Cluster, git, version_before
from .exports import Exporter
from .faults import Faults
from .measures import Samples, Work
from .people import (
    Changer,
    Confirmer,
    Counting,
    Person,
    Reader,
    Run,
    SessionSubscriber,
    Signer,
    Subscriber,
    Tasker,
    Writer,
)

# Of 64 clients.
SHARES: dict[type[Person], int] = {
    Writer: 10,
    Reader: 8,
    Changer: 4,
    Subscriber: 8,
    SessionSubscriber: 8,
    Confirmer: 5,
    Signer: 5,
    Counting: 6,
    Tasker: 6,
    Exporter: 4,
}
# Seconds in which streams still hear of the last changes, once nobody works any more.
COOL_DOWN = 20


def say(text: str) -> None:
    """Tell whoever waits what goes on."""
    print(text, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_hosts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="of work under faults, after the start")
    parser.add_argument("--clients", type=int, default=64, help="each of one kind, in the shares of 64")
    parser.add_argument("--rows", type=int, default=2_000, help="of the table that is read and exported")
    parser.add_argument("--pause", type=float, default=4, help="seconds of a client between two calls")
    parser.add_argument("--before", help="commit of the version before (default: before the newest migration)")
    parser.add_argument("--json", type=Path, default=Path("build/two-hosts.json"), help="file to write")
    return parser.parse_args(arguments)


def people_of(run: Run, clients: int) -> list[Person]:
    """Return the clients, in their shares; at least one of each kind."""
    whole = sum(SHARES.values())
    kinds = [kind for kind, share in SHARES.items() for _ in range(max(1, share * clients // whole))]
    people = [kind(run, number) for number, kind in enumerate(kinds)]
    run.watched = [person for person in people if isinstance(person, Subscriber)]
    run.changers = [person for person in people if isinstance(person, Changer)]
    return people


async def work(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    """Let the clients work under faults; return what came of it."""
    run = Run(cluster.people, options.rows, options.pause)
    async with run.http:
        say("Counting the work of single calls ...")
        calls = await Work(cluster, run).measure()
        people = people_of(run, options.clients)
        samples = Samples(cluster)
        faults = Faults(cluster, run.book, say)
        sampling = asyncio.ensure_future(samples.keep())
        say(f"{len(people)} clients work for {options.minutes} minutes ...")
        run.book.began = time.monotonic()
        working = {person: asyncio.ensure_future(person.work()) for person in people}
        await faults.run(options.minutes * 60)
        run.over.set()
        await asyncio.gather(*(task for person, task in working.items() if not isinstance(person, Subscriber)))
        await asyncio.sleep(COOL_DOWN)
        run.closed.set()
        listening = [task for person, task in working.items() if isinstance(person, Subscriber)]
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, *run.looks, return_exceptions=True)
        sampling.cancel()
        costs = samples.summary()
    for subscriber in run.watched:
        subscriber.settle()
    run.book.verify(entries_of(cluster))
    return report.document(
        run.book,
        faults.happened,
        costs,
        work=calls,
        ended=dict(Counter(name for _, name in cluster.ended)),
        tracebacks=cluster.tracebacks(),
        clients=len(people),
        minutes=options.minutes,
        pause=options.pause,
        before=cluster.before,
        now=git("rev-parse", "--short", "HEAD").decode().strip(),
    )


def entries_of(cluster: Cluster) -> Counter[str]:
    """Return how often each entry is there, by its key: on the primary, past the pooler."""
    return Counter(dict(cluster.databases.rows("SELECT key, COUNT(*) FROM ledger_entry GROUP BY key")))


def why_not() -> str:
    """Return what is missing for a run, "" where nothing is."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "This needs Linux and root: each host is a network namespace."
    if lacking := services.missing():
        return f"Install what is missing: apt-get install {' '.join(lacking)}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parse(arguments)
    if reason := why_not():
        say(reason)
        return 2
    # A run that is told to end cleans up.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    before = options.before or version_before()
    with Cluster(max(options.clients, len(SHARES)), options.rows, before, say) as cluster:
        found = asyncio.run(work(cluster, options))
        with contextlib.suppress(OSError):
            keep_logs(cluster, options.json.parent / "two-hosts-logs")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    print(report.text(found))
    say(f"Written to {options.json}")
    return 1 if any(tally["lost"] for tally in found["promises"].values()) else 0


def keep_logs(cluster: Cluster, folder: Path) -> None:
    """Copy the logs of all programs."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in cluster.programs():
        if program.log.exists():
            (folder / program.log.name).write_bytes(program.log.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
