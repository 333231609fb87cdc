"""What clients may write for a value, and what becomes of it."""

from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from operator import ge, gt, le, lt
from typing import Any

import pytest
from django.db import connection

from mcp_django.orm.fields import kind_of, resolve_path
from mcp_django.orm.lookups import MAX_VALUES, declared_lookups, parse_condition
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, Section

pytestmark = pytest.mark.postgresql

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
    here = ("exact",) if connection.vendor == "sqlite" else ("regex", "exact")
    assert declared_lookups(path, ["regex", "exact", "nonsense"]) == here
    with pytest.raises(ValueError, match="at most"):
        condition("title", "regex", "a" * 101)
    with pytest.raises(ValueError, match="regular expression"):
        condition("title", "regex", "(")


@pytest.mark.parametrize("text", ["^(a+)+$", "(a|a)*b", "(?:a?){30}b", "a*a*a*a*b", "x+y+z+.*", "(x){9}", "a?a?a?a?a"])
def test_row_117_an_expression_that_may_take_ages_is_refused(text: str) -> None:
    for lookup in ("regex", "iregex"):
        with pytest.raises(ValueError, match="repeat"):
            condition("title", lookup, text)


@pytest.mark.parametrize(
    "text", ["^A.*z$", "[0-9]{3}-[0-9]{4}", "colou?r", "(one|two)?", "^x+y+z+$", "(?i)x*?y+?z{2}?"]
)
def test_other_expressions_are_taken(text: str) -> None:
    assert condition("title", "regex", text) == ("regex", (text,))


@pytest.mark.parametrize(
    ("field", "lookup", "value", "compared"),
    [
        ("pages", "gt", 3.4, 3),
        ("pages", "gte", 3.4, 4),
        ("pages", "lt", "3.4", 4),
        ("pages", "lte", "3.4000", 3),
        ("pages", "gt", 3.0, 3),
        ("price", "gt", "9.876543", Decimal("9.87")),
        ("price", "gte", 9.876543, Decimal("9.88")),
        ("price", "lt", "-0.001", Decimal("0.00")),
        ("price", "lte", -0.001, Decimal("-0.01")),
        ("price", "gte", "9.87", Decimal("9.87")),
    ],
)
def test_a_number_between_those_of_the_column_is_compared_as_it_is(
    field: str, lookup: str, value: Any, compared: Any
) -> None:
    assert condition(field, lookup, value) == (lookup, (compared,))
    _, between = condition(field, "range", [value, value])
    assert {"gte": between[0], "lte": between[1]}.get(lookup, compared) == compared


@pytest.mark.parametrize(
    ("field", "lookup", "value"),
    [
        ("pages", "exact", 3.4),
        ("pages", "in", [3.4]),
        ("pages", "gt", "3.4.5"),
        ("pages", "gt", "1e400"),
        ("pages", "gt", float("nan")),
        ("pages", "gt", float("inf")),
        ("price", "exact", "9.876"),
        ("price", "lt", "999999.999"),
    ],
)
def test_other_numbers_that_the_column_cannot_hold_are_refused(field: str, lookup: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"integer|number"):
        condition(field, lookup, value)


@pytest.mark.django_db
def test_rows_are_those_that_python_finds() -> None:
    author = Author.objects.create(name="A")
    for number in range(6):
        Book.objects.create(
            title=f"B{number}", isbn=str(number), author=author, pages=number, price=Decimal(number) / 4
        )
    rows = list(Book.objects.all())
    compare = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
    for field, lookup, value in product(("pages", "price"), compare, ("0.333333", "1.2500001", "2.5", "0.1", "4.0")):
        _, (operand,) = condition(field, lookup, value)
        found = set(Book.objects.filter(**{f"{field}__{lookup}": operand}))
        assert found == {row for row in rows if compare[lookup](getattr(row, field), Decimal(value))}, (field, lookup)


def test_the_lookups_that_go_without_saying_are_those_of_the_type() -> None:
    names = ("title", "published", "created", "opens", "pages")
    usual = {name: set(kind_of(BOOK(name)).usual_lookups) for name in names}
    assert {"iexact", "endswith", "iendswith", "icontains"} <= usual["title"]
    assert {"year", "month", "day", "week_day", "quarter", "range"} <= usual["published"]
    assert {"hour", "date"}.isdisjoint(usual["published"])
    assert {"year", "hour", "minute", "date"} <= usual["created"]
    assert {"hour", "minute"} <= usual["opens"]
    assert "year" not in usual["pages"] | usual["opens"]
    assert kind_of(BOOK("author")).usual_lookups == kind_of(BOOK("author")).lookups
    assert not {"year", "iexact"} & set(kind_of(BOOK("tags")).usual_lookups)


@pytest.mark.parametrize(
    ("field", "lookup", "value"),
    [
        ("published", "year", 1),
        ("published", "year", 9999),
        ("published", "month", 0),
        ("created", "week_day", 8),
        ("created", "hour", 24),
        ("created", "minute", "x"),
        ("created", "exact", "9999-12-31"),
        ("created", "lte", "9999-12-31"),
        ("created", "range", ["0001-01-01", "9999-12-31"]),
    ],
)
def test_row_123_dates_and_parts_beyond_the_calendar_are_refused(field: str, lookup: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        condition(field, lookup, value)


def test_a_date_part_is_a_number() -> None:
    assert condition("published", "year", "2024") == ("year", (2024,))
    assert condition("created", "date", "2024-01-05") == condition("created", "exact", "2024-01-05")
