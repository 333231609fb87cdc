"""Labels and lists of related rows, for whole pages."""

from typing import Any

import pytest
from django.db.models import QuerySet

from mcp_django import ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.columns import Column, RelationColumn
from mcp_django.orm.labels import MAX_RELATED, joined_label, labels_for, linked_values
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Placement, Profile, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


class Some(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="hidden")


def field(model: Any, name: str) -> Any:
    return model._meta.get_field(name)


def column(model: Any, name: str) -> Column:
    return RelationColumn(name, path=field(model, name).attname, field=field(model, name))


def test_a_join_serves_only_where_every_related_row_may_be_seen() -> None:
    site = site_with(Book, Author, Profile)
    assert joined_label(reader(make_superuser(), site), column(Book, "author")) == "author__name"
    assert joined_label(reader(make_superuser("b"), site), column(Placement, "shelf")) is None
    assert joined_label(reader(make_user("u", "testapp.view_book"), site), column(Book, "author")) is None
    restricted = site_with(Book)
    restricted.register(Author, Some)
    assert joined_label(reader(make_superuser("c"), restricted), column(Book, "author")) is None


def test_labels_are_those_of_the_callers_rows(django_assert_num_queries: Any) -> None:
    seen, hidden = make_author("seen"), make_author("hidden")
    site = site_with(Book)
    site.register(Author, Some)
    request = reader(make_superuser(), site)
    labels_for(request, field(Book, "author"), [])
    with django_assert_num_queries(1):
        found = labels_for(request, field(Book, "author"), [seen.pk, hidden.pk, None, 10**6])
    assert found == {seen.pk: "seen"}


def test_lists_take_two_queries_for_a_page_of_any_length(django_assert_num_queries: Any) -> None:
    tags = [Tag.objects.create(name=f"t{number:02}") for number in range(MAX_RELATED + 5)]
    books = [make_book() for _ in range(4)]
    for number, book in enumerate(books):
        book.tags.set(tags[: number * 8])
    request = reader(make_superuser(), site_with(Book, Tag))
    linked_values(request, field(Book, "tags"), [])
    assert request.user.has_perm("testapp.view_tag")
    with django_assert_num_queries(2):
        found, cut = linked_values(request, field(Book, "tags"), [book.pk for book in books])
    assert cut
    assert list(map(len, found)) == [0, 8, 16, MAX_RELATED + 1]
    assert found[3][-1] == "…"


def test_a_relation_with_a_table_of_its_own_lists_each_row_once() -> None:
    shelf, book = Shelf.objects.create(code="A"), make_book(title="t")
    for position in range(3):
        Placement.objects.create(shelf=shelf, book=book, position=position)
    request = reader(make_superuser(), site_with(Shelf, Book))
    assert linked_values(request, field(Shelf, "books"), ["A"]) == ([[[book.pk, "t"]]], False)


def test_hidden_rows_do_not_use_up_the_places_of_a_list() -> None:
    book = make_book()
    tags = [Tag.objects.create(pk=number + 2, name=f"t{number}") for number in range(MAX_RELATED)]
    hidden = Tag.objects.create(pk=1, name="hidden")
    book.tags.set([hidden, *tags])
    site = site_with(Book)
    site.register(Tag, Some)
    found, cut = linked_values(reader(make_superuser(), site), field(Book, "tags"), [book.pk])
    assert found[0] == [[tag.pk, tag.name] for tag in tags]
    assert not cut
