"""Which of the streams of a session has the messages: each goes out on one of them (basic/transports, Multiple
Connections).

The place is kept in Django's default cache, for as long as its holder renews it. Where workers do not share a cache,
each of them lets one stream have it, and a message may reach a client twice.
"""

import logging
import secrets
from typing import Final

from ...runtime.cache import cache
from ...runtime.threads import in_thread
from ...server.sessions import lease_key

__all__ = ["Lease"]

logger = logging.getLogger("mcp_django")

# Seconds after which a place that was not renewed is free: twice the time between two signs of life of a stream.
TTL: Final = 30


class Lease:
    """The place of one stream among those of the same session."""

    def __init__(self, session_id: str) -> None:
        self.key = lease_key(session_id)
        self.token = secrets.token_hex(8)

    async def hold(self, *, take_over: bool = False) -> bool:
        """Return whether the stream has the place: it had it, or it is free, or it takes it over from itself.

        A cache that is out of order gives the place to each.
        """
        return await in_thread("reads", lambda: self._hold(take_over))

    def _hold(self, take_over: bool) -> bool:
        try:
            if not take_over and cache.add(self.key, self.token, TTL):
                return True
            if take_over or cache.get(self.key) == self.token:
                cache.set(self.key, self.token, TTL)
                return True
        except Exception as error:
            logger.warning("Streams are not told apart, as the cache does not answer: %s", type(error).__name__)
            return True
        return False

    async def release(self) -> None:
        """Give the place up."""
        await in_thread("reads", self._release)

    def _release(self) -> None:
        try:
            if cache.get(self.key) == self.token:
                cache.delete(self.key)
        except Exception as error:
            logger.warning("A stream's place is not given up, as the cache does not answer: %s", type(error).__name__)
