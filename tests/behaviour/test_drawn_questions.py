"""Drawn questions, answered by the tools and by plain Python over the same rows: filters and aggregates as trees.

``DRAWN_QUESTIONS`` is how many are drawn; each is known by its number, so that one that fails can be asked again.
"""

import os
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.behaviour.drawn_paths import PATHS, DrawnPaths, Leaf
from tests.cases import drawn, shared
from tests.factories import make_superuser, new_book
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Profile, Tag
from tests.tool_calls import call

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db]
QUESTIONS = int(os.environ.get("DRAWN_QUESTIONS", drawn(200)))
HIDDEN = "hidden"
NAMES = ("ann", "bob", "cid", HIDDEN)
DAYS = tuple(date(2024, 1, 1) + timedelta(days=31 * number) for number in range(6))
FIELDS = ["title", "author", "pages", "price", "rating", "published", "status", "tags"]
Test = Callable[[Any], bool]


class Visible(ModelExposure):
    column = "name"

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(**{self.column: HIDDEN})


class VisibleBook(Visible):
    column = "title"


class Zoo:
    """Rows with NULLs, ties, negative and huge numbers, and what of them the caller may see."""

    # Who draws questions without rows names the first tag.
    tag_keys: Mapping[str, Any] = dict.fromkeys(NAMES, 1)

    def __init__(self, *, hides: bool) -> None:
        draw = random.Random(11)
        self.hides = hides
        authors = Author.objects.bulk_create(Author(name=name) for name in NAMES)
        tags = Tag.objects.bulk_create(Tag(name=name) for name in NAMES)
        books, tagged, loans = [], [], []
        for _ in range(24):
            book = new_book(
                draw.choice(["a", "b", "c", HIDDEN]),
                author=draw.choice(authors),
                pages=draw.choice([0, 1, 1, 7, 2_000_000]),
                price=draw.choice(["0.00", "0.10", "0.20", "99.99", "-5.50"]),
                rating=draw.choice([None, None, 1.5, 4.0, -2.0]),
                published=draw.choice([None, *DAYS]),
                status=draw.choice(Book.Status.values),
            )
            books.append(book)
            tagged += [Book.tags.through(book=book, tag=tag) for tag in draw.sample(tags, draw.randrange(4))]
            for _ in range(draw.randrange(3)):
                due = datetime.combine(draw.choice(DAYS), datetime.min.time(), UTC) + timedelta(
                    hours=draw.randrange(24)
                )
                loans.append(Loan(book=book, borrower=draw.choice(NAMES[:3]), due=due))
        Book.objects.bulk_create(books)
        Book.tags.through.objects.bulk_create(tagged)
        Loan.objects.bulk_create(loans)
        # As memory has them, so that Python asks no database.
        self.books = list(Book.objects.select_related("author"))
        self.loans = list(Loan.objects.all())
        self.authors = list(Author.objects.all())
        self.tags = {book.pk: [tag.name for tag in book.tags.all()] for book in self.books}
        self.tag_keys = {tag.name: tag.pk for tag in tags}
        self.by_pk = {book.pk: book for book in self.books}

    def request(self) -> MCPRequest:
        if not self.hides:
            return reader(make_superuser(), site_with(Author, Book, Loan, Tag))
        site = site_with(Loan)
        site.register([Author, Tag], Visible, fields=["name"])
        site.register(Book, VisibleBook, fields=FIELDS)
        return reader(make_superuser(), site)

    def sees(self, name: str) -> bool:
        return not (self.hides and name == HIDDEN)

    def rows(self, label: str) -> list[Any]:
        if label == "testapp.loan":
            return self.loans
        if label == "testapp.author":
            return [author for author in self.authors if self.sees(author.name)]
        return [book for book in self.books if self.sees(book.title)]

    # What is behind a row, as the caller sees it

    def author_of(self, book: Book) -> Author | None:
        return book.author if self.sees(book.author.name) else None

    def book_of(self, loan: Loan) -> Book | None:
        book = self.by_pk[loan.book_id]
        return book if self.sees(book.title) else None

    def books_of(self, author: Author) -> list[Book]:
        return [book for book in self.rows("testapp.book") if book.author_id == author.pk]

    def loans_of(self, book: Book) -> list[Loan]:
        return [loan for loan in self.loans if loan.book_id == book.pk]

    def tags_of(self, book: Book) -> list[str]:
        return [name for name in self.tags[book.pk] if self.sees(name)]

    def steps(self) -> dict[str, Callable[[Any], list[Any]]]:
        """Return what leads from one row to the related rows, by the name of the relation."""
        return {
            "author": lambda book: [found] if (found := self.author_of(book)) is not None else [],
            "book": lambda loan: [found] if (found := self.book_of(loan)) is not None else [],
            "books": self.books_of,
            "loans": self.loans_of,
            "tags": self.tags_of,
        }


