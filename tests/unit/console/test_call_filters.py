"""What the list of calls can be narrowed to."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.console.call_log_admin import OutcomeFilter, outcomes
from mcp_django.context.call_record import CallRecord
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_superuser

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
CALLS = "/admin/mcp_django/callentry/"


def log(ago: timedelta = timedelta(0), **values: Any) -> None:
    store([row_of(CallRecord(started=timezone.now() - ago, **{"outcome": "ok", "tool": "query_records", **values}))])


@pytest.fixture
def browser() -> Client:
    found = Client()
    found.force_login(make_superuser())
    return found


def listed(browser: Client, **query: str) -> list[str]:
    response = browser.get(CALLS, query)
    assert response.status_code == 200
    return [entry.tool for entry in response.context["cl"].result_list]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"ago": "hour"}, {"new", "refused", "failed"}),
        ({"ago": "month"}, {"new", "refused", "failed", "old"}),
        ({"ended": "refused"}, {"refused"}),
        ({"ended": "failed"}, {"failed"}),
        ({"ended": "=refused:scope"}, {"refused"}),
        ({"ended": "writes"}, {"old"}),
        ({"caller": "service"}, {"new"}),
        ({"by_tool": "old"}, {"old"}),
        ({"by_user": "7"}, {"refused"}),
        ({"by_client_id": "c"}, {"failed"}),
        ({"by_model": "shop.order"}, {"new"}),
        ({"by_method": "tools/list"}, {"new"}),
        ({"by_version": "2025-11-25"}, {"failed"}),
        ({"by_site": "mcp"}, {"old"}),
        ({"by_tool": "unknown"}, set()),
        ({"ago": "bogus", "ended": "bogus"}, {"new", "refused", "failed", "old"}),
        ({"rows_read__gt": "0"}, {"old"}),
    ],
)
def test_the_list_is_narrowed(browser: Client, query: dict[str, str], expected: set[str]) -> None:
    log(tool="new", kind="service", model="shop.order", method="tools/list")
    log(tool="refused", outcome="refused:scope", user="7", username="ann")
    log(tool="failed", outcome="tool_error", client_id="c", client_name="Claude", version="2025-11-25")
    log(tool="old", ago=timedelta(days=20), writes=True, site="mcp", rows_read=4)
    assert set(listed(browser, **query)) == expected


def test_the_filters_offer_what_the_newest_calls_have_most_of_and_what_is_chosen(browser: Client) -> None:
    for number in range(20):
        for _ in range(number + 1):
            log(tool=f"tool_{number}", client_id=f"c{number}", client_name=f"Client {number}")
    filters = {
        spec.parameter_name: spec for spec in browser.get(CALLS, {"by_tool": "tool_0"}).context["cl"].filter_specs
    }
    assert filters["by_tool"].lookup_choices[0] == ("tool_19", "tool_19")
    assert filters["by_tool"].lookup_choices[-1] == ("tool_0", "tool_0")
    assert len(filters["by_tool"].lookup_choices) == 16
    assert filters["by_client_id"].lookup_choices[0] == ("c19", "Client 19")


def test_all_filters_look_at_the_newest_calls_once(browser: Client, django_assert_max_num_queries: Any) -> None:
    log()
    with django_assert_max_num_queries(9):
        browser.get(CALLS)


def test_a_value_that_no_call_has_is_no_error(browser: Client) -> None:
    assert listed(browser, by_tool="<script>", by_user="x' OR 1=1 --") == []


OUTCOMES = ["error:-32603", "error:404", "ok", "refused:rate", "refused:scope", "tool_error"]


def test_every_outcome_is_found_in_as_many_steps(django_assert_num_queries: Any) -> None:
    assert outcomes("default") == []
    for outcome in OUTCOMES * 2:
        log(outcome=outcome)
    with django_assert_num_queries(len(OUTCOMES) + 1):
        assert sorted(outcomes("default")) == OUTCOMES


@pytest.mark.parametrize("group", ["refused", "failed"])
def test_groups_of_outcomes_are_found_by_the_index(group: str, browser: Client) -> None:
    for outcome in OUTCOMES:
        log(outcome=outcome, tool=outcome)
    with CaptureQueriesContext(connection) as queries:
        found = listed(browser, ended=group)
    assert set(found) == {name for name in OUTCOMES if name.startswith(OutcomeFilter.groups[group])}
    assert not [query["sql"] for query in queries if "LIKE" in query["sql"]]
