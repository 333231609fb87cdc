"""The valid names nearest to a wrong one, and the error for a name that is not valid."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Final

from ..exceptions import Repair, ToolError
from .fields import TEXTUAL

MAX_LISTED: Final = 40
# Maximum number of characters of the names in a message, and of a text that is compared with names.
MAX_CHARS: Final = 360
MAX_COMPARED: Final = 100
# Minimum similarity of a name that may be meant (0 to 1), and how much less similar than the best one it may be.
NEAR: Final = 0.6
CLOSE: Final = 0.06
MAX_NEAR: Final = 3
# Minimum similarity of two words of which one is a misspelling of the other.
TYPO: Final = 0.7
# Minimum number of letters of a choice that one letter can differ from, and of one that two letters can.
SHORTEST: Final = 4
LONG: Final = 8
# Signs that a choice can be written with or without, and signs that deny what follows.
_EMPTY_SIGNS: Final = frozenset(" _-.:'\"`?")
_DENYING: Final = frozenset("-!~^<>=")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")
COUNTING: Final = frozenset(("count", "counts", "cnt", "num", "number", "nr", "n"))
# Words that a name may lack without meaning something else, and words of lookups, which never count as misspelt.
_FILLING: Final = frozenset(("at", "on", "of", "by", "the", "is", "id", "pk", "date", "time", "datetime"))
_ASKING: Final = frozenset(
    {
        *TEXTUAL,
        "endswith",
        "iendswith",
        "exact",
        "iexact",
        "count",
        "year",
        "quarter",
        "month",
        "week",
        "hour",
        "minute",
    }
)
_PLURALS: Final = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("s", ""))


def alternatives(text: Any, names: Iterable[str], near: Sequence[str] | None = None) -> str:
    """Return the end of an error message: the valid names, after the nearest to ``text``."""
    known = list(names)
    near = nearest(text, known) if near is None else near
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    shown = known[:MAX_LISTED]
    while len(shown) > 1 and sum(map(len, shown)) + 2 * len(shown) > MAX_CHARS:
        shown.pop()
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"{meant}Valid: {', '.join(shown)[:MAX_CHARS] or 'none'}{more}."


def nearest(text: Any, names: Iterable[str]) -> list[str]:
    """Return the valid names nearest to a misspelt one, several if none stands out.

    These differ from the text only in case, signs or plural; if there are none, they are the most similar names.
    """
    known = list(dict.fromkeys(names))
    if not isinstance(text, str) or not letters(text):
        return []
    text = text[:MAX_COMPARED]
    for form in (letters, singular):
        same = [name for name in known if form(name) == form(text)]
        if same:
            return same[:MAX_NEAR]
    return _alike(text.lower(), known)


def misspelt(text: Any, names: Iterable[str]) -> list[str]:
    """Return the names that a text misspells: it differs from them by case, signs, plural, or one or two letters.

    A text that holds one of the names with more before it, such as ``unpaid``, means something else, and so does one
    that holds another name as well.
    """
    if not isinstance(text, str) or not letters(text) or len(text) > MAX_COMPARED or text.strip()[0] in _DENYING:
        return []
    known = list(dict.fromkeys(names))
    for form in (letters, singular):
        same = [name for name in known if form(name) == form(text) and _signs(name) == _signs(text)]
        if same:
            return same

    # None is the same but for case, signs or plural: look for one with a letter or two wrong.
    plain = letters(text)
    found = [name for name in known if _signs(name) == _signs(text) and _is_typo(plain, letters(name))]
    within = [letters(name) for name in known if letters(name) and letters(name) in plain]
    return [name for name in found if all(other in letters(name) for other in within)]


def _signs(text: str) -> str:
    """Return the signs of a text that mean something: ``A+`` is not ``A``, and ``a|b`` is two."""
    return "".join(sign for sign in text if not sign.isalnum() and sign not in _EMPTY_SIGNS)


def _is_typo(text: str, name: str) -> bool:
    numbers = [re.findall("[0-9]+", word) for word in (text, name)]
    if not name or text[0] != name[0] or numbers[0] != numbers[1] or text.endswith(name) or name.endswith(text):
        return False
    if text.startswith(name) or name.startswith(text):
        return min(len(text), len(name)) >= SHORTEST and abs(len(text) - len(name)) <= 2
    most = 2
    if len(name) < SHORTEST:
        most = 0
    elif len(name) < LONG:
        most = 1
    return abs(len(text) - len(name)) <= most and _distance(text, name) <= most


def _distance(one: str, other: str) -> int:
    """Return how many letters differ: added, left out, changed, or swapped with the next (optimal string alignment)."""
    rows = [list(range(len(other) + 1))]
    for place, letter in enumerate(one, 1):
        row = [place]
        for column, wanted in enumerate(other, 1):
            best = min(rows[-1][column] + 1, row[-1] + 1, rows[-1][column - 1] + (letter != wanted))
            is_swap = place > 1 and column > 1 and letter == other[column - 2] and one[place - 2] == wanted
            row.append(min(best, rows[-2][column - 2] + 1) if is_swap else best)
        rows.append(row)
    return rows[-1][-1]


def letters(text: str) -> str:
    """Return a name's letters and digits in lower case, in which names are compared."""
    return "".join(filter(str.isalnum, text)).lower()


