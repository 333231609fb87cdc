"""Client metadata of dynamic registration (RFC 7591, section 2), as this server takes it.

Rule: what is not understood is ignored, what is understood is narrowed to codes with refresh tokens; only what could
send a code to a stranger is refused.
"""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from .text import plain

__all__ = ["LOOPBACK", "ClientMetadata", "InvalidMetadata", "is_loopback", "read_metadata"]

MAX_URIS: Final = 10
MAX_URI: Final = 2000
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
AUTH_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
# Printable ASCII: URIs are stored space separated, and a stranger's look-alike letters have their ASCII form.
URI: Final = re.compile(r"[\x21-\x7e]+")
HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|[0-9a-f:.]*:[0-9a-f:.]*")


class InvalidMetadata(Exception):
    """The metadata cannot be registered; ``error`` is the code of RFC 7591, section 3.2.2."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """What is registered of a client."""

    redirect_uris: tuple[str, ...]
    name: str
    auth_method: str


def read_metadata(data: Any, schemes: list[str]) -> ClientMetadata:
    """Return what to register of the decoded request body; ``schemes`` are those of redirect URIs.

    Raises:
        InvalidMetadata: it is no client that this server serves.
    """
    if not isinstance(data, dict):
        raise InvalidMetadata("invalid_client_metadata", "The request body must be a JSON object.")
    method = data.get("token_endpoint_auth_method") or "none"
    if method not in AUTH_METHODS:
        raise InvalidMetadata(
            "invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(AUTH_METHODS)}."
        )
    _require(data, "grant_types", "authorization_code")
    _require(data, "response_types", "code")
    return ClientMetadata(_redirect_uris(data.get("redirect_uris"), schemes), plain(data.get("client_name")), method)


def is_loopback(uri: str) -> bool:
    """Tell whether the URI leads to the user's own machine (RFC 8252, section 7.3)."""
    return urlsplit(uri).hostname in LOOPBACK


def _require(data: dict[str, Any], key: str, value: str) -> None:
    asked = data.get(key)
    if asked is not None and (not isinstance(asked, list) or value not in asked):
        raise InvalidMetadata("invalid_client_metadata", f"{key} must include {value}.")


def _redirect_uris(uris: Any, schemes: list[str]) -> tuple[str, ...]:
    if not isinstance(uris, list) or not uris or not all(isinstance(uri, str) for uri in uris):
        raise InvalidMetadata("invalid_redirect_uri", "redirect_uris must be an array with at least one URI.")
    if len(uris) > MAX_URIS:
        raise InvalidMetadata("invalid_redirect_uri", f"At most {MAX_URIS} redirect_uris.")
    if not all(_acceptable(uri, schemes) for uri in uris):
        raise InvalidMetadata(
            "invalid_redirect_uri",
            "Redirect URIs are https, http on loopback, or a scheme that this server allows; no user, no fragment.",
        )
    return tuple(dict.fromkeys(uris))


def _acceptable(uri: str, schemes: list[str]) -> bool:
    if len(uri) > MAX_URI or "#" in uri or URI.fullmatch(uri) is None:
        return False
    try:
        parts = urlsplit(uri)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return False
    # The toolkit compares schemes as they are written.
    scheme = uri.partition(":")[0]
    if scheme not in schemes or "@" in parts.netloc:
        return False
    if scheme not in ("http", "https"):
        return bool(parts.netloc or parts.path.strip("/"))
    return bool(host and HOST.fullmatch(host)) and (scheme == "https" or host in LOOPBACK)
