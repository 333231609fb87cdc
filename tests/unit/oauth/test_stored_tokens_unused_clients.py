from datetime import timedelta

import pytest
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken

from mcp_django.oauth.stored_tokens import unused_clients
from tests.oauth_flow import Flow

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def unused() -> set[str]:
    return set(unused_clients("dcr", "cimd").values_list("client_id", flat=True))


def test_a_client_without_a_token_is_unused() -> None:
    flow = Flow()
    assert unused() == {flow.client_id}
    Application.objects.update(registration_source="cimd")
    assert unused() == {flow.client_id}
    assert not unused_clients("dcr").exists()
    Application.objects.update(registration_source="manual")
    assert unused() == set()


def test_a_code_and_a_token_that_live_are_uses() -> None:
    flow = Flow()
    flow.code()
    assert unused() == set()
    Grant.objects.update(expires=timezone.now())
    assert unused() == {flow.client_id}
    flow.tokens()
    assert unused() == set()
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=1))
    assert unused() == set()
    RefreshToken.objects.update(revoked=timezone.now())
    assert unused() == {flow.client_id}
