"""Tables of this app's own, such as those of sessions and streams: each call of a session reads or writes them.

Their queries are compiled once, as far as compiled queries are on. Changing these rows needs no signals.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db import connections
from django.db.models import Model, QuerySet
from django.db.models.sql import DeleteQuery, InsertQuery, UpdateQuery

from ..context.databases import has_short_characters, insert_new
from .compiled_queries import Bind, CompiledQuery, Slot, by_key

# Databases that say which key a new row has got, and types of values that their drivers take as they are.
COUNTING: Final = frozenset({"sqlite", "postgresql", "mysql"})
AS_THEY_ARE: Final = frozenset({str, int, type(None)})
UNFIT: Final = re.compile("[\0\ud800-\udfff]")
ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def text_lengths(model: type[Model]) -> dict[str, int]:
    """Return the maximum number of characters of each column of one of the app's own tables that has one."""
    fields = model._meta.local_concrete_fields
    return {field.attname: field.max_length for field in fields if field.max_length is not None}


def fitting_texts(values: Mapping[str, Any], lengths: Mapping[str, int], table: str, using: str) -> dict[str, Any]:
    """Return values of columns with each text cut to its column, without characters that the database refuses."""
    found = dict(values)
    for name, length in lengths.items():
        value = found.get(name)
        if value and not (len(value) <= length and value.isascii() and "\0" not in value):
            found[name] = _fitting_text(value, length, table, using)
    return found


def _fitting_text(value: str, length: int, table: str, using: str) -> str:
    text = value[:length]
    if text.isascii() and "\0" not in text:
        return text
    text = UNFIT.sub(REPLACEMENT, text)
    if has_short_characters(using, table):
        return ASTRAL.sub(REPLACEMENT, text)
    return text


class OwnTable:
    """The table of one of the app's own models in one database; its keys are texts, or numbers for ``append()``."""

    def __init__(self, model: type[Model], using: str) -> None:
        self.model = model
        self.using = using
        self._connection = connections[using]

    def read(self, rows: Callable[..., QuerySet[Any]], *values: tuple[Any, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a ``values_list``.

        ``values`` are pairs of a field and a value. ``rows`` gets an expression for each of them, and returns the
        queryset, always the same one for each kind of call.
        """
        params = [field.get_db_prep_value(value, self._connection) for field, value in values]
        if not CompiledQuery.is_on():
            return list(rows(*map(Bind, params)).using(self.using).order_by())

        def build() -> CompiledQuery:
            slots = [Bind.slot(number) for number in range(len(params))]
            return CompiledQuery.for_values(rows(*slots).using(self.using).order_by(), self.using)

        return CompiledQuery.for_key((rows, self.using), build).run(self.using, params)

    def insert(self, row: Model) -> None:
        """Insert a row, unless one with its key is there."""
        opts: Any = row._meta
        fields = opts.local_concrete_fields

        def build() -> CompiledQuery:
            columns = [field.column for field in fields]
            sql = insert_new(self._connection, opts.db_table, columns, opts.pk.column)
            compiler: Any = InsertQuery(self.model).get_compiler(using=self.using)
            return CompiledQuery.for_sql(compiler, sql, [Slot(number) for number in range(len(columns))])

        values = [field.get_db_prep_save(getattr(row, field.attname), self._connection) for field in fields]
        is_kept = CompiledQuery.is_on()
        compiled = CompiledQuery.for_key(("insert", self.model, self.using), build) if is_kept else build()
        compiled.write(self.using, values)

    def append(self, row: Any) -> None:
        """Insert a row, and set the number that the database gives it as its key.

        Texts and numbers are stored as they are, so they must fit their columns.
        """
        opts: Any = row._meta
        connection: Any = self._connection
        if connection.vendor not in COUNTING:
            row.save(using=self.using, force_insert=True)
            return

        def build() -> CompiledQuery:
            table, key, *names = map(
                connection.ops.quote_name, (opts.db_table, opts.pk.column, *(field.column for field in fields))
            )
            sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
            if connection.vendor == "postgresql":
                sql = f"{sql} RETURNING {key}"
            compiler: Any = InsertQuery(self.model).get_compiler(using=self.using)
            return CompiledQuery.for_sql(compiler, sql, [Slot(number) for number in range(len(names))])

        fields = opts.local_concrete_fields[1:]
        known = row.__dict__
        values = [known[field.attname] for field in fields]
        for place, value in enumerate(values):
            if type(value) not in AS_THEY_ARE and value != b"":
                values[place] = fields[place].get_db_prep_save(value, connection)
        is_kept = CompiledQuery.is_on()
        compiled = CompiledQuery.for_key(("append", self.model, self.using), build) if is_kept else build()
        row.pk = compiled.insert(self.using, values)
        row._state.adding = False
        row._state.db = self.using

    def update(self, key: str, **values: Any) -> bool:
        """Update columns of the row with a primary key; return whether there is such a row."""
        if not CompiledQuery.is_on():
            return self._rows().filter(pk=key).update(**values) > 0
        opts: Any = self.model._meta
        params = [opts.get_field(name).get_db_prep_save(value, self._connection) for name, value in values.items()]

        def build() -> CompiledQuery:
            query: Any = self._rows().filter(by_key(opts)).query.chain(UpdateQuery)
            query.add_update_values({name: Bind.slot(number) for number, name in enumerate(values, 1)})
            return CompiledQuery.for_query(query, self.using)

        compiled = CompiledQuery.for_key(("update", self.model, self.using, *values), build)
        return compiled.write(self.using, [key, *params]) > 0

    def delete(self, key: str) -> None:
        """Delete the row with a primary key; no other row refers to it."""
        if not CompiledQuery.is_on():
            self._rows().filter(pk=key).delete()
            return

        def build() -> CompiledQuery:
            query: Any = self._rows().filter(by_key(self.model._meta)).query.chain(DeleteQuery)
            return CompiledQuery.for_query(query, self.using)

        CompiledQuery.for_key(("delete", self.model, self.using), build).write(self.using, [key])

    def _rows(self) -> QuerySet[Any]:
        return self.model._base_manager.using(self.using)
