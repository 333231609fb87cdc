"""The difference of a write as tables: what people see of its JSON."""

import pytest

from mcp_django import site
from mcp_django.differences.difference_tables import in_words, tables_of

pytestmark = pytest.mark.django_db


def test_each_model_has_a_table_with_the_names_of_its_columns():
    difference = {
        "counts": {
            "testapp.book": {"changed": 1, "added": 1, "deleted": 30},
            "testapp.gone": {"deleted": 1},
            "other": 2,
        },
        "changed": {"testapp.book": [{"pk": 1, "label": "Dune", "columns": {"price": ["5.00", "9.00"]}}]},
        "added": {"testapp.book": [{"label": "Emma", "columns": {"author": [3, "Jane"], "loud": True}}]},
        "deleted": {"testapp.book": [[7, "Ulysses"]], "testapp.gone": [[1, "Nobody"]]},
    }
    books, gone = tables_of(difference, site)
    assert (books.name, list(books.counts)) == ("books", [("changed", 1), ("added", 1), ("deleted", 30)])
    changed, added, deleted = books.rows
    assert [(cell.name, cell.before, cell.after) for cell in changed.cells] == [("price", "5.00", "9.00")]
    assert [(cell.name, cell.before, cell.after) for cell in added.cells] == [
        ("author", "-", "Jane"),
        ("loud", "-", "true"),
    ]
    assert (deleted.kind, deleted.label, deleted.cells) == ("deleted", "Ulysses", ())
    # A model that is no longer exposed.
    assert (gone.name, gone.has_cells, books.has_cells) == ("testapp.gone", False, True)


def test_rows_of_inlines_follow_their_row():
    inlines = {
        "loans": [{"pk": 3, "changed": {"due": ["a", "b"]}}, {"added": {"borrower": "Ann"}}, {"pk": 4, "deleted": True}]
    }
    row = {"pk": 1, "label": "Dune", "columns": {}, "inlines": inlines}
    [table] = tables_of({"counts": {"testapp.book": {"changed": 1}}, "changed": {"testapp.book": [row]}}, site)
    assert [(found.kind, found.inline, found.label, len(found.cells)) for found in table.rows] == [
        ("changed", "", "Dune", 0),
        ("changed", "loans", "3", 1),
        ("added", "loans", "", 1),
        ("deleted", "loans", "4", 0),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), (0, "0"), (False, "false"), ([3, "Ann"], "Ann"), ([1, 2], "[1,2]"), ({"a": 1}, '{"a":1}')],
)
def test_values_in_words(value, text):
    assert in_words(value) == text
    assert len(in_words("x" * 1_000)) == 301
