"""Rows that the code of a project writes in the tables of a footprint, but that the footprint does not have.

They are not in the difference of the write, and are not taken back with it; so it is told that their table is written.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from types import NoneType
from typing import Any, Final

from django.apps import apps
from django.db import DatabaseError, connections, transaction
from django.db.models import Model

from .footprints import Footprint, StoredDifference
from .statements import Statement, TableName, table_name
from .stored_rows import Key, stored_table

_CONDITION: Final = re.compile(r"\sWHERE\s+(?P<condition>.*)$", re.IGNORECASE | re.DOTALL)
_PLACEHOLDER: Final = re.compile(r"(?<!%)%s")
CHANGING: Final = ("UPDATE", "DELETE")
# The condition of a statement that has none.
EVERY_ROW: Final = "1 = 1"


class OtherRows:
    """Watches which rows of the tables of a footprint are written, while a write is tried.

    Before an UPDATE or a DELETE, the keys of its rows are read by the same condition. Where that cannot be done, its
    rows are taken for those of the footprint.
    """

    def __init__(self, footprint: Footprint) -> None:
        self.footprint = footprint
        self.using = footprint.using
        self._inserted: Counter[TableName] = Counter()
        # The keys of rows that the footprint did not have when they were written, as texts.
        self._strangers: dict[type[Model], set[str]] = defaultdict(set)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the statements of the block."""
        with connections[self.using].execute_wrapper(self._note):
            yield

    def tables(self, difference: StoredDifference) -> set[str]:
        """Return the tables (``db_table``) of the footprint in which others were written than the rows of the
        difference, and those that were there before."""
        return {model._meta.db_table for model in self.footprint.rows if self._has_others(model, difference)}

    @property
    def are_named_too_late(self) -> bool:
        """Whether rows of the footprint were written before it had them: it does not know how they were before."""
        return any(
            not strangers.isdisjoint(map(_text, self.footprint.rows.get(model, ())))
            for model, strangers in self._strangers.items()
        )

    def _has_others(self, model: type[Model], difference: StoredDifference) -> bool:
        changes = difference.changes.get(model, {})
        added = {_text(key) for key, (before, _) in changes.items() if before is None}
        return self._inserted[self._name_of(model)] > len(added) or not self._strangers[model] <= added

    @cached_property
    def _models(self) -> dict[TableName, type[Model]]:
        """All models with a table, by its name."""
        models = [model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy]
        return {self._name_of(model): model for model in models}

    def _name_of(self, model: type[Model]) -> TableName:
        return table_name(connections[self.using].ops.quote_name(model._meta.db_table))

    def _note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = Statement.text(sql, context["connection"])
        statements = [one for one in Statement.read(text) if one.table is not None]
        for statement in statements if len(statements) == 1 and not many else ():
            if statement.word in CHANGING:
                self._note_rows(statement, text, params)
        result = execute(sql, params, many, context)
        for statement in statements:
            if statement.word == "INSERT" and statement.table is not None:
                # Where the statement returns rows, SQLite has not counted them yet.
                self._inserted[statement.table] += max(context["cursor"].rowcount, int("RETURNING" in text))
        return result

    def _note_rows(self, statement: Statement, text: str, params: Any) -> None:
        model = self._models.get(statement.table or ())
        found = _CONDITION.search(text.replace(statement.assigned, "", 1))
        if model is None or not isinstance(params, (list, tuple, NoneType)):
            return
        condition = str(found["condition"]) if found is not None else EVERY_ROW
        given = list(params or ())
        given = given[len(given) - len(_PLACEHOLDER.findall(condition)) :]
        rows = self.footprint.rows.get(model, ())
        if self._names_only(model, condition, given, rows):
            return
        self._strangers[model] |= self._keys(model, condition, given) - set(map(_text, rows))

    def _names_only(self, model: type[Model], condition: str, params: Sequence[Any], rows: Collection[Key]) -> bool:
        """Return whether a condition is Django's for rows with these keys, and they are among some rows."""
        quote: Any = connections[self.using].ops.quote_name
        [*others, last] = model._meta.pk_fields
        column = f"{quote(model._meta.db_table)}.{quote(last.column)}"
        are_named = not others and condition.startswith((f"{column} = %s", f"{column} IN (%s"))
        if not are_named or _PLACEHOLDER.sub("", condition.removeprefix(column)).strip("=IN(), "):
            return False
        known = {str(key[0]) for key in rows}
        return all(str(param) in known for param in params)

    def _keys(self, model: type[Model], condition: str, params: Sequence[Any]) -> set[str]:
        table = stored_table(model, self.using)
        quote = connections[self.using].ops.quote_name
        cells = ", ".join(table.columns.cell(table.fields[name].column) for name in table.key_names)
        sql = f"SELECT {cells} FROM {quote(model._meta.db_table)} WHERE {condition}"
        with suppress(DatabaseError), transaction.atomic(using=self.using):
            return {_text(key) for key in table.columns.fetch(sql, params)}
        return set()


def _text(key: Sequence[Any]) -> str:
    return repr(tuple(key))
