"""How long things took, in words."""

from datetime import UTC, datetime
from typing import Final

from django.utils.formats import number_format
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

# Durations below this one, in ms, are told in seconds.
SHORT: Final = 60_000


def duration_text(duration: float) -> str:
    """Return a duration in ms as text, in ms or s."""
    if duration >= 1000:
        return _("%s s") % number_format(duration / 1000, 0 if duration >= 10_000 or not duration % 1000 else 1)
    return _("%s ms") % number_format(duration, 0)


def lasting(begins: int, ends: int) -> str:
    """Return how long it is between two times in ms, in s, or in minutes, hours and days; 0 if it ends before."""
    ms = max(0, ends - begins)
    if ms < SHORT:
        return duration_text(ms)
    return timesince(time_of(begins), time_of(ends))


def time_of(ms: int) -> datetime:
    """Return the time that is so many milliseconds after 1970 began."""
    return datetime.fromtimestamp(ms / 1000, UTC)
