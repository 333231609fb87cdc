"""What people are shown of tokens."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.html import escape
from oauth2_provider.models import AccessToken, Application, RefreshToken

from mcp_django.oauth.client_and_token_display import add_last_changes, client_name, describe
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_user
from tests.oauth_flow import REGISTERED_URI, RESOURCE, Flow
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def described() -> Any:
    (token,) = AccessToken.objects.all()
    describe([token])
    return token


def test_a_grant_lasts_as_long_as_its_refresh_token(settings: Any) -> None:
    Flow().tokens()
    token = described()
    assert token.until == token.expires + timedelta(days=30)
    assert token.words == [
        "See the data that you can see",
        "Make changes and run admin actions that you are allowed to",
    ]
    assert [str(target) for target in token.targets] == ["127.0.0.1"]
    RefreshToken.objects.update(revoked=timezone.now())
    assert described().until == token.expires
    RefreshToken.objects.update(revoked=None)
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "REFRESH_TOKEN_EXPIRE_SECONDS": None}
    assert described().until is None


def test_getting_the_next_token_is_a_use() -> None:
    flow = Flow()
    tokens = flow.tokens()
    assert described().used is None
    flow.refresh(tokens["refresh_token"])
    token = described()
    assert token.used == token.created


def test_a_token_of_the_command_ends_when_it_expires() -> None:
    create_token(make_user("ada"), scopes=["mcp:read", "shop:own"], resources=[RESOURCE])
    token = described()
    assert (token.until, token.client_name, token.words[1]) == (token.expires, "mcp_token", "shop:own")


def test_a_client_without_a_name_is_called_by_its_id() -> None:
    assert client_name(Application(name="", client_id="abc")) == "abc"
    assert client_name(None) == ""


def test_many_tokens_take_no_query_more(django_assert_num_queries: Any) -> None:
    for number in range(3):
        Flow(username=f"user{number}").tokens()
    rows = list(AccessToken.objects.select_related("application", "refresh_token"))
    with django_assert_num_queries(1):
        describe(rows)


def test_the_host_of_a_client_s_document_is_told() -> None:
    flow = Flow()
    flow.tokens()
    assert described().described is None
    Application.objects.update(client_id="https://client.example/c", registration_source="cimd")
    assert str(described().described) == "client.example"
    assert "Described by" in flow.browser.get("/oauth/authorized_tokens/").text


PAGE = "/oauth/authorized_tokens/"


def acting(flow: Flow, name: str = "tests") -> MCPClient:
    """The endpoint as an application sees it that the user of the flow let in."""
    User.objects.filter(pk=flow.user.pk).update(is_staff=True, is_superuser=True)
    client = MCPClient(name=name)
    client.headers["Authorization"] = f"Bearer {flow.tokens()['access_token']}"
    return client


def test_the_page_tells_what_an_application_did_last_and_from_where() -> None:
    flow = Flow()
    page = flow.browser.get(PAGE).text
    client = acting(flow)
    client.call("create_record", model="testapp.author", values={"name": "First \u202e<b>author"})
    page = flow.browser.get(PAGE).text
    assert "127.0.0.…" in page
    assert "First \ufffd&lt;b&gt;author" in page
    row = Author.objects.get()
    client.call("update_record", model="testapp.author", pk=row.pk, values={"name": "Second author"})
    assert "<bdi>Second author</bdi>" in flow.browser.get(PAGE).text


def test_what_people_and_others_did_is_not_told_as_the_application_s() -> None:
    flow = Flow()
    acting(flow)
    LogEntry.objects.log_actions(flow.user.pk, [make_author("By hand")], 1, change_message="[]")
    assert "By hand" not in flow.browser.get(PAGE).text


def test_no_application_can_have_its_changes_told_as_another_s() -> None:
    flow = Flow()
    flow.tokens()
    other = Flow()
    other.client_id = Application.objects.create(
        name="Other",
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris=REGISTERED_URI,
    ).client_id
    for name in (f"Robot ({flow.client_id}), create_record", f'", "object": "{flow.client_id}', flow.client_id):
        acting(other, name[:80]).call("create_record", model="testapp.author", values={"name": "Disguised"})
    tokens = list(AccessToken.objects.select_related("application"))
    add_last_changes(tokens, flow.user)
    told = {token.application.client_id: token.last_change and str(token.last_change) for token in tokens}
    assert told[flow.client_id] is None
    assert "Disguised" in told[other.client_id]


def test_the_last_changes_of_many_take_one_query(django_assert_num_queries: Any) -> None:
    flow = Flow()
    for _ in range(3):
        flow.tokens()
    rows = list(AccessToken.objects.select_related("application"))
    with django_assert_num_queries(1):
        add_last_changes(rows, flow.user)
    add_last_changes([], flow.user)


@pytest.mark.parametrize("name", ["\u202eevil", "a\nb", "<script>x</script>", "pаypal" * 40, "\u200b\u3164"])
def test_a_name_that_lies_is_shown_as_what_it_is(name: str) -> None:
    flow = Flow()
    flow.tokens()
    Application.objects.update(name=name)
    listed = flow.browser.get(PAGE).text
    removal = flow.browser.get(f"{PAGE}{AccessToken.objects.get().pk}/delete/").text
    for page in (listed, removal):
        assert not set("\u202e\u200b\u3164").intersection(page)
        assert name not in page
        assert f"<bdi>{escape(client_name(Application.objects.get()))}</bdi>" in page
        assert "127.0.0.1" in page or page is removal
