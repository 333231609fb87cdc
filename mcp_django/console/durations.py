"""How long things took, in words."""

from datetime import UTC, datetime
from typing import Final

from django.utils.timesince import timesince

from ..templatetags.mcp_console import duration_text

# Durations below this one, in ms, are told in seconds.
SHORT: Final = 60_000


def lasting(begins: int, ends: int) -> str:
    """Return how long it is between two times in ms, in s, or in minutes, hours and days; 0 if it ends before."""
    ms = max(0, ends - begins)
    if ms < SHORT:
        return duration_text(ms)
    return timesince(time_of(begins), time_of(ends))


def time_of(ms: int) -> datetime:
    """Return the time that is so many milliseconds after 1970 began."""
    return datetime.fromtimestamp(ms / 1000, UTC)
