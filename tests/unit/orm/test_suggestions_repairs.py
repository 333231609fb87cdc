"""Repairs of arguments: the one thing that was wrong is right, and all else is as it was."""

from typing import Any

import pytest

from mcp_django.orm.suggestions import (
    with_argument,
    with_condition,
    with_field,
    with_model,
    with_name,
    without_argument,
)


@pytest.mark.parametrize(
    ("repair", "given", "found"),
    [
        (with_argument("limit", 5), {"model": "a"}, {"model": "a", "limit": 5}),
        (without_argument("page"), {"model": "a", "page": 2}, {"model": "a"}),
        (with_name("id", "pk"), {"id": 1, "fields": ["id"]}, {"pk": 1, "fields": ["id"]}),
        (with_name("pks", "pk"), {"pks": [1]}, {"pk": 1}),
        (with_name("id", "pk"), {"id": 1, "pk": 2}, None),
        (with_model("ordr", "order"), {"model": "ordr", "search": "ordr"}, {"model": "order", "search": "ordr"}),
        (with_model("b", "c"), {"model": "a, b"}, {"model": "a,c"}),
        (with_model("b", "c"), {"model": ["a", "b"]}, {"model": ["a", "c"]}),
        (with_model("b", "a"), {"model": "a, b", "detail": True}, {"model": "a", "detail": True}),
        (with_model("a, b", "a"), {"model": "a, b", "pk": 1}, {"model": "a", "pk": 1}),
        (with_model("b", "c"), {"model": ["c", "b", "a", "b"]}, {"model": ["c", "a"]}),
        (with_field("totl", "total", ["fields"]), {"fields": "id,totl"}, {"fields": "id,total"}),
        (with_field("totl", "total", ["fields"]), {"fields": ["totl", "totls"]}, {"fields": ["total", "totls"]}),
        (with_field("totl", "total", ["ordering"]), {"ordering": '["-totl"]'}, {"ordering": ["-total"]}),
        (with_field("a", "b", ["aggregates"]), {"aggregates": ["sum:a*(1-a_)"]}, {"aggregates": ["sum:b*(1-a_)"]}),
        (with_field("totl", "total", ["fields"]), {"filters": {"totl": 1}}, None),
    ],
)
def test_a_repair_changes_one_thing(repair: Any, given: Any, found: Any) -> None:
    assert repair.mend(given) == found


@pytest.mark.parametrize(
    ("repair", "given", "found"),
    [
        (with_condition("totl", "total"), {"totl": 5, "id": 1}, {"total": 5, "id": 1}),
        (with_condition("a__b", "a__c"), {"or": [{"a.b": 5}, {"x": 1}]}, {"or": [{"a__c": 5}, {"x": 1}]}),
        (with_condition("b", "c", prefix="a__"), {"a__b": 5}, {"a__c": 5}),
        (with_condition("b", "c", prefix="a__"), {"a": {"some": {"b": 5}}}, {"a": {"some": {"c": 5}}}),
        (with_condition("t", {"t__gt": 5}, ">5"), {"t": ">5"}, {"t__gt": 5}),
        (with_condition("t", {"t__gt": 5}, ">5"), {"t": {"lt": 9, "exact": ">5"}}, {"t": {"lt": 9}, "t__gt": 5}),
        (with_condition("t", {"t": 5}, "five"), {"field": "t", "op": ">", "value": "five"}, {"t": 5}),
        # Which of two is meant is not known.
        (with_condition("t", "u"), {"or": [{"t": 1}, {"t": 2}]}, None),
        (with_condition("t", "u"), {"x": 1}, None),
    ],
)
def test_one_condition_of_the_filters_is_written_anew(repair: Any, given: Any, found: Any) -> None:
    mended = repair.mend({"model": "m", "filters": given})
    assert mended == (None if found is None else {"model": "m", "filters": found})


def test_only_names_are_spelling() -> None:
    assert with_condition("a", "b").is_spelling
    assert not with_condition("a", {"a__gt": 5}).is_spelling
    assert with_name("a", "b").is_spelling
    assert not without_argument("a").is_spelling
