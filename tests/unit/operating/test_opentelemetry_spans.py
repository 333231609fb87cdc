import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.db import connection
from opentelemetry import baggage, trace
from opentelemetry.trace import SpanKind, StatusCode

from mcp_django.exceptions import CallRefused
from mcp_django.operating.opentelemetry_spans import BUCKETS
from mcp_django.runtime.thread_pools import STREAM_THREADS, Busy, in_thread
from mcp_django.signals import call_started
from mcp_django.testing import MCPClient, MCPError
from tests import telemetry
from tests.configured import configure
from tests.factories import make_author, make_superuser, make_user
from tests.protocol_messages import LEGACY, MODERN
from tests.session_client import SessionClient
from tests.stdio_client import talk, tool

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

ROOT = Path(__file__).resolve().parents[3]
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
META = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "rojo=00f067aa0ba902b7", "baggage": "colour=red"}


@pytest.fixture(autouse=True)
def traced(settings):
    """Turn it on, with providers that tests can read."""
    configure(settings, TELEMETRY={"opentelemetry": True})
    telemetry.set_up()


@pytest.fixture
def client():
    return MCPClient(make_superuser())


def ids(span):
    return trace.format_trace_id(span.context.trace_id), trace.format_span_id(span.context.span_id)


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
def test_a_call_of_a_tool_is_a_server_span_as_the_conventions_have_it(version):
    client = MCPClient(make_superuser(), version=version)
    make_author("Ada")
    client.request("tools/call", name="query_records", arguments={"model": "testapp.author"}, _meta=META)
    (span,) = telemetry.spans()
    assert span.name == "tools/call query_records"
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET
    assert ids(span)[0] == TRACE
    assert (trace.format_span_id(span.parent.span_id), span.parent.is_remote) == (SPAN, True)
    found = dict(span.attributes)
    assert found.pop("mcp_django.queries") > 0
    assert len(found.pop("mcp_django.call.id")) == 32
    found.pop("mcp_django.rows_read", None)
    assert found == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": version,
        "jsonrpc.request.id": "1",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "query_records",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "mcp_django.outcome": "ok",
        "mcp_django.model": "testapp.author",
    }
    (point,) = telemetry.measurements("mcp.server.operation.duration")
    assert point.explicit_bounds == BUCKETS
    assert (point.count, point.sum) == (1, pytest.approx((span.end_time - span.start_time) / 1e9, abs=0.05))
    assert dict(point.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": version,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "query_records",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
    }


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
@pytest.mark.django_db(transaction=True)
async def test_over_pipes_it_is_a_span_too(version):
    async with talk() as client:
        if version == MODERN:
            await client.call_modern("tools/call", tool("list_models"), **META)
        else:
            await client.begin(version)
            await client.call("tools/call", {**tool("list_models"), "_meta": META})
    span = telemetry.spans()[-1]
    assert span.name == "tools/call list_models"
    assert span.attributes["network.transport"] == "pipe"
    assert not {name for name in span.attributes if name.startswith(("network.protocol", "client."))}
    assert span.attributes["mcp.protocol.version"] == version
    assert ids(span)[0] == TRACE
    ended = telemetry.measurements("mcp.server.session.duration")
    expected = {"mcp.protocol.version": version, "network.transport": "pipe"}
    assert [dict(point.attributes) for point in ended] == ([expected] if version != MODERN else [])


@pytest.mark.parametrize("version", [version for version in LEGACY if version >= "2025-03-26"])
async def test_a_session_has_its_id_in_spans_and_is_measured_at_its_end(token, version):
    client = SessionClient(token, version=version)
    await client.initialize()
    await client.result("tools/list")
    first, second = telemetry.spans()
    assert (first.name, "mcp.session.id" in first.attributes) == ("initialize", False)
    session = second.attributes["mcp.session.id"]
    assert len(session) == 32
    assert session not in client.session
    assert telemetry.measurements("mcp.server.session.duration") == []
    exchange = client.open("DELETE")
    await exchange.send(b"")
    assert (await exchange.answer())[0] == 204
    (point,) = telemetry.measurements("mcp.server.session.duration")
    assert (point.count, point.explicit_bounds) == (1, BUCKETS)
    assert point.attributes["mcp.protocol.version"] == version


def test_the_span_of_the_http_request_is_linked_where_the_client_names_one(client):
    with telemetry.ambient() as http:
        client.request("tools/list", _meta=META)
    (span,) = telemetry.spans()
    assert ids(span)[0] == TRACE
    assert [link.context for link in span.links] == [http.get_span_context()]


