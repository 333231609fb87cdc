"""Whether rows that appear where a write looks are new ones, or were moved there.

Rows after a write that were not among those before it look like new rows. But a hook may have given an older row this
parent, or the key of an older row to the saved instance; to take the write back would delete that row. No query tells
the two apart, so the statements of the write are watched.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.models import Model

from .statements import Statement, table_name


class NewRows:
    """Counts the INSERTs that a write makes in each table of one database, and notes which columns it assigns."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._was_watched = False
        # By the last part of the table's name.
        self._inserts: Counter[str] = Counter()
        self._assigned: dict[str, list[str]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the statements of the block."""
        self._was_watched = True
        with connections[self.using].execute_wrapper(self._note):
            yield

    def may_be_old(self, model: type[Model], number: int, columns: Collection[str]) -> bool:
        """Return whether some of this number of rows of a table, which were found by these columns, may have been there
        before the write.

        They are new if as many INSERTs were made, or if there was one and no statement assigned the columns. Wrong only
        where a hook moves a row here, and makes as many as that elsewhere.
        """
        [*_, name] = table_name(connections[self.using].ops.quote_name(model._meta.db_table))
        inserts = self._inserts[name]
        if not self._was_watched or number <= inserts:
            return False
        assigned = self._assigned.get(name, ())
        return not inserts or any(column.lower() in text for text in assigned for column in columns)

    def _note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        for statement in Statement.read(Statement.text(sql, context["connection"])):
            if statement.table is None:
                continue
            name = statement.table[-1]
            text = str(sql).lower()
            is_upsert = " do update" in text or " on duplicate key" in text
            if statement.word == "INSERT" and not is_upsert:
                self._inserts[name] += len(params) if many else 1
            elif statement.word != "DELETE":
                # Of all but an UPDATE, the whole text stands for what it assigns.
                self._assigned.setdefault(name, []).append(statement.assigned.lower() or text)
        return execute(sql, params, many, context)
