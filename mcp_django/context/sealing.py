"""Texts that a client carries for the server: encrypted, signed, dated, and good for one purpose.

A sealed text tells its bearer nothing and cannot be changed. Its ``salt`` is everything that it is bound to; another
salt makes other keys. Any worker that has ``SECRET_KEY``, or had it as one of ``SECRET_KEY_FALLBACKS``, can open it.
"""

import base64
import hashlib
import hmac
import secrets
from datetime import timedelta
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.signing import BadSignature, TimestampSigner
from django.utils.encoding import force_bytes

__all__ = ["seal", "unseal"]

SEPARATOR: Final = "\x1f"
NONCE: Final = 16


def seal(salt: str, data: bytes, *, unique: bool = False) -> str:
    """Return ``data`` sealed for ``salt``, as text of visible ASCII characters.

    Equal data give equal texts but for the time, unless they are to be ``unique``.
    """
    key = django_settings.SECRET_KEY
    nonce = secrets.token_bytes(NONCE) if unique else hmac.digest(_derived(key, salt, "nonce"), data, "sha256")[:NONCE]
    body = base64.urlsafe_b64encode(nonce + _stream(key, salt, nonce, data)).rstrip(b"=").decode("ascii")
    return TimestampSigner(key=key, salt=salt, fallback_keys=[]).sign(body)


def unseal(salt: str, text: Any, max_age: int, max_chars: int = 4096) -> bytes | None:
    """Return the data, None for whatever :func:`seal` did not make for this salt within ``max_age`` seconds."""
    if not isinstance(text, str) or not 0 < len(text) <= max_chars or not text.isascii():
        return None
    for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
        try:
            signer = TimestampSigner(key=key, salt=salt, fallback_keys=[])
            body = signer.unsign(text, max_age=timedelta(seconds=max_age))
        except (BadSignature, ValueError, OverflowError):
            continue
        raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        return _stream(key, salt, raw[:NONCE], raw[NONCE:])
    return None


def _derived(key: str | bytes, salt: str, use: str) -> bytes:
    return hashlib.sha256(SEPARATOR.join([salt, use, ""]).encode() + force_bytes(key)).digest()


def _stream(key: str | bytes, salt: str, nonce: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt: HMAC-SHA256 in counter mode, its key apart from the one of the signature."""
    secret = _derived(key, salt, "cipher")
    blocks = range((len(data) + 31) // 32)
    mask = b"".join(hmac.digest(secret, nonce + block.to_bytes(4, "big"), "sha256") for block in blocks)[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")
