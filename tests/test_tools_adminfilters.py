"""The filters of the admin's sidebar by name: the same rows as the admin's list, and no rows beyond the caller's."""

import logging
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from mcp_django import AdminExposure, MCPSite
from mcp_django.namedfilters import named_filters_of
from mcp_django.tools.models import DescribeModel
from mcp_django.tools.query import QueryRecords
from tests.factories import make_superuser, make_user
from tests.filterapp.admin import BrokenFilter, FilmAdmin, sidebar
from tests.filterapp.models import Film, Genre, Studio
from tests.reading import reader
from tests.writing import call, refusal

pytestmark = pytest.mark.django_db
QUERY, DESCRIBE = QueryRecords(), DescribeModel()
PERMISSIONS = ("filterapp.view_film", "filterapp.view_studio", "filterapp.view_genre")


@pytest.fixture
def films() -> list[Film]:
    """Films a to h of 1978 to 1992, the last one archived; two genres and a note here and there."""
    made = [
        Film.objects.create(
            title=title,
            year=1978 + 2 * number,
            released=f"{1978 + 2 * number}-0{number + 1}-15",
            rating=number + 2,
            note="root" if number % 3 == 0 else "",
            archived=title == "h",
            color=number % 2 == 0,
        )
        for number, title in enumerate("abcdefgh")
    ]
    genres = [Genre.objects.create(name=name) for name in ("noir", "neo-noir", "war")]
    made[1].genres.set(genres)
    made[2].genres.set(genres[2:])
    return made


@pytest.fixture
def root(films: Any) -> Any:
    return reader(make_superuser(), MCPSite(admin_site=sidebar))


@pytest.fixture
def member(films: Any) -> Any:
    return reader(make_user("member", *PERMISSIONS), MCPSite(admin_site=sidebar))


def titles(request: Any, filters: Any, **arguments: Any) -> str:
    found = call(
        QUERY,
        request,
        model="filterapp.film",
        filters=filters,
        fields=["title"],
        ordering="title",
        count=True,
        limit=50,
        **arguments,
    )
    assert found["count"] == len(found["rows"])
    return "".join(row[1] for row in found["rows"])


def admin_titles(user: Any, parameters: dict[str, str]) -> str:
    """Return what the admin's own list shows with these parameters in its address."""
    request = RequestFactory().get("/", parameters)
    request.user = user
    changelist = sidebar.get_model_admin(Film).get_changelist_instance(request)
    return "".join(sorted(film.title for film in changelist.get_queryset(request)))


@pytest.mark.parametrize(
    ("filters", "parameters"),
    [
        ({"decade": "80s"}, {"decade": "80s"}),
        ({"decade": "the Nineties"}, {"decade": "90s"}),
        ({"decade": "80s", "color": False}, {"decade": "80s", "color__exact": "0"}),
        ({"mine": "yes"}, {"mine": "yes"}),
        ({"genre_like": "noir"}, {"genre_like": "noir"}),
        ({"first": 2}, {"first": "2"}),
        ({"note__isempty": "1"}, {"note__isempty": "1"}),
        ({"note__isempty": "Not empty"}, {"note__isempty": "0"}),
        ({"rating_band": "high"}, {"rating_band": "high"}),
        ({"rating_band": "Low", "decade": "80s"}, {"rating_band": "low", "decade": "80s"}),
        ({"year": "old"}, {"year": "old"}),
        ({"released__year": 1984}, {"released__year": "1984"}),
        ({"released__year": 1984, "released__month": 4}, {"released__year": "1984", "released__month": "4"}),
    ],
)
def test_a_filter_by_name_finds_what_the_admins_list_shows(root: Any, filters: Any, parameters: Any) -> None:
    expected = admin_titles(root.user, parameters)
    # The admin gives a film of two genres twice.
    assert titles(root, filters) == "".join(sorted(set(expected)))
    assert expected


def test_named_filters_are_parts_of_expressions(root: Any) -> None:
    assert titles(root, {"or": [{"decade": "90s"}, {"title": "a"}]}) == "agh"
    assert titles(root, {"not": {"decade": "80s"}}) == "agh"
    assert titles(root, {"not": {"genre_like": "noir"}}) == "acdefgh"
    assert titles(root, {"or": [{"first": 2}, {"and": [{"decade": "80s"}, {"rating_band": "high"}]}]}) == "abf"
    assert titles(root, {"decade": "80s", "rating__gte": 5, "every": "row"}) == "def"


