"""The last use of each token, to the minute, which the shared cache keeps."""

import ipaddress
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.conf import settings as django_settings

from ..runtime.cache_and_rate_limits import cache

# Seconds between two notes of a token's use by one worker, and seconds for which the cache keeps a note.
EVERY: Final = 60
KEPT: Final = 90 * 24 * 3600
# Maximum number of tokens whose notes a worker remembers.
MAX_NOTED: Final = 10_000

_noted: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Use:
    """The last use of a token: its time, and the network of the caller's address, "" for unknown."""

    moment: datetime
    place: str


def note_use(checksum: str, address: str = "") -> None:
    """Note in the cache that a request from this address came with the token now.

    "" is the checksum of a token that is not stored here, of which nothing is noted.
    """
    now = time.monotonic()
    if not checksum or now < _noted.get(checksum, 0.0):
        return
    if len(_noted) >= MAX_NOTED:
        _noted.clear()
    _noted[checksum] = now + EVERY
    with suppress(Exception):
        cache.set(_key(checksum), (int(time.time()), shortened(address)), timeout=KEPT)


def last_uses(checksums: Iterable[str]) -> dict[str, Use]:
    """Return the last use of each token by its checksum, as far as the cache knows."""
    keys = {_key(checksum): checksum for checksum in checksums}
    zone = UTC if django_settings.USE_TZ else None
    with suppress(Exception):
        uses = cache.get_many(list(keys))
        return {keys[key]: Use(datetime.fromtimestamp(moment, tz=zone), place) for key, (moment, place) in uses.items()}
    return {}


def shortened(address: str) -> str:
    """Return the network of an IP address, which may be noted."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return ":".join(f"{int(part, 16):x}" for part in ip.exploded.split(":")[:3]) + ":…"
        ip = ip.ipv4_mapped
    return str(ip).rpartition(".")[0] + ".…"


def _key(checksum: str) -> str:
    return f"mcp_django:use:{checksum[:32]}"
