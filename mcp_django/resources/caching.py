"""Cache hints for clients (2026-07-28, server/utilities/caching)."""

from collections.abc import Mapping
from typing import Final

from ..conf import settings

# The methods whose results a client may keep, and what the setting ``CACHE_TTL_MS`` calls them.
CACHEABLE: Final[Mapping[str, str]] = {
    "server/discover": "discover",
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
    "resources/read": "read",
}


def cache_ttl(method: str) -> int:
    """Return how many milliseconds a client may keep the result of the method, where the result itself does not say."""
    configured = settings.CACHE_TTL_MS
    if isinstance(configured, Mapping):
        configured = configured.get(CACHEABLE.get(method, ""), 0)
    ttl: int = configured
    return ttl
