"""Arithmetic in the values of a write gives what the same arithmetic gives in questions, where both have a value.

A write computes with fractions in Python, a question with the numbers of the database.
"""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from mcp_django.differences.exact_arithmetic import NotComputed, computed, value_in_row
from mcp_django.exceptions import ToolError
from mcp_django.orm.access import ModelAccess, access_of
from mcp_django.orm.arithmetic import value_of
from mcp_django.orm.expression_grammar import parsed
from mcp_django.orm.fields import kind_of
from tests.factories import make_book, make_superuser
from tests.testapp.models import Book
from tests.tool_calls import request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

DRAWN = 600
PARTS = ("pages", "price", "rating", "published", "created", "reading_time", "2", "1.25", "3d", "2w")
SIGNS = "++--*/"


@pytest.fixture
def book() -> Book:
    made = make_book(
        "Dune", price="19.99", pages=7, rating=0.5, published=date(2026, 1, 31), reading_time=timedelta(hours=30)
    )
    Book.objects.update(created=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC))
    return Book.objects.get(pk=made.pk)


def drawn(chance: random.Random, depth: int = 0) -> str:
    """Return an arithmetic expression over the fields of a book, which may mean nothing."""
    text = chance.choice(PARTS)
    for _ in range(chance.choice((1, 1, 2)) if depth < 2 else 0):
        inner = drawn(chance, depth + 1) if chance.random() < 0.3 else chance.choice(PARTS)
        text += chance.choice(SIGNS) + (f"({inner})" if inner not in PARTS else inner)
    return text


def by_database(model: ModelAccess, text: str) -> Any:
    """Return what the database computes; None for NULL and for what it refuses to compute."""
    target = value_of(model, text, lambda column: True)
    try:
        with transaction.atomic():
            return Book.objects.annotate(found=target.expression).values_list("found", flat=True).get()
    except (DatabaseError, OverflowError, ValueError):
        return None


def by_row(row: Book, text: str) -> Any:
    def value(name: str) -> Any:
        field = Book._meta.get_field(name)
        return value_in_row(getattr(row, field.attname), kind_of(field).word)

    try:
        return computed(parsed(text), value)
    except NotComputed:
        return None


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float, Decimal)):
        return bool(abs(Fraction(other) - Fraction(one)) <= max(abs(Fraction(one)), 1) / 10**9)
    if isinstance(one, timedelta):
        return abs(one - other) <= timedelta(milliseconds=1)
    if isinstance(one, datetime):
        return abs(one - other) <= timedelta(milliseconds=1)
    return bool(one == other)


def test_both_compute_the_same(book: Book) -> None:
    request = request_of(make_superuser(), site_with(Book))
    model = access_of(request)[request.mcp.site.exposures[Book]]
    chance = random.Random(20261128)
    compared: dict[str, int] = {}
    for _ in range(DRAWN):
        text = drawn(chance)
        try:
            word = kind_of(value_of(model, text, lambda column: True).column.field).word
        except ToolError:
            continue
        first, second = by_database(model, text), by_row(book, text)
        if first is not None and second is not None:
            assert is_same(first, second), (text, first, second)
            compared[word] = compared.get(word, 0) + 1
    assert min(compared.get(word, 0) for word in ("integer", "decimal", "number", "date", "datetime", "duration")) >= 3
