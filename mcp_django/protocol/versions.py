"""The five revisions of the protocol, and which era each belongs to (2026-07-28, basic/versioning)."""

from typing import Final

# Named here and not taken from mcp_types: a newer release of it must not make this server claim a newer revision.
LEGACY: Final[tuple[str, ...]] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final[tuple[str, ...]] = ("2026-07-28",)
# Newest first, as a client tries them.
SUPPORTED: Final[tuple[str, ...]] = (*reversed(MODERN), *reversed(LEGACY))
LATEST_LEGACY: Final = LEGACY[-1]
# What a request means that names no revision (2025-06-18, basic/transports, Protocol Version Header).
ASSUMED: Final = "2025-03-26"

# The revisions that can do something, for whoever need not know one from another.
# Results of tools have ``structuredContent``, and tools an ``outputSchema`` (server/tools).
STRUCTURED: Final = frozenset({"2025-06-18", "2025-11-25", "2026-07-28"})
# A stream begins with an event that has an id and no data (2025-11-25, basic/transports); older clients take it for
# broken.
PRIMED: Final = frozenset({"2025-11-25", "2026-07-28"})
# Headers can repeat arguments of a call (2026-07-28, basic/transports/streamable-http).
MIRRORED: Final = frozenset(MODERN)
# No request belongs to a session.
SESSIONLESS: Final = frozenset(MODERN)


def negotiate(requested: object) -> str:
    """Negotiate the protocol version of ``initialize``: the version asked for, or the newest with a handshake."""
    return requested if isinstance(requested, str) and requested in LEGACY else LATEST_LEGACY


def is_at_least(version: str, minimum: str) -> bool:
    """Compare two protocol versions: whether ``version`` is ``minimum`` or newer."""
    return SUPPORTED.index(version) <= SUPPORTED.index(minimum)
