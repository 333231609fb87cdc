"""How much one caller may ask: calls in a period, shared by all workers; calls and streams at once, in this worker."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from ...conf import settings
from ...runtime.throttling import hit_if_counted

__all__ = ["LimitExceeded", "body_room", "concurrent", "count_call", "streaming"]


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


def concurrent(who: str) -> AbstractContextManager[None]:
    """Hold one of the caller's places for calls in this worker.

    Raises:
        LimitExceeded: ``MAX_CONCURRENT_CALLS`` of the caller are running.
    """
    return _Place(_calls, who, "MAX_CONCURRENT_CALLS")


def streaming(who: str) -> AbstractContextManager[None]:
    """Hold one of the caller's places for open streams in this worker.

    Raises:
        LimitExceeded: the caller has ``MAX_STREAMS``, or all callers have ``MAX_WORKER_STREAMS``.
    """
    return _Place(_streams, who, "MAX_STREAMS", "MAX_WORKER_STREAMS")


@contextmanager
def body_room(who: str, size: int) -> Iterator[None]:
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
        _bodies[who] += size
    try:
        yield
    finally:
        with _lock:
            _bodies[who] -= size
            if not _bodies[who]:
                del _bodies[who]


class _Place:
    """A context that holds one of the caller's places."""

    __slots__ = ("limits", "places", "who")

    def __init__(self, places: Counter[str], who: str, own: str, total: str = "") -> None:
        self.places, self.who, self.limits = places, who, (own, total)

    def __enter__(self) -> None:
        places, (own, total) = self.places, self.limits
        with _lock:
            if places[self.who] >= getattr(settings, own):
                raise LimitExceeded(RETRY_AFTER, own)
            if total and places.total() >= getattr(settings, total):
                raise LimitExceeded(RETRY_AFTER, total)
            places[self.who] += 1

    def __exit__(self, *raised: object) -> None:
        with _lock:
            self.places[self.who] -= 1
            if not self.places[self.who]:
                del self.places[self.who]
