"""Text that a stranger chose, made fit to show."""

import unicodedata
from typing import Final

# Control, format (bidi and zero-width), surrogate, private, unassigned, and the two separators that break lines.
UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters, signs and marks that show as nothing, or as a gap (default ignorable, and blanks of several scripts).
BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U00013441\U00013442\U0001d159")
# Of these something is to be seen.
VISIBLE: Final = frozenset("LNPS")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def plain(text: object, limit: int = 100) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, each character that could mislead replaced.

    Anything but a string becomes "", and so does a text of which nothing would be seen. HTML is left to the template.
    """
    if not isinstance(text, str):
        return ""
    shown = " ".join("".join(map(_shown, text[:limit])).split())
    return shown if any(unicodedata.category(char)[0] in VISIBLE for char in shown) else ""


def _shown(char: str) -> str:
    return REPLACEMENT if unicodedata.category(char) in UNPRINTABLE or char in BLANK else char
