"""An identity provider for the tests: it signs assertions about users, or whatever else it is told to."""

from typing import Any

from django.test import Client
from jwcrypto.jwk import JWK
from oauth2_provider.models import Application

from mcp_django.oauth.stored_tokens import hashed_secret
from tests.jwts import claims_of, key_for, public_set, signed
from tests.oauth_flow import ORIGIN, RESOURCE
from tests.service_account import TOKEN, basic

ISSUER = "https://login.example"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ID, SECRET = "claude-at-work", "secret-of-the-client"
ENTRY: dict[str, Any] = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks.json", "clients": [CLIENT_ID]}


def settings_with(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"BASE_URL": ORIGIN, "IDENTITY_PROVIDERS": list(entries)}


def make_client(client_id: str = CLIENT_ID, **values: Any) -> Application:
    """An application that an administrator added."""
    kept = {"client_secret": hashed_secret(SECRET), "hash_client_secret": False, "client_type": "confidential"}
    kept |= {"authorization_grant_type": "authorization-code", "redirect_uris": "https://claude.example/callback"}
    application: Application = Application.objects.create(client_id=client_id, **(kept | values))
    return application


class IdentityProvider:
    """Its issuer, its keys, and what was asked of it."""

    def __init__(self, issuer: str = ISSUER, kid: str = "idp-1") -> None:
        self.issuer = issuer
        self.keys = [key_for("ES256", kid)]
        self.asked: list[str] = []

    def published(self) -> str:
        return public_set(*self.keys)

    def claims(self, **changes: Any) -> dict[str, Any]:
        own = {"iss": self.issuer, "sub": "U0194", "aud": ORIGIN, "resource": RESOURCE, "client_id": CLIENT_ID}
        return claims_of(**(own | {"scope": "mcp:read mcp:write"} | changes))

    def assertion(self, key: JWK | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """An assertion about a user, as it gives one to a client."""
        members = {"typ": "oauth-id-jag+jwt", "alg": "ES256"} | (header or {})
        algorithm = members.pop("alg")
        return signed(self.claims(**claims), key or self.keys[-1], algorithm, **members)


def redeem(raw: str | list[str] | None, client_id: str = CLIENT_ID, secret: str | None = SECRET, **params: Any) -> Any:
    """Ask for a token by an assertion; None leaves a parameter out."""
    sent = {"grant_type": GRANT, "assertion": raw} | params
    headers = {} if secret is None else {"authorization": basic(client_id, secret)}
    wanted = {key: value for key, value in sent.items() if value is not None}
    return Client(raise_request_exception=False).post(TOKEN, wanted, headers=headers)
