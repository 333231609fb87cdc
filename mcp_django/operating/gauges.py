"""What is there now, such as open streams, by name: told by whoever knows it, asked by whoever measures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

Ask = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Level:
    """Something of this process that has a level: its name, what it is, and how much of it there is now."""

    name: str
    text: str
    ask: Ask


_levels: Final[dict[str, Level]] = {}


def gauge(name: str, text: str, ask: Ask) -> None:
    """Let a level of this process be measured; ``ask`` is called by any thread, and must be quick."""
    _levels[name] = Level(name, text, ask)


def levels() -> Iterator[Level]:
    """Yield what can be measured, as far as the part that knows it is loaded."""
    yield from list(_levels.values())
