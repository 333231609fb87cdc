"""The log of calls: rows are stored in batches by a thread of their own, those of writes at once.

It never fails a call. While the database does not take rows, they wait; when too many wait, or for too long, they are
left out, which the log of the server says and :func:`state` counts.
"""

import asyncio
import atexit
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, Final

import orjson
from django.db import (
    DataError,
    IntegrityError,
    close_old_connections,
    connections,
    router,
    transaction,
)

from ..context.record import CallRecord
from ..models import CallEntry
from .gauges import gauge

logger = logging.getLogger("mcp_django")

# Seconds between two batches, after which rows that cannot be stored are left out, after which the server's log says
# that there are none, between two lines about how many are left out, and after which a thread with nothing to do ends.
EVERY: Final = 1.0
PATIENCE: Final = 60.0
SAID_AFTER: Final = 3.0
SAID_EVERY: Final = 60.0
IDLE: Final = 10.0
# Seconds that the end of the process waits for the last rows.
LAST: Final = 1.5
# Rows of one statement, and rows that wait.
BATCH: Final = 500
MAX_WAITING: Final = 20_000
# A row is one that the database cannot hold.
UNFIT: Final = (DataError, IntegrityError, ValueError, TypeError, OverflowError)
# The values of a row, in the order of the fields that the database does not make. An instance of the model would take
# longer than all else that a call does for the log.
Row = tuple[Any, ...]
FIELDS: Final = CallEntry._meta.concrete_fields[1:]
COLUMNS: Final = tuple(str(field.column) for field in FIELDS)
# What a row has from the record; the last two are the record's bodies.
NAMED: Final = {"call_id": "id.hex", "time": "started"}
OF_RECORD: Final = attrgetter(*(NAMED.get(field.name, field.name) for field in FIELDS[:-2]))
Waiting = tuple[float, Row]


@dataclass(frozen=True, slots=True)
class State:
    """How many rows wait, how many were left out since the process began, and whether the database takes any."""

    waiting: int
    left_out: int
    fails: bool


class Writer:
    """The rows that wait, and the thread that stores them, which ends when there is nothing to do."""

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.left_out = 0
        self.is_storing = self.is_closing = False
        self.failed: float | None = None
        self._failing_since, self._said_failing = 0.0, False
        self._said, self._said_at = 0, 0.0
        self._lock, self._turn = threading.Lock(), threading.RLock()
        # A signal handler may interrupt whoever puts something into it.
        self.wake: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, row: Row) -> None:
        """Have a row stored soon."""
        with self._lock:
            if len(self.waiting) >= MAX_WAITING:
                self.left_out += 1
                return
            self.waiting.append((time.monotonic(), row))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mcp-log", daemon=True)
                self._thread.start()
            if self.is_closing or len(self.waiting) == BATCH:
                self.wake.put(None)

    def _run(self) -> None:
        quiet = 0.0
        try:
            while not self._is_done(quiet):
                began = time.monotonic()
                with suppress(Empty):
                    self.wake.get(timeout=EVERY)
                quiet = 0.0 if self.waiting else quiet + time.monotonic() - began
                self.flush()
                close_old_connections()
        finally:
            connections.close_all()

    def _is_done(self, quiet: float) -> bool:
        with self._lock:
            if self.waiting or quiet < IDLE:
                return False
            self._thread = None
            return True

    def flush(self) -> None:
        """Store what waits in this thread, as far as the database takes it; what another thread is at is waited for."""
        with self._turn:
            self.is_storing = True
            try:
                while batch := self._next():
                    if not self._store(batch):
                        break
            finally:
                self.is_storing = False
        self._say()

    def _next(self) -> list[Waiting]:
        with self._lock:
            return [self.waiting.popleft() for _ in range(min(BATCH, len(self.waiting)))]

    def _store(self, batch: Sequence[Waiting]) -> bool:
        """Store a batch, or put it back; return whether the database takes rows."""
        try:
            try:
                store([row for _, row in batch])
            except UNFIT:
                # One that is unfit does not keep the others out.
                for item in batch:
                    self._store_one(item[1])
        except Exception as error:
            self._put_back(batch, error)
            return False
        self.succeeded()
        return True

    def _store_one(self, row: Row) -> None:
        try:
            store([row])
        except UNFIT:
            try:
                store([fitting(row)])
            except UNFIT as error:
                logger.error("A call is not in the log of calls: %s", type(error).__name__)
                with self._lock:
                    self.left_out += 1

    def _put_back(self, batch: Sequence[Waiting], error: Exception) -> None:
        self.fail(error)
        oldest = time.monotonic() - PATIENCE
        kept = [item for item in batch if item[0] > oldest]
        with self._lock:
            self.left_out += len(batch) - len(kept)
            self.waiting.extendleft(reversed(kept))

    def fail(self, error: Exception) -> None:
        """Note that the database does not take rows, and say so once."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if not self._said_failing and now - self._failing_since >= SAID_AFTER:
            self._said_failing = True
            logger.error(
                "The log of calls cannot be written (%s): calls are answered all the same. Has migrate been run?",
                type(error).__name__,
            )
        self.failed = now

    def succeeded(self) -> None:
        """Note that the database takes rows."""
        if self._said_failing:
            logger.warning("The log of calls is written again")
        self.failed, self._failing_since, self._said_failing, self._said_at = None, 0.0, False, 0.0

    def _say(self) -> None:
        """Say in the server's log how many are left out, now and then."""
        now, more = time.monotonic(), self.left_out - self._said
        if more and (not self._said_at or now - self._said_at >= SAID_EVERY):
            self._said, self._said_at = self.left_out, now
            logger.error("%s calls are not in the log of calls: its database did not take them", more)


