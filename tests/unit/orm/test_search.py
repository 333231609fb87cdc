"""Search and conditions on querysets: as the admin's list does it, each row once, and none beyond the caller's."""

from typing import Any

import pytest
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.test import RequestFactory

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.path import guards_on, leads_to_hidden_rows
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser, make_user
from tests.filterapp.admin import FilmAdmin, sidebar
from tests.filterapp.models import Film, Genre, Studio
from tests.library import reader, site_with
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY = QueryRecords()
TERMS = (
    "solaris",
    "SOL",
    "sol sea",
    "'sol sea'",
    '"sea of sol"',
    '"sea of',
    "no-te",
    "note",
    "big",
    "Big Studio",
    "noir",
    "noir solaris",
    "1972",
    "197",
    "%",
    "_",
    "\\",
    "'",
    '"',
    '""',
    "ø",
    "sol\tsea",
    "  solaris  ",
    "a'b",
    "-1",
    "9" * 30,
)


@pytest.fixture
def films() -> None:
    studio = Studio.objects.create(name="Big Studio")
    genres = [Genre.objects.create(name=name) for name in ("noir", "neo noir", "solar")]
    made = [
        Film.objects.create(title=title, year=year, note=note, studio=studio if year > 1990 else None)
        for title, year, note in (
            ("Solaris", 1972, "note"),
            ("Solaris", 2002, "a note"),
            ("Sea of Sol", 1980, "100%"),
            ("sol sea", 1981, ""),
            ('Bøøk\'s "Sol"', 1993, "_"),
            ("a'b\\c", 1972, "no"),
        )
    ]
    made[0].genres.set(genres)
    made[4].genres.set(genres[:2])


def found(request: Any, **arguments: Any) -> list[str]:
    arguments = {"model": "filterapp.film", "fields": ["id"], "ordering": "id", "limit": 50, "count": True} | arguments
    page = call(QUERY, request, **arguments)
    assert page["count"] == len(page["rows"])
    return [row[0] for row in page["rows"]]


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(
    "fields",
    [
        FilmAdmin.search_fields,
        ["title"],
        ["^title", "=note"],
        ["=title", "studio__name"],
        ["genres__name"],
        ["year__exact", "pk"],
        ["title__startswith", "note__iexact"],
        ["year", "released"],
        ["genres__name__exact", "studio__name__endswith"],
    ],
    ids=lambda fields: " ".join(fields),
)
def test_a_search_finds_what_the_admins_list_shows(
    films: None, term: str, fields: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilmAdmin, "search_fields", fields)
    # What the page does not show is not searched.
    monkeypatch.setattr(FilmAdmin, "fields", [*FilmAdmin.fields, "note", "genres"])
    user = make_superuser()
    request = RequestFactory().get("/", {"q": term})
    request.user = user
    changelist = sidebar.get_model_admin(Film).get_changelist_instance(request)
    shown = sorted({film.pk for film in changelist.get_queryset(request)})
    assert found(reader(user, MCPSite(admin_site=sidebar)), search=term) == shown
    # An exposure without an admin searches by the same rules.
    assert found(reader(user, site_with(Film, search_fields=fields)), search=term) == shown


class OpenStudios(ModelExposure):
    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name__startswith="Secret")


class OpenGenres(ModelExposure):
    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="noir")


@pytest.mark.parametrize(
    ("field", "term", "hidden"),
    [
        ("studio__name", "dio", "cret"),
        ("=studio__name", "'big studio'", "'secret studio'"),
        ("studio__name__iexact", "'big studio'", "'secret studio'"),
        ("studio__name__istartswith", "big", "secret"),
        ("studio__name__icontains", "dio", "cret"),
        ("studio__name__exact", "'Big Studio'", "'Secret Studio'"),
        ("studio__name__startswith", "Big", "Secret"),
        ("studio__name__endswith", "'g Studio'", "'t Studio'"),
        ("studio__name__contains", "ig", "cret"),
        ("studio__name__regex", "^Big", "^Secret"),
        ("studio__budget__exact", "7", "8"),
        ("studio__budget__lte", "8", "4"),
        ("studio__owner__name__exact", "Owner", "'Secret Owner'"),
    ],
)
def test_a_search_field_with_a_lookup_finds_rows_by_those_that_are_not_hidden(
    films: None, field: str, term: str, hidden: str
) -> None:
    owner, other = Studio.objects.create(name="Owner"), Studio.objects.create(name="Secret Owner")
    Studio.objects.filter(name="Big Studio").update(budget=7, owner=owner)
    secret = Studio.objects.create(name="Secret Studio", budget=3 if "lte" in field else 8, owner=other)
    Film.objects.filter(title="Sea of Sol").update(studio=secret)
    user = make_superuser()
    assert len(found(reader(user, site_with(Film, Studio, search_fields=[field])), search=hidden)) == 1
    site = site_with(Film, search_fields=[field])
    site.register(Studio, OpenStudios)
    shown = Film.objects.filter(studio__name="Big Studio").order_by("pk").values_list("pk", flat=True)
    assert found(reader(user, site), search=term) == [*shown]
    assert found(reader(user, site), search=hidden) == []


def test_any_word_is_compared_with_a_number_of_rows_that_may_be_hidden(films: None) -> None:
    site = site_with(Film, search_fields=["studio__budget__exact"])
    site.register(Studio, OpenStudios)
    assert found(reader(make_superuser(), site), search="seven") == []


