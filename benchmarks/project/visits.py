"""The rows of the very long table on PostgreSQL, and the orders in which it is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import connection, transaction

from mcp_django.testing import MCPClient

from .data import KINDS, READER_PK, START
from .data import create as create_tables
from .models import Visit

# Rows of one statement, and of one time.
BATCH: Final = 1_000_000
AT_ONCE: Final = 3
SECONDS: Final = 10
CENTS: Final = 100_000
LIMIT: Final = 50
# Of 100 rows, those that come before the deep page.
DEPTH: Final = 99


@dataclass(frozen=True)
class Order:
    """A measured order: what a client asks for, and the key of the row at a place, the first being 1."""

    name: str
    ordering: Sequence[str]
    key: Callable[[int, int], int]


def _by_kind(place: int, rows: int) -> int:
    """Return the key by kind, the newest first: each kind has as many rows."""
    kind, before = divmod(place - 1, rows // len(KINDS))
    return rows - len(KINDS) + kind + 1 - before * len(KINDS)


ORDERS: Final = (
    Order("pk", ["id"], lambda place, rows: place),
    Order("date", ["-created"], lambda place, rows: rows + 1 - place),
    Order("composite", ["kind", "-created"], _by_kind),
)


def create(rows: int) -> list[dict[str, Any]]:
    """Make the tables and fill the long one with ``rows`` rows, a multiple of the number of kinds.

    Return for each order what a client asks for, and the first page, the second one and one deep in the table.
    """
    create_tables(1, 1)
    client = MCPClient(get_user_model().objects.get(pk=READER_PK))
    found = [
        {
            "name": order.name,
            "arguments": {"model": "bench.visit", "ordering": order.ordering, "limit": LIMIT},
            "pages": [page_after(client, order, place, rows) for place in (0, LIMIT, rows * DEPTH // 100)],
        }
        for order in ORDERS
    ]
    fill(rows)
    return found


def page_after(client: MCPClient, order: Order, place: int, rows: int) -> dict[str, Any]:
    """Return the page after so many rows: its cursor, where it has one, and the keys of its rows."""
    cursor = cursor_after(client, order, place, rows) if place else None
    keys = [order.key(place + number, rows) for number in range(1, min(LIMIT, rows - place) + 1)]
    return {"after": place, "cursor": cursor, "keys": keys}


def cursor_after(client: MCPClient, order: Order, place: int, rows: int) -> str:
    """Return the cursor of the page after the row at a place.

    A cursor knows the row, not its place: it is the one that the endpoint gives after the first of two rows, while the
    table has no others.
    """
    with transaction.atomic():
        Visit.objects.bulk_create(visit(order.key(at, rows)) for at in (place, place + 1))
        page = client.call("query_records", model="bench.visit", ordering=order.ordering, limit=1)
        transaction.set_rollback(True)
    cursor: str = page.structured["next_cursor"]
    return cursor


def visit(key: int) -> Visit:
    """Return the row of a key, as :func:`fill` makes it."""
    number = key - 1
    created = START + timedelta(seconds=number // AT_ONCE * SECONDS)
    amount = Decimal(number % CENTS) / 100
    return Visit(pk=key, created=created, kind=KINDS[number % len(KINDS)], amount=amount)


def fill(rows: int) -> None:
    """Insert all rows; the indexes come after them, which is quicker."""
    quoted = connection.ops.quote_name(Visit._meta.db_table)
    with connection.schema_editor() as editor:
        for index in Visit._meta.indexes:
            editor.remove_index(Visit, index)
    with connection.cursor() as cursor:
        for first in range(0, rows, BATCH):
            cursor.execute(
                f"INSERT INTO {quoted} (id, created, kind, amount) "
                "SELECT n + 1, %s + (n / %s) * %s::interval, (%s::text[])[n %% %s + 1], (n %% %s) / 100.0 "
                "FROM generate_series(%s::bigint, %s) AS n",
                [
                    START,
                    AT_ONCE,
                    f"{SECONDS} seconds",
                    list(KINDS),
                    len(KINDS),
                    CENTS,
                    first,
                    min(first + BATCH, rows) - 1,
                ],
            )
    with connection.schema_editor() as editor:
        for index in Visit._meta.indexes:
            editor.add_index(Visit, index)
    with connection.cursor() as cursor:
        # What the server would do by itself later, while it is measured.
        cursor.execute(f"VACUUM (ANALYZE) {quoted}")
