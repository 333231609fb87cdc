"""What the log says about a stretch of time, and about the one before it."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.console import overview_charts as module
from mcp_django.console.call_query import CallQuery
from mcp_django.console.overview_charts import Figures, Tally, figures
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
NOW = timezone.now()
HOUR = timedelta(hours=1)


def log(*, ago: timedelta = timedelta(minutes=5), **values: object) -> None:
    values = {"outcome": "ok", "tool": "query_records", **values}
    store([row_of(CallRecord(started=NOW - ago, **values))])


def of(text: str = "", length: timedelta = HOUR) -> Figures:
    return figures(CallQuery.parse(text, NOW), NOW - length, NOW)


def test_calls_are_counted_by_outcome_and_step() -> None:
    log(duration=10.0, size=400)
    log(ago=timedelta(minutes=59), duration=20.0, size=4)
    log(outcome="refused:scope", duration=1.0)
    log(outcome="error:-32603")
    log(outcome="tool_error")
    log(outcome="asked")
    log(ago=timedelta(minutes=61))
    found = of()
    assert (found.now.calls, found.part, found.now.tokens) == (6, 1, 101)
    assert found.now.counts == {"ok": 2, "refused": 1, "failed": 2, "open": 1}
    assert (found.now.failed, found.now.failed_percent) == (2, pytest.approx(33.3, abs=0.1))
    assert found.steps[0].tally.calls + found.steps[1].tally.calls == 1
    assert sum(step.tally.calls for step in found.steps) == 6
    assert (found.steps[0].begins, found.steps[-1].ends) == (NOW - HOUR, NOW)
    assert all(step.begins.second == 0 for step in found.steps[1:])
    assert (found.now.percentile(0.5), found.now.p95) == (0.0, 20.0)


def test_the_time_before_is_counted_apart() -> None:
    log(duration=100.0)
    log(ago=timedelta(minutes=61), duration=10.0, outcome="tool_error")
    log(ago=timedelta(minutes=119))
    log(ago=timedelta(minutes=121))
    found = of()
    assert (found.now.calls, found.before.calls, found.before.failed) == (1, 2, 1)
    ((value, now, before),) = found.tops[0]
    assert (value, now.p95, before.p95) == ("query_records", 100.0, 10.0)


def test_a_query_narrows_both_times() -> None:
    for ago in (timedelta(minutes=5), timedelta(minutes=70)):
        log(ago=ago, client_name="Codex")
        log(ago=ago, client_name="Claude")
    found = of("client:Codex last 1h")
    assert (found.now.calls, found.before.calls) == (1, 1)


def test_what_hurts_comes_first() -> None:
    for number in range(20):
        log(tool="often", duration=5.0)
        log(tool=f"tool_{number}", duration=1.0)
    log(tool="slow", duration=9_000.0)
    for _ in range(3):
        log(tool="broken", outcome="tool_error", duration=2.0)
    tools = of().tops[0]
    assert [value for value, _now, _before in tools[:3]] == ["broken", "slow", "often"]
    assert len(tools) == module.TOP


def test_what_a_call_does_not_have_is_in_no_list() -> None:
    log(tool="", model="")
    assert of().tops == [[], [], [], [], []]


def test_many_calls_are_estimated_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100)
    ids = [UUID(f"{number * 65536 // 1000:04x}{uuid4().hex[4:]}") for number in range(1000)]
    records = [CallRecord(id=found, started=NOW - timedelta(minutes=5), outcome="ok", tool="often") for found in ids]
    store([row_of(record) for record in records])
    log(tool="rare", client_name="Codex")
    found = of()
    assert found.part == 32
    assert 900 <= found.now.calls <= 1100
    # What an index finds is not estimated, where it is little.
    for text in ("tool:rare", "tool:rare duration:<10"):
        assert (of(text).part, of(text).now.calls) == (1, 1), text
    # No index finds these.
    assert of("duration:<10").part == 32


@pytest.mark.parametrize("step", [1, 3])
def test_a_sample_by_keys_is_fair_to_clients_that_take_turns_whatever_keys_there_are(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(connection.features, "supports_partial_indexes", False)
    monkeypatch.setattr(module, "MOST", 400)
    # As of a cluster whose nodes give every third key.
    rows = [
        CallEntry(
            pk=100_000 + number * step,
            call_id=uuid4().hex,
            time=NOW - timedelta(minutes=5),
            outcome="ok",
            client_name=("Claude", "Codex")[number % 2],
        )
        for number in range(6000)
    ]
    CallEntry.objects.bulk_create(rows)
    found = of()
    assert found.part > 1
    assert 5000 <= found.now.calls <= 7000
    clients = {value: now.calls for value, now, _before in found.tops[1]}
    assert abs(clients["Claude"] - clients["Codex"]) < 1000


def test_the_figures_take_two_queries_and_those_of_a_sample_four(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        log()
    with CaptureQueriesContext(connection) as asked:
        of(length=timedelta(days=30))
    assert len(asked) == 2
    monkeypatch.setattr(module, "MOST", 10)
    with CaptureQueriesContext(connection) as asked:
        assert of(length=timedelta(days=30)).part > 1
    assert len(asked) == 4


def test_an_empty_log_has_figures() -> None:
    found = of(length=timedelta(days=7))
    assert (found.now.calls, found.now.p95, found.now.failed_percent) == (0, 0.0, 0.0)
    assert 56 <= len(found.steps) <= 58


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.95, 10), (0.1, 1), (1.0, 10)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    rows = [(NOW, "ok", float(number), 0) for number in range(1, 11)]
    assert Tally(rows).percentile(share) == value


def test_nothing_has_no_percentile() -> None:
    assert Tally([]).percentile(0.5) == 0
