"""Tables emptied after a test that commits, without making anew what every empty database has.

Django empties all of them and then makes each content type and each permission again, which takes longer than most
tests. Those tables are left alone where they are as they were; where a test has changed one, Django has its way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.apps import apps
from django.core.management.color import no_style
from django.db import connections
from django.test import TransactionTestCase

Rows = list[tuple[Any, ...]]
Made = dict[str, dict[str, Rows]]
_as_django_does = TransactionTestCase._fixture_teardown


def made_at_first() -> Made:
    """Return the rows of each table that has some, by the alias of its database, where no test has run yet."""
    return {alias: _made(alias) for alias in connections if not connections[alias].settings_dict["TEST"]["MIRROR"]}


@contextmanager
def sooner(made: Made) -> Iterator[None]:
    """Empty the other tables alone, and these too where they have changed, until the block ends."""

    def empty(case: Any) -> None:
        aliases = case._databases_names(include_mirrors=False)
        if not all(_is_as_made(alias, made[alias]) for alias in aliases):
            _as_django_does(case)
            made.update({alias: _made(alias) for alias in aliases})
            return
        for alias in aliases:
            connection = connections[alias]
            tables = [table for table in _tables(alias) if table not in made[alias]]
            connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), tables))

    with patch.object(TransactionTestCase, "_fixture_teardown", empty):
        yield


def _tables(alias: str) -> list[str]:
    return connections[alias].introspection.django_table_names(only_existing=True, include_views=False)


def _made(alias: str) -> dict[str, Rows]:
    """Return the rows of each table that has some; nothing if one refers to an empty one, which PostgreSQL keeps."""
    found = {table: rows for table in _tables(alias) if (rows := _rows(alias, table))}
    for model in apps.get_models(include_auto_created=True):
        related = [field.related_model for field in model._meta.concrete_fields if field.remote_field]
        if model._meta.db_table in found and any(other._meta.db_table not in found for other in related):
            return {}
    return found


def _rows(alias: str, table: str) -> Rows:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connections[alias].ops.quote_name(table)} ORDER BY 1")
        return list(cursor.fetchall())


def _is_as_made(alias: str, made: dict[str, Rows]) -> bool:
    return bool(made) and all(_rows(alias, table) == rows for table, rows in made.items())
