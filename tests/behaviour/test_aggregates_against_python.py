"""`aggregate_records` against the same numbers worked out in Python: random rows, random questions."""

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from mcp_django import ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.cases import whole
from tests.factories import make_author, make_book, make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db]
ZONE = ZoneInfo("America/New_York")
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
ROWS, QUESTIONS, SEEDS = 60, 40, [1, *whole([2, 3, 4, 5])]

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


def steps(name: str, width: str) -> tuple[str, Key]:
    def key(row: Row) -> tuple[Any, Any]:
        value = getattr(row, name)
        if value is None:
            return None, None
        begins = (Decimal(str(value)) / Decimal(width)).to_integral_value(ROUND_FLOOR) * Decimal(width)
        return begins, float(begins)

    return f"{name}:{width}", key


GROUPS: dict[str, Key] = {
    "status": plain("status"),
    "active": plain("active"),
    "pages": plain("pages"),
    "price": lambda row: (row.price, str(row.price)),
    "author": lambda row: (row.author_id, [row.author_id, row.author.name]),
    "author__name": lambda row: (row.author.name, row.author.name),
    **dict(
        steps(name, width)
        for name, width in [("price", "0.1"), ("price", "0.3"), ("price", "2.5"), ("rating", "0.1"), ("pages", "2")]
    ),
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


# What is made of aggregates that are of one kind, and what a difference or a ratio of them is at least now and then.
ALIKE: list[tuple[list[str], list[str]]] = [
    (["count", "max:id", "sum:pages", "max:pages", "sum:price", "min:price", "sum:rating", "max:rating"], ["0.777"]),
    (["sum:reading_time", "min:reading_time", "max:reading_time"], ["90min", "777min"]),
    (["min:published", "max:published"], []),
    (["min:created", "max:created"], []),
]
Made = dict[str, Any]


def made_of(one: Any, other: Any, function: str) -> Any:
    if one is None or other is None or (function == "ratio" and not other):
        return None
    if function == "ratio":
        return one / other if isinstance(one, timedelta) else float(one) / float(other)
    if isinstance(one, float) or isinstance(other, float):
        return float(one) - float(other)
    return (one - other) / timedelta(1) if isinstance(one, date) else one - other


def percent(one: Any, whole: Any) -> float | None:
    share = made_of(one, whole, "ratio")
    return None if share is None else 100 * share


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


def is_rounded(ratings: Sequence[float]) -> bool:
    """Return whether the sum depends on the order in which the database adds: not of two, nor of multiples of 1/4."""
    return len(ratings) > 2 and any(rating % 0.25 for rating in ratings)


def are_drawn(lines: Iterable[Any], position: int) -> bool:
    """Return whether two lines have the same sum of floats there, or the same mean, but for its rounding."""
    found = sorted(
        (line[0][position], is_rounded(values(line[2], "rating")))
        for line in lines
        if isinstance(line[0][position], float)
    )
    return any(
        other - one < 1e-9 and (is_one_rounded or is_other_rounded)
        for (one, is_one_rounded), (other, is_other_rounded) in pairwise(found)
    )


def title(measure: str | Made) -> str:
    if isinstance(measure, dict):
        return str(measure["as"])
    return measure.replace(":", "_").replace("author_id", "author")


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
            # Many of them on the border of two steps.
            price=rng.choice([Decimal(rng.randrange(1000)) / 100, Decimal(rng.randrange(-9, 12)) / 10]),
            rating=rng.choice([None, rng.randrange(8) / 4, 0.3, 0.7]),
            status=rng.choice(Book.Status.values),
            active=rng.random() < 0.5,
            published=rng.choice([None, date(2023, 12, 20) + timedelta(days=rng.randrange(60))]),
            reading_time=rng.choice([None, timedelta(minutes=rng.randrange(100) * 12)]),
        )
        book.tags.set(tags[: number % 4])
        moment = datetime(2024, 2, 27, tzinfo=UTC) + timedelta(hours=rng.randrange(24 * 20), minutes=rng.randrange(60))
        Book.objects.filter(pk=book.pk).update(created=moment)


