"""The order of pages: of columns that the caller sees, and total."""

from datetime import date
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Count, F, OuterRef, QuerySet, Subquery, Value
from django.db.models.expressions import OrderBy
from django.db.models.functions import Coalesce, Concat, Length, Lower, TruncMonth

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.ordering import DeclaredOrdering, Orderings
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Section
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.postgresql


class Ordered(ModelExposure):
    ordering = (F("rating").desc(), "?", "-author__name", "nothing", "tags", "data", "-id", "title")


@pytest.mark.django_db
class TestOrder:
    def test_the_order_is_total_and_of_columns(self) -> None:
        request = request_of(make_superuser(), site_with(Book))
        keys = Orderings(access_of(request)[Ordered(Book, request.mcp.site)]).default().keys
        assert [(k.path, k.descending, k.nullable) for k in keys] == [
            ("rating", True, True),
            ("author__name", True, False),
            ("id", True, False),
        ]

    def test_a_computed_column_is_sorted_by_its_order_field(self) -> None:
        site = MCPSite(admin_site=admin.site)
        key = Orderings(access_of(request_of(make_superuser(), site))[site.exposures[Book]]).key(
            "is_long", descending=True
        )
        assert key is not None
        assert (key.path, key.descending) == ("pages", True)

    def test_the_place_of_null_that_is_declared_is_kept(self) -> None:
        class Placed(ModelExposure):
            ordering = (F("rating").desc(nulls_last=True), F("published").asc(nulls_first=True), F("title").asc())

        request = request_of(make_superuser(), site_with(Book))
        exposure = Placed(Book, request.mcp.site)
        for keys in (Orderings(access_of(request)[exposure]).default().keys, DeclaredOrdering(exposure).keys):
            assert [(k.path, k.nulls_last) for k in keys] == [
                ("rating", True),
                ("published", False),
                ("title", None),
                ("id", None),
            ]

    def test_an_order_of_the_admin_may_be_an_expression(self) -> None:
        class BookAdmin(admin.ModelAdmin):
            ordering = (F("rating").desc(nulls_last=True),)
            list_display = ("title", "stars")

            @admin.display(ordering=F("rating").desc(nulls_last=True))
            def stars(self, book: Book) -> str:
                return "*"

        own = admin.AdminSite()
        own.register(Book, BookAdmin)
        site = MCPSite(admin_site=own)
        request = request_of(make_superuser(), site)
        first = Orderings(access_of(request)[site.exposures[Book]]).default().keys[0]
        assert (first.path, first.descending, first.nulls_last) == ("rating", True, True)
        # As a click on the column's head does in the admin.
        for descending in (False, True):
            key = Orderings(access_of(request)[site.exposures[Book]]).key("stars", descending=descending)
            assert key is not None
            assert (key.path, key.descending, key.nulls_last) == ("rating", not descending, not descending)

    @pytest.mark.parametrize(
        ("entry", "expected"),
        [
            (Lower("title"), lambda book: book.title.lower()),
            (Lower("title").desc(), lambda book: book.title.lower()),
            (Coalesce("rating", Value(3.0)).asc(), lambda book: book.rating or 3.0),
            (F("pk") * -1, lambda book: -book.pk),
            (OrderBy(F("pages") % 3, descending=True), lambda book: book.pages % 3),
            (F("published__year"), lambda book: book.published.year),
            ("-half", lambda book: book.pages // 2),
        ],
        ids=range(7),
    )
    @pytest.mark.parametrize("limit", [1, 2, 50])
    def test_a_default_order_by_an_expression_is_that_of_the_pages(self, entry: Any, expected: Any, limit: int) -> None:
        class Expressed(ModelExposure):
            fields = ("title",)
            ordering = (entry,)

            def get_queryset(self, request: Any) -> Any:
                return super().get_queryset(request).annotate(half=F("pages") / 2)

        titles = ("b", "A", "a", "C", "B", "c")
        books = [
            make_book(
                title=title, pages=number * 5 % 7 + 1, rating=number or None, published=date(2020 + number % 3, 1, 1)
            )
            for number, title in enumerate(titles)
        ]
        site = MCPSite()
        site.register(Book, Expressed)
        request = request_of(make_superuser(), site)
        found, cursor = [], {}
        while True:
            page = call(QueryRecords(), request, model="testapp.book", limit=limit, **cursor)
            assert "order" not in page.get("hint", "")
            found += [row[0] for row in page["rows"]]
            if "next_cursor" not in page:
                break
            cursor = {"cursor": page["next_cursor"]}
        is_turned = getattr(entry, "descending", False) or str(entry)[0] == "-"
        books.sort(key=lambda book: book.pk, reverse=is_turned)
        books.sort(key=expected, reverse=is_turned)
        assert found == [book.pk for book in books]

    def test_a_relation_to_a_model_that_is_sorted_by_an_expression_is_sorted_by_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Author._meta, "ordering", [Lower("name").desc()])
        site = site_with(Author)
        site.register(Book, ModelExposure, fields=["title"], ordering=["author"])
        books = [make_book(author=make_author(name)) for name in ("b", "A", "C")]
        root = make_superuser()
        rows = call(QueryRecords(), request_of(root, site), model="testapp.book")["rows"]
        assert [row[0] for row in rows] == [books[2].pk, books[0].pk, books[1].pk]
        # Whoever may not view authors gets no order that would tell of them.
        reader = make_user("reader", "testapp.view_book")
        page = call(QueryRecords(), request_of(reader, site), model="testapp.book")
        assert [row[0] for row in page["rows"]] == [book.pk for book in books]
        assert "hint" not in page

    def test_what_no_page_can_be_sorted_by_is_said(self) -> None:
        site = site_with(Author)
        site.register(Book, ModelExposure, fields=["title"], ordering=[F("data"), "title"])
        request = request_of(make_superuser(), site)
        assert (
            "cannot follow a part of the model's own order"
            in call(QueryRecords(), request, model="testapp.book")["hint"]
        )
        assert "hint" not in call(QueryRecords(), request, model="testapp.book", ordering=["title"])
        described = call(DescribeModel(), request, model="testapp.book", detail=True)
        assert described["ordering"] == ["title", "id"]
        assert "name an ordering" in described["ordering_hint"]

    def test_an_expression_of_shown_columns_is_described(self) -> None:
        site = MCPSite()
        site.register(Author, ModelExposure, fields=["name"], ordering=[Lower("name").desc(), Lower("email")])
        request = request_of(make_superuser(), site)
        described = call(DescribeModel(), request, model="testapp.author", detail=True)
        assert described["ordering"] == ["-lower(name)", "id"]
        assert "ordering_hint" not in described

    def test_a_client_says_where_null_stands_of_what_may_be_null(self) -> None:
        request = request_of(make_superuser(), site_with(Book))
        exposure = request.mcp.site.exposures[Book]
        for name, expected in {"rating": True, "title": None}.items():
            key = Orderings(access_of(request)[exposure]).key(name, nulls_last=True)
            assert key is not None
            assert key.nulls_last is expected

    def test_a_relation_in_a_declared_order_means_the_order_of_its_model_as_in_django(self) -> None:
        class ByAuthor(ModelExposure):
            ordering = ("-author", "owner")

        request = request_of(make_superuser(), site_with(Book))
        keys = Orderings(access_of(request)[ByAuthor(Book, request.mcp.site)]).default().keys
        assert [(k.path, k.descending) for k in keys] == [
            ("author__name", True),
            ("author__id", True),
            ("owner_id", False),
            ("id", False),
        ]
        for name, owner in (("b", None), ("a", None), ("b", request.user)):
            make_book(author=make_author(name), owner=owner)
        order = [("-" if k.descending else "") + k.path for k in keys]
        assert list(Book.objects.order_by(*order)) == list(Book.objects.order_by("-author", "owner", "id"))


