"""The card of calls on the index of the admin: there for who may view calls, and no burden to anybody."""

import re
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin import AdminSite
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from mcp_django.console.call_log_admin import CallEntryAdmin
from mcp_django.console.call_query import CallQuery
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from mcp_django.operating.switches import set_switch
from tests.factories import make_superuser, make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
CARD = "Calls of AI clients, last 24 hours"


def log(ago: timedelta = timedelta(minutes=5), **values: object) -> None:
    store([row_of(CallRecord(started=timezone.now() - ago, **{"outcome": "ok", "tool": "query_records", **values}))])


def index(user: object = None) -> str:
    browser = Client()
    browser.force_login(user or make_superuser())  # type: ignore[arg-type]
    return browser.get("/admin/").content.decode()


def test_its_bars_lead_to_the_calls_that_failed() -> None:
    for _ in range(3):
        log()
        log(outcome="tool_error", ago=timedelta(hours=2))
    text = index()
    assert CARD in text
    assert re.search(r"6 calls</a>\s*<a class=\"mcp-worse\"[^>]*>3 failed \(50.0 %\)", text)
    bars = {
        unescape(url): (int(calls), int(failed))
        for url, calls, failed in re.findall(r'<a href="([^"]*)" aria-label="[^"]*: (\d+) calls?, (\d+) failed"', text)
    }
    assert sum(calls for calls, _failed in bars.values()) == 6
    for url, (calls, failed) in bars.items():
        query = CallQuery.parse(parse_qs(urlsplit(url).query)["q"][0], timezone.now())
        assert query.filter(CallEntry.objects.all()).count() == (failed or calls)


def test_it_tells_what_is_off() -> None:
    set_switch("tool", "query_records", reason="too slow")
    text = index()
    assert "too slow" in text
    assert "Turn on again" in text


def test_it_is_for_those_who_may_view_calls() -> None:
    log()
    viewer, other = make_user("viewer", "mcp_django.view_callentry"), make_user("other")
    assert CARD in index(viewer)
    assert "Turn on again" not in index(viewer)
    assert CARD not in index(other)


def test_it_reads_little_and_other_pages_read_nothing(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    browser = Client()
    browser.force_login(make_superuser())
    log()
    browser.get("/admin/")
    with CaptureQueriesContext(connection) as asked:
        browser.get("/admin/")
    assert sum("mcp_django_callentry" in query["sql"] for query in asked) == 2
    with CaptureQueriesContext(connection) as asked:
        browser.get("/admin/auth/")
        browser.get("/admin/auth/user/")
    assert not [query for query in asked if "mcp_django" in query["sql"].partition("WHERE")[0]]


def test_the_index_is_there_when_the_log_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise OperationalError("no such table")

    monkeypatch.setattr("mcp_django.console.overview_charts.sample", fail)
    text = index()
    assert CARD not in text
    assert "/admin/mcp_django/callentry/" in text


def test_a_site_with_an_index_of_its_own_keeps_it() -> None:
    class Own(AdminSite):
        index_template = "own.html"

    own, plain = Own("own"), AdminSite("plain")
    for site in (own, plain):
        site.register(CallEntry, CallEntryAdmin)
    assert own.index_template == "own.html"
    assert plain.index_template == "mcp_django/console/admin_index.html"
