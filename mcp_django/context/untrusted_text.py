"""Untrusted text that clients and applications chose: clean it for display, and warn of names that imitate others.

The rules for names are those of Unicode's identifiers (UTS 39, sections 4 and 5): a word has letters of one script (by
the characters' names), and none that pass for another's. Names that break them are not refused: people are warned.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from django.utils.translation import gettext as _

# Control, format (bidi and zero-width), surrogate, private, unassigned, and the two separators that break lines.
UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters, signs and marks that are invisible or look like a gap (default ignorable, and blanks of several scripts).
BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U00013441\U00013442\U0001d159")
# Major Unicode categories of visible characters: letters, numbers, punctuation, symbols.
VISIBLE: Final = frozenset("LNPS")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def plain(text: object, limit: int = 100) -> str:
    """Clean an untrusted text: one line of at most ``limit`` characters, each misleading character replaced. Anything
    but a string becomes "", and so does a text without a visible character. Templates have to escape HTML."""
    if not isinstance(text, str):
        return ""
    shown = " ".join("".join(map(_shown, text[:limit])).split())
    if any(unicodedata.category(char)[0] in VISIBLE for char in shown):
        return shown
    return ""


def _shown(char: str) -> str:
    if unicodedata.category(char) in UNPRINTABLE or char in BLANK:
        return REPLACEMENT
    return char


# Maximum characters of a name that are kept and shown (see ``plain``).
LONGEST: Final = 100
# Maximum marks on one letter: more would cover the text around it (UTS 39, section 5.4).
MOST_MARKS: Final = 4
# Scripts that one word of a language can mix (UTS 39, section 5.2).
TOGETHER: Final = (
    frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "LATIN"}),
    frozenset({"CJK", "BOPOMOFO", "LATIN"}),
    frozenset({"CJK", "HANGUL", "LATIN"}),
)
# Cyrillic and Greek letters that look like Latin ones in the usual typefaces.
TWINS: Final = str.maketrans(
    "асԁеһіјӏорԛѕухԝαινορυγϳ" + "АВЕЅІЈКМНОРСТУХԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",  # noqa: RUF001
    "acdehijlopqsyxwaivopuyj" + "ABESIJKMHOPCTYXQWABEZHIKMNOPTYX",
)
# Digits that are read as letters.
DIGITS: Final = str.maketrans("01345", "oleas")
# A capital I and a small l look like one stroke in the usual typefaces, as does the letter that replaces both here.
STROKE: Final = "ı"  # noqa: RUF001
STROKES: Final = str.maketrans("Il", STROKE * 2)
# Signs with which services mark accounts that they have verified.
SEALS: Final = frozenset("✓✔✅☑🗸🗹⍻🔒🔐🔏🛡")
_SMALL_CAPITAL: Final = re.compile(r"LATIN LETTER SMALL CAPITAL ([A-Z])")
# Well-known products and the domains of their makers. Nobody else uses the names in DISTINCT. Those in ORDINARY are
# also ordinary words, so only a name that begins with one claims to be the product.
DISTINCT: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("anthropic.com", "claude.ai", "claude.com"),
    "claude": ("claude.ai", "claude.com", "anthropic.com"),
    "chatgpt": ("chatgpt.com", "openai.com"),
    "openai": ("openai.com", "chatgpt.com"),
    "vscode": ("vscode.dev", "visualstudio.com", "microsoft.com", "github.com"),
    "copilot": ("github.com", "microsoft.com", "copilotstudio.com"),
}
ORDINARY: Final[Mapping[str, tuple[str, ...]]] = {
    "codex": ("openai.com", "chatgpt.com"),
    "cursor": ("cursor.com", "cursor.sh"),
    "gemini": ("google.com", "google.dev"),
    "google": ("google.com", "google.dev"),
    "microsoft": ("microsoft.com", "visualstudio.com", "github.com"),
    "visualstudio": ("vscode.dev", "visualstudio.com", "microsoft.com", "github.com"),
}


def doubts_about(name: str, hosts: Sequence[str] = ()) -> list[str]:
    """Return warnings about untrusted text in a name that somebody chose, none if it is an ordinary name.

    ``hosts`` are the application's verified hosts (lower case, without a port), none if unknown. An application on the
    user's own computer has none, and may then claim to be a product without a warning.
    """
    found = []
    if _has_unseen(name):
        found.append(_("Its name has characters that cannot be seen or that disguise others; � stands for them."))
    product = _claimed(name)
    if _is_mixed(name) or (product is not None and _claimed(name, strokes=False) is None):
        found.append(_("Letters of its name come from several alphabets, or look like those of another one."))
    if SEALS.intersection(name):
        found.append(_("Its name has a check mark or a similar sign, which proves nothing."))
    if len(name) >= LONGEST:
        found.append(_("Its name is very long. Only the beginning is shown."))
    strangers = (
        []
        if product is None
        else [host for host in hosts if not any(f".{host}".endswith(f".{domain}") for domain in product[1])]
    )
    if product is not None and strangers:
        told = {"product": product[0], "hosts": ", ".join(strangers[:3])}
        found.append(
            _("Its name suggests “%(product)s”, but %(hosts)s does not belong to the makers of that product.") % told
        )
    return found


def _has_unseen(name: str) -> bool:
    if any(char == REPLACEMENT or char in BLANK or unicodedata.category(char) in UNPRINTABLE for char in name):
        return True
    marks = 0
    for char in unicodedata.normalize("NFD", name):
        marks = marks + 1 if unicodedata.category(char) == "Mn" else 0
        if marks > MOST_MARKS:
            return True
    return False


def _is_mixed(name: str) -> bool:
    """Return whether a word of an untrusted name mixes scripts that nobody writes together, or passes for Latin."""
    words = list(_words(unicodedata.normalize("NFKC", name)))
    if any(_plain(char) != char for char in name):
        return True
    scripts = [
        {unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()} - {"MODIFIER"}
        for word in words
    ]
    if any(len(found) > 1 and not any(found <= together for together in TOGETHER) for found in scripts):
        return True
    # Words of look-alikes alone are genuine if all are short, or if another word has other letters.
    passing = [word.translate(TWINS).isascii() for word in words]
    long = [len(word) > 3 and bool(found & {"CYRILLIC", "GREEK"}) for word, found in zip(words, scripts, strict=True)]
    return all(passing) and any(long)


def _words(text: str) -> Iterator[str]:
    return (found[0] for found in re.finditer(r"[^\W_]+", text))


def _claimed(name: str, *, strokes: bool = True) -> tuple[str, tuple[str, ...]] | None:
    """Return the well-known product that an untrusted name imitates, and its domains; None for other names."""
    # Reduce the name to its looks: drop marks, turn look-alikes and digits into the letters that they pass for.
    plain = "".join(map(_plain, unicodedata.normalize("NFKD", name)))
    bare = (char for char in plain if unicodedata.category(char) not in ("Mn", "Cf"))
    text = "".join(bare).replace(REPLACEMENT, "").translate(TWINS)
    text = text.translate(STROKES) if strokes else text
    words = list(_words(text.casefold().translate(TWINS).translate(DIGITS)))
    pairs = ["".join(pair) for pair in pairwise(words)]
    spelt_out = "".join(words)
    for product, hosts in DISTINCT.items():
        look = _look(product)
        if any(map(look.fullmatch, (*pairs, spelt_out))) or any(map(look.match, words)):
            return product, hosts
    for product, hosts in ORDINARY.items():
        if any(map(_look(product).fullmatch, (*words[:1], *pairs[:1], spelt_out))):
            return product, hosts
    return None


def _look(product: str) -> re.Pattern[str]:
    """Return a pattern for untrusted names that imitate a product's, in which one stroke can stand for an i or an l."""
    return re.compile(re.sub("[il]", lambda found: f"[{found[0]}{STROKE}]", product))


def _plain(char: str) -> str:
    """Return the plain letter for an untrusted character that is its small capital, any other character as it is."""
    found = _SMALL_CAPITAL.fullmatch(unicodedata.name(char, ""))
    return found[1].lower() if found is not None else char
