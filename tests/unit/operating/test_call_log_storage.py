import logging
import sqlite3
import threading
import time
from dataclasses import fields

import pytest
from django.db import DatabaseError, DataError, OperationalError, ProgrammingError, connection, transaction

from mcp_django.context.call_record import CallRecord
from mcp_django.context.databases import has_short_characters
from mcp_django.models import CallEntry
from mcp_django.operating import call_log_storage
from mcp_django.operating.call_log_storage import COLUMNS, SAID_AFTER, Writer, fitting, row_of, store
from mcp_django.signals import call_finished
from mcp_django.testing import MCPClient
from tests.factories import make_superuser
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def row(**values):
    return row_of(CallRecord(outcome="ok", **values))


def value(row, name):
    return row[COLUMNS.index(name)]


@pytest.fixture
def writer(monkeypatch):
    """A writer whose thread is this one."""
    found = Writer()
    monkeypatch.setattr(found, "_thread", object())
    return found


def test_rows_that_wait_are_stored_once():
    record = CallRecord(outcome="ok")
    store([row_of(record)])
    store([row_of(record), row()])
    assert CallEntry.objects.count() == 2


def test_the_thread_ends_when_nothing_was_logged_for_a_while(monkeypatch):
    monkeypatch.setattr(call_log_storage, "IDLE", 0.0)
    found = Writer()
    found._thread = threading.Thread(target=found._run, daemon=True)
    thread = found._thread
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert found._thread is None


def test_rows_wait_for_a_database_that_does_not_take_them(writer, monkeypatch, caplog):
    def fail(rows):
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(call_log_storage, "store", fail)
        writer.put(row())
        writer.put(row())
        writer.flush()
    assert len(writer.waiting) == 2
    writer.flush()
    assert CallEntry.objects.count() == 2
    assert not caplog.records


def test_rows_that_waited_too_long_are_left_out_and_the_servers_log_says_so(writer, monkeypatch, caplog):
    def fail(rows):
        raise DatabaseError("away")

    monkeypatch.setattr(call_log_storage, "store", fail)
    monkeypatch.setattr(call_log_storage, "PATIENCE", -1)
    writer.put(row())
    with caplog.at_level(logging.ERROR):
        writer.flush()
    assert not writer.waiting
    assert "1 calls are not in the log of calls" in caplog.text


def test_no_more_wait_than_a_bound(writer, monkeypatch, caplog):
    monkeypatch.setattr(call_log_storage, "MAX_WAITING", 2)
    for _ in range(5):
        writer.put(row())
    writer.flush()
    assert CallEntry.objects.count() == 2
    assert "3 calls are not in the log of calls" in caplog.text


def test_a_write_that_the_database_does_not_take_now_waits(call_log, writer, monkeypatch):
    monkeypatch.setattr(call_log_storage, "_writer", writer)

    def fail(rows):
        raise DatabaseError("locked")

    with monkeypatch.context() as patch:
        patch.setattr(call_log_storage, "store", fail)
        call_log_storage.write(CallRecord(outcome="ok", writes=True))
    assert [found.outcome for found in call_log()] == ["ok"]


# A database that refuses


def test_a_database_that_refuses_is_said_once_and_counted(writer, monkeypatch, caplog):
    def fail(rows):
        raise ProgrammingError("relation does not exist")

    monkeypatch.setattr(call_log_storage, "_writer", writer)
    monkeypatch.setattr(call_log_storage, "SAID_AFTER", 0)
    with monkeypatch.context() as patch:
        patch.setattr(call_log_storage, "store", fail)
        writer.put(row())
        for _ in range(5):
            writer.flush()
        assert call_log_storage.state() == call_log_storage.State(waiting=1, left_out=0, fails=True)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "calls are answered all the same" in caplog.text
        patch.setattr(call_log_storage, "PATIENCE", -1)
        for _ in range(5):
            writer.put(row())
            writer.flush()
    assert call_log_storage.state() == call_log_storage.State(waiting=0, left_out=6, fails=True)
    # How many are missing is said at most once a minute.
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    writer.put(row())
    writer.flush()
    assert call_log_storage.state() == call_log_storage.State(waiting=0, left_out=6, fails=False)
    assert caplog.records[2].getMessage() == "The log of calls is written again"


