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
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

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


@lru_cache(maxsize=32)
def parse_rate(rate: str) -> tuple[int, int]:
    """Return number of uses and seconds of a rate limit, "number/period"."""
    match = RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"{rate!r} is not a rate such as '30/h'")
    return int(match[1]), PERIODS[match[2]]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A limit of uses in a period, counted in the cache: ``rate`` is "number/period", or None for no limit.

    Uses of another ``name`` count apart. ``who`` has the uses: it is hashed, so that keys of the cache stay valid and
    addresses are not stored.
    """

    name: str
    rate: str | None

    def hit(self, who: str) -> int | None:
        """Count one use; return None, or the seconds to wait when the limit is used up.

        Errors of the cache are raised.
        """
        if self.rate is None:
            return None
        number, period = parse_rate(self.rate)
        now = int(time.time())
        key = _key(self.name, who, period)
        try:
            used = cache.incr(key)
        except ValueError:
            used = 1
            if not cache.add(key, 1, timeout=period):
                # Another call was the first of the period: count this one too, unless the key was evicted meanwhile.
                with suppress(ValueError):
                    used = cache.incr(key)
        return None if used <= number else period - now % period

    def hit_if_counted(self, who: str) -> int | None:
        """Count one use like :meth:`hit`; if the cache does not work, nothing is limited."""
        try:
            return self.hit(who)
        except Exception as error:
            name = self.name.capitalize()
            logger.warning("%s are not counted: the cache does not answer (%s)", name, type(error).__name__)
            return None

    def give_back(self, who: str) -> None:
        """Subtract one use that :meth:`hit` has counted."""
        if self.rate is not None:
            with suppress(Exception):
                cache.decr(_key(self.name, who, parse_rate(self.rate)[1]))

    def times(self, factor: int) -> "RateLimit":
        """Return a limit with ``factor`` times as many uses in the same period."""
        if self.rate is None:
            return self
        number, _, period = self.rate.partition("/")
        return RateLimit(self.name, f"{int(number) * factor}/{period}")


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


class Held:
    """A place within a caller's limit (running call, open stream, body), held until given back or its block ends."""

    # How much each caller holds now, by kind.
    running_calls: ClassVar[dict[str, int]] = {}
    open_streams: ClassVar[dict[str, int]] = {}
    long_bodies: ClassVar[dict[str, int]] = {}

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


_lock = threading.Lock()


class Caller(str):
    """The caller of a request, against whose limits it counts: the user, or the address of an anonymous client."""

    __slots__ = ()

    @classmethod
    def of(cls, request: HttpRequest) -> "Caller":
        """Return the caller of a request."""
        pk = request.user.pk
        if pk is not None:
            return cls(f"user:{pk}")
        return cls(f"addr:{request.META.get('REMOTE_ADDR', '')}")

    def count_call(self) -> None:
        """Count one call against the rate limit of calls, or raise LimitExceeded.

        If the cache does not work, nothing is limited: tokens and permissions are checked anyway.
        """
        retry_after = RateLimit("calls", settings.RATES["calls"]).hit_if_counted(self)
        if retry_after is not None:
            raise LimitExceeded("Raise RATES['calls'] if this is fair use.", retry_after)

    def hold_call(self) -> Held:
        """Hold one of the caller's ``MAX_CONCURRENT_CALLS`` places in this worker, or raise LimitExceeded."""
        limit = settings.MAX_CONCURRENT_CALLS
        with _lock:
            if Held.running_calls.get(self, 0) >= limit:
                raise LimitExceeded(f"A user has at most {limit} calls at a time in one worker.")
            return Held(Held.running_calls, self)

    def hold_stream(self) -> Held:
        """Hold a place for a stream within ``MAX_STREAMS`` and ``MAX_WORKER_STREAMS``, or raise LimitExceeded."""
        streams = Held.open_streams
        with _lock:
            if streams.get(self, 0) >= settings.MAX_STREAMS:
                raise LimitExceeded(f"A user has at most {settings.MAX_STREAMS} open streams in one worker.")
            if sum(streams.values()) >= settings.MAX_WORKER_STREAMS:
                text = f"A worker has at most {settings.MAX_WORKER_STREAMS} open streams. Run more workers."
                raise LimitExceeded(text)
            return Held(streams, self)

    def hold_body(self, size: int) -> Held:
        """Hold room for a long body within ``MAX_WORKER_BODY_BYTES``, or raise LimitExceeded."""
        total = settings.MAX_WORKER_BODY_BYTES
        bodies = Held.long_bodies
        with _lock:
            own = bodies.get(self, 0)
            if sum(bodies.values()) + size > total or (own and own + size > total // 4):
                raise LimitExceeded(
                    f"A worker holds {total} bytes of long bodies, a quarter of them of one user. Run more workers."
                )
            return Held(bodies, self, size)
