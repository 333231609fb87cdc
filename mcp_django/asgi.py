"""The fast road: an ASGI application that passes requests to MCP endpoints directly to the ASGI consumer.

Use it in ``asgi.py`` in place of Django's ``get_asgi_application``. Everything that is not an endpoint goes to Django
unchanged. The endpoints are those that ``ROOT_URLCONF`` mounts. Django still handles a site that ``needs_middleware``,
and a browser with a session, because only the project's middleware knows who is signed in.

``CONN_MAX_AGE`` applies to the threads of the endpoints, which live on. Django uses a new thread for each other request
and would leave its connection open, but useless, until garbage collection: it is closed after the request.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application as django_asgi_application
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_finished
from django.db import connections
from django.urls import set_script_prefix

from .conf import settings
from .routing import ENDPOINTS

Application = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]


def close_connections(**kwargs: Any) -> None:
    """Close the database connections of a thread after Django answered its one ASGI request."""
    connections.close_all()


async def no_lifespan(receive: Any, send: Any) -> None:
    """Complete lifespan messages in the application of a project's ``asgi.py``: there is nothing to start or stop.
    Django raises an error instead, about which some servers warn."""
    stage = ""
    while stage != "lifespan.shutdown":
        stage = (await receive())["type"]
        await send({"type": f"{stage}.complete"})


def is_visit(scope: Mapping[str, Any]) -> bool:
    """Return whether an ASGI request is left to Django: a browser with a session opens the endpoint as a page."""
    found = dict(scope["headers"])
    cookie = f"{django_settings.SESSION_COOKIE_NAME}=".encode()
    return found.get(b"accept", b"").lower().startswith(b"text/html") and cookie in found.get(b"cookie", b"")


def get_asgi_application(django_application: Application | None = None) -> Application:
    """Return the ASGI application of the project, with the MCP endpoints on the fast road.

    ``django_application`` is what serves everything else; by default Django's own.

    Raises:
        ImproperlyConfigured: a setting is wrong.
    """
    fallback: Any = django_application or django_asgi_application()
    settings.require_right()
    if isinstance(fallback, ASGIHandler):
        request_finished.connect(close_connections, sender=type(fallback))
    # Import these now that Django is set up: they import models.
    from .context.request import split_path
    from .sites import MCPSite, site
    from .transports.http.streamable_http import as_application

    site.prepare()

    async def application(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            prefix, path = split_path(scope)
            match = ENDPOINTS.match(path)
            mounted: MCPSite | None = getattr(match and match.func, "mcp_site", None)
            if mounted is not None and not (mounted.needs_middleware or is_visit(scope)):
                set_script_prefix(f"{prefix}/")
                await as_application(mounted, {"resolver_match": match})(scope, receive, send)
                return
        is_djangos = isinstance(fallback, ASGIHandler)
        if scope["type"] == "lifespan" and is_djangos:
            await no_lifespan(receive, send)
        elif scope["type"] == "websocket" and is_djangos:
            # Answered with 403; Django fails with a traceback, which anyone could fill the log with.
            await send({"type": "websocket.close"})
        else:
            await fallback(scope, receive, send)

    return application
