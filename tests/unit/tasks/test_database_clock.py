"""The clock of the database."""

import time

import pytest
from django.db.models import Q

from mcp_django.models import Task
from mcp_django.tasks.database_clock import DatabaseClock
from tests.task_calls import make_task

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]


def test_the_clock_gives_milliseconds_since_1970() -> None:
    make_task()
    before = int(time.time() * 1000) - 60_000
    now = Task.objects.values_list(DatabaseClock(), flat=True).get()
    assert isinstance(now, int)
    assert before < now < before + 120_000


def test_times_of_rows_are_compared_with_the_clock() -> None:
    make_task()
    assert Task.objects.filter(Q(created__lte=DatabaseClock()), expires__gt=DatabaseClock()).exists()
