"""The last use of a token, for people to see: kept in the shared cache, to the minute, without delaying a call."""

import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings as django_settings

from ..runtime.cache import cache

# Seconds within which a worker notes one use of a token, and for which it is known.
EVERY: Final = 60
KEPT: Final = 90 * 24 * 3600
# Tokens that a worker remembers having noted.
MAX_NOTED: Final = 10_000

_noted: dict[str, float] = {}


def note_use(auth: Any) -> None:
    """Note that a call came with this token; a cache that is out of order forgets it."""
    checksum = getattr(auth, "checksum", "")
    now = time.monotonic()
    if not checksum or now < _noted.get(checksum, 0.0):
        return
    if len(_noted) >= MAX_NOTED:
        _noted.clear()
    _noted[checksum] = now + EVERY
    with suppress(Exception):
        cache.set(_key(checksum), int(time.time()), timeout=KEPT)


def last_uses(checksums: Iterable[str]) -> dict[str, datetime]:
    """Return when each of the tokens with these checksums was last used, as far as it is known."""
    keys = {_key(checksum): checksum for checksum in checksums}
    zone = UTC if django_settings.USE_TZ else None
    with suppress(Exception):
        found = cache.get_many(list(keys))
        return {keys[key]: datetime.fromtimestamp(moment, tz=zone) for key, moment in found.items()}
    return {}


def _key(checksum: str) -> str:
    return f"mcp_django:used:{checksum[:32]}"
