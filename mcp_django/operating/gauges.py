"""Gauges of this process, such as the number of open streams."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

Ask = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge of this process, such as open streams: its name, description, and the function that returns its value."""

    name: str
    text: str
    ask: Ask


_levels: Final[dict[str, Level]] = {}


def gauge(name: str, text: str, ask: Ask) -> None:
    """Register a gauge of this process; ``ask`` returns its value, is called by any thread, and must be quick."""
    _levels[name] = Level(name, text, ask)


def levels() -> Iterator[Level]:
    """Yield the gauges that the loaded modules have registered."""
    yield from list(_levels.values())
