"""Rows of every type of column are read as they are stored, and written back byte for byte."""

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from mcp_django.differences.stored_rows import StoredTable, differing, stored_table
from tests.fieldapp.models import Guest, Night, Passport, Point, Restaurant, Sample, Seat
from tests.oddapp.models import Bid, Currency

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
USING = "default"
_numbers = count(1)


def table_of(model: type[models.Model]) -> StoredTable:
    return stored_table(model, USING)


def full_sample(**values: Any) -> Sample:
    return Sample.objects.create(
        **{
            "name": "Ünïcode \\ ' % %s \n \U0001f600",
            "text": "  spaces  ",
            "slug": "a-slug",
            "url": "https://example.com/?a=%20",
            "email": "ada@example.com",
            "upper": "loud",
            "integer": -(2**30),
            "small": 32767,
            "big": 2**63 - 1,
            "positive": 0,
            "flag": True,
            "maybe": False,
            "decimal": Decimal("-12345678.1200"),
            "number": 0.1 + 0.2,
            "day": date(1, 1, 1) if connection.vendor == "sqlite" else date(1000, 1, 1),
            "moment": datetime(2026, 10, 25, 0, 30, 15, 123456, UTC),
            "clock": time(23, 59, 59, 999999),
            "length": timedelta(days=-3, microseconds=7),
            "key": UUID(int=2**127 + 1),
            "ip": "2001:db8::1",
            "data": {"b": [1, 1.0, None, "é"], "a": {"%s": "'"}},
            "blob": bytes(range(256)),
            "document": "documents/a.txt",
            "colour": "r",
            "level": 10,
            "medium": "cd",
            "answer": "y",
            "point": Point(1, -2),
            **values,
        }
    )


def test_rows_come_back_byte_for_byte() -> None:
    table = table_of(Sample)
    rows = [full_sample(), full_sample(number=-1e-320, blob=b"", data=[]), Sample.objects.create(name="")]
    before = table.read("pk", [row.pk for row in rows])
    instances = list(Sample.objects.order_by("pk").values())
    assert len(before) == 3
    table.delete(before)
    assert not Sample.objects.exists()
    table.insert(list(before.values()))
    assert list(Sample.objects.order_by("pk").values()) == instances
    after = table.read_keys(before)
    assert after == before
    assert not any(differing(before[key], after[key]) for key in before)


def test_cells_go_back_into_changed_rows_in_one_statement() -> None:
    table = table_of(Sample)
    keys = [full_sample().pk, full_sample(integer=None, blob=None, data=None).pk, Sample.objects.create(name="x").pk]
    before = table.read("pk", keys)
    Sample.objects.update(
        **{
            "name": "other",
            "integer": 7,
            "decimal": 1,
            "number": 1.5,
            "day": date(2000, 1, 1),
            "moment": datetime.now(UTC),
            "clock": time(1),
            "length": timedelta(1),
            "key": UUID(int=1),
            "ip": "127.0.0.1",
            "data": 5,
            "blob": b"x",
            "colour": "g",
            "maybe": None,
            "point": Point(5, 5),
        }
    )
    changed = table.read_keys(before)
    changes = {
        key: {table.names[place]: row[place] for place in differing(row, changed[key])} for key, row in before.items()
    }
    with CaptureQueriesContext(
        connection,
    ) as queries:
        table.update(changes)
    assert len(queries) == 1
    assert table.read_keys(before) == before


def test_a_generated_column_is_neither_read_nor_written() -> None:
    assert "doubled" not in table_of(Sample).names


def test_a_child_has_only_the_columns_of_its_own_table() -> None:
    row = Restaurant.objects.create(name="Zur Post", cuisine="Swabian")
    table = table_of(Restaurant)
    assert (table.names, table.key_names) == (("place_ptr_id", "cuisine"), ("place_ptr_id",))
    (stored,) = table.read("pk", [row.pk]).values()
    assert stored[1] == "Swabian"
    table.delete([table.key_of(stored)])
    table.insert([stored])
    assert Restaurant.objects.get().name == "Zur Post"


def test_keys_of_several_columns() -> None:
    guest = Guest.objects.create(name="Ada")
    seats = [Seat.objects.create(hall=hall, number=number, guest=guest) for hall in "ab" for number in (1, 2)]
    nights = [Night.objects.create(guest=guest, day=date(2026, 1, day)) for day in (1, 2)]
    table = table_of(Seat)
    found = table.read("pk", [seats[0].pk, seats[3].pk, ("b", 9)])
    assert sorted(table.cell_of(row, "hall") for row in found.values()) == ["a", "b"]
    assert table.read_keys(found) == found
    table.delete(found)
    assert [seat.pk for seat in Seat.objects.order_by("pk")] == [("a", 2), ("b", 1)]
    table.insert(list(found.values()))
    table.update({key: {"note": note} for key, note in zip(found, ("one", "two"), strict=True)})
    assert list(Seat.objects.order_by("pk").values_list("note", flat=True)) == ["one", "", "", "two"]
    assert len(table_of(Night).read("guest_id", [guest.pk])) == len(nights)
    assert len(table_of(Night).read("pk", [nights[0].pk])) == 1


