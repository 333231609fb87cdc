"""Kinds of values that a setting accepts: description, validation, and a suggestion for a wrong value."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.functional import Promise

RATE: Final = re.compile(r"([0-9]+)/([smhd])")
ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
HOST: Final = re.compile(r"\.?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
WORDS: Final = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
PROXY_URL: Final = re.compile(r"http://([^\s/?#@:]+(:[^\s/?#@]*)?@)?[A-Za-z0-9.-]+:[0-9]{1,5}/?")
HTTPS_URL: Final = re.compile(r"https://[a-z0-9][a-z0-9.:-]*(/[\x21-\x22\x24-\x7e]*)?", re.IGNORECASE)
# Result of ``Kind.meant`` for a value without a suggestion.
UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value that a setting accepts: ``words`` end the sentence "It has to be ..."; ``meant`` suggests a value
    for a wrong one."""

    words: str
    admits: Callable[[Any], bool]
    meant: Callable[[Any], Any] = lambda value: UNKNOWN

    def hint(self, value: Any) -> str:
        """Return in words which kind of value it has to be, and a suggestion for the refused value."""
        meant = self.meant(value)
        guess = f" Did you mean {meant!r}?" if meant is not UNKNOWN and self.admits(meant) else ""
        return f"It has to be {self.words}.{guess}"

    def or_none(self, meaning: str = "") -> "Kind":
        """Return the kind of value that admits None too; ``meaning`` says what None is for."""
        words = f"{self.words}, or None{meaning and f' for {meaning}'}"
        return Kind(words, lambda value: value is None or self.admits(value), self.meant)


def matching(words: str, pattern: re.Pattern[str], meant: Callable[[Any], Any] = lambda value: UNKNOWN) -> Kind:
    """The kind of value that is text, all of it as the pattern says."""
    return Kind(words, lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None, meant)


def _as_rate(value: Any) -> Any:
    found = re.fullmatch(r"\s*([0-9][0-9_]*)\s*(?:/|per)\s*([smhd])[a-z]*\s*", str(value).lower())
    return f"{int(found[1])}/{found[2]}" if found else UNKNOWN


# Only True and False themselves: Python takes any text, such as "no", for true.
FLAG: Final = Kind(
    "True or False", lambda value: isinstance(value, bool), lambda value: WORDS.get(str(value).strip().lower(), UNKNOWN)
)
# Plain or lazily translated text.
TEXT: Final = Kind("text", lambda value: isinstance(value, str | Promise))
SO_MANY: Final = matching('a number and a period (s, m, h, d), such as "600/m"', RATE, _as_rate)
# Scheme, host and port. Not `null`, which is the origin of any sandboxed page and local file.
SITE: Final = matching("one site, such as https://inspector.example", ORIGIN)
# A host in lower case; with a leading dot, the domain and all its subdomains.
HOST_NAME: Final = matching(
    "a host, such as claude.ai, or .example.com for all of a domain",
    HOST,
    lambda value: str(value).lower().partition("://")[2].partition("/")[0] or str(value).lower(),
)
# The URL can contain the user and password of the proxy.
PROXY: Final = matching(
    "the URL of an HTTP proxy, such as http://proxy.intranet:3128",
    PROXY_URL,
    lambda value: f"http://{value}".rstrip("/"),
)
# A URL without a user and a fragment.
HTTPS: Final = Kind(
    "an https URL, such as https://login.example",
    lambda value: isinstance(value, str) and len(value) < 256 and HTTPS_URL.fullmatch(value) is not None,
)
NAMES: Final = Kind(
    "a dict of names by name",
    lambda value: (
        isinstance(value, Mapping) and all(isinstance(text, str) and text for text in (*value, *value.values()))
    ),
)
URLS: Final = Kind(
    "a dict of https URLs by client id", lambda value: NAMES.admits(value) and all(map(HTTPS.admits, value.values()))
)


def _as_number(value: Any) -> Any:
    try:
        found = float(str(value).strip().replace("_", ""))
        return int(found) if found.is_integer() else found
    except (ValueError, OverflowError):
        return UNKNOWN


def whole(least: int, most: int | None = None) -> Kind:
    """The kind of value that is a whole number within bounds."""
    words = f"a whole number from {least:,}" + (f" to {most:,}" if most is not None else "")
    return Kind(
        words, lambda value: type(value) is int and least <= value and (most is None or value <= most), _as_number
    )


def number(least: float | None = None) -> Kind:
    """The kind of value that is a number above 0, or at least ``least``."""
    words = "a number above 0" if least is None else f"a number, {least:,} or more"

    def admits(value: Any) -> bool:
        return type(value) in (int, float) and (value > 0 if least is None else least <= value) and value < 1e18

    return Kind(words, admits, _as_number)


def choice(*names: str) -> Kind:
    """The kind of value that is one of the names."""
    words = f"{', '.join(f'{name!r}' for name in names[:-1])} or {names[-1]!r}"

    def similar(value: Any) -> Any:
        from ..problems import closest  # only where something is wrong

        return closest(str(value), names, 0.5) or UNKNOWN

    return Kind(words, lambda value: isinstance(value, str) and value in names, similar)


def items(words: str, kind: Kind | None = None) -> Kind:
    """The kind of value that is a list of ``kind``; text is refused, because Python would split it into characters."""

    def admits(value: Any) -> bool:
        return isinstance(value, list | tuple | set | frozenset) and (kind is None or all(map(kind.admits, value)))

    def meant(value: Any) -> Any:
        if isinstance(value, str | type):
            return [value]
        return UNKNOWN

    return Kind(f"a list of {words}", admits, meant)


