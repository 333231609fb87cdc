"""Tables that Django did not make: pages of columns whose type is not that of their field in the database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import pytest
from django.db import connection, models
from django.test import override_settings
from django.test.utils import isolate_apps

from mcp_django.exceptions import ToolError
from mcp_django.tools.query_records import QueryRecords
from tests.cases import drawn
from tests.factories import make_superuser
from tests.tool_calls import call, request_of, site_with

# Old columns that hold naive times are what this is about.
pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:DateTimeField .* received a naive datetime"),
]
LABEL = "testapp.inspected"
ZONES = ("UTC", "Europe/Berlin")
ROWS = 41
# A night in which Berlin has the hour from two to three twice.
MOMENTS = [datetime(2026, 10, 24, 23) + timedelta(minutes=9 * number) for number in range(ROWS)]
# An hour that it never has.
SPRING = [datetime(2026, 3, 29, 0) + timedelta(minutes=9 * number) for number in range(ROWS)]

FIELDS: dict[str, Any] = {
    "datetime": models.DateTimeField,
    "date": models.DateField,
    "time": models.TimeField,
    "duration": models.DurationField,
    "integer": models.IntegerField,
    "bigint": models.BigIntegerField,
    "float": models.FloatField,
    "decimal": lambda **options: models.DecimalField(max_digits=8, decimal_places=2, **options),
    "char": lambda **options: models.CharField(max_length=40, **options),
    "text": models.TextField,
    "uuid": models.UUIDField,
    "boolean": models.BooleanField,
    "ip": models.GenericIPAddressField,
}
NUMBERS = [number * 7 % 41 - 9 for number in range(ROWS)]
FRACTIONS = [number * 7 % 41 / 10 - 0.9 for number in range(ROWS)]
HEX = [f"{number * 7919 % 65521:032x}" for number in range(ROWS)]
# Names of column types, and values that fit.
COLUMNS: dict[str, dict[str, Sequence[Any]]] = {
    "postgresql": {
        "timestamp": MOMENTS,
        "timestamp with time zone": [f"{moment}+00" for moment in MOMENTS],
        "timestamp(0)": SPRING,
        "date": [moment.date() + timedelta(number % 7) for number, moment in enumerate(MOMENTS)],
        "time": [moment.time() for moment in MOMENTS],
        "timetz": [f"{moment.time()}+02" for moment in MOMENTS],
        "interval": [f"{number % 3} mon {number} days {number}.5 s" for number in NUMBERS],
        "smallint": NUMBERS,
        "bigint": [2**53 + number for number in NUMBERS],
        "real": FRACTIONS,
        "double precision": FRACTIONS,
        "numeric": [f"0.1234567890123456789{number:02}" for number in range(ROWS)],
        "money": [f"{number}.25" for number in NUMBERS],
        "char(12)": [str(number) for number in NUMBERS],
        "varchar": [str(number) for number in NUMBERS],
        "text": [f"{moment:%d.%m.%Y %H:%M}" for moment in MOMENTS],
        'varchar COLLATE "C"': ["Zz"[number % 2] + str(number) for number in NUMBERS],
        "citext": ["aA"[number % 2] * (number % 5 + 1) for number in range(ROWS)],
        "uuid": HEX,
        "bytea": [bytes.fromhex(text) for text in HEX],
        "inet": [f"10.0.{number % 3}.{number}" for number in range(ROWS)],
        "boolean": [number % 2 == 0 for number in range(ROWS)],
    },
    "mysql": {
        "datetime": MOMENTS,
        "datetime(6)": [moment + timedelta(microseconds=number) for number, moment in enumerate(SPRING)],
        "timestamp null": MOMENTS,
        "timestamp(3) null": SPRING,
        # As old applications write a date that is not known.
        "datetime default null": ["0000-00-00 00:00:00" if number % 7 == 0 else MOMENTS[number] for number in NUMBERS],
        "date": [moment.date() + timedelta(number % 7) for number, moment in enumerate(MOMENTS)],
        "date default null": ["0000-00-00" if number % 7 == 0 else MOMENTS[number].date() for number in NUMBERS],
        "time": [moment.time() for moment in MOMENTS],
        "time(6)": [moment.time().replace(microsecond=number) for number, moment in enumerate(MOMENTS)],
        "year": [2000 + number for number in NUMBERS],
        "tinyint(1)": [number % 4 for number in range(ROWS)],
        "tinyint unsigned": [number + 200 for number in NUMBERS],
        "integer unsigned": [2**31 + number for number in NUMBERS],
        "bigint unsigned": [2**63 + number for number in NUMBERS],
        "bigint": [2**53 + number for number in NUMBERS],
        "float": FRACTIONS,
        "double": FRACTIONS,
        "decimal(30,22)": [f"0.1234567890123456789{number:02}" for number in range(ROWS)],
        "enum('b', 'c', 'a', '1')": ["bca1"[number % 4] for number in range(ROWS)],
        "set('b', 'c', 'a')": ["b,c,a"[number % 3 :].strip(",") for number in range(ROWS)],
        "char(12)": [str(number) for number in NUMBERS],
        "varchar(40)": ["aA"[number % 2] * (number % 5 + 1) for number in range(ROWS)],
        "varchar(40) collate utf8mb4_bin": ["Zz"[number % 2] + str(number) for number in NUMBERS],
        "text": [f"{moment:%d.%m.%Y %H:%M}" for moment in MOMENTS],
        "char(32)": HEX,
        "binary(16)": [bytes.fromhex(text) for text in HEX],
        "bit(1)": [number % 2 for number in range(ROWS)],
    },
    "sqlite": {
        "datetime": [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in MOMENTS],
        "timestamp": [f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in MOMENTS],
        "datetime not null default 0": [f"{moment:%Y-%m-%d %H:%M:%S}+02:00" for moment in SPRING],
        "date": [f"{moment:%d.%m.%Y}" for moment in MOMENTS],
        "integer": NUMBERS,
        "bigint": [2**53 + number for number in NUMBERS],
        "real": FRACTIONS,
        "decimal": FRACTIONS,
        "numeric": [number if number % 2 else f"x{number}" for number in NUMBERS],
        "char(12)": [str(number) for number in NUMBERS],
        "text": [f"{moment:%d.%m.%Y %H:%M}" for moment in MOMENTS],
        "text collate nocase": ["aA"[number % 2] * (number % 5 + 1) for number in range(ROWS)],
        "bool": [number % 4 for number in range(ROWS)],
        "blob": [
            (number, f"{number}", float(number) + 0.5, HEX[number].encode())[number % 4] for number in range(ROWS)
        ],
        "": [(number, f"{number}", number + 0.5)[number % 3] for number in range(ROWS)],
    },
}
IS_MYSQL = connection.vendor == "mysql"
KINDS = COLUMNS.get(connection.vendor, {})


@contextmanager
def inspected(column: str, field: str, key: str = "integer", key_type: str = "integer") -> Iterator[Any]:
    """Make a table with a column of this type, and give a model that has another field for it."""
    if column == "citext":
        pytest.importorskip("psycopg")
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS citext")
    values = KINDS[column]
    # What makes a table there ends the transaction of the test, unless the table is one of the session.
    temporary = "TEMPORARY" if IS_MYSQL else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP {temporary} TABLE IF EXISTS inspected" if temporary else "SELECT 1")
        cursor.execute(f"CREATE {temporary} TABLE inspected (id {key_type} PRIMARY KEY, value {column})")
        for number, value in enumerate(values):
            # Some values are there twice, and some are NULL.
            twice = value if number % 6 else values[number - 1]
            stored = None if number % 11 == 5 and "not null" not in column else twice
            cursor.execute("INSERT INTO inspected (id, value) VALUES (%s, %s)", [number, stored])
    with isolate_apps("tests.testapp"):

        class Inspected(models.Model):
            id = FIELDS[key](primary_key=True)
            value = FIELDS[field](null=True)

            class Meta:
                app_label = "testapp"
                db_table = "inspected"
                managed = False

        yield request_of(make_superuser(), site_with(Inspected))


def in_order(sign: str, value: str = "value") -> list[str]:
    """Return the keys of all rows as the database itself sorts them, NULL last."""
    way = "DESC" if sign else "ASC"
    text = "char" if IS_MYSQL else "text"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT CAST(id AS {text}) FROM inspected ORDER BY value IS NULL, {value} {way}, inspected.id {way}"
        )
        return [row[0] for row in cursor.fetchall()]


def walk(request: Any, limit: int, **arguments: Any) -> tuple[list[str], str]:
    """Return the keys of all pages, and what the last one says."""
    found: list[str] = []
    page = call(QueryRecords(), request, model=LABEL, limit=limit, fields=["id"], **arguments)
    for _ in range(ROWS + 2):
        found += [str(row[0]) for row in page["rows"]]
        if "next_cursor" not in page:
            return found, page.get("hint", "")
        cursor = page["next_cursor"]
        page = call(QueryRecords(), request, model=LABEL, limit=limit, fields=["id"], cursor=cursor, **arguments)
    pytest.fail("The pages do not end.")


def fits(column: str, field: str) -> bool:
    """Return whether a model may well have this field for a column: others MySQL sorts and compares differently."""
    if not IS_MYSQL:
        return True
    if column.startswith(("enum", "set")):
        return field in ("char", "text")
    if column == "bit(1)":
        # Django has no field for it, and inspectdb guesses one of text.
        return field in ("char", "text")
    if column in ("float", "double"):
        return field == "float"
    if column == "binary(16)":
        return field in ("char", "text", "uuid")
    return field != "float"


PAIRS = [pair for pair in product(KINDS, FIELDS) if fits(*pair)]
Random(25).shuffle(PAIRS)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("column", "field"), PAIRS[: drawn(len(PAIRS))], ids=lambda name: str(name) or "no type")
def test_pages_of_any_column_are_whole_whatever_its_field_says(column: str, field: str, zone: str) -> None:
    # A free text is sorted as it is shown, by an expression: in SQLite that has no collation of the column.
    is_free_text = field in ("char", "text") and connection.vendor == "sqlite"
    value = "value COLLATE BINARY" if is_free_text else "value"
    if IS_MYSQL and field in ("char", "text"):
        # The values of an ENUM have the order in which it lists them, but their texts that of texts.
        value = "CONCAT(value)"
    with override_settings(TIME_ZONE=zone), inspected(column, field) as request:
        for sign in ("", "-"):
            found, hint = walk(request, 5, ordering=[f"{sign}value"])
            assert (found, hint) == (in_order(sign, value), "")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("column", [name for name in KINDS if name.startswith(("timestamp", "datetime"))])
def test_pages_of_times_in_the_doubled_hour_and_the_missing_one_show_each_row_once(column: str, zone: str) -> None:
    with override_settings(TIME_ZONE=zone), inspected(column, "datetime") as request:
        for sign, limit in product(("", "-"), (1, 4, 7)):
            assert walk(request, limit, ordering=[f"{sign}value"])[0] == in_order(sign)


KEYS = [("integer", "varchar(9)"), ("char", "integer"), ("bigint", "text")]
if IS_MYSQL:
    KEYS += [("float", "float"), ("float", "double"), ("integer", "bigint unsigned"), ("char", "char(9)")]


@pytest.mark.parametrize(("key", "key_type"), KEYS)
def test_pages_by_a_key_of_another_type_are_whole(key: str, key_type: str) -> None:
    column = {"postgresql": "boolean", "mysql": "tinyint(1)"}.get(connection.vendor, "bool")
    text = "char" if IS_MYSQL else "text"
    if IS_MYSQL and key_type == "text":
        # No column of unlimited length has an index there.
        key_type = "varchar(40)"
    with inspected(column, "boolean", key, key_type) as request:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT CAST(id AS {text}) FROM inspected ORDER BY inspected.id")
            keys = [str(float(row[0])) if key == "float" else row[0] for row in cursor.fetchall()]
        assert walk(request, 5)[0] == keys
        assert walk(request, 5, ordering=["-pk"])[0] == keys[::-1]


def test_a_page_that_would_begin_at_the_end_of_the_last_one_is_refused(monkeypatch: Any) -> None:
    """A database that does not find what it has shown finds the last row again."""
    with inspected("float" if IS_MYSQL else "real", "float") as request:
        arguments = {"model": LABEL, "fields": ["id"], "ordering": ["value"], "limit": 5}
        page = call(QueryRecords(), request, **arguments)
        cursor, last = page["next_cursor"], page["rows"][-1][0]
        monkeypatch.setattr("mcp_django.orm.pagination.Segment.condition", lambda *args: models.Q(pk=last))
        with pytest.raises(ToolError, match=r"cannot be paged.*Choose another ordering"):
            call(QueryRecords(), request, **arguments, cursor=cursor)
