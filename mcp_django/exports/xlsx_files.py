"""Files for spreadsheets (XLSX), written row after row, so that only one is in memory."""

import contextlib
import re
import shutil
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import IO, Any, ClassVar, Final

import xlsxwriter

from .file_formats import GUARD, FileFormat, Rows, cells_of, guarded, titles_of
from .questions import FileColumn

# What a spreadsheet keeps of a number, and of a text.
MAX_DIGITS: Final = 15
MAX_TEXT: Final = 32_767
CUT: Final = "…"
# What the names of the folders begin with in which files are written, and how long one may be written to.
PREFIX: Final = "mcp_export_"
LEFT_FOR: Final = timedelta(days=1)
# Characters that XML cannot hold.
FORBIDDEN: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# Between these, XlsxWriter takes a text for XML of its own, and writes it as it is.
RICH: Final = ("<r>", "</r>")
DECIMAL: Final = re.compile(r"-?\d+(?:\.\d+)?")
OPTIONS: Final = {
    "constant_memory": True,
    "strings_to_formulas": False,
    "strings_to_numbers": False,
    "strings_to_urls": False,
}


class XLSXFile(FileFormat):
    """XLSX: texts are written as texts, and numbers as numbers as far as a spreadsheet keeps all their digits."""

    extension = "xlsx"
    mime_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    # 1,048,576 with the header.
    max_rows: ClassVar[int | None] = 1_048_575

    def __init__(self, columns: Sequence[FileColumn]) -> None:
        super().__init__(columns)
        self.clear_left(LEFT_FOR)
        self.directory = TemporaryDirectory(prefix=PREFIX)
        self.path = Path(self.directory.name) / "export.xlsx"
        self.book = xlsxwriter.Workbook(str(self.path), {**OPTIONS, "tmpdir": self.directory.name})
        self.sheet = self.book.add_worksheet()
        self.numbers = [column.is_number for column in columns for _ in column.parts]
        self.next = 0
        self.written = 0
        self.file: IO[bytes] | None = None
        self._write_row(guarded(titles_of(columns)))

    def write(self, rows: Rows) -> int:
        cells = [guarded(values) for values in cells_of(self.columns, rows)]
        for row in zip(*cells, strict=True):
            self._write_row(row)
        # Compressed, it has a fifth of that.
        return self.written // 4

    def _write_row(self, row: Sequence[Any]) -> None:
        number = self.next
        for place, value in enumerate(row):
            if value is None:
                continue
            exact = _number(value, is_decimal=self.numbers[place] and number > 0)
            if exact is not None:
                self.sheet.write_number(number, place, exact)
                continue
            text = FORBIDDEN.sub("", str(value))
            if text.startswith(RICH[0]) and text.endswith(RICH[1]):
                text = GUARD + text
            self.written += len(text)
            self.sheet.write_string(number, place, _short(text))
        self.next += 1
        self.written += 30 * len(row)

    def finish(self) -> IO[bytes]:
        self.book.close()
        self.file = self.path.open("rb")
        return self.file

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        else:
            # Its destructor would write the file after all.
            self.book.fileclosed = True
            self.sheet.row_data_fh.close()
        self.directory.cleanup()

    @classmethod
    def clear_left(cls, age: timedelta) -> None:
        # Unlike a temporary file without a name, a folder outlives a worker that is killed.
        before = time.time() - age.total_seconds()
        for folder in Path(gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if not folder.is_dir():
                    continue
                last_written = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
                if last_written < before:
                    shutil.rmtree(folder)


def _short(text: str) -> str:
    """Return a text as far as a cell holds it. A spreadsheet counts a character beyond U+FFFF as two."""
    if 2 * len(text) <= MAX_TEXT:
        return text
    units = text.encode("utf-16-le")
    if len(units) <= 2 * MAX_TEXT:
        return text
    return units[: 2 * (MAX_TEXT - 1)].decode("utf-16-le", "ignore") + CUT


def _number(value: Any, *, is_decimal: bool) -> float | int | None:
    """Return a value as the number that a spreadsheet keeps exactly, None for any other value."""
    if isinstance(value, (int, float)):
        digits = len(str(abs(value))) if isinstance(value, int) else len(f"{abs(value):.17g}".partition("e")[0])
        return value if isinstance(value, float) or digits <= MAX_DIGITS else None
    if is_decimal and isinstance(value, str) and DECIMAL.fullmatch(value):
        digits = len(value.lstrip("-").replace(".", "").strip("0"))
        return float(value) if digits <= MAX_DIGITS else None
    return None
