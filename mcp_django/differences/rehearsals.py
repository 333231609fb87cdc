"""Rehearsals: a write runs as it would, is checked as a commit would check it, and is rolled back.

Nothing of it is left: no row, callback, mail, file, nor a change for subscribers. Values of sequences are used up, as
by any transaction that is rolled back. What no transaction undoes is refused before it happens: a write to another
database or in another thread, a table without transactions, a statement that commits.

Not seen is what the code of the project does without Django: a task that is put into a queue at once (``task.delay()``
in place of ``transaction.on_commit``), a request to another server, a file that Python's own ``open`` writes, an entry
of the cache, a message to a channel layer. An exposure whose hooks do such things says that it cannot be tried.
SQL that goes past Django's cursors is rolled back, but not told.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from sys import modules
from typing import Any, Final

from django.apps import apps
from django.conf import settings as django_settings
from django.db import DatabaseError, IntegrityError, connections, router, transaction
from django.db.models import ForeignKey, Model

from ..context.databases import engine_without_undo
from ..context.rehearsing import Caught, CaughtMail, catching, is_own
from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..orm.database_writes import one_transaction
from ..orm.query_limits import OutcomeUnknown
from .statements import Statement, TableName, table_name

logger = logging.getLogger("mcp_django.tools")

# Maximum number of seconds to wait for a lock.
MAX_WAIT: Final = 1.0
OTHER_STATEMENTS: Final = "other statements"
REFUSED: Final = "This write cannot be tried first: {}. Nothing was changed."
ELSEWHERE: Final = "the project's code writes to another database, or by another connection, and keeps what it wrote"
NO_TRANSACTIONS: Final = "a table that it writes has no transactions"
COMMITS: Final = "the project's code runs a statement that ends the transaction"
COMMITTED: Final = (
    "The project's code has ended the transaction in which this was tried, so what it had written before may be "
    "stored. Look at the data before you go on, and tell the operator."
)
# Maximum number of rows of a table of SQLite whose foreign keys are checked; a hundred thousand can take a second.
MAX_CHECKED: Final = 50_000
# Apps whose tables every write may touch, of which no caller needs to know.
OWN_APPS: Final = ("mcp_django", "admin", "contenttypes", "sessions")
# What MySQL and MariaDB do not commit at once, of the statements whose table is not understood.
NOT_COMMITTING: Final = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE", "SELECT", "WITH", "DO"})
CHANGING: Final = frozenset({"UPDATE", "DELETE"})
DELETING: Final = frozenset({"DELETE", "REPLACE"})
# What SQLite says of a broken foreign key when it commits.
BROKEN_KEY: Final = "FOREIGN KEY constraint failed"


class NotRehearsable(ToolError):
    """Raised when a write cannot be tried because something of it could not be rolled back. It is not done."""

    def __init__(self, reason: str) -> None:
        super().__init__(REFUSED.format(reason))


class Rehearsal:
    """A block that runs a write of rows of ``model``, checks the constraints, and is always rolled back.

    The block runs in a transaction of its own on the database of the model and on that of the admin's history, or in a
    savepoint where one is open. It waits at most a second for a lock. SQLite's lock for writing is held as long as the
    block runs, as by the write itself. Errors go out as those of the write would; what a commit would refuse raises the
    same ``IntegrityError`` when the block ends. Raises ``NotRehearsable`` for what could not be rolled back.

    Instances that the block saves keep their keys and values: read the rows again for the write itself. Answers and
    confirmations that the block uses up stay used. ``request`` gets its attributes back.

    ``tables`` are the names (``db_table``) of the tables that the write is known to touch; they may be set until
    ``also_written`` is asked for. ``callbacks`` are the names of the functions of the project that would run after the
    commit. ``unchecked`` are the tables of SQLite whose foreign keys were not checked, because it would take too long;
    forms check those of the values that they get.
    """

    def __init__(self, model: type[Model], tables: Collection[str] = (), request: MCPRequest | None = None) -> None:
        self.model = model
        self.tables = tables
        self.request = request
        self.callbacks: list[str] = []
        self.unchecked: list[str] = []
        self._caught = Caught()
        self._written: dict[tuple[str, TableName], set[Statement]] = {}
        self._has_others = False
        self._refusal: NotRehearsable | None = None
        self._block = self._run()

    def __enter__(self) -> "Rehearsal":
        self._block.__enter__()
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._block.__exit__(*raised)

    @property
    def mails(self) -> list[CaughtMail]:
        """The mail that would have been sent before the commit."""
        return self._caught.mails

    @property
    def files_untried(self) -> list[str]:
        """The names of files that would have been stored or deleted before the commit, each once."""
        return self._caught.files

    @property
    def also_written(self) -> list[str]:
        """The tables besides ``tables`` that got rows, changes or deletions, and "other statements" for what is not
        understood. What triggers of the database write is not seen."""
        left_out = {
            using: {*own_tables(using), *(name_of(using, table) for table in self.tables)}
            for using in {using for using, _ in self._written}
        }
        found = [".".join(name) for using, name in self._written if name not in left_out[using]]
        if self._has_others:
            found.append(OTHER_STATEMENTS)
        return list(dict.fromkeys(found))

    def words(self, using: str, table: str) -> set[str]:
        """Return the first words of the statements, such as "INSERT", that wrote a table (``db_table``)."""
        return {statement.word for statement in self._written.get((using, name_of(using, table)), ())}

    @contextmanager
    def _run(self) -> Iterator[None]:
        self._check_engines()
        state = vars(self.request) if self.request is not None else {}
        before = dict(state)
        broken: dict[str, Counter[Any]] = {}
        try:
            with (
                catching(self._refuse_elsewhere) as self._caught,
                _without_versions(),
                one_transaction(self.model, max_wait=MAX_WAIT) as aliases,
            ):
                self._caught.rolled_back = tuple(connections[using] for using in aliases)
                opened = {using: connections[using].savepoint() for using in aliases}
                registered = {using: len(connections[using].run_on_commit) for using in aliases}
                with self._watched(aliases):
                    yield
                for using, first in registered.items():
                    functions = [entry[1] for entry in connections[using].run_on_commit[first:]]
                    self.callbacks += _names_of(functions)
                self.callbacks += _names_of(self._caught.callbacks)
                for using in aliases:
                    broken[using] = self._check_constraints(using)
                for using, savepoint in opened.items():
                    _roll_back(using, savepoint)
        finally:
            self._forget_rows()
            for name in state.keys() - before.keys():
                del state[name]
            state.update(before)
        for using, rows in broken.items():
            # SQLite's commit only refuses what was not broken before.
            if rows and rows - self._broken_keys(using):
                raise IntegrityError(BROKEN_KEY)

    # What the statements write

    def _check_engines(self) -> None:
        using = router.db_for_write(self.model)
        names = {self.model._meta.db_table, *self.tables}
        if not connections[using].features.supports_transactions:
            raise NotRehearsable(NO_TRANSACTIONS)
        if any(engine_without_undo(using, name) for name in names):
            raise NotRehearsable(NO_TRANSACTIONS)

    @contextmanager
    def _watched(self, aliases: Collection[str]) -> Iterator[None]:
        """Watch the statements of this thread on all databases."""
        with ExitStack() as stack:
            for using in connections:
                watch = self._note if using in aliases else self._refuse_elsewhere
                stack.enter_context(connections[using].execute_wrapper(watch))
            try:
                yield
            except Exception:
                if self._refusal is None:
                    raise
        if self._refusal is not None:
            # Whatever the code of the project made of it: without the refusal it would have gone on in another way.
            raise self._refusal

    def _note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Run a statement in the transaction, and note which table it writes; refuse what would commit."""
        connection = context["connection"]
        statements = Statement.read(Statement.text(sql, connection))
        for statement in statements:
            self._check(statement, connection)
        result = execute(sql, params, many, context)
        for statement in statements:
            if statement.table is not None:
                # The number of rows is not known before they are read, where the statement returns them.
                is_counted = statement.word in CHANGING and "RETURNING" not in str(sql)
                if not is_counted or context["cursor"].rowcount != 0:
                    self._written.setdefault((connection.alias, statement.table), set()).add(statement)
            elif not statement.reads:
                self._has_others = True
        return result

    def _check(self, statement: Statement, connection: Any) -> None:
        if statement.ends:
            self._refuse(COMMITS)
        if statement.table is not None:
            if engine_without_undo(connection.alias, statement.table[-1]):
                self._refuse(NO_TRANSACTIONS)
        elif connection.vendor == "mysql" and not statement.reads and statement.word not in NOT_COMMITTING:
            self._refuse(COMMITS)

    def _refuse_elsewhere(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Run a statement on another database, or in another thread, if it only reads or writes tables of this app."""
        connection = context["connection"]
        for statement in Statement.read(Statement.text(sql, connection)):
            if not (statement.reads or statement.ends or statement.table in own_tables(connection.alias)):
                logger.warning("A write cannot be tried: its code also writes to %r by itself", connection.alias)
                self._refuse(ELSEWHERE)
        return execute(sql, params, many, context)

    def _refuse(self, reason: str) -> None:
        self._refusal = NotRehearsable(reason)
        raise self._refusal

    # Constraints that a commit checks

    def _check_constraints(self, using: str) -> "Counter[Any]":
        """Check what the database puts off until the commit; return SQLite's broken keys, old ones too."""
        connection: Any = connections[using]
        if connection.needs_rollback or not connection.features.can_defer_constraint_checks:
            return Counter()
        if connection.vendor == "sqlite":
            return self._broken_keys(using)
        connection.check_constraints()
        return Counter()

    def _broken_keys(self, using: str) -> "Counter[Any]":
        """Return the foreign keys of SQLite's tables that refer to no row. Only all keys of a table can be checked."""
        connection = connections[using]
        found = Counter[Any]()
        with connection.cursor() as cursor:
            existing = set(connection.introspection.table_names(cursor))
            for table in self._tables_of(using):
                if table not in existing or table in self.unchecked:
                    continue
                name = connection.ops.quote_name(table)
                cursor.execute(f"SELECT COUNT(*) FROM (SELECT 1 FROM {name} LIMIT {MAX_CHECKED + 1})")
                if cursor.fetchone()[0] > MAX_CHECKED:
                    self.unchecked.append(table)
                    continue
                cursor.execute(f"PRAGMA foreign_key_check({name})")
                found.update(cursor.fetchall())
        return found

    def _tables_of(self, using: str) -> list[str]:
        """Return the tables of a database whose foreign keys the block may have broken: those that it wrote, and those
        that refer to rows that it deleted, or to columns that it changed. The history of the admin, which may be long,
        and other tables of Django are left out."""
        own = own_tables(using)
        written = {name: found for (alias, name), found in self._written.items() if alias == using and name not in own}
        quote: Any = connections[using].ops.quote_name
        found: dict[str, None] = {}
        for model in apps.get_models(include_auto_created=True):
            opts: Any = model._meta
            statements = written.get(name_of(using, opts.db_table))
            if statements is None:
                continue
            found[opts.db_table] = None
            is_deleted = any(statement.word in DELETING for statement in statements)
            for relation in opts.get_fields(include_hidden=True):
                key = getattr(relation, "field", None)
                if relation.auto_created and isinstance(key, ForeignKey):
                    assignment = f"{quote(key.target_field.column)} = "
                    if is_deleted or any(assignment in statement.assigned for statement in statements):
                        found[key.model._meta.db_table] = None
        return list(found)

    def _forget_rows(self) -> None:
        """Empty the caches of Django's own that may hold rows of the block."""
        names = {name[-1] for _, name in self._written}
        for label in ("contenttypes", "sites"):
            for model in apps.app_configs[label].get_models() if label in apps.app_configs else ():
                manager: Any = model._default_manager
                if model._meta.db_table in names and hasattr(manager, "clear_cache"):
                    manager.clear_cache()


@contextmanager
def _without_versions() -> Iterator[None]:
    """Keep the versions of the block out of a revision of django-reversion that is open around it."""
    revisions: Any = getattr(modules.get("reversion.revisions"), "_stack", None)
    if revisions is None:
        yield
        return
    # Frames are replaced in their list, never changed.
    before = revisions.set(list(revisions.get()))
    try:
        yield
    finally:
        revisions.reset(before)


def _roll_back(using: str, savepoint: Any) -> None:
    """Roll the block back; raise ``OutcomeUnknown`` if its transaction is another one by now."""
    connection: Any = connections[using]
    if not connection.needs_rollback:
        try:
            connection.savepoint_rollback(savepoint)
        except DatabaseError as error:
            logger.error("%s", COMMITTED, exc_info=error)
            raise OutcomeUnknown(COMMITTED) from error
    transaction.set_rollback(True, using=using)


@lru_cache(maxsize=4096)
def name_of(using: str, table: str) -> TableName:
    return table_name(connections[using].ops.quote_name(table))


def own_tables(using: str) -> set[TableName]:
    """Return the tables of this app and of Django, which no caller needs to know of."""
    installed = [apps.app_configs[label] for label in OWN_APPS if label in apps.app_configs]
    names = [model._meta.db_table for app in installed for model in app.get_models()]
    caches = django_settings.CACHES.values()
    names += [cache["LOCATION"] for cache in caches if cache["BACKEND"].endswith(".db.DatabaseCache")]
    return {name_of(using, name) for name in names}


def _names_of(functions: Collection[Any]) -> list[str]:
    """Return the names of the project's functions among those that would run after the commit."""
    return [_name_of_callback(function) for function in functions if not is_own(function)]


def _name_of_callback(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if hasattr(owner, "apply_async"):
        # A task of Celery.
        task: Any = owner
        return str(task.name)
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    return f"{module}.{getattr(function, '__qualname__', kind.__qualname__)}"
