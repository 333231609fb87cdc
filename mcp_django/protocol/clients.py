"""Limitations of known client programs, by the name that they give themselves in ``clientInfo``.

A name proves nothing and decides nothing about rights: it only spares a client what it would lose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client can take.

    ``result_chars`` are the characters of a result that reach its model, None where nothing is known to be lost.
    ``shows_numbers`` tells whether its forms have fields for numbers.
    """

    result_chars: int | None = None
    shows_numbers: bool = True


# OpenAI Codex leaves out the middle of longer results, and accepts a form with a number without showing it.
KNOWN: Final[Mapping[str, Limits]] = {
    "codex-mcp-client": Limits(result_chars=10_000, shows_numbers=False),
}
UNLIMITED: Final = Limits()


def limits_of(name: str) -> Limits:
    """Return the limits of the client with this name."""
    return KNOWN.get(name, UNLIMITED)
