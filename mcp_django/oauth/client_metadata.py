"""What is taken of a client's metadata: as it registers (RFC 7591, section 2), or in a document that is its id.

Rule: what is not understood is ignored, what is understood is narrowed to codes with refresh tokens; only what could
send a code to a stranger is refused. Documents have the rules of
draft-ietf-oauth-client-id-metadata-document, sections 3 and 4.1, beside these.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from ..context.text import plain
from .assertions import InvalidKeys, read_keys
from .fetching import HOST, is_domain
from .resource import LOOPBACK

MAX_URIS: Final = 10
MAX_URI: Final = 2000
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
PREFIX: Final = "https://"
# The column of the toolkit's table.
MAX_ID: Final = 255
MAX_DOCUMENT_URIS: Final = 50
# Ways of proving who one is that need a secret of both sides.
SHARED_SECRETS: Final = ("client_secret_basic", "client_secret_post", "client_secret_jwt")
# The way that needs none: an assertion that the client signs (RFC 7523).
SIGNED: Final = "private_key_jwt"
# What a client uses, where it says what it uses.
NEEDED: Final = {"grant_types": "authorization_code", "response_types": "code"}


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """What is registered of a client. ``jwks_uri``, or else ``public_key``, has the keys that it may sign with."""

    redirect_uris: tuple[str, ...]
    name: str
    auth_method: str
    jwks_uri: str = ""
    public_key: str = ""


def is_app_scheme(scheme: str) -> bool:
    """Tell whether a scheme is one that an application on the user's device can have to itself, by its domain."""
    return REVERSE_DOMAIN.fullmatch(scheme) is not None


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


def _left_out(data: dict[str, Any]) -> tuple[str, str] | None:
    """Return what the client says that it uses without what is needed, and the value that it lacks."""
    for key, value in NEEDED.items():
        said = data.get(key)
        if said is not None and (not isinstance(said, list) or value not in said):
            return key, value
    return None


def _are_texts(uris: Any) -> bool:
    return isinstance(uris, list) and bool(uris) and all(isinstance(uri, str) for uri in uris)


# Registration


