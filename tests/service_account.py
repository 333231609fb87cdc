"""Service accounts for the tests, and programs that ask for tokens as them."""

import base64
from typing import Any
from urllib.parse import quote

from django.test import Client
from jwcrypto.jwk import JWK

from mcp_django.models import ServiceAccount
from mcp_django.oauth.service_accounts import new_secret
from tests.factories import make_user
from tests.jwts import claims_of, signed
from tests.oauth_flow import ORIGIN, RESOURCE

TOKEN = "/oauth/token/"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def make_account(**values: Any) -> tuple[ServiceAccount, str]:
    """An account and its secret."""
    user = values.pop("user", None) or make_user("robot", "testapp.view_author")
    account = ServiceAccount(**({"name": "Nightly import", "user": user, "scopes": ["mcp:read"]} | values))
    secret = new_secret(account)
    account.save()
    return account, secret


def basic(client_id: str, secret: str) -> str:
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def ask(**params: Any) -> Any:
    """Ask for a token; None leaves a parameter out, and `authorization` is the header."""
    headers = {"authorization": params.pop("authorization")} if "authorization" in params else {}
    sent = {"grant_type": "client_credentials", "resource": RESOURCE} | params
    wanted = {key: value for key, value in sent.items() if value is not None}
    return Client(raise_request_exception=False).post(TOKEN, wanted, headers=headers)


def ask_by_secret(account: ServiceAccount, secret: str, **params: Any) -> Any:
    return ask(authorization=basic(account.client_id, secret), **params)


def assertion(account: ServiceAccount, key: JWK, algorithm: str = "ES256", **claims: Any) -> str:
    """What the program of an account signs."""
    own = {"iss": account.client_id, "sub": account.client_id, "aud": ORIGIN}
    return signed(claims_of(**(own | claims)), key, algorithm)


def ask_by_key(raw: str, **params: Any) -> Any:
    return ask(client_assertion=raw, client_assertion_type=ASSERTION_TYPE, **params)
