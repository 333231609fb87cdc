"""Streams that tell of changes: ``subscriptions/listen`` of one request, and the GET stream of a session.

An open stream costs a task and a little memory, no thread and no database connection. What it has not sent yet is kept
once for each thing that changed, so that no burst can make it grow.

Each message of a session goes out on one of its streams (basic/transports, Multiple Connections). Which of them has
the place is kept in Django's default cache, for as long as its holder renews it. Where workers do not share a cache,
each of them lets one stream have it, and a message may reach a client twice.
"""

import asyncio
import contextlib
import logging
import secrets
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...protocol import subscriptions as listen
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
from ...subscriptions.hub import hub
from ...subscriptions.subscriptions import Subscription, open_subscription
from .connection import KEEP_ALIVE_EVERY, Connection
from .dispatch import Changes, Listening
from .shutdown import register

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


LISTS: Final = frozenset({"tools", "prompts", "resources"})
UPDATED: Final = "notifications/resources/updated"
# Seconds between two deliveries on one stream: what changes again meanwhile is told once.
DELIVER_EVERY: Final = 0.1
RETRY: Final = 1_000


class Mailbox:
    """Notifications that wait for their stream, one for each thing; filled from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.wake = asyncio.Event()
        self.ended = False
        self._waiting: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}
        self._uris: Collection[str] | None = None
        self._lock = threading.Lock()

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Have a notification sent; it takes the place of one of the same thing that waits."""
        with self._lock:
            if self._takes(method, params):
                self._waiting[method, params.get("uri", "")] = method, params
        self.ring()

    def keep_only(self, uris: Collection[str]) -> None:
        """Take updates of these resources and of no other from now on, and drop what waits of others."""
        with self._lock:
            self._uris = frozenset(uris)
            self._waiting = {key: item for key, item in self._waiting.items() if self._takes(*item)}

    def _takes(self, method: str, params: Mapping[str, Any]) -> bool:
        return self._uris is None or method != UPDATED or params["uri"] in self._uris

    def end(self, reason: str = "") -> None:
        """Have the stream ended."""
        self.ended = True
        self.ring()

    def take(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return what waits, oldest first."""
        with self._lock:
            found = list(self._waiting.values())
            self._waiting.clear()
        return found

    def ring(self) -> None:
        """Have the stream look."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.wake.set)


class ChangeStream:
    """What both kinds have in common; a kind says how a notification looks and how the stream begins and ends."""

    def __init__(self, exchange: "Exchange", connection: Connection) -> None:
        self.exchange, self.connection = exchange, connection
        self.mailbox = Mailbox()
        self.subscription: Subscription | None = None

    async def subscribe(self, lists: Iterable[str], uris: Iterable[str]) -> Subscription:
        """Subscribe to what the caller may see of it.

        Raises:
            ProtocolError: there is too much of it, or a URI is none.
        """
        request, mailbox = self.exchange.request, self.mailbox
        wanted, kinds = tuple(uris), frozenset(lists)

        def opened() -> Subscription:
            return open_subscription(request, uris=wanted, lists=kinds, deliver=mailbox.put, end=mailbox.end)

        self.subscription = found = await in_thread("reads", opened, owner=self.exchange.caller)
        return found

    async def send_changes(self) -> None:
        """Send what changes until the mailbox says that it is over or the client goes."""
        unregister = register(self.mailbox.end)
        watch = asyncio.ensure_future(self.leave())
        try:
            while not (self.mailbox.ended or watch.done()):
                # Not wait_for(), which makes a task each time.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KEEP_ALIVE_EVERY):
                        await self.mailbox.wake.wait()
                self.mailbox.wake.clear()
                await self.deliver()
        finally:
            unregister()
            watch.cancel()
            if self.subscription is not None:
                self.subscription.close()
        if not watch.done() or watch.cancelled():
            await self.goodbye()

    async def leave(self) -> None:
        """Stop when the client closes the connection."""
        await self.connection.closed()
        self.mailbox.wake.set()

    async def deliver(self) -> None:
        """Send what waits, or a comment when nothing does."""
        waiting = self.mailbox.take()
        if waiting:
            await self.connection.send_event(b"".join(self.render(*item) for item in waiting))
            await asyncio.sleep(DELIVER_EVERY)
        elif not self.mailbox.ended:
            await self.connection.send_event()

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        """Return the event of one notification."""
        raise NotImplementedError

    async def goodbye(self) -> None:
        """End the stream in order."""
        raise NotImplementedError


class ListenStream(ChangeStream):
    """The stream that answers ``subscriptions/listen`` (2026-07-28, basic/patterns/subscriptions)."""

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
        await self.connection.send_event(event(encode(listen.acknowledged(self.id, found.lists, found.uris))))
        await self.send_changes()

    def render(self, method: str, params: Mapping[str, Any]) -> bytes:
        """See :meth:`ChangeStream.render`."""
        return event(encode(listen.tagged(self.id, method, params)))

    async def goodbye(self) -> None:
        """Answer the request, which says that the stream ended in order."""
        await self.connection.end_stream(event(encode(listen.ended(self.id, identity()))))


class SessionStream(ChangeStream):
    """The GET stream of a session (2025-11-25, Listening for Messages from the Server).

    Of several that a session has open, one has the messages and the others wait to take its place.
    """

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

    async def deliver(self) -> None:
        """Send what waits, if it is this stream that has the messages."""
        assert self.subscription is not None
        if self.is_stale:
            self.is_stale = False
            self.learn(await in_thread("reads", self.session.stored_uris))
        if self.news:
            news = [self.news.popleft() for _ in range(len(self.news))]
            await in_thread("reads", partial(self.subscription.set_uris, news[-1][0]), owner=self.exchange.caller)
            for _, token in news:
                self.say_known(token)
        if not await self.lease.hold():
            self.missed |= bool(self.mailbox.take())
            await self.connection.send_event()
            await asyncio.sleep(DELIVER_EVERY)
            return
        if self.missed:
            self.missed = False
            self.resync(self.subscription)
        await super().deliver()

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
