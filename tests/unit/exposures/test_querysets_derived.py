"""The rows of a query as a table: they are filtered, sorted, grouped and joined like those of any table."""

import pytest
from django.core.exceptions import EmptyResultSet
from django.db.models import Count, Q

from mcp_django.exposures.querysets import DerivedTable, leaves_out_nothing
from tests.factories import make_author
from tests.testapp.models import Author, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def authors():
    for name in ("Ada", "Ben", "Cid"):
        make_author(name, email=f"{name}@example.com")


def columns(queryset):
    return list(queryset.order_by("name").values_list("name", flat=True))


def derived_names(**conditions):
    return DerivedTable.queryset(Tag, Author.objects.order_by().filter(**conditions).values("id", "name"))


def test_conditions_and_groups_are_the_databases():
    names = derived_names(name__lt="Cid")
    assert columns(names) == ["Ada", "Ben"]
    assert columns(names.filter(Q(name="Ben") | Q(name="Cid"))) == ["Ben"]
    assert list(names.values_list("name").annotate(number=Count("pk")).order_by("-name")) == [("Ben", 1), ("Ada", 1)]
    assert names.aggregate(number=Count("pk")) == {"number": 2}


def test_they_stand_in_subqueries_under_another_alias():
    names = derived_names(name__lt="Cid")
    assert columns(derived_names().filter(pk__in=names.filter(name="Ben").values("pk"))) == ["Ben"]
    assert Author.objects.filter(pk__in=names.values("pk")).count() == 2


def test_none_are_none():
    none = derived_names(pk__in=[])
    assert columns(none) == []
    assert none.aggregate(number=Count("pk")) == {"number": 0}
    with pytest.raises(EmptyResultSet):
        str(none.query)


def test_they_are_never_taken_for_the_whole_table():
    assert not leaves_out_nothing(derived_names())


def test_they_are_told_from_the_rows_of_a_table():
    assert DerivedTable.is_in(derived_names())
    assert DerivedTable.is_in(derived_names().filter(name="Ben"))
    assert not DerivedTable.is_in(Author.objects.filter(pk__in=derived_names().values("pk")))
