"""Pages by texts that the database takes for the same, and by columns of MySQL's own types: each row comes once."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from mcp_django.context import databases
from mcp_django.context.request import MCPRequest
from mcp_django.tools.query_records import QueryRecords
from tests.configured import configure
from tests.factories import make_superuser
from tests.fieldapp.models import Sample
from tests.testapp.models import Author
from tests.tool_calls import call, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]

TEXTS = ["a", "A", "á", "a ", "A  ", "", " ", "b", "B", "ß", "ss", "e", "É", "z", "Z", "a", "b ", "\t", "a\t"]
IS_MYSQL = connection.vendor == "mysql"


def walk(request: MCPRequest, limit: int, **arguments: Any) -> list[Any]:
    """Return the keys of the rows of all pages."""
    asked = {"limit": limit, **arguments}
    page, found = call(QueryRecords(), request, **asked), []
    while True:
        found += [row[0] for row in page["rows"]]
        if "next_cursor" not in page:
            return found
        page = call(QueryRecords(), request, **asked, cursor=page["next_cursor"])


WAYS = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "by the ORM"])


@WAYS
@pytest.mark.parametrize("ordering", [["name"], ["-name"], ["email", "name"], ["-email", "name"], ["born", "-name"]])
def test_pages_by_texts_that_are_the_same_have_each_row_once(
    ordering: list[str], compiled: bool, settings: Any
) -> None:
    configure(settings, COMPILED_QUERIES=compiled)
    for number, text in enumerate(TEXTS):
        born = f"1990-01-0{number % 3 + 1}" if number % 4 else None
        Author.objects.create(name=text, email=f"{'aA'[number % 2]}@example.org", born=born)
    request = request_of(make_superuser(), site_with(Author))
    whole = walk(request, 50, model="testapp.author", ordering=ordering)
    assert sorted(whole) == sorted(Author.objects.values_list("pk", flat=True))
    for limit in (1, 2, 5):
        assert walk(request, limit, model="testapp.author", ordering=ordering) == whole


# Types of MySQL's columns, the class of field that is made of each, and values in SQL.
COLUMNS: dict[str, tuple[Any, list[str]]] = {
    "enum('m', 'a', 'Z', 'b')": (models.CharField(max_length=1), ["'m'", "'a'", "'Z'", "'b'"]),
    "set('m', 'a', 'b')": (models.CharField(max_length=9), ["'m'", "'a,m'", "''", "'b'", "'a,b'"]),
    "date": (models.DateField(), ["'0000-00-00'", "'2026-00-00'", "'2026-01-01'", "'2025-12-31'"]),
    "datetime": (models.DateTimeField(), ["'0000-00-00 00:00:00'", "'2026-01-01 10:00:00'", "'2025-01-01 10:00:00'"]),
    "datetime(3)": (models.DateTimeField(), ["'2026-01-01 10:00:00.125'", "'2026-01-01 10:00:00.5'"]),
    "year": (models.IntegerField(), ["2026", "1970", "2000"]),
    "tinyint(1)": (models.BooleanField(), ["0", "1", "2", "-1"]),
    "float": (models.FloatField(), ["0.1", "1e30", "-2.7", "16777217"]),
    "bigint unsigned": (models.BigIntegerField(), ["18446744073709551615", "0", "9223372036854775808"]),
    "decimal(20, 5)": (
        models.DecimalField(max_digits=20, decimal_places=5),
        ["1.00001", "-3.5", "12345678.12345"],
    ),
    "varchar(2000)": (models.CharField(max_length=2000), [f"REPEAT('x', {n})" for n in (400, 700, 1500)]),
    "text": (models.TextField(), [f"CONCAT(REPEAT('x', {n}), '{end}')" for n in (400, 600) for end in "bac"]),
    "varchar(20) collate utf8mb4_bin": (models.CharField(max_length=20), ["'a'", "'A'", "'a '", "'á'"]),
    "time": (models.TimeField(), ["'10:00:00'", "'23:59:59'", "'00:00:00'"]),
}
FREE = "SET @mode = @@sql_mode, sql_mode = ''"


@contextmanager
def table(type_: str, field: Any, values: list[str]) -> Iterator[MCPRequest]:
    """A temporary table, which ends no transaction, with three rows of each value, and as many of NULL."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE own_types (id integer PRIMARY KEY, value {type_} NULL)")
        cursor.execute(FREE)
        for number, value in enumerate([*values, "NULL"] * 3, 1):
            cursor.execute(f"INSERT INTO own_types VALUES ({number}, {value})")
        cursor.execute("SET sql_mode = @mode")
    field.null = True
    databases._numbered.cache_clear()
    with isolate_apps("tests.testapp"):

        class OwnType(models.Model):
            id = models.IntegerField(primary_key=True)
            value = field

            class Meta:
                app_label = "testapp"
                db_table = "own_types"
                managed = False

        try:
            yield request_of(make_superuser(), site_with(OwnType))
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP TEMPORARY TABLE own_types")


def test_a_declared_order_by_texts_longer_than_what_is_sorted_by_has_no_second_page() -> None:
    for name in "ab":
        Sample.objects.create(name=name, text=f"{'x' * 300}{name}")
    request = request_of(make_superuser(), site_with(Sample, ordering=["text"]))
    asked = {"model": "fieldapp.sample", "limit": 1, "fields": ["name"]}
    page = call(QueryRecords(), request, **asked)
    assert ("next_cursor" in page) is not IS_MYSQL
    assert (
        "there are more rows. This order cannot be paged: its texts are too long" in page.get("hint", "")
    ) is IS_MYSQL


@pytest.mark.skipif(not IS_MYSQL, reason="the types are those of MySQL")
@WAYS
@pytest.mark.parametrize("type_", COLUMNS)
def test_pages_by_a_column_of_mysqls_own_types_have_each_row_once(type_: str, compiled: bool, settings: Any) -> None:
    configure(settings, COMPILED_QUERIES=compiled)
    field, values = COLUMNS[type_]
    with table(type_, field, values) as request:
        for sign, limit in product(("", "-"), (1, 2, 4)):
            found = walk(request, limit, model="testapp.owntype", ordering=[f"{sign}value"], fields=["id"])
            assert sorted(found) == list(range(1, 3 * len(values) + 4)), (sign, limit)
