"""The lists of applications and tokens in the admin."""

from typing import Any

import pytest
from django.test import Client
from oauth2_provider.models import AccessToken, Application

from mcp_django.oauth.usage import note_use
from tests.factories import make_superuser
from tests.oauth_flow import RESOURCE, Flow

pytestmark = pytest.mark.django_db
TOKENS = "/admin/oauth2_provider/accesstoken/"
APPLICATIONS = "/admin/oauth2_provider/application/"


@pytest.fixture
def admin() -> Client:
    browser = Client()
    browser.force_login(make_superuser("root"))
    return browser


def test_tokens_are_listed_with_scope_endpoint_client_and_last_use(admin: Client) -> None:
    Flow().tokens()
    token = AccessToken.objects.get()
    text = admin.get(TOKENS).text
    for part in ("ada", "Robot", "mcp:read mcp:write", RESOURCE):
        assert part in text
    assert 'field-last_use">-<' in text
    note_use(type("Auth", (), {"checksum": token.token_checksum}))
    assert 'field-last_use">-<' not in admin.get(TOKENS).text


def test_no_secret_of_a_token_is_shown_or_can_be_written(admin: Client) -> None:
    raw = Flow().tokens()["access_token"]
    token = AccessToken.objects.get()
    for path in (TOKENS, f"{TOKENS}{token.pk}/change/"):
        text = admin.get(path).text
        assert raw not in text
        assert token.token_checksum not in text
    sent = {"scope": "mcp:admin", "resource": "[]", "token": "x", "token_checksum": "x"}
    admin.post(f"{TOKENS}{token.pk}/change/", sent)
    again = AccessToken.objects.get()
    assert (again.scope, again.token_checksum) == (token.scope, token.token_checksum)


def test_tokens_stored_as_they_are_are_not_shown_either(admin: Client) -> None:
    Flow().tokens()
    AccessToken.objects.update(token="a-very-secret-token-of-some-length")
    token = AccessToken.objects.get()
    for path in (TOKENS, f"{TOKENS}{token.pk}/change/", f"{TOKENS}?q=a-very-secret-token-of-some-length"):
        assert "of-some-length" not in admin.get(path).text.replace("q=a-very-secret-token-of-some-length", "").replace(
            'value="a-very-secret-token-of-some-length"', ""
        )


def test_a_token_is_revoked_from_the_list(admin: Client) -> None:
    flow = Flow()
    tokens = flow.tokens()
    chosen = {"action": "revoke_tokens", "_selected_action": AccessToken.objects.get().pk}
    assert admin.post(TOKENS, chosen).status_code == 302
    assert flow.refresh(tokens["refresh_token"]).status_code == 400


def test_applications_are_listed_with_host_and_people(admin: Client) -> None:
    Flow(registered=("https://chat.assistant.co.uk/cb",))
    Flow(username="bob").tokens()
    text = admin.get(APPLICATIONS).text
    assert "chat.<strong>assistant.co.uk</strong>" in text
    assert '<td class="field-people">1</td>' in text
    assert '<td class="field-people">0</td>' in text


def test_the_lists_take_no_query_more_for_a_row_more(admin: Client, django_assert_num_queries: Any) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def queries(path: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as context:
            admin.get(path)
        return len(context)

    Flow(username="first").tokens()
    before = [queries(path) for path in (TOKENS, APPLICATIONS)]
    for number in range(4):
        Flow(username=f"user{number}").tokens()
    assert [queries(path) for path in (TOKENS, APPLICATIONS)] == before


def test_an_application_has_no_view_on_site_that_fails(admin: Client) -> None:
    Flow()
    page = admin.get(f"{APPLICATIONS}{Application.objects.get().pk}/change/")
    assert page.status_code == 200
    assert "View on site" not in page.text
