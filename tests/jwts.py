"""Keys and signed tokens for the tests, as identity providers and clients make them; and as an attacker would."""

import base64
import json
import time
import uuid
from functools import cache
from typing import Any

from jwcrypto.jwk import JWK

KINDS: dict[str, dict[str, Any]] = {
    "RS256": {"kty": "RSA", "size": 2048},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}


@cache
def key_for(algorithm: str = "ES256", kid: str | None = None) -> JWK:
    """A private key: the same one for the same arguments."""
    named = {} if kid is None else {"kid": kid}
    return JWK.generate(**KINDS[algorithm], **named)


def public_set(*keys: JWK) -> str:
    """What their owner publishes of keys."""
    return json.dumps({"keys": [key.export_public(as_dict=True) for key in keys]})


def claims_of(**changes: Any) -> dict[str, Any]:
    """Claims of a token that is good for five minutes; None leaves one out."""
    now = int(time.time())
    claims = {"jti": uuid.uuid4().hex, "iat": now, "exp": now + 300} | changes
    return {name: value for name, value in claims.items() if value is not None}


def part(value: Any) -> str:
    """One part of a token."""
    raw = value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(claims: Any, key: JWK | None = None, algorithm: str = "ES256", **header: Any) -> str:
    """A signed token; a member of the header that is None is left out."""
    key = key or key_for(algorithm)
    members = {"alg": algorithm, "typ": "JWT", "kid": key.get("kid")} | header
    named = {name: value for name, value in members.items() if value is not None}
    raw = f"{part(named)}.{part(claims)}"
    return f"{raw}.{part(_signature(raw, key, members['alg']))}"


def _signature(raw: str, key: JWK, algorithm: str) -> bytes:
    """The signature of what no honest library would sign."""
    if algorithm == "none":
        return b""
    from jwcrypto.jwa import JWA

    engine = JWA.signing_alg(algorithm)
    return engine.sign(key, raw.encode())