@pytest.fixture(params=["all rows", "hidden rows"])
def zoo(request: pytest.FixtureRequest) -> Zoo:
    return Zoo(hides=request.param == "hidden rows")


COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda one, other: one > other,
    "gte": lambda one, other: one >= other,
    "lt": lambda one, other: one < other,
    "lte": lambda one, other: one <= other,
    "exact": lambda one, other: one == other,
}


class Drawing:
    """Draws filters with the test in Python that each stands for."""

    def __init__(self, zoo: Zoo, seed: int, *, is_declared: bool = False) -> None:
        self.zoo, self.draw, self.is_declared = zoo, random.Random(seed), is_declared

    def value(self, name: str) -> Any:
        values: dict[str, Sequence[Any]] = {
            "pages": (0, 1, 5, 2_000_000),
            "price": (Decimal("0.10"), Decimal("0.20"), Decimal(0), Decimal("50")),
            "rating": (-2.0, 1.5, 3.0),
            "published": DAYS,
        }
        return self.draw.choice(values[name])

    def compared(self, name: str, get: Callable[[Any], Any]) -> tuple[dict[str, Any], Test]:
        word = self.draw.choice(list(COMPARED))
        value = self.value(name)
        written = value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Decimal) else value

        def passes(row: Any) -> bool:
            found = get(row)
            return found is not None and COMPARED[word](found, value)

        return {f"{name}__{word}": written}, passes

    def of_book(self, depth: int) -> tuple[dict[str, Any], Test]:
        kind = self.draw.randrange(13 if depth else 5)
        if kind < 3:
            name = self.draw.choice(["pages", "price", "rating", "published"])
            return self.compared(name, lambda book: getattr(book, name))
        if kind == 3:
            chosen = self.draw.sample(["a", "b", "c", HIDDEN], 2)
            return {"title__in": chosen}, lambda book: book.title in chosen
        if kind == 4:
            name, other, word = *self.draw.sample(["pages", "price", "rating"], 2), self.draw.choice(list(COMPARED))

            def passes(book: Book) -> bool:
                values = [getattr(book, name), getattr(book, other)]
                return None not in values and COMPARED[word](*(float(value) for value in values))

            return {f"{name}__{word}": {"field": other}}, passes
        if kind == 5:
            name = self.draw.choice(NAMES)
            author_of = self.zoo.author_of
            return {"author.name": name}, lambda book: (found := author_of(book)) is not None and found.name == name
        if kind == 6:
            inner, test = self.of_author(depth - 1)
            author_of = self.zoo.author_of
            return {"author": {"some": inner}}, lambda book: (found := author_of(book)) is not None and test(found)
        if kind == 7:
            return self.quantified("loans", self.zoo.loans_of, self.of_loan(depth - 1))
        if kind == 8:
            name = self.draw.choice(NAMES)
            tags = self.zoo.tags_of
            return self.quantified("tags", tags, ({"name": name}, lambda tag: tag == name))
        if kind < 11:
            return self.apart(self.paths("book"))
        return self.joined(self.of_book, depth)

    def of_loan(self, depth: int) -> tuple[dict[str, Any], Test]:
        kind = self.draw.randrange(6 if depth > 0 else 2)
        if kind < 2:
            name = self.draw.choice(NAMES[:3])
            return {"borrower": name}, lambda loan: loan.borrower == name
        if kind == 2:
            inner, test = self.of_book(depth - 1)
            book_of = self.zoo.book_of
            return {"book": {"some": inner}}, lambda loan: (found := book_of(loan)) is not None and test(found)
        if kind == 3:
            day = self.draw.choice(DAYS)
            book_of = self.zoo.book_of

            def passes(loan: Loan) -> bool:
                book = book_of(loan)
                return book is not None and book.published is not None and book.published < day

            return {"book.published__lt": day.isoformat()}, passes
        if kind == 4:
            return self.apart(self.paths("loan"))
        return self.joined(self.of_loan, depth)

    def of_author(self, depth: int) -> tuple[dict[str, Any], Test]:
        kind = self.draw.randrange(6 if depth > 0 else 1)
        if kind == 0:
            chosen = self.draw.sample(NAMES, 2)
            return {"name__in": chosen}, lambda author: author.name in chosen
        if kind < 3:
            return self.quantified("books", self.zoo.books_of, self.of_book(depth - 1))
        if kind < 5:
            return self.apart(self.paths("author"))
        return self.joined(self.of_author, depth)

    def paths(self, model: str) -> tuple[dict[str, Any], Test]:
        """Draw conditions on paths through lists, which hold for one row of each list."""
        return DrawnPaths(self.draw, self.zoo.steps(), self.leaf).drawn(PATHS[model], 2)

    def apart(self, found: tuple[dict[str, Any], Test]) -> tuple[dict[str, Any], Test]:
        """Give conditions on paths rows of their own, so that those in an "and" beside them can be on others."""
        given, test = found
        return {"not": {"not": given}}, test

    def leaf(self, kind: str) -> Leaf:
        """Draw a condition on a row at the end of a path."""
        name = self.draw.choice(NAMES)
        if kind == "tag":
            keys = self.zoo.tag_keys
            number = self.draw.randrange(3)
            if number == 0:
                return "", keys[name], lambda tag: tag == name
            if number == 1 and not self.is_declared:
                return "name__ne", name, lambda tag: tag != name
            return "name", name, lambda tag: tag == name
        if kind == "loan":
            if self.draw.randrange(2):
                day = self.draw.choice(DAYS)
                return "due__gte", day.isoformat(), lambda loan: loan.due.date() >= day
            return "borrower", name, lambda loan: loan.borrower == name
        if self.draw.randrange(5) == 0:
            is_null = self.draw.choice([True, False])
            return "rating__isnull", is_null, lambda book: (book.rating is None) == is_null
        field = self.draw.choice(["pages", "price", "rating", "published"])
        given, test = self.compared(field, lambda book: getattr(book, field))
        [(key, value)] = given.items()
        return key, value, test

    def quantified(
        self, name: str, related: Callable[[Any], list[Any]], inner: tuple[dict[str, Any], Test]
    ) -> tuple[dict[str, Any], Test]:
        given, test = inner if self.draw.randrange(6) else ({}, lambda other: True)
        word = self.draw.choice(["some", "none", "every", "count"])
        if word == "count":
            lookup, number = self.draw.choice(list(COMPARED)), self.draw.randrange(4)
            asked = {f"count__{lookup}": number, "where": given}
            return {name: asked}, lambda row: COMPARED[lookup](sum(map(test, related(row))), number)
        passes: dict[str, Callable[[list[bool]], bool]] = {
            "some": any,
            "none": lambda found: not any(found),
            "every": all,
        }
        return {name: {word: given}}, lambda row: passes[word]([test(other) for other in related(row)])

    def joined(self, one: Callable[[int], tuple[dict[str, Any], Test]], depth: int) -> tuple[dict[str, Any], Test]:
        word = self.draw.choice(["and", "or", "not"])
        first, test = one(depth - 1)
        if word == "not":
            return {"not": first}, lambda row: not test(row)
        second, other = one(depth - 1)
        if word == "and":
            return {"and": [first, second]}, lambda row: test(row) and other(row)
        return {"or": [first, second]}, lambda row: test(row) or other(row)

    def question(self) -> tuple[str, dict[str, Any], Test]:
        label = self.draw.choice(["testapp.book", "testapp.book", "testapp.loan", "testapp.author"])
        of_model = {"testapp.book": self.of_book, "testapp.loan": self.of_loan, "testapp.author": self.of_author}
        return label, *of_model[label](3)


