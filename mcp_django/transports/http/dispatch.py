"""Decide what a request asks for: a call, an answer to a question, a new stream, the end of a session.

All of it runs in a worker thread and gives an :data:`Outcome`: the whole answer, or what the connection has to do. A
session is looked up before the message is read: it knows the revision and the client.
"""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from asgiref.sync import async_to_sync

from ...conf import settings
from ...context.record import CallRecord
from ...context.request import Client, MCPRequest
from ...exceptions import InsufficientScope, NotFound
from ...orm.permissions import load_permissions
from ...protocol.eras import Call
from ...protocol.errors import InvalidRequest, ProtocolError
from ...protocol.http import EVENTS, LAST_EVENT_HEADER, SESSION_HEADER, Response
from ...protocol.inbound import LEGACY_ERA, Batch, Rejected, classify
from ...protocol.messages import ClientResponse, encode, error_response
from ...protocol.modern import VERSION_HEADER
from ...protocol.sse import parse_event_id
from ...protocol.versions import SESSIONLESS
from ...runtime.threads import Handover, LaneName
from ...server.dispatch import Reply, resume, resume_async, serve
from ...server.methods.base import Asked, Later, Listen
from ...server.sessions import ClientSession, find_session, open_session, topic
from ...server.streams import Resumption, answer_question, cancel, owns
from ...subscriptions.hub import hub
from .exchange import Exchange
from .limits import count_call

logger = logging.getLogger("mcp_django")

SESSION: Final = SESSION_HEADER.lower()
LAST_EVENT: Final = LAST_EVENT_HEADER.lower()
# Methods whose work is the project's rows and functions.
QUERYING: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
# For the log: what mends a refusal.
NEEDS_ASGI: Final = "Streams need an ASGI server: uvicorn or daphne."
NO_SESSION: Final = "Clients that have none go on without it; SESSIONS turns them on."


@dataclass(frozen=True, slots=True)
class Pending:
    """A call whose work has to run elsewhere, or waits for answers of the client; ``message`` is as the call came."""

    call: Call
    work: Later | Asked
    message: bytes


@dataclass(frozen=True, slots=True)
class Listening:
    """A stream of changes that belongs to one request (2026-07-28, basic/patterns/subscriptions)."""

    call: Call
    listen: Listen


@dataclass(frozen=True, slots=True)
class Changes:
    """The stream of changes of a session; ``missed`` says that the client had it before, and what came meanwhile."""

    session: ClientSession
    missed: bool


@dataclass(frozen=True, slots=True)
class Following:
    """The rest of a call's stream, after event number ``after``."""

    stream_id: str
    after: int
    version: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """A call that can go on: the client has answered all of its questions, the last one with this request."""

    resumption: Resumption


@dataclass(frozen=True, slots=True)
class Batched:
    """Several messages in one body (2025-03-26)."""

    batch: Batch


Outcome = Response | Pending | Listening | Changes | Following | Resumed | Batched


def answer(exchange: Exchange, body: bytes) -> Outcome | Handover[Outcome]:
    """Authenticate, read the message, run it: the whole answer, or what has to be done elsewhere first."""
    exchange.body = body
    return exchange.guarded(partial(_answer, exchange, body))


def _answer(exchange: Exchange, body: bytes) -> Outcome | Handover[Outcome]:
    exchange.admit()
    take = {"POST": take_post, "GET": take_get, "DELETE": take_delete}.get(exchange.request.method or "")
    return exchange.not_allowed() if take is None else take(exchange, body)


# Sessions


def _session_id(exchange: Exchange) -> str | None:
    if not settings.SESSIONS or not exchange.can_stream or exchange.version_header in SESSIONLESS:
        return None
    values = exchange.headers.get(SESSION)
    # Two ids are none that was ever given.
    return ",".join(values) if values else None


def enter_session(exchange: Exchange, text: str | None) -> Response | None:
    """Find the session of this id, if one is named; return the refusal when this caller has none of that id."""
    if text is None:
        return None
    try:
        exchange.session = find_session(exchange.request, text)
    except NotFound:
        return exchange.session_not_found()
    exchange.request.mcp.session = exchange.session
    return None


