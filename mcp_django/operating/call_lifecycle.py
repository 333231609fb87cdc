"""The lifecycle of a call for operators: its record begins, its queries are counted, and it ends with an outcome.

Receivers of ``call_started`` can refuse a call here; arguments and results are captured without their secrets.
"""

import json
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from django.db import connections
from django.db.models import Model
from django.utils.module_loading import import_string

from ..conf import settings
from ..context.call_record import CURRENT, CallRecord
from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..protocol.eras import Call
from ..protocol.errors import ProtocolError
from ..protocol.messages import decode
from ..runtime.thread_pools import in_background
from ..schema.secrets import HIDDEN, is_sensitive, without_likely_secrets
from ..schema.secrets import MAX_NAME as MAX_FIELD_NAME
from ..signals import call_finished, call_started
from ..signin import SERVICE_ACCOUNT
from . import call_log_storage, daily_budgets
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


def begin(request: MCPRequest, call: Call) -> None:
    """Fill the record of a call, check switches and budgets, and send ``call_started``."""
    record = request.mcp.record
    describe_caller(request, record)
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
        refuse_if_off(request)
        daily_budgets.check(request)
    call_started.send(sender=request.mcp.site, request=request, record=record)


def refuse_if_off(request: MCPRequest) -> None:
    """Raise ``CallRefused`` if an operator has switched the caller off."""
    off = request.mcp.off
    if off is not None and (switch := off.caller(request.mcp.record)) is not None:
        raise switch.refusal()


def _name(given: Any) -> str:
    if not isinstance(given, str):
        return ""
    if given.isascii() and given.isprintable():
        return given[:MAX_NAME]
    return plain(given, MAX_NAME)


def describe_caller(request: MCPRequest, record: CallRecord) -> None:
    """Write user, client, token, session and trace of the caller into the record."""
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
        record.kind = "service" if SERVICE_ACCOUNT in context.facts else "person"
        if is_local:
            record.kind = "stdio"
    # Part of a checksum: it finds the token again, and cannot be used as one.
    record.token = getattr(auth, "checksum", "")[:16]
    record.session = getattr(context.session, "id", "")
    if not record.trace and (match := TRACE.fullmatch(context.trace.get("traceparent", ""))):
        record.trace = match[1]
        record.traceparent = match[0]


class underway:
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
        self.token = CURRENT.set(self.record)

    def __exit__(self, *raised: Any) -> None:
        CURRENT.reset(self.token)
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


def finish(request: MCPRequest, outcome: str, size: int = 0) -> None:
    """End a call, once: send ``call_finished``, spend budgets, and log the record.

    A write is logged before this returns, any other call within seconds.
    """
    record = request.mcp.record
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
    if record.method not in NOT_LOGGED:
        daily_budgets.spend(request)
    for receiver, error in call_finished.send_robust(sender=request.mcp.site, request=request, record=record):
        if isinstance(error, Exception):
            logger.error("%r failed at the end of a call", receiver, exc_info=error)
    if request.mcp.record.span is not None or settings.TELEMETRY["prometheus"]:
        measure(request)
    if settings.CALL_LOG and record.method not in NOT_LOGGED:
        if record.arguments is not None:
            record.bodies = captured(request)
        try:
            call_log_storage.write(record) if record.writes else call_log_storage.put(record)
        except Exception as error:
            logger.error("A call is not in the log of calls", exc_info=error)


def measure(request: MCPRequest) -> None:
    """End the span of a call and count it in the metrics; errors are logged."""
    try:
        if request.mcp.record.span is not None:
            from .opentelemetry_spans import end

            end(request)
        if settings.TELEMETRY["prometheus"]:
            from .metrics import observe

            observe(request.mcp.record)
    except Exception as error:
        logger.error("A call could not be measured", exc_info=error)


# Seconds of a period; maximum refusals with one cause that are logged in it, of all callers without a valid token
# together and of each caller with one; and maximum number of causes that are counted at a time.
PERIOD: Final = 60.0
OF_STRANGERS: Final = 60
OF_CALLER: Final = 600
MAX_COUNTED: Final = 1_000
# Outcomes by HTTP status; any other status is an error with its number.
RATE: Final = "refused:rate"
TOKEN: Final = "refused:token"
REASONS: Final = {401: TOKEN, 403: "refused:origin", 429: RATE}

# By user and cause: when the period began, how many refusals were logged in it, and how many were left out.
_counted: OrderedDict[tuple[str, str], tuple[float, int, int]] = OrderedDict()
_lock = threading.Lock()


def outcome_of(status: int) -> str:
    """Return the outcome of a refused request, by its HTTP status."""
    return REASONS.get(status, f"error:{status}")


