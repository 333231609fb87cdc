"""The query of the console: a text such as ``failed 14:05 client:Codex``, its terms, and the calls that it finds.

A term is ``name:value``, a time, or a clear word such as an id or a part of a name. A call has to match one of the
terms of each name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.db import router
from django.db.models import Exists, F, Min, Q, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext as _

from ..emulation.history import call_of
from ..models import CallEntry, Change, PartialIndex
from ..templatetags.mcp_console import Outcome, local_time
from .query_times import RELATIVE, TIMELY, Period, TimeReader

# A column (or lookup), and the values of which a call must have one.
Look: TypeAlias = tuple[str, list[Any]]

# Number of newest calls whose values are known, and of calls that are searched for what no index finds.
NEWEST: Final = 2_000
LOOKED_THROUGH: Final = 5_000
MOST_TERMS: Final = 12
# Maximum number of names that a part of them stands for, and of words that are read as one.
MOST_NAMES: Final = 20
MOST_WORDS: Final = 6
# Number of these names that a chip shows.
SHOWN: Final = 3
# Minimum length of a text that is looked for within names, and of one that is looked for in reasons.
MIN_PART: Final = 2
TELLING: Final = 3
# Number of words of one query that are compared with names, of names of a kind that they are compared with, and of
# characters that count: one comparison takes a time that grows with the product of both lengths.
MOST_COMPARED: Final = 3
COMPARED_NAMES: Final = 200
COMPARED_CHARS: Final = 60
# The column of each term by the term's name.
COLUMNS: Final = {
    "caller": "kind", "id": "call_id", "error": "error_id", "user": "username", "client": "client_name",
    "reason": "detail", "row": "row_key", "time": "time", "duration": "duration", "outcome": "outcome",
    "writes": "writes", "tool": "tool", "model": "model", "method": "method", "action": "action", "site": "site",
    "session": "session", "token": "token", "version": "version", "trace": "trace", "cause": "cause",
    "release": "release",
}  # fmt: skip
# What a query has to say for SQLite to use the index of these columns, which has some rows only. The sample's index
# begins with the time, but another column decides about its rows.
PARTIAL: Final = {
    index.fields[0]: index.where
    for index in CallEntry._meta.indexes
    if isinstance(index, PartialIndex) and index.fields[0] != "time"
}
# Names for a word without one: it gets the first of these for which the newest calls have the word as a value.
NAMING: Final = ("tool", "model", "client", "user", "method", "action", "site")
ALIASES: Final = {"slow": "duration", "kind": "caller", "status": "outcome", "call": "id"}
# Words that are terms by themselves.
WORDS: Final = {
    **dict.fromkeys(("failed", "error", "errors", "failure", "failures"), ("outcome", "failed")),
    **dict.fromkeys(("refused", "denied"), ("outcome", "refused")),
    **{name: ("outcome", name) for name in ("ok", "open")},
    **{"slow": ("duration", ">1000"), "writes": ("writes", "yes")},
}
TOKEN: Final = re.compile(r'(?:"(?:[^"]|"")*(?:"|$)|[^\s"])+')
QUOTED: Final = re.compile(r'"((?:[^"]|"")*)(?:"|$)')
OUTCOME: Final = re.compile(
    r"tool_error|asked|tried|task|cancelled|error:(-?[0-9]{1,9}|[a-z_]{1,11})|refused:[a-z_.-]{1,32}"
)
DURATION: Final = re.compile(r"([<>]?)=?([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(ms|s)?")
HEX: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{32}")
CHANGE: Final = re.compile(r"#([0-9]{1,18})")
INDEXED: Final = {"call_id", *(index.fields[0] for index in CallEntry._meta.indexes)}


@dataclass(frozen=True)
class Term:
    """One term of a query. For a word that could not be read, ``name`` is "" and ``said`` tells why.

    ``names`` are those that a value stands for which is a part of them.
    """

    name: str
    value: str
    period: Period = field(default=(None, None), compare=False)
    said: str = field(default="", compare=False)
    nearest: str = field(default="", compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        if self.name == "time" or (self.name == "outcome" and self.value in Outcome.GROUPS):
            return self.value
        if self.name == "writes":
            return self.name
        value = self.value
        if re.search(r'[\s"]|^$', value) or (not self.name and TIMELY.match(value.lower())):
            value = '"' + value.replace('"', '""') + '"'
        return f"{self.name}:{value}" if self.name else value

    @property
    def label(self) -> str:
        """The text by which the console shows the term."""
        if self.name in ("", "time"):
            return str(RELATIVE.get(self.value, self.value))
        if self.name == "outcome":
            if self.value == "open":
                return _("asked or cancelled")
            return Outcome(self.value).word
        title = CallEntry._meta.get_field(COLUMNS[self.name]).verbose_name  # type: ignore[union-attr]
        if self.name == "writes":
            return str(title)
        more = ", …" if len(self.names) > SHOWN else ""
        names = f" ({', '.join(self.names[:SHOWN])}{more})" if self.names else ""
        return f"{title}: {self.value}{names}"


class KnownValues:
    """The values in the log that a query can name: every outcome, and the values of the newest calls.

    It serves the queries of one page, and asks the log once for what several of them need.
    """

    def __init__(self) -> None:
        self._looks: dict[tuple[str, str], Look] = {}
        self._edges: dict[tuple[Any, ...], datetime | None] = {}
        self._has: dict[tuple[str, str], bool | None] = {}
        self._users: dict[str, list[str]] = {}
        self._compared = 0

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """The number of newest calls with each value, by the names of terms."""
        calls = CallEntry._default_manager.order_by("-time", "-pk").values_list(*[COLUMNS[name] for name in NAMING])
        newest = list(calls[:NEWEST])
        return {name: Counter(call[place] for call in newest if call[place]) for place, name in enumerate(NAMING)}

    @cached_property
    def outcomes(self) -> list[str]:
        """Every outcome in the log, each by one look into the index."""
        calls = CallEntry._default_manager.order_by()
        outcomes: list[str] = []
        last: Any = ""
        while True:
            last = calls.filter(outcome__gt=last).aggregate(least=Min("outcome"))["least"]
            if last is None:
                return outcomes
            outcomes.append(last)

    @cached_property
    def reasons(self) -> str:
        """The reasons of the newest calls that failed or were refused."""
        failed = CallQuery((Term("outcome", "failed"), Term("outcome", "refused")), timezone.now(), self)
        rows, _since = failed.newest(CallEntry._default_manager.order_by("-time"))
        return "\0".join(dict.fromkeys(rows.filter(detail__gt="").values_list("detail", flat=True)[:NEWEST]))

    def reason(self, text: str) -> str:
        """Return a text as the newest reasons spell it, "" if it is in none of them."""
        found = re.search(re.escape(text), self.reasons, re.IGNORECASE)
        return found[0] if found else ""

    def has(self, column: str, value: str) -> bool:
        """Return whether a call has this value."""
        self.learn((column, value))
        return bool(self._has[column, value])

    def learn(self, *pairs: tuple[str, str]) -> None:
        """Ask the log once whether calls have these values of columns."""
        rows = CallEntry._default_manager.order_by()
        asked = {
            (column, value): Exists(rows.filter(PARTIAL.get(column, Q()), **{column: value}))
            for column, value in pairs
            if (column, value) not in self._has
        }
        self._ask(self._has, asked)

    def _ask(self, answers: dict[Any, Any], asked: dict[Any, Any]) -> None:
        """Add the answers to what is asked, all by one query."""
        if asked:
            named = {f"answer_{number}": each for number, each in enumerate(asked.values())}
            # Any call will do: its row has the answers.
            found = CallEntry._default_manager.order_by("pk").annotate(**named).values_list(*named).first()
            answers.update(zip(asked, found or [None] * len(asked), strict=True))

    def spelling(self, name: str, value: str) -> str:
        """Return a value as the newest calls spell it, "" if they have none."""
        if value in self.counts.get(name, ()):
            return value
        return self._spellings.get(name, {}).get(value.lower(), "")

    @cached_property
    def _spellings(self) -> dict[str, dict[str, str]]:
        return {name: {value.lower(): value for value in reversed(values)} for name, values in self.counts.items()}

    @cached_property
    def spoken(self) -> dict[str, list[str]]:
        """The codes of outcomes by the words that pages show for them."""
        return Outcome.spoken()

    def nearest(self, word: str) -> str:
        """Return the text of the term that is most like a word, "" if none is."""
        if self._compared == MOST_COMPARED:
            return ""
        self._compared += 1

        texts = {each: each for each in (*WORDS, *RELATIVE)}
        for name in NAMING:
            for value, _count in self.counts[name].most_common(COMPARED_NAMES):
                texts.setdefault(value.lower()[:COMPARED_CHARS], str(Term(name, value)))
        near = get_close_matches(word.rpartition(":")[2].lower()[:COMPARED_CHARS], texts, 1)
        return texts[near[0]] if near else ""

    def parts(self, name: str, text: str) -> list[str]:
        """Return the values of the newest calls that contain a text, the most frequent ones first."""
        low = text.lower()
        found = [value for value, _count in self.counts[name].most_common() if low in value.lower()]
        return found[:MOST_NAMES]

    def names(self, name: str, value: str) -> list[str]:
        """Return the values that a term stands for: its own one, or those of the newest calls that contain it.

        A value that some call has, or some user, wins over those that contain it.
        """
        if name not in NAMING or not value:
            return [value]
        if spelled := self.spelling(name, value):
            return [spelled]
        parts = self.parts(name, value)
        if parts and self.is_exact(name, value):
            return [value]
        return parts or [value]

    def is_exact(self, name: str, value: str) -> bool:
        """Return whether a call has exactly this value, or a user this name; False where no index tells."""
        column, values = self._exact(name, value)
        return column == "user" or (column in INDEXED and self.has(column, *values))

    def find_edges(
        self, rows: QuerySet[CallEntry], key: Any, pairs: Iterable[tuple[str, Any]]
    ) -> dict[tuple[str, Any], datetime | None]:
        """Return, by column and value, the time of the first call after ``LOOKED_THROUGH`` ones that have it.

        It is None without such a call. ``rows`` are in order; ``key`` tells them from others. One query asks for all.
        """
        pairs = list(pairs)
        asked = {}
        for column, value in pairs:
            if (key, column, value) not in self._edges:
                times = rows.filter(PARTIAL.get(column, Q()), **{column: value}).values("time")
                asked[key, column, value] = Subquery(times[LOOKED_THROUGH : LOOKED_THROUGH + 1])
        self._ask(self._edges, asked)
        return {(column, value): self._edges[key, column, value] for column, value in pairs}

    def look(self, name: str, value: str) -> Look:
        """Return what a term looks at: a column, and the values that it may have."""
        if (name, value) not in self._looks:
            self._looks[name, value] = self._look(name, value)
        return self._looks[name, value]

    def _look(self, name: str, value: str) -> Look:
        if name == "outcome" and value in Outcome.GROUPS:
            return name, [each for each in self.outcomes if Outcome(each).group == value]
        if name == "duration":
            lookup = "duration__lt" if value[0] == "<" else "duration__gt"
            return lookup, [float(value[1:])]
        if name == "reason":
            return "detail__icontains", [value]
        names = self.names(name, value)
        if len(names) == 1:
            return self._exact(name, names[0])
        if name == "user":
            keys = self.user_keys(*names)
            if len(keys) >= len(names):
                return name, keys
        return COLUMNS[name], names

    def _exact(self, name: str, value: str) -> Look:
        if name == "client" and self.has("client_id", value):
            return "client_id", [value]
        if name == "user":
            if keys := self.user_keys(value):
                return name, keys
            if value not in self.counts[name] and self.has("user", value):
                return name, [value]
        if name == "writes":
            return name, [value == "yes"]
        return COLUMNS[name], [value]

    def user_keys(self, *names: str) -> list[str]:
        """Return the keys of the users with these names; one query asks for all that are not known yet."""
        model = get_user_model()
        unknown = [name for name in names if name not in self._users]
        if unknown:
            users = model._default_manager.filter(**{f"{model.USERNAME_FIELD}__in": unknown})
            found = [(name, str(key)) for name, key in users.values_list(model.USERNAME_FIELD, "pk")]
            for name in unknown:
                exact = [key for other, key in found if other == name]
                # Some databases find a name in any case.
                self._users[name] = exact or [key for other, key in found if other.lower() == name.lower()]
        return [key for name in names for key in self._users[name]]


def time_at(calls: QuerySet[CallEntry], place: int) -> datetime | None:
    """Return the time of the call at a place among calls in order, where 0 is the first; None if there are fewer."""
    return calls.values_list("time", flat=True)[place:].first()


def history_entries(keys: Iterable[Any]) -> QuerySet[LogEntry]:
    """Return the entries of the admin's history with these keys."""
    return LogEntry.objects.filter(pk__in=keys)


