"""The list of calls, and the page of one."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from mcp_django.console import call_log_admin as module
from mcp_django.console.call_log_admin import around, estimated
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_book, make_superuser, make_user

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


def test_the_list_takes_as_many_queries_for_many_calls_as_for_one(
    browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(120):
        log(tool=f"tool_{number % 40}", user=str(number), client_id=f"c{number}")
    with django_assert_max_num_queries(10):
        browser.get(CALLS, {"by_tool": "tool_1"})


def test_no_more_rows_are_counted_than_the_list_leads_to(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 60)
    for _number in range(70):
        log()
    with CaptureQueriesContext(connection) as asked:
        page = browser.get(CALLS)
    assert page.context["cl"].result_count == 60
    counts = [query["sql"] for query in asked if "COUNT(" in query["sql"] and "callentry" in query["sql"]]
    assert counts
    assert all("LIMIT 60" in sql for sql in counts)
    assert "about 70 calls" in page.content.decode()


def test_the_number_of_calls_is_estimated() -> None:
    assert estimated() == 0
    log()
    log()
    assert estimated() == 2


def test_a_call_shows_what_the_same_caller_did_before_and_after(browser: Client) -> None:
    same = {"user": "7", "client_id": "c"}
    entries = [log(tool=f"tool_{number}", ago=timedelta(minutes=20 - number), **same) for number in range(13)]
    log(tool="foreign", user="8", client_id="c", ago=timedelta(minutes=14))
    log(tool="elsewhere", user="7", client_id="d", ago=timedelta(minutes=14))
    found = around(entries[6])
    assert [entry.tool for entry in found["before"]] == ["tool_1", "tool_2", "tool_3", "tool_4", "tool_5"]
    assert [entry.tool for entry in found["after"]] == ["tool_7", "tool_8", "tool_9", "tool_10", "tool_11"]
    text = browser.get(f"{CALLS}{entries[6].pk}/change/").content.decode()
    assert f'<a href="../../{entries[5].pk}/change/">' in text
    assert browser.get(f"{CALLS}{entries[5].pk}/change/").status_code == 200


def test_strangers_calls_have_nothing_in_common() -> None:
    log()
    assert around(log()) == {"before": [], "after": []}


def test_a_call_leads_to_its_rows_and_to_the_history_that_it_wrote() -> None:
    book = make_book("Emma")
    entry = LogEntry.objects.create(
        user=make_superuser(),
        content_type=ContentType.objects.get_for_model(book),
        object_id=str(book.pk),
        object_repr="Emma",
        action_flag=CHANGE,
        change_message="Changed title.",
    )
    call = log(model="testapp.book", history=[str(entry.pk), "x"])
    address = f"{CALLS}{call.pk}/change/"
    text = signed_in(make_user("ann", "mcp_django.view_callentry", "testapp.view_book")).get(address).content.decode()
    assert f'href="/admin/testapp/book/{book.pk}/history/"' in text
    assert 'href="/admin/testapp/book/"' in text
    assert "Changed title." in text
    text = signed_in(make_user("bob", "mcp_django.view_callentry")).get(address).content.decode()
    assert "a row that you may not see" in text
    assert "Emma" not in text
    assert "Changed title." not in text
    assert 'href="/admin/testapp/book/"' not in text


def test_what_was_captured_takes_a_permission_of_its_own() -> None:
    call = log()
    CallEntry.objects.update(arguments='{"model": "secret canary"}', result="result canary")
    address = f"{CALLS}{call.pk}/change/"
    text = signed_in(make_user("ann", "mcp_django.view_callentry")).get(address).content.decode()
    assert "canary" not in text
    both = make_user("bob", "mcp_django.view_callentry", "mcp_django.view_bodies")
    text = signed_in(both).get(address).content.decode()
    assert "secret canary" in text
    assert "result canary" in text
    assert signed_in(make_user("cy", "mcp_django.view_bodies")).get(address).status_code == 403


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


def test_a_name_that_lies_is_told_on_the_page_of_a_call(browser: Client) -> None:
    lying, honest = log(client_name="Сlaude"), log(client_name="Claude Code")
    pages = [browser.get(f"{CALLS}{entry.pk}/change/").text for entry in (lying, honest)]
    assert ["⚠" in page for page in pages] == [True, False]