@pytest.mark.parametrize("is_write", [True, False])
def test_calls_are_answered_without_the_table(is_write, call_log, monkeypatch, caplog):
    """As before `migrate`: the savepoint of the row fails alone."""
    client = MCPClient(make_superuser())
    monkeypatch.setattr(CallEntry._meta, "db_table", "no_such_table")
    if is_write:
        client.call("create_record", model="testapp.author", values={"name": "Ada"})
        assert Author.objects.get().name == "Ada"
    else:
        assert not client.call("query_records", model="testapp.author").is_error
    call_log_storage.flush()
    assert call_log_storage.state().fails


def test_a_write_does_not_ask_a_database_again_that_has_just_refused(writer, monkeypatch, calls_are_not_logged):
    asked = []

    def fail(rows):
        asked.append(len(rows))
        raise OperationalError("away")

    monkeypatch.setattr(call_log_storage, "_writer", writer)
    monkeypatch.setattr(call_log_storage, "store", fail)
    for _ in range(5):
        calls_are_not_logged["write"](CallRecord(outcome="ok", writes=True))
    assert asked == [1]
    assert len(writer.waiting) == 5


def test_a_row_that_does_not_fit_keeps_no_other_out(writer, caplog, monkeypatch):
    real = call_log_storage.store

    def choosy(rows):
        if any("\0" in value(found, "tool") for found in rows):
            raise ValueError("A string literal cannot contain NUL")
        if any(value(found, "rows_read") < 0 for found in rows):
            raise DataError("out of range")
        real(rows)

    monkeypatch.setattr(call_log_storage, "store", choosy)
    for found in (row(tool="good"), row(tool="a\0b"), row(tool="bad", rows_read=-1), row(tool="good")):
        writer.put(found)
    writer.flush()
    assert sorted(CallEntry.objects.values_list("tool", flat=True)) == ["ab", "good", "good"]
    assert writer.left_out == 1


def test_a_text_with_a_character_that_the_table_does_not_take_is_logged_without_it(writer, monkeypatch):
    real = call_log_storage.store

    def short(rows):
        if any("🙂" in value(found, "tool") for found in rows):
            # As mysqlclient says it, which has no class for it.
            raise OperationalError(1366, "Incorrect string value")
        real(rows)

    monkeypatch.setattr(call_log_storage, "store", short)
    writer.put(row(tool="🙂"))
    writer.put(row(tool="good"))
    writer.flush()
    assert writer.left_out == 1
    monkeypatch.setattr(call_log_storage, "has_short_characters", lambda using, table: True)
    writer.put(row(tool="é 🙂"))
    writer.flush()
    assert sorted(CallEntry.objects.values_list("tool", flat=True)) == ["good", "é \N{REPLACEMENT CHARACTER}"]
    assert writer.left_out == 1


@pytest.fixture
def short_table(transactional_db):
    """The table of the log, made for characters of at most three bytes."""
    convert = f"ALTER TABLE {CallEntry._meta.db_table} CONVERT TO CHARACTER SET"
    has_short_characters.cache_clear()
    with connection.cursor() as cursor:
        cursor.execute(f"{convert} utf8mb3")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"{convert} utf8mb4")
    has_short_characters.cache_clear()


@pytest.mark.skipif(connection.vendor != "mysql", reason="texts of other databases take every character")
@pytest.mark.usefixtures("short_table")
def test_calls_are_logged_in_a_table_of_utf8mb3(writer):
    writer.put(row(tool="good"))
    writer.put(row(tool="é 🙂", history=[{"name": "🙂"}]))
    writer.flush()
    assert sorted(CallEntry.objects.values_list("tool", flat=True)) == ["good", "é \N{REPLACEMENT CHARACTER}"]
    assert writer.left_out == 0


