"""What a person sees who opens the endpoint in a browser: what it is, and how to connect a client to it."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny

from ..conf import settings
from ..mounts import mounted_endpoints
from ..oauth.resource import resource_url
from ..oauth.scopes import default_scopes, join
from ..oauth.styles import content_security_policy, stylesheet
from ..protocol.http import Response
from ..setups import CLIENTS, Connection
from ..signin import keep
from ..visibility import visible_exposures, visible_fields
from .local import LocalClient

__all__ = ["access", "endpoint_page", "error_page", "wants_page"]

# Browsers name it first; programs that take anything do not name it.
HTML: Final = re.compile(r"\s*text/html\s*(?:[,;]|$)", re.IGNORECASE)


def wants_page(method: str, accept: str | None, *, has_token: bool) -> bool:
    """Return whether a request is that of a person's browser, and not of a client."""
    return method in ("GET", "HEAD") and not has_token and HTML.match(accept or "") is not None


def endpoint_page(request: HttpRequest, path: str) -> Response:
    """Return the page of the endpoint at ``path``. It is the same for everybody: the endpoint reads no cookie."""
    url = resource_url(request, path)
    return _page("mcp_django/endpoint.html", {"url": url, "set_ups": list(_set_ups(url)), "access": _url_of("access")})


def error_page(status: int, message: str) -> Response:
    """Return a page that says why there is none."""
    return _page("mcp_django/error.html", {"phrase": HTTPStatus(status).phrase, "message": message}, status)


def _page(template: str, context: dict[str, Any], status: int = 200) -> Response:
    body = render_to_string(template, {**context, "title": _title(), "styles": stylesheet()}).encode()
    policy = {"Content-Security-Policy": content_security_policy(), "X-Frame-Options": "DENY"}
    return Response(status, body, "text/html; charset=utf-8", policy)


def _title() -> str:
    return str(settings.SERVER_TITLE or settings.SERVER_NAME)


def _set_ups(url: str) -> Iterator[dict[str, str]]:
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
            "after": words.format(name=connection.name, url=url),
        }


def _url_of(name: str) -> str:
    try:
        return reverse(f"mcp_oauth:{name}")
    except NoReverseMatch:
        return ""


@never_cache
@xframe_options_deny
@login_required
def access(request: HttpRequest) -> HttpResponse:
    """Show what a model would see that acts as the user who is signed in here."""
    found = [_seen(request, path, site) for path, site in mounted_endpoints().items() if not site.needs_middleware]
    context = {"endpoints": found, "tokens": _url_of("authorized-token-list"), "styles": stylesheet()}
    response = render(request, "mcp_django/access.html", {**context, "title": _title()})
    response["Content-Security-Policy"] = content_security_policy()
    response["Referrer-Policy"] = "same-origin"
    return response


def _seen(request: HttpRequest, path: str, site: Any) -> dict[str, Any]:
    assert request.user.is_authenticated
    client = LocalClient(site, request.user, join(default_scopes()).split(), facts=keep(request))
    tools = client.request("tools/list")["tools"]
    asked = client.new_request()
    models = [
        {
            "label": exposure.label,
            "name": exposure.opts.verbose_name_plural,
            "fields": visible_fields(asked, exposure),
            "is_writable": not settings.READ_ONLY
            and any(exposure.has_permission(asked, verb) for verb in ("add", "change", "delete")),
        }
        for exposure in visible_exposures(asked)
    ]
    return {"url": resource_url(request, path), "tools": [tool["name"] for tool in tools], "models": models}
