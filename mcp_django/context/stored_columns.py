"""How each database gives what a column holds without loss, and takes it back, byte for byte.

Drivers and Django's converters make Python values of what is stored, and not every stored value survives that: a time
such as ``0000-00-00``, a ``json`` with its spaces, an undecodable text. A *cell* does: what SQLite's driver gives, the
text of PostgreSQL's output functions, numbers, texts and bytes of MySQL.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Final

from django.db import DatabaseError, InterfaceError, NotSupportedError, OperationalError, connections
from django.db.backends.utils import strip_quotes

Cell = str | int | float | bytes | None

# Types of MySQL by the form in which its driver gives them without loss.
_WHOLE_NUMBERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_FRACTIONS: Final = ("float", "double")
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_BYTES: Final = (
    *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit", "geometry", "point", "linestring"),
    *("polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection", "vector"),
)
_DAYS: Final = ("date", "datetime", "timestamp")


class StoredColumns:
    """The columns of one table in SQL: this class has what the databases have in common."""

    # What an INSERT says before its values.
    overriding = ""
    # Whether foreign keys are checked with each row that a statement changes, not at its end or later.
    checks_each_row = False
    # Finds a trigger of a table; its parameter is the name, as `plain_name` has it.
    trigger_query = ""

    def __init__(self, using: str, table: str) -> None:
        self.using = using
        self.table = self.name(table)
        self.plain_name = strip_quotes(table)

    def name(self, name: str) -> str:
        """Return the name of a table or column, quoted; the sign of a parameter is doubled."""
        return str(connections[self.using].ops.quote_name(name)).replace("%", "%%")

    @cached_property
    def has_triggers(self) -> bool:
        """Whether the table has triggers of the database. It is asked once."""
        return bool(self.fetch(self.trigger_query, [self.plain_name]))

    def cell(self, column: str) -> str:
        """Return the expression that gives the cell of a column."""
        raise NotImplementedError

    def bind(self, cell: Any) -> tuple[str, Any]:
        """Return the placeholder and the parameter for a cell."""
        return "%s", cell

    def among(self, names: Sequence[str], rows: Collection[Sequence[Any]]) -> tuple[str, list[Any]]:
        """Return the condition that columns hold one of these combinations of cells, with its parameters."""
        bound = [self.bind(cell) for row in rows for cell in row]
        params = [param for _, param in bound]
        signs = [sign for sign, _ in bound]
        if len(names) == 1:
            return f"{names[0]} IN ({', '.join(signs)})", params
        width = len(names)
        groups = [f"({', '.join(signs[start : start + width])})" for start in range(0, len(signs), width)]
        return f"({', '.join(names)}) IN ({self.combinations(groups)})", params

    def combinations(self, groups: Sequence[str]) -> str:
        """Return the list of combinations that columns are compared with."""
        return ", ".join(groups)

    def compared(self, cell: Cell) -> Cell:
        """Return a cell in the form in which cells that the database takes for equal are the same."""
        return cell

    def fetch(self, sql: str, params: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Return what a query of cells gives."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            return cursor.fetchall()

    def store(self, sql: str, params: Sequence[Any], columns: Sequence[str], rows: Collection[Sequence[Cell]]) -> None:
        """Run a statement that stores these cells in the columns."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)


