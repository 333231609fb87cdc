"""Route the queries of a call that writes to the database that is written, not to a replica; open write transactions.

A replica may lag behind. Saving a row that was read there would undo what others have changed meanwhile.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from math import ceil
from typing import Any, Final, Literal, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    InterfaceError,
    OperationalError,
    connections,
    router,
    transaction,
)
from django.db.backends.signals import connection_created
from django.db.models import Field, Model
from django.db.models.constants import OnConflict
from django.utils import timezone

from ..exceptions import ToolError
from .call_record import CallRecord
from .database_errors import Trouble

T = TypeVar("T")


class Primary:
    """Database router that sends the reads of a writing call to the primary database. Django asks it before the
    project's own routers, for each queryset without ``using()``."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the database where the model is written, for a read during a call that writes."""
        record = CallRecord.current.get()
        if record is not None and record.writes:
            return _written(model, **hints)
        return None

    def install(self) -> None:
        """Install the router for writing calls, if the project has routers of its own."""
        if router.routers and router.routers[0] is not self:
            router.routers = [self, *router.routers]

    def home_of(self, model: type[Model]) -> str:
        """Return the alias of the model's database: where the model is written, or else where it is read."""
        return _written(model) or router.db_for_read(model)


PRIMARY: Final = Primary()
# Two spellings of a text, by what they differ in.
_SPELLINGS: Final = {("a", "A"): "case", ("e", "é"): "accents", ("a", "a "): "spaces at the end"}
# The types of columns whose texts MySQL keeps as numbers.
_NUMBERED: Final = ("enum(", "set(")


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


# Most seconds before a transaction is begun again after a deadlock.
DEADLOCK_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.8)
# The numbers of MySQL for the types TIMESTAMP, DATE and DATETIME.
_DATES: Final = (7, 10, 12)
# Engines of MySQL and MariaDB that commit each statement at once.
_WITHOUT_TRANSACTIONS: Final = frozenset({"MyISAM", "Aria", "MEMORY", "ARCHIVE", "CSV"})


@contextmanager
def writing(using: str, mode: Literal["IMMEDIATE", "EXCLUSIVE"] = "IMMEDIATE") -> Iterator[None]:
    """Begin a transaction on one of the ``DATABASES``, for writing; SQLite takes its lock at once, or waits for it.

    If a transaction on SQLite has read, and another connection has written since or is about to, its first write fails
    at once, whatever the timeout. "EXCLUSIVE" waits until nobody reads, so that this write makes no other transaction
    fail; with a write-ahead log it is the same as "IMMEDIATE".
    """
    connection: Any = connections[using]
    if connection.vendor != "sqlite" or connection.in_atomic_block:
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


def again_after_deadlocks(using: str, work: Callable[[], T]) -> T:
    """Do work that is one transaction, and again if the database has undone it for a deadlock with another one.

    Within a transaction the error goes on: all of that is undone, and cannot be repeated here.
    """
    for patience in DEADLOCK_PAUSES:
        try:
            return work()
        except OperationalError as error:
            if connections[using].in_atomic_block or not Trouble.has_undone_all(error):
                raise
        # Not all at the same time again.
        time.sleep(random.uniform(0, patience))
    return work()


def insert_new(connection: Any, table: str, columns: Sequence[str], key: str) -> str:
    """Return an ``INSERT`` of one row with these columns that does nothing if a row with the unique ``key`` is there.

    MySQL's ``INSERT IGNORE`` would also cut values that are too long. Its other clause waits for a row that somebody
    else inserts, and locks it.
    """
    table, key, *names = map(connection.ops.quote_name, (table, key, *columns))
    values = f"{table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
    if connection.vendor == "mysql":
        return f"INSERT INTO {values} ON DUPLICATE KEY UPDATE {key} = {key}"
    begin = connection.ops.insert_statement(on_conflict=OnConflict.IGNORE)
    end = connection.ops.on_conflict_suffix_sql([], OnConflict.IGNORE, [], [])
    return f"{begin} {values} {end}".rstrip()


@lru_cache(maxsize=64)
def has_short_characters(using: str, table: str) -> bool:
    """Return whether a table of MySQL was made for characters of at most three bytes, so that it takes no emoji."""
    connection = connections[using]
    if connection.vendor != "mysql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_collation FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s",
            [table],
        )
        found = cursor.fetchone()
    return found is not None and not str(found[0]).startswith("utf8mb4")


@lru_cache(maxsize=1024)
def engine_without_undo(using: str, table: str) -> str:
    """Return the engine of a table of MySQL if it cannot undo a write that fails halfway, "" for all other tables."""
    connection = connections[using]
    engine_of: Any = getattr(connection.introspection, "get_storage_engine", None)
    if engine_of is None:
        return ""
    with connection.cursor() as cursor:
        engine = str(engine_of(cursor, table))
    return engine if engine in _WITHOUT_TRANSACTIONS else ""


