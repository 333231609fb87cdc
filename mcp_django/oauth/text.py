"""Text that a stranger chose, made fit to show."""

import unicodedata
from typing import Final

__all__ = ["plain"]

# Control, format (bidi and zero-width), surrogate, private, unassigned, and the two separators that break lines.
UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def plain(text: object, limit: int = 100) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, each character that could mislead replaced.

    Anything but a string becomes "". HTML is left to the template.
    """
    if not isinstance(text, str):
        return ""
    shown = "".join(REPLACEMENT if unicodedata.category(char) in UNPRINTABLE else char for char in text[:limit])
    return " ".join(shown.split())
