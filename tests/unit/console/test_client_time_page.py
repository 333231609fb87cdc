"""All that a client wrote in a time is shown, and taken back by who may take back changes of others."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from mcp_django.console import client_time_page
from mcp_django.differences.client_times import ClientTime
from mcp_django.models import CallEntry, Change
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, request_of
from tests.unit.console.conftest import url
from tests.unit.console.test_call_log_admin import CALLS, log
from tests.unit.console.test_undo_page import browser_of

pytestmark = pytest.mark.django_db
CREATE, UPDATE = CreateRecord(), UpdateRecord()
TIMES = ("since", "until")


@pytest.fixture
def ada() -> Any:
    """A client's request for Ada, who may do everything."""
    return request_of(make_superuser("ada"))


@pytest.fixture
def ops() -> Client:
    """The browser of somebody else, who may do everything too."""
    return browser_of(make_superuser("ops"))


def update(request: Any, obj: Any, **values: Any) -> int:
    number: int = call(UPDATE, request, model=obj._meta.label_lower, pk=str(obj.pk), values=values)["change"]
    return number


def look(browser: Client, **values: str) -> Any:
    """The page with what the client wrote in the last hour."""
    now = timezone.localtime()
    times = {name: f"{now + ago:%Y-%m-%dT%H:%M}" for name, ago in zip(TIMES, AROUND, strict=True)}
    return browser.get(url("client_time"), {"client": "client-1", **times, "look": "1", **values})


AROUND = (-timedelta(hours=1), timedelta(minutes=2))


def confirm(browser: Client, shown: Any, **values: str) -> Any:
    """Press the button of the page."""
    form = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', shown.text.rpartition("<form")[2])
    sent = {name: unescape(value) for name, value in form if name != "csrfmiddlewaretoken"}
    return browser.post(url("client_time"), {**sent, **values}, follow=True)


def listed(shown: Any, name: str) -> list[int]:
    return [row["change"].pk for row in shown.context.get(name) or ()]


def test_a_client_s_time_is_shown_the_newest_first_and_taken_back(ada: Any, ops: Client) -> None:
    book = make_book("Dune", price="5.00")
    numbers = [update(ada, book, price="6.00"), update(ada, book, price="7.00", title="Dune 2")]
    numbers.append(call(CREATE, ada, model="testapp.tag", values={"name": "sand"})["change"])
    shown = look(ops)
    assert listed(shown, "ready") == numbers[::-1]
    assert not shown.context["left"]
    assert Tag.objects.exists()
    answer = confirm(ops, shown)
    assert "Changes taken back: 3" in answer.text
    assert answer.redirect_chain[-1][0] == CALLS
    book.refresh_from_db()
    assert (book.title, str(book.price)) == ("Dune", "5.00")
    assert not Tag.objects.exists()
    assert "wrote nothing in this time" in look(ops).text


def test_what_cannot_be_taken_back_is_named_before_with_what_depends_on_it(ada: Any, ops: Client) -> None:
    book, other = make_book("Dune", price="5.00"), make_book("Emma")
    first, second = update(ada, book, price="6.00"), update(ada, book, price="7.00")
    third = update(ada, other, pages=3)
    Book.objects.filter(pk=book.pk).update(price="8.00")
    shown = look(ops)
    assert (listed(shown, "ready"), listed(shown, "left")) == ([third], [second, first])
    assert "Price of book Dune was changed since." in shown.text
    assert f"?change={second}&amp;back=" in shown.text
    confirm(ops, shown)
    assert {Change.objects.get(pk=number).state for number in (first, second)} == {"done"}
    other.refresh_from_db()
    assert other.pages == 0


def test_what_is_no_longer_what_was_shown_is_not_done(ada: Any, ops: Client) -> None:
    author = make_author("Frank")
    update(ada, author, name="Ida")
    shown = look(ops)
    assert "no longer what was shown" in confirm(ops, shown, pin="x").text
    update(ada, make_author("Jane"), name="Ina")
    answer = confirm(ops, shown)
    assert "no longer what was shown" in answer.text
    # It shows it again.
    assert len(listed(answer, "ready")) == 2
    assert Author.objects.get(pk=author.pk).name == "Ida"


def test_it_is_narrowed_to_a_user_and_a_model(ada: Any, ops: Client) -> None:
    first = update(ada, make_author("Frank"), name="Ida")
    second = update(ada, make_book("Dune"), pages=3)
    third = update(request_of(make_superuser("bob")), make_book("Emma"), pages=3)
    other = update(request_of(ada.user, client_id="client-2"), make_book("Solaris"), pages=3)
    assert listed(look(ops), "ready") == [third, second, first]
    assert listed(look(ops, user="bob"), "ready") == [third]
    assert listed(look(ops, model="testapp.author"), "ready") == [first]
    assert listed(look(ops, client="client-2"), "ready") == [other]
    assert "Nothing is kept" in look(ops, client="client-3").text
    confirm(ops, look(ops, user="ada", model="testapp.book"))
    assert {change.pk for change in Change.objects.filter(state="undone")} == {second}


def test_the_form_says_what_is_wrong(ada: Any, ops: Client) -> None:
    update(ada, make_author("Frank"), name="Ida")
    for values, said in [
        ({"since": "x"}, "Enter a valid date/time."),
        ({"client": ""}, "This field is required."),
        ({"until": "2000-01-01T00:00"}, "The end is not after the beginning."),
        ({"user": "nobody"}, "Select a valid choice."),
        ({"client": "\0"}, "Select a valid choice."),
    ]:
        shown = look(ops, **values)
        assert said in shown.text, values
        assert "ready" not in shown.context
    assert ops.post(url("client_time"), {"client": "client-1"}).status_code == 200
    assert Author.objects.get().name == "Ida"


