import json
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from mcp_django.oauth.cors_and_refusals import cors
from mcp_django.protocol.headers import ALLOW_HEADERS

ORIGIN: Any = {"HTTP_ORIGIN": "http://localhost:6274"}
PATHS = [
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-protected-resource/unknown",
    "/mcp/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server",
    "/oauth/token/",
    "/oauth/token",
    "/oauth/register/",
    "/oauth/revoke_token/",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_preflight_allows_the_headers_of_mcp_clients(path: str) -> None:
    response = Client().options(path, HTTP_ACCESS_CONTROL_REQUEST_HEADERS="mcp-protocol-version", **ORIGIN)
    assert response.status_code == 204
    assert response.content == b""
    assert response["Access-Control-Allow-Origin"] == "*"
    assert response["Access-Control-Allow-Headers"] == ALLOW_HEADERS
    assert {"Authorization", "Content-Type", "MCP-Protocol-Version"} <= set(ALLOW_HEADERS.split(", "))
    assert ("POST" if "/oauth/" in path else "GET") in response["Access-Control-Allow-Methods"]
    assert "Access-Control-Allow-Credentials" not in response


@pytest.mark.django_db
@pytest.mark.parametrize("path", PATHS)
def test_answers_and_errors_can_be_read_from_any_origin(path: str) -> None:
    if path.startswith("/oauth/"):
        response = Client().post(path, json.dumps({}), content_type="application/json", **ORIGIN)
        assert response.status_code == 400
    else:
        response = Client().get(path, **ORIGIN)
    assert response["Access-Control-Allow-Origin"] == "*"
    assert "WWW-Authenticate" in response["Access-Control-Expose-Headers"]


@pytest.mark.parametrize("path", ["/oauth/authorize/", "/oauth/authorized_tokens/"])
def test_pages_cannot_be_read_from_other_origins(path: str) -> None:
    assert "Access-Control-Allow-Origin" not in Client().get(path, **ORIGIN)
    assert "Access-Control-Allow-Origin" not in Client().options(path, **ORIGIN)


def test_the_view_is_not_called_for_a_preflight() -> None:
    @cors("GET")
    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    assert view(RequestFactory().options("/")).status_code == 204
