"""Streams that tell of changes: ``subscriptions/listen`` of one request, and the GET stream of a session.

Each message of a session goes out on one of its streams (basic/transports, Multiple Connections). Which of them has
the place is kept in Django's default cache, for as long as its holder renews it. Where workers do not share a cache,
each of them lets one stream have it, and a message may reach a client twice.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...protocol import subscriptions
from ...protocol.errors import ProtocolError
from ...protocol.messages import encode, error_response, notification
from ...protocol.sse import event, event_id, priming
from ...protocol.versions import PRIMED
from ...runtime.cache import cache
from ...runtime.threads import in_thread
from ...server import sessions
from ...server.dispatch import Reply
from ...server.methods.lifecycle import identity
from ...server.sessions import ClientSession, lease_key
from ...subscriptions.audience import UPDATED
from ...subscriptions.hub import hub
from ...subscriptions.subscriptions import Subscription
from ..notifications import LISTS, Mailbox, relay
from .connection import KEEP_ALIVE_EVERY, Connection
from .dispatch import Changes, Listening
from .roll import enter

if TYPE_CHECKING:
    from .exchange import Exchange

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


# Milliseconds after which a client may come back to a stream that broke.
RETRY: Final = 1_000


class ChangeStream:
    """What both kinds have in common; a kind says how a notification looks and how the stream begins and ends."""

    # What opens it, for whoever looks at what is open.
    method: ClassVar[str]

    def __init__(self, exchange: "Exchange", connection: Connection) -> None:
        self.exchange, self.connection = exchange, connection
        self.mailbox = Mailbox()
        self.subscription: Subscription | None = None
        self.is_gone = False

    async def subscribe(self, lists: Iterable[str], uris: Iterable[str]) -> Subscription:
        """Subscribe to what the caller may see of it.

        Raises:
            ProtocolError: there is too much of it, or a URI is none.
        """
        exchange = self.exchange
        self.subscription = found = await self.mailbox.subscribed(
            exchange.request, uris=tuple(uris), lists=frozenset(lists), owner=exchange.caller
        )
        return found

    async def send_changes(self) -> None:
        """Send what changes until the mailbox says that it is over or the client goes."""
        leave = enter(self.exchange, self.method, self.mailbox.end)
        watch = asyncio.ensure_future(self.leave())
        try:
            await relay(self.mailbox, self.deliver, KEEP_ALIVE_EVERY)
        finally:
            leave()
            watch.cancel()
            if self.subscription is not None:
                self.subscription.close()
        if not self.is_gone:
            await self.goodbye()

    async def leave(self) -> None:
        """Stop when the client closes the connection."""
        await self.connection.closed()
        self.is_gone = True
        self.mailbox.end()

    async def deliver(self) -> bool:
        """Send what waits, or a comment when nothing does; return whether anything did."""
        waiting = self.mailbox.take()
        if waiting:
            await self.connection.send_event(b"".join(self.render(*item) for item in waiting))
        elif not self.mailbox.ended:
            await self.connection.send_event()
        return bool(waiting)

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        """Return the event of one notification."""
        raise NotImplementedError

    async def goodbye(self) -> None:
        """End the stream in order."""
        raise NotImplementedError


class ListenStream(ChangeStream):
    """The stream that answers ``subscriptions/listen`` (2026-07-28, basic/patterns/subscriptions)."""

    method: ClassVar[str] = "subscriptions/listen"

    def __init__(self, exchange: "Exchange", connection: Connection, listening: Listening) -> None:
        super().__init__(exchange, connection)
        self.call, self.wanted = listening.call, listening.listen
        assert self.call.id is not None
        self.id = self.call.id

    async def run(self) -> None:
        """Acknowledge, then tell of changes; a filter that cannot be had is answered with the error."""
        try:
            found = await self.subscribe(self.wanted.lists, self.wanted.uris)
        except ProtocolError as error:
            body = encode(error_response(self.id, error, modern=True))
            await self.connection.respond(self.exchange.respond(Reply(body, self.call.era.status(error))))
            return
        await self.connection.open_stream(self.exchange.cors())
        await self.connection.send_event(event(encode(subscriptions.acknowledged(self.id, found.lists, found.uris))))
        await self.send_changes()

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        """See :meth:`ChangeStream.render`."""
        return event(encode(subscriptions.tagged(self.id, method, params)))

    async def goodbye(self) -> None:
        """Answer the request, which says that the stream ended in order."""
        await self.connection.end_stream(event(encode(subscriptions.ended(self.id, identity()))))


class SessionStream(ChangeStream):
    """The GET stream of a session (2025-11-25, Listening for Messages from the Server).

    Of several that a session has open, one has the messages and the others wait to take its place.
    """

    method: ClassVar[str] = "GET"

    def __init__(self, exchange: "Exchange", connection: Connection, changes: Changes) -> None:
        super().__init__(exchange, connection)
        self.session: ClientSession = changes.session
        self.missed = changes.missed
        self.number = 0
        self.lease = Lease(self.session.id)
        # What the session is subscribed to since it changed, and what whoever changed it waits for.
        self.news: deque[tuple[Sequence[str], str]] = deque()
        self.is_stale = False

    async def run(self) -> None:
        """Tell of changes to the lists and to what the session subscribed to, now or later."""
        unsubscribe = hub.subscribe(sessions.topic(self.session.id), self.heard)
        try:
            await self.lease.hold(take_over=self.missed)
            await self.subscribe(LISTS, await in_thread("reads", self.session.stored_uris))
            # Whoever sees that the stream is open misses nothing from then on.
            await self.connection.open_stream(self.exchange.cors())
            if self.session.version in PRIMED:
                await self.connection.send_event(priming(event_id(self.session.id, 0), RETRY))
            self.mailbox.wake.set()
            await self.send_changes()
        finally:
            unsubscribe()
            await self.lease.release()

    async def deliver(self) -> bool:
        """Send what waits, if it is this stream that has the messages."""
        assert self.subscription is not None
        if self.is_stale or self.news:
            await self.catch_up(self.subscription)
        if not await self.lease.hold():
            self.missed |= bool(self.mailbox.take())
            await self.connection.send_event()
            return True
        if self.missed:
            self.missed = False
            self.resync(self.subscription)
        return await super().deliver()

    async def catch_up(self, subscription: Subscription) -> None:
        """Watch what the session is subscribed to by now: of two changes at once, the first may be told of last."""
        self.is_stale = False
        news = [self.news.popleft() for _ in range(len(self.news))]
        uris = await in_thread("reads", self.session.stored_uris)
        overtaken = set(uris).difference(news[-1][0]) if news else set()
        if overtaken or not news:
            self.mailbox.keep_only(uris)
        await in_thread("reads", partial(subscription.set_uris, uris), owner=self.exchange.caller)
        for uri in overtaken.intersection(subscription.uris):
            self.mailbox.put(UPDATED, {"uri": uri})
        for _, token in news:
            self.say_known(token)

    def resync(self, subscription: Subscription) -> None:
        """Tell of everything that may have changed meanwhile."""
        for kind in sorted(LISTS):
            self.mailbox.put(f"notifications/{kind}/list_changed", {})
        for uri in subscription.uris:
            self.mailbox.put(UPDATED, {"uri": uri})

    def heard(self, news: Any) -> None:
        """Follow what becomes of the session; called in the hub's thread."""
        if not isinstance(news, dict):
            # Something was lost. The subscription tells what it may have missed; what it is to is looked up again.
            self.is_stale = True
        elif news.get("ended"):
            self.mailbox.end()
        elif "uris" in news:
            self.learn(news["uris"], news["token"])
        self.mailbox.ring()

    def learn(self, uris: Sequence[str], token: str = "") -> None:
        """Take note of what the session is subscribed to: what it is not is not told any more, whatever waits."""
        self.mailbox.keep_only(uris)
        self.news.append((uris, token))
        if self.subscription is not None and set(uris).issubset(self.subscription.uris):
            self.say_known(token)

    def say_known(self, token: str) -> None:
        """Let whoever changed what the session is subscribed to wait no more."""
        if token:
            hub.publish(sessions.topic(self.session.id), {"known": token})

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        """See :meth:`ChangeStream.render`."""
        self.number += 1
        return event(encode(notification(method, params)), identifier=event_id(self.session.id, self.number))

    async def goodbye(self) -> None:
        """Close the connection; the client may come back for what it misses."""
        await self.connection.end_stream()
