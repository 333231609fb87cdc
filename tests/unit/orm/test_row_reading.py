"""Pages of rows: the same by each road, in a fixed number of queries, without what is hidden."""

from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.fields import resolve_path
from mcp_django.orm.lookups import parse_condition
from mcp_django.orm.row_reading import needs_instances, read_page
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import MODELS, make_library, query_of, read, reader, shown, site_with
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def condition(model: Any, text: str, lookup: str, value: Any) -> Any:
    path = resolve_path(model, text)
    assert path is not None
    return parse_condition(path, lookup, value)


def roads(request: MCPRequest, query: Any) -> list[Any]:
    return [shown(read(query, road)) for road in ("plan", "plan", "tuples", "instances")]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text_limit", [None, 10])
def test_all_roads_give_the_same_rows_for_every_exposure(model: Any, text_limit: int | None) -> None:
    user = make_superuser()
    make_library(owner=user)
    site = site_with(*MODELS)
    request, exposure = reader(user, site), site.exposures[model]
    first, *others = roads(request, query_of(request, exposure, text_limit=text_limit))
    assert first[1]
    assert all(other == first for other in others)
    # And from the middle on, for the second page.
    first, *others = roads(request, query_of(request, exposure, limit=2, after=first[2][0]))
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    "label", ["testapp.book", "testapp.loan", "testapp.publishedbook", "testapp.tag", "testapp.note"]
)
def test_all_roads_give_the_same_rows_for_the_admins_exposures(label: str) -> None:
    user = make_user("member", f"testapp.view_{label.partition('.')[2]}", "testapp.view_tag")
    make_library(owner=user)
    site = MCPSite(admin_site=admin.site)
    request, exposure = reader(user, site), site.exposures_by_label[label]
    plain = [name for name in access_of(request)[exposure].fields if name != "is_long"]
    first, *others = roads(request, query_of(request, exposure, plain))
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("text", "lookup", "value"),
    [
        ("id", "exact", 1),
        ("title", "exact", "Bøøk 1"),
        ("title", "in", ["Bøøk 1", "Bøøk 2", "x"]),
        ("rating", "isnull", True),
        ("rating", "isnull", False),
        ("rating", "gt", 0.5),
        ("pages", "range", [1, 3]),
        ("price", "lte", "9.90"),
        ("published", "gte", "2024-01-02"),
        ("created", "gte", "2024-01-02"),
        ("reading_time", "gt", "00:30:00"),
        ("uuid", "isnull", False),
        ("owner", "exact", 1),
        ("active", "exact", True),
        ("address", "exact", "::1"),
        ("author__name", "exact", "Author 1"),
        ("author__name", "icontains", "HOR 1"),
        ("status", "in", ["draft"]),
        ("title", "contains", "k"),
        ("title", "icontains", "K"),
        ("title", "startswith", "B"),
        ("title", "istartswith", "b"),
        ("title", "endswith", "1"),
        ("title", "iendswith", "K 1"),
        ("title", "iexact", "bøøk 1"),
        ("title", "contains", "%_"),
    ],
)
def test_all_roads_filter_alike_and_as_the_orm_does(text: str, lookup: str, value: Any) -> None:
    user = make_superuser()
    make_library(owner=user)
    site = site_with(*MODELS)
    request, exposure = reader(user, site), site.exposures[Book]
    found = condition(Book, text, lookup, value)
    first, *others = roads(request, query_of(request, exposure, ["id"], conditions=(found,)))
    assert all(other == first for other in others)
    given = found.values[0] if lookup not in ("in", "range") else list(found.values)
    expected = set(Book.objects.filter(**{f"{text}__{lookup}": given}).values_list("pk", flat=True))
    assert {row[0] for row in first[1]} == expected


def test_a_plan_is_reused_with_the_values_of_the_call() -> None:
    for title in ("a", "b"):
        make_book(title=title)
    site = site_with(Book)
    request = reader(make_superuser(), site)
    seen = [
        [row[1] for row in read_page(query_of(request, site.exposures[Book], ["id", "title"], conditions=(c,))).rows]
        for c in (condition(Book, "title", "exact", title) for title in ("a", "b", "c", "a"))
    ]
    assert seen == [["a"], ["b"], [], ["a"]]


class Mine(ModelExposure):
    fields = ("id", "title")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(owner=request.user)


@pytest.mark.parametrize("stable", [None, True])
def test_row_121_a_compiled_page_never_serves_another_caller(stable: bool | None) -> None:
    users = [make_user(name, "testapp.view_book") for name in "abc"]
    books = [make_book(owner=user) for user in users]
    site = MCPSite()
    site.register(Book, type("Mine", (Mine,), {"stable_queryset": stable}))
    for user, book in zip(users, books, strict=True):
        request = reader(user, site)
        assert [row[0] for row in read_page(query_of(request, site.exposures[Book])).rows] == [book.pk]


