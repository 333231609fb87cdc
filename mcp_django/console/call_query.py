"""The query of the console: a text such as ``failed 14:05 client:Codex``, its terms, and the calls that it finds.

A term is ``name:value``, a time, or a clear word such as an id. A call has to match one of the terms of each name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.contrib.auth import get_user_model
from django.db.models import F, Min, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..context.untrusted_text import plain
from ..models import CallEntry, PartialIndex
from ..templatetags.mcp_console import Outcome

# A period of calls: its start, and its end, which is not included. None for an open end.
Period: TypeAlias = tuple[datetime | None, datetime | None]
# A column (or lookup), and the values of which a call must have one.
Look: TypeAlias = tuple[str, list[Any]]

# Number of values proposed for each name, and of newest calls found whose values are proposed.
PROPOSED: Final = {"tool": 3, "client": 3}
FACETED: Final = 1_000
# How much time around a minute its link to the surrounding calls shows.
BEFORE = timedelta(minutes=5)
AFTER = timedelta(minutes=15)
# Number of newest calls whose values are known, and of calls that are searched for what no index finds.
NEWEST: Final = 2_000
LOOKED_THROUGH: Final = 5_000
MOST_TERMS: Final = 12
# Number of words of one query that are compared with names, of names of a kind that they are compared with, and of
# characters that count: one comparison takes a time that grows with the product of both lengths.
MOST_COMPARED: Final = 3
COMPARED_NAMES: Final = 200
COMPARED_CHARS: Final = 60
# The column of each term by the term's name.
COLUMNS: Final = {
    **{"time": "time", "caller": "kind", "id": "call_id", "error": "error_id", "user": "username"},
    **{"client": "client_name", "duration": "duration", "writes": "writes", "outcome": "outcome"},
    **{name: name for name in ("tool", "model", "method", "action", "site", "session", "token", "version", "trace")},
    **{"cause": "cause", "release": "release", "reason": "detail", "row": "row_key"},
}
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
RELATIVE: Final = {"today": gettext_lazy("today"), "yesterday": gettext_lazy("yesterday")}
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
    r"tool_error|asked|tried|cancelled|error:(-?[0-9]{1,9}|[a-z_]{1,11})|refused:[a-z_.-]{1,32}"
)
DURATION: Final = re.compile(r"([<>]?)=?([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(ms|s)?")
HEX: Final = re.compile(r"[0-9a-f]{12}|[0-9a-f]{32}")
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LENGTHS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LAST: Final = re.compile(r"last ([0-9]{1,5})? ?(m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)")
_DAY: Final = r"today|yesterday|20[0-9]{2}(?:-[0-9]{2}){2}|(?:mon|tues?|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?"
_CLOCK: Final = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?"
TIME: Final = re.compile(rf"(?:(since|before) )?(?:({_DAY})(?:[ t]|$))?(?:({_CLOCK})(?:-({_CLOCK}))?)?")
DASH: Final = re.compile(r" ?\u2013 ?| - ?|- | to ")
# Beginnings of words that could be read as part of a time, and the maximum number of words in a time.
TIMELY: Final = re.compile(rf"[0-9\u2013-]|to$|last|since|before|{_DAY}")
TIME_WORDS: Final = 5
DAY: Final = timedelta(days=1)
INDEXED: Final = {"call_id", *(index.fields[0] for index in CallEntry._meta.indexes)}


@dataclass(frozen=True)
class Term:
    """One term of a query. For a word that could not be read, ``name`` is "" and ``said`` tells why."""

    name: str
    value: str
    period: Period = field(default=(None, None), compare=False)
    said: str = field(default="", compare=False)
    nearest: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.name == "time" or (self.name == "outcome" and self.value in Outcome.GROUPS):
            return self.value
        is_quoted = re.search(r'[\s"]|^$', self.value) or (not self.name and TIMELY.match(self.value.lower()))
        value = '"' + self.value.replace('"', '""') + '"' if is_quoted else self.value
        if self.name == "writes":
            return self.name
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
        return f"{title}: {self.value}"


class KnownValues:
    """The values in the log that a query can name: every outcome, and the values of the newest calls.

    It serves the queries of one page, and asks the log once for what several of them need.
    """

    def __init__(self) -> None:
        self._looks: dict[tuple[str, str], Look] = {}
        self._edges: dict[tuple[Any, ...], datetime | None] = {}
        self._compared = 0

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """The number of newest calls with each value, by the names of terms."""
        rows = CallEntry._default_manager.order_by("-time", "-pk").values_list(*[COLUMNS[name] for name in NAMING])
        columns = list(zip(*rows[:NEWEST], strict=True)) or [()] * len(NAMING)
        return {name: Counter(filter(None, values)) for name, values in zip(NAMING, columns, strict=True)}

    @cached_property
    def outcomes(self) -> list[str]:
        """Every outcome in the log, each by one look into the index."""
        rows = CallEntry._default_manager.order_by()
        outcomes = [""]
        while (least := rows.filter(outcome__gt=outcomes[-1]).aggregate(least=Min("outcome"))["least"]) is not None:
            outcomes.append(least)
        return outcomes[1:]

    def has(self, **values: Any) -> bool:
        """Return whether a call has these values."""
        return CallEntry._default_manager.filter(**values).exists()

    def spelling(self, name: str, value: str) -> str:
        """Return a value as the newest calls spell it, "" if they have none."""
        values = self.counts.get(name, Counter())
        low = value.lower()
        if value in values:
            return value
        return next((each for each in values if each.lower() == low), "")

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

    def edge(self, rows: QuerySet[CallEntry], period: Period | None, column: str, value: Any) -> datetime | None:
        """Return the time of the first call after the newest ``LOOKED_THROUGH`` ones with a value, None without one.

        ``rows`` are the calls of this period, newest first.
        """
        key = (period, column, value)
        if key not in self._edges:
            times = rows.filter(PARTIAL.get(column, Q()), **{column: value}).values_list("time", flat=True)
            self._edges[key] = times[LOOKED_THROUGH:][:1].first()
        return self._edges[key]

    def look(self, name: str, value: str) -> Look:
        """Return what a term looks at: a column, and the values that it may have."""
        if (name, value) not in self._looks:
            self._looks[name, value] = self._look(name, value)
        return self._looks[name, value]

    def _look(self, name: str, value: str) -> Look:
        if name == "outcome" and value in Outcome.GROUPS:
            return name, [each for each in self.outcomes if Outcome(each).group == value]
        if name == "outcome":
            return name, [value]
        if name == "duration":
            return "duration__lt" if value[0] == "<" else "duration__gt", [float(value[1:])]
        if name == "reason":
            return "detail__icontains", [value]
        if name == "client" and self.has(client_id=value):
            return "client_id", [value]
        if name == "user":
            users = get_user_model()._default_manager.filter(**{get_user_model().USERNAME_FIELD: value})
            if keys := [str(key) for key in users.values_list("pk", flat=True)] or [value] * self.has(user=value):
                return name, keys
        return COLUMNS[name], [value == "yes" if name == "writes" else value]


class Reader:
    """The parser of queries; its times are naive local times."""

    def __init__(self, now: datetime, known: KnownValues) -> None:
        self.known = known
        self.is_aware = timezone.is_aware(now)
        self.now = self.local(now)

    def read(self, text: str) -> tuple[Term, ...]:
        """Return the terms of a text and the words that cannot be read, each once, in order."""
        tokens = TOKEN.findall(text.replace("\0", " "))
        # A dict keeps the order. What is said twice counts once, or the text of the query would read as another one.
        terms: dict[Term, None] = {}
        words: dict[str, Term] = {}
        while tokens and (len(terms) < MOST_TERMS or self._is_divided(terms, tokens)):
            size, times = self._first_times(tokens)
            terms.update(dict.fromkeys(times))
            taken = [self._unquoted(token) for token in tokens[:size]]
            del tokens[:size]
            if not times and (word := taken[0]):
                if word not in words:
                    words[word] = self._term(word)
                terms.setdefault(words[word])
        if rest := " ".join(filter(None, map(self._unquoted, tokens))):
            terms.setdefault(Term("", rest, said=_("That is too long.")))
        return tuple(terms)

    def _first_times(self, tokens: list[str]) -> tuple[int, list[Term]]:
        """Return how many of the tokens the first term takes, and the terms of the time that they are, if any."""
        for size in range(min(TIME_WORDS, len(tokens)), 0, -1):
            words = " ".join(tokens[:size])
            if '"' not in words and (terms := self.times(words)):
                return size, terms
        return 1, []

    def _is_divided(self, terms: Iterable[Term], tokens: list[str]) -> bool:
        """Return whether the last term is the beginning of a period, and the next one its end."""
        last = [*terms][-1]
        if last.name != "time" or not last.value.startswith("since"):
            return False
        _size, times = self._first_times(tokens)
        return bool(times) and times[0].value.startswith("before")

    def named(self, name: str, value: str) -> Term | None:
        """Return the term of a name and a value, None if the name cannot have this value."""
        low = value.lower()
        if name == "outcome":
            low = WORDS[low][1] if low in WORDS else low
            if low in Outcome.GROUPS or OUTCOME.fullmatch(low):
                return Term(name, low)
            return None
        if name == "duration":
            match = DURATION.fullmatch(low)
            return match and Term(name, f"{match[1] or '>'}{float(match[2]) * (1000 if match[3] == 's' else 1):.15g}")
        if name in ("caller", "writes"):
            if low in ("yes", *CallEntry.Kind.values):
                return Term(name, low)
            return None
        spelled = low if HEX.fullmatch(low) and name != "row" else self.known.spelling(name, value)
        nearest = "" if spelled or name not in NAMING else self.known.nearest(f"{name}:{value}")
        if value and name != "time":
            return Term(name, spelled or value, nearest=nearest)
        return None

    def _term(self, word: str) -> Term:
        name, _colon, value = word.partition(":")
        name = ALIASES.get(name.lower(), name.lower())
        value = value.strip()
        if word.lower() in WORDS:
            return Term(*WORDS[word.lower()])
        if OUTCOME.fullmatch(word.lower()):
            return Term("outcome", word.lower())
        if term := self.named(name, value) if _colon and name in COLUMNS else self._guessed(word):
            return term
        said = _("This is not a time, and no call has it as id, user, client, tool or model.")
        examples = {"caller": "caller:service", "outcome": "failed", "duration": "duration:>500", "time": "14:05"}
        return Term("", word, said=said, nearest=examples.get(name) or self.known.nearest(word))

    def _guessed(self, word: str) -> Term | None:
        """Return the term that a word alone stands for."""
        digits = word.lower().replace("-", "")
        if HEX.fullmatch(digits):
            names = [name for name in ("id", "session") if self.known.has(**{COLUMNS[name]: digits})]
            return Term("error" if len(digits) == 12 else [*names, "trace"][0], digits)
        for name in NAMING:
            if value := self.known.spelling(name, word):
                return Term(name, value)
        for name in ("session", "tool", "model", "client", "user"):
            column, values = self.known.look(name, word)
            if column in INDEXED and self.known.has(**{f"{column}__in": values}):
                return Term(name, word)
        return None

    def _unquoted(self, token: str) -> str:
        return QUOTED.sub(lambda found: found[1].replace('""', '"'), token).strip()

    def local(self, moment: datetime) -> datetime:
        """Return a moment as the naive local time that a term has."""
        if timezone.is_aware(moment):
            return timezone.make_naive(moment)
        return moment

    def times(self, text: str) -> list[Term]:
        """Return the terms of a time such as ``yesterday 14:00-14:20``, none for any other text."""
        with suppress(ValueError, OverflowError):
            text = DASH.sub("-", text.lower())
            if last := LAST.fullmatch(text):
                number = int(last[1] or 1)
                unit = last[2][0]
                length = timedelta(**{LENGTHS[unit]: number})
                # OverflowError if the period before this one, which the overview reads too, starts before year 1.
                return [self._time(f"last {number}{unit}", self.now - 2 * length + length, None)]
            word, day, first, second = match.groups() if (match := TIME.fullmatch(text)) else ("", "", "", "")
            if not (day or first) or (word and second):
                return []
            begins, ends = self._moment(day or "", first, second)
            relative = day if day in RELATIVE and not first else ""
            if word:
                return [self._time(f"{word} {relative or self._text(begins)}", begins, None)]
            terms = self.between(begins, ends)
            if relative:
                return [Term("time", relative, terms[0].period)]
            return terms
        return []

    def between(self, begins: datetime, ends: datetime) -> list[Term]:
        """Return the terms of the period between two local times, to the second."""
        begins = begins.replace(microsecond=0)
        ends = ends.replace(microsecond=0)
        day = f"{begins:%Y-%m-%d}"
        first = self._clock(begins)
        second = self._clock(ends)
        if ends - begins > DAY:
            since = f"since {self._text(begins)}"
            before = f"before {self._text(ends)}"
            return [self._time(since, begins, None), self._time(before, ends, None)]
        if ends - begins == DAY and first == "00:00":
            return [self._time(day, begins, ends)]
        is_minute = ends - begins == timedelta(minutes=1) and not begins.second
        return [self._time(f"{day} {first}" if is_minute else f"{day} {first}-{second}", begins, ends)]

    def _moment(self, day: str, first: str | None, second: str | None) -> tuple[datetime, datetime]:
        base = self._at(self.now, "0:00")
        back = DAY
        if day in RELATIVE:
            base -= DAY * (day == "yesterday")
        elif day[:3] in WEEKDAYS:
            base = base - DAY * ((base.weekday() - WEEKDAYS.index(day[:3])) % 7)
            back = DAY * 7
        elif day:
            base = datetime.fromisoformat(day)
        if not first:
            return base, base + DAY
        begins = self._at(base, first)
        # The time is in the past: a time without a day is today's or yesterday's.
        begins -= back * (begins > self.now and (not day or back > DAY))
        if not second:
            return begins, begins + timedelta(seconds=60 if first.count(":") == 1 else 1)
        ends = self._at(begins, second)
        return begins, ends + DAY * (ends <= begins)

    def _time(self, value: str, begins: datetime, ends: datetime | None) -> Term:
        if self.is_aware:
            begins = timezone.make_aware(begins)
            if ends is not None:
                ends = timezone.make_aware(ends)
        return Term("time", value, (None, begins) if value.startswith("before") else (begins, ends))

    def _at(self, day: datetime, clock: str) -> datetime:
        hour, minute, second = map(int, f"{clock}:0".split(":")[:3])
        return day.replace(hour=hour, minute=minute, second=second, microsecond=0)

    def _clock(self, moment: datetime) -> str:
        return f"{moment:%H:%M:%S}".removesuffix(":00")

    def _text(self, moment: datetime) -> str:
        return f"{moment:%Y-%m-%d} {self._clock(moment)}".removesuffix(" 00:00")


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

    @property
    def chips(self) -> list[tuple[Term, "CallQuery", "CallQuery"]]:
        """Each part, the query without it, and the query with the nearest text in its place."""
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

        A time is a text, or a pair of its start and end. A value that cannot be read becomes one of the problems.
        """
        parts = [part for part in self.parts if part.name not in values]
        reader = Reader(self.now, self.known)
        for name, value in values.items():
            if isinstance(value, tuple):
                parts += reader.between(*map(reader.local, value))
            else:
                term = reader.named(name, value) or Term("", f"{name}:{value}")
                parts += reader.times(value) if name == "time" else [term]
        return CallQuery(tuple(parts), self.now, self.known)

    def back_from(self, since: datetime) -> "CallQuery":
        """Return the query for the calls until the second of a time, before which this one has not searched."""
        begins = (self.period or (None, None))[0]
        ends = since + timedelta(seconds=1)
        if begins:
            return self.adding(time=(begins, ends))
        local = timezone.localtime(ends) if timezone.is_aware(ends) else ends
        return self.adding(time=f"before {local:%Y-%m-%d %H:%M:%S}")

    def filter(self, rows: QuerySet[CallEntry]) -> QuerySet[CallEntry]:
        """Return the calls that match; none while a word cannot be read."""
        return self._narrowed(rows, self._looks())

    def newest(self, rows: QuerySet[CallEntry]) -> tuple[QuerySet[CallEntry], datetime | None]:
        """Return the calls that match, and the time since which they were searched: None for the whole log.

        Unless an index finds exactly these calls, only the newest ``LOOKED_THROUGH`` calls that the most selective
        index finds are searched.
        """
        looks = self._looks()
        edges = []
        matching = self._narrowed(rows, looks)
        timed = self._in_period(rows.order_by("-time"))
        pairs = [[(column, value) for column, values in each for value in values] for each in looks.values()]
        indexed = [each for each in pairs if all(column in INDEXED for column, _value in each)]
        if self.problems or not pairs or (pairs == indexed and len(pairs) == 1 and len(pairs[0]) <= 1):
            return matching, None
        for each in indexed or [[("time__isnull", False)]]:
            times = [self.known.edge(timed, self.period, column, value) for column, value in each]
            if not any(times):
                return matching, None
            edges.append(max(filter(None, times)))
        # No index on time has this order, so the database uses the selective index and sorts the few rows.
        is_up = "time" in rows.query.order_by
        order = F("time").asc(nulls_first=True) if is_up else F("time").desc(nulls_last=True)
        return matching.filter(time__gte=min(edges)).order_by(order, "-pk"), min(edges)

    def _looks(self) -> dict[str, list[Look]]:
        looks: dict[str, list[Look]] = {}
        for term in self.terms:
            if term.name != "time":
                looks.setdefault(term.name, []).append(self.known.look(term.name, term.value))
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
            rows = rows.filter(Q(*conditions, _connector=Q.AND if name == "duration" else Q.OR))
        return self._in_period(rows.none() if self.problems else rows)

    def _in_period(self, rows: QuerySet[CallEntry]) -> QuerySet[CallEntry]:
        begins, ends = self.period or (None, None)
        if begins is not None:
            rows = rows.filter(time__gte=begins)
        if ends is not None:
            rows = rows.filter(time__lt=ends)
        return rows


