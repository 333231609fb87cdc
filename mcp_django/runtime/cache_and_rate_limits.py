"""Django's default cache with a short timeout, and callers' limits: rates counted in the cache, places held in memory.

A rate limit counts the calls of all workers in a period. A place is one of the running calls, open streams and long
bodies that a caller may have at the same time in this worker.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final

from django.core.cache import DEFAULT_CACHE_ALIAS, caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.memcached import PyMemcacheCache
from django.core.cache.backends.redis import RedisCache
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.module_loading import import_string

from ..conf import settings
from ..conf.value_kinds import RATE

# Seconds that a call waits for the cache, and seconds for which the cache is not used after it took longer.
PATIENCE: Final = 0.5
PAUSE: Final = 5.0
# The timeout options of Django's backends, set unless the project sets them. Their libraries wait 5 s or forever.
TIMEOUTS: Final = {
    RedisCache: ("socket_timeout", "socket_connect_timeout"),
    PyMemcacheCache: ("timeout", "connect_timeout"),
}


class CacheIsAway(Exception):
    """Django's default cache took too long a moment ago, so it was not used again."""


class SharedCache:
    """Methods of Django's default cache, with a short timeout.

    When one takes longer than ``PATIENCE``, all raise :class:`CacheIsAway` at once for ``pause`` seconds; then one call
    tries again. A thread's first call may take longer if it is answered. Each thread has its own instance of the
    backend, because ``django.core.cache.cache`` creates one for each context, and every call has its own context.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._away_until = 0.0
        self._lock = threading.Lock()
        self._local = threading.local()
        setting_changed.connect(self._forget)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Set the attribute, so that it is found directly next time.
        found = self.__dict__[name] = partial(self._call, name)
        return found

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        if self._away_until:
            with self._lock:
                if began < self._away_until:
                    raise CacheIsAway(f"The cache took longer than {PATIENCE} s")
                # Other calls do without the cache until this call has succeeded.
                self._away_until = began + self._pause
        is_first = is_answered = False
        try:
            backend: BaseCache | None = getattr(self._local, "backend", None)
            if backend is None:
                is_first = True
                backend = self._local.backend = _connect()
            answer = getattr(backend, name)(*args, **kwargs)
            is_answered = True
            return answer
        finally:
            ended = time.monotonic()
            # The first call of a thread also imports the cache's library and connects, which says nothing of the cache.
            is_slow = ended - began >= PATIENCE and not (is_first and is_answered)
            self._away_until = ended + self._pause if is_slow else 0.0

    def _forget(self, *, setting: str, **kwargs: Any) -> None:
        if setting == "CACHES":
            self._local = threading.local()
            self._away_until = 0.0


def _connect() -> BaseCache:
    params = dict(caches.settings[DEFAULT_CACHE_ALIAS])
    location = params.pop("LOCATION", "")
    backend = import_string(params.pop("BACKEND"))
    for kind, names in TIMEOUTS.items():
        if issubclass(backend, kind):
            params["OPTIONS"] = {**dict.fromkeys(names, PATIENCE), **params.get("OPTIONS", {})}
    made: BaseCache = backend(location, params)
    return made


# The first is for work that goes on without the cache, the second for work that needs it.
cache: Final = SharedCache(PAUSE)
required_cache: Final = SharedCache(pause=0.0)


logger = logging.getLogger("mcp_django")

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def caller_of(request: HttpRequest) -> str:
    """Return the caller for rate limits: the user, or the client's address for anonymous users."""
    pk = request.user.pk
    if pk is not None:
        return f"user:{pk}"
    return f"addr:{request.META.get('REMOTE_ADDR', '')}"


@lru_cache(maxsize=32)
def parse_rate(rate: str) -> tuple[int, int]:
    """Return number of uses and seconds of a rate limit, "number/period"."""
    match = RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"{rate!r} is not a rate such as '30/h'")
    return int(match[1]), PERIODS[match[2]]


def hit(name: str, who: str, rate: str | None) -> int | None:
    """Count one use against a rate limit in the cache; return None, or the seconds to wait when the limit is used up.

    ``who`` is hashed, so that keys stay valid and addresses are not stored. Errors of the cache are raised.
    """
    if rate is None:
        return None
    number, period = parse_rate(rate)
    now = int(time.time())
    key = _key(name, who, period)
    try:
        used = cache.incr(key)
    except ValueError:
        used = 1
        if not cache.add(key, 1, timeout=period):
            # Another call was the first of the period: count this one too, unless the key was evicted meanwhile.
            with suppress(ValueError):
                used = cache.incr(key)
    return None if used <= number else period - now % period


