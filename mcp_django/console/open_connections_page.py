"""The console's pages of connections: open ones, with buttons that end them, and the set-up of each client.

Open streams are those of all workers that share a channel layer with this one.

Sessions are those of the handshake era that have something to remember; calls of 2026-07-28 have none.
"""

from datetime import timedelta
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db.models import Count, Max
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _

from ..conf import settings
from ..context.untrusted_text import plain
from ..models import CallEntry, Session, Stream
from ..oauth.resource_urls import resource_url
from ..routing import ENDPOINTS
from ..server.sessions import ClientSession
from ..server.stored_streams import StoredStream
from ..subscriptions.bus import bus
from ..transports.client_configs import set_ups
from ..transports.http.stream_registry import registry
from .console_pages import Page
from .health_checks_page import reached

# Permissions, each of which is enough to end sessions and streams.
MAY_END: Final = ("mcp_django.change_session", "mcp_django.delete_session")
MAX_LISTED: Final = 100


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the page of open connections, or end a session or stream."""
    user: Any = request.user
    may_end = any(user.has_perm(name) for name in MAY_END)
    if request.method == "POST":
        if not may_end:
            raise PermissionDenied
        if stream := request.POST.get("end_stream", "")[:32]:
            registry.disconnect(stream)
            messages.success(request, _("The stream will end. Remove its access to keep its client out."))
        elif ClientSession.end_any(request.POST.get("end", "")[:32]):
            messages.success(request, _("The session has ended; its streams are closing."))
        else:
            messages.warning(request, _("The session had already ended."))
        return redirect(page.url)
    since = timezone.now() - timedelta(seconds=settings.SESSION_IDLE)
    rows = Session._default_manager.filter(ended=False, seen__gt=since).select_related("user")
    sessions = list(rows.annotate(open_streams=Count("streams")).order_by("-seen", "pk")[:MAX_LISTED])
    calls = CallEntry._default_manager.filter(session__in=[row.pk for row in sessions]).order_by()
    sums = {row["session"]: row for row in calls.values("session").annotate(n=Count("pk"), client=Max("client_name"))}
    for row in sessions:
        entry: Any = sums.get(row.pk, {})
        client = entry.get("client") or (row.facts[1].get("name", "") if len(row.facts) > 1 else "")
        row.client = plain(str(client), 100)  # type: ignore[attr-defined]
        row.calls = entry.get("n", 0)  # type: ignore[attr-defined]
        row.subscriptions = len(row.uris)  # type: ignore[attr-defined]
    context = {
        "sessions": sessions,
        "streams": _streams(),
        "roll": registry.ask_workers(),
        "is_alone": bus.shared_layer() is None,
        "may_end": may_end,
    }
    return page.render(request, context)


def _streams() -> list[Any]:
    """Return the streams of calls that run or wait for an answer, the newest first."""
    since = timezone.now() - timedelta(seconds=StoredStream.DEAD_AFTER)
    rows = Stream._default_manager.exclude(state=Stream.State.DONE).select_related("session__user")
    streams = list(rows.order_by("-alive", "pk").defer("call", "questions", "answers")[:MAX_LISTED])
    for row in streams:
        row.is_alive = row.state == Stream.State.ASKING or row.alive > since  # type: ignore[attr-defined]
    return streams


def set_up(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the page that shows how to connect a client; a POST checks the endpoint."""
    context: dict[str, Any] = {"endpoints": [], "fault": ""}
    for path in ENDPOINTS.by_path():
        try:
            url = resource_url(request, path)
        except ImproperlyConfigured as error:
            context["fault"] = str(error)
            break
        # Only a POST checks the endpoint.
        findings = list(reached(url)) if request.method == "POST" else None
        context["endpoints"].append({"url": url, "set_ups": list(set_ups(url)), "findings": findings})
    return page.render(request, context)
