"""Kinds of values for settings: each has a description, a test, and a guess at what a wrong value was meant to be.

:data:`~mcp_django.conf.SETTINGS` names one for each setting. Nothing here needs Django to be set up.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise

RATE: Final = re.compile(r"([0-9]+)/([smhd])")
ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
YES: Final = ("true", "yes", "on", "1")
NO: Final = ("false", "no", "off", "0")
# What is meant by it is not known.
UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: ``words`` end the sentence "It has to be ..."; ``meant`` gives what ``admits`` would take."""

    words: str
    admits: Callable[[Any], bool]
    meant: Callable[[Any], Any] = lambda value: UNKNOWN

    def hint(self, value: Any) -> str:
        """Return what to write in place of a value that is refused."""
        meant = self.meant(value)
        guess = f" Did you mean {meant!r}?" if meant is not UNKNOWN and self.admits(meant) else ""
        return f"It has to be {self.words}.{guess}"

    def or_none(self, meaning: str = "") -> "Kind":
        """Return the kind that admits None too, which means what is said."""
        words = f"{self.words}, or None{meaning and f' for {meaning}'}"
        return Kind(words, lambda value: value is None or self.admits(value), self.meant)


def nearest(name: Any, known: Iterable[str], least: float = 0.6) -> str:
    """Return " Did you mean ...?" with the nearest of the names, or "" where none is as near as ``least`` (to 1)."""
    found = _closest(str(name), known, least)
    return f" Did you mean {found!r}?" if found is not None else ""


def _closest(name: str, known: Iterable[str], least: float) -> str | None:
    from difflib import get_close_matches  # only where something is wrong

    by_lower = {item.lower(): item for item in known}
    found = get_close_matches(name.strip().lower(), by_lower, 1, least)
    return by_lower[found[0]] if found else None


def _as_flag(value: Any) -> Any:
    word = str(value).strip().lower()
    return True if word in YES else False if word in NO else UNKNOWN


def flag() -> Kind:
    """True or False, and nothing that Python takes for one of them: "no" would be true."""
    return Kind("True or False", lambda value: isinstance(value, bool), _as_flag)


def text() -> Kind:
    """Text, translated or not."""
    return Kind("text", lambda value: isinstance(value, str | Promise))


def _as_number(value: Any) -> Any:
    try:
        found = float(str(value).strip().replace("_", ""))
        return int(found) if found.is_integer() else found
    except (ValueError, OverflowError):
        return UNKNOWN


def whole(least: int, most: int | None = None) -> Kind:
    """A whole number within bounds."""
    words = f"a whole number from {least:,}" + (f" to {most:,}" if most is not None else "")
    return Kind(
        words, lambda value: type(value) is int and least <= value and (most is None or value <= most), _as_number
    )


def number(least: float | None = None) -> Kind:
    """A number above 0, or one that is at least ``least``."""
    words = "a number above 0" if least is None else f"a number, {least:,} or more"

    def admits(value: Any) -> bool:
        return type(value) in (int, float) and (value > 0 if least is None else least <= value) and value < 1e18

    return Kind(words, admits, _as_number)


def _as_rate(value: Any) -> Any:
    found = re.fullmatch(r"\s*([0-9][0-9_]*)\s*(?:/|per)\s*([smhd])[a-z]*\s*", str(value).lower())
    return f"{int(found[1])}/{found[2]}" if found else UNKNOWN


def rate() -> Kind:
    """So many in a period."""
    words = 'a number and a period (s, m, h, d), such as "600/m"'
    return Kind(words, lambda value: isinstance(value, str) and RATE.fullmatch(value) is not None, _as_rate)


def choice(*names: str) -> Kind:
    """One of the names."""
    words = f"{', '.join(f'{name!r}' for name in names[:-1])} or {names[-1]!r}"

    def meant(value: Any) -> Any:
        found = _closest(str(value), names, 0.5)
        return UNKNOWN if found is None else found

    return Kind(words, lambda value: isinstance(value, str) and value in names, meant)


def origin() -> Kind:
    """Scheme, host and port of one site: ``null`` is the origin of any sandboxed page and local file."""
    words = "one site, such as https://inspector.example"
    return Kind(words, lambda value: isinstance(value, str) and ORIGIN.fullmatch(value) is not None)


def items(words: str, kind: Kind | None = None) -> Kind:
    """A list of values, each of the kind; text is none, as Python would take each of its characters for one."""

    def admits(value: Any) -> bool:
        return isinstance(value, list | tuple | set | frozenset) and (kind is None or all(map(kind.admits, value)))

    return Kind(f"a list of {words}", admits, lambda value: [value] if isinstance(value, str | type) else UNKNOWN)


def times(*names: str) -> Kind:
    """Milliseconds for all, or a dict of them by name."""
    one = whole(0)

    def admits(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(name in names for name in value) and all(map(one.admits, value.values()))
        return one.admits(value)

    words = f"a number of milliseconds, 0 or more, or a dict of them by {', '.join(names)}"
    return Kind(words, admits, one.meant)
