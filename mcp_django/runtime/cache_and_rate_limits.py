"""Django's default cache with a short timeout, and limits of callers: rates counted in the cache, and places held here.

A rate limit counts calls in a period, by all workers. A place is one of the running calls, open streams and long bodies
that a caller may have at once in this worker.
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

# Seconds that a call waits for the cache, and for which nobody waits for one that took longer.
PATIENCE: Final = 0.5
PAUSE: Final = 5.0
# How Django's backends learn of it, where the project has not set it. Their libraries wait for 5 seconds or for ever.
TIMEOUTS: Final = {
    RedisCache: ("socket_timeout", "socket_connect_timeout"),
    PyMemcacheCache: ("timeout", "connect_timeout"),
}


class CacheIsAway(Exception):
    """Django's default cache took too long a moment ago, and was not asked again."""


class SharedCache:
    """Methods of Django's default cache, with a short timeout.

    When one takes longer than ``PATIENCE``, they raise :class:`CacheIsAway` at once for ``pause`` seconds; then one
    call tries again. Each thread has its own instance of the backend: ``django.core.cache.cache`` makes one for each
    context, and every call has a context of its own.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._away_until = 0.0
        self._lock = threading.Lock()
        self._local = threading.local()
        setting_changed.connect(self._forget)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # The next time it is there.
        found = self.__dict__[name] = partial(self._call, name)
        return found

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        if self._away_until:
            with self._lock:
                if began < self._away_until:
                    raise CacheIsAway(f"The cache took longer than {PATIENCE} s")
                # The others go on without, until this call knows better.
                self._away_until = began + self._pause
        try:
            backend: BaseCache | None = getattr(self._local, "backend", None)
            if backend is None:
                backend = self._local.backend = _connect()
            return getattr(backend, name)(*args, **kwargs)
        finally:
            ended = time.monotonic()
            self._away_until = ended + self._pause if ended - began >= PATIENCE else 0.0

    def _forget(self, *, setting: str, **kwargs: Any) -> None:
        if setting == "CACHES":
            self._local = threading.local()
            self._away_until = 0.0


def _connect() -> BaseCache:
    params = dict(caches.settings[DEFAULT_CACHE_ALIAS])
    location, backend = params.pop("LOCATION", ""), import_string(params.pop("BACKEND"))
    for kind, names in TIMEOUTS.items():
        if issubclass(backend, kind):
            params["OPTIONS"] = {**dict.fromkeys(names, PATIENCE), **params.get("OPTIONS", {})}
    made: BaseCache = backend(location, params)
    return made


# For what goes on without the cache, and for what is not done without it.
cache: Final = SharedCache(PAUSE)
required_cache: Final = SharedCache(pause=0.0)


logger = logging.getLogger("mcp_django")

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def caller_of(request: HttpRequest) -> str:
    """Return whose rate limits a request counts against: the user's, or the address's where nobody signs in."""
    pk = request.user.pk
    return f"user:{pk}" if pk is not None else f"addr:{request.META.get('REMOTE_ADDR', '')}"


@lru_cache(maxsize=32)
def parse_rate(rate: str) -> tuple[int, int]:
    """Return number and seconds of a rate, "number/period"."""
    match = RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"{rate!r} is not a rate such as '30/h'")
    return int(match[1]), PERIODS[match[2]]


def hit(name: str, who: str, rate: str | None) -> int | None:
    """Count one use against a rate limit in the cache; return None, or the seconds to wait when the limit is used up.

    ``who`` is hashed, so that keys stay valid and addresses are not stored. Errors of the cache pass.
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
            # Where two are the first of the period, the second counts on, unless it was evicted meanwhile.
            with suppress(ValueError):
                used = cache.incr(key)
    return None if used <= number else period - now % period


def times_as_many(rate: str | None, factor: int) -> str | None:
    """Return the rate limit of so many times as many uses in the same period."""
    if rate is None:
        return None
    number, _, period = rate.partition("/")
    return f"{int(number) * factor}/{period}"


def hit_if_counted(name: str, who: str, rate: str | None) -> int | None:
    """Count one use against a rate limit; a cache that is out of order limits nothing."""
    try:
        return hit(name, who, rate)
    except Exception as error:
        logger.warning("%s are not counted, as the cache does not answer: %s", name.capitalize(), type(error).__name__)
        return None


def give_back(name: str, who: str, rate: str | None) -> None:
    """Take back one use that :func:`hit` has counted against a rate limit."""
    if rate is not None:
        with suppress(Exception):
            cache.decr(_key(name, who, parse_rate(rate)[1]))


def _key(name: str, who: str, period: int) -> str:
    return f"mcp_django:rate:{name}:{hashlib.sha256(who.encode()).hexdigest()[:32]}:{int(time.time()) // period}"


# Seconds after which a caller who has no place left may try again.
RETRY_AFTER: Final = 1


class LimitExceeded(Exception):
    """A caller's rate limit or limit of places is used up; ``remedy`` is for the log, ``retry_after`` in seconds."""

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
    """A place within a caller's limit (running call, open stream, body), held until given back or its block ends."""

    __slots__ = ("amount", "held", "who")

    def __init__(self, held: dict[str, int], who: str, amount: int = 1) -> None:
        self.held, self.who, self.amount = held, who, amount
        held[who] = held.get(who, 0) + amount

    def give_back(self) -> None:
        """Give the place within a caller's limit back, once."""
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
    """Hold a place for a stream within a caller's limit, ``MAX_STREAMS``, and within ``MAX_WORKER_STREAMS``."""
    with _lock:
        if open_streams.get(who, 0) >= settings.MAX_STREAMS:
            raise LimitExceeded(f"A user has at most {settings.MAX_STREAMS} open streams in one worker.")
        if sum(open_streams.values()) >= settings.MAX_WORKER_STREAMS:
            raise LimitExceeded(f"A worker has at most {settings.MAX_WORKER_STREAMS} open streams. Run more workers.")
        return Held(open_streams, who)


def body_room(who: str, size: int) -> Held:
    """Hold room for a long body within a caller's limit in this worker, or raise LimitExceeded."""
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = held_bodies.get(who, 0)
        if sum(held_bodies.values()) + size > total or (own and own + size > total // 4):
            raise LimitExceeded(
                f"A worker holds {total} bytes of long bodies, a quarter of them of one user. Run more workers."
            )
        return Held(held_bodies, who, size)
