"""Conversations: which calls are one, their list, and the story of one."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from mcp_django.console import conversations_page as module
from mcp_django.console.conversations_page import Conversation
from mcp_django.models import CallEntry
from tests.factories import make_superuser, make_user
from tests.unit.console.test_call_log_admin import CALLS, EVIL, log, signed_in

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
PAGE = f"{CALLS}conversations/"


@pytest.fixture
def browser() -> Client:
    return signed_in(make_superuser())


def series(*minutes: float, **values: Any) -> list[CallEntry]:
    """Log a call for each number of minutes ago."""
    return [log(timedelta(minutes=ago), **{"tool": f"at_{ago}", **values}) for ago in minutes]


def tools(conversation: Conversation) -> list[str]:
    return [call.tool for call in conversation.calls]


def listed(browser: Client, **query: str) -> list[list[str]]:
    return [tools(each) for each in browser.get(PAGE, query).context["conversations"]]


def test_a_session_is_one_conversation_whatever_its_pauses() -> None:
    first, *_ = series(300, 200, 1, session="s", token="t")
    series(150, session="other", token="t")
    assert tools(Conversation.around(first)) == ["at_300", "at_200", "at_1"]


@pytest.mark.parametrize("same", [{"token": "t", "user": "7"}, {"user": "7", "client_id": "c"}, {"client_id": "c"}])
def test_a_pause_of_half_an_hour_ends_a_conversation_without_a_session(same: dict[str, str]) -> None:
    calls = series(100, 75, 74, 20, 1, **same)
    series(73, **{**same, "session": "s"})
    series(72, **{**same, next(iter(same)): "other"})
    assert tools(Conversation.around(calls[1])) == ["at_100", "at_75", "at_74"]
    assert tools(Conversation.around(calls[-1])) == ["at_20", "at_1"]


def test_a_stranger_has_no_conversation(browser: Client) -> None:
    first, _ = series(2, 1)
    assert tools(Conversation.around(first)) == ["at_2"]
    assert listed(browser) == [["at_1"], ["at_2"]]


def test_no_more_calls_than_wanted_are_around_one() -> None:
    calls = series(5, 4, 3, 2, 1, session="s")
    found = Conversation.around(calls[2], 1)
    assert (tools(found), found.earlier, found.later) == (["at_4", "at_3", "at_2"], True, True)
    found = Conversation.around(calls[2], 2)
    assert (len(found.calls), found.earlier, found.later) == (5, False, False)


def test_the_list_has_the_newest_conversation_first_and_says_what_it_did(browser: Client) -> None:
    series(9, 3, session="a", rows_changed=2, size=40)
    series(8, 7, token="t", outcome="tool_error")
    series(2, user="7", client_id="c", outcome="refused:scope")
    found = browser.get(PAGE).context["conversations"]
    assert [tools(each) for each in found] == [["at_2"], ["at_9", "at_3"], ["at_8", "at_7"]]
    refused, changed, failed = (each.sums for each in found)
    assert (refused["refused"], changed["rows_changed"], changed["tokens"], failed["failed"]) == (1, 4, 20, 2)


def test_the_list_is_narrowed_to_conversations_with_a_call_that_matches_and_counts_all_of_each(browser: Client) -> None:
    series(9, 7, session="a")
    series(8, session="a", outcome="tool_error", tool="wrong")
    series(6, session="b")
    assert listed(browser, q="failed") == [["at_9", "wrong", "at_7"]]
    assert listed(browser, q="refused") == []
    assert browser.get(PAGE, {"q": "nonsense:)"}).status_code == 200


def listed_by_pages(browser: Client) -> list[list[list[str]]]:
    """Return the tools of each conversation, by the pages that "Older" leads to."""
    found, address = [], PAGE
    while address:
        page = browser.get(address)
        found.append([tools(each) for each in page.context["conversations"]])
        more = page.context["more"]
        address = more and f"{PAGE}?until={more.pk}"
    return found


def test_older_conversations_are_on_further_pages_and_on_one_alone(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LISTED", 2)
    # Those of "a" are older and newer than all others.
    series(90, 1, session="a")
    for number in range(4):
        series(10 + number, session=f"b{number}")
    found = listed_by_pages(browser)
    alone = [[f"at_{10 + number}"] for number in range(4)]
    assert [each for some in found for each in some] == [["at_90", "at_1"], *alone]
    assert len(found) >= 3


@pytest.mark.parametrize("same", [{"session": "a"}, {"token": "t"}, {"user": "7", "client_id": "c"}])
@pytest.mark.parametrize("number", [3, 4, 7, 14, 40])
def test_each_link_to_older_conversations_leads_to_some_and_none_is_skipped(
    browser: Client, monkeypatch: pytest.MonkeyPatch, same: dict[str, str], number: int
) -> None:
    for name, value in {"LISTED": 2, "LOOKED_AT": 3, "MOST": 6}.items():
        monkeypatch.setattr(module, name, value)
    for group in range(3):
        series(group * 300 + 250, session=f"b{group}")
        series(*[group * 300 + 1 + each for each in range(number)], **{**same, "trace": str(group)})
    found = listed_by_pages(browser)
    assert all(found), found
    seen = {tool for some in found for each in some for tool in each}
    assert {f"at_{group * 300 + 250}" for group in range(3)} <= seen
    assert {f"at_{group * 300 + 1}" for group in range(3)} <= seen or "session" in same


@pytest.mark.parametrize("number", [299, 300, 301, 700])
def test_one_client_that_called_alone_has_no_older_conversations(browser: Client, number: int) -> None:
    entries = [log(timedelta(seconds=each), session="a") for each in range(number)]
    page = browser.get(PAGE)
    assert [len(each.calls) for each in page.context["conversations"]] == [number]
    assert page.context["more"] is None
    assert entries[0] == page.context["conversations"][0].calls[-1]


def test_looking_further_back_takes_a_bounded_number_of_queries(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 3)
    monkeypatch.setattr(module, "MOST", 6)
    series(*range(90), session="a")
    with CaptureQueriesContext(connection) as asked:
        page = browser.get(PAGE)
    assert page.context["more"].tool == "at_12"
    assert len([query for query in asked if '"session"' in query["sql"]]) <= 6
    assert browser.get(PAGE, {"until": page.context["more"].pk}).context["conversations"]


def test_a_list_looks_at_some_of_the_newest_calls_alone(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 3)
    for number in range(9):
        series(number, session=f"s{number}")
    page = browser.get(PAGE)
    assert [tools(each) for each in page.context["conversations"]] == [["at_0"], ["at_1"], ["at_2"]]
    assert page.context["more"].tool == "at_2"


def test_the_pages_take_as_many_queries_for_many_calls_as_for_one(browser: Client) -> None:
    counts = []
    for number in (1, 40):
        for index in range(number):
            (call, *_) = series(index, index + 0.5, session=f"s{index}", history=["1"])
        for address in (PAGE, f"{PAGE}?q=ok", f"{PAGE}?call={call.pk}"):
            browser.get(address)
            with CaptureQueriesContext(connection) as asked:
                assert browser.get(address).status_code == 200
            counts.append(len(asked))
    assert counts[:3] == counts[3:]
    assert max(counts) <= 10


def test_one_conversation_is_told_as_a_story(browser: Client) -> None:
    same = {"session": "s", "client_name": "Codex", "username": "warehouse", "client_id": "codex"}
    log(timedelta(minutes=9), tool="query_records", model="shop.order", rows_read=20, **same)
    log(timedelta(minutes=4), tool="update_record", model="shop.order", rows_read=1, rows_changed=3, **same)
    refused = {"tool": "delete_record", "model": "shop.order", "outcome": "refused:permission", "detail": "Not yours."}
    log(timedelta(minutes=2), **refused, **same)
    call = log(timedelta(minutes=1), **refused, **same)
    page = browser.get(PAGE, {"call": str(call.pk)})
    text = " ".join(strip_tags(page.text.replace("<", " <")).split())
    assert "Codex , for warehouse , made 4 calls in 8 minutes from" in text
    assert "shop.order 21 3" in text
    assert "Rows changed: 3" in text
    # It is told once that all of them were refused, and how long the client waited.
    assert text.count("delete_record shop.order Not yours.") == 1
    assert "5 minutes" in text
    assert f'href="{CALLS}{call.pk}/change/"' in page.text


def test_the_client_of_a_conversation_is_turned_off_from_the_list(browser: Client) -> None:
    log(client_id="client 1", client_name="Codex", session="s")
    off = f"{CALLS}switches/?kind=client&amp;target=client%201&amp;back="
    assert off in browser.get(PAGE).text
    reader = signed_in(make_user("reader", "mcp_django.view_callentry"))
    assert "Turn off" not in reader.get(PAGE).text


def test_an_empty_list_says_why_it_is_empty(browser: Client) -> None:
    assert "No client has called yet." in browser.get(PAGE).text
    assert "No call matches all of this." in browser.get(PAGE, {"q": "failed"}).text
    assert "No client has called yet." not in browser.get(PAGE, {"q": "failed"}).text


def test_names_in_conversations_are_inert(browser: Client) -> None:
    names = dict.fromkeys(("client_name", "tool", "model", "username", "detail"), EVIL)
    call = log(client_id="c", user="7", outcome="tool_error", **names)
    for query in ({}, {"call": str(call.pk)}):
        text = browser.get(PAGE, query).text
        assert "<img src=x" not in text
        assert "\u202e" not in text
        assert "&lt;img src=x" in text


def test_conversations_are_for_those_who_may_view_calls(browser: Client) -> None:
    call = log()
    for query in ({}, {"call": str(call.pk)}):
        assert signed_in(make_user(f"ann{len(query)}")).get(PAGE, query).status_code == 403
        assert browser.post(PAGE, query).status_code == 405
    for key in ("0", "x", "9" * 40, "\0"):
        assert browser.get(PAGE, {"call": key}).status_code == 404
    assert browser.get(PAGE, {"until": "x"}).status_code == 200


def test_no_body_of_a_call_is_read_for_a_conversation(browser: Client) -> None:
    call = log(session="s")
    log(session="s")
    CallEntry.objects.update(arguments="canary", result="canary")
    with CaptureQueriesContext(connection) as asked:
        texts = [browser.get(PAGE, query).text for query in ({}, {"call": str(call.pk)})]
    assert "canary" not in "".join(texts)
    assert not [query for query in asked if '"arguments"' in query["sql"]]


def test_short_gaps_are_no_pauses() -> None:
    *_, last = series(10, 9.5, 8, session="s")
    assert [before is None for _call, before in Conversation.around(last).steps] == [True, True, False]
