"""``initialize``, ``ping`` and ``server/discover``: who this is and what it can do."""

from collections.abc import Mapping
from typing import Any

from ...conf import settings
from ...context.request import MCPRequest
from ...protocol.versions import SUPPORTED, negotiate


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
    return found


def identity() -> dict[str, Any]:
    """Return the ``Implementation`` object of this server; it names no version of what it runs on."""
    found: dict[str, Any] = {"name": settings.SERVER_NAME, "version": settings.SERVER_VERSION}
    if settings.SERVER_TITLE:
        found["title"] = settings.SERVER_TITLE
    if settings.SERVER_ICON:
        found["icons"] = [{"src": _icon(settings.SERVER_ICON)}]
    return found


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
