"""What open streams cost, as lines for people and as targets for programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .holding import KINDS
from .servers import STREAM_CONTENDERS

MAX_KIB: Final = 48.0
MAX_CHANGE_MS: Final = 150.0
KIND_TITLES: Final = {kind.name: kind.title for kind in KINDS}
TITLES: Final = {contender.name: contender.title for contender in STREAM_CONTENDERS}
# The one whose numbers have targets.
OURS: Final = "fast"

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Scenario:
    """How the results of a scenario are shown: a title, the heads of the columns with their widths, and a line."""

    title: str
    heads: str
    line: Callable[[Results], str]


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "stream_memory": Scenario(
        "held by one worker",
        f"{'streams':>9}{'KiB each':>10}{'opened/s':>10}{'DB before':>11}{'DB with':>9}",
        lambda cell: (
            f"{cell['streams']:>9,}{cell['kib_each']:>10.1f}{cell['opened_per_second']:>10,}"
            f"{cell['database_connections_without']:>11}{cell['database_connections']:>9}"
        ),
    ),
    "one_change": Scenario(
        "told of one change",
        f"{'streams':>9}{'median ms':>10}{'slowest':>10}{'CPU ms':>11}",
        lambda cell: (
            f"{cell['streams']:>9,}{cell['median_ms']:>10.1f}{cell['slowest_ms']:>10.1f}"
            f"{'-' if cell['server_cpu_ms'] is None else cell['server_cpu_ms']:>11}"
        ),
    ),
    "beside_streams": Scenario(
        "idle beside get_record",
        f"{'streams':>9}{'alone/s':>10}{'beside/s':>10}{'ratio':>11}",
        lambda cell: (
            f"{cell['streams']:>9,}{cell['alone_per_second']:>10,.0f}{cell['beside_per_second']:>10,.0f}"
            f"{cell['ratio']:>11.2f}"
        ),
    ),
}


def stream_targets(streams: Results) -> list[dict[str, Any]]:
    """Return what was aimed at, what was measured, and whether it was reached."""
    return list(_targets(streams))


def _targets(streams: Results) -> Iterator[dict[str, Any]]:
    for kind, cells in streams.get("stream_memory", {}).items():
        if (cell := cells.get(OURS)) is not None:
            title = f"{KIND_TITLES[kind]}: KiB of a stream"
            yield _target(title, cell["kib_each"], MAX_KIB, cell["kib_each"] <= MAX_KIB)
            held, without = cell["database_connections"], cell["database_connections_without"]
            yield _target(f"{KIND_TITLES[kind]}: database connections with streams", held, without, held <= without)
    for kind, cells in streams.get("one_change", {}).items():
        if (cell := cells.get(OURS)) is not None:
            title = f"{KIND_TITLES[kind]}: ms until all are told of a change"
            yield _target(title, cell["median_ms"], MAX_CHANGE_MS, cell["median_ms"] <= MAX_CHANGE_MS)


def _target(title: str, value: float, most: float, reached: bool) -> dict[str, Any]:
    return {"what": title, "value": value, "most": most, "reached": reached}


def stream_lines(streams: Results, targets: Sequence[Results]) -> list[str]:
    """Return the lines of the table."""
    lines = []
    for name, scenario in SCENARIOS.items():
        for kind, cells in streams.get(name, {}).items():
            lines += ["", f"{f'{KIND_TITLES[kind]}: {scenario.title}':<56}{scenario.heads}"]
            lines += [f"  {TITLES[contender]:<54}{scenario.line(cell)}" for contender, cell in cells.items()]
    if targets:
        lines += ["", f"{'streams':<74}{'value':>8}{'target':>11}"]
    for item in targets:
        mark = f"≤ {item['most']:g} {'✓' if item['reached'] else '✗'}"
        lines.append(f"  {item['what']:<72}{item['value']:>8g}{mark:>11}")
    return lines
