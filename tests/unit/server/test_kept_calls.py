"""A call that a person confirms on the page is made once, as its caller, if it still does what was shown."""

import contextlib
import threading
import uuid
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection, connections
from django.utils import timezone, translation
from oauth2_provider.models import get_access_token_model, get_application_model, get_refresh_token_model

from mcp_django import site
from mcp_django.context.request import MCPContext
from mcp_django.differences.client_times import ClientTime
from mcp_django.models import Change, TokenFacts
from mcp_django.oauth.resource_urls import resource_url
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.operating.switches import set_switch
from mcp_django.scopes import Scope
from mcp_django.server import person_requests
from mcp_django.testing import MCPClient
from mcp_django.transports.local_client import LocalClient
from tests.confirming import page_of, say, signed_in, tool_of
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

BOOK = {"model": "testapp.book"}
AUTHOR = {"model": "testapp.author"}


@pytest.fixture(autouse=True)
def by_person(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def caller(root):
    return MCPClient(root)


@pytest.fixture
def person(root):
    return signed_in(root)


def change():
    return Change.objects.get()


def change_of(number):
    return Change.objects.get(pk=number)


# What a yes does


def test_a_yes_makes_the_call_and_keeps_what_it_did(caller, person, root):
    book = make_book("Dune")
    waiting = caller.call("delete_record", **BOOK, pk=book.pk)
    page = page_of(waiting)
    assert Book.objects.exists()
    assert "It was done." in say(person, page)
    assert not Book.objects.exists()
    done = change()
    assert (done.state, done.by, done.pk) == ("done", "root", waiting.structured["change"])
    assert done.footprint
    assert done.cannot_undo == ""
    assert done.kept == b""
    # The history names the user and the client, as for any other call.
    assert LogEntry.objects.get().user == root


def test_a_change_is_of_the_time_and_the_call_in_which_it_was_made(caller, person):
    page = page_of(caller.call("delete_record", **BOOK, pk=make_book("Dune").pk))
    asked = change()
    say(person, page)
    done = change()
    assert done.time > asked.time
    # The entry of this call is where the log of calls lists the change.
    assert done.call != asked.call


def test_what_was_confirmed_later_is_taken_back_earlier_than_what_was_asked_for_later(caller, person, root):
    first, second = make_book("Dune"), make_book("Emma")
    waiting = caller.call("delete_record", **BOOK, pk=first.pk)
    done = caller.call("update_record", **BOOK, pk=second.pk, values={"pages": 7}).structured["change"]
    say(person, page_of(waiting))
    moment = timezone.now()
    hour = timedelta(hours=1)
    request = LocalClient(site, root, [Scope.WRITE]).new_request()
    steps = ClientTime(request, change_of(done).client_id, moment - hour, moment + hour).plan()
    assert [step.change.pk for step in steps] == [waiting.structured["change"], done]


def test_what_was_done_can_be_taken_back(caller, person):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    say(person, page)
    # It adds a row back, which needs no question.
    undone = caller.call("undo_change", change=change().pk)
    assert not undone.is_error, undone.text
    assert Book.objects.get().title == "Dune"


def test_a_no_changes_nothing_and_is_told(caller, person):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    assert "You have said no" in say(person, page, "no")
    assert Book.objects.exists()
    told = caller.call("delete_record", **BOOK, pk=book.pk)
    assert told.is_error
    assert "The user has said no" in told.text
    # A later yes on the same page is none.
    say(person, page)
    assert Book.objects.exists()
    assert change().state == "refused"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("update_record", {**BOOK, "filters": {"title": "Dune"}, "values": {"price": "9.00"}}),
        ("delete_record", {**BOOK, "filters": {"title": "Dune"}}),
        ("write_records", {"writes": [{"op": "delete", **BOOK, "pk": 0}]}),
    ],
)
def test_bulk_writes_and_several_writes_are_confirmed_alike(caller, person, tool, arguments):
    book = make_book("Dune")
    if "writes" in arguments:
        arguments = {"writes": [{**arguments["writes"][0], "pk": book.pk}]}
    page = page_of(caller.call(tool, **arguments))
    assert "It was done." in say(person, page), change().outcome
    book = Book.objects.first()
    assert book is None or str(book.price) == "9.00"
    assert change().footprint


