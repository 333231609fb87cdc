"""Filters on related rows, compared with plain Python over the same rows."""

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import QuerySet

from mcp_django import ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.filter_parser import QUANTIFIERS
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Placement, Shelf, Tag
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY = QueryRecords()
HIDDEN = "hidden"


@pytest.fixture
def library() -> None:
    draw = random.Random(4)
    tags = [Tag.objects.create(name=name) for name in ("red", "blue", HIDDEN)]
    for number in range(6):
        author = make_author(f"author {number}")
        for position in range(number % 4):
            title = HIDDEN if (number + position) % 4 == 3 else f"book {number}.{position}"
            rating = draw.choice([None, 1.0, 3.0, 5.0])
            book = make_book(title, author=author, pages=draw.randrange(5), rating=rating)
            book.tags.set(draw.sample(tags, draw.randrange(4)))
            for _ in range(draw.randrange(3)):
                due = datetime(2024, 1, draw.randrange(1, 28), tzinfo=UTC)
                Loan.objects.create(book=book, borrower=draw.choice(["ann", "bob"]), due=due)


class Visible(ModelExposure):
    fields = "__all__"

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(**{self.hides: HIDDEN})

    hides = "title"


class VisibleTag(Visible):
    hides = "name"


@pytest.fixture(params=["all rows", "hidden rows"])
def request_of_one(request: pytest.FixtureRequest, library: None) -> MCPRequest:
    if request.param == "all rows":
        site = site_with(Author, Book, Loan, Tag)
    else:
        site = site_with(Author, Loan)
        site.register(Book, Visible, fields=["title", "author", "pages", "rating", "tags"])
        site.register(Tag, VisibleTag)
    return reader(make_superuser(), site)


def names(request: MCPRequest, **filters: Any) -> set[str]:
    found = call(QUERY, request, model="testapp.author", filters=filters, fields=["name"], limit=100)
    listed = [row[1] for row in found["rows"]]
    assert len(set(listed)) == len(listed), "a row came twice"
    return set(listed)


def books_of(request: MCPRequest, author: Author) -> list[Book]:
    hides = issubclass(type(request.mcp.site.exposures[Book]), Visible)
    return [book for book in author.books.all() if not (hides and book.title == HIDDEN)]


def tags_of(request: MCPRequest, book: Book) -> list[str]:
    hides = issubclass(type(request.mcp.site.exposures[Tag]), Visible)
    return [tag.name for tag in book.tags.all() if not (hides and tag.name == HIDDEN)]


def expected(request: MCPRequest, passes: Callable[[list[Book]], bool]) -> set[str]:
    return {author.name for author in Author.objects.all() if passes(books_of(request, author))}


def good(book: Book) -> bool:
    return book.rating is not None and book.rating >= 3


