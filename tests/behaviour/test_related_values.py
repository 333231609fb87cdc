"""Values of related lists, such as ``orders.sum.total``, compared with plain Python over the same rows."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.context.request import MCPRequest
from mcp_django.exports.questions import Question
from mcp_django.models import Switch
from mcp_django.operating.switches import Off
from mcp_django.orm.access import access_of
from mcp_django.orm.tool_arguments import Arguments
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.refused_calls import RefusedCall
from tests.factories import make_author, make_superuser, make_user, new_book
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Placement, Section, Shelf, Tag
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY = QueryRecords()
HIDDEN = "hidden"


class Visible(ModelExposure):
    fields = ("title", "author", "price", "pages", "rating", "published", "reading_time", "tags", "status")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(**{self.hides: HIDDEN})

    hides = "title"


class VisibleTag(Visible):
    fields = "__all__"
    hides = "name"


@pytest.fixture
def library() -> None:
    draw = random.Random(38)
    tags = [Tag.objects.create(name=name) for name in ("blue", "green", "red", HIDDEN)]
    for number in range(7):
        author = make_author(f"author {number}")
        for position in range(number):
            book = new_book(
                HIDDEN if (number + position) % 4 == 3 else f"book {number}.{position}",
                author=author,
                price=Decimal(draw.randrange(100_000)) / 100,
                pages=draw.choice([0, 1, 300, 2**31 - 1]),
                rating=draw.choice([None, 0.1, 0.2, 2.5]),
                published=draw.choice([None, date(2024, 2, 29), date(2025, 1, 1), date(1999, 12, 31)]),
                reading_time=draw.choice([None, timedelta(microseconds=1), timedelta(hours=30)]),
            )
            book.save()
            book.tags.set(draw.sample(tags, draw.randrange(5)))
            for _ in range(draw.randrange(3)):
                due = datetime(2024, 1, draw.randrange(1, 28), 23, 59, tzinfo=UTC)
                Loan.objects.create(book=book, borrower=draw.choice(["ann", "bob"]), due=due)


@pytest.fixture(params=["all rows", "hidden rows"])
def request_of_one(request: pytest.FixtureRequest, library: None) -> MCPRequest:
    if request.param == "all rows":
        site = site_with(Author, Book, Loan, Tag)
    else:
        site = site_with(Author, Loan)
        site.register(Book, Visible)
        site.register(Tag, VisibleTag)
    return reader(make_superuser(), site)


def visible(request: MCPRequest, rows: Any) -> list[Any]:
    """Return those of the rows that the caller may see, by their keys."""
    hides = isinstance(request.mcp.site.exposures[Book], Visible)
    return [row for row in rows.order_by("pk") if not (hides and HIDDEN in (getattr(row, "title", ""), str(row)))]


def values(rows: Sequence[Any], name: str) -> list[Any]:
    return [value for row in rows if (value := getattr(row, name)) is not None]


def edge(rows: Sequence[Any], name: str, by: str, pick: Callable[..., Any]) -> Any:
    known = [row for row in rows if getattr(row, by) is not None]
    return getattr(pick(known, key=lambda row: (getattr(row, by), row.pk)), name) if known else None


# What the rows of a list make, by the value's name.
OF_BOOKS: dict[str, Callable[[list[Any]], Any]] = {
    "books.count": len,
    "books.sum.price": lambda rows: sum(values(rows, "price")) if rows else None,
    "books.sum.pages": lambda rows: sum(values(rows, "pages")) if rows else None,
    "books.sum.reading_time": lambda rows: sum(found, timedelta()) if (found := values(rows, "reading_time")) else None,
    "books.avg.price": lambda rows: round(sum(values(rows, "price")) / len(rows), 6) if rows else None,
    "books.avg.pages": lambda rows: sum(values(rows, "pages")) / len(rows) if rows else None,
    "books.min.price": lambda rows: min(values(rows, "price"), default=None),
    "books.max.title": lambda rows: max(values(rows, "title"), default=None),
    "books.min.published": lambda rows: min(values(rows, "published"), default=None),
    "books.max.rating": lambda rows: max(values(rows, "rating"), default=None),
    "books.last.published": lambda rows: max(values(rows, "published"), default=None),
    "books.first.published": lambda rows: min(values(rows, "published"), default=None),
    "books.last.title.by.published": lambda rows: edge(rows, "title", "published", max),
    "books.first.rating.by.pages": lambda rows: edge(rows, "rating", "pages", min),
    "books.last.status.by.reading_time": lambda rows: edge(rows, "status", "reading_time", max),
}


def shown(request: MCPRequest, model: str, names: Sequence[str], **more: Any) -> list[list[Any]]:
    found = call(QUERY, request, model=model, fields=["pk", *names], limit=100, **more)
    assert found["columns"][1:] == [name.replace(".", "__") for name in names]
    listed: list[list[Any]] = found["rows"]
    assert len({row[0] for row in listed}) == len(listed), "a row came twice"
    return listed


def same(found: Any, value: Any) -> bool:
    """Return whether a value on a page is the one that Python has."""
    if isinstance(value, Decimal):
        return Decimal(found) == value
    if isinstance(value, float):
        return bool(found == pytest.approx(value, rel=1e-9))
    if isinstance(value, (date, timedelta)):
        return bool(found == (value.isoformat() if isinstance(value, date) else str(value)))
    return type(found) is type(value) and bool(found == value)


def of_authors(request: MCPRequest) -> dict[int, dict[str, Any]]:
    """Return the values of each author's books, by the author's key."""
    lists = {author.pk: visible(request, author.books) for author in Author.objects.all()}
    return {pk: {name: make(rows) for name, make in OF_BOOKS.items()} for pk, rows in lists.items()}


def test_a_page_shows_what_python_makes_of_the_rows_that_the_caller_sees(request_of_one: MCPRequest) -> None:
    expected = of_authors(request_of_one)
    listed = shown(request_of_one, "testapp.author", list(OF_BOOKS))
    assert len(listed) == 7
    for pk, *found in listed:
        for name, value in zip(OF_BOOKS, found, strict=True):
            assert same(value, expected[pk][name]), (pk, name, value, expected[pk][name])


def test_lists_of_many_to_many_relations_are_followed_from_both_ends(request_of_one: MCPRequest) -> None:
    for pk, number, last in shown(request_of_one, "testapp.book", ["tags.count", "tags.max.name"]):
        tags = visible(request_of_one, Book.objects.get(pk=pk).tags)
        assert (number, last) == (len(tags), max((tag.name for tag in tags), default=None))
    for pk, number, total in shown(request_of_one, "testapp.tag", ["books.count", "books__sum__pages"]):
        books = visible(request_of_one, Tag.objects.get(pk=pk).books)
        assert (number, total) == (len(books), sum(book.pages for book in books) if books else None)


def test_the_list_of_a_related_row_is_null_behind_a_hidden_row(request_of_one: MCPRequest) -> None:
    names = ["book.tags.count", "book__author__books__count", "book.author.books.sum.price"]
    listed = shown(request_of_one, "testapp.loan", names)
    assert len(listed) == Loan.objects.count()
    for pk, tags, number, total in listed:
        book = Loan.objects.get(pk=pk).book
        if book not in visible(request_of_one, Book.objects.filter(pk=book.pk)):
            assert (tags, number, total) == (None, None, None)
            continue
        books = visible(request_of_one, book.author.books)
        assert tags == len(visible(request_of_one, book.tags))
        assert (number, Decimal(total)) == (len(books), sum(book.price for book in books))


def test_a_row_without_a_related_one_has_no_list() -> None:
    top = Section.objects.create(name="top")
    Section.objects.create(name="below", parent=top)
    request = reader(make_superuser(), site_with(Section))
    listed = call(QUERY, request, model="testapp.section", fields=["name", "parent.children.count", "children.count"])
    assert sorted(row[1:] for row in listed["rows"]) == [["below", 1, 0], ["top", None, 1]]


def sorted_by(rows: dict[int, dict[str, Any]], name: str, descending: bool, nulls_last: bool) -> list[int]:
    known = [pk for pk in rows if rows[pk][name] is not None]
    nulls = [pk for pk in rows if rows[pk][name] is None]
    known.sort(key=lambda pk: (rows[pk][name], pk), reverse=descending)
    nulls.sort(reverse=descending)
    return [*known, *nulls] if nulls_last else [*nulls, *known]


@pytest.mark.parametrize("name", [name for name in OF_BOOKS if "rating" not in name])
@pytest.mark.parametrize("place", ["", ":nulls_first"])
def test_pages_go_on_after_each_value_of_a_list(request_of_one: MCPRequest, name: str, place: str) -> None:
    expected = of_authors(request_of_one)
    for sign in ("", "-"):
        found: list[int] = []
        asked: dict[str, Any] = {"fields": ["pk"], "ordering": [f"{sign}{name}{place}"], "limit": 2}
        while True:
            page = call(QUERY, request_of_one, model="testapp.author", **asked)
            found += [row[0] for row in page["rows"]]
            if "next_cursor" not in page:
                break
            asked["cursor"] = page["next_cursor"]
        assert found == sorted_by(expected, name, sign == "-", place == "")


# Filters on values of lists, each with what it asks of the value.
FILTERS: list[tuple[str, str, Any, Callable[[Any], bool]]] = [
    ("books.sum.price", "gt", "500.5", lambda value: value is not None and value > Decimal("500.5")),
    ("books.sum.price", "lte", 900, lambda value: value is not None and value <= 900),
    ("books.sum.pages", "in", [0, 300, 2**31 - 1], lambda value: value in (0, 300, 2**31 - 1)),
    ("books.avg.price", "range", [300, 600], lambda value: value is not None and 300 <= value <= 600),
    ("books.min.price", "lt", 100.25, lambda value: value is not None and value < Decimal("100.25")),
    ("books.max.title", "startswith", "book", lambda value: value is not None and value.startswith("book")),
    ("books.min.published", "exact", "1999-12-31", lambda value: value == date(1999, 12, 31)),
    ("books.last.published", "gte", "2025-01-01", lambda value: value is not None and value >= date(2025, 1, 1)),
    ("books.last.published", "isnull", True, lambda value: value is None),
    ("books.last.title.by.published", "icontains", "OOK 5", lambda value: value is not None and "ook 5" in value),
    ("books.sum.reading_time", "gte", "30h", lambda value: value is not None and value >= timedelta(hours=30)),
    ("books.count", "gte", 3, lambda value: value >= 3),
    ("books.count", "exact", 0, lambda value: value == 0),
]


@pytest.mark.parametrize(("name", "lookup", "value", "passes"), FILTERS)
def test_filters_find_the_rows_that_python_finds(
    request_of_one: MCPRequest, name: str, lookup: str, value: Any, passes: Callable[[Any], bool]
) -> None:
    expected = of_authors(request_of_one)
    right = {pk for pk, made in expected.items() if passes(made[name])}
    for spelt in (name, name.replace(".", "__")):
        for given in ({f"{spelt}__{lookup}": value}, {spelt: {lookup: value}}):
            found = shown(request_of_one, "testapp.author", [], filters=given, count=True)
            assert {row[0] for row in found} == right
            found = shown(request_of_one, "testapp.author", [], filters={"not": given})
            assert {row[0] for row in found} == expected.keys() - right
            either = {"or": [given, {"name": "author 0"}]}
            assert {row[0] for row in shown(request_of_one, "testapp.author", [], filters=either)} >= right


def test_a_page_takes_one_query_however_many_rows_and_values_it_has(library: None) -> None:
    request = reader(make_superuser(), site_with(Author, Book, Loan, Tag))
    numbers = []
    for names in (["books.count"], list(OF_BOOKS)):
        with CaptureQueriesContext(connection) as captured:
            found = call(QUERY, request, model="testapp.author", fields=["name", *names], limit=100)
        assert found["returned"] == 7
        reads = [query["sql"] for query in captured if "testapp_book" in query["sql"]]
        numbers.append((len(reads), reads[0].count('FROM "testapp_book"') + reads[0].count("FROM `testapp_book`")))
    # One query, with one subquery for each value.
    assert numbers == [(1, 1), (1, len(OF_BOOKS))]


# What the caller must not learn


def learnt(request: MCPRequest) -> list[Any]:
    """Return all that values of lists say of authors: on a page, by the order, by filters."""
    names = ["books.count", "books.sum.price", "books.max.title", "books.last.title.by.published"]
    found: list[Any] = [shown(request, "testapp.author", names)]
    for name in names:
        found.append([row[0] for row in shown(request, "testapp.author", [], ordering=[name])])
    for given in ({"books.sum.price__gt": 100}, {"books.max.title__startswith": "h"}, {"books.count": 1}):
        found.append([row[0] for row in shown(request, "testapp.author", [], filters=given)])
    return found


def test_hidden_rows_change_nothing(library: None) -> None:
    site = site_with(Author, Loan)
    site.register(Book, Visible)
    site.register(Tag, VisibleTag)
    request = reader(make_superuser(), site)
    before = learnt(request)
    for author in Author.objects.all():
        new_book(HIDDEN, author=author, price=99_999, published=date(2030, 1, 1)).save()
    assert learnt(request) == before
    Book.objects.filter(title=HIDDEN).delete()
    assert learnt(request) == before


WAYS: list[dict[str, Any]] = [
    {"fields": ["books.{word}.{column}"]},
    {"ordering": ["-books.{word}.{column}"]},
    {"filters": {"books.{word}.{column}__gt": 1}},
    {"filters": {"books__{word}__{column}": None}},
]


def written(way: Any, **names: str) -> Any:
    """Return the arguments with these names in them."""
    if isinstance(way, dict):
        return {written(key, **names): written(value, **names) for key, value in way.items()}
    if isinstance(way, list):
        return [written(item, **names) for item in way]
    return way.format(**names) if isinstance(way, str) else way


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("word", ["sum", "max", "last"])
def test_a_hidden_column_is_refused_like_one_that_does_not_exist(library: None, way: Any, word: str) -> None:
    site = site_with(Author)
    site.register(Book, ModelExposure, fields=["title", "published"])
    request = reader(make_superuser(), site)
    for column in ("price", "author__secret_token", "price.by.published", "published.by.price"):
        if word == "last" or "by" not in column:
            hidden = refusal(QUERY, request, model="testapp.author", **written(way, word=word, column=column))
            other = column.replace("price", "nonex").replace("secret_token", "nonex_notext")
            missing = refusal(QUERY, request, model="testapp.author", **written(way, word=word, column=other))
            assert hidden.replace(column.replace(".", "__"), "") == missing.replace(other.replace(".", "__"), "") or (
                hidden.replace(column, "") == missing.replace(other, "")
            )
            assert "99" not in hidden


@pytest.mark.parametrize("way", [*WAYS, {"fields": ["books.count"]}, {"ordering": ["books.count"]}], ids=str)
def test_a_model_that_the_caller_may_not_view_has_no_lists(library: None, way: Any) -> None:
    request = reader(make_user("u", "testapp.view_author"), site_with(Author, Book))
    way = written(way, word="sum", column="price")
    hidden = refusal(QUERY, request, model="testapp.author", **way)
    alone = reader(request.user, site_with(Author))
    assert hidden == refusal(QUERY, alone, model="testapp.author", **way)


def test_a_model_that_is_switched_off_has_no_lists(library: None) -> None:
    site = site_with(Author, Book)
    asked: dict[str, Any] = {"model": "testapp.author", "fields": ["books.count"], "ordering": ["books.sum.price"]}
    user = make_superuser()
    assert call(QUERY, reader(user, site), **asked)["returned"] == 7
    request = reader(user, site)
    request.mcp.off = Off((Switch(kind="model", target="testapp.book"),))
    assert "books" not in refusal(QUERY, request, **asked).replace("'books.count'", "")


def test_declared_filters_and_orders_leave_lists_out(library: None) -> None:
    site = MCPSite()
    site.register(Book, ModelExposure, fields=["title", "price", "author"])
    site.register(Author, ModelExposure, fields=["name"], filter_fields={"name": ["exact"]}, sortable_by=["name"])
    request = reader(make_superuser(), site)
    assert shown(request, "testapp.author", ["books.count"])
    for way in (
        {"filters": {"books.sum.price__gt": 1}},
        {"filters": {"books.count": 1}},
        {"ordering": ["books.count"]},
    ):
        assert "Valid: name" in refusal(QUERY, request, model="testapp.author", **way)


def test_a_path_to_a_list_has_a_bounded_number_of_joins() -> None:
    Section.objects.create(name="top", parent=Section.objects.create(name="top of it"))
    request = reader(make_superuser(), site_with(Section))
    near = "parent." * 4 + "children.count"
    assert call(QUERY, request, model="testapp.section", fields=[near])["returned"] == 2
    for text in ("parent." + near, "parent." * 50_000 + "children.count", "children." * 60 + "count"):
        for way in ({"fields": [text]}, {"ordering": [text]}, {"filters": {text: 1}}):
            assert len(refusal(QUERY, request, model="testapp.section", **way)) < 1500


def test_a_field_of_the_same_name_as_a_function_is_meant(library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book, "sum", property(lambda book: 7), raising=False)
    site = site_with(Author)
    site.register(Book, ModelExposure, fields=["title", "author", "price", "sum"])
    request = reader(make_superuser(), site)
    assert call(QUERY, request, model="testapp.author", fields=["books.max.price"])["returned"] == 7
    assert "leads to several rows" in refusal(QUERY, request, model="testapp.author", fields=["books.sum.price"])


# Names and errors


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        ({"fields": ["sum(books.price)"]}, {"fields": ["books.sum.price"]}),
        ({"fields": ["count(books)"]}, {"fields": ["books.count"]}),
        ({"fields": ["books.sum.pric"]}, {"fields": ["books.sum.price"]}),
        ({"fields": ["num_books"]}, {"fields": ["books__count"]}),
        ({"fields": ["books.last.title"]}, {"fields": ["books.last.title.by.published"]}),
        ({"ordering": ["-books.sum.pric"]}, {"ordering": ["-books.sum.price"]}),
        ({"filters": {"books.sum.pric__gte": 3}}, {"filters": {"books.sum.price__gte": 3}}),
        # Another word asks something else.
        ({"fields": ["books.sum.cost"]}, None),
        ({"filters": {"books.sum.title__gt": 3}}, None),
    ],
)
def test_an_error_gives_the_right_spelling(library: None, asked: Any, right: Any) -> None:
    request = reader(make_superuser(), site_with(Author, Book))
    arguments = {"model": "testapp.author", **asked}
    with pytest.raises(ToolError) as error:
        QUERY.call(request, arguments)
    found = RefusedCall(request, QUERY, arguments, error.value).proposal()
    assert (found and found["arguments"]) == (right and {"model": "testapp.author", **right})


def test_a_list_alone_is_told_what_of_it_can_be_shown(library: None) -> None:
    request = reader(make_superuser(), site_with(Author, Book))
    for text in ("books", "books.title"):
        told = refusal(QUERY, request, model="testapp.author", fields=[text])
        assert "books leads to several rows: books.count, books.sum.price, books.last.published" in told
    told = refusal(QUERY, request, model="testapp.author", filters={"sum_price__gt": 4})
    assert "books.sum.price" in told


def test_one_record_has_values_of_its_lists_too(library: None) -> None:
    request = reader(make_superuser(), site_with(Author, Book))
    author = Author.objects.get(name="author 6")
    asked = {"model": "testapp.author", "pk": str(author.pk), "fields": ["name", "books.count", "books.last.published"]}
    fields = call(GetRecord(), request, **asked)["fields"]
    last = max(book.published for book in author.books.all() if book.published)
    assert fields == {"id": author.pk, "name": "author 6", "books__count": 6, "books__last__published": str(last)}


@pytest.mark.parametrize("is_served", [True, False])
def test_a_file_has_the_values_of_lists_that_its_pages_show(
    request_of_one: MCPRequest, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_django.orm.ordering.Orderings.is_served", lambda self, keys: is_served)
    names = ["name", "books.count", "books.sum.price", "books.last.title.by.published"]
    asked: dict[str, Any] = {"fields": names, "ordering": ["-books.sum.price"], "filters": {"books.sum.pages__gte": 0}}
    model = access_of(request_of_one).get_model("testapp.author")
    found = [row for rows in Question.read(model, Arguments(asked)).pages() for row in rows]
    assert found == call(QUERY, request_of_one, model="testapp.author", limit=100, **asked)["rows"]
    assert len(found) > 3


def test_a_page_with_what_the_project_computes_has_values_of_lists_too(library: None) -> None:
    class Described(ModelExposure):
        fields = ("name", "shout")

        def shout(self, author: Author) -> str:
            return author.name.upper()

    site = site_with(Book)
    site.register(Author, Described)
    request = reader(make_superuser(), site)
    asked: dict[str, Any] = {"fields": ["shout", "books.sum.price"], "ordering": ["-books.count"], "limit": 1}
    found = call(QUERY, request, model="testapp.author", **asked)
    total = sum(book.price for book in Book.objects.filter(author__name="author 6"))
    assert found["rows"][0][1:] == ["AUTHOR 6", str(total)]


def test_placements_of_a_relation_with_a_table_of_its_own_count_once() -> None:
    shelf = Shelf.objects.create(code="A")
    book = new_book("a")
    book.save()
    for position in range(2):
        Placement.objects.create(shelf=shelf, book=book, position=position)
    request = reader(make_superuser(), site_with(Shelf, Book, Placement))
    found = call(
        QUERY, request, model="testapp.shelf", fields=["books.count", "books.sum.price", "placement_set.count"]
    )
    assert found["rows"] == [["A", 1, "9.90", 2]]
