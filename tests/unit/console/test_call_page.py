"""The page of one call."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from mcp_django.console.call_page import pretty
from mcp_django.console.conversations_page import Conversation
from mcp_django.models import CallEntry
from tests.factories import make_book, make_superuser, make_user
from tests.testapp.models import Book
from tests.unit.console.test_call_log_admin import CALLS, log, signed_in

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture
def browser() -> Client:
    return signed_in(make_superuser())


def test_a_call_shows_what_the_same_caller_did_before_and_after(browser: Client) -> None:
    same = {"user": "7", "client_id": "c"}
    entries = [log(tool=f"tool_{number}", ago=timedelta(minutes=20 - number), **same) for number in range(13)]
    log(tool="foreign", user="8", client_id="c", ago=timedelta(minutes=14))
    log(tool="elsewhere", user="7", client_id="d", ago=timedelta(minutes=14))
    found = Conversation.around(entries[6], 5)
    assert [entry.tool for entry in found.calls] == [f"tool_{number}" for number in range(1, 12)]
    assert found.earlier
    assert found.later
    text = browser.get(f"{CALLS}{entries[6].pk}/change/").content.decode()
    assert f'<a href="{CALLS}{entries[5].pk}/change/">' in text
    assert browser.get(f"{CALLS}{entries[5].pk}/change/").status_code == 200


def test_strangers_calls_have_nothing_in_common() -> None:
    log()
    entry = log()
    assert Conversation.around(entry).calls == [entry]


def test_K191_a_row_that_the_admin_hides_from_the_operator_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    book, user = make_book("Emma"), make_superuser()
    entry = LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(book),
        object_id=str(book.pk),
        object_repr="Emma",
        action_flag=CHANGE,
        change_message="Changed title.",
    )
    address = f"{CALLS}{log(model='testapp.book', history=[str(entry.pk)]).pk}/change/"
    hidden = Book.objects.exclude(pk=book.pk)
    monkeypatch.setattr(site._registry[Book], "get_queryset", lambda request: hidden)
    text = signed_in(user).get(address).text
    assert "a row that you may not see" in text
    assert "Emma" not in text
    assert "Changed title" not in text
    # Of what is gone nobody knows whether it would be shown: only who sees every row is told its name.
    book.delete()
    assert "Emma" not in signed_in(user).get(address).text
    monkeypatch.undo()
    assert "Emma" in signed_in(user).get(address).text


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


def test_a_name_that_lies_is_told_on_the_page_of_a_call(browser: Client) -> None:
    lying, honest = log(client_name="Сlaude"), log(client_name="Claude Code")
    pages = [browser.get(f"{CALLS}{entry.pk}/change/").text for entry in (lying, honest)]
    assert ["⚠" in page for page in pages] == [True, False]


def page_of(entry: CallEntry, *permissions: str) -> Any:
    return signed_in(make_user("ann", "mcp_django.view_callentry", *permissions)).get(f"{CALLS}{entry.pk}/change/")


def test_a_sentence_says_who_called_what_when_and_what_came_of_it() -> None:
    entry = log(
        client_name="Codex",
        username="warehouse",
        tool="update_record",
        model="shop.order",
        outcome="tool_error",
        detail="status: no such choice.",
        duration=412.3,
        error_id="0f1e2d3c4b5a",
    )
    text = " ".join(strip_tags(page_of(entry).text).split())
    when = timezone.localtime(entry.time).strftime("%Y-%m-%d %H:%M:%S")
    assert f"Codex, for warehouse, called update_record on shop.order at {when}" in text
    assert "after 412 ms: status: no such choice. Error id 0f1e2d3c4b5a" in text


@pytest.mark.parametrize("names", [{"client_name": "Codex"}, {"username": "warehouse"}, {}])
def test_a_sentence_does_without_what_is_not_known(names: dict[str, str]) -> None:
    text = " ".join(strip_tags(page_of(log(tool="", method="ping", **names)).text).split())
    assert f"{next(iter(names.values()), 'Somebody unknown')} called ping at" in text


@pytest.mark.parametrize("outcome", ["", "asked", "cancelled", "error:timeout", "refused:switch"])
def test_a_call_of_any_outcome_has_its_page(outcome: str) -> None:
    assert page_of(log(outcome=outcome, duration=0)).status_code == 200


def parts(**values: Any) -> list[tuple[str, float]]:
    found = page_of(log(**values)).context["parts"]
    ends = [float(part["x"]) + float(part["width"]) for part in found]
    assert ends[-1:] == ([pytest.approx(100, abs=0.1)] if ends else [])
    return [(part["name"], part["ms"]) for part in found]


def test_the_parts_of_a_calls_time_and_the_rest_are_its_duration() -> None:
    given = {"waiting": 1.0, "token_check": 2.0, "query_time": 30.0, "own_code": 4.0, "rendering": 5.0}
    assert parts(duration=100.0, **given) == [*given.items(), ("rest", 58.0)]


def test_what_was_not_measured_is_no_part() -> None:
    assert parts(duration=10.0, query_time=4.0) == [("query_time", 4.0), ("rest", 6.0)]


def test_what_threads_did_at_a_time_leaves_no_rest() -> None:
    assert parts(duration=10.0, query_time=8.0, own_code=8.0) == [("query_time", 8.0), ("own_code", 8.0)]


def test_a_call_that_took_no_time_has_no_parts() -> None:
    assert parts(duration=0.0) == []


def test_what_was_captured_is_laid_out_and_cannot_mislead() -> None:
    entry = log()
    CallEntry.objects.update(arguments='{"pk":"\\u202e17","name":"\\u00e9"}', result='{"content":[{"te…')
    context = page_of(entry, "mcp_django.view_bodies").context
    assert [context["arguments"], context["result"]] == [
        '{\n  "pk": "\\u202e17",\n  "name": "é"\n}',
        '{"content":[{"te…',
    ]
    assert pretty("[" * 100_000) == "[" * 100_000


def test_what_was_captured_is_not_even_read_for_those_who_may_not_see_it() -> None:
    entry = log()
    with CaptureQueriesContext(connection) as asked:
        page_of(entry)
    assert not [query for query in asked if '"arguments"' in query["sql"] and "SELECT" in query["sql"]]


def test_the_page_of_a_call_is_no_form_of_the_admin(browser: Client) -> None:
    address = f"{CALLS}{log().pk}/change/"
    text = browser.get(address).text
    assert not any(name in text for name in ("historylink", "deletelink", "submit-row", "_save"))
    assert browser.post(address, {"tool": "x"}).status_code == 405
    for key in ("0", "x", "9" * 40):
        assert browser.get(f"{CALLS}{key}/change/").status_code == 404


def test_a_call_can_be_acted_on_by_those_who_may(browser: Client) -> None:
    entry = log(tool="get_record", username="bob", client_id="codex", site="mcp", kind="person")
    text = page_of(entry).text
    assert (f"try/?site=mcp&amp;tool=get_record&amp;call={entry.pk}" in text, "seen/" in text) == (True, False)
    text = browser.get(f"{CALLS}{entry.pk}/change/").text
    assert "seen/?site=mcp&amp;user=bob" in text
    for kind, target in {"tool": "get_record", "client": "codex", "user": "bob"}.items():
        assert f"switches/?kind={kind}&amp;target={target}" in text
    assert "switches/?kind=" not in signed_in(User.objects.get(username="ann")).get(f"{CALLS}{entry.pk}/change/").text


def test_a_call_takes_as_many_queries_in_a_long_conversation_as_in_a_short_one() -> None:
    counts = []
    user = signed_in(make_user("ann", "mcp_django.view_callentry", "mcp_django.view_bodies"))
    for number in (1, 60):
        for _ in range(number):
            entry = log(session="s", history=["1", "2"])
        user.get(f"{CALLS}{entry.pk}/change/")
        with CaptureQueriesContext(connection) as asked:
            user.get(f"{CALLS}{entry.pk}/change/")
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 12
