"""Rows that one write saves one after another: each as it is by then, as the project's code may have changed it.

Saving a row writes all its columns. One that was read before the others were saved would set back what a hook of theirs
has written to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, router
from django.db.models import Model

from ..exceptions import ToolError
from .cascades import with_parents
from .statements import Statement, TableName, table_name
from .stored_rows import stored_table

DELETED: Final = "The project's code has deleted it when it saved the rows before."


class FreshRows:
    """Watches whether saving a row of a model writes others too, and reads the rows again from then on."""

    def __init__(self, model: type[Model]) -> None:
        self.using = router.db_for_write(model)
        self._connection: Any = connections[self.using]
        self._tables = dict(map(self._table, with_parents(model)))
        # Triggers write without a statement that could be seen.
        self._are_old = any(stored_table(one, self.using).columns.has_triggers for one in with_parents(model))
        self._key: Any = None

    @contextmanager
    def saving(self, row: Model | None) -> Iterator[None]:
        """Watch the statements of the block, which saves a row; make it the row as it is now. None is a new row."""
        if row is not None and self._are_old:
            self._read_again(row)
        self._key = None
        if row is not None and len(row._meta.pk_fields) == 1:
            self._key = row._meta.pk.get_db_prep_value(row.pk, self._connection)
        if self._are_old:
            yield
            return
        with self._connection.execute_wrapper(self._note):
            yield

    def _read_again(self, row: Model) -> None:
        try:
            row.refresh_from_db(using=router.db_for_write(type(row), instance=row))
        except ObjectDoesNotExist:
            raise ToolError(DELETED) from None

    def _table(self, model: type[Model]) -> tuple[TableName, str]:
        """Return the table of a model, and how a statement ends that writes one row of it."""
        quote = self._connection.ops.quote_name
        name = quote(model._meta.db_table)
        [*others, last] = model._meta.pk_fields
        return table_name(name), "" if others else f" WHERE {name}.{quote(last.column)} = %s"

    def _note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        for statement in Statement.read(Statement.text(sql, self._connection)):
            if statement.reads or statement.word == "INSERT" or statement.table not in {None, *self._tables}:
                continue
            end = self._tables.get(statement.table or ())
            is_own = end and params and not many and str(sql).endswith(end) and params[-1] == self._key
            self._are_old = self._are_old or not is_own
        return execute(sql, params, many, context)
