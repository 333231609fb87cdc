"""Names of things: the origin, the issuer, the resource (RFC 8707) and where its metadata is (RFC 9728).

A resource is compared as a whole, never by prefix: a token for the origin is not one for an endpoint below it.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from .. import mounts
from ..conf import settings

if TYPE_CHECKING:
    from ..sites import MCPSite

__all__ = [
    "canonical",
    "default_resource",
    "endpoints",
    "is_endpoint",
    "metadata_url",
    "origin",
    "resource_url",
    "same_resource",
]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# What a path may hold as it is (RFC 3986, section 3.3).
UNQUOTED: Final = "/:@!$&'()*+,;="
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def origin(request: HttpRequest | None) -> str:
    """Return scheme, host and port of this server, with no trailing slash; it is the issuer too.

    Raises:
        ImproperlyConfigured: ``BASE_URL`` is not set, and there is no request, or ``DEBUG`` is off, where a Host header
            must not decide what a token is good for.
    """
    if settings.BASE_URL:
        return str(settings.BASE_URL).rstrip("/")
    if request is None or not django_settings.DEBUG:
        raise ImproperlyConfigured("MCP_DJANGO['BASE_URL'] is not set.")
    return f"{request.scheme}://{request.get_host()}"


def resource_url(request: HttpRequest | None, path: str) -> str:
    """Return the URL of the endpoint at ``path``, slash or not as given; ``path`` is not percent-encoded."""
    return origin(request) + quote(path, safe=UNQUOTED)


def metadata_url(request: HttpRequest | None, path: str) -> str:
    """Return where the metadata of the endpoint at ``path`` is, for the challenge (RFC 9728, section 3.1)."""
    return origin(request) + WELL_KNOWN + quote(path, safe=UNQUOTED)


def same_resource(a: str, b: str) -> bool:
    """Tell whether two URLs name one resource: equal but for the case of scheme and host, a default port, a slash."""
    first = _normalise(a)
    return first is not None and first == _normalise(b)


@lru_cache(maxsize=1024)
def _normalise(url: str) -> tuple[str, str, int | None, str] | None:
    # urlsplit drops tabs, line ends and leading spaces without a word.
    if not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname or "@" in parts.netloc or "?" in url or "#" in url:
        return None
    scheme = parts.scheme.lower()
    return scheme, parts.hostname.lower(), port or DEFAULT_PORTS.get(scheme), parts.path.removesuffix("/")


def endpoints() -> "dict[str, MCPSite]":
    """Return the mounted endpoints by path, with no trailing slash, those of the older transport last."""
    mounted = {**mounts.mounted_endpoints(), **mounts.mounted_sse()}
    return {path.removesuffix("/"): site for path, site in mounted.items()}


def canonical(request: HttpRequest | None, resource: str) -> str | None:
    """Return the endpoint's own spelling of ``resource``, or None when it is not an endpoint of this server."""
    known = (resource_url(request, path) for path in endpoints())
    return next((url for url in known if same_resource(url, resource)), None) or _with_parameters(request, resource)


def _with_parameters(request: HttpRequest | None, resource: str) -> str | None:
    """Return the spelling of one of the many paths of a mount that has parameters in its prefix."""
    if _normalise(resource) is None:
        return None
    path = unquote(urlsplit(resource).path.removeprefix(urlsplit(origin(request)).path)).removesuffix("/")
    url = resource_url(request, path)
    return url if same_resource(url, resource) and is_endpoint(path) else None


def is_endpoint(path: str) -> bool:
    """Return whether an endpoint is at ``path``, of the older transport too."""
    return any(mounts.endpoint_match(path, kind) is not None for kind in (mounts.ENDPOINT, mounts.SSE))


def default_resource(request: HttpRequest | None) -> str | None:
    """Return what a client that names no resource means: the endpoint, where there is exactly one."""
    paths = list(mounts.mounted_endpoints())
    return resource_url(request, paths[0]) if len(paths) == 1 and not mounts.has_parameters() else None