@pytest.fixture(autouse=True)
def deep_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow questions that are larger than those of clients: trees of paths of several hops."""
    monkeypatch.setattr("mcp_django.orm.filter_parser.MAX_DEPTH", 20)
    monkeypatch.setattr("mcp_django.orm.filter_parser.MAX_FILTERS", 200)


def test_filters_find_what_python_finds(zoo: Zoo) -> None:
    request, numbers, found_some = zoo.request(), shared(range(QUESTIONS)), 0
    for number in numbers:
        label, filters, passes = Drawing(zoo, number).question()
        found = call(QueryRecords(), request, model=label, filters=filters, fields=["pk"], limit=200)
        expected = sorted(row.pk for row in zoo.rows(label) if passes(row))
        assert sorted(row[0] for row in found["rows"]) == expected, (number, label, filters)
        found_some += bool(expected)
    assert found_some > len(numbers) / 4


@pytest.mark.parametrize("label", ["testapp.book", "testapp.author", "testapp.loan"])
def test_paths_on_one_list_mean_one_row_of_it(zoo: Zoo, label: str) -> None:
    request, model, found_some = zoo.request(), label.partition(".")[2], 0
    for number in range(QUESTIONS // 2):
        filters, passes = Drawing(zoo, 200_000 + number).paths(model)
        found = call(QueryRecords(), request, model=label, filters=filters, fields=["pk"], limit=200)
        expected = sorted(row.pk for row in zoo.rows(label) if passes(row))
        assert sorted(row[0] for row in found["rows"]) == expected, (number, label, filters)
        found_some += bool(expected)
    assert found_some > QUESTIONS / 8


NUMBERS = [*COMPARED, "isnull"]
DECLARED: dict[str, dict[str, list[str]]] = {
    "author": {f"books__{name}": NUMBERS for name in ("pages", "price", "rating", "published")},
    "book": {
        "loans__borrower": ["exact"],
        "loans__due": ["gte"],
        "tags": ["exact"],
        "tags__name": ["exact", "in"],
    },
}
FIRST_HOPS = {"author": [(("books",), "book")], "book": [(("loans",), "loan"), (("tags",), "tag")]}


@pytest.mark.parametrize("model", [Author, Book])
def test_declared_paths_on_one_list_mean_one_row_of_it(zoo: Zoo, model: type[Model]) -> None:
    name = str(model._meta.model_name)
    site = MCPSite()
    for other, fields in {Author: ["name"], Book: FIELDS, Loan: ["book", "borrower", "due"], Tag: ["name"]}.items():
        exposure = ModelExposure
        if zoo.hides and other is not Loan:
            exposure = VisibleBook if other is Book else Visible
        declared = {"filter_fields": DECLARED[name]} if other is model else {}
        site.register(other, exposure, fields=fields, **declared)
    request = reader(make_superuser(), site)
    for number in range(QUESTIONS // 2):
        drawing = Drawing(zoo, 300_000 + number, is_declared=True)
        paths = DrawnPaths(drawing.draw, zoo.steps(), drawing.leaf, is_declared=True)
        filters, passes = paths.drawn(FIRST_HOPS[name], 2)
        found = call(QueryRecords(), request, model=f"testapp.{name}", filters=filters, fields=["pk"], limit=200)
        expected = sorted(row.pk for row in zoo.rows(f"testapp.{name}") if passes(row))
        assert sorted(row[0] for row in found["rows"]) == expected, (number, filters)


MEASURES: dict[str, Callable[[list[Book]], Any]] = {
    "count": len,
    "sum:pages": lambda books: sum(book.pages for book in books) if books else None,
    "sum:pages*price": lambda books: sum((book.pages * book.price for book in books), Decimal()) if books else None,
    "min:price": lambda books: min((book.price for book in books), default=None),
    "avg:rating": lambda books: statistics.mean(known) if (known := ratings(books)) else None,
    "median:pages": lambda books: statistics.median(book.pages for book in books) if books else None,
    "stddev:rating": lambda books: statistics.stdev(known) if len(known := ratings(books)) > 1 else None,
    "max:rating-pages": lambda books: max((b.rating - b.pages for b in books if b.rating is not None), default=None),
}


def ratings(books: list[Book]) -> list[float]:
    return [book.rating for book in books if book.rating is not None]


def same(found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is None and expected is None
    if isinstance(expected, Decimal):
        return Decimal(found) == expected
    return float(found) == pytest.approx(float(expected))


def test_aggregates_are_what_python_computes(zoo: Zoo) -> None:
    request = zoo.request()
    for number in shared(range(QUESTIONS)):
        drawing = Drawing(zoo, 100_000 + number)
        filters, passes = drawing.of_book(2)
        where, counts = drawing.of_book(1)
        name = drawing.draw.choice(list(MEASURES))
        by = drawing.draw.choice(["status", "author.name", "published:month"])
        measures = [name, {"function": "count", "where": where, "as": "some"}, "count:loans"]
        if name == "count":
            measures[0] = "count_distinct:id"
        asked = {"model": "testapp.book", "filters": filters, "aggregates": measures, "group_by": [by], "limit": 200}
        found = call(AggregateRecords(), request, **asked)
        groups: dict[Any, list[Book]] = {}
        for book in zoo.rows("testapp.book"):
            if passes(book):
                groups.setdefault(key_of(zoo, by, book), []).append(book)
        assert {row[0] for row in found["rows"]} == set(groups), (number, filters)
        for key, value, some, loans in found["rows"]:
            books = groups[key]
            assert same(value, MEASURES[name](books)), (number, name, key, value, MEASURES[name](books), filters)
            assert some == sum(map(counts, books)), (number, where, key)
            assert loans == sum(len(zoo.loans_of(book)) for book in books)


def key_of(zoo: Zoo, by: str, book: Book) -> str | None:
    if by == "status":
        return book.status
    if by == "author.name":
        author = zoo.author_of(book)
        return author.name if author is not None else None
    return book.published.isoformat()[:7] if book.published is not None else None


class VisibleProfile(Visible):
    column = "biography"


class VisibleUser(Visible):
    column = "username"


# Conditions on books whose values are null, behind relations to no row, on the border, or on no related row.
LEAVES: tuple[dict[str, Any], ...] = (
    {"published": None},
    {"published__year": 2024},
    {"published__month__gt": 2},
    {"rating__isnull": False},
    {"rating__gt": {"field": "pages"}},
    {"price__gte": "0.10"},
    {"price": {"field": "price*3-price-price"}},
    {"price__lt": "0.2000001"},
    {"price__gt": {"field": "owner.id/100"}},
    {"owner": None},
    {"owner.email__contains": "@"},
    {"owner.last_name__startswith": "a"},
    {"owner.date_joined__lt": {"field": "created"}},
    {"owner.date_joined__year": 2024},
    {"author.born": None},
    {"author.born__lt": {"field": "published", "plus": "3d"}},
    {"author.profile.biography__isnull": True},
    {"author.profile.biography__isnull": False},
    {"author.profile.biography__contains": "a"},
    {"author.profile": {"every": {}}},
    {"author.profile": {"every": {"biography__startswith": "a"}}},
    {"author.profile": {"none": {"biography__startswith": "a"}}},
    {"author": {"some": {}}},
    {"owner": {"every": {}}},
    {"loans": {"every": {}}},
    {"loans": {"none": {}}},
    {"loans": {"count__gte": 1, "where": {"book.author.profile.biography__contains": "a"}}},
    {"tags": {"every": {"name__startswith": "a"}}},
    {"tags__name": "ann"},
    {"tags": {"some": {"books__title__startswith": "a"}}},
)


@pytest.mark.parametrize("hides", [False, True])
def test_or_is_the_union_and_not_the_complement(hides: bool) -> None:
    Zoo(hides=hides)
    draw = random.Random(5)
    users = [User.objects.create_user(name, last_name=name, email="a@b.c") for name in NAMES[1:]]
    for author in list(Author.objects.all())[1:]:
        Author.objects.filter(pk=author.pk).update(born=draw.choice([None, *DAYS]))
        Profile.objects.create(author=author, biography=draw.choice(["", "ab", HIDDEN]))
    for book in Book.objects.all():
        Book.objects.filter(pk=book.pk).update(owner=draw.choice([None, *users]))
    site = site_with(Loan)
    columns = {Author: Visible, Tag: Visible, Book: VisibleBook, Profile: VisibleProfile, User: VisibleUser}
    for model, exposure in columns.items():
        names = [field.name for field in (*model._meta.concrete_fields, *model._meta.many_to_many)]
        site.register(model, exposure if hides else ModelExposure, fields=names)
    request = reader(make_superuser(), site)

    def found(filters: dict[str, Any]) -> frozenset[Any]:
        rows = call(QueryRecords(), request, model="testapp.book", filters=filters, fields=["pk"], limit=200)["rows"]
        return frozenset(row[0] for row in rows)

    every, leaves = found({}), [(leaf, found(leaf)) for leaf in LEAVES]

    def tree(depth: int) -> tuple[dict[str, Any], frozenset[Any]]:
        word = draw.choice(["leaf", "not", "and", "or"]) if depth else "leaf"
        if word == "leaf":
            return draw.choice(leaves)
        given, one = tree(depth - 1)
        if word == "not":
            return {"not": given}, every - one
        # The same condition again, of which Django could share the joins.
        second, other = draw.choice([tree(depth - 1), ({"not": given}, every - one)])
        return {word: [given, second]}, one | other if word == "or" else one & other

    for leaf, rows in leaves:
        assert found({"not": leaf}) == every - rows, leaf
    for number in range(QUESTIONS):
        filters, expected = tree(2)
        assert found(filters) == expected, (number, filters)
