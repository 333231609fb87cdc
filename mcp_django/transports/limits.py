"""How much one caller may ask: calls in a period, shared by all workers, and calls at once, in this worker."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from django.core.cache import cache

from ..conf import settings

__all__ = ["LimitExceeded", "concurrent", "count_call", "parse_rate"]

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class LimitExceeded(Exception):
    """The caller is over a limit; ``retry_after`` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"retry after {retry_after} s")
        self.retry_after = retry_after


@lru_cache(maxsize=32)
def parse_rate(rate: str) -> tuple[int, int]:
    """Return the number of calls and the period in seconds of a rate such as ``"600/m"``.

    Raises:
        ValueError: it is not a rate.
    """
    number, _, period = rate.partition("/")
    if period[:1] not in PERIODS:
        raise ValueError(f"{rate!r} is not a rate such as 600/m")
    return int(number), PERIODS[period[:1]]


def count_call(who: str) -> None:
    """Count one call of a caller in the shared cache.

    A cache that is out of order limits nothing: tokens and permissions are checked all the same.

    Raises:
        LimitExceeded: the caller has used up ``CALL_RATE``.
    """
    if settings.CALL_RATE is None:
        return
    number, period = parse_rate(settings.CALL_RATE)
    now = int(time.time())
    key = f"mcp_django:calls:{who}:{now // period}"
    try:
        cache.add(key, 0, timeout=period * 2)
        used = cache.incr(key)
    except ValueError:
        # Evicted between the two: the count begins again.
        return
    if used > number:
        raise LimitExceeded(period - now % period)


_running: Counter[str] = Counter()
_lock = threading.Lock()


@contextmanager
def concurrent(who: str) -> Iterator[None]:
    """Hold one of the caller's places in this worker.

    Raises:
        LimitExceeded: ``MAX_CONCURRENT_CALLS`` of the caller are running.
    """
    with _lock:
        if _running[who] >= settings.MAX_CONCURRENT_CALLS:
            raise LimitExceeded(1)
        _running[who] += 1
    try:
        yield
    finally:
        with _lock:
            _running[who] -= 1
            if not _running[who]:
                del _running[who]
