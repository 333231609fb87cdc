"""Cells of tables: no text runs in a spreadsheet, and nothing else changes."""

import csv
import io
import json
import random
import re
from typing import Any

import pytest

from mcp_django.exports.file_formats import CSVFile, JSONLinesFile, guarded, safe
from mcp_django.exports.questions import FileColumn

pytestmark = pytest.mark.one_django

PLAIN = FileColumn("note")
RELATION = FileColumn("customer", FileColumn.RELATION)


def written(kind: Any, columns: Any, *rows: Any) -> bytes:
    file = kind(columns)
    try:
        file.write(rows)
        stream = file.finish()
        stream.seek(0)
        return stream.read()
    finally:
        file.close()


def table(*rows: Any, columns: Any = (PLAIN,)) -> list[list[str]]:
    text = written(CSVFile, columns, *rows).decode("utf-8-sig")
    return [*csv.reader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1+1",
        "-1+cmd|' /C calc'!A0",
        "@SUM(A1)",
        "\t=1+1",
        "\r=1+1",
        "\n=1+1",
        "  =1+1",
        "\ufeff=1+1",
        "\N{FULLWIDTH EQUALS SIGN}1+1",
        "\N{FULLWIDTH PLUS SIGN}1",
        "\N{FULLWIDTH HYPHEN-MINUS}1",
        "\N{FULLWIDTH COMMERCIAL AT}SUM(A1)",
        "\N{SMALL EQUALS SIGN}1+1",
        "\N{SMALL COMMERCIAL AT}SUM(A1)",
        "\0=1+1",
        "\x1a\x7f=1+1",
        "\N{RIGHT-TO-LEFT OVERRIDE}=1+1",
        "\N{RIGHT-TO-LEFT MARK}\N{SOFT HYPHEN}=1+1",
        "\N{WORD JOINER}\N{NO-BREAK SPACE}@SUM(A1)",
        "\tharmless",
    ],
)
def test_a_text_that_a_spreadsheet_runs_is_guarded(text: str) -> None:
    ((_,), (cell,)) = table([text])
    assert re.match(r"[^\w=@+-]*?'", cell)
    assert cell.replace("'", "", 1) == text


def test_a_text_is_guarded_where_a_spreadsheet_splits_lines_at_another_character() -> None:
    assert safe('x;=cmd|" /C calc"!A0') == 'x;\'=cmd|" /C calc"!A0'
    assert safe("x\t@SUM(A1)") == "x\t'@SUM(A1)"
    assert safe("x\n=1") == "x\n'=1"
    # Where a line is split at semicolons, the quotes around a cell of this file are no quotes.
    assert safe('x;"=1+1') == "x;\"'=1+1"
    assert safe("x; \u200b'@SUM(A1)") == "x; \u200b''@SUM(A1)"


def test_quotes_before_a_sign_at_the_beginning_are_part_of_the_text() -> None:
    assert table(['"=1+1"'], ["'=1+1"]) == [["note"], ['"=1+1"'], ["'=1+1"]]


def test_no_drawn_text_runs_wherever_its_line_is_split() -> None:
    draw = random.Random(7)
    for _ in range(20_000):
        text = "".join(draw.choices("=+-@\uff1d;\t\r\n \"'\u200b\0ab12,", k=draw.randrange(1, 9)))
        found = safe(text)
        assert guarded(["a", text, "b"]) == ["a", found, "b"]
        if found == text and re.fullmatch(r"[+-]?\d+([.,]\d+)?", text):
            continue
        first, *others = re.split("[;\t\r\n]", found)
        for part, unseen in ((first, " \u200b\0"), *((part, ' \u200b\0"') for part in others)):
            assert part.lstrip(unseen)[:1] not in set("=+-@\uff1d"), (text, found)
        # Nothing is added but guards, and nothing is lost.
        assert len(found) - len(text) == found.count("'") - text.count("'")
        assert found.replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("char", ["\n", "\t", ";", " ", "\u200b", "; ", '"', "\r\n"])
def test_a_long_run_of_blanks_is_read_once(char: str) -> None:
    for text in (f"a{char * 300_000}x", char * 300_000):
        # Read again from each of its characters, it would take hours.
        assert len(safe(text)) - len(text) in (0, 1)
    assert safe(f"a;{char * 300_000}=1").endswith("'=1")


@pytest.mark.parametrize(
    "text", ["-12.50", "+49", "-3e10", "a-b", "a=b", "mail@example.com", "2026-11-28", "", "'quoted'"]
)
def test_other_texts_and_numbers_stay_as_they_are(text: str) -> None:
    assert table([text], ["x"]) == [["note"], [text], ["x"]]


def test_numbers_are_no_texts() -> None:
    assert table([-5], [2.5], [None], [True]) == [["note"], ["-5"], ["2.5"], [""], ["true"]]


def test_a_title_is_guarded_too() -> None:
    assert table(["x"], columns=[FileColumn("=cmd()")])[0] == ["'=cmd()"]


def test_a_relation_takes_two_columns() -> None:
    rows = [[3, "=Ann"], "x"], [None, "y"], [[4, None], "z"]
    assert table(*rows, columns=[RELATION, PLAIN]) == [
        ["customer", "customer.label", "note"],
        ["3", "'=Ann", "x"],
        ["", "", "y"],
        ["4", "", "z"],
    ]


def test_lists_are_joined_and_other_structures_are_json() -> None:
    found = table([["a", 1, None]], [[[1, "Red"], [2, None]]], [{"a": [1]}], [[{"b": 2}]])
    assert [cell for (cell,) in found[1:]] == ["a; 1; ", "Red; 2", '{"a":[1]}', '[{"b":2}]']


def test_a_csv_file_is_one_that_spreadsheets_read() -> None:
    body = written(CSVFile, [PLAIN], ['é, "x"\ny'])
    assert body == b'\xef\xbb\xbfnote\r\n"\xc3\xa9, ""x""\ny"\r\n'


def test_json_lines_have_the_values_of_a_page() -> None:
    body = written(JSONLinesFile, [RELATION, PLAIN], [[3, "=Ann"], "=1"], [None, {"a": 1}])
    assert [json.loads(line) for line in body.splitlines()] == [
        {"customer": [3, "=Ann"], "note": "=1"},
        {"customer": None, "note": {"a": 1}},
    ]
