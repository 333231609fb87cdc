"""What the sign-in at the consent page leaves with the tokens, and what a new password takes away."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.test import Client, override_settings

from mcp_django import MCPSite, notify_list_changed
from mcp_django.models import TokenFacts
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.orm.access import access_of
from mcp_django.signin import FactName, OTPDevice, SignInChoice, SignInFact, credential_of, is_current
from mcp_django.subscriptions import notifier
from mcp_django.testing import MCPClient
from tests.factories import make_book, make_superuser, make_user
from tests.oauth_flow import RESOURCE, Flow, redirected
from tests.subscribers import SCOPES, listen, tell_at_once, uri_of
from tests.testapp.models import Book, Tag
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


class Badge(SignInFact):
    """A fact that a project might have: the badge with which somebody came through the door."""

    name = "badge"

    def keep(self, request: Any) -> Any:
        return request.session.get("badge")

    def restore(self, request: Any, value: Any) -> None:
        request.user.badge = value


class Tenant(SignInChoice):
    """A choice that a project might give: for which of the user's tenants an application is."""

    name = "tenant"
    label = "Company"

    def choices(self, request: Any) -> Any:
        return [("n", "North & Co"), ("s", "South"), ("items", "Items Inc")] if request.user.username == "ada" else []

    def restore(self, request: Any, value: Any) -> None:
        request.user.badge = value


def is_accepted(token: str) -> bool:
    client = MCPClient()
    client.headers["Authorization"] = f"Bearer {token}"
    status: int = client.send("tools/list", {}).status_code
    assert status in (200, 401)
    return status == 200


@pytest.fixture
def badges(settings: Any, tools: Any) -> list[Any]:
    """The badges that a tool finds on its callers."""
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"SIGN_IN_FACTS": [Badge]}
    seen: list[Any] = []

    def look(request: Any) -> str:
        """Look."""
        seen.append((request.user.badge, request.mcp.facts.get("badge")))
        return "seen"

    tools(look, scopes=["mcp:read"], read_only=True)
    return seen


def look_with(token: str) -> None:
    client = MCPClient()
    client.headers["Authorization"] = f"Bearer {token}"
    assert client.call("look").text == "seen"


def test_a_fact_of_the_session_comes_with_each_token_of_the_grant(badges: list[Any]) -> None:
    flow = Flow()
    session = flow.browser.session
    session["badge"] = {"door": 7}
    session.save()
    tokens = flow.tokens()
    look_with(tokens["access_token"])
    tokens = flow.refresh(tokens["refresh_token"]).json()
    look_with(tokens["access_token"])
    # Another sibling, of a client that did not get the answer.
    again = flow.refresh(tokens["refresh_token"]).json()
    sibling = flow.refresh(tokens["refresh_token"]).json()
    look_with(again["access_token"])
    look_with(sibling["access_token"])
    assert badges == [({"door": 7}, {"door": 7})] * 4


def test_a_token_without_a_sign_in_has_no_fact(badges: list[Any]) -> None:
    _, raw = create_token(get_user_model().objects.create_user("ada"), scopes=["mcp:read"], resources=[RESOURCE])
    look_with(raw)
    assert badges == [(None, None)]


def test_a_token_can_be_made_with_facts(badges: list[Any]) -> None:
    ada = get_user_model().objects.create_user("ada")
    _, raw = create_token(ada, scopes=["mcp:read"], resources=[RESOURCE], facts={"badge": 1})
    look_with(raw)
    assert badges == [(1, 1)]


