"""What a caller is told of a call that only a person can confirm: the page, one request for each call, its outcome."""

import json
from types import SimpleNamespace
from typing import Annotated

import pytest
from asgiref.sync import sync_to_async
from django.contrib import admin

from mcp_django import Ask, site
from mcp_django.differences.trials import Trial
from mcp_django.models import Change, KeyedCall
from mcp_django.server import person_requests
from mcp_django.server.person_requests import MAX_WAITING, can_sign_in
from mcp_django.testing import MCPClient, MCPError
from mcp_django.transports.local_client import LocalClient
from tests.confirming import page_of, say, signed_in, tool_of
from tests.factories import make_author, make_book, make_superuser
from tests.service_account import ask_by_secret, make_account
from tests.testapp.models import Author, Book

pytestmark = pytest.mark.django_db

BOOK = {"model": "testapp.book"}
BY_URL = {"elicitation": {"form": {}, "url": {}}}


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
def trials(monkeypatch):
    """Count the trials."""
    made = []
    run = Trial._run
    monkeypatch.setattr(Trial, "_run", lambda self: (made.append(1), run(self))[1])
    return made


def change():
    return Change.objects.get()


# The request


def test_the_caller_gets_a_page_at_the_address_of_the_endpoint(caller):
    book = make_book("Dune")
    waiting = caller.call("delete_record", **BOOK, pk=book.pk)
    assert waiting.is_error is False
    told = waiting.structured
    assert told == {
        "change": change().pk,
        "state": "waiting",
        "url": f"http://testserver/mcp/confirm/{change().pk}",
        "summary": change().summary,
        "next": person_requests.NEXT,
    }
    assert "Dune" in told["summary"]


def test_the_same_call_joins_the_request_that_waits(caller, trials):
    book = make_book("Dune")
    first = caller.call("delete_record", **BOOK, pk=book.pk)
    for more in ({}, {"confirm_token": "x"}):
        again = caller.call("delete_record", **BOOK, pk=book.pk, **more)
        assert again.structured == first.structured
    assert trials == [1]


def test_another_call_and_a_new_key_have_requests_of_their_own(caller):
    book = make_book("Dune")
    pages = {
        page_of(caller.call("delete_record", **BOOK, pk=book.pk)),
        page_of(caller.call("delete_record", **BOOK, pk=str(book.pk))),
        page_of(caller.call("delete_record", **BOOK, pk=book.pk, idempotency_key="1")),
        page_of(caller.call("delete_record", **BOOK, pk=book.pk, idempotency_key="2")),
    }
    assert len(pages) == 4
    # That it waits is no result of the key.
    assert {call.result for call in KeyedCall.objects.all()} == {"waits"}


def test_the_outcome_goes_to_each_repetition_for_a_day(caller, root):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk, idempotency_key="1"))
    say(signed_in(root), page)
    results = [caller.call("delete_record", **BOOK, pk=book.pk, idempotency_key="1") for _ in range(2)]
    assert results[0] == results[1]
    assert results[0].structured["deleted"] is True
    assert results[0].structured["change"] == change().pk
    assert KeyedCall.objects.count() == 1


def test_the_outcome_is_not_shown_to_who_may_no_longer_do_it(caller, root):
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    say(signed_in(root), page)
    Change.objects.update(result=b"")
    root.is_superuser = False
    root.save()
    with pytest.raises(MCPError, match="delete_record"):
        caller.call("delete_record", **BOOK, pk=book.pk)


def test_what_waits_and_what_became_of_it_is_read_from_mcp_change(caller, root):
    book = make_book("Dune")
    number = caller.call("delete_record", **BOOK, pk=book.pk).structured["change"]

    def row():
        found = caller.call("get_record", model="mcp.change", pk=number, fields=["state", "outcome", "difference"])
        return found.structured["fields"]

    assert row()["state"] == "waiting"
    assert row()["difference"]["difference"]["counts"] == {"testapp.book": {"deleted": 1}}
    say(signed_in(root), f"/mcp/confirm/{number}", "no")
    assert row()["state"] == "refused"
    assert row()["outcome"] == "The user has said no."


