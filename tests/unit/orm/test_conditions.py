"""Filters as an expression: what is in it, its order, and what a cursor is bound to."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.models import F, Q

from mcp_django import ToolError
from mcp_django.context.databases import LocalTimes
from mcp_django.orm.access import access_of
from mcp_django.orm.columns import Column
from mcp_django.orm.conditions import (
    Applied,
    Comparison,
    Condition,
    Filter,
    Junction,
    check_patterns,
    condition_hints,
    conditions_of,
    filtered,
    in_fixed_order,
    is_moving,
    is_part_of,
    plannable_params,
)
from mcp_django.orm.fields import resolve_path
from mcp_django.orm.lookups import parse_condition
from mcp_django.orm.named_filters import NamedFilter
from mcp_django.orm.path import Target
from tests.factories import make_superuser
from tests.filterapp.models import Film, Genre, Studio
from tests.tool_calls import request_of, site_with

pytestmark = pytest.mark.postgresql

SITE = site_with(Film)
NOW = datetime(2026, 1, 31, tzinfo=UTC)
LATER = datetime(2026, 2, 28, tzinfo=UTC)


def condition(text: str, lookup: str, value: Any, now: datetime = NOW) -> Condition:
    path = resolve_path(Film, text)
    assert path is not None
    return parse_condition(path, lookup, value, now)


def some(source: Any = None) -> Applied:
    return Applied(source, {"decade": ("80s",), "band": ("high", "low")})


def test_the_ends_of_an_expression_are_its_conditions() -> None:
    one, other = condition("title", "exact", "a"), condition("rating", "gte", 1)
    tree = (Junction("or", (one, Junction("not", (other,)))), some())
    assert list(conditions_of(tree)) == [one, other, some()]


def test_only_relative_dates_move() -> None:
    moving = condition("released", "exact", "last 30 days")
    assert is_moving([Junction("not", (Junction("or", (condition("title", "exact", "a"), moving)),))])
    assert is_moving([condition("released", "in", ["2026-01-01", "today"])])
    assert not is_moving([condition("released", "exact", "2026-01-31"), some()])


def test_the_wording_of_a_relative_date_does_not_change_with_the_clock() -> None:
    now, later = (condition("shown", "gte", "today-30d", moment) for moment in (NOW, LATER))
    assert now.values != later.values
    assert now.wording() == later.wording() == ["shown", "gte", ["today-30d"]]
    fixed = [condition("shown", "gte", day).wording() for day in ("2026-01-01", "2026-01-02")]
    assert fixed[0] != fixed[1]


def test_different_expressions_have_different_wordings() -> None:
    one, other = condition("title", "exact", "a"), condition("title", "exact", "b")
    shapes = [
        (one,),
        (one, other),
        (Junction("or", (one, other)),),
        (Junction("and", (one, other)),),
        (Junction("not", (one,)),),
        (Junction("not", (Junction("not", (one,)),)),),
        (some(),),
        (Applied(some().source, {"decade": ("80s", "band", "high", "low")}),),
    ]
    assert len({str([item.wording() for item in shape]) for shape in shapes}) == len(shapes)


def test_the_order_is_that_of_the_wording_and_not_of_the_client() -> None:
    source: NamedFilter | None = None
    parts = [condition("title", "exact", "a"), some(source), Junction("or", (condition("year", "gt", 1),))]
    assert in_fixed_order(parts) == in_fixed_order(parts[::-1])


def test_a_condition_of_the_project_has_no_plan() -> None:
    assert not some().is_plannable
    assert some().shape() == ()
    assert some().params("default") == []


def test_a_question_for_nothing_has_no_value_to_bind() -> None:
    missing = condition("note", "isnull", True)
    assert missing.places == 0
    assert missing.shape() == ("note", "isnull", True)


def test_conditions_on_related_rows_are_left_out_where_only_a_rows_own_count() -> None:
    inner = condition("rating", "gte", 1)
    column = Column.of(SITE.exposures[Film], "rating")
    assert column is not None
    target = Target("rating", column, F("rating"))
    comparison = Comparison(target, "lt", target, (inner,))
    assert comparison.wording() == ["rating", "lt", "rating", ["rating", "gte", ["1"]]]
    tree = [Junction("and", (comparison, some()))]
    assert list(conditions_of(tree)) == [inner, some()]
    assert list(conditions_of(tree, related=False)) == [some()]


@pytest.mark.django_db
def test_a_text_with_a_hidden_part_is_not_among_those_that_are_found() -> None:
    secret = "https://ann:s3cret@shop.example"
    for title in (secret, "Solaris", "Stalker"):
        Film.objects.create(title=title, studio=Studio.objects.create(name="Mosfilm"))
    model = access_of(request_of(make_superuser(), SITE))[SITE.exposures[Film]]
    for lookup, values, expected in (
        ("in", (secret, "Solaris"), ["Solaris"]),
        ("in", (secret,), []),
        ("exact", (secret,), []),
    ):
        path = resolve_path(Film, "title")
        assert path is not None
        conditions = [Condition(path, lookup, values)]
        found = filtered(model, Film.objects.all(), conditions, values)
        assert [film.title for film in found] == expected


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="The server of the database matches the pattern.")
def test_a_costly_pattern_is_refused_before_it_is_matched() -> None:
    path = resolve_path(Film, "title")
    assert path is not None
    costly = Junction("not", (Condition(path, "regex", ("(a+)+$",)),))
    model = access_of(request_of(make_superuser(), SITE))[SITE.exposures[Film]]
    with pytest.raises(ToolError, match="simple regular expressions"):
        filtered(model, Film.objects.all(), [costly], [])


@pytest.mark.django_db
def test_links_to_a_model_that_the_caller_may_not_view_are_found_by_nothing() -> None:
    film = Film.objects.create(title="Solaris")
    film.genres.add(Genre.objects.create(name="science fiction"))
    path = resolve_path(Film, "genres")
    assert path is not None
    for models, expected in (((Film, Genre), 1), ((Film,), 0)):
        own = site_with(*models)
        model = access_of(request_of(make_superuser(own.name + str(expected)), own))[own.exposures[Film]]
        found = filtered(model, Film.objects.all(), [Condition(path, "in", (film.genres.get().pk,))], [])
        assert found.count() == expected


def test_rows_of_a_join_may_be_there_twice() -> None:
    joined = Film.objects.filter(genres__name="science fiction")
    assert not is_part_of(joined, Film.objects.all())
    assert is_part_of(joined, Film.objects.all(), joins=True)
    assert is_part_of(Film.objects.filter(title="Solaris"), Film.objects.all())
    assert not is_part_of(Film.objects.distinct(), Film.objects.all())


@pytest.mark.django_db
class TestRows:
    """Rows that conditions find, here without a tool."""

    def found(self, *conditions: Filter) -> list[str]:
        own = site_with(Film, Genre, Studio)
        model = access_of(request_of(make_superuser(), own))[own.exposures[Film]]
        params = plannable_params(conditions, "default")
        return sorted(film.title for film in filtered(model, Film.objects.all(), conditions, params))

    def test_the_case_of_a_text_may_not_matter(self) -> None:
        Film.objects.create(title="Solaris")
        assert self.found(condition("title", "iexact", "SOLARIS")) == ["Solaris"]

    def test_a_value_behind_a_hidden_row_is_missing(self) -> None:
        for title, name in (("Solaris", "Mosfilm"), ("Alien", "hidden")):
            Film.objects.create(title=title, studio=Studio.objects.create(name=name, country="x"))
        path = resolve_path(Film, "studio__country")
        assert path is not None
        guarded = replace(path, guards=(Q(studio__name="Mosfilm"),), nullable=True)
        assert self.found(Condition(guarded, "isnull", (True,))) == ["Alien"]

    def test_links_are_denied_for_each_row(self) -> None:
        for title in ("Solaris", "Alien"):
            Film.objects.create(title=title).genres.add(Genre.objects.create(name=title))
        path = resolve_path(Film, "genres")
        assert path is not None
        linked = Condition(path, "in", (Genre.objects.get(name="Alien").pk,))
        assert self.found(Junction("not", (linked,))) == ["Solaris"]


def test_rows_of_either_of_two_queries_are_no_part_of_one() -> None:
    older, newer = Film.objects.filter(year=1972), Film.objects.filter(year=1979)
    assert not is_part_of(older | newer, older)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="The server of the database matches the pattern.")
def test_a_query_without_rows_matches_no_pattern() -> None:
    check_patterns(Film.objects.none(), ["(a+)+$"])


@pytest.mark.django_db
@pytest.mark.parametrize("is_known", [True, False])
def test_parts_of_times_are_those_of_a_zone_that_the_database_knows(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = access_of(request_of(make_superuser(), SITE))[SITE.exposures[Film]]
    monkeypatch.setattr(LocalTimes, "are_known", is_known)
    months = [condition("shown", "month", 1)]
    if is_known:
        assert not filtered(model, Film.objects.all(), months, [])
    else:
        with pytest.raises(ToolError, match="no tables of time zones"):
            filtered(model, Film.objects.all(), months, [])


@pytest.mark.parametrize("bounds", [None, (NOW, LATER)])
def test_times_that_the_database_does_not_convert_are_told_where_conditions_compare_their_parts(
    bounds: tuple[datetime, datetime] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalTimes, "bounds", bounds)
    hints = [*condition_hints([condition("shown", "month", 1)], Film)]
    assert len(hints) == (1 if bounds else 0)
    assert not [*condition_hints([condition("rating", "gte", 1)], Film)]
    assert all("before 2026-01-31 or from 2026-02-28 on" in hint for hint in hints)
