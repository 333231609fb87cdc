import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application

from mcp_django.exceptions import AuthenticationFailed
from mcp_django.oauth.bearer import verify
from tests.oauth_flow import ORIGIN, RESOURCE

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def user() -> Any:
    return get_user_model().objects.create_user("ada")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    call_command("mcp_token", "ada", *args)
    return capsys.readouterr().out.removesuffix("\n")


def test_only_the_token_is_on_standard_output_and_it_works(capsys: pytest.CaptureFixture[str], user: Any) -> None:
    call_command("mcp_token", "ada")
    captured = capsys.readouterr()
    raw = captured.out.strip()
    assert captured.out == raw + "\n"
    assert " " not in raw
    assert RESOURCE in captured.err
    assert raw not in captured.err
    found, token = verify(raw, RESOURCE)
    assert found == user
    assert token.scopes == {"mcp:read", "mcp:write"}
    assert token.client_id == "mcp_token"
    assert timedelta(days=29, hours=23) < token.expires - timezone.now() <= timedelta(days=30)


def test_scopes_days_and_resource(capsys: pytest.CaptureFixture[str]) -> None:
    raw = run(capsys, "--scope", "mcp:read", "--days", "1", "--resource", "/mcp/")
    _, token = verify(raw, RESOURCE)
    assert token.scopes == {"mcp:read"}
    assert token.expires < timezone.now() + timedelta(days=1)
    assert AccessToken.objects.get().resource == [RESOURCE]


def test_the_token_is_stored_hashed(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    assert AccessToken.objects.get().token == ""


def test_all_endpoints_unless_one_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", lambda: {"/mcp": None, "/staff/mcp": None})
    both = run(capsys)
    assert verify(both, RESOURCE)
    assert verify(both, ORIGIN + "/staff/mcp")
    one = run(capsys, "--resource", ORIGIN + "/staff/mcp")
    with pytest.raises(AuthenticationFailed):
        verify(one, RESOURCE)


def test_one_client_for_all_tokens_which_no_flow_serves(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    run(capsys)
    client = Application.objects.get()
    assert AccessToken.objects.filter(application=client).count() == 2
    for grant_type in ("client_credentials", "authorization_code"):
        answer = Client().post(
            "/oauth/token/", {"grant_type": grant_type, "client_id": "mcp_token", "code": "x", "client_secret": ""}
        )
        assert answer.status_code in (400, 401)
    assert Client().get("/oauth/authorize/", {"client_id": "mcp_token", "response_type": "code"}).status_code == 302


def test_the_admin_lists_and_revokes_it(capsys: pytest.CaptureFixture[str], admin_client: Client) -> None:
    raw = run(capsys)
    row = AccessToken.objects.get()
    listed = admin_client.get("/admin/oauth2_provider/accesstoken/")
    assert "mcp_token" in listed.content.decode()
    assert raw not in listed.content.decode()
    chosen = {"action": "revoke_tokens", "_selected_action": [row.pk]}
    asked = admin_client.post("/admin/oauth2_provider/accesstoken/", chosen)
    assert "mcp_token" in asked.content.decode()
    assert verify(raw, RESOURCE)
    admin_client.post("/admin/oauth2_provider/accesstoken/", chosen | {"post": "yes"})
    with pytest.raises(AuthenticationFailed):
        verify(raw, RESOURCE)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nobody"], "no user"),
        (["ada", "--days", "0"], "--days"),
        (["ada", "--scope", "everything"], "No such scope"),
        (["ada", "--resource", "https://evil.example/mcp"], "No such endpoint"),
        (["ada", "--resource", "/other"], "No such endpoint"),
    ],
)
def test_mistakes_are_told(args: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("mcp_token", *args)
    assert not AccessToken.objects.exists()


def test_an_inactive_user_gets_none(user: Any) -> None:
    user.is_active = False
    user.save()
    with pytest.raises(CommandError, match="not active"):
        call_command("mcp_token", "ada")


def test_the_base_url_is_needed(settings: Any) -> None:
    settings.MCP_DJANGO = {}
    with pytest.raises(CommandError, match="BASE_URL"):
        call_command("mcp_token", "ada")


def listed(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    call_command("mcp_token", *args, "--list")
    return capsys.readouterr().out.splitlines()


def test_tokens_are_listed_by_name_and_one_is_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    get_user_model().objects.create_user("bob")
    nightly = run(capsys, "--name", "nightly report", "--scope", "mcp:read", "--days", "2")
    other = run(capsys)
    call_command("mcp_token", "bob")
    theirs = capsys.readouterr().out.strip()
    lines = listed(capsys)
    assert len(lines) == 3
    assert len(listed(capsys, "ada")) == 2
    (line,) = (line for line in lines if "nightly report" in line)
    assert line.split()[1:4] == ["ada", "mcp:read", RESOURCE]
    assert not any(raw in "".join(lines) for raw in (nightly, other, theirs))
    (known,) = (item for item in json.loads("".join(listed(capsys, "--json"))) if item["name"] == "nightly report")
    assert (known["id"], known["scopes"], known["resources"]) == (int(line.split()[0]), ["mcp:read"], [RESOURCE])
    call_command("mcp_token", "--revoke", line.split()[0])
    with pytest.raises(AuthenticationFailed):
        verify(nightly, RESOURCE)
    assert verify(other, RESOURCE)
    assert len(listed(capsys)) == 2


def test_that_there_are_no_tokens_is_said_apart_from_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("mcp_token", "--list")
    assert capsys.readouterr() == ("", "This command has not made any tokens.\n")


def test_expired_tokens_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    AccessToken.objects.update(expires=timezone.now())
    assert "expired" in listed(capsys)[0]


@pytest.mark.parametrize(("args", "reason"), [((), "Name the user"), (("--revoke", "99"), "no token 99")])
def test_what_is_missing_is_said(args: tuple[str, ...], reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("mcp_token", *args)


def test_a_token_of_a_client_is_not_the_commands_to_revoke(user: Any) -> None:
    application = Application.objects.create(
        client_id="app", client_type="public", authorization_grant_type="authorization-code"
    )
    token = AccessToken.objects.create(user=user, application=application, expires=timezone.now(), token="x")
    with pytest.raises(CommandError, match="no token"):
        call_command("mcp_token", "--revoke", str(token.pk))
