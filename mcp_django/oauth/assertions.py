"""Signed assertions: the JSON Web Tokens by which clients and identity providers say who asks (RFC 7519, 7521, 7523).

Nothing of an assertion is believed before its signature is checked, and its header never says by which key: ``kid``
chooses among the keys that were configured for its issuer, and is compared with theirs and nothing else.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings as django_settings
from django.db import IntegrityError, router, transaction
from django.utils import timezone
from jwcrypto.common import JWException
from jwcrypto.jwk import JWK
from jwcrypto.jws import JWS

from ..exceptions import Reason
from ..models import UsedAssertion
from .keys import FetchedLately, fits

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
# Characters of an assertion, of one of its names, and keys that are tried.
MAX_SIZE: Final = 16 * 1024
MAX_NAME: Final = 255
MAX_TRIES: Final = 8
# Seconds by which clocks may differ.
LEEWAY: Final = 30
# A time as JSON writes it: later ones, fractions without end and truth values are none.
LATEST: Final = 10**11
# What of a header would have its reader do more, or take a key from it.
REFUSED_HEADERS: Final = ("crit", "b64", "jwk", "jku", "x5u", "cty", "enc", "zip")
PART: Final = re.compile(r"[A-Za-z0-9_-]+")

# Gives the keys that may have signed; True asks for those of now, when the ones that were known do not fit.
KeySource = Callable[[bool], Iterable[JWK]]


# What mends it.
MALFORMED: Final = "The program that signs the assertion makes it in another way than RFC 7523 says."
CLOCKS: Final = "Do the clocks of this server and of the signer agree? mcp_doctor tells this server's time."
AUDIENCE: Final = "The signer has to name this server by its issuer alone. Is BASE_URL right?"
REPEATED: Final = "The signer has to make a new assertion, with another jti, for each request."
LONG_LIFE: Final = "The signer has to give its assertions a shorter life."
NO_KEY: Final = "No key of its issuer has signed the assertion."


class InvalidAssertion(Exception):
    """The assertion is not accepted; the text says why, and is for the client that sent it too.

    It is one of the package's own, as ``remedy`` is: "" where that depends on whose keys they are. ``wait`` are the
    seconds after which the same could be accepted, 0 for never.
    """

    def __init__(self, text: str, remedy: str = MALFORMED, *, wait: int = 0) -> None:
        super().__init__(text)
        self.remedy, self.wait = remedy, wait

    def reason(self, wrong_key: str) -> Reason:
        """Return it for the log; ``wrong_key`` is what mends a key that does not fit."""
        return Reason(str(self), self.remedy or wrong_key, cause=str(self))


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of an assertion.

    ``issuer`` has signed it, for one of the ``audiences``. ``max_life`` is in seconds. ``typ`` is the type that its
    header has to name, "" for any that is not an ID-JAG's. ``required`` are claims that it has to have, as text.
    """

    issuer: str
    audiences: Collection[str]
    max_life: int
    typ: str = ""
    required: tuple[str, ...] = ("sub", "jti")


@dataclass(frozen=True, slots=True)
class Assertion:
    """What was sent, read and not yet believed."""

    raw: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    def text(self, claim: str) -> str:
        """Return a claim that is text, "" where it is none."""
        found = self.claims.get(claim)
        return found if isinstance(found, str) else ""


def read_assertion(raw: str) -> Assertion:
    """Return what the compact form of a signed token says (RFC 7515, section 3.1).

    Raises:
        InvalidAssertion: it is none, or too long.
    """
    if len(raw) > MAX_SIZE:
        raise InvalidAssertion(f"The assertion is over {MAX_SIZE} characters.")
    parts = raw.split(".")
    if len(parts) != 3 or not all(map(PART.fullmatch, parts)):
        raise InvalidAssertion("The assertion is not a signed JSON Web Token (three parts in base64url).")
    return Assertion(raw, _object(parts[0], "header"), _object(parts[1], "claims"))


def verify(assertion: Assertion, keys: KeySource, rules: Rules) -> None:
    """Check signature and claims.

    Raises:
        InvalidAssertion: one of them is not right.
    """
    _check_header(assertion.header, rules)
    if assertion.claims.get("iss") != rules.issuer:
        raise InvalidAssertion("The issuer (iss) of the assertion is not the one that was expected.")
    try:
        if not (_is_signed(assertion, keys(False)) or _is_signed(assertion, keys(True))):
            raise InvalidAssertion(NO_KEY, "")
    except FetchedLately as lately:
        raise InvalidAssertion(f"{NO_KEY} New keys are looked for in a moment.", "", wait=lately.seconds) from None
    _check_claims(assertion, rules)


