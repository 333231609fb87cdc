"""Read what a client wrote: objects sent as text, and the valid names nearest to a wrong one."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from ..exceptions import Repair, ToolError
from ..protocol.errors import ParseError
from ..protocol.messages import MAX_DEPTH, MAX_ITEMS, TooMuch, decode_text
from .kinds import TEXTUAL, parse_text

MAX_LISTED: Final = 40
# Characters of the names in a message, and of a text that is compared with names.
MAX_CHARS: Final = 360
MAX_COMPARED: Final = 100
# How alike a name is that may be meant, between 0 and 1; how much less alike one is that is not meant, too.
NEAR: Final = 0.6
CLOSE: Final = 0.06
MAX_NEAR: Final = 3
# How alike two words are of which one is a misspelt other.
TYPO: Final = 0.7
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")
COUNTING: Final = frozenset(("count", "counts", "cnt", "num", "number", "nr", "n"))
# What a name may have or not without a difference; and words that ask something of a value, which are never misspelt.
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
    """Return the names as the end of an error message, after the nearest to ``text``, or those that are ``near``."""
    known = list(names)
    near = nearest(text, known) if near is None else near
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    shown = known[:MAX_LISTED]
    while len(shown) > 1 and sum(map(len, shown)) + 2 * len(shown) > MAX_CHARS:
        shown.pop()
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"{meant}Valid: {', '.join(shown)[:MAX_CHARS] or 'none'}{more}."


def nearest(text: Any, names: Iterable[str]) -> list[str]:
    """Return the names that a text may mean, several where none of them stands out.

    They are those that differ in case, signs or number alone; where there is none, those that are most alike.
    """
    known = list(dict.fromkeys(names))
    if not isinstance(text, str) or not letters(text):
        return []
    text = text[:MAX_COMPARED]
    for form in (letters, singular):
        if same := [name for name in known if form(name) == form(text)]:
            return same[:MAX_NEAR]
    return _alike(text.lower(), known)


def letters(text: str) -> str:
    """Return the letters and digits of a text, in lower case."""
    return "".join(filter(str.isalnum, text)).lower()


def singular(text: str) -> str:
    """Return the letters of an English word without the ending of the plural."""
    word = letters(text)
    for ending, instead in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def words(text: str) -> list[str]:
    """Return the words of a name such as ``customer__name``, ``orderNumber`` or ``order number``, as it has them."""
    return _WORDS.findall(text)


def says_all(text: Any, name: str) -> bool:
    """Return whether a name has each word of a text, which may be misspelt there.

    A name that lacks one says something else: ``orders`` is not ``num_orders``, and ``paid`` not ``unpaid``.
    """
    if not isinstance(text, str) or letters(text[:MAX_COMPARED]) == letters(name):
        return True
    known = list(map(_plain, words(name)))
    asked = map(_plain, words(text[:MAX_COMPARED]))
    return all(word in _FILLING or any(_is_same(word, other) for other in known) for word in asked)


def _plain(word: str) -> str:
    return "count" if word.lower() in COUNTING else singular(word)


def _is_same(word: str, other: str) -> bool:
    if word == other or word in _ASKING or (word.endswith(other) and len(word) > len(other)):
        return word == other
    return SequenceMatcher(a=word, b=other).ratio() >= TYPO


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


def misnamed(
    message: str,
    text: Any,
    names: Iterable[str],
    repair: Callable[[str], Repair],
    near: Sequence[str] | None = None,
    more: str = "",
    *,
    of: str | None = "",
) -> ToolError:
    """Return the error of a name that is none of ``names``; ``repair`` mends the call by the only one that is near.

    It does where that says all that the text says, of the model ``of``; None stands for a name that is known to mean
    the same.
    """
    known = list(names)
    near = nearest(text, known) if near is None else near
    is_meant = len(near) == 1 and (of is None or says_all(text, f"{near[0]} {of}"))
    return ToolError(f"{message} {alternatives(text, known, near)}{more}", repair=repair(near[0]) if is_meant else None)


def json_or_text(value: Any) -> Any:
    """Return the JSON object or array that a text holds: some clients send those as text.

    Raises:
        ToolError: the JSON is over a bound of messages, which holds for all JSON that comes in.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return decode_text(value)
        except TooMuch:
            raise ToolError(f"The JSON is nested over {MAX_DEPTH} levels or has over {MAX_ITEMS} items.") from None
        except ParseError:
            return value
    return value


def is_short_text(value: Any, limit: int) -> bool:
    """Return whether the value is a text of at most ``limit`` characters that every database takes."""
    try:
        return len(parse_text(None, value)) <= limit and isinstance(value, str)
    except ValueError:
        return False
