"""What the log says about a stretch of time."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.console import overview_charts as module
from mcp_django.console.overview_charts import SPANS, figures, group_of, percentile
from mcp_django.context.call_record import CallRecord
from mcp_django.operating.call_log_storage import row_of, store

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
NOW = timezone.now()


def log(*, ago: timedelta = timedelta(minutes=5), **values: object) -> None:
    values = {"outcome": "ok", "tool": "query_records", **values}
    store([row_of(CallRecord(started=NOW - ago, **values))])


def test_calls_are_counted_by_outcome_and_step() -> None:
    log(duration=10.0, size=400, rows_read=3)
    log(ago=timedelta(minutes=59), duration=20.0, size=4, rows_changed=1)
    log(outcome="refused:scope", duration=1.0, session="a")
    log(outcome="error:-32603", session="a")
    log(outcome="tool_error", session="b")
    log(outcome="asked")
    log(ago=timedelta(minutes=61))
    found = figures(SPANS["hour"], NOW)
    assert (found.calls, found.part, found.tokens, found.sessions) == (6, 1, 101, 2)
    assert (found.rows_read, found.rows_changed) == (3, 1)
    groups = {group: found.of_group(group) for group in ("ok", "refused", "failed", "open")}
    assert groups == {"ok": 2, "refused": 1, "failed": 2, "open": 1}
    assert found.steps[0].counts == {"ok": 1}
    assert sum(found.steps[-3].counts.values()) + sum(found.steps[-2].counts.values()) == 5
    assert found.outcomes["refused:scope"] == 1
    assert (found.p50, found.p95) == (0.0, 20.0)


def test_those_who_call_most_come_first() -> None:
    for number in range(12):
        for _ in range(number + 1):
            log(tool=f"tool_{number}", user=str(number), username=f"user {number}", client_id="c", client_name="Claude")
    log(tool="tool_11", outcome="tool_error", size=40, client_id="c", client_name="")
    tops = figures(SPANS["day"], NOW).tops
    assert [entry.value for entry in tops["tool"]] == [f"tool_{number}" for number in range(11, 1, -1)]
    assert (tops["tool"][0].calls, tops["tool"][0].failed, tops["tool"][0].tokens) == (13, 1, 10)
    assert tops["user"][0].name == "user 11"
    assert [(entry.name, entry.calls) for entry in tops["client_id"]] == [("Claude", 79)]
    assert tops["model"] == []


def test_many_calls_are_estimated_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100)
    ids = [UUID(f"{number * 65536 // 1000:04x}{uuid4().hex[4:]}") for number in range(1000)]
    store([row_of(CallRecord(id=found, started=NOW - timedelta(minutes=5), outcome="ok")) for found in ids])
    found = figures(SPANS["hour"], NOW)
    assert found.part == 16
    assert 900 <= found.calls <= 1100
    assert found.outcomes == {"ok": found.calls}


def test_the_figures_take_two_queries_and_those_of_a_sample_three(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        log()
    with CaptureQueriesContext(connection) as asked:
        figures(SPANS["month"], NOW)
    assert len(asked) == 2
    monkeypatch.setattr(module, "MOST", 10)
    with CaptureQueriesContext(connection) as asked:
        assert figures(SPANS["month"], NOW).part > 1
    assert len(asked) == 3


def test_an_empty_log_has_figures() -> None:
    found = figures(SPANS["week"], NOW)
    assert (found.calls, found.p95, len(found.steps)) == (0, 0.0, 28)


@pytest.mark.parametrize(
    ("outcome", "group"),
    [
        ("ok", "ok"),
        ("refused:rate", "refused"),
        ("asked", "open"),
        ("cancelled", "open"),
        ("tool_error", "failed"),
        ("error:-32602", "failed"),
        ("error:timeout", "failed"),
    ],
)
def test_outcomes_are_of_four_groups(outcome: str, group: str) -> None:
    assert group_of(outcome) == group


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.95, 10), (0.1, 1), (1.0, 10)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(1, 11)], share) == value


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) == 0