def test_a_long_result_is_not_kept(caller, root, monkeypatch):
    monkeypatch.setattr(person_requests, "MAX_RESULT", 10)
    book = make_book("Dune")
    say(signed_in(root), page_of(caller.call("delete_record", **BOOK, pk=book.pk)))
    assert not Book.objects.exists()
    assert "too long" in caller.call("delete_record", **BOOK, pk=book.pk).text


def test_what_cannot_be_done_is_refused_without_a_request(caller):
    assert caller.call("delete_record", **BOOK, pk=99).is_error
    assert not Change.objects.exists()


def test_what_does_not_ask_runs_at_once(caller):
    book = make_book("Dune")
    assert caller.call("update_record", **BOOK, pk=book.pk, values={"price": "9"}).structured["updated"]
    assert change().state == "done"


def test_what_a_function_asks_for_comes_before_the_page(root):
    given = []

    def pay(request, amount: Annotated[int, Ask("How much?")]) -> str:
        given.append(amount)
        return "paid"

    with tool_of(pay):
        caller = MCPClient(root, capabilities={"elicitation": {}}, answers={"amount": {"amount": 5}})
        page = page_of(caller.call("pay"))
        assert not given
        say(signed_in(root), page)
    assert given == [5]


def test_a_function_that_asks_on_its_way_cannot_be_confirmed_on_a_page(caller, root):
    def pay(request) -> str:
        return str(request.mcp.ask("How much?", int))

    with tool_of(pay, asks=True):
        say(signed_in(root), page_of(caller.call("pay")))
    assert (change().state, change().outcome) == ("failed", person_requests.ASKS)


def test_a_tool_with_a_schema_tells_it_as_text(caller):
    def pay(request) -> dict[str, int]:
        return {"paid": 1}

    with tool_of(pay):
        waiting = caller.call("pay")
    assert waiting.structured is None
    assert '"state":"waiting"' in waiting.text


# Clients that open pages


def test_a_client_that_opens_pages_is_asked_to_by_each_repetition(root, trials):
    caller = MCPClient(root, capabilities=BY_URL)
    book = make_book("Dune")
    params = {"name": "delete_record", "arguments": {**BOOK, "pk": book.pk}}
    asked = caller.request("tools/call", **params)
    [question] = asked["inputRequests"].values()
    assert question["params"]["mode"] == "url"
    assert question["params"]["url"].endswith(f"/mcp/confirm/{change().pk}")
    assert "Dune" in question["params"]["message"]
    # The user may have closed the page: the same call opens it again, and makes no second request.
    again = caller.request("tools/call", **params)
    assert list(again["inputRequests"].values()) == [question]
    assert trials == [1]
    say(signed_in(root), f"/mcp/confirm/{change().pk}")
    assert caller.request("tools/call", **params)["structuredContent"]["deleted"] is True


def test_a_client_whose_user_has_closed_the_question_gets_the_link(root):
    caller = MCPClient(root, capabilities=BY_URL, answers={"person": {"action": "cancel"}})
    book = make_book("Dune")
    page = page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    # A page that is open from an earlier call still has the decision.
    assert page_of(caller.call("delete_record", **BOOK, pk=book.pk)) == page
    say(signed_in(root), page)
    assert not Book.objects.exists()


def test_opening_the_page_is_no_yes_and_the_call_waits_for_one(root, monkeypatch):
    caller = MCPClient(root, capabilities=BY_URL, answers={"person": True})
    browser = signed_in(root)
    book = make_book("Dune")
    looks = []

    async def decide(seconds):
        looks.append(seconds)
        number = await sync_to_async(lambda: change().pk)()
        await sync_to_async(say)(browser, f"/mcp/confirm/{number}")

    monkeypatch.setattr(person_requests, "asyncio", SimpleNamespace(sleep=decide))
    done = caller.call("delete_record", **BOOK, pk=book.pk)
    assert done.structured["deleted"] is True
    assert len(looks) == 1
    assert not Book.objects.exists()