def test_rows_are_found_by_relations() -> None:
    guests = [Guest.objects.create(name=name) for name in ("a", "b")]
    Passport.objects.create(guest=guests[0], number="1")
    Guest.objects.create(name="c", host=guests[0])
    currency = Currency.objects.create(code="EUR", number=978, name="Euro")
    Bid.objects.create(name="x", currency=currency, paid_in=currency)
    assert len(table_of(Passport).read("pk", [guest.pk for guest in guests])) == 1
    assert len(table_of(Guest).read("host_id", [guest.pk for guest in guests])) == 1
    assert len(table_of(Guest).read("host_id", [None])) == 0
    assert len(table_of(Bid).read("currency_id", ["EUR", "USD"])) == 1
    assert len(table_of(Bid).read("paid_in_id", [978])) == 1


def test_many_rows_take_few_statements() -> None:
    Guest.objects.bulk_create(Guest(name=str(number)) for number in range(1500))
    table = table_of(Guest)
    keys = list(Guest.objects.values_list("pk", flat=True))
    with CaptureQueriesContext(connection) as queries:
        rows = table.read("pk", keys)
    assert len(rows) == 1500
    assert len(queries) <= 2
    table.update({key: {"name": f"{key[0]}!"} for key in rows})
    assert Guest.objects.filter(name__endswith="!").count() == 1500
    table.delete(rows)
    table.insert(list(rows.values()))
    assert table.read_keys(rows) == rows


def test_rows_are_found_by_several_conditions_in_one_statement() -> None:
    guests = [Guest.objects.create(name=name) for name in "abc"]
    guest = Guest.objects.create(name="d", host=guests[0])
    table = table_of(Guest)
    (key,) = table.read("pk", [guests[1].pk])
    (host,) = table.read("pk", [guests[0].pk])
    with CaptureQueriesContext(connection) as queries:
        found = table.read_any([(("id",), [key]), (("host_id",), [host]), (("name",), [])])
    assert len(queries) == 1
    assert {table.cell_of(row, "name") for row in found.values()} == {"b", "d"}
    assert table.read_any([]) == {}
    assert guest.host_id == guests[0].pk


def test_rows_that_are_read_to_be_written_are_locked() -> None:
    guest = Guest.objects.create(name="a")
    with CaptureQueriesContext(connection) as queries:
        table_of(Guest).read("pk", [guest.pk], lock=True)
    locks = connection.features.has_select_for_update
    assert queries[0]["sql"].endswith("FOR UPDATE") is locks


def calls_of(run: Callable[[], Any]) -> int:
    """Count the calls of Python, without those within the database's driver."""
    calls = 0

    def count_call(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and "pymysql" not in frame.f_code.co_filename

    sys.setprofile(count_call)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_a_row_is_read_with_few_calls_of_python() -> None:
    key = full_sample().pk
    table = table_of(Sample)

    def query() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM fieldapp_sample WHERE id IN (%s)", [key])
            cursor.fetchall()

    query()
    assert calls_of(lambda: table.read("pk", [key], lock=True)) - calls_of(query) <= 40


@pytest.mark.skipif(connection.vendor != "postgresql", reason="needs PostgreSQL")
def test_the_fields_that_only_postgresql_has() -> None:
    from tests.postgresapp.models import PostgresSample

    full = PostgresSample.objects.create(
        name="full",
        words=["a", None, "NULL", '"'],
        numbers=[1, None],
        days=[date(2026, 1, 1)],
        grid=[[1, 2], [3, 4]],
        span=(1, None),
        wide=(None, 2**60),
        amounts=(Decimal("1.50"), Decimal(2)),
        stay=(date(2026, 1, 1), date(2026, 1, 9)),
        open=(datetime(2026, 1, 1, tzinfo=UTC), None),
        extra={"a": None, "%s": "'"},
        search="'b':2 'a':1A",
    )
    other = PostgresSample.objects.create(name="empty")
    rows = list(PostgresSample.objects.order_by("pk").values())
    table = table_of(PostgresSample)
    before = table.read("pk", [full.pk, other.pk])
    table.delete(before)
    table.insert(list(before.values()))
    assert list(PostgresSample.objects.order_by("pk").values()) == rows
    first, second = before
    table.update({first: dict(zip(table.names[1:], before[second][1:], strict=True))})
    table.update({key: dict(zip(table.names[1:], row[1:], strict=True)) for key, row in before.items()})
    assert list(PostgresSample.objects.order_by("pk").values()) == rows
    assert table.read_keys(before) == before