# A column, whether it descends, and whether null is first.
Order = tuple[int, bool, bool]


def order_of(given: Sequence[str], titles: Sequence[str], count: int) -> list[Order]:
    found = []
    for text in given:
        name, place = (text.removesuffix(":nulls_first"), text.endswith(":nulls_first"))
        found.append((titles.index(name.lstrip("-")), name.startswith("-"), place))
    known = [index for index, *_ in found]
    return found + [(position, False, False) for position in range(count) if position not in known]


def in_order(lines: list[Any], order: Sequence[Order]) -> list[Any]:
    """Return the lines sorted by their raw values, null where it is wanted."""
    for position, down, first in reversed(order):
        full = sorted(filter(_has(position), lines), key=_raw(position), reverse=down)
        none = [line for line in lines if line[0][position] is None]
        lines = none + full if first else full + none
    return lines


def _raw(position: int) -> Callable[[Any], Any]:
    return lambda line: line[0][position]


def _has(position: int) -> Callable[[Any], bool]:
    return lambda line: line[0][position] is not None


def reaches(value: Any, least: Any) -> bool:
    if value is None:
        return False
    if isinstance(value, timedelta):
        return value >= timedelta(minutes=int(least.removesuffix("min")))
    return bool(value >= (Decimal(least) if isinstance(value, Decimal) else float(least)))


PERIODS = (":year", ":quarter", ":month", ":week", ":day", ":hour")


def place_of(text: str) -> int:
    """Return the place of a period among those of its kind: one more than that of the period before."""
    year, _, rest = text.partition("-")
    if not rest:
        return int(year)
    if rest[0] == "Q":
        return int(year) * 4 + int(rest[1:])
    if rest[0] == "W":
        return date.fromisocalendar(int(year), int(rest[1:]), 1).toordinal() // 7
    if len(rest) == 2:
        return int(year) * 12 + int(rest)
    day, _, hour = text.partition("T")
    days = date.fromisoformat(day).toordinal()
    return days * 24 + int(hour) if hour else days


def change(before: Any, now: Any) -> float | None:
    share = made_of(now, before, "ratio")
    return None if share is None else 100 * (share - 1)