def use_once(assertion: Assertion) -> None:
    """Take note of an assertion that was verified, so that no worker accepts it again.

    Raises:
        InvalidAssertion: it was used before.
    """
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


def clear_used_assertions() -> int:
    """Delete what was noted of assertions that have expired; return how much."""
    return UsedAssertion._default_manager.filter(expires__lt=timezone.now()).delete()[0]


# Reading


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        text = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidAssertion(f"The {what} of the assertion are no JSON object with each name once.")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers could take two values for one name (RFC 7519, section 4).
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# Checking


def _check_header(header: Mapping[str, Any], rules: Rules) -> None:
    if header.get("alg") not in ALGORITHMS:
        raise InvalidAssertion(f"The algorithm (alg) of the assertion must be one of {', '.join(ALGORITHMS)}.")
    found = [name for name in REFUSED_HEADERS if name in header]
    if found:
        raise InvalidAssertion(f"The header of the assertion has {', '.join(found)}, which is not accepted.")
    kid, typ = header.get("kid", ""), header.get("typ", "")
    if not isinstance(kid, str) or len(kid) > MAX_NAME or not isinstance(typ, str):
        raise InvalidAssertion("The key (kid) and the type (typ) of the assertion must be short texts.")
    # The media type may be written in full, and in any case (RFC 7515, section 4.1.9).
    kind = typ.lower().removeprefix("application/")
    if rules.typ and kind != rules.typ:
        raise InvalidAssertion(f"The type (typ) of the assertion must be {rules.typ}.")
    if not rules.typ and kind not in ("", "jwt", "client-authentication+jwt"):
        raise InvalidAssertion("The type (typ) of the assertion must be JWT.")


def _is_signed(assertion: Assertion, keys: Iterable[JWK]) -> bool:
    algorithm, kid = assertion.header["alg"], assertion.header.get("kid")
    suitable = [key for key in keys if fits(key, algorithm, kid)]
    return any(_has_signed(key, assertion) for key in suitable[:MAX_TRIES])


def _has_signed(key: JWK, assertion: Assertion) -> bool:
    signature = JWS()
    signature.allowed_algs = [assertion.header["alg"]]
    try:
        signature.deserialize(assertion.raw)
        signature.verify(key, alg=assertion.header["alg"])
    except (JWException, ValueError):
        return False
    return bool(signature.is_valid)


def _check_claims(assertion: Assertion, rules: Rules) -> None:
    for name in rules.required:
        if not 0 < len(assertion.text(name)) <= MAX_NAME or not assertion.text(name).isprintable():
            raise InvalidAssertion(f"The assertion needs {name}, a text of at most {MAX_NAME} characters.")
    audience = assertion.claims.get("aud")
    # One that is for several could be handed on by each of them.
    if isinstance(audience, list) and len(audience) == 1:
        [audience] = audience
    if not isinstance(audience, str) or audience.removesuffix("/") not in {url.rstrip("/") for url in rules.audiences}:
        raise InvalidAssertion("The audience (aud) of the assertion must be the issuer of this server alone.", AUDIENCE)
    _check_times(assertion.claims, rules)


def _check_times(claims: Mapping[str, Any], rules: Rules) -> None:
    now = time.time()
    expires = _time(claims, "exp")
    if expires is None:
        raise InvalidAssertion("The assertion needs the time at which it expires (exp).")
    issued, begins = _time(claims, "iat"), _time(claims, "nbf")
    if rules.typ and issued is None:
        raise InvalidAssertion("The assertion needs the time at which it was issued (iat).")
    if expires <= now - LEEWAY:
        raise InvalidAssertion("The assertion has expired (exp).", CLOCKS)
    if any(moment is not None and moment > now + LEEWAY for moment in (issued, begins)):
        raise InvalidAssertion("The assertion is not good yet (iat, nbf). Do the clocks agree?", CLOCKS)
    if expires - (now if issued is None else issued) > rules.max_life + LEEWAY:
        raise InvalidAssertion(f"The assertion may be good for {rules.max_life} seconds at most.", LONG_LIFE)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if type(found) not in (int, float) or not 0 < found < LATEST:
        raise InvalidAssertion(f"{name} of the assertion is not a time in seconds.")
    return float(found)
