"""The five revisions of the protocol, and which era each belongs to (2026-07-28, basic/versioning)."""

from typing import Final

__all__ = ["ASSUMED", "LATEST_LEGACY", "LEGACY", "MODERN", "SUPPORTED", "is_at_least", "negotiate"]

# Named here and not taken from mcp_types: a newer release of it must not make this server claim a newer revision.
LEGACY: Final[tuple[str, ...]] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final[tuple[str, ...]] = ("2026-07-28",)
# Newest first, as a client tries them.
SUPPORTED: Final[tuple[str, ...]] = (*reversed(MODERN), *reversed(LEGACY))
LATEST_LEGACY: Final = LEGACY[-1]
# What a request means that names no revision (2025-06-18, basic/transports, Protocol Version Header).
ASSUMED: Final = "2025-03-26"


def negotiate(requested: object) -> str:
    """Return the revision that ``initialize`` answers with: the one asked for, or the newest of the legacy era."""
    return requested if isinstance(requested, str) and requested in LEGACY else LATEST_LEGACY


def is_at_least(version: str, minimum: str) -> bool:
    """Return whether ``version`` is ``minimum`` or newer; both are supported revisions."""
    return SUPPORTED.index(version) <= SUPPORTED.index(minimum)
