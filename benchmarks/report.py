"""What was measured, as a table for people and as JSON for programs."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from .calls import Call
from .depth import ORDERS as LONG_ORDERS
from .endurance import memory_lines
from .exporting import export_lines
from .servers import CONTENDERS, load_average
from .setup import setup_lines
from .streamreport import stream_lines, stream_targets
from .suite import ROADS

PACKAGES = ("django", "channels", "django-oauth-toolkit", "mcp", "mcp-types", "orjson", "uvicorn")


@dataclass
class Cell:
    """One contender's rounds of one call: calls a second, times in seconds; queries and bytes of one answer."""

    rates: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    calls: int = 0
    queries: int | None = None
    size: int = 0

    def summary(self) -> dict[str, Any]:
        """Return the medians of the rounds, times in milliseconds."""
        return {
            "calls_per_second": round(statistics.median(self.rates), 1),
            "p50_ms": round(statistics.median(self.p50) * 1000, 3),
            "p99_ms": round(statistics.median(self.p99) * 1000, 3),
            "server_cpu_ms": round(statistics.median(self.cpu) * 1000, 3) if self.cpu else None,
            "sql_queries": self.queries,
            "answer_bytes": self.size,
            "calls": self.calls,
            "rounds": [round(rate, 1) for rate in self.rates],
        }


Cells = Mapping[tuple[str, str], Cell]
Key = tuple[str, str]


@dataclass(frozen=True)
class Target:
    """A ratio of the calls a second of two cells, and the least that it should be."""

    title: str
    above: Key
    below: Key
    least: float | None = None


# At least, against an SDK tool that does the same work.
ROAD_TARGETS = {"own_queryset": 1.5, "computed_column": 1.0, "serializer": 1.0}
# A time of at most 1.1 is a rate of at least 1 / 1.1.
DEEP = 1 / 1.1
RELATED = 1 / 1.15
TARGETS = (
    # The one that does the same work: the token, the permission, the rows.
    *(
        Target(
            f"{name}: fast road / official SDK, same token and permission", (name, "fast"), (name, "sdk_token"), least
        )
        for name, least in [("tools_list", 1.0), ("get_record", 1.3), ("query_records", 2.0)]
    ),
    Target("query_records: fast road / official SDK", ("query_records", "fast"), ("query_records", "sdk")),
    *(
        Target(f"query_records of {what}: fast road / official SDK", (name, "fast"), (name, "sdk"), ROAD_TARGETS[name])
        for name, (_, what) in ROADS.items()
    ),
    Target("tools/list: fast road / official SDK", ("tools_list", "fast"), ("tools_list", "sdk")),
    Target(
        "query_records: plain road / bare view, both behind default middleware",
        ("query_records", "plain_mw"),
        ("query_records", "bare_mw"),
        1.0,
    ),
    Target(
        "get_record: plain road / bare view, both behind default middleware",
        ("get_record", "plain_mw"),
        ("get_record", "bare_mw"),
        1.0,
    ),
    Target(
        "page with a column of a related row / page without, fast road",
        ("related_column", "fast"),
        ("plain_columns", "fast"),
        RELATED,
    ),
    Target("deep page / first page, SQLite", ("deep_page", "fast"), ("first_page", "fast"), DEEP),
    *(
        Target(
            f"deep page / first page, PostgreSQL, {what}",
            (f"long_deep_{name}", "fast"),
            (f"long_first_{name}", "fast"),
            DEEP,
        )
        for name, what in LONG_ORDERS.items()
    ),
    # What depth costs without what a cursor costs.
    *(
        Target(
            f"deep page / second page, PostgreSQL, {what}",
            (f"long_deep_{name}", "fast"),
            (f"long_second_{name}", "fast"),
        )
        for name, what in LONG_ORDERS.items()
    ),
    *(
        Target(f"{name}: fast road / official SDK", (name, "fast"), (name, "sdk"))
        for name in ("get_record", "aggregate_records", "update_record")
    ),
    Target(
        "update_record: plain road / bare view with the admin's form, both behind default middleware",
        ("update_record", "plain_mw"),
        ("update_record", "bare_mw"),
        1.0,
    ),
    Target(
        "aggregate_records: plain road / bare view, both behind default middleware",
        ("aggregate_records", "plain_mw"),
        ("aggregate_records", "bare_mw"),
    ),
    *(
        Target(f"query_records of {what} / compiled plan, fast road", (name, "fast"), ("query_records", "fast"))
        for name, (_, what) in ROADS.items()
    ),
    Target(
        "query_records of a serializer_class / of a computed column, fast road",
        ("serializer", "fast"),
        ("computed_column", "fast"),
    ),
    Target("query_records: plain road / official SDK", ("query_records", "plain"), ("query_records", "sdk")),
    Target("query_records: fast road / bare view", ("query_records", "fast"), ("query_records", "bare")),
    Target("query_records: fast road / plain road", ("query_records", "fast"), ("query_records", "plain")),
    Target(
        "query_records: fast road / plain road behind default middleware",
        ("query_records", "fast"),
        ("query_records", "plain_mw"),
    ),
)


