"""`aggregate_records` against the same numbers worked out in Python: random rows, random questions."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from mcp_django import ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate import AggregateRecords
from tests.factories import make_author, make_book, make_superuser
from tests.reading import reader, site_with
from tests.testapp.models import Author, Book, Tag
from tests.writing import call

pytestmark = pytest.mark.django_db
ZONE = ZoneInfo("America/New_York")
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
ROWS, QUESTIONS, SEEDS = 60, 40, [1, 2, 3, 4, 5]

Row = Any
# What a row is grouped by: the value to sort by, and how it is shown.
Key = Callable[[Row], tuple[Any, Any]]


def plain(name: str) -> Key:
    return lambda row: (getattr(row, name), getattr(row, name))


def local(row: Row) -> datetime:
    return timezone.localtime(row.created, ZONE)


def of_day(day: Callable[[Row], date | None], write: Callable[[date], tuple[Any, Any]]) -> Key:
    def key(row: Row) -> tuple[Any, Any]:
        found = day(row)
        return (None, None) if found is None else write(found)

    return key


def quarter(day: date) -> tuple[Any, Any]:
    return (day.year, (day.month + 2) // 3), f"{day.year}-Q{(day.month + 2) // 3}"


def week(day: date) -> tuple[Any, Any]:
    year, number, _ = day.isocalendar()
    return (year, number), f"{year}-W{number:02}"


GROUPS: dict[str, Key] = {
    "status": plain("status"),
    "active": plain("active"),
    "pages": plain("pages"),
    "price": lambda row: (row.price, str(row.price)),
    "author": lambda row: (row.author_id, [row.author_id, row.author.name]),
    "author__name": lambda row: (row.author.name, row.author.name),
    "author__born": lambda row: (row.author.born, row.author.born and row.author.born.isoformat()),
    "author__born:year": of_day(lambda row: row.author.born, lambda day: (day.year, f"{day.year}")),
    "published:year": of_day(lambda row: row.published, lambda day: (day.year, f"{day.year}")),
    "published:quarter": of_day(lambda row: row.published, quarter),
    "published:week": of_day(lambda row: row.published, week),
    "published:weekday": of_day(lambda row: row.published, lambda day: (day.weekday(), WEEKDAYS[day.weekday()])),
    "created:year": lambda row: (local(row).year, f"{local(row).year}"),
    "created:quarter": of_day(lambda row: local(row).date(), quarter),
    "created:month": lambda row: (f"{local(row):%Y-%m}", f"{local(row):%Y-%m}"),
    "created:week": of_day(lambda row: local(row).date(), week),
    "created:day": lambda row: (local(row).date(), local(row).date().isoformat()),
    "created:hour": lambda row: (f"{local(row):%Y-%m-%dT%H}", f"{local(row):%Y-%m-%dT%H}"),
    "created:weekday": lambda row: (local(row).weekday(), WEEKDAYS[local(row).weekday()]),
}


def values(rows: Sequence[Row], name: str) -> list[Any]:
    return [value for row in rows if (value := getattr(row, name)) is not None]


def total(rows: Sequence[Row], name: str) -> Any:
    found = values(rows, name)
    return sum(found[1:], found[0]) if found else None


def mean(rows: Sequence[Row], name: str) -> Any:
    found = values(rows, name)
    return total(rows, name) / len(found) if found else None


def extreme(function: Any) -> Any:
    return lambda rows, name: function(values(rows, name), default=None)


FUNCTIONS: dict[str, Callable[[Sequence[Row], str], Any]] = {
    "count": lambda rows, name: len(values(rows, name)),
    "count_distinct": lambda rows, name: len(set(values(rows, name))),
    "sum": total,
    "avg": mean,
    "min": extreme(min),
    "max": extreme(max),
}
NUMBERS = ["pages", "price", "rating"]
MEASURES = [
    "count",
    *(f"{function}:{name}" for function in FUNCTIONS for name in NUMBERS),
    *(f"{function}:{name}" for function in ("min", "max", "count") for name in ("published", "created")),
    *(f"{function}:reading_time" for function in ("sum", "avg", "min", "max")),
    "count_distinct:author_id",
]


def computed(rows: Sequence[Row], measure: str) -> Any:
    function, _, name = measure.partition(":")
    return FUNCTIONS[function](rows, name) if name else len(rows)


def shown(measure: str, value: Any) -> Any:
    """Return a measure as JSON has it."""
    if isinstance(value, (date, datetime)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, Decimal) and not measure.startswith("avg"):
        return str(value)
    return value


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, (float, Decimal)):
        return found is not None and abs(float(found) - float(expected)) < 1e-5
    return bool(found == expected)


def title(measure: str) -> str:
    return measure.replace(":", "_").removesuffix("_id")


def make_rows(rng: random.Random) -> None:
    authors = [
        make_author(name, born=rng.choice([None, date(1990 + rng.randrange(3), 5, 6)])) for name in ("a", "b", "c", "d")
    ]
    tags = [Tag.objects.create(name=f"t{number}") for number in range(3)]
    for number in range(ROWS):
        book = make_book(
            title=f"book {rng.randrange(5)}",
            author=rng.choice(authors),
            pages=rng.randrange(5),
            price=Decimal(rng.randrange(1000)) / 100,
            rating=rng.choice([None, rng.randrange(8) / 4]),
            status=rng.choice(Book.Status.values),
            active=rng.random() < 0.5,
            published=rng.choice([None, date(2023, 12, 20) + timedelta(days=rng.randrange(60))]),
            reading_time=rng.choice([None, timedelta(minutes=rng.randrange(100) * 12)]),
        )
        book.tags.set(tags[: number % 4])
        moment = datetime(2024, 2, 27, tzinfo=UTC) + timedelta(hours=rng.randrange(24 * 20), minutes=rng.randrange(60))
        Book.objects.filter(pk=book.pk).update(created=moment)


def order_of(given: Sequence[str], titles: Sequence[str], count: int) -> list[tuple[int, bool]]:
    found = [(titles.index(name.lstrip("-")), name.startswith("-")) for name in given]
    return found + [(position, False) for position in range(count) if position not in [index for index, _ in found]]


def in_order(lines: list[Any], order: Sequence[tuple[int, bool]]) -> list[Any]:
    """Return the lines sorted by their raw values, null last."""
    for position, down in reversed(order):
        full = sorted(filter(_has(position), lines), key=_raw(position), reverse=down)
        lines = full + [line for line in lines if line[0][position] is None]
    return lines


def _raw(position: int) -> Callable[[Any], Any]:
    return lambda line: line[0][position]


def _has(position: int) -> Callable[[Any], bool]:
    return lambda line: line[0][position] is not None


class Python:
    """The answer to a question, without the database."""

    def __init__(self, rows: Sequence[Row], question: dict[str, Any]) -> None:
        self.question = question
        self.groups, self.measures = question["group_by"], question["aggregates"]
        self.titles = [*self.groups, *map(title, self.measures)]
        self.lines = self.grouped(rows, self.groups)
        if threshold := question.get("having"):
            ((name, least),) = threshold.items()
            position = self.titles.index(name.removesuffix("__gte"))
            self.lines = [line for line in self.lines if line[0][position] is not None and line[0][position] >= least]
        order = order_of(question.get("ordering", []), self.titles, len(self.groups))
        self.lines = in_order(self.lines, order)
        limit, top = question.get("limit", 50), question.get("top")
        if top is not None:
            limit = question.get("limit", 200)
            rank = next((item for item in order if item[0] >= len(self.groups)), (len(self.groups), True))
            order = [item for item in order if item[0] != rank[0]]
            if len(self.groups) == 1:
                self.lines, limit = in_order(self.lines, [rank, *order]), min(limit, top)
            else:
                self.lines = self.led(rows, rank, order, top)
                inside = sum(1 for line in self.lines if line[2] < top)
                limit = min(limit, inside)
        self.shown, self.others = self.lines[:limit], self.lines[limit:]

    def grouped(self, rows: Sequence[Row], groups: Sequence[str]) -> list[Any]:
        """Return a line for each group: raw values, shown values."""
        found: dict[Any, list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(GROUPS[group](row)[0] for group in groups), []).append(row)
        lines = []
        for key, members in found.items():
            numbers = [computed(members, measure) for measure in self.measures]
            texts = [GROUPS[group](members[0])[1] for group in groups]
            texts += [shown(measure, number) for measure, number in zip(self.measures, numbers, strict=True)]
            lines.append(([*key, *numbers], texts, members))
        return lines

    def led(self, rows: Sequence[Row], rank: tuple[int, bool], order: Any, top: int) -> list[Any]:
        first = self.grouped(rows, self.groups[:1])
        position = rank[0] - len(self.groups) + 1
        ranked = [line[0][0] for line in in_order(first, [(position, rank[1]), (0, False)])]
        lines = in_order(self.lines, order)
        placed = [(*line[:2], min(ranked.index(line[0][0]), top), line[2]) for line in lines]
        return sorted(placed, key=lambda line: line[2])

    def rest(self) -> dict[str, Any] | None:
        if not self.others:
            return None
        members = [row for line in self.others for row in line[-1]]
        additive = [measure for measure in self.measures if measure.partition(":")[0] in ("count", "sum", "min", "max")]
        found = {title(measure): shown(measure, computed(members, measure)) for measure in additive}
        return {"groups": len(self.others), **found}


def make_question(rng: random.Random) -> dict[str, Any]:
    groups = rng.sample(sorted(GROUPS), rng.randint(1, 3))
    measures = rng.sample(MEASURES, rng.randint(1, 4))
    question: dict[str, Any] = {"group_by": groups, "aggregates": measures}
    titles = [*groups, *map(title, measures)]
    if rng.random() < 0.5:
        names = rng.sample(titles, rng.randint(1, len(titles)))
        question["ordering"] = [rng.choice(["", "-"]) + name for name in names]
    if rng.random() < 0.5:
        question["limit"] = rng.choice([1, 2, 5, 20, 200])
    if rng.random() < 0.4:
        question["top"] = rng.choice([1, 2, 3, 50])
    sums = [measure for measure in measures if measure in ("count", "sum:pages", "sum:price", "max:price", "avg:pages")]
    if sums and rng.random() < 0.6:
        question["having"] = {f"{title(sums[0])}__gte": rng.choice([1, 2, 5])}
    return question


def asked(request: MCPRequest, question: dict[str, Any], **narrowing: Any) -> dict[str, Any]:
    return call(AggregateRecords(), request, model="testapp.book", **question, **narrowing)


class Searchable(ModelExposure):
    """A search that finds a row once for each of its tags."""

    fields = (*(field.name for field in Book._meta.concrete_fields), "tags")
    search_fields = ("title", "tags__name")
    filter_fields = {
        "pages": ["gte"],
        "tags": ["exact", "in"],
        "author__name": ["exact"],
        "rating": ["exact", "isnull"],
    }


@pytest.fixture(params=SEEDS)
def rng(request: pytest.FixtureRequest) -> random.Random:
    found = random.Random(request.param)
    make_rows(found)
    return found


def test_groups_measures_order_and_rest_are_those_of_python(rng: random.Random) -> None:
    site = site_with(Author, Tag)
    site.register(Book, Searchable)
    request = reader(make_superuser(), site)
    books = list(Book.objects.select_related("author"))
    tags = list(Tag.objects.values_list("pk", flat=True))
    narrowings: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
        ({}, lambda row: True),
        ({"filters": {"pages__gte": 2}}, lambda row: row.pages >= 2),
        # Joins and subqueries that find a row more than once.
        ({"filters": {"tags": tags}}, lambda row: row.tags.exists()),
        (
            {"filters": {"or": [{"tags": tags}, {"author__name": "a"}, {"rating": None}]}},
            lambda row: row.tags.exists() or row.author.name == "a" or row.rating is None,
        ),
        (
            {"filters": {"not": {"tags": tags, "pages__gte": 2}}, "search": "b"},
            lambda row: not (row.tags.exists() and row.pages >= 2),
        ),
        ({"search": "t"}, lambda row: row.tags.exists()),
    ]
    with timezone.override(ZONE):
        for _ in range(QUESTIONS):
            question = make_question(rng)
            narrowing, passes = rng.choice(narrowings)
            found = asked(request, question, **narrowing)
            expected = Python([book for book in books if passes(book)], question)
            assert found["columns"] == expected.titles, question
            rows = [line[1] for line in expected.shown]
            assert len(found["rows"]) == len(rows) == found["returned"], question
            for row, wanted in zip(found["rows"], rows, strict=True):
                assert all(map(same, row, wanted)), (question, row, wanted)
            rest = expected.rest()
            assert found.get("rest", {}).keys() == (rest or {}).keys(), (question, found.get("rest"), rest)
            for name, value in (rest or {}).items():
                assert same(found["rest"][name], value), (question, name, found["rest"], rest)


def test_totals_are_those_of_python(rng: random.Random) -> None:
    request = reader(make_superuser(), site_with(Book, Author))
    books = list(Book.objects.select_related("author"))
    for start in range(0, len(MEASURES), 8):
        measures = MEASURES[start : start + 8]
        (found,) = asked(request, {"aggregates": measures})["rows"]
        for measure, value in zip(measures, found, strict=True):
            expected = shown(measure, computed(books, measure))
            assert same(value, expected), (measure, value, expected)