def test_without_a_span_of_the_client_that_of_the_http_request_is_the_parent(client):
    with telemetry.ambient() as http:
        client.tools()
    (span,) = telemetry.spans()
    assert span.parent == http.get_span_context()
    assert not span.links


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": "00-" + "0" * 32 + f"-{SPAN}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": "<script>", "tracestate": "x" * 10_000},
        {"tracestate": "a=b"},
        {"baggage": "a\nb"},
    ],
)
def test_a_trace_context_that_is_none_begins_a_trace_of_its_own(client, meta):
    client.request("tools/list", _meta=meta)
    (span,) = telemetry.spans()
    assert span.parent is None
    assert ids(span)[0] != TRACE


def test_what_the_call_does_is_within_its_span_in_each_thread(client, tools):
    tracer, seen = trace.get_tracer("tests"), []

    def work(request) -> str:
        """Run in the pool for tools."""
        with tracer.start_as_current_span("SELECT"), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        seen.append(baggage.get_baggage("colour"))
        return "done"

    async def work_async(request) -> str:
        """Run on the loop."""
        with tracer.start_as_current_span("GET"):
            return "done"

    tools(work, scopes=["mcp:read"])
    tools(work_async, scopes=["mcp:read"])
    client.request("tools/call", name="work", arguments={}, _meta=META)
    client.request("tools/call", name="work_async", arguments={})
    query, call, get, other = telemetry.spans(own=False)
    assert (query.parent, get.parent) == (call.context, other.context)
    assert (call.name, other.name) == ("tools/call work", "tools/call work_async")
    assert seen == ["red"]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_what_runs_in_worker_threads_is_within_the_span(token, tools):
    tracer = trace.get_tracer("tests")

    def work(request) -> str:
        """Run in a thread of the pool."""
        with tracer.start_as_current_span("SELECT"):
            return "done"

    tools(work)
    client = SessionClient(token)
    await client.initialize()
    await client.result("tools/call", {"name": "work", "arguments": {}, "_meta": META})
    query, call = telemetry.spans(own=False)[-2:]
    assert query.parent == call.context
    assert ids(query)[0] == TRACE


@pytest.mark.parametrize(
    ("method", "params", "kind", "code"),
    [
        ("tools/call", {"name": "query_records", "arguments": {"model": "no.model"}}, "tool_error", None),
        ("tools/call", {"name": "no <b>tool</b>", "arguments": {}}, "-32602", "-32602"),
        ("resources/read", {"uri": "django://testapp/none"}, "-32602", "-32602"),
        ("prompts/get", {"name": "none"}, "-32602", "-32602"),
    ],
)
def test_what_fails_says_why(client, method, params, kind, code):
    client.send(method, params)
    (span,) = telemetry.spans()
    assert span.status.status_code is StatusCode.ERROR
    # The message could hold what is in the project's rows.
    assert span.status.description is None
    assert span.attributes["error.type"] == kind
    assert span.attributes.get("rpc.response.status_code") == code
    assert span.name == (f"{method} query_records" if kind == "tool_error" else method)
    assert "<b>" not in repr(span.to_json())


def test_what_is_refused_is_an_error_too(client):
    def refuse(record, **kwargs):
        raise CallRefused("Closed until noon.", "lunch")

    call_started.connect(refuse)
    try:
        client.send("tools/call", {"name": "list_models", "arguments": {}})
        client.send("resources/list", {})
    finally:
        call_started.disconnect(refuse)
    first, second = telemetry.spans()
    assert (first.attributes["error.type"], first.attributes["mcp_django.outcome"]) == ("tool_error", "refused:lunch")
    assert second.attributes["rpc.response.status_code"] == "-32600"


def test_a_call_without_its_scope_has_the_code_of_its_answer():
    client = MCPClient(make_superuser(), scopes=["mcp:read"])
    with pytest.raises(MCPError) as refused:
        client.call("create_record", model="testapp.author", values={"name": "Ada"})
    (span,) = telemetry.spans()
    assert span.attributes["error.type"] == str(refused.value.code)
    assert span.attributes["mcp_django.outcome"] == "refused:scope"