class Python:
    """The answer to a question, without the database."""

    def __init__(self, rows: Sequence[Row], question: dict[str, Any]) -> None:
        self.question = question
        self.groups, self.measures = question["group_by"], question["aggregates"]
        self.titles = [*self.groups, *map(title, self.measures)]
        self.plain = [measure for measure in self.measures if isinstance(measure, str)]
        self.made = [measure for measure in self.measures if isinstance(measure, dict)]
        self.lines = self.grouped(rows, self.groups)
        if threshold := question.get("having"):
            ((name, least),) = threshold.items()
            position = self.titles.index(name.removesuffix("__gte"))
            self.lines = [line for line in self.lines if reaches(line[0][position], least)]
        order = order_of(question.get("ordering", []), self.titles, len(self.groups))
        # Whether it is a matter of rounding which line comes first.
        self.is_drawn = any(are_drawn(self.lines, item[0]) for item in order if self.adds_floats(item[0]))
        self.lines = in_order(self.lines, order)
        limit, top = question.get("limit", 50), question.get("top")
        if top is not None:
            limit = question.get("limit", 200)
            rank = next((item for item in order if item[0] >= len(self.groups)), (len(self.groups), True, False))
            order = [item for item in order if item[0] != rank[0]]
            if len(self.groups) == 1:
                self.is_drawn |= self.adds_floats(rank[0]) and are_drawn(self.lines, rank[0])
                self.lines, limit = in_order(self.lines, [rank, *order]), min(limit, top)
            else:
                self.lines = self.led(rows, rank, order, top)
                inside = sum(1 for line in self.lines if line[2] < top)
                limit = min(limit, inside)
        self.shown, self.others = self.lines[:limit], self.lines[limit:]

    def adds_floats(self, position: int) -> bool:
        """Return whether a column is a sum of floats, or a mean."""
        return self.titles[position] in ("sum_rating", "avg_rating")

    def grouped(self, rows: Sequence[Row], groups: Sequence[str]) -> list[Any]:
        """Return a line for each group: raw values, shown values."""
        found: dict[Any, list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(GROUPS[group](row)[0] for group in groups), []).append(row)
        lines = []
        for key, members in found.items():
            numbers = [computed(members, measure) for measure in self.plain]
            texts = [GROUPS[group](members[0])[1] for group in groups]
            texts += [shown(measure, number) for measure, number in zip(self.plain, numbers, strict=True)]
            lines.append(([*key, *numbers], texts, members))
        for measure in self.made:
            self.make(measure, rows, lines, groups)
        return lines

    def make(self, measure: Made, rows: Sequence[Row], lines: list[Any], groups: Sequence[str]) -> None:
        """Add what is made of other aggregates to each line."""
        function, sources = next(iter(measure.items()))
        positions = [len(groups) + list(map(title, self.plain)).index(source) for source in sources]
        period = next((index for index, group in enumerate(groups) if group.endswith(PERIODS)), None)
        before: dict[Any, Any] = {}
        for key, texts, _ in in_order(lines, [(period, False, False)]) if period is not None else lines:
            one = key[positions[0]]
            if function == "percent_of_total":
                value: Any = percent(one, computed(rows, self.plain[positions[0] - len(groups)]))
            elif function == "change":
                others = tuple(part for index, part in enumerate(key[: len(groups)]) if index != period)
                value = None
                if period is not None and key[period] is not None:
                    place = place_of(texts[period])
                    earlier, at = before.get(others, (None, None))
                    value = change(earlier, one) if at == place - 1 else None
                    before[others] = one, place
            else:
                value = made_of(one, key[positions[1]], function)
            key.append(value)
            texts.append(shown("", value))

    def led(self, rows: Sequence[Row], rank: Order, order: Any, top: int) -> list[Any]:
        first = self.grouped(rows, self.groups[:1])
        position = rank[0] - len(self.groups) + 1
        self.is_drawn |= self.adds_floats(rank[0]) and are_drawn(first, position)
        ranked = [line[0][0] for line in in_order(first, [(position, *rank[1:]), (0, False, False)])]
        lines = in_order(self.lines, order)
        placed = [(*line[:2], min(ranked.index(line[0][0]), top), line[2]) for line in lines]
        return sorted(placed, key=lambda line: line[2])

    def rest(self) -> dict[str, Any] | None:
        if not self.others:
            return None
        members = [row for line in self.others for row in line[-1]]
        additive = [measure for measure in self.plain if measure.partition(":")[0] in ("count", "sum", "min", "max")]
        found = {title(measure): shown(measure, computed(members, measure)) for measure in additive}
        return {"groups": len(self.others), **found}


def make_question(rng: random.Random) -> dict[str, Any]:
    groups = rng.sample(sorted(GROUPS), rng.randint(1, 3))
    measures = rng.sample(MEASURES, rng.randint(1, 4))
    question: dict[str, Any] = {"group_by": groups, "aggregates": measures}
    titles = [*groups, *map(title, measures)]
    if rng.random() < 0.5:
        names = rng.sample(titles, rng.randint(1, len(titles)))
        question["ordering"] = [rng.choice(["", "-"]) + name + rng.choice(["", ":nulls_first"]) for name in names]
    if rng.random() < 0.5:
        question["limit"] = rng.choice([1, 2, 5, 20, 200])
    if rng.random() < 0.4:
        question["top"] = rng.choice([1, 2, 3, 50])
    sums = [measure for measure in measures if measure in ("count", "sum:pages", "sum:price", "max:price", "avg:pages")]
    if sums and rng.random() < 0.6:
        question["having"] = {f"{title(sums[0])}__gte": rng.choice([1, 2, 5])}
    return question


