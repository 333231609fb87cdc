"""The log of calls on an SQLite file, beside a project's own view that reads, takes its time, and writes."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from mcp_django.context.call_record import CallRecord
from mcp_django.context.database_errors import Trouble
from mcp_django.models import CallEntry
from mcp_django.operating import call_log_storage
from mcp_django.operating.call_log_storage import Writer
from tests.sqlite_file import ALIAS, sqlite_file


@pytest.fixture
def file(tmp_path: Path, django_db_blocker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(call_log_storage, "_alias", lambda: ALIAS)
    with django_db_blocker.unblock(), sqlite_file(tmp_path, CallEntry, timeout=30) as connection:
        connection.cursor().execute("CREATE TABLE counted (number)")
        yield connection


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    found = Writer()
    monkeypatch.setattr(call_log_storage, "_writer", found)
    return found


@pytest.fixture
def other(file: Any) -> Iterator[sqlite3.Connection]:
    """A connection of the project's own that waits for nobody."""
    with closing(sqlite3.connect(file.settings_dict["NAME"], isolation_level=None, timeout=0)) as connection:
        yield connection


def row() -> call_log_storage.Row:
    return call_log_storage.row_of(CallRecord(outcome="ok"))


def logged(other: sqlite3.Connection) -> int:
    (count,) = other.execute("SELECT count(*) FROM mcp_django_callentry").fetchone()
    return int(count)


def test_a_transaction_that_has_read_can_write(file: Any, other: sqlite3.Connection) -> None:
    other.execute("BEGIN")
    assert not logged(other)
    with pytest.raises(OperationalError) as raised:
        call_log_storage.store([row()])
    assert Trouble.of(raised.value) is Trouble.BUSY
    other.execute("INSERT INTO counted VALUES (1)")
    other.execute("COMMIT")
    call_log_storage.store([row()])
    assert logged(other) == 1
    # The connection waits as long as it did before.
    assert file.cursor().execute("PRAGMA busy_timeout").fetchone() == (30_000,)


def test_its_rows_are_stored_once_it_has_ended(file: Any, writer: Writer, other: sqlite3.Connection) -> None:
    other.execute("BEGIN")
    assert not logged(other)
    refused = threading.Event()
    fail = writer.fail

    def note(error: Exception) -> None:
        fail(error)
        refused.set()

    writer.fail = note  # type: ignore[method-assign]
    stored = threading.Event()
    succeeded = writer.succeeded

    def tell() -> None:
        succeeded()
        stored.set()

    writer.succeeded = tell  # type: ignore[method-assign]
    # A write's answer waits for the attempt, and no longer.
    writer.put_at_once(row())
    assert refused.is_set()
    assert not writer.failed
    other.execute("INSERT INTO counted VALUES (1)")
    other.execute("COMMIT")
    assert stored.wait(20)
    assert (logged(other), call_log_storage.state()) == (1, call_log_storage.State(0, 0, False))


def test_a_write_is_there_when_it_has_been_put(file: Any, writer: Writer, other: sqlite3.Connection) -> None:
    for count in range(1, 4):
        writer.put_at_once(row())
        assert logged(other) == count


def test_a_reader_that_never_ends_is_pushed_for_a_moment(
    file: Any, writer: Writer, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writer.patience == 0
    monkeypatch.setattr(call_log_storage, "PUSHES_AFTER", 0)
    writer.fail(OperationalError())
    assert writer.patience == call_log_storage.PUSH
    writer.is_closing = True
    assert writer.patience > call_log_storage.PUSH


def test_in_a_transaction_of_this_thread_nothing_is_waited_for(
    file: Any, writer: Writer, other: sqlite3.Connection
) -> None:
    with transaction.atomic(using=ALIAS):
        call_log_storage.store([row()])
        assert not connections[ALIAS].needs_rollback
    assert logged(other) == 1
