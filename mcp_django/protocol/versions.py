"""The five revisions of the protocol, and which era each belongs to (2026-07-28, basic/versioning)."""

from typing import Final


class Revisions:
    """The revisions of the protocol, by era and by feature."""

    # Not taken from mcp_types: a newer release of that package must not make this server claim a newer revision.
    LEGACY: Final[tuple[str, ...]] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    MODERN: Final[tuple[str, ...]] = ("2026-07-28",)
    # Newest first, the order in which clients try them.
    SUPPORTED: Final[tuple[str, ...]] = (*reversed(MODERN), *reversed(LEGACY))
    LATEST: Final = MODERN[-1]
    LATEST_LEGACY: Final = LEGACY[-1]
    # The revision of a request that does not name one (2025-06-18, basic/transports, Protocol Version Header).
    ASSUMED: Final = "2025-03-26"

    # Revisions by feature, for code that need not know the revisions themselves.
    # Results of tools have ``structuredContent``, and tools have an ``outputSchema`` (server/tools).
    STRUCTURED: Final = frozenset({"2025-06-18", "2025-11-25", "2026-07-28"})
    # Streams begin with an event that has an id and no data (2025-11-25, basic/transports), which older clients take
    # for broken.
    PRIMED: Final = frozenset({"2025-11-25", "2026-07-28"})
    # Headers repeat arguments of a call (2026-07-28, basic/transports/streamable-http).
    MIRRORED: Final = frozenset(MODERN)
    # Requests do not belong to a session.
    SESSIONLESS: Final = frozenset(MODERN)

    @classmethod
    def negotiate(cls, requested: object) -> str:
        """Negotiate the version of ``initialize``: the requested version, or the newest with a handshake."""
        if isinstance(requested, str) and requested in cls.LEGACY:
            return requested
        return cls.LATEST_LEGACY

    @classmethod
    def is_at_least(cls, version: str, minimum: str) -> bool:
        """Return whether the version ``version`` is ``minimum`` or newer."""
        return cls.SUPPORTED.index(version) <= cls.SUPPORTED.index(minimum)
