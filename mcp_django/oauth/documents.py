"""Client-ID metadata documents: what the URL has to be like, and what is taken from the document that it leads to.

The rules are those of registration (:mod:`.clients`), and those of the specification beside them
(draft-ietf-oauth-client-id-metadata-document, sections 3 and 4.1).
"""

import json
from contextlib import suppress
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from ..context.text import plain
from .addresses import is_domain
from .clients import MAX_URI, URI, ClientMetadata, is_acceptable
from .keys import InvalidKeys, read_keys

PREFIX: Final = "https://"
# The column of the toolkit's table.
MAX_ID: Final = 255
MAX_URIS: Final = 50
# Ways of proving who one is that need a secret of both sides.
SHARED_SECRETS: Final = frozenset({"client_secret_basic", "client_secret_post", "client_secret_jwt"})
# The way that needs none: an assertion that the client signs (RFC 7523).
SIGNED: Final = "private_key_jwt"
NO_SECRETS: Final = ("client_secret", "client_secret_expires_at")


class InvalidDocument(Exception):
    """The URL or the document is not one that this server takes; the text says why, in English."""


def is_document_id(client_id: str) -> bool:
    """Return whether a client id is meant to be the URL of a document."""
    return client_id[: len(PREFIX)].lower() == PREFIX


def host_of(client_id: str) -> str:
    """Return the host of a client id that is a URL, with its port where it has one; "" of any other."""
    return urlsplit(client_id).netloc if is_document_id(client_id) else ""


def check_url(url: str, named: frozenset[str]) -> SplitResult:
    """Return the parts of a client id that is the URL of a document.

    ``named`` are hosts of the project's own, of which a port and a name without a dot are taken too.

    Raises:
        InvalidDocument: it is none, or it could be written in another way.
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
    """Return what is taken of the document at ``url``; ``schemes`` are those of redirect URIs.

    Raises:
        InvalidDocument: it is no client that this server serves.
    """
    if not isinstance(data, dict):
        raise InvalidDocument("The document is not a JSON object.")
    if data.get("client_id") != url:
        raise InvalidDocument(f"The client_id in the document is {_shown(data.get('client_id'))}, not its own URL.")
    if any(key in data for key in NO_SECRETS):
        raise InvalidDocument("The document has a client_secret, which everybody can read there.")
    name = plain(data.get("client_name"))
    if not name:
        raise InvalidDocument("The document has no client_name.")
    _require(data, "grant_types", "authorization_code")
    _require(data, "response_types", "code")
    method = _method(data)
    keys = _keys(data) if SIGNED in _offered(data) else {}
    if method == SIGNED and not keys:
        raise InvalidDocument(f"The document offers {SIGNED} alone, and has no keys (jwks or jwks_uri) for it.")
    return ClientMetadata(_redirect_uris(data.get("redirect_uris"), schemes), name, method, **keys)


def _require(data: dict[str, Any], key: str, value: str) -> None:
    asked = data.get(key)
    if asked is not None and (not isinstance(asked, list) or value not in asked):
        raise InvalidDocument(f"In the document, {key} has to include {value}.")


def _offered(data: dict[str, Any]) -> set[Any]:
    """Return the ways in which the client can prove who it is, be it by one of several."""
    several, one = data.get("token_endpoint_auth_methods_supported"), data.get("token_endpoint_auth_method")
    found = ["none" if one is None else one, *(several if isinstance(several, list) else [])]
    return {item for item in found if isinstance(item, str)}


def _method(data: dict[str, Any]) -> str:
    """Return what is asked of the client: nothing where it can do without, or that it signs."""
    method = data.get("token_endpoint_auth_method")
    if method in SHARED_SECRETS:
        raise InvalidDocument(f"The document's token_endpoint_auth_method is {method}: there is no secret to share.")
    offered = _offered(data)
    found = next((way for way in ("none", SIGNED) if way in offered), None)
    if found is None:
        raise InvalidDocument(
            f"The document's token_endpoint_auth_method is {_shown(method)}; this server takes none and {SIGNED}."
        )
    return found


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


def _redirect_uris(uris: Any, schemes: list[str]) -> tuple[str, ...]:
    """Return those that a code may be sent to; a client that has others for other servers loses none of these."""
    if not isinstance(uris, list) or not uris or not all(isinstance(uri, str) for uri in uris):
        raise InvalidDocument("In the document, redirect_uris has to be an array with at least one URI.")
    if len(uris) > MAX_URIS:
        raise InvalidDocument(f"The document has more than {MAX_URIS} redirect_uris.")
    found = tuple(dict.fromkeys(uri for uri in uris if len(uri) <= MAX_URI and is_acceptable(uri, schemes)))
    if not found:
        raise InvalidDocument("None of the document's redirect_uris is https, loopback, or a scheme of a known client.")
    return found


def _shown(value: Any) -> str:
    return repr(plain(value)) if isinstance(value, str) else "missing" if value is None else "no text"
