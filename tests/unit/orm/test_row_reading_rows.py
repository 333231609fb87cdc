"""One row for reading: what the exposure's queryset gives, by one query, with labels that the caller may know."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Count, QuerySet
from django.db.models.signals import post_init

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import NotFound
from mcp_django.orm.access import ModelAccess, access_of
from mcp_django.orm.columns import Column
from mcp_django.orm.row_reading import MAX_JOINS, FoundRow, show_rows
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import MODELS, make_library, reader, site_with
from tests.testapp.models import Author, Book, Placement, Section, Shelf

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
STRANGE = ["１", "01", "+1", " 1 ", "x", "", True, 1.5, None, [1], 2**63, 2**64, 10**400, "9" * 5000, "\0"]


def access_to(request: MCPRequest, model: Any) -> ModelAccess:
    return access_of(request)[request.mcp.site.exposures[model]]


@pytest.mark.parametrize("model", MODELS)
def test_a_row_is_the_one_of_the_queryset_and_shown_alike(model: Any) -> None:
    make_library(3)
    site = site_with(*MODELS)
    request, exposure = reader(make_superuser(), site), site.exposures[model]
    columns = Column.all(exposure, access_of(request)[exposure].fields)
    for row in exposure.get_queryset(request):
        found = FoundRow.find(access_of(request)[exposure], row.pk if isinstance(row.pk, int) else str(row.pk))
        assert type(found.row) is model
        assert found.row._state.db == row._state.db
        assert not found.row._state.adding
        for field in model._meta.concrete_fields:
            mine, own = (getattr(one, field.attname) for one in (found.row, row))
            assert (type(mine), bytes(mine) if field.name == "blob" else mine) == (
                type(own),
                bytes(own) if field.name == "blob" else own,
            )
        access = access_of(request)[exposure]
        by_itself = show_rows(access, [access.get_row(str(row.pk))], columns)
        assert show_rows(access, [found.row], columns, labels=found.labels) == by_itself


def test_a_row_and_its_labels_are_one_query(django_assert_num_queries: Any) -> None:
    site = site_with(Book, Author, Placement, Shelf)
    request, exposure = reader(make_superuser(), site), site.exposures[Book]
    names = ("id", "title", "author", "owner")
    for title in ("first", "second"):
        book = make_book(title=title, author=make_author(f"Author of the {title}"))
        with django_assert_num_queries(1):
            found = FoundRow.find(access_to(request, Book), book.pk)
            page = show_rows(access_to(request, Book), [found.row], Column.all(exposure, names), labels=found.labels)
        assert page.rows == [[book.pk, title, [book.author_id, f"Author of the {title}"], None]]


def test_row_121_no_label_comes_with_a_row_that_the_caller_may_not_view() -> None:
    book = make_book(author=make_author("hidden"))
    site = site_with(Book, Author)
    for codenames, labels in (
        (["testapp.view_book"], {}),
        (["testapp.view_book", "testapp.view_author"], {"author__name": "hidden"}),
    ):
        request = reader(make_user(f"u{len(codenames)}", *codenames), site)
        assert FoundRow.find(access_to(request, Book), book.pk).labels == labels


@pytest.mark.parametrize("pk", STRANGE)
def test_rows_121_123_a_key_has_one_spelling(pk: Any) -> None:
    Author.objects.create(pk=1, name="first")
    site = site_with(Author)
    request = reader(make_superuser(), site)
    assert FoundRow.find(access_to(request, Author), "1").row.pk == 1
    with pytest.raises(NotFound):
        FoundRow.find(access_to(request, Author), pk)


def test_a_missing_row_is_not_there() -> None:
    site = site_with(Section)
    with pytest.raises(NotFound):
        FoundRow.find(access_to(reader(make_superuser(), site), Section), "12345678-1234-5678-1234-567812345678")


def test_a_permission_on_the_row_is_asked() -> None:
    class Single(ModelExposure):
        def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
            return obj is None or obj.name == "seen"

    site = MCPSite()
    site.register(Author, Single)
    request = reader(make_superuser(), site)
    assert FoundRow.find(access_to(request, Author), make_author("seen").pk)
    with pytest.raises(NotFound):
        FoundRow.find(access_to(request, Author), make_author("unseen").pk)


@pytest.mark.parametrize("stable", [None, True])
def test_row_121_a_queryset_of_its_own_decides_and_keeps_its_annotations(stable: bool | None) -> None:
    class Narrow(ModelExposure):
        stable_queryset = stable

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).filter(name="seen").annotate(number=Count("books"))

    site = MCPSite()
    site.register(Author, Narrow)
    request = reader(make_superuser(), site)
    found: Any = FoundRow.find(access_to(request, Author), make_book(author=make_author("seen")).author_id).row
    assert found.number == 1
    with pytest.raises(NotFound):
        FoundRow.find(access_to(request, Author), make_author("unseen").pk)


def test_a_manager_with_a_queryset_class_of_its_own_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(QuerySet[Any]):
        pass

    author = make_author("one")
    site = site_with(Author)
    request = reader(make_superuser(), site)
    monkeypatch.setattr(Author._default_manager, "_queryset_class", Own)
    monkeypatch.setattr(Own, "__iter__", lambda self: iter([author]))
    assert FoundRow.find(access_to(request, Author), author.pk).row is author


def test_a_row_whose_related_row_is_gone_is_there_without_its_label() -> None:
    book = make_book()
    kept = book.author_id
    site = site_with(Book, Author)
    request = reader(make_superuser(), site)
    # Databases check the key at the end of the transaction, but MySQL does at once.
    with connection.constraint_checks_disabled():
        try:
            Book.objects.filter(pk=book.pk).update(author_id=10**6)
            found = FoundRow.find(access_to(request, Book), book.pk)
            assert (found.row.pk, found.labels) == (book.pk, {"author__name": None})
        finally:
            Book.objects.filter(pk=book.pk).update(author_id=kept)


def test_the_tables_of_one_query_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # The least bound that Django's databases have is that of MySQL: 61 tables.
    assert MAX_JOINS < 61
    site = site_with(Book, Author, User)
    request, exposure = reader(make_superuser(), site), site.exposures[Book]
    site.exposures[User].label_field = "username"
    book = make_book(author=make_author("one"), owner=request.user)
    columns = Column.all(exposure, ("id", "author", "owner"))
    pages = []
    for bound, paths in ((MAX_JOINS, ["author__name", "owner__username"]), (1, ["author__name"]), (0, [])):
        monkeypatch.setattr("mcp_django.orm.row_reading.MAX_JOINS", bound)
        found = FoundRow.find(access_of(request)[exposure], book.pk)
        assert list(found.labels) == paths
        pages.append(show_rows(access_of(request)[exposure], [found.row], columns, labels=found.labels))
    assert pages[0] == pages[1] == pages[2]


def test_signals_of_instances_are_sent() -> None:
    author = make_author("one")
    site = site_with(Author)
    heard: list[Any] = []

    def hear(instance: Any, **kwargs: Any) -> None:
        heard.append(instance.name)

    post_init.connect(hear, sender=Author)
    try:
        FoundRow.find(access_to(reader(make_superuser(), site), Author), author.pk)
    finally:
        post_init.disconnect(hear, sender=Author)
    assert heard == ["one"]