@pytest.mark.parametrize("log", [True, False])
async def test_a_call_that_takes_too_long_has_a_span_that_ends(token, tools, settings, log):
    # Enough for the call to reach the tool, on a busy machine too.
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_TIMEOUT": 4, "CALL_LOG": log}
    goes_on = threading.Event()

    def slow(request) -> str:
        """Wait."""
        goes_on.wait(20)
        return "done"

    tools(slow)
    client = SessionClient(token, version="2025-03-26")
    await client.initialize()
    try:
        error = await client.error("tools/call", {"name": "slow", "arguments": {}})
        # It ends in one of these threads, which are free together only afterwards.
        both = threading.Barrier(STREAM_THREADS)
        await asyncio.gather(*(in_thread("streams", lambda: both.wait(20)) for _ in range(STREAM_THREADS)))
    finally:
        goes_on.set()
    span = telemetry.spans()[-1]
    assert span.name == "tools/call slow"
    assert span.attributes["rpc.response.status_code"] == span.attributes["error.type"] == str(error["code"])
    assert span.attributes["mcp_django.outcome"] == "error:timeout"


@pytest.mark.parametrize("log", [True, False])
async def test_a_call_for_which_there_is_no_thread_has_a_span_that_ends(token, tools, settings, monkeypatch, log):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": log}

    def work(request) -> str:
        """Never run."""
        raise AssertionError

    async def busy():
        raise Busy

    def no_thread(lane, *arguments, **options):
        return busy() if lane == "slow" else in_thread(lane, *arguments, **options)

    tools(work)
    client = SessionClient(token)
    await client.initialize()
    monkeypatch.setattr("mcp_django.transports.call_execution.in_thread", no_thread)
    error = await client.error("tools/call", {"name": "work", "arguments": {}})
    span = telemetry.spans()[-1]
    assert span.name == "tools/call work"
    assert span.attributes["rpc.response.status_code"] == str(error["code"])


def test_a_failure_has_one_id_in_the_answer_the_span_and_the_log(client, tools, caplog, call_log):
    def broken(request) -> str:
        """Fail."""
        raise RuntimeError("boom")

    tools(broken, scopes=["mcp:read"])
    answer = client.call("broken")
    (span,) = telemetry.spans()
    identifier = span.attributes["mcp_django.call.id"]
    assert answer.text == f"The tool failed. Tell the operator the error id {identifier}."
    assert [record.request_id for record in caplog.records if record.exc_info] == [identifier]
    row = call_log()[-1]
    assert (row.call_id, row.error_id, row.trace) == (identifier, identifier, ids(span)[0])
    assert "boom" not in span.to_json()


def test_resources_and_prompts_are_named_by_their_own_attributes(client):
    author = make_author("Ada")
    uri = f"django://testapp/author/{author.pk}"
    client.read(uri)
    (span,) = telemetry.spans()
    assert (span.name, span.attributes["mcp.resource.uri"]) == ("resources/read", uri)
    (point,) = telemetry.measurements("mcp.server.operation.duration")
    assert "mcp.resource.uri" not in point.attributes


def test_no_text_of_a_client_makes_a_series_and_values_of_rows_are_in_none(client):
    canary = "canary-5f1c"
    make_author(canary)
    for number in range(5):
        client.send("tools/call", {"name": f"guess{number}", "arguments": {"model": canary}})
        client.send("resources/read", {"uri": f"django://guess/{number}"})
    client.call("query_records", model="testapp.author", filters={"name": canary})
    client.call("query_records", model=f"{canary}\x1b[2J\u202e")
    points = telemetry.measurements("mcp.server.operation.duration")
    assert len(points) == 4
    text = "".join(span.to_json() for span in telemetry.spans()) + repr(points)
    assert canary not in text
    assert "guess" not in repr(points)
    assert "\\u202e" not in text


def test_a_user_who_may_not_see_a_model_makes_no_span_that_names_it(settings):
    client = MCPClient(make_user("nobody"))
    client.send("tools/call", {"name": "query_records", "arguments": {"model": "testapp.author"}})
    (span,) = telemetry.spans()
    assert span.attributes["error.type"] in ("tool_error", "-32602")


def test_nothing_is_imported_or_made_while_it_is_off(settings, client):
    configure(settings, TELEMETRY={"opentelemetry": False})
    client.tools()
    assert telemetry.spans() == []
    assert telemetry.measurements("mcp.server.operation.duration") == []
    code = """
import sys, json, django
django.setup()
from mcp_django.transports import client_configs
from mcp_django.transports.stdio import server
from mcp_django.server import kernel
print(json.dumps([name for name in sys.modules if name.partition('.')[0] in ('opentelemetry', 'prometheus_client')]))
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == []
