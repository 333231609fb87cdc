"""Which table a statement of SQL writes, as far as its text says so.

Django's own statements are understood on every database, and plain ones that a project wrote. What is not understood is
said to be so, never guessed. What triggers and functions of the database write is in no statement.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

# A name with its schema: the parts without quotes, in lower case.
TableName = tuple[str, ...]

_PART: Final = r'(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`|\[[^\]]+\]|\w[\w$]*)'
_NAME: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_PARTS: Final = re.compile(_PART)
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"|`(?:[^`]|``)*`')
# Quoted names, and texts and comments, which may hold any word.
_TOKENS: Final = re.compile(
    rf"(?P<name>{_QUOTED.pattern})|'(?:[^'\\]|''|\\.)*'|(?P<dollars>\$\w*\$).*?(?P=dollars)|--[^\n]*|/\*.*?\*/",
    re.DOTALL | re.ASCII,
)
_FIRST: Final = re.compile(r"\(*\s*([a-z]+)", re.IGNORECASE)
_WRITE: Final = re.compile(
    r"(?:"
    r"INSERT(?:\s+OR\s+(?:IGNORE|REPLACE|ABORT|FAIL|ROLLBACK)|\s+IGNORE)?\s+INTO"
    r"|REPLACE\s+INTO"
    rf"|DELETE\s+{_NAME}\s+FROM"
    r"|DELETE\s+FROM(?:\s+ONLY\b)?"
    r"|UPDATE(?:\s+ONLY\b|\s+IGNORE\b|\s+OR\s+\w+)?"
    rf")\s+(?P<table>{_NAME})(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_WRITING_WORD: Final = re.compile(r"\b(?:INSERT|UPDATE|DELETE|REPLACE|MERGE)\b(?!\s*\()", re.IGNORECASE)
_FOR_UPDATE: Final = re.compile(r"\bFOR\s+(?:NO\s+KEY\s+)?UPDATE\b", re.IGNORECASE)
_SET: Final = re.compile(r"\s+SET\b", re.IGNORECASE)
# Statements that begin with these words read, or prepare a transaction for reading and writing.
READING: Final = frozenset(
    {
        *("SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "DESC", "PRAGMA"),
        *("DECLARE", "FETCH", "CLOSE", "SAVEPOINT", "RELEASE"),
    }
)
# Maximum number of characters of a text whose statements are kept for the next time.
MAX_KEPT: Final = 4_000
# Those that end a transaction or begin another one; ROLLBACK TO SAVEPOINT does not.
ENDING: Final = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "PREPARE"})


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its first ``word`` in upper case, and the ``table`` that it writes, if its text says which.

    ``reads`` says that it writes nothing, ``ends`` that it ends the transaction. ``assigned`` is the part of an UPDATE
    with the columns that it sets.
    """

    word: str
    table: TableName | None = None
    reads: bool = False
    ends: bool = False
    assigned: str = ""

    @staticmethod
    def text(sql: Any, connection: Any) -> str:
        """Return the text of what a project executes: psycopg also takes bytes, and objects that make SQL."""
        if isinstance(sql, bytes):
            return sql.decode(errors="replace")
        if hasattr(sql, "as_string"):
            return str(sql.as_string(connection.connection))
        return str(sql)

    @staticmethod
    def read(sql: str) -> "tuple[Statement, ...]":
        """Return the statements of a text."""
        if len(sql) > MAX_KEPT:
            return _statements(sql)
        return _kept_statements(sql)


def _statements(sql: str) -> tuple[Statement, ...]:
    plain = _TOKENS.sub(lambda token: token["name"] or " ", sql)
    parts = plain.split(";")
    if any(";" in name for name in _QUOTED.findall(plain)):
        # A name with a semicolon is in Django's own SQL, which has one statement in a text.
        parts = [plain]
    return tuple(_statement(part.strip()) for part in parts if part.strip())


_kept_statements: Final = lru_cache(maxsize=512)(_statements)


def _statement(sql: str) -> Statement:
    first = _FIRST.match(sql)
    word = first[1].upper() if first else ""
    if word in ENDING:
        is_partial = re.match(r"ROLLBACK\s+(?:WORK\s+|TRANSACTION\s+)?TO\b", sql, re.IGNORECASE)
        return Statement(word, reads=is_partial is not None, ends=is_partial is None)
    if word == "SET":
        # Turning on the autocommit of MySQL commits.
        ends = "autocommit" in sql.lower()
        return Statement(word, reads=not ends, ends=ends)
    if word in READING:
        return Statement(word, reads=not _writes_within(sql))
    if (found := _WRITE.match(sql)) is None:
        return Statement(word)
    if word != "UPDATE":
        return Statement(word, table_name(found["table"]))
    if not _SET.match(found["rest"]):
        return Statement(word)
    assigned = re.split(r"\sWHERE\s", found["rest"], maxsplit=1, flags=re.IGNORECASE)[0]
    return Statement(word, table_name(found["table"]), assigned=assigned)


def _writes_within(sql: str) -> bool:
    """Return whether a statement that begins like a query also writes: ``WITH moved AS (DELETE ...)``."""
    plain = _QUOTED.sub(" ", sql)
    return _WRITING_WORD.search(_FOR_UPDATE.sub(" ", plain)) is not None


def table_name(quoted: str) -> TableName:
    """Return the parts of a table's name as it stands in SQL, so that two spellings of one name are equal."""
    return tuple(_unquoted(part).lower() for part in _PARTS.findall(quoted))


def _unquoted(part: str) -> str:
    if part[0] in '"`':
        return part[1:-1].replace(part[0] * 2, part[0])
    return part[1:-1] if part[0] == "[" else part
