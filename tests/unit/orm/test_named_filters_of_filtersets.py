"""Filters of django-filter: an exposure's `filterset_class`."""

from typing import Any

import django_filters
import pytest
from django.db.models import QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser, make_user
from tests.filterapp.filtersets import FilmFilterSet
from tests.filterapp.models import Film, Studio
from tests.library import reader
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
QUERY, DESCRIBE = QueryRecords(), DescribeModel()


class Mine(ModelExposure):
    fields = ("title", "year")
    filterset_class = FilmFilterSet

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(archived=False)


@pytest.fixture
def request_() -> Any:
    for number, title in enumerate(("alpha", "beta", "gamma ray burst", "delta", "archive of everything")):
        Film.objects.create(title=title, year=1986 + 2 * number, rating=number, archived=number == 4)
    site = MCPSite()
    site.register(Film, Mine)
    return reader(make_superuser(), site)


def titles(request: Any, filters: Any) -> list[str]:
    rows = call(QUERY, request, model="filterapp.film", filters=filters, fields=["title"], ordering="id")["rows"]
    return [row[1] for row in rows]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"title__istartswith": "A"}, ["alpha"]),
        ({"year__gt": 1989}, ["gamma ray burst", "delta"]),
        ({"year__gt": "1989"}, ["gamma ray burst", "delta"]),
        ({"rating_min": 1, "rating_max": 2}, ["beta", "gamma ray burst"]),
        ({"rating_min": 3}, ["delta"]),
        ({"years": [1986, 1988]}, ["alpha", "beta"]),
        ({"years": "1986,1992"}, ["alpha", "delta"]),
        ({"era": "old"}, ["alpha", "beta"]),
        ({"era": "since 1990"}, ["gamma ray burst", "delta"]),
        ({"long_title": True}, ["gamma ray burst"]),
        ({"long_title": True, "era": "old"}, []),
        ({"title": "beta"}, ["beta"]),
        ({"or": [{"era": "old", "rating_max": 0}, {"title": "delta"}]}, ["alpha", "delta"]),
        ({"not": {"rating_min": 1, "rating_max": 2}}, ["alpha", "delta"]),
        ({"and": [{"era": "new"}, {"not": {"long_title": True}}]}, ["delta"]),
    ],
)
def test_its_filters_narrow_the_callers_rows(request_: Any, filters: Any, found: list[str]) -> None:
    assert titles(request_, filters) == found


def test_a_filter_that_orders_is_none() -> None:
    class Ordering(django_filters.FilterSet):
        o = django_filters.OrderingFilter(fields=["year"])

    class Ordered(ModelExposure):
        fields = ("title", "year")
        filterset_class = Ordering

    site = MCPSite()
    site.register(Film, Ordered)
    request = reader(make_superuser(), site)
    assert "filters" not in call(DESCRIBE, request, model="filterapp.film")
    assert "no filter 'o'" in refusal(QUERY, request, model="filterapp.film", filters={"o": "-year"})


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"era": "future"}, "Valid: old, new"),
        ({"year__gt": "many"}, "Enter a number"),
        ({"rating_min": "x"}, "Enter a number"),
        ({"years": "x"}, "'years' does not take"),
        ({"rating": 5}, "has no filter"),
        ({"era": None}, "takes a text"),
        ({"era": {"in": ["old"]}}, "takes a text"),
        ({"year__gt": "1\x00"}, "takes a text"),
        ({"archived": True}, "has no filter"),
    ],
)
def test_rows_112_115_what_it_does_not_take_is_refused(request_: Any, filters: Any, text: str) -> None:
    message = refusal(QUERY, request_, model="filterapp.film", filters=filters)
    assert text in message
    assert "SELECT" not in message


def test_describe_model_names_its_filters(request_: Any) -> None:
    found = call(DESCRIBE, request_, model="filterapp.film", detail=True)["named_filters"]
    assert "era: era, one of old=Before 1990 | new=Since 1990" in found
    assert "long_title: Has a long title" in found
    assert any(line.startswith("rating_min: ") for line in found)
    assert not any(line.startswith("rating: ") for line in found)


def test_row_121_a_hidden_related_row_is_no_choice(request_: Any) -> None:
    class Some(ModelExposure):
        fields = ("name",)

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(name="Hidden")

    hidden, seen = Studio.objects.create(name="Hidden"), Studio.objects.create(name="Seen")
    Film.objects.filter(title="alpha").update(studio=hidden)
    Film.objects.filter(title="beta").update(studio=seen)
    assert titles(request_, {"studio": hidden.pk}) == ["alpha"]
    request_.mcp.site.register(Studio, Some)
    request = reader(make_superuser("other"), request_.mcp.site)
    assert titles(request, {"studio": seen.pk}) == ["beta"]
    told = refusal(QUERY, request, model="filterapp.film", filters={"studio": hidden.pk})
    missing = refusal(QUERY, request, model="filterapp.film", filters={"studio": 10**6})
    assert told == missing
    blind = reader(make_user("blind", "filterapp.view_film"), request_.mcp.site)
    assert refusal(QUERY, blind, model="filterapp.film", filters={"studio": seen.pk}) == missing
    described = call(DESCRIBE, request, model="filterapp.film", detail=True)["named_filters"]
    assert "Seen" not in str(described)


def test_the_values_of_one_object_are_read_together() -> None:
    class Strict(django_filters.FilterSet):
        year = django_filters.NumberFilter(required=True)
        title = django_filters.CharFilter()

        class Meta:
            model = Film
            fields: list[str] = []

    Film.objects.create(title="a", year=1)
    site = MCPSite()
    site.register(Film, ModelExposure, fields=["title"], filterset_class=Strict)
    request = reader(make_superuser(), site)
    assert titles(request, {"year": 1, "title": "a"}) == ["a"]
    assert "'year'" in refusal(QUERY, request, model="filterapp.film", filters={"title": "a"})


def test_the_class_is_left_as_it_is_for_others(request_: Any) -> None:
    titles(request_, {"era": "old", "years": [1986]})
    call(DESCRIBE, request_, model="filterapp.film", detail=True)
    assert not any(hasattr(item, "_field") for item in FilmFilterSet.base_filters.values())
    assert (
        str(FilmFilterSet(queryset=Film.objects.all()).form.fields["title__istartswith"].label) == "Title starts with"
    )
