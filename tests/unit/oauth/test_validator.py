from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken
from oauthlib.common import Request

from mcp_django.exceptions import AuthenticationFailed
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.validator import MCPValidator
from mcp_django.signals import client_connected
from tests.oauth_flow import RESOURCE, Flow

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def flow() -> Flow:
    return Flow()


def accepted(token: str) -> bool:
    try:
        verify(token, RESOURCE)
    except AuthenticationFailed:
        return False
    return True


def refused(response: Any, error: str = "invalid_grant") -> bool:
    return bool(response.status_code == 400 and response.json()["error"] == error)


# Codes


def test_J176_a_code_that_comes_twice_revokes_the_tokens_made_from_it(flow: Flow) -> None:
    code = flow.code()
    first = flow.exchange(code).json()
    assert accepted(first["access_token"])
    assert refused(flow.exchange(code))
    assert not accepted(first["access_token"])
    assert refused(flow.refresh(first["refresh_token"]))


def test_J176_a_replay_revokes_what_was_refreshed_since_and_nothing_else(flow: Flow) -> None:
    code = flow.code()
    second = flow.refresh(flow.exchange(code).json()["refresh_token"]).json()
    other = flow.tokens()
    assert refused(flow.exchange(code))
    assert not accepted(second["access_token"])
    assert accepted(other["access_token"])


@pytest.mark.parametrize("step", ["validate_code", "get_code_challenge", "confirm_redirect_uri"])
def test_J176_the_loser_of_a_race_for_one_code_leaves_the_winner_its_tokens(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    code, original, winner = flow.code(), getattr(MCPValidator, step), []

    def overtake(self: MCPValidator, *args: Any, **kwargs: Any) -> Any:
        if not winner:
            winner.append(None)
            winner[0] = flow.exchange(code).json()
        return original(self, *args, **kwargs)

    monkeypatch.setattr(MCPValidator, step, overtake)
    assert refused(flow.exchange(code))
    assert accepted(winner[0]["access_token"])
    assert AccessToken.objects.count() == 1
    # Whoever comes later with the same code has read it somewhere.
    assert refused(flow.exchange(code))
    assert not accepted(winner[0]["access_token"])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "x" * 43}, "invalid_grant"),
        ({"code_verifier": "x"}, "invalid_grant"),
        ({"code_verifier": "x" * 129}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_request"),
        ({"redirect_uri": "http://127.0.0.1:1/callback"}, "invalid_request"),
        ({"resource": "https://evil.example/"}, "invalid_target"),
        ({"resource": RESOURCE + "/admin"}, "invalid_target"),
        ({"resource": ""}, "invalid_target"),
    ],
)
def test_J173_J176_a_code_is_bound_to_verifier_redirect_and_resource(
    flow: Flow, changes: dict[str, str], error: str
) -> None:
    response = flow.exchange(flow.code(), **changes)
    assert response.status_code == 400
    assert response.json()["error"] == error
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize("verifier", ["short", "x" * 42, "x" * 129, "é" * 43])
def test_J173_a_verifier_that_is_easily_guessed_is_refused_though_it_fits(flow: Flow, verifier: str) -> None:
    flow.verifier = verifier
    assert refused(flow.exchange(flow.code()))


def test_J176_a_code_is_bound_to_its_client(flow: Flow) -> None:
    code = flow.code()
    assert refused(flow.exchange(code, client_id=Flow(username="bob").client_id))
    assert flow.exchange(code).status_code == 200


def test_J176_a_code_ends_after_a_minute_and_the_difference_of_two_clocks(flow: Flow) -> None:
    code = flow.code()
    assert timedelta(seconds=145) < Grant.objects.get().expires - timezone.now() <= timedelta(seconds=150)
    Grant.objects.update(expires=timezone.now())
    assert refused(flow.exchange(code))


def test_a_user_who_was_deactivated_gets_no_token_for_a_code(flow: Flow) -> None:
    code = flow.code()
    get_user_model().objects.update(is_active=False)
    assert refused(flow.exchange(code))
    assert not AccessToken.objects.exists()


# Refresh tokens


def test_J177_a_refresh_token_used_long_after_its_successor_revokes_the_family(flow: Flow) -> None:
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).json()
    RefreshToken.objects.filter(revoked__isnull=False).update(revoked=timezone.now() - timedelta(seconds=31))
    assert refused(flow.refresh(first["refresh_token"]))
    assert not accepted(second["access_token"])
    assert refused(flow.refresh(second["refresh_token"]))


