"""The difference of a write as tables: what people see of its JSON."""

import pytest
from django.utils import translation

from mcp_django import site
from mcp_django.differences.difference import APPEARS, SET_WHEN_WRITTEN
from mcp_django.differences.difference_tables import ShownCall, in_words, tables_of
from mcp_django.differences.trials import FILES_UNTRIED, MAILED

pytestmark = pytest.mark.django_db


def changed(**columns):
    """The cells of a book that changes."""
    row = {"pk": 1, "label": "Dune", "columns": columns}
    [table] = tables_of({"counts": {"testapp.book": {"changed": 1}}, "changed": {"testapp.book": [row]}}, site)
    return [(cell.name, cell.before, cell.after) for cell in table.rows[0].cells]


def test_each_model_has_a_table_for_each_kind_with_the_names_of_its_columns():
    difference = {
        "counts": {
            "testapp.book": {"deleted": 30, "changed": 1, "added": 1},
            "testapp.gone": {"deleted": 1},
            "other": 2,
        },
        "changed": {"testapp.book": [{"pk": 1, "label": "Dune", "columns": {"price": ["5.00", "9.00"]}}]},
        "added": {"testapp.book": [{"label": "Emma", "columns": {"author": [3, "Jane"], "is_long": True}}]},
        "deleted": {"testapp.book": [[7, "Ulysses"]], "testapp.gone": [[1, "Nobody"]]},
    }
    tables = tables_of(difference, site)
    assert [(table.name, table.kind, table.count, table.more, table.has_cells) for table in tables] == [
        ("books", "changed", 1, 0, True),
        ("books", "added", 1, 0, True),
        ("books", "deleted", 30, 29, False),
        # A model that is no longer exposed.
        ("testapp.gone", "deleted", 1, 0, False),
    ]
    [change], [addition], [deletion], _ = (table.rows for table in tables)
    assert [(cell.name, cell.before, cell.after) for cell in change.cells] == [("price", "5.00", "9.00")]
    assert [(cell.name, cell.before, cell.after) for cell in addition.cells] == [
        ("author", "", "Jane"),
        ("long", "", "yes"),
    ]
    assert (deletion.label, deletion.cells) == ("Ulysses", ())
    assert ShownCall({"difference": difference}, site).others == 2


def test_rows_of_inlines_follow_their_row():
    inlines = {
        "loans": [
            {"pk": 3, "changed": {"due": ["a", "b"]}},
            {"added": {"borrower": "Ann"}},
            {"pk": 4, "deleted": True},
        ],
        "gone_set": [{"added": {"what_ever": [1, "One"]}}],
    }
    row = {"pk": 1, "label": "Dune", "columns": {}, "inlines": inlines, "note": APPEARS}
    [table] = tables_of({"counts": {"testapp.book": {"changed": 1}}, "changed": {"testapp.book": [row]}}, site)
    assert [(found.kind, found.inline, found.label, len(found.cells)) for found in table.rows] == [
        ("changed", "", "Dune", 0),
        ("changed", "loans", "3", 1),
        ("added", "loans", "", 1),
        ("deleted", "loans", "4", 0),
        ("added", "gone_set", "", 1),
    ]
    assert table.rows[0].note == APPEARS
    assert table.rows[2].cells[0].name == "borrower"
    assert table.rows[4].cells[0].name == "what_ever"
    assert table.more == 0


def test_values_of_a_column_are_said_as_its_field_says_them():
    columns = {
        "author": [[1, "Ann"], [2, ""]],
        "tags": [[], [[1, "Old"], [2, "New"]]],
        "status": ["draft", "published"],
        "data": [["a", "b"], {"a": 1}],
        "price_per_page": [None, 1.5],
    }
    assert changed(**columns) == [
        ("author", "Ann", "2"),
        ("tags", "-", "Old, New"),
        ("status", "In preparation", "Published"),
        # Not the second item, as the label of a related row.
        ("data", '["a","b"]', '{"a":1}'),
        ("Price per page", "-", "1.5"),
    ]


def test_of_long_texts_the_part_is_shown_in_which_they_differ():
    same = "x" * 1_000
    [(_, before, after)] = changed(title=[f"{same}before", f"{same}after{same}"])
    assert before == f"…{'x' * 60}before"
    assert after == f"…{'x' * 60}after{'x' * 235}…"
    [(_, before, after)] = changed(title=["short", f"short{same}"])
    assert (before, after) == ("short", f"short{'x' * 295}…")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        (0, "0"),
        (False, "no"),
        ([3, "Ann"], '[3,"Ann"]'),
        ([1, 2], "[1,2]"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_values_in_words(value, text):
    assert in_words(value) == text


def test_what_this_package_says_is_translated_and_nothing_else():
    shown = ShownCall(
        {
            "difference": {
                "counts": {"testapp.book": {"changed": 1}},
                "changed": {
                    "testapp.book": [{"pk": 1, "label": "Dune", "columns": {"price": ["1", SET_WHEN_WRITTEN]}}]
                },
                "mails": [MAILED.format(3)],
                "on_commit": ["shop.hooks.mail"],
                "also_written": ["shop_stock", "other tables"],
                "messages": [{"level": "info", "text": "a mail to Ann"}],
                "not_tried": [FILES_UNTRIED.format(2), "hooks of the project"],
            }
        },
        site,
    )

    def seen():
        [cell] = shown.tables[0].rows[0].cells
        return [cell.after, shown.not_tried, [(str(name), texts) for name, texts in shown.besides]]

    with translation.override("de"):
        assert seen() == [
            "(wird beim Schreiben gesetzt)",
            ["Dateien (2)", "Hooks des Projekts"],
            [
                ("Schreibt auch, was nicht zurückgenommen wird", ["shop_stock", "andere Tabellen"]),
                ("E-Mails", ["eine E-Mail an 3"]),
                ("Läuft danach", ["shop.hooks.mail"]),
                ("Meldungen", ["a mail to Ann"]),
            ],
        ]
    shown = ShownCall(shown._shown, site)
    assert seen()[:2] == [SET_WHEN_WRITTEN, ["files (2)", "hooks of the project"]]


def test_arguments_of_a_call_that_is_not_tried_are_shown_at_length():
    shown = ShownCall({"arguments": {"text": "x" * 3_000, "names": ["a", "b"]}, "objects": ["Dune"]}, site)
    assert shown.given == [("text", f"{'x' * 2_000}…"), ("names", '["a","b"]')]
    assert (shown.objects, shown.tables, shown.besides, shown.others) == (["Dune"], [], [], 0)


def test_what_can_no_longer_be_opened_is_shown_as_nothing():
    shown = ShownCall(None, site)
    assert (shown.message, shown.tables, shown.given, shown.not_tried) == ("", [], [], [])
