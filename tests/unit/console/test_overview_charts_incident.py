"""The log that other tests look at has the incident in it that it says."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db.models import Avg

from mcp_django.models import CallEntry
from tests.incident import log_incident

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("day", [24, 26])
def test_one_client_failed_and_one_tool_became_slow(day: int) -> None:
    """Also on a Tuesday."""
    now = datetime(2026, 11, day, 16, 0, tzinfo=ZoneInfo("UTC"))
    incident = log_incident(now, calls=3_000)
    assert now - timedelta(days=7) <= incident.slow_since < now - timedelta(days=1)
    calls = CallEntry.objects.all()
    assert calls.count() == incident.calls == 3_000
    assert incident.begins == now.replace(hour=14, minute=5)
    meanwhile = calls.filter(time__gte=incident.begins, time__lt=incident.ends)
    failed = meanwhile.filter(outcome__in=["tool_error", "error:-32603"])
    assert failed.filter(client_id=incident.client_id).count() > 10
    first = failed.order_by("time").first()
    assert first is not None
    assert (first.call_id, first.client_name) == (incident.first_failed, "Codex")
    before, after = (
        calls.filter(tool=incident.slow_tool, outcome="ok", **{f"time__{lookup}": incident.slow_since}).aggregate(
            found=Avg("duration")
        )["found"]
        for lookup in ("lt", "gte")
    )
    assert after > 10 * before
    assert calls.get(call_id=incident.timed_out).duration > 30_000
    assert calls.filter(time__lt=now - timedelta(days=7)).exists()