class Some(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="hidden")


class Shy(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(email="hidden")


def reexpose(site: MCPSite, model: Any, exposure: Any, **options: Any) -> None:
    """Let the site show the model in another way."""
    site.unregister(model)
    site.register(model, exposure, **options)


def is_sortable(user: User, site: MCPSite, name: str, model: Any = Book) -> bool:
    return Orderings(access_of(request_of(user, site))[site.exposures[model]]).key(name) is not None


@pytest.mark.django_db
class TestRelations:
    def test_a_path_that_the_caller_can_read_row_by_row_is_sortable(self) -> None:
        site = site_with(Book, Author, Section)
        assert is_sortable(make_superuser(), site, "author__name")
        assert is_sortable(make_superuser("other"), site, "parent__parent__name", Section)
        assert not is_sortable(make_superuser("third"), site, "parent__" * 5 + "name", Section)

    def test_row_112_a_path_to_what_is_hidden_is_not_sortable(self) -> None:
        site = site_with(Book, Author)
        root, user = make_superuser(), make_user("u", "testapp.view_book")
        assert is_sortable(user, site, "author")
        assert not is_sortable(user, site, "author__name")
        for name in ("author__secret_token", "author__nothing", "owner__username", "tags__name", "loans__borrower"):
            assert not is_sortable(root, site, name), name
        for name in (
            "author__",
            "__name",
            "-author__name",
            "author__name__x",
            "author__pk__x",
            "",
            "_",
            "?",
        ):
            assert not is_sortable(root, site, name), name

    def test_row_112_rows_that_are_hidden_are_not_told_apart_by_an_order(self) -> None:
        site = site_with(Book)
        site.register(Author, Some)
        request = request_of(make_superuser(), site)
        key = Orderings(access_of(request)[site.exposures[Book]]).key("author__name")
        assert key is not None
        assert key.expression is not None
        for name in ("hidden", "seen", "also seen"):
            make_book(name, author=make_author(name))
        rows = Book.objects.annotate(**{key.path: key.expression}).values_list(key.path, flat=True)
        assert sorted(rows, key=str) == [None, "also seen", "seen"]

    def test_what_the_exposure_declares_is_sortable_and_nothing_else(self) -> None:
        site = site_with(Book, sortable_by=["title", "author__name"])
        site.register(Author, Some)
        root = make_superuser()
        assert Orderings(access_of(request_of(root, site))[site.exposures[Book]]).names() == ["title", "author__name"]
        assert not is_sortable(root, site, "rating")
        assert not is_sortable(root, site, "author__born")

    def test_row_112_a_declared_path_begins_with_what_the_caller_sees(self) -> None:
        site = site_with(Book, fields=["title"], sortable_by=["author__name", "rating"])
        request = request_of(make_superuser(), site)
        assert Orderings(access_of(request)[site.exposures[Book]]).names() == []


@pytest.mark.django_db
@pytest.mark.parametrize("given", [["title"], []], ids=["title", "none"])
def test_what_the_admin_does_not_let_people_sort_by_callers_cannot(given: list[str]) -> None:
    class BookAdmin(admin.ModelAdmin):
        list_display = ("title", "pages")
        sortable_by = given

    own = admin.AdminSite()
    own.register(Book, BookAdmin)
    site = MCPSite(admin_site=own)
    request = request_of(make_superuser(), site)
    assert Orderings(access_of(request)[site.exposures[Book]]).names() == given
    # The order of the list stays.
    assert [key.path for key in Orderings(access_of(request)[site.exposures[Book]]).default().keys] == ["title", "id"]


class ComputedAdmin(admin.ModelAdmin):
    """Sorts its columns by what the database computes, as the documentation of Django has it."""

    list_display = ["name", "many", "full", "shout", "last", "twice", "month", "token", "silent", "broken", "rows"]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        last = Book.objects.filter(author=OuterRef("pk")).order_by("-pages").values("price")[:1]
        rows = super().get_queryset(request).defer("email").alias(quiet=Length("name"))
        return rows.annotate(number=Count("books"), last_price=Subquery(last), masked=Lower("secret_token"))

    @admin.display(ordering="-number")
    def many(self, author: Any) -> int:
        return author.number

    @admin.display(ordering=Concat("email", Value(" "), "name"))
    def full(self, author: Author) -> str:
        return f"{author.email} {author.name}"

    @admin.display(ordering=Lower("name").desc())
    def shout(self, author: Author) -> str:
        return author.name.upper()

    @admin.display(ordering=F("last_price").asc(nulls_last=True))
    def last(self, author: Any) -> Any:
        return author.last_price

    @admin.display(ordering="quiet")
    def twice(self, author: Author) -> int:
        return len(author.name)

    @admin.display(ordering=TruncMonth("born"))
    def month(self, author: Author) -> Any:
        return author.born

    @admin.display(ordering="masked")
    def token(self, author: Author) -> str:
        return "*"

    @admin.display(ordering=Lower("secret_token"))
    def silent(self, author: Author) -> str:
        return "*"

    @admin.display(ordering=Lower("no_such_field"))
    def broken(self, author: Author) -> str:
        return "*"

    @admin.display(ordering="data")
    def rows(self, author: Author) -> str:
        return "*"


@pytest.fixture
def computed(db: None) -> Any:
    """A request for eleven authors of none to three books."""
    for number in range(11):
        name = f"{'aAbB'[number % 4]}{'x' * (number % 3)}"
        born = f"1990-0{1 + number % 5}-1{number % 3}" if number % 4 else None
        author = make_author(name, email=f"{number % 2}@example.org", born=born, secret_token=str(number))
        for pages in range(number % 4):
            make_book(author=author, pages=pages, price=f"{number * 7 % 5}.25")
    admin_site = admin.AdminSite("computed")
    admin_site.register(Author, ComputedAdmin)
    admin_site.register(Book)
    return request_of(make_superuser(), MCPSite(admin_site=admin_site))


def paged(request: Any, **arguments: Any) -> list[int]:
    asked = {"model": "testapp.author", "limit": 3, **arguments}
    page, found = call(QueryRecords(), request, **asked), []
    while True:
        found += [row[0] for row in page["rows"]]
        if "next_cursor" not in page:
            return found
        page = call(QueryRecords(), request, **asked, cursor=page["next_cursor"])


@pytest.mark.undivided
@pytest.mark.parametrize("fields", [["name"], ["name", "full"]], ids=["columns", "instances"])
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("name", ["many", "full", "shout", "last", "twice", "month"])
def test_a_column_is_sorted_by_an_annotation_or_an_expression(
    computed: Any, name: str, sign: str, fields: list[str]
) -> None:
    def value(author: Author) -> Any:
        books = list(author.books.order_by("-pages"))
        return {
            "many": len(books),
            "full": f"{author.email} {author.name}",
            "shout": author.name.lower(),
            "last": books[0].price if books else None,
            "twice": len(author.name),
            "month": author.born and author.born.replace(day=1),
        }[name]

    authors = list(Author.objects.order_by("pk"))
    pks = paged(computed, ordering=[sign + name], fields=fields)
    assert sorted(pks) == [author.pk for author in authors]
    by_pk = {author.pk: value(author) for author in authors}
    values = [by_pk[pk] for pk in pks]
    known = [value for value in values if value is not None]
    turned = (sign == "-") is not (name in ("many", "shout"))
    if name != "full" or connection.vendor == "sqlite":
        # PostgreSQL sorts texts by the rules of a language.
        assert known == sorted(known, reverse=turned)
    assert values in (known + [None] * (11 - len(known)), [None] * (11 - len(known)) + known)
    assert paged(computed, ordering=[sign + name], fields=fields, filters={"name__icontains": "a"}) == [
        pk for pk in pks if "a" in Author.objects.get(pk=pk).name.lower()
    ]


def test_what_is_hidden_is_not_sorted_by_though_it_is_computed_with(computed: Any) -> None:
    exposure = computed.mcp.site.exposures[Author]
    expected = {"id", "name", "many", "full", "shout", "last", "twice", "month", "email", "born"}
    assert set(Orderings(access_of(computed)[exposure]).names()) == expected
    for name in ("token", "silent", "broken", "rows"):
        asked = {"model": "testapp.author", "ordering": [name]}
        assert "cannot be ordered by" in refusal(QueryRecords(), computed, **asked)
    computed.mcp.site.register(Author, AdminExposure, exclude=["email"])
    request = request_of(computed.user, computed.mcp.site)
    assert "full" not in Orderings(access_of(request)[request.mcp.site.exposures[Author]]).names()


def test_what_the_caller_may_not_see_is_not_sorted_by_in_a_total_or_a_subquery(computed: Any) -> None:
    site = computed.mcp.site
    viewer = make_user("viewer", "testapp.view_author", staff=True)
    assert {"many", "last"}.isdisjoint(Orderings(access_of(request_of(viewer, site))[site.exposures[Author]]).names())
    for options, hidden in (({"exclude": ["price"]}, {"last"}), ({"exclude": ["pages"]}, {"last"})):
        reexpose(site, Book, AdminExposure, **options)
        names = set(Orderings(access_of(request_of(computed.user, site))[site.exposures[Author]]).names())
        assert {"many", "last"} - names == hidden

    class Few(AdminExposure):
        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(title="hidden")

    reexpose(site, Book, Few)
    request = request_of(computed.user, site)
    assert {"many", "last"}.isdisjoint(Orderings(access_of(request)[site.exposures[Author]]).names())


class PathsAdmin(admin.ModelAdmin):
    """Has columns that are sorted by what is behind a relation, and by a column that no page shows."""

    fields = ["title", "author"]
    list_display = ["title", "by", "born", "unseen", "holder"]

    @admin.display(ordering="author__name")
    def by(self, book: Book) -> str:
        return "*"

    @admin.display(ordering=F("author__born").desc(nulls_last=True))
    def born(self, book: Book) -> str:
        return "*"

    @admin.display(ordering="rating")
    def unseen(self, book: Book) -> str:
        return "*"

    @admin.display(ordering="owner__username")
    def holder(self, book: Book) -> str:
        return "*"


@pytest.mark.django_db
def test_row_112_a_column_is_sorted_by_what_a_filter_could_ask_for() -> None:
    admin_site = admin.AdminSite("paths")
    admin_site.register(Book, PathsAdmin)
    site = MCPSite(admin_site=admin_site)
    site.register(Author, Some)
    for number, name in enumerate(("hidden", "b", "a")):
        make_book(f"{number}", author=make_author(name))
    root = make_superuser()
    asked = {"model": "testapp.book", "fields": ["title"]}

    def titles(user: User, ordering: str) -> str:
        rows = call(QueryRecords(), request_of(user, site), **asked, ordering=[ordering])["rows"]
        return "".join(row[1] for row in rows)

    assert titles(root, "by:nulls_last") == "210"
    assert titles(root, "-by:nulls_last") == "120"
    for name in ("born", "unseen", "holder"):
        assert "cannot be ordered by" in refusal(QueryRecords(), request_of(root, site), **asked, ordering=[name])
    reexpose(site, Author, Some, fields=["name", "born"])
    assert is_sortable(root, site, "born")
    viewer = make_user("viewer", "testapp.view_book", staff=True)
    assert not is_sortable(viewer, site, "by")
    assert not is_sortable(viewer, site, "author__name")


@pytest.mark.django_db
@pytest.mark.parametrize("given", ["author__name", "author"])
def test_row_112_an_order_that_is_declared_tells_nothing_of_hidden_rows(given: str) -> None:
    site = site_with(Book, ordering=[given], sortable_by=["title", "author__name", "owner__username"])
    site.register(Author, Shy)
    for number, name in enumerate(("x", "b", "a", "y")):
        make_book(f"{number}", author=make_author(name, email="hidden" if name in "xy" else "seen"))
    root, asked = make_superuser(), {"model": "testapp.book", "fields": ["title"]}
    answers = []
    for name in ("z", "aa"):
        Author.objects.filter(email="hidden", name__in=["x", "z"]).update(name=name)
        answers.append(call(QueryRecords(), request_of(root, site), **asked)["rows"])
        answers.append(call(QueryRecords(), request_of(root, site), **asked, ordering=["author__name"])["rows"])
    assert answers[:2] == answers[2:]
    assert [row[1] for row in answers[0] if row[1] in "12"] == ["2", "1"]
    viewer = make_user("viewer", "testapp.view_book")
    rows = call(QueryRecords(), request_of(viewer, site), **asked)["rows"]
    assert [row[1] for row in rows] == ["0", "1", "2", "3"]
    # A path through a model that is exposed to nobody is the project's to declare.
    assert Orderings(access_of(request_of(root, site))[site.exposures[Book]]).names() == [
        "title",
        "author__name",
        "owner__username",
    ]
