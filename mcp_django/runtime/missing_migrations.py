"""Missing migrations: the usual reason why everything fails where the app was just installed.

Tables of the app, or of the toolkit, are missing until ``migrate`` is run. The database then names one table in an
error. Operators are told the migrations instead.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, router

logger = logging.getLogger("mcp_django")

# SQLSTATEs of PostgreSQL, and error numbers of MySQL, for a table and a column that do not exist.
STATES: Final = frozenset({"42P01", "42703"})
NUMBERS: Final = frozenset({1146, 1054})
SQLITE: Final = ("no such table", "no such column")
# Maximum number of migrations of one app that are named.
MOST: Final = 3
# Seconds until the log names missing migrations again, in each process.
PAUSE: Final = 60

_last_told: list[float] = []


class Migrations(list[str]):
    """Names of migrations of one app, in their order; as text, the first of many, and how many there are."""

    def __str__(self) -> str:
        if len(self) <= MOST:
            return ", ".join(self)
        return f"{self[0]}, … ({len(self)})"


def database_of(label: str) -> str:
    """Return the alias of the database with the tables of an app."""
    models = list(apps.get_app_config(label).get_models())
    return router.db_for_write(models[0]) if models else DEFAULT_DB_ALIAS


def missing_migrations(label: str) -> Migrations:
    """Return the names of the migrations of an app that its database lacks, in their order.

    Raises ``DatabaseError`` if the database does not answer.
    """
    alias = database_of(label)
    try:
        return _planned(connections[alias], label)
    except DatabaseError:
        if not connections[alias].in_atomic_block:
            raise
    # After an error, PostgreSQL answers nothing more in the same transaction. Each thread has connections of its own.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_planned_apart, alias, label).result()


def _planned_apart(alias: str, label: str) -> Migrations:
    try:
        return _planned(connections[alias], label)
    finally:
        connections.close_all()


def _planned(connection: Any, label: str) -> Migrations:
    from django.db.migrations.executor import MigrationExecutor  # only where something is wrong, or checked

    executor = MigrationExecutor(connection)
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == label]
    plan = [migration for migration, _backwards in executor.migration_plan(targets)]
    return Migrations(migration.name for migration in plan if migration.app_label == label)


def not_migrated(labels: Iterable[str]) -> str:
    """Return the missing migrations of installed apps as text, "" if there are none or the database cannot tell."""
    found: list[str] = []
    for label in filter(apps.is_installed, labels):
        try:
            names = missing_migrations(label)
        except DatabaseError:
            return ""
        if names:
            found.append(f"{label} {names}")
    return "; ".join(found)


class MissingTables:
    """The tables and columns of installed apps that do not exist, as an exception or one that caused it says."""

    # Apps whose tables calls need.
    APPS: Final = ("mcp_django", "oauth2_provider")
    REMEDY: Final = "manage.py migrate"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __bool__(self) -> bool:
        """Return whether the exception says that a table or column does not exist."""
        return any(map(_is_of_table, _with_causes(self.error)))

    def are_needed(self) -> bool:
        """Return whether calls need one of the tables."""
        return not _apps_named(self.error).isdisjoint(self.APPS)

    def migrations(self) -> str:
        """Return the missing migrations that explain the exception, "" if it is about something else.

        The database is asked only if there are missing tables. If calls need one of them, the migrations of all apps
        that calls need are returned.
        """
        named = _apps_named(self.error)
        needed = self.APPS if named.intersection(self.APPS) else ()
        return not_migrated(dict.fromkeys([*needed, *sorted(named)]))

    def log(self) -> None:
        """Log the missing migrations that explain the exception: once a minute, because every call fails alike."""
        now = time.monotonic()
        if _last_told and now - _last_told[0] < PAUSE:
            return
        missing = self.migrations()
        if missing:
            _last_told[:] = [now]
            logger.error("Not migrated: %s. Run %s.", missing, self.REMEDY)


def _apps_named(error: BaseException) -> set[str]:
    """Return the labels of the apps whose tables an exception, or one that caused it, says do not exist."""
    found = list(filter(_is_of_table, _with_causes(error)))
    words = {word for each in found for word in re.findall(r"\w+", str(each))}
    if words:
        return {model._meta.app_label for model in apps.get_models() if model._meta.db_table in words}
    return set()


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def _is_of_table(error: BaseException) -> bool:
    """Return whether an exception of a database driver says that a table or column does not exist."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    return state in STATES or number in NUMBERS or str(error).startswith(SQLITE)
