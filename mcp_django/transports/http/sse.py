"""HTTP with SSE, the transport of 2024-11-05, as a mount of its own: ``path("sse", site.sse_urls)``.

A GET opens the stream that every message of the server goes out on; its first event names where the client posts to.
A post may reach any worker: the stream is the same log in the database as the streams of calls are. Nobody is asked
anything here: a client of this transport confirms by token.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, quote

from ...context.narrowing import kept_query
from ...exceptions import InsufficientScope
from ...protocol.eras import Call
from ...protocol.errors import InvalidRequest
from ...protocol.http import Response
from ...protocol.inbound import Rejected, classify
from ...protocol.messages import encode, error_response, notification
from ...runtime.threads import Handover, in_thread
from ...server import sessions, streams
from ...server.dispatch import Reply
from ...server.methods.base import Later
from ...server.sessions import ClientSession
from ...sites import MCPSite
from ...subscriptions.hub import hub
from ...subscriptions.subscriptions import Subscription
from ..notifications import LISTS, Mailbox, relay
from .call_streams import Tail
from .calls import LoggedCall
from .consumer import MCPConsumer
from .dispatch import begin, enter_session, lane_of, take_notification
from .exchange import Exchange
from .streams import Lease

T = TypeVar("T")

MESSAGES: Final = "/messages"
PARAMETER: Final = "session_id"
# For the log.
WITH_SSE: Final = "Is it a client of HTTP with SSE? Others have a mount of their own (site.urls)."


class SSEConsumer(MCPConsumer):
    """Answers one HTTP request of the transport: the GET of a stream, or the POST of a message."""

    async def outcome(self) -> "Response | str | Taken":
        """Return what the request comes to: a whole answer, the id of a new session, or a call that was taken."""
        self.exchange.resource_path = self.exchange.request.path_info.rstrip("/").removesuffix(MESSAGES)
        found: Response | str | Taken = await super().outcome()
        return found

    def answer(self, body: bytes) -> "Response | str | Taken | Handover[Response | Taken]":
        """Return the same for the body, or the rest of the work."""
        self.exchange.body = body
        query = parse_qs(self.scope.get("query_string", b"").decode("latin1"))
        posted = self.exchange.request.path_info.rstrip("/").endswith(MESSAGES)
        session_id = query.get(PARAMETER, [""])[-1] if posted else None
        return self.exchange.guarded(lambda: self.take(session_id, body))

    async def carry_out(self, outcome: "Response | str | Taken") -> None:
        """Answer as the outcome says."""
        exchange, connection = self.exchange, self.connection
        match outcome:
            case Response():
                await connection.respond(outcome)
            case str():
                await self.open(outcome)
            case Taken():
                await connection.respond(Response(202, headers=exchange.cors()))
                self.owns_place = False
                SharedCall(exchange, outcome.call, outcome.message, outcome.stream_id).start(outcome.work)

    def in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run work in a thread: of the pool, or of the middleware that the site needs."""
        return in_thread("reads", work, thread_sensitive=self.site.needs_middleware)

    async def open(self, session_id: str) -> None:
        """Open the stream of a new session, which ends with it."""
        exchange, connection = self.exchange, self.connection
        if (refusal := self.no_room()) is not None:
            await connection.respond(refusal)
            return
        session = await self.in_thread(lambda: sessions.find_session(exchange.request, session_id))
        stream_id = await self.in_thread(lambda: streams.open_stream(session, None, b"", session.version))
        await connection.open_stream(exchange.cors())
        path = f"{exchange.request.META['SCRIPT_NAME']}{exchange.resource_path}{MESSAGES}"
        narrowed = kept_query(exchange.query)
        where = f"{path}?{PARAMETER}={quote(session_id)}{'&' if narrowed else ''}{narrowed}"
        tail = Tail(exchange, connection, stream_id, 0, session.version)
        forwarder = Forwarder(exchange, session, stream_id, tail)
        forwarding = asyncio.ensure_future(forwarder.run())
        try:
            # Whoever knows where to post misses nothing from then on.
            await forwarder.is_listening.wait()
            await connection.send_event(endpoint_event(where))
            await tail.run()
        finally:
            forwarding.cancel()
            await self.in_thread(session.end)

    # In a worker thread

    def take(self, session_id: str | None, body: bytes) -> "Response | str | Handover[Response | Taken]":
        """Return a whole answer, the id of a new session, or a call whose answer goes out on the stream."""
        exchange = self.exchange
        exchange.admit()
        allowed = "GET" if session_id is None else "POST"
        if exchange.request.method != allowed:
            return exchange.not_allowed(f"This endpoint takes {allowed}", WITH_SSE, allowed)
        if session_id is None:
            return sessions.open_session(exchange.request)
        refusal = exchange.check_types() or enter_session(exchange, session_id)
        return refusal if refusal is not None else self.take_message(body)

    def take_message(self, body: bytes) -> "Response | Handover[Response | Taken]":
        """Take a message of the client's."""
        exchange, session = self.exchange, self.exchange.session
        stream_id = streams.shared_stream(session) if session is not None else None
        if session is None or stream_id is None:
            return exchange.session_not_found()
        accepted = Response(202, headers=exchange.cors())
        try:
            call = classify(body, {}, session=session)
        except Rejected as rejected:
            if rejected.id is None:
                raise
            streams.append(stream_id, [exchange.rejected(rejected).body])
            return accepted
        if not isinstance(call, Call):
            return exchange.refuse(400, "The body must be one request or notification", WITH_SSE)
        if call.id is None:
            take_notification(exchange, call)
            return accepted
        taken = lambda: Taken(call, body, stream_id, self.begin(session, call))  # noqa: E731
        return Handover(lane_of(call.method), exchange.caller, lambda: exchange.guarded(taken))

    def begin(self, session: ClientSession, call: Call) -> Reply | Later:
        """Run a call, or as much of it as runs in this thread."""
        try:
            outcome = begin(self.exchange.request, call)
        except InsufficientScope as error:
            return Reply(encode(error_response(call.id, InvalidRequest(str(error)), modern=False)))
        if call.method == "initialize":
            session.introduce(call)
        # Nobody is asked here, and only the other era listens.
        assert isinstance(outcome, Reply | Later)
        return outcome


