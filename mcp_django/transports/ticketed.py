"""Views that a ticket in the path opens: plain ones of Django, below the endpoint on either road.

A ticket is no proof that its user may still have what it is for: the user and their token are looked up again.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from ..conf import settings
from ..context import MCPRequest
from ..exceptions import NotFound, ToolError
from ..oauth.bearer import Token
from ..oauth.facts import facts_of
from ..oauth.resource import resource_url
from ..oauth.scopes import expand
from ..rates import caller_of
from ..signin import is_current, restore
from ..sites import MCPSite
from ..tickets import MAX_AGE, Ticket, read_ticket
from .limits import LimitExceeded, count_call
from .request import build_request, headers_of, middleware_attributes, scope_from_wsgi

__all__ = ["Refused", "said", "ticketed"]

HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[HttpRequest, MCPRequest, tuple[str, ...]], HttpResponseBase]


class Refused(Exception):
    """The answer has this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def ticketed(site: MCPSite, use: str, method: str, scope: str, answer: Answer) -> Callable[..., HttpResponseBase]:
    """Return the view that answers a request with a ticket of the site for this use.

    ``answer`` gets Django's request, that of the user who asked for the ticket as hooks get it, and what it is about.
    It may raise :class:`Refused`, ``NotFound``, ``LimitExceeded`` and ``ToolError``.
    """

    @csrf_exempt
    @login_not_required
    @require_http_methods([method])
    def view(request: HttpRequest, ticket: str, **kwargs: Any) -> HttpResponseBase:
        request.get_host()
        try:
            response = answer(request, *_as_caller(request, site, use, ticket, scope))
        except NotFound:
            response = said(404, "There is nothing here, or no more.")
        except LimitExceeded as limit:
            response = said(429, "Too many calls.", **{"Retry-After": str(limit.retry_after)})
        except Refused as refused:
            response = said(refused.status, refused.text)
        except ToolError as error:
            # The database took too long, or was asked to do too much.
            response = said(503, error.message)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return view


def said(status: int, text: str, **headers: str) -> HttpResponse:
    """Return a line of text."""
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


def _as_caller(
    original: HttpRequest, site: MCPSite, use: str, text: str, scope: str
) -> tuple[MCPRequest, tuple[str, ...]]:
    """Return the user's request, counted as one of their calls, and what the ticket is about.

    Raises:
        NotFound: the ticket is not good, or no more.
        LimitExceeded: the user has to wait.
    """
    ticket, scopes = read_ticket(site.name, use, text), expand([scope])
    user = None if ticket is None else _user_of(ticket)
    if ticket is None or user is None or not _is_live(ticket, scopes):
        raise NotFound
    facts = scope_from_wsgi(original)
    request = build_request(facts, headers_of(facts), site)
    request.META.pop("HTTP_AUTHORIZATION", None)
    request.__dict__.update(middleware_attributes(original))
    request.user = user
    request.mcp.scopes = scopes
    request.mcp.facts = facts_of(ticket.checksum) if ticket.checksum else {}
    if not is_current(user, request.mcp.facts):
        raise NotFound
    restore(request)
    request.mcp.resource = resource_url(request, original.path_info.rpartition(f"/{use}/")[0])
    count_call(caller_of(request))
    return request, ticket.about


def _user_of(ticket: Ticket) -> Any:
    if ticket.owner is None:
        return None if settings.AUTHENTICATION_CLASSES else AnonymousUser()
    user = get_user_model()._default_manager.filter(pk=ticket.owner).first()
    return user if user is not None and user.is_active else None


def _is_live(ticket: Ticket, scopes: frozenset[str]) -> bool:
    """Return whether the token that the ticket was asked for with is still good."""
    asked = Token(scopes, "", timezone.now() + timedelta(seconds=MAX_AGE), ticket.checksum)
    return not ticket.checksum or bool(Token.still_good([asked]))
