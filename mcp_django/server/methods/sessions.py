"""What a session remembers: the level of log messages and subscriptions; and the streams that stand for them since.

Changes of subscriptions are put off, as a stream that has to know of them is waited for. Without a session there is
nothing that could remember them (2025-11-25 and older); ``subscriptions/listen`` is of 2026-07-28.
"""

from collections.abc import Mapping
from typing import Any

from ...conf import settings
from ...context.request import MCPRequest, SessionState
from ...protocol.errors import InvalidParams, ResourceNotFound
from ...protocol.subscriptions import read_filter
from ...scopes import READ
from ...subscriptions.audience import check_uris
from ...subscriptions.watches import find_watches
from .base import Later, Listen, require_scopes, require_scopes_of


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

    def work() -> dict[str, Any]:
        session.subscribe(uri)
        return {}

    return Later(work)


def unsubscribe(request: MCPRequest, params: Mapping[str, Any]) -> Later:
    """Tell the session no longer of a resource, whether it was told before or not."""
    session = _session(request)

    def work() -> dict[str, Any]:
        session.unsubscribe(str(params["uri"]))
        return {}

    return Later(work)


def listen(request: MCPRequest, params: Mapping[str, Any]) -> Listen:
    """Have the transport open the stream; what of the filter the caller may see is found out there.

    A resource that is named and takes a scope which the token lacks is asked for as ``resources/read`` would.
    """
    require_scopes(request, [READ])
    lists, uris = read_filter(params)
    if not settings.EVENTS:
        return Listen(frozenset(), ())
    check_uris(uris)
    require_scopes_of(request, uris)
    return Listen(lists, uris)
