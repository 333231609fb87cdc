"""Transactions that write, and what databases say of a lock that they did not give."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Literal

from django.db import connections, transaction

# PostgreSQL's states for a lock that was not given in time, a deadlock, and a conflict with another transaction.
BUSY_STATES: Final = frozenset({"55P03", "40P01", "40001"})
BUSY_NAMES: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
Mode = Literal["", "IMMEDIATE", "EXCLUSIVE"]


@contextmanager
def writing(using: str, mode: Mode = "IMMEDIATE") -> Iterator[None]:
    """Open a transaction that has SQLite's lock for writing from its beginning, for which it waits its turn.

    SQLite refuses the first write of a transaction that has read, at once and whatever its timeout, where another
    connection has written since or is about to. With ``mode`` "" it begins as the project has it, for what only reads.
    One that is "EXCLUSIVE" begins while nobody reads, so that none is there to be refused; a database with a
    write-ahead log does not tell.
    """
    connection: Any = connections[using]
    if connection.vendor != "sqlite" or connection.in_atomic_block or not mode:
        with transaction.atomic(using=using):
            yield
        return
    # Connecting sets the mode that is configured.
    connection.ensure_connection()
    configured = connection.transaction_mode
    with ExitStack() as stack:
        connection.transaction_mode = mode
        try:
            stack.enter_context(transaction.atomic(using=using))
        finally:
            connection.transaction_mode = configured
        yield


def is_busy(error: BaseException) -> bool:
    """Return whether a database says that others are in the way: what it was asked for has not been done."""
    cause = error.__cause__
    name = getattr(cause, "sqlite_errorname", "")
    return getattr(cause, "sqlstate", None) in BUSY_STATES or name.startswith(BUSY_NAMES)
