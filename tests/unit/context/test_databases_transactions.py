import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from mcp_django.context.database_errors import Trouble
from mcp_django.context.databases import writing
from tests.sqlite_file import ALIAS, sqlite_file


@pytest.fixture(params=["delete", "wal"])
def file(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[Any]:
    with django_db_blocker.unblock(), sqlite_file(tmp_path, journal=request.param, timeout=30) as connection:
        connection.cursor().execute("CREATE TABLE counted (number)")
        connection.cursor().execute("INSERT INTO counted VALUES (0)")
        yield connection


def count_on() -> None:
    """Read, then write what was read."""
    with connections[ALIAS].cursor() as cursor:
        (number,) = cursor.execute("SELECT number FROM counted").fetchone()
        cursor.execute("UPDATE counted SET number = %s", [number + 1])


def test_a_transaction_that_reads_first_waits_for_its_turn_to_write(file: Any) -> None:
    asked, failed = threading.Event(), []

    def other() -> None:
        connection = connections[ALIAS]

        def ask(execute: Any, sql: str, *rest: Any) -> Any:
            if sql.startswith("BEGIN"):
                asked.set()
            return execute(sql, *rest)

        try:
            with connection.execute_wrapper(ask), writing(ALIAS):
                count_on()
        except OperationalError as error:
            failed.append(error)
        finally:
            connection.close()

    with writing(ALIAS):
        thread = threading.Thread(target=other)
        thread.start()
        assert asked.wait(20)
        count_on()
    thread.join(30)
    assert not failed
    assert file.cursor().execute("SELECT number FROM counted").fetchone() == (2,)


def test_the_mode_of_the_project_is_left_as_it_is(file: Any) -> None:
    seen = []

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with file.execute_wrapper(look):
        with writing(ALIAS):
            pass
        with transaction.atomic(using=ALIAS):
            pass
        with pytest.raises(ZeroDivisionError), writing(ALIAS, "EXCLUSIVE"):
            raise ZeroDivisionError
    assert [sql for sql in seen if sql.startswith("BEGIN")] == ["BEGIN IMMEDIATE", "BEGIN", "BEGIN EXCLUSIVE"]
    assert not file.in_atomic_block


def test_within_a_transaction_it_is_a_savepoint(file: Any) -> None:
    def fail() -> None:
        with writing(ALIAS):
            count_on()
            raise ZeroDivisionError

    with transaction.atomic(using=ALIAS), pytest.raises(ZeroDivisionError):
        fail()
    assert file.cursor().execute("SELECT number FROM counted").fetchone() == (0,)


def test_a_lock_that_another_connection_has_is_told_from_other_errors(file: Any) -> None:
    file.cursor().execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(file.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError) as raised, writing(ALIAS):
            pass
    assert Trouble.of(raised.value) is Trouble.BUSY
    with pytest.raises(OperationalError) as raised:
        file.cursor().execute("SELECT * FROM nothing")
    assert Trouble.of(raised.value) is None
