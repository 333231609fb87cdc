"""The rows of one table exactly as the database holds them, and back: no converters, no fields, no hooks.

A row here has only the columns of its model's own table. What a child model inherits is in the row of its parent.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from django.db import connections
from django.db.models import GeneratedField, Model

from ..context.stored_columns import Cell, stored_columns

Key = tuple[Cell, ...]
Row = tuple[Cell, ...]
# Names of columns, and the combinations of cells that rows are found by.
Wanted = tuple[tuple[str, ...], Sequence[Sequence[Any]]]

# Where a database has no limit, or one that no statement should come near to.
_MAX_PARAMS: Final = 10_000
# For each row of an UPDATE, the database goes through the keys of all.
_MAX_ROWS_OF_UPDATE: Final = 500


def differing(before: Row, after: Row) -> list[int]:
    """Return the places of the cells in which two rows of a table differ; 1 and 1.0 are two values of SQLite."""
    return [
        place
        for place, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new or type(old) is not type(new)
    ]


class StoredTable:
    """The table of one model on one of the ``DATABASES``. Statements run in the transaction of the caller.

    Take it from :func:`stored_table`, which keeps it: MySQL is asked for the types of the columns.
    """

    def __init__(self, model: type[Model], using: str) -> None:
        meta = model._meta.concrete_model._meta  # type: ignore[union-attr]
        fields: list[Any] = [field for field in meta.local_concrete_fields if not isinstance(field, GeneratedField)]
        self.model: type[Model] = meta.model
        self.using = using
        self.fields = {field.attname: field for field in fields}
        self.names = tuple(self.fields)
        self.key_names = tuple(field.attname for field in meta.pk_fields)
        self.volatile = frozenset(field.attname for field in fields if getattr(field, "auto_now", False))
        self._places = {name: place for place, name in enumerate(self.names)}
        self._key_places = [self._places[name] for name in self.key_names]
        self.columns = stored_columns(using, meta.db_table)
        self._quoted = {field.attname: self.columns.name(field.column) for field in fields}
        cells = ", ".join(self.columns.cell(field.column) for field in fields)
        self._select = f"SELECT {cells} FROM {self.columns.table} WHERE "
        names = ", ".join(self._quoted.values())
        self._insert = f"INSERT INTO {self.columns.table} ({names}) {self.columns.overriding}VALUES "
        self._lock = self._lock_clause()
        self._limit = min(connections[using].features.max_query_params or _MAX_PARAMS, _MAX_PARAMS)

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[place] for place in self._key_places)

    def cell_of(self, row: Row, name: str) -> Cell:
        """Return the cell of a row in the column with this attname."""
        return row[self._places[name]]

    def read(self, by: str, values: Collection[Any], *, lock: bool = False) -> dict[Key, Row]:
        """Return the rows of which the own column with attname ``by`` holds one of these Python values.

        "pk" is the key; the values of a composite one are tuples. NULL is never found.
        """
        names = self.key_names if by == "pk" else (by,)
        connection = connections[self.using]
        fields = [self.fields[name] for name in names]
        rows = [value if len(fields) > 1 else (value,) for value in values]
        prepared = [
            [field.get_db_prep_value(value, connection) for field, value in zip(fields, row, strict=True)]
            for row in rows
            if None not in row
        ]
        return self.read_any([(names, prepared)], lock=lock)

    def read_keys(self, keys: Collection[Key], *, lock: bool = False) -> dict[Key, Row]:
        """Return the rows with these keys."""
        return self.read_any([(self.key_names, list(keys))], lock=lock)

    def read_any(self, wanted: Collection[Wanted], *, lock: bool = False) -> dict[Key, Row]:
        """Return the rows that are found by one of several combinations of columns: one statement, unless there are
        more parameters than the database takes."""
        found: dict[Key, Row] = {}
        ending = self._lock if lock else ""
        for part in self._parts(wanted):
            conditions: list[str] = []
            params: list[Any] = []
            for names, cells in part:
                condition, own = self._among(names, cells)
                conditions.append(condition)
                params += own
            rows = self.columns.fetch(f"{self._select}{' OR '.join(conditions)}{ending}", params)
            found.update(self._by_key(rows))
        return found

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows with their keys, in this order."""
        columns = self._column_names(self.names)
        size = max(1, self._limit // len(self.names))
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            bound = [[self.columns.bind(cell) for cell in row] for row in part]
            groups = ", ".join(f"({', '.join(sign for sign, _ in row)})" for row in bound)
            params = [param for row in bound for _, param in row]
            self.columns.store(self._insert + groups, params, columns, part)

    def update(self, changes: Mapping[Key, Mapping[str, Cell]]) -> None:
        """Give rows other cells, by key and attname: one statement, unless there are too many parameters."""
        width = len(self.key_names)
        # Each cell is a parameter with the key of its row, and each row is named once more.
        most = max((len(cells) for cells in changes.values()), default=1) * (width + 1) + width
        size = max(1, min(_MAX_ROWS_OF_UPDATE, self._limit // most))
        keys = list(changes)
        for start in range(0, len(keys), size):
            self._update({key: changes[key] for key in keys[start : start + size]})

    def delete(self, keys: Collection[Key]) -> None:
        """Delete the rows with these keys."""
        for part in self._parts([(self.key_names, list(keys))]):
            for names, cells in part:
                condition, params = self._among(names, cells)
                self.columns.store(f"DELETE FROM {self.columns.table} WHERE {condition}", params, (), ())

    def _update(self, changes: Mapping[Key, Mapping[str, Cell]]) -> None:
        names = list(dict.fromkeys(name for cells in changes.values() for name in cells))
        assignments, params = [], []
        for name in names:
            given = {key: cells[name] for key, cells in changes.items() if name in cells}
            assignment, own = self._assignment(name, given, len(changes))
            assignments.append(assignment)
            params += own
        condition, own = self._among(self.key_names, list(changes))
        sql = f"UPDATE {self.columns.table} SET {', '.join(assignments)} WHERE {condition}"
        stored = [[cells.get(name) for name in names] for cells in changes.values()]
        self.columns.store(sql, params + own, self._column_names(names), stored)

    def _assignment(self, name: str, cells: Mapping[Key, Cell], rows: int) -> tuple[str, list[Any]]:
        """Return what sets a column of some of the rows of a statement, with its parameters."""
        column = self._quoted[name]
        # Of one type, so that 1 and 1.0 are two values.
        groups: dict[tuple[type, Cell], list[Key]] = {}
        for key, cell in cells.items():
            groups.setdefault((type(cell), cell), []).append(key)
        if len(groups) == 1 and len(cells) == rows:
            sign, param = self.columns.bind(next(iter(cells.values())))
            return f"{column} = {sign}", [param]
        whens, params = [], []
        for (_, cell), keys in groups.items():
            condition, own = self._among(self.key_names, keys)
            sign, param = self.columns.bind(cell)
            whens.append(f"WHEN {condition} THEN {sign}")
            params += [*own, param]
        # The column at the end gives the expression its type.
        return f"{column} = CASE {' '.join(whens)} ELSE {column} END", params

    def _among(self, names: Sequence[str], cells: Sequence[Sequence[Any]]) -> tuple[str, list[Any]]:
        return self.columns.among([self._quoted[name] for name in names], cells)

    def _column_names(self, names: Sequence[str]) -> list[str]:
        return [self.fields[name].column for name in names]

    def _parts(self, wanted: Collection[Wanted]) -> Iterator[list[Wanted]]:
        """Yield what one statement each can ask for."""
        limit = room = self._limit
        part: list[Wanted] = []
        for names, cells in wanted:
            rest = cells
            while rest:
                fitting = room // len(names)
                if fitting == 0:
                    yield part
                    part, room = [], limit
                    continue
                part.append((names, rest[:fitting]))
                room -= len(names) * len(rest[:fitting])
                rest = rest[fitting:]
        if part:
            yield part

    def _lock_clause(self) -> str:
        """Return the end of a query: who locks rows in one order waits for nobody who waits for them."""
        connection = connections[self.using]
        if not connection.features.has_select_for_update:
            return ""
        order = ", ".join(f"{self.columns.table}.{self._quoted[name]}" for name in self.key_names)
        return f" ORDER BY {order} {connection.ops.for_update_sql()}"

    def _by_key(self, rows: Sequence[Row]) -> dict[Key, Row]:
        if len(self._key_places) == 1:
            place = self._key_places[0]
            return {(row[place],): row for row in rows}
        key = itemgetter(*self._key_places)
        return {key(row): row for row in rows}


@lru_cache(maxsize=1024)
def stored_table(model: type[Model], using: str) -> StoredTable:
    """Return the table of a model; it is kept, as its columns are asked for once."""
    return StoredTable(model, using)
