"""The list of calls."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from mcp_django.console import call_list, call_query
from mcp_django.console import call_log_admin as module
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_superuser, make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
CALLS = "/admin/mcp_django/callentry/"
EVIL = '<img src=x onerror="alert(1)">\u202eevil'


def log(ago: timedelta = timedelta(0), **values: Any) -> CallEntry:
    record = CallRecord(started=timezone.now() - ago, **{"outcome": "ok", "tool": "query_records", **values})
    store([row_of(record)])
    return CallEntry.objects.get(call_id=record.id.hex)


def signed_in(user: Any) -> Client:
    found = Client()
    found.force_login(user)
    return found


@pytest.fixture
def browser() -> Client:
    return signed_in(make_superuser())


def listed(browser: Client, **query: str) -> list[str]:
    response = browser.get(CALLS, query)
    assert response.status_code == 200, response
    return [entry.tool for entry in response.context["cl"].result_list]


def test_calls_are_listed_newest_first_and_cannot_be_changed(browser: Client) -> None:
    for number in range(3):
        log(tool=f"tool_{number}")
    assert listed(browser) == ["tool_2", "tool_1", "tool_0"]
    page = browser.get(f"{CALLS}{CallEntry.objects.latest('pk').pk}/change/")
    assert page.status_code == 200
    assert 'name="_save"' not in page.content.decode()


@pytest.mark.parametrize("page", ["", "overview/"])
def test_the_breadcrumbs_are_the_element_that_this_version_of_the_admin_styles(browser: Client, page: str) -> None:
    found = [
        re.findall(r'<(\w+) class="breadcrumbs"', browser.get(url).text) for url in (CALLS + page, "/admin/auth/user/")
    ]
    assert len(found[0]) == 1
    assert found[0] == found[1]


def test_not_even_a_superuser_deletes_single_calls(browser: Client) -> None:
    entry = log()
    assert "/delete/" not in browser.get(f"{CALLS}{entry.pk}/change/").content.decode()
    assert browser.post(f"{CALLS}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    browser.post(CALLS, {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"})
    assert CallEntry.objects.filter(pk=entry.pk).exists()


def test_calls_are_found_by_ids_and_by_the_name_of_a_user(browser: Client) -> None:
    ann = make_user("ann")
    entry = log(tool="one", trace="a" * 32, error_id="b" * 12, session="s-1", user=str(ann.pk))
    log(tool="other")
    for term in (entry.call_id, entry.call_id.upper(), "a" * 32, "b" * 12, "s-1", "ann", " ann "):
        assert listed(browser, q=term) == ["one"], term
    assert listed(browser, q="nobody") == []
    assert set(listed(browser, q="")) == {"one", "other"}


QUERIES = ["", "tool:tool_1", "failed", "failed client:c1 last 1h", "slow:1", "nonsense", "tool_", "user1 timed out"]


@pytest.mark.parametrize("query", QUERIES)
def test_the_list_takes_as_many_queries_for_many_calls_as_for_one(
    browser: Client, query: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(120):
        log(tool=f"tool_{number % 40}", user=str(number), client_id=f"c{number}", username=f"user{number}")
    with django_assert_max_num_queries(17):
        browser.get(CALLS, {"q": query})


def test_no_more_rows_are_counted_than_the_list_leads_to(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CallPaginator, "most", 60)
    for _number in range(70):
        log()
    with CaptureQueriesContext(connection) as asked:
        page = browser.get(CALLS)
    assert page.context["cl"].result_count == 60
    counts = [query["sql"] for query in asked if "COUNT(" in query["sql"] and "callentry" in query["sql"]]
    assert counts
    assert all("LIMIT 60" in sql for sql in counts)
    assert "The newest 60 calls." in page.text
    assert "The newest 60 calls that match." in browser.get(CALLS, {"q": "ok"}).text
    # The first by duration are of the newest ones, but the first by time are the oldest of all.
    assert "The newest 60 calls." in browser.get(CALLS, {"o": "-1"}).text
    assert "The oldest 60 calls." in browser.get(CALLS, {"o": "0"}).text
    assert "The oldest 60 calls that match." in browser.get(CALLS, {"o": "0", "q": "ok"}).text


def test_the_words_of_outcomes_are_collected_once_for_a_page(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        log(tool=f"tool_{number}", client_name=f"Client {number}")
    collected: list[int] = []
    words = call_query.Outcome.spoken()
    monkeypatch.setattr(call_query.Outcome, "spoken", lambda: collected.append(1) or words)
    browser.get(CALLS, {"q": "last 1h nothing-of-the-kind"})
    browser.get(CALLS)
    assert len(collected) <= 2


def links(page: Any) -> set[str]:
    """The queries that a page leads to."""
    return {parse_qs(url.partition("?")[2]).get("q", [""])[0] for url in re.findall(r'href="(\?[^"]*)"', page.text)}


def test_each_value_of_a_call_narrows_the_list(browser: Client) -> None:
    log(model="shop.order", username="ann", user="7", client_name="Claude Desktop", client_id="c", duration=1234.56)
    log(tool="", method="tools/list", outcome="tool_error")
    page = browser.get(CALLS, {"q": "today"})
    expected = ["tool:query_records", "model:shop.order", "user:ann", 'client:"Claude Desktop"', "method:tools/list"]
    assert {f"today {each}" for each in expected} <= links(page)
    assert '<bdi title="1,234.6 ms">1.2 s</bdi>' in page.text
    assert 'class="mcp-row-failed"' in page.text
    page = browser.get(CALLS, {"q": "user:ann"})
    assert '<span class="mcp-value" title="ann">' in page.text


def test_chips_are_taken_off_one_by_one_or_all_at_once(browser: Client) -> None:
    log()
    page = browser.get(CALLS, {"q": "ok tool:query_records last 1h"})
    assert {"tool:query_records last 1h", "ok last 1h", "ok tool:query_records", ""} <= links(page)
    assert 'aria-label="Take off answered"' in page.text
    assert 'value="ok tool:query_records last 1h"' in page.text


def test_what_the_calls_found_have_most_of_is_proposed(browser: Client) -> None:
    log(outcome="tool_error", tool="tool_0", client_name="Client 0", ago=timedelta(days=1))
    for number in range(6):
        for _ in range(number + 1):
            log(tool=f"tool_{number}", client_name=f"Client {number}")
    found = links(browser.get(CALLS))
    assert {"failed", "last 1h", "tool:tool_5", "tool:tool_3", 'client:"Client 5"'} <= found


def test_what_is_proposed_finds_some_of_the_calls(browser: Client) -> None:
    for number in range(6):
        log(tool=f"tool_{number}", client_name=f"Client {number % 2}", outcome="ok" if number % 3 else "tool_error")
    log(tool="tool_0", client_name="Client 2", outcome="refused:scope", ago=timedelta(days=1))
    for query in (
        "",
        "tool:tool_0",
        "failed",
        'client:"Client 1"',
        "last 1h",
        'refused client:"Client 2"',
        "yesterday",
    ):
        calls = browser.get(CALLS, {"q": query}).context["cl"]
        for narrowed, term, told in calls.proposals:
            count = browser.get(CALLS, {"q": str(narrowed)}).context["cl"].result_count
            assert 0 < count == told < calls.result_count, (query, str(term))


def test_nothing_is_proposed_where_no_call_is_found(browser: Client) -> None:
    log()
    assert browser.get(CALLS, {"q": "tool:query_records failed"}).context["cl"].proposals == []


def test_rare_failures_behind_many_calls_are_proposed(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_list, "FACETED", 5)
    log(outcome="tool_error", ago=timedelta(days=1))
    for _ in range(5):
        log()
    assert "failed" in links(browser.get(CALLS))


def test_a_query_of_many_terms_takes_few_statements(
    browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(40):
        log(tool=f"tool_{number}", client_name=f"Client {number}", username=f"user{number}")
    text = " ".join(f'tool:tool_{number} client:"Client {number}" user:user{number}' for number in range(10))
    with django_assert_max_num_queries(100):
        page = browser.get(CALLS, {"q": f"refused {text}"})
    assert "That is too long." in page.text
    with django_assert_max_num_queries(100):
        browser.get(CALLS, {"q": " ".join(f"refused client:c{number}" for number in range(6))})


def test_few_words_of_a_query_are_compared_with_names(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        log(tool="x" * 90 + str(number), client_name="y" * 90 + str(number))
    compared: list[tuple[str, list[str]]] = []

    def compare(word: str, texts: Any, count: int) -> list[str]:
        compared.append((word, list(texts)))
        return []

    monkeypatch.setattr(call_query, "get_close_matches", compare)
    browser.get(CALLS, {"q": " ".join(f"{number}{'z' * 200}" for number in range(30))})
    assert 0 < len(compared) <= call_query.MOST_COMPARED
    assert all(len(text) <= call_query.COMPARED_CHARS for word, texts in compared for text in [word, *texts])


def test_an_empty_list_says_what_to_take_off(browser: Client) -> None:
    log(outcome="tool_error", client_name="Codex", tool="aggregate_records")
    log(client_name="Claude")
    page = browser.get(CALLS, {"q": "failed client:Claude"})
    assert "No call matches all of this." in page.text
    assert [(str(term), str(query)) for term, query in page.context["cl"].narrower] == [
        ("failed", "client:Claude"),
        ("client:Claude", "failed"),
    ]
    page = browser.get(CALLS, {"q": "tool:aggregate_record last 1h"})
    assert "tool:aggregate_records last 1h" in links(page)
    page = browser.get(CALLS, {"q": "failed client:Claude user:nobody"})
    assert "Removing one of them does not help either." in page.text


def test_a_log_without_calls_says_so(browser: Client) -> None:
    assert "No client has called yet." in browser.get(CALLS).text


def test_a_word_that_cannot_be_read_is_said_with_the_nearest(browser: Client) -> None:
    log()
    page = browser.get(CALLS, {"q": "faild <script>"})
    assert page.context["cl"].result_count == 0
    assert "Did you mean" in page.text
    assert "<script>”" not in page.text
    assert {"failed <script>", "<script>", "faild"} <= {unescape(each) for each in links(page)}


def test_a_minute_leads_to_what_was_around_it(browser: Client) -> None:
    page = browser.get(CALLS, {"q": "2026-11-24 14:05"})
    assert "2026-11-24 14:00-14:20" in links(page)


def test_what_no_index_finds_is_looked_for_in_the_newest_calls_and_the_list_says_so(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_query, "LOOKED_THROUGH", 3)
    for number in range(8):
        log(ago=timedelta(minutes=number), kind="service", tool=f"tool_{number}")
    page = browser.get(CALLS, {"q": "caller:service"})
    assert [entry.tool for entry in page.context["cl"].result_list] == ["tool_0", "tool_1", "tool_2", "tool_3"]
    assert "Searched among the newest" in page.text
    page = browser.get(CALLS, {"q": str(page.context["cl"].earlier)})
    assert [entry.tool for entry in page.context["cl"].result_list][-1] != "tool_3"
    assert "tool_4" in [entry.tool for entry in page.context["cl"].result_list]


def test_the_oldest_come_first_for_whoever_asks(browser: Client) -> None:
    for number in range(3):
        log(tool=f"tool_{number}", ago=timedelta(minutes=5 - number))
    assert listed(browser, o="0") == ["tool_0", "tool_1", "tool_2"]


def test_pages_lead_to_each_other(browser: Client) -> None:
    for _number in range(60):
        log(username="ann", user="7")
    page = browser.get(CALLS, {"q": "user:ann"})
    assert 'rel="next" href="?q=user%3Aann&amp;p=2"' in page.text
    page = browser.get(CALLS, {"q": "user:ann", "p": "2"})
    assert 'rel="prev" href="?q=user%3Aann&amp;p=1"' in page.text
    assert "51–60" in page.text


@pytest.mark.parametrize("number", ["0", "-1", "2", "9" * 400, "x"])
def test_a_page_that_is_not_there_is_no_failure(browser: Client, number: str) -> None:
    log()
    assert browser.get(CALLS, {"p": number}).status_code in (200, 302)


def test_parameters_of_other_lists_find_nothing_out(browser: Client) -> None:
    log(tool="one", rows_read=4)
    for query in ({"rows_read__gt": "0"}, {"tool__exact": "one"}, {"client_name__startswith": "C"}):
        assert browser.get(CALLS, query).status_code in (302, 400)


NEW = f"{CALLS}new/"


def test_new_calls_of_a_query_are_counted(browser: Client) -> None:
    old = log(outcome="tool_error")
    page = browser.get(CALLS, {"q": "failed"})
    assert f'data-after="{old.pk}"' in page.text
    assert 'data-url="new/?q=failed"' in page.text
    assert browser.get(NEW, {"q": "failed", "after": old.pk}).json() == {"count": 0, "text": "0 new"}
    log(outcome="tool_error")
    log()
    assert browser.get(NEW, {"q": "failed", "after": old.pk}).json() == {"count": 1, "text": "1 new"}
    assert browser.get(NEW, {"q": "", "after": old.pk}).json()["count"] == 2
    assert browser.get(NEW, {"q": "nonsense", "after": old.pk}).json()["count"] == 0


@pytest.mark.parametrize("after", ["", "x", "-1", "9" * 40, "²"])
def test_a_number_that_is_none_counts_nothing(browser: Client, after: str) -> None:
    log()
    assert browser.get(NEW, {"after": after}).json()["count"] == 0


def test_few_new_calls_are_counted_by_one_look_at_the_newest(
    browser: Client, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(module, "MOST_NEW", 3)
    for _number in range(5):
        log()
    with django_assert_max_num_queries(4), CaptureQueriesContext(connection) as asked:
        assert browser.get(NEW, {"after": "0"}).json() == {"count": 3, "text": "3+ new"}
    assert "LIMIT 3" in asked[-1]["sql"]


@pytest.mark.parametrize("query", ["yesterday", "before 2026-01-01"])
def test_a_list_of_a_time_that_is_over_asks_for_nothing_new(browser: Client, query: str) -> None:
    log(ago=timedelta(days=1))
    assert "mcp-new" not in browser.get(CALLS, {"q": query}).text
    assert "mcp-new" in browser.get(CALLS, {"q": "today"}).text
    assert "mcp-new" not in browser.get(CALLS, {"o": "0"}).text


def test_new_calls_are_for_those_who_see_the_log() -> None:
    assert signed_in(make_user("bob", "testapp.view_book")).get(NEW).status_code == 403
    assert signed_in(make_user("ann", "mcp_django.view_callentry")).get(NEW).status_code == 200
    assert Client().get(NEW).status_code == 302


def test_nobody_asks_for_what_was_captured_through_the_list() -> None:
    log(tool="one")
    CallEntry.objects.update(arguments="canary")
    browser = signed_in(make_user("ann", "mcp_django.view_callentry"))
    response = browser.get(CALLS, {"arguments__contains": "canary"})
    assert response.status_code in (302, 400)
    response = browser.get(CALLS, {"result__contains": "nothing"})
    assert response.status_code in (302, 400)


def test_what_clients_say_is_inert(browser: Client) -> None:
    call = log(client_name=EVIL, tool=EVIL, model=EVIL, client_id="c", username=EVIL, user="7", detail=EVIL)
    for address in (CALLS, f"{CALLS}{call.pk}/change/"):
        text = browser.get(address).content.decode()
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text


def test_a_column_is_sorted_within_the_newest_calls_by_as_many_queries(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(tool="old", duration=9000.0, ago=timedelta(days=1))
    for number in range(4):
        log(
            tool=f"tool_{number}",
            duration=float(number * 7 % 4),
            rows_changed=number % 2,
            ago=timedelta(minutes=number),
        )
    assert listed(browser, o="-1") == ["old", "tool_1", "tool_2", "tool_3", "tool_0"]
    with CaptureQueriesContext(connection) as usual:
        assert listed(browser)[-1] == "old"
    number = len(usual)
    monkeypatch.setattr(module.CallPaginator, "most", 4)
    with CaptureQueriesContext(connection) as asked:
        assert listed(browser, o="-1") == ["tool_1", "tool_2", "tool_3", "tool_0"]
    assert len(asked) <= number + 1
    # The rows that are sorted were found by their time.
    sorting = [each["sql"] for each in asked if "duration" in each["sql"].rpartition("ORDER")[2]]
    assert sorting
    assert all("time >=" in re.sub('["`]', "", sql) for sql in sorting)
    assert listed(browser, o="1") == ["tool_0", "tool_3", "tool_2", "tool_1"]
    assert listed(browser, o="-2") == ["tool_1", "tool_3", "tool_0", "tool_2"]
    assert "The newest 4 calls." in browser.get(CALLS, {"o": "-1"}).text


def test_the_columns_say_how_they_are_sorted(browser: Client) -> None:
    for number in range(60):
        log(tool=f"tool_{number % 2}", duration=float(number))
    page = browser.get(CALLS, {"q": "tool:tool_1", "p": "1"}).text
    assert 'aria-sort="descending"><a href="?o=0&amp;q=tool%3Atool_1">time</a>' in page
    assert 'aria-sort="none"><a href="?o=-1&amp;q=tool%3Atool_1">duration</a>' in page
    page = browser.get(CALLS, {"o": "-1"}).text
    assert 'aria-sort="descending"><a href="?o=1">duration</a>' in page
    assert ">Older<" not in page.partition("mcp-pages")[2]
    assert "mcp-new" not in page
    for order in ("7", "x", "-", "1.2", "-1.-0", ""):
        assert browser.get(CALLS, {"o": order}).status_code == 200, order


def test_a_row_has_its_reason_and_what_it_changed_and_no_two_links_to_one_page(browser: Client) -> None:
    values = {"model": "same", "username": "same", "user": "7", "client_name": "same", "client_id": "same"}
    call = log(tool="same", outcome="tool_error", detail=f"No field {EVIL}", rows_changed=1234, **values)
    page = browser.get(CALLS, {"q": "failed"})
    (row,) = re.findall(r'<tr class="mcp-row.*?</tr>', page.text, re.DOTALL)
    hrefs = re.findall(r'href="([^"]*)"', row)
    assert len(hrefs) == len(set(hrefs)) == 5
    assert hrefs[0] == f"{call.pk}/change/?q=failed#beside"
    assert "No field &lt;img" in row
    assert ">1,234</td>" in row
    # A value that the query has narrows no further, but the same text of another column does.
    assert "failed user:same client:same" in links(browser.get(CALLS, {"q": "failed user:same"}))


def test_a_call_leads_to_the_calls_beside_it_within_the_query(browser: Client) -> None:
    moment = timezone.now() - timedelta(days=1)
    calls = [log(outcome=("tool_error", "ok")[number % 2]) for number in range(6)]
    # Two came at the same time.
    for number, call in enumerate(calls):
        CallEntry.objects.filter(pk=call.pk).update(time=moment + timedelta(minutes=number // 3))

    def beside(number: int, query: str) -> list[int | None]:
        page = browser.get(f"{CALLS}{calls[number].pk}/change/", {"q": query} if query else {})
        found = [page.context["newer"], page.context["older"]]
        return [key and [call.pk for call in calls].index(key) for key in found]

    assert [beside(number, "") for number in (0, 2, 3, 5)] == [[1, None], [3, 1], [4, 2], [None, 4]]
    assert [beside(number, "failed") for number in (0, 2, 3)] == [[2, None], [4, 0], [4, 2]]
    assert beside(2, "nonsense-word") == [None, None]
    page = browser.get(f"{CALLS}{calls[2].pk}/change/", {"q": "failed"}).text
    assert f'<a rel="next" href="{CALLS}{calls[0].pk}/change/?q=failed#beside">' in page
    assert f'<a href="{CALLS}?q=failed">' in page


@pytest.mark.parametrize("query", ["caller:service", "caller:service failed", "reason:totl", "failed"])
def test_few_calls_are_searched_for_those_beside_one(
    browser: Client, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(call_query, "LOOKED_THROUGH", 3)
    far = [timedelta(minutes=1), timedelta(minutes=90)]
    for ago in far:
        log(kind="service", outcome="tool_error", detail="totl", ago=ago)
    for minute in range(2, 90, 4):
        outcome = "tool_error" if minute % 8 == 2 else "refused:scope"
        log(ago=timedelta(minutes=minute), outcome=outcome, detail="other" if query != "failed" else "totl")
    call = log(kind="service", outcome="tool_error", detail="totl", ago=timedelta(minutes=45))
    page = browser.get(f"{CALLS}{call.pk}/change/", {"q": query})
    if query == "failed":
        newer, older = (CallEntry.objects.get(pk=page.context[name]) for name in ("newer", "older"))
        assert newer.time - call.time < timedelta(minutes=9)
        assert call.time - older.time < timedelta(minutes=9)
    else:
        # They are too far away to be looked for.
        assert page.context["newer"] is page.context["older"] is None


def test_one_time_and_one_duration_are_written_the_same_on_every_page(browser: Client) -> None:
    call = log(duration=1234.56, session="s-1", tool="one")
    written = [CALLS, f"{CALLS}{call.pk}/change/", f"{CALLS}conversations/?call={call.pk}", f"{CALLS}conversations/"]
    texts = [browser.get(address).text for address in written]
    assert all('<bdi title="1,234.6 ms">1.2 s</bdi>' in text for text in texts[:3])
    assert not any(other in text for text in texts for other in ("1,235 ms", "1234.6", "1,234.6</"))
    (moment,) = {
        match for text in texts for match in re.findall(r"<time [^>]*>(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)</time>", text)
    }
    assert moment == f"{call.time:%Y-%m-%d %H:%M:%S}"


def test_a_name_that_nobody_sees_is_no_link(browser: Client) -> None:
    log(client_name="\u2003", username="\u2003", user="7")
    assert "<bdi></bdi></a>" not in browser.get(CALLS).text
