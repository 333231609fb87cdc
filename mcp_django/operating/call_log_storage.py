"""Storage of the call log: a thread stores the rows of finished calls in batches, those of writes at once.

Logging never fails a call, and never delays one for more than a moment. On SQLite it gives way to the project's own
queries. Rows wait while the database does not accept them; if too many wait, or wait for too long, they are dropped.
The server's log reports dropped rows, and :func:`state` counts them.
"""

import asyncio
import atexit
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, Final

import orjson
from django.db import (
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    close_old_connections,
    connections,
    router,
    transaction,
)

from ..context.call_record import CallRecord
from ..context.database_errors import Trouble, code_of, is_unfit
from ..context.databases import LockWait, has_short_characters, insert_new, writing
from ..models import CallEntry
from .alerts import alerts
from .gauges import gauge

logger = logging.getLogger("mcp_django")

# Seconds between two batches, before the first retry (doubled each time), after which waiting rows are dropped, after
# which the server's log reports that the database fails, between two reports of dropped rows, and after which an idle
# thread ends.
EVERY: Final = 1.0
AGAIN: Final = 0.05
PATIENCE: Final = 60.0
SAID_AFTER: Final = 10.0
SAID_EVERY: Final = 60.0
IDLE: Final = 10.0
# Seconds that the response to a write waits for its row to be stored, that the end of the process waits for the last
# rows, and that a statement waits for a lock on PostgreSQL.
AT_ONCE: Final = 0.5
LAST: Final = 1.5
LOCKED: Final = 0.5
PATIENT: Final = "SELECT set_config('lock_timeout', %s, true)"
PATIENCE_OF_LOCKS: Final = f"{LOCKED * 1000:.0f}"
# On SQLite, do not wait for the lock, because others would wait meanwhile; after PUSHES_AFTER seconds, wait for PUSH.
PUSHES_AFTER: Final = 2.0
PUSH: Final = 0.05
# Databases for which this module has an INSERT statement of its own.
QUICK: Final = frozenset({"sqlite", "postgresql", "mysql"})
# Maximum number of rows in one statement, and of rows that wait.
BATCH: Final = 500
MAX_WAITING: Final = 20_000
# Errors which say that the database cannot hold the values of a row.
UNFIT: Final = (DataError, IntegrityError, ValueError, TypeError, OverflowError)
# Characters of four bytes.
LONG_CHARACTERS: Final = re.compile(r"[\U00010000-\U0010ffff]")
# MySQL's numbers for a packet that is larger than the server takes; 2006 is also a connection that is gone.
TOO_LARGE: Final = frozenset({1153, 2006})
# The values of a row in the order of FIELDS, which leave out the primary key. Creating a model instance would take
# longer than all other logging work of a call.
Row = tuple[Any, ...]
FIELDS: Final = CallEntry._meta.concrete_fields[1:]
COLUMNS: Final = tuple(str(field.column) for field in FIELDS)
# Attributes of the record by field, if they have another name. The last two fields are the record's bodies.
NAMED: Final = {"call_id": "id.hex", "time": "started"}
OUTCOME: Final = COLUMNS.index("outcome")
OF_RECORD: Final = attrgetter(*(NAMED.get(field.name, field.name) for field in FIELDS[:-2]))
# When the row was queued, the row, and an event to set after the first attempt to store it.
Waiting = tuple[float, Row, threading.Event | None]


@dataclass(frozen=True, slots=True)
class State:
    """How many rows wait and how many were dropped, and whether the database refuses rows at present."""

    waiting: int
    left_out: int
    fails: bool


