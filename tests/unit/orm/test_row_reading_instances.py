"""Instances from plans: those that Django's own queryset gives, with what it loads with them, by fewer steps."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Count, QuerySet
from django.test.utils import CaptureQueriesContext
from rest_framework import serializers

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import NotFound
from mcp_django.orm import compiled_queries, row_reading
from mcp_django.orm.access import access_of
from mcp_django.orm.compiled_queries import load_related, shape_of_instances
from mcp_django.orm.row_reading import read_page
from tests.factories import make_author, make_book, make_superuser
from tests.library import make_library, query_of, reader, shown
from tests.testapp.models import AudioBook, Author, Book, Profile

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_plans() -> None:
    compiled_queries.clear()


class Counted(ModelExposure):
    """With a column that takes an instance."""

    fields = ("id", "title", "author", "pages", "twice")

    def twice(self, book: Book) -> str:
        return f"{book.title * 2} {book.author.name}"


def exposed(model: Any, exposure: type[ModelExposure]) -> tuple[MCPRequest, ModelExposure]:
    site = MCPSite()
    site.register(model, exposure)
    return reader(User.objects.filter(username="root").first() or make_superuser(), site), site.exposures[model]


def by_queries(monkeypatch: pytest.MonkeyPatch, query: Any) -> Any:
    """Return the page as it is read without plans."""
    with monkeypatch.context() as patch:
        patch.setattr(row_reading.InstancePlan, "read_compiled", lambda plan: None)
        return shown(read_page(query))


@pytest.mark.parametrize("model", [Book, AudioBook])
def test_the_rows_are_those_of_the_queryset(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_library(6)
    request, exposure = exposed(model, Counted)
    for options in ({}, {"limit": 2}):
        query = query_of(request, exposure, **options)
        expected = by_queries(monkeypatch, query)
        assert [shown(read_page(query)) for _ in range(3)] == [expected] * 3
        assert expected[1]
        after = query_of(request, exposure, after=expected[2][0], **options)
        assert shown(read_page(after)) == by_queries(monkeypatch, after)


def test_a_plan_is_made_once_and_holds_no_value_of_a_caller() -> None:
    ann, bob = make_superuser(), make_superuser("bob")
    make_book(owner=ann)
    make_book(owner=bob)

    class Mine(Counted):
        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).filter(owner=request.user).select_related("author")

    request, exposure = exposed(Book, Mine)
    for user in (ann, bob, ann):
        request.user = user
        (row,) = shown(read_page(query_of(request, exposure)))[1]
        assert row[0] == Book.objects.get(owner=user).pk
        assert access_of(request)[exposure].get_row(row[0]).owner == user
    (other,) = Book.objects.filter(owner=bob)
    with pytest.raises(NotFound):
        access_of(request)[exposure].get_row(other.pk)
    assert len(compiled_queries._plans) == 2
    assert not any(plan.has_own_params for plan in compiled_queries._plans.values())


def test_what_a_queryset_does_beyond_its_sql_has_no_plan() -> None:
    rows = Book.objects.all()
    author = make_author()
    unknown = [rows.prefetch_related("tags"), author.books.all(), rows.values("pk"), rows.annotate(n=Count("tags"))]
    assert [shape_of_instances(found, "default") for found in unknown] == [None] * len(unknown)
    known = [
        rows,
        rows.select_related("author", "owner"),
        rows.select_related("author"),
        rows.only("title"),
        rows.defer("title"),
    ]
    shapes = [shape_of_instances(found, "default") for found in known]
    assert len({shape.key for shape in shapes if shape is not None}) == len(known)


def test_what_the_queryset_prefetches_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    make_library(4)

    class Tagged(Counted):
        fields = ("id", "tagged")

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).prefetch_related("tags")

        def tagged(self, book: Book) -> str:
            return ", ".join(tag.name for tag in book.tags.all())

    request, exposure = exposed(Book, Tagged)
    with CaptureQueriesContext(
        connection,
    ) as captured:
        rows = shown(read_page(query_of(request, exposure)))[1]
    assert {row[1] for row in rows} == {"", "tag 0", "tag 0, tag 1", "tag 0, tag 1, tag 2"}
    assert len(captured) == 2


def test_a_class_that_makes_its_instances_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    make_book("one")
    request, exposure = exposed(Book, Counted)
    made = []
    from_db = Book.from_db.__func__  # type: ignore[attr-defined]

    def own(cls: Any, *arguments: Any, **options: Any) -> Any:
        made.append(from_db(cls, *arguments, **options))
        return made[-1]

    monkeypatch.setattr(Book, "from_db", classmethod(own))
    for number in (1, 2):
        read_page(query_of(request, exposure))
        assert len(made) == number
    assert [(row._state.adding, row._state.db) for row in made] == [(False, "default")] * 2


class NameSerializer(serializers.ModelSerializer[Book]):
    by = serializers.SerializerMethodField()

    class Meta:
        model = Book
        fields = ("id", "title", "by")

    def get_by(self, book: Book) -> str:
        return f"{book.author} of {book.owner}"


class Named(ModelExposure):
    serializer_class = NameSerializer


def test_a_foreign_key_that_code_was_seen_to_follow_is_read_with_the_rows() -> None:
    make_library(6, owner=make_superuser())
    Book.objects.update(owner=User.objects.get())
    request, exposure = exposed(Book, Named)
    query = query_of(request, exposure)
    found, queries = [], []
    for _ in range(3):
        with CaptureQueriesContext(connection) as captured:
            found.append(shown(read_page(query)))
        queries.append(len(captured))
    assert found[0] == found[1] == found[2]
    assert queries[0] > queries[1] == queries[2] == 1


def test_a_key_that_leads_nowhere_loses_no_row_when_it_is_read_with_the_rows() -> None:
    books = make_library(6)
    request, exposure = exposed(Book, Named)
    query = query_of(request, exposure)
    read_page(query)
    kept = books[0].author_id
    # Databases check the key at the end of the transaction, but MySQL does at once.
    with connection.constraint_checks_disabled():
        try:
            Book.objects.filter(pk=books[0].pk).update(author_id=10**6)
            rows = shown(read_page(query))[1]
            assert len(rows) == Book.objects.count()
            assert [row[2] for row in rows if row[0] == books[0].pk] == [None]
        finally:
            Book.objects.filter(pk=books[0].pk).update(author_id=kept)


def test_rows_that_the_base_manager_hides_are_not_read_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    make_library(6)
    request, exposure = exposed(Book, Named)
    manager = type(Author._base_manager)
    hidden = make_book().author
    own = type("Own", (manager,), {"get_queryset": lambda self: manager.get_queryset(self).exclude(pk=hidden.pk)})
    monkeypatch.setattr(Author._base_manager, "__class__", own)
    query = query_of(request, exposure)
    for _ in range(2):
        rows = shown(read_page(query))[1]
        assert [row[2] for row in rows if row[0] == Book.objects.get(author_id=hidden.pk).pk] == [None]


def test_a_related_row_is_loaded_as_its_attribute_loads_it() -> None:
    author = make_author()
    book, profile = make_book(author=author), Profile.objects.create(author=author)
    for row, name in ((book, "author"), (profile, "author")):
        fresh = type(row).objects.get(pk=row.pk)
        with CaptureQueriesContext(connection) as captured:
            load_related(fresh, fresh._meta.get_field(name))
            assert getattr(fresh, name) == author
        assert len(captured) == 1
    empty = Book.objects.get(pk=book.pk)
    load_related(empty, Book._meta.get_field("owner"))
    assert empty.owner is None


def test_the_fields_of_a_plain_admin_page_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Plain(admin.ModelAdmin):  # type: ignore[type-arg]
        fields = ("title", "pages")

    class Own(Plain):
        def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
            asked.append(obj)
            return super().get_fieldsets(request, obj)

    own_admin = admin.AdminSite("own")
    own_admin.register(Book, Own)
    site = MCPSite(admin_site=own_admin)
    site.register(Book, AdminExposure)
    request, book = reader(make_superuser(), site), make_book()
    exposure: Any = site.exposures[Book]
    for _ in range(2):
        assert list(exposure.get_form(request, book, change=True).base_fields) == ["title", "pages"]
    assert asked == [book, book]

    other = MCPSite(admin_site=admin.AdminSite("plain"))
    other.admin_site.register(Book, Plain)  # type: ignore[union-attr]
    exposure = other.exposures[Book]
    monkeypatch.setattr(exposure.model_admin, "get_fieldsets", exposure.model_admin.get_fieldsets)
    for obj in (book, None, book):
        assert list(exposure.get_form(request, obj, change=obj is not None).base_fields) == ["title", "pages"]