@pytest.mark.one_server
def test_an_action_is_confirmed_with_its_form(caller, person, monkeypatch):
    def rename(self, request, queryset):
        queryset.update(name="Bob")

    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "rename", rename, raising=False)
    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "actions", ["rename"])
    author = make_author("Ann")
    waiting = caller.call("run_action", **AUTHOR, action="rename", pks=[author.pk])
    page = page_of(waiting)
    shown = person.get(page).content.decode()
    assert "Ann" in shown
    assert "Not tried" in shown
    assert "cannot be taken back" in shown
    assert "It was done." in say(person, page), change().outcome
    author.refresh_from_db()
    assert author.name == "Bob"
    assert change().state == "done"


@pytest.mark.one_server
def test_a_function_tool_is_confirmed_and_runs_once(caller, person):
    calls = []

    def pay(request, amount: int) -> str:
        calls.append((amount, request.user.username, connection.in_atomic_block))
        return f"paid {amount}"

    with tool_of(pay):
        waiting = caller.call("pay", amount=5)
        page = page_of(waiting)
        assert not calls
        assert "It was done." in say(person, page), change().outcome
        say(person, page)
        assert [call[:2] for call in calls] == [(5, "root")]
        assert caller.call("pay", amount=5).text == "paid 5"
    assert len(calls) == 1


@pytest.mark.one_server
def test_an_async_tool_is_confirmed(caller, person):
    calls = []

    async def pay(request, amount: int) -> str:
        calls.append(amount)
        return "paid"

    with tool_of(pay):
        page = page_of(caller.call("pay", amount=5))
        say(person, page)
    assert calls == [5]
    assert change().state == "done"


def test_a_tool_that_fails_half_way_ends_as_unknown_and_never_runs_again(caller, person):
    calls = []

    def pay(request) -> str:
        calls.append(1)
        raise RuntimeError("the line is dead")

    with tool_of(pay):
        page = page_of(caller.call("pay"))
        assert "half-way" in say(person, page)
        say(person, page)
        assert "nobody knows" in caller.call("pay").text
    assert calls == [1]
    assert change().state == "unknown"


def test_a_killed_worker_leaves_a_tool_running_and_it_never_runs_again(caller, person):
    class Killed(BaseException):
        pass

    calls = []

    def pay(request) -> str:
        calls.append(1)
        assert change().state == "running"
        raise Killed

    with tool_of(pay):
        page = page_of(caller.call("pay"))
        with pytest.raises(Killed):
            say(person, page)
        say(person, page)
    assert calls == [1]
    assert change().state == "unknown"


# What is checked again


def test_rows_that_have_changed_since_are_not_written(caller, person):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    Book.objects.update(pages=7)
    shown = say(person, page)
    assert "It was not done." in shown
    assert "The rows have changed" in shown
    assert Book.objects.exists()
    assert change().state == "failed"
    assert "have changed" in caller.call("delete_record", **BOOK, pk=book.pk).text
    assert page_of(caller.call("delete_record", **BOOK, pk=book.pk, idempotency_key="again")) != page


def test_more_rows_that_match_meanwhile_are_not_written(caller, person):
    make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, filters={"title": "Dune"}))
    make_book("Dune")
    assert "It was not done." in say(person, page)
    assert Book.objects.count() == 2


def lose_permission(user):
    user.is_superuser = False
    user.save()


def lose_delete(user):
    lose_permission(user)
    user.user_permissions.set(Permission.objects.exclude(codename="delete_book"))


def become_inactive(user):
    user.is_active = False
    user.save()


def revoke(user):
    get_access_token_model().objects.all().delete()


def expire(user):
    get_access_token_model().objects.update(expires=timezone.now() - timedelta(seconds=1))


def remove_client(user):
    get_application_model().objects.all().delete()


def change_password(user):
    user.set_password("another")
    user.save()


@pytest.mark.parametrize(
    "loss", [lose_permission, lose_delete, become_inactive, revoke, expire, remove_client, change_password]
)
def test_a_yes_after_rights_are_lost_changes_nothing(caller, person, root, loss):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    loss(root)
    response = person.post(page, {"yes": "1"})
    assert Book.objects.exists()
    if loss in (become_inactive, change_password):
        # Django signs the person out.
        assert response.status_code == 302
        assert change().state == "waiting"
    else:
        assert change().state == "failed"
        assert change().outcome


