"""``subscriptions/listen`` (2026-07-28, basic/patterns/subscriptions)."""

from collections.abc import Mapping
from typing import Any

from ...conf import settings
from ...context.request import MCPRequest
from ...protocol.subscriptions import read_filter
from ...scopes import READ
from .base import Listen, require_scopes


def listen(request: MCPRequest, params: Mapping[str, Any]) -> Listen:
    """Have the transport open the stream; what of the filter the caller may see is found out there.

    Raises:
        InvalidParams: the filter is none.
    """
    require_scopes(request, [READ])
    lists, uris = read_filter(params)
    return Listen(lists, uris) if settings.EVENTS else Listen(frozenset(), ())
