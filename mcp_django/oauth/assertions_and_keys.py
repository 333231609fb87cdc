"""Signed assertions: JSON Web Tokens by which clients and identity providers say who asks (RFC 7519, 7521, 7523).

Administrators enter the *keys* that check assertions, or the server fetches a set from the URL where their owner
publishes it. A fetched set is cached for ten minutes. If none of its keys fits a signature, the server fetches the set
again, at most once a minute: a new key works at once, and nobody can make the server fetch without end.

Nothing in an *assertion* is trusted before its signature is checked, and its header cannot bring a key: ``kid`` only
chooses among the keys configured for its issuer.
"""

import base64
import binascii
import hashlib
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import unquote_plus

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.db import IntegrityError, router, transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from jwcrypto.common import JWException
from jwcrypto.jwk import JWK
from jwcrypto.jws import JWS
from oauthlib.oauth2.rfc6749 import errors

from ..models import UsedAssertion
from ..problems import Problem
from ..protocol.errors import ProtocolError
from ..protocol.messages import decode
from .document_fetcher import Fetcher, FetchFailed, fetcher_for
from .resource_urls import issuer, origin

logger = logging.getLogger("mcp_django")

# Key type (kty) and curve (crv) for each algorithm.
KINDS: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
MAX_KEYS: Final = 50
# Members that are read from a JSON Web Key, and those that only its owner may have (RFC 7518, section 6; RFC 8037).
PUBLIC: Final = frozenset({"kty", "n", "e", "crv", "x", "y", "kid", "use", "alg"})
PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
# Seconds for which a fetched set is used as it is, for which it is used while fetching fails, and between two attempts.
FRESH: Final = 600
STALE: Final = 3600
PAUSE: Final = 60


class InvalidKeys(Exception):
    """Raised when a text or a fetched set has no public key that can check a signature."""


def read_keys(text: str) -> list[JWK]:
    """Return the public keys in a text: PEM, JSON Web Key, or JSON Web Key Set (RFC 7517). Raises ``InvalidKeys``."""
    try:
        if not text.lstrip().startswith("-----BEGIN"):
            return _public_keys(json.loads(text))
        members = JWK.from_pem(text.strip().encode()).export(as_dict=True)
    except (JWException, ValueError, TypeError, RecursionError) as error:
        raise InvalidKeys("This is neither PEM nor a JSON Web Key nor a set of them.") from error
    # jwcrypto makes up an id from the key, which signers need not name.
    return _public_keys({name: value for name, value in members.items() if name != "kid"})


def _public_keys(data: Any) -> list[JWK]:
    members = data.get("keys", [data]) if isinstance(data, dict) else None
    if not isinstance(members, list) or len(members) > MAX_KEYS or not all(isinstance(item, dict) for item in members):
        raise ValueError("no set of keys")
    if any(PRIVATE.intersection(member) for member in members):
        raise InvalidKeys("This has a private key or a shared secret. Only the public key belongs here.")
    usable = [key for member in members if (key := _usable(member)) is not None]
    if not usable:
        raise InvalidKeys("This has no key for RS256 (2048 bits or more), ES256 (P-256) or EdDSA (Ed25519).")
    return usable


def fits(key: JWK, algorithm: str, kid: str | None) -> bool:
    """Return whether a key can check a signature by ``algorithm`` and with ``kid``, None for no key id."""
    kind, curve = KINDS[algorithm]
    if key["kty"] != kind or key.get("crv") != curve or key.get("alg", algorithm) != algorithm:
        return False
    return kid is None or key.get("kid", kid) == kid


def _usable(member: dict[str, Any]) -> JWK | None:
    """Return the public key of a JSON Web Key that can check signatures, None for keys of encryption and others."""
    members = {name: value for name, value in member.items() if name in PUBLIC and isinstance(value, str)}
    operations = member.get("key_ops", ["verify"])
    if members.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    if (members.get("kty"), members.get("crv")) not in KINDS.values():
        return None
    try:
        key = JWK(**members)
        public: Any = key.get_op_key("verify")
    except (JWException, ValueError, TypeError):
        return None
    is_good = not isinstance(public, RSAPublicKey) or MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS
    return key if is_good else None


# Fetched key sets


class FetchedLately(Exception):
    """Raised when keys cannot be fetched again yet; ``seconds`` are left."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = math.ceil(seconds)


@dataclass(slots=True)
class _KeySet:
    """A cached set of keys, with the time of the fetch and of the last attempt."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    keys: list[JWK] = field(default_factory=list)
    at: float = float("-inf")
    tried: float = float("-inf")