@pytest.mark.one_server
def test_read_only_and_switches_hold_at_the_moment_of_the_yes(caller, person, settings):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert "It was not done." in say(person, page)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": False}
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk, idempotency_key="2"))
    set_switch("writes", "", reason="Stocktaking")
    shown = say(person, page)
    assert "Stocktaking" in shown
    assert Book.objects.exists()


@pytest.mark.one_server
def test_a_budget_that_is_used_up_refuses(caller, person, settings):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"rows_written": 0}}}
    assert "It was not done." in say(person, page)
    assert Book.objects.exists()


@pytest.mark.one_server
def test_a_refreshed_token_stands_for_the_one_that_asked(caller, person, root):
    book = make_book("Dune")
    family = uuid.uuid4()
    token = get_access_token_model().objects.get()
    TokenFacts.objects.update(family=family)
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    # The client refreshes: the old token goes, and another one of the same family comes.
    application = token.application
    token.delete()
    newer = get_access_token_model().objects.create(
        user=root, application=application, token="x", expires=timezone.now() + timedelta(hours=1), scope="mcp:write"
    )
    get_refresh_token_model().objects.create(
        user=root, application=application, token="y", access_token=newer, token_family=family
    )
    assert "It was done." in say(person, page), change().outcome


@pytest.mark.one_server
def test_the_call_runs_with_the_scopes_and_models_of_its_token(person, root):
    # The user may do more than this client: what counts is what the client may do.
    caller = MCPClient(root)
    caller.path = "/mcp?models=testapp.book,testapp.author"
    seen = []

    def look(request) -> str:
        seen.append((request.mcp.scopes, request.user.has_perm("auth.view_user"), request.mcp.narrowing.labels))
        return "seen"

    with tool_of(look):
        say(person, page_of(caller.call("look")))
    [(scopes, may_view_users, labels)] = seen
    assert "mcp:write" in scopes
    assert "mcp:admin" not in scopes
    assert not may_view_users
    assert "testapp.book" in labels


@pytest.mark.one_server
def test_the_call_runs_in_the_language_of_its_caller(root, person):
    seen = []

    def look(request) -> str:
        seen.append(translation.get_language())
        return "seen"

    caller = MCPClient(root)
    caller.headers["Accept-Language"] = "de"
    with tool_of(look):
        page = page_of(caller.call("look"))
        person.post(page, {"yes": "1"}, headers={"accept-language": "fr"})
    assert seen == ["de"]


def test_nobody_decides_when_it_is_too_late(caller, person):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    Change.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert "no longer asked for" in person.get(page).content.decode()
    say(person, page)
    assert Book.objects.exists()
    assert change().state == "expired"


@pytest.mark.one_server
def test_what_can_no_longer_be_read_is_not_made(caller, person, settings):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    Change.objects.update(kept=b"nonsense")
    assert "can no longer be read" in say(person, page)
    assert Book.objects.exists()


# Once


@pytest.mark.django_db(transaction=True)
def test_twenty_clicks_at_once_make_the_call_once(root, caller):
    if connection.vendor == "sqlite":
        pytest.skip("the threads of a test share SQLite's memory")
    make_author("Ann")
    seen = []
    page = page_of(caller.call("update_record", **AUTHOR, filters={"name": "Ann"}, values={"name": "Bob"}))
    browsers = [signed_in(root) for _ in range(20)]
    together = threading.Barrier(20)

    def click(browser):
        together.wait()
        try:
            seen.append(browser.post(page, {"yes": "1"}).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=click, args=[browser]) for browser in browsers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {302}
    assert change().state == "done"
    assert LogEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_at_any_statement_leaves_the_call_open_or_done(root, caller, person):
    class Killed(BaseException):
        pass

    make_book("Dune")
    arguments = {**BOOK, "filters": {"title": "Dune"}}
    page = page_of(caller.call("delete_record", **arguments))
    number = 0
    while Book.objects.exists():
        assert change().state == "waiting"
        number += 1
        left = number

        def kill(execute, sql, params, many, context):
            nonlocal left
            left -= 1
            if not left:
                raise Killed
            return execute(sql, params, many, context)

        with connection.execute_wrapper(kill), contextlib.suppress(Killed):
            person.post(page, {"yes": "1"})
    assert change().state == "done"
    assert number > 10