def singular(text: str) -> str:
    """Return an English name without its plural ending, in lower case and without signs."""
    word = letters(text)
    for ending, instead in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def words(text: str) -> list[str]:
    """Split a name such as ``customer__name``, ``orderNumber`` or ``order number`` into words."""
    return _WORDS.findall(text)


def says_all(text: Any, name: str) -> bool:
    """Return whether a name has each word of a misspelt text.

    A name that lacks one means something else: ``orders`` is not ``num_orders``, and ``paid`` is not ``unpaid``.
    """
    if not isinstance(text, str) or letters(text[:MAX_COMPARED]) == letters(name):
        return True

    def is_same(word: str, other: str) -> bool:
        if word == other or word in _ASKING or word[0] != other[0] or word.endswith(other) or other.endswith(word):
            return word == other
        return SequenceMatcher(a=word, b=other).ratio() >= TYPO

    known = [_compared(word) for word in words(name)]
    asked = [_compared(word) for word in words(text[:MAX_COMPARED])]
    return all(word in _FILLING or any(is_same(word, other) for other in known) for word in asked)


def _compared(word: str) -> str:
    """Return the form in which a word is compared with others: singular, and one word for all that count."""
    if word.lower() in COUNTING:
        return "count"
    return singular(word)


def _alike(text: str, names: Sequence[str]) -> list[str]:
    matcher = SequenceMatcher(b=text)
    scores: dict[str, float] = {}
    for name in names:
        matcher.set_seq1(name[:MAX_COMPARED].lower())
        if matcher.real_quick_ratio() >= NEAR and matcher.quick_ratio() >= NEAR:
            scores[name] = matcher.ratio()
    best = max(scores.values(), default=0.0)
    found = [name for name, score in scores.items() if score >= NEAR and score > best - CLOSE]
    return sorted(found, key=lambda name: -scores[name])[:MAX_NEAR]


class Misnamed(ToolError):
    """Error: a name that is not one of ``names``; ``repair`` corrects the call if one nearest name is clearly meant.

    It is clearly meant if it has every word of the text, except words of the model's own name, ``of``. With ``of`` None
    it always is. ``near`` can be a function, which is called only when the message is read, and most never are.
    """

    def __init__(
        self,
        lead: str,
        text: Any,
        names: Iterable[str],
        repair: Callable[[str], Repair],
        near: Sequence[str] | Callable[[], Sequence[str]] | None = None,
        more: str = "",
        *,
        of: str | None = "",
    ) -> None:
        Exception.__init__(self, lead)
        self._lead = lead
        self._text = text
        self._names = names
        self._repair = repair
        self._more = more
        self._of = of
        self._found = near

    @cached_property
    def _known(self) -> list[str]:
        return list(dict.fromkeys(self._names))

    @cached_property
    def _near(self) -> Sequence[str]:
        near = (self._found() or None) if callable(self._found) else self._found
        if near is None:
            return nearest(self._text, self._known)
        return near

    @cached_property
    def message(self) -> str:  # type: ignore[override]
        """The text for the model."""
        return f"{self._lead} {alternatives(self._text, self._known, self._near)}{self._more}"

    @cached_property
    def repair(self) -> Repair | None:  # type: ignore[override]
        """The valid name nearest to the wrong one, as a repair; None if no name is clearly meant."""
        is_meant = len(self._near) == 1 and (self._of is None or says_all(self._text, f"{self._near[0]} {self._of}"))
        return self._repair(self._near[0]) if is_meant else None

    def __str__(self) -> str:
        return self.message
