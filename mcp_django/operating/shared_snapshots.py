"""Snapshots: what operators have set, kept in the memory of each process, so that calls need no query for it.

Every change sets a new mark in the cache, which is read each second while calls come in. The database is read every
three seconds in any case, so that changes also arrive without the cache.
"""

import logging
import threading
import time
import uuid
from contextlib import nullcontext, suppress
from typing import Any, ClassVar, Final, Generic, TypeVar

from django.db import connections, router, transaction
from django.db.models import Model

from ..runtime.cache_and_rate_limits import cache

T = TypeVar("T")

logger = logging.getLogger("mcp_django")

# Seconds between two reads of the database, and that a call waits while another one reads.
POLL: Final = 3.0
PATIENCE: Final = 1.0
AWAY: Final = "away"


class SharedSnapshot(Generic[T]):
    """This process's copy of some rows of the app, and ``due`` for its renewal, in seconds of the monotonic clock.

    Make one with all its defaults: a process that was forked calls ``__init__`` again, because another thread may have
    held the lock. ``due`` and what :meth:`_take` makes of the rows are read without a lock.
    """

    # Seconds between two reads of the cache.
    LOOK: Final = 1.0
    # The model whose rows these are, the key of the mark in the cache, and what the rows are called in the log.
    model: ClassVar[type[Model]]
    mark: ClassVar[str]
    title: ClassVar[str]

    def __init__(self) -> None:
        self.due = 0.0
        self._lock = threading.Lock()
        self._rows: tuple[T, ...] = ()
        self._mark: Any = None
        self._polled = -POLL
        # Why the last reading failed, None if it did not.
        self._failure: Exception | None = None

    def _read(self) -> tuple[T, ...]:
        """Read the rows from the database with the alias :attr:`alias`."""
        raise NotImplementedError

    def _take(self, before: tuple[T, ...]) -> float:
        """Use the rows that were read, where ``before`` are those of the last look; return the seconds after which it
        has to be called again at the latest."""
        return float("inf")

    def _tell_of(self, error: Exception) -> None:
        """Tell those who run the site that the rows cannot be read; the last ones stay."""
        logger.warning("The %s cannot be read: %s", self.title, type(error).__name__)

    @property
    def alias(self) -> str:
        """The database that is written: a replica can lag behind."""
        return router.db_for_write(self.model)

    def renew(self, age: float | None = None) -> None:
        """Reload the snapshot when it is ``due``, unless another thread does.

        With ``age`` the database is read, due or not, if its last read is at least so many seconds ago. Errors are not
        raised: while the cache and the database fail, the last snapshot stays.
        """
        # While another thread reloads, a call goes on with the snapshot, and waits only if that is too old.
        is_fresh = time.monotonic() < self._polled + POLL + self.LOOK
        if self._polled < 0:
            patience = -1.0
        elif is_fresh:
            patience = 0.0
        else:
            patience = PATIENCE
        if not self._lock.acquire(timeout=patience):
            return
        try:
            now = time.monotonic()
            if now >= self.due or (age is not None and now >= self._polled + age):
                self._look(now, POLL if age is None else age)
        finally:
            self._lock.release()

    def _look(self, now: float, age: float) -> None:
        try:
            mark = cache.get(self.mark)
        except Exception:
            mark = AWAY
        before = self._rows
        is_new = mark not in (self._mark, AWAY)
        if is_new or now >= self._polled + age:
            try:
                self._rows = self._read_alone()
            except Exception as error:
                is_new = self._failure is None
                self._failure = error
                if is_new:
                    self._tell_of(error)
            else:
                self._polled = now
                self._failure = None
                self._mark = self._mark if mark == AWAY else mark
        seconds = self._take(before)
        self.due = now + min(self.LOOK, seconds)

    def _read_alone(self) -> tuple[T, ...]:
        """Read the rows; an error must not break the transaction of the call."""
        alias = self.alias
        with transaction.atomic(using=alias) if connections[alias].in_atomic_block else nullcontext():
            return self._read()

    def expire(self) -> None:
        """Make the next call reload the snapshot from the database."""
        self._polled = min(self._polled, time.monotonic() - POLL)
        self.due = 0.0

    def tell(self) -> None:
        """Make all processes reload the snapshot: this one now, others on commit."""
        self.expire()
        transaction.on_commit(self._publish, using=self.alias, robust=True)

    def _publish(self) -> None:
        with suppress(Exception):
            cache.set(self.mark, uuid.uuid4().hex, timeout=None)
        self.expire()
