"""What a person sees who opens the endpoint in a browser: what it is, and how to connect a client to it."""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny

from ..conf import settings
from ..context import MCPRequest
from ..languages import page_language
from ..mounts import mounted_endpoints
from ..oauth.frame import frame, url_of
from ..oauth.resource import resource_url
from ..oauth.scopes import default_scopes, join
from ..oauth.styles import content_security_policy
from ..protocol.http import Response
from ..setups import CLIENTS, Connection
from ..signin import keep
from ..tools.overviews import may_words
from ..visibility import caller_actions, visible_exposures, visible_fields
from .local import LocalClient

if TYPE_CHECKING:
    from ..sites import MCPSite

__all__ = ["Reach", "access", "endpoint_page", "error_page", "reach_of", "wants_page"]

logger = logging.getLogger("mcp_django")

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
        context = {"url": url, "set_ups": list(_set_ups(url)), "access": url_of("access"), "elsewhere": elsewhere}
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
            "after": _(words).format(name=connection.name, url=url),
        }


@never_cache
@xframe_options_deny
@login_required
def access(request: HttpRequest) -> HttpResponse:
    """Show what a model would see that acts as the user who is signed in here."""
    with page_language(request):
        found = [_seen(request, path, site) for path, site in mounted_endpoints().items() if not site.needs_middleware]
        response = render(request, "mcp_django/access.html", {"endpoints": found, **frame(request), "page": "access"})
    response["Content-Security-Policy"] = content_security_policy()
    response["Referrer-Policy"] = "same-origin"
    return response


def _seen(request: HttpRequest, path: str, site: "MCPSite") -> dict[str, Any]:
    client = _client(request, site)
    tools = client.request("tools/list")["tools"]
    models = list(_models(client.new_request()))
    return {"url": resource_url(request, path), "tools": [tool["name"] for tool in tools], "models": models}


def _client(request: HttpRequest, site: "MCPSite") -> LocalClient:
    assert request.user.is_authenticated
    return LocalClient(site, request.user, join(default_scopes()).split(), facts=keep(request))


def _models(asked: MCPRequest) -> Iterator[dict[str, Any]]:
    """Yield each model that the caller sees, and what the caller can do with it."""
    for exposure in visible_exposures(asked):
        allowed = {*may_words(asked, exposure).split()} - {"view"}
        yield {
            "label": exposure.label,
            "name": exposure.opts.verbose_name_plural,
            "fields": visible_fields(asked, exposure),
            "is_writable": bool(allowed),
            "is_changeable": bool(allowed - {"delete"}),
            "is_deletable": "delete" in allowed,
            "actions": 0 if settings.READ_ONLY else len(caller_actions(asked, exposure)),
        }


@dataclass(frozen=True, slots=True)
class Reach:
    """How much a model would reach: how many models and fields it sees, and what it can do with them."""

    models: int
    fields: int
    changeable: int
    deletable: int
    actions: int


def reach_of(request: HttpRequest, sites: "Iterable[MCPSite]") -> Reach | None:
    """Return what a model would reach at these sites that acts as the user who is signed in here.

    None where it cannot be told: a site needs middleware of its own, or a hook of the project fails.
    """
    found = list(sites)
    if not found or any(site.needs_middleware for site in found):
        return None
    try:
        models = [model for site in found for model in _models(_client(request, site).new_request())]
    except Exception as error:
        logger.error("What an application can reach cannot be counted", exc_info=error)
        return None
    return Reach(
        models=len(models),
        fields=sum(len(model["fields"]) for model in models),
        changeable=sum(model["is_changeable"] for model in models),
        deletable=sum(model["is_deletable"] for model in models),
        actions=sum(model["actions"] for model in models),
    )
