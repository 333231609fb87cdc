"""A process that is killed in the middle of a write or of an undo leaves it done or not, and kept exactly if it is."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from mcp_django.models import Change
from mcp_django.tools.undo_change import UndoChange
from mcp_django.tools.write_tools import DeleteRecord, WriteRecords
from tests.cases import SOME
from tests.factories import make_book, make_superuser
from tests.killing import killed_at
from tests.testapp.models import Loan, Tag
from tests.tool_calls import call, request_of
from tests.unit.differences.all_rows import dump, tables_of

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="a killed process leaves a database file in use"),
]
DELETE, UNDO, WRITE = DeleteRecord(), UndoChange(), WriteRecords()
STEP = 5 if SOME else 1


def rows() -> Any:
    return dump([*tables_of("testapp"), LogEntry])


def is_done_or_not(act: Callable[[], Any], is_done: Callable[[], bool]) -> int:
    """Kill the act at one statement after the other, until one child has done it; return the number of kills.

    ``is_done`` says by the rows whether it is done. Whatever is not done has left nothing, and whatever is done is kept
    as one change.
    """
    before, changes = rows(), set(Change.objects.values_list("pk", "state"))
    for number in range(1, 1_000, STEP):
        was_killed = killed_at(number, act)
        if is_done():
            assert Change.objects.count() == len(changes) + 1
            return number
        assert was_killed
        assert rows() == before
        assert set(Change.objects.values_list("pk", "state")) == changes
    raise AssertionError("it is never done")


def test_several_writes_that_are_killed_at_any_statement_are_done_or_not() -> None:
    request = request_of(make_superuser())
    book, tag = make_book("Dune"), Tag.objects.create(name="old")
    writes = [
        {"op": "create", "model": "testapp.author", "ref": "new", "values": {"name": "Ada"}},
        {"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"author": {"ref": "new"}, "pages": 3}},
        {"op": "update", "model": "testapp.tag", "rows": [{"pk": tag.pk, "name": "new"}]},
    ]

    def is_done() -> bool:
        book.refresh_from_db()
        tag.refresh_from_db()
        done = [book.author.name == "Ada", book.pages == 3, tag.name == "new", LogEntry.objects.count() == 3]
        assert len(set(done)) == 1, done
        return done[0]

    assert is_done_or_not(lambda: call(WRITE, request, writes=writes), is_done) > 20
    change = Change.objects.get()
    assert (change.tool, change.state) == ("write_records", "done")


def test_an_undo_that_is_killed_at_any_statement_is_done_or_not() -> None:
    request = request_of(make_superuser())
    book = make_book("Dune")
    for name in ("Ann", "Bob"):
        Loan.objects.create(book=book, borrower=name, due=datetime(2030, 1, 1, tzinfo=UTC))
    before = dump(tables_of("testapp"))
    asked = call(DELETE, request, model="testapp.book", pk=book.pk)
    done = call(DELETE, request, model="testapp.book", pk=book.pk, confirm_token=asked["confirm_token"])
    number = done["change"]

    def is_done() -> bool:
        is_back = dump(tables_of("testapp")) == before
        assert is_back == (Change.objects.get(pk=number).state == "undone")
        return is_back

    assert is_done_or_not(lambda: call(UNDO, request, change=number), is_done) > 10
    assert Change.objects.get(undoes=number).state == "done"