class InvalidMetadata(Exception):
    """The metadata cannot be registered; ``error`` is the code of RFC 7591, section 3.2.2."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


def read_metadata(data: Any, schemes: list[str]) -> ClientMetadata:
    """Return what to register of the decoded request body; ``schemes`` are those of redirect URIs."""
    wrong = "invalid_client_metadata"
    if not isinstance(data, dict):
        raise InvalidMetadata(wrong, "The request body must be a JSON object.")
    method: Any = data.get("token_endpoint_auth_method") or "none"
    uris: Any = data.get("redirect_uris")
    if method not in AUTH_METHODS:
        raise InvalidMetadata(wrong, f"token_endpoint_auth_method must be one of {', '.join(AUTH_METHODS)}.")
    if left_out := _left_out(data):
        raise InvalidMetadata(wrong, f"{left_out[0]} must include {left_out[1]}.")
    wrong = "invalid_redirect_uri"
    if not _are_texts(uris):
        raise InvalidMetadata(wrong, "redirect_uris must be an array with at least one URI.")
    if len(uris) > MAX_URIS:
        raise InvalidMetadata(wrong, f"At most {MAX_URIS} redirect_uris.")
    if not all(is_acceptable(uri, schemes) for uri in uris):
        known = [scheme for scheme in schemes if scheme not in NEVER and scheme not in ("http", "https")]
        raise InvalidMetadata(
            wrong,
            "Redirect URIs are https, http on loopback, a reverse domain name (com.example.app:/callback), or one of "
            f"the schemes {', '.join(known) or '(none)'} before a slash; no user, no fragment.",
        )
    return ClientMetadata(tuple(dict.fromkeys(uris)), plain(data.get("client_name")), method)


# Documents


class InvalidDocument(Exception):
    """The URL or the document is not one that this server takes; the text says why, in English."""


def is_document_id(client_id: str) -> bool:
    """Return whether a client id is meant to be the URL of a document."""
    return client_id[: len(PREFIX)].lower() == PREFIX


def check_url(url: str, named: frozenset[str]) -> SplitResult:
    """Return the parts of a client id that is the URL of a document.

    ``named`` are hosts of the project's own, of which a port and a name without a dot are taken too.
    """
    if len(url) > MAX_ID or URI.fullmatch(url) is None or "\\" in url:
        raise InvalidDocument(f"A client_id is at most {MAX_ID} characters of printable ASCII; a host is in punycode.")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise InvalidDocument("The client_id is not a URL.") from None
    if not url.startswith(PREFIX) or parts.netloc != parts.netloc.lower():
        raise InvalidDocument("The client_id has to be an https URL, with scheme and host in lower case.")
    if "@" in parts.netloc or "#" in url:
        raise InvalidDocument("The client_id must have no user and no fragment.")
    if parts.netloc not in named and (port is not None or ":" in parts.netloc or not is_domain(host)):
        raise InvalidDocument("The host of the client_id has to be a domain name, without a port.")
    if not parts.path.strip("/"):
        raise InvalidDocument("The client_id has to be a URL with a path.")
    if any(unquote(segment) in (".", "..") for segment in parts.path.split("/")):
        raise InvalidDocument("The path of the client_id must have no dot segments.")
    return parts


def read_document(url: str, data: Any, schemes: list[str]) -> ClientMetadata:
    """Return what is taken of the document at ``url``; ``schemes`` are those of redirect URIs."""
    if not isinstance(data, dict):
        raise InvalidDocument("The document is not a JSON object.")
    if data.get("client_id") != url:
        raise InvalidDocument(f"The client_id in the document is {_shown(data.get('client_id'))}, not its own URL.")
    if "client_secret" in data or "client_secret_expires_at" in data:
        raise InvalidDocument("The document has a client_secret, which everybody can read there.")
    name = plain(data.get("client_name"))
    uris: Any = data.get("redirect_uris")
    if not name:
        raise InvalidDocument("The document has no client_name.")
    if left_out := _left_out(data):
        raise InvalidDocument(f"In the document, {left_out[0]} has to include {left_out[1]}.")
    method, keys = _signs(data)
    if not _are_texts(uris):
        raise InvalidDocument("In the document, redirect_uris has to be an array with at least one URI.")
    if len(uris) > MAX_DOCUMENT_URIS:
        raise InvalidDocument(f"The document has more than {MAX_DOCUMENT_URIS} redirect_uris.")
    # A client that has others for other servers loses none of those that a code may be sent to.
    acceptable = tuple(dict.fromkeys(uri for uri in uris if is_acceptable(uri, schemes)))
    if not acceptable:
        raise InvalidDocument("None of the document's redirect_uris is https, loopback, or a scheme of a known client.")
    return ClientMetadata(acceptable, name, method, **keys)


def _signs(data: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return what is asked of the client, nothing where it can do without or that it signs; and the keys for it."""
    several, one = data.get("token_endpoint_auth_methods_supported"), data.get("token_endpoint_auth_method")
    if one in SHARED_SECRETS:
        raise InvalidDocument(f"The document's token_endpoint_auth_method is {one}: there is no secret to share.")
    offered = ["none" if one is None else one, *(several if isinstance(several, list) else [])]
    keys = _keys(data) if SIGNED in offered else {}
    if "none" in offered:
        return "none", keys
    if SIGNED not in offered:
        raise InvalidDocument(
            f"The document's token_endpoint_auth_method is {_shown(one)}; this server takes none and {SIGNED}."
        )
    if not keys:
        raise InvalidDocument(f"The document offers {SIGNED} alone, and has no keys (jwks or jwks_uri) for it.")
    return SIGNED, keys


def _keys(data: dict[str, Any]) -> dict[str, str]:
    """Return the keys of the document, or where they are; none where it has none that can be used (RFC 7591, 2)."""
    uri, own = data.get("jwks_uri"), data.get("jwks")
    if isinstance(uri, str) and own is None:
        parts = urlsplit(uri)
        is_good = uri.startswith(PREFIX) and len(uri) <= MAX_URI and URI.fullmatch(uri) and not parts.fragment
        return {"jwks_uri": uri} if is_good and parts.hostname and "@" not in parts.netloc else {}
    if isinstance(own, dict) and uri is None:
        text = json.dumps(own)
        with suppress(InvalidKeys):
            read_keys(text)
            return {"public_key": text}
    return {}


def _shown(value: Any) -> str:
    return repr(plain(value)) if isinstance(value, str) else "missing" if value is None else "no text"
