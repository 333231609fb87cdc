"""What each class of column can be used for: a total or an order must not reveal what the column does not show."""

from pathlib import Path
from typing import Any

import pytest
from rest_framework import serializers

import mcp_django
from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.access import access_of
from mcp_django.orm.columns import Column, is_replaced
from mcp_django.orm.path import Path as ColumnPath
from mcp_django.tools.aggregate_records import AggregateRecords
from tests.factories import make_superuser
from tests.fieldapp.models import Guest
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Note
from tests.tool_calls import refusal

SITE = MCPSite()
PREDICATES = ("is_countable", "is_summable", "is_comparable", "is_groupable", "is_period", "is_file", "is_ordering")


class Shown(serializers.ModelSerializer):  # type: ignore[type-arg]
    pages = serializers.SerializerMethodField()
    extra = serializers.SerializerMethodField()

    class Meta:
        model = Book
        fields = ("pages", "price", "cover", "extra")

    def get_pages(self, book: Book) -> str:
        return "many"

    def get_extra(self, book: Book) -> int:
        return 1


class Serialized(ModelExposure):
    serializer_class = Shown


class Masked(ModelExposure):
    fields = ("pages",)

    def pages(self, book: Book) -> str:
        return "many"


class Replaced:
    """A descriptor that gives something else than what the column holds."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else 0

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["pages"] = value


def used_for(column: Column | None) -> set[str]:
    assert column is not None
    return {name.removeprefix("is_") for name in PREDICATES if getattr(column, name)()}


NUMBER = {"countable", "summable", "comparable", "groupable", "ordering"}
DATE = {"countable", "comparable", "groupable", "period", "ordering"}


@pytest.mark.parametrize(
    ("exposure", "name", "kind", "uses"),
    [
        (ModelExposure(Book, SITE), "pages", "field", NUMBER),
        (ModelExposure(Book, SITE), "title", "field", {"countable", "comparable", "groupable"}),
        (ModelExposure(Book, SITE), "published", "field", DATE),
        (ModelExposure(Book, SITE), "created", "field", DATE),
        (ModelExposure(Book, SITE), "reading_time", "field", NUMBER),
        (ModelExposure(Book, SITE), "cover", "field", {"countable", "file"}),
        (ModelExposure(Book, SITE), "data", "field", {"countable"}),
        (ModelExposure(Book, SITE), "author", "relation", {"countable", "groupable"}),
        (ModelExposure(Book, SITE), "tags", "many", set()),
        (ModelExposure(Book, SITE), "loans", "reverse", set()),
        (ModelExposure(Guest, SITE), "passport", "reverse", set()),
        (ModelExposure(Guest, SITE), "remarks", "reverse", set()),
        (ModelExposure(Note, SITE), "target", "generic", set()),
        (ModelExposure(Book, SITE), "price_per_page", "computed", set()),
        (Masked(Book, SITE), "pages", "computed", set()),
        (Serialized(Book, SITE), "pages", "serialized", set()),
        (Serialized(Book, SITE), "extra", "serialized", set()),
        (Serialized(Book, SITE), "price", "serialized", set()),
        (Serialized(Book, SITE), "cover", "serialized", {"file"}),
    ],
)
def test_a_column_is_used_for_what_its_class_allows(
    exposure: ModelExposure, name: str, kind: str, uses: set[str]
) -> None:
    column = Column.of(exposure, name)
    assert column is not None
    assert column.kind == kind
    assert used_for(column) == uses
    assert not column.is_guarded


def test_a_column_with_an_attribute_in_its_place_is_used_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book, "pages", Replaced())
    caches = (Column.of.cache_clear, is_replaced.cache_clear)
    for clear in caches:
        clear()
    try:
        assert used_for(Column.of(ModelExposure(Book, SITE), "pages")) == set()
    finally:
        for clear in caches:
            clear()


@pytest.mark.django_db
def test_a_column_of_a_related_row_is_used_as_that_of_its_own_model() -> None:
    request = reader(make_superuser(), site_with(Book, Author))
    model = access_of(request).get_model("testapp.book")
    column = ColumnPath.read(model, "author.name").shown_column
    assert used_for(column) == {"countable", "comparable", "groupable"}
    assert column is not None
    assert (column.kind, column.path, column.is_guarded) == ("field", "author__name", False)


class OnlyAnn(ModelExposure):
    fields = ("id", "name")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(name="Ann")


@pytest.mark.django_db
def test_a_column_of_a_related_row_that_may_be_hidden_is_guarded() -> None:
    site = site_with(Book)
    site.register(Author, OnlyAnn)
    model = access_of(reader(make_superuser(), site)).get_model("testapp.book")
    column = ColumnPath.read(model, "author.name").shown_column
    assert column is not None
    assert (column.is_guarded, column.through, column.path[:8]) == (True, ("author",), "mcp_way_")
    assert used_for(column) == {"countable", "comparable", "groupable"}


@pytest.mark.django_db
@pytest.mark.parametrize("aggregate", ["count:extra", "sum:extra", "min:extra", "max:extra"])
def test_what_only_the_serializer_makes_is_refused_by_each_aggregate(aggregate: str) -> None:
    site = MCPSite()
    site.register(Book, Serialized)
    request = reader(make_superuser(), site)
    assert "has no field 'extra'" in refusal(AggregateRecords(), request, model="testapp.book", aggregates=[aggregate])


def test_a_predicate_is_asked_of_the_column_itself() -> None:
    # ``Column.is_countable`` as a value would not see that a class of columns overrides it.
    root = Path(mcp_django.__file__).parent
    found = [str(path) for path in root.rglob("*.py") if "Column.is_" in path.read_text()]
    assert not found