# POST


def take_post(exchange: Exchange, body: bytes) -> Outcome | Handover[Outcome]:
    """Take a message of the client."""
    refusal = exchange.check_types() or enter_session(exchange, _session_id(exchange))
    if refusal is not None:
        return refusal
    message = classify(body, exchange.headers, session=exchange.session)
    match message:
        case Call():
            return _take_call(exchange, message, body)
        case ClientResponse():
            return _take_response(exchange, message)
        case Batch():
            # All of them are counted before any is run: the request itself was the first.
            for _ in message.items[1:]:
                count_call(exchange.caller)
            return Batched(message)


def _take_response(exchange: Exchange, response: ClientResponse) -> Outcome:
    assert exchange.session is not None
    resumption = answer_question(exchange.session, response)
    return Response(202) if resumption is None else Resumed(resumption)


def _take_call(exchange: Exchange, call: Call, message: bytes) -> Outcome | Handover[Outcome]:
    if call.id is None:
        take_notification(exchange, call)
        return Response(202)
    if call.method == "initialize" and exchange.session is not None:
        raise Rejected(InvalidRequest("Invalid request: the session is initialized already"), call.era, call.id)
    exchange.request.mcp.live = exchange.session is not None and exchange.accepts_events
    work = partial(exchange.guarded, partial(_run_call, exchange, call, message))
    return Handover(lane_of(call.method), exchange.caller, work)


def lane_of(method: str) -> LaneName:
    """Return where calls of a method run: those that read rows hold up nobody who asks for a list."""
    return "queries" if method in QUERYING else "reads"


def _run_call(exchange: Exchange, call: Call, message: bytes) -> Outcome:
    try:
        outcome = begin(exchange.request, call)
    except InsufficientScope as error:
        return exchange.forbidden(call, error)
    match outcome:
        case Reply():
            return _with_session(exchange, call, exchange.respond(outcome))
        case Listen():
            if not (exchange.can_stream and exchange.accepts_events):
                return _cannot_listen(exchange, call)
            return Listening(call, outcome)
    return Pending(call, outcome, message)


def _cannot_listen(exchange: Exchange, call: Call) -> Response:
    if exchange.can_stream:
        return exchange.not_acceptable(EVENTS)
    return exchange.refuse(406, f"{call.method} is answered with {EVENTS}, which this server cannot send", NEEDS_ASGI)


def take_notification(exchange: Exchange, call: Call) -> None:
    """Take what needs no answer: that the client has given up a call of its session."""
    session, request_id = exchange.session, call.params.get("requestId")
    if call.method == "notifications/cancelled" and session is not None and isinstance(request_id, (str, int)):
        logger.info("Call %r was given up by its client: %.200r", request_id, call.params.get("reason", ""))
        cancel(session, request_id)
        hub.publish(topic(session.id), {"cancelled": request_id})


def _with_session(exchange: Exchange, call: Call, response: Response) -> Response:
    if call.method != "initialize" or not settings.SESSIONS or not exchange.can_stream:
        return response
    headers = {**response.headers, SESSION_HEADER: open_session(exchange.request, call)}
    return Response(response.status, response.body, headers=headers)


# Calls


def begin(request: MCPRequest, call: Call) -> Reply | Later | Asked | Listen:
    """Run a call, or as much of it as runs in this thread.

    Raises:
        InsufficientScope: the token lacks scopes.
    """
    context = request.mcp
    if context.record.method:
        # Others of a batch have the same request.
        context.record = CallRecord()
    context.version, context.capabilities = call.version, call.capabilities
    context.client = Client(str(call.client.get("name", "")), str(call.client.get("version", "")))
    context.progress_token, context.log_level = call.progress_token, call.log_level
    context.trace = call.trace
    if call.method != "ping":
        load_permissions(request.user)
    return serve(request, call)


