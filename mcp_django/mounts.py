"""Where the project's URLconf mounts endpoints, and whose they are.

A mount has one path, or, where parameters stand in its prefix (``t/<slug:tenant>/mcp``), one for each of their values.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.urls import Resolver404, ResolverMatch, URLPattern, URLResolver, get_resolver, resolve
from django.urls.resolvers import RegexPattern, RoutePattern

if TYPE_CHECKING:
    from .sites import MCPSite

__all__ = ["endpoint_match", "mounted_endpoints", "mounted_prefixes", "mounted_sites", "mounted_sse"]

# The attributes of the views, by which they are found.
ENDPOINT, SSE = "mcp_site", "mcp_sse_site"
# The parts of a route, from the left, the view's own at the end.
Route = tuple[Any, ...]


def _walk(patterns: Iterable[Any], attribute: str, before: Route = ()) -> "Iterator[tuple[Route, MCPSite]]":
    for pattern in patterns:
        route = (*before, pattern.pattern)
        if isinstance(pattern, URLResolver):
            # A prefix that depends on the language has no path of its own: Django alone finds what is below it.
            if isinstance(pattern.pattern, (RoutePattern, RegexPattern)):
                yield from _walk(pattern.url_patterns, attribute, route)
        elif isinstance(pattern, URLPattern) and (mounted := getattr(pattern.callback, attribute, None)):
            yield route, mounted


@lru_cache(maxsize=8)
def _routes(urlconf: str, attribute: str) -> "tuple[tuple[Route, MCPSite], ...]":
    return tuple(_walk(get_resolver(urlconf).url_patterns, attribute))


def _is_fixed(route: Route) -> bool:
    return all(isinstance(part, RoutePattern) and not part.converters for part in route[:-1])


def _prefix(route: Route) -> str:
    return "/" + "".join(map(str, route[:-1]))


def mounted_endpoints() -> "dict[str, MCPSite]":
    """Return the endpoints that are mounted at one path: that path without a trailing slash, and the site."""
    return _by_path(django_settings.ROOT_URLCONF, ENDPOINT)


def mounted_sse() -> "dict[str, MCPSite]":
    """Return the mounts of HTTP with SSE: path without a trailing slash, and its site."""
    return _by_path(django_settings.ROOT_URLCONF, SSE)


def mounted_prefixes() -> list[str]:
    """Return where endpoints are mounted, as ``urls.py`` spells it, parameters included."""
    return list(dict.fromkeys(_prefix(route) for route, _ in _routes(django_settings.ROOT_URLCONF, ENDPOINT)))


def mounted_sites() -> "list[MCPSite]":
    """Return the sites that are mounted, at one path or at many, each once."""
    routes = (*_routes(django_settings.ROOT_URLCONF, ENDPOINT), *_routes(django_settings.ROOT_URLCONF, SSE))
    return list(dict.fromkeys(site for _, site in routes))


def has_parameters() -> bool:
    """Return whether an endpoint has as many paths as its parameters have values."""
    return any(not _is_fixed(route) for route, _ in _routes(django_settings.ROOT_URLCONF, ENDPOINT))


def endpoint_match(path: str, attribute: str = ENDPOINT) -> ResolverMatch | None:
    """Return what Django finds at ``path``, with or without a trailing slash, where that is an endpoint.

    The site is its ``func.mcp_site``; ``attribute`` "mcp_sse_site" asks for a mount of HTTP with SSE.
    """
    urlconf = django_settings.ROOT_URLCONF
    if path.removesuffix("/") in _by_path(urlconf, attribute):
        return _fixed_match(urlconf, path)
    # Only what could be one of these is worth the time that Django takes to resolve a path.
    if any(not _is_fixed(route) and _fits(route, path) for route, _ in _routes(urlconf, attribute)):
        try:
            match = resolve(path, urlconf)
        except Resolver404:
            return None
        return match if hasattr(match.func, attribute) else None
    return None


def _fits(route: Route, path: str) -> bool:
    rest = path.removeprefix("/")
    for part in route:
        found = part.match(rest)
        if found is None:
            return False
        rest = found[0]
    return True


@lru_cache(maxsize=64)
def _fixed_match(urlconf: str, path: str) -> ResolverMatch:
    return resolve(path, urlconf)


@lru_cache(maxsize=16)
def _by_path(urlconf: str, attribute: str) -> "dict[str, MCPSite]":
    apps.check_models_ready()
    return {_prefix(route).rstrip("/"): site for route, site in _routes(urlconf, attribute) if _is_fixed(route)}


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ROOT_URLCONF":
        for cached in (_by_path, _fixed_match, _routes):
            cached.cache_clear()


setting_changed.connect(_forget)
