"""Databases of their own in SQLite files, as a project has them that leaves Django's defaults alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, connections
from django.db.models import Model

ALIAS = "file"


@contextmanager
def sqlite_file(path: Path, *models: type[Model], journal: str = "", **options: Any) -> Iterator[Any]:
    """Give this thread's connection to a database with the tables of these models, known as `ALIAS`."""
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path / "file.sqlite3"), "OPTIONS": options}
    connections.settings[ALIAS] = entry
    connections.configure_settings(connections.settings)
    connection = connections[ALIAS]
    try:
        if journal:
            connection.cursor().execute(f"PRAGMA journal_mode = {journal}")
        for model in models:
            with connection.schema_editor() as editor:
                editor.create_model(model)
        yield connection
    finally:
        connection.close()
        del connections[ALIAS], connections.settings[ALIAS]


@contextmanager
def noting_transactions() -> Iterator[list[str]]:
    """Give how SQLite's transactions begin, where a project leaves Django's defaults alone: the tests' own do not."""
    begun: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("BEGIN"):
            begun.append(sql)
        return execute(sql, *rest)

    wrapper: Any = connections[connection.alias]
    wrapper.ensure_connection()
    usual, wrapper.transaction_mode = wrapper.transaction_mode, None
    try:
        with wrapper.execute_wrapper(note):
            yield begun
    finally:
        wrapper.transaction_mode = usual
