"""Requests for approval are listed, shown and decided on a page of the admin, by people whom the admin lets in."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.differences.kept_changes import sealed
from mcp_django.models import ApprovalRequest, CallEntry, Change
from mcp_django.testing import MCPClient
from tests.approval_rules import make_manager, make_rule
from tests.approving import PERMISSION, allow, ask
from tests.confirming import path_of
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.service_account import make_account
from tests.testapp.models import Author, Book, Section, Tag
from tests.unit.console.conftest import url

pytestmark = pytest.mark.django_db
SEES = ("testapp.view_author", PERMISSION)


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def ann() -> Any:
    return make_user("ann", *SEES)


def browser_of(user: Any, **options: Any) -> Client:
    browser = Client(**options)
    browser.force_login(user)
    return browser


def asked(user: Any, name: str = "Ursula", **values: Any) -> ApprovalRequest:
    """Ask to delete an author, which waits."""
    author = make_author(name)
    return ask(user, "delete_record", model="testapp.author", pk=str(author.pk), rows=[author], **values)


def page_of(approval: ApprovalRequest) -> str:
    return f"{url('approvals')}?request={approval.pk}"


def say(browser: Client, approval: ApprovalRequest, answer: str = "yes", word: str = "") -> Any:
    sent = {"request": approval.pk, answer: "1", "word": word}
    return browser.post(url("approvals"), sent, follow=True)


def state() -> str:
    return Change.objects.get().state


# The queue


def test_the_queue_has_a_tab_for_each_way_that_it_concerns_somebody(root: Any, ann: Any) -> None:
    approval = asked(root, "Frank")
    ann_sees = browser_of(ann).get(url("approvals"))
    assert [(tab["name"], tab["count"]) for tab in ann_sees.context["queue"]] == [("mine", 1), ("asked", 0)]
    assert "Frank" in ann_sees.text
    assert f"?request={approval.pk}" in ann_sees.text
    root_sees = browser_of(root).get(url("approvals"))
    assert [(tab["name"], tab["count"]) for tab in root_sees.context["queue"]] == [
        ("mine", 0),
        ("asked", 1),
        ("all", 1),
    ]
    assert root_sees.context["current"] == "asked"
    assert "Frank" in browser_of(root).get(url("approvals"), {"tab": "all"}).text
    assert "There are none." in browser_of(make_user("bob")).get(url("approvals"), {"tab": "all"}).text


def test_it_needs_no_permission_of_the_console_and_shows_no_other_page_of_it(root: Any, ann: Any) -> None:
    asked(root)
    text = browser_of(ann).get(url("approvals")).text
    assert url("overview") not in text
    assert browser_of(ann).get(url("overview")).status_code == 403


def test_who_does_not_see_the_rows_reads_nothing_of_them_in_the_queue(root: Any) -> None:
    asked(root, "Frank")
    text = browser_of(make_user("eve", PERMISSION)).get(url("approvals")).text
    assert "Frank" not in text
    assert "rows that you may not see" in text


def test_many_are_on_several_pages_by_few_queries(root: Any, ann: Any, django_assert_max_num_queries: Any) -> None:
    first = asked(root)
    for number in range(30):
        change = Change.objects.get(pk=first.pk)
        change.pk = None
        change.summary = f"number {number}"
        change.save()
        ApprovalRequest.objects.create(change=change, rule_name="Books", permission=PERMISSION, rows=first.rows)
    browser = browser_of(ann)
    with django_assert_max_num_queries(12):
        page = browser.get(url("approvals"))
    assert len(page.context["lines"]) == 25
    assert "tab=mine&amp;page=2" in page.text
    assert len(browser.get(url("approvals"), {"page": "2"}).context["lines"]) == 6
    assert browser.get(url("approvals"), {"page": "x"}).status_code == 200


def test_how_each_stands_is_told(root: Any) -> None:
    asked(root)
    for name, word in {
        "waiting": "waits",
        "done": "approved and done",
        "refused": "declined",
        "failed": "approved, but not done",
        "expired": "not decided in time",
        "withdrawn": "withdrawn",
        "running": "being done",
        "undone": "taken back",
        "unknown": "stopped half-way",
    }.items():
        Change.objects.update(state=name)
        for place in (url("approvals"), page_of(ApprovalRequest.objects.get())):
            assert word in browser_of(root).get(place, {}).text
    Change.objects.update(state="waiting", expires=timezone.now() - timedelta(seconds=1))
    assert "not decided in time" in browser_of(root).get(url("approvals")).text


# One request


def test_a_request_is_shown_with_all_that_a_decision_needs(root: Any, ann: Any) -> None:
    book = make_book("Dune")
    change = {"model": "testapp.book", "filters": {"id": book.pk}, "values": {"price": "20.00"}}
    approval = ask(root, "update_record", rows=[book], reason="The <b>boss</b>\n said so", **change)
    allow(ann, "testapp.view_book")
    page = browser_of(ann).get(page_of(approval))
    [table] = page.context["shown"].tables
    assert [(cell.name, cell.before, cell.after) for cell in table.rows[0].cells] == [("price", "9.90", "20.00")]
    for text in ("mcp_django.testing", "root", "update_record", "Books", "The &lt;b&gt;boss&lt;/b&gt; said so"):
        assert text in page.text.replace("�", " ").replace("  ", " ")
    assert "Nobody has checked this text." in page.text
    assert f'href="/admin/testapp/book/{book.pk}/change/"' in page.text
    assert 'name="yes"' in page.text


def test_what_cannot_be_tried_is_shown_with_its_arguments(root: Any, ann: Any) -> None:
    approval = asked(root, "Frank")
    kept = {"message": "Call refund?", "arguments": {"amount": 120}, "not_tried": ["refund"]}
    Change.objects.update(shown=sealed("shown", kept))
    text = browser_of(ann).get(page_of(approval)).text
    assert "amount" in text
    assert "120" in text
    assert "Not tried" in text


def test_the_conversation_is_a_link_for_those_who_may_view_calls(root: Any, ann: Any) -> None:
    approval = asked(root)
    CallEntry.objects.create(call_id=approval.change.call, time=timezone.now(), outcome="asked")
    assert "conversations/?call=" not in browser_of(ann).get(page_of(approval)).text
    allow(ann, "mcp_django.view_callentry")
    assert "conversations/?call=" in browser_of(ann).get(page_of(approval)).text


def test_a_request_of_others_is_not_there(root: Any) -> None:
    approval = asked(root)
    bob = browser_of(make_user("bob", "testapp.view_author"))
    assert bob.get(page_of(approval)).status_code == 404
    assert say(bob, approval).status_code == 404
    assert bob.get(url("approvals"), {"request": "x"}).status_code == 404
    assert bob.post(url("approvals"), {"yes": "1"}).status_code == 403


def test_the_requester_sees_how_it_stands_and_decides_nothing(root: Any) -> None:
    approval = asked(root, "Frank")
    text = browser_of(root).get(page_of(approval)).text
    assert "Frank" in text
    assert "somebody else decides" in text
    assert 'name="yes"' not in text
    for answer in ("yes", "no"):
        assert say(browser_of(root), approval, answer, "No.").status_code == 403
    assert state() == "waiting"


def test_who_may_view_all_reads_and_does_not_decide(root: Any) -> None:
    approval = asked(root, "Frank")
    viewer = make_user("eve", "mcp_django.view_approvalrequest")
    page = browser_of(viewer).get(page_of(approval))
    assert page.status_code == 200
    assert "Frank" not in page.text
    allow(viewer, "testapp.view_author")
    assert "Frank" in browser_of(viewer).get(page_of(approval)).text
    assert say(browser_of(viewer), approval).status_code == 403


# Decisions


def test_a_yes_makes_the_call_in_the_name_of_the_requester(root: Any, ann: Any) -> None:
    approval = asked(root)
    text = say(browser_of(ann), approval).text
    assert "approved and done" in text
    assert not Author.objects.exists()
    row = ApprovalRequest.objects.select_related("change").get()
    assert (row.decider, row.change.by, row.change.user) == (str(ann.pk), "ann", str(root.pk))
    # The second click finds it decided.
    assert "was decided already" in say(browser_of(make_superuser("eve")), approval).text


def test_who_decided_reads_what_it_was_about_when_the_rows_are_gone(root: Any, ann: Any) -> None:
    approval = asked(root, "Frank")
    say(browser_of(ann), approval)
    for place, browser in {
        page_of(approval): browser_of(ann),
        url("approvals"): browser_of(root),
    }.items():
        assert "author Frank deleted" in browser.get(place).text
    other = browser_of(make_superuser("eve"))
    assert "Frank" not in other.get(page_of(approval)).text
    assert "Frank" not in other.get(url("approvals"), {"tab": "all"}).text


def test_a_no_needs_a_word(root: Any, ann: Any) -> None:
    approval = asked(root)
    assert "Say in a word why not" in say(browser_of(ann), approval, "no").text
    assert state() == "waiting"
    text = say(browser_of(ann), approval, "no", "Not <i>her</i>").text
    assert "declined" in text
    assert "Not &lt;i&gt;her&lt;/i&gt;" in text
    assert "Not &lt;i&gt;her" in browser_of(root).get(page_of(approval)).text
    assert Author.objects.exists()


def test_rows_that_changed_meanwhile_are_left_alone(root: Any, ann: Any) -> None:
    approval = asked(root)
    Author.objects.update(name="Zoe")
    text = say(browser_of(ann), approval).text
    assert "approved, but not done" in text
    assert "changed" in text
    assert Author.objects.exists()


def test_what_nobody_decided_in_time_is_not_done(root: Any, ann: Any) -> None:
    approval = asked(root)
    Change.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert 'name="yes"' not in browser_of(ann).get(page_of(approval)).text
    assert "its time is over" in say(browser_of(ann), approval).text
    assert Author.objects.exists()


def test_opening_the_page_decides_nothing(root: Any, ann: Any) -> None:
    approval = asked(root)
    browser_of(ann).get(url("approvals"), {"request": approval.pk, "yes": "1", "no": "1", "word": "No."})
    browser_of(ann).post(url("approvals"), {"request": approval.pk})
    assert state() == "waiting"


def test_a_sign_in_of_long_ago_is_not_enough_for_a_yes(root: Any, ann: Any, settings: Any) -> None:
    approval = asked(root)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": {"all": "person", "sign_in": 300}}
    browser = browser_of(ann)
    session = browser.session
    session["_mcp_django_signed_in"] = 1
    session.save()
    assert "sign in again" in browser.get(page_of(approval)).text
    say(browser, approval)
    assert state() == "waiting"
    answer = browser.post(page_of(approval), {"request": approval.pk, "again": "1"})
    assert answer["Location"].startswith("/admin/login/?next=")
    assert browser.get(page_of(approval)).status_code == 302


def test_the_call_has_its_own_transaction_whatever_the_project_says(root: Any, ann: Any, settings: Any) -> None:
    approval = asked(root)
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert "approved and done" in say(browser_of(ann), approval).text
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False


# Attacks


def test_a_decider_who_does_not_see_the_rows_is_told_and_decides_nothing(root: Any) -> None:
    owner = make_user("bob")
    book = make_book("Dune", owner=owner)
    change = {"model": "testapp.book", "filters": {"id": book.pk}, "values": {"price": "20.00"}}
    approval = ask(root, "update_record", rows=[book], **change)
    eve = make_user("eve", PERMISSION, "testapp.view_book")
    text = browser_of(eve).get(page_of(approval)).text
    assert "You cannot decide this" in text
    assert "20.00" not in text
    assert "Dune" not in text
    for answer in ("yes", "no"):
        assert say(browser_of(eve), approval, answer, "No.").status_code == 403
    assert Book.objects.get().price != 20
    assert state() == "waiting"


def test_a_decider_who_does_not_see_a_field_of_the_condition_decides_nothing(root: Any, ann: Any) -> None:
    approval = asked(root, reads={"testapp.author": ["books__address"]})
    assert "You cannot decide this" in browser_of(ann).get(page_of(approval)).text
    assert say(browser_of(ann), approval).status_code == 403
    assert state() == "waiting"


@pytest.mark.parametrize("is_active", [True, False])
def test_the_user_of_a_service_account_decides_nothing(root: Any, ann: Any, is_active: bool) -> None:
    approval = asked(root)
    make_account(user=ann, is_active=is_active)
    assert browser_of(ann).get(page_of(approval)).status_code == 404
    assert say(browser_of(ann), approval).status_code == 404
    assert state() == "waiting"


def test_a_bearer_token_gets_nothing(root: Any, ann: Any) -> None:
    approval = asked(root)
    second = MCPClient(ann)
    token = {"authorization": second.headers["Authorization"]}
    for browser in (Client(), browser_of(ann), browser_of(root)):
        for send in (browser.get, browser.post):
            answer = send(page_of(approval), {"request": approval.pk, "yes": "1"}, headers=token)
            assert answer.status_code in (302, 403)
            assert "Location" not in answer or "/login/" in answer["Location"]
    assert state() == "waiting"


class TokenMiddleware:
    """Finds the user by a token, as some packages do."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.user = User.objects.get(username="ann")
        request._dont_enforce_csrf_checks = True
        return self.get_response(request)