def calls_of(number: int) -> list[str]:
    """Return the ids of the calls that wrote the change, or the entry of the admin's history, with this number."""
    changes = Change.objects.using(router.db_for_write(Change)).filter(pk=number).values_list("call", flat=True)
    messages = history_entries([number]).values_list("change_message", flat=True)
    return list(filter(None, [*changes, *map(call_of, messages)]))


class Reader:
    """The parser of queries."""

    def __init__(self, now: datetime, known: KnownValues) -> None:
        self.known = known
        self.times = TimeReader(now)
        self._words: dict[str, list[Term]] = {}

    def read(self, text: str) -> tuple[Term, ...]:
        """Return the terms of a text and the words that cannot be read, each once, in order."""
        tokens = TOKEN.findall(text.replace("\0", " "))
        # A dict keeps the order. What is said twice counts once, or the text of the query would read as another one.
        terms: dict[Term, None] = {}
        while tokens and (len(terms) < MOST_TERMS or self._is_divided(terms, tokens)):
            size, found = self._first(tokens)
            # Only a time may have a second term beyond the maximum.
            if found and found[0].name != "time":
                found = found[: MOST_TERMS - len(terms)]
            terms.update(dict.fromkeys(found))
            del tokens[:size]
        rest = " ".join(filter(None, map(self._unquoted, tokens)))
        if rest:
            terms.setdefault(Term("", rest, said=_("That is too long.")))
        return tuple(terms)

    def _first(self, tokens: list[str]) -> tuple[int, list[Term]]:
        """Return how many of the tokens are read as one, and the terms that they are."""
        words = [self._unquoted(token) for token in tokens[:MOST_WORDS]]
        if not words[0]:
            return 1, []
        for size in range(len(words), 0, -1):
            text = " ".join(tokens[:size])
            found = [] if '"' in text else self.time(text)
            found = found or self._phrase(words[:size])
            if found:
                return size, found
        if words[0] not in self._words:
            self._words[words[0]] = self._word(words[0])
        found = self._words[words[0]]
        if found[0].name:
            return 1, found
        size, reason = self._longest_reason(words)
        if len(reason) >= TELLING:
            return size, [Term("reason", reason)]
        return 1, found

    def _longest_reason(self, words: list[str]) -> tuple[int, str]:
        """Return how many of the first words are the longest text that is in a reason, and this text."""
        longest = 0, ""
        for size in range(1, len(words) + 1):
            reason = self.known.reason(" ".join(words[:size]))
            if not reason:
                # No longer text is in one either.
                break
            longest = size, reason
        return longest

    def _is_divided(self, terms: Iterable[Term], tokens: list[str]) -> bool:
        """Return whether the last term is the beginning of a period, and the next one its end."""
        last = [*terms][-1]
        if last.name != "time" or not last.value.startswith("since"):
            return False
        _size, found = self._first(tokens)
        return bool(found) and found[0].name == "time" and found[0].value.startswith("before")

    def time(self, text: str) -> list[Term]:
        """Return the terms of a time such as ``yesterday 14:00-14:20``, none for any other text."""
        return [Term("time", value, period) for value, period in self.times.read(text)]

    def _phrase(self, words: list[str]) -> list[Term]:
        """Return the terms of words that pages show for an outcome, or of several that are exactly a name."""
        text = " ".join(words)
        if text.lower() in self.known.spoken:
            return [Term("outcome", code) for code in self.known.spoken[text.lower()]]
        if len(words) == 1 or words[0].lower() in WORDS or TIMELY.match(words[0].lower()):
            return []
        first, colon, value = text.partition(":")
        if colon:
            names = [name for name in NAMING if name == first.lower()]
        else:
            names, value = [*NAMING], text
        for name in names:
            if spelled := self.known.spelling(name, value):
                return [Term(name, spelled)]
        return []

    def named(self, name: str, value: str) -> Term | None:
        """Return the term of a name and a value, None if the name cannot have this value."""
        low = value.lower()
        if name == "outcome":
            if low in WORDS:
                low = WORDS[low][1]
            elif low in self.known.spoken:
                low = self.known.spoken[low][0]
            return Term(name, low) if low in Outcome.GROUPS or OUTCOME.fullmatch(low) else None
        if name == "duration":
            match = DURATION.fullmatch(low)
            if match is None:
                return None
            ms = float(match[2])
            if match[3] == "s":
                ms *= 1000
            return Term(name, f"{match[1] or '>'}{ms:.15g}")
        if name in ("caller", "writes"):
            return Term(name, low) if low in ("yes", *CallEntry.Kind.values) else None
        if not value or name == "time":
            return None
        if name not in NAMING:
            return Term(name, low if HEX.fullmatch(low) and name != "row" else value)
        names = self.known.names(name, value)
        if len(names) > 1:
            return Term(name, value, names=tuple(names))
        if names != [value] or self.known.spelling(name, value):
            return Term(name, names[0])
        return Term(name, value, nearest=self.known.nearest(f"{name}:{value}"))

    def _word(self, word: str) -> list[Term]:
        """Return the terms of a word, or the one that says that it cannot be read."""
        name, colon, value = word.partition(":")
        name = ALIASES.get(name.lower(), name.lower())
        if word.lower() in WORDS:
            return [Term(*WORDS[word.lower()])]
        if OUTCOME.fullmatch(word.lower()):
            return [Term("outcome", word.lower())]
        number = CHANGE.fullmatch(word)
        if number and (calls := calls_of(int(number[1]))):
            return [Term("id", call) for call in calls]
        if colon and name in COLUMNS:
            term = self.named(name, value.strip())
        else:
            term = self._guessed(word)
        if term is not None:
            return [term]
        said = _("This is not a time, and no call has it as id, user, client, tool, model or row, or in its reason.")
        examples = {"caller": "caller:service", "outcome": "failed", "duration": "duration:>500", "time": "14:05"}
        return [Term("", word, said=said, nearest=examples.get(name) or self.known.nearest(word))]

    def _guessed(self, word: str) -> Term | None:
        """Return the term that a word alone stands for: one that has it exactly, or else names that contain it."""
        digits = word.lower().replace("-", "")
        if HEX.fullmatch(digits):
            ids = {"id": digits, "session": digits, "row": word.lower()}
            self.known.learn(*[(COLUMNS[name], value) for name, value in ids.items()])
            for name, value in ids.items():
                if self.known.has(COLUMNS[name], value):
                    return Term(name, value)
            return Term("error" if len(digits) == 12 else "trace", digits)
        for name in NAMING:
            if value := self.known.spelling(name, word):
                return Term(name, value)
        columns = ("session", "row_key", "tool", "model", "client_id", "client_name", "user")
        self.known.learn(*[(column, word) for column in columns])
        for name in ("session", "row"):
            if self.known.has(COLUMNS[name], word):
                return Term(name, word)
        for name in NAMING:
            if self.known.is_exact(name, word):
                return Term(name, word)
        if len(word) < MIN_PART:
            return None
        # Names of which a word begins with the text come first.
        begins = re.compile(rf"(?<![^\W_]){re.escape(word)}", re.IGNORECASE)
        parts = {name: self.known.parts(name, word) for name in NAMING}
        containing = [name for name in NAMING if parts[name]]
        beginning = [name for name in containing if any(map(begins.search, parts[name]))]
        best = beginning or containing
        return self.named(best[0], word) if best else None

    def _unquoted(self, token: str) -> str:
        return QUOTED.sub(lambda found: found[1].replace('""', '"'), token).strip()


