"""Filters as an expression: what is in it, its order, and what a cursor is bound to."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mcp_django.orm.conditions import Applied, Condition, Junction, conditions_of, in_fixed_order, is_moving
from mcp_django.orm.fields import resolve_path
from mcp_django.orm.lookups import parse_condition
from mcp_django.orm.named_filters import NamedFilter
from tests.filterapp.models import Film

pytestmark = pytest.mark.postgresql

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
