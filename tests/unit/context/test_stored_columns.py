"""How columns are read and written in the SQL of each database; the differences' tests try it on all of them."""

from typing import Any

import pytest
from django.db import NotSupportedError, connection, connections

from mcp_django.context.stored_columns import MySQLColumns, PostgreSQLColumns, SQLiteColumns, stored_columns

pytestmark = pytest.mark.django_db


def test_a_database_whose_cells_are_not_known_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    with pytest.raises(NotSupportedError, match="oracle"):
        stored_columns("default", "testapp_book")


def test_each_database_gives_cells_in_its_own_way() -> None:
    columns = stored_columns("default", "testapp_book")
    name = columns.name("50%")
    assert name == connection.ops.quote_name("50%%")
    shown = {SQLiteColumns: f"+{name} AS c", PostgreSQLColumns: f"{name}::text", MySQLColumns: f"CAST({name} AS CHAR)"}
    assert columns.cell("50%") == shown[type(columns)]


def test_combinations_of_columns_are_compared_with_lists() -> None:
    one, two = "a", "b"
    assert SQLiteColumns("default", "t").among([one], [(1,), (2,)]) == ("a IN (%s, %s)", [1, 2])
    pairs = [(1, "x"), (2, "y")]
    expected = "(a, b) IN (VALUES (%s, %s), (%s, %s))"
    assert SQLiteColumns("default", "t").among([one, two], pairs) == (expected, [1, "x", 2, "y"])
    expected = "(a, b) IN ((%s, %s), (%s, %s))"
    assert PostgreSQLColumns("default", "t").among([one, two], pairs) == (expected, [1, "x", 2, "y"])
