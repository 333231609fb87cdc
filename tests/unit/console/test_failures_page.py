"""The page of failures by cause: equal failures are one line, who meets them, and since when."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.failure_causes import cause_of
from mcp_django.testing import MCPClient
from tests.factories import make_book, make_superuser
from tests.unit.console.conftest import url

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def fail(detail: str, *, hours: float = 1, number: int = 1, **values: Any) -> str:
    """Put failed calls into the log, and return their cause."""
    given = {"tool": "query_records", "method": "tools/call", "outcome": "tool_error", "detail": detail, **values}
    record = CallRecord(**{name: given[name] for name in ("tool", "method", "outcome", "detail")})
    cause = cause_of(record)
    time = timezone.now() - timedelta(hours=hours)
    for place in range(number):
        known = CallEntry._default_manager.count()
        CallEntry._default_manager.create(
            call_id=f"{known:032x}", time=time - timedelta(seconds=place), cause=cause, **{"release": "1", **given}
        )
    return cause


def shown(browser: Client, query: str = "") -> str:
    response = browser.get(url("failures"), {"q": query} if query else {})
    assert response.status_code == 200
    text = re.sub(r"<[^>]+>", " ", response.content.decode().partition('class="mcp-page">')[2])
    return " ".join(html.unescape(text).split())


def test_equal_failures_are_one_line_with_their_number(admin: Client) -> None:
    fail("", outcome="error:timeout", number=30)
    fail("shop.order has no field 'totl'.", number=12)
    page = shown(admin)
    assert "failed: timed out query_records" in page
    assert page.count("no field 'totl'") == 1
    assert page.index("30 71 %") < page.index("12 29 %")


def test_failures_that_were_never_seen_before_come_first(admin: Client) -> None:
    fail("An old one.", hours=100, number=3)
    fail("An old one.", number=9)
    fail("A new one.", number=2)
    page = shown(admin)
    assert page.index("New since yesterday") < page.index("A new one.") < page.index("Known before")
    assert page.index("Known before") < page.index("An old one.")


def test_a_failure_is_as_old_as_its_first_call_even_if_that_was_before_the_time_of_the_query(admin: Client) -> None:
    fail("It comes back.", hours=24 * 20)
    fail("It comes back.")
    page = shown(admin, "last 24h")
    assert "New since yesterday" not in page
    assert "It comes back." in page


def test_a_line_says_who_meets_the_failure(admin: Client) -> None:
    for name in ("Claude", "Codex", "Zed", "Goose"):
        fail("No.", client_name=name, client_id=name, username=f"of {name}", number=2)
    fail("No.", client_name="Claude", client_id="Claude", username="anna")
    page = shown(admin)
    assert "client : Claude 3" in page.replace("client:", "client :")
    assert "and 1 more" in page
    links = admin.get(url("failures")).content.decode()
    assert re.search(r'href="[^"]*\?q=last\+7d\+cause%3A[0-9a-f]{16}\+client%3AClaude"', links)


def test_the_failures_of_one_deployment_are_told_from_those_before(admin: Client, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"version": "2"}}
    fail("Always.", hours=5, release="1")
    fail("Always.", release="2")
    fail("Since the deployment.", release="2")
    assert "New in version 2: 1" in " ".join(admin.get(url("failures")).content.decode().split())
    page = admin.get(url("failures"), {"q": "last 7d", "release": ""}).content.decode()
    assert "Since the deployment." in page
    assert "Always." not in page


@pytest.mark.parametrize("word", ["client:Claude", "failed", "tool_error"])
def test_failures_that_a_word_finds_are_searched_among_the_newest_and_the_page_leads_further_back(
    admin: Client, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    for module in ("call_query", "failures_page"):
        monkeypatch.setattr(f"mcp_django.console.{module}.LOOKED_THROUGH", 3)
    fail("A new one.", hours=1, number=5, client_name="Claude", client_id="c")
    fail("An old one.", hours=30, number=5, client_name="Claude", client_id="c")
    query = f"{word} last 7d"
    page = shown(admin, query)
    assert "Searched among the newest, back to" in page
    assert "A new one." in page
    assert "An old one." not in page

    seen = []
    while link := re.search(
        r'href="\?q=([^"]*)">Look further back', admin.get(url("failures"), {"q": query}).content.decode()
    ):
        query = html.unescape(link[1]).replace("+", " ").replace("%3A", ":")
        seen.append(shown(admin, query))
    assert any("An old one." in each for each in seen)
    assert shown(admin, "last 7d").count("one.") == 2


def test_of_many_failures_the_newest_name_their_clients_and_the_page_says_so(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail("An old one.", hours=30, number=3, client_name="Zed", client_id="z")
    fail("A new one.", number=3, client_name="Claude", client_id="c")
    assert "Clients and users: of the newest" not in shown(admin)
    assert "Zed 3" in shown(admin)

    monkeypatch.setattr("mcp_django.console.failures_page.MOST_CALLERS", 3)
    page = shown(admin)
    assert "Clients and users: of the newest failures, back to" in page
    assert "Claude 3" in page
    assert "Zed" not in page
    # The numbers of failures are whole.
    assert page.count("3 50 %") == 2


def test_a_query_for_failures_that_came_in_one_way_leads_to_the_list_of_these(admin: Client) -> None:
    fail("No.", outcome="refused:scope")
    page = admin.get(url("failures"), {"q": "refused"}).content.decode()
    assert "?q=refused+last+7d" in page
    assert "?q=refused+last+7d+failed" not in page


def test_the_line_leads_to_its_calls_alone(admin: Client) -> None:
    fail("The one.", number=2)
    fail("The other.")
    page = admin.get(url("failures")).content.decode()
    [link] = re.findall(r'href="([^"]+)"><bdi>The one\.', page)
    calls = admin.get(link.replace("&amp;", "&")).context["cl"]
    assert {entry.detail for entry in calls.result_list} == {"The one."}
    assert len(calls.result_list) == 2


def test_reasons_can_be_searched(admin: Client) -> None:
    fail("no field 'totl'")
    fail("no field 'stat'")
    page = shown(admin, "reason:TOTL")
    assert "totl" in page
    assert "stat" not in page.replace("status", "")


def test_a_page_without_failures_says_so(admin: Client) -> None:
    assert "No call failed in this time." in shown(admin)


def test_a_word_that_cannot_be_read_finds_nothing_and_is_told(admin: Client) -> None:
    fail("Here.")
    page = admin.get(url("failures"), {"q": "nonsense!"}).content.decode()
    assert "Here." not in page
    assert "This is not a time" in page


def test_what_a_client_calls_itself_is_no_markup(admin: Client) -> None:
    fail("<script>x</script>", client_name="<b>bold</b>", tool="<i>")
    page = admin.get(url("failures")).content.decode()
    assert "<script>x" not in page
    assert "<b>bold" not in page
    assert "<i>" not in page


def test_the_number_of_queries_does_not_grow_with_the_causes(admin: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            admin.get(url("failures"))
        return sum("mcp_django_callentry" in query["sql"].lower() for query in found)

    fail("One.")
    one = queries()
    for number in range(8):
        fail(f"Cause {chr(97 + number)}.", client_name=f"client {number}")
    # What a page of calls knows, the totals, the first failures, all these calls, and who met them.
    assert queries() == one == 4


def test_only_those_who_may_view_calls_open_it(browser_of: Any) -> None:
    assert browser_of("boss", "mcp_django.view_callentry").get(url("failures")).status_code == 200
    assert browser_of("clerk").get(url("failures")).status_code == 403


def test_failed_calls_of_a_client_get_reason_cause_and_version(call_log: Any) -> None:
    client = MCPClient(make_superuser("anna"))
    make_book("Dune")
    for _ in range(2):
        assert client.call("query_records", model="testapp.book", fields=["titel"]).is_error
    assert not client.call("query_records", model="testapp.book").is_error
    fine = [entry for entry in call_log() if entry.outcome == "ok"]
    wrong = [entry for entry in call_log() if entry.outcome == "tool_error"]
    assert wrong[0].detail.startswith("testapp.book has no field 'titel'")
    assert wrong[0].cause == wrong[1].cause > ""
    assert wrong[0].release == "1"
    assert {(entry.cause, entry.release, entry.detail) for entry in fine} == {("", "", "")}
