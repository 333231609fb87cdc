"""All rows of all tables before and after a block: what a write did, found without the code that tells it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import connection, models

from mcp_django.differences.footprints import StoredDifference, kind_of_change
from mcp_django.differences.stored_rows import differing, stored_table

# What happened to rows, by table and the text of the key: "added", "deleted", or the attnames of changed columns.
Changes = dict[str, dict[str, Any]]


def tables_of(*labels: str) -> list[type[models.Model]]:
    """Return the models of some apps that have tables, those of links too."""
    found = apps.get_models(include_auto_created=True)
    return [model for model in found if model._meta.app_label in labels and not model._meta.proxy]


def key_text(key: Any) -> str:
    """Return the text of a key, which is the same for a value of Python and for what a database holds."""
    return ",".join(map(str, key if isinstance(key, tuple) else (key,))).replace("-", "")


def dump(tables: Iterable[type[models.Model]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return all rows of tables as the database's driver gives them, by table, key and attname."""
    found = {}
    for model in tables:
        fields = model._meta.local_concrete_fields
        names = ", ".join(connection.ops.quote_name(field.column) for field in fields)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {names} FROM {connection.ops.quote_name(model._meta.db_table)}")
            rows = [dict(zip([field.attname for field in fields], row, strict=True)) for row in cursor.fetchall()]
        keys = [field.attname for field in model._meta.pk_fields]
        found[model._meta.db_table] = {key_text(tuple(row[key] for key in keys)): row for row in rows}
    return found


@contextmanager
def changing(tables: Iterable[type[models.Model]]) -> Iterator[Changes]:
    """Give what happens to rows in the block, once it has ended."""
    tables = list(tables)
    before = dump(tables)
    found: Changes = {}
    yield found
    after = dump(tables)
    for table, rows in before.items():
        now = after[table]
        own = dict.fromkeys(now.keys() - rows.keys(), "added") | dict.fromkeys(rows.keys() - now.keys(), "deleted")
        for key in rows.keys() & now.keys():
            if names := {name for name, value in rows[key].items() if repr(value) != repr(now[key][name])}:
                own[key] = names
        if own:
            found[table] = own


def changes_of(difference: StoredDifference) -> Changes:
    """Return what a difference tells, in the same form."""
    found: Changes = {}
    for model, rows in difference.changes.items():
        table = stored_table(model, difference.using)
        own = found.setdefault(model._meta.db_table, {})
        for key, change in rows.items():
            before, after = change
            kind: Any = kind_of_change(change)
            if before is not None and after is not None:
                kind = {table.names[place] for place in differing(before, after)}
            own[key_text(key)] = kind
    return found