def rerun(exchange: Exchange, resumption: Resumption) -> tuple[Call, Reply | Later | Asked]:
    """Run a call again with the answers to its questions, by the authority of the request that brought the last one."""
    call = classify(resumption.call, {VERSION_HEADER: [resumption.version]}, session=exchange.session)
    assert isinstance(call, Call)
    exchange.request.mcp.live = True
    exchange.request.mcp.answers = resumption.answers
    try:
        outcome = begin(exchange.request, call)
    except InsufficientScope as error:
        # There is no head of an answer left that could carry the challenge.
        outcome = Reply(encode(error_response(call.id, InvalidRequest(str(error)), modern=False)))
    assert not isinstance(outcome, Listen)
    return call, outcome


def conclude(request: MCPRequest, call: Call, later: Later) -> Reply:
    """Do work that was put off in this thread, whatever it is, as a WSGI server must."""
    run = async_to_sync(resume_async) if later.is_async else resume
    outcome = run(request, call, later)
    # Nobody can be asked here, so nothing asks.
    assert isinstance(outcome, Reply)
    return outcome


def run_batch(exchange: Exchange, batch: Batch) -> tuple[Response, list[Resumption]]:
    """Run the messages of a batch one after the other (2025-03-26).

    Returns the answer, which has one member for each request, and the calls that go on by the answers in it.
    """
    bodies, resumptions = [], []
    for item in batch.items:
        if exchange.request.mcp.cancelled:
            # The client was told that it took too long.
            break
        if isinstance(item, ClientResponse):
            assert exchange.session is not None
            resumption = answer_question(exchange.session, item)
            resumptions += [resumption] if resumption is not None else []
        elif (reply := _run_member(exchange, item)) is not None:
            bodies.append(reply.body)
    if not bodies:
        return Response(202, headers=exchange.cors()), resumptions
    return exchange.respond(Reply(b"[" + b",".join(bodies) + b"]")), resumptions


def _run_member(exchange: Exchange, item: Call | Rejected) -> Reply | None:
    if isinstance(item, Rejected):
        return exchange.rejected(item)
    if item.id is None:
        take_notification(exchange, item)
        return None
    try:
        outcome = begin(exchange.request, item)
    except InsufficientScope as error:
        return Reply(encode(error_response(item.id, InvalidRequest(str(error)), modern=False)))
    return conclude(exchange.request, item, outcome) if isinstance(outcome, Later) else _as_reply(outcome)


def _as_reply(outcome: Reply | Asked | Listen) -> Reply:
    assert isinstance(outcome, Reply)
    return outcome


# GET and DELETE


def take_get(exchange: Exchange, body: bytes) -> Outcome:
    """Open the session's stream of changes, or go on with the stream of a call (``Last-Event-ID``)."""
    if not exchange.can_stream:
        return exchange.not_allowed("This server cannot stream", NEEDS_ASGI)
    refusal = enter_session(exchange, _session_id(exchange))
    if refusal is not None or exchange.session is None:
        return refusal or exchange.not_allowed("Without a session there is nothing to stream", NO_SESSION)
    _check_version(exchange)
    if not exchange.accepts_events:
        return exchange.not_acceptable(EVENTS)
    if LAST_EVENT not in exchange.headers:
        return Changes(exchange.session, missed=False)
    event = parse_event_id(exchange.header(LAST_EVENT) or "")
    if event is not None and event[0] == exchange.session.id:
        return Changes(exchange.session, missed=True)
    if event is None or not owns(exchange.session, event[0]):
        remedy = "The stream is over: STREAM_MAX_AGE says how long it is kept."
        return exchange.refuse(400, "Last-Event-ID is none of this session's events", remedy)
    return Following(*event, exchange.session.version)


def _check_version(exchange: Exchange) -> None:
    """Refuse a revision that is none, which has no message that could say so."""
    try:
        LEGACY_ERA.version(exchange.headers, exchange.session)
    except ProtocolError as error:
        raise Rejected(error, LEGACY_ERA, None) from None


def take_delete(exchange: Exchange, body: bytes) -> Outcome:
    """End the session."""
    refusal = enter_session(exchange, _session_id(exchange))
    if refusal is not None or exchange.session is None:
        return refusal or exchange.not_allowed("Without a session there is nothing to end", NO_SESSION)
    _check_version(exchange)
    exchange.session.end()
    return Response(204, headers=exchange.cors())
