"""Drawn calls of every form, made in two worlds that differ in nothing but what is hidden: each answer is the same.

``DRAWN_CALLS`` is how many are drawn, and ``DRAWN_FROM`` the number of the first; each is known by its number. They
measure, compare, group, sort, find and misspell what is hidden as they do what is not.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.db import connection

from mcp_django import MCPSite
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.context.request import MCPRequest
from mcp_django.context.tool_results import ToolResult
from mcp_django.exceptions import NotFound, ToolError
from mcp_django.orm import trigram_search
from mcp_django.resources.completions import complete_field
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.chatgpt import Fetch, Search
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.refused_calls import RefusedCall
from tests.behaviour.hidden_worlds import (
    DAYS,
    HIDDEN,
    MONTHS,
    SEEN,
    WORDS,
    Serialized,
    World,
    admin_site,
    declared_site,
)
from tests.behaviour.test_drawn_questions import Drawing, Zoo
from tests.tool_calls import request_of

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db]
CALLS = int(os.environ.get("DRAWN_CALLS", "300"))
FIRST = int(os.environ.get("DRAWN_FROM", "0"))
READING = (QueryRecords(), AggregateRecords(), GetRecord(), ListModels(), DescribeModel(), Search(), Fetch())
TOOLS = {tool.name: tool for tool in READING}
# Members of answers that no two calls have in common.
FRESH = frozenset({"confirm_token", "next_cursor"})
Call = tuple[str, dict[str, Any]]

MODELS = ("testapp.book", "testapp.author", "testapp.tag", "testapp.loan", "testapp.profile", "admin.logentry")
UNSEEN = ("testapp.audiobook", "testapp.placement", "testapp.section", "auth.user", "testapp.shelf")
FIELDS: Mapping[str, Mapping[str, str]] = {
    "testapp.book": {
        **{"title": "text", "status": "text", "pages": "number", "price": "number", "published": "date"},
        **{"reading_time": "duration", "pk": "key", "author": "key", "tags": "many"},
    },
    "testapp.author": {"name": "text", "born": "date", "pk": "key", "books": "many"},
    "testapp.tag": {"name": "text", "pk": "key", "books": "many"},
    "testapp.loan": {"borrower": "text", "due": "date", "book": "key", "pk": "key"},
    "testapp.profile": {"biography": "text", "author": "key", "pk": "key"},
    "admin.logentry": {
        **{"time": "date", "user": "text", "model": "text", "object": "text", "action": "text", "changed": "text"},
        **{"client": "text", "tool": "text"},
    },
}
# Columns that the admin of these models computes, of what callers see and of what they do not.
COMPUTED: Mapping[str, Mapping[str, str]] = {
    "testapp.book": {"worth": "number", "longest": "number"},
    "testapp.author": {"shouted": "text", "years": "number"},
}
COMPUTED_OF_HIDDEN: Mapping[str, tuple[str, ...]] = {
    "testapp.book": ("loan_count", "tag_count", "score", "keeper", "writer"),
    "testapp.author": ("book_count", "life"),
}
KINDS = {name: kind for fields in (*COMPUTED.values(), *FIELDS.values()) for name, kind in fields.items()}
FORWARD: Mapping[str, Mapping[str, str]] = {
    "testapp.book": {"author": "testapp.author"},
    "testapp.loan": {"book": "testapp.book", "book.author": "testapp.author"},
    "testapp.profile": {"author": "testapp.author"},
}
HIDDEN_FIELDS: Mapping[str, tuple[str, ...]] = {
    "testapp.book": ("rating", "data", "isbn", "owner", "uuid", "blob", "owner.first_name", "audiobook.narrator"),
    "testapp.author": ("email", "secret_token", "profile.website"),
    "testapp.tag": ("books.rating", "books.isbn"),
    "testapp.loan": ("deleted", "book.rating", "book.owner"),
    "testapp.profile": ("website", "author.email", "author.secret_token"),
    "admin.logentry": ("change_message", "object_repr", "object_id", "user.first_name", "user.email"),
}
RELATIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "testapp.book": (
        ("author", "testapp.author"),
        ("tags", "testapp.tag"),
        ("loans", "testapp.loan"),
        ("placement_set", "testapp.placement"),
        ("audiobook", "testapp.audiobook"),
        ("owner", "auth.user"),
    ),
    "testapp.author": (("books", "testapp.book"), ("profile", "testapp.profile")),
    "testapp.tag": (("books", "testapp.book"),),
    "testapp.loan": (("book", "testapp.book"),),
    "testapp.profile": (("author", "testapp.author"),),
    "admin.logentry": (("user", "auth.user"),),
}
SOUND_LOOKUPS: Mapping[str, tuple[str, ...]] = {
    "text": ("exact", "in", "contains", "icontains", "startswith", "isnull"),
    "date": ("exact", "gt", "lte", "isnull", "year"),
    "number": ("exact", "gt", "gte", "lt", "in"),
    "duration": ("gt", "isnull"),
    "key": ("exact", "in", "isnull"),
}
LOOKUPS = (
    *("exact", "in", "gt", "gte", "lt", "lte", "isnull", "contains", "icontains", "startswith", "endswith"),
    *("range", "year", "month", "date", "regex", "iexact", "ne", "nope", "!=", "like"),
)
FUNCTIONS = ("count", "count_distinct", "sum", "avg", "min", "max", "median", "percentile", "stddev", "variance")
EDGES = ("first", "last")
PERIODS = (
    *("year", "quarter", "month", "week", "day", "hour", "weekday", "hour_of_day", "day_of_month", "week_of_year"),
    *("month_of_year", "quarter_of_year", "10", "0.5", "century"),
)
SHIFTS = ("5d", "2w", "3h", 1, 2.5, "30min", "x", "100000d")
OTHER_WORDS = {
    "filters": ("filter", "where", "conditions"),
    "fields": ("columns", "select"),
    "ordering": ("orderBy", "order_by", "sort"),
    "group_by": ("groupBy", "by"),
    "aggregates": ("measures", "metrics"),
    "limit": ("pageSize", "first"),
    "pk": ("id",),
    "search": ("q", "query"),
}
QUESTIONS = (
    "books of authors",
    "email",
    "secret tokens",
    "loans",
    "narrators",
    "ratings",
    "history",
    "websites",
    "who",
)


def last_name(path: str) -> str:
    return path.replace("__", ".").rpartition(".")[2]


class Asking:
    """Draws the call of a number."""

    def __init__(
        self, number: int, questions: Zoo, *, has_computed: bool = False, seen: Sequence[str] = MODELS
    ) -> None:
        self.has_computed, self.seen = has_computed, seen
        self.draw, self.drawing = random.Random(number), Drawing(questions, number)
        # Most calls are such as could be answered; the others try what may be neither named nor compared.
        self.is_sound = self.some(0.65)

    def some(self, share: float) -> bool:
        return self.draw.random() < share

    # Names and values

    def misspelt(self, text: str) -> str:
        if len(text) < 3:
            return text
        place = self.draw.randrange(1, len(text))
        left, right = text[:place], text[place:]
        ways = (left + right[1:], left[:-1] + right[:1] + left[-1:] + right[1:], left + "s" + right, text.title())
        return self.draw.choice(ways).replace("_", "" if self.some(0.3) else "_")

    def field(self, label: str, *kinds: str, hops: int = 2) -> str:
        """Return the name of a field or a path, in a call that is not sound also of one that is hidden, or misspelt."""
        if self.is_sound:
            return self.sound_field(label, kinds)
        relations = RELATIONS.get(label, ())
        if hops and relations and self.some(0.3):
            name, other = self.draw.choice(relations)
            return f"{name}{self.draw.choice(['.', '__'])}{self.field(other, hops=hops - 1)}"
        names: Sequence[str] = list(FIELDS.get(label, ("pk", "name", "title")))
        if self.some(0.3):
            names = HIDDEN_FIELDS.get(label, ("narrator", "position", "password"))
        if self.some(0.3):
            names = (*COMPUTED_OF_HIDDEN.get(label, ()), *COMPUTED.get(label, names))
        name = self.draw.choice(names)
        return self.misspelt(name) if self.some(0.12) else name

    def sound_field(self, label: str, kinds: Sequence[str]) -> str:
        """Return the path of a field of one of these kinds, of any kind if none is named."""
        computed = [name for name, kind in COMPUTED.get(label, {}).items() if kind in kinds or not kinds]
        if self.has_computed and computed and self.some(0.2):
            return self.draw.choice(COMPUTED_OF_HIDDEN[label] if self.some(0.2) else computed)
        path, ways = "", FORWARD.get(label, {})
        if not set(ways.values()) <= set(self.seen) and self.some(0.8):
            ways = {}
        if ways and (self.some(0.35) or not self.known(label, kinds)):
            name, label = self.draw.choice(list(ways.items()))
            path = name + self.draw.choice((".", "__"))
        return path + self.draw.choice(self.known(label, kinds) or ["pk"])

    def known(self, label: str, kinds: Sequence[str]) -> list[str]:
        return [name for name, kind in FIELDS.get(label, {}).items() if kind in kinds or (not kinds and kind != "many")]

    def word(self) -> str:
        word = self.draw.choice((*WORDS, *SEEN, "tag ann", "a of bob", "draft", "Published"))
        return self.draw.choice((word, word, word[:3], self.misspelt(word), word.upper(), f"{word}@example.org"))

    def value(self, kind: str = "", lookup: str = "exact") -> Any:
        """Return what a caller may guess: of rows that they see, of hidden ones of either world, or of neither."""
        if self.is_sound and kind in SOUND_LOOKUPS:
            return self.sound_value(kind, lookup)
        draws: tuple[Callable[[], Any], ...] = (
            self.word,
            self.word,
            lambda: self.draw.choice((0, 1, 2, 7, 8, 9, 10, 100, 2_000_000, "0.10", "99.99", -5.5, "8.00")),
            lambda: self.draw.choice((*map(str, DAYS), "2024-02-01", "today-30d", "last month", "start of 2024", 2024)),
            lambda: self.draw.choice((None, True, "", HIDDEN, HIDDEN + 1, HIDDEN + 4, "902", "nothing")),
            lambda: [self.draw.choice((self.word(), HIDDEN + 1, 1, 2, 3)) for _ in range(2)],
        )
        return self.draw.choice(draws)()

    def sound_value(self, kind: str, lookup: str) -> Any:
        if lookup == "isnull":
            return self.some(0.5)
        if lookup == "year":
            return self.draw.choice((1901, 1999, 2024))
        if lookup == "in":
            return [self.sound_value(kind, "exact") for _ in range(2)]
        draws: Mapping[str, Callable[[], Any]] = {
            "text": lambda: self.draw.choice((*WORDS, *SEEN, "a", "tag ann", "life of bob", "draft", WORDS[0][:3])),
            "date": lambda: str(self.draw.choice((*DAYS, *MONTHS, "today-30d", "last year"))),
            "number": lambda: self.draw.choice((0, 1, 7, 8, 9, 10, 99, 2_000_000)),
            "duration": lambda: self.draw.choice(("01:00:00", "05:00:00")),
            "key": lambda: self.draw.choice((1, 2, 3, HIDDEN, HIDDEN + 1, HIDDEN + 4)),
        }
        return draws[kind]()

    # Filters

    def filters(self, label: str, depth: int = 3) -> dict[str, Any]:
        """Return one condition, which can be about related rows, or several in one."""
        if depth and self.some(0.15) and label in ("testapp.book", "testapp.loan", "testapp.author"):
            asked, filters, _ = self.drawing.question()
            if asked == label and (self.is_sound is ("rating" not in str(filters))):
                return filters
        kind = self.draw.randrange(10 if depth else 5)
        if kind < 3:
            return self.condition(label)
        if kind == 3:
            return self.compared(label) if self.some(0.5) else self.against_all(label)
        if kind == 4 and not self.is_sound:
            return {
                "field": self.field(label),
                "operator": self.draw.choice((">", "like", "in")),
                "value": self.value(),
            }
        if depth and kind < 8 and RELATIONS.get(label):
            return self.quantified(label, depth)
        return self.joined(label, depth) if depth else self.condition(label)

    def condition(self, label: str) -> dict[str, Any]:
        """Return a condition on a field."""
        name = self.field(label)
        kind = KINDS.get(last_name(name), "") if self.is_sound else ""
        lookup = self.draw.choice(SOUND_LOOKUPS.get(kind, LOOKUPS))
        value = self.value(kind, lookup)
        return {name if lookup == "exact" else f"{name}__{lookup}": value}

    def compared(self, label: str) -> dict[str, Any]:
        """Return a condition on a field against another one."""
        kind = self.draw.choice(("number", "date", "text"))
        name, other = self.field(label, kind), self.field(label, kind)
        if self.some(0.2):
            other = f"{other}*{self.field(label, kind)}"
        fitting: tuple[Any, ...] = (1, 2.5) if kind == "number" else ("5d", "2w", "3h")
        shifts = fitting if self.is_sound else SHIFTS
        shift = {self.draw.choice(("plus", "minus")): self.draw.choice(shifts)} if self.some(0.4) else {}
        return {f"{name}__{self.draw.choice(('gt', 'lte', 'exact', 'gte'))}": {"field": other, **shift}}

    def against_all(self, label: str) -> dict[str, Any]:
        """Return a condition on a field against an aggregate over the rows of the caller."""
        kind = self.draw.choice(("number", "number", "date"))
        functions = ("min", "max") if kind == "date" else ("avg", "min", "max", "sum", "median", "count")
        function = self.draw.choice(functions if self.is_sound else FUNCTIONS)
        given: dict[str, Any] = {function: self.field(label, kind)}
        if self.some(0.4):
            given["where"] = self.filters(label, 0)
        return {f"{self.field(label, kind)}__{self.draw.choice(('gt', 'lte', 'exact', 'lt'))}": given}

    def quantified(self, label: str, depth: int) -> dict[str, Any]:
        relations = [way for way in RELATIONS[label] if way[1] in self.seen or not self.is_sound]
        name, other = self.draw.choice(relations or [("tags", "testapp.tag")])
        name = self.misspelt(name) if not self.is_sound and self.some(0.1) else name
        inner = self.filters(other, depth - 1) if self.some(0.8) else {}
        if self.some(0.3):
            lookup = self.draw.choice(("count", "count__gte", "count__lt", "count__gt"))
            return {name: {lookup: self.draw.randrange(4), **({"where": inner} if inner else {})}}
        return {name: {self.draw.choice(("some", "none", "every")): inner}}

    def joined(self, label: str, depth: int) -> dict[str, Any]:
        parts = [self.filters(label, depth - 1) for _ in range(2)]
        return self.draw.choice(({"and": parts}, {"or": parts}, {"not": parts[0]}, {**parts[0], **parts[1]}))

    def narrowing(self, label: str) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if self.some(0.6):
            filters = self.filters(label)
            given["filters"] = json.dumps(filters) if self.some(0.05) else filters
        if self.some(0.15):
            given["search"] = self.word()
        return given

    # Calls

    def query(self, label: str) -> dict[str, Any]:
        given = {"model": label, **self.narrowing(label)}
        if self.some(0.6):
            given["fields"] = [self.field(label) for _ in range(self.draw.randrange(1, 4))]
        if self.some(0.5):
            ends = ("", "", ":nulls_last", "" if self.is_sound else " desc")
            given["ordering"] = [self.draw.choice(("", "-")) + self.field(label) + self.draw.choice(ends)]
        if self.some(0.1) and "fields" in given:
            given["fields"] = [*given["fields"], "admin_url"]
        if self.some(0.2):
            given["limit"] = self.draw.choice((1, 2, 5))
        if self.some(0.3):
            given["count"] = True
        return given

    def expression(self, label: str, function: str) -> str:
        """Return what a function measures."""
        kinds = {"count": (), "count_distinct": (), "min": ("date", "number"), "max": ("date", "number", "text")}
        one, other, third = (self.field(label, *kinds.get(function, ("number",))) for _ in range(3))
        behind = [way for way in RELATIONS.get(label, ()) if way[0] in ("tags", "loans", "books")]
        if behind and self.some(0.3):
            root, there = self.draw.choice(behind)
            names = self.known(there, ("number",)) if self.is_sound else [self.field(there), "rating"]
            name = self.draw.choice(names or ["pk"])
            return self.draw.choice((root, f"{root}.{name}", f"{root}.{name}*{root}.{name}"))
        if self.some(0.6) or (self.is_sound and function in kinds):
            return one
        return self.draw.choice((f"{one}*{other}", f"{one}-{other}", f"({one}+{other})/{third}", f"{one}/{one}+2"))

    def edge(self, label: str, number: int) -> dict[str, Any]:
        """Return the value of the first or the last row by an order."""
        order = self.draw.choice(("", "-")) + self.field(label, self.draw.choice(("date", "number")))
        field = self.field(label, "text", "number", "date")
        where = {"where": self.filters(label, 2)} if self.some(0.3) else {}
        return {"function": self.draw.choice(EDGES), "field": field, "order": order, "as": f"m{number}", **where}

    def measure(self, label: str, number: int) -> Any:
        if self.some(0.12):
            return self.edge(label, number)
        function = self.draw.choice(FUNCTIONS)
        text, kind = self.expression(label, function), self.draw.randrange(6)
        if kind < 2:
            share = f":{self.draw.choice(('0.9', '0', '1'))}" if function == "percentile" else ""
            return f"{function}:{text}{share}"
        if kind == 2:
            return f"sum:{self.field(label, 'number')}" if number else "count"
        given: dict[str, Any] = {"function": function, "field": text, "as": f"m{number}"}
        if function == "percentile":
            given["share"] = self.draw.choice((0.1, 0.5, 90))
        if self.some(0.2) and not self.is_sound:
            given["unit"] = self.draw.choice(("hours", "weeks", "moons"))
        if kind > 3:
            given["where"] = self.filters(label, 2)
        if function == "count" and self.some(0.7):
            del given["field"]
        return given

    def derived(self, known: list[str]) -> Any:
        one, other = self.draw.choice(known), self.draw.choice(known)
        pairs = ({"ratio": [one, other], "as": "d"}, f"ratio:{one}/{other}", {"difference": [one, other]})
        return self.draw.choice((*pairs, {"percent_of_total": one}, f"change:{one}", f"percent_of_total:{other}"))

    def results_of_results(self, known: list[str]) -> list[Any]:
        """Return up to three results of others, each of which can be made of the one before."""
        found, names = [], [*known, "count"]
        for number in range(self.draw.randrange(1, 4)):
            made = self.derived(names)
            if isinstance(made, dict):
                made["as"] = f"d{number}"
            found.append(made)
            names.append(made["as"] if isinstance(made, dict) else made)
        known += names[len(known) + 1 :]
        return found

    def aggregate(self, label: str) -> dict[str, Any]:
        measures = [self.measure(label, number) for number in range(self.draw.randrange(1, 3))]
        known = [measure["as"] if isinstance(measure, dict) else measure for measure in measures]
        measures += self.results_of_results(known) if self.some(0.3) else []
        given = {"model": label, "aggregates": measures, **self.narrowing(label)}
        if self.some(0.7):
            fields = [self.field(label) for _ in range(self.draw.randrange(1, 3))]
            groups = [self.bucket(name) if self.some(0.4) else name for name in fields]
            given["group_by"] = groups
            given |= self.ranked(known, groups)
        return given

    def bucket(self, name: str) -> str:
        kind = KINDS.get(last_name(name), "")
        if self.is_sound and kind not in ("date", "number"):
            return name
        periods = PERIODS[-3:-1] if kind == "number" else PERIODS[:-3]
        return f"{name}:{self.draw.choice(periods if self.is_sound else PERIODS)}"

    def ranked(self, known: list[str], groups: list[str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if self.some(0.3):
            comparison = self.draw.choice(("gt", "gte", "lte", "exact"))
            other = {"field": self.draw.choice([*known, "count", *([] if self.is_sound else ["rating"])])}
            value = self.draw.choice((self.value("number"), self.value("number"), "last year", other))
            given["having"] = {f"{self.draw.choice(known)}__{comparison}": value}
            if self.some(0.2):
                given["having"] = {f"{self.draw.choice(known)}__isnull": self.some(0.5)}
        if self.some(0.3):
            others = [] if self.is_sound else ["email", "rating"]
            given["ordering"] = [self.draw.choice(("", "-")) + self.draw.choice([*known, *groups, *others])]
        if self.some(0.3):
            given["top"] = self.draw.choice((1, 2, 3))
            if self.some(0.5):
                others = ["author.name"] if self.is_sound else ["author.email", "rating", "tags"]
                given["per"] = self.draw.choice([*groups, "status", *others])
        if self.some(0.15):
            given["fill"] = True
        if self.some(0.2):
            given["limit"] = self.draw.choice((1, 2, 5))
        return given

    def get(self, label: str) -> dict[str, Any]:
        pks = (1, 2, 3, 5, 10, "7", HIDDEN, HIDDEN + 1, HIDDEN + 4, HIDDEN + 101, 999, self.word())
        given: dict[str, Any] = {"model": label, "pk": self.draw.choice(pks)}
        if self.some(0.5):
            names = [name for name, _ in RELATIONS.get(label, (("tags", ""),))]
            chosen = [self.misspelt(name) if self.some(0.1) else name for name in self.draw.sample(names, 1)]
            given["related"] = [f"{name}:{self.draw.choice((1, 3, 20))}" if self.some(0.5) else name for name in chosen]
        if self.some(0.5):
            given["fields"] = [self.field(label) for _ in range(2)]
        if self.some(0.4):
            given["history"] = True
        return given

    def worded_otherwise(self, call: Call) -> Call:
        """Return the call as a model words it that knows other tools, which is understood or answered with another."""
        name, given = call
        renamed = {key: self.draw.choice(OTHER_WORDS.get(key, (key,))) if self.some(0.6) else key for key in given}
        given = {renamed[key]: value for key, value in given.items()}
        texts = [key for key, value in given.items() if isinstance(value, dict | list)]
        if texts and self.some(0.3):
            key = self.draw.choice(texts)
            given[key] = json.dumps(given[key])
        if "model" in given and self.some(0.2):
            given["model"] = self.draw.choice(
                (given["model"] + "s", given["model"].title(), self.misspelt(given["model"]))
            )
        return name, given

    def call(self) -> Call:
        """Return a call; some of those that are not sound are worded otherwise too."""
        found = self.proper_call()
        return self.worded_otherwise(found) if not self.is_sound and self.some(0.3) else found

    def proper_call(self) -> Call:
        label = self.draw.choice((*MODELS[:1], *MODELS[:3], *MODELS))
        if label not in self.seen and self.some(0.7):
            label = self.draw.choice(self.seen)
        if self.some(0.04):
            label = self.draw.choice((*UNSEEN, self.misspelt(label), self.misspelt(UNSEEN[0]), label.partition(".")[2]))
        kind = self.draw.random()
        if kind < 0.42:
            return "query_records", self.query(label)
        if kind < 0.82:
            return "aggregate_records", self.aggregate(label)
        if kind < 0.9:
            return "get_record", self.get(label)
        if kind < 0.92:
            uri = f"django://{label.replace('.', '/')}/{self.draw.choice((1, 2, HIDDEN, HIDDEN + 1, HIDDEN + 4))}"
            words = f"{self.word()} {self.draw.choice(('', 'books', 'authors', self.word()))}"
            return self.draw.choice((("search", {"query": words}), ("fetch", {"id": uri})))
        if kind < 0.94:
            return "list_models", {"query": self.draw.choice((*QUESTIONS, self.word(), self.field(label)))}
        if kind < 0.96:
            several = f"{label},{self.draw.choice(UNSEEN)}" if self.some(0.2) else label
            return "describe_model", {"model": several, "detail": self.some(0.5)}
        return "complete", {"label": label, "name": self.field(label), "text": self.word()[: self.draw.randrange(4)]}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and to what it is narrowed by its user, if it is."""

    user: Any
    site: MCPSite
    labels: tuple[str, ...] = ()

    def request(self) -> MCPRequest:
        facts = Narrowing.fact(self.labels) if self.labels else {}
        request = request_of(self.user, self.site, scopes=frozenset({"mcp:read", "mcp:write"}), facts=facts)
        Narrowing.apply(request)
        return request


