"""Columns of tables that Django did not make: whatever their type, rows come back as they were stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from mcp_django.context.stored_columns import MySQLColumns
from mcp_django.differences.stored_rows import StoredTable, differing
from tests.behaviour.test_column_types import KINDS

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.undivided]
VENDOR = connection.vendor
IS_MYSQL = VENDOR == "mysql"
ONLY = {
    vendor: pytest.mark.skipif(vendor != VENDOR, reason=f"needs {vendor}")
    for vendor in ("sqlite", "mysql", "postgresql")
}

# SQL expressions of values, by the type of the column.
MORE: dict[str, dict[str, list[str]]] = {
    "postgresql": {
        "numeric": ["'NaN'", "'-0.000'", "1e30", "1e-30"],
        "real": ["'NaN'", "'-Infinity'", "'-0'", "0.1", "1e-45", "16777217"],
        "double precision": ["'NaN'", "'Infinity'", "'-0'", "0.1 + 0.2", "5e-324"],
        "timestamp": ["'infinity'", "'0044-03-15 12:00 BC'", "'294276-12-31 23:59:59.999999'"],
        "timestamptz": ["'-infinity'", "'0044-03-15 12:00+00 BC'", "'2026-10-25 00:30:00.123456+00'"],
        "date": ["'infinity'", "'4713-01-01 BC'", "'5874897-12-31'"],
        "interval": ["'-1 year 2 mons -3 days 04:05:06.789'", "'178000000 years'", "'1 day -00:00:01'"],
        "timetz": ["'24:00:00+15:59'", "'00:00:00.000001-02'"],
        "json": ['\'{"b" : 1,  "a": [1.0, 1e5], "b": null}\'', "' 1'"],
        "jsonb": ['\'{"b": 1.00, "a": "\\u0041 %s"}\'', "'null'", "'1e5'"],
        "bytea": ["'\\x00ff27255c'", "''"],
        "money": ["-1234.5", "0"],
        "inet": ["'10.0.0.1/8'", "'::1'", "'10.0.0.1'"],
        "cidr": ["'10.0.0.0/8'"],
        "macaddr": ["'08:00:2b:01:02:03'"],
        "xml": ["'<a b=\"1\">%s &lt; </a>'"],
        "tsvector": ["'a:1A b''c:2 %s'"],
        "tsquery": ["'a & !b'"],
        "bit(5)": ["B'10101'"],
        "varbit": ["B'101'", "B''"],
        "point": ["'(1.5,-2)'"],
        "char(6)": ["'ab  '", "'äöü'"],
        '"char"': ["'a'"],
        "text": ["E'a\\nb\\\\ %s %% '' \" ? :x {}'", "''"],
        "text[]": ['\'{a,NULL,"NULL","x,y","\\\\\\\\"}\'', "'{}'", "'[0:1]={a,b}'"],
        "integer[]": ["'{{1,2},{3,NULL}}'"],
        "timestamptz[]": ["'{infinity,2026-10-25 00:30:00+00}'"],
        "int4range": ["'empty'", "'[1,)'", "'(,)'"],
        "tstzrange": ["'[2026-10-25 00:30:00+00,infinity]'"],
        "int4multirange": ["'{[1,3),[5,6)}'"],
        "hstore": ['\'a=>NULL, "b c"=>"%s"\'', "''"],
        "citext": ["'aA'"],
        "oddapp_mood": ["'so so'", "'it''s %s'"],
        "oddapp_pair": ["'(1,\"a,b\")'", "'(,)'"],
        "oddapp_even": ["2"],
        "uuid": ["'00000000-0000-0000-0000-000000000001'"],
        "boolean": ["true", "false"],
        "oid": ["4294967295"],
        "pg_lsn": ["'16/B374D848'"],
    },
    "mysql": {
        "float": ["0.1", "1e-45", "3.4028234e38", "-0e0", "16777216", "1.17549435e-38"],
        "double": ["0.1e0 + 0.2e0", "5e-324", "-0e0", "1.7976931348623157e308"],
        "decimal(65,30)": ["0.123456789012345678901234567890", "-99999999999999999999999999999999999"],
        "bigint unsigned": ["18446744073709551615"],
        "integer zerofill": ["7"],
        "bit(13)": ["b'1010101010101'", "b'0'"],
        "binary(16)": ["x'00ff27255c'", "x'20'"],
        "varbinary(20)": ["x'00ff27255c20'", "''"],
        "longblob": ["x'00ff27255c'", "''"],
        "datetime(6)": ["'0000-00-00'", "'1000-01-01 00:00:00.000001'", "'2026-00-00 00:00:00'"],
        "date": ["'0000-00-00'", "'9999-12-31'", "'2026-05-00'"],
        "time(6)": ["'-838:59:59'", "'838:59:59'", "'-00:00:00.000001'"],
        "year": ["0", "1901", "2155"],
        "enum('', 'a', 'it''s %s', '1')": ["''", "'it''s %s'", "'1'"],
        "set('a', 'b', '%s')": ["''", "'b,a'", "'%s'"],
        "char(10)": ["'ab  '"],
        "varchar(10)": ["'ab  '", "''"],
        "varchar(20) character set latin1": ["'äöü€'"],
        "varchar(20) character set utf8mb3": ["'äöü€'"],
        "varchar(20) character set utf8mb4 collate utf8mb4_bin": ["'😀 %s'"],
        "varchar(20) character set binary": ["x'00ff27'"],
        "varchar(20) character set cp1251": ["'Привет'"],
        "longtext": ["'a\\nb\\\\ %s %% '' \" ? :x {}'"],
        "json": ['\'{"b" : 1,  "a": [1.0, 1e5]}\''],
        "point": ["ST_GeomFromText('POINT(1.5 -2)')"],
        "inet6": ["'::1'", "'::ffff:10.0.0.1'"],
        "uuid": ["'00000000-0000-0000-0000-000000000001'"],
    },
    "sqlite": {
        "": ["1", "1.0", "'1'", "x'31'", "9223372036854775807", "1e999", "-0.0", "'1' || char(0) || '2'"],
        "integer": ["1", "1.5", "'x'", "x'31'", "'0x10'"],
        "real": ["1", "'x'", "x'00ff'", "0.1 + 0.2"],
        "numeric": ["1", "1.5", "'x'", "123456789012345678901234567890"],
        "decimal": ["1.10", "'x'", "1e400"],
        "text": ["1", "x'31'", "CAST(x'ff2561' AS TEXT)", "'%s ? :a'"],
        "bool": ["1", "2", "'true'"],
        "date": ["'2026-01-01'", "'0000-00-00'", "20260101", "'tomorrow'"],
        "datetime": ["'2026-01-01T00:00:00Z'", "0"],
        "timestamp": ["'nonsense'"],
        "blob": ["'text'", "1", "x'00'", "CAST(x'c328' AS TEXT)"],
    },
}
PREPARED = {
    "citext": "CREATE EXTENSION IF NOT EXISTS citext",
    "hstore": "CREATE EXTENSION IF NOT EXISTS hstore",
    "oddapp_mood": "CREATE TYPE oddapp_mood AS ENUM ('so so', 'it''s %s')",
    "oddapp_pair": "CREATE TYPE oddapp_pair AS (a integer, b text)",
    "oddapp_even": "CREATE DOMAIN oddapp_even AS integer CHECK (VALUE % 2 = 0)",
}
_numbers = count(1)


@contextmanager
def table_with(
    values: list[str], column: str, *, key: str = "integer", name: str = "value", table: str = "", params: Any = ()
) -> Iterator[StoredTable]:
    """Make a table with these SQL expressions as values of a column, and a model for it."""
    # What makes a table there ends the transaction of the test, unless the table is one of the session.
    temporary = "TEMPORARY" if IS_MYSQL else ""
    db_table = table or f"stored_{next(_numbers)}"
    quoted, quoted_column = connection.ops.quote_name(db_table), connection.ops.quote_name(name)
    with connection.cursor() as cursor:
        if column in PREPARED:
            cursor.execute(PREPARED[column])
        cursor.execute(f"CREATE {temporary} TABLE {quoted} (id {key} PRIMARY KEY, {quoted_column} {column} NULL)")
        if IS_MYSQL:
            cursor.execute("SET @former = @@sql_mode, sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        for number, value in enumerate(values):
            cursor.execute(f"INSERT INTO {quoted} VALUES ({number}, {value})")
        if IS_MYSQL:
            cursor.execute("SET sql_mode = @former")
    with isolate_apps("tests.testapp"):

        class Stored(models.Model):
            id = models.IntegerField(primary_key=True)
            value = models.TextField(null=True, db_column=name)

            class Meta:
                app_label = "testapp"
                managed = False

        Stored._meta.db_table = db_table
        yield StoredTable(Stored, "default")


def contents(table: StoredTable) -> list[Any]:
    """Return what the database says of all rows, by an expression that shows every difference."""
    column = connection.ops.quote_name(table.fields["value"].column)
    if IS_MYSQL:
        type_ = table.columns.types.get("value") if isinstance(table.columns, MySQLColumns) else ""
        # HEX makes a whole number of each number. Of a single-precision number only six digits are shown.
        shown = {
            "float": f"CONCAT({column} * 1e0)",
            "double": f"CONCAT({column} * 1e0)",
            "decimal": f"CONCAT({column})",
        }.get(str(type_), f"HEX({column}), LENGTH({column})")
    elif VENDOR == "postgresql":
        shown = f"pg_typeof({column})::text, {column}::text, md5({column}::text), pg_column_size({column}) IS NULL"
    else:
        shown = f"typeof({column}) AS a, hex({column}) AS b"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, {shown} FROM {connection.ops.quote_name(table.model._meta.db_table)} ORDER BY id")
        return list(cursor.fetchall())


def check_round_trip(table: StoredTable, number: int) -> None:
    keys = list(range(number))
    before, shown = table.read("pk", keys), contents(table)
    assert len(before) == number
    # Deleted and inserted again.
    table.delete(before)
    assert contents(table) == []
    table.insert(list(before.values()))
    assert contents(table) == shown
    # Each has the value of the next, in one statement, and then its own again.
    following = list(before.values())[1:] + list(before.values())[:1]
    table.update({key: {"value": row[1]} for key, row in zip(before, following, strict=True)})
    assert number == 1 or contents(table) != shown
    table.update({key: {"value": row[1]} for key, row in before.items()})
    assert contents(table) == shown
    # All have the same one.
    table.update({key: {"value": None} for key in before})
    table.update({key: {"value": row[1]} for key, row in before.items()})
    assert contents(table) == shown
    after = table.read_keys(before)
    assert not any(differing(row, after[key]) for key, row in before.items())


@pytest.mark.parametrize("column", MORE[VENDOR], ids=lambda name: name or "no type")
def test_odd_values_of_every_type_come_back_as_they_were_stored(column: str) -> None:
    values = [*MORE[VENDOR][column], "NULL"]
    with table_with(values, column) as table:
        check_round_trip(table, len(values))


@pytest.mark.parametrize("column", KINDS, ids=lambda name: name or "no type")
def test_usual_values_of_every_type_come_back_as_they_were_stored(column: str) -> None:
    nullable = column.replace(" not null default 0", "")
    with table_with([], nullable) as table, connection.cursor() as cursor:
        name = connection.ops.quote_name(table.model._meta.db_table)
        for number, value in enumerate(KINDS[column]):
            cursor.execute(f"INSERT INTO {name} VALUES (%s, %s)", [number, value])
        check_round_trip(table, len(KINDS[column]))


@pytest.mark.parametrize("name", ["50%", "%s", "a b", "select", "a%%b", "c [timestamp]", "a?b", "ü"])
def test_names_of_columns_and_tables_may_be_anything(name: str) -> None:
    with table_with(["'a'", "'b'"], "varchar(20)", name=name, table=f"odd {name}") as table:
        check_round_trip(table, 2)


@ONLY["mysql"]
def test_moments_are_the_same_in_every_zone() -> None:
    """In Berlin, the hour from two to three was there twice that night."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
    values = ["'2026-10-25 00:30:00'", "'2026-10-25 01:30:00'", "'1970-01-01 00:00:01'"]
    try:
        with table_with(values, "timestamp(6)") as table:
            shown = contents(table)
            with connection.cursor() as cursor:
                cursor.execute("SET time_zone = 'SYSTEM'")
                cursor.execute("SET time_zone = '-05:00'")
            rows = table.read("pk", [0, 1, 2])
            assert rows[(0,)][1] == "2026-10-25 00:30:00.000000"
            table.delete(rows)
            table.insert(list(rows.values()))
            table.update({key: {"value": row[1]} for key, row in rows.items()})
            with connection.cursor() as cursor:
                cursor.execute("SELECT @@time_zone")
                assert cursor.fetchone()[0] == "-05:00"
                cursor.execute("SET time_zone = '+00:00'")
            assert contents(table) == shown
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = 'SYSTEM'")