_sets: dict[tuple[str, Fetcher], _KeySet] = {}


def fetched_keys(url: str, fetcher: Fetcher, again: bool) -> Iterable[JWK]:
    """Return the keys that are published at an https URL, and cached; ``again`` fetches them anew.

    While fetching fails, which is logged, the last keys serve for an hour, then none.
    """
    key_set = _sets.setdefault((url, fetcher), _KeySet())
    with key_set.lock:
        now = time.monotonic()
        is_old = now - key_set.at > FRESH
        waited = now - key_set.tried
        if again and waited <= PAUSE:
            raise FetchedLately(PAUSE - waited + 1)
        if (is_old or again) and waited > PAUSE:
            key_set.tried = now
            try:
                key_set.keys = _public_keys(fetcher.fetch(url).data)
                key_set.at = now
            except (FetchFailed, InvalidKeys, ValueError) as error:
                logger.warning("The keys at %s cannot be used: %s", url, error)
        return key_set.keys if now - key_set.at <= STALE else []


def _forget(**kwargs: Any) -> None:
    _sets.clear()


setting_changed.connect(_forget)


# Maximum characters of an assertion, of a claim or key id in it, and maximum keys tried for one signature.
MAX_SIZE: Final = 16 * 1024
MAX_NAME: Final = 255
MAX_TRIES: Final = 8
# Seconds by which the clocks of the signer and of this server may differ.
LEEWAY: Final = 30
# Upper bound for times in claims, in seconds since 1970. It refuses infinity too.
LATEST: Final = 10**11
# Header parameters that would require more processing or bring a key of their own.
REFUSED_HEADERS: Final = ("crit", "b64", "jwk", "jku", "x5u", "cty", "enc", "zip")
PART: Final = re.compile(r"[A-Za-z0-9_-]+")

# Returns the keys that may have signed. True asks for current ones, after no known key fitted the signature.
KeySource = Callable[[bool], Iterable[JWK]]


# Remedies for administrators
MALFORMED: Final = "The program that signs the assertion does not follow RFC 7523."
CLOCKS: Final = "Do the clocks of this server and of the signer agree? mcp_doctor shows this server's time."
AUDIENCE: Final = "The signer has to name only this server's issuer. Is BASE_URL right?"
REPEATED: Final = "The signer has to make a new assertion, with another jti, for each request."
LONG_LIFE: Final = "The signer has to give its assertions a shorter lifetime."
NO_KEY: Final = "The assertion is not signed by a key of its issuer."


class InvalidAssertion(Exception):
    """Raised when an assertion is refused; the text says why, to the client that sent it too.

    Neither it nor ``remedy`` quotes the assertion; ``remedy`` is "" where it depends on who owns the keys. ``wait`` is
    the number of seconds after which the same assertion could be accepted, 0 for never.
    """

    def __init__(self, text: str, remedy: str = MALFORMED, *, wait: int = 0) -> None:
        super().__init__(text)
        self.remedy = remedy
        self.wait = wait

    def reason(self, wrong_key: str) -> Problem:
        """Return the refusal for the log; ``wrong_key`` is the remedy for a key that does not fit."""
        return Problem(str(self), self.remedy or wrong_key, cause=str(self))


@dataclass(frozen=True, slots=True)
class Assertion:
    """A parsed assertion whose signature is not checked yet."""

    raw: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    def text(self, claim: str) -> str:
        """Return a claim of the assertion if it is text, else ""."""
        value = self.claims.get(claim)
        return value if isinstance(value, str) else ""


def read_assertion(raw: str) -> Assertion:
    """Parse the compact form of a signed assertion (RFC 7515, section 3.1), without checking it."""
    if len(raw) > MAX_SIZE:
        raise InvalidAssertion(f"The assertion has over {MAX_SIZE} characters.")
    parts = raw.split(".")
    if len(parts) != 3 or not all(map(PART.fullmatch, parts)):
        raise InvalidAssertion("The assertion is not a signed JSON Web Token (three parts in base64url).")
    return Assertion(raw, _object(parts[0], "header"), _object(parts[1], "claims"))


