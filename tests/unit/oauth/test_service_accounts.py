"""Service accounts: who gets a token, for what, and until when."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, RefreshToken

from mcp_django import site
from mcp_django.context import refused_request_log
from mcp_django.context.request import Client as ProtocolClient
from mcp_django.emulation.history import Journal
from mcp_django.exceptions import AuthenticationFailed
from mcp_django.models import ServiceAccount, UsedAssertion
from mcp_django.oauth import assertions_and_keys, service_accounts, stored_tokens
from mcp_django.oauth.assertions_and_keys import read_keys
from mcp_django.oauth.bearer import Token, verify
from tests.factories import make_author, make_superuser, make_user
from tests.jwts import KINDS, claims_of, key_for, public_set, signed
from tests.oauth_flow import ORIGIN, RESOURCE, Flow
from tests.service_account import TOKEN, ask, ask_by_key, ask_by_secret, assertion, basic, make_account
from tests.testapp.models import Author
from tests.tls_server import Authority, answer, serving
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]
BASE = {"BASE_URL": ORIGIN}


@pytest.fixture(autouse=True)
def accounts_are_on() -> Iterator[None]:
    with override_settings(MCP_DJANGO=BASE | {"SERVICE_ACCOUNTS": True}):
        yield


def granted(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.content
    assert response["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json()
    return found


def refused(response: Any, error: str = "invalid_client", status: int = 401) -> str:
    assert (response.status_code, response.json()["error"]) == (status, error), response.content
    assert not AccessToken.objects.exists()
    return str(response.json().get("error_description", ""))


# By a secret


def test_an_account_gets_a_token_of_its_user_by_its_secret() -> None:
    account, secret = make_account()
    answer = granted(ask_by_secret(account, secret))
    assert answer["token_type"] == "Bearer"
    assert answer["scope"] == "mcp:read"
    assert 3590 < answer["expires_in"] <= 3600
    assert "refresh_token" not in answer
    assert not RefreshToken.objects.exists()
    user, token = verify(answer["access_token"], RESOURCE)
    assert user == account.user
    assert token.client_id == account.client_id
    assert token.scopes == {"mcp:read"}
    assert token.facts["confirm_by_token"]


def test_the_secret_may_be_in_the_body() -> None:
    account, secret = make_account()
    assert granted(ask(client_id=account.client_id, client_secret=secret))


def test_the_secret_is_stored_as_its_hash() -> None:
    account, secret = make_account()
    granted(ask_by_secret(account, secret))
    assert secret not in str(list(ServiceAccount.objects.values()))
    assert secret not in str(list(Application.objects.values()))
    assert AccessToken.objects.get().token == ""


def test_a_wrong_secret_is_refused_and_so_is_none() -> None:
    account, secret = make_account()
    for given in ("", "wrong", secret[:-1], secret.lower(), account.secret):
        response = ask_by_secret(account, given)
        refused(response)
        assert response["WWW-Authenticate"].startswith("Basic ")
    refused(ask(client_id=account.client_id))
    assert "WWW-Authenticate" not in ask(client_id=account.client_id)


def test_an_account_without_a_secret_has_no_empty_one() -> None:
    account, _ = make_account(public_key=key_for().export_to_pem().decode())
    account.secret = ""
    account.save()
    refused(ask_by_secret(account, ""))
    refused(ask(client_id=account.client_id, client_secret=""))


@pytest.mark.parametrize("client_id", ["", "nobody", "a\x00b", "x" * 300, "' OR 1=1 --"])
def test_an_unknown_account_is_refused(client_id: str) -> None:
    make_account()
    refused(ask(client_id=client_id, client_secret="secret"))


def test_letters_of_another_case_are_another_id() -> None:
    account, secret = make_account()
    refused(ask(client_id=account.client_id.upper(), client_secret=secret))


# By a key


@pytest.mark.parametrize("algorithm", KINDS)
@pytest.mark.parametrize("form", ["pem", "jwk", "set"])
def test_an_account_gets_a_token_by_what_it_signed(algorithm: str, form: str) -> None:
    key = key_for(algorithm)
    forms = {"pem": key.export_to_pem().decode(), "jwk": key.export_public(), "set": public_set(key)}
    account, _ = make_account(public_key=forms[form])
    answer = granted(ask_by_key(assertion(account, key, algorithm)))
    assert verify(answer["access_token"], RESOURCE)[0] == account.user


@pytest.mark.parametrize("audience", [ORIGIN, f"{ORIGIN}/", f"{ORIGIN}{TOKEN}", [ORIGIN]])
def test_it_is_signed_for_the_issuer_or_for_the_token_endpoint(audience: Any) -> None:
    account, _ = make_account(public_key=key_for().export_public())
    assert granted(ask_by_key(assertion(account, key_for(), aud=audience)))


def test_what_was_signed_is_good_once() -> None:
    account, _ = make_account(public_key=key_for().export_public())
    raw = assertion(account, key_for())
    granted(ask_by_key(raw))
    AccessToken.objects.all().delete()
    assert "before" in refused(ask_by_key(raw))
    assert UsedAssertion.objects.count() == 1


def test_what_was_signed_is_good_once_even_where_it_gave_nothing() -> None:
    account, _ = make_account(public_key=key_for().export_public())
    raw = assertion(account, key_for())
    refused(ask_by_key(raw, scope="mcp:admin"), "invalid_scope", 400)
    refused(ask_by_key(raw))


@pytest.mark.parametrize(
    "claims",
    [
        lambda now: {"aud": "https://other.example"},
        lambda now: {"aud": RESOURCE},
        lambda now: {"iss": "https://issuer.example"},
        lambda now: {"exp": None},
        lambda now: {"exp": now - 60},
        lambda now: {"exp": now + 3600},
        lambda now: {"iat": now + 120},
        lambda now: {"jti": None},
    ],
)
def test_what_is_signed_for_others_or_for_long_is_refused(claims: Callable[[int], dict[str, Any]]) -> None:
    account, _ = make_account(public_key=key_for().export_public())
    assert refused(ask_by_key(assertion(account, key_for(), **claims(int(time.time())))))


def test_no_account_signs_for_another() -> None:
    account, _ = make_account(public_key=key_for("ES256", "a").export_public())
    other, _ = make_account(public_key=key_for("ES256", "b").export_public(), user=account.user)
    refused(ask_by_key(assertion(account, key_for("ES256", "b"))))
    refused(ask_by_key(assertion(account, key_for("ES256", "b"), iss=other.client_id)))
    refused(ask_by_key(assertion(account, key_for("ES256", "a"), sub=other.client_id)))


def test_an_account_with_a_secret_alone_signs_nothing() -> None:
    account, _ = make_account()
    refused(ask_by_key(assertion(account, key_for())))


def test_keys_are_fetched_where_the_account_publishes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(url: str, fetcher: Any, again: bool) -> Any:
        asked.append((url, again))
        return read_keys(public_set(key_for("ES256", "mine")))

    monkeypatch.setattr(assertions_and_keys, "fetched_keys", fetched)
    account, _ = make_account(jwks_uri="https://robot.example/jwks.json")
    assert granted(ask_by_key(assertion(account, key_for("ES256", "mine"))))
    assert asked == [("https://robot.example/jwks.json", False)]


def test_keys_may_be_at_a_host_of_the_project(settings: Any, tmp_path: Path) -> None:
    authority, key = Authority(tmp_path), key_for("ES256", "mine")
    with serving(authority.context("localhost")) as server:
        host = f"localhost:{server.port}"
        server.answers[f"{host}/jwks.json"] = answer(json.loads(public_set(key)))
        account, _ = make_account(jwks_uri=f"https://{host}/jwks.json")
        refused(ask_by_key(assertion(account, key)))
        own = {"CLIENT_DOCUMENTS": {"private": [host], "ca": str(authority.path)}}
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, **own}
        assert granted(ask_by_key(assertion(account, key)))


# One way


def test_an_account_proves_who_it_is_in_one_way() -> None:
    account, secret = make_account(public_key=key_for().export_public())
    raw = assertion(account, key_for())
    refused(ask_by_key(raw, client_secret=secret), "invalid_request", 400)
    refused(ask_by_key(raw, authorization=basic(account.client_id, secret)), "invalid_request", 400)
    refused(ask_by_secret(account, secret, client_secret=secret), "invalid_request", 400)


def test_the_client_id_beside_it_is_the_same() -> None:
    account, secret = make_account(public_key=key_for().export_public())
    refused(ask_by_key(assertion(account, key_for()), client_id="other"), "invalid_request", 400)
    refused(ask_by_secret(account, secret, client_id="other"), "invalid_request", 400)
    assert granted(ask_by_key(assertion(account, key_for()), client_id=account.client_id))


def test_no_parameter_is_sent_twice() -> None:
    account, secret = make_account()
    for name in ("client_id", "scope", "grant_type"):
        sent = {"client_id": account.client_id, "client_secret": secret, "resource": RESOURCE, "scope": "mcp:read"}
        sent |= {"grant_type": "client_credentials"}
        refused(Client().post(TOKEN, {**sent, name: [sent[name], sent[name]]}), "invalid_request", 400)


# How far


def test_scopes_are_narrowed_to_those_of_the_account() -> None:
    account, secret = make_account(scopes=["mcp:read"])
    assert granted(ask_by_secret(account, secret, scope="mcp:read mcp:write mcp:admin"))["scope"] == "mcp:read"
    account.scopes = ["mcp:write"]
    account.save()
    assert granted(ask_by_secret(account, secret, scope="mcp:read mcp:write"))["scope"] == "mcp:read mcp:write"
    assert granted(ask_by_secret(account, secret, scope="mcp:read"))["scope"] == "mcp:read"
    assert granted(ask_by_secret(account, secret))["scope"] == "mcp:write"


@pytest.mark.parametrize("scope", ["mcp:write", "mcp:admin", "openid", "offline_access"])
def test_a_scope_that_the_account_lacks_gives_nothing(scope: str) -> None:
    account, secret = make_account()
    refused(ask_by_secret(account, secret, scope=scope), "invalid_scope", 400)


def test_a_scope_that_the_site_has_no_more_is_not_granted() -> None:
    account, secret = make_account(scopes=["mcp:read", "former"])
    assert granted(ask_by_secret(account, secret, scope="mcp:read former"))["scope"] == "mcp:read"


def test_a_token_is_for_the_endpoints_of_the_account() -> None:
    account, secret = make_account(endpoints=["/mcp"])
    answer = granted(ask_by_secret(account, secret, resource=f"{RESOURCE}/"))
    assert AccessToken.objects.get().resource == [RESOURCE]
    with pytest.raises(AuthenticationFailed):
        verify(answer["access_token"], f"{ORIGIN}/other/mcp")
    AccessToken.objects.all().delete()
    account.endpoints = ["/elsewhere"]
    account.save()
    refused(ask_by_secret(account, secret), "invalid_target", 400)


@pytest.mark.parametrize("resource", ["https://evil.example/mcp", ORIGIN, f"{RESOURCE}/x", "mcp", "", [RESOURCE, "x"]])
def test_a_token_for_another_server_is_refused(resource: Any) -> None:
    account, secret = make_account()
    refused(ask_by_secret(account, secret, resource=resource), "invalid_target", 400)


# Until when


def test_an_account_ends() -> None:
    account, secret = make_account(expires=timezone.now() + timedelta(minutes=10))
    answer = granted(ask_by_secret(account, secret))
    assert 590 < answer["expires_in"] <= 600
    assert verify(answer["access_token"], RESOURCE)
    ServiceAccount.objects.update(expires=timezone.now())
    with pytest.raises(AuthenticationFailed):
        verify(answer["access_token"], RESOURCE)
    AccessToken.objects.all().delete()
    refused(ask_by_secret(account, secret))


@pytest.mark.parametrize("what", ["account", "user", "deleted", "another user", "setting", "password"])
def test_what_is_closed_gets_nothing_and_its_tokens_end_at_once(what: str) -> None:
    account, secret = make_account()
    answer = granted(ask_by_secret(account, secret))
    assert verify(answer["access_token"], RESOURCE)
    with override_settings(MCP_DJANGO=BASE | {"SERVICE_ACCOUNTS": what != "setting"}):
        if what == "account":
            ServiceAccount.objects.update(is_active=False)
        elif what == "user":
            type(account.user)._default_manager.filter(pk=account.user.pk).update(is_active=False)
        elif what == "deleted":
            ServiceAccount.objects.all().delete()
        elif what == "another user":
            ServiceAccount.objects.update(user=make_user("other"))
        elif what == "password":
            account.user.set_password("another")
            account.user.save()
        with pytest.raises(AuthenticationFailed) as failure:
            verify(answer["access_token"], RESOURCE)
        assert failure.value.reason is not None
        AccessToken.objects.all().delete()
        if what not in ("another user", "password"):
            error = ("unsupported_grant_type", 400) if what == "setting" else ("invalid_client", 401)
            refused(ask_by_secret(account, secret), *error)


def test_the_streams_of_an_account_end_with_its_tokens() -> None:
    account, secret = make_account()
    _, token = verify(granted(ask_by_secret(account, secret))["access_token"], RESOURCE)
    assert Token.still_good([token]) == {token}
    service_accounts.end_tokens([account.client_id])
    assert Token.still_good([token]) == set()


def test_an_account_can_revoke_its_token() -> None:
    account, secret = make_account()
    answer = granted(ask_by_secret(account, secret))
    header = basic(account.client_id, secret)
    done = Client().post("/oauth/revoke_token/", {"token": answer["access_token"]}, headers={"authorization": header})
    assert done.status_code == 200
    assert not AccessToken.objects.exists()


def test_a_new_secret_replaces_the_old_one() -> None:
    account, old = make_account()
    granted(ask_by_secret(account, old))
    AccessToken.objects.all().delete()
    new = service_accounts.new_secret(account)
    account.save()
    refused(ask_by_secret(account, old))
    assert granted(ask_by_secret(account, new))
    assert stored_tokens.same_secret(new, Application.objects.get(client_id=account.client_id).client_secret)


# Others


def test_no_client_that_registered_itself_gets_a_token_so() -> None:
    flow = Flow()
    refused(ask(client_id=flow.client_id))
    sent = {"client_name": "Robot", "redirect_uris": ["http://127.0.0.1/callback"]}
    sent |= {"token_endpoint_auth_method": "client_secret_basic", "grant_types": ["authorization_code"]}
    client = Client().post("/oauth/register/", json.dumps(sent), content_type="application/json").json()
    refused(ask(authorization=basic(client["client_id"], client["client_secret"])))


def test_an_application_of_an_administrator_is_no_account() -> None:
    kind = {"client_type": "confidential", "authorization_grant_type": "client-credentials"}
    Application.objects.create(client_id="app", client_secret="secret", hash_client_secret=False, **kind)
    refused(ask(client_id="app", client_secret="secret"))


def test_the_application_of_an_account_can_do_nothing_else() -> None:
    account, secret = make_account()
    service_accounts.application_of(account)
    for grant in ("authorization_code", "refresh_token", "password"):
        sent = {"grant_type": grant, "code": "x", "refresh_token": "x", "client_id": account.client_id}
        response = Client().post(TOKEN, sent | {"client_secret": secret})
        assert response.status_code in (400, 401)
    page = Client().get("/oauth/authorize/", {"response_type": "code", "client_id": account.client_id})
    assert page.status_code in (302, 400)


def test_the_log_and_the_history_say_which_service_acts(caplog: pytest.LogCaptureFixture) -> None:
    account, secret = make_account(user=make_superuser())
    with caplog.at_level(logging.INFO, "mcp_django"):
        answer = granted(ask_by_secret(account, secret))
    assert f"Service account 'Nightly import' ({account.client_id})" in caplog.text
    assert secret not in caplog.text
    user, token = verify(answer["access_token"], RESOURCE)
    request = request_of(user, client=ProtocolClient("Claude"), client_id=token.client_id)
    request.mcp.facts = token.facts
    Journal(request, "update_record").changed(site.exposures[Author], make_author("Ada"), [])
    said = LogEntry.objects.get().get_change_message()
    assert said == f"Changed via MCP: service account Nightly import ({account.client_id}), update_record."


def test_a_refusal_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    account, _ = make_account(public_key=key_for().export_public())
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    ask_by_secret(account, "wrong")
    [said] = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    assert "sends no secret or a wrong one" in said
    assert account.client_id in said
    raw = assertion(account, key_for("ES256", "another"))
    ask_by_key(raw)
    [_, said] = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    assert "is not signed by a key of its issuer" in said
    assert "Is the key of the service account in the admin that of the program?" in said
    assert account.client_id in said
    assert raw not in caplog.text


def test_garbage_is_refused_in_json() -> None:
    for header in ("Basic", "Basic !", "Basic YQ==", "Bearer x", "Digest x", "Basic " + "A" * 9000):
        response = ask(authorization=header)
        assert response.json()["error"] == "invalid_client"
    for raw in ("", "a.b.c", "x" * 20_000, signed(claims_of(), key_for())):
        assert ask_by_key(raw).json()["error"] == "invalid_client"
    assert ask(client_assertion="a").json()["error"] == "invalid_request"
    assert ask(client_assertion="a", client_assertion_type="saml").json()["error"] == "invalid_request"
