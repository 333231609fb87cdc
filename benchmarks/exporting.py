"""What a file of all rows costs: processes that export the long table, and one that writes it by Django alone.

Each kind runs in a process of its own, so that the memory of one is not that of another. The first run of a process is
of few rows, and nobody counts it.
"""

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

NAME: Final = "exports"
PLAIN: Final = "plain"
TITLES: Final[Mapping[str, str]] = {
    PLAIN: "a loop over .iterator() that writes the same CSV",
    "csv": "export_records, by pages of an indexed order",
    "sorted": "... in an order that no index serves: keys first",
    "jsonl": "... as JSON Lines",
    "xlsx": "... as XLSX",
}
ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "csv": {},
    "sorted": {"ordering": ["-amount"]},
    "jsonl": {"format": "jsonl"},
    "xlsx": {"format": "xlsx"},
}
# How many times as long as the loop an export takes at most, and MB that it takes at most beside the process itself.
MOST_TIMES: Final = 3.0
MOST_MB: Final = 100.0
# As a page has them.
COLUMNS: Final = ("id", "created", "kind", "amount")
FEW: Final = 500
# Seconds of the processor that a clock can tell.
LEAST: Final = 0.01
# XLSX holds no more.
MAX_ROWS: Final = 1_048_575


def measure(database: str, rows: int) -> dict[str, Any]:
    """Return for each kind what it cost: seconds of the processor, MB over the process before it, rows and bytes."""
    found: dict[str, Any] = {}
    for kind in TITLES:
        if kind == "xlsx" and rows > MAX_ROWS:
            continue
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
            environment = {**os.environ, "BENCH_DATABASE": database, "BENCH_EXPORTS": directory}
            command = [sys.executable, "-m", "benchmarks.exporting", kind]
            done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
            found[kind] = json.loads(done.stdout)
    for cost in found.values():
        cost["times"] = round(cost["cpu"] / max(found[PLAIN]["cpu"], LEAST), 2)
    reached = found["csv"]["times"] <= MOST_TIMES and found["csv"]["mb"] <= MOST_MB
    return {"kinds": found, "reached": reached}


def export_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table."""
    if not found:
        return []
    kinds = found["kinds"]
    title = f"files of {kinds[PLAIN]['rows']:,} rows"
    lines = ["", f"{title:<79}{'CPU s':>8}{'times':>8}{'MB more':>9}{'file MB':>9}"]
    for kind, cost in kinds.items():
        size = cost["bytes"] / 1e6
        lines.append(f"  {TITLES[kind]:<77}{cost['cpu']:>8.1f}{cost['times']:>8.2f}{cost['mb']:>9.0f}{size:>9.1f}")
    mark = "✓" if found["reached"] else "✗"
    lines.append(f"  targets of CSV: {MOST_TIMES:g} times, {MOST_MB:g} MB  {mark}")
    return lines


# In the process that is measured


def peak() -> float:
    """Return the most memory that this process has had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_plainly(limit: int | None) -> tuple[int, int]:
    """Write the long table as anyone would; return the numbers of rows and of bytes."""
    from .project.models import Event

    path = Path(os.environ["BENCH_EXPORTS"]) / "plain.csv"
    count = 0
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for event in Event._default_manager.order_by("pk")[:limit].iterator():
            writer.writerow([event.pk, event.created.isoformat(), event.kind, event.amount])
            count += 1
    return count, path.stat().st_size


def export(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Export the long table by the tool; return the numbers of rows and of bytes."""
    from django.contrib.auth import get_user_model

    import mcp_django
    from mcp_django.context.request import local_request
    from mcp_django.tools.export_records import ExportRecords

    request = local_request(mcp_django.site)
    request.user = get_user_model()._default_manager.get(username="reader")
    told: Any = ExportRecords().call(request, {"model": "bench.event", **arguments})
    return told.structured["rows"], told.structured["bytes"]


def main(kind: str) -> None:
    """Measure one kind in this process, and print what it cost."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.project.settings"
    import django

    django.setup()
    work: Callable[[], tuple[int, int]]
    if kind == PLAIN:
        write_plainly(FEW)
        work = lambda: write_plainly(None)  # noqa: E731
    else:
        arguments = ARGUMENTS[kind]
        export({**arguments, "filters": {"id__lte": FEW}})
        work = lambda: export(arguments)  # noqa: E731
    before = peak()
    began, clock = time.process_time(), time.perf_counter()
    rows, size = work()
    cost = {
        "rows": rows,
        "bytes": size,
        "cpu": round(time.process_time() - began, 2),
        "seconds": round(time.perf_counter() - clock, 2),
        "mb": round(peak() - before, 1),
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    main(sys.argv[1])
