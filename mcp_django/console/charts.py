"""Charts as SVG, drawn on the server: bars of calls by outcome, lines of durations, and the table that says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from .figures import Step, percentile

# In units of the picture, which is scaled to its place.
WIDTH: Final = 720
HEIGHT: Final = 160
# Of the steps' width, the bars take so much.
BAR: Final = 0.8
# From the axis upwards.
GROUPS: Final = ("ok", "open", "refused", "failed")


@dataclass(frozen=True)
class Bar:
    """One rectangle; what it stands for is its ``group``, its ``count``, and the step that it is of."""

    group: str
    count: int
    step: Step
    x: str
    y: str
    width: str
    height: str


def bars(steps: Sequence[Step]) -> list[Bar]:
    """Return the bars of the calls of each step, one group upon the other."""
    most = max((sum(step.counts.values()) for step in steps), default=0)
    wide = WIDTH / max(1, len(steps))
    found = []
    for number, step in enumerate(steps):
        top = float(HEIGHT)
        for group in GROUPS:
            if count := step.counts[group]:
                height = count * HEIGHT / most
                top -= height
                place = (number * wide + wide * (1 - BAR) / 2, top, wide * BAR, height)
                found.append(Bar(group, count, step, *(f"{value:.2f}" for value in place)))
    return found


@dataclass(frozen=True)
class Line:
    """A line of durations: ``points`` for the picture, and the ``most`` ms that its height stands for."""

    name: str
    points: str
    values: list[float]


def lines(steps: Sequence[Step], shares: dict[str, float]) -> tuple[list[Line], float]:
    """Return a line for each share of the calls, such as ``{"p95": 0.95}``, and how many ms the height stands for."""
    ordered = [sorted(step.durations) for step in steps]
    values = {name: [percentile(durations, share) for durations in ordered] for name, share in shares.items()}
    most = max((value for found in values.values() for value in found), default=0.0)
    wide = WIDTH / max(1, len(steps))
    made = []
    for name, found in values.items():
        points = [
            f"{number * wide + wide / 2:.2f},{HEIGHT - (value * HEIGHT / most if most else 0):.2f}"
            for number, value in enumerate(found)
            if ordered[number]
        ]
        made.append(Line(name, " ".join(points), found))
    return made, most


def table(steps: Sequence[Step], shares: dict[str, float]) -> list[dict[str, Any]]:
    """Return what the charts show as rows: the steps with calls, the newest first."""
    rows = []
    for step in reversed(steps):
        if step.durations:
            ordered = sorted(step.durations)
            counts = {group: step.counts[group] for group in GROUPS}
            times = {name: percentile(ordered, share) for name, share in shares.items()}
            rows.append({"step": step, "calls": sum(counts.values()), **counts, **times})
    return rows