def answer(caller: Caller, name: str, arguments: dict[str, Any]) -> str:
    """Return what the client is sent: a result, or the error with the call that it proposes."""
    request = caller.request()
    if name == "complete":
        return str(complete_field(request, arguments["label"], arguments["name"], arguments["text"]))
    try:
        result: Any = TOOLS[name].call(request, dict(arguments))
        assert result.structured is not None
        return json.dumps({key: value for key, value in result.structured.items() if key not in FRESH}, default=str)
    except ToolError as error:
        return json.dumps(RefusedCall(request, TOOLS[name], arguments, error).result(), default=str)
    except NotFound:
        return json.dumps(ToolResult.of_error(ToolError("Not found.")).to_wire())


@dataclass(frozen=True, slots=True)
class Kind:
    """A site, and whether who asks there sees books and tags alone: by permissions, or as their client is narrowed."""

    make: Callable[[], MCPSite]
    is_member: bool = False
    labels: tuple[str, ...] = ()

    @property
    def sees_less(self) -> bool:
        return self.is_member or bool(self.labels)


BOOKS_AND_TAGS = ("testapp.book", "testapp.tag")
SITES: Mapping[str, Kind] = {
    "declared": Kind(declared_site),
    "declared, for a member": Kind(declared_site, is_member=True),
    "admin": Kind(admin_site),
    "admin, for a member": Kind(admin_site, is_member=True),
    "serialized": Kind(partial(declared_site, Serialized)),
    "declared, narrowed": Kind(declared_site, labels=BOOKS_AND_TAGS),
    "admin, narrowed": Kind(admin_site, labels=BOOKS_AND_TAGS),
}