def verify(
    assertion: Assertion,
    keys: KeySource,
    signer: str,
    audiences: Collection[str],
    max_life: int,
    typ: str = "",
    required: tuple[str, ...] = ("sub", "jti"),
) -> None:
    """Check signature (by the keys of ``signer``), audience, lifetime and required claims (RFC 7523, section 3).

    ``max_life`` is in seconds. ``typ`` is the type that the header must name, "" for a plain or client authentication
    JWT. ``required`` names claims that must be non-empty text.
    """
    header = assertion.header
    # Compared, not looked up: it can be of a type that has no hash.
    if header.get("alg") not in tuple(KINDS):
        raise InvalidAssertion(f"The algorithm (alg) of the assertion must be one of {', '.join(KINDS)}.")
    refused = [name for name in REFUSED_HEADERS if name in header]
    if refused:
        raise InvalidAssertion(f"The header of the assertion has {', '.join(refused)}, which is not accepted.")
    kid = header.get("kid", "")
    header_type = header.get("typ", "")
    if not isinstance(kid, str) or len(kid) > MAX_NAME or not isinstance(header_type, str):
        raise InvalidAssertion("The key (kid) and the type (typ) of the assertion must be short texts.")
    # The media type may be written in full and in upper or lower case (RFC 7515, section 4.1.9).
    kind = header_type.lower().removeprefix("application/")
    if typ and kind != typ:
        raise InvalidAssertion(f"The type (typ) of the assertion must be {typ}.")
    if not typ and kind not in ("", "jwt", "client-authentication+jwt"):
        raise InvalidAssertion("The type (typ) of the assertion must be JWT.")
    if assertion.claims.get("iss") != signer:
        raise InvalidAssertion("The issuer (iss) of the assertion is not the expected one.")
    try:
        if not (_is_signed(assertion, keys(False)) or _is_signed(assertion, keys(True))):
            raise InvalidAssertion(NO_KEY, "")
    except FetchedLately as lately:
        raise InvalidAssertion(f"{NO_KEY} New keys will be fetched in a moment.", "", wait=lately.seconds) from None
    for name in required:
        if not 0 < len(assertion.text(name)) <= MAX_NAME or not assertion.text(name).isprintable():
            raise InvalidAssertion(f"The assertion needs {name}, a text of at most {MAX_NAME} characters.")
    audience = assertion.claims.get("aud")
    # Each of several audiences could pass the assertion on to the others.
    if isinstance(audience, list) and len(audience) == 1:
        [audience] = audience
    if not isinstance(audience, str) or audience.removesuffix("/") not in {url.rstrip("/") for url in audiences}:
        raise InvalidAssertion("The audience (aud) of the assertion must be only the issuer of this server.", AUDIENCE)
    now = time.time()
    expires = _time(assertion, "exp")
    if expires is None:
        raise InvalidAssertion("The assertion needs the time at which it expires (exp).")
    issued = _time(assertion, "iat")
    begins = _time(assertion, "nbf")
    if typ and issued is None:
        raise InvalidAssertion("The assertion needs the time at which it was issued (iat).")
    if expires <= now - LEEWAY:
        raise InvalidAssertion("The assertion has expired (exp).", CLOCKS)
    if any(moment is not None and moment > now + LEEWAY for moment in (issued, begins)):
        raise InvalidAssertion("The assertion is not valid yet (iat, nbf). Do the clocks agree?", CLOCKS)
    if expires - (now if issued is None else issued) > max_life + LEEWAY:
        raise InvalidAssertion(f"The assertion can be valid for {max_life} seconds at most.", LONG_LIFE)


def use_once(assertion: Assertion) -> None:
    """Record the ``jti`` of a verified assertion; raise ``InvalidAssertion`` if any worker has recorded it before."""
    name = json.dumps([assertion.text("iss"), assertion.text("jti")])
    expires = datetime.fromtimestamp(assertion.claims["exp"] + LEEWAY, tz=UTC)
    if not django_settings.USE_TZ:
        expires = timezone.make_naive(expires)
    used = UsedAssertion(id=hashlib.sha256(name.encode()).hexdigest(), expires=expires)
    try:
        with transaction.atomic(using=router.db_for_write(UsedAssertion)):
            used.save(force_insert=True)
    except IntegrityError:
        raise InvalidAssertion("The assertion was used before (jti).", REPEATED) from None


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        # Refuses a repeated name, of which two parsers could read different values (RFC 7519, section 4).
        value = decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, ProtocolError):
        value = None
    if not isinstance(value, dict):
        raise InvalidAssertion(f"The {what} of the assertion must be a JSON object with each name once.")
    return value