CASES: dict[str, tuple[dict[str, Any], Callable[[MCPRequest, list[Book]], bool]]] = {
    "some": ({"books": {"some": {"rating__gte": 3}}}, lambda _, books: any(map(good, books))),
    "some of any": ({"books": {"some": {}}}, lambda _, books: bool(books)),
    "none": ({"books": {"none": {"rating__gte": 3}}}, lambda _, books: not any(map(good, books))),
    "none of any": ({"books": {"none": {}}}, lambda _, books: not books),
    "every": ({"books": {"every": {"rating__gte": 3}}}, lambda _, books: all(map(good, books))),
    "every of any": ({"books": {"every": {}}}, lambda _, books: True),
    "every, denied inside": (
        {"books": {"every": {"not": {"rating__gte": 3}}}},
        lambda _, books: not any(map(good, books)),
    ),
    "denied": ({"not": {"books": {"some": {"pages": 0}}}}, lambda _, books: all(book.pages for book in books)),
    "count": ({"books": {"count__gte": 2}}, lambda _, books: len(books) >= 2),
    "count of none": ({"books": {"count": 0}}, lambda _, books: not books),
    "count as a path": ({"books__count__lt": 2}, lambda _, books: len(books) < 2),
    "count in an object": ({"books": {"count": {"gt": 0, "<=": 2}}}, lambda _, books: 0 < len(books) <= 2),
    "count with a condition": (
        {"books": {"count__gte": 1, "where": {"rating__gte": 3}}},
        lambda _, books: sum(map(good, books)) >= 1,
    ),
    "existence": ({"books": {"exists": False}}, lambda _, books: not books),
    "isnull": ({"books__isnull": True}, lambda _, books: not books),
    "isnot null": ({"books__isnull": False}, lambda _, books: bool(books)),
    "a path": ({"books__pages__gte": 3}, lambda _, books: any(book.pages >= 3 for book in books)),
    "a path with dots": ({"books.pages": {"gte": 3}}, lambda _, books: any(book.pages >= 3 for book in books)),
    "an object": ({"books": {"pages__gte": 3}}, lambda _, books: any(book.pages >= 3 for book in books)),
    "two conditions on one row": (
        {"books": {"some": {"pages__gte": 3, "rating__gte": 3}}},
        lambda _, books: any(book.pages >= 3 and good(book) for book in books),
    ),
    "two quantifiers": (
        {"books": {"some": {"pages__gte": 3}, "none": {"pages": 0}}},
        lambda _, books: any(b.pages >= 3 for b in books) and all(b.pages for b in books),
    ),
    "two levels": (
        {"books": {"some": {"loans": {"none": {}}}}},
        lambda _, books: any(not book.loans.exists() for book in books),
    ),
    "two levels as a path": (
        {"books__loans__borrower": "ann"},
        lambda _, books: any(loan.borrower == "ann" for book in books for loan in book.loans.all()),
    ),
    "many to many": (
        {"books": {"some": {"tags": {"every": {"name": "red"}}}}},
        lambda request, books: any(set(tags_of(request, book)) <= {"red"} for book in books),
    ),
    "many to many, counted": (
        {"books": {"some": {"tags": {"count": 2}}}},
        lambda request, books: any(len(tags_of(request, book)) == 2 for book in books),
    ),
    "many to many, by its own lookups": (
        {"books": {"some": {"tags__name": HIDDEN}}},
        lambda request, books: any(HIDDEN in tags_of(request, book) for book in books),
    ),
    "beside others": (
        {"or": [{"name": "author 0"}, {"books": {"count__gte": 3}}]},
        lambda _, books: len(books) >= 3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_filter_finds_what_python_finds(request_of_one: MCPRequest, name: str) -> None:
    filters, passes = CASES[name]
    found = expected(request_of_one, lambda books: passes(request_of_one, books))
    assert names(request_of_one, **filters) == found | ({"author 0"} if name == "beside others" else set())


def test_a_single_related_row_is_asked_in_the_same_words(request_of_one: MCPRequest) -> None:
    asked = {"book": {"author": {"name": "author 3"}, "tags": {"some": {"name": "red"}}}}
    found = call(QUERY, request_of_one, model="testapp.loan", filters=asked, limit=100)
    loans = [
        loan.pk
        for loan in Loan.objects.all()
        if loan.book.author.name == "author 3"
        and loan.book in books_of(request_of_one, loan.book.author)
        and "red" in tags_of(request_of_one, loan.book)
    ]
    assert sorted(row[0] for row in found["rows"]) == loans


def test_aggregates_take_them_too(request_of_one: MCPRequest) -> None:
    found = call(
        AggregateRecords(), request_of_one, model="testapp.author", filters={"books": {"some": {}}}, aggregates="count"
    )
    assert found["rows"] == [[len(expected(request_of_one, bool))]]


def test_pages_go_on_by_cursor(request_of_one: MCPRequest) -> None:
    asked = {"model": "testapp.author", "filters": {"books__count__gte": 1}, "limit": 1, "fields": ["name"]}
    seen: list[str] = []
    cursor = None
    while len(seen) < 20:
        found = call(QUERY, request_of_one, **asked, **({"cursor": cursor} if cursor else {}))
        seen += [row[1] for row in found["rows"]]
        cursor = found.get("next_cursor")
        if cursor is None:
            break
    assert sorted(seen) == sorted(expected(request_of_one, bool))


def test_a_cursor_of_another_quantifier_is_refused(request_of_one: MCPRequest) -> None:
    asked = {"model": "testapp.author", "limit": 1}
    found = call(QUERY, request_of_one, **asked, filters={"books": {"count__gte": 1}})
    other = refusal(QUERY, request_of_one, **asked, filters={"books": {"count__gte": 2}}, cursor=found["next_cursor"])
    assert "cursor" in other


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"books": {"some": {"titel": "x"}}}, "testapp.book has no filter 'titel'. Did you mean title"),
        ({"books": {"some": {"author__secret_token": "x"}}}, "testapp.author has no filter 'author__secret_token'"),
        ({"books": {"count__gte": "many"}}, "The number of books needs"),
        ({"books": {"count__near": 3}}, "one of exact, gt, gte, lt, lte"),
        ({"books": {"some": 3}}, "books takes filters on testapp.book"),
        ({"books": {"loans": {"book": {"author": {"books": {"title": "x"}}}}}}, "nested 4 deep"),
        ({"books": {f"{word}": {"pages": 1} for word in ("some", "none")} | {"or": [{"pages": 1}] * 20}}, "at most 20"),
    ],
)
def test_what_does_not_fit_is_told(request_of_one: MCPRequest, filters: Any, told: str) -> None:
    assert told in refusal(QUERY, request_of_one, model="testapp.author", filters=filters)