def test_streams_of_one_user_keep_their_own_facts(badges: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tell_at_once(monkeypatch)
    user = make_superuser()
    for badge in (1, 2):
        request = request_of(user, scopes=SCOPES)
        request.mcp.facts = {"badge": badge}
        listen(user, request=request)
    found = [caller.request(user).user.badge for caller in notifier._notifiers[0].audience.callers()]
    assert sorted(found) == [1, 2]


# The password


def new_password(user: Any, raw: str = "other") -> None:
    user.set_password(raw)
    user.save()


def test_a_new_password_ends_tokens_codes_and_refresh_tokens() -> None:
    flow = Flow()
    tokens, code = flow.tokens(), flow.code()
    _, made = create_token(flow.user, scopes=["mcp:read"], resources=[RESOURCE])
    assert is_accepted(tokens["access_token"])
    assert is_accepted(made)
    new_password(flow.user)
    assert not is_accepted(tokens["access_token"])
    assert not is_accepted(made)
    for answer in (flow.exchange(code), flow.refresh(tokens["refresh_token"])):
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


def test_a_new_password_ends_the_sibling_of_a_refresh_too() -> None:
    flow = Flow()
    tokens = flow.tokens()
    assert flow.refresh(tokens["refresh_token"]).status_code == 200
    new_password(flow.user)
    assert flow.refresh(tokens["refresh_token"]).status_code == 400


def test_what_is_granted_with_the_new_password_holds() -> None:
    flow = Flow()
    new_password(flow.user)
    flow.browser = Client()
    flow.browser.force_login(flow.user)
    tokens = flow.tokens()
    assert is_accepted(tokens["access_token"])
    assert flow.refresh(tokens["refresh_token"]).status_code == 200


def test_the_same_password_hashed_anew_counts_as_django_counts_it_for_sessions() -> None:
    flow = Flow()
    token = flow.tokens()["access_token"]
    flow.user.password = make_password("pw")
    flow.user.save()
    assert not is_accepted(token)


def test_other_changes_of_the_user_end_nothing() -> None:
    flow = Flow()
    token = flow.tokens()["access_token"]
    flow.user.email = "other@example.com"
    flow.user.save()
    assert is_accepted(token)


def test_a_new_secret_key_ends_nothing_while_the_old_one_is_a_fallback(settings: Any) -> None:
    flow = Flow()
    tokens = flow.tokens()
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert is_accepted(tokens["access_token"])
        tokens = flow.refresh(tokens["refresh_token"]).json()
        assert is_accepted(tokens["access_token"])
    with override_settings(SECRET_KEY="new" * 20):
        # It was refreshed meanwhile, and has the mark of the new key.
        assert is_accepted(tokens["access_token"])
    with override_settings(SECRET_KEY="third" * 20):
        assert not is_accepted(tokens["access_token"])


def test_what_was_granted_before_marks_were_kept_goes_on_and_gets_one_by_refresh() -> None:
    flow = Flow()
    tokens = flow.tokens()
    TokenFacts.objects.all().delete()
    assert is_accepted(tokens["access_token"])
    tokens = flow.refresh(tokens["refresh_token"]).json()
    new_password(flow.user)
    assert not is_accepted(tokens["access_token"])


def test_the_mark_is_neither_the_password_nor_what_a_session_holds() -> None:
    user = get_user_model().objects.create_user("ada", password="pw")
    mark = credential_of(user)[FactName.CREDENTIAL]
    assert mark not in (user.password, user.get_session_auth_hash())
    assert mark not in user.get_session_auth_hash()


def test_users_of_another_kind_have_no_mark() -> None:
    assert credential_of(object()) == {}
    assert is_current(object(), {})


# Open streams


def test_a_stream_hears_nothing_after_a_new_password_and_ends(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    news = tell_at_once(monkeypatch)
    book, user = make_book(), make_superuser()
    _, raw = create_token(user, scopes=["mcp:read"], resources=[RESOURCE])
    auth = verify(raw, RESOURCE)[1]
    request = request_of(user, scopes=SCOPES)
    request.auth, request.mcp.facts = auth, auth.facts  # type: ignore[attr-defined]
    listener = listen(user, uri_of(book), lists=["tools"], request=request)

    def save() -> None:
        with django_capture_on_commit_callbacks(execute=True):
            book.save()
        news.process.tell()

    save()
    assert listener.take() == [uri_of(book)]
    new_password(user)
    save()
    with django_capture_on_commit_callbacks(execute=True):
        notify_list_changed("tools")
    news.process.tell()
    assert listener.take() == []
    listener.subscription.set_uris([uri_of(book)])
    assert listener.uris == []
    news.process.check()
    assert listener.ended == ["the password has changed"]


# Admins that look for what a browser has


class DoorAdmin(admin.AdminSite):
    """An admin that looks into the session, as its author never thought of anything but browsers."""

    def has_permission(self, request: Any) -> bool:
        return bool(super().has_permission(request) and request.session["door"])


def test_an_admin_that_looks_for_a_session_lets_nobody_in_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    door = DoorAdmin("door")
    door.register([Book, Tag])
    request = request_of(make_superuser(), MCPSite("door_mcp", admin_site=door), scopes=SCOPES)
    assert access_of(request).exposures == []
    assert "second factor" in access_of(request).refusal
    assert len([record for record in caplog.records if record.name == "mcp_django"]) == 1
    assert access_of(request_of(make_user("guest", staff=False), request.mcp.site, scopes=SCOPES)).refusal == ""


# What users choose


@pytest.fixture
def tenants(badges: list[Any], settings: Any) -> list[Any]:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"SIGN_IN_FACTS": [Tenant]}
    return badges


def consent(flow: Flow, **fields: str) -> Any:
    return flow.browser.post("/oauth/authorize/", flow.query(granted="mcp:read", allow="1", **fields))


def test_users_choose_the_tenant_that_an_application_is_for(tenants: list[Any]) -> None:
    flow = Flow()
    page = flow.ask().text
    assert '<label for="fact_tenant">Company</label>' in page
    assert '<option value="n">North &amp; Co</option>' in page
    assert '<option value="items">Items Inc</option>' in page
    tokens = flow.exchange(redirected(consent(flow, fact_tenant="s"))["code"]).json()
    look_with(tokens["access_token"])
    look_with(flow.refresh(tokens["refresh_token"]).json()["access_token"])
    assert [badge for badge, _ in tenants] == ["s", "s"]
    shown = flow.browser.get("/oauth/authorized_tokens/").text
    assert "<dt>Company</dt><dd><bdi>South</bdi></dd>" in shown


@pytest.mark.parametrize("fields", [{}, {"fact_tenant": ""}, {"fact_tenant": "other"}])
def test_a_tenant_that_is_not_the_users_grants_nothing(tenants: list[Any], fields: dict[str, str]) -> None:
    assert consent(Flow(), **fields).status_code == 400
    assert not TokenFacts.objects.exists()


def test_who_has_nothing_to_choose_is_not_asked(tenants: list[Any]) -> None:
    flow = Flow(username="bob")
    assert "fact_tenant" not in flow.ask().text
    look_with(flow.tokens()["access_token"])
    assert tenants[0][0] is None


# A second factor


class Device:
    """What django-otp keeps of a device."""

    def __init__(self, user_id: Any, confirmed: bool) -> None:
        self.user_id, self.confirmed = user_id, confirmed


@pytest.mark.parametrize(
    ("kept", "verified"),
    [
        ("own", True),
        ("unconfirmed", False),
        ("of another user", False),
        ("gone", False),
        (None, False),
        (5, False),
    ],
)
def test_a_device_verifies_its_user_as_long_as_it_is_there_and_confirmed(
    kept: Any, verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    user: Any = make_user("ada")
    devices = {
        "own": Device(user.pk, True),
        "unconfirmed": Device(user.pk, False),
        "of another user": Device(user.pk + 1, True),
    }
    model = SimpleNamespace(from_persistent_id=devices.get)
    monkeypatch.setattr("mcp_django.signin._has_otp", lambda: True)
    monkeypatch.setattr("mcp_django.signin.import_string", {"django_otp.models.Device": model}.get)
    request = request_of(user)
    OTPDevice().restore(request, kept)
    assert user.is_verified() is verified
    assert user.otp_device is (devices["own"] if verified else None)


def test_a_mark_says_nothing_of_users_without_passwords() -> None:
    assert is_current(object(), {FactName.CREDENTIAL: "a mark"})
