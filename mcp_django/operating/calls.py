"""The life of a call as those see it who run the site: it begins, is counted, and ends with an outcome.

What has to be told before a call may go on is told here too: receivers of ``call_started`` can refuse it.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any, ClassVar, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from django.db import connections

from ..conf import settings
from ..context.record import CURRENT, CallRecord
from ..context.request import MCPRequest
from ..context.text import plain
from ..exceptions import Cancelled, InsufficientScope
from ..protocol.eras import Call
from ..protocol.errors import InvalidRequest
from ..signals import call_finished, call_started
from ..signin import SERVICE_ACCOUNT
from . import budgets, capture, log
from .switches import board

logger = logging.getLogger("mcp_django")

# Characters of what a client or a token names.
MAX_NAME: Final = 100
TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.DOTALL)
# Outcomes of calls for whose end nobody waits, and what the log says of their writes.
STOPPED: Final = frozenset({"cancelled", "error:timeout"})
UNDONE: Final = "Nothing was changed."
DONE: Final = "It was done all the same."
UNSURE: Final = "It was about to be done: look at the data."
# Clients send it to see whether anybody is there.
NOT_LOGGED: Final = frozenset({"ping"})


def begin(request: MCPRequest, call: Call) -> None:
    """Begin the record of a call, whose caller is known.

    Raises:
        CallRefused: the caller is switched off, its budget is used up, or a receiver of ``call_started`` does not let
            it go on.
    """
    record = request.mcp.record
    describe_caller(request, record)
    record.method, record.version = call.method, call.version
    _name_target(record, call.params)
    if settings.CALL_LOG is not True and capture.is_wanted():
        capture.keep(request, call.params)
    # At rest this is two attributes: each call passes here.
    if time.monotonic() >= board.due:
        board.renew()
    request.mcp.off = board.off
    if board.off is not None and record.method not in NOT_LOGGED:
        refuse_if_off(request)
    if settings.BUDGETS:
        budgets.check(request)
    if call_started.has_listeners():
        call_started.send(sender=request.mcp.site, request=request, record=record)


def refuse_if_off(request: MCPRequest) -> None:
    """Look whether the caller, whose record says who it is, is switched off.

    Raises:
        CallRefused: it is.
    """
    off = request.mcp.off
    if off is not None and (found := off.caller(request.mcp.record)) is not None:
        raise found.refusal()


def _name_target(record: CallRecord, params: Mapping[str, Any]) -> None:
    if record.method == "tools/call":
        record.tool = _name(params.get("name"))
        arguments = params.get("arguments")
        if isinstance(arguments, Mapping):
            record.model, record.action = _name(arguments.get("model")), _name(arguments.get("action"))


def _name(given: Any) -> str:
    if not isinstance(given, str):
        return ""
    return given[:MAX_NAME] if given.isascii() and given.isprintable() else plain(given, MAX_NAME)


def describe_caller(request: MCPRequest, record: CallRecord) -> None:
    """Write down who calls, as far as it is known."""
    context, user, auth = request.mcp, getattr(request, "user", None), getattr(request, "auth", None)
    record.site = context.site.name
    if user is not None and user.pk is not None:
        record.user, record.username = str(user.pk), _name(user.get_username())
    record.client_id, record.client_name = context.client_id, _name(context.client.name)
    if record.client_id.startswith("https://"):
        record.client_host = urlsplit(record.client_id).hostname or ""
    is_local = context.resource == "stdio:"
    if not record.kind and (is_local or user is not None):
        record.kind = "stdio" if is_local else "service" if SERVICE_ACCOUNT in context.facts else "person"
    # Enough to find the token again, and nothing that could stand for it.
    record.token = getattr(auth, "checksum", "")[:16]
    record.session = getattr(context.session, "id", "")
    if not record.trace and (found := TRACE.fullmatch(context.trace.get("traceparent", ""))):
        record.trace, record.traceparent = found[1], found[0]


class Outcome(Protocol):
    """What comes of a call, or of a part of it: ``ends`` says as what the call ends, "" where something follows."""

    ends: ClassVar[str]


T = TypeVar("T", bound=Outcome)


def watched(request: MCPRequest, call: Call, work: Callable[[], T]) -> T:
    """Return what comes of a call, or of a part of it, and end its record where nothing follows."""
    try:
        with underway(request, call), counted(request.mcp.record) if _is_told() else nullcontext():
            outcome = work()
    except (InsufficientScope, Cancelled) as error:
        if isinstance(error, InsufficientScope):
            request.mcp.record.code = InvalidRequest.code
        finish(request, "refused:scope" if isinstance(error, InsufficientScope) else "cancelled")
        raise
    if outcome.ends:
        body = getattr(outcome, "body", b"")
        if request.mcp.record.arguments is not None:
            request.mcp.record.result = body
        finish(request, outcome.ends, len(body))
    return outcome


@contextmanager
def underway(request: MCPRequest, call: Call) -> Iterator[None]:
    """Have log messages, queries and spans of the block belong to the call."""
    token = CURRENT.set(request.mcp.record)
    try:
        if settings.OPENTELEMETRY:
            from .spans import within

            with within(request, call):
                yield
        else:
            yield
    finally:
        CURRENT.reset(token)


def _is_told() -> bool:
    """Whether anybody is told how many queries there were."""
    is_measured = settings.OPENTELEMETRY or settings.PROMETHEUS
    return bool(settings.CALL_LOG or is_measured or call_finished.has_listeners())


def finish(request: MCPRequest, outcome: str, size: int = 0) -> None:
    """End the record of a call, once: tell the receivers of ``call_finished``, and have it logged.

    A write is logged when this returns; all else is logged within seconds.
    """
    record = request.mcp.record
    if record.duration:
        return
    record.duration = (time.perf_counter() - record.began) * 1000
    record.outcome, record.size = record.outcome or outcome, size
    if record.writes and outcome in STOPPED:
        record = _stopped(record)
    if settings.BUDGETS:
        budgets.spend(request)
    if call_finished.has_listeners():
        for receiver, error in call_finished.send_robust(sender=request.mcp.site, request=request, record=record):
            if isinstance(error, Exception):
                logger.error("%r failed on the end of a call", receiver, exc_info=error)
    if settings.OPENTELEMETRY or settings.PROMETHEUS:
        _measure(request)
    if settings.CALL_LOG and record.method not in NOT_LOGGED:
        if record.arguments is not None:
            record.bodies = capture.captured(request)
        try:
            log.write(record) if record.writes else log.put(record)
        except Exception as error:
            logger.error("A call is not in the log of calls", exc_info=error)


def _stopped(record: CallRecord) -> CallRecord:
    """Return the record of a write that was stopped, which says what becomes of its transaction if one is under way."""
    found, kept = copy(record), record.kept
    if kept is not None and record.is_ending:
        found.detail = UNSURE
    elif kept is not None:
        found.undo(*kept)
        found.detail = UNDONE
    elif record.rows_changed or record.history:
        found.detail = DONE
    return found


def pass_over(request: MCPRequest, outcome: str) -> None:
    """End the record of a refusal that nobody is told of, so that it is counted and its span ends."""
    record = request.mcp.record
    if settings.PROMETHEUS or record.span is not None:
        record.settle(outcome)
        record.duration = (time.perf_counter() - record.began) * 1000
        _measure(request)


def _measure(request: MCPRequest) -> None:
    """End the span of a call and count it, whatever becomes of that."""
    try:
        if request.mcp.record.span is not None:
            from .spans import end

            end(request)
        if settings.PROMETHEUS:
            from .metrics import observe

            observe(request.mcp.record)
    except Exception as error:
        logger.error("A call could not be measured", exc_info=error)


@contextmanager
def counted(record: CallRecord) -> Iterator[None]:
    """Add the queries of this thread to the record while the block runs."""

    def ask(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            record.queries += 1
            record.query_time += (time.perf_counter() - began) * 1000

    watched = [connection.execute_wrappers for connection in connections.all()]
    for wrappers in watched:
        wrappers.append(ask)
    try:
        yield
    finally:
        for wrappers in watched:
            wrappers.remove(ask)
