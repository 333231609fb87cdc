"""What it costs a project to have the app installed: processes that start and end, without it and with it, in turns."""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

NAME: Final = "setup"
TITLES: Final[Mapping[str, str]] = {
    "with": "the app, its models those of the admin",
    "declared": "... and an mcp.py with an exposure, an action, a tool, a prompt, a resource",
    "serving": "... and the application of asgi.py, which serves",
}
# The most that one start may cost more, by what is measured: ms of processor time, MB.
MOST: Final[Mapping[str, Mapping[str, float]]] = {
    "with": {"settings_ms": 30, "setup_ms": 60, "resident_mb": 5},
    "declared": {"setup_ms": 60, "resident_mb": 5},
    "serving": {},
}
KINDS: Final = ("without", *TITLES)

Start = Mapping[str, float]


def measure(rounds: int) -> dict[str, Any]:
    """Return for each kind of start what it costs over the project without the app.

    Starts that followed each other are compared, so that a machine that slows down slows both. One round that nobody
    counts writes the bytecode.
    """
    found = [{kind: _start(kind) for kind in KINDS} for _ in range(rounds + 1)][1:]
    return {
        "rounds": rounds,
        "without": _middle([{name: starts["without"][name] for name in starts["without"]} for starts in found]),
        "over": {kind: _over(kind, found) for kind in TITLES},
    }


def _start(kind: str) -> Start:
    command = [sys.executable, "-m", "benchmarks.installed.start", kind]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    started: Start = json.loads(done.stdout)
    return started


def _over(kind: str, found: Sequence[Mapping[str, Start]]) -> dict[str, Any]:
    more = [{name: starts[kind][name] - starts["without"][name] for name in starts[kind]} for starts in found]
    middle, most = _middle(more), MOST[kind]
    return {
        **middle,
        "setup_ms_range": [round(pick(start["setup_ms"] for start in more), 1) for pick in (min, max)],
        "reached": all(middle[name] <= bound for name, bound in most.items()) if most else None,
    }


def _middle(starts: Sequence[Start]) -> dict[str, float]:
    return {name: round(statistics.median(start[name] for start in starts), 1) for name in starts[0]}


def setup_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table."""
    if not found:
        return []
    title = f"django.setup(), {found['rounds']} starts each; over a project without the app"
    lines = ["", f"{title:<79}{'CPU ms':>8}{'range':>13}{'MB':>6}{'modules':>9}{'settings ms':>13}"]
    without = found["without"]
    lines.append(_line("a project without it", without, ""))
    for kind, cost in found["over"].items():
        least, most = cost["setup_ms_range"]
        mark = {None: "", True: "  ✓", False: "  ✗"}[cost["reached"]]
        lines.append(_line(TITLES[kind], cost, f"{least:.0f} to {most:.0f}") + mark)
    bounds = MOST["with"]
    lines.append(
        f"  targets: {bounds['setup_ms']:g} ms, {bounds['resident_mb']:g} MB; {bounds['settings_ms']:g} ms in settings"
    )
    return lines


def _line(title: str, cost: Start, spread: str) -> str:
    return (
        f"  {title:<77}{cost['setup_ms']:>8.0f}{spread:>13}{cost['resident_mb']:>6.1f}{cost['modules']:>9.0f}"
        f"{cost['settings_ms']:>13.1f}"
    )