def test_a_page_without_a_question_proposes_the_last_hour(ada: Any, ops: Client) -> None:
    update(ada, make_author("Frank"), name="Ida")
    shown = ops.get(url("client_time"), {"client": "client-1"})
    assert '<option value="client-1" selected>' in shown.text
    assert "pin" not in shown.context
    assert ops.get(url("client_time")).status_code == 200


def test_it_is_for_those_who_may_take_back_changes_of_others_and_their_rights_decide(ada: Any) -> None:
    author = make_author("Frank")
    number = update(ada, author, name="Ida")
    user = make_user("eve", "mcp_django.view_callentry")
    assert browser_of(user).get(url("client_time")).status_code == 403
    assert browser_of(user).post(url("client_time")).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="undo_change"))
    shown = look(browser_of(user))
    assert (listed(shown, "ready"), listed(shown, "left")) == ([], [number])
    assert "cannot see all models" in shown.text
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_author", "change_author"]))
    confirm(browser_of(user), look(browser_of(user)))
    assert Author.objects.get(pk=author.pk).name == "Frank"
    stranger = make_user("bob", "mcp_django.undo_change")
    assert browser_of(stranger).get(url("client_time")).status_code == 403


def test_the_conversation_leads_to_its_time(ada: Any, ops: Client) -> None:
    update(ada, make_author("Frank"), name="Ida")
    log(client_id="client-1", rows_changed=1, site="mcp_django", id=ada.mcp.record.id)
    entry = CallEntry.objects.get()
    page = f"{url('conversations')}?call={entry.pk}"
    link = ops.get(page).context["time_url"]
    assert f'href="{link.replace("&", "&amp;")}"' in ops.get(page).text
    shown = ops.get(f"{link}&look=1")
    assert len(listed(shown, "ready")) == 1
    assert confirm(ops, shown).request["PATH_INFO"] == url("conversations")
    viewer = browser_of(make_user("eve", "mcp_django.view_callentry"))
    assert viewer.get(page).context["time_url"] == ""


def test_a_conversation_that_changed_nothing_leads_nowhere(ops: Client) -> None:
    log(client_id="client-1")
    log(client_id="client-2", rows_changed=1, site="gone")
    log(rows_changed=1, site="mcp_django")
    for entry in CallEntry.objects.all():
        assert ops.get(f"{url('conversations')}?call={entry.pk}").context["time_url"] == ""
    assert ops.get(url("client_time"), {"site": "gone"}).status_code == 404


def test_too_many_rows_are_refused(ada: Any, ops: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    update(ada, make_author("Frank"), name="Ida")
    update(ada, make_author("Frank"), name="Ida")
    shown = look(ops)
    monkeypatch.setattr(ClientTime, "MAX_ROWS", 1)
    assert "The client wrote 2 rows in this time, and 1 is the most at once." in look(ops).text
    assert "wrote 2 rows" in confirm(ops, shown).text
    assert not Change.objects.filter(state="undone").exists()


def test_only_the_first_of_many_are_listed(ada: Any, ops: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_time_page, "MAX_LISTED", 2)
    author = make_author("Frank")
    for name in ("Ida", "Ina", "Ivy"):
        update(ada, author, name=name)
    shown = look(ops)
    assert (len(listed(shown, "ready")), shown.context["count"], shown.context["more"]) == (2, 3, 1)
    confirm(ops, shown)
    assert Author.objects.get().name == "Frank"


def test_the_form_needs_its_csrf_token(ada: Any) -> None:
    update(ada, make_author("Frank"), name="Ida")
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_superuser("ops"))
    assert confirm(browser, look(browser)).status_code == 403


def test_while_the_server_only_reads_nothing_is_taken_back(ada: Any, ops: Client, settings: Any) -> None:
    update(ada, make_author("Frank"), name="Ida")
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    shown = look(ops)
    assert not shown.context["ready"]
    assert "only reads at present" in shown.text


def test_it_is_a_call_in_the_log_with_what_it_changed(ada: Any, ops: Client, call_log: Any) -> None:
    update(ada, make_author("Frank"), name="Ida")
    left = make_author("Jane")
    update(ada, left, name="Ina")
    Author.objects.filter(pk=left.pk).update(name="Zoe")
    confirm(ops, look(ops, model="testapp.author"))
    [entry] = call_log()
    assert (entry.method, entry.tool, entry.kind) == ("console/client_time", "undo_change", "person")
    assert (entry.username, entry.client_id, entry.client_name) == ("ops", "", "console")
    assert (entry.model, entry.rows_changed, entry.outcome, entry.writes) == ("testapp.author", 1, "ok", True)
    assert len(entry.history) == 1
    assert {change.call for change in Change.objects.filter(tool="undo_change")} == {entry.call_id}
    page = ops.get(f"{CALLS}{entry.pk}/change/").text
    assert "What it changed" in page
    assert "author Ida changed" in page
    assert "console/client_time" in page
    update(ada, left, name="Ivy")
    confirm(ops, look(ops), pin="x")
    refused = call_log()[-1]
    assert (refused.outcome, refused.rows_changed, refused.history) == ("tool_error", 0, [])
