"""``subscriptions/listen`` (2026-07-28, basic/patterns/subscriptions)."""

from collections.abc import Mapping
from typing import Any

from ...conf import settings
from ...context.request import MCPRequest
from ...protocol.subscriptions import read_filter
from ...scopes import READ
from ...subscriptions.subscriptions import check_uris
from .base import Listen, require_scopes, require_scopes_of


def listen(request: MCPRequest, params: Mapping[str, Any]) -> Listen:
    """Have the transport open the stream; what of the filter the caller may see is found out there.

    A resource that is named and takes a scope which the token lacks is asked for as ``resources/read`` would.

    Raises:
        InvalidParams: the filter is none, or has too many resources.
        InsufficientScope: the token lacks scopes.
    """
    require_scopes(request, [READ])
    lists, uris = read_filter(params)
    if not settings.EVENTS:
        return Listen(frozenset(), ())
    check_uris(uris)
    require_scopes_of(request, uris)
    return Listen(lists, uris)
