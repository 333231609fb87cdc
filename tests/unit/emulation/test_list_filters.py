"""The filters of the admin's sidebar by name: the same rows as the admin's list, and no rows beyond the caller's."""

import logging
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F, QuerySet
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from mcp_django import AdminExposure, MCPSite
from mcp_django.orm.access import access_of
from mcp_django.orm.named_filters import NamedFilter
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import DeleteRecord
from tests.factories import make_superuser, make_user
from tests.filterapp.admin import BrokenFilter, FilmAdmin, sidebar
from tests.filterapp.models import Film, Genre, Studio
from tests.library import reader
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY, DESCRIBE, AGGREGATE, GET = QueryRecords(), DescribeModel(), AggregateRecords(), GetRecord()
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


class NoteFilter(admin.SimpleListFilter):
    """Bears the name of a text field, and has choices that are not what the field holds."""

    title = parameter_name = "note"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", "Has a note"), ("0", "Has none")]

    def queryset(self, request: Any, queryset: QuerySet[Film]) -> QuerySet[Film]:
        found = {"1": queryset.exclude(note=""), "0": queryset.filter(note="")}
        return found.get(self.value() or "", queryset)


class NotesFilter(NoteFilter):
    """Makes its choices of rows."""

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", f"Has one of {len(Film.objects.all())}")]


class AnyNoteFilter(NoteFilter):
    """Has an input field of its own: any text."""

    def lookups(self, request: Any, model_admin: Any) -> Any:
        return ((),)


class FailingNoteFilter(NoteFilter):
    def lookups(self, request: Any, model_admin: Any) -> Any:
        raise RuntimeError("SELECT secret")


def test_a_text_that_is_a_choice_is_the_filters_though_a_field_has_its_name(films: Any) -> None:
    request, _ = opened(NoteFilter, fields=["title", "note"])
    assert titles(request, {"note": "1"}) == titles(request, {"note": "Has a note"}) == "adg"
    assert titles(request, {"not": {"note": "1"}}) == "bcefh"
    assert titles(request, {"note": "root"}) == titles(request, {"note__startswith": "ro"}) == "adg"
    assert titles(request, {"note": {"exact": "1"}}) == titles(request, {"note": ["1", "0"]}) == ""


@pytest.mark.parametrize(("entry", "found"), [(NotesFilter, "adg"), (AnyNoteFilter, ""), (FailingNoteFilter, "")])
def test_a_filter_with_a_fields_name_has_its_choices_and_no_other_text(films: Any, entry: Any, found: str) -> None:
    request, _ = opened(entry, fields=["title", "note"])
    assert titles(request, {"note": "1"}) == found
    assert titles(request, {"note": "root"}) == "adg"


class MadeFilter(admin.SimpleListFilter):
    """Makes its choices of the years of all rows, and one of none."""

    title = parameter_name = "made"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        years = [*Film.objects.order_by("year").values_list("year", flat=True)[:2], 1900]
        return [(str(year), f"In {year}") for year in years]

    def queryset(self, request: Any, queryset: QuerySet[Film]) -> QuerySet[Film]:
        return queryset.filter(year=int(self.value() or 0)) if self.value() else queryset


def test_choices_made_of_rows_are_told_where_they_find_rows(films: Any) -> None:
    request, _ = opened(MadeFilter)
    lines = call(DESCRIBE, request, model="filterapp.film", detail=True)["named_filters"]
    assert "made: made, one of 1978=In 1978 | 1980=In 1980" in lines


def test_row_121_no_filter_reaches_beyond_the_callers_rows(member: Any) -> None:
    assert titles(member, {"every": "row"}) == "abcdefg"
    assert titles(member, {"not": {"every": "row"}}) == ""
    assert titles(member, {"or": [{"every": "row"}, {"decade": "90s"}]}) == "abcdefg"
    assert titles(member, {"first": "2", "rating__gte": 3}) == "b"


def test_the_choice_that_sets_no_parameter_is_none(root: Any) -> None:
    offers = {offer.name: offer for offer in NamedFilter.offers_of(access_of(root)[root.mcp.site.exposures[Film]])}
    assert [value for value, _ in offers["note__isempty"].choices] == ["1", "0"]


