"""Which access is live, and its end."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from oauth2_provider.models import AccessToken, Grant, RefreshToken

from mcp_django.oauth.stored_tokens import create_token, drop_codes, end_access, live
from tests.factories import make_user
from tests.oauth_flow import RESOURCE, Flow

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
MONTH = timedelta(days=30)


def rows() -> list[Any]:
    return list(AccessToken.objects.select_related("refresh_token"))


def is_live() -> bool:
    return AccessToken.objects.filter(live()).exists()


def test_access_is_live_until_it_can_be_renewed_no_more(settings: Any) -> None:
    Flow().tokens()
    assert is_live()
    AccessToken.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert is_live()
    AccessToken.objects.update(expires=timezone.now() - MONTH)
    assert not is_live()
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "REFRESH_TOKEN_EXPIRE_SECONDS": None}
    assert is_live()
    RefreshToken.objects.update(revoked=timezone.now())
    assert not is_live()


def test_a_token_without_a_refresh_token_is_live_until_it_expires() -> None:
    create_token(make_user("ada"), scopes=["mcp:read"], resources=[RESOURCE])
    assert is_live()
    AccessToken.objects.update(expires=timezone.now())
    assert not is_live()


def test_all_that_came_of_a_grant_ends_and_nothing_else() -> None:
    ada, bob = Flow(), Flow(username="bob")
    first, others = ada.tokens(), bob.tokens()
    # A second process of the client, within the grace: a sibling in the same family.
    second, third = (ada.refresh(first["refresh_token"]).json() for _ in range(2))
    end_access([row for row in rows() if row.user == ada.user][:1])
    assert [row.user for row in rows()] == [bob.user]
    for tokens in (first, second, third):
        assert ada.refresh(tokens["refresh_token"]).status_code == 400
    assert bob.refresh(others["refresh_token"]).status_code == 200


def test_what_a_client_gets_while_its_access_ends_is_worth_nothing() -> None:
    flow = Flow()
    tokens = flow.tokens()
    known = rows()
    renewed = flow.refresh(tokens["refresh_token"]).json()
    end_access(known)
    assert not rows()
    assert flow.refresh(renewed["refresh_token"]).status_code == 400


def test_the_queries_do_not_grow_with_the_tokens(django_assert_max_num_queries: Any) -> None:
    user = make_user("ada")
    for _ in range(30):
        create_token(user, scopes=["mcp:read"], resources=[RESOURCE])
    known = rows()
    with django_assert_max_num_queries(8):
        end_access(known)
    assert not rows()
    end_access([])


def test_codes_of_one_user_one_application_or_all_are_dropped() -> None:
    flow, other = Flow(), Flow(username="bob")
    code, kept = flow.code(), other.code()
    drop_codes(user=flow.user)
    assert flow.exchange(code).status_code == 400
    assert other.exchange(kept).status_code == 200
    other.code()
    drop_codes()
    assert not Grant.objects.exists()