@ONLY["mysql"]
@pytest.mark.parametrize("modes", ["TRADITIONAL", "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE", ""])
def test_days_that_are_none_come_back_in_every_mode(modes: str) -> None:
    with table_with(["'0000-00-00'", "'2026-00-00'", "'2026-05-00'"], "date", key="integer auto_increment") as table:
        with connection.cursor() as cursor:
            cursor.execute("SET @tested = @@sql_mode, sql_mode = %s", [modes])
        try:
            # The first key is zero, in place of which a new number would be given.
            check_round_trip(table, 3)
            with connection.cursor() as cursor:
                cursor.execute("SELECT @@sql_mode LIKE %s", [f"%{modes.partition(',')[0]}%"])
                assert cursor.fetchone()[0] == 1
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SET sql_mode = @tested")


@ONLY["postgresql"]
def test_keys_that_the_database_always_generates_come_back() -> None:
    with table_with([], "text", key="integer GENERATED ALWAYS AS IDENTITY") as table:
        name = table.model._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} (value) VALUES ('a'), ('b')")
        before = table.read("pk", [1, 2])
        table.delete(before)
        table.insert(list(before.values()))
        assert table.read_keys(before) == before


@ONLY["postgresql"]
def test_a_table_in_another_schema() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA elsewhere")
    with table_with(["'a'", "'b'"], "text", table='elsewhere"."stored') as table:
        check_round_trip(table, 2)


@ONLY["sqlite"]
def test_a_text_that_is_no_utf_8_may_be_a_key() -> None:
    with table_with(["'a'"], "text", key="text") as table:
        name = table.model._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} VALUES (CAST(x'ff' AS TEXT), 'b')")
        found = table.read_any([(("value",), [("b",)])])
        assert list(found) == [("\udcff",)]
        table.update({key: {"value": "c"} for key in found})
        assert [row[1] for row in table.read_keys(found).values()] == ["c"]
        table.delete(found)
        assert len(contents(table)) == 1
