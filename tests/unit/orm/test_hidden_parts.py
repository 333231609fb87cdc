"""The condition that leaves out texts with a secret in them, in the words of each database."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.orm.hidden_parts import HidesParts, Searched
from tests.testapp.models import Book


@pytest.mark.parametrize(
    ("vendor", "has_one", "matches", "backslashes"),
    [
        ("postgresql", "STRPOS((\"title\")::text, '@') > 0", '("title")::text ~* \'', 1),
        ("mysql", "INSTR(\"title\", '@') > 0", '"title" REGEXP \'(?i)', 2),
        ("sqlite", "INSTR(\"title\", '@') > 0", '"title" REGEXP \'(?i)', 1),
    ],
)
def test_each_database_looks_for_a_character_before_it_looks_for_a_pattern(
    vendor: str, has_one: str, matches: str, backslashes: int
) -> None:
    compiler: Any = SimpleNamespace(compile=lambda text: ('"title"', ["p"]))
    sql, params = HidesParts("title").as_sql(compiler, SimpleNamespace(vendor=vendor))
    assert sql.index(has_one) < sql.index(matches)
    # The apostrophe of the pattern is doubled, and where the database reads escapes, the backslash is too.
    assert "[\"'']" in sql
    assert "\\" * backslashes + "s*:" in sql
    assert "\\" * (backslashes + 1) + "s*:" not in sql
    assert params == ["p"] * 4


def test_a_search_guards_each_comparison_but_that_with_nothing() -> None:
    field = Book._meta.get_field("title")
    searched = Searched(SimpleNamespace(output_field=field))
    assert searched.get_lookup("isnull") is field.get_lookup("isnull")
    assert searched.get_lookup("no_such_lookup") is None
    assert searched.get_lookup("startswith") is not field.get_lookup("startswith")