def test_a_field_wins_where_it_takes_the_value(root: Any) -> None:
    assert titles(root, {"year": 1980}) == "b"
    assert titles(root, {"year": "old", "year__gte": 1986}) == "ef"


def test_row_121_no_filter_reaches_beyond_the_callers_rows(member: Any) -> None:
    assert titles(member, {"every": "row"}) == "abcdefg"
    assert titles(member, {"not": {"every": "row"}}) == ""
    assert titles(member, {"or": [{"every": "row"}, {"decade": "90s"}]}) == "abcdefg"
    assert titles(member, {"first": "2", "rating__gte": 3}) == "b"


def test_the_choice_that_sets_no_parameter_is_none(root: Any) -> None:
    offers = {offer.name: offer for offer in named_filters_of(root, root.mcp.site.exposures[Film])}
    assert [value for value, _ in offers["note__isempty"].choices] == ["1", "0"]


def test_row_112_a_filter_without_output_for_the_caller_is_not_there(root: Any, member: Any) -> None:
    hidden = refusal(QUERY, member, model="filterapp.film", filters={"mine": "yes"})
    missing = refusal(QUERY, member, model="filterapp.film", filters={"wine": "yes"})
    assert hidden.replace("mine", "wine") == missing
    assert "decade" in missing
    assert {offer.name for offer in named_filters_of(root, root.mcp.site.exposures[Film])} == {
        *("decade", "mine", "genre_like", "every", "first", "year", "note__isempty", "rating_band")
    }


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"decade": "70s"}, "Valid: 80s, 90s"),
        ({"decade": ["80s", "90s"]}, "takes one value"),
        ({"decade": []}, "takes one value"),
        ({"decade": {"exact": "80s"}}, "takes a text"),
        ({"decade": None}, "takes a text"),
        ({"decade__in": ["80s"]}, "has no filter"),
        ({"genre_like": "x" * 201}, "at most 200 characters"),
        ({"genre_like": "a\0b"}, "at most 200 characters"),
        ({"first": "x"}, "does not take"),
        ({"rating_band": "middle"}, "Valid: high, low"),
        ({"studio__name__isempty": "1"}, "takes other lookups"),
    ],
)
def test_rows_115_116_a_wrong_value_is_refused_with_what_is_right(root: Any, filters: Any, text: str) -> None:
    message = refusal(QUERY, root, model="filterapp.film", filters=filters)
    assert text in message
    assert "SELECT" not in message


def test_row_118_named_filters_count_as_conditions(root: Any) -> None:
    filters = {"or": [{"decade": "80s"}] * 21}
    assert "at most 20" in refusal(QUERY, root, model="filterapp.film", filters=filters)


def test_describe_model_names_them_with_their_choices(root: Any, member: Any) -> None:
    found = call(DESCRIBE, root, model="filterapp.film", detail=True)["named_filters"]
    assert "decade: decade, one of 80s=the eighties | 90s=the nineties" in found
    assert "mine: mine, one of yes=of root" in found
    assert "genre_like: genre" in found
    assert "rating_band: rating, one of high | low" in found
    others = call(DESCRIBE, member, model="filterapp.film", detail=True)["named_filters"]
    assert not any("mine" in line for line in others)


def test_row_190_a_filter_that_fails_is_left_out_and_says_nothing(
    member: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilmAdmin, "list_filter", [*FilmAdmin.list_filter, BrokenFilter])
    with caplog.at_level(logging.WARNING, "mcp_django"):
        described = call(DESCRIBE, member, model="filterapp.film", detail=True)
    assert any(line.startswith("decade") for line in described["named_filters"])
    assert "secret" not in str(described)
    assert "secret" in caplog.text
    assert "secret" not in refusal(QUERY, member, model="filterapp.film", filters={"nono": 1})
    assert titles(member, {"decade": "90s"}) == "g"


