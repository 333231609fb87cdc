"""Collect changes until they are sent: within a transaction, within a moment, within this process.

However much happens, it stays small: many rows of one model become "some rows of the model".
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, transaction
from django.db.transaction import TransactionManagementError

from . import hub

# Topics of the hub.
CHANGES: Final = "changes"
LISTS: Final = "lists"
# Rows of one model, and URIs, that are told one by one.
MAX_ROWS: Final = 1_000
MAX_URIS: Final = 1_000
# Keys in one message, and characters of them.
MAX_KEYS: Final = 250
MAX_CHARS: Final = 32 * 1024


class Changes:
    """A set of changes, of bounded size.

    ``rows`` holds the primary keys of changed rows by the label of their model, or None for any of its rows; ``uris``
    are resources that changed as such; ``lists`` are pairs of a kind and the name of a site, None for all sites.
    ``everything`` stands for changes that nobody knows.
    """

    __slots__ = ("everything", "lists", "rows", "uris")

    def __init__(self) -> None:
        self.rows: dict[str, set[str] | None] = {}
        self.uris: set[str] = set()
        self.lists: set[tuple[str, str | None]] = set()
        self.everything = False

    def __bool__(self) -> bool:
        return bool(self.rows or self.uris or self.lists or self.everything)

    def add_rows(self, label: str, pks: Iterable[str]) -> None:
        """Add rows of a model."""
        found = self.rows.setdefault(label, set())
        if found is not None:
            found.update(pks)
            if len(found) > MAX_ROWS:
                self.rows[label] = None

    def add_model(self, label: str) -> None:
        """Add rows of a model without saying which."""
        self.rows[label] = None

    def add_uris(self, uris: Iterable[str]) -> None:
        """Add resources."""
        self.uris.update(uris)
        if len(self.uris) > MAX_URIS:
            self.uris.clear()
            self.everything = True

    def merge(self, other: "Changes") -> None:
        """Add all that another set holds."""
        for label, pks in other.rows.items():
            if pks is None:
                self.add_model(label)
            else:
                self.add_rows(label, pks)
        self.add_uris(other.uris)
        self.lists |= other.lists
        self.everything |= other.everything

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield topics and payloads that tell of the changes, none of them long."""
        if self.everything:
            yield CHANGES, {"everything": True}
        for label, pks in self.rows.items():
            for some in _chunks(pks) if pks is not None else [None]:
                yield CHANGES, {"rows": {label: some}}
        for some in _chunks(self.uris):
            yield CHANGES, {"uris": some}
        if self.lists:
            yield LISTS, sorted(([kind, site] for kind, site in self.lists), key=str)

    def read(self, topic: str, payload: Any) -> None:
        """Add what a message tells of; one that is none of :meth:`messages` may stand for anything."""
        try:
            if topic == LISTS:
                self.lists.update((kind, site) for kind, site in payload)
                return
            for label, pks in payload.get("rows", {}).items():
                if pks is None:
                    self.add_model(label)
                else:
                    self.add_rows(label, pks)
            self.add_uris(payload.get("uris", ()))
            self.everything |= payload.get("everything", False)
        except (AttributeError, TypeError, ValueError):
            self.everything = True


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    chars = 0
    for key in keys:
        if some and (len(some) >= MAX_KEYS or chars + len(key) > MAX_CHARS):
            yield some
            some, chars = [], 0
        some.append(key)
        chars += len(key)
    if some:
        yield some


class Outbox:
    """What this process has to tell; the hub's thread tells it, within 50 ms."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Be empty, whatever another thread was about to do: for the child of a fork."""
        self._lock = threading.Lock()
        self._changes = Changes()

    def put(self, changes: Changes) -> None:
        """Have the changes told."""
        if not changes or hub.is_idle():
            return
        with self._lock:
            self._changes.merge(changes)
        hub.soon(self.send)

    def send(self) -> None:
        """Tell what is there."""
        with self._lock:
            changes, self._changes = self._changes, Changes()
        for topic, payload in changes.messages():
            hub.publish(topic, payload)


outbox = Outbox()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=outbox.reset)


# Transactions


class _Batch:
    """The changes under one state of a transaction: its open savepoints are those of all of them."""

    def __init__(self, savepoints: tuple[Any, ...]) -> None:
        self.savepoints = savepoints
        self.changes = Changes()
        self.is_told = False

    def tell(self) -> None:
        self.is_told = True
        outbox.put(self.changes)


# By alias, the batch of the open transaction of this thread. Only Django's list of what to do on commit holds it: when
# the transaction or a savepoint is rolled back, it is gone.
_open = threading.local()


def after_commit(using: str | None, fill: Callable[[Changes], None], *, explicit: bool = False) -> None:
    """Have the changes that ``fill`` adds told when the transaction of this thread commits, at once when there is none.

    They are not told when the transaction, or a savepoint around this call, is rolled back. Where Django cannot know of
    the commit, because autocommit was turned off by hand, only what is ``explicit`` is told, and at once.
    """
    connection = transaction.get_connection(using)
    savepoints = tuple(connection.savepoint_ids)
    blocks = connection.atomic_blocks
    # In a test's own transaction nothing is committed, and callbacks are run by what the test captured.
    if blocks and not getattr(blocks[-1], "_from_testcase", False):
        reference = _open.__dict__.get(connection.alias)
        batch = reference() if reference is not None else None
        if batch is not None and batch.savepoints == savepoints and not batch.is_told:
            fill(batch.changes)
            return
    batch = _Batch(savepoints)
    fill(batch.changes)
    try:
        transaction.on_commit(batch.tell, using=using, robust=True)
    except TransactionManagementError:
        if explicit:
            batch.tell()
    except (SynchronousOnlyOperation, DatabaseError):
        # A coroutine has no transaction, and a database that is not there has none to commit.
        batch.tell()
    else:
        _open.__dict__[connection.alias] = weakref.ref(batch)
