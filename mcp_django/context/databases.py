"""Route the queries of a call that writes to the database that is written, not to a replica; open write transactions.

A replica may lag behind. Saving a row that was read there would undo what others have changed meanwhile.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Literal

from django.db import DEFAULT_DB_ALIAS, connections, router, transaction
from django.db.models import Model

from .call_record import CallRecord


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
