"""HTTP with SSE, the transport of 2024-11-05, mounted by ``path("sse", site.sse_urls)``.

A GET opens the stream on which the server sends every message; its first event names the URL that the client posts to.
A POST may reach any worker, so the stream is stored in the database like the streams of calls. The server asks no
questions on this transport: its clients confirm with a confirmation token.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, quote

from ...context.call_restrictions import NarrowingQuery
from ...oauth.bearer import ProtectedResource
from ...protocol.eras import Call, Rejected, classify
from ...protocol.messages import Message
from ...runtime.thread_pools import Handover, in_thread
from ...server.sessions import ClientSession
from ...server.stored_streams import SessionStreams, StoredStream
from ...sites import MCPSite
from ..call_execution import CallExecution
from ..notification_queues import Mailbox, relay
from .asgi_consumer import Connection, MCPConsumer, Runner
from .call_runners import SessionCall
from .event_streams import SessionChanges, Tail
from .http_exchange import Exchange, Refused, Response, SessionNotFound

MESSAGES: Final = "/messages"
PARAMETER: Final = "session_id"
# The remedy in the log for a wrong method or body.
WITH_SSE: Final = "Is it a client of HTTP with SSE? Others have a mount of their own (site.urls)."

Outcome = Response | Runner


class SSEExchange(Exchange):
    """One request: the GET of the stream, or the POST of a message."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = self.request.path_info.rstrip("/")
        self.is_post = path.endswith(MESSAGES)
        self.resource = ProtectedResource(self.request, path.removesuffix(MESSAGES))

    def take(self) -> Outcome | Handover[Outcome]:
        """Return the stream, or a call to run, whose reply goes out on the stream."""
        allowed = "POST" if self.is_post else "GET"
        if self.request.method != allowed:
            raise self.not_allowed(f"This endpoint takes {allowed}", WITH_SSE, allowed)
        if not self.is_post:
            return SharedStream(self, ClientSession.open(self.request))
        self.enter(parse_qs(self.query).get(PARAMETER, [""])[-1])
        session = self.session
        stream = SessionStreams(session).shared() if session is not None else None
        if session is None or stream is None:
            raise SessionNotFound
        accepted = Response(202, headers=self.cors())
        try:
            call = classify(self.body, {}, session=session)
        except Rejected as rejected:
            if rejected.id is None:
                raise
            stream.append([self.rejected(rejected).body])
            return accepted
        if not isinstance(call, Call):
            raise Refused(400, "The body must be one request or notification", WITH_SSE)
        if call.id is None:
            self.take_notification(call)
            return accepted
        execution = CallExecution(self.request, call)
        work = partial(self.guarded, partial(self._run, session, execution, stream.id))
        return Handover(execution.lane, self.caller, work)

    def _run(self, session: ClientSession, execution: CallExecution, stream_id: str) -> "SharedCall":
        outcome = execution.begin_late()
        call = execution.call
        if call.method == "initialize":
            session.introduce(call)
        return SharedCall(self, call, outcome, stream_id)


class SharedCall(SessionCall):
    """Runner of a call whose messages go out on the one stream of its session."""

    is_shared = True

    async def run(self, connection: Connection) -> None:
        await connection.respond(Response(202, headers=self.exchange.cors()))
        self.exchange.outlives_connection = True
        self.start()

    def write(self, first: int, messages: list[bytes], is_over: bool) -> bool:
        return not messages or StoredStream(self.log.id).append(messages)


class SharedStream:
    """The one stream of a session, with the messages of its calls and of changes."""

    def __init__(self, exchange: Exchange, session_id: str) -> None:
        self.exchange = exchange
        self.session_id = session_id

    async def run(self, connection: Connection) -> None:
        exchange = self.exchange
        exchange.swap_place()
        run = partial(in_thread, "reads", thread_sensitive=exchange.request.mcp.site.needs_middleware)
        session = await run(lambda: ClientSession.find(exchange.request, self.session_id))
        self.stream = await run(lambda: SessionStreams(session).open(None, b"", session.version))
        self.mailbox = Mailbox()
        self.changes = SessionChanges(exchange, session, self.mailbox)
        await connection.open_stream(exchange.cors())
        path = f"{exchange.request.META['SCRIPT_NAME']}{exchange.resource.path}{MESSAGES}"
        narrowed = NarrowingQuery(exchange.query).kept()
        where = f"{path}?{PARAMETER}={quote(self.session_id)}{'&' if narrowed else ''}{narrowed}"
        tail = Tail(exchange, self.stream.id, 0, session.version)
        is_listening = asyncio.Event()
        forwarding = asyncio.ensure_future(self.forward(tail, is_listening))
        try:
            # Send the URL after subscribing: a client that knows it misses no change from then on.
            await is_listening.wait()
            await connection.send_event(endpoint_event(where))
            await tail.send(connection)
        finally:
            forwarding.cancel()
            await run(session.end)

    async def forward(self, tail: Tail, is_listening: asyncio.Event) -> None:
        """Write notifications and signs of life to the session's stored stream until cancelled."""
        try:
            async with self.changes.followed():
                is_listening.set()
                await relay(self.mailbox, self.deliver, StoredStream.ALIVE_EVERY)
        except Exception as error:
            # Log the error and end the stream; the client opens another one.
            self.exchange.failed(error)
        finally:
            is_listening.set()
            tail.leave()

    async def deliver(self) -> bool:
        """Write waiting notifications, or a sign of life, to the stored stream; return whether any waited."""
        # A request that changes the session's subscriptions waits only for a stream that holds the lease.
        await self.changes.hold()
        await self.changes.catch_up()
        return await in_thread("reads", self.write)

    def write(self) -> bool:
        messages = [Message(method, params).encode() for method, params in self.mailbox.take()]
        if messages:
            self.stream.append(messages)
        else:
            StoredStream.keep_alive([self.stream.id])
        return bool(messages)


def endpoint_event(uri: str) -> bytes:
    """Return the first event of the stream, which names the URL that the client posts to."""
    return f"event: endpoint\ndata: {uri}\n\n".encode()


def as_application(site: MCPSite, attributes: Mapping[str, Any] | None = None) -> Any:
    return MCPConsumer.as_asgi(exchange=partial(SSEExchange, site, attributes=attributes))
