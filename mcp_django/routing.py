"""Routing: find the MCP endpoints that a URLconf mounts, and their sites.

The URLconf is the one that middleware chose for the request, such as by its host, or else ``ROOT_URLCONF``. Paths are
those that the URLconf matches, without the script prefix below which the project may run.

A mount has one path, or one for each value of the parameters in its prefix (``t/<slug:tenant>/mcp``).
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.urls import Resolver404, ResolverMatch, URLPattern, URLResolver, get_resolver, get_urlconf, resolve
from django.urls.resolvers import RegexPattern, RoutePattern

from .conf import settings

if TYPE_CHECKING:
    from .sites import MCPSite

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


@lru_cache(maxsize=64)
def _routes(urlconf: Any, attribute: str) -> "tuple[tuple[Route, MCPSite], ...]":
    return tuple(_walk(get_resolver(urlconf).url_patterns, attribute))


def _is_fixed(route: Route) -> bool:
    # Do not use the converters: Django shares them between routes of one spelling, and adds those of outer prefixes.
    return all(isinstance(part, RoutePattern) and "<" not in str(part) for part in route[:-1])


def _prefix(route: Route) -> str:
    return "/" + "".join(map(str, route[:-1]))


class Mounts:
    """The mounts of one transport, found by the ``attribute`` of their views, which is the site."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def by_path(self) -> "dict[str, MCPSite]":
        """Return the sites that are mounted at a fixed path, by their path without a trailing slash."""
        # The first URLconf that has a path takes precedence.
        found = [_by_path(urlconf, self._attribute) for urlconf in known_urlconfs()]
        if found[1:]:
            return {path: site for paths in reversed(found) for path, site in paths.items()}
        return found[0]

    def prefixes(self) -> list[str]:
        """Return the paths of the mounts as the URLconf spells them, with parameters."""
        return list(dict.fromkeys(_prefix(route) for route, _ in self._known_routes()))

    def _known_routes(self) -> "list[tuple[Route, MCPSite]]":
        return [found for urlconf in known_urlconfs() for found in _routes(urlconf, self._attribute)]

    def has_parameters(self) -> bool:
        """Return whether the route of a mount has parameters, and therefore many paths."""
        return any(not _is_fixed(route) for route, _ in self._known_routes())

    def match(self, path: str) -> ResolverMatch | None:
        """Return Django's match of the mount at ``path``, with or without a trailing slash, None for none.

        The site is its ``func.mcp_site``, or ``func.mcp_sse_site``.
        """
        urlconf = _urlconf()
        attribute = self._attribute
        if path.removesuffix("/") in _by_path(urlconf, attribute):
            return _fixed_match(urlconf, path, attribute)
        # Resolving a path takes Django long, so do it only for a path that could be one of these.
        if any(not _is_fixed(route) and _fits(route, path) for route, _ in _routes(urlconf, attribute)):
            return _match(urlconf, path, attribute)
        return None

    def shadowed(self) -> Iterator[tuple[str, str, str]]:
        """Yield each mount that another route shadows: the URLconf, the path, and the other URL pattern."""
        for urlconf in known_urlconfs():
            for mounted in _by_path(urlconf, self._attribute):
                for path in (mounted, f"{mounted}/"):
                    try:
                        match = resolve(path, urlconf)
                    except Resolver404:
                        continue
                    if not hasattr(match.func, self._attribute):
                        yield str(getattr(urlconf, "__name__", urlconf)), path, match.route
                        break


ENDPOINTS: Final = Mounts("mcp_site")
# Those of the older transport, HTTP with SSE.
SSE_ENDPOINTS: Final = Mounts("mcp_sse_site")


def mounted_sites() -> "list[MCPSite]":
    """Return each site that is mounted, at one path or at many, once."""
    routes = (*ENDPOINTS._known_routes(), *SSE_ENDPOINTS._known_routes())
    return list(dict.fromkeys(site for _, site in routes))


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


@lru_cache(maxsize=128)
def _by_path(urlconf: Any, attribute: str) -> "dict[str, MCPSite]":
    apps.check_models_ready()
    return {_prefix(route).rstrip("/"): site for route, site in _routes(urlconf, attribute) if _is_fixed(route)}


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ROOT_URLCONF":
        for cached in (_by_path, _fixed_match, _routes):
            cached.cache_clear()


setting_changed.connect(_forget)