class SQLiteColumns(StoredColumns):
    """The driver's own values: each has one of the five types in which SQLite stores."""

    trigger_query = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(%s)"

    def cell(self, column: str) -> str:
        """Return the column without its declared type, and without a name: by both the driver would convert."""
        return f"+{self.name(column)} AS c"

    def bind(self, cell: Any) -> tuple[str, Any]:
        """Return the placeholder and the parameter for a cell; the driver takes no text that is not UTF-8."""
        if isinstance(cell, str):
            try:
                cell.encode()
            except UnicodeEncodeError:
                return "CAST(%s AS TEXT)", cell.encode(errors="surrogateescape")
        return "%s", cell

    def combinations(self, groups: Sequence[str]) -> str:
        """Return the rows of ``VALUES``: SQLite has no list of combinations."""
        return f"VALUES {', '.join(groups)}"

    def fetch(self, sql: str, params: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Return what a query of cells gives, with surrogates for the bytes of texts that are not UTF-8."""
        try:
            return super().fetch(sql, params)
        except OperationalError as error:
            if "Could not decode to UTF-8" not in str(error):
                raise
        raw: Any = connections[self.using].connection
        usual = raw.text_factory
        raw.text_factory = _with_surrogates
        try:
            return super().fetch(sql, params)
        finally:
            raw.text_factory = usual


def _with_surrogates(text: bytes) -> str:
    return text.decode(errors="surrogateescape")


class PostgreSQLColumns(StoredColumns):
    """The text of each type's output function, which its input function reads from a literal without a type."""

    # For columns that are GENERATED ALWAYS AS IDENTITY; no other column minds.
    overriding = "OVERRIDING SYSTEM VALUE "
    # In whichever schema the table is.
    trigger_query = (
        "SELECT 1 FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE NOT tgisinternal AND relname = %s"
    )

    def cell(self, column: str) -> str:
        """Return the column as a text."""
        return f"{self.name(column)}::text"


class MySQLColumns(StoredColumns):
    """Numbers, texts and bytes as the driver gives them; the text of all other types, which drivers convert.

    The text of a ``TIMESTAMP`` is in the zone of the session, in which an hour may be there twice: the session is in
    UTC meanwhile.
    """

    checks_each_row = True
    trigger_query = (
        "SELECT 1 FROM information_schema.triggers"
        " WHERE event_object_schema = DATABASE() AND lower(event_object_table) = lower(%s)"
    )

    def __init__(self, using: str, table: str) -> None:
        super().__init__(using, table)
        with connections[using].cursor() as cursor:
            cursor.execute(f"SHOW COLUMNS FROM {self.table}", [])
            described = {name.lower(): (_type_name(type_), extra) for name, type_, *_, extra in cursor.fetchall()}
        self.types = {name: type_ for name, (type_, _) in described.items()}
        self.numbered = frozenset(name for name, (_, extra) in described.items() if "auto_increment" in extra.lower())
        self.has_moments = "timestamp" in self.types.values()

    def cell(self, column: str) -> str:
        """Return the column, or what has its value without loss."""
        name, type_ = self.name(column), self.types.get(column.lower(), "")
        if type_ in _FRACTIONS:
            # Of a single-precision number, MySQL shows six digits. As a double, it has all of them, and the sign of 0.
            return f"{name} * 1e0"
        if type_ in (*_WHOLE_NUMBERS, *_TEXTS, *_BYTES):
            return name
        return f"CAST({name} AS CHAR)"

    def compared(self, cell: Cell) -> Cell:
        """Return a text as most collations compare it: without case and without spaces at the end."""
        return cell.casefold().rstrip(" ") if isinstance(cell, str) else cell

    def fetch(self, sql: str, params: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Return what a query of cells gives, in UTC if the table has times that depend on the zone."""
        with _mysql_session(self.using, "time_zone = '+00:00'" if self.has_moments else ""):
            return super().fetch(sql, params)

    def store(self, sql: str, params: Sequence[Any], columns: Sequence[str], rows: Collection[Sequence[Cell]]) -> None:
        """Run a statement that stores these cells; the session lets it store a zero, and days that are none."""
        settings = []
        if self.has_moments:
            settings.append("time_zone = '+00:00'")
        if self._holds_zeros(columns, rows):
            modes = "REPLACE(REPLACE(@@sql_mode, 'NO_ZERO_IN_DATE', ''), 'NO_ZERO_DATE', '')"
            # TRADITIONAL brings back both of them.
            settings.append(f"sql_mode = CONCAT(REPLACE({modes}, 'TRADITIONAL', ''), ',NO_AUTO_VALUE_ON_ZERO')")
        with _mysql_session(self.using, ", ".join(settings)):
            super().store(sql, params, columns, rows)

    def _holds_zeros(self, columns: Sequence[str], rows: Collection[Sequence[Cell]]) -> bool:
        days = [place for place, name in enumerate(columns) if self.types.get(name.lower()) in _DAYS]
        keys = [place for place, name in enumerate(columns) if name.lower() in self.numbered]
        if any(row[place] == 0 for row in rows for place in keys):
            return True
        return any("-00" in str(row[place]) or str(row[place]).startswith("0000") for row in rows for place in days)


def _type_name(declared: Any) -> str:
    """Return the name of a type without its length and its attributes."""
    text = declared.decode() if isinstance(declared, bytes) else str(declared)
    return text.lower().partition("(")[0].partition(" ")[0]


@contextmanager
def _mysql_session(using: str, settings: str) -> Iterator[None]:
    """Give the session of MySQL these settings, and put the former ones back."""
    if not settings:
        yield
        return
    with connections[using].cursor() as cursor:
        cursor.execute(f"SET @mcp_zone = @@time_zone, @mcp_modes = @@sql_mode, {settings}", [])
    try:
        yield
    finally:
        # A connection that broke is a new session next time.
        with suppress(DatabaseError, InterfaceError), connections[using].cursor() as cursor:
            cursor.execute("SET time_zone = @mcp_zone, sql_mode = @mcp_modes", [])


_CLASSES: Final = {"sqlite": SQLiteColumns, "postgresql": PostgreSQLColumns, "mysql": MySQLColumns}


def stored_columns(using: str, table: str) -> StoredColumns:
    """Return the columns of a table in SQL. MySQL is asked for their types.

    Raises ``NotSupportedError`` for a database whose cells are not known.
    """
    vendor = connections[using].vendor
    if vendor not in _CLASSES:
        raise NotSupportedError(f"The rows of {vendor} cannot be kept as they are stored.")
    return _CLASSES[vendor](using, table)
