"""Limits of one call: the time of a read's queries, and on PostgreSQL the time for which a write waits for locks.

A watching thread interrupts the queries of a call that is over its time. It sends no statement and changes no setting,
so a connection that others share (the project's own code, a pooler) is left as it was.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final

from django.db import DatabaseError, InterfaceError, connections, transaction

from ..conf import settings
from ..context.call_record import CallRecord
from ..context.database_errors import Trouble
from ..context.databases import LockWait, stop_query, stops_in_silence, writing
from ..exceptions import ToolError

logger = logging.getLogger("mcp_django.tools")

ADVICE: Final = (
    "Ask for less: filter on indexed fields (describe_model), leave out search and ordering, or group by fewer fields."
)
TOO_SLOW: Final = f"The database took too long. {ADVICE}"
# SQLite's parser has a limit for nested brackets.
TOO_DEEP: Final = "The query is nested too deeply for the database. Use fewer brackets or fewer nested conditions."
IN_DOUBT: Final = (
    "The connection to the database broke while it was storing this. It may have been done: look at the data before "
    "you repeat the call."
)
AFTERWARDS: Final = (
    "It was done and is stored, but what the project does after storing it has failed. Do not repeat the call; tell "
    "the operator."
)
# Seconds between two checks of the watching thread, and seconds without a call after which it ends.
TICK: Final = 0.1
IDLE: Final = 30.0
# Maximum number of seconds to wait until the database has received a cancel request.
CANCEL_TIMEOUT: Final = 2.0


class _TimeLimit:
    """Time limit of the queries of one thread: the database interrupts them after some seconds."""

    __slots__ = ("connections", "deadline", "is_over", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.connections = connections.all()
        self.deadline = time.monotonic() + self.seconds
        self.is_over = False
        _watched[id(self)] = self
        if not _threads:
            _start()

    def __exit__(self, kind: Any, raised: BaseException | None, traceback: Any) -> None:
        _watched.pop(id(self), None)
        if self.is_over:
            # Wait for a running interrupt: it must not hit the next user of the connection.
            with _interrupting:
                pass
            if isinstance(raised, DatabaseError):
                raise ToolError(TOO_SLOW) from None
            if raised is None and any(map(stops_in_silence, self.connections)):
                raise ToolError(TOO_SLOW)
        if isinstance(raised, DatabaseError) and Trouble.of(raised) is Trouble.TOO_LONG:
            # The database has a limit of its own.
            raise ToolError(TOO_SLOW) from None
        if isinstance(raised, DatabaseError) and str(raised) == "parser stack overflow":
            raise ToolError(TOO_DEEP) from None


_watched: dict[int, _TimeLimit] = {}
_interrupting = threading.Lock()
_starting = threading.Lock()
_threads: list[threading.Thread] = []


def read_limits(share: float = 1.0) -> AbstractContextManager[None]:
    """Limit the time of queries in the block to ``STATEMENT_TIMEOUT`` seconds, or to a ``share`` of them."""
    seconds = settings.STATEMENT_TIMEOUT
    if seconds is None:
        return nullcontext()
    return _TimeLimit(seconds * share)


def check_time() -> None:
    """Raise if the queries of this thread are over their time limit, during work that no database can interrupt."""
    mine = connections.all()
    if any(watched.is_over and watched.connections == mine for watched in list(_watched.values())):
        raise ToolError(TOO_SLOW)


class OutcomeUnknown(ToolError):
    """Raised when nobody can say whether a write was stored, or when more is stored than the caller is told."""

    def __init__(self, message: str = IN_DOUBT) -> None:
        super().__init__(message)


class _Commit:
    """Follows one transaction to its end: whether its block has ended, and whether the database has committed."""

    def __init__(self, using: str) -> None:
        self.connection = connections[using]
        self.is_outermost = not self.connection.in_atomic_block
        self.has_ended = self.is_stored = False

    def watch(self) -> None:
        """Note the commit; the project's own hooks run after this one, and can fail."""
        if self.is_outermost:
            self.connection.on_commit(self._note)

    def _note(self) -> None:
        self.is_stored = True

    def end(self) -> bool:
        """Note that the block has ended without an error; return whether it is rolled back nevertheless."""
        if self.is_outermost and self.connection.closed_in_transaction:
            # Django would end the transaction in silence, although nothing of it is stored.
            raise InterfaceError("the connection was closed in the transaction")
        self.has_ended = True
        return self.connection.needs_rollback

    def leaves_open(self, error: Exception) -> bool:
        """Return whether an error came after the block, so that the write may be stored, or is."""
        if not self.is_outermost or not self.has_ended:
            return False
        is_of_database = isinstance(error, (DatabaseError, InterfaceError))
        return self.is_stored or (is_of_database and not Trouble.has_rolled_back(error))

    def outcome(self, error: Exception) -> OutcomeUnknown:
        """Return what the caller is told of an error that came after the block, and log it."""
        told = AFTERWARDS if self.is_stored else IN_DOUBT
        logger.error("%s", told, exc_info=error)
        return OutcomeUnknown(told)


