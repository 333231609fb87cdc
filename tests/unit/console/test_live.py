"""What goes on now, as far as the database knows."""

from datetime import timedelta

import pytest
from django.utils import timezone

from mcp_django.console.overview_charts import counted
from mcp_django.context.call_record import CallRecord
from mcp_django.models import Session, Stream
from mcp_django.operating.call_log_storage import row_of, store

pytestmark = pytest.mark.django_db


def test_sessions_and_calls_of_now_are_counted() -> None:
    now = timezone.now()
    for session, ago in (("a", 1), ("a", 2), ("b", 3), ("", 1), ("old", 20)):
        store([row_of(CallRecord(started=now - timedelta(minutes=ago), session=session, outcome="ok"))])
    session = Session.objects.create(id="a", created=now, seen=now)
    for number, (state, age) in enumerate([("running", 1), ("running", 60), ("asking", 60), ("done", 0)]):
        Stream.objects.create(id=str(number), session=session, state=state, alive=now - timedelta(seconds=age))
    assert counted() == {"streams": 0, "sessions": 2, "running": 1, "asking": 1}


def test_there_may_be_nothing() -> None:
    assert counted() == {"streams": 0, "sessions": 0, "running": 0, "asking": 0}