@pytest.fixture
def trigrams() -> Iterator[None]:
    """PostgreSQL compares spellings in these tests too."""
    trigram_search.can_compare.cache_clear()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    yield
    trigram_search.can_compare.cache_clear()


@pytest.mark.usefixtures("trigrams")
@pytest.mark.parametrize("kind", SITES)
def test_drawn_calls_are_answered_alike_whatever_is_hidden(kind: str) -> None:
    asked, questions, world = SITES[kind], Zoo.__new__(Zoo), World()
    caller = Caller(world.member if asked.is_member else world.root, asked.make(), asked.labels)
    start, has_computed = FIRST + list(SITES).index(kind), asked.make is admin_site
    numbers = range(start, FIRST + CALLS, len(SITES))
    seen = BOOKS_AND_TAGS if asked.sees_less else MODELS
    calls = {number: Asking(number, questions, has_computed=has_computed, seen=seen).call() for number in numbers}
    world.become(0, related=asked.sees_less)
    first = {number: answer(caller, *call) for number, call in calls.items()}
    world.become(1, related=asked.sees_less)
    told = [
        {"number": number, "call": call, "first": first[number], "second": second}
        for number, call in calls.items()
        if (second := answer(caller, *call)) != first[number]
    ]
    assert not told, f"{len(told)} differ: {json.dumps(told[:8], indent=1, default=str)}"
    # The calls do find something, though most models are none of a member's.
    assert sum('"rows": [[' in text for text in first.values()) > len(calls) / 25