def relations_refused(request: MCPRequest, model: str, names: Iterable[str]) -> None:
    for name in names:
        for filters in ({name: {"some": {}}}, {name: {"count": 0}}, {f"{name}__pk": 1}, {f"{name}__isnull": True}):
            text = refusal(QUERY, request, model=model, filters=filters)
            assert f"{model} has no filter" in text, (name, text)


def test_row_112_relations_to_what_the_caller_may_not_view_are_none(library: None) -> None:
    request = reader(make_user("u", "testapp.view_author", "testapp.view_book"), site_with(Author, Book, Loan, Tag))
    relations_refused(request, "testapp.book", ["loans", "placement", "audiobook", "nothing"])
    without_author = site_with(Author, Tag)
    without_author.register(Book, WithoutAuthor)
    relations_refused(reader(make_superuser(), without_author), "testapp.author", ["books", "book"])


class WithoutAuthor(ModelExposure):
    fields = ("title",)


def test_filters_that_an_exposure_names_are_all_that_there_are(library: None) -> None:
    site = site_with(Book)
    site.register(Author, filter_fields=["name"], fields=["name"])
    relations_refused(reader(make_superuser(), site), "testapp.author", ["books"])


def test_rows_through_a_table_of_their_own(library: None) -> None:
    first, second = Book.objects.order_by("pk")[:2]
    for code, books in (("A", [first]), ("B", [first, second]), ("C", [])):
        shelf = Shelf.objects.create(code=code)
        for position, book in enumerate(books):
            Placement.objects.create(shelf=shelf, book=book, position=position)
    request = reader(make_superuser(), site_with(Book, Shelf, Placement))

    def codes(**filters: Any) -> list[Any]:
        found = call(QUERY, request, model="testapp.shelf", filters=filters)
        return sorted(row[0] for row in found["rows"])

    assert codes(books={"count__gte": 2}) == ["B"]
    assert codes(books={"none": {}}) == ["C"]
    assert codes(placement_set={"some": {"position": 1}}) == ["B"]
    assert codes(books={"every": {"title": first.title}}) == ["A", "C"]