class Writer:
    """The queue of rows, and the thread that stores them in the database."""

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.left_out = 0
        self.is_storing = False
        self.is_closing = False
        self.failed: float | None = None
        self._failing_since = 0.0
        self._said_failing = False
        self._said = 0
        self._said_at = 0.0
        self._lock = threading.Lock()
        self._turn = threading.RLock()
        # A SimpleQueue, because a signal handler can interrupt put() and call it again.
        self.wake: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, row: Row, tried: threading.Event | None = None) -> None:
        """Queue a row; with ``tried``, which is set once the row was tried, wake the thread for somebody who waits."""
        with self._lock:
            if len(self.waiting) >= MAX_WAITING:
                self.left_out += 1
                if tried is not None:
                    tried.set()
                return
            self.waiting.append((time.monotonic(), row, tried))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="mcp-log", daemon=True)
                # A process that is ending cannot start threads: this must not fail the call.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            is_due = tried is not None or self.is_closing or len(self.waiting) == BATCH
        if is_due and self.wake.empty():
            self.wake.put(None)

    def put_at_once(self, row: Row) -> None:
        """Store a row before returning, unless the database is away or too slow."""
        # Read this before put() can change it: do not wait for a database that is failing.
        is_failing = bool(self._failing_since)
        tried = threading.Event()
        self.put(row, tried)
        if not is_failing and not tried.wait(AT_ONCE):
            self.fail(TimeoutError())

    def _run(self) -> None:
        # Seconds for which no row has come, and seconds to wait after a failure.
        quiet = 0.0
        pause = 0.0
        try:
            while True:
                with self._lock:
                    if not self.waiting and quiet >= IDLE:
                        self._thread = None
                        return
                began = time.monotonic()
                with suppress(Empty):
                    self.wake.get(timeout=pause or EVERY)
                quiet = 0.0 if self.waiting else quiet + time.monotonic() - began
                try:
                    self.flush()
                    close_old_connections()
                except Exception as error:
                    # Keep the thread running: without it, no more calls would be logged.
                    if not self._failing_since:
                        logger.exception("The log of calls had an error and continues")
                    self.fail(error)
                pause = min(2 * pause or AGAIN, EVERY) if self._failing_since else 0.0
        finally:
            connections.close_all()

    def flush(self) -> None:
        """Store all waiting rows in this thread, and wait for those of another thread."""
        with self._turn:
            self.is_storing = True
            try:
                while self.waiting and self._store_batch():
                    pass
            finally:
                self.is_storing = False
        # Report dropped rows now and then, not for each batch.
        now = time.monotonic()
        more = self.left_out - self._said
        if more and (not self._said_at or now - self._said_at >= SAID_EVERY):
            self._said = self.left_out
            self._said_at = now
            logger.error("%s calls are not in the log of calls: its database refused them", more)

    def _store_batch(self) -> bool:
        """Store one batch of rows, or put them back; return whether the database accepts rows."""
        with self._lock:
            batch = [self.waiting.popleft() for _ in range(min(BATCH, len(self.waiting)))]
        try:
            self.store_now([row for _, row, _ in batch])
        except Exception as error:
            self.fail(error)
            oldest = time.monotonic() - PATIENCE
            kept = [item for item in batch if item[0] > oldest]
            with self._lock:
                self.left_out += len(batch) - len(kept)
                self.waiting.extendleft(reversed(kept))
            return False
        finally:
            for *_, tried in batch:
                if tried is not None:
                    tried.set()
        self.succeeded()
        alerts.count([row[OUTCOME] for _, row, _ in batch])
        return True

    def store_now(self, rows: Sequence[Row]) -> None:
        """Store rows in this thread; a row that the database refuses does not block the others."""
        try:
            store(rows)
        except (OperationalError, *UNFIT) as error:
            if len(rows) > 1 and code_of(error) in TOO_LARGE:
                # MySQL ends the connection for a statement that is too large: where it is gone, connecting fails as
                # well.
                middle = len(rows) // 2
                self.store_now(rows[:middle])
                self.store_now(rows[middle:])
            elif not _is_unfit(error):
                raise
            elif len(rows) > 1:
                for row in rows:
                    self.store_now([row])
            else:
                self._store_fitting(rows[0])

    def _store_fitting(self, row: Row) -> None:
        """Store as much of a row as the columns hold, or leave it out."""
        try:
            store([fitting(row)])
        except (OperationalError, *UNFIT) as error:
            if not _is_unfit(error):
                raise
            logger.error("A call is not in the log of calls: %s", type(error).__name__)
            with self._lock:
                self.left_out += 1

    @property
    def patience(self) -> float:
        """Return for how many seconds to wait for SQLite's lock."""
        if self.is_closing:
            return LAST / 2
        if self._failing_since and time.monotonic() - self._failing_since >= PUSHES_AFTER:
            return PUSH
        return 0.0

    def fail(self, error: Exception) -> None:
        """Note that the database refuses rows, and log the error once."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if Trouble.of(error) is Trouble.BUSY and now - self._failing_since < SAID_AFTER:
            return
        if not self._said_failing and now - self._failing_since >= SAID_AFTER:
            self._said_failing = True
            logger.error("The log of calls cannot be written (%s): calls are answered all the same.", _cause(error))
        self.failed = now

    def succeeded(self) -> None:
        """Note that the database accepts rows, and log it after a failure."""
        if self._said_failing:
            logger.warning("The log of calls is written again")
        self.failed = None
        self._failing_since = 0.0
        self._said_failing = False
        self._said_at = 0.0


def _cause(error: Exception) -> str:
    """Return why rows cannot be stored, in words for operators."""
    trouble = Trouble.of(error)
    if trouble is not None:
        return trouble.cause
    if isinstance(error, TimeoutError):
        return "the database does not answer in time"
    is_missing = isinstance(error, ProgrammingError) or "no such table" in str(error)
    return f"{type(error).__name__}{'; has migrate been run?' if is_missing else ''}"


def _alias() -> str:
    return router.db_for_write(CallEntry)


def store(rows: Sequence[Row]) -> None:
    """Store rows, except those that are stored already; raises ``DatabaseError``.

    ``bulk_create`` is only the fallback: it prepares each value of each row by itself, which takes several times as
    long as all other logging work for a row.
    """
    alias = _alias()
    connection: Any = connections[alias]
    table, *columns = map(connection.ops.quote_name, (CallEntry._meta.db_table, *COLUMNS))
    names = ", ".join(columns)
    with _out_of_the_way(alias, connection):
        if connection.vendor not in QUICK:
            made: Any = CallEntry
            entries = [made(None, *row) for row in rows]
            CallEntry._default_manager.using(alias).bulk_create(entries, ignore_conflicts=True)
        elif connection.vendor != "postgresql":
            adapt = {"time": connection.ops.adapt_datetimefield_value, "history": json.dumps}
            by_place = [(place, adapt[column]) for place, column in enumerate(COLUMNS) if column in adapt]
            adapted = [list(row) for row in rows]
            for row in adapted:
                for place, write in by_place:
                    row[place] = write(row[place])
            sql = insert_new(connection, CallEntry._meta.db_table, COLUMNS, "call_id")
            with connection.cursor() as cursor:
                cursor.executemany(sql, adapted)
        else:
            select = f"SELECT {names} FROM json_populate_recordset(NULL::{table}, %s::json)"
            objects = orjson.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows]).decode()
            insert = f"INSERT INTO {table} ({names}) {select} ON CONFLICT DO NOTHING"
            params = [objects]
            if not connection.in_atomic_block and not connection.settings_dict["OPTIONS"].get("server_side_binding"):
                # PostgreSQL runs the statements of one message in one transaction.
                insert = f"{PATIENT}; {insert}"
                params = [PATIENCE_OF_LOCKS, objects]
            with connection.cursor() as cursor:
                cursor.execute(insert, params)


@contextmanager
def _out_of_the_way(alias: str, connection: Any) -> Iterator[None]:
    """Open a transaction that gives way to the project's own writers."""
    if connection.in_atomic_block or connection.vendor not in QUICK:
        with transaction.atomic(using=alias):
            yield
    elif connection.vendor == "mysql":
        with LockWait(alias, LOCKED).in_session(), transaction.atomic(using=alias):
            yield
    elif connection.vendor == "postgresql" and connection.settings_dict["OPTIONS"].get("server_side_binding"):
        with transaction.atomic(using=alias):
            with connection.cursor() as cursor:
                cursor.execute(PATIENT, [PATIENCE_OF_LOCKS])
            yield
    elif connection.vendor == "postgresql":
        # The statement is a transaction by itself.
        yield
    else:
        with connection.cursor() as cursor:
            usual = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
            cursor.execute(f"PRAGMA busy_timeout = {_writer.patience * 1000:.0f}")
            try:
                # Connections that share an in-memory database, as in tests, cannot wait for each other.
                with writing(alias, "IMMEDIATE" if connection.is_in_memory_db() else "EXCLUSIVE"):
                    yield
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {usual}")


