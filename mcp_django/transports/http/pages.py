"""The endpoint's page in a browser: what it is, and how to connect a client to it."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from ...conf import settings
from ...context.languages import page_language
from ...oauth.frame import frame, url_of
from ...oauth.resource import resource_url
from ...oauth.styles import content_security_policy
from ...protocol.http import Response
from ..setups import CLIENTS, Connection

# Browsers name it first; programs that take anything do not name it.
HTML: Final = re.compile(r"\s*text/html\s*(?:[,;]|$)", re.IGNORECASE)


def wants_page(method: str, accept: str | None, *, has_token: bool) -> bool:
    """Return whether a request is that of a person's browser, and not of a client."""
    return method in ("GET", "HEAD") and not has_token and HTML.match(accept or "") is not None


def endpoint_page(request: HttpRequest, path: str, elsewhere: str | None = None) -> Response:
    """Return the page of the endpoint at ``path``. It is the same for everybody: the endpoint reads no cookie.

    ``elsewhere`` is the origin at which it was opened, where that is not the one that clients are told.
    """
    with page_language(request):
        url = resource_url(request, path)
        context = {"url": url, "set_ups": list(set_ups(url)), "access": url_of("access"), "elsewhere": elsewhere}
        return _page("mcp_django/endpoint.html", context)


def error_page(status: int, message: str, request: HttpRequest | None = None) -> Response:
    """Return a page that says why there is none; ``message`` is in English, as client programs get it."""
    with page_language(request):
        context = {"status": status, "phrase": HTTPStatus(status).phrase, "message": message}
        return _page("mcp_django/error.html", context, status)


def _page(template: str, context: dict[str, Any], status: int = 200) -> Response:
    body = render_to_string(template, {**context, **frame()}).encode()
    headers = {"Content-Security-Policy": content_security_policy(), "X-Frame-Options": "DENY"}
    return Response(status, body, "text/html; charset=utf-8", {**headers, "Vary": "Accept, Accept-Language"})


def set_ups(url: str) -> Iterator[dict[str, str]]:
    """Yield for each client its title, what to run or what to put into which file, and what to do then."""
    connection = Connection(str(settings.SERVER_NAME), url=url)
    for client in CLIENTS.values():
        shell = client.shell(connection) if client.shell is not None else ""
        words = client.remote if client.remote else client.after
        yield {
            "title": client.title,
            "shell": shell,
            "place": "" if shell or client.remote or client.path is None else str(client.path()),
            "text": "" if shell or client.remote else client.text(connection),
            "after": _(words).format(name=connection.name, url=url),
        }
