"""How much one caller may ask: calls in a period, shared by all workers, and calls at once, in this worker."""

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..conf import settings
from ..rates import hit

__all__ = ["LimitExceeded", "concurrent", "count_call"]

logger = logging.getLogger("mcp_django")


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