class TestFieldsAgainstFields:
    """Two columns compared with each other: NULL passes nothing, and everything below a not."""

    CASES: dict[str, tuple[dict[str, Any], Callable[[Book], bool | None]]] = {
        "greater": ({"pages__gt": {"field": "rating"}}, lambda b: None if b.rating is None else b.pages > b.rating),
        "in an object": (
            {"pages": {"lte": {"field": "rating"}}},
            lambda b: None if b.rating is None else b.pages <= b.rating,
        ),
        "equal": ({"pages": {"field": "rating"}}, lambda b: None if b.rating is None else b.pages == b.rating),
        "as an operator": ({"pages >": {"field": "price"}}, lambda b: b.pages > b.price),
        "arithmetic": ({"price__lt": {"field": "pages*2+1"}}, lambda b: b.price < b.pages * 2 + 1),
        "moved": ({"pages__gte": {"field": "price", "minus": 3}}, lambda b: b.pages >= b.price - 3),
        "moved in time": (
            {"created__gt": {"field": "created", "minus": "5d"}},
            lambda b: True,
        ),
        "a day and a time": (
            {"published__lt": {"field": "created", "minus": "2w"}},
            lambda b: None if b.published is None else b.published < (b.created - timedelta(weeks=2)).date(),
        ),
        "through a relation": (
            {"title": {"field": "author.name"}},
            lambda b: b.title == b.author.name,
        ),
    }

    @pytest.fixture
    def shelf(self) -> MCPRequest:
        for number in range(8):
            make_book(
                f"book {number}" if number % 2 else "a",
                author=make_author(f"author {number}" if number < 6 else "a"),
                pages=number,
                price=number // 2,
                rating=None if number == 3 else number % 4 + 0.5 * (number == 2),
                published=None if number == 5 else datetime(2024, 1, 1 + number, tzinfo=UTC).date(),
            )
        return reader(make_superuser(), site_with(Author, Book))

    @pytest.mark.parametrize("name", CASES)
    @pytest.mark.parametrize("denied", [False, True])
    def test_they_find_what_python_finds(self, shelf: MCPRequest, name: str, denied: bool) -> None:
        filters, passes = self.CASES[name]
        asked = {"not": filters} if denied else filters
        found = call(QUERY, shelf, model="testapp.book", filters=asked, limit=100)
        books = [book for book in Book.objects.select_related("author") if bool(passes(book)) is not denied]
        assert sorted(row[0] for row in found["rows"]) == sorted(book.pk for book in books)

    @pytest.mark.parametrize(
        ("filters", "told"),
        [
            ({"title__contains": {"field": "isbn"}}, "compares fields by exact, gt"),
            ({"title": {"field": "pages"}}, "cannot be compared: a text and a integer"),
            ({"pages": {"field": "nope"}}, "has no field 'nope'"),
            ({"pages": {"field": "author.secret_token"}}, "has no field"),
            ({"author": {"field": "owner"}}, "lead to different models"),
            ({"title__gt": {"field": "isbn"}}, "compares fields by exact, gt"),
            ({"published__gt": {"field": "created", "plus": "5 months"}}, "not a duration"),
            ({"pages__gt": {"field": "pages", "plus": "5d"}}, "cannot be computed"),
            ({"pages__gt": {"field": "pages*"}}, "not understood at its end"),
        ],
    )
    def test_row_112_what_cannot_be_compared_is_told(self, shelf: MCPRequest, filters: Any, told: str) -> None:
        assert told in refusal(QUERY, shelf, model="testapp.book", filters=filters)

    def test_row_121_what_is_hidden_is_compared_with_nothing(self, shelf: MCPRequest) -> None:
        site = site_with(Book)
        site.register(Author, Visible, hides="name", fields=["name"])
        request = reader(shelf.user, site)
        Book.objects.filter(title="book 1").update(title=HIDDEN, author=Author.objects.create(name=HIDDEN))
        found = call(QUERY, request, model="testapp.book", filters={"title": {"field": "author.name"}}, limit=100)
        assert [row[1] for row in found["rows"]] == ["a"]


@pytest.mark.parametrize("filters", [{"books": None}, {"books": {"none": {}}}, {"books__isnull": True}])
def test_null_of_several_rows_is_none_of_them(request_of_one: MCPRequest, filters: Any) -> None:
    make_author("without")
    rows = call(QUERY, request_of_one, model="testapp.author", filters=filters, fields=["name"])["rows"]
    assert "without" in {row[1] for row in rows}
    assert not any(Book.objects.filter(author=row[0]).exists() for row in rows)


