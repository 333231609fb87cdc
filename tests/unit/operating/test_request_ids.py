import ast
import io
import json
import logging
import re
from pathlib import Path

import pytest

from mcp_django.context.call_record import CallRecord
from mcp_django.operating.request_ids import RequestIdFilter
from mcp_django.testing import MCPClient
from tests.factories import make_superuser

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def messages():
    """The messages of the project's own logger, as a handler with the filter writes them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RequestIdFilter())
    handler.setFormatter(logging.Formatter("%(request_id)s %(trace_id)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("shop", "mcp_django")]
    for logger in loggers:
        logger.addHandler(handler)
    yield lambda: stream.getvalue().splitlines()
    for logger in loggers:
        logger.removeHandler(handler)


def test_a_message_outside_of_a_call_has_no_id(messages):
    logging.getLogger("shop").warning("hello")
    assert messages() == ["- - hello"]


@pytest.mark.django_db
def test_each_message_of_a_call_has_the_id_that_its_row_has(messages, tools, call_log):
    def work(request) -> str:
        """Say something."""
        logging.getLogger("shop").warning("at work")
        return "done"

    async def work_async(request) -> str:
        """Say something on the loop."""
        logging.getLogger("shop").warning("at work")
        return "done"

    def fail(request) -> str:
        """Fail."""
        raise RuntimeError

    for function in (work, work_async, fail):
        tools(function, scopes=["mcp:read"])
    client, trace = MCPClient(make_superuser()), "4bf92f3577b34da6a3ce929d0e0e4736"
    meta = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    for name in ("work", "work_async", "fail"):
        client.request("tools/call", name=name, arguments={}, _meta=meta)
    ids = [row.call_id for row in call_log()]
    told = [line for line in messages() if re.match("[0-9a-f]{32} ", line)]
    assert told[0] == f"{ids[0]} {trace} at work"
    assert told[1] == f"{ids[1]} {trace} at work"
    assert told[2] == f"{ids[2]} {trace} 'fail' failed (error {ids[2]})"
    assert CallRecord.current.get() is None


def test_an_id_that_a_message_has_already_stays():
    record = logging.makeLogRecord({"request_id": "mine"})
    token = CallRecord.current.set(CallRecord())
    try:
        assert RequestIdFilter().filter(record)
    finally:
        CallRecord.current.reset(token)
    assert record.request_id == "mine"


def logger_names():
    """The loggers of the package, by the names that it asks for."""
    for path in (ROOT / "mcp_django").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                name = ast.unparse(node.args[0])
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield module if name == "__name__" else ast.literal_eval(name)


def test_all_loggers_are_of_one_tree_which_is_documented():
    found = set(logger_names())
    assert {name.partition(".")[0] for name in found} == {"mcp_django"}
    text = (ROOT / "docs" / "call-log.md").read_text()
    table = text.partition("| logger |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(mcp_django[\w.]*)` \|", table, re.MULTILINE)) == found


@pytest.mark.django_db
def test_the_history_names_the_call_without_showing_it(call_log):
    from django.contrib.admin.models import LogEntry

    MCPClient(make_superuser()).call("create_record", model="testapp.author", values={"name": "Ada"})
    entry = LogEntry.objects.get()
    identifier = call_log()[-1].call_id
    assert json.loads(entry.change_message)[-1]["via MCP"] == identifier
    assert identifier not in entry.get_change_message()
