"""What is kept with a token, and for how long."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.utils import timezone
from oauth2_provider.models import AccessToken, RefreshToken

from mcp_django.models import TokenFacts
from mcp_django.oauth import stored_tokens as oauth_tokens
from mcp_django.oauth import token_query
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.stored_tokens import create_token
from tests.oauth_flow import RESOURCE, Flow

pytestmark = pytest.mark.django_db


def grow_old() -> None:
    TokenFacts.objects.update(created=timezone.now() - timedelta(days=2))


def test_a_grant_keeps_one_row_however_often_it_is_refreshed() -> None:
    flow = Flow()
    tokens = flow.tokens()
    for _ in range(3):
        assert TokenFacts.objects.get().token == oauth_tokens.checksum_of(tokens["access_token"])
        tokens = flow.refresh(tokens["refresh_token"]).json()


def test_rows_are_deleted_when_nothing_can_need_them_any_more() -> None:
    flow = Flow()
    tokens, ended, _unused = flow.tokens(), flow.tokens(), flow.code()
    RefreshToken.objects.filter(token_checksum=oauth_tokens.checksum_of(ended["refresh_token"])).get().revoke()
    _, made = create_token(flow.user, scopes=[], resources=[RESOURCE])
    assert TokenFacts.objects.count() == 4
    call_command("clear_mcp_clients", stdout=StringIO())
    assert TokenFacts.objects.count() == 4
    grow_old()
    call_command("clear_mcp_clients", "--dry-run", stdout=StringIO())
    assert TokenFacts.objects.count() == 4
    call_command("clear_mcp_clients", stdout=StringIO())
    kept = {oauth_tokens.checksum_of(tokens["access_token"]), oauth_tokens.checksum_of(made)}
    assert set(TokenFacts.objects.values_list("token", flat=True)) == kept


def test_a_token_that_waits_for_its_refresh_keeps_what_is_handed_on() -> None:
    flow = Flow()
    tokens = flow.tokens()
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=3))
    grow_old()
    oauth_tokens.clear_token_facts()
    assert oauth_tokens.facts_of(oauth_tokens.checksum_of(tokens["access_token"]))


def test_what_is_kept_in_another_database_is_asked_for_by_itself(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    user = get_user_model().objects.create_user("ada")
    _, raw = create_token(user, scopes=["mcp:read"], resources=[RESOURCE], facts={"badge": 1})
    for module in (oauth_tokens, token_query):
        monkeypatch.setattr(module, "beside_tokens", lambda: False)
    token_query._forget()
    verify(raw, RESOURCE)
    with django_assert_num_queries(2):
        assert verify(raw, RESOURCE)[1].facts["badge"] == 1
    assert oauth_tokens.clear_token_facts() == 0
    token_query._forget()


def test_facts_that_are_no_facts_are_no_authority() -> None:
    from mcp_django.exceptions import AuthenticationFailed

    _, raw = create_token(get_user_model().objects.create_user("ada"), scopes=["mcp:read"], resources=[RESOURCE])
    TokenFacts.objects.update(facts=[])
    with pytest.raises(AuthenticationFailed):
        verify(raw, RESOURCE)