def own_host() -> Kind:
    """The kind of value that is a host of the project's own network in lower case, with its port if not 443."""

    def admits(value: Any) -> bool:
        name, colon, port = str(value).partition(":")
        is_name = isinstance(value, str) and HOST.fullmatch(name) is not None and name[0] != "."
        return is_name and (not colon or (port.isdecimal() and 0 < int(port) < 65536))

    return Kind("a host, such as login.intranet or localhost:8443", admits)


def either(one: Kind, other: Kind) -> Kind:
    """A value of one of two kinds."""

    def meant(value: Any) -> Any:
        return next((found for found in (one.meant(value), other.meant(value)) if found is not UNKNOWN), UNKNOWN)

    return Kind(f"{one.words}, or {other.words}", lambda value: one.admits(value) or other.admits(value), meant)


@dataclass(frozen=True, slots=True)
class Setting:
    """The kind of value of a setting, or of a member of a group, with its default and its meaning as in the docs."""

    default: Any
    kind: Kind
    meaning: str


def wrong_member(item: Any, members: Mapping[str, Kind], required: Iterable[str] = ()) -> str:
    """Return the message for the first wrong member of a setting's dict, such as one not of its kind; "" for none."""
    if not isinstance(item, Mapping):
        return f"it has to be a dict with {', '.join(members)}."
    for name, value in item.items():
        if name not in members:
            from ..problems import nearest  # only where something is wrong

            return f"there is no member {name!r}.{nearest(name, members)}"
        if not members[name].admits(value):
            return f"{name} is {value!r}. {members[name].hint(value)}"
    missing = sorted(set(required).difference(item))
    return f"it lacks {', '.join(missing)}." if missing else ""


@dataclass(frozen=True, slots=True)
class Group(Kind):
    """The kind of value that is a dict of settings, to write those that change; ``members`` are all it can have."""

    members: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, Any]:
        """The group's value where a project writes nothing."""
        return {name: member.default for name, member in self.members.items()}

    def hint(self, value: Any) -> str:
        """Return the message for the first value in a group of settings that is not of its kind."""
        if isinstance(value, Mapping):
            wrong = wrong_member(value, {name: member.kind for name, member in self.members.items()})
            return wrong[0].upper() + wrong[1:]
        return f"It has to be {self.words}."


def group(*, can_be_off: bool = False, **members: Setting) -> Setting:
    """Make a setting that is a dict of settings; with ``can_be_off``, False is one too, and True is the defaults."""
    kinds = {name: member.kind for name, member in members.items()}

    def admits(value: Any) -> bool:
        return (can_be_off and isinstance(value, bool)) or not wrong_member(value, kinds)

    kind = Group(f"{'True, False or ' * can_be_off}a dict with {', '.join(members)}", admits, members=members)
    return Setting(kind.defaults, kind, "")


@dataclass(frozen=True, slots=True)
class Records(Kind):
    """The kind of value that is a list of dicts: ``members`` are kinds by name, ``required`` those each has to have."""

    members: Mapping[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def hint(self, value: Any) -> str:
        """Return the message for the first value in a list of dicts that is not of its kind, with its place."""
        for number, item in enumerate(value if isinstance(value, list | tuple) else (), 1):
            if wrong := wrong_member(item, self.members, self.required):
                return f"Number {number}: {wrong}"
        return f"It has to be {self.words}."


def records(words: str, members: Mapping[str, Kind], *required: str) -> Records:
    """The kind of value that is a list of dicts with these members, of which some are required."""

    def admits(value: Any) -> bool:
        return isinstance(value, list | tuple) and not any(wrong_member(item, members, required) for item in value)

    return Records(f"a list of {words}", admits, members=members, required=required)


# Who confirms a call that asks: the model that makes it may pass on its user's answer, or the person has to say it.
CONFIRMERS: Final = ("model", "person")


def confirmers(**more: Kind) -> Kind:
    """The kind of value that says who confirms calls: for all, or for deletions and above a number of rows; ``more``
    are further members of the dict."""
    one = choice(*CONFIRMERS)
    kinds = {"all": one, "delete": one, "rows": whole(0), **more}

    def admits(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(name in kinds and kinds[name].admits(item) for name, item in value.items())
        return one.admits(value)

    words = f'{one.words}, or a dict such as {{"delete": "person", "rows": 50}}'
    return Kind(words, admits, one.meant)


# Quantities that a daily budget can limit.
QUANTITIES: Final = ("calls", "rows_read", "rows_written", "bytes")
SPENDERS: Final = ("user", "client", "service")


def daily_budgets() -> Kind:
    """The kind of value of the budgets setting: limits by user, client or service account, None for no limit."""

    def admits_one(name: Any, limits: Any) -> bool:
        if not isinstance(name, str) or not isinstance(limits, Mapping):
            return False
        kind, colon, owner = name.partition(":")
        if kind not in SPENDERS:
            return False
        # "user:" names nobody; without a name there is no colon either.
        if colon and not owner:
            return False
        return all(
            quantity in QUANTITIES and (limit is None or (type(limit) is int and limit >= 0))
            for quantity, limit in limits.items()
        )

    words = (
        'a dict by "user", "client", "service" or one of them with a name ("user:ada"), each a dict of whole numbers, '
        f"0 or more, or None for no limit, by {', '.join(QUANTITIES)}"
    )
    return Kind(words, lambda value: isinstance(value, Mapping) and all(admits_one(*item) for item in value.items()))


def times(*names: str) -> Kind:
    """The kind of value that is a number of milliseconds for all, or a dict of them by name."""
    one = whole(0)

    def admits(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(name in names for name in value) and all(map(one.admits, value.values()))
        return one.admits(value)

    words = f"a number of milliseconds, 0 or more, or a dict of them by {', '.join(names)}"
    return Kind(words, admits, one.meant)
