"""How a client program proves to the token endpoint who it is: by a secret, or by an assertion that it signed."""

import base64
import binascii
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_plus

from django.http import HttpRequest
from django.urls import reverse
from jwcrypto.jwk import JWK
from oauthlib.oauth2.rfc6749 import errors

from .assertions import Assertion, InvalidAssertion, KeySource, Rules, read_assertion, use_once, verify
from .keys import InvalidKeys, fetched_keys, read_keys
from .outgoing import fetcher_for
from .resource import issuer, origin

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ID: Final = 255
# Seconds that an assertion of a client may be good for; its own key makes another at any time.
MAX_LIFE: Final = 600
NOT_THE_CLIENT: Final = "The subject (sub) of the assertion is not the client."
# Which may be there several times: a token can be for several endpoints (RFC 8707, section 2).
REPEATED: Final = frozenset({"resource"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """As whom a client asks, and the secret or the assertion that shall prove it: one of the two, or neither."""

    client_id: str
    secret: str = field(default="", repr=False)
    assertion: Assertion | None = field(default=None, repr=False)


def read_credentials(request: HttpRequest) -> Credentials:
    """Return what a client sent to prove who it is (RFC 6749, section 2.3; RFC 7523, section 2.2).

    Raises:
        OAuth2Error: it is not well-formed, or there are two ways at once.
    """
    repeated = [name for name, values in request.POST.lists() if len(values) > 1 and name not in REPEATED]
    if repeated:
        raise errors.InvalidRequestError(description=f"Send {plain_names(repeated)} once.")
    ways = [
        "HTTP_AUTHORIZATION" in request.META,
        bool(request.POST.get("client_secret")),
        "client_assertion" in request.POST or "client_assertion_type" in request.POST,
    ]
    if sum(ways) > 1:
        raise errors.InvalidRequestError(description="Prove who you are in one way, not in several.")
    asked = request.POST.get("client_id", "")
    if ways[2]:
        found = _by_assertion(request, asked)
    elif ways[0]:
        found = _by_header(request.META["HTTP_AUTHORIZATION"], asked)
    else:
        found = Credentials(asked, secret=request.POST.get("client_secret", ""))
    if not found.client_id or len(found.client_id) > MAX_ID or not found.client_id.isprintable():
        raise errors.InvalidClientError(description="There is no client of this id.")
    return found


def keys_of(holder: Any) -> KeySource:
    """Return the keys of whoever has a ``jwks_uri``, or else a ``public_key``."""

    def keys(again: bool) -> Iterable[JWK]:
        if holder.jwks_uri:
            return fetched_keys(holder.jwks_uri, again, fetcher_for(holder.jwks_uri))
        with suppress(InvalidKeys):
            return read_keys(holder.public_key)
        return []

    return keys


def check_assertion(request: HttpRequest, client_id: str, assertion: Assertion, keys: KeySource) -> None:
    """Look whether the client has signed the assertion, for this server, and not sent it before (RFC 7523, section 3).

    Raises:
        InvalidAssertion: one of them is not so.
    """
    # The issuer, as RFC 7523bis will have it; or the token endpoint, as RFC 7523, section 3, still has it.
    audiences = [issuer(request), origin(request) + reverse("mcp_oauth:token")]
    verify(assertion, keys, Rules(client_id, audiences, MAX_LIFE))
    if assertion.text("sub") != client_id:
        raise InvalidAssertion(NOT_THE_CLIENT)
    use_once(assertion)


def plain_names(names: list[str]) -> str:
    """Return the names of parameters that are known; others are the sender's."""
    known = {"grant_type", "client_id", "client_secret", "client_assertion", "client_assertion_type", "assertion"}
    return ", ".join(sorted(known.union({"scope"}).intersection(names))) or "each parameter"


def _by_header(header: str, asked: str) -> Credentials:
    kind, _, encoded = header.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode() if kind.lower() == "basic" else ""
    except (binascii.Error, ValueError):
        text = ""
    client_id, colon, secret = text.partition(":")
    if not colon:
        raise errors.InvalidClientError(description="The Authorization header must be Basic, with id and secret.")
    return _same(Credentials(unquote_plus(client_id), secret=unquote_plus(secret)), asked)


def _by_assertion(request: HttpRequest, asked: str) -> Credentials:
    if request.POST.get("client_assertion_type") != ASSERTION_TYPE:
        raise errors.InvalidRequestError(description=f"client_assertion_type must be {ASSERTION_TYPE}.")
    try:
        assertion = read_assertion(request.POST.get("client_assertion", ""))
    except InvalidAssertion as refusal:
        raise invalid_client(refusal) from None
    # Both say the client's id (RFC 7523, section 3); nothing of it is believed yet.
    return _same(Credentials(assertion.text("sub"), assertion=assertion), asked)


def _same(found: Credentials, asked: str) -> Credentials:
    if asked and asked != found.client_id:
        raise errors.InvalidRequestError(description="client_id is not that of the credentials.")
    return found


def invalid_client(refusal: Any) -> errors.OAuth2Error:
    """Return the error for credentials that do not prove who the client is."""
    return errors.InvalidClientError(description=str(refusal))
