"""Streamable HTTP: handles the requests of this transport (a call, an answer, a stream, the end of a session).

A worker thread parses the request and returns a response, or a runner that needs the connection. It looks the session
up before it parses the message, because the session knows the protocol version and the client.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final

from ...exceptions import InsufficientScope
from ...protocol.eras import LEGACY_ERA, Batch, Call, Rejected, classify
from ...protocol.errors import InvalidRequest, ProtocolError
from ...protocol.headers import MediaType
from ...protocol.messages import ClientResponse
from ...protocol.server_sent_events import EventId
from ...protocol.versions import Revisions
from ...runtime.thread_pools import Handover
from ...server.kernel import Reply
from ...server.methods.handler_interface import Later, Listen
from ...server.sessions import ClientSession
from ...server.stored_streams import SessionStreams, StoredStream
from ...sites import MCPSite
from ..call_execution import CallExecution
from .asgi_consumer import MCPConsumer, Runner
from .call_runners import BatchCall, DirectCall, Resumed, SessionCall
from .event_streams import ListenStream, SessionStream, Tail
from .http_exchange import Exchange, Refused, Response, SessionNotFound

# As this server sends it; requests may spell it in any case.
SESSION_HEADER: Final = "Mcp-Session-Id"
SESSION: Final = SESSION_HEADER.lower()
LAST_EVENT: Final = "last-event-id"
# Remedies for refusals, for the log.
NEEDS_ASGI: Final = "Streams need an ASGI server: uvicorn or daphne."
NO_SESSION: Final = "Clients continue without one."

Outcome = Response | Runner


class StreamableExchange(Exchange):
    """One request of Streamable HTTP."""

    def take(self) -> Outcome | Handover[Outcome]:
        """Handle a POST, GET or DELETE: return a response, or work that runs elsewhere."""
        take = {"POST": self._post, "GET": self._get, "DELETE": self._delete}.get(self.request.method or "")
        if take is None:
            raise self.not_allowed()
        return take()

    def _session_id(self) -> str | None:
        if not self.can_stream or self.version_header in Revisions.SESSIONLESS:
            return None
        values = self.headers.get(SESSION)
        # Two ids, joined, match no session.
        return ",".join(values) if values else None

    def _begins_anew(self) -> bool:
        """Return whether the message is ``initialize``; the client may still send the id of a session that ended."""
        if b"initialize" not in self.body:
            return False
        try:
            call = classify(self.body, self.headers, session=None)
        except Rejected:
            return False
        return isinstance(call, Call) and call.method == "initialize" and call.id is not None

    def _post(self) -> Outcome | Handover[Outcome]:
        try:
            self.enter(self._session_id())
        except SessionNotFound:
            if not self._begins_anew():
                raise
        session = self.session
        match classify(self.body, self.headers, session=session):
            case ClientResponse() as response:
                assert session is not None
                resumption = SessionStreams(session).answer(response)
                if resumption is None:
                    return Response(202)
                return Resumed(self, resumption)
            case Batch() as batch:
                # Count the whole batch before any of it runs; the request itself counted as the first call.
                for _ in batch.items[1:]:
                    self.caller.count_call()
                return BatchCall(self, batch)
            case Call(id=None) as notification:
                self.take_notification(notification)
                return Response(202)
            case Call() as call:
                if call.method == "initialize" and session is not None:
                    error = InvalidRequest("Invalid request: the session is already initialized")
                    raise Rejected(error, call.era, call.id)
                self.request.mcp.live = session is not None and self.accepts_events
                execution = CallExecution(self.request, call)
                return Handover(execution.lane, self.caller, partial(self._run, execution, perf_counter()))

    def _run(self, execution: CallExecution, since: float) -> Outcome:
        call = execution.call
        record = self.request.mcp.record
        record.waiting = (record.waiting or 0.0) + (perf_counter() - since) * 1000
        try:
            outcome = execution.begin()
        except InsufficientScope as error:
            return self.forbidden(call, error)
        except Exception as error:
            return self.failed(error)
        if isinstance(outcome, Reply):
            response = self.respond(outcome)
            if call.method == "initialize" and self.can_stream:
                headers = {**response.headers, SESSION_HEADER: ClientSession.open(self.request, call)}
                response = Response(response.status, response.body, headers=headers)
            return response
        if isinstance(outcome, Listen):
            if not self.can_stream:
                text = f"{call.method} is answered with {MediaType.EVENTS}, which this server cannot send"
                return self.failed(Refused(406, text, NEEDS_ASGI))
            if not self.accepts_events:
                return self.failed(self.not_acceptable(MediaType.EVENTS))
            return ListenStream(self, call, outcome)
        if self.session is not None and self.accepts_events:
            return SessionCall(self, call, outcome)
        # Without a session, a call cannot ask its client while it runs, so the outcome is not Asked.
        assert isinstance(outcome, Later)
        return DirectCall(self, call, outcome)

    def _get(self) -> Outcome:
        """Handle a GET: open the session's stream, or resume a call's (``Last-Event-ID``)."""
        if not self.can_stream:
            raise self.not_allowed("This server cannot stream", NEEDS_ASGI)
        self.enter(self._session_id())
        if self.session is None:
            raise self.not_allowed("Without a session there is nothing to stream", NO_SESSION)
        self._check_version()
        if not self.accepts_events:
            raise self.not_acceptable(MediaType.EVENTS)
        if LAST_EVENT not in self.headers:
            return SessionStream(self, self.session)
        event = EventId.parse(self.header(LAST_EVENT) or "")
        if event is not None and event.stream == self.session.id:
            return SessionStream(self, self.session, missed=True)
        if event is None or not StoredStream(event.stream).is_owned_by(self.session):
            remedy = "The stream has ended: it is kept for ten minutes after the answer."
            raise Refused(400, "Last-Event-ID is not an event of this session", remedy)
        return Tail(self, event.stream, event.number, self.session.version)

    def _delete(self) -> Outcome:
        self.enter(self._session_id())
        if self.session is None:
            raise self.not_allowed("Without a session there is nothing to end", NO_SESSION)
        self._check_version()
        self.session.end()
        return Response(204, headers=self.cors())

    def _check_version(self) -> None:
        """Check the ``MCP-Protocol-Version`` of a GET or DELETE."""
        try:
            LEGACY_ERA.version(self.headers, self.session)
        except ProtocolError as error:
            raise Rejected(error, LEGACY_ERA, None) from None


def as_application(site: MCPSite, attributes: Mapping[str, Any] | None = None) -> Callable[..., Awaitable[None]]:
    """Return the ASGI application of ``site``, which makes a :class:`StreamableExchange` for each request."""
    exchange = partial(StreamableExchange, site, attributes=attributes)

    async def application(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        # The wrapper of Channels' as_asgi() would cost more than the consumer, as the fast road makes one a request.
        await MCPConsumer(exchange)(scope, receive, send)

    return application
