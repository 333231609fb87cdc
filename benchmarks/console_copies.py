"""The log of calls that :mod:`benchmarks.console_pages` makes on PostgreSQL, copied to SQLite, MariaDB or MySQL."""

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

TABLE: Final = "mcp_django_callentry"
# Number of rows that are copied at a time.
AT_A_TIME: Final = 250_000


def create(server: str, name: str) -> str:
    """Create a database on a server of MariaDB or MySQL unless it is there, and return its URL."""
    import pymysql

    with closing(pymysql.connect(**_account(server))) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4")
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def copy(source: str, target: str) -> None:
    """Copy the calls that are missing from the database at ``source``, on PostgreSQL, to Django's default database,
    which is at ``target``."""
    import psycopg
    from django.db import connection

    with connection.cursor() as cursor, psycopg.connect(source) as log:
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {TABLE}")
        last = cursor.fetchone()[0]
        end = log.execute(f"SELECT COALESCE(MAX(id), 0) FROM {TABLE}").fetchone()[0]  # type: ignore[index]
        begins = range(last, end, AT_A_TIME)
        indexes = _take_indexes(cursor) if len(begins) > 1 else []
        if connection.vendor == "sqlite":
            _to_sqlite(log, cursor, begins)
        else:
            _to_mysql(log, target, begins)
        for statement in indexes:
            cursor.execute(statement)
        cursor.execute("ANALYZE" if connection.vendor == "sqlite" else f"ANALYZE TABLE {TABLE}")


def _to_sqlite(log: Any, cursor: Any, begins: range) -> None:
    columns, selected = _columns()
    places = ", ".join("?" for _column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    # The file is made anew if the machine stops.
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.execute("PRAGMA cache_size = -1000000")
    connection = cursor.db.connection
    for begin in begins:
        rows = log.execute(f"SELECT {selected} FROM {TABLE} WHERE id > %s AND id <= %s", [begin, begin + AT_A_TIME])
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {TABLE} ({names}) VALUES ({places})", rows)
        connection.execute("COMMIT")


def _to_mysql(log: Any, target: str, begins: range) -> None:
    import pymysql

    columns, selected = _columns()
    names = ", ".join(f"`{column}`" for column in columns)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(pymysql.connect(**_account(target), local_infile=True, charset="utf8mb4")) as connection,
        connection.cursor() as cursor,
    ):
        file = Path(folder, "calls.txt")
        # The keys were unique where they come from.
        cursor.execute("SET unique_checks = 0, foreign_key_checks = 0")
        for begin in begins:
            rows = f"SELECT {selected} FROM {TABLE} WHERE id > {begin} AND id <= {begin + AT_A_TIME}"
            with file.open("wb") as written, log.cursor().copy(f"COPY ({rows}) TO STDOUT") as read:
                for block in read:
                    written.write(block)
            # Both write their text files alike: tabs between values, backslashes before what is special, \N for NULL.
            cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {TABLE} CHARACTER SET utf8mb4 ({names})")
            connection.commit()


def _columns() -> tuple[list[str], str]:
    """Return the columns of the log, and what PostgreSQL selects to write their values as the other databases do."""
    from django.db import models

    from mcp_django.models import CallEntry

    names = []
    selected = []
    for field in CallEntry._meta.local_concrete_fields:
        names.append(str(field.column))
        if isinstance(field, models.DateTimeField):
            selected.append(f"to_char(\"{field.column}\" AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')")
        elif isinstance(field, models.BooleanField):
            selected.append(f'"{field.column}"::int')
        elif isinstance(field, models.JSONField):
            selected.append(f'"{field.column}"::text')
        else:
            selected.append(f'"{field.column}"')
    return names, ", ".join(selected)


def _take_indexes(cursor: Any) -> list[str]:
    """Drop the indexes that are no constraints, as many rows are inserted faster without them, and return the
    statements that make them again."""
    if cursor.db.vendor == "sqlite":
        cursor.execute(f"SELECT name, sql FROM sqlite_master WHERE tbl_name = '{TABLE}' AND sql LIKE 'CREATE INDEX%'")
        indexes = cursor.fetchall()
        for name, _made in indexes:
            cursor.execute(f'DROP INDEX "{name}"')
        return [made for _name, made in indexes]

    added = []
    for name, index in cursor.db.introspection.get_constraints(cursor, TABLE).items():
        if index["index"] and not index["unique"]:
            cursor.execute(f"DROP INDEX `{name}` ON {TABLE}")
            added.append(f"ADD INDEX `{name}` ({', '.join(index['columns'])})")
    return [f"ALTER TABLE {TABLE} {', '.join(added)}"] if added else []


def _account(url: str) -> dict[str, Any]:
    """Return what PyMySQL connects by."""
    parts = urlsplit(url)
    return {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "database": parts.path.lstrip("/"),
    }
