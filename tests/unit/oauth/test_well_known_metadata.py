from typing import Any

import pytest
from django.test import Client, override_settings

from mcp_django import site
from tests.configured import configure
from tests.oauth_flow import ORIGIN, RESOURCE

PRM = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (f"{PRM}/mcp", RESOURCE),
        (f"{PRM}/mcp/", RESOURCE + "/"),
        (PRM, RESOURCE),
        (PRM + "/", RESOURCE),
        (f"/mcp{PRM}", RESOURCE),
        (f"/mcp{PRM}/", RESOURCE),
    ],
)
def test_J180_the_resource_echoes_the_slash_that_was_asked_for(path: str, resource: str) -> None:
    response = Client().get(path)
    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "public, max-age=300"
    assert response.json() == {
        "resource": resource,
        "resource_name": "django",
        "authorization_servers": [ORIGIN],
        "scopes_supported": ["mcp:read", "mcp:write"],
        "bearer_methods_supported": ["header"],
    }


METHODS = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@pytest.mark.parametrize("document", [SERVER, OPENID])
@pytest.mark.parametrize("form", ["{0}", "{0}/", "{0}/mcp", "{0}/mcp/", "/mcp{0}", "/token{0}", "/oauth/token{0}"])
def test_J180_the_server_document_is_the_same_wherever_clients_look(document: str, form: str) -> None:
    response = Client().get(form.format(document))
    assert response.status_code == 200
    assert response.json() == {
        "issuer": ORIGIN,
        "authorization_endpoint": f"{ORIGIN}/oauth/authorize/",
        "token_endpoint": f"{ORIGIN}/oauth/token/",
        "revocation_endpoint": f"{ORIGIN}/oauth/revoke_token/",
        "registration_endpoint": f"{ORIGIN}/oauth/register/",
        "scopes_supported": ["mcp:read", "mcp:write"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": METHODS,
        "token_endpoint_auth_signing_alg_values_supported": ["RS256", "ES256", "EdDSA"],
        "revocation_endpoint_auth_methods_supported": METHODS,
        "revocation_endpoint_auth_signing_alg_values_supported": ["RS256", "ES256", "EdDSA"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
    }


@pytest.mark.parametrize("documents", ["off", []])
def test_documents_of_clients_are_not_offered_where_none_is_taken(settings: Any, documents: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": documents})
    assert "client_id_metadata_document_supported" not in Client().get(SERVER).json()


@pytest.mark.parametrize("documents", ["all", "ask", ["claude.ai"]])
def test_a_client_that_has_a_document_needs_no_secret_or_signs(settings: Any, documents: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": documents})
    methods = ["client_secret_basic"]
    settings.OAUTH2_PROVIDER = {
        **settings.OAUTH2_PROVIDER,
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": methods,
    }
    found = Client().get(SERVER).json()
    assert found["client_id_metadata_document_supported"] is True
    assert found["token_endpoint_auth_methods_supported"] == ["none", *methods, "private_key_jwt"]
    assert found["revocation_endpoint_auth_methods_supported"] == ["none", *methods, "private_key_jwt"]


@pytest.mark.parametrize(
    "path",
    [
        f"{PRM}/other",
        f"{PRM}/mcp/x",
        f"{PRM}//mcp",
        f"{PRM}/mcp//",
        f"{PRM}/%00",
        f"{PRM}/%0a",
        f"/other{PRM}",
        f"/a/b/c{SERVER}",
        f"{SERVER}/other",
        f"{OPENID}/other",
        f"/x{OPENID}",
    ],
)
def test_unknown_paths_are_a_clean_404(path: str) -> None:
    response = Client().get(path)
    assert response.status_code == 404
    assert response.json() == {"error": "not_found"}


def test_J180_a_foreign_host_does_not_change_a_document() -> None:
    with override_settings(ALLOWED_HOSTS=["*"]):
        for path in (PRM, SERVER):
            assert "evil.example" not in Client().get(path, HTTP_HOST="evil.example").content.decode()


def test_documents_need_no_login() -> None:
    middleware = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
    ]
    with override_settings(MIDDLEWARE=middleware):
        assert Client().get(f"{PRM}/mcp").status_code == 200
        assert Client().get(f"/mcp{PRM}").status_code == 200
        assert Client().get(f"/mcp{PRM}").cookies == {}


def test_another_method_is_refused_in_json() -> None:
    response = Client().post(PRM)
    assert response.status_code == 405
    assert response.json() == {"error": "method_not_allowed"}
    assert Client().head(PRM).status_code == 200


def test_registration_is_advertised_unless_it_is_off(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"REGISTRATION": "off"}
    assert "registration_endpoint" not in Client().get(SERVER).json()


def test_a_read_only_site_offers_reading(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"READ_ONLY": True}
    assert Client().get(PRM).json()["scopes_supported"] == ["mcp:read"]


def test_each_of_several_endpoints_has_its_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", lambda: {"/mcp": None, "/staff/mcp": None})
    assert Client().get(f"{PRM}/staff/mcp").json()["resource"] == f"{ORIGIN}/staff/mcp"
    assert Client().get(f"/staff/mcp{PRM}").json()["resource"] == f"{ORIGIN}/staff/mcp"
    assert Client().get(PRM).json()["resource"] == RESOURCE


def test_without_an_endpoint_there_is_no_document_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", dict)
    assert Client().get(PRM).status_code == 404


def test_an_endpoint_at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", lambda: {"": None})
    assert Client().get(PRM).json()["resource"] == ORIGIN
    assert Client().get(PRM + "/").json()["resource"] == ORIGIN + "/"


def test_R33_a_scope_is_advertised_once_something_needs_it() -> None:
    def shut_down(request: Any) -> str:
        """Shut down."""
        return "down"

    site.add_tool(shut_down, scopes=["mcp:admin"])
    try:
        assert Client().get(SERVER).json()["scopes_supported"] == ["mcp:read", "mcp:write", "mcp:admin"]
    finally:
        site.remove_tool("shut_down")