def test_a_search_through_many_rows_finds_by_those_that_are_not_hidden(films: None) -> None:
    site = site_with(Film, search_fields=["genres__name__exact", "genres__name__endswith"])
    site.register(Genre, OpenGenres)
    request = reader(make_superuser(), site)
    shown = Film.objects.filter(genres__name="neo noir").order_by("pk").values_list("pk", flat=True)
    assert found(request, search="'neo noir'") == found(request, search="noir") == [*shown]
    Genre.objects.filter(name="neo noir").delete()
    assert found(request, search="noir") == []


@pytest.mark.parametrize("field", ["studio__name", "studio__name__exact"])
def test_the_description_names_a_search_field_that_leads_where_the_caller_may_not_view(films: None, field: str) -> None:
    site = site_with(Film, search_fields=["title", field])
    site.register(Studio, fields=["name"])
    request = reader(make_user("reader", "filterapp.view_film"), site)
    described = call(DescribeModel(), request, model="filterapp.film", detail=True)
    assert described.get("not_searched") == ["studio"]


def test_row_133_a_word_that_a_search_field_cannot_take_is_refused(films: None) -> None:
    request = reader(make_superuser(), site_with(Film, search_fields=["title", "year__gte"]))
    assert len(found(request, search="1990")) == 2
    message = refusal(QUERY, request, model="filterapp.film", search="solaris")
    assert message == "The search does not take 'solaris'. Use filters instead."


def test_a_search_is_joined_with_filters_and_goes_on_over_pages(films: None) -> None:
    request = reader(make_superuser(), MCPSite(admin_site=sidebar))
    arguments: dict[str, Any] = {"model": "filterapp.film", "search": "o", "fields": ["title"], "ordering": "-year"}
    arguments["filters"] = {"or": [{"year__lt": 1981}, {"decade": "90s"}], "not": {"note": "no"}}
    page = call(QUERY, request, **arguments, limit=1)
    rows = page["rows"]
    while "next_cursor" in page:
        page = call(QUERY, request, **arguments, limit=1, cursor=page["next_cursor"])
        rows = rows + page["rows"]
    assert [row[1] for row in rows] == ['Bøøk\'s "Sol"', "Sea of Sol", "Solaris"]


class Some(ModelExposure):
    fields = ("id", "title", "year")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(title="Solaris")


@pytest.mark.parametrize(
    "results",
    [
        lambda films: Film.objects.filter(year__gte=1972),
        lambda films: films | Film.objects.filter(title="Solaris"),
        lambda films: films.distinct(),
        lambda films: films.filter(genres__name__contains="o").distinct(),
        lambda films: films.union(Film.objects.filter(title="Solaris")),
        lambda films: films.order_by("year")[:3],
        lambda films: films.filter(genres__name__contains="noir"),
        lambda films: films.filter(pk__in=[film.pk for film in films]),
    ],
    ids=["other", "joined-by-or", "distinct", "repeated-distinct", "union", "sliced", "repeated", "evaluated"],
)
def test_row_121_a_search_of_the_projects_own_gives_each_of_the_callers_rows_once(films: None, results: Any) -> None:
    def get_search_results(self: Any, request: MCPRequest, queryset: QuerySet[Any], term: str) -> Any:
        return results(queryset), term == "twice"

    exposure = type("Own", (Some,), {"get_search_results": get_search_results, "search_fields": ["title"]})
    site = MCPSite()
    site.register(Film, exposure)
    request = reader(make_superuser(), site)
    titles = {
        row[1]
        for term in ("x", "twice")
        for row in call(
            QUERY, request, model="filterapp.film", search=term, filters={"year__lte": 2000}, fields=["title"], limit=50
        )["rows"]
    }
    assert titles
    assert "Solaris" not in titles
    narrow: dict[str, Any] = {"model": "filterapp.film", "search": "x", "filters": {"year__lte": 2000}}
    counted = call(AggregateRecords(), request, **narrow, group_by=["title"], aggregates=["count"])["rows"]
    assert [count for _, count in counted] == [1] * len(counted)
    hidden = Film.objects.filter(title="Solaris").values_list("pk", flat=True)
    assert not set(found(request, search="twice")) & set(hidden)


def test_the_admin_of_the_comparison_is_djangos() -> None:
    assert FilmAdmin.get_search_results is ModelAdmin.get_search_results


def test_a_path_knows_whether_rows_on_its_way_may_be_hidden() -> None:
    site = site_with(Film)
    request = reader(make_user("u", "filterapp.view_film"), site)
    for path in ("title", "studio_id", "studio__name"):
        assert not leads_to_hidden_rows(access_of(request), Film, path)
        assert guards_on(access_of(request), Film, path) == ()
    site.register(Studio, ModelExposure, fields=["name"])
    request = reader(request.user, site)
    assert guards_on(access_of(request), Film, "studio__name") is None
    assert guards_on(access_of(request), Film, "studio_id") == ()
    allowed = reader(make_superuser(), site)
    assert not leads_to_hidden_rows(access_of(allowed), Film, "studio__owner__name")
    admins = reader(make_superuser("other"), MCPSite(admin_site=sidebar))
    assert leads_to_hidden_rows(access_of(admins), Film, "studio__owner__name")
