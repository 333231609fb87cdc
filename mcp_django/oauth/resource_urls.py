"""URLs of this server: its origin, the issuer, each endpoint as resource (RFC 8707), and its metadata (RFC 9728).

Paths are those of the URLconf. If the whole project is below a path, that script prefix precedes them in every URL, and
follows the origin in the issuer.

Resources are compared as a whole, never by prefix: a token for the origin is not valid for an endpoint below it.
"""

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings as django_settings
from django.core.exceptions import DisallowedHost, ImproperlyConfigured
from django.http import HttpRequest
from django.urls import get_script_prefix
from django.utils.module_loading import import_string

from ..conf import settings
from ..context.call_restrictions import NarrowingQuery
from ..routing import ENDPOINTS, SSE_ENDPOINTS

if TYPE_CHECKING:
    from ..sites import MCPSite

AUTHENTICATION: Final = "mcp_django.oauth.bearer.BearerAuthentication"
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# Characters that need no quoting in a path (RFC 3986, section 3.3).
UNQUOTED: Final = "/:@!$&'()*+,;="
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Scheme, host, port and path.
Parts = tuple[str, str, int | None, str]


def origin(request: HttpRequest | None) -> str:
    """Return the origin URL of this server: scheme, host and port.

    With ``DEBUG``, clients may use any name of this machine, and the origin has the one that the request used.
    """
    if not settings.BASE_URL:
        if request is None or not django_settings.DEBUG:
            raise ImproperlyConfigured("MCP_DJANGO['BASE_URL'] is not set.")
        return f"{request.scheme}://{request.get_host()}"
    base = str(settings.BASE_URL).rstrip("/")
    if request is not None and django_settings.DEBUG:
        with suppress(DisallowedHost):
            by_host = _named_by_host(base, request)
            if same_resource(by_host, base) and is_loopback(by_host):
                return by_host
    return base


def _named_by_host(base: str, request: HttpRequest) -> str:
    # Behind a proxy that terminates TLS, the request does not know the scheme.
    return f"{base.partition('://')[0]}://{request.get_host()}"


def came_to(request: HttpRequest) -> str | None:
    """Return the origin by which the request came (its ``Host``), None if it is that of ``BASE_URL``."""
    base = origin(request)
    by_host = _named_by_host(base, request)
    return None if same_resource(by_host, base) else by_host


def is_loopback(uri: str) -> bool:
    """Return whether a URL names the user's own machine (RFC 8252, section 7.3)."""
    return urlsplit(uri).hostname in LOOPBACK


def script_prefix() -> str:
    """Return the script prefix, with which all URLs of this server begin, without trailing slash."""
    return get_script_prefix().rstrip("/")


def issuer(request: HttpRequest | None) -> str:
    """Return this server's URL as an issuer, its origin with the script prefix (RFC 8414, section 2)."""
    return origin(request) + quote(script_prefix(), safe=UNQUOTED)


def resource_url(request: HttpRequest | None, path: str) -> str:
    """Return the resource URL of the endpoint at ``path``, with or without its slash as given."""
    return _quoted(origin(request), script_prefix() + path)


def own_resource(request: HttpRequest, path: str) -> str | None:
    """Return the resource URL of the endpoint at ``path``, None if it could be another endpoint's.

    Some servers take the prefix from a header, with which a client could use one endpoint's token at another.
    """
    prefix = script_prefix()
    if prefix and is_endpoint(prefix + path):
        return None
    return _quoted(origin(request), prefix + path)


@lru_cache(maxsize=1024)
def _quoted(base: str, path: str) -> str:
    return base + quote(path, safe=UNQUOTED)


def metadata_url(request: HttpRequest | None, path: str) -> str:
    """Return the URL of the metadata of the resource at ``path``, for the challenge (RFC 9728, section 5.1).

    With a script prefix, this URL is below it: a proxy need not pass on the path at the root (section 3.1).
    """
    return issuer(request) + WELL_KNOWN + quote(script_prefix() + path, safe=UNQUOTED)


def mounted_path(path: str) -> str:
    """Return the path of a URL without the script prefix, as the URLconf matches it."""
    prefix = script_prefix()
    if path == prefix or path.startswith(f"{prefix}/"):
        return path.removeprefix(prefix)
    return path


def same_resource(a: str, b: str) -> bool:
    """Return whether two URLs name one resource: case of scheme and host, default port and slash may differ.

    With ``DEBUG``, all names of this machine count as one host.
    """
    first = _normalise(a)
    second = _normalise(b)
    if first is None or second is None or first == second or not django_settings.DEBUG:
        return first is not None and first == second
    return {first[1], second[1]} <= LOOPBACK and (first[0], *first[2:]) == (second[0], *second[2:])


@lru_cache(maxsize=1024)
def _normalise(url: str) -> Parts | None:
    # urlsplit silently drops tabs, line ends and leading spaces.
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
    """Return the sites of the mounted endpoints by path, those of the older SSE transport last."""
    mounted = {**ENDPOINTS.by_path(), **SSE_ENDPOINTS.by_path()}
    return {path.removesuffix("/"): site for path, site in mounted.items()}


def canonical(request: HttpRequest | None, resource: str) -> str | None:
    """Return the endpoint's own spelling of a URL, None if it is not an endpoint of this server.

    A query that narrows what a client reaches is not part of the endpoint's name. A URL with any other query, or with a
    fragment, is not a resource (RFC 8707, section 2).
    """
    base, _, query = resource.partition("?")
    if query and "#" not in query and NarrowingQuery(query).only_narrows:
        resource = base
    urls = (resource_url(request, path) for path in endpoints())
    if (url := next((url for url in urls if same_resource(url, resource)), None)) or _normalise(resource) is None:
        return url
    # It can be one of the many paths of an endpoint that is mounted below a URL pattern with parameters.
    path = mounted_path(unquote(urlsplit(resource).path)).removesuffix("/")
    url = resource_url(request, path)
    if same_resource(url, resource) and is_endpoint(path):
        return url
    return None


def named_resource(name: str) -> str | None:
    """Return the resource URL of the endpoint that an operator names by URL or path, None if there is none."""
    if name.startswith("/"):
        return canonical(None, issuer(None) + mounted_path(name))
    return canonical(None, name)


def is_endpoint(path: str) -> bool:
    """Return whether a path is that of a mounted endpoint, of either transport."""
    return any(mounts.match(path) is not None for mounts in (ENDPOINTS, SSE_ENDPOINTS))


def default_resource(request: HttpRequest | None) -> str | None:
    """Return the URL for clients that name no resource: the only endpoint's, None if there are several."""
    paths = list(ENDPOINTS.by_path())
    if len(paths) == 1 and not ENDPOINTS.has_parameters():
        return resource_url(request, paths[0])
    return None


def uses_oauth() -> bool:
    """Return whether endpoints take this server's tokens: ``BearerAuthentication`` is set."""
    for configured in getattr(django_settings, "MCP_DJANGO", {}).get("AUTHENTICATION_CLASSES", [AUTHENTICATION]):
        if configured == AUTHENTICATION:
            return True
        try:
            authenticator = import_string(configured) if isinstance(configured, str) else configured
        except RuntimeError:  # the class needs the toolkit, which is not installed
            return True
        except Exception:  # whatever the project's module raises; it raises again when a request needs the class
            continue
        if AUTHENTICATION in {
            f"{base.__module__}.{base.__qualname__}" for base in getattr(authenticator, "__mro__", ())
        }:
            return True
    return False