def sorts_uuids_by_digits(using: str) -> bool:
    """Return whether UUIDs are sorted as their texts: the type of MariaDB compares their last parts first."""
    connection = connections[using]
    return connection.vendor != "mysql" or not connection.features.has_native_uuid_field


def ranks_rows(using: str) -> bool:
    """Return whether the database has window functions, but no aggregate functions by an order."""
    return connections[using].vendor == "mysql"


def reads_snapshots(using: str) -> bool:
    """Return whether a plain read may see an older state than a query that locks rows: MySQL's does, in a transaction
    that has read before, unless its isolation is READ COMMITTED (which Django sets)."""
    connection: Any = connections[using]
    return connection.vendor == "mysql" and connection.isolation_level != "read committed"


class LockWait:
    """How many seconds the queries of a transaction wait for a lock, on PostgreSQL and MySQL; a transaction within
    another one has the limit of that.

    With ``everywhere``, for a transaction that is rolled back in any case, the limit holds within another transaction
    too, and on SQLite.
    """

    def __init__(self, using: str, seconds: float, *, everywhere: bool = False) -> None:
        self.connection: Any = connections[using]
        self.seconds = seconds
        self.everywhere = everywhere
        self.vendor = "" if self.connection.in_atomic_block and not everywhere else self.connection.vendor

    @contextmanager
    def in_session(self) -> Iterator[None]:
        """Set the limit of MySQL or SQLite, which is one of the session, and put the one of the project back."""
        if self.vendor == "mysql":
            # MySQL counts in whole seconds.
            limit = max(1, ceil(self.seconds))
            # Each transaction within another one keeps the limit of that.
            kept = f"@mcp_wait_{len(self.connection.atomic_blocks)}"
            with self.connection.cursor() as cursor:
                cursor.execute(f"SET {kept} = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = %s", [limit])
            restore = f"SET innodb_lock_wait_timeout = {kept}"
        elif self.vendor == "sqlite" and self.everywhere:
            with self.connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout")
                [limit] = cursor.fetchone()
                cursor.execute(f"PRAGMA busy_timeout = {self.seconds * 1000:.0f}")
            restore = f"PRAGMA busy_timeout = {limit}"
        else:
            yield
            return
        try:
            yield
        finally:
            # A connection that broke is a new session next time.
            with suppress(DatabaseError, InterfaceError), self.connection.cursor() as cursor:
                cursor.execute(restore)

    def in_transaction(self) -> None:
        """Set the limit of PostgreSQL, which ends with the transaction: other users of the connection never see it."""
        if self.vendor == "postgresql":
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{self.seconds * 1000:.0f}"])


class LocalTimes:
    """The days, months and other parts of the times that a database stores, which it computes in a time zone: the
    current one, or ``zone``."""

    REMEDY: Final = "Fill its tables of time zones: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql -u root mysql"

    def __init__(self, connection: Any, zone: tzinfo | None = None) -> None:
        self.connection = connection
        self.zone = timezone.get_current_timezone_name() if zone is None else zone.tzname(None) or str(zone)

    @property
    def are_converted(self) -> bool:
        """Whether the zone is another one than that of the stored times."""
        return settings.USE_TZ and self.connection.timezone_name != self.zone

    @property
    def are_known(self) -> bool:
        """Whether the database knows the zone; MySQL without its tables has NULL for each time of another zone."""
        return not self.are_converted or self.connection.features.has_zoneinfo_database

    def check(self) -> None:
        """Raise ``ToolError`` if the database does not know the zone."""
        if not self.are_known:
            raise ToolError(
                "The database server has no tables of time zones, so it cannot tell days, months or hours in "
                f"{self.zone}. Its administrator can help: {self.REMEDY}. Without them, filter from a first to a last "
                "time."
            )

    @property
    def bounds(self) -> tuple[datetime, datetime] | None:
        """The first and last time that is converted, None if all are: MySQL leaves the others as they are stored."""
        if not self.are_converted or self.connection.vendor != "mysql":
            return None
        version = self.connection.mysql_version
        last = datetime(2038, 1, 19, tzinfo=UTC)
        if self.connection.mysql_is_mariadb:
            if version >= (11, 5):
                last = datetime(2106, 2, 7, tzinfo=UTC)
        elif version >= (8, 0, 28):
            last = datetime(3001, 1, 18, tzinfo=UTC)
        return datetime(1970, 1, 1, tzinfo=UTC), last

    @property
    def unconverted_text(self) -> str:
        """What a caller should know about times out of bounds; "" if there are none."""
        if self.bounds is None:
            return ""
        first, last = (moment.date().isoformat() for moment in self.bounds)
        return (
            f"the database server converts no times before {first} or from {last} on, so the parts of these are in "
            f"{self.connection.timezone_name}"
        )


