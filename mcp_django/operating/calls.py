"""The life of a call as those see it who run the site: it begins, is counted, and ends with an outcome.

What has to be told before a call may go on is told here too: receivers of ``call_started`` can refuse it.
"""

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from django.db import connections

from ..conf import settings
from ..context.record import CURRENT, CallRecord
from ..context.request import MCPRequest
from ..context.text import plain
from ..protocol.eras import Call
from ..runtime.threads import in_thread
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
    """Begin the record of a call, whose caller is known."""
    record = request.mcp.record
    describe_caller(request, record)
    record.method, record.version = call.method, call.version
    if call.method == "tools/call":
        record.tool = _name(call.params.get("name"))
        arguments = call.params.get("arguments")
        if isinstance(arguments, Mapping):
            record.model, record.action = _name(arguments.get("model")), _name(arguments.get("action"))
    if call.method not in NOT_LOGGED:
        if capture.is_wanted():
            capture.keep(request, call.params)
        request.mcp.off = board.current()
        refuse_if_off(request)
        budgets.check(request)
    call_started.send(sender=request.mcp.site, request=request, record=record)


def refuse_if_off(request: MCPRequest) -> None:
    """Look whether the caller, whose record says who it is, is switched off."""
    off = request.mcp.off
    if off is not None and (found := off.caller(request.mcp.record)) is not None:
        raise found.refusal()


def _name(given: Any) -> str:
    if not isinstance(given, str):
        return ""
    return given[:MAX_NAME] if given.isascii() and given.isprintable() else plain(given, MAX_NAME)


def describe_caller(request: MCPRequest, record: CallRecord) -> None:
    """Write down who calls, as far as it is known."""
    context, user, auth = request.mcp, getattr(request, "user", None), getattr(request, "auth", None)
    record.site = context.site.name
    if user is not None and (pk := user.pk) is not None:
        record.user, record.username = str(pk), _name(user.get_username())
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


class underway:
    """A context in which log messages, queries and the span, where calls have spans, belong to the call."""

    __slots__ = ("record", "span", "token")

    def __init__(self, request: MCPRequest, call: Call) -> None:
        self.record = request.mcp.record
        self.span: AbstractContextManager[None] | None = None
        if settings.OPENTELEMETRY:
            from .spans import within

            self.span = within(request, call)

    def __enter__(self) -> None:
        if self.span is not None:
            self.span.__enter__()
        self.token = CURRENT.set(self.record)

    def __exit__(self, *raised: Any) -> None:
        CURRENT.reset(self.token)
        if self.span is not None:
            self.span.__exit__(*raised)


class counted:
    """A context in which the queries of this thread are added to the record."""

    __slots__ = ("record", "wrappers")

    def __init__(self, record: CallRecord) -> None:
        self.record = record

    def __enter__(self) -> None:
        self.wrappers = [connection.execute_wrappers for connection in connections.all()]
        for wrappers in self.wrappers:
            wrappers.append(self.execute)

    def __exit__(self, *raised: object) -> None:
        for wrappers in self.wrappers:
            wrappers.remove(self.execute)

    def execute(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        """Execute a query and count it: an ``execute_wrapper`` of Django's."""
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            self.record.queries += 1
            self.record.query_time += (time.perf_counter() - began) * 1000


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
    if record.method not in NOT_LOGGED:
        budgets.spend(request)
    for receiver, error in call_finished.send_robust(sender=request.mcp.site, request=request, record=record):
        if isinstance(error, Exception):
            logger.error("%r failed on the end of a call", receiver, exc_info=error)
    if request.mcp.record.span is not None or settings.PROMETHEUS:
        measure(request)
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


def measure(request: MCPRequest) -> None:
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


# Seconds of a period; refusals of one cause that are kept of it, of all who have no good token together, and of one
# caller who has one; causes that are counted at a time.
PERIOD: Final = 60.0
OF_STRANGERS: Final = 60
OF_CALLER: Final = 600
MAX_COUNTED: Final = 1_000
# For the outcome, by HTTP status; any other is an error of its number.
RATE: Final = "refused:rate"
TOKEN: Final = "refused:token"
REASONS: Final = {401: TOKEN, 403: "refused:origin", 429: RATE}

# By cause: when its period began, how many were kept of it, and how many were not.
_counted: OrderedDict[tuple[str, str], tuple[float, int, int]] = OrderedDict()
_lock = threading.Lock()


def outcome_of(status: int) -> str:
    """Return the outcome of a request that was answered with this HTTP status."""
    return REASONS.get(status, f"error:{status}")


def refused(request: MCPRequest, outcome: str, detail: str = "", *, method: str = "", cause: str = "") -> None:
    """End the record of a request that is refused, unless it has ended: see :func:`~.calls.finish`.

    ``outcome`` is as in the log, ``detail`` says more of it, and ``method`` is what was asked for, as far as it is
    known. ``cause`` tells refusals of one outcome apart, and is one of the package's own texts: a stranger cannot make
    a new one. On an event loop receivers are told by a thread.
    """
    record = request.mcp.record
    is_told = settings.CALL_LOG or call_finished.has_listeners()
    if record.duration or not (is_told or settings.PROMETHEUS or record.span is not None):
        return
    record.method = record.method or plain(method, MAX_NAME)
    describe_caller(request, record)
    left_out = _count(record, outcome, cause) if is_told else None
    if left_out is None:
        # Nobody is told of it, but it is counted, and its span ends.
        record.settle(outcome)
        record.duration = (time.perf_counter() - record.began) * 1000
        measure(request)
        return
    more = f" ({left_out} more of these are not in the log)" if left_out else ""
    record.settle(outcome, f"{detail}{more}")
    if call_finished.has_listeners() and log.is_on_loop():
        in_thread("streams", partial(finish, request, outcome))
    else:
        finish(request, outcome)


def _count(record: CallRecord, outcome: str, cause: str) -> int | None:
    """Return how many were left out before, None where this one is."""
    key = (record.user, f"{outcome} {cause}")
    most, now = OF_CALLER if record.user else OF_STRANGERS, time.monotonic()
    with _lock:
        began, kept, left_out = _counted.pop(key, (now, 0, 0))
        if now - began >= PERIOD:
            began, kept = now, 0
        while len(_counted) >= MAX_COUNTED:
            _counted.popitem(last=False)
        if kept >= most:
            _counted[key] = began, kept, left_out + 1
            return None
        _counted[key] = began, kept + 1, 0
        return left_out


def forget() -> None:
    """Count anew."""
    with _lock:
        _counted.clear()
