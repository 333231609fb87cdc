"""Columns as the driver gives them, made Python values at once: the same as by Django's own converters."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import QuerySet

from mcp_django.orm import sqlite_converters
from mcp_django.orm.compiled_queries import CompiledQuery
from mcp_django.orm.undecodable_values import UNDECODABLE
from tests.factories import make_book
from tests.testapp.models import Book

pytestmark = pytest.mark.postgresql

AMSTERDAM = timezone(timedelta(hours=1))
STORED: dict[str, list[list[Any]]] = {
    "price": [
        [1.015, 0.125, 2.675, 1.005, -0.0, 10, 99999.99, 1e-9, 0.1 + 0.2],
        [1.5, None],
        [1.5, "no number"],
        [1.5, 1e9],
        [float("inf"), float("nan")],
        [],
    ],
    "created": [
        [datetime(1, 1, 1), datetime(2024, 3, 31, 2, 30, 0, 5, fold=1), datetime(9999, 12, 31)],
        [datetime(2024, 1, 1), None],
        [datetime(2024, 1, 1), "2024-01-01 12:00:00", "2024-01-01", "no date"],
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=AMSTERDAM), datetime(2024, 1, 1)],
        [],
    ],
    "active": [[True, False], [True, None], [1, 0], [True, 2, "x"], []],
}


@pytest.mark.skipif(connection.vendor != "sqlite", reason="these are the converters of SQLite")
@pytest.mark.parametrize(("name", "values"), [(name, values) for name, columns in STORED.items() for values in columns])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Amsterdam"])
def test_a_column_is_converted_as_its_values_are(name: str, values: list[Any], zone: str | None) -> None:
    expression = Book._meta.get_field(name).get_col("testapp_book")
    (function,) = connection.ops.get_db_converters(expression)
    quick = sqlite_converters._by_column(function)
    assert quick.__qualname__.partition(".")[0] in ("_decimals", "_moments", "_flags")
    with zone_of_the_database(zone):
        found = quick(tuple(values), expression, connection)
        expected = [sqlite_converters._or_undecodable(function, value, expression, connection) for value in values]
    assert list(map(repr, found)) == list(map(repr, expected))
    assert [getattr(value, "fold", 0) for value in found] == [getattr(value, "fold", 0) for value in expected]


@contextmanager
def zone_of_the_database(name: str | None) -> Iterator[None]:
    own = connections["default"]
    kept = own.settings_dict["TIME_ZONE"]
    own.settings_dict["TIME_ZONE"] = name
    own.__dict__.pop("timezone", None)
    try:
        yield
    finally:
        own.settings_dict["TIME_ZONE"] = kept
        own.__dict__.pop("timezone", None)


def test_converters_of_the_projects_own_are_applied_to_each_value() -> None:
    def double(value: Any, expression: Any, connection: Any) -> Any:
        return value * 2

    assert sqlite_converters._by_column(double)((1, "a"), None, None) == [2, "aa"]
    assert sqlite_converters._by_column(double)((1, None), None, None) == [2, UNDECODABLE]


# Dates as text

sqlite_only = pytest.mark.skipif(connection.vendor != "sqlite", reason="these are texts only in SQLite")


def read_dates(rows: QuerySet[Any]) -> list[tuple[Any, ...]]:
    return CompiledQuery.for_values(rows.values_list("created", "published"), "default").run("default", [])


@sqlite_only
@pytest.mark.django_db
@pytest.mark.parametrize(
    "stored",
    [
        "2024-02-29 12:34:56",
        "2024-02-29 12:34:56.000001",
        "0001-01-01 00:00:00",
        "2024-02-29",
        "2024-02-29T12:34:56Z",
        "2024-02-29 12:34:56+02:00",
        "2024-02-29 1:2",
        "no date",
        "",
        5,
        2.5,
    ],
)
def test_dates_are_read_as_the_driver_reads_them(stored: Any) -> None:
    make_book("Kept")
    Book.objects.update(created=datetime(2024, 1, 1, tzinfo=UTC))
    book = make_book("Other")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_book SET created = %s WHERE id = %s", [stored, book.pk])
    rows = Book.objects.order_by("id")
    assert read_dates(rows) == list(rows.values_list("created", "published"))


@sqlite_only
@pytest.mark.django_db
@pytest.mark.parametrize("stored", ["0000-00-00 00:00:00", "2024-02-30 00:00:00"])
def test_a_date_that_there_is_not_is_lost_alone(stored: str) -> None:
    book = make_book("Other")
    make_book("Kept")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_book SET created = %s WHERE id = %s", [stored, book.pk])
    (lost, _), (kept, _) = read_dates(Book.objects.order_by("id"))
    assert lost is UNDECODABLE
    assert kept.tzinfo is UTC


def test_nulls_do_not_keep_the_dates_beside_them_from_being_read_at_once() -> None:
    def slowly(*arguments: Any) -> Any:
        raise AssertionError

    convert, database = sqlite_converters._written_moments(slowly, slowly), SimpleNamespace(timezone=UTC)
    read = convert(("2024-02-29 12:34:56", None), None, database)
    assert list(read) == [datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC), None]
    assert list(convert((None, None), None, database)) == [None, None]


@sqlite_only
def test_an_order_is_by_the_column_and_not_by_its_text() -> None:
    plan = CompiledQuery.for_values(Book.objects.order_by("-created").values_list("id", "created"), "default")
    assert plan.sql is not None
    assert 'CAST("testapp_book"."created" AS text)' in plan.sql
    assert plan.sql.endswith('ORDER BY "testapp_book"."created" DESC')


def test_columns_are_read_as_they_are_where_rows_are_told_apart_by_them() -> None:
    plan = CompiledQuery.for_values(Book.objects.distinct().order_by().values_list("created"), "default")
    assert "CAST" not in str(plan.sql)