def test_a_path_leads_to_a_field_that_is_called_as_the_number_is(
    request_of_one: MCPRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(model: str, filters: Any) -> set[Any]:
        rows = call(QUERY, request_of_one, model=model, filters=filters, fields=["pk"], limit=200)["rows"]
        return {row[0] for row in rows}

    paths = ("testapp.author", {"books.pages__gte": 3}), ("testapp.loan", {"book": {"pages__gte": 3}})
    expected = [found(*path) for path in paths]
    numbered = found("testapp.author", {"books": {"count__gte": 2}})
    # No model of the tests has a field with one of the words.
    monkeypatch.setitem(QUANTIFIERS, "pages", "count")  # type: ignore[arg-type]
    assert [found(*path) for path in paths] == expected
    assert found("testapp.author", {"books": {"pages__gte": 2}}) == numbered


@pytest.fixture
def two_books_each(db: None) -> MCPRequest:
    """Return a request of one who sees two authors with the same values, on one book and on two."""
    for name, books in {"together": [(1, 5.0), (2, 1.0)], "apart": [(1, 1.0), (2, 5.0)]}.items():
        author = make_author(name)
        for pages, rating in books:
            Loan.objects.create(
                book=make_book("a book", author=author, pages=pages, rating=rating),
                borrower=f"reader of {rating}",
                due=datetime(2024, pages, 1, tzinfo=UTC),
            )
    return reader(make_superuser(), site_with(Author, Book, Loan, Tag))


PAGES, RATING = {"pages": 1}, {"rating": 5.0}


@pytest.mark.parametrize(
    "filters",
    [
        {"books.pages": 1, "books.rating": 5.0},
        {"books__pages": 1, "books__rating__gte": 5.0},
        {"books.pages": {"exact": 1}, "books__rating": {"gte": 5.0}},
        {"books": PAGES, "books.rating": 5.0},
        {"books": {**PAGES, **RATING}},
        {"books": {"some": {**PAGES, **RATING}}},
        {"and": [{"books.pages": 1}, {"books.rating": 5.0}]},
        [{"field": "books.pages", "value": 1}, {"field": "books.rating", "operator": ">=", "value": 5.0}],
        {"books.pages": 1, "and": [{"books": RATING}]},
        {"books.pages": 1, "or": [{"books.rating": 5.0}, {"books.pages": 7}]},
        {"books.pages": 1, "or": [{"books.rating": 5.0}, {"name": "nobody"}]},
        {"or": [{"books.pages": 1, "books.rating": 5.0}, {"name": "nobody"}]},
        {"not": {"not": {"books.pages": 1, "books.rating": 5.0}}},
        {"books.loans.borrower": "reader of 5.0", "books.loans.due__lt": "2024-01-15"},
        {"books": {"loans.borrower": "reader of 5.0"}, "books.loans": {"due__lt": "2024-01-15"}},
        {"books.loans.borrower": "reader of 5.0", "books.pages": 1},
    ],
    ids=str,
)
def test_paths_on_one_list_mean_the_same_row(two_books_each: MCPRequest, filters: Any) -> None:
    asked = {"model": "testapp.author", "filters": filters}
    assert names_of(two_books_each, "testapp.author", filters) == ["together"]
    assert call(AggregateRecords(), two_books_each, **asked, aggregates=["count"])["rows"] == [[1]]
    where = {"function": "count", "where": filters, "as": "those"}
    if isinstance(filters, dict):
        assert call(AggregateRecords(), two_books_each, model="testapp.author", aggregates=[where])["rows"] == [[1]]
    # The same behind a foreign key.
    behind = filters if isinstance(filters, dict) else {"and": filters}
    found = call(QUERY, two_books_each, model="testapp.book", filters={"author": behind}, fields=["author"])["rows"]
    assert {row[-1][1] for row in found} == {"together"}


@pytest.mark.parametrize(
    "filters",
    [
        {"and": [{"books": {"some": PAGES}}, {"books": {"some": RATING}}]},
        {"books": {"some": PAGES}, "books.rating": 5.0},
        {"or": [{"books.pages": 1}, {"books.rating": 5.0}]},
        {"books.pages": 1, "not": {"books.rating": 7.0}},
    ],
    ids=str,
)
def test_each_some_has_a_row_of_its_own(two_books_each: MCPRequest, filters: Any) -> None:
    assert names_of(two_books_each, "testapp.author", filters) == ["apart", "together"]


def test_many_alternatives_on_one_list_are_refused(two_books_each: MCPRequest) -> None:
    three = {"or": [{"books.pages": 1}, {"name": "a"}, {"name": "b"}]}
    message = refusal(QUERY, two_books_each, model="testapp.author", filters={"and": [three] * 4})
    assert 'put them into one {"some": {..}}' in message


def names_of(request: MCPRequest, label: str, filters: Any) -> list[str]:
    rows = call(QUERY, request, model=label, filters=filters, fields=["name"])["rows"]
    return sorted(row[-1] for row in rows)
