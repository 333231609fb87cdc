"""Client metadata of dynamic registration (RFC 7591, section 2), as this server takes it.

Rule: what is not understood is ignored, what is understood is narrowed to codes with refresh tokens; only what could
send a code to a stranger is refused.
"""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from ..context.text import plain

MAX_URIS: Final = 10
MAX_URI: Final = 2000
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
AUTH_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
# Printable ASCII: URIs are stored space separated, and a stranger's look-alike letters have their ASCII form.
URI: Final = re.compile(r"[\x21-\x7e]+")
# A private-use scheme as RFC 8252, section 7.1, has it: a domain of the application's owner, backwards.
REVERSE_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")
# What a browser runs or reads by itself, whatever a setting says.
NEVER: Final = frozenset(
    {"about", "blob", "chrome", "data", "file", "filesystem", "ftp", "javascript", "mailto", "resource", "vbscript"}
    | {"view-source", "ws", "wss"}
)
HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|[0-9a-f:.]*:[0-9a-f:.]*")


class InvalidMetadata(Exception):
    """The metadata cannot be registered; ``error`` is the code of RFC 7591, section 3.2.2."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """What is registered of a client. ``jwks_uri``, or else ``public_key``, has the keys that it may sign with."""

    redirect_uris: tuple[str, ...]
    name: str
    auth_method: str
    jwks_uri: str = ""
    public_key: str = ""


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


def is_app_scheme(scheme: str) -> bool:
    """Tell whether a scheme is one that an application on the user's device can have to itself, by its domain."""
    return REVERSE_DOMAIN.fullmatch(scheme) is not None


def _require(data: dict[str, Any], key: str, value: str) -> None:
    asked = data.get(key)
    if asked is not None and (not isinstance(asked, list) or value not in asked):
        raise InvalidMetadata("invalid_client_metadata", f"{key} must include {value}.")


def _redirect_uris(uris: Any, schemes: list[str]) -> tuple[str, ...]:
    if not isinstance(uris, list) or not uris or not all(isinstance(uri, str) for uri in uris):
        raise InvalidMetadata("invalid_redirect_uri", "redirect_uris must be an array with at least one URI.")
    if len(uris) > MAX_URIS:
        raise InvalidMetadata("invalid_redirect_uri", f"At most {MAX_URIS} redirect_uris.")
    if not all(is_acceptable(uri, schemes) for uri in uris):
        raise InvalidMetadata(
            "invalid_redirect_uri",
            "Redirect URIs are https, http on loopback, a reverse domain name (com.example.app:/callback), or one of "
            f"the schemes {', '.join(_app_schemes(schemes)) or '(none)'} before a slash; no user, no fragment.",
        )
    return tuple(dict.fromkeys(uris))


def _app_schemes(schemes: list[str]) -> list[str]:
    return [scheme for scheme in schemes if scheme not in NEVER and scheme not in ("http", "https")]


def is_acceptable(uri: str, schemes: list[str]) -> bool:
    """Tell whether a code may be sent to the URI; ``schemes`` are those of redirect URIs."""
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
    if scheme in NEVER or "@" in parts.netloc or not (scheme in schemes or is_app_scheme(scheme)):
        return False
    if scheme not in ("http", "https"):
        # Nothing that could be another URI within this one.
        return uri.startswith(f"{scheme}:/") and bool(parts.netloc or parts.path.strip("/"))
    return bool(host and HOST.fullmatch(host)) and (scheme == "https" or host in LOOPBACK)