@pytest.mark.parametrize("model", MODELS)
def test_row_119_the_number_of_queries_does_not_grow_with_rows(model: Any) -> None:
    user = make_superuser()
    site = site_with(*MODELS)
    request, exposure = reader(user, site), site.exposures[model]
    counts = []
    for number in (10, 60):
        for model_to_empty in (Placement, Shelf, Loan, Profile, AudioBook, Book, Tag):
            model_to_empty.objects.all().delete()
        make_library(number, owner=user)
        for road in ("plan", "instances"):
            with CaptureQueriesContext(connection) as captured:
                read(query_of(request, exposure, limit=100), road)
            counts.append(len(captured))
    assert counts[:2] == counts[2:]
    assert max(counts) <= 8


def test_row_119_admin_pages_with_computed_columns_have_a_fixed_number_of_queries() -> None:
    user = make_superuser()
    site = MCPSite(admin_site=admin.site)
    request, exposure = reader(user, site), site.exposures[Book]
    counts = []
    for _ in range(2):
        for _ in range(10):
            make_book()
        with CaptureQueriesContext(connection) as captured:
            assert needs_instances(query_of(request, exposure).columns)
            read_page(query_of(request, exposure, limit=100))
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 3


@pytest.mark.parametrize("road", ["plan", "tuples", "instances"])
def test_row_128_hidden_columns_are_not_selected(road: Any) -> None:
    make_author(secret_token="hidden value")
    site = site_with(Author, fields=["name"])
    request = reader(make_superuser(), site)
    with CaptureQueriesContext(connection) as captured:
        read(query_of(request, site.exposures[Author]), road)
    statements = " ".join(query["sql"] for query in captured)
    assert connection.ops.quote_name("name") in statements
    assert "secret_token" not in statements
    assert road == "instances" or "email" not in statements


def test_no_page_uses_offset_or_counts() -> None:
    make_library()
    site = site_with(*MODELS)
    request = reader(make_superuser(), site)
    with CaptureQueriesContext(connection) as captured:
        page = read_page(query_of(request, site.exposures[Book], limit=2))
        read_page(query_of(request, site.exposures[Book], limit=2, after=page.keys[1]))
    statements = " ".join(query["sql"] for query in captured)
    assert "OFFSET" not in statements
    assert "COUNT" not in statements


