"""Django's default cache with a short timeout, for calls that cannot wait for it."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from django.core.cache import DEFAULT_CACHE_ALIAS, caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.memcached import PyMemcacheCache
from django.core.cache.backends.redis import RedisCache
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

# Seconds that a call waits for the cache, and for which nobody waits for one that took longer.
PATIENCE: Final = 0.5
PAUSE: Final = 5.0
# How Django's backends learn of it, where the project has not set it. Their libraries wait for 5 seconds or for ever.
TIMEOUTS: Final = {
    RedisCache: ("socket_timeout", "socket_connect_timeout"),
    PyMemcacheCache: ("timeout", "connect_timeout"),
}


class CacheIsAway(Exception):
    """The cache took too long a moment ago, and was not asked."""


class SharedCache:
    """The methods of the default cache.

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
        found: Callable[..., Any] = lambda *args, **kwargs: self._call(name, args, kwargs)  # noqa: E731
        # The next time it is there.
        self.__dict__[name] = found
        return found

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = time.monotonic()
        if self._away_until:
            with self._lock:
                if began < self._away_until:
                    raise CacheIsAway(f"The cache took longer than {PATIENCE} s")
                # The others go on without, until this call knows better.
                self._away_until = began + self._pause
        try:
            return getattr(self._backend(), name)(*args, **kwargs)
        finally:
            ended = time.monotonic()
            self._away_until = ended + self._pause if ended - began >= PATIENCE else 0.0

    def _backend(self) -> BaseCache:
        found: BaseCache | None = getattr(self._local, "backend", None)
        if found is None:
            found = self._local.backend = _connect()
        return found

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