def _is_signed(assertion: Assertion, keys: Iterable[JWK]) -> bool:
    algorithm = assertion.header["alg"]
    kid = assertion.header.get("kid")
    for key in [key for key in keys if fits(key, algorithm, kid)][:MAX_TRIES]:
        signature = JWS()
        signature.allowed_algs = [algorithm]
        with suppress(JWException, ValueError):
            signature.deserialize(assertion.raw)
            signature.verify(key, alg=algorithm)
            if signature.is_valid:
                return True
    return False


def _time(assertion: Assertion, name: str) -> float | None:
    value = assertion.claims.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < LATEST:
        raise InvalidAssertion(f"{name} of the assertion is not a time in seconds.")
    return float(value)


# Client authentication at the token endpoint

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ID: Final = 255
# Maximum lifetime of a client's assertion, in seconds. The client can sign another at any time.
MAX_LIFE: Final = 600
NOT_THE_CLIENT: Final = "The subject (sub) of the assertion is not the client."


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client at the token endpoint: an assertion, a secret, or only its id."""

    client_id: str
    secret: str = field(default="", repr=False)
    assertion: Assertion | None = field(default=None, repr=False)


def read_credentials(request: HttpRequest) -> Credentials:
    """Read a client's signed assertion, or its id and secret (RFC 6749, section 2.3; RFC 7523, section 2.2)."""
    has_header = "HTTP_AUTHORIZATION" in request.META
    has_assertion = "client_assertion" in request.POST or "client_assertion_type" in request.POST
    if has_header + has_assertion + bool(request.POST.get("client_secret")) > 1:
        raise errors.InvalidRequestError(description="Use one way to prove who you are, not several.")
    client_parameter = request.POST.get("client_id", "")
    if has_assertion:
        if request.POST.get("client_assertion_type") != ASSERTION_TYPE:
            raise errors.InvalidRequestError(description=f"client_assertion_type must be {ASSERTION_TYPE}.")
        try:
            assertion = read_assertion(request.POST.get("client_assertion", ""))
        except InvalidAssertion as refusal:
            raise errors.InvalidClientError(description=str(refusal)) from None
        # The assertion has the client's id too (RFC 7523, section 3); it is not verified yet.
        credentials = Credentials(assertion.text("sub"), assertion=assertion)
    elif has_header:
        kind, _, encoded = request.META["HTTP_AUTHORIZATION"].partition(" ")
        try:
            text = base64.b64decode(encoded.strip(), validate=True).decode() if kind.lower() == "basic" else ""
        except (binascii.Error, ValueError):
            text = ""
        client_id, colon, secret = text.partition(":")
        if not colon:
            raise errors.InvalidClientError(description="The Authorization header must be Basic, with id and secret.")
        credentials = Credentials(unquote_plus(client_id), secret=unquote_plus(secret))
    else:
        credentials = Credentials(client_parameter, secret=request.POST.get("client_secret", ""))
    if client_parameter and client_parameter != credentials.client_id:
        raise errors.InvalidRequestError(description="client_id does not match the credentials.")
    if not credentials.client_id or len(credentials.client_id) > MAX_ID or not credentials.client_id.isprintable():
        raise errors.InvalidClientError(description="There is no client with this id.")
    return credentials


def keys_of(holder: Any) -> KeySource:
    """Return a source of the keys that check an owner's assertions, from ``jwks_uri`` or ``public_key``."""

    if holder.jwks_uri:
        return partial(fetched_keys, holder.jwks_uri, fetcher_for(holder.jwks_uri))

    def keys(again: bool) -> Iterable[JWK]:
        with suppress(InvalidKeys):
            return read_keys(holder.public_key)
        return []

    return keys


def check_assertion(request: HttpRequest, client_id: str, assertion: Assertion, keys: KeySource) -> None:
    """Verify a client's signed assertion by its keys: for this server, not used before (RFC 7523, section 3)."""
    # The audience is the issuer (RFC 7523bis) or, still accepted, the token endpoint (RFC 7523, section 3).
    verify(assertion, keys, client_id, [issuer(request), origin(request) + reverse("mcp_oauth:token")], MAX_LIFE)
    if assertion.text("sub") != client_id:
        raise InvalidAssertion(NOT_THE_CLIENT)
    use_once(assertion)