class CallList(ChangeList):
    """The calls that a query finds, for the admin's list, and the links that change the query."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Return the calls that the query in the URL finds, for the admin's list."""
        self.asked = CallQuery.parse(self.query, timezone.now())
        calls, self.since = self.asked.newest(super().get_queryset(request, exclude_parameters))
        return calls

    @property
    def is_live(self) -> bool:
        """Whether new calls would come first in this list."""
        ends = self.asked.period and self.asked.period[1]
        return self.page_num == 1 and ORDER_VAR not in self.params and (ends is None or ends > self.asked.now)

    @property
    def page(self) -> Any:
        """The page that is shown of the calls that the query finds."""
        return self.paginator.get_page(self.page_num)

    @property
    def rows(self) -> Iterator[tuple[CallEntry, list[tuple[str, Any]]]]:
        """Each call that the query finds, and the longer queries that its tool, model, user and client lead to."""
        chosen = {term.value for term in self.asked.terms}
        for entry in self.result_list:
            values = [("tool", entry.tool) if entry.tool else ("method", entry.method), ("model", entry.model)]
            values += [("user", entry.username), ("client", entry.client_name or entry.client_id)]
            links = [value and value not in chosen and self.asked.adding(**{name: value}) for name, value in values]
            yield entry, [(plain(value), link) for (_name, value), link in zip(values, links, strict=True)]

    @property
    def proposals(self) -> list[tuple[CallQuery, Term]]:
        """Queries that are one term longer, and that term. Each finds some of these calls, and not all of the newest.

        They are made of the newest calls that the query finds. Failed and refused calls are looked for beyond these.
        """
        columns = ("outcome", "time", "tool", "client_name")
        newest = list(self.queryset.order_by("-time", "-pk").values_list(*columns)[:FACETED])
        if not newest:
            return []

        values = [("outcome", group) for group in ("failed", "refused") if self._has_some(group, newest)]
        recent = self.asked.now - timedelta(hours=1)
        if newest[0][1] >= recent > newest[-1][1]:
            values.append(("time", "last 1h"))
        for index, name in enumerate(PROPOSED, columns.index("tool")):
            counts = Counter(row[index] for row in newest if row[index])
            values += [(name, value) for value, count in counts.most_common(PROPOSED[name]) if count < len(newest)]

        names = {term.name for term in self.asked.terms}
        queries = [self.asked.adding(**{name: value}) for name, value in values if name not in names]
        return [(query, query.parts[-1]) for query in queries]

    def _has_some(self, group: str, newest: list[Any]) -> bool:
        """Return whether some of the calls have an outcome of this group, and not all of the newest."""
        count = sum(Outcome(row[0]).group == group for row in newest)
        if count or len(newest) < FACETED:
            return 0 < count < len(newest)
        return self.asked.adding(outcome=group).newest(self.root_queryset)[0].exists()

    @property
    def narrower(self) -> list[tuple[Term, CallQuery]]:
        """Each term without which the query finds calls, and the query without it; for queries that find none."""
        queries = [(term, self.asked.without(term)) for term in self.asked.terms]
        return [(term, query) for term, query in queries if query.newest(self.root_queryset)[0].exists()]

    @property
    def around(self) -> CallQuery | None:
        """The query of the time around a minute."""
        begins, ends = self.asked.period or (None, None)
        is_minute = begins and ends and ends - begins <= timedelta(minutes=1)
        if begins and is_minute:
            return self.asked.adding(time=(begins - BEFORE, begins + AFTER))
        return None

    @property
    def earlier(self) -> CallQuery | None:
        """The query for the older calls that this one has not searched, None if there are none."""
        return None if self.since is None else self.asked.back_from(self.since)