def ratios(cells: Cells) -> list[dict[str, Any]]:
    """Return the ratios whose two cells were measured.

    Rounds of the two that followed each other are compared, so that a machine that slows down slows both.
    """
    found = []
    for target in TARGETS:
        above, below = cells.get(target.above), cells.get(target.below)
        if above and below and above.rates and below.rates:
            rounds = [a / b for a, b in zip(above.rates, below.rates, strict=True)]
            # What is printed is what is compared.
            value = round(statistics.median(rounds), 3)
            least = None if target.least is None else round(target.least, 3)
            found.append(
                {
                    "ratio": target.title,
                    "value": value,
                    "lowest": round(min(rounds), 3),
                    "highest": round(max(rounds), 3),
                    # On a machine that does other things too, the time that the servers computed says more.
                    "by_cpu": _by_cpu(above, below),
                    "target": least,
                    "reached": None if least is None else value >= least,
                }
            )
    return found


def _median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def _by_cpu(above: Cell, below: Cell) -> float | None:
    # The system counts in steps, and a short round may come out as none.
    return round(_median_ratio(below.cpu, above.cpu), 3) if above.cpu and below.cpu and all(above.cpu) else None


def document(
    cells: Cells,
    streams: Mapping[str, Any],
    memory: Mapping[str, Any],
    skipped: Mapping[str, str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything, for JSON."""
    measured: dict[str, dict[str, Any]] = {}
    for (call, contender), cell in cells.items():
        measured.setdefault(call, {})[contender] = cell.summary()
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "load_average": load_average(),
        },
        "options": dict(options),
        "calls": measured,
        "ratios": ratios(cells),
        "streams": streams,
        "stream_targets": stream_targets(streams),
        "worker_memory": dict(memory),
        "skipped": dict(skipped),
    }


def processor() -> str:
    """Return the model of the processor, as far as the system tells."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(calls: Sequence[Call], result: Mapping[str, Any]) -> str:
    """Return the document as text."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    machine, options = result["machine"], result["options"]
    lines = [
        versions,
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load_average']:.1f}; one worker, "
        f"{options['connections']} connections, MCP {options['revision']}, "
        f"{options['rounds']} rounds of {options['seconds']:g} s",
    ]
    for call in calls:
        if call.name in result["calls"]:
            lines += [
                "",
                f"{call.title:<56}{'calls/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'bytes':>8}{'SQL':>5}",
            ]
            cells = result["calls"][call.name]
            lines += [row(item.title, cells[item.name]) for item in CONTENDERS if item.name in cells]
    if result["ratios"]:
        lines += ["", f"{'ratios of calls/s':<74}{'value':>8}{'rounds':>12}{'by CPU':>8}{'target':>9}"]
    for ratio in result["ratios"]:
        mark = "" if ratio["target"] is None else f"  ≥ {ratio['target']:.2f} {'✓' if ratio['reached'] else '✗'}"
        by_cpu = "-" if ratio["by_cpu"] is None else f"{ratio['by_cpu']:.2f}"
        spread = f"{ratio['lowest']:.2f}-{ratio['highest']:.2f}"
        lines.append(f"  {ratio['ratio']:<72}{ratio['value']:>8.2f}{spread:>12}{by_cpu:>8}{mark}")
    lines += stream_lines(result["streams"], result["stream_targets"])
    lines += memory_lines(result["worker_memory"])
    lines += setup_lines(result.get("setup", {}))
    lines += export_lines(result.get("exports", {}))
    lines += token_lines(result.get("tokens", ()))
    lines += ["", *(f"not measured: {name}: {why}" for name, why in result["skipped"].items())]
    return "\n".join(lines).rstrip()


def token_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was counted, and the most that it should be."""
    if not found:
        return []
    lines = ["", f"{'tokens (o200k_base)':<74}{'value':>8}{'':>8}{'target':>9}"]
    for item in found:
        mark = "✓" if item["reached"] else "✗"
        lines.append(f"  {item['what']:<72}{item['value']:>8,}{'':>8}  ≤ {item['most']:,} {mark}")
    return lines


def row(title: str, cell: Mapping[str, Any]) -> str:
    """Return one line of the table."""
    cpu = "-" if cell["server_cpu_ms"] is None else f"{cell['server_cpu_ms']:.2f}"
    queries = "-" if cell["sql_queries"] is None else str(cell["sql_queries"])
    return (
        f"  {title:<54}{cell['calls_per_second']:>9,.0f}{cell['p50_ms']:>9.2f}{cell['p99_ms']:>9.2f}"
        f"{cpu:>9}{cell['answer_bytes']:>8,}{queries:>5}"
    )
