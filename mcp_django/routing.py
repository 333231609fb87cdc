"""Routing: find the MCP endpoints that a URLconf mounts, and their sites.

The URLconf is the one that middleware chose for the request, such as by its host, or else ``ROOT_URLCONF``. Paths are
those that the URLconf matches, without the script prefix below which the project may run.

A mount has one path, or one for each value of the parameters in its prefix (``t/<slug:tenant>/mcp``).
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.urls import Resolver404, ResolverMatch, URLPattern, URLResolver, get_resolver, get_urlconf, resolve
from django.urls.resolvers import RegexPattern, RoutePattern

from .conf import settings

if TYPE_CHECKING:
    from .sites import MCPSite

# Attributes by which the views of endpoints are found.
ENDPOINT = "mcp_site"
SSE = "mcp_sse_site"
# The patterns of a route from left to right, that of the view at the end.
Route = tuple[Any, ...]


def _walk(patterns: Iterable[Any], attribute: str, before: Route = ()) -> "Iterator[tuple[Route, MCPSite]]":
    for pattern in patterns:
        route = (*before, pattern.pattern)
        if isinstance(pattern, URLResolver):
            # A prefix that depends on the language has no fixed path: only Django can resolve what is below it.
            if isinstance(pattern.pattern, (RoutePattern, RegexPattern)):
                yield from _walk(pattern.url_patterns, attribute, route)
        elif isinstance(pattern, URLPattern) and (mounted := getattr(pattern.callback, attribute, None)):
            yield route, mounted


def _urlconf() -> Any:
    return get_urlconf() or django_settings.ROOT_URLCONF


def known_urlconfs() -> list[Any]:
    """Return the URLconf of the request; without a request, all URLconfs that the settings name."""
    active = get_urlconf()
    if active:
        return [active]
    return list(dict.fromkeys([django_settings.ROOT_URLCONF, *settings.URLCONFS]))


def _known_routes(attribute: str) -> "list[tuple[Route, MCPSite]]":
    return [found for urlconf in known_urlconfs() for found in _routes(urlconf, attribute)]


@lru_cache(maxsize=64)
def _routes(urlconf: Any, attribute: str) -> "tuple[tuple[Route, MCPSite], ...]":
    return tuple(_walk(get_resolver(urlconf).url_patterns, attribute))


def _is_fixed(route: Route) -> bool:
    # Do not use the converters: Django shares them between routes of one spelling, and adds those of outer prefixes.
    return all(isinstance(part, RoutePattern) and "<" not in str(part) for part in route[:-1])


def _prefix(route: Route) -> str:
    return "/" + "".join(map(str, route[:-1]))


def mounted_endpoints() -> "dict[str, MCPSite]":
    """Return the endpoints that are mounted at a fixed path: the path without a trailing slash, and the site."""
    return _fixed(ENDPOINT)


def mounted_sse() -> "dict[str, MCPSite]":
    """Return the mounts of the older transport: the path without a trailing slash, and the site."""
    return _fixed(SSE)


def _fixed(attribute: str) -> "dict[str, MCPSite]":
    # The first URLconf that has a path takes precedence.
    found = [_by_path(urlconf, attribute) for urlconf in known_urlconfs()]
    if found[1:]:
        return {path: site for paths in reversed(found) for path, site in paths.items()}
    return found[0]


def mounted_prefixes() -> list[str]:
    """Return the paths of mounted endpoints as the URLconf spells them, with parameters."""
    return list(dict.fromkeys(_prefix(route) for route, _ in _known_routes(ENDPOINT)))


def mounted_sites() -> "list[MCPSite]":
    """Return each site that is mounted, at one path or at many, once."""
    routes = (*_known_routes(ENDPOINT), *_known_routes(SSE))
    return list(dict.fromkeys(site for _, site in routes))


def has_parameters() -> bool:
    """Return whether the route of a mounted endpoint has parameters, and therefore many paths."""
    return any(not _is_fixed(route) for route, _ in _known_routes(ENDPOINT))


def endpoint_match(path: str, attribute: str = ENDPOINT) -> ResolverMatch | None:
    """Return Django's match of the endpoint mounted at ``path``, with or without a trailing slash, None for none.

    The site is its ``func.mcp_site``; ``attribute`` "mcp_sse_site" asks for a mount of HTTP with SSE.
    """
    urlconf = _urlconf()
    if path.removesuffix("/") in _by_path(urlconf, attribute):
        return _fixed_match(urlconf, path, attribute)
    # Resolving a path takes Django long, so do it only for a path that could be one of these.
    if any(not _is_fixed(route) and _fits(route, path) for route, _ in _routes(urlconf, attribute)):
        return _match(urlconf, path, attribute)
    return None


def _fits(route: Route, path: str) -> bool:
    rest = path.removeprefix("/")
    for part in route:
        found = part.match(rest)
        if found is None:
            return False
        rest = found[0]
    return True


def _match(urlconf: Any, path: str, attribute: str) -> ResolverMatch | None:
    """Return the match of a path, None where another route stands before the endpoint."""
    try:
        match = resolve(path, urlconf)
    except Resolver404:
        return None
    return match if hasattr(match.func, attribute) else None


# Cache only fixed paths: there are no more of them than endpoints.
_fixed_match = lru_cache(maxsize=256)(_match)


def shadowed() -> Iterator[tuple[str, str, str]]:
    """Yield each endpoint that another route shadows: the URLconf, the path, and the other URL pattern."""
    for urlconf in known_urlconfs():
        for mounted in _by_path(urlconf, ENDPOINT):
            for path in (mounted, f"{mounted}/"):
                try:
                    match = resolve(path, urlconf)
                except Resolver404:
                    continue
                if not hasattr(match.func, ENDPOINT):
                    yield str(getattr(urlconf, "__name__", urlconf)), path, match.route
                    break


@lru_cache(maxsize=128)
def _by_path(urlconf: Any, attribute: str) -> "dict[str, MCPSite]":
    apps.check_models_ready()
    return {_prefix(route).rstrip("/"): site for route, site in _routes(urlconf, attribute) if _is_fixed(route)}


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ROOT_URLCONF":
        for cached in (_by_path, _fixed_match, _routes):
            cached.cache_clear()


setting_changed.connect(_forget)
