"""The grants beside codes and refresh tokens: offered where they are set up, and said so in the metadata."""

from typing import Any

from django.test import Client, override_settings

from mcp_django.oauth.program_grants import PROGRAM_GRANTS
from tests.oauth_flow import ORIGIN

BASE = {"BASE_URL": ORIGIN}


def metadata() -> dict[str, Any]:
    found: dict[str, Any] = Client().get("/.well-known/oauth-authorization-server").json()
    return found


@override_settings(MCP_DJANGO=BASE | {"CLIENT_DOCUMENTS": {"hosts": "off"}})
def test_nothing_is_offered_unless_it_is_set_up() -> None:
    found = metadata()
    assert found["grant_types_supported"] == ["authorization_code", "refresh_token"]
    assert "private_key_jwt" not in found["token_endpoint_auth_methods_supported"]
    assert "token_endpoint_auth_signing_alg_values_supported" not in found


@override_settings(MCP_DJANGO=BASE | {"SERVICE_ACCOUNTS": True, "CLIENT_DOCUMENTS": {"hosts": "off"}})
def test_service_accounts_are_offered_with_both_ways_to_sign_in() -> None:
    found = metadata()
    assert found["grant_types_supported"] == ["authorization_code", "refresh_token", "client_credentials"]
    assert {"client_secret_basic", "private_key_jwt"} <= set(found["token_endpoint_auth_methods_supported"])
    assert found["token_endpoint_auth_signing_alg_values_supported"] == ["RS256", "ES256", "EdDSA"]
    assert "private_key_jwt" not in found["revocation_endpoint_auth_methods_supported"]
    methods = found["token_endpoint_auth_methods_supported"]
    assert len(methods) == len(set(methods))


def test_what_is_not_offered_is_refused_as_unsupported() -> None:
    for grant in PROGRAM_GRANTS:
        answer = Client().post("/oauth/token/", {"grant_type": grant, "client_id": "a", "client_secret": "b"})
        assert (answer.status_code, answer.json()) == (400, {"error": "unsupported_grant_type"})
