"""Methods that a session remembers: ``logging/setLevel``, ``resources/subscribe`` and ``resources/unsubscribe``.

Without a session there is nothing that could remember it, and no stream that could tell (2025-11-25 and older).
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...context.request import MCPRequest, SessionState
from ...protocol.errors import InvalidParams, ResourceNotFound
from ...scopes import READ
from ...subscriptions.subscriptions import check_uris
from ...subscriptions.watches import find_watches
from .base import Later, require_scopes, require_scopes_of


def _session(request: MCPRequest) -> SessionState:
    if request.mcp.session is None:
        raise InvalidParams("Invalid params: subscribing needs a session (Mcp-Session-Id)")
    return request.mcp.session


def set_log_level(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send log messages of this level and above from now on; without a session there is nothing to send them for."""
    if request.mcp.session is not None:
        request.mcp.session.set_log_level(params["level"])
    return {}


def subscribe(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Tell the session when a resource changes. One that the caller may not read is answered as one not there."""
    require_scopes(request, [READ])
    session, uri = _session(request), str(params["uri"])
    check_uris([uri])
    require_scopes_of(request, [uri])
    if not find_watches(request, [uri]):
        raise ResourceNotFound(uri)
    return _later(session.subscribe, uri)


def unsubscribe(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Tell the session no longer of a resource, whether it was told before or not."""
    return _later(_session(request).unsubscribe, str(params["uri"]))


def _later(change: Callable[[str], None], uri: str) -> Later:
    """Change what the session is subscribed to where a stream that has to know of it can be waited for."""

    def work() -> dict[str, Any]:
        change(uri)
        return {}

    return Later(work)