@pytest.mark.usefixtures("ann")
def test_a_user_whom_middleware_found_by_a_token_is_nobody_here(root: Any, settings: Any) -> None:
    approval = asked(root)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.TokenMiddleware"]
    for browser in (Client(), browser_of(root)):
        assert browser.get(page_of(approval)).status_code == 403
        assert browser.post(page_of(approval), {"request": approval.pk, "yes": "1"}).status_code == 403
    assert state() == "waiting"


@pytest.mark.parametrize("without", ["", "Csrf"])
def test_a_form_of_another_site_is_refused(root: Any, ann: Any, without: str, settings: Any) -> None:
    approval = asked(root)
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if not without or without not in name]
    browser = browser_of(ann, enforce_csrf_checks=True)
    assert say(browser, approval).status_code == 403
    assert state() == "waiting"
    token = str(browser.get(page_of(approval)).context["csrf_token"])
    browser.post(url("approvals"), {"request": approval.pk, "yes": "1", "csrfmiddlewaretoken": token})
    assert state() == "done"


@pytest.mark.parametrize("without", ["", "XFrame"])
def test_no_page_frames_it(root: Any, ann: Any, without: str, settings: Any) -> None:
    approval = asked(root)
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if not without or without not in name]
    settings.X_FRAME_OPTIONS = "SAMEORIGIN"
    for place in (page_of(approval), url("approvals")):
        page = browser_of(ann).get(place)
        assert page["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in page["Content-Security-Policy"]
        assert "no-store" in page["Cache-Control"]


def test_the_page_for_one_s_own_confirmations_decides_no_approval(root: Any) -> None:
    approval = asked(root)
    own = f"{path_of(approval.change.resource)}/confirm/{approval.pk}"
    browser = browser_of(root)
    assert browser.get(own).status_code == browser.post(own, {"yes": "1"}).status_code == 404
    assert state() == "waiting"
    approval.delete()
    assert browser.get(own).status_code == 200


def test_who_is_not_signed_in_goes_to_the_login_and_comes_back(root: Any) -> None:
    answer = Client().get(page_of(asked(root)))
    assert answer.status_code == 302
    assert "/admin/login/?next=" in answer["Location"]
    assert "request%3D" in answer["Location"]


# Numbers


def test_the_number_is_in_the_tab_and_on_the_index_for_those_whom_it_concerns(root: Any, ann: Any) -> None:
    entry = "/admin/mcp_django/approvalrequest/"
    allow(ann, "mcp_django.view_callentry")
    bob = make_user("bob")
    for browser in (browser_of(ann), browser_of(bob)):
        assert entry not in browser.get("/admin/").text
    asked(root)
    browser = browser_of(ann)
    index = browser.get("/admin/").text
    assert "1 request waits for your decision" in index
    assert entry in index
    assert '<span class="mcp-count">1</span>' in browser.get(url("overview")).text
    assert browser.get(entry)["Location"] == url("approvals")
    assert entry not in browser_of(bob).get("/admin/").text
    # Whoever may view them all has the entry in any case.
    assert entry in browser_of(root).get("/admin/").text
    assert "your decision" not in browser_of(root).get("/admin/").text


def test_the_number_costs_one_query(root: Any, ann: Any) -> None:
    asked(root)
    browser = browser_of(ann)
    with CaptureQueriesContext(connection) as caught:
        browser.get("/admin/")
    assert sum("approvalrequest" in query["sql"] for query in caught.captured_queries) == 1


def test_while_the_tables_are_missing_other_pages_work(ann: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApprovalRequest._meta, "db_table", "not_there")
    assert browser_of(ann).get("/admin/").status_code == 200


# Requests as rules make them


@pytest.fixture
def manager() -> Any:
    return make_manager()


def waiting_for(user: Any, tool: str, **call: Any) -> ApprovalRequest:
    """Make a call that a rule lets wait, and return its request."""
    waiting = MCPClient(user).call(tool, **call)
    assert waiting.is_error is False, waiting.text
    number = waiting.structured["change"]
    assert waiting.structured["url"].endswith(f"{url('approvals')}?request={number}")
    return ApprovalRequest.objects.select_related("change").get(pk=number)


def test_a_manager_decides_what_a_rule_lets_wait_and_the_client_learns_it(root: Any, manager: Any) -> None:
    make_rule("Dear books", labels=["testapp.book"], condition={"after": {"price__gt": 15}})
    book = make_book("Dune")
    call = {"model": "testapp.book", "pk": str(book.pk), "values": {"price": "20.00"}}
    approval = waiting_for(root, "update_record", reason="The boss said so", **call)
    browser = browser_of(manager)
    page = browser.get(page_of(approval)).text
    assert "Dear books" in page
    assert "The boss said so" in page
    assert "20.00" in page
    assert "approved and done" in say(browser, approval).text
    book.refresh_from_db()
    assert book.price == 20
    # The same call gets the outcome, and is not made again.
    assert MCPClient(root).call("update_record", reason="The boss said so", **call).is_error is False
    assert Change.objects.count() == 1


def test_a_client_learns_why_not(root: Any, manager: Any) -> None:
    make_rule("All authors", labels=["testapp.author"], kinds=["delete"])
    author = make_author()
    call = {"model": "testapp.author", "pk": str(author.pk)}
    approval = waiting_for(root, "delete_record", **call)
    assert "declined" in say(browser_of(manager), approval, "no", "She is alive.").text
    again = MCPClient(root).call("delete_record", **call)
    assert again.is_error
    assert "She is alive." in again.text
    assert Author.objects.exists()


@pytest.mark.parametrize("kind", ["create", "links", "inline", "uuid", "deletion"])
def test_a_manager_sees_rows_of_every_kind(root: Any, manager: Any, kind: str) -> None:
    make_rule("Everything")
    tag = Tag.objects.create(name="sand")
    author = make_author()
    book = make_book("Dune", author=author)
    section = Section.objects.create(name="Attic")
    tool, call = {
        "create": ("create_record", {"model": "testapp.tag", "values": {"name": "spice"}}),
        "links": ("update_record", {"model": "testapp.book", "pk": str(book.pk), "values": {"tags": [tag.pk]}}),
        "inline": (
            "update_record",
            {"model": "testapp.author", "pk": str(author.pk), "values": {"profile": [{"biography": "Wrote."}]}},
        ),
        "uuid": ("update_record", {"model": "testapp.section", "pk": str(section.pk), "values": {"name": "Cellar"}}),
        "deletion": ("delete_record", {"model": "testapp.section", "pk": str(section.pk)}),
    }[kind]
    approval = waiting_for(root, tool, **call)
    browser = browser_of(manager)
    assert browser.get(page_of(approval)).context["can_decide"], (approval.rows, approval.reads)
    assert "approved and done" in say(browser, approval).text


def test_who_lost_the_right_to_decide_meanwhile_decides_nothing(root: Any, manager: Any) -> None:
    make_rule("All authors", labels=["testapp.author"])
    author = make_author()
    approval = waiting_for(root, "delete_record", model="testapp.author", pk=str(author.pk))
    browser = browser_of(manager)
    assert browser.get(page_of(approval)).context["can_decide"]
    manager.user_permissions.clear()
    assert say(browser, approval).status_code == 404
    assert Author.objects.exists()
