"""The record of a call for operators: it begins, counts the queries, and ends with an outcome.

Receivers of ``call_started`` can refuse a call here.
"""

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from django.db import connections

from ..conf import settings
from ..context.call_record import CallRecord
from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..exceptions import CallRefused, ToolError
from ..protocol.eras import Call
from ..protocol.errors import INTERNAL_ERROR
from ..runtime.thread_pools import in_background
from ..signals import call_finished, call_started
from ..signin import FactName
from . import call_log_storage
from .captured_contents import LEFT_OUT, captured
from .daily_budgets import Budgets
from .failure_causes import cause_of
from .switches import board

logger = logging.getLogger("mcp_django")

# Maximum characters of a name that comes from a client or a token.
MAX_NAME: Final = 100
TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.DOTALL)
# Outcomes of calls whose client no longer waits, and what the log says about their writes.
STOPPED: Final = frozenset({"cancelled", "error:timeout"})
UNDONE: Final = "Nothing was changed."
DONE: Final = "It was done nevertheless."
UNSURE: Final = "It was about to be done: look at the data."
# Clients ping only to see whether the server is there.
NOT_LOGGED: Final = frozenset({"ping"})
# Seconds of a period; maximum refusals with one cause that are logged in it, of all callers without a valid token
# together and of each caller with one; and maximum number of causes that are counted at a time.
PERIOD: Final = 60.0
OF_STRANGERS: Final = 60
OF_CALLER: Final = 600
MAX_COUNTED: Final = 1_000
# Outcomes by HTTP status; any other status is an error with its number.
REASONS: Final = {401: "refused:token", 403: "refused:origin", 429: "refused:rate"}

# By user and cause: when the period began, how many refusals were logged in it, and how many were left out.
_counted: OrderedDict[tuple[str, str], tuple[float, int, int]] = OrderedDict()
_lock = threading.Lock()


