"""Limits of callers: the rate of calls over all workers; running calls, streams and bodies held in this worker."""

import threading
from typing import Final

from ..conf import settings
from ..operating.gauges_and_query_comments import gauge
from ..runtime.cache_and_rate_limits import hit_if_counted

# Seconds after which a caller who has no place left may try again.
RETRY_AFTER: Final = 1


class LimitExceeded(Exception):
    """The caller is over a limit, which ``remedy`` tells of in the log; ``retry_after`` is in seconds."""

    def __init__(self, remedy: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(f"{remedy} Retry after {retry_after} s.")
        self.retry_after, self.remedy = retry_after, remedy


def count_call(who: str) -> None:
    """Count one call of a caller against the rate limit of calls.

    A cache that is out of order limits nothing: tokens and permissions are checked all the same.
    """
    retry_after = hit_if_counted("calls", who, settings.RATES["calls"])
    if retry_after is not None:
        raise LimitExceeded("Raise RATES['calls'] if this is fair use.", retry_after)


class Held:
    """A place of a caller (running call, open stream, body), held until it is given back or its block ends."""

    __slots__ = ("amount", "held", "who")

    def __init__(self, held: dict[str, int], who: str, amount: int = 1) -> None:
        self.held, self.who, self.amount = held, who, amount
        held[who] = held.get(who, 0) + amount

    def give_back(self) -> None:
        """Hold it no longer; once."""
        with _lock:
            self.held[self.who] -= self.amount
            if not self.held[self.who]:
                del self.held[self.who]

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None:
        self.give_back()


_calls: dict[str, int] = {}
_streams: dict[str, int] = {}
_bodies: dict[str, int] = {}
_lock = threading.Lock()
gauge("running_calls", "Calls that run now.", lambda: sum(_calls.values()))
gauge("open_streams", "Streams of changes that are open now.", lambda: sum(_streams.values()))


def concurrent(who: str) -> Held:
    """Hold a place for one of the caller's ``MAX_CONCURRENT_CALLS`` in this worker, or raise LimitExceeded."""
    with _lock:
        if _calls.get(who, 0) >= settings.MAX_CONCURRENT_CALLS:
            raise LimitExceeded(f"A user has at most {settings.MAX_CONCURRENT_CALLS} calls at a time in one worker.")
        return Held(_calls, who)


def streaming(who: str) -> Held:
    """Hold a place for an open stream of the caller, within ``MAX_STREAMS`` and ``MAX_WORKER_STREAMS``."""
    with _lock:
        if _streams.get(who, 0) >= settings.MAX_STREAMS:
            raise LimitExceeded(f"A user has at most {settings.MAX_STREAMS} open streams in one worker.")
        if sum(_streams.values()) >= settings.MAX_WORKER_STREAMS:
            raise LimitExceeded(f"A worker has at most {settings.MAX_WORKER_STREAMS} open streams. Run more workers.")
        return Held(_streams, who)


def body_room(who: str, size: int) -> Held:
    """Hold room for a long body of the caller in this worker, or raise LimitExceeded."""
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = _bodies.get(who, 0)
        if sum(_bodies.values()) + size > total or (own and own + size > total // 4):
            raise LimitExceeded(
                f"A worker holds {total} bytes of long bodies, a quarter of them of one user. Run more workers."
            )
        return Held(_bodies, who, size)
