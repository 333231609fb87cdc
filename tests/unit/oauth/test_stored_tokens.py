import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import override_settings
from oauth2_provider.models import AccessToken, Application

from mcp_django.oauth.bearer import verify
from mcp_django.oauth.stored_tokens import create_token, is_hashed_here, issue_token
from tests.oauth_flow import RESOURCE

pytestmark = pytest.mark.django_db


def test_a_token_acts_for_its_user_at_its_endpoint() -> None:
    user = get_user_model().objects.create_user("ada")
    found, token = verify(issue_token(user, scopes=["mcp:write"], resource=RESOURCE), RESOURCE)
    assert found == user
    assert token.scopes == {"mcp:read", "mcp:write"}


def test_tokens_share_one_client_and_are_stored_hashed() -> None:
    user = get_user_model().objects.create_user("ada")
    row, raw = create_token(user, scopes=["own", "mcp:read"], resources=[RESOURCE, "http://testserver/other"])
    create_token(user, scopes=[], resources=[RESOURCE])
    row.refresh_from_db()
    assert (row.token, row.scope) == ("", "mcp:read own")
    assert raw not in str(list(AccessToken.objects.values()))
    assert Application.objects.get().client_id == "mcp_token"


@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.PBKDF2PasswordHasher"])
def test_the_secret_that_nobody_knows_is_hashed_by_no_slow_hasher(monkeypatch: pytest.MonkeyPatch) -> None:
    user, hashed = get_user_model().objects.create_user("ada"), []
    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", lambda *_: hashed.append("slowly"))
    create_token(user, scopes=["mcp:read"], resources=[RESOURCE])
    assert not hashed
    assert is_hashed_here(Application.objects.get().client_secret)
