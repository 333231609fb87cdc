"""What calls changed is listed on their pages, and taken back on a page that first shows what that does."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client, RequestFactory

from mcp_django.console import sights
from mcp_django.console.call_log_admin import CallEntryAdmin
from mcp_django.console.undo_page import changes_of
from mcp_django.models import CallEntry, Change
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author, Tag
from tests.tool_calls import call, request_of
from tests.unit.console.conftest import url
from tests.unit.console.test_call_log_admin import CALLS, log

pytestmark = pytest.mark.django_db
CREATE, UPDATE = CreateRecord(), UpdateRecord()


def browser_of(user: Any) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


def renamed(user: Any, author: Author, name: str = "Ida") -> int:
    """Rename an author as a client does, with an entry of the call in the log."""
    request = request_of(user)
    number: int = call(UPDATE, request, model="testapp.author", pk=str(author.pk), values={"name": name})["change"]
    log(tool="update_record", model="testapp.author", rows_changed=1, id=request.mcp.record.id)
    return number


def page_of(number: int) -> str:
    return f"{url('undo')}?change={number}"


def confirm(browser: Client, number: int, **values: str) -> Any:
    shown = browser.get(page_of(number))
    return browser.post(url("undo"), {"change": number, "pin": shown.context["pin"], **values})


def test_a_call_and_its_conversation_list_what_they_changed() -> None:
    root = make_superuser()
    author = make_author("Frank")
    number = renamed(root, author)
    browser = browser_of(root)
    entry = CallEntry.objects.get()
    pages = [f"{CALLS}{entry.pk}/change/", f"{url('conversations')}?call={entry.pk}"]
    for page in pages:
        text = browser.get(page).text
        assert "author Ida changed" in text
        assert f"?change={number}&amp;back=" in text
    confirm(browser, number)
    for page in pages:
        text = browser.get(page).text
        assert "taken back" in text
        assert f"?change={number}" not in text


def test_a_change_is_shown_before_it_is_taken_back_and_leads_back() -> None:
    root = make_superuser()
    author = make_author("Frank")
    number = renamed(root, author)
    browser = browser_of(root)
    shown = browser.get(page_of(number))
    [table] = shown.context["tables"]
    assert [(cell.name, cell.before, cell.after) for cell in table.rows[0].cells] == [("name", "Ida", "Frank")]
    assert Author.objects.get(pk=author.pk).name == "Ida"
    answer = confirm(browser, number, back="/admin/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert Author.objects.get(pk=author.pk).name == "Frank"
    change = Change.objects.get(undoes=number)
    assert (change.user, change.client_id, change.state) == (str(root.pk), "", "done")


def test_what_would_no_longer_be_what_was_shown_is_not_done() -> None:
    root = make_superuser()
    first, second = make_author("Frank"), make_author("Jane")
    number, other = renamed(root, first), renamed(root, second)
    browser = browser_of(root)
    pin = browser.get(page_of(other)).context["pin"]
    for wrong in (pin, "", "tried:x"):
        answer = browser.post(url("undo"), {"change": number, "pin": wrong}, follow=True)
        assert "no longer do what it did" in answer.text
    pin = browser.get(page_of(number)).context["pin"]
    Author.objects.filter(pk=first.pk).update(email="a@b.example")
    browser.post(url("undo"), {"change": number, "pin": pin})
    assert Author.objects.get(pk=first.pk).name == "Ida"
    Author.objects.filter(pk=first.pk).update(name="Zoe")
    assert "Name of author Zoe was changed since." in browser.get(page_of(number)).text


def test_changes_of_others_need_a_permission_and_the_rights_of_their_rows() -> None:
    root = make_superuser()
    author = make_author("Frank")
    number = renamed(root, author)
    operator = make_user("ops", "mcp_django.view_callentry")
    entry = CallEntry.objects.get()
    browser = browser_of(operator)
    assert browser.get(page_of(number)).status_code == 404
    assert "Ida" not in browser.get(f"{CALLS}{entry.pk}/change/").text
    operator.user_permissions.add(Permission.objects.get(codename="undo_change"))
    browser = browser_of(operator)
    assert "cannot see all models" in browser.get(page_of(number)).text
    operator.user_permissions.add(Permission.objects.get(codename="view_author"))
    assert "You may not change testapp.author Ida now" in browser.get(page_of(number)).text
    answer = browser.post(url("undo"), {"change": number, "pin": ""}, follow=True)
    assert "You may not change" in answer.text
    assert Author.objects.get(pk=author.pk).name == "Ida"
    operator.user_permissions.add(Permission.objects.get(codename="change_author"))
    confirm(browser, number)
    assert Author.objects.get(pk=author.pk).name == "Frank"


def test_who_may_view_changes_reads_them_and_takes_none_back() -> None:
    number = renamed(make_superuser(), make_author("Frank"))
    viewer = make_user("eve", "mcp_django.view_callentry", "mcp_django.view_change", "testapp.view_author")
    text = browser_of(viewer).get(f"{CALLS}{CallEntry.objects.get().pk}/change/").text
    assert "author Ida changed" in text
    assert f"?change={number}" not in text
    assert browser_of(viewer).get(page_of(number)).status_code == 404


def test_the_rows_of_a_change_are_named_to_nobody_who_may_not_view_their_model() -> None:
    number = renamed(make_superuser(), make_author("Frank"))
    entry = CallEntry.objects.get()
    viewer = make_user("eve", "mcp_django.view_callentry", "mcp_django.view_change", "mcp_django.undo_change")
    browser = browser_of(viewer)
    pages = [f"{CALLS}{entry.pk}/change/", f"{url('conversations')}?call={entry.pk}", page_of(number)]
    for page in (*pages, url("changes")):
        text = browser.get(page).text
        assert "Ida" not in text, page
        assert page == url("changes") or f"change {number} of testapp.author" in text


def test_the_rights_of_a_reader_are_looked_at_once_for_all_changes_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_superuser()
    author = make_author("Frank")
    for name in ("Ida", "Ada", "Eva"):
        renamed(root, author, name)
    made: list[Any] = []
    original = sights.DeciderSight
    monkeypatch.setattr(sights, "DeciderSight", lambda *given: made.append(given) or original(*given))
    viewer = make_user("eve", "mcp_django.view_callentry", "mcp_django.view_change")
    home = CallEntryAdmin(CallEntry, admin.site)
    request = RequestFactory().get("/")
    request.user = viewer
    request.session = {}  # type: ignore[assignment]
    told = list(changes_of(home, request, CallEntry.objects.all()))
    assert len(told) == 3
    assert not any("author " in change["summary"] for change in told)
    assert len(made) == 1


def test_one_s_own_changes_need_no_permission_of_the_console_but_the_page() -> None:
    user = make_user("ann", "testapp.view_author", "testapp.change_author", "mcp_django.view_callentry")
    author = make_author("Frank")
    number = renamed(user, author)
    confirm(browser_of(user), number)
    assert Author.objects.get(pk=author.pk).name == "Frank"
    stranger = make_user("bob", "testapp.view_author", "testapp.change_author")
    assert browser_of(stranger).get(page_of(number)).status_code == 403


def test_deletions_need_no_second_question() -> None:
    root = make_superuser()
    number = call(CREATE, request_of(root), model="testapp.tag", values={"name": "sand"})["change"]
    browser = browser_of(root)
    assert "deleted" in browser.get(page_of(number)).text
    confirm(browser, number)
    assert not Tag.objects.exists()


@pytest.mark.parametrize("number", ["", "x", "0", "99999", "9" * 30, "²"])
def test_no_change_is_no_page(number: str) -> None:
    assert browser_of(make_superuser()).get(url("undo"), {"change": number}).status_code == 404


def test_the_form_needs_its_csrf_token() -> None:
    root = make_superuser()
    number = renamed(root, make_author("Frank"))
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(root)
    pin = browser.get(page_of(number)).context["pin"]
    assert browser.post(url("undo"), {"change": number, "pin": pin}).status_code == 403


def test_while_the_server_only_reads_nothing_is_taken_back(settings: Any) -> None:
    root = make_superuser()
    number = renamed(root, make_author("Frank"))
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert "only reads at present" in browser_of(root).get(page_of(number)).text


def test_a_client_s_way_back_is_checked() -> None:
    root = make_superuser()
    number = renamed(root, make_author("Frank"))
    answer = confirm(browser_of(root), number, back="https://evil.example/")
    assert answer["Location"] == CALLS


def test_what_is_taken_back_here_is_a_call_in_the_log(call_log: Any, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": {"capture": "full"}}
    root = make_superuser()
    author = make_author("Frank")
    number = renamed(root, author)
    browser = browser_of(root)
    browser.get(page_of(number))
    assert len(call_log()) == 1
    confirm(browser, number)
    entry = call_log()[-1]
    assert (entry.method, entry.tool, entry.kind, entry.client_name) == (
        "console/undo",
        "undo_change",
        "person",
        "console",
    )
    assert (entry.user, entry.username, entry.model) == (str(root.pk), root.username, "testapp.author")
    assert (entry.rows_changed, entry.outcome, entry.writes) == (1, "ok", True)
    assert entry.arguments == f'{{"change":{number}}}'
    change = Change.objects.get(undoes=number)
    assert (change.call, change.client_name) == (entry.call_id, "console")
    [key] = entry.history
    assert "console" in LogEntry.objects.get(pk=key).change_message
    # Also one that was refused.
    browser.post(url("undo"), {"change": change.pk, "pin": "x"})
    refused = call_log()[-1]
    assert (refused.outcome, refused.rows_changed, refused.detail) == ("tool_error", 0, "")


def test_neither_switches_nor_budgets_hold_up_who_takes_back(call_log: Any, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"rows_written": 1}}}
    root = make_superuser()
    numbers = [renamed(root, make_author("Frank")) for _ in range(3)]
    for number in numbers:
        confirm(browser_of(root), number)
    assert [entry.outcome for entry in call_log() if entry.method == "console/undo"] == ["ok"] * 3
    assert not Author.objects.filter(name="Ida").exists()
