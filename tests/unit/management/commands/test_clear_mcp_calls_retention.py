"""How long the log of calls is kept."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.management.commands import clear_mcp_calls
from mcp_django.management.commands.clear_mcp_calls import clear_calls
from mcp_django.models import CallEntry

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def fill(*ages, hours=0):
    """Make a row for each age in days."""
    now = timezone.now()
    CallEntry.objects.bulk_create(
        [
            CallEntry(call_id=f"{number:032x}", time=now - timedelta(days=age, hours=hours), outcome="ok")
            for number, age in enumerate(ages)
        ]
    )


def test_what_is_older_goes_and_the_rest_stays():
    fill(0, 1, 29, 31, 400)
    assert clear_calls(30) == 2
    assert CallEntry.objects.count() == 3


def test_batches_are_bounded_and_begin_where_the_last_one_ended(monkeypatch):
    monkeypatch.setattr(clear_mcp_calls, "DELETED_AT_ONCE", 10)
    fill(*range(40, 75))
    with CaptureQueriesContext(connection) as queries:
        assert clear_calls(30) == 35
    deletions = [query["sql"] for query in queries if query["sql"].startswith("DELETE")]
    assert len(deletions) == 4
    assert sum(">=" in sql for sql in deletions) == 3
    assert not any(" IN " in sql for sql in deletions)


def test_rows_of_one_time_go_together(monkeypatch):
    monkeypatch.setattr(clear_mcp_calls, "DELETED_AT_ONCE", 3)
    now = timezone.now() - timedelta(days=50)
    rows = [CallEntry(call_id=f"{number:032x}", time=now, outcome="ok") for number in range(8)]
    CallEntry.objects.bulk_create(rows)
    assert clear_calls(30) == 8


def test_where_nothing_is_old_one_look_says_so(django_assert_num_queries):
    fill(0, 1)
    with django_assert_num_queries(2):
        assert clear_calls(30) == 0
