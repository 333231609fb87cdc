"""The formats of files: CSV and JSON Lines, and XLSX where XlsxWriter is installed."""

import csv
import re
from collections.abc import Sequence
from datetime import timedelta
from io import TextIOWrapper
from tempfile import TemporaryFile
from typing import IO, Any, ClassVar, Final

import orjson

from .questions import FileColumn

Rows = Sequence[Sequence[Any]]

# A spreadsheet runs a text that begins with one of these signs, in their usual, full-width or small form.
SIGNS: Final = "=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
# Before a sign it overlooks spaces, and characters that nobody sees.
UNSEEN: Final = "\\s\0-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
# Where it splits lines at semicolons or tabs, a text begins after each of them. Quotes there are not those of the file.
SEPARATORS: Final = frozenset(";\t\r\n")
# A text that begins with one of these has a guard in any case.
BLANKS: Final = frozenset("\t\r\n")
QUOTES: Final = frozenset("\"'")
# A sign after all that can stand before it. A long run is read once, not again from each of its characters.
BEFORE: Final = f"[;\"'{UNSEEN}]"
FORMULA: Final = re.compile(f"(^{BEFORE}*+|(?<!{BEFORE}){BEFORE}++)([{SIGNS}])")
NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?")
GUARD: Final = "'"
JOINED_BY: Final = "; "
PAIR: Final = 2


class FileFormat:
    """One format: a file with these columns, which takes rows until it is finished.

    ``extension`` and ``mime_type`` are those of its files, and ``max_rows`` is how many rows one can have.
    """

    extension: ClassVar[str]
    mime_type: ClassVar[str]
    max_rows: ClassVar[int | None] = None

    def __init__(self, columns: Sequence[FileColumn]) -> None:
        self.columns = columns

    def write(self, rows: Rows) -> int:
        """Write rows, and return about how many bytes the file has now."""
        raise NotImplementedError

    def finish(self) -> IO[bytes]:
        """Return the whole file, open for reading."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing of the file; it may be finished or not."""
        raise NotImplementedError

    @classmethod
    def clear_left(cls, age: timedelta) -> None:
        """Delete what killed workers have left of files on this machine, if it is older than ``age``."""


class JSONLinesFile(FileFormat):
    """JSON Lines: one object a row, with the values of a page."""

    extension = "jsonl"
    mime_type = "application/jsonl"

    def __init__(self, columns: Sequence[FileColumn]) -> None:
        super().__init__(columns)
        self.names = [column.name for column in columns]
        self.file = TemporaryFile()  # noqa: SIM115

    def write(self, rows: Rows) -> int:
        names = self.names
        lines = [orjson.dumps(dict(zip(names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE) for row in rows]
        self.file.write(b"".join(lines))
        return self.file.tell()

    def finish(self) -> IO[bytes]:
        return self.file

    def close(self) -> None:
        self.file.close()


class CSVFile(FileFormat):
    """CSV as spreadsheets read it: UTF-8 with a byte order mark, CRLF, and no text that runs as a formula."""

    extension = "csv"
    mime_type = "text/csv"

    def __init__(self, columns: Sequence[FileColumn]) -> None:
        super().__init__(columns)
        self.file = TemporaryFile()  # noqa: SIM115
        self.text = TextIOWrapper(self.file, encoding="utf-8-sig", errors="replace", newline="")
        self.writer = csv.writer(self.text, lineterminator="\r\n")
        self.writer.writerow(guarded(titles_of(columns)))

    def write(self, rows: Rows) -> int:
        cells = [guarded(values) for values in cells_of(self.columns, rows)]
        self.writer.writerows(zip(*cells, strict=True))
        self.text.flush()
        return self.file.tell()

    def finish(self) -> IO[bytes]:
        self.text.flush()
        return self.file

    def close(self) -> None:
        self.text.close()


def titles_of(columns: Sequence[FileColumn]) -> list[str]:
    """Return the header of a table with these columns."""
    return [title for column in columns for title in column.titles]


def cells_of(columns: Sequence[FileColumn], rows: Rows) -> list[Sequence[Any]]:
    """Return the cells of rows by column: numbers, texts and None."""
    cells: list[Sequence[Any]] = []
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        if len(column.parts) == 1:
            cells.append(flat(values))
            continue
        nothing = [None] * len(column.parts)
        pairs = [value if isinstance(value, list) else [value, *nothing[1:]] for value in values]
        cells += [flat([pair[place] for pair in pairs]) for place in range(len(column.parts))]
    return cells


def flat(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column as cells of a table."""
    if {type(value) for value in values} <= {str, int, float, type(None)}:
        return values
    return [_cell(value) for value in values]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return JOINED_BY.join(map(_item, value))
    if isinstance(value, (list, dict)):
        return orjson.dumps(value).decode()
    return value


def _item(value: Any) -> str:
    """Return one item of a list as text: of a related row, which is a key and a label, the label."""
    if isinstance(value, list) and len(value) == PAIR:
        value = value[1] if value[1] is not None else value[0]
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value).decode()


def guarded(values: Sequence[Any]) -> Sequence[Any]:
    """Return cells, of which no text runs as a formula: it begins with an apostrophe then. Numbers stay as they are,
    and texts that are numbers."""
    texts = [value for value in values if type(value) is str]
    # One look at all of them, each after a line's end: few columns have such a text.
    has_formula = FORMULA.search("\n" + "\n".join(texts)) is not None
    if not has_formula and not any(text[:1] in BLANKS for text in texts):
        return values
    return [safe(value) if type(value) is str else value for value in values]


def safe(text: str) -> str:
    """Return a text that no spreadsheet runs."""
    if NUMBER.fullmatch(text):
        return text
    found = FORMULA.sub(_with_guard, text)
    if text[:1] in BLANKS and FORMULA.match(text) is None:
        return GUARD + found
    return found


def _with_guard(found: re.Match[str]) -> str:
    before, sign = found.groups()
    begins = found.start() == 0 and QUOTES.isdisjoint(before)
    if begins or not SEPARATORS.isdisjoint(before):
        return f"{before}{GUARD}{sign}"
    return found[0]
