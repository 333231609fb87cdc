from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, RefreshToken

from tests.oauth_flow import Flow

pytestmark = pytest.mark.django_db


def age(days: int) -> None:
    Application.objects.update(created=timezone.now() - timedelta(days=days))


def test_J184_an_old_client_without_tokens_is_deleted() -> None:
    Flow()
    age(8)
    call_command("clear_mcp_clients")
    assert not Application.objects.exists()


def test_a_young_client_is_spared(capsys: pytest.CaptureFixture[str]) -> None:
    Flow()
    age(6)
    call_command("clear_mcp_clients")
    assert Application.objects.exists()
    call_command("clear_mcp_clients", "--days", "5")
    assert not Application.objects.exists()
    assert capsys.readouterr().out == "0 unused clients deleted.\n1 unused clients deleted.\n"


def test_a_client_in_use_is_spared_until_its_refresh_token_ends() -> None:
    flow = Flow()
    flow.tokens()
    age(100)
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=29))
    call_command("clear_mcp_clients")
    assert Application.objects.exists()
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=31))
    call_command("clear_mcp_clients")
    assert not Application.objects.exists()


def test_a_client_whose_tokens_were_revoked_is_unused() -> None:
    flow = Flow()
    flow.tokens()
    age(8)
    RefreshToken.objects.get().revoke()
    call_command("clear_mcp_clients")
    assert not Application.objects.exists()


def test_a_client_that_waits_for_its_code_is_spared() -> None:
    Flow().code()
    age(8)
    call_command("clear_mcp_clients")
    assert Application.objects.exists()


def test_clients_of_the_administrators_are_spared() -> None:
    Flow()
    Application.objects.update(registration_source="manual")
    age(1000)
    call_command("clear_mcp_clients")
    assert Application.objects.exists()


def test_a_dry_run_deletes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Flow()
    age(8)
    call_command("clear_mcp_clients", "--dry-run")
    assert capsys.readouterr().out == "1 unused clients.\n"
    assert Application.objects.exists()


def test_a_negative_age_is_a_mistake() -> None:
    with pytest.raises(CommandError):
        call_command("clear_mcp_clients", "--days", "-1")
