"""Whether a worker's memory stays what it is over thousands of pages, each asked for otherwise."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Final

from . import load
from .calls import MODERN, OK, mcp_request
from .holding import resident_kib
from .servers import Server

NAME: Final = "worker_memory"
# Parts of the pages after which the memory is looked at, and those that come before and fill the caches: a worker keeps
# 1,000 plans and twice as many layouts of pages.
STEPS: Final = 10
WARM_UP_STEPS: Final = 3
MAX_GROWTH: Final = 5.0
# After which pages that are not answered are a failure.
SECONDS: Final = 600
LIMITS: Final = range(1, 101)
AUTHORS: Final = 1_000
FIELDS: Final = (
    "title", "slug", "author", "status", "language", "price", "words", "rating", "featured", "published", "modified",
)  # fmt: skip
# Each narrows what an index has found already.
FILTERS: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "status": lambda chance: chance.choice(["draft", "published", "withdrawn"]),
    "language__in": lambda chance: chance.sample(["en", "de", "fr", "pt-br"], chance.randrange(1, 5)),
    "words__gte": lambda chance: chance.randrange(200, 5_000),
    "price__lt": lambda chance: f"{chance.randrange(1, 100)}.50",
    "published__range": lambda chance: [f"20{chance.randrange(20, 23)}-01-01", f"20{chance.randrange(23, 27)}-06-30"],
    "rating__isnull": lambda chance: chance.random() < 0.5,
    "featured": lambda chance: chance.random() < 0.5,
}


def queries(rows: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of queries without end: more shapes than a worker may keep, the same on every run."""
    chance = random.Random(1)
    while True:
        found = {name: FILTERS[name](chance) for name in chance.sample(list(FILTERS), chance.randrange(3))}
        if chance.random() < 0.5:
            found["author__in"] = [chance.randrange(1, AUTHORS + 1) for _ in range(chance.randrange(1, 9))]
        else:
            first = chance.randrange(1, rows + 1)
            found["id__range"] = [first, first + 500]
        order = chance.sample(FIELDS, chance.randrange(1, 3))
        yield {
            "model": "bench.article",
            "filters": found,
            "ordering": [chance.choice(["", "-"]) + name for name in order],
            "fields": chance.sample(FIELDS, chance.randrange(1, len(FIELDS) + 1)),
            "limit": chance.choice(LIMITS),
        }


def check(answer: load.Answer) -> None:
    """Check an answer.

    Raises:
        BadAnswer: it is an error.
    """
    if answer.status != OK or b'"rows":[' not in answer.body or b'"isError":true' in answer.body:
        raise load.BadAnswer(f"{answer.status} {answer.body[:500]!r}")


async def measure(
    start: Callable[[], AbstractContextManager[Server]], token: str, pages: int, rows: int, connections: int
) -> dict[str, Any]:
    """Return what a worker occupies when its caches are full, and after ``pages`` more."""
    part = max(pages // STEPS, 1)
    with start() as server:
        requests = (
            mcp_request(
                server.port,
                "tools/call",
                {"name": "query_records", "arguments": arguments},
                token=token,
                revision=MODERN,
            )
            for arguments in queries(rows)
        )
        sizes, seconds = [], 0.0
        for _ in range(WARM_UP_STEPS + STEPS):
            sample = await load.run(
                server.port, islice(requests, part), check, connections=connections, seconds=SECONDS
            )
            assert len(sample.latencies) == part, "not every page was answered"
            seconds += sample.seconds
            sizes.append(resident_kib(server))
    before, after = sizes[WARM_UP_STEPS - 1], sizes[-1]
    growth = (after - before) / before * 100
    return {
        "pages": part * STEPS,
        "warm_up_pages": part * WARM_UP_STEPS,
        "mib_before": round(before / 1024, 1),
        "mib_after": round(after / 1024, 1),
        "mib_growth": round((after - before) / 1024, 1),
        "mib_steps": [round(size / 1024, 1) for size in sizes],
        "pages_per_second": round(part * len(sizes) / seconds),
        "growth_percent": round(growth, 2),
        "most_percent": MAX_GROWTH,
        "reached": growth < MAX_GROWTH,
    }


def memory_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table."""
    if not found:
        return []
    title = f"a worker after {found['warm_up_pages']:,} pages, and after {found['pages']:,} more"
    heads = f"{'MiB':>9}{'MiB then':>10}{'growth':>9}{'%':>7}{'target':>10}"
    mark = "✓" if found["reached"] else "✗"
    line = (
        f"{found['mib_before']:>9.1f}{found['mib_after']:>10.1f}{found['mib_growth']:>9.1f}"
        f"{found['growth_percent']:>7.1f}  < {found['most_percent']:g} % {mark}"
    )
    pace = f"  query_records, each otherwise, {found['pages_per_second']:,} pages/s"
    steps = " ".join(f"{size:.1f}" for size in found["mib_steps"])
    return ["", f"{title:<56}{heads}", f"{pace:<56}{line}", f"  MiB after each {found['pages'] // STEPS:,}: {steps}"]
