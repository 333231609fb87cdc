import json
import re
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from oauth2_provider.models import AccessToken, Application

from tests.oauth_flow import REGISTERED_URI, RESOURCE, Flow

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


def test_a_secret_that_was_made_here_is_not_stretched_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stretch = "django.contrib.auth.hashers.check_password", "oauth2_provider.oauth2_validators.check_password"
    for name in ("oauth2_provider.models.make_password", *stretch):
        monkeypatch.setattr(name, lambda *args, **kwargs: pytest.fail("hashed"))
    answer = register(METADATA | {"token_endpoint_auth_method": "client_secret_post"}).json()
    sent = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": answer["client_id"]}
    for secret, error in (("wrong", "invalid_client"), (answer["client_secret"], "invalid_grant")):
        found = Client().post("/oauth/token/", {**sent, "client_secret": secret}).json()["error"]
        assert found == error
    stored = Application.objects.get().client_secret
    assert Client().post("/oauth/token/", {**sent, "client_secret": stored}).json()["error"] == "invalid_client"


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


def named(name: str, **changes: Any) -> dict[str, Any]:
    return {**METADATA, "client_name": name, **changes}


def test_J184_registrations_are_limited_by_address_whatever_headers_say(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"registrations": "2/h"}}
    for number in range(2):
        headers = {"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": f"198.51.100.{number}"}
        assert register(named(f"Robot {number}"), **headers).status_code == 201
    headers = {"HTTP_X_FORWARDED_FOR": "198.51.100.9", "HTTP_X_REAL_IP": "198.51.100.9"}
    refused = register(named("Robot 9"), REMOTE_ADDR="192.0.2.1", **headers)
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 3600
    assert re.search(r"Try again in \d+ (minutes|seconds)\.", refused.json()["error_description"])
    assert register(REMOTE_ADDR="192.0.2.2").status_code == 201
    assert Application.objects.count() == 3


def test_a_program_that_registers_with_each_sign_in_is_one_client(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"registrations": "1/h", "registrations_total": "2/h"}}
    answers = [
        register(named("Tool", redirect_uris=[f"http://localhost:{port}/cb", f"http://127.0.0.1:{port}/cb"]))
        for port in range(5000, 5040)
    ]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["client_id"] for answer in answers}) == 1
    assert answers[7].json()["redirect_uris"] == ["http://localhost:5007/cb", "http://127.0.0.1:5007/cb"]
    assert Application.objects.count() == 1
    assert register(named("Other tool")).status_code == 429


@pytest.mark.parametrize(
    "changes",
    [
        {"client_name": "Tool 2"},
        {"redirect_uris": ["http://localhost:5000/other"]},
        {"redirect_uris": ["http://127.0.0.1:5000/cb"]},
        {"redirect_uris": ["https://localhost.example:5000/cb"]},
        {"token_endpoint_auth_method": "client_secret_post"},
    ],
)
def test_other_metadata_is_another_client(changes: dict[str, Any]) -> None:
    first = register(named("Tool", redirect_uris=["http://localhost:5000/cb"])).json()
    other = register({**named("Tool", redirect_uris=["http://localhost:5000/cb"]), **changes}).json()
    assert other["client_id"] != first["client_id"]


def test_the_same_metadata_from_another_address_is_another_client() -> None:
    assert register().json()["client_id"] != register(REMOTE_ADDR="192.0.2.2").json()["client_id"]


def test_a_port_of_localhost_counts_where_the_toolkit_compares_it(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {"ALLOW_LOCALHOST_LOOPBACK": False}
    ids = {
        register(named("Tool", redirect_uris=[f"http://localhost:{port}/cb"])).json()["client_id"] for port in (1, 2)
    }
    assert len(ids) == 2


def test_a_client_that_was_deleted_meanwhile_is_made_anew() -> None:
    first = register().json()
    Application.objects.all().delete()
    second = register().json()
    assert first["client_id"] != second["client_id"]
    assert Application.objects.get().client_id == second["client_id"]


def test_a_confidential_client_gets_a_secret_of_its_own_each_time_and_that_is_bounded(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"registrations": "3/h"}}
    hosted = named("Hosted", token_endpoint_auth_method="client_secret_post")
    answers = [register(hosted) for _ in range(5)]
    # The first counts by address, the others by what they are.
    assert [answer.status_code for answer in answers] == [201, 201, 201, 201, 429]
    assert len({answer.json()["client_secret"] for answer in answers[:4]}) == 4
    assert [register(named(f"Robot {number}")).status_code for number in range(3)] == [201, 201, 429]


def test_what_is_no_metadata_counts_too(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"registrations": "2/h"}}
    assert [register(b"{").status_code for _ in range(3)] == [400, 400, 429]


def test_J184_registrations_are_limited_in_total(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"registrations_total": "2/h"}}
    answers = [register(REMOTE_ADDR=f"192.0.2.{number}").status_code for number in range(4)]
    assert answers == [201, 201, 429, 429]


def test_L209_without_its_cache_registration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: Any) -> None:
        raise ConnectionError("cache")

    monkeypatch.setattr("mcp_django.oauth.client_registration.RateLimit.hit", down)
    response = register()
    assert response.status_code == 503
    assert response["Retry-After"] == "30"
    assert response.json()["error_description"] == (
        "This server cannot count requests: its cache does not answer. Try again in 30 seconds."
    )


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
