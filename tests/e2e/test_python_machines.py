"""Programs without a person, as the official Python client signs them in, against the example project."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from mcp import Client
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.database import Database
from tests.e2e.python_client import TIMEOUT, Wallet, call
from tests.e2e.servers import Server, manage, run_example
from tests.jwts import KINDS, claims_of, key_for, public_set, signed
from tests.tls_server import Authority, TLSServer, answer, serving

KEY = key_for("ES256", "idp-1")

MAKE = """
import json
from django.contrib.auth import get_user_model
from mcp_django.models import ServiceAccount
from mcp_django.oauth.service_accounts import new_secret
user = get_user_model().objects.get(username="admin")
account = ServiceAccount(name={name!r}, user=user, scopes=["mcp:write"], public_key={key!r})
secret = new_secret(account)
account.save()
print(json.dumps([account.client_id, secret]))
"""


# The server is two processes: what one of them has accepted, the other one has not seen.
SERVER = "uvicorn-workers"
ISSUER, CLIENT_ID, SECRET = "https://login.example", "claude-at-work", "secret-of-the-client"
ADD_CLIENT = f"""
from django.contrib.auth import get_user_model
from oauth2_provider.models import Application
Application.objects.create(
    client_id={CLIENT_ID!r}, client_secret={SECRET!r}, client_type="confidential",
    authorization_grant_type="authorization-code", redirect_uris="https://claude.example/callback",
)
get_user_model().objects.filter(username="admin").update(email="admin@corp.example")
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TLSServer]:
    """Where the identity provider publishes its keys."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with serving(authority.context("localhost")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.path))
        patch.setenv("E2E_JWKS_URI", f"https://localhost:{server.port}/jwks.json")
        server.answers[f"localhost:{server.port}/jwks.json"] = answer(json.loads(public_set(KEY)))
        yield server


@pytest.fixture(scope="module")
def example(prepared: Path, tmp_path_factory: pytest.TempPathFactory, published: TLSServer) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("example")
    settings = "tests.e2e.machine_settings"
    with run_example(prepared, directory, SERVER, "example_project.asgi:application", settings) as server:
        manage(server, "shell", "-v", "0", "-c", ADD_CLIENT)
        yield server


def make_account(server: Server, name: str, key: str = "") -> list[str]:
    found: list[str] = json.loads(manage(server, "shell", "-v", "0", "-c", MAKE.format(name=name, key=key)))
    return found


@asynccontextmanager
async def connected(server: Server, provider: Any, mode: str = "auto") -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(auth=provider, timeout=TIMEOUT) as http,
        Client(streamable_http_client(server.url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_program_signs_in_by_its_secret(example: Server, database: Database, mode: str, method: Any) -> None:
    client_id, secret = make_account(example, f"By secret {mode}")
    wallet = Wallet()
    provider = ClientCredentialsOAuthProvider(
        example.url, wallet, client_id, secret, token_endpoint_auth_method=method, issuer=example.origin
    )
    slug = f"{mode}-{method}".replace("_", "-")
    async with connected(example, provider, mode) as client:
        await call(client, "create_record", model="shop.category", values={"name": slug, "slug": slug})
    assert wallet.scopes == {"mcp:read", "mcp:write"}
    history = "SELECT change_message FROM django_admin_log ORDER BY id DESC LIMIT 1"
    assert f"service account By secret {mode} ({client_id})" in database.value(history)


@pytest.mark.parametrize("algorithm", KINDS)
async def test_a_program_signs_in_by_its_own_key(example: Server, algorithm: str) -> None:
    key = key_for(algorithm)
    client_id, _ = make_account(example, "By key", key.export_to_pem().decode())
    private: Any = key.get_op_key("sign")
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signing = SignedJWTParameters(
        issuer=client_id, subject=client_id, signing_key=pem.decode(), signing_algorithm=algorithm
    )
    provider = PrivateKeyJWTOAuthProvider(
        example.url, Wallet(), client_id, signing.create_assertion_provider(), issuer=example.origin
    )
    async with connected(example, provider) as client:
        found = await call(client, "query_records", model="shop.category", limit=1)
    assert found["rows"]


# Users of an identity provider


def assertion(audience: str, resource: str, **changes: Any) -> str:
    """What the identity provider says of a user to a client."""
    claims = {"iss": ISSUER, "sub": "U1", "aud": audience, "resource": resource, "client_id": CLIENT_ID}
    claims |= {"scope": "mcp:read mcp:write", "email": "admin@corp.example", "email_verified": True}
    return signed(claims_of(**(claims | changes)), KEY, typ="oauth-id-jag+jwt")


def for_user(server: Server, wallet: Wallet, method: Any = "client_secret_post", **changes: Any) -> Any:
    async def fetch(audience: str, resource: str) -> str:
        return assertion(audience, resource, **changes)

    return IdentityAssertionOAuthProvider(
        server.url, wallet, CLIENT_ID, SECRET, server.origin, fetch, token_endpoint_auth_method=method
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_acts_for_a_user_of_the_identity_provider(
    example: Server, database: Database, mode: str, method: Any
) -> None:
    wallet = Wallet()
    slug = f"idp-{mode}-{method}".replace("_", "-")
    async with connected(example, for_user(example, wallet, method), mode) as client:
        await call(client, "create_record", model="shop.category", values={"name": slug, "slug": slug})
    assert wallet.scopes == {"mcp:read", "mcp:write"}
    by = "SELECT username FROM auth_user JOIN django_admin_log l ON l.user_id = auth_user.id ORDER BY l.id DESC LIMIT 1"
    assert database.value(by) == "admin"
    links = "SELECT subject, username FROM mcp_django_linkedidentity l JOIN auth_user u ON u.id = l.user_id"
    assert ("U1", "admin") in database.rows(links)


async def test_a_new_user_sees_nothing_until_they_are_given_permissions(example: Server, database: Database) -> None:
    changes = {"sub": "U2", "email": "new@corp.example"}
    async with connected(example, for_user(example, Wallet(), **changes)) as client:
        # The tools of the catalogue are for users who may see something of it.
        assert "list_models" not in {tool.name for tool in (await client.list_tools()).tools}
    assert database.value("SELECT count(*) FROM auth_user WHERE username = 'new@corp.example'") == 1


async def test_of_many_requests_to_two_processes_one_redeems_an_assertion(example: Server) -> None:
    raw = assertion(example.origin, example.url)
    sent = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": raw, "client_id": CLIENT_ID}
    async with httpx2.AsyncClient(timeout=TIMEOUT) as http:

        async def redeem() -> int:
            answered = await http.post(f"{example.origin}/oauth/token/", data={**sent, "client_secret": SECRET})
            return answered.status_code

        assert sorted(await asyncio.gather(*(redeem() for _ in range(12)))) == [200] + [400] * 11