def make_question_of_each_other(rng: random.Random) -> dict[str, Any]:
    """Return a question in which aggregates are made of each other; one of its groups is a period."""
    period = rng.choice([group for group in sorted(GROUPS) if group.endswith(PERIODS)])
    others = rng.sample([group for group in sorted(GROUPS) if not group.endswith(PERIODS)], rng.randint(0, 2))
    groups = rng.sample([period, *others], 1 + len(others))
    measures, thresholds = rng.choice(ALIKE)
    plain = rng.sample(measures, 2)
    names = list(map(title, plain))
    numbers = [function for function in ("ratio", "percent_of_total", "change") if thresholds]
    made: list[Made] = [{"difference": names, "as": "m0"}]
    for number, function in enumerate(rng.sample(numbers, min(2, len(numbers)))):
        made.append({function: names if function == "ratio" else names[:1], "as": f"m{number + 1}"})
    question: dict[str, Any] = {"group_by": groups, "aggregates": [*plain, *made]}
    if rng.random() < 0.5:
        wanted = rng.sample([*groups, *names], rng.randint(1, len(groups) + 2))
        question["ordering"] = [rng.choice(["", "-"]) + name + rng.choice(["", ":nulls_first"]) for name in wanted]
    if rng.random() < 0.5:
        question["limit"] = rng.choice([2, 5, 200])
    if rng.random() < 0.4:
        question["top"] = rng.choice([1, 3, 50])
    if thresholds and rng.random() < 0.6:
        # What durations are divided by is a number.
        least = rng.choice(thresholds)
        names = [*names, "m0"] if least.endswith("min") else [*names, *(measure["as"] for measure in made)]
        known = [name for name in names if name not in ("count", "max_id", "sum_pages", "max_pages")]
        if known and not (set(names[:2]) & {"count", "max_id", "sum_pages", "max_pages"}):
            question["having"] = {f"{rng.choice(known)}__gte": least}
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
            check(request, question, [book for book in books if passes(book)], **narrowing)


def check(request: MCPRequest, question: dict[str, Any], books: list[Book], **narrowing: Any) -> None:
    """Pass if the answer to the question is that of Python."""
    found = asked(request, question, **narrowing)
    expected = Python(books, question)
    assert found["columns"] == expected.titles, question
    if expected.is_drawn:
        return
    rows = [line[1] for line in expected.shown]
    assert len(found["rows"]) == len(rows) == found["returned"], question
    for row, wanted in zip(found["rows"], rows, strict=True):
        assert all(map(same, row, wanted)), (question, row, wanted)
    rest = expected.rest()
    assert found.get("rest", {}).keys() == (rest or {}).keys(), (question, found.get("rest"), rest)
    for name, value in (rest or {}).items():
        assert same(found["rest"][name], value), (question, name, found["rest"], rest)


def test_what_is_made_of_other_aggregates_is_what_python_makes_of_them(rng: random.Random) -> None:
    request = reader(make_superuser(), site_with(Author, Book))
    books = list(Book.objects.select_related("author"))
    with timezone.override(ZONE):
        for _ in range(QUESTIONS):
            check(request, make_question_of_each_other(rng), books)


def test_totals_are_those_of_python(rng: random.Random) -> None:
    request = reader(make_superuser(), site_with(Book, Author))
    books = list(Book.objects.select_related("author"))
    for start in range(0, len(MEASURES), 8):
        measures = MEASURES[start : start + 8]
        (found,) = asked(request, {"aggregates": measures})["rows"]
        for measure, value in zip(measures, found, strict=True):
            expected = shown(measure, computed(books, measure))
            assert same(value, expected), (measure, value, expected)