@dataclass(frozen=True)
class CallQuery:
    """A query: its parts are terms, and words that could not be read, in order."""

    parts: tuple[Term, ...]
    now: datetime = field(compare=False)
    known: KnownValues = field(default_factory=KnownValues, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, now: datetime) -> "CallQuery":
        """Parse the text of a query; the log is asked only for words that need it."""
        values = KnownValues()
        return cls(Reader(now, values).read(text), now, values)

    def __str__(self) -> str:
        return " ".join(map(str, self.parts))

    @property
    def terms(self) -> list[Term]:
        """The terms of the query, in order."""
        return [part for part in self.parts if part.name]

    @property
    def problems(self) -> list[Term]:
        """The words of the query that could not be read."""
        return [part for part in self.parts if not part.name]

    @property
    def period(self) -> Period | None:
        """When the calls came; None without a time."""
        periods = [term.period for term in self.terms if term.name == "time"]
        begins = [each for each, _ends in periods if each]
        ends = [each for _begins, each in periods if each]
        if periods:
            return (max(begins, default=None), min(ends, default=None))
        return None

    @property
    def is_about_failures(self) -> bool:
        """Whether the query asks for calls that failed or were refused."""
        outcomes = [Outcome(term.value) for term in self.terms if term.name == "outcome"]
        return any(
            outcome.code in ("failed", "refused") or outcome.group in ("failed", "refused") for outcome in outcomes
        )

    def url(self, path: str = "") -> str:
        """Return the URL of a page of the console with this query; "" is the current page."""
        if self.parts:
            return f"{path}?{urlencode({'q': str(self)})}"
        return path or "?"

    def spans(self, times: Mapping[str, Any]) -> list[tuple[Any, str, bool]]:
        """Return a page's links to times, of which ``times`` has the titles: title, URL, and whether it is the time."""
        texts = [str(term) for term in self.terms]
        return [(title, self.adding(time=text).url(), text in texts) for text, title in times.items()]

    @property
    def chips(self) -> list[tuple[Term, "CallQuery", "CallQuery"]]:
        """Each part, the query without it, and the query with the nearest text in its place."""
        # As the value of a time, the text stays as it is.
        return [(each, self.without(each), self.without(each, Term("time", each.nearest))) for each in self.parts]

    def without(self, part: Term, *others: Term) -> "CallQuery":
        """Return the query without one of its parts, or with others in its place."""
        parts: list[Term] = []
        for each in self.parts:
            if each == part:
                parts += others
            else:
                parts.append(each)
        return CallQuery(tuple(parts), self.now, self.known)

    def adding(self, **values: str | tuple[datetime, datetime]) -> "CallQuery":
        """Return the query with these terms in place of those with the same names.

        A time is a text, or a pair of its start and end. Names count as they are, whatever contains them. A value that
        cannot be read becomes one of the problems.
        """
        parts = [part for part in self.parts if part.name not in values]
        reader = Reader(self.now, self.known)
        for name, value in values.items():
            if isinstance(value, tuple):
                begins, ends = map(reader.times.local, value)
                parts += [Term("time", text, period) for text, period in reader.times.between(begins, ends)]
            elif name == "time":
                parts += reader.time(value)
            elif name in NAMING and value:
                parts.append(Term(name, value))
            else:
                parts.append(reader.named(name, value) or Term("", f"{name}:{value}"))
        return CallQuery(tuple(parts), self.now, self.known)

    def back_from(self, since: datetime) -> "CallQuery":
        """Return the query for the calls until the second of a time, before which this one has not searched."""
        begins, _ends = self.period or (None, None)
        ends = since + timedelta(seconds=1)
        if begins is not None:
            return self.adding(time=(begins, ends))
        return self.adding(time=f"before {local_time(ends):%Y-%m-%d %H:%M:%S}")

    def filter(self, rows: QuerySet[CallEntry]) -> QuerySet[CallEntry]:
        """Return the calls that match; none while a word cannot be read."""
        return self._narrowed(rows, self._looks())

    def newest(
        self, rows: QuerySet[CallEntry], *, from_oldest: bool = False
    ) -> tuple[QuerySet[CallEntry], datetime | None]:
        """Return the calls that match, and the time since which they were searched: None for the whole log.

        Unless an index finds exactly these calls, only the newest ``LOOKED_THROUGH`` calls that the most selective
        index finds are searched, or the oldest ones, up to the time.
        """
        looks = self._looks()
        matching = self._narrowed(rows, looks)
        # For each name, the pairs of column and value of which a call must have one.
        pairs = [[(column, value) for column, values in each for value in values] for each in looks.values()]
        indexed = [each for each in pairs if all(column in INDEXED for column, _value in each)]
        is_exact = pairs == indexed and len(pairs) == 1 and len(pairs[0]) <= 1
        if self.problems or not pairs or is_exact:
            return matching, None
        searched = indexed or [[("time__isnull", False)]]
        timed = self._in_period(rows.order_by("time" if from_oldest else "-time"))
        found = self.known.find_edges(timed, (self.period, from_oldest), chain(*searched))
        edges = []
        for each in searched:
            times = [time for time in map(found.get, each) if time is not None]
            if not times:
                return matching, None
            edges.append(min(times) if from_oldest else max(times))
        if from_oldest:
            edge = max(edges)
            matching = matching.filter(time__lte=edge)
        else:
            edge = min(edges)
            matching = matching.filter(time__gte=edge)
        # No index on time has this order, so the database uses the selective index and sorts the few rows.
        is_up = "time" in rows.query.order_by
        order = F("time").asc(nulls_first=True) if is_up else F("time").desc(nulls_last=True)
        return matching.order_by(order, "-pk"), edge

    def beside(self, rows: QuerySet[CallEntry], call: CallEntry) -> dict[str, Subquery]:
        """Return what looks for the keys of the next ``newer`` and the next ``older`` call that match."""
        newer = self._near(rows, (call.time, None), from_oldest=True)
        newer = newer.filter(Q(time__gt=call.time) | Q(time=call.time, pk__gt=call.pk)).reverse()
        # A period does not include its end.
        older = self._near(rows, (None, call.time + timedelta(microseconds=1)), from_oldest=False)
        older = older.filter(Q(time__lt=call.time) | Q(time=call.time, pk__lt=call.pk))
        return {"newer": Subquery(newer.values("pk")[:1]), "older": Subquery(older.values("pk")[:1])}

    def _near(self, rows: QuerySet[CallEntry], period: Period, *, from_oldest: bool) -> QuerySet[CallEntry]:
        """Return the calls that match in a period, as far as they are searched."""
        query = CallQuery((*self.parts, Term("time", "", period)), self.now, self.known)
        calls, _edge = query.newest(rows.order_by("-time", "-pk"), from_oldest=from_oldest)
        return calls

    def _looks(self) -> dict[str, list[Look]]:
        looks: dict[str, list[Look]] = {}
        for term in self.terms:
            if term.name != "time":
                looks.setdefault(term.name, []).append(self.known.look(term.name, term.value))
        if "reason" in looks and "outcome" not in looks:
            # These alone have a reason, and an index.
            looks["outcome"] = [self.known.look("outcome", group) for group in ("failed", "refused")]
        return looks

    def _narrowed(self, rows: QuerySet[CallEntry], looks: dict[str, list[Look]]) -> QuerySet[CallEntry]:
        for name, each in looks.items():
            conditions: list[tuple[str, Any]] = []
            for column, values in each:
                rows = rows.filter(PARTIAL.get(column, Q()))
                if "__" in column:
                    conditions.append((column, values[0]))
                else:
                    conditions.append((f"{column}__in", values))
            # A call has to match all bounds of a duration, but one value of any other name.
            connector = Q.AND if name == "duration" else Q.OR
            rows = rows.filter(Q(*conditions, _connector=connector))
        if self.problems:
            rows = rows.none()
        return self._in_period(rows)

    def _in_period(self, rows: QuerySet[CallEntry]) -> QuerySet[CallEntry]:
        begins, ends = self.period or (None, None)
        if begins is not None:
            rows = rows.filter(time__gte=begins)
        if ends is not None:
            rows = rows.filter(time__lt=ends)
        return rows