@contextmanager
def write_transaction(using: str, *, locks: bool = True, max_wait: float | None = None) -> Iterator[None]:
    """Open a transaction with a limit on its queries: one that waits for a lock fails after ``LOCK_TIMEOUT`` seconds.

    SQLite's timeout is set in ``DATABASES``. ``max_wait`` is a shorter limit in seconds, for a transaction that the
    caller always rolls back; it holds on SQLite and within another transaction too. Without ``locks``, for callers that
    only read, the transaction begins as the project configures it. If the transaction is rolled back, so is the record
    of the call. Raises ``OutcomeUnknown`` where the connection breaks while the database commits, or where a hook of
    the project fails after the commit.
    """
    wait = LockWait(using, settings.LOCK_TIMEOUT)
    if max_wait is not None:
        wait = LockWait(using, min(settings.LOCK_TIMEOUT, max_wait), everywhere=True)
    record = CallRecord.current.get() or CallRecord()
    kept = record.rows_changed, len(record.history)
    commit = _Commit(using)
    is_first = record.kept is None
    record.kept = record.kept or kept
    is_undone = True
    try:
        with wait.in_session(), writing(using) if locks else transaction.atomic(using=using):
            commit.watch()
            wait.in_transaction()
            yield
            is_rolled_back = commit.end()
        is_undone = is_rolled_back
    except Exception as error:
        if not commit.leaves_open(error):
            raise
        # The record keeps what may have been changed.
        is_undone = False
        raise commit.outcome(error) from error
    finally:
        if is_undone:
            record.undo(*kept)
        if is_first:
            record.kept = None
            record.is_ending = False


# The watching thread


def _start() -> None:
    with _starting:
        if not _threads:
            _threads.append(threading.Thread(target=_watch, name="mcp-costs", daemon=True))
            _threads[0].start()


def _forget() -> None:
    """Forget the watched query limits in a forked process, which has no watching thread."""
    _watched.clear()
    _threads.clear()


os.register_at_fork(after_in_child=_forget)


def _watch() -> None:
    idle_since = time.monotonic()
    while True:
        time.sleep(TICK)
        now = time.monotonic()
        if _watched:
            idle_since = now
        elif now - idle_since > IDLE and _may_end():
            return
        for watched in list(_watched.values()):
            # Repeated at each check: at the last one, the call may have been between two queries.
            if watched.deadline - now < TICK:
                _interrupt(watched)


def _may_end() -> bool:
    with _starting:
        # A call registers in _watched before it looks for the thread, so none is missed.
        thread = _threads.pop()
        if _watched:
            _threads.append(thread)
        return not _threads


def _interrupt(watched: _TimeLimit) -> None:
    with _interrupting:
        # Set is_over before checking whether the call is still there: the call does it in the opposite order.
        watched.is_over = True
        if id(watched) in _watched:
            for connection in watched.connections:
                # A connection that was closed or cannot be reached is tried again at the next check.
                with suppress(Exception):
                    stop_query(connection, CANCEL_TIMEOUT)
