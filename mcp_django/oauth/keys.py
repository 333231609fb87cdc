"""Public keys that check signatures: written down by administrators, or fetched from where their owner publishes them.

A set that is fetched is kept for ten minutes. A signature that none of its keys fits has it fetched again, at most once
a minute: so a new key works at once, and nobody can have it fetched without end.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.core.signals import setting_changed
from jwcrypto.common import JWException
from jwcrypto.jwk import JWK

from .fetching import Fetcher, FetchFailed

logger = logging.getLogger("mcp_django")

# The keys of each algorithm: their kind and their curve.
KINDS: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
MAX_KEYS: Final = 50
# The members of a key that are taken, and those that nobody else may have (RFC 7518, section 6; RFC 8037).
PUBLIC: Final = frozenset({"kty", "n", "e", "crv", "x", "y", "kid", "use", "alg"})
PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
# Seconds for which a set is taken as it was fetched, for which it is taken while it cannot be fetched, and between two
# tries.
FRESH: Final = 600
STALE: Final = 3600
PAUSE: Final = 60


class InvalidKeys(Exception):
    """These are no public keys that can check a signature; the text says why."""


def read_keys(text: str) -> list[JWK]:
    """Return the public keys of a text: PEM, a JSON Web Key, or a set of them.

    Raises:
        InvalidKeys: it has none that can be used, or one that is private.
    """
    try:
        is_pem = text.lstrip().startswith("-----BEGIN")
        members = [_from_pem(text)] if is_pem else _members(json.loads(text))
    except (JWException, ValueError, TypeError, RecursionError) as error:
        raise InvalidKeys("This is neither PEM nor a JSON Web Key nor a set of them.") from error
    return _public_keys(members)


def _public_keys(members: list[dict[str, Any]]) -> list[JWK]:
    if any(PRIVATE.intersection(member) for member in members):
        raise InvalidKeys("This has a private key or a shared secret. Only the public key belongs here.")
    usable = [key for member in members if (key := _usable(member)) is not None]
    if not usable:
        raise InvalidKeys("This has no key for RS256 (2048 bits or more), ES256 (P-256) or EdDSA (Ed25519).")
    return usable


def fits(key: JWK, algorithm: str, kid: str | None) -> bool:
    """Return whether a key can check a signature by ``algorithm`` that names ``kid``, None where it names none."""
    kind, curve = KINDS[algorithm]
    if key["kty"] != kind or key.get("crv") != curve or key.get("alg", algorithm) != algorithm:
        return False
    return kid is None or key.get("kid", kid) == kid


def _from_pem(text: str) -> dict[str, Any]:
    found = JWK.from_pem(text.strip().encode()).export(as_dict=True)
    # Its id is made up from the key, and no signature has to name it.
    return {name: value for name, value in found.items() if name != "kid"}


def _members(data: Any) -> list[dict[str, Any]]:
    found = data.get("keys", [data]) if isinstance(data, dict) else None
    if not isinstance(found, list) or len(found) > MAX_KEYS or not all(isinstance(item, dict) for item in found):
        raise ValueError("no set of keys")
    return found


def _usable(member: dict[str, Any]) -> JWK | None:
    """Return a key that can check a signature, or None: sets have keys for other purposes, and of other kinds."""
    kept = {name: value for name, value in member.items() if name in PUBLIC and isinstance(value, str)}
    operations = member.get("key_ops", ["verify"])
    if kept.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    if (kept.get("kty"), kept.get("crv")) not in KINDS.values():
        return None
    try:
        key = JWK(**kept)
        public: Any = key.get_op_key("verify")
    except (JWException, ValueError, TypeError):
        return None
    is_good = not isinstance(public, RSAPublicKey) or MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS
    return key if is_good else None


# Sets that are fetched


class FetchedLately(Exception):
    """The keys were asked for again a moment after they were; they are fetched anew after so many ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = math.ceil(seconds)


@dataclass(slots=True)
class _KeySet:
    """What was fetched from one URL: the keys, when they were, and when that was tried last."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    keys: list[JWK] = field(default_factory=list)
    at: float = float("-inf")
    tried: float = float("-inf")


_sets: dict[tuple[str, Fetcher], _KeySet] = {}


def fetched_keys(url: str, again: bool, fetcher: Fetcher) -> Iterable[JWK]:
    """Return the keys that an https URL publishes; ``again``: those that were fetched before do not fit.

    There are none where they cannot be fetched, which is logged.

    Raises:
        FetchedLately: it is too soon to fetch them again.
    """
    known = _sets.setdefault((url, fetcher), _KeySet())
    with known.lock:
        now = time.monotonic()
        is_old, waited = now - known.at > FRESH, now - known.tried
        if again and waited <= PAUSE:
            raise FetchedLately(PAUSE - waited + 1)
        if (is_old or again) and waited > PAUSE:
            known.tried = now
            try:
                known.keys, known.at = _public_keys(_members(fetcher.fetch(url).data)), now
            except (FetchFailed, InvalidKeys, ValueError) as error:
                logger.warning("The keys at %s cannot be used: %s", url, error)
        return known.keys if now - known.at <= STALE else []


def _forget(**kwargs: Any) -> None:
    _sets.clear()


setting_changed.connect(_forget)
