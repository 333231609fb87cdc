"""Fixed-window rate limits in the shared cache, for all workers together."""

import hashlib
import logging
import time
from contextlib import suppress
from functools import lru_cache
from typing import Final

from django.http import HttpRequest

from ..conf import RATE
from .cache import cache

logger = logging.getLogger("mcp_django")

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


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
    key = _key(name, who, period)
    try:
        used = cache.incr(key)
    except ValueError:
        # The first of the period; where two are the first, the second counts on.
        used = 1 if cache.add(key, 1, timeout=period) else _again(key)
    return None if used <= number else period - now % period


def times_as_many(rate: str | None, factor: int) -> str | None:
    """Return the rate of so many times as many in the same period."""
    if rate is None:
        return None
    number, _, period = rate.partition("/")
    return f"{int(number) * factor}/{period}"


def hit_if_counted(name: str, who: str, rate: str | None) -> int | None:
    """Do what :func:`hit` does; a cache that is out of order limits nothing, as tokens are checked all the same."""
    try:
        return hit(name, who, rate)
    except Exception as error:
        what = name.capitalize()
        logger.warning("%s are not counted, as the cache does not answer: %s", what, type(error).__name__)
        return None


def give_back(name: str, who: str, rate: str | None) -> None:
    """Take back one use that :func:`hit` has counted; what the cache does not take is counted as it was."""
    if rate is not None:
        with suppress(Exception):
            cache.decr(_key(name, who, parse_rate(rate)[1]))


def _key(name: str, who: str, period: int) -> str:
    digest = hashlib.sha256(who.encode()).hexdigest()[:32]
    return f"mcp_django:rate:{name}:{digest}:{int(time.time()) // period}"


def _again(key: str) -> int:
    try:
        used: int = cache.incr(key)
        return used
    except ValueError:  # evicted between the two calls
        return 1
