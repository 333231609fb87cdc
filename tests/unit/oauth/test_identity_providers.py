"""Tokens by identity assertions (ID-JAG): what a client gets for its users, and what an attacker does not get."""

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connections
from django.test import Client, override_settings
from jwcrypto.jwk import JWK
from oauth2_provider.models import AccessToken, Application, RefreshToken

from mcp_django.context import refused_request_log
from mcp_django.exceptions import AuthenticationFailed
from mcp_django.models import LinkedIdentity
from mcp_django.oauth import document_fetcher, identity_providers
from mcp_django.oauth.assertions_and_keys import read_keys
from mcp_django.oauth.bearer import verify
from tests.factories import make_user
from tests.identity_provider import (
    CLIENT_ID,
    ENTRY,
    GRANT,
    ISSUER,
    SECRET,
    IdentityProvider,
    make_client,
    redeem,
    settings_with,
)
from tests.jwts import claims_of, key_for, part, signed
from tests.oauth_flow import ORIGIN, RESOURCE, Flow
from tests.service_account import ASSERTION_TYPE, TOKEN, basic, make_account

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]


def now() -> int:
    return int(time.time())


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityProvider]:
    """A provider that is set up, for a client that is, with one user who is linked."""
    found = IdentityProvider()

    def fetched(url: str, fetcher: Any, again: bool) -> Any:
        assert fetcher == document_fetcher.fetcher_for(url, is_operators=True)
        found.asked.append(url)
        return read_keys(found.published())

    monkeypatch.setattr(identity_providers, "fetched_keys", fetched)
    make_client()
    LinkedIdentity.objects.create(issuer=ISSUER, subject="U0194", user=make_user("ada"))
    with override_settings(MCP_DJANGO=settings_with(ENTRY)):
        yield found