def store(rows: Sequence[Row]) -> None:
    """Store rows, those that are there already left as they are.

    Raises:
        DatabaseError: the database does not take them.
    """
    alias = _alias()
    connection = connections[alias]
    insert = INSERTS.get(connection.vendor)
    with transaction.atomic(using=alias):
        if insert is None:
            made: Any = CallEntry
            entries = [made(None, *row) for row in rows]
            CallEntry._default_manager.using(alias).bulk_create(entries, ignore_conflicts=True)
        else:
            with connection.cursor() as cursor:
                insert(connection, cursor, rows)


# Django prepares each value of each row by itself, which takes several times as long as all else that is done for one.


def _insert_sqlite(connection: Any, cursor: Any, rows: Sequence[Row]) -> None:
    table, columns = _quoted(connection)
    sql = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
    adapt = {COLUMNS.index("time"): connection.ops.adapt_datetimefield_value, COLUMNS.index("history"): json.dumps}
    adapted = ([adapt[place](value) if place in adapt else value for place, value in enumerate(row)] for row in rows)
    cursor.executemany(sql, adapted)


def _insert_postgresql(connection: Any, cursor: Any, rows: Sequence[Row]) -> None:
    table, columns = _quoted(connection)
    sql = (
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s::json) "
        "ON CONFLICT DO NOTHING"
    )
    cursor.execute(sql, [orjson.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows]).decode()])


def _quoted(connection: Any) -> tuple[str, str]:
    quote = connection.ops.quote_name
    return quote(CallEntry._meta.db_table), ", ".join(map(quote, COLUMNS))


INSERTS: Final[Mapping[str, Callable[[Any, Any, Sequence[Row]], None]]] = {
    "sqlite": _insert_sqlite,
    "postgresql": _insert_postgresql,
}


def fitting(row: Row) -> Row:
    """Return a row whose texts are as long as the columns at most, without the character NUL."""
    return tuple(
        value.replace("\0", "")[: getattr(field, "max_length", None)] if isinstance(value, str) else value
        for field, value in zip(FIELDS, row, strict=True)
    )


def _alias() -> str:
    return router.db_for_write(CallEntry)


_writer = Writer()


def row_of(record: CallRecord) -> Row:
    """Return the row of a record, with what it was about where that is captured."""
    return (*OF_RECORD(record), *record.bodies)


def put(record: CallRecord) -> None:
    """Have a call logged within seconds; at once where the thread is in a transaction that is not the call's."""
    if not is_on_loop() and connections[_alias()].in_atomic_block:
        write(record)
    else:
        _writer.put(row_of(record))


def write(record: CallRecord) -> None:
    """Log a call before this returns; where the database does not take it now, it is tried again."""
    row, writer = row_of(record), _writer
    if is_on_loop() or (writer.failed is not None and time.monotonic() - writer.failed < EVERY):
        writer.put(row)
        return
    try:
        store([row])
    except UNFIT:
        writer.put(row)
    except Exception as error:
        writer.fail(error)
        writer.put(row)


def is_on_loop() -> bool:
    """Return whether this thread runs an event loop, which no query may hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def flush() -> None:
    """Store what waits, in this thread."""
    _writer.flush()


def drain() -> None:
    """Have what waits stored now, and what comes later at once, as the process ends; a signal handler may call it."""
    writer = _writer
    writer.is_closing = True
    writer.wake.put(None)
    until = time.monotonic() + LAST
    # It may have interrupted whoever holds a lock that the thread needs: so it waits for a time alone.
    while (writer.waiting or writer.is_storing) and writer.failed is None and time.monotonic() < until:
        time.sleep(0.01)


def state() -> State:
    """Return how the log is."""
    return State(len(_writer.waiting), _writer.left_out, _writer.failed is not None)


gauge("log_queue", "Calls that wait to be stored in the log of calls.", lambda: state().waiting)
gauge("log_left_out", "Calls that are not in the log, as its database did not take them.", lambda: state().left_out)


def _forget() -> None:
    """Begin anew in a forked process: what waits is its parent's."""
    global _writer
    _writer = Writer()


os.register_at_fork(after_in_child=_forget)
atexit.register(flush)
