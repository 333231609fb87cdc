"""``initialize``, ``ping`` and ``server/discover``: who this is, what it can do, how long its results may be kept."""

from collections.abc import Mapping
from typing import Any, Final

from ...conf import settings
from ...context.request import MCPRequest
from ...protocol.versions import SUPPORTED, negotiate

# The extensions of MCP by the setting that turns them on.
EXTENSIONS: Final = {
    "SERVICE_ACCOUNTS": "io.modelcontextprotocol/oauth-client-credentials",
    "IDENTITY_PROVIDERS": "io.modelcontextprotocol/enterprise-managed-authorization",
}
# The methods whose results a client may keep, and what the setting ``CACHE_TTL_MS`` calls them.
CACHEABLE: Final[Mapping[str, str]] = {
    "server/discover": "discover",
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
    "resources/read": "read",
}


def capabilities(request: MCPRequest) -> dict[str, Any]:
    """Return the ``ServerCapabilities``: only what the site has anything to answer with.

    News are promised where there are any and the client can be told.
    """
    site = request.mcp.site
    told = bool(settings.EVENTS and request.mcp.can_stream)
    changes = {"listChanged": True} if told else {}
    found: dict[str, Any] = {"tools": changes, "resources": {**changes, "subscribe": True} if told else {}}
    if site.prompts:
        found["prompts"] = changes
    if site.exposures_by_label or site.completers:
        found["completions"] = {}
    found["logging"] = {}
    if extensions := [name for setting, name in EXTENSIONS.items() if getattr(settings, setting)]:
        found["extensions"] = {name: {} for name in extensions}
    return found


def identity() -> dict[str, Any]:
    """Return the ``Implementation`` object of this server; it names no version of what it runs on."""
    found: dict[str, Any] = {"name": settings.SERVER_NAME, "version": settings.SERVER_VERSION}
    if settings.SERVER_TITLE:
        found["title"] = settings.SERVER_TITLE
    if settings.SERVER_DESCRIPTION:
        found["description"] = str(settings.SERVER_DESCRIPTION)
    if settings.SERVER_WEBSITE:
        found["websiteUrl"] = settings.SERVER_WEBSITE
    if settings.SERVER_ICON:
        found["icons"] = [{"src": _icon(settings.SERVER_ICON)}]
    return found


def cache_ttl(method: str) -> int:
    """Return how many milliseconds a client may keep the result of the method, where the result itself does not say.

    It is a hint (2026-07-28, server/utilities/caching).
    """
    configured = settings.CACHE_TTL_MS
    if isinstance(configured, Mapping):
        configured = configured.get(CACHEABLE.get(method, ""), 0)
    ttl: int = configured
    return ttl


def _icon(url: str) -> str:
    """Return the URL of the icon; a path is one below ``BASE_URL``, which a check requires then."""
    return f"{str(settings.BASE_URL or '').rstrip('/')}{url}" if url.startswith("/") else url


def initialize(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with the version asked for, or with the one this server offers instead (2025-11-25, lifecycle)."""
    return {
        "protocolVersion": negotiate(params.get("protocolVersion")),
        "capabilities": capabilities(request),
        "serverInfo": identity(),
        "instructions": request.mcp.site.get_instructions(request),
    }


def ping(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer that the server is there."""
    return {}


def discover(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer what a client may ask before anything else (2026-07-28, server/discover)."""
    return {
        "supportedVersions": list(SUPPORTED),
        "capabilities": capabilities(request),
        "instructions": request.mcp.site.get_instructions(request),
    }
