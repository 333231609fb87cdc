"""Where the project's URLconf mounts endpoints, and whose they are."""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

if TYPE_CHECKING:
    from .sites import MCPSite

__all__ = ["mounted_endpoints", "mounted_prefixes", "mounted_sse"]

# The attributes of the views, by which they are found.
ENDPOINT, SSE = "mcp_site", "mcp_sse_site"


@lru_cache(maxsize=8)
def _mounts(urlconf: str, attribute: str) -> "dict[str, MCPSite]":
    found: dict[str, MCPSite] = {}

    def walk(patterns: Iterable[Any], prefix: str) -> None:
        for pattern in patterns:
            if isinstance(pattern, URLResolver):
                # A prefix with parameters (a tenant) has no one path: such a mount is reached through urls.py alone.
                if isinstance(pattern.pattern, RoutePattern) and not pattern.pattern.converters:
                    walk(pattern.url_patterns, prefix + str(pattern.pattern))
            elif isinstance(pattern, URLPattern) and (mounted := getattr(pattern.callback, attribute, None)):
                found[prefix] = mounted

    walk(get_resolver(urlconf).url_patterns, "/")
    return found


def mounted_endpoints() -> "dict[str, MCPSite]":
    """Return the endpoints that the project's URLconf mounts: path without a trailing slash, and its site."""
    return _by_path(django_settings.ROOT_URLCONF, ENDPOINT)


def mounted_sse() -> "dict[str, MCPSite]":
    """Return the mounts of HTTP with SSE: path without a trailing slash, and its site."""
    return _by_path(django_settings.ROOT_URLCONF, SSE)


def mounted_prefixes() -> list[str]:
    """Return the paths at which endpoints are mounted, as ``urls.py`` spells them."""
    return list(_mounts(django_settings.ROOT_URLCONF, ENDPOINT))


@lru_cache(maxsize=16)
def _by_path(urlconf: str, attribute: str) -> "dict[str, MCPSite]":
    apps.check_models_ready()
    return {prefix.rstrip("/"): mounted for prefix, mounted in _mounts(urlconf, attribute).items()}


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ROOT_URLCONF":
        _by_path.cache_clear()
        _mounts.cache_clear()


setting_changed.connect(_forget)
