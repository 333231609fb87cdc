"""What clients may write for a value, and what becomes of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mcp_django.kinds import kind_of
from mcp_django.lookups import MAX_VALUES, declared_lookups, parse_condition, resolve_path
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, Section

BOOK = Book._meta.get_field


@pytest.mark.parametrize(
    ("model", "text", "column"),
    [
        (Book, "author", "author_id"),
        (Book, "author__name", "author__name"),
        (Book, "pk", "id"),
        (Book, "tags__name", "tags__name"),
        (AudioBook, "pk", "book_ptr_id"),
        (AudioBook, "title", "title"),
        (Section, "parent__parent", "parent__parent_id"),
    ],
)
def test_a_path_leads_to_a_column(model: Any, text: str, column: str) -> None:
    path = resolve_path(model, text)
    assert path is not None
    assert path.column == column


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Note, "target"),
        (Note, "target__title"),
        (Book, "x"),
        (Book, ""),
        (Book, "title__x"),
        (Author, "books"),
        (Book, "__"),
    ],
)
def test_row_131_a_generic_or_unknown_relation_leads_nowhere(model: Any, text: str) -> None:
    assert resolve_path(model, text) is None


def test_a_path_knows_whether_it_is_one_value_and_may_be_null() -> None:
    seen = {text: resolve_path(Book, text) for text in ("title", "owner__username", "tags", "tags__name")}
    assert {text: (p.many, p.nullable) for text, p in seen.items() if p} == {
        "title": (False, False),
        "owner__username": (False, True),
        "tags": (True, False),
        "tags__name": (True, False),
    }


def condition(field: str, lookup: str, value: Any, model: Any = Book) -> Any:
    path = resolve_path(model, field)
    assert path is not None
    found = parse_condition(path, lookup, value)
    return found.lookup, found.values


def test_null_means_isnull_and_a_list_means_in() -> None:
    assert condition("rating", "exact", None) == ("isnull", (True,))
    assert condition("pages", "exact", [1, "2", 1]) == ("in", (1, 2))
    assert condition("pages", "in", "1,2") == ("in", (1, 2))


def test_a_bare_date_means_the_whole_day() -> None:
    start, end = datetime(2024, 1, 5, tzinfo=UTC), datetime(2024, 1, 5, 23, 59, 59, 999999, tzinfo=UTC)
    assert condition("due", "exact", "2024-01-05", Loan) == ("range", (start, end))
    assert condition("due", "lte", "2024-01-05", Loan) == ("lte", (end,))
    assert condition("due", "gt", "2024-01-05", Loan) == ("gt", (end,))
    assert condition("due", "gte", "2024-01-05", Loan) == ("gte", (start,))
    assert condition("due", "lt", "2024-01-05", Loan) == ("lt", (start,))
    assert condition("due", "range", ["2024-01-05", "2024-01-05"], Loan) == ("range", (start, end))


@pytest.mark.parametrize(
    ("lookup", "value"),
    [
        ("in", list(range(MAX_VALUES + 1))),
        ("in", []),
        ("in", {"a": 1}),
        ("in", [[1]]),
        ("range", [1]),
        ("range", [1, 2, 3]),
        ("isnull", "maybe"),
    ],
)
def test_row_118_lists_are_bounded_and_typed(lookup: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        condition("pages", lookup, value)


def test_row_117_regular_expressions_are_off_unless_declared_and_capped() -> None:
    path = resolve_path(Book, "title")
    assert path is not None
    assert not {"regex", "iregex"} & set(kind_of(path.field).lookups)
    assert declared_lookups(path, ["regex", "exact", "nonsense"]) == ("regex", "exact")
    with pytest.raises(ValueError, match="at most"):
        condition("title", "regex", "a" * 101)
    with pytest.raises(ValueError, match="regular expression"):
        condition("title", "regex", "(")