class Collation:
    """How a database compares and sorts texts, as far as MySQL differs from others."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.is_mysql = connections[using].vendor == "mysql"

    @classmethod
    def of(cls, model: type[Model]) -> "Collation":
        """Return how texts of a model are compared where it is read."""
        return cls(router.db_for_read(model))

    @property
    def sorted_chars(self) -> int | None:
        """The number of characters by which long texts are sorted, None for all of them."""
        # ``max_sort_length`` is 1,024 bytes, and a character has at most four.
        return 255 if self.is_mysql else None

    def overlooked(self) -> tuple[str, ...]:
        """Return what the collation of the database overlooks where it compares texts, in words."""
        return _overlooked(self.using) if self.is_mysql else ()

    def is_numbered(self, column: "Field[Any, Any]") -> bool:
        """Return whether the database sorts a column of texts by numbers: one of the types ``ENUM`` and ``SET``."""
        model = column.model._meta
        if not self.is_mysql:
            return False
        if model.managed:
            return str(column.db_type(connections[self.using])).lower().startswith(_NUMBERED)
        return column.column in _numbered(self.using, model.db_table)


@lru_cache(maxsize=64)
def _overlooked(using: str) -> tuple[str, ...]:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT @@character_set_database, @@collation_database")
        characters, collation = cursor.fetchone()
        pairs = [f"CONVERT('{one}' USING {characters}) COLLATE {collation} = '{other}'" for one, other in _SPELLINGS]
        cursor.execute(f"SELECT {', '.join(pairs)}")
        return tuple(word for word, is_same in zip(_SPELLINGS.values(), cursor.fetchone(), strict=True) if is_same)


@lru_cache(maxsize=1024)
def _numbered(using: str, table: str) -> frozenset[str]:
    """Return the columns of a table that MySQL sorts by numbers."""
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW COLUMNS FROM {connection.ops.quote_name(table)}")
        return frozenset(name for name, type_, *_ in cursor.fetchall() if type_.lower().startswith(_NUMBERED))


# Whether a date that Python does not have is read as text; see LostDatesAsText.
gives_lost_dates: ContextVar[bool] = ContextVar("gives_lost_dates", default=False)


class LostDatesAsText:
    """A block that reads a date that Python does not have, such as ``0000-00-00``, as the text of it, on MySQL.

    PyMySQL always gives the text. mysqlclient gives None, as for NULL, so that a write of the row would lose the date.
    Code of the project goes on to read None. A class of its own, because each call opens such blocks: a generator would
    be three times as many calls.
    """

    def __enter__(self) -> None:
        self._token = gives_lost_dates.set(True)

    def __exit__(self, *raised: object) -> None:
        gives_lost_dates.reset(self._token)


def _with_lost_dates(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the converter of mysqlclient for a type of dates, for :class:`LostDatesAsText`; NULL has none."""

    def convert(text: str) -> Any:
        value = read(text)
        if value is None and gives_lost_dates.get():
            return text
        return value

    return convert


def _prepare(connection: Any, **kwargs: Any) -> None:
    """Note the session of a new connection to MySQL, in its own thread: mysqlclient tells it to no other. Set the
    converters of mysqlclient, which has a dictionary of them for each connection."""
    if connection.vendor != "mysql":
        return
    connection.mcp_session = connection.connection.thread_id()
    converters = getattr(connection.connection, "converter", None)
    if converters is None:
        return
    for kind in _DATES:
        if callable(converters.get(kind)):
            converters[kind] = _with_lost_dates(converters[kind])


connection_created.connect(_prepare)


def stop_query(connection: Any, timeout: float) -> None:
    """Interrupt the query that runs on a connection of another thread; PostgreSQL gets ``timeout`` seconds for it.

    Raises the driver's error if the database cannot be reached.
    """
    raw = connection.connection
    if raw is None:
        return
    if hasattr(raw, "interrupt"):
        raw.interrupt()
    elif hasattr(raw, "cancel_safe"):
        raw.cancel_safe(timeout=timeout)
    elif hasattr(raw, "cancel"):
        raw.cancel()
    elif connection.vendor == "mysql":
        # MySQL takes the request over another connection. One that was opened before this module was read has no note.
        session = getattr(connection, "mcp_session", None) or raw.thread_id()
        with closing(connection.copy()) as other, other.cursor() as cursor:
            cursor.execute("KILL QUERY %s", [session])


def stops_in_silence(connection: Any) -> bool:
    """Return whether a query that was stopped may give a result in place of an error: MySQL's functions give 0."""
    return bool(connection.vendor == "mysql")
