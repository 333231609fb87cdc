"""Errors within values: where they are, and how values are quoted."""

import pytest

from mcp_django.schema.problems import Invalid, Problems, json_type, show


@pytest.mark.parametrize(
    ("value", "name", "shown"),
    [
        (None, "null", "null"),
        (True, "boolean", "true"),
        (1, "integer", "1"),
        (1.5, "number", "1.5"),
        ("é", "string", '"é"'),
        ("x" * 100, "string", '"' + "x" * 40 + '…"'),
        ([1], "array", "an array"),
        ({"a": 1}, "object", "an object"),
        (10**4000, "integer", "a huge integer"),
    ],
)
def test_values_are_named_and_quoted_in_short(value: object, name: str, shown: str) -> None:
    assert (json_type(value), show(value)) == (name, shown)


def test_problems_are_gathered_with_the_way_to_them() -> None:
    inner, outer = Problems(), Problems()
    with inner.within("[1]"):
        raise Invalid("odd")
    inner.add("name", "missing")
    with outer.within("lines"):
        inner.raise_if_any()
    with pytest.raises(Invalid) as caught:
        outer.raise_if_any()
    assert caught.value.problems == [("lines[1]", "odd"), ("lines.name", "missing")]


def test_no_problem_is_no_error_and_other_errors_pass() -> None:
    problems = Problems()
    with pytest.raises(KeyError), problems.within("x"):
        raise KeyError
    problems.raise_if_any()
