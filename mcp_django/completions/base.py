"""The interface of completions, and the order of their values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..schema.jsonable import clean_text

# Of one answer (server/utilities/completion, Completion Results).
MAX_VALUES: Final = 100
# Characters of what a person typed. Nothing that could be completed is longer.
MAX_TEXT: Final = 200
# A longer value is a text to read, not one to choose.
MAX_VALUE: Final = 1000


@dataclass(frozen=True, slots=True)
class Completion:
    """At most ``MAX_VALUES`` values, the best first; ``more`` says that there are others."""

    values: Sequence[str] = ()
    more: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the member ``completion`` of a ``CompleteResult``; the total is there where all values are."""
        if self.more:
            return {"values": list(self.values), "hasMore": True}
        return {"values": list(self.values), "total": len(self.values)}


NOTHING: Final = Completion()


def is_usable(value: str) -> bool:
    """Return whether a client can send the value back as it is: not empty, not long, Unicode, without NUL."""
    return 0 < len(value) <= MAX_VALUE and "\0" not in value and clean_text(value) == value


def capped(values: Iterable[str]) -> Completion:
    """Return the completion of values that stand in their order already. Of an iterator no more is read than shown."""
    found: dict[str, None] = {}
    for value in values:
        if is_usable(value) and value not in found:
            if len(found) == MAX_VALUES:
                return Completion(tuple(found), more=True)
            found[value] = None
    return Completion(tuple(found))


def ranked(candidates: Iterable[tuple[str, str]], text: str) -> Completion:
    """Return those of a closed list of ``(value, label)`` that ``text`` stands for, whatever the case of its letters.

    First the value itself, then what begins with the text, then labels that do, then what holds it somewhere; values
    of one rank keep their order.
    """
    wanted = text.casefold()
    found: list[tuple[int, str]] = []
    for value, label in candidates:
        rank = _rank(value.casefold(), label.casefold(), wanted)
        if rank is not None:
            found.append((rank, value))
    return capped(value for _, value in sorted(found, key=lambda item: item[0]))


def _rank(value: str, label: str, wanted: str) -> int | None:
    if not wanted:
        return 0
    tests = (value == wanted, value.startswith(wanted), label.startswith(wanted), wanted in value or wanted in label)
    return next((rank for rank, fits in enumerate(tests) if fits), None)


def last_member(text: str) -> tuple[str, str]:
    """Return the part of a comma list that is written already, with its last comma, and the member being written."""
    written, comma, member = text.rpartition(",")
    space = member[: len(member) - len(member.lstrip(" "))]
    return written + comma + space, member[len(space) :]
