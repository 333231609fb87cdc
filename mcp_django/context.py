"""What a hook finds at ``request.mcp``."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest

from .exceptions import Cancelled

if TYPE_CHECKING:
    from .sites import MCPSite

__all__ = ["Client", "MCPContext", "MCPRequest"]

# Seconds between two progress reports of one call.
PROGRESS_INTERVAL = 0.02

Notify = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Client:
    """What the client program says of itself, for display and logs only: it proves nothing."""

    name: str = ""
    version: str = ""


@dataclass(slots=True)
class MCPContext:
    """The MCP side of one request, hung off ``request.mcp``.

    ``scopes`` are those of the token with what they imply; ``client_id`` is the OAuth client's, or "".
    ``resource`` is the canonical URL of the endpoint (RFC 8707).
    """

    site: "MCPSite"
    resource: str = ""
    version: str = ""
    client: Client = field(default_factory=Client)
    client_id: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    scopes: frozenset[str] = frozenset()
    progress_token: str | int | None = None
    log_level: str | None = None
    notify: Notify | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    last_progress: float | None = None
    told_at: float = 0.0

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the client how far the call is, in units of the caller's choice.

        Nothing is sent when the client did not ask for progress, when ``done`` did not grow (basic/patterns/progress:
        the value MUST increase), or sooner than 20 ms after the last report, unless it is the end.

        Raises:
            Cancelled: the client has gone; let it pass.
        """
        if self.cancelled.is_set():
            raise Cancelled
        grew = self.last_progress is None or done > self.last_progress
        if self.progress_token is None or self.notify is None or not grew:
            return
        now = time.monotonic()
        if done != total and now - self.told_at < PROGRESS_INTERVAL:
            return
        self.last_progress, self.told_at = done, now
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        self.notify("notifications/progress", params)


class MCPRequest(HttpRequest):
    """A Django request that came over MCP: ``user`` is the token's user, ``mcp`` is the context.

    It carries no token and no cookie.
    """

    mcp: MCPContext
    connection_scheme: str = "http"

    def _get_scheme(self) -> str:
        return self.connection_scheme
