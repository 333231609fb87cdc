"""What is really in the database of a running server, read beside it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


class Database:
    """An SQLite file that a server has open as well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=20)) as connection:
            return connection.execute(query, params).fetchall()

    def value(self, query: str, *params: Any) -> Any:
        return self.rows(query, *params)[0][0]
