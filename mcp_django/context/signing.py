"""Sealed texts that a client carries for the server, and tickets: signed URLs that act for a user.

A sealed text is encrypted, signed and dated: its bearer can neither read nor change it. Its ``salt`` is everything that
it is bound to; another salt gives other keys. Any worker that has the same ``SECRET_KEY``, or has it among its
``SECRET_KEY_FALLBACKS``, can open it.

The ticket in a URL is sealed too, and valid for one purpose at one site, for some minutes. It contains the user and the
token of the request that asked for it, so that it ends with either.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import orjson
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, TimestampSigner
from django.utils.encoding import force_bytes

from .request import MCPRequest

SEPARATOR: Final = "\x1f"
NONCE: Final = 16
# Bytes of the time, in seconds since 1970.
SECONDS: Final = 4
BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")


def seal(salt: str, data: bytes, *, unique: bool = False) -> str:
    """Encrypt and sign ``data`` for ``salt``, as a sealed text of visible ASCII characters. Texts of equal data differ
    only in their time, unless ``unique``."""
    key = django_settings.SECRET_KEY
    nonce = secrets.token_bytes(NONCE) if unique else hmac.digest(_derived(key, salt, "nonce"), data, "sha256")[:NONCE]
    body = base64.urlsafe_b64encode(nonce + _stream(key, salt, nonce, data)).rstrip(b"=").decode("ascii")
    return _signer(key, salt).sign(body)


def unseal(salt: str, text: Any, max_age: int, max_chars: int = 4096) -> bytes | None:
    """Verify the signature of a sealed text and decrypt it; None unless made for this salt in ``max_age`` seconds."""
    if not isinstance(text, str) or not 0 < len(text) <= max_chars or not text.isascii():
        return None
    for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
        try:
            body = _signer(key, salt).unsign(text, max_age=timedelta(seconds=max_age))
        except (BadSignature, ValueError, OverflowError):
            continue
        raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        return _stream(key, salt, raw[:NONCE], raw[NONCE:])
    return None


def seal_briefly(salt: str, data: bytes) -> str:
    """Encrypt and sign ``data`` for ``salt`` in less than half the characters of :func:`seal`, for what a model reads.

    The authentication tag of time and data is the nonce of their encryption, as in RFC 5297. The tag is HMAC-SHA256,
    truncated to half of its length (RFC 2104, section 5). Texts of equal data differ only in their time.
    """
    key = django_settings.SECRET_KEY
    plain = int(time.time()).to_bytes(SECONDS, "big") + data
    tag = _tag(key, salt, plain)
    return base64.urlsafe_b64encode(tag + _stream(key, salt, tag, plain)).rstrip(b"=").decode("ascii")


def unseal_brief(salt: str, text: Any, max_age: int, max_chars: int = 4096) -> bytes | None:
    """Decrypt and verify a text of :func:`seal_briefly`; None unless made for this salt in ``max_age`` seconds."""
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
        plain = _stream(key, salt, tag, hidden)
        if not hmac.compare_digest(tag, _tag(key, salt, plain)):
            continue
        age = time.time() - int.from_bytes(plain[:SECONDS], "big")
        return plain[SECONDS:] if age <= max_age else None
    return None


def _tag(key: str | bytes, salt: str, plain: bytes) -> bytes:
    """Return the authentication tag of a brief text: it takes the place of signature and nonce."""
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


# Maximum age of a ticket, in seconds.
MAX_AGE: Final = 600
# Regular expression for a ticket in a URL pattern.
TICKET: Final = r"[\w-]{1,4000}:[\w-]{1,20}:[\w-]{1,100}"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket whose signature was verified: ``owner`` is the user's primary key as text, None if nobody signs in.
    ``checksum`` is that of the token (hexadecimal), "" if it is not stored; the purpose defines ``about``."""

    owner: str | None
    checksum: str
    about: tuple[str, ...]


def can_link(request: MCPRequest) -> bool:
    """Return whether a URL can be signed for the caller: who came over HTTP as a user who can be found again."""
    user = request.user
    return "://" in request.mcp.resource and (user.pk is None or isinstance(user, get_user_model()))


def ticket_url(request: MCPRequest, use: str, *about: str) -> str:
    """Sign and seal a ticket for this purpose, and return it as a URL; only for callers who :func:`can_link`."""
    owner = None if request.user.pk is None else str(request.user.pk)
    checksum = bytes.fromhex(getattr(getattr(request, "auth", None), "checksum", ""))
    data = bytes([len(checksum)]) + checksum + orjson.dumps([owner, *about])
    return f"{request.mcp.resource.rstrip('/')}/{use}/{seal(_salt(request.mcp.site.name, use), data)}"


def read_ticket(site_name: str, use: str, text: str, *, max_age: int = MAX_AGE) -> Ticket | None:
    """Verify the ticket of a signed URL; None if it was not signed for this use of the site, or is too old."""
    data = unseal(_salt(site_name, use), text, max_age)
    if data is None:
        return None
    checksum = data[1 : 1 + data[0]]
    rest = data[1 + data[0] :]
    owner, *about = orjson.loads(rest)
    return Ticket(owner, checksum.hex(), tuple(about))


def _salt(site_name: str, use: str) -> str:
    return f"mcp_django.context.signing.{use}.{site_name}"