@dataclass(frozen=True, slots=True)
class Taken:
    """A call, its message, the stream that its answer goes out on, and what is known of it."""

    call: Call
    message: bytes
    stream_id: str
    work: Reply | Later


class SharedCall(LoggedCall):
    """A call whose stream is that of its session and goes on after it: messages are numbered where they are stored."""

    is_shared = True

    def write(self, first: int, messages: list[bytes], is_over: bool) -> bool:
        """See :meth:`LoggedCall.write`."""
        return not messages or streams.append(self.log.id, messages)


class Forwarder:
    """Writes changes into the stream of a session, and that its connection is there."""

    def __init__(self, exchange: Exchange, session: ClientSession, stream_id: str, tail: Tail) -> None:
        self.exchange, self.session, self.stream_id, self.tail = exchange, session, stream_id, tail
        self.mailbox = Mailbox()
        # Whoever changes what the session is subscribed to waits for a stream that has the place.
        self.lease = Lease(session.id)
        # Whether that has to be looked up, and who waits for it.
        self.is_stale = False
        self.waiting: deque[str] = deque()
        self.is_listening = asyncio.Event()

    async def run(self) -> None:
        """Forward until cancelled."""
        request, caller = self.exchange.request, self.exchange.caller
        unsubscribe = hub.subscribe(sessions.topic(self.session.id), self.heard)
        try:
            subscription = await self.mailbox.subscribed(request, uris=(), lists=LISTS, owner=caller)
            with closing(subscription):
                await self.lease.hold()
                self.is_listening.set()
                await relay(self.mailbox, partial(self.deliver, subscription), streams.ALIVE_EVERY)
        finally:
            self.is_listening.set()
            unsubscribe()
            await self.lease.release()
        self.tail.leave()

    async def deliver(self, subscription: Subscription) -> bool:
        """Write down what waits, or a sign of life; return whether anything did."""
        await self.lease.hold()
        if self.is_stale:
            self.is_stale = False
            tokens = [self.waiting.popleft() for _ in range(len(self.waiting))]
            uris = await in_thread("reads", self.session.stored_uris)
            self.mailbox.keep_only(uris)
            await in_thread("reads", partial(subscription.set_uris, uris), owner=self.exchange.caller)
            for token in tokens:
                hub.publish(sessions.topic(self.session.id), {"known": token})
        return await in_thread("reads", self.write)

    def write(self) -> bool:
        """Do what :meth:`deliver` does, in a thread."""
        messages = [encode(notification(method, params)) for method, params in self.mailbox.take()]
        if messages:
            streams.append(self.stream_id, messages)
        else:
            streams.keep_alive([self.stream_id])
        return bool(messages)

    def heard(self, news: Any) -> None:
        """Follow what becomes of the session; called in the hub's thread."""
        if not isinstance(news, dict) or "uris" in news:
            if isinstance(news, dict):
                self.waiting.append(news["token"])
            self.is_stale = True
            self.mailbox.ring()
        elif news.get("ended"):
            self.mailbox.end()


def endpoint_event(uri: str) -> bytes:
    """Return the first event of a stream, which names where the client posts to (2024-11-05, basic/transports)."""
    return f"event: endpoint\ndata: {uri}\n\n".encode()


def as_application(site: MCPSite, attributes: Mapping[str, Any] | None = None) -> Any:
    """Return an ASGI application that answers for ``site``; a new consumer serves each request."""
    return SSEConsumer.as_asgi(site=site, attributes=attributes)
