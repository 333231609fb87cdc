"""The overview: each number leads to the calls behind it."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from mcp_django.context.call_record import CallRecord
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_superuser

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
OVERVIEW = "/admin/mcp_django/callentry/overview/"
EVIL = '<img src=x onerror="alert(1)">\u202eevil'


@pytest.fixture
def browser() -> Client:
    found = Client()
    found.force_login(make_superuser())
    return found


def log(ago: timedelta = timedelta(minutes=5), **values: object) -> None:
    store([row_of(CallRecord(started=timezone.now() - ago, **{"outcome": "ok", "tool": "query_records", **values}))])


def number_of(text: str, title: str) -> tuple[str, str]:
    """Return the number under a title, and where it leads."""
    found = re.search(rf'<dt>{re.escape(title)}</dt><dd>(?:<a href="([^"]*)">)?([^<]*)', text)
    assert found is not None
    return found[2], unescape(found[1] or "")


def test_each_number_leads_to_its_calls(browser: Client) -> None:
    log(rows_read=7)
    log(outcome="refused:scope")
    log(outcome="tool_error", duration=900.0)
    log(ago=timedelta(days=2), outcome="refused:scope")
    text = browser.get(OVERVIEW).content.decode()
    for title, expected in {"Calls": 3, "Refused": 1, "Failed": 1, "Rows read": 7}.items():
        value, url = number_of(text, title)
        assert value == str(expected)
        listed = browser.get(url).context["cl"].result_count
        assert listed == (1 if title == "Rows read" else expected), title
    for url, count in re.findall(
        r'<a href="([^"]*)" aria-label="(\d+): (?:refused:scope|tool_error|query_records)"', text
    ):
        assert browser.get(unescape(url)).context["cl"].result_count == int(count)


@pytest.mark.parametrize(("span", "calls"), [("hour", 1), ("day", 2), ("week", 3), ("month", 4), ("bogus", 2)])
def test_the_time_can_be_chosen(browser: Client, span: str, calls: int) -> None:
    for ago in (timedelta(minutes=5), timedelta(hours=5), timedelta(days=5), timedelta(days=25), timedelta(days=40)):
        log(ago=ago)
    text = browser.get(OVERVIEW, {"span": span}).content.decode()
    assert number_of(text, "Calls")[0] == str(calls)


def test_charts_are_svg_with_a_table(browser: Client) -> None:
    log(duration=12.0)
    log(outcome="refused:scope")
    text = browser.get(OVERVIEW).content.decode()
    assert text.count('<svg class="mcp-chart"') == 2
    assert 'rect class="mcp-refused"' in text
    assert "<details" in text


def test_without_calls_it_says_so(browser: Client) -> None:
    text = browser.get(OVERVIEW).content.decode()
    assert "No client has called in this time." in text
    assert "mcp-chart" not in text


def test_what_clients_call_themselves_is_inert(browser: Client) -> None:
    log(client_id="c", client_name=EVIL[:90], tool=EVIL[:90], username=EVIL[:90], user="7")
    text = browser.get(OVERVIEW).content.decode()
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x") >= 3
    assert "<bdi>&lt;img" in text


def test_the_page_takes_as_many_queries_for_many_calls_as_for_one(
    browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        log(user=str(number), tool=f"tool_{number}", client_id=f"c{number}")
    with django_assert_max_num_queries(10):
        browser.get(OVERVIEW)
