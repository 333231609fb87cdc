"""What people are shown of tokens."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, RefreshToken

from mcp_django.oauth.tokenlist import client_name, describe
from mcp_django.oauth.tokens import create_token
from tests.factories import make_user
from tests.oauth_flow import RESOURCE, Flow

pytestmark = pytest.mark.django_db


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
    with django_assert_num_queries(0):
        describe(rows)