def test_a_call_does_not_wait_for_ever(root, monkeypatch):
    monkeypatch.setattr(person_requests, "PATIENCE", 0)
    caller = MCPClient(root, capabilities=BY_URL, answers={"person": True})
    book = make_book("Dune")
    page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    assert Book.objects.exists()


def test_a_page_that_the_user_does_not_open_withdraws_the_request(root):
    caller = MCPClient(root, capabilities=BY_URL, answers={"person": None})
    book = make_book("Dune")
    assert "declined" in caller.call("delete_record", **BOOK, pk=book.pk).text
    assert change().state == "withdrawn"
    say(signed_in(root), f"/mcp/confirm/{change().pk}")
    assert Book.objects.exists()
    # The same call may ask again.
    assert "declined" in caller.call("delete_record", **BOOK, pk=book.pk).text
    assert Change.objects.count() == 2


# Who cannot confirm anything


def test_a_service_account_is_refused_at_once(settings, trials):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVICE_ACCOUNTS": True}
    account, secret = make_account(user=make_superuser("robot"), scopes=["mcp:read", "mcp:write"])
    token = ask_by_secret(account, secret).json()["access_token"]
    caller = MCPClient()
    caller.headers["Authorization"] = f"Bearer {token}"
    book = make_book("Dune")
    refused = caller.call("delete_record", **BOOK, pk=book.pk)
    assert refused.is_error
    assert "a service account cannot" in refused.text
    assert "token" not in refused.text
    assert not trials
    assert not Change.objects.exists()


def test_a_user_who_cannot_sign_in_is_refused(caller, root):
    root.set_unusable_password()
    root.save()
    caller = MCPClient(root)
    refused = caller.call("delete_record", **BOOK, pk=make_book("Dune").pk)
    assert "cannot sign in" in refused.text


def test_who_can_sign_in(root, settings):
    assert can_sign_in(root)
    root.set_unusable_password()
    assert not can_sign_in(root)
    settings.AUTHENTICATION_BACKENDS = [
        *settings.AUTHENTICATION_BACKENDS,
        "django.contrib.auth.backends.RemoteUserBackend",
    ]
    assert can_sign_in(root)
    root.is_active = False
    assert not can_sign_in(root)


def test_calls_without_http_are_refused(root):
    client = LocalClient(site, root, ["mcp:write"])
    result = client.request("tools/call", name="delete_record", arguments={**BOOK, "pk": make_book("Dune").pk})
    assert result["isError"]
    assert "without HTTP" in result["content"][0]["text"]


def test_strangers_are_refused(settings, monkeypatch):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "AUTHENTICATION_CLASSES": []}
    calls = []
    with tool_of(lambda request: calls.append(1) or "", name="pay"):
        refused = MCPClient().call("pay")
    assert "no user of the site" in refused.text
    assert not calls


def test_a_user_has_so_many_requests_at_most(caller, monkeypatch):
    monkeypatch.setattr(person_requests, "MAX_WAITING", 2)
    books = [make_book(f"Book {number}") for number in range(3)]
    for book in books[:2]:
        page_of(caller.call("delete_record", **BOOK, pk=book.pk))
    assert "wait for the user's yes" in caller.call("delete_record", **BOOK, pk=books[2].pk).text
    assert MAX_WAITING == 20


# What a model reads


