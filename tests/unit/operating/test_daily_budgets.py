import threading
from contextlib import contextmanager

import pytest
from django.core.cache import cache as django_cache

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import CallRefused
from mcp_django.models import ServiceAccount
from mcp_django.operating import daily_budgets
from mcp_django.operating.daily_budgets import DAY, Budget, Budgets
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser

pytestmark = pytest.mark.django_db


class Request:
    """What budgets look at of a request."""

    def __init__(self, *, facts=None, **values):
        values = {"kind": "person", "user": "7", "username": "ada", "client_id": "abc", "method": "tools/call"} | values
        self.mcp = self
        self.task = None
        self.facts = facts or {}
        self.record = CallRecord(**values)


@pytest.fixture
def configure(settings):
    def to(**found):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": found}

    return to


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 20_000 * DAY + 100.0

    monkeypatch.setattr(daily_budgets.time, "time", lambda: Clock.now)
    return Clock


def test_a_call_that_runs_as_a_task_was_counted_before(configure, clock):
    configure(user={"calls": 1})
    Budgets(Request()).check()
    run = Request()
    run.task = object()
    Budgets(run).check()


def test_calls_are_let_in_until_they_are_used_up_and_again_the_next_day(configure, clock):
    configure(user={"calls": 2})
    Budgets(Request()).check()
    Budgets(Request()).check()
    with pytest.raises(CallRefused) as raised:
        Budgets(Request()).check()
    assert raised.value.reason == "rate"
    assert raised.value.message == (
        f"The 2 calls that this account has in a day are used up. They reset in {DAY - 100} s."
    )
    Budgets(Request(user="8", username="bob")).check()
    clock.now += DAY - 101
    with pytest.raises(CallRefused):
        Budgets(Request()).check()
    assert Budgets.resets_in() == 1
    clock.now += 1
    Budgets(Request()).check()


def test_rows_and_bytes_are_taken_at_the_end_of_a_call(configure):
    configure(user={"rows_read": 10, "bytes": 1_000, "calls": 5}, client={"rows_written": 2})
    Budgets(Request()).check()
    Budgets(Request(rows_read=4, size=300, rows_changed=1)).spend()
    assert Budgets(Request()).left() == {
        "user": {"calls": 4, "rows_read": 6, "bytes": 700},
        "client": {"rows_written": 1},
    }
    Budgets(Request(rows_read=20)).spend()
    with pytest.raises(CallRefused) as raised:
        Budgets(Request()).check()
    assert raised.value.message.startswith("The 10 rows to read that this account has in a day are used up.")
    assert raised.value.message.endswith(" Left: 4 calls, 700 bytes, 1 rows to change.")


def test_a_caller_without_rows_to_change_reads_on(configure):
    configure(user={"rows_written": 2})
    Budgets(Request()).check_writes()
    Budgets(Request(rows_changed=2)).spend()
    Budgets(Request()).check()
    with pytest.raises(CallRefused, match="The 2 rows to change that this account has"):
        Budgets(Request()).check_writes()


def test_a_name_has_a_budget_of_its_own_and_the_rest_of_the_general_one(configure):
    configure(
        **{"user": {"calls": 1, "bytes": 5}, "user:ada": {"calls": 9}, "user:root": {"calls": None, "bytes": None}}
    )
    assert Budgets(Request()).left() == {"user": {"calls": 9, "bytes": 5}}
    assert Budgets(Request(user="8", username="bob")).left() == {"user": {"calls": 1, "bytes": 5}}
    assert Budgets(Request(user="1", username="root")).left() == {}


def test_a_client_is_named_by_its_id_or_its_host(configure):
    configure(**{"client:abc": {"calls": 1}, "client:claude.ai": {"calls": 2}})
    assert Budgets(Request()).left() == {"client": {"calls": 1}}
    assert Budgets(Request(client_id="https://claude.ai/x", client_host="claude.ai")).left() == {"client": {"calls": 2}}
    assert Budgets(Request(client_id="")).left() == {}


def test_a_service_has_its_own_and_not_that_of_its_user(configure):
    configure(**{"user": {"calls": 0}, "service": {"calls": 3}, "service:nightly": {"calls": 4}})
    Budgets(Request(kind="service", client_id="service-1")).check()
    assert Budgets(Request(kind="service", client_id="service-1")).left() == {"service": {"calls": 2}}
    named = Request(kind="service", client_id="service-2", facts={"name": "nightly"})
    assert Budgets(named).left() == {"service": {"calls": 4}}


@pytest.mark.parametrize(
    "values", [{"method": "tools/list"}, {"method": "initialize"}, {"method": "ping"}, {"tool": "connection_info"}]
)
def test_lists_and_the_handshake_are_free(configure, values):
    configure(user={"calls": 0, "bytes": 0})
    Budgets(Request(**values)).check()
    Budgets(Request(**values, size=100)).spend()
    with pytest.raises(CallRefused):
        Budgets(Request()).check()