def test_row_112_a_filter_without_output_for_the_caller_is_not_there(root: Any, member: Any) -> None:
    hidden = refusal(QUERY, member, model="filterapp.film", filters={"mine": "yes"})
    missing = refusal(QUERY, member, model="filterapp.film", filters={"wine": "yes"})
    assert hidden.replace("mine", "wine") == missing
    assert "decade" in missing
    assert {offer.name for offer in NamedFilter.offers_of(access_of(root)[root.mcp.site.exposures[Film]])} == {
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
        ({"studio": []}, "with in needs a list of 1 to 100 values"),
        ({"studio__in": []}, "with in needs a list of 1 to 100 values"),
        ({"decade__in": ["80s"]}, "has no filter"),
        ({"genre_like": "x" * 201}, "at most 200 characters"),
        ({"genre_like": "a\0b"}, "at most 200 characters"),
        ({"first": "x"}, "does not take"),
        ({"rating_band": "middle"}, "Valid: high, low"),
        ({"studio__name__isempty": "1"}, "studio__name is a text, not a relation"),
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
        assert NamedFilter.offers_of(access_of(request)[request.mcp.site.exposures[Film]]) == []
        assert "has no filter" in refusal(QUERY, request, model="filterapp.film", filters={"decade": "80s"})
    request = reader(make_superuser(), site(filter_fields={"title": ["exact"], "decade": []}))
    assert titles(request, {"decade": "90s", "title": "g"}) == "g"


def test_fields_of_the_sidebar_are_filters_though_they_are_no_columns(root: Any) -> None:
    assert titles(root, {"color": False, "studio__country": ""}) == ""
    assert "has no filter" in refusal(QUERY, root, model="filterapp.film", filters={"archived": True})


def test_a_path_of_the_sidebar_leads_to_a_field_that_is_on_no_page_of_its_model(films: Any) -> None:
    class StudioAdmin(admin.ModelAdmin):
        fields = ["name"]

    studio = Studio.objects.create(name="S", country="NL", budget=3)
    Film.objects.filter(title="b").update(studio=studio)
    user = make_superuser()
    for entry in ("studio__country", ("studio__country", admin.AllValuesFieldListFilter)):
        admin_site = admin.AdminSite("paths")
        options = {"list_display": ["title"], "list_filter": [entry]}
        admin_site.register(Film, type("PathAdmin", (admin.ModelAdmin,), options))
        admin_site.register(Studio, StudioAdmin)
        request = reader(user, MCPSite(admin_site=admin_site))
        assert titles(request, {"studio__country": "NL"}) == "b"
        assert "has no filter" in refusal(QUERY, request, model="filterapp.film", filters={"studio__budget": 3})


@pytest.mark.parametrize("name", ["studio__country", "studio__nothing", "studio__owner__name", "studio__budget__gt"])
def test_a_relation_to_rows_that_the_caller_cannot_see_says_so_whatever_is_asked(films: Any, name: str) -> None:
    request = reader(make_user("viewer", "filterapp.view_film"), MCPSite(admin_site=sidebar))
    message = refusal(QUERY, request, model="filterapp.film", filters={name: "NL"})
    assert f"has no filter '{name}'" in message
    assert message.endswith("You cannot see the rows that studio leads to: filter by their keys.")
    assert titles(request, {"studio__isnull": True}) == "abcdefg"


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


class ArchivedFilter(admin.SimpleListFilter):
    """Leaves rows out until something is chosen."""

    title = "archived"
    parameter_name = "archive"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [("only", "Archived"), ("all", "All")]

    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "all":
            return queryset
        return queryset.filter(archived=self.value() == "only")


class FirstChoiceFilter(ArchivedFilter):
    """Takes its default from its choices."""

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [("none", "Not archived"), ("only", "Archived"), ("all", "All")]

    def value(self) -> str | None:
        return super().value() or self.lookup_choices[0][0]


class OwnInitFilter(ArchivedFilter):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.used_parameters.setdefault("archive", "none")


class UnseenFilter(ArchivedFilter):
    """Has no choices for anybody: the admin leaves it out."""

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return []


class ArchivedFieldFilter(admin.BooleanFieldListFilter):
    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = super().queryset(request, queryset)
        return found if self.used_parameters else found.filter(archived=False)


class BrokenOpeningFilter(ArchivedFilter):
    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        raise RuntimeError("SELECT secret")


def opened(*list_filter: Any, **options: Any) -> Any:
    """Return a request for an admin of films with this sidebar, and the admin."""
    admin_site = admin.AdminSite("opened")
    options = {"list_display": ["title"], "list_filter": list_filter, **options}
    admin_site.register(Film, type("OpenedAdmin", (admin.ModelAdmin,), options))
    for model in (Studio, Genre):
        admin_site.register(model)
    user = User.objects.filter(is_superuser=True).first() or make_superuser()
    return reader(user, MCPSite(admin_site=admin_site)), admin_site.get_model_admin(Film)


def first_page(request: Any, model_admin: Any) -> str:
    """Return the titles of the page that a browser gets first."""
    opening = RequestFactory().get("/")
    opening.user = request.user
    return "".join(sorted(film.title for film in model_admin.get_changelist_instance(opening).result_list))


@pytest.mark.parametrize(
    "entry",
    [ArchivedFilter, FirstChoiceFilter, OwnInitFilter, UnseenFilter, ("archived", ArchivedFieldFilter)],
    ids=["simple", "first choice", "own init", "unseen", "of a field"],
)
def test_rows_are_those_of_the_admins_first_page_until_something_is_chosen(films: Any, entry: Any) -> None:
    request, model_admin = opened(entry)
    shown = first_page(request, model_admin)
    assert shown == ("abcdefgh" if entry is UnseenFilter else "abcdefg")
    page = call(QUERY, request, model="filterapp.film", fields=["title"], ordering="title", count=True)
    assert "".join(row[1] for row in page["rows"]) == shown
    assert page["count"] == len(shown)
    assert ("applies by default" in page.get("hint", "")) is (entry is not UnseenFilter)
    assert titles(request, {"year__gte": 1980}) == shown[1:]
    assert titles(request, {"or": [{"title": "a"}, {"title": "h"}]}) == shown[::7]
    totals = call(AGGREGATE, request, model="filterapp.film")
    assert totals["rows"] == [[len(shown)]]
    assert ("applies by default" in totals.get("hint", "")) is (entry is not UnseenFilter)
    if entry is UnseenFilter:
        return
    for filters, found in (
        ({"archive": "all"}, "abcdefgh"),
        ({"archive": "only"}, "h"),
        ({"or": [{"archive": "Archived"}, {"title": "a"}]}, "ah"),
    ):
        if not isinstance(entry, tuple):
            assert titles(request, filters) == found
    # One row is there for who knows its key, as the admin's page of it is.
    assert call(GET, request, model="filterapp.film", pk=Film.objects.get(title="h").pk)["fields"]["title"] == "h"


def test_pages_go_on_as_the_list_was_opened(films: Any) -> None:
    request, _ = opened(ArchivedFilter)
    asked = {"model": "filterapp.film", "fields": ["title"], "ordering": ["-title"], "limit": 3}
    page, found = call(QUERY, request, **asked), ""
    while True:
        found += "".join(row[1] for row in page["rows"])
        if "next_cursor" not in page:
            break
        page = call(QUERY, request, **asked, cursor=page["next_cursor"])
    assert found == "gfedcba"


def test_a_write_of_all_rows_that_match_leaves_out_what_the_list_leaves_out(films: Any) -> None:
    request, _ = opened(ArchivedFilter)
    asked: dict[str, Any] = {"model": "filterapp.film", "filters": {"year__gte": 1990}}
    assert [film.title for film in films if film.year >= 1990] == ["g", "h"]
    preview = call(DeleteRecord(), request, **asked)
    call(DeleteRecord(), request, **asked, confirm_token=preview["confirm_token"])
    assert set(Film.objects.values_list("title", flat=True)) == set("abcdefh")
    asked["filters"]["archive"] = "all"
    preview = call(DeleteRecord(), request, **asked)
    call(DeleteRecord(), request, **asked, confirm_token=preview["confirm_token"])
    assert set(Film.objects.values_list("title", flat=True)) == set("abcdef")


def test_filters_that_narrow_by_nothing_cost_no_query(films: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Choosing(ArchivedFilter):
        def lookups(self, request: Any, model_admin: Any) -> Any:
            return [(film.title, film.title) for film in Film.objects.all()]

        def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(title=self.value()) if self.value() else queryset

    costs = []
    for sidebar_of in ((), (Choosing, "year", "studio__name", ("studio", admin.RelatedOnlyFieldListFilter))):
        request, _ = opened(*sidebar_of)
        call(QUERY, request, model="filterapp.film", fields=["title"])
        with CaptureQueriesContext(connection) as queries:
            assert call(QUERY, request, model="filterapp.film", fields=["title"])["returned"] == 8
        costs.append(len(queries))
    assert costs[0] == costs[1]


def test_a_filter_that_fails_while_nothing_is_chosen_narrows_nothing(films: Any, caplog: Any) -> None:
    request, _ = opened(BrokenOpeningFilter)
    assert titles(request, None) == "abcdefgh"
    assert "A filter of the admin" in caplog.text


def test_a_path_of_the_sidebar_is_open_though_its_relation_is_no_column(films: Any) -> None:
    Film.objects.filter(title__in="ab").update(studio=Studio.objects.create(name="Big", country="at"))
    request, _ = opened("studio__country", "genres__name", fields=["title"])
    assert titles(request, {"studio__country": "at"}) == "ab"
    assert titles(request, {"genres__name": "noir"}) == "b"
    for closed in ("studio__name", "studio", "genres", "studio__owner__name"):
        assert "has no filter" in refusal(QUERY, request, model="filterapp.film", filters={closed: "x"})
    described = str(call(DESCRIBE, request, model="filterapp.film", detail=True))
    assert "studio__country" in described
    member = reader(make_user("m", "filterapp.view_film"), request.mcp.site)
    assert "has no filter" in refusal(QUERY, member, model="filterapp.film", filters={"studio__country": "at"})


class PreparedList(ChangeList):
    def get_queryset(self, request: Any, *arguments: Any, **options: Any) -> QuerySet[Any]:
        return super().get_queryset(request, *arguments, **options).annotate(twice=F("year") * 2)


class PreparedAdmin(admin.ModelAdmin):
    """Prepares what its columns show, and makes columns for each request."""

    list_per_page = 2

    def get_changelist(self, request: Any, **options: Any) -> Any:
        return PreparedList

    def get_changelist_instance(self, request: Any) -> Any:
        listed = super().get_changelist_instance(request)
        self.places = {film.pk: f"{film.title}!" for film in listed.result_list}
        return listed

    def place(self, film: Film) -> str:
        return self.places[film.pk]

    def doubled(self, film: Any) -> int:
        return film.twice

    def get_list_display(self, request: Any) -> Any:
        name = request.user.get_username()

        def greeting(film: Film) -> str:
            return f"{film.title} for {name}"

        @admin.display(boolean=True)
        def is_old(film: Film) -> int:
            return 1 if film.year < 1980 else 0

        return ["title", "place", "doubled", greeting, is_old]


def test_columns_are_prepared_and_made_for_each_request_as_for_the_admins_list(films: Any) -> None:
    admin_site = admin.AdminSite("prepared")
    admin_site.register(Film, PreparedAdmin)
    site = MCPSite(admin_site=admin_site)
    users = make_superuser(), make_user("member", *PERMISSIONS)
    fields = ["title", "place", "doubled", "greeting", "is_old"]
    for user in users:
        page = call(QUERY, reader(user, site), model="filterapp.film", fields=fields, ordering="title")
        expected = [
            [film.title, f"{film.title}!", film.year * 2, f"{film.title} for {user}", film.year < 1980]
            for film in films
        ]
        assert [row[1:] for row in page["rows"]] == expected
        assert "hint" not in page
        found = call(GET, reader(user, site), model="filterapp.film", pk=films[1].pk)["fields"]
        assert [found[name] for name in fields] == expected[1]


def test_a_list_that_cannot_be_prepared_costs_its_columns_alone(films: Any) -> None:
    class Failing(PreparedAdmin):
        def get_changelist_instance(self, request: Any) -> Any:
            raise RuntimeError("prepared by a view of its own")

    admin_site = admin.AdminSite("failing")
    admin_site.register(Film, Failing)
    request = reader(make_superuser(), MCPSite(admin_site=admin_site))
    page = call(QUERY, request, model="filterapp.film", fields=["title", "doubled"], ordering="title")
    assert [row[1:] for row in page["rows"]] == [[film.title, None] for film in films]