# Attacks


@pytest.mark.one_server
def test_nothing_that_a_client_sends_is_a_yes(root, monkeypatch):
    monkeypatch.setattr(person_requests, "PATIENCE", 0)
    book = make_book("Dune")
    arguments = {**BOOK, "pk": book.pk}
    seen = set()
    forms = {"form": {}}
    for capabilities in ({}, {"elicitation": {}}, {"elicitation": forms}, {"elicitation": {**forms, "url": {}}}):
        for content in (True, {}, {"_confirm": "yes"}, {"person": "yes"}):
            client = MCPClient(root, capabilities=capabilities, answers={"person": content, "_confirm": content})
            for token in (None, "", "x" * 40, True, str(change().pk) if seen else "1"):
                more = {} if token is None else {"confirm_token": token}
                seen.add(client.call("delete_record", **arguments, **more).structured["state"])
    assert seen == {"waiting"}
    assert Book.objects.exists()


@pytest.mark.one_server
def test_the_version_of_a_dry_run_is_no_yes(caller):
    book = make_book("Dune")
    tried = caller.call("delete_record", **BOOK, pk=book.pk, dry_run=True)
    version = tried.structured["version"]
    for more in ({"version": version}, {"confirm_token": version}, {"version": version, "confirm_token": version}):
        page_of(caller.call("delete_record", **BOOK, pk=book.pk, **more))
    assert Book.objects.exists()


@pytest.mark.one_server
def test_a_token_made_under_another_setting_is_no_yes(caller, settings):
    book = make_book("Dune")
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "model"}
    token = caller.call("delete_record", **BOOK, pk=book.pk).structured["confirm_token"]
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}
    page_of(caller.call("delete_record", **BOOK, pk=book.pk, confirm_token=token))
    assert Book.objects.exists()


@pytest.mark.one_server
def test_a_token_that_confirms_by_itself_confirms_nothing(root):
    book = make_book("Dune")
    caller = MCPClient(root, capabilities={"elicitation": {}})
    facts = {MCPContext.CONFIRM_BY_TOKEN: True}
    _, token = create_token(root, scopes=["mcp:write"], resources=[resource_url(None, "/mcp")], facts=facts)
    caller.headers["Authorization"] = f"Bearer {token}"
    page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    assert Book.objects.exists()


@pytest.mark.one_server
def test_one_client_does_not_get_the_outcome_of_another(root, person):
    book = make_book("Dune")
    one = MCPClient(root)
    other = MCPClient(make_superuser("eve"))
    page = page_of(one.call("delete_record", **BOOK, pk=book.pk))
    assert page_of(other.call("delete_record", **BOOK, pk=book.pk)) != page
    say(person, page)
    # To the other client, it is a row that is gone.
    assert other.call("delete_record", **BOOK, pk=book.pk, idempotency_key="2").is_error


@pytest.mark.parametrize("function", [False, True])
def test_two_requests_of_the_same_call_make_it_once(caller, person, function):
    calls = []

    def pay(request) -> str:
        calls.append(1)
        return "paid"

    make_author("Ann")
    update = {**AUTHOR, "filters": {"name": "Ann"}, "values": {"name": "Ann"}}
    with tool_of(pay):
        name, arguments = ("pay", {}) if function else ("update_record", update)
        first = page_of(caller.call(name, **arguments))
        # The other call came at the same time, and saw no request.
        twin = change()
        twin.pk = None
        twin.save()
        assert "It was done." in say(person, first), change().outcome
        assert "made before" in say(person, first.replace(first.rpartition("/")[2], str(twin.pk)))
    assert len(calls) == function
    assert sorted(Change.objects.values_list("state", flat=True)) == ["done", "failed"]


def test_a_refreshed_token_of_fewer_scopes_does_not_stand_for_the_one_that_asked(caller, person):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    get_access_token_model().objects.update(scope="mcp:read")
    assert "It was not done." in say(person, page)
    assert Book.objects.exists()