def test_J177_within_the_grace_a_lost_answer_can_be_asked_for_again(flow: Flow) -> None:
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).json()
    sibling = flow.refresh(first["refresh_token"]).json()
    assert accepted(second["access_token"])
    assert accepted(sibling["access_token"])
    assert sibling["refresh_token"] != second["refresh_token"]
    assert RefreshToken.objects.values("token_family").distinct().count() == 1
    assert flow.refresh(second["refresh_token"]).status_code == 200
    assert flow.refresh(sibling["refresh_token"]).status_code == 200


def test_J177_replay_after_the_grace_kills_the_siblings_too(flow: Flow) -> None:
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).json()
    sibling = flow.refresh(first["refresh_token"]).json()
    RefreshToken.objects.filter(revoked__isnull=False).update(revoked=timezone.now() - timedelta(minutes=5))
    assert refused(flow.refresh(first["refresh_token"]))
    assert not accepted(second["access_token"])
    assert not accepted(sibling["access_token"])


def test_J177_a_token_older_than_the_last_one_has_no_grace(flow: Flow) -> None:
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"]).json()
    third = flow.refresh(second["refresh_token"]).json()
    assert refused(flow.refresh(first["refresh_token"]))
    assert not accepted(third["access_token"])


def test_J177_twenty_refreshes_of_one_token_stay_in_one_family_and_never_widen(flow: Flow) -> None:
    first = flow.tokens(scope="mcp:read")
    answers = [flow.refresh(first["refresh_token"]).json() for _ in range(20)]
    assert all(accepted(answer["access_token"]) for answer in answers)
    assert {answer["scope"] for answer in answers} == {"mcp:read"}
    assert RefreshToken.objects.values("token_family").distinct().count() == 1
    assert (
        flow.application.post(
            "/oauth/revoke_token/", {"token": first["refresh_token"], "client_id": flow.client_id}
        ).status_code
        == 200
    )


def test_J177_a_token_that_was_revoked_on_purpose_has_no_grace(flow: Flow) -> None:
    first = flow.tokens()
    flow.application.post("/oauth/revoke_token/", {"token": first["refresh_token"], "client_id": flow.client_id})
    assert refused(flow.refresh(first["refresh_token"]))


def test_a_token_revoked_between_check_and_use_gives_nothing(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    first = flow.tokens()
    original = MCPValidator.get_original_scopes

    def revoke(self: MCPValidator, token: str, request: Request, *args: Any) -> Any:
        scopes = original(self, token, request)
        RefreshToken.objects.get().revoke()
        return scopes

    monkeypatch.setattr(MCPValidator, "get_original_scopes", revoke)
    assert refused(flow.refresh(first["refresh_token"]))
    assert not AccessToken.objects.exists()


def test_a_refresh_that_lost_the_race_gets_a_sibling(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    first = flow.tokens()
    original = MCPValidator.get_original_scopes
    winner: list[Any] = []

    def overtake(self: MCPValidator, token: str, request: Request, *args: Any) -> Any:
        scopes = original(self, token, request)
        if not winner:
            winner.append(None)
            winner[0] = flow.refresh(first["refresh_token"]).json()
        return scopes

    monkeypatch.setattr(MCPValidator, "get_original_scopes", overtake)
    loser = flow.refresh(first["refresh_token"]).json()
    assert accepted(winner[0]["access_token"])
    assert accepted(loser["access_token"])
    assert loser["access_token"] != winner[0]["access_token"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scope": "mcp:read mcp:admin"}, "invalid_scope"),
        ({"resource": "https://evil.example/"}, "invalid_target"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"refresh_token": "nothing"}, "invalid_grant"),
    ],
)
def test_J177_a_refresh_never_widens(flow: Flow, changes: dict[str, str], error: str) -> None:
    tokens = flow.tokens()
    response = flow.refresh(**({"refresh_token": tokens["refresh_token"]} | changes))
    assert response.status_code in (400, 401)
    assert response.json()["error"] == error


def test_a_refresh_may_ask_for_what_its_scope_implies(flow: Flow) -> None:
    tokens = flow.tokens(scope="mcp:write")
    assert flow.refresh(tokens["refresh_token"], scope="mcp:read").json()["scope"] == "mcp:read"


