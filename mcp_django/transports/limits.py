"""How much one caller may ask: calls in a period, shared by all workers; calls and streams at once, in this worker."""

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from ..conf import settings
from ..rates import hit

__all__ = ["LimitExceeded", "concurrent", "count_call", "streaming"]

logger = logging.getLogger("mcp_django")

# Seconds after which a caller who has no place left may try again.
RETRY_AFTER: Final = 1


class LimitExceeded(Exception):
    """The caller is over a limit; ``retry_after`` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"retry after {retry_after} s")
        self.retry_after = retry_after


def count_call(who: str) -> None:
    """Count one call of a caller against ``CALL_RATE``.

    A cache that is out of order limits nothing: tokens and permissions are checked all the same.

    Raises:
        LimitExceeded: the calls of this period are used up.
    """
    try:
        retry_after = hit("calls", who, settings.CALL_RATE)
    except Exception as error:
        logger.warning("Calls are not counted, as the cache does not answer: %s", type(error).__name__)
        return
    if retry_after is not None:
        raise LimitExceeded(retry_after)


_calls: Counter[str] = Counter()
_streams: Counter[str] = Counter()
_lock = threading.Lock()


def concurrent(who: str) -> AbstractContextManager[None]:
    """Hold one of the caller's places for calls in this worker.

    Raises:
        LimitExceeded: ``MAX_CONCURRENT_CALLS`` of the caller are running.
    """
    return _place(_calls, who, settings.MAX_CONCURRENT_CALLS)


def streaming(who: str) -> AbstractContextManager[None]:
    """Hold one of the caller's places for open streams in this worker.

    Raises:
        LimitExceeded: the caller has ``MAX_STREAMS``, or all callers have ``MAX_WORKER_STREAMS``.
    """
    return _place(_streams, who, settings.MAX_STREAMS, settings.MAX_WORKER_STREAMS)


@contextmanager
def _place(places: Counter[str], who: str, limit: int, total: int | None = None) -> Iterator[None]:
    with _lock:
        if places[who] >= limit or (total is not None and places.total() >= total):
            raise LimitExceeded(RETRY_AFTER)
        places[who] += 1
    try:
        yield
    finally:
        with _lock:
            places[who] -= 1
            if not places[who]:
                del places[who]
