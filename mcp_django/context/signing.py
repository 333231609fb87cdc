"""Sealed texts that a client carries for the server, encrypted, signed and dated, and sealed bytes of its own tables.

The bearer of such a text can neither read nor change it. Any worker that has the same ``SECRET_KEY``, or has it among
its ``SECRET_KEY_FALLBACKS``, can open it.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
import zlib
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.signing import BadSignature, TimestampSigner
from django.utils.encoding import force_bytes

SEPARATOR: Final = "\x1f"
NONCE: Final = 16
# Bytes of the time, in seconds since 1970.
SECONDS: Final = 4
BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")
# Bytes from which stored data is compressed, and how hard: the lowest level is fast, and JSON shrinks by it to a fifth.
COMPRESSED_FROM: Final = 512
LEVEL: Final = 1
# The first byte of stored data says whether it is compressed.
AS_IT_IS: Final = b"\0"
COMPRESSED: Final = b"\1"


class _Salted:
    __slots__ = ("salt",)

    def __init__(self, *parts: str) -> None:
        self.salt = SEPARATOR.join(parts)


class Seal(_Salted):
    """Seals texts that are bound to the ``parts`` of a salt, and opens them; other parts give other keys."""

    __slots__ = ()

    def seal(self, data: bytes, *, unique: bool = False) -> str:
        """Encrypt and sign ``data``, as a text of visible ASCII characters.

        Texts of equal data differ only in their time, unless ``unique``.
        """
        key = django_settings.SECRET_KEY
        if unique:
            nonce = secrets.token_bytes(NONCE)
        else:
            nonce = hmac.digest(_derived(key, self.salt, "nonce"), data, "sha256")[:NONCE]
        body = base64.urlsafe_b64encode(nonce + _stream(key, self.salt, nonce, data)).rstrip(b"=").decode("ascii")
        return _signer(key, self.salt).sign(body)

    def open(self, text: Any, max_age: int, max_chars: int = 4096) -> bytes | None:
        """Verify the signature of a text and decrypt it; None unless sealed with this salt in ``max_age`` seconds."""
        if not isinstance(text, str) or not 0 < len(text) <= max_chars or not text.isascii():
            return None
        for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
            try:
                body = _signer(key, self.salt).unsign(text, max_age=timedelta(seconds=max_age))
            except (BadSignature, ValueError, OverflowError):
                continue
            raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            return _stream(key, self.salt, raw[:NONCE], raw[NONCE:])
        return None


class BriefSeal(_Salted):
    """Does the same in less than half the characters, for what a model reads."""

    __slots__ = ()

    def seal(self, data: bytes) -> str:
        """Encrypt and sign ``data``.

        The authentication tag of time and data is the nonce of their encryption, as in RFC 5297. The tag is
        HMAC-SHA256, truncated to half of its length (RFC 2104, section 5). Texts of equal data differ only in their
        time.
        """
        key = django_settings.SECRET_KEY
        plain = int(time.time()).to_bytes(SECONDS, "big") + data
        tag = _tag(key, self.salt, plain)
        return base64.urlsafe_b64encode(tag + _stream(key, self.salt, tag, plain)).rstrip(b"=").decode("ascii")

    def open(self, text: Any, max_age: int, max_chars: int = 4096) -> bytes | None:
        """Decrypt and verify a text; None unless sealed with this salt in ``max_age`` seconds."""
        if not isinstance(text, str) or not 0 < len(text) <= max_chars or not BASE64.fullmatch(text):
            return None
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        # Base64 ignores the last bits of a text that needs no more of them: only one spelling is the right one.
        if base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != text or len(raw) < NONCE + SECONDS:
            return None
        tag = raw[:NONCE]
        hidden = raw[NONCE:]
        for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
            plain = _stream(key, self.salt, tag, hidden)
            if not hmac.compare_digest(tag, _tag(key, self.salt, plain)):
                continue
            age = time.time() - int.from_bytes(plain[:SECONDS], "big")
            return plain[SECONDS:] if age <= max_age else None
        return None


class StoredSeal(_Salted):
    """Seals data of any size for a column of the app's own tables, as bytes; how long it is kept, the row knows."""

    __slots__ = ()

    def seal(self, data: bytes) -> bytes:
        """Compress, encrypt and sign ``data``: a nonce, the authentication tag of all that follows it, and the rest."""
        key = django_settings.SECRET_KEY
        if len(data) < COMPRESSED_FROM:
            plain = AS_IT_IS + data
        else:
            plain = COMPRESSED + zlib.compress(data, LEVEL)
        nonce = secrets.token_bytes(NONCE)
        hidden = _long_stream(key, self.salt, nonce, plain)
        return nonce + _tag(key, self.salt, nonce + hidden) + hidden

    def open(self, sealed: bytes) -> bytes | None:
        """Verify, decrypt and decompress; None unless sealed with this salt, and with a key that is still known."""
        nonce = sealed[:NONCE]
        tag = sealed[NONCE : 2 * NONCE]
        hidden = sealed[2 * NONCE :]
        for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
            if not hmac.compare_digest(tag, _tag(key, self.salt, nonce + hidden)):
                continue
            plain = _long_stream(key, self.salt, nonce, hidden)
            return zlib.decompress(plain[1:]) if plain[:1] == COMPRESSED else plain[1:]
        return None


def _tag(key: str | bytes, salt: str, plain: bytes) -> bytes:
    """Return the authentication tag: in a brief text, it takes the place of signature and nonce."""
    return hmac.digest(_derived(key, salt, "tag"), plain, "sha256")[:NONCE]


@lru_cache(maxsize=1024)
def _signer(key: str | bytes, salt: str) -> TimestampSigner:
    return TimestampSigner(key=key, salt=salt, fallback_keys=[])


@lru_cache(maxsize=1024)
def _derived(key: str | bytes, salt: str, use: str) -> bytes:
    return hashlib.sha256(SEPARATOR.join([salt, use, ""]).encode() + force_bytes(key)).digest()


def _stream(key: str | bytes, salt: str, nonce: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt a signed text by HMAC-SHA256 in counter mode, with a key other than the signature's."""
    secret = _derived(key, salt, "cipher")
    blocks = range((len(data) + 31) // 32)
    mask = b"".join([hmac.digest(secret, nonce + block.to_bytes(4, "big"), "sha256") for block in blocks])[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")


def _long_stream(key: str | bytes, salt: str, nonce: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt stored data by SHAKE256, which gives as many bytes as there are in one go."""
    mask = hashlib.shake_256(_derived(key, salt, "stored") + nonce).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")
