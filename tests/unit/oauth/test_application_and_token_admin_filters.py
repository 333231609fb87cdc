"""What the admin's list of tokens is narrowed to, by user, application, kind and state."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, set_token_value

from mcp_django.models import LinkedIdentity, TokenFacts
from mcp_django.oauth import application_and_token_admin as oauth_admin
from mcp_django.oauth import stored_tokens as oauth_tokens
from mcp_django.oauth.stored_tokens import create_token, save_token
from mcp_django.signin import FactName
from tests.factories import make_superuser, make_user
from tests.oauth_flow import RESOURCE, Flow

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
TOKENS = "/admin/oauth2_provider/accesstoken/"
ISSUERS = ["https://login.example", "https://other.example"]


@pytest.fixture
def admin() -> Client:
    browser = Client()
    browser.force_login(make_superuser("root"))
    return browser


def make_token(user: Any, client: Any, **facts: Any) -> Any:
    expires = timezone.now() + timedelta(days=1)
    return save_token(user, client, scopes=["mcp:read"], resources=[RESOURCE], expires=expires, facts=facts)[0]


def listed(admin: Client, **query: Any) -> set[Any]:
    page = admin.get(TOKENS, query)
    assert page.status_code == 200
    return {token.pk for token in page.context["cl"].result_list}


def make_one_of_each() -> dict[str, Any]:
    """A token of each kind, of a user who is known to two identity providers."""
    ada = make_user("ada")
    client = Application.objects.create(name="Robot", client_type="public", authorization_grant_type="x")
    links = [LinkedIdentity.objects.create(issuer=issuer, subject="U1", user=ada) for issuer in ISSUERS]
    found = {f"issuer:{link.issuer}": make_token(ada, client, **{FactName.LINKED_IDENTITY: link.pk}) for link in links}
    found["service"] = make_token(ada, client, **{FactName.SERVICE_ACCOUNT: 7, "name": "Nightly import"})
    found["command"] = create_token(ada, scopes=["mcp:read"], resources=[RESOURCE], facts={"name": "by hand"})[0]
    found["person"] = make_token(ada, client)
    return found


@pytest.mark.parametrize("beside", [True, False])
def test_each_kind_is_found_by_itself_and_named(admin: Client, monkeypatch: pytest.MonkeyPatch, beside: bool) -> None:
    monkeypatch.setattr(oauth_tokens, "beside_tokens", lambda: beside)
    tokens = make_one_of_each()
    for kind, token in tokens.items():
        assert listed(admin, kind=kind) == {token.pk}
    assert listed(admin) == listed(admin, kind="unheard of") == {token.pk for token in tokens.values()}
    shown = admin.get(TOKENS).text
    for text in (*ISSUERS, "service account: Nightly import", "mcp_token: by hand", "consent page"):
        assert f'<td class="field-kind">{text}</td>' in shown


def test_a_token_that_nothing_is_kept_beside_is_a_persons_and_is_not_left_out(admin: Client) -> None:
    token = AccessToken(user=make_user("ada"), scope="mcp:read", expires=timezone.now() + timedelta(hours=1))
    set_token_value(token, "x" * 40)
    token.save()
    assert not TokenFacts.objects.exists()
    assert listed(admin) == listed(admin, kind="person") == {token.pk}


def test_users_and_applications_are_told_apart(admin: Client) -> None:
    flows = [Flow(username=name) for name in ("ada", "bob")]
    for flow in flows:
        flow.tokens()
    ada, bob = AccessToken.objects.order_by("pk")
    assert listed(admin, user=ada.user_id) == listed(admin, application=ada.application_id) == {ada.pk}
    assert listed(admin, user=ada.user_id, application=bob.application_id) == set()
    page = admin.get(TOKENS, {"user": ada.user_id}).text
    assert f'<a href="{TOKENS}?user={ada.user_id}"><bdi>ada</bdi></a>' in page
    assert "bob (1)" in page
    assert listed(admin, q="bob") == {bob.pk}


@pytest.mark.parametrize("value", ["0", "99999999999999999999", "x", "", "\x00", "-1", "1.5", "１"])
def test_whoever_is_not_there_has_no_access(admin: Client, value: str) -> None:
    Flow().tokens()
    for name in ("user", "application"):
        found = listed(admin, **{name: value})
        assert value == "１" or found == set()


def test_what_has_ended_is_listed_apart(admin: Client) -> None:
    Flow().tokens()
    assert listed(admin, state="ended") == set()
    token = AccessToken.objects.get()
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=31))
    assert listed(admin) == set()
    assert listed(admin, state="ended") == {token.pk}


def test_the_filters_name_those_with_the_most_and_the_one_that_is_chosen(admin: Client) -> None:
    users = [make_user(f"user{number}") for number in range(oauth_admin.SHOWN + 3)]
    client = Application.objects.create(name="Robot", client_type="public", authorization_grant_type="x")
    for number, user in enumerate(users):
        for _ in range(2 if number > 2 else 1):
            make_token(user, client)
    page = admin.get(TOKENS, {"user": users[0].pk}).text
    navigation = page[page.index('id="changelist-filter"') :]
    assert "user5 (2)" in navigation
    assert ">user0<" in navigation.replace("\n", "").replace(" ", "")
    assert "user1 (1)" not in navigation


def make_many(count: int) -> None:
    user, client = (
        make_user(f"of{count}"),
        Application.objects.create(
            name="Robot", client_type="public", authorization_grant_type="x", client_id=f"robot{count}"
        ),
    )
    link = LinkedIdentity.objects.create(issuer=ISSUERS[0], subject=f"U{count}", user=user)
    for number in range(count):
        make_token(user, client, **({FactName.LINKED_IDENTITY: link.pk} if number % 2 else {}))


def test_a_page_takes_as_many_queries_whatever_the_number_of_grants(admin: Client) -> None:
    def queries(**query: Any) -> int:
        with CaptureQueriesContext(connection) as context:
            assert len(admin.get(TOKENS, query).context["cl"].result_list) == 50
        return len(context)

    searches: list[dict[str, Any]] = [{}, {"q": "Robot"}, {"kind": "person"}, {"p": 1}]
    make_many(50)
    make_many(100)
    before = [queries(**query) for query in searches]
    make_many(500)
    assert [queries(**query) for query in searches] == before
    assert max(before) <= 20
