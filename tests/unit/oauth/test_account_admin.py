"""The pages for service accounts: superusers make them, and see a secret once."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import Permission
from django.test import Client, RequestFactory, override_settings
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application

from mcp_django.models import LinkedIdentity, ServiceAccount
from mcp_django.oauth.account_admin import ServiceAccountAdmin
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.signin import FactName
from tests.factories import make_superuser, make_user
from tests.identity_provider import ENTRY, ISSUER, settings_with
from tests.jwts import key_for
from tests.oauth_flow import ORIGIN, RESOURCE
from tests.service_account import ask, ask_by_secret, make_account

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.one_server,
    pytest.mark.django_db,
    pytest.mark.usefixtures("accounts_are_on"),
]
BASE = {"BASE_URL": ORIGIN}
LIST = "/admin/mcp_django/serviceaccount/"


@pytest.fixture
def accounts_are_on() -> Any:
    with override_settings(MCP_DJANGO=BASE | {"SERVICE_ACCOUNTS": True}):
        yield


@pytest.fixture
def browser() -> Client:
    browser = Client()
    browser.force_login(make_superuser())
    return browser


def form(**changes: Any) -> dict[str, Any]:
    """What a browser sends; None leaves a field out."""
    ends = timezone.now() + timedelta(days=30)
    fields = {
        "name": "Nightly import",
        "user": (ServiceAccount.objects.first() or make_account()[0]).user.pk,
        "scopes": ["mcp:read"],
        "expires_0": f"{ends:%Y-%m-%d}",
        "expires_1": "12:00:00",
        "is_active": "on",
        "new_secret": "on",
        "public_key": "",
        "jwks_uri": "",
    } | changes
    return {name: value for name, value in fields.items() if value is not None}


def errors(response: Any) -> str:
    assert response.status_code == 200
    return str(response.context["errors"]) + str(response.context["adminform"].form.errors)


def test_an_account_is_made_and_its_secret_shown_once(browser: Client) -> None:
    page = browser.post(f"{LIST}add/", form(name="New"))
    assert page.status_code == 200
    account = ServiceAccount.objects.get(name="New")
    shown = re.findall(r"<code>([^<]+)</code>", page.content.decode())
    assert shown[0] == account.client_id
    assert "no-store" in page["Cache-Control"]
    assert ask_by_secret(account, shown[1]).status_code == 200
    for path in (LIST, f"{LIST}{account.pk}/change/", f"{LIST}{account.pk}/history/", "/admin/"):
        text = browser.get(path).content.decode()
        assert shown[1] not in text
        assert account.secret not in text
    assert account.client_id in browser.get(LIST).content.decode()


def test_the_page_of_another_admin_leads_back_to_that(rf: RequestFactory) -> None:
    own = AdminSite("own")
    account, _ = make_account()
    account.shown_secret = "shown"  # type: ignore[attr-defined]
    request = rf.get("/")
    request.user = account.user
    page: Any = ServiceAccountAdmin(ServiceAccount, own).response_change(request, account)
    assert page.context_data["secret"] == "shown"
    assert request.current_app == "own"  # type: ignore[attr-defined]


def test_a_new_secret_replaces_the_one_before_and_nothing_else_does(browser: Client) -> None:
    account, secret = make_account()
    change = f"{LIST}{account.pk}/change/"
    assert browser.post(change, form(new_secret=None)).status_code == 302
    assert ask_by_secret(account, secret).status_code == 200
    page = browser.post(change, form())
    assert ask_by_secret(account, secret).status_code == 401
    new = re.findall(r"<code>([^<]+)</code>", page.content.decode())[1]
    assert ask(client_id=account.client_id, client_secret=new).status_code == 200


def test_a_change_ends_the_tokens_and_so_does_deleting(browser: Client) -> None:
    account, secret = make_account()
    other, others = make_account(user=account.user)
    for known, text in ((account, secret), (other, others)):
        assert ask_by_secret(known, text).status_code == 200
    browser.post(f"{LIST}{account.pk}/change/", form(new_secret=None, is_active=None))
    assert [token.application.client_id for token in AccessToken.objects.all()] == [other.client_id]
    assert ask_by_secret(account, secret).status_code == 401
    browser.post(f"{LIST}{account.pk}/delete/", {"post": "yes"})
    selected = {"action": "delete_selected", "_selected_action": [other.pk], "post": "yes"}
    browser.post(LIST, selected)
    assert not ServiceAccount.objects.exists()
    assert not AccessToken.objects.exists()
    assert not Application.objects.filter(client_id__startswith="service-").exists()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"new_secret": None}, "needs a secret, a public key or a URL"),
        ({"public_key": "key"}, "neither PEM nor"),
        ({"public_key": key_for().export_private()}, "Only the public key belongs here"),
        ({"public_key": key_for().export_public(), "jwks_uri": "https://a.example/jwks"}, "not both"),
        ({"jwks_uri": "http://a.example/jwks"}, "https URL"),
        ({"jwks_uri": "https://a.example"}, "https URL"),
        ({"jwks_uri": "https://user@a.example/jwks"}, "https URL"),
        ({"jwks_uri": "https://a.example/jwks x"}, "https URL"),
        ({"scopes": None}, "required"),
        ({"scopes": ["root"]}, "root"),
        ({"endpoints": ["/elsewhere"]}, "/elsewhere"),
        ({"user": "0"}, "user"),
    ],
)
def test_an_account_that_would_not_work_is_not_made(browser: Client, changes: dict[str, Any], error: str) -> None:
    make_account()
    assert error in errors(browser.post(f"{LIST}add/", form(**changes)))
    assert ServiceAccount.objects.count() == 1


@pytest.mark.parametrize(
    "changes",
    [{"public_key": key_for().export_public()}, {"jwks_uri": "https://a.example/jwks.json"}, {"endpoints": ["/mcp"]}],
)
def test_an_account_can_have_a_key_and_chosen_endpoints(browser: Client, changes: dict[str, Any]) -> None:
    has_key = "endpoints" not in changes
    response = browser.post(f"{LIST}add/", form(name="New", new_secret=None if has_key else "on", **changes))
    assert response.status_code == (302 if has_key else 200)
    account = ServiceAccount.objects.get(name="New")
    assert bool(account.secret) is not has_key
    for name, value in changes.items():
        assert getattr(account, name) == value


def test_what_the_site_has_no_more_stays_until_it_is_unticked(browser: Client) -> None:
    account, _ = make_account(scopes=["mcp:read", "former"], endpoints=["/former"])
    page = browser.get(f"{LIST}{account.pk}/change/").content.decode()
    assert 'value="former"' in page
    assert 'value="/former"' in page


def test_nobody_but_superusers_sees_the_accounts() -> None:
    account, _ = make_account()
    staff = make_user("staff")
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="mcp_django"))
    browser = Client()
    browser.force_login(staff)
    for path in ("", "add/", f"{account.pk}/change/", f"{account.pk}/delete/", f"{account.pk}/history/"):
        assert browser.get(LIST + path).status_code == 403
    assert browser.post(f"{LIST}add/", form(name="Mine")).status_code == 403
    assert "serviceaccount" not in browser.get("/admin/").content.decode()
    assert ServiceAccount.objects.count() == 1


def test_a_site_without_service_accounts_has_no_such_page(browser: Client) -> None:
    assert "serviceaccount" in browser.get("/admin/").content.decode()
    with override_settings(MCP_DJANGO=BASE):
        assert "serviceaccount" not in browser.get("/admin/").content.decode()
        assert browser.get(LIST).status_code == 403


# Linked identities

LINKS = "/admin/mcp_django/linkedidentity/"


@pytest.fixture
def link() -> Any:
    with override_settings(MCP_DJANGO=settings_with(ENTRY)):
        yield LinkedIdentity.objects.create(issuer=ISSUER, subject="U1", user=make_user("ada"))


def test_users_are_linked_and_a_change_ends_the_tokens_of_the_link(browser: Client, link: LinkedIdentity) -> None:
    for who in ("eve", "bob"):
        sent = {"issuer": ISSUER, "subject": who, "user": make_user(who).pk}
        assert browser.post(f"{LINKS}add/", sent).status_code == 302
    for identity in LinkedIdentity.objects.all():
        facts = {FactName.LINKED_IDENTITY: identity.pk}
        create_token(identity.user, scopes=["mcp:read"], resources=[RESOURCE], facts=facts)
    browser.post(f"{LINKS}{link.pk}/change/", {"issuer": ISSUER, "subject": "U2", "user": link.user.pk})
    link.refresh_from_db()
    assert link.subject == "U2"
    assert {token.user.get_username() for token in AccessToken.objects.all()} == {"eve", "bob"}
    eve = LinkedIdentity.objects.get(subject="eve")
    browser.post(f"{LINKS}{eve.pk}/delete/", {"post": "yes"})
    assert [token.user.get_username() for token in AccessToken.objects.all()] == ["bob"]
    bob = LinkedIdentity.objects.get(subject="bob")
    browser.post(LINKS, {"action": "delete_selected", "_selected_action": [bob.pk], "post": "yes"})
    assert not AccessToken.objects.exists()
    assert list(LinkedIdentity.objects.all()) == [link]


def test_nobody_is_linked_twice(browser: Client, link: LinkedIdentity) -> None:
    other = make_user("eve")
    for sent in ({"subject": "U1", "user": other.pk}, {"subject": "U2", "user": link.user.pk}):
        assert "already exists" in errors(browser.post(f"{LINKS}add/", {"issuer": ISSUER} | sent))


def test_nobody_but_superusers_links_users(link: LinkedIdentity) -> None:
    staff = make_user("staff")
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="mcp_django"))
    browser = Client()
    browser.force_login(staff)
    for path in ("", "add/", f"{link.pk}/change/", f"{link.pk}/delete/"):
        assert browser.get(LINKS + path).status_code == 403


def test_a_site_without_identity_providers_has_no_such_page(browser: Client) -> None:
    assert browser.get(LINKS).status_code == 403