def test_rows_that_are_too_many_for_one_packet_are_stored_in_parts(writer, monkeypatch):
    real = call_log_storage.store

    def store(rows):
        if len(rows) > 2:
            raise OperationalError(2006, "Server has gone away")
        real(rows)

    monkeypatch.setattr(call_log_storage, "store", store)
    for number in range(7):
        writer.put(row(tool=f"tool {number}"))
    writer.flush()
    assert sorted(CallEntry.objects.values_list("tool", flat=True)) == [f"tool {number}" for number in range(7)]
    assert writer.left_out == 0


def test_rows_wait_for_a_server_that_is_gone(writer, monkeypatch):
    asked = []

    def gone(rows):
        asked.append(len(rows))
        raise OperationalError(2006, "Server has gone away")

    monkeypatch.setattr(call_log_storage, "store", gone)
    for _ in range(4):
        writer.put(row())
    writer.flush()
    assert asked == [4, 2, 1]
    assert len(writer.waiting) == 4


def test_rows_that_are_stored_already_stay_as_they_are():
    first, longer = row(tool="first"), row(tool="x" * 101)
    call_log_storage.store([first])
    again = list(first)
    again[call_log_storage.COLUMNS.index("tool")] = "second"
    call_log_storage.store([tuple(again), row(tool="other")])
    assert sorted(CallEntry.objects.values_list("tool", flat=True)) == ["first", "other"]
    # Nothing is cut in silence; SQLite has no lengths.
    if connection.vendor != "sqlite":
        with pytest.raises(DataError), transaction.atomic():
            call_log_storage.store([longer])


def test_a_row_is_cut_to_its_columns():
    found = fitting(row(tool="x" * 500, client_id="y" * 500))
    assert (len(value(found, "tool")), len(value(found, "client_id"))) == (100, 255)


# The thread


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("broken", ["close_old_connections", "flush"])
def test_the_thread_goes_on_after_an_error(broken, monkeypatch, caplog):
    writer = Writer()
    stored, failed = threading.Semaphore(0), []
    monkeypatch.setattr(call_log_storage, "store", lambda rows: [stored.release() for _ in rows])
    where = call_log_storage if broken == "close_old_connections" else writer
    works = getattr(where, broken)

    def fail_once():
        if not failed:
            failed.append(True)
            raise RuntimeError("not the database's")
        works()

    monkeypatch.setattr(where, broken, fail_once)
    writer.put(row())
    assert stored.acquire(timeout=20)
    writer.put(row())
    assert stored.acquire(timeout=20)
    assert failed
    assert "continues" in caplog.text


def test_a_silent_database_holds_up_one_write_for_a_moment_and_no_other(monkeypatch):
    writer = Writer()
    answers, stored = threading.Event(), []

    def wait(rows):
        answers.wait(20)
        stored.extend(rows)

    monkeypatch.setattr(call_log_storage, "store", wait)
    monkeypatch.setattr(call_log_storage, "AT_ONCE", 0.01)
    writer.put_at_once(row())
    monkeypatch.setattr(call_log_storage, "AT_ONCE", 60)
    for _ in range(3):
        writer.put_at_once(row())
    assert not stored
    answers.set()
    writer.flush()
    assert len(stored) == 4
    assert not writer.failed