class RecordedCall:
    """One request as operators see it: who sent it, when it began, and the outcome with which it ends, or is refused.

    ``record`` is that of the request, unless another one is given.
    """

    __slots__ = ("record", "request")

    def __init__(self, request: MCPRequest, record: CallRecord | None = None) -> None:
        self.request = request
        self.record: CallRecord = request.mcp.record if record is None else record

    def begin(self, call: Call) -> None:
        """Fill the record of a call, check switches and budgets, and send ``call_started``."""
        request = self.request
        record = self.record
        self.describe_caller()
        record.method = call.method
        record.version = call.version
        arguments = None
        if call.method == "tools/call":
            record.tool = _name(call.params.get("name"))
            arguments = call.params.get("arguments")
            if isinstance(arguments, Mapping):
                record.model = _name(arguments.get("model"))
                record.action = _name(arguments.get("action"))
        if call.method not in NOT_LOGGED:
            if settings.CALL_LOG and settings.CALL_LOG["capture"] == "full":
                # The record keeps these until the call is logged.
                if arguments is None:
                    arguments = {name: value for name, value in call.params.items() if name not in LEFT_OUT}
                record.arguments = arguments
            request.mcp.off = board.current()
            self.refuse_if_off()
            if settings.BUDGETS:
                Budgets(request).check()
        call_started.send(sender=request.mcp.site, request=request, record=record)

    def underway(self, call: Call) -> "Underway":
        """Return the context of a part of the call: its record and OpenTelemetry span are the current ones."""
        return Underway(self.request, call)

    @contextmanager
    def by_operator(
        self, method: str, tool: str, *, model: str = "", arguments: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Record the block as a call that writes, and that no client makes: a person in the console, or a command.

        Neither switches nor budgets hold it up: it takes back what clients did, perhaps while they are switched off.
        """
        record = self.record
        self.describe_caller()
        record.method = method
        record.tool = tool
        record.model = model
        record.writes = True
        if settings.CALL_LOG and settings.CALL_LOG["capture"] == "full":
            record.arguments = arguments
        current = CallRecord.current.set(record)
        try:
            with counted(record):
                yield
        except ToolError as error:
            record.settle(error.outcome)
            raise
        except CallRefused as error:
            record.settle(f"refused:{error.reason}", error.message)
            raise
        except BaseException:
            record.settle(f"error:{INTERNAL_ERROR}")
            raise
        finally:
            CallRecord.current.reset(current)
            self.finish("ok")

    def refuse_if_off(self) -> None:
        """Raise ``CallRefused`` if an operator has switched the caller off."""
        off = self.request.mcp.off
        if off is not None and (switch := off.caller(self.record)) is not None:
            raise switch.refusal()

    def describe_caller(self) -> None:
        """Write user, client, token, session and trace of the caller into the record."""
        request = self.request
        record = self.record
        context = request.mcp
        user = getattr(request, "user", None)
        auth = getattr(request, "auth", None)
        record.site = context.site.name
        if user is not None and (pk := user.pk) is not None:
            record.user = str(pk)
            record.username = _name(user.get_username())
        record.client_id = context.client_id
        record.client_name = _name(context.client.name)
        if record.client_id.startswith("https://"):
            record.client_host = urlsplit(record.client_id).hostname or ""
        is_local = context.resource == "stdio:"
        if not record.kind and (is_local or user is not None):
            record.kind = "service" if FactName.SERVICE_ACCOUNT in context.facts else "person"
            if is_local:
                record.kind = "stdio"
        # Part of a checksum: it finds the token again, and cannot be used as one.
        record.token = getattr(auth, "checksum", "")[:16]
        record.session = getattr(context.session, "id", "")
        if not record.trace and (match := TRACE.fullmatch(context.trace.get("traceparent", ""))):
            record.trace = match[1]
            record.traceparent = match[0]

    def finish(self, outcome: str, size: int = 0) -> None:
        """End a call, once: send ``call_finished``, spend budgets, and log the record.

        A write is logged before this returns, any other call within seconds.
        """
        request = self.request
        record = self.record
        if record.duration:
            return
        record.duration = (time.perf_counter() - record.began) * 1000
        record.outcome = record.outcome or outcome
        record.size = size
        if record.writes and outcome in STOPPED:
            # The log says what happens to the transaction, if one is open.
            kept = record.kept
            record = copy(record)
            if kept is not None and record.is_ending:
                record.detail = UNSURE
            elif kept is not None:
                record.undo(*kept)
                record.detail = UNDONE
            elif record.rows_changed or record.history:
                record.detail = DONE
        record.cause = cause_of(record)
        if record.cause:
            record.release = settings.SERVER["version"]
        if settings.BUDGETS and record.method not in NOT_LOGGED:
            Budgets(request).spend()
        for receiver, error in call_finished.send_robust(sender=request.mcp.site, request=request, record=record):
            if isinstance(error, Exception):
                logger.error("%r failed at the end of a call", receiver, exc_info=error)
        if self.record.span is not None or settings.TELEMETRY["prometheus"]:
            self._measure()
        if settings.CALL_LOG and record.method not in NOT_LOGGED and not record.is_silent:
            if record.arguments is not None:
                record.bodies = captured(request)
            try:
                call_log_storage.write(record) if record.writes else call_log_storage.put(record)
            except Exception as error:
                logger.error("A call is not in the log of calls", exc_info=error)

    def refuse(self, outcome: str | int, detail: str = "", *, method: str = "", cause: str = "") -> None:
        """Record a request that was refused before it became a call, like :meth:`finish`.

        ``outcome`` is as in the log, or the HTTP status that says it, ``detail`` explains it, and ``method`` is the
        method of the request, if it is known. ``cause`` distinguishes refusals with the same outcome; it has to be a
        text of this package, so that strangers cannot make new causes. On an event loop, a background thread calls the
        receivers.
        """
        record = self.record
        if isinstance(outcome, int):
            outcome = REASONS.get(outcome, f"error:{outcome}")
        is_told = settings.CALL_LOG or call_finished.has_listeners()
        if record.duration or not (is_told or settings.TELEMETRY["prometheus"] or record.span is not None):
            return
        record.method = record.method or plain(method, MAX_NAME)
        self.describe_caller()
        left_out = _count(record, outcome, cause) if is_told else None
        if left_out is None:
            # Neither log nor receivers get this refusal, but metrics count it, and its span ends.
            record.settle(outcome)
            record.duration = (time.perf_counter() - record.began) * 1000
            self._measure()
            return
        more = f" ({left_out} more of these are not in the log)" if left_out else ""
        record.settle(outcome, f"{detail}{more}")
        if call_finished.has_listeners() and call_log_storage.is_on_loop():
            in_background(partial(self.finish, outcome))
        else:
            self.finish(outcome)

    def _measure(self) -> None:
        """End the span of a call and count it in the metrics; errors are logged."""
        try:
            request = self.request
            if self.record.span is not None:
                from .opentelemetry_spans import end

                end(request)
            if settings.TELEMETRY["prometheus"]:
                from .metrics import observe

                observe(self.record)
        except Exception as error:
            logger.error("A call could not be measured", exc_info=error)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        return ""
    if given.isascii() and given.isprintable():
        return given[:MAX_NAME]
    return plain(given, MAX_NAME)


class Underway:
    """A context manager around each part of a call: its record and OpenTelemetry span are the current ones."""

    __slots__ = ("record", "span", "token")

    def __init__(self, request: MCPRequest, call: Call) -> None:
        self.record = request.mcp.record
        self.span: AbstractContextManager[None] | None = None
        if settings.TELEMETRY["opentelemetry"]:
            from .opentelemetry_spans import within

            self.span = within(request, call)

    def __enter__(self) -> None:
        if self.span is not None:
            self.span.__enter__()
        self.token = CallRecord.current.set(self.record)

    def __exit__(self, *raised: Any) -> None:
        CallRecord.current.reset(self.token)
        if self.span is not None:
            self.span.__exit__(*raised)


class counted:
    """A context manager that counts this thread's database queries in the record."""

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


def _count(record: CallRecord, outcome: str, cause: str) -> int | None:
    """Count a refusal: return how many of its cause were not logged before it, None if this one is not to be logged."""
    key = (record.user, f"{outcome} {cause}")
    most = OF_CALLER if record.user else OF_STRANGERS
    now = time.monotonic()
    with _lock:
        began, logged, left_out = _counted.pop(key, (now, 0, 0))
        if now - began >= PERIOD:
            began = now
            logged = 0
        while len(_counted) >= MAX_COUNTED:
            _counted.popitem(last=False)
        if logged >= most:
            _counted[key] = began, logged, left_out + 1
            return None
        _counted[key] = began, logged + 1, 0
        return left_out