def test_nothing_that_a_model_reads_speaks_of_a_token(caller, settings, monkeypatch):
    def shout(self, request, queryset):
        """Shout."""

    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "shout", shout, raising=False)
    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "actions", ["shout"])
    with tool_of(lambda request: "", name="pay"):
        tools = {tool["name"]: tool for tool in caller.tools()}
        assert {"delete_record", "update_record", "run_action", "undo_change", "pay"} <= tools.keys()
        assert "shout_testapp_author" in tools
        assert "token" not in json.dumps(list(tools.values()))
        assert "on a page" in tools["delete_record"]["description"]
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": {"delete": "person"}}
        tools = {tool["name"]: json.dumps(tool) for tool in caller.tools()}
        assert "token" not in tools["delete_record"]
        assert "confirm_token" in tools["update_record"]
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "model"}
        assert "confirm_token" in json.dumps(caller.tools())


# Who decides


@pytest.mark.parametrize(
    ("rule", "deletes", "updates"),
    [
        ("person", True, True),
        ("model", False, False),
        ({"delete": "person"}, True, False),
        ({"rows": 1}, False, True),
        ({"rows": 2}, False, False),
        ({"delete": "person", "rows": 1}, True, True),
        ({"delete": "model", "rows": 2}, False, False),
        ({"all": "person"}, True, True),
        ({"all": "model", "sign_in": 60}, False, False),
        ({"all": "person", "delete": "model", "sign_in": 60}, True, True),
        ({"sign_in": 60}, False, False),
        ({}, False, False),
    ],
)
def test_the_setting_says_which_calls_a_person_confirms(caller, settings, rule, deletes, updates):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": rule}
    book, _other = make_book("Dune"), make_book("Emma")
    deleting = caller.call("delete_record", **BOOK, pk=book.pk).structured
    assert (deleting.get("state") == "waiting") is deletes
    assert ("confirm_token" in deleting) is not deletes
    updating = caller.call("update_record", **BOOK, filters={"price__gt": 0}, values={"pages": 1}).structured
    assert (updating.get("state") == "waiting") is updates
    assert ("confirm_token" in updating) is not updates


@pytest.mark.parametrize("name", ["delete_record", "run_action", "pay"])
def test_a_declaration_goes_before_the_setting(caller, settings, monkeypatch, name):
    def shout(self, request, queryset):
        """Shout."""

    def pay(request) -> str:
        return ""

    author = make_author("Ann")
    calls = {
        "delete_record": {"model": "testapp.author", "pk": author.pk},
        "run_action": {"model": "testapp.author", "action": "shout", "pks": [author.pk]},
        "pay": {},
    }
    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "shout", shout, raising=False)
    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "actions", ["shout"])
    for setting, declared in (("model", "person"), ("person", "model"), ("model", {"delete": "person", "rows": 0})):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": setting}
        monkeypatch.setattr(site.exposures[Author], "confirm", declared)
        with tool_of(pay, confirm=declared):
            answer = caller.call(name, **calls[name], idempotency_key=str(declared)).structured
        is_persons = declared == "person" or (declared != "model" and name != "pay")
        assert (answer.get("state") == "waiting") is is_persons, (declared, answer)


def test_an_admin_declares_who_confirms_as_attributes(caller, settings, monkeypatch):
    def shout(self, request, queryset):
        """Shout."""

    def yell(self, request, queryset):
        """Yell."""

    yell.mcp_confirm = "person"
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "model"}
    model_admin = type(admin.site.get_model_admin(Author))
    monkeypatch.setattr(model_admin, "mcp_confirm", {"delete": "person"}, raising=False)
    for function in (shout, yell):
        monkeypatch.setattr(model_admin, function.__name__, function, raising=False)
    monkeypatch.setattr(model_admin, "actions", ["shout", "yell"])
    site._forget()
    pk = make_author("Ann").pk
    author = {"model": "testapp.author"}
    page_of(caller.call("delete_record", **author, pk=pk))
    assert "confirm_token" in caller.call("run_action", **author, action="shout", pks=[pk]).structured
    page_of(caller.call("run_action", **author, action="yell", pks=[pk]))
    monkeypatch.undo()
    site._forget()