def refused(request: MCPRequest, outcome: str, detail: str = "", *, method: str = "", cause: str = "") -> None:
    """Record a request that was refused before it became a call, like :func:`finish`.

    ``outcome`` is as in the log, ``detail`` explains it, and ``method`` is the method of the request, if it is known.
    ``cause`` distinguishes refusals with the same outcome; it has to be a text of this package, so that strangers
    cannot make new causes. On an event loop, a background thread calls the receivers.
    """
    record = request.mcp.record
    is_told = settings.CALL_LOG or call_finished.has_listeners()
    if record.duration or not (is_told or settings.TELEMETRY["prometheus"] or record.span is not None):
        return
    record.method = record.method or plain(method, MAX_NAME)
    describe_caller(request, record)
    left_out = _count(record, outcome, cause) if is_told else None
    if left_out is None:
        # Neither log nor receivers get this refusal, but metrics count it, and its span ends.
        record.settle(outcome)
        record.duration = (time.perf_counter() - record.began) * 1000
        measure(request)
        return
    more = f" ({left_out} more of these are not in the log)" if left_out else ""
    record.settle(outcome, f"{detail}{more}")
    if call_finished.has_listeners() and call_log_storage.is_on_loop():
        in_background(partial(finish, request, outcome))
    else:
        finish(request, outcome)


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


# Members of a JSON object that name a field, and members that hold the value of this field.
NAMED_BY: Final = ("field", "name", "path", "column")
VALUES: Final = ("value", "values", "equals")
# Parameters that are not arguments, or that are signed.
LEFT_OUT: Final = frozenset({"_meta", "inputResponses", "requestState"})
# Marks the end of a text that was cut.
CUT: Final = "…"


def captured(request: MCPRequest) -> tuple[str, str]:
    """Return the arguments and the result of a call as JSON, redacted and cut.

    Values that are named like a secret, or look like one, are blanked first. Then the project's own ``redact`` runs.
    If either fails, nothing is kept.
    """
    record: CallRecord = request.mcp.record
    exposure = request.mcp.site.exposures_by_label.get(record.model)
    blank = Blanking(exposure.model if exposure is not None else None)
    try:
        arguments = blank.value(record.arguments)
        result = blank.value(_result_of(record.result))
        if redact := settings.CALL_LOG["redact"]:
            arguments, result = import_string(redact)(record.tool, arguments, result)
        return _text(arguments), _text(result)
    except Exception as error:
        # Do not log the error's text: it may contain what was to be redacted.
        logger.error("What a call was about is not kept: redacting it failed (%s)", type(error).__name__)
        return "", ""


def _result_of(body: bytes | None) -> Any:
    """Return what is captured of a response: the result or error, without the text that repeats structured content."""
    try:
        response = decode(body) if body else None
    except ProtocolError:
        return None
    if not isinstance(response, dict):
        return response
    result = response.get("result", response.get("error"))
    if isinstance(result, dict) and "structuredContent" in result:
        return {**result, "content": [block for block in result.get("content", ())[1:] if isinstance(block, dict)]}
    return result


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    return json.dumps(char)[1:-1]


def _text(value: Any) -> str:
    if value is None:
        return ""
    most: int = settings.CALL_LOG["max_bytes"]
    text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    if not text.isprintable():
        # Escape invisible characters and those that turn the direction of a text: they can mislead the reader.
        text = "".join(map(_visible, text))
    written = text.encode()
    if len(written) <= most:
        return text
    return written[:most].decode(errors="ignore") + CUT


class Blanking:
    """Replaces secrets by ``HIDDEN`` in captured arguments and results.
    ``model`` is the call's model, if known: its fields can be secrets even if their names do not look like it."""

    def __init__(self, model: type[Model] | None = None) -> None:
        self.model = model

    def value(self, value: Any) -> Any:
        """Return a JSON value without its secrets."""
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if not isinstance(value, Mapping):
            return without_likely_secrets(value)
        members = {str(name): self._member(str(name), item) for name, item in value.items()}
        columns = value.get("columns")
        rows = value.get("rows")
        if isinstance(columns, list) and isinstance(rows, list):
            secret = [self._is_secret(name) for name in columns]
            members["rows"] = [self._row(secret, row) for row in rows]
        if any(self._is_secret(value.get(name)) for name in NAMED_BY):
            members |= {name: HIDDEN for name in VALUES if name in value}
        return members

    def _member(self, name: str, item: Any) -> Any:
        if item is None or item == "" or isinstance(item, bool):
            return item
        return HIDDEN if self._is_secret(name) else self.value(item)

    def _row(self, secret: Sequence[bool], row: Any) -> Any:
        if not any(secret):
            return self.value(row)
        if not isinstance(row, list):
            return HIDDEN
        return [self._cell(item, is_secret) for is_secret, item in zip(secret, row, strict=False)]

    def _cell(self, item: Any, is_secret: bool) -> Any:
        if is_secret and item is not None:
            return HIDDEN
        return self.value(item)

    def _is_secret(self, name: Any) -> bool:
        """Return whether a name is that of a secret, alone or with a lookup or a path."""
        if not isinstance(name, str):
            return False
        name = name[:MAX_FIELD_NAME]
        parts = [name, *name.replace("__", ".").split(".")]
        return any(is_sensitive(part) or (self.model is not None and is_sensitive(part, self.model)) for part in parts)
