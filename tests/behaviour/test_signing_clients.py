"""Clients that describe themselves by a document and prove by their own keys that a request for a token is theirs."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from jwcrypto.jwk import JWK
from oauth2_provider.models import AccessToken, Application

from mcp_django.context import refused_request_log as log
from mcp_django.models import ClientKeys
from mcp_django.oauth import assertions_and_keys, document_fetcher
from tests.jwts import KINDS, claims_of, key_for, public_set, signed
from tests.oauth_flow import ORIGIN, REDIRECT_URI, Flow
from tests.service_account import ASSERTION_TYPE, basic
from tests.tls_server import Authority, Redirected, TLSServer, answer, serving

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
HOST = "client.example"
URL = f"https://{HOST}/client.json"
JWKS_URI = f"https://{HOST}/jwks.json"
KEY = key_for("ES256", "one")
SIGNS = {
    "client_id": URL,
    "client_name": "Robot",
    "redirect_uris": [REDIRECT_URI],
    "token_endpoint_auth_method": "private_key_jwt",
    "jwks_uri": JWKS_URI,
}
EITHER = SIGNS | {"token_endpoint_auth_methods_supported": ["private_key_jwt", "none"]}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[TLSServer]:
    cache.clear()
    log._quiet.clear()
    assertions_and_keys._sets.clear()
    with serving(authority.context(HOST)) as running:
        fetcher = Redirected(running, authority)
        monkeypatch.setattr(document_fetcher, "Fetcher", lambda *options: fetcher)
        publish(running, SIGNS, KEY)
        yield running


def publish(server: TLSServer, document: dict[str, Any], *published: JWK) -> None:
    server.answers[f"{HOST}/client.json"] = answer(document)
    server.answers[f"{HOST}/jwks.json"] = answer(json.loads(public_set(*published)))


@pytest.fixture
def flow(server: TLSServer) -> Flow:
    found = Flow()
    found.client_id = URL
    return found


def proof(key: JWK = KEY, algorithm: str = "ES256", **claims: Any) -> dict[str, str]:
    """What a client sends to prove who it is."""
    own = {"iss": URL, "sub": URL, "aud": ORIGIN}
    raw = signed(claims_of(**(own | claims)), key, algorithm)
    return {"client_assertion": raw, "client_assertion_type": ASSERTION_TYPE}


def test_it_gets_tokens_and_renews_and_revokes_them_by_its_signature(flow: Flow, server: TLSServer) -> None:
    tokens = flow.exchange(flow.code(), **proof())
    assert tokens.status_code == 200, tokens.content
    refreshed = flow.refresh(tokens.json()["refresh_token"], **proof())
    assert refreshed.status_code == 200, refreshed.content
    revoke = {"token": refreshed.json()["refresh_token"], "client_id": URL}
    assert Client().post("/oauth/revoke_token/", revoke).status_code == 401
    assert AccessToken.objects.filter(application__client_id=URL).exists()
    assert Client().post("/oauth/revoke_token/", revoke | proof()).status_code == 200
    assert not AccessToken.objects.filter(application__client_id=URL).exists()
    assert [path for path in server.urls if path.endswith("jwks.json")] == [f"{HOST}/jwks.json"]


def test_the_signature_says_who_it_is(flow: Flow) -> None:
    assert flow.exchange(flow.code(), client_id=None, **proof()).status_code == 200


@pytest.mark.parametrize("algorithm", KINDS)
def test_keys_can_stand_in_the_document_itself(flow: Flow, server: TLSServer, algorithm: str) -> None:
    key = key_for(algorithm, "own")
    document = {name: value for name, value in SIGNS.items() if name != "jwks_uri"}
    publish(server, document | {"jwks": json.loads(public_set(key))})
    assert flow.exchange(flow.code(), **proof(key, algorithm)).status_code == 200


@pytest.mark.parametrize("sent", [{}, {"client_secret": ""}, {"client_secret": "x"}])
def test_without_a_signature_a_client_that_signs_gets_nothing(flow: Flow, sent: dict[str, str]) -> None:
    answered = flow.exchange(flow.code(), **sent)
    assert (answered.status_code, answered.json()["error"]) == (401, "invalid_client")
    headers = {"authorization": basic(URL, sent.get("client_secret", ""))}
    body = {"grant_type": "authorization_code", "code": "x", "client_id": URL}
    assert Client().post("/oauth/token/", body, headers=headers).status_code == 401


def test_one_that_can_do_without_does_so_or_signs_and_a_wrong_signature_is_refused(
    flow: Flow, server: TLSServer
) -> None:
    publish(server, EITHER, KEY)
    tokens = flow.exchange(flow.code())
    assert tokens.status_code == 200
    assert flow.refresh(tokens.json()["refresh_token"], **proof(key_for("ES256", "another"))).status_code == 401
    assert flow.refresh(tokens.json()["refresh_token"], **proof()).status_code == 200


FORGED: dict[str, dict[str, Any]] = {
    "another key": {"key": key_for("ES256", "another")},
    "another key of the same name": {"key": JWK.generate(kty="EC", crv="P-256", kid="one")},
    "an algorithm without signature": {"algorithm": "none"},
    "another issuer": {"iss": "https://client.example/other.json"},
    "another subject": {"sub": "https://client.example/other.json"},
    "another audience": {"aud": "https://other.example"},
    "several audiences": {"aud": [ORIGIN, "https://other.example"]},
    "an end in the past": {"iat": 1_000_000, "exp": 1_000_300},
    "a long life": {"exp": 4_000_000_000},
    "no end": {"exp": None},
    "no id": {"jti": None},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_signature_that_is_not_right_is_refused_and_spends_no_code(flow: Flow, name: str) -> None:
    code = flow.code()
    answered = flow.exchange(code, **proof(**FORGED[name]))
    assert (answered.status_code, answered.json()["error"]) == (401, "invalid_client")
    assert flow.exchange(code, **proof()).status_code == 200


def test_an_assertion_is_good_for_one_request(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    sent = proof()
    assert flow.exchange(flow.code(), **sent).status_code == 200
    assert flow.exchange(flow.code(), **sent).status_code == 401
    assert "used before (jti)" in caplog.text
    assert sent["client_assertion"] not in caplog.text


def test_the_signature_of_one_client_is_none_of_another(flow: Flow, server: TLSServer) -> None:
    other = f"https://{HOST}/other.json"
    server.answers[f"{HOST}/other.json"] = answer(SIGNS | {"client_id": other, "client_name": "Other"})
    stranger = Flow(username="eve")
    stranger.client_id = other
    flow.code()
    code = stranger.code()
    assert flow.exchange(code, **proof()).json()["error"] == "invalid_grant"
    assert stranger.exchange(code, **proof()).status_code == 401


def test_assertions_of_clients_without_a_document_prove_nothing(flow: Flow) -> None:
    registered = Flow(username="eve")
    claims = {"iss": registered.client_id, "sub": registered.client_id}
    assert registered.exchange(registered.code(), **proof(**claims)).status_code == 401
    strange = {"iss": "nobody", "sub": "nobody"}
    assert flow.exchange(flow.code(), client_id="nobody", **proof(**strange)).status_code == 401


@pytest.mark.parametrize(
    "sent", [{"client_assertion_type": "x"}, {"client_assertion": "x"}, {"client_assertion": "a.b.c"}]
)
def test_what_is_no_assertion_is_refused(flow: Flow, sent: dict[str, str]) -> None:
    assert flow.exchange(flow.code(), **(proof() | sent)).status_code == 401


def test_an_assertion_counts_in_the_body_alone(flow: Flow) -> None:
    params = {"grant_type": "authorization_code", "code": flow.code(), "redirect_uri": REDIRECT_URI, "client_id": URL}
    params["code_verifier"] = flow.verifier
    answered = Client().post("/oauth/token/", params, query_params=proof())
    assert answered.status_code in (400, 401)


def test_new_keys_work_at_once_and_old_ones_no_more(
    flow: Flow, server: TLSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flow.exchange(flow.code(), **proof()).status_code == 200
    monkeypatch.setattr(assertions_and_keys, "PAUSE", 0)
    fresh = key_for("ES256", "two")
    publish(server, SIGNS, fresh)
    assert flow.exchange(flow.code(), **proof(fresh)).status_code == 200
    assert flow.exchange(flow.code(), **proof()).status_code == 401


def test_keys_that_cannot_be_fetched_let_nobody_in(flow: Flow, server: TLSServer) -> None:
    server.answers[f"{HOST}/jwks.json"] = answer({}, status="500 Down")
    assert flow.exchange(flow.code(), **proof()).status_code == 401


def test_a_document_that_signs_no_more_takes_its_keys_along(flow: Flow, server: TLSServer) -> None:
    flow.code()
    assert ClientKeys.objects.get().jwks_uri == JWKS_URI
    publish(server, {name: value for name, value in SIGNS.items() if "endpoint" not in name and name != "jwks_uri"})
    Application.objects.update(cimd_expires_at=None)
    assert flow.exchange(flow.code()).status_code == 200
    assert not ClientKeys.objects.exists()


def test_keys_go_with_their_client(flow: Flow) -> None:
    flow.code()
    call_command("clear_mcp_clients")
    assert ClientKeys.objects.exists()
    Application.objects.filter(client_id=URL).delete()
    call_command("clear_mcp_clients", "--dry-run")
    assert ClientKeys.objects.exists()
    call_command("clear_mcp_clients")
    assert not ClientKeys.objects.exists()


# Keys and methods of now


def out_of_date() -> None:
    """Let the document have been out of date for a second."""
    Application.objects.filter(client_id=URL).update(cimd_expires_at=timezone.now() - timedelta(seconds=1))


def with_keys(*found: JWK) -> dict[str, Any]:
    document = {name: value for name, value in SIGNS.items() if name != "jwks_uri"}
    return document | {"jwks": json.loads(public_set(*found))}


def test_a_key_that_the_document_has_no_more_refreshes_nothing(flow: Flow, server: TLSServer) -> None:
    old, new = key_for("ES256", "old"), key_for("ES256", "new")
    publish(server, with_keys(old))
    refresh = flow.exchange(flow.code(), **proof(old)).json()["refresh_token"]
    publish(server, with_keys(new))
    out_of_date()
    assert flow.refresh(refresh, **proof(old)).status_code == 401
    assert flow.refresh(refresh, **proof(new)).status_code == 200


def test_a_new_key_in_the_document_is_looked_for_at_once_and_once_a_minute(flow: Flow, server: TLSServer) -> None:
    old, new = key_for("ES256", "old"), key_for("ES256", "new")
    publish(server, with_keys(old))
    refresh = flow.exchange(flow.code(), **proof(old)).json()["refresh_token"]
    publish(server, with_keys(new))
    tokens = flow.refresh(refresh, **proof(new))
    assert tokens.status_code == 200, tokens.content
    publish(server, with_keys(key_for("ES256", "newer")))
    asked = len(server.asked)
    refused = flow.refresh(tokens.json()["refresh_token"], **proof(key_for("ES256", "newer")))
    assert refused.status_code == 401
    assert 0 < int(refused["Retry-After"]) <= 61
    assert len(server.asked) == asked


def test_a_document_that_comes_to_ask_for_signatures_ends_requests_without(flow: Flow, server: TLSServer) -> None:
    publish(
        server,
        {name: value for name, value in EITHER.items() if name != "jwks_uri"} | {"token_endpoint_auth_method": "none"},
    )
    refresh = flow.exchange(flow.code()).json()["refresh_token"]
    publish(server, SIGNS, KEY)
    out_of_date()
    assert flow.refresh(refresh).status_code == 401
    assert flow.refresh(refresh, **proof()).status_code == 200


@pytest.mark.parametrize("signs", [True, False])
def test_a_document_that_is_gone_leaves_access_to_who_needs_no_key(flow: Flow, server: TLSServer, signs: bool) -> None:
    if not signs:
        publish(server, EITHER, KEY)
    sent = proof if signs else dict
    refresh = flow.exchange(flow.code(), **sent()).json()["refresh_token"]
    server.answers[f"{HOST}/client.json"] = answer({}, status="404 Not Found")
    out_of_date()
    assert flow.refresh(refresh, **sent()).status_code == (401 if signs else 200)


def test_a_document_that_cannot_be_had_is_good_for_a_day(flow: Flow, server: TLSServer) -> None:
    refresh = flow.exchange(flow.code(), **proof()).json()["refresh_token"]
    server.answers[f"{HOST}/client.json"] = answer({}, status="503 Busy")
    out_of_date()
    tokens = flow.refresh(refresh, **proof())
    assert tokens.status_code == 200
    Application.objects.filter(client_id=URL).update(cimd_expires_at=timezone.now() - timedelta(days=2))
    assert flow.refresh(tokens.json()["refresh_token"], **proof()).status_code == 401


def test_a_rotated_key_at_its_url_is_told_when_to_come_again(flow: Flow, server: TLSServer) -> None:
    assert flow.exchange(flow.code(), **proof()).status_code == 200
    fresh = key_for("ES256", "two")
    publish(server, SIGNS, fresh)
    refused = flow.exchange(flow.code(), **proof(fresh))
    assert refused.status_code == 401
    assert 0 < int(refused["Retry-After"]) <= 61


def test_the_log_asks_a_client_that_signs_for_no_secret(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    flow.exchange(flow.code())
    assert "sends no signed assertion" in caplog.text
    assert "secret" not in caplog.text
