"""The formats that this server can write."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from ..exceptions import ToolError
from .file_formats import CSVFile, FileFormat, JSONLinesFile


def known_formats() -> Mapping[str, type[FileFormat]]:
    """Return the formats by name: XLSX only where XlsxWriter is installed."""
    found: dict[str, type[FileFormat]] = {"csv": CSVFile, "jsonl": JSONLinesFile}
    if find_spec("xlsxwriter") is not None:
        from .xlsx_files import XLSXFile

        found["xlsx"] = XLSXFile
    return found


def format_named(name: Any) -> str:
    """Return the name of a format, "csv" for None; raise ``ToolError`` for what is none here."""
    known = known_formats()
    if name is None:
        return "csv"
    if not isinstance(name, str) or name not in known:
        missing = " xlsx needs XlsxWriter on the server." if name == "xlsx" else ""
        raise ToolError(f"format is one of {', '.join(known)}.{missing}")
    return name
