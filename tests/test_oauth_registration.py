import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from oauth2_provider.models import AccessToken, Application

from .oauth_flow import REGISTERED_URI, RESOURCE, Flow

pytestmark = pytest.mark.django_db

METADATA = {
    "client_name": "Robot",
    "redirect_uris": ["http://127.0.0.1/cb", "https://a.example/cb"],
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "software_id": "x",
}


def register(data: Any = METADATA, **extra: Any) -> Any:
    body = data if isinstance(data, bytes | str) else json.dumps(data)
    return Client(enforce_csrf_checks=True).post("/oauth/register/", body, content_type="application/json", **extra)


def test_J184_a_public_client_is_registered_for_codes_and_nothing_else() -> None:
    response = register()
    assert response.status_code == 201
    assert response["Cache-Control"] == "no-store"
    answer = response.json()
    client = Application.objects.get()
    assert answer.pop("client_id_issued_at") > 1_700_000_000
    assert answer == {
        "client_id": client.client_id,
        "client_name": "Robot",
        "redirect_uris": METADATA["redirect_uris"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    assert client.authorization_grant_type == "authorization-code"
    assert client.client_type == "public"
    assert client.registration_source == "dcr"
    assert not client.skip_authorization


def test_J184_no_registration_token_is_left_behind() -> None:
    register()
    assert not AccessToken.objects.exists()


def test_a_public_client_costs_no_password_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oauth2_provider.models.make_password", lambda *args, **kwargs: pytest.fail("hashed"))
    register()
    assert Application.objects.get().client_secret


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_confidential_client_gets_its_secret_once_and_it_is_stored_hashed(method: str) -> None:
    answer = register(METADATA | {"token_endpoint_auth_method": method, "redirect_uris": [REGISTERED_URI]}).json()
    client = Application.objects.get()
    assert client.client_type == "confidential"
    assert answer["token_endpoint_auth_method"] == method
    assert answer["client_secret_expires_at"] == 0
    assert answer["client_secret"] not in client.client_secret
    flow = Flow()
    flow.client_id = answer["client_id"]
    code = flow.code()
    assert flow.exchange(code).status_code == 401
    assert flow.exchange(code, client_secret=answer["client_secret"]).status_code == 200


@pytest.mark.parametrize("name", [None, 7, ["x"], {}, ""])
def test_a_name_that_is_no_text_is_no_name(name: Any) -> None:
    response = register(METADATA | {"client_name": name})
    assert response.status_code == 201
    assert "client_name" not in response.json()


def test_a_name_is_stored_without_control_characters() -> None:
    assert register(METADATA | {"client_name": "a\x00b\u202ec\ud800" + "x" * 500}).status_code == 201
    assert Application.objects.get().name.startswith("a\ufffdb\ufffdc\ufffd")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b"[" * 10_000, b'{"redirect_uris": 1e999}']
)
def test_what_is_no_metadata_is_a_bad_request(body: bytes) -> None:
    response = register(body)
    assert response.status_code == 400
    assert response.json()["error"] in ("invalid_client_metadata", "invalid_redirect_uri")
    assert not Application.objects.exists()


def test_J184_a_large_body_is_refused() -> None:
    response = register(METADATA | {"software_statement": "x" * 16_384})
    assert response.status_code == 400
    assert "16384" in response.json()["error_description"]


def test_another_method_is_refused() -> None:
    response = Client().get("/oauth/register/")
    assert response.status_code == 405
    assert "POST" in response["Allow"]


# Limits


def test_J184_registrations_are_limited_by_address_whatever_headers_say(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"REGISTRATION_RATE": "2/h"}
    for number in range(2):
        assert register(REMOTE_ADDR="192.0.2.1", HTTP_X_FORWARDED_FOR=f"198.51.100.{number}").status_code == 201
    refused = register(REMOTE_ADDR="192.0.2.1", HTTP_X_FORWARDED_FOR="198.51.100.9", HTTP_X_REAL_IP="198.51.100.9")
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 3600
    assert register(REMOTE_ADDR="192.0.2.2").status_code == 201
    assert Application.objects.count() == 3


def test_J184_registrations_are_limited_in_total(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"REGISTRATION_TOTAL_RATE": "2/h"}
    answers = [register(REMOTE_ADDR=f"192.0.2.{number}").status_code for number in range(4)]
    assert answers == [201, 201, 429, 429]


def test_L209_without_its_cache_registration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: Any) -> None:
        raise ConnectionError("cache")

    monkeypatch.setattr("mcp_django.oauth.registration.hit", down)
    response = register()
    assert response.status_code == 429
    assert response["Retry-After"] == "30"


# Modes


def test_registration_can_be_off(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"REGISTRATION": "off"}
    assert register().status_code == 404
    assert not Application.objects.exists()


def test_registration_can_ask_for_a_token(settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    flow = Flow()
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"REGISTRATION": "authenticated"}
    missing = register()
    assert missing.status_code == 401
    assert missing["WWW-Authenticate"] == 'Bearer realm="registration"'
    wrong = register(HTTP_AUTHORIZATION="Bearer nothing")
    assert wrong.status_code == 401
    assert 'error="invalid_token"' in wrong["WWW-Authenticate"]
    call_command("mcp_token", "ada", "--resource", RESOURCE)
    token = capsys.readouterr().out.strip()
    assert register(HTTP_AUTHORIZATION=f"Bearer {token}").status_code == 201
    assert Application.objects.get(registration_source="dcr", user=flow.user)


def test_a_session_cookie_is_no_initial_access_token(settings: Any) -> None:
    flow = Flow()
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"REGISTRATION": "authenticated"}
    response = flow.browser.post("/oauth/register/", json.dumps(METADATA), content_type="application/json")
    assert response.status_code == 401