def _is_unfit(error: Exception) -> bool:
    """Return whether the database refuses a row for its values; for some, the drivers of MySQL have no class."""
    return isinstance(error, UNFIT) or is_unfit(error)


def fitting(row: Row) -> Row:
    """Return a row with its texts cut to the columns' lengths, and without characters that the table does not take."""
    is_short = has_short_characters(_alias(), CallEntry._meta.db_table)
    return tuple(_fitting_value(field, value, is_short) for field, value in zip(FIELDS, row, strict=True))


def _fitting_value(field: Any, value: Any, is_short: bool) -> Any:
    if not isinstance(value, str):
        return value
    text = value.replace("\0", "")[: getattr(field, "max_length", None)]
    return LONG_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text) if is_short else text


_writer = Writer()


def row_of(record: CallRecord) -> Row:
    """Return the row of a record, with its captured arguments and result."""
    return (*OF_RECORD(record), *record.bodies)


def put(record: CallRecord) -> None:
    """Queue the row of a call, to be stored within seconds."""
    _keep(row_of(record), _writer, _writer.put)


def write(record: CallRecord) -> None:
    """Store the row of a write before returning; retry later if the database is busy."""
    _keep(row_of(record), _writer, _writer.put_at_once)


def _keep(row: Row, writer: Writer, keep: Callable[[Row], None]) -> None:
    is_away = writer.failed is not None and time.monotonic() - writer.failed < EVERY
    if is_on_loop():
        writer.put(row)
    elif not connections[_alias()].in_atomic_block:
        keep(row)
    elif is_away:
        writer.put(row)
    else:
        # Use this thread's open transaction, which is not the call's: on SQLite, no other thread could write now.
        try:
            writer.store_now([row])
        except Exception as error:
            writer.fail(error)
            writer.put(row)


def is_on_loop() -> bool:
    """Return whether this thread runs an event loop, which storing a row would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def flush() -> None:
    """Store all waiting rows in this thread."""
    _writer.flush()


def drain() -> None:
    """Store all waiting rows as the process ends; signal handlers can call this."""
    writer = _writer
    writer.is_closing = True
    writer.wake.put(None)
    until = time.monotonic() + LAST
    # A signal may have interrupted the holder of a lock that the thread needs, so wait for LAST seconds at most.
    while (writer.waiting or writer.is_storing) and writer.failed is None and time.monotonic() < until:
        time.sleep(0.01)


def state() -> State:
    """Return how many rows wait and were dropped, and whether the database refuses rows."""
    return State(len(_writer.waiting), _writer.left_out, _writer.failed is not None)


gauge("log_queue", "Calls that wait to be stored in the log of calls.", lambda: state().waiting)
gauge("log_left_out", "Calls that are not in the log, because its database refused them.", lambda: state().left_out)


def _forget() -> None:
    """Start anew in a forked process: waiting rows belong to the parent."""
    global _writer
    _writer = Writer()


os.register_at_fork(after_in_child=_forget)
# Let the log's thread store the last rows: this one would wait forever for a database that does not answer.
atexit.register(drain)