def test_a_process_without_threads_to_spare_answers_all_the_same(monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    writer = Writer()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        writer.put(row())
    assert (len(writer.waiting), writer._thread) == (1, None)


# Transactions


def test_a_call_that_rolls_back_is_logged_all_the_same(call_log):
    client = MCPClient(make_superuser())
    answer = client.call("create_record", model="testapp.author", values={"name": ""})
    assert answer.is_error
    (found,) = call_log()
    assert (found.tool, found.outcome, found.writes, found.rows_changed) == ("create_record", "tool_error", True, 0)
    assert found.history == []
    assert not Author.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_row_of_a_write_is_there_for_others_before_its_answer(call_log):
    seen = []
    client = MCPClient(make_superuser())

    def look(record, **kwargs):
        seen.append(connection.in_atomic_block)

    call_finished.connect(look)
    try:
        client.call("create_record", model="testapp.author", values={"name": "Ada"})
    finally:
        call_finished.disconnect(look)
    # Nobody has flushed.
    assert CallEntry.objects.get().outcome == "ok"
    assert seen == [False]


# The end


def test_what_waits_is_stored_when_the_process_is_told_to_stop(transactional_db, monkeypatch):
    writer = Writer()
    monkeypatch.setattr(call_log_storage, "_writer", writer)
    stored = []
    monkeypatch.setattr(call_log_storage, "store", lambda rows: stored.extend(rows))
    writer.put(row())
    call_log_storage.drain()
    assert len(stored) == 1
    # What comes later is not put off.
    writer.put(row())
    deadline = time.monotonic() + 10
    while len(stored) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_handler_that_interrupts_whoever_holds_the_lock_comes_to_its_end(writer, monkeypatch):
    monkeypatch.setattr(call_log_storage, "_writer", writer)
    monkeypatch.setattr(call_log_storage, "LAST", 0.05)
    writer.put(row())
    with writer._lock:
        call_log_storage.drain()
    assert len(writer.waiting) == 1


def test_a_forked_process_begins_anew(writer, monkeypatch):
    monkeypatch.setattr(call_log_storage, "_writer", writer)
    writer.put(row())
    call_log_storage._forget()
    assert call_log_storage.state().waiting == 0


# What is stored


@pytest.mark.parametrize("by", ["its own statement", "Django's"])
def test_what_is_stored_is_what_the_record_has(by, monkeypatch):
    if by == "Django's":
        monkeypatch.setattr(call_log_storage, "QUICK", frozenset())
    record = CallRecord(
        outcome="ok",
        tool="a \"b\" \\ '%s' ä €",
        writes=True,
        rows_read=3,
        query_time=1.25,
        history=["7", "8"],
        user="5",
        bodies=("{}", "[]"),
    )
    store([row_of(record)])
    store([row_of(record), row_of(CallRecord(outcome="asked"))])
    found = CallEntry.objects.get(call_id=record.id.hex)
    assert found.time == record.started
    names = {field.name for field in CallEntry._meta.concrete_fields} & {field.name for field in fields(record)}
    names -= {"id", "history", "arguments", "result"}
    assert len(names) > 20
    assert {name: getattr(found, name) for name in names} == {name: getattr(record, name) for name in names}
    assert (found.arguments, found.result) == ("{}", "[]")
    assert (found.history, found.tokens) == (["7", "8"], 0)
    assert CallEntry.objects.filter(history=["7", "8"]).count() == 1
    assert CallEntry.objects.count() == 2


def failing(kind: type[Exception], cause: str, text: str = "x") -> Exception:
    """Return an error of Django's with that of a driver as its cause."""
    error, inner = kind(text), sqlite3.OperationalError(text)
    inner.sqlite_errorname = cause  # type: ignore[misc]
    error.__cause__ = inner
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (failing(OperationalError, "SQLITE_BUSY"), "the database is busy"),
        (failing(OperationalError, "SQLITE_FULL"), "the disk of the database is full"),
        (TimeoutError(), "the database does not answer in time"),
        (failing(OperationalError, "SQLITE_ERROR", "no such table: x"), "OperationalError; has migrate been run?"),
        (ProgrammingError("x"), "ProgrammingError; has migrate been run?"),
    ],
)
def test_why_the_log_cannot_be_written_is_said(caplog, error, told):
    writer = Writer()
    writer._failing_since = time.monotonic() - SAID_AFTER
    writer.fail(error)
    assert f"The log of calls cannot be written ({told}): calls are answered all the same." in caplog.text