class TestLabels:
    def page(self, user: Any, site: MCPSite, model: Any, name: str, road: Any) -> list[Any]:
        request = reader(user, site)
        page = read(query_of(request, site.exposures[model], ["id", name]), road)
        return [row[1] for row in page.rows]

    @pytest.mark.parametrize("road", ["plan", "tuples", "instances"])
    def test_a_label_is_there_for_who_may_view_the_related_row(self, road: Any) -> None:
        book = make_book(author=make_author("Ann"))
        site = site_with(Book, Author)
        member = make_user("member", "testapp.view_book")
        assert self.page(make_superuser(), site, Book, "author", road) == [[book.author_id, "Ann"]]
        assert self.page(member, site, Book, "author", road) == [[book.author_id, None]]
        assert self.page(make_superuser("root2"), site_with(Book), Book, "author", road) == [[book.author_id, None]]

    @pytest.mark.parametrize("stable", [None, True])
    @pytest.mark.parametrize("road", ["plan", "tuples", "instances"])
    def test_a_related_row_outside_the_callers_rows_has_no_label(self, road: Any, stable: bool | None) -> None:
        user = make_user("member", "testapp.view_book", "testapp.view_loan")
        for owner in (user, None):
            book = make_book(title="mine" if owner else "other", owner=owner)
            Loan.objects.create(book=book, borrower="x", due="2024-01-01T00:00:00Z")
        site = site_with(Loan)
        site.register(Book, type("Mine", (Mine,), {"stable_queryset": stable}))
        assert [label for _, label in self.page(user, site, Loan, "book", road)] == ["mine", None]

    @pytest.mark.parametrize("road", ["plan", "instances"])
    def test_a_label_that_follows_relations_costs_one_query(self, road: Any, django_assert_num_queries: Any) -> None:
        for number in range(5):
            Profile.objects.create(author=make_author(f"A{number}"))
        site = MCPSite()
        site.register(Profile, ModelExposure, fields=["id", "author"])
        site.register(
            Author, type("Custom", (ModelExposure,), {"get_queryset": lambda self, request: Author.objects.all()})
        )
        request = reader(make_superuser(), site)
        read(query_of(request, site.exposures[Profile]), road)
        with django_assert_num_queries(2):
            page = read(query_of(request, site.exposures[Profile]), road)
        assert [row[1][1] for row in page.rows] == [f"A{number}" for number in range(5)]

    @pytest.mark.parametrize("road", ["plan", "instances"])
    def test_row_211_a_label_that_fails_costs_one_label(self, road: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        first = Section.objects.create(name="first")
        for parent in (first, None):
            Section.objects.create(name="child", parent=parent)
        monkeypatch.setattr(Section, "__str__", lambda self: 1 / 0)
        site = site_with(Section)
        parents = self.page(make_superuser(), site, Section, "parent", road)
        assert sorted(parents, key=str) == sorted([None, None, [str(first.pk), None]], key=str)

    @pytest.mark.parametrize("road", ["plan", "instances"])
    def test_a_many_to_many_value_lists_the_visible_rows_and_is_capped(self, road: Any) -> None:
        class Some(ModelExposure):
            fields = "__all__"

            def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
                return super().get_queryset(request).exclude(name="hidden")

        book = make_book()
        tags = [Tag.objects.create(name="hidden"), *(Tag.objects.create(name=f"t{i}") for i in range(20))]
        book.tags.set(tags)
        site = site_with(Book)
        site.register(Tag, Some)
        listed = self.page(make_superuser(), site, Book, "tags", road)[0]
        assert listed == [[tag.pk, tag.name] for tag in tags[1:]]
        extra = Tag.objects.create(name="one too many")
        book.tags.add(extra)
        listed = self.page(make_superuser("root2"), site, Book, "tags", road)[0]
        assert len(listed) == 21
        assert listed[-1] == "…"


class Computing(ModelExposure):
    fields = ("id", "title", "price_per_page", "loud")

    def loud(self, book: Book) -> str:
        return book.title.upper()


def test_row_211_a_computed_value_that_fails_costs_one_value(caplog: pytest.LogCaptureFixture) -> None:
    make_book(title="none", pages=0, price="1.00")
    make_book(title="some", pages=4, price="1.00")
    site = MCPSite()
    site.register(Book, Computing)
    request = reader(make_superuser(), site)
    page = read_page(query_of(request, site.exposures[Book], text_limit=10))
    assert [row[1:] for row in page.rows] == [["none", None, "NONE"], ["some", "0.25", "SOME"]]
    assert page.notes == ["price_per_page: a value could not be computed and is null"]
    assert "price_per_page" in caplog.text


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases do not store text in a number")
@pytest.mark.parametrize("road", ["plan", "tuples"])
def test_row_211_a_stored_value_that_cannot_be_read_costs_one_value(road: Any) -> None:
    make_book(title="bad")
    make_book(title="good", price="1.50")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_book SET price = 'no number' WHERE title = 'bad'")
    site = site_with(Book)
    request = reader(make_superuser(), site)
    page = read(query_of(request, site.exposures[Book], ["id", "title", "price"]), road)
    assert [row[1:] for row in page.rows] == [["bad", None], ["good", "1.50"]]


def test_a_serializer_of_the_exposure_makes_the_rows() -> None:
    class AuthorSerializer(serializers.ModelSerializer):
        shouted = serializers.SerializerMethodField()

        def get_shouted(self, author: Author) -> str:
            if author.name == "bad":
                raise ValueError("no")
            return author.name.upper()

        class Meta:
            model = Author
            fields = ("name", "shouted")

    make_author("bad")
    make_author("good")
    site = site_with(Author, serializer_class=AuthorSerializer, fields=None)
    request = reader(make_superuser(), site)
    page = read_page(query_of(request, site.exposures[Author]))
    assert page.names == ["id", "name", "shouted"]
    assert [row[1:] for row in page.rows] == [["bad", None], ["good", "GOOD"]]
    assert page.notes


def test_row_70_rows_that_come_and_go_between_pages_are_neither_skipped_nor_repeated() -> None:
    author = make_author()
    books = [make_book(title=f"t{number}", author=author) for number in range(6)]
    site = site_with(Book)
    request = reader(make_superuser(), site)
    first = read_page(query_of(request, site.exposures[Book], ["id"], limit=3))
    books[2].delete()
    books[0].delete()
    make_book(title="t0", author=author)
    later = make_book(title="t4x", author=author)
    second = read_page(query_of(request, site.exposures[Book], ["id"], limit=50, after=first.keys[-1]))
    assert [row[0] for row in second.rows] == [books[3].pk, books[4].pk, later.pk, books[5].pk]
