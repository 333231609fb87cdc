"""Counting in the shared cache: so many in a period, whichever worker is asked."""

import hashlib
import re
import time
from typing import Final

from django.core.cache import cache

__all__ = ["hit", "parse_rate"]

PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE: Final = re.compile(r"([0-9]+)/([smhd])")


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
    try:
        used = cache.incr(key)
    except ValueError:
        # The first of the period; where two are the first, the second counts on.
        used = 1 if cache.add(key, 1, timeout=period) else _again(key)
    return None if used <= number else period - now % period


def _again(key: str) -> int:
    try:
        return cache.incr(key)
    except ValueError:  # evicted between the two calls
        return 1
