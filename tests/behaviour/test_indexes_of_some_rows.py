"""Pages find rows by an index, also where it has some rows only: SQLite uses such a one if the query says which."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.console import overview_charts
from mcp_django.differences.kept_changes import Changes
from mcp_django.models import CallEntry
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_author, make_superuser
from tests.tool_calls import call, request_of

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases read a small table whole"),
]

CONSOLE = "/admin/mcp_django/callentry/"


def plans_of(read: Callable[[], Any], table: str) -> str:
    """Return how SQLite finds the rows of a table for what is read."""
    with CaptureQueriesContext(connection) as captured:
        read()
    lines = []
    with connection.cursor() as cursor:
        for query in captured.captured_queries:
            if query["sql"].startswith("SELECT") and f'FROM "{table}"' in query["sql"]:
                cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
                lines += [line[3] for line in cursor.fetchall()]
    return "\n".join(lines)


def make_calls(number: int, **values: Any) -> None:
    now = timezone.now()
    for place in range(number):
        time = now - timedelta(minutes=number - place)
        CallEntry.objects.create(call_id=f"{place:032x}", time=time, outcome="ok", **values)


def test_the_first_failure_of_a_cause_is_not_looked_for_in_the_whole_log(admin_client: Client) -> None:
    make_calls(3, cause="f" * 16)
    plans = plans_of(lambda: admin_client.get(f"{CONSOLE}failures/"), "mcp_django_callentry")
    assert "SEARCH U0 USING COVERING INDEX mcp_call_cause (cause=?)" in plans


def test_the_calls_of_a_sample_are_found_by_its_index(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_charts, "MOST", 2)
    make_calls(60)
    plans = plans_of(lambda: admin_client.get(f"{CONSOLE}overview/", {"q": "last 30d"}), "mcp_django_callentry")
    assert "USING INDEX mcp_call_sample (time>? AND time<?)" in plans


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("ok", "mcp_call_outcome (outcome=? AND time>?)"),
        ("model:shop.order", "mcp_call_model (model=? AND time>?)"),
        ("writes", "mcp_call_writes (writes=? AND time>?)"),
    ],
)
def test_new_calls_are_not_looked_for_among_all_calls_with_their_term(
    admin_client: Client, query: str, index: str
) -> None:
    make_calls(3, model="shop.order")
    new = f"{CONSOLE}new/"
    plans = plans_of(lambda: admin_client.get(new, {"q": query, "after": "1"}), "mcp_django_callentry")
    assert index in plans


def test_a_new_call_that_took_longer_than_others_is_counted(admin_client: Client) -> None:
    make_calls(1)
    seen = CallEntry.objects.latest("pk").pk
    now = timezone.now()
    for place, ago in enumerate((timedelta(0), timedelta(hours=3)), 1):
        CallEntry.objects.create(call_id=f"f{place:031x}", time=now - ago, outcome="ok", tool="ship")
    assert admin_client.get(f"{CONSOLE}new/", {"q": "ok", "after": seen}).json()["count"] == 2
    assert admin_client.get(f"{CONSOLE}new/", {"q": "ok", "after": seen + 2}).json()["count"] == 0


def test_what_a_call_changed_is_found_by_the_call(admin_client: Client) -> None:
    author = make_author()
    request = request_of(make_superuser("ada"))
    call(UpdateRecord(), request, model="testapp.author", pk=str(author.pk), values={"name": "Ida"})
    call_id = request.mcp.record.id.hex
    entry = CallEntry.objects.create(call_id=call_id, time=timezone.now(), outcome="ok", rows_changed=1)
    plans = plans_of(lambda: admin_client.get(f"{CONSOLE}{entry.pk}/change/"), "mcp_django_change")
    assert "USING INDEX mcp_change_call (call=?)" in plans


def test_a_call_that_is_repeated_is_found_by_its_digest() -> None:
    request = request_of(make_superuser("ada"))
    plans = plans_of(lambda: Changes(request).repeated("d"), "mcp_django_change")
    assert "USING INDEX mcp_change_digest (digest=?" in plans
