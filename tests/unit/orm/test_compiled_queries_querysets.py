"""Plans of a project's own querysets: kept by their structure, with other values for each call, and never wrong."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm import compiled_queries
from mcp_django.orm.compiled_queries import MAX_LIST, shape_of
from mcp_django.orm.row_reading import read_page
from tests.factories import make_superuser, make_user
from tests.library import make_library, query_of, read, reader, shown
from tests.testapp.models import AudioBook, Author, Book, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

Rows = QuerySet[Any]
Narrow = Callable[[Rows, Any], Rows]


@pytest.fixture(autouse=True)
def no_plans() -> None:
    compiled_queries.clear()


@pytest.fixture
def library() -> list[Book]:
    return make_library(8, owner=make_user("ann"))


class Own(ModelExposure):
    """Whatever a test narrows the rows by."""

    fields = ("id", "title", "author", "pages", "status")
    narrow: Callable[[Rows], Rows]

    def get_queryset(self, request: MCPRequest) -> Rows:
        return type(self).narrow(super().get_queryset(request))


def exposure_of(model: Any, narrow: Callable[[Rows], Rows]) -> tuple[MCPRequest, ModelExposure]:
    site = MCPSite()
    site.register(model, type("Narrowed", (Own,), {"narrow": staticmethod(narrow)}))
    return reader(User.objects.get(username="ann"), site), site.exposures[model]


def pages(model: Any, narrow: Narrow, *values: Any) -> list[Any]:
    """Return the page for each of the values, of one exposure, after it was compared with the road without plans."""
    holder: list[Any] = []
    request, exposure = exposure_of(model, lambda rows: narrow(rows, holder[-1]))
    request.user.is_superuser = True
    found = []
    for value in values:
        holder.append(value)
        for options in ({}, {"limit": 1}, {"ordering": None, "limit": 2}):
            query = query_of(request, exposure, **options)
            planned, plain = (shown(read(query, road)) for road in ("plan", "tuples"))
            assert planned == plain
        after = planned[2][-1] if planned[2] else None
        if after is not None:
            query = query_of(request, exposure, after=after)
            assert shown(read(query, "plan")) == shown(read(query, "tuples"))
        found.append(shown(read(query_of(request, exposure), "plan"))[1])
    return found


KEPT: dict[str, tuple[Narrow, tuple[Any, ...]]] = {
    "number": (lambda rows, value: rows.filter(pages__gt=value), (0, 3, 6)),
    "between": (lambda rows, value: rows.filter(pages__gte=value[0], pages__lte=value[1]), ((0, 3), (2, 2))),
    "text": (lambda rows, value: rows.filter(title=value), ("Bøøk 0", "Bøøk 1", "x' OR '1'='1")),
    "choice": (lambda rows, value: rows.filter(status=value), (Book.Status.DRAFT, Book.Status.WITHDRAWN)),
    "list": (lambda rows, value: rows.filter(pages__in=value), ([1, 2, 2], [3, 4], {5, 6})),
    "not": (lambda rows, value: rows.exclude(title=value), ("Bøøk 0", "Bøøk 1")),
    "not, nullable": (lambda rows, value: rows.exclude(rating__lt=value), (0.5, 1.5)),
    "or": (lambda rows, value: rows.filter(Q(pages=value) | Q(owner=None, active=True)), (1, 3)),
    "owner": (lambda rows, value: rows.filter(owner__username=value), ("ann", "bob")),
    "relation": (lambda rows, value: rows.filter(author=value), (1, 2)),
    "relations": (lambda rows, value: rows.filter(author__in=value), ([1, 2], [3, 4])),
    "many": (lambda rows, value: rows.filter(tags__name=value).distinct(), ("tag 0", "tag 2")),
    "twice many": (
        lambda rows, value: rows.filter(tags__name=value[0]).filter(tags__name=value[1]),
        (("tag 0", "tag 1"), ("tag 1", "tag 2")),
    ),
    "day": (lambda rows, value: rows.filter(published__lt=value), (date(2024, 1, 3), date(2024, 1, 6))),
    "moment": (lambda rows, value: rows.filter(created__gte=value), (datetime(2020, 1, 1, tzinfo=UTC),) * 2),
    "price": (lambda rows, value: rows.filter(price__lte=value), (Decimal("9.90"), Decimal("1.5"))),
    "duration": (lambda rows, value: rows.filter(reading_time__gt=value), (timedelta(hours=1), timedelta(hours=4))),
    "flag": (lambda rows, value: rows.filter(active=True, rating__isnull=False, pages__gt=value), (0, 4)),
    "decorated": (
        lambda rows, value: rows.filter(pages__gt=value).select_related("author").only("title").order_by("-pages"),
        (0, 4),
    ),
    "chained": (lambda rows, value: rows.filter(pages__gt=value).filter(author__name__gt="A").exclude(pages=5), (0, 4)),
}


@pytest.mark.parametrize("name", KEPT)
def test_one_plan_serves_all_values_of_a_structure(library: list[Book], name: str) -> None:
    narrow, values = KEPT[name]
    if name in ("relation", "relations"):
        ids = [book.author_id for book in library]
        values = (ids[0], ids[1]) if name == "relation" else (ids[:2], ids[2:4])
    first, second, *_ = pages(Book, narrow, *values)
    assert first or second
    assert first != second or name in ("moment", "choice")
    shapes = [shape_of(narrow(Book.objects.all(), value), "default") for value in values[:2]]
    assert len({shape.key for shape in shapes if shape is not None}) == 1
    assert None not in shapes


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_is_part_of_the_structure(library: list[Book], value: bool) -> None:
    Book.objects.filter(pages__gt=4).update(active=False)
    first, second = pages(Book, lambda rows, flag: rows.filter(active=flag), value, not value)
    assert first
    assert second
    assert len(first) + len(second) == Book.objects.count()


def test_a_child_and_its_parent_are_read_as_their_rows_are_joined(library: list[Book]) -> None:
    assert pages(AudioBook, lambda rows, value: rows.filter(pages__gte=value, narrator="N"), 0, 1)[0]


UNKNOWN: dict[str, Callable[[Rows], Rows]] = {
    "pattern": lambda rows: rows.filter(title__icontains="bøøk"),
    "transform": lambda rows: rows.filter(published__year=2024),
    "expression": lambda rows: rows.filter(pages__gt=F("rating")),
    "annotation": lambda rows: rows.annotate(tagged=Count("tags")).filter(tagged__gt=0),
    "alias": lambda rows: rows.alias(tagged=Count("tags")).filter(tagged__gt=0),
    "subquery": lambda rows: rows.filter(author__in=Author.objects.filter(name__gt="Author 2")),
    "exists": lambda rows: rows.filter(Exists(Tag.objects.filter(books=OuterRef("pk")))),
    "not many": lambda rows: rows.exclude(tags__name="tag 0"),
    "extra": lambda rows: rows.extra(where=["pages > %s"], params=[2]),
    "range": lambda rows: rows.filter(pages__range=(1, 3)),
    "reversed": lambda rows: rows.filter(pages__gt=1).reverse(),
    "empty list": lambda rows: rows.filter(pages__in=[]),
    "long list": lambda rows: rows.filter(pages__in=range(MAX_LIST + 1)),
    "null in list": lambda rows: rows.filter(pages__in=[1, None]),
    "out of range": lambda rows: rows.filter(pages__gte=-1),
    "none": lambda rows: rows.none(),
    "json": lambda rows: rows.filter(data__ünï__0=1),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_compiled_for_each_call(library: list[Book], name: str) -> None:
    narrow = UNKNOWN[name]
    (found,) = pages(Book, lambda rows, value: narrow(rows), None)
    assert len(found) == narrow(Book.objects.all()).count()
    request, exposure = exposure_of(Book, narrow)
    assert shape_of(exposure.get_queryset(request), "default") is None
    assert not compiled_queries._plans


def test_what_takes_no_filters_has_no_shape() -> None:
    rows = Book.objects.order_by()
    for found in (rows[:3], rows.union(rows), rows.values("pk"), rows.select_for_update()):
        assert shape_of(found, "default") is None


class Choosy(QuerySet[Any]):
    """Decides by itself which rows there are."""

    def filter(self, *args: Any, **kwargs: Any) -> Any:
        return super().filter(*args, **kwargs).exclude(pages=3)


class Named(QuerySet[Any]):
    """Has a method of its own that decides nothing by itself."""

    def short(self) -> Any:
        return self.filter(pages__lt=3)


def test_a_queryset_class_that_decides_is_asked_each_time(library: list[Book]) -> None:
    assert shape_of(Choosy(Book).filter(pages__gt=1), "default") is None
    assert shape_of(Named(Book).short(), "default") is not None
    (found,) = pages(Book, lambda rows, value: Choosy(Book).filter(pages__gt=1), None)
    assert 3 not in [row[3] for row in found]


def test_each_caller_has_the_rows_of_its_own_call(library: list[Book]) -> None:
    users = [User.objects.get(username="ann"), make_superuser("bob")]
    Book.objects.filter(pages__lt=3).update(owner=users[1])

    class Mine(ModelExposure):
        fields = ("id", "title", "owner")

        def get_queryset(self, request: MCPRequest) -> Rows:
            return super().get_queryset(request).filter(owner=request.user)

    site = MCPSite()
    site.register(Book, Mine)
    exposure = site.exposures[Book]
    for user in users * 3:
        user.is_superuser = True
        request = reader(user, site)
        rows = shown(read_page(query_of(request, exposure)))[1]
        assert {row[0] for row in rows} == set(Book.objects.filter(owner=user).values_list("pk", flat=True))
        assert rows
    assert len(compiled_queries._plans) == 1
    (plan,) = compiled_queries._plans.values()
    assert not plan.has_own_params


def test_structures_that_differ_have_plans_of_their_own() -> None:
    rows = Book.objects.all()
    different = [
        rows.filter(pages__gt=1),
        rows.filter(pages__gte=1),
        rows.filter(pages__lt=1),
        rows.filter(rating__gt=1),
        rows.filter(pages__in=[1]),
        rows.filter(pages__in=[1, 2]),
        rows.exclude(pages__gt=1),
        rows.filter(pages__gt=1).distinct(),
        rows.filter(pages__gt=1, rating__gt=1),
        rows.filter(Q(pages__gt=1) | Q(rating__gt=1)),
        rows.filter(author__name="x"),
        rows.filter(author__secret_token="x"),
        rows.filter(owner__username="x"),
        rows.filter(tags__name="x"),
        rows.filter(Q(author__name="x") | Q(pages=1)),
        rows.filter(rating__isnull=True),
        rows.filter(rating__isnull=False),
        rows.filter(active=True),
        rows.filter(active=False),
        rows,
    ]
    shapes = [shape_of(found, "default") for found in different]
    assert None not in shapes
    assert len({shape.key for shape in shapes if shape is not None}) == len(different)