def times_as_many(rate: str | None, factor: int) -> str | None:
    """Return a rate limit with ``factor`` times as many uses in the same period."""
    if rate is None:
        return None
    number, _, period = rate.partition("/")
    return f"{int(number) * factor}/{period}"


def hit_if_counted(name: str, who: str, rate: str | None) -> int | None:
    """Count one use against a rate limit; if the cache does not work, nothing is limited."""
    try:
        return hit(name, who, rate)
    except Exception as error:
        logger.warning("%s are not counted: the cache does not answer (%s)", name.capitalize(), type(error).__name__)
        return None


def give_back(name: str, who: str, rate: str | None) -> None:
    """Subtract one use that :func:`hit` has counted against a rate limit."""
    if rate is not None:
        with suppress(Exception):
            cache.decr(_key(name, who, parse_rate(rate)[1]))


def _key(name: str, who: str, period: int) -> str:
    return f"mcp_django:rate:{name}:{hashlib.sha256(who.encode()).hexdigest()[:32]}:{int(time.time()) // period}"


# Seconds after which a caller without a free place may try again.
RETRY_AFTER: Final = 1


class LimitExceeded(Exception):
    """A caller's rate limit or places are used up; ``remedy`` is for the log, ``retry_after`` is in seconds."""

    def __init__(self, remedy: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(f"{remedy} Retry after {retry_after} s.")
        self.retry_after = retry_after
        self.remedy = remedy


def count_call(who: str) -> None:
    """Count one call of a caller against the rate limit of calls.

    If the cache does not work, nothing is limited: tokens and permissions are checked anyway.
    """
    retry_after = hit_if_counted("calls", who, settings.RATES["calls"])
    if retry_after is not None:
        raise LimitExceeded("Raise RATES['calls'] if this is fair use.", retry_after)


class Held:
    """A place within a caller's limit (running call, open stream, body), held until given back or its block ends."""

    __slots__ = ("amount", "held", "who")

    def __init__(self, held: dict[str, int], who: str, amount: int = 1) -> None:
        self.held = held
        self.who = who
        self.amount = amount
        held[who] = held.get(who, 0) + amount

    def give_back(self) -> None:
        """Give the place within a caller's limit back. Call it only once."""
        with _lock:
            self.held[self.who] -= self.amount
            if not self.held[self.who]:
                del self.held[self.who]

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None:
        self.give_back()


running_calls: dict[str, int] = {}
open_streams: dict[str, int] = {}
held_bodies: dict[str, int] = {}
_lock = threading.Lock()


def concurrent(who: str) -> Held:
    """Limit a caller's running calls: hold one of ``MAX_CONCURRENT_CALLS`` places here, or raise LimitExceeded."""
    with _lock:
        if running_calls.get(who, 0) >= settings.MAX_CONCURRENT_CALLS:
            raise LimitExceeded(f"A user has at most {settings.MAX_CONCURRENT_CALLS} calls at a time in one worker.")
        return Held(running_calls, who)


def streaming(who: str) -> Held:
    """Hold a place for a caller's stream: ``MAX_STREAMS`` and ``MAX_WORKER_STREAMS`` apply beside the rate limits."""
    with _lock:
        if open_streams.get(who, 0) >= settings.MAX_STREAMS:
            raise LimitExceeded(f"A user has at most {settings.MAX_STREAMS} open streams in one worker.")
        if sum(open_streams.values()) >= settings.MAX_WORKER_STREAMS:
            raise LimitExceeded(f"A worker has at most {settings.MAX_WORKER_STREAMS} open streams. Run more workers.")
        return Held(open_streams, who)


def body_room(who: str, size: int) -> Held:
    """Hold room for a caller's long body within limits that apply beside the rate limits, or raise LimitExceeded."""
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = held_bodies.get(who, 0)
        if sum(held_bodies.values()) + size > total or (own and own + size > total // 4):
            raise LimitExceeded(
                f"A worker holds {total} bytes of long bodies, a quarter of them of one user. Run more workers."
            )
        return Held(held_bodies, who, size)
