"""The rows of a file: those that ``query_records`` shows page by page, whatever their order and their length."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django import site as default_site
from mcp_django.exceptions import NotFound, NotPermitted, ToolError
from mcp_django.exports import questions
from mcp_django.exports.file_formats import cells_of
from mcp_django.exports.questions import FileColumn, Question
from mcp_django.orm.access import access_of
from mcp_django.orm.tool_arguments import Arguments
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import MODELS, make_library, site_with
from tests.testapp.models import Author, Book, Note, Profile, Tag
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

LABELS = sorted(exposure.label for exposure in default_site.exposures.values())


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: Any) -> None:
    """Read few rows at a time, so that some exposures take several pages."""
    monkeypatch.setattr(questions, "SIZES", (1, 2, 3))
    monkeypatch.setattr(questions, "KEYS_AT_ONCE", 2)


def asked(request: Any, label: str, **arguments: Any) -> Question:
    return Question.read(access_of(request).get_model(label), Arguments(arguments))


def answer(request: Any, label: str, **arguments: Any) -> list[list[Any]]:
    return [row for rows in asked(request, label, **arguments).pages() for row in rows]


def paged(request: Any, label: str, **arguments: Any) -> list[list[Any]]:
    """Return all rows that query_records shows, page by page."""
    rows: list[list[Any]] = []
    cursor = ""
    while True:
        page = call(QueryRecords(), request, model=label, limit=2, cursor=cursor, **arguments)
        rows += page["rows"]
        cursor = page.get("next_cursor", "")
        if not cursor:
            return rows


@pytest.mark.parametrize("label", LABELS)
def test_a_file_has_the_rows_of_all_pages_of_each_exposure(label: str) -> None:
    user = make_superuser()
    make_library(owner=user)
    request = request_of(user)
    assert answer(request, label) == paged(request, label)


@pytest.mark.parametrize("model", MODELS)
def test_rows_that_are_read_by_their_keys_are_the_same(model: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.orm.ordering.Orderings.is_served", lambda self, keys: False)
    user = make_superuser()
    make_library(owner=user)
    request = request_of(user, site_with(*MODELS))
    label = model._meta.label_lower
    found = answer(request, label)
    assert found
    assert found == paged(request, label)


def test_the_url_of_each_row_in_the_admin_is_a_column() -> None:
    user = make_superuser()
    make_library(owner=user)
    request = request_of(user, resource="http://testserver/mcp")
    for fields in (["admin_url"], ["title", "admin_url"]):
        found = answer(request, "testapp.book", fields=fields)
        assert found == paged(request, "testapp.book", fields=fields)
        assert found[0][-1].startswith("http://testserver/admin/testapp/book/")


@pytest.mark.parametrize(
    "arguments",
    [
        {"filters": {"title__contains": "1"}},
        {"search": "Bøøk"},
        {"fields": ["title", "author.name", "tags"]},
        {"ordering": ["-rating", "title"]},
        {"ordering": ["published:nulls_first"]},
        {"filters": {"author.name__startswith": "Author"}, "ordering": ["author.name"]},
    ],
)
def test_a_file_has_the_rows_of_any_question(arguments: Any) -> None:
    user = make_superuser()
    make_library(owner=user)
    request = request_of(user)
    found = answer(request, "testapp.book", **arguments)
    assert found
    assert found == paged(request, "testapp.book", **arguments)


def test_long_texts_are_whole() -> None:
    Profile.objects.create(author=make_author(), biography="x" * 5_000)
    ((_, text),) = answer(request_of(make_superuser()), "testapp.profile", fields=["biography"])
    assert text == "x" * 5_000


def test_pages_of_an_indexed_order_need_no_keys() -> None:
    make_library(number=6)
    request = request_of(make_superuser())
    question = asked(request, "testapp.author", fields=["name"], ordering=["id"])
    with CaptureQueriesContext(connection) as queries:
        assert sum(map(len, question.pages())) == 6
    # Pages of 2, 3 and 3 rows.
    assert len(queries) == 3


def test_a_page_of_long_rows_is_followed_by_a_shorter_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(questions, "LIGHT", 0)
    monkeypatch.setattr(questions, "HEAVY", 1)
    make_library(number=6)
    request = request_of(make_superuser())
    pages = asked(request, "testapp.author", ordering=["id"]).pages()
    assert [len(rows) for rows in pages] == [2, 1, 1, 1, 1]


def test_a_row_that_goes_while_keys_are_read_is_left_out() -> None:
    make_library(number=6)
    pages = asked(request_of(make_superuser()), "testapp.author", fields=["name"], ordering=["name"]).pages()
    first = next(iter(pages))
    Book.objects.all().delete()
    Author.objects.exclude(pk__in=[row[0] for row in first]).delete()
    assert [row for rows in pages for row in rows] == []


def test_groups_are_all_there() -> None:
    for number in range(60):
        make_book(author=make_author(f"Author {number}"))
    request = request_of(make_superuser())
    arguments: dict[str, Any] = {"aggregates": ["count", "sum:price"], "group_by": ["author"], "ordering": ["author"]}
    shown = call(AggregateRecords(), request, model="testapp.book", limit=200, **arguments)
    assert answer(request, "testapp.book", **arguments) == shown["rows"]
    question = asked(request, "testapp.book", **arguments)
    assert question.columns == [
        FileColumn("author", FileColumn.RELATION),
        FileColumn("count"),
        FileColumn("sum_price", is_number=True),
    ]


def test_top_groups_are_those_of_aggregate_records() -> None:
    for number in range(5):
        make_book(author=make_author(f"Author {number}"))
    request = request_of(make_superuser())
    arguments = {"group_by": ["author"], "top": 2}
    shown = call(AggregateRecords(), request, model="testapp.book", **arguments)
    assert len(shown["rows"]) == 2
    assert answer(request, "testapp.book", **arguments) == shown["rows"]


def test_more_groups_than_fit_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(questions, "MAX_GROUPS", 2)
    for number in range(3):
        make_book(author=make_author(f"Author {number}"))
    with pytest.raises(ToolError, match="more than 2 groups"):
        answer(request_of(make_superuser()), "testapp.book", group_by=["author"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"top": 2}, 'needs "aggregates" or "group_by"'),
        ({"group_by": ["author"], "fields": ["title"]}, "goes with rows"),
        ({"fields": ["nothing"]}, "has no field"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(arguments: Any, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        asked(request_of(make_superuser()), "testapp.book", **arguments)


def test_a_question_is_kept_with_the_columns_that_it_has() -> None:
    request = request_of(make_superuser())
    kept = asked(request, "testapp.book").kept
    assert kept["fields"][:2] == ["id", "title"]
    assert Question.again(request, kept).kept == kept


def test_a_question_is_not_asked_again_without_the_right_to_see_the_model() -> None:
    kept = asked(request_of(make_superuser()), "testapp.book").kept
    with pytest.raises(NotFound):
        Question.again(request_of(make_user("other", "testapp.view_author")), kept)


def test_a_question_is_not_asked_again_where_its_rows_are_narrowed_otherwise(monkeypatch: Any) -> None:
    site = site_with(Book, Author)
    user = make_superuser()
    kept = asked(request_of(user, site), "testapp.book").kept
    Question.again(request_of(user, site), kept)
    exposure = site.exposures[Book]
    monkeypatch.setattr(exposure, "get_queryset", lambda request: Book.objects.filter(owner=request.user))
    with pytest.raises(NotPermitted):
        Question.again(request_of(user, site), kept)


def test_what_may_not_be_exported_is_refused_by_any_way(monkeypatch: Any) -> None:
    site = site_with(Book, Author)
    request = request_of(make_superuser(), site)
    monkeypatch.setattr(site.exposures[Author], "has_export_permission", lambda request: False)
    for label, arguments in (
        ("testapp.author", {}),
        ("testapp.author", {"aggregates": ["count"]}),
        ("testapp.book", {"fields": ["title", "author.name"]}),
        ("testapp.book", {"group_by": ["author.name"]}),
        ("testapp.book", {"group_by": ["pk"], "aggregates": ["max:author.name"]}),
        ("testapp.book", {"aggregates": [{"function": "last", "field": "title", "order": "author.born"}]}),
        ("testapp.book", {"aggregates": [{"function": "first", "field": "author__name", "order": "price"}]}),
    ):
        with pytest.raises(NotPermitted, match="may not be exported"):
            asked(request, label, **arguments)
    asked(request, "testapp.book", fields=["title", "author"])
    asked(request, "testapp.book", aggregates=["count:author", "sum:price", "max:pages"])


def test_a_value_of_a_list_is_refused_where_its_rows_may_not_be_exported(monkeypatch: Any) -> None:
    make_library()
    site = site_with(Book, Author)
    request = request_of(make_superuser(), site)
    fields = ["name", "books.count", "books.sum.pages"]
    assert answer(request, "testapp.author", fields=fields) == paged(request, "testapp.author", fields=fields)
    monkeypatch.setattr(site.exposures[Book], "has_export_permission", lambda request: False)
    with pytest.raises(NotPermitted, match=r"testapp\.book may not be exported"):
        asked(request_of(make_superuser("other"), site), "testapp.author", fields=fields)
    for measure in ("sum:books.pages", "count:books", "max:books__price"):
        with pytest.raises(NotPermitted, match=r"testapp\.book may not be exported"):
            asked(request_of(make_superuser(measure), site), "testapp.author", aggregates=[measure])


LABELLED = ["title", "author", "tags"]
LAST = {"function": "last", "field": "author", "order": "id"}


def library_of(user: Any, **hidden: bool) -> Any:
    """Return a request of the user for a site where some models may not be exported."""
    site = MCPSite()
    site.register(Author, ModelExposure, fields=["name", "books"])
    site.register(Tag, ModelExposure, fields=["name", "books"])
    site.register(Book, ModelExposure, fields=LABELLED)
    for model in (Author, Tag, Book):
        site.exposures[model].has_export_permission = lambda request, model=model: model.__name__ not in hidden
    return request_of(user, site)


def test_relations_to_what_may_not_be_exported_have_keys_without_labels() -> None:
    make_library()
    book = Book.objects.order_by("pk").first()
    book.tags.set([Tag.objects.create(name="Secret"), Tag.objects.create(name="Other")])
    arguments: dict[str, Any] = {"fields": LABELLED, "ordering": ["title"]}
    whole = library_of(make_superuser())
    shown = paged(whole, "testapp.book", **arguments)
    assert answer(whole, "testapp.book", **arguments) == shown
    without = library_of(make_superuser("other"), Author=True, Tag=True)
    bare = [[*row[:-2], [row[-2][0], None], [[key, None] for key, _ in row[-1]]] for row in shown]
    assert any(row[-1] for row in bare)
    assert answer(without, "testapp.book", **arguments) == bare
    # A page is no file.
    assert paged(without, "testapp.book", **arguments) == shown


def test_a_file_with_labels_is_gone_once_they_may_not_be_exported() -> None:
    make_library()
    user = make_superuser()
    kept = asked(library_of(user), "testapp.book").kept
    Question.again(library_of(user), kept)
    with pytest.raises(NotPermitted):
        Question.again(library_of(user, Author=True), kept)
    without = asked(library_of(user, Author=True), "testapp.book").kept
    Question.again(library_of(user, Author=True), without)


def test_a_cell_of_a_file_has_the_key_where_the_label_may_not_be_exported() -> None:
    tags = [[[3, None], [4, None], "…"], []]
    assert cells_of([FileColumn("tags")], [[value] for value in tags]) == [["3; 4; …", ""]]


def test_groups_and_measures_by_what_may_not_be_exported_have_keys_without_labels() -> None:
    make_library()
    arguments: dict[str, Any] = {"group_by": ["author"], "aggregates": ["count", LAST]}
    shown = answer(library_of(make_superuser()), "testapp.book", **arguments)
    bare = [[[author[0], None], count, [least[0], None]] for author, count, least in shown]
    assert bare
    assert answer(library_of(make_superuser("other"), Author=True), "testapp.book", **arguments) == bare


def test_lists_of_rows_that_may_not_be_exported_are_refused_by_name() -> None:
    make_library()
    request = library_of(make_superuser(), Book=True)
    for label in ("testapp.author", "testapp.tag"):
        for arguments in ({}, {"fields": ["name", "books"]}):
            with pytest.raises(NotPermitted, match=r"^books: Records of testapp\.book may not be exported"):
                asked(request, label, **arguments)
        asked(request, label, fields=["name"])


def test_a_generic_foreign_key_to_what_may_not_be_exported_has_no_label() -> None:
    make_library()
    for target in (Author.objects.first(), Book.objects.first()):
        Note.objects.create(target=target, text="x")
    site = MCPSite()
    site.register(Author, ModelExposure, fields=["name"])
    site.register(Book, ModelExposure, fields=["title"])
    site.register(Note, ModelExposure, fields=["target"])
    request = request_of(make_superuser(), site)
    shown = answer(request, "testapp.note", fields=["target"], ordering=["pk"])
    (_, (author, name, kind)), book = shown[-2:]
    assert kind == "testapp.author"
    assert name
    site.exposures[Author].has_export_permission = lambda request: False
    request = request_of(make_superuser("other"), site)
    assert answer(request, "testapp.note", fields=["target"], ordering=["pk"])[-2:] == [
        [shown[-2][0], [author, None, kind]],
        book,
    ]


def test_a_declared_column_of_a_related_row_is_refused_where_that_may_not_be_exported() -> None:
    make_library()
    site = MCPSite()
    site.register(Author, ModelExposure, fields=["name"])
    site.register(Book, ModelExposure, fields=["title", "author__name"])
    assert answer(request_of(make_superuser(), site), "testapp.book")
    site.exposures[Author].has_export_permission = lambda request: False
    with pytest.raises(NotPermitted, match=r"^author__name: Records of testapp\.author may not be exported"):
        asked(request_of(make_superuser("other"), site), "testapp.book")


def test_a_value_of_a_list_is_refused_where_its_column_is_of_what_may_not_be_exported(monkeypatch: Any) -> None:
    make_library()
    site = MCPSite()
    site.register(Book, ModelExposure, fields=["title", "author", "pages"])
    site.register(Tag, ModelExposure, fields=["name", "books"])
    site.register(Author, ModelExposure, fields=["name", "born", "books"])
    arguments = ("books.max.author.name", "books.last.title.by.author.born")
    for name in arguments:
        assert answer(request_of(make_superuser(name), site), "testapp.tag", fields=["name", name])
    monkeypatch.setattr(site.exposures[Author], "has_export_permission", lambda request: False)
    for name in arguments:
        with pytest.raises(NotPermitted, match=r"testapp\.author may not be exported"):
            asked(request_of(make_superuser(f"no {name}"), site), "testapp.tag", fields=["name", name])