def test_another_client_cannot_refresh_even_within_the_grace(flow: Flow) -> None:
    tokens = flow.tokens()
    other = Flow(username="bob")
    flow.refresh(tokens["refresh_token"])
    assert refused(other.refresh(tokens["refresh_token"]))


@pytest.mark.parametrize("spent", [False, True])
def test_a_user_who_was_deactivated_gets_no_refresh(flow: Flow, spent: bool) -> None:
    tokens = flow.tokens()
    if spent:
        flow.refresh(tokens["refresh_token"])
    get_user_model().objects.update(is_active=False)
    assert refused(flow.refresh(tokens["refresh_token"]))


def test_an_unused_refresh_token_ends(flow: Flow) -> None:
    tokens = flow.tokens()
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=31))
    assert refused(flow.refresh(tokens["refresh_token"]))


# Rules of the validator itself, whatever server class or view is in front of it


@pytest.mark.parametrize(
    "grant_type", ["password", "client_credentials", "urn:ietf:params:oauth:grant-type:device_code"]
)
@pytest.mark.parametrize("source", ["dcr", "manual"])
def test_J184_J185_no_client_may_use_another_grant(grant_type: str, source: str) -> None:
    client = Application(authorization_grant_type=grant_type.replace("_", "-"), registration_source=source)
    request = Request("/oauth/token/", "POST", "", {})
    request.client = client
    assert not MCPValidator().validate_grant_type("x", grant_type, client, request)


@pytest.mark.parametrize("response_type", ["token", "id_token", "id_token token", "code id_token", "code token"])
def test_J185_no_client_may_use_another_response_type(response_type: str) -> None:
    for grant_type in ("implicit", "openid-hybrid"):
        client = Application(authorization_grant_type=grant_type)
        assert not MCPValidator().validate_response_type("x", response_type, client, None)


def test_id_tokens_are_never_access_tokens() -> None:
    assert not MCPValidator().validate_id_token("x", [], Request("/"))
    assert not MCPValidator().validate_jwt_bearer_token("x", [], Request("/"))


def test_pkce_is_required_of_every_client(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {"PKCE_REQUIRED": False}
    assert MCPValidator().is_pkce_required("x", Request("/"))


def test_the_origin_follows_the_request_while_developing(flow: Flow, settings: Any) -> None:
    settings.DEBUG = True
    settings.MCP_DJANGO = {}
    code = flow.code(resource="http://testserver/mcp")
    assert flow.exchange(code, resource="http://testserver/mcp").status_code == 200
    assert AccessToken.objects.get().resource == [RESOURCE]


def test_a_client_names_the_endpoint_by_its_narrowed_address(flow: Flow) -> None:
    narrowed = f"{RESOURCE}?read_only=1&models=testapp.book"
    assert flow.exchange(flow.code(resource=narrowed), resource=narrowed).status_code == 200
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert flow.exchange(flow.code(resource=narrowed), resource=RESOURCE).status_code == 200
    answer = flow.exchange(flow.code(resource=narrowed), resource=f"{RESOURCE}#{narrowed}")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_target")


@pytest.fixture
def connected() -> Iterator[list[Any]]:
    found: list[Any] = []

    def receive(**told: Any) -> None:
        found.append((told["sender"], told["application"].client_id, told["user"].username, told["scopes"]))
        raise RuntimeError("a receiver that fails")

    client_connected.connect(receive)
    yield found
    client_connected.disconnect(receive)


def test_a_client_that_gets_access_for_the_first_time_is_told_once_for_each_user(
    connected: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    flow, other = Flow(), Flow(username="bob")
    with django_capture_on_commit_callbacks(execute=True):
        assert flow.answer(deny=True).status_code == 302
        code = flow.code(("mcp:read",))
        assert connected == []
        tokens = flow.exchange(code).json()
        assert "access_token" in tokens
    assert connected == [(Application, flow.client_id, "ada", ["mcp:read"])]
    with django_capture_on_commit_callbacks(execute=True):
        flow.refresh(tokens["refresh_token"])
        flow.tokens()
        other.tokens()
    assert [who for _, _, who, _ in connected] == ["ada", "bob"]


def test_an_exchange_that_fails_tells_nothing(connected: list[Any], django_capture_on_commit_callbacks: Any) -> None:
    flow = Flow()
    with django_capture_on_commit_callbacks(execute=True):
        assert flow.exchange(flow.code(), resource="https://elsewhere.example/mcp").status_code == 400
    assert connected == []
