"""Limits of one caller: calls in a period, counted by all workers; concurrent calls and streams, in this worker."""

import threading
from collections import Counter
from typing import Final

from ...conf import settings
from ...operating.gauges import gauge
from ...runtime.throttling import hit_if_counted

# Seconds after which a caller who has no place left may try again.
RETRY_AFTER: Final = 1


class LimitExceeded(Exception):
    """The caller is over a limit, which ``setting`` sets; ``retry_after`` is in seconds."""

    def __init__(self, retry_after: int, setting: str) -> None:
        super().__init__(f"{setting}: retry after {retry_after} s")
        self.retry_after, self.setting = retry_after, setting


def count_call(who: str) -> None:
    """Count one call of a caller against ``CALL_RATE``.

    A cache that is out of order limits nothing: tokens and permissions are checked all the same.

    Raises:
        LimitExceeded: the calls of this period are used up.
    """
    retry_after = hit_if_counted("calls", who, settings.CALL_RATE)
    if retry_after is not None:
        raise LimitExceeded(retry_after, "CALL_RATE")


_calls: Counter[str] = Counter()
_streams: Counter[str] = Counter()
_bodies: Counter[str] = Counter()
_lock = threading.Lock()
gauge("running_calls", "Calls that run now.", _calls.total)
gauge("open_streams", "Streams of changes that are open now.", _streams.total)


class Held:
    """Something of a caller's, held until it is given back, or until the end of the block that it is the context of."""

    __slots__ = ("amount", "held", "who")

    def __init__(self, held: Counter[str], who: str, amount: int = 1) -> None:
        self.held, self.who, self.amount = held, who, amount
        held[who] += amount

    def give_back(self) -> None:
        """Hold it no longer; once."""
        with _lock:
            self.held[self.who] -= self.amount
            if not self.held[self.who]:
                del self.held[self.who]

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None:
        self.give_back()


def concurrent(who: str) -> Held:
    """Hold one of the caller's places for calls in this worker.

    Raises:
        LimitExceeded: ``MAX_CONCURRENT_CALLS`` of the caller are running.
    """
    with _lock:
        if _calls[who] >= settings.MAX_CONCURRENT_CALLS:
            raise LimitExceeded(RETRY_AFTER, "MAX_CONCURRENT_CALLS")
        return Held(_calls, who)


def streaming(who: str) -> Held:
    """Hold one of the caller's places for open streams in this worker.

    Raises:
        LimitExceeded: the caller has ``MAX_STREAMS``, or all callers have ``MAX_WORKER_STREAMS``.
    """
    with _lock:
        if _streams[who] >= settings.MAX_STREAMS:
            raise LimitExceeded(RETRY_AFTER, "MAX_STREAMS")
        if _streams.total() >= settings.MAX_WORKER_STREAMS:
            raise LimitExceeded(RETRY_AFTER, "MAX_WORKER_STREAMS")
        return Held(_streams, who)


def body_room(who: str, size: int) -> Held:
    """Hold room for a long body of the caller in this worker.

    Raises:
        LimitExceeded: bodies that are being read or worked on have ``MAX_WORKER_BODY_BYTES``, or the caller's a quarter
            of it. One body of a caller who has no other is bounded by all alone.
    """
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = _bodies[who]
        if _bodies.total() + size > total or (own and own + size > total // 4):
            raise LimitExceeded(RETRY_AFTER, "MAX_WORKER_BODY_BYTES")
        return Held(_bodies, who, size)
