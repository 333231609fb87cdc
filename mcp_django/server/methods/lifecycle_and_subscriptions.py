"""Handlers of initialize, discover, ping, log level and subscriptions; the server's identity and capabilities.

Changes of subscriptions are deferred (``Later``), because they wait for the session's stream. On 2025-11-25 and older,
only a session can store subscriptions; ``subscriptions/listen`` is of 2026-07-28.
"""

from collections.abc import Mapping
from typing import Any, Final

from ...conf import settings
from ...context.request import MCPRequest, SessionState
from ...protocol.errors import InvalidParams, MissingClientCapability, ResourceNotFound
from ...protocol.listen_messages import ListenMessages
from ...protocol.tasks import EXTENSION, REQUIRED
from ...protocol.versions import Revisions
from ...scopes import Scope
from ...subscriptions.subscribers import Subscription
from ...subscriptions.watched_resources import find_watches
from .handler_interface import Later, Listen, require_scopes_of

# MCP extensions, by the setting that enables them.
EXTENSIONS: Final = {
    "SERVICE_ACCOUNTS": "io.modelcontextprotocol/oauth-client-credentials",
    "IDENTITY_PROVIDERS": "io.modelcontextprotocol/enterprise-managed-authorization",
}
# Methods whose results clients may cache, with their names in the setting ``CACHE_TTL_MS``.
CACHEABLE: Final[Mapping[str, str]] = {
    "server/discover": "discover",
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
    "resources/read": "read",
}


def capabilities(request: MCPRequest) -> dict[str, Any]:
    """Return the ``ServerCapabilities`` for ``initialize``: only what the site supports.

    Notifications of changes are only announced if ``EVENTS`` is set and the server can stream.
    """
    site = request.mcp.site
    tells_changes = bool(settings.EVENTS and request.mcp.can_stream)
    changes = {"listChanged": True} if tells_changes else {}
    supported: dict[str, Any] = {"tools": changes, "resources": {**changes, "subscribe": True} if tells_changes else {}}
    if site.prompts:
        supported["prompts"] = changes
    if site.exposures_by_label or site.completers:
        supported["completions"] = {}
    supported["logging"] = {}
    extensions = [name for setting, name in EXTENSIONS.items() if getattr(settings, setting)]
    if request.mcp.tasks is not None and request.mcp.tasks.makes_tasks:
        extensions.append(EXTENSION)
    if extensions:
        supported["extensions"] = {name: {} for name in extensions}
    return supported


def identity() -> dict[str, Any]:
    """Return the ``serverInfo`` of ``initialize``: the server's name, title, version, website and icons."""
    info: dict[str, Any] = {"name": settings.SERVER["name"], "version": settings.SERVER["version"]}
    if settings.SERVER["title"]:
        info["title"] = settings.SERVER["title"]
    if settings.SERVER["description"]:
        info["description"] = str(settings.SERVER["description"])
    if settings.SERVER["website"]:
        info["websiteUrl"] = settings.SERVER["website"]
    if icon := settings.SERVER["icon"]:
        # A path is relative to BASE_URL, which a system check requires in that case.
        base = str(settings.BASE_URL or "").rstrip("/") if icon.startswith("/") else ""
        info["icons"] = [{"src": f"{base}{icon}"}]
    return info


def cache_ttl(method: str) -> int:
    """Return for how many milliseconds clients may cache the result of a method such as ``server/discover``.

    It is a hint (2026-07-28, server/utilities/caching) from the setting ``CACHE_TTL_MS``.
    """
    configured = settings.CACHE_TTL_MS
    if isinstance(configured, Mapping):
        configured = configured.get(CACHEABLE.get(method, ""), 0)
    ttl: int = configured
    return ttl


def initialize(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``initialize``: answer with the requested version, or offer another one (2025-11-25, lifecycle)."""
    return {
        "protocolVersion": Revisions.negotiate(params.get("protocolVersion")),
        "capabilities": capabilities(request),
        "serverInfo": identity(),
        "instructions": request.mcp.site.get_instructions(request),
    }


def ping(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``ping``: answer that the server is there."""
    return {}


def discover(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``server/discover``: supported versions, capabilities and instructions (2026-07-28)."""
    return {
        "supportedVersions": list(Revisions.SUPPORTED),
        "capabilities": capabilities(request),
        "instructions": request.mcp.site.get_instructions(request),
    }


def _session(request: MCPRequest) -> SessionState:
    if request.mcp.session is None:
        raise InvalidParams("Invalid params: subscribing needs a session (Mcp-Session-Id)")
    return request.mcp.session


def set_log_level(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``logging/setLevel``: send log messages of this level and above to the session from now on."""
    if request.mcp.session is not None:
        request.mcp.session.set_log_level(params["level"])
    return {}


def subscribe(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Handle ``resources/subscribe``: notify the session of changes to a resource that the caller can read."""
    request.mcp.require_scopes([Scope.READ])
    session = _session(request)
    uri = str(params["uri"])
    Subscription.check_uris([uri])
    require_scopes_of(request, [uri])
    if not find_watches(request, [uri]):
        raise ResourceNotFound(uri)

    def work() -> dict[str, Any]:
        session.subscribe(uri)
        return {}

    return Later(work)


def unsubscribe(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Handle ``resources/unsubscribe``: stop notifying the session of changes to a resource."""
    session = _session(request)

    def work() -> dict[str, Any]:
        session.unsubscribe(str(params["uri"]))
        return {}

    return Later(work)


def listen(request: MCPRequest, params: Mapping[str, Any]) -> Listen:
    """Handle ``subscriptions/listen``: check the filter and have the transport open the stream.

    If a named resource needs a scope that the token lacks, ask for the scope like ``resources/read``.
    """
    request.mcp.require_scopes([Scope.READ])
    lists, uris = ListenMessages.read_filter(params)
    # Tasks are not told of: their clients poll. One that asks for it must have declared them all the same.
    if ListenMessages.read_task_ids(params) and not request.mcp.takes_tasks:
        raise MissingClientCapability(REQUIRED)
    if not settings.EVENTS:
        return Listen(frozenset(), ())
    Subscription.check_uris(uris)
    require_scopes_of(request, uris)
    return Listen(lists, uris)
