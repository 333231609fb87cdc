"""How far a token reaches that a program asks for, and how long it lasts."""

from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory, override_settings
from django.utils import timezone
from oauth2_provider.models import AccessToken
from oauthlib.oauth2 import OAuth2Error

from mcp_django.oauth.stored_tokens import issue
from mcp_django.oauth.validator import check_resources, check_scopes
from tests.factories import make_user
from tests.oauth_flow import RESOURCE


def asking(**fields: Any) -> HttpRequest:
    return RequestFactory().post("/oauth/token/", fields)


@pytest.mark.parametrize(
    ("scope", "granted", "found"),
    [
        ("", ["mcp:write"], {"mcp:write"}),
        ("mcp:read", ["mcp:write"], {"mcp:read"}),
        ("mcp:read mcp:write", ["mcp:write"], {"mcp:read", "mcp:write"}),
        ("mcp:read mcp:admin", ["mcp:write"], {"mcp:read"}),
        ("mcp:read openid", ["mcp:read", "openid"], {"mcp:read"}),
    ],
)
def test_a_program_gets_what_it_asks_for_and_may_have(scope: str, granted: list[str], found: set[str]) -> None:
    assert check_scopes(asking(scope=scope), granted) == found


@pytest.mark.parametrize(
    ("scope", "granted"), [("mcp:write", ["mcp:read"]), ("x", ["x"]), ("", []), ("mcp:read,mcp:write", ["mcp:write"])]
)
def test_nothing_is_no_scope(scope: str, granted: list[str]) -> None:
    with pytest.raises(OAuth2Error) as failure:
        check_scopes(asking(scope=scope), granted)
    assert failure.value.error == "invalid_scope"


def test_a_token_is_for_the_endpoint_that_is_named_or_the_only_one() -> None:
    assert check_resources([f"{RESOURCE}/"], asking()) == [RESOURCE]
    with pytest.raises(OAuth2Error) as failure:
        check_resources(["https://other.example/mcp"], asking())
    assert failure.value.error == "invalid_target"


@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_token_lasts_as_long_as_others_or_until_its_reason_ends(use_tz: bool) -> None:
    with override_settings(USE_TZ=use_tz):
        user = make_user("ada")
        assert issue(user, None, ["mcp:read"], [RESOURCE], {})["expires_in"] == 3600
        until = timezone.now() + timedelta(seconds=100)
        assert issue(user, None, ["mcp:read"], [RESOURCE], {}, until=until)["expires_in"] in (99, 100)
        assert [token.token for token in AccessToken.objects.all()] == ["", ""]
