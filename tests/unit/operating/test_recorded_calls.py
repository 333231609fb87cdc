from contextlib import suppress
from copy import copy
from types import SimpleNamespace

import pytest
from channels.db import database_sync_to_async
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.db.models.signals import post_save

from mcp_django.context import call_record
from mcp_django.context.call_record import CallRecord, new_id
from mcp_django.exceptions import CallRefused, Cancelled
from mcp_django.operating import call_log_storage
from mcp_django.operating.recorded_calls import RecordedCall, counted
from mcp_django.signals import call_finished, call_started
from mcp_django.testing import MCPClient, MCPError
from mcp_django.transports.http import streamable_http
from tests.factories import make_author, make_book, make_superuser
from tests.session_client import SessionClient
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def client():
    return MCPClient(make_superuser(), name="Claude Code")


@pytest.fixture
def receivers():
    """Connect receivers for one test."""
    connected = []

    def connect(signal, receiver):
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def test_a_read_is_a_row_that_says_who_what_and_how_long(client, call_log):
    make_author("Ada")
    client.call("query_records", model="testapp.author")
    row = call_log()[-1]
    user = User.objects.get()
    assert (row.user, row.username, row.kind) == (str(user.pk), user.username, "person")
    assert (row.method, row.tool, row.model) == ("tools/call", "query_records", "testapp.author")
    assert (row.outcome, row.writes, row.version) == ("ok", False, client.version)
    assert row.client_name == "Claude Code"
    assert row.duration > 0
    assert row.queries > 0
    assert row.size > 100
    assert row.tokens == -(-row.size // 4)


def test_a_write_is_logged_when_its_answer_is_there(client, call_log, monkeypatch):
    monkeypatch.setattr("mcp_django.operating.call_log_storage.put", lambda record: pytest.fail("it waits"))
    client.call("create_record", model="testapp.author", values={"name": "Ada"})
    (row,) = call_log()
    assert (row.tool, row.writes, row.outcome) == ("create_record", True, "ok")


@pytest.fixture
def stopped(client, receivers):
    """Make a call whose client goes while a row is saved; ``meanwhile`` is what ends its record before it is over."""

    def stop(meanwhile=lambda request: None, **arguments):
        calls = []
        receivers(call_started, lambda request, **kwargs: calls.append(request))

        def go(**kwargs):
            calls[-1].mcp.cancelled = True
            meanwhile(calls[-1])

        receivers(post_save, go)
        with suppress(Cancelled):
            client.call("create_record", model="testapp.author", values={"name": "Ada"}, **arguments)

    return stop


@pytest.mark.parametrize("arguments", [{}, {"idempotency_key": "a-key"}])
@pytest.mark.parametrize("ends", ["cancelled", "error:timeout"])
def test_the_row_of_a_write_that_was_stopped_says_that_nothing_was_changed(
    stopped, call_log, monkeypatch, arguments, ends
):
    def end(request):
        if ends != "cancelled":
            # As another thread does it, whose row is not in this transaction.
            monkeypatch.setattr(call_log_storage, "is_on_loop", lambda: True)
            RecordedCall(request).finish(ends)

    stopped(end, **arguments)
    row = call_log()[-1]
    assert (row.outcome, row.detail) == (ends, "Nothing was changed.")
    assert (row.rows_changed, row.history) == (0, [])
    assert not Author.objects.exists()
    assert not LogEntry.objects.exists()


def test_the_row_of_a_write_that_is_stopped_after_its_end_says_that_it_was_done(client, call_log, receivers):
    seen = []
    receivers(call_finished, lambda request, **kwargs: seen.append(request))
    client.call("create_record", model="testapp.author", values={"name": "Ada"})
    [request] = seen
    for is_ending, detail in (
        (False, "It was done nevertheless."),
        (True, "It was about to be done: look at the data."),
    ):
        record = request.mcp.record = copy(request.mcp.record)
        record.id, record.duration, record.outcome = new_id(), 0.0, ""
        record.kept, record.is_ending = (0, 0) if is_ending else None, is_ending
        RecordedCall(request).finish("error:timeout")
        row = call_log()[-1]
        assert (row.call_id, row.detail, row.rows_changed) == (record.id.hex, detail, 1)
        assert row.history == [str(LogEntry.objects.get().pk)]


def test_what_the_model_got_wrong_is_a_tool_error(client, call_log):
    client.call("query_records", model="testapp.nothing")
    assert call_log()[-1].outcome == "tool_error"


def test_an_error_of_the_protocol_is_one_by_its_code(client, call_log):
    with pytest.raises(MCPError):
        client.request("resources/read", uri="django://nothing/here")
    row = call_log()[-1]
    assert (row.method, row.outcome) == ("resources/read", "error:-32602")


def test_a_call_without_its_scope_is_refused(call_log):
    client = MCPClient(make_superuser(), scopes=["mcp:read"])
    with pytest.raises(MCPError):
        client.call("create_record", model="testapp.author", values={"name": "Ada"})
    row = call_log()[-1]
    assert (row.tool, row.outcome) == ("create_record", "refused:scope")


def test_a_receiver_can_refuse_a_call_and_the_model_is_told(client, call_log, receivers):
    def refuse(request, record, **kwargs):
        if record.tool:
            raise CallRefused("Closed until noon.", "lunch")

    receivers(call_started, refuse)
    answer = client.call("query_records", model="testapp.author")
    assert answer.is_error
    assert answer.text == "Closed until noon."
    row = call_log()[-1]
    assert (row.outcome, row.detail) == ("refused:lunch", "Closed until noon.")


def test_receivers_are_told_of_the_end_and_none_can_spoil_it(client, receivers, caplog):
    told = []

    def receive(request, record, **kwargs):
        told.append((request.user.is_superuser, record.tool, record.outcome))
        raise RuntimeError("broken sink")

    receivers(call_finished, receive)
    client.call("query_records", model="testapp.author")
    assert told[-1] == (True, "query_records", "ok")
    assert "broken sink" in caplog.text


def test_a_log_that_is_off_has_no_rows(client, call_log, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": False}
    client.call("query_records", model="testapp.author")
    assert call_log() == []


def test_queries_of_the_block_are_counted_and_timed():
    record = CallRecord()
    Author.objects.count()
    with counted(record):
        Author.objects.count()
        list(Author.objects.all())
    Author.objects.count()
    assert record.queries == 2
    assert record.query_time > 0
    assert not connection.execute_wrappers


def test_a_query_that_fails_is_one(transactional_db):
    record = CallRecord()
    # MySQL's backend asks for the version of the server first.
    Author.objects.count()
    with pytest.raises(DatabaseError), counted(record), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")
    assert record.queries == 1
    assert not connection.execute_wrappers


def test_where_the_time_of_a_call_went_is_measured(client, call_log):
    client.call("query_records", model="testapp.author")
    (row,) = call_log()
    parts = (row.waiting, row.token_check, row.query_time, row.rendering)
    assert all(part > 0 for part in parts)
    assert sum(parts) < row.duration
    assert row.own_code is None


def test_the_projects_function_is_measured_without_its_queries(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(call_record, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    record = CallRecord()
    for _ in range(2):
        with record.in_own_code():
            record.query_time += 400
    # A second each.
    assert record.own_code == pytest.approx(1200)
    with suppress(ValueError), record.in_own_code():
        raise ValueError
    assert record.own_code == pytest.approx(2200)
    # Its threads may ask the database for longer than it lasts.
    with record.in_own_code():
        record.query_time += 5_000
    assert record.own_code == pytest.approx(2200)


def test_an_action_is_code_of_the_project(client, call_log):
    book = make_book("Emma")
    client.call("run_action", model="testapp.book", action="withdraw", pks=[str(book.pk)])
    (row,) = call_log()
    assert row.outcome == "ok", row.detail
    assert 0 < row.own_code < row.duration - row.query_time


def test_a_token_that_is_refused_was_checked_all_the_same(call_log):
    with suppress(MCPError):
        MCPClient().call("query_records", model="testapp.author")
    (row,) = call_log()
    assert (row.outcome, row.rendering) == ("refused:token", None)
    assert 0 < row.token_check < row.duration


async def test_the_wait_for_a_thread_is_part_of_a_call(token, monkeypatch, call_log):
    # The clock of whoever hands the call over goes on by two seconds.
    clock = iter((5.0, 7.0))
    monkeypatch.setattr(streamable_http, "perf_counter", lambda: next(clock))
    await SessionClient(token).result("tools/list")
    (row,) = await database_sync_to_async(call_log)()
    assert row.waiting > 2000


def keys_of(call_log):
    return [(row.tool or row.method, row.model, row.row_key) for row in call_log()]


def test_a_call_about_one_row_has_its_key(client, call_log):
    ada = make_author("Ada")
    key = str(ada.pk)
    client.call("get_record", model="testapp.author", pk=ada.pk)
    client.call("get_record", pk=f"django://testapp/author/{ada.pk}")
    client.read(f"django://testapp/author/{ada.pk}")
    client.call("update_record", model="testapp.author", pk=key, values={"name": "Ida"})
    asked = client.call("delete_record", model="testapp.author", pk=key)
    client.call("delete_record", model="testapp.author", pk=key, confirm_token=asked.structured["confirm_token"])
    made = client.call("create_record", model="testapp.author", values={"name": "Eva"})
    about = [(tool, model, key) for tool, model, key in keys_of(call_log)]
    assert about == [
        ("get_record", "testapp.author", key),
        ("get_record", "testapp.author", key),
        ("resources/read", "testapp.author", key),
        ("update_record", "testapp.author", key),
        ("delete_record", "testapp.author", key),
        ("delete_record", "testapp.author", key),
        ("create_record", "testapp.author", str(made.structured["pk"])),
    ]


def test_a_row_that_is_named_otherwise_is_kept_by_its_key(client, call_log):
    ada = make_author("Ada")
    client.call("get_record", model="testapp.author", pk="Ada")
    assert keys_of(call_log) == [("get_record", "testapp.author", str(ada.pk))]


def test_a_call_about_several_rows_or_none_that_is_seen_has_no_key(client, call_log):
    ada, ben = make_author("Ada"), make_author("Ben")
    client.call("query_records", model="testapp.author")
    writes = [{"op": "update", "model": "testapp.author", "pk": row.pk, "values": {"name": "X"}} for row in (ada, ben)]
    client.call("write_records", writes=writes)
    with suppress(Exception):
        client.call("get_record", model="testapp.author", pk="999999")
    client.call("create_record", model="testapp.author", values={"name": "Eva"}, dry_run=True)
    client.read("django://testapp/author")
    assert {key for _tool, _model, key in keys_of(call_log)} == {""}


@pytest.mark.parametrize("call_log_setting", [{"rows": False}, {"rows": True}])
def test_a_setting_leaves_the_keys_out(client, call_log, settings, call_log_setting):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": call_log_setting}
    ada = make_author("Ada")
    client.call("get_record", model="testapp.author", pk=ada.pk)
    assert keys_of(call_log)[0][2] == (str(ada.pk) if call_log_setting["rows"] else "")


def test_a_key_is_as_long_as_the_log_holds():
    record = CallRecord()
    record.touch("shop.page", "x" * 1000)
    assert (record.model, record.row_key) == ("shop.page", "x" * call_record.MAX_KEY)
    record.touch("shop.page", "x" * 1001)
    assert record.row_key == "x" * call_record.MAX_KEY


def test_the_key_of_a_row_costs_no_query(client, call_log, settings, django_assert_num_queries):
    ada = make_author("Ada")
    counts = []
    for rows in (False, True, False, True):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": {"rows": rows}}
        client.call("get_record", model="testapp.author", pk=ada.pk)
        counts.append(call_log()[-1].queries)
    assert counts[2] == counts[3] > 0
