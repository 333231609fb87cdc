"""Counting in the shared cache: so many in a period, whichever worker is asked."""

import hashlib
import re
import threading
import time
from functools import lru_cache
from typing import Any, Final

from django.core.cache import DEFAULT_CACHE_ALIAS, caches
from django.core.signals import setting_changed
from django.http import HttpRequest

__all__ = ["caller_of", "hit", "parse_rate"]

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE: Final = re.compile(r"([0-9]+)/([smhd])")


_local = threading.local()


def _cache() -> Any:
    """Return this thread's own instance of the default cache.

    ``django.core.cache.cache`` makes one for each context, and every call has a context of its own.
    """
    found = getattr(_local, "cache", None)
    if found is None or _local.generation != _generation[0]:
        found = _local.cache = caches.create_connection(DEFAULT_CACHE_ALIAS)
        _local.generation = _generation[0]
    return found


_generation = [0]


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        _generation[0] += 1


setting_changed.connect(_forget)


def caller_of(request: HttpRequest) -> str:
    """Return whose limits the request counts against: the user's, or the address's where nobody signs in."""
    user = request.user
    return f"user:{user.pk}" if user.pk is not None else f"addr:{request.META.get('REMOTE_ADDR', '')}"


@lru_cache(maxsize=32)
def parse_rate(rate: str) -> tuple[int, int]:
    """Return number and seconds of "number/period".

    Raises:
        ValueError: it is not of that form.
    """
    match = RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"{rate!r} is not a rate such as '30/h'")
    return int(match[1]), PERIODS[match[2]]


def hit(name: str, who: str, rate: str | None) -> int | None:
    """Count one use and return None, or, when the period's number is used up, the seconds until the next period.

    ``who`` is hashed, so that keys stay valid and addresses are not stored. Errors of the cache pass.
    """
    if rate is None:
        return None
    number, period = parse_rate(rate)
    now = int(time.time())
    digest = hashlib.sha256(who.encode()).hexdigest()[:32]
    key = f"mcp_django:rate:{name}:{digest}:{now // period}"
    cache = _cache()
    try:
        used = cache.incr(key)
    except ValueError:
        # The first of the period; where two are the first, the second counts on.
        used = 1 if cache.add(key, 1, timeout=period) else _again(cache, key)
    return None if used <= number else period - now % period


def _again(cache: Any, key: str) -> int:
    try:
        used: int = cache.incr(key)
        return used
    except ValueError:  # evicted between the two calls
        return 1