def granted(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.content
    assert response["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json()
    return found


def refused(response: Any, error: str = "invalid_grant", status: int = 400) -> str:
    assert (response.status_code, response.json().get("error")) == (status, error), response.content
    assert not AccessToken.objects.exists()
    return str(response.json().get("error_description", ""))


def test_a_client_gets_a_token_for_a_user(provider: IdentityProvider) -> None:
    answer = granted(redeem(provider.assertion()))
    assert answer["token_type"] == "Bearer"
    assert answer["scope"] == "mcp:read mcp:write"
    assert "refresh_token" not in answer
    assert not RefreshToken.objects.exists()
    user, token = verify(answer["access_token"], RESOURCE)
    assert user.get_username() == "ada"
    assert token.client_id == CLIENT_ID
    assert provider.asked == [f"{ISSUER}/jwks.json"]


def test_the_secret_may_be_in_the_body(provider: IdentityProvider) -> None:
    sent = {"grant_type": GRANT, "assertion": provider.assertion(), "client_id": CLIENT_ID, "client_secret": SECRET}
    assert granted(Client().post(TOKEN, sent | {"resource": RESOURCE}))


def test_the_metadata_names_grant_and_profile() -> None:
    found = Client().get("/.well-known/oauth-authorization-server").json()
    assert GRANT in found["grant_types_supported"]
    assert found["authorization_grant_profiles_supported"] == ["urn:ietf:params:oauth:grant-profile:id-jag"]
    with override_settings(MCP_DJANGO={"BASE_URL": ORIGIN}):
        found = Client().get("/.well-known/oauth-authorization-server").json()
        assert GRANT not in found["grant_types_supported"]
        assert "authorization_grant_profiles_supported" not in found


def test_scopes_are_those_of_the_assertion_as_far_as_the_client_asks(provider: IdentityProvider) -> None:
    def scope(claim: Any, asked: str = "") -> str:
        return str(granted(redeem(provider.assertion(scope=claim), scope=asked))["scope"])

    assert scope("mcp:read mcp:write", "mcp:read") == "mcp:read"
    assert scope("mcp:write") == "mcp:write"
    assert scope("mcp:read chat.history") == "mcp:read"
    # A provider that says nothing of scopes has allowed what any client is given.
    assert scope(None) == "mcp:read"
    assert scope(None, "mcp:read mcp:write mcp:admin") == "mcp:read"


def test_the_token_is_for_the_endpoint_of_the_assertion_in_the_servers_spelling(provider: IdentityProvider) -> None:
    for claim in (f"{RESOURCE}/", [RESOURCE]):
        answer = granted(redeem(provider.assertion(resource=claim), resource=f"{RESOURCE}/"))
        assert verify(answer["access_token"], RESOURCE)
    assert {tuple(token.resource) for token in AccessToken.objects.all()} == {(RESOURCE,)}


# Attacks on the token itself


FORGED = key_for("ES256", "idp-1-forged")


def without(raw: str, place: int, text: str = "") -> str:
    parts = raw.split(".")
    parts[place] = text
    return ".".join(parts)


def doubled(provider: IdentityProvider, name: str, value: Any) -> str:
    text = json.dumps(provider.claims())
    return signed(f'{text[:-1]}, "{name}": {json.dumps(value)}}}', provider.keys[0], typ="oauth-id-jag+jwt")


def secret_of(key: JWK) -> JWK:
    return JWK(kty="oct", k=part(key.export_to_pem()))


ATTACKS: dict[str, Any] = {
    "a plain JWT": lambda idp: idp.assertion(header={"typ": "JWT"}),
    "an ID token of the same provider": lambda idp: idp.assertion(header={"typ": None}),
    "an access token": lambda idp: idp.assertion(header={"typ": "at+jwt"}),
    "alg none": lambda idp: idp.assertion(header={"alg": "none"}),
    "alg none with a signature": lambda idp: without(idp.assertion(), 0, part({"alg": "none"})),
    "HS256 with the public key": lambda idp: idp.assertion(secret_of(idp.keys[0]), {"alg": "HS256", "kid": "idp-1"}),
    "another key": lambda idp: idp.assertion(FORGED, {"kid": "idp-1"}),
    "another key by its own id": lambda idp: idp.assertion(FORGED),
    "no signature": lambda idp: without(idp.assertion(), 2),
    "claims of another token": lambda idp: without(idp.assertion(), 1, part(idp.claims(sub="root"))),
    "kid that is a path": lambda idp: idp.assertion(FORGED, {"kid": "../../../../dev/null"}),
    "kid that is a URL": lambda idp: idp.assertion(FORGED, {"kid": "https://evil.example/jwks.json"}),
    "kid that is SQL": lambda idp: idp.assertion(FORGED, {"kid": "' UNION SELECT 'key' --"}),
    "kid that is no text": lambda idp: idp.assertion(header={"kid": ["idp-1"]}),
    "jku": lambda idp: idp.assertion(FORGED, {"jku": "https://evil.example/jwks.json"}),
    "x5u": lambda idp: idp.assertion(FORGED, {"x5u": "https://evil.example/certificate"}),
    "jwk": lambda idp: idp.assertion(FORGED, {"jwk": FORGED.export_public(as_dict=True)}),
    "x5c": lambda idp: idp.assertion(FORGED, {"kid": "idp-1", "x5c": ["MIIB"]}),
    "crit": lambda idp: idp.assertion(header={"crit": ["urn:example"]}),
    "b64": lambda idp: idp.assertion(header={"b64": False}),
    "a token within a token": lambda idp: idp.assertion(header={"cty": "JWT"}),
    "a claim twice": lambda idp: doubled(idp, "sub", "root"),
    "a huge token": lambda idp: idp.assertion(padding="a" * 20_000),
    "garbage": lambda idp: "a.b.c",
    "nothing": lambda idp: "",
    "another issuer": lambda idp: idp.assertion(iss="https://evil.example"),
    "an issuer with a slash more": lambda idp: idp.assertion(iss=f"{ISSUER}/"),
    "no issuer": lambda idp: idp.assertion(iss=None),
    "a foreign audience": lambda idp: idp.assertion(aud="https://other.example"),
    "the token endpoint as audience": lambda idp: idp.assertion(aud=f"{ORIGIN}{TOKEN}"),
    "the client as audience, as in an ID token": lambda idp: idp.assertion(aud=CLIENT_ID),
    "several audiences": lambda idp: idp.assertion(aud=[ORIGIN, "https://other.example"]),
    "no audience": lambda idp: idp.assertion(aud=None),
    "a foreign client": lambda idp: idp.assertion(client_id="another-client"),
    "no client": lambda idp: idp.assertion(client_id=None),
    "a list of clients": lambda idp: idp.assertion(client_id=[CLIENT_ID]),
    "no subject": lambda idp: idp.assertion(sub=None),
    "an empty subject": lambda idp: idp.assertion(sub=""),
    "a subject that is no text": lambda idp: idp.assertion(sub={"$ne": ""}),
    "no jti": lambda idp: idp.assertion(jti=None),
    "expired": lambda idp: idp.assertion(iat=now() - 600, exp=now() - 300),
    "from the future": lambda idp: idp.assertion(iat=now() + 300, exp=now() + 600),
    "not yet": lambda idp: idp.assertion(nbf=now() + 300),
    "no exp": lambda idp: idp.assertion(exp=None),
    "no iat": lambda idp: idp.assertion(iat=None),
    "for a day": lambda idp: idp.assertion(exp=now() + 86_400),
    "exp as text": lambda idp: idp.assertion(exp=str(now() + 300)),
    "no resource": lambda idp: idp.assertion(resource=None),
    "a resource that is no text": lambda idp: idp.assertion(resource=[1]),
    "a scope that is no text": lambda idp: idp.assertion(scope=["mcp:read", "mcp:admin"]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attacker_gets_no_token_by(provider: IdentityProvider, attack: str) -> None:
    assert refused(redeem(ATTACKS[attack](provider)))
    assert granted(redeem(provider.assertion()))


@pytest.mark.parametrize("claim", ["https://other.example/mcp", ORIGIN, f"{RESOURCE}/other", [RESOURCE, "https://b.c"]])
def test_a_foreign_resource_is_refused(provider: IdentityProvider, claim: Any) -> None:
    refused(redeem(provider.assertion(resource=claim)), "invalid_target")


def test_a_client_asks_for_no_endpoint_beside_those_of_the_assertion(provider: IdentityProvider) -> None:
    refused(redeem(provider.assertion(), resource="https://other.example/mcp"), "invalid_target")
    refused(redeem(provider.assertion(), resource=[RESOURCE, f"{ORIGIN}/x"]), "invalid_target")


@pytest.mark.parametrize(("claim", "asked"), [("mcp:read", "mcp:write"), ("mcp:read", "mcp:admin"), ("openid", "")])
def test_a_wider_scope_gives_nothing(provider: IdentityProvider, claim: str, asked: str) -> None:
    refused(redeem(provider.assertion(scope=claim), scope=asked), "invalid_scope")


def test_a_wider_scope_beside_a_granted_one_is_left_out(provider: IdentityProvider) -> None:
    answer = granted(redeem(provider.assertion(scope="mcp:read"), scope="mcp:read mcp:write mcp:admin"))
    assert answer["scope"] == "mcp:read"
    assert verify(answer["access_token"], RESOURCE)[1].scopes == {"mcp:read"}


def test_a_replay_is_refused(provider: IdentityProvider) -> None:
    raw = provider.assertion(jti="once")
    granted(redeem(raw))
    AccessToken.objects.all().delete()
    assert "before" in refused(redeem(raw))
    assert "before" in refused(redeem(provider.assertion(jti="once", sub="another")))


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_one_redeems_an_assertion(provider: IdentityProvider) -> None:
    raw = provider.assertion()

    def work(number: int) -> int:
        try:
            return int(redeem(raw).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(work, range(6)))
    assert statuses == [200] + [400] * 5
    assert AccessToken.objects.count() == 1


def test_a_new_key_is_accepted_and_the_old_one_no_more(provider: IdentityProvider) -> None:
    old = provider.keys[0]
    provider.keys = [key_for("ES256", "idp-2")]
    assert granted(redeem(provider.assertion()))
    AccessToken.objects.all().delete()
    refused(redeem(provider.assertion(old)))


def test_two_providers_speak_of_their_own_users_alone(provider: IdentityProvider) -> None:
    other = IdentityProvider("https://other.example", kid="other-1")
    entry = {**ENTRY, "issuer": other.issuer, "jwks_uri": f"{other.issuer}/jwks", "clients": ["other-client"]}
    make_client("other-client")
    with override_settings(MCP_DJANGO=settings_with(ENTRY, entry)):
        # Its client, its keys, its issuer: each is of the one or of the other.
        refused(redeem(other.assertion()))
        refused(redeem(other.assertion(iss=ISSUER)))
        refused(redeem(provider.assertion(client_id="other-client"), client_id="other-client"))
        provider.keys = other.keys
        refused(redeem(other.assertion(client_id="other-client"), client_id="other-client"))


# The client


@pytest.mark.parametrize("secret", ["", "wrong", None])
def test_the_client_proves_who_it_is(provider: IdentityProvider, secret: str | None) -> None:
    params = {"client_id": CLIENT_ID} if secret is None else {}
    sent = {"grant_type": GRANT, "assertion": provider.assertion()} | params
    headers = {} if secret is None else {"authorization": basic(CLIENT_ID, secret)}
    refused(Client().post(TOKEN, sent, headers=headers), "invalid_client", 401)


def test_a_client_proves_it_by_its_secret_and_not_by_an_assertion_of_the_provider(provider: IdentityProvider) -> None:
    raw = provider.assertion(sub=CLIENT_ID)
    sent = {"grant_type": GRANT, "assertion": raw, "client_assertion": raw, "client_assertion_type": ASSERTION_TYPE}
    refused(Client().post(TOKEN, sent), "invalid_client", 401)


def test_a_public_client_is_refused(provider: IdentityProvider) -> None:
    Application.objects.update(client_type="public")
    refused(redeem(provider.assertion()), "invalid_client", 401)


def test_a_client_that_no_entry_names_is_refused(provider: IdentityProvider) -> None:
    make_client("another-client")
    refused(redeem(provider.assertion(client_id="another-client"), "another-client"), "unauthorized_client")


def test_a_client_that_registered_itself_is_refused_whatever_an_entry_says(provider: IdentityProvider) -> None:
    sent = {"client_name": "Robot", "redirect_uris": ["http://127.0.0.1/callback"]}
    sent |= {"token_endpoint_auth_method": "client_secret_basic", "grant_types": ["authorization_code", GRANT]}
    made = Client().post("/oauth/register/", json.dumps(sent), content_type="application/json").json()
    assert made["grant_types"] == ["authorization_code", "refresh_token"]
    public = Flow(username="eve").client_id
    entry = {**ENTRY, "clients": [CLIENT_ID, made["client_id"], public]}
    with override_settings(MCP_DJANGO=settings_with(entry)):
        raw = provider.assertion(client_id=made["client_id"])
        refused(redeem(raw, made["client_id"], made["client_secret"]), "unauthorized_client")
        raw = provider.assertion(client_id=public)
        sent = {"grant_type": GRANT, "assertion": raw, "client_id": public}
        refused(Client().post(TOKEN, sent), "invalid_client", 401)


@pytest.mark.parametrize("source", [source for source in Application.RegistrationSource if source != "manual"])
def test_only_an_application_that_an_administrator_added_is_accepted(provider: IdentityProvider, source: str) -> None:
    Application.objects.update(registration_source=source)
    refused(redeem(provider.assertion()), "unauthorized_client")


def test_a_service_account_is_no_client_of_a_provider(provider: IdentityProvider) -> None:
    with override_settings(MCP_DJANGO=settings_with(ENTRY) | {"SERVICE_ACCOUNTS": True}):
        account, secret = make_account()
        raw = provider.assertion(client_id=account.client_id)
        assert redeem(raw, account.client_id, secret).json()["error"] in ("invalid_client", "unauthorized_client")


def test_nothing_is_sent_twice(provider: IdentityProvider) -> None:
    refused(redeem([provider.assertion(), provider.assertion()]), "invalid_request")


def test_no_assertion_is_no_code_and_no_refresh_token(provider: IdentityProvider) -> None:
    raw = provider.assertion()
    for grant, name in (("authorization_code", "code"), ("refresh_token", "refresh_token")):
        response = Client().post(
            TOKEN, {"grant_type": grant, name: raw}, headers={"authorization": basic(CLIENT_ID, SECRET)}
        )
        assert response.status_code in (400, 401)
    assert not AccessToken.objects.exists()


# The user


def test_an_unknown_subject_is_refused(provider: IdentityProvider) -> None:
    said = refused(redeem(provider.assertion(sub="U0000")))
    assert said == "The user of the assertion has no access here."
    assert User.objects.count() == 1


def test_an_inactive_user_is_refused_and_told_nothing(provider: IdentityProvider) -> None:
    User.objects.update(is_active=False)
    assert refused(redeem(provider.assertion())) == "The user of the assertion has no access here."


def test_letters_of_another_case_are_another_subject(provider: IdentityProvider) -> None:
    refused(redeem(provider.assertion(sub="u0194")))


@pytest.mark.parametrize("what", ["link", "user", "setting", "another user", "password"])
def test_a_token_ends_with_the_link_by_which_it_came(provider: IdentityProvider, what: str) -> None:
    answer = granted(redeem(provider.assertion()))
    assert verify(answer["access_token"], RESOURCE)
    entry = {**ENTRY, "issuer": "https://another.example"} if what == "setting" else ENTRY
    with override_settings(MCP_DJANGO=settings_with(entry)):
        if what == "link":
            LinkedIdentity.objects.all().delete()
        elif what == "user":
            User.objects.update(is_active=False)
        elif what == "another user":
            LinkedIdentity.objects.update(user=make_user("eve"))
        elif what == "password":
            User.objects.update(password="another")
        with pytest.raises(AuthenticationFailed):
            verify(answer["access_token"], RESOURCE)


# The log


def test_the_log_says_why_and_has_no_assertion(
    provider: IdentityProvider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    raw = provider.assertion(sub="U0000")
    with caplog.at_level(logging.INFO, "mcp_django"):
        redeem(raw)
        redeem(provider.assertion(aud="https://other.example"))
    said = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    assert "no user is linked to the subject" in said[0]
    assert "under linked identities" in said[0]
    assert "audience" in said[1]
    assert all(CLIENT_ID in line for line in said)
    assert raw not in caplog.text


def test_each_cause_is_logged_with_a_remedy_of_its_own(
    provider: IdentityProvider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    raw = provider.assertion()
    redeem(raw)
    other = key_for("ES256", "other")
    with caplog.at_level(logging.INFO, "mcp_django"):
        for sent in (raw, raw, provider.assertion(exp=1), provider.assertion(iss="https://x.example")):
            redeem(sent)
        for sent in (
            provider.assertion(other),
            provider.assertion(client_id="x"),
            "a.b.c",
            provider.assertion(jti=None),
        ):
            redeem(sent)
    lines = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    remedies = ["another jti", "clocks", "", "publishes the keys", "another id than here", "RFC 7523", "RFC 7523"]
    remedies[2] = "Name issuer and client id in IDENTITY_PROVIDERS"
    assert len(lines) == len(remedies)
    assert all(remedy in line for line, remedy in zip(lines, remedies, strict=True)), lines
    assert raw not in caplog.text


# How the client proves who it is


SLOW = "django.contrib.auth.hashers.PBKDF2PasswordHasher"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The slow hashes that were made."""
    from django.contrib.auth.hashers import PBKDF2PasswordHasher

    made: list[str] = []
    encode = PBKDF2PasswordHasher.encode

    def counted(self: Any, password: str, *args: Any, **kwargs: Any) -> str:
        made.append(password)
        return encode(self, password, *args, **kwargs)

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", counted)
    monkeypatch.setattr(PBKDF2PasswordHasher, "iterations", 10)
    return made


def of_the_admin(secret: str) -> None:
    """Let the client have the hash that the toolkit makes of a secret in the admin."""
    with override_settings(PASSWORD_HASHERS=[SLOW]):
        row = Application.objects.get(client_id=CLIENT_ID)
        row.client_secret, row.hash_client_secret = secret, True
        row.save()


@override_settings(PASSWORD_HASHERS=[SLOW])
def test_a_secret_of_the_admin_is_hashed_slowly_once(provider: IdentityProvider, hashed: list[str]) -> None:
    secret = "s" * 40
    of_the_admin(secret)
    hashed.clear()
    for _ in range(3):
        assert granted(redeem(provider.assertion(), secret=secret))
    assert hashed == [secret]
    wrong = Client(raise_request_exception=False)
    sent = {"grant_type": GRANT, "assertion": provider.assertion()}
    assert wrong.post(TOKEN, sent, headers={"authorization": basic(CLIENT_ID, "x" * 40)}).status_code == 401
    assert hashed == [secret]


@override_settings(PASSWORD_HASHERS=[SLOW])
def test_a_short_secret_keeps_its_slow_hash(provider: IdentityProvider, hashed: list[str]) -> None:
    of_the_admin("short")
    assert granted(redeem(provider.assertion(), secret="short"))
    assert Application.objects.get(client_id=CLIENT_ID).client_secret.startswith("pbkdf2_")


@override_settings(PASSWORD_HASHERS=[SLOW])
def test_wrong_secrets_from_many_addresses_take_the_processor_a_few_times(
    provider: IdentityProvider, hashed: list[str]
) -> None:
    cache.clear()
    of_the_admin("s" * 40)
    hashed.clear()
    for number in range(40):
        sent = {"grant_type": GRANT, "assertion": "x", "client_id": CLIENT_ID, "client_secret": "wrong"}
        assert Client().post(TOKEN, sent, REMOTE_ADDR=f"192.0.2.{number}").status_code == 401
    assert len(hashed) <= 30


def test_a_client_can_sign_in_place_of_a_secret(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    own, url = key_for("ES256", "client"), "https://client.example/jwks.json"
    published = {url: [own], ENTRY["jwks_uri"]: provider.keys}
    monkeypatch.setattr(identity_providers, "fetched_keys", lambda asked, fetcher, again: published[asked])

    def signs(key: JWK) -> Any:
        claims = claims_of(iss=CLIENT_ID, sub=CLIENT_ID, aud=ORIGIN)
        proof = {"client_assertion": signed(claims, key), "client_assertion_type": ASSERTION_TYPE}
        return redeem(provider.assertion(), secret=None, **proof)

    assert "This client has no keys" in refused(signs(own), "invalid_client", 401)
    with override_settings(MCP_DJANGO=settings_with(ENTRY | {"client_keys": {CLIENT_ID: url}})):
        metadata = Client().get("/.well-known/oauth-authorization-server").json()
        assert "private_key_jwt" in metadata["token_endpoint_auth_methods_supported"]
        refused(signs(key_for("ES256", "another")), "invalid_client", 401)
        assert granted(signs(own))
