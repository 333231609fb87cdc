"""The last use of a token, for people to see: kept in the shared cache, to the minute, without delaying a call."""

import ipaddress
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Use:
    """When a token was used, and from what part of the net, "" where that is not known."""

    moment: datetime
    place: str


def note_use(auth: Any, address: str = "") -> None:
    """Note that a call came with this token from an address; a cache that is out of order forgets it."""
    checksum = getattr(auth, "checksum", "")
    now = time.monotonic()
    if not checksum or now < _noted.get(checksum, 0.0):
        return
    if len(_noted) >= MAX_NOTED:
        _noted.clear()
    _noted[checksum] = now + EVERY
    with suppress(Exception):
        cache.set(_key(checksum), (int(time.time()), shortened(address)), timeout=KEPT)


def last_uses(checksums: Iterable[str]) -> dict[str, Use]:
    """Return when and from where each of the tokens with these checksums was last used, as far as it is known."""
    keys = {_key(checksum): checksum for checksum in checksums}
    zone = UTC if django_settings.USE_TZ else None
    with suppress(Exception):
        found = cache.get_many(list(keys))
        return {
            keys[key]: Use(datetime.fromtimestamp(moment, tz=zone), place) for key, (moment, place) in found.items()
        }
    return {}


def shortened(address: str) -> str:
    """Return as much of an address as tells a user whether it is theirs: without its end, which tells one device."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return ":".join(f"{int(part, 16):x}" for part in found.exploded.split(":")[:3]) + ":…"
        found = found.ipv4_mapped
    return str(found).rpartition(".")[0] + ".…"


def _key(checksum: str) -> str:
    return f"mcp_django:use:{checksum[:32]}"
