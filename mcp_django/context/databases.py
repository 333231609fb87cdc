"""Route the queries of a call that writes to the database that is written, not to a replica, and open write
transactions; what a database's error says of the database itself.

A replica may lag behind. Saving a row that was read there would undo what others have changed meanwhile.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Literal, NamedTuple

from django.db import (
    DEFAULT_DB_ALIAS,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
    router,
    transaction,
)
from django.db.models import Model

from .call_record import CURRENT


class Primary:
    """Database router that sends the reads of a writing call to the primary database. Django asks it before the
    project's own routers, for each queryset without ``using()``."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the database where the model is written, for a read during a call that writes."""
        record = CURRENT.get()
        if record is not None and record.writes:
            return _written(model, **hints)
        return None


PRIMARY: Final = Primary()


def heed_writes() -> None:
    """Install the database router for writing calls, if the project has routers of its own."""
    if router.routers and router.routers[0] is not PRIMARY:
        router.routers = [PRIMARY, *router.routers]


def home_of(model: type[Model]) -> str:
    """Return the alias of the model's database: where the model is written, or else where it is read."""
    return _written(model) or router.db_for_read(model)


def _written(model: type[Model], **hints: Any) -> str | None:
    """Return the alias of the database where routers write the model, None for a model that is only read."""
    try:
        found = (one.db_for_write(model, **hints) for one in router.routers if hasattr(one, "db_for_write"))
        alias = next(filter(None, found), None)
    except Exception:
        # Some projects' routers raise to refuse writes to models of other applications.
        return None
    if alias is not None:
        return str(alias)
    # Django would write to the default database, where the table may be missing if a router only names where to read.
    is_there = model._meta.managed and router.allow_migrate_model(DEFAULT_DB_ALIAS, model)
    return router.db_for_write(model, **hints) if is_there else None


Mode = Literal["", "IMMEDIATE", "EXCLUSIVE"]


@contextmanager
def writing(using: str, mode: Mode = "IMMEDIATE") -> Iterator[None]:
    """Begin a transaction on one of the ``DATABASES``, for writing; SQLite takes its lock at once, or waits for it.

    If a transaction on SQLite has read, and another connection has written since or is about to, its first write fails
    at once, whatever the timeout. With ``mode`` "" the transaction begins as the project configures it, for callers
    that only read. "EXCLUSIVE" waits until nobody reads, so that this write makes no other transaction fail; with a
    write-ahead log it is the same as "IMMEDIATE".
    """
    connection: Any = connections[using]
    if connection.vendor != "sqlite" or connection.in_atomic_block or not mode:
        with transaction.atomic(using=using):
            yield
        return
    # Connecting sets the configured mode, which would overwrite this one.
    connection.ensure_connection()
    configured = connection.transaction_mode
    with ExitStack() as stack:
        connection.transaction_mode = mode
        try:
            stack.enter_context(transaction.atomic(using=using))
        finally:
            connection.transaction_mode = configured
        yield


# What a database says of itself in an error

Codes = Collection[str | int]
# SQLSTATEs of PostgreSQL, names of SQLite and numbers of MySQL and MariaDB: a lock timeout, a deadlock, a conflict with
# another transaction.
BUSY: Final[Codes] = frozenset({"55P03", "40P01", "40001", "SQLITE_BUSY", "SQLITE_LOCKED", 1205, 1213, 1020})
# A full disk, or one that fails.
FULL: Final[Codes] = frozenset({"53100", "SQLITE_FULL", 1021, 1114})
# The limit that the database has for a statement: ``statement_timeout``, ``max_execution_time``.
TOO_LONG: Final[Codes] = frozenset({"57014", 1969, 3024})
# PostgreSQL's limits for an idle session and for a transaction, by which it ends the connection.
ENDED: Final[Codes] = frozenset({"25P03", "25P04", "57P05"})
CROWDED: Final[Codes] = frozenset({"53300", 1040, 1203, 1226})
# The connection is gone. PostgreSQL's client library gives such errors no SQLSTATE.
LOST: Final[Codes] = frozenset(
    {"57P01", "57P02", "57P03", "08000", "08003", "08006", 2006, 2013, 2055, 4031, 1053, 1927}
)
# Texts of errors without a code: of PostgreSQL, when it connects or notices that the connection has ended.
CROWDED_TEXTS: Final = ("too many clients", "remaining connection slots", "too many connections for")
ENDED_TEXTS: Final = ("idle-in-transaction timeout", "transaction timeout", "idle-session timeout")

AGAIN: Final = "Repeat the call."
OPERATOR: Final = "Tell the operator."
LESS: Final = "Ask for less in one call, or tell the operator."


class Trouble(NamedTuple):
    """What a database error says of the database itself: the cause in words, and what the caller can do."""

    cause: str
    advice: str


def trouble_of(error: BaseException) -> Trouble | None:
    """Return what is wrong with the database itself, by its error; None if the error is about the statement."""
    code = code_of(error)
    text = str(error)
    if code in BUSY:
        return Trouble("the database is busy", AGAIN)
    if code in FULL:
        return Trouble("the disk of the database is full", OPERATOR)
    if code in TOO_LONG:
        return Trouble("it took longer than the database allows a statement to take", LESS)
    if code in ENDED or any(part in text for part in ENDED_TEXTS):
        return Trouble("the transaction was longer idle, or took longer, than the database allows", LESS)
    if code in CROWDED or any(part in text for part in CROWDED_TEXTS):
        return Trouble("the database takes no more connections", "Repeat the call later, or tell the operator.")
    if code in LOST or _has_lost(error):
        return Trouble("the connection to the database was lost", AGAIN)
    return None


def code_of(error: BaseException) -> str | int:
    """Return the code of a database error: an SQLSTATE, the name of SQLite's error, MySQL's number, or ""."""
    cause = error.__cause__
    name = getattr(cause, "sqlite_errorname", "")
    if name:
        # The extended names say more than is needed here: SQLITE_BUSY_SNAPSHOT.
        return "_".join(name.split("_")[:2])
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int):
        return number
    return getattr(cause, "sqlstate", None) or ""


def _has_lost(error: BaseException) -> bool:
    """Return whether a client library says that it has no connection: PostgreSQL's gives no code then."""
    is_without_code = hasattr(error.__cause__, "sqlstate") and not code_of(error)
    return isinstance(error, (OperationalError, InterfaceError)) and is_without_code


def is_busy(error: BaseException) -> bool:
    """Return whether the database was busy: an error of a lock, a deadlock or a conflict with another transaction."""
    return code_of(error) in BUSY


def has_rolled_back(error: BaseException) -> bool:
    """Return whether an error of COMMIT itself means that the transaction was rolled back.

    The database has then answered why. Without its answer it is not known: it may have committed before the connection
    broke.
    """
    code = code_of(error)
    if isinstance(error, IntegrityError) or code in BUSY or code in FULL:
        return True
    if isinstance(code, int) or code in LOST:
        return False
    return bool(code) and code != "SQLITE_IOERR"
