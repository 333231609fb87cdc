"""What `clear_mcp_sessions` does with changes."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings
from django.utils import timezone

from mcp_django.differences import kept_changes
from mcp_django.models import ApprovalRequest, Change

pytestmark = pytest.mark.django_db

State = Change.State


def make_change(state: State = State.DONE, days: float = 0, **values: Any) -> Change:
    return Change.objects.create(state=state.value, time=timezone.now() - timedelta(days=days), **values)


@pytest.mark.parametrize(("days", "left"), [(30, [1, 29]), (10, [1]), (0, [])])
def test_changes_older_than_undo_days_are_deleted(days: int, left: list[int], capsys: pytest.CaptureFixture) -> None:
    for age in (1, 29, 31, 60):
        make_change(days=age, tool=str(age), undoes_id=1)
    with override_settings(MCP_DJANGO={"UNDO_DAYS": days}):
        call_command("clear_mcp_sessions")
    assert list(Change.objects.order_by("-time").values_list("tool", flat=True)) == list(map(str, left))
    assert f"Deleted {4 - len(left)} changes" in capsys.readouterr().out


def test_where_nothing_is_kept_results_are_kept_for_a_day() -> None:
    make_change(days=0.9)
    with override_settings(MCP_DJANGO={"UNDO_DAYS": 0}):
        call_command("clear_mcp_sessions")
    assert Change.objects.count() == 1


def test_many_are_deleted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_changes, "DELETED_AT_ONCE", 3)
    for age in range(40, 48):
        make_change(days=age)
    new = make_change()
    assert kept_changes.KeptChange.clear_expired() == 8
    assert list(Change.objects.all()) == [new]


def test_what_waited_too_long_has_expired_and_what_runs_for_a_day_is_unknown() -> None:
    now = timezone.now()
    late = make_change(State.WAITING, expires=now - timedelta(seconds=1), kept=b"call")
    waiting = make_change(State.WAITING, expires=now + timedelta(minutes=1), kept=b"call")
    lost = make_change(State.RUNNING, days=3, decided=now - timedelta(days=2), kept=b"call")
    running = make_change(State.RUNNING, days=3, decided=now, kept=b"call")
    call_command("clear_mcp_sessions")
    states = {row.pk: (row.state, bytes(row.kept)) for row in Change.objects.all()}
    assert states == {
        late.pk: ("expired", b""),
        waiting.pk: ("waiting", b"call"),
        lost.pk: ("unknown", b""),
        running.pk: ("running", b"call"),
    }


def test_requests_for_approval_go_with_their_changes() -> None:
    old = make_change(days=40)
    new = make_change(State.WAITING)
    for change in (old, new):
        ApprovalRequest.objects.create(change=change, rule_name="Books", permission="testapp.publish_book")
    call_command("clear_mcp_sessions")
    assert list(ApprovalRequest.objects.values_list("pk", flat=True)) == [new.pk]
