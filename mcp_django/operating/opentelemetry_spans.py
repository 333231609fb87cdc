"""OpenTelemetry: a server span and a measurement for each call, and the durations of sessions.

Names and attributes are those of the conventions for MCP (open-telemetry/semantic-conventions-genai, gen-ai/mcp.md).
Arguments, results and messages of errors are left out, because they can contain the project's data. Measurements have
only known names as attributes: text from a client never makes a new series. The project sets up the providers. The
module needs the extra ``telemetry``, so it is imported only where it is used.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from ..context.call_record import FINE, CallRecord
from ..context.request import MCPContext, MCPRequest
from ..context.untrusted_text import plain
from ..protocol.eras import Call
from ..protocol.errors import InternalError

# Seconds, as the conventions recommend.
BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
# Maximum characters of a text from the client.
MAX_TEXT: Final = 255
# Methods whose spans have the URI of a resource.
WITH_URI: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
# How the client is reached: over standard input and output, or over HTTP.
LOCAL: Final = {"network.transport": "pipe"}
REMOTE: Final = {"network.transport": "tcp", "network.protocol.name": "http"}
# Outcomes of calls that timed out, or for which no thread was free.
STOPPED: Final = frozenset({"error:timeout", "error:503"})

# These are proxies: they use the providers that are set up by the time of their first use.
_tracer = trace.get_tracer("mcp_django")
_meter = metrics.get_meter("mcp_django")
_calls = _meter.create_histogram(
    "mcp.server.operation.duration",
    unit="s",
    description="MCP request or notification duration as observed on the receiver from the time it was received "
    "until the result or ack is sent.",
    explicit_bucket_boundaries_advisory=BUCKETS,
)
_sessions = _meter.create_histogram(
    "mcp.server.session.duration",
    unit="s",
    description="The duration of the MCP session as observed on the MCP server.",
    explicit_bucket_boundaries_advisory=BUCKETS,
)


@contextmanager
def within(request: MCPRequest, call: Call) -> Iterator[None]:
    """Make the call's span the current one, and start it if needed.

    Its parent is the client's span, and the span of the HTTP request is linked. If the client names no span, the span
    of the HTTP request is the parent.
    """
    record = request.mcp.record
    # This takes the client's baggage too.
    around = propagate.extract(request.mcp.trace) if request.mcp.trace else context.get_current()
    if record.span is None:
        here, parent = (trace.get_current_span(found).get_span_context() for found in (None, around))
        since = time.perf_counter() - record.began
        record.span = _tracer.start_span(
            call.method,
            around,
            SpanKind.SERVER,
            attributes={**_of_call(request, call), **_of_network(request)},
            links=[Link(here)] if here.is_valid and here != parent else [],
            start_time=time.time_ns() - int(since * 1e9),
        )
        own = record.span.get_span_context()
        record.trace = trace.format_trace_id(own.trace_id)
        record.traceparent = f"00-{record.trace}-{trace.format_span_id(own.span_id)}-{own.trace_flags:02x}"
    token = context.attach(trace.set_span_in_context(record.span, around))
    try:
        yield
    finally:
        context.detach(token)


def _of_call(request: MCPRequest, call: Call) -> dict[str, Any]:
    attributes: dict[str, Any] = {"mcp.method.name": call.method, "mcp.protocol.version": call.version}
    if call.id is not None:
        attributes["jsonrpc.request.id"] = plain(str(call.id), MAX_TEXT)
    uri = call.params.get("uri")
    if call.method in WITH_URI and isinstance(uri, str):
        attributes["mcp.resource.uri"] = plain(uri, MAX_TEXT)
    if session := getattr(request.mcp.session, "id", ""):
        attributes["mcp.session.id"] = session
    if call.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    attributes["mcp_django.call.id"] = request.mcp.record.id.hex
    if address := request.META.get("REMOTE_ADDR"):
        attributes["client.address"] = address
        if port := request.META.get("REMOTE_PORT"):
            attributes["client.port"] = int(port)
    return attributes


def _of_network(request: MCPRequest) -> Mapping[str, str]:
    if request.mcp.resource == MCPContext.LOCAL:
        return LOCAL
    attributes = dict(REMOTE)
    if version := request.META.get("SERVER_PROTOCOL", "").removeprefix("HTTP/"):
        attributes["network.protocol.version"] = version
    return attributes


def end(request: MCPRequest) -> None:
    """End the span of a call, with the attributes of its record, and measure its duration."""
    record = request.mcp.record
    span = record.span
    outcome = _of_outcome(record)
    if record.target:
        span.update_name(f"{record.method} {record.target}")
    if "error.type" in outcome:
        span.set_status(Status(StatusCode.ERROR))
    counts = {"queries": record.queries, "rows_read": record.rows_read, "rows_changed": record.rows_changed}
    span.set_attributes({**outcome, "mcp_django.outcome": record.outcome})
    span.set_attributes({f"mcp_django.{name}": count for name, count in counts.items() if count})
    if request.mcp.site.find_exposure(record.model) is not None:
        span.set_attribute("mcp_django.model", record.model)
    span.end()
    attributes: Mapping[str, str] = {"mcp.method.name": record.method, "mcp.protocol.version": record.version}
    if record.method == "tools/call":
        attributes = {**attributes, "gen_ai.operation.name": "execute_tool"}
    _calls.record(record.duration / 1000, {**attributes, **outcome, **_of_network(request)})


def _of_outcome(record: CallRecord) -> dict[str, str]:
    """Return the attributes of a finished call for span and measurement: tool or prompt, type of the error."""
    attributes = {}
    if record.target:
        attributes["gen_ai.tool.name" if record.method == "tools/call" else "gen_ai.prompt.name"] = record.target
    code = record.code or (InternalError.code if record.outcome in STOPPED else 0)
    if code:
        attributes["error.type"] = str(code)
        attributes["rpc.response.status_code"] = str(code)
    elif record.outcome not in FINE:
        kind, _, what = record.outcome.partition(":")
        # A refusal without an error code is the result of a tool, with isError.
        attributes["error.type"] = "tool_error" if kind in ("tool_error", "refused") else what or kind
    return attributes


def session_ended(seconds: float, version: str, *, is_local: bool = False) -> None:
    """Measure the duration of an ended session."""
    network = (
        {"network.transport": "pipe"} if is_local else {"network.transport": "tcp", "network.protocol.name": "http"}
    )
    _sessions.record(seconds, {"mcp.protocol.version": version, **network})