def test_the_admins_own_verdict_about_lookups_counts(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def lookup_allowed(self: Any, lookup: str, value: str, request: Any = None) -> bool:
        asked.append((lookup, value))
        return lookup not in ("decade", "rating__lt", "title__in")

    monkeypatch.setattr(FilmAdmin, "lookup_allowed", lookup_allowed)
    assert "not allowed" in refusal(QUERY, root, model="filterapp.film", filters={"decade": "80s"})
    assert "has no filter" in refusal(QUERY, root, model="filterapp.film", filters={"or": [{"rating__lt": 5}]})
    assert "has no filter" in refusal(QUERY, root, model="filterapp.film", filters={"title": ["a", "b"]})
    assert titles(root, {"title": "a", "rating__gte": 1}) == "a"
    assert ("title__in", "a,b") in asked


def test_an_older_verdict_that_does_not_ask_for_the_request_counts(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilmAdmin, "lookup_allowed", lambda self, lookup, value: lookup == "title__exact")
    assert titles(root, {"title": "a"}) == "a"
    assert "has no filter" in refusal(QUERY, root, model="filterapp.film", filters={"rating": 5})


@pytest.mark.parametrize(("filters", "nested"), [({"decade": "80s"}, False), ({"genre_like": "noir"}, True)])
def test_a_filter_on_the_rows_own_columns_needs_no_subquery(root: Any, filters: Any, nested: bool) -> None:
    with CaptureQueriesContext(connection) as captured:
        titles(root, filters)
    assert any("IN (SELECT" in query["sql"] for query in captured) is nested


def test_an_exposure_that_names_its_fields_has_only_filters_that_it_names(films: Any) -> None:
    def site(**options: Any) -> MCPSite:
        site = MCPSite(admin_site=sidebar)
        site.unregister(Film)
        site.register(Film, AdminExposure, **options)
        return site

    for options in ({"fields": ["title"]}, {"filter_fields": {"title": ["exact"]}}):
        request = reader(make_superuser(str(options)), site(**options))
        assert named_filters_of(request, request.mcp.site.exposures[Film]) == []
        assert "has no filter" in refusal(QUERY, request, model="filterapp.film", filters={"decade": "80s"})
    request = reader(make_superuser(), site(filter_fields={"title": ["exact"], "decade": []}))
    assert titles(request, {"decade": "90s", "title": "g"}) == "g"


def test_fields_of_the_sidebar_are_filters_though_they_are_no_columns(root: Any) -> None:
    assert titles(root, {"color": False, "studio__country": ""}) == ""
    assert "has no filter" in refusal(QUERY, root, model="filterapp.film", filters={"archived": True})


def test_row_121_a_path_of_the_sidebar_does_not_tell_of_hidden_studios(member: Any, root: Any) -> None:
    hidden, seen = (Studio.objects.create(name=name, country="NL") for name in ("Hidden", "Seen"))
    Film.objects.filter(title="a").update(studio=hidden)
    Film.objects.filter(title="b").update(studio=seen)
    assert titles(root, {"studio__country": "NL"}) == "ab"
    assert titles(member, {"studio__country": "NL"}) == "b"
    assert titles(member, {"not": {"studio__country": "NL"}}) == "acdefg"


def test_a_plain_condition_does_not_ask_the_sidebar(root: Any) -> None:
    with CaptureQueriesContext(connection) as captured:
        titles(root, {"title": "a", "or": [{"color": True}, {"rating__gte": 3}]})
    assert len([query for query in captured if query["sql"].startswith("SELECT")]) == 2


def test_all_pages_of_a_named_filter_are_all_rows(root: Any) -> None:
    arguments: dict[str, Any] = {"model": "filterapp.film", "filters": {"decade": "80s"}, "fields": ["title"]}
    page = call(QUERY, root, **arguments, limit=2, ordering="-rating")
    rows = page["rows"]
    while "next_cursor" in page:
        page = call(QUERY, root, **arguments, limit=2, ordering="-rating", cursor=page["next_cursor"])
        rows = rows + page["rows"]
    assert [row[1] for row in rows] == list("fedcb")
    cursor = call(QUERY, root, **arguments, limit=2)["next_cursor"]
    other = {**arguments, "filters": {"decade": "90s"}, "limit": 2, "cursor": cursor}
    assert "not valid" in refusal(QUERY, root, **other)


def test_the_sidebar_is_a_site_of_its_own() -> None:
    assert not admin.site.is_registered(Film)
