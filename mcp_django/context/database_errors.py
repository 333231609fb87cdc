"""What a database's error says of the database itself: busy, full, away."""

from collections.abc import Collection
from enum import Enum
from typing import Final

from django.db import DataError, IntegrityError, InterfaceError, OperationalError

Codes = Collection[str | int]
# SQLSTATEs of PostgreSQL, names of SQLite and numbers of MySQL and MariaDB: a lock timeout, a deadlock, a conflict with
# another transaction.
BUSY: Final[Codes] = frozenset({"55P03", "40P01", "40001", "SQLITE_BUSY", "SQLITE_LOCKED", 1205, 1213, 1020})
# Of these, a deadlock and such a conflict, by which the whole transaction is undone at once.
UNDONE: Final[Codes] = frozenset({"40P01", "40001", 1213, 1020})
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
# A number that is too large for its column, or for what the database computes.
OUT_OF_RANGE: Final[Codes] = frozenset({"22003", 1264, 1690})
# What MySQL and MariaDB say of a value that its column cannot hold: their drivers have no class for some of these.
UNFIT: Final[Codes] = frozenset({*OUT_OF_RANGE, 1265, 1292, 1366, 1367, 1406, 1411, 1441})
# Texts of errors without a code: of PostgreSQL, when it connects or notices that the connection has ended.
CROWDED_TEXTS: Final = ("too many clients", "remaining connection slots", "too many connections for")
ENDED_TEXTS: Final = ("idle-in-transaction timeout", "transaction timeout", "idle-session timeout")


class Trouble(Enum):
    """What is wrong with the database itself: the ``cause`` in words, and the ``advice`` what the caller can do."""

    BUSY = "the database is busy", "Repeat the call."
    FULL = "the disk of the database is full", "Tell the operator."
    TOO_LONG = (
        "it took longer than the database allows a statement to take",
        "Ask for less in one call, or tell the operator.",
    )
    ENDED = (
        "the transaction was longer idle, or took longer, than the database allows",
        "Ask for less in one call, or tell the operator.",
    )
    CROWDED = "the database takes no more connections", "Repeat the call later, or tell the operator."
    LOST = "the connection to the database was lost", "Repeat the call."

    def __init__(self, cause: str, advice: str) -> None:
        self.cause = cause
        self.advice = advice

    @classmethod
    def of(cls, error: BaseException) -> "Trouble | None":
        """Return what is wrong with the database itself, by its error; None if the error is about the statement.

        A lock, a deadlock and a conflict with another transaction are of a busy database.
        """
        code = code_of(error)
        text = str(error)
        if code in BUSY:
            return cls.BUSY
        if code in FULL:
            return cls.FULL
        if code in TOO_LONG:
            return cls.TOO_LONG
        if code in ENDED or any(part in text for part in ENDED_TEXTS):
            return cls.ENDED
        if code in CROWDED or any(part in text for part in CROWDED_TEXTS):
            return cls.CROWDED
        if code in LOST or _has_lost(error):
            return cls.LOST
        return None

    @staticmethod
    def has_undone_all(error: BaseException) -> bool:
        """Return whether the transaction was undone because of others at the same time, and may succeed if repeated."""
        return code_of(error) in UNDONE

    @staticmethod
    def has_rolled_back(error: BaseException) -> bool:
        """Return whether an error of COMMIT itself means that the transaction was rolled back.

        The database has then answered why. Without its answer it is not known: it may have committed before the
        connection broke.
        """
        code = code_of(error)
        if isinstance(error, IntegrityError) or code in BUSY or code in FULL:
            return True
        if isinstance(code, int) or code in LOST:
            return False
        return bool(code) and code != "SQLITE_IOERR"


def code_of(error: BaseException) -> str | int:
    """Return the code of a database error: an SQLSTATE, the name of SQLite's error, MySQL's number, or ""."""
    cause = error.__cause__
    name = getattr(cause, "sqlite_errorname", "")
    if name:
        # The extended names say more than is needed here: SQLITE_BUSY_SNAPSHOT.
        return "_".join(name.split("_")[:2])
    # Django's backend for MySQL makes an IntegrityError of some errors, without a cause.
    args = error.args if cause is None else cause.args
    number = args[0] if args else None
    if isinstance(number, int):
        return number
    return getattr(cause, "sqlstate", None) or ""


def is_unfit(error: BaseException) -> bool:
    """Return whether an error says that a value does not fit its column, whatever class the driver gives it."""
    return isinstance(error, (DataError, OverflowError)) or code_of(error) in UNFIT


def _has_lost(error: BaseException) -> bool:
    """Return whether a client library says that it has no connection: PostgreSQL's gives no code then."""
    is_without_code = hasattr(error.__cause__, "sqlstate") and not code_of(error)
    return isinstance(error, (OperationalError, InterfaceError)) and is_without_code