def test_of_calls_at_the_same_time_no_more_are_let_in(configure):
    configure(user={"calls": 20})
    passed, start = [], threading.Barrier(8)

    def work():
        start.wait()
        for _ in range(10):
            try:
                Budgets(Request()).check()
                passed.append(1)
            except CallRefused:
                pass

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(passed) == 20


@pytest.fixture
def away(monkeypatch):
    """Have the cache not answer, as long as the block runs."""

    @contextmanager
    def away():
        def fail(*args, **kwargs):
            raise ConnectionError("redis://secret@host")

        with monkeypatch.context() as patch:
            for name in ("add", "incr", "get_many"):
                patch.setattr(daily_budgets.cache, name, fail, raising=False)
            yield

    return away


def test_a_worker_counts_on_by_itself_while_the_cache_does_not_answer(configure, away, caplog):
    configure(user={"calls": 5, "rows_read": 10, "rows_written": 10})
    Budgets(Request()).check()
    Budgets(Request()).check()
    Budgets(Request(rows_read=4, rows_changed=4)).spend()
    Budgets(Request()).check_writes()
    with away():
        Budgets(Request()).check()
        Budgets(Request()).check()
        Budgets(Request(rows_read=2, rows_changed=6)).spend()
        assert Budgets(Request()).left() == {"user": {"calls": 1, "rows_read": 4, "rows_written": 0}}
        with pytest.raises(CallRefused, match="rows to change"):
            Budgets(Request()).check_writes()
        Budgets(Request()).check()
        for _ in range(2):
            with pytest.raises(CallRefused, match="The 5 calls"):
                Budgets(Request()).check()
        # Others have their own.
        Budgets(Request(user="8", username="bob")).check()
    assert "Each worker counts budgets by itself: the cache does not answer (ConnectionError)" in caplog.text
    assert "secret" not in caplog.text
    # The cache, and so each other worker, learns of it with what is used next.
    Budgets(Request(rows_read=1)).spend()
    with pytest.raises(CallRefused):
        Budgets(Request()).check()
    daily_budgets.counts.__init__()
    assert Budgets(Request()).left()["user"] == {"calls": 0, "rows_read": 3, "rows_written": 6}


def test_a_worker_that_knows_nothing_counts_from_none(configure, away):
    configure(user={"calls": 1})
    with away():
        Budgets(Request()).check()
        with pytest.raises(CallRefused):
            Budgets(Request()).check()


def test_no_more_counters_are_known_than_a_bound(configure, away, monkeypatch):
    monkeypatch.setattr(daily_budgets, "MOST", 2)
    configure(user={"calls": 1})
    for user in "123":
        Budgets(Request(user=user)).check()
    with away():
        Budgets(Request(user="1")).check()
        with pytest.raises(CallRefused):
            Budgets(Request(user="3")).check()


def test_names_are_not_in_the_keys_of_the_cache(clock):
    found = Budget("user", "0" * 32, {"calls": 1}).counter("calls")
    assert found == f"mcp_django:budget:user:{'0' * 32}:calls:20000"


def test_no_call_asks_the_cache_where_there_are_no_budgets(monkeypatch):
    client = MCPClient(make_superuser())

    def fail(*args, **kwargs):
        raise AssertionError("It was asked.")

    monkeypatch.setattr(daily_budgets.counts, "add", fail)
    monkeypatch.setattr(daily_budgets.counts, "used", fail)
    assert not client.call("list_models").is_error


# Whole calls


def test_a_client_is_told_what_is_used_up_and_can_ask_for_the_rest(configure, call_log):
    configure(user={"calls": 2, "bytes": 1_000_000})
    client = MCPClient(make_superuser())
    for _ in range(2):
        assert not client.call("list_models").is_error
    refused = client.call("list_models")
    assert refused.is_error
    assert refused.text.startswith("The 2 calls that this account has in a day are used up.")
    assert call_log()[-1].outcome == "refused:rate"
    info = client.call("connection_info").structured
    assert info["left_today"]["user"]["calls"] == 0
    assert 0 < info["left_today"]["user"]["bytes"] < 1_000_000
    assert 0 < info["resets_in"] <= DAY
    with pytest.raises(MCPError, match="used up"):
        client.read("django://testapp/author")


def test_a_write_is_refused_where_no_row_is_left(configure):
    configure(user={"rows_written": 0})
    client = MCPClient(make_superuser())
    author = make_author("Ada")
    refused = client.call("update_record", model="testapp.author", pk=str(author.pk), values={"name": "Bob"})
    assert refused.text.startswith("The 0 rows to change that this account has in a day are used up.")
    author.refresh_from_db()
    assert author.name == "Ada"
    assert not client.call("get_record", model="testapp.author", pk=str(author.pk)).is_error


def test_the_cache_forgets_a_count_after_two_days(configure):
    configure(user={"calls": 5})
    Budgets(Request()).check()
    keys = [key for key in getattr(django_cache, "_expire_info", {}) if "budget" in key]
    assert len(keys) == 1
    assert ServiceAccount.objects.count() == 0
