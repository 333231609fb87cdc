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

from ...conf import settings
from ...context.asgi_request import build_request, headers_of, middleware_attributes, scope_from_wsgi
from ...context.refusals import report
from ...context.request import MCPRequest
from ...context.tickets import MAX_AGE, Ticket, read_ticket
from ...exceptions import NotFound, Reason, ToolError
from ...oauth.bearer import Token
from ...oauth.facts import facts_of
from ...oauth.resource import resource_url
from ...oauth.scopes import expand
from ...runtime.throttling import caller_of
from ...signin import is_current, restore
from ...sites import MCPSite
from .limits import LimitExceeded, count_call

__all__ = ["Refused", "said", "ticketed"]

NOTHING: Final = "There is nothing here, or no more."
# Seconds; a link that old has a cause of its own.
LONG_AGO: Final = 30 * 24 * 3600
# Why a link is good for nothing, which only the log may say.
TOO_OLD: Final = Reason(f"it is older than {MAX_AGE // 60} minutes", "The client asks for another one.")
NOT_MADE_HERE: Final = Reason(
    "it was not made here", "Do all workers, those before a deployment too, share SECRET_KEY or its fallbacks?"
)
NO_USER: Final = Reason("its user is gone or not active", "Activate the user, or leave it so.")
TOKEN_ENDED: Final = Reason(
    "the token that it was made with has ended", "The client signs in again and asks for another link."
)
TAKEN_AWAY: Final = Reason(
    "its record or file is gone, its user lost the permission, or a setting turned such links off",
    "If the user should have it, mcp_inspect --user says what they see.",
)
WRONG_METHOD: Final = "The description of the tool that gives the link says which method it takes."
HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[HttpRequest, MCPRequest, tuple[str, ...]], HttpResponseBase]


class Refused(Exception):
    """The answer has this status and text; the log gets ``seen``, or else the text, and ``remedy``.

    ``remedy`` is one fixed text for each cause.
    """

    def __init__(self, status: int, text: str, remedy: str, *, seen: str = "", **headers: str) -> None:
        super().__init__(text)
        self.status, self.text, self.remedy = status, text, remedy
        self.seen, self.headers = seen or text, headers


def ticketed(site: MCPSite, use: str, method: str, scope: str, answer: Answer) -> Callable[..., HttpResponseBase]:
    """Return the view that answers a request with a ticket of the site for this use.

    ``answer`` gets Django's request, that of the user who asked for the ticket as hooks get it, and what it is about.
    It may raise :class:`Refused`, ``NotFound``, ``LimitExceeded`` and ``ToolError``.
    """

    @csrf_exempt
    @login_not_required
    def view(request: HttpRequest, ticket: str, **kwargs: Any) -> HttpResponseBase:
        request.get_host()
        try:
            if request.method != method:
                text = f"Use {method}."
                raise Refused(405, text, WRONG_METHOD, seen=f"{request.method}: {text}", Allow=method)
            response = answer(request, *_as_caller(request, site, use, ticket, scope))
        except (NotFound, LimitExceeded, Refused, ToolError) as error:
            response = _refuse(error if isinstance(error, Refused) else _as_refused(error), use)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return view


def _as_refused(error: Exception) -> Refused:
    if isinstance(error, LimitExceeded):
        headers = {"Retry-After": str(error.retry_after)}
        return Refused(429, "Too many calls.", f"Raise {error.setting} if clients have to send more.", **headers)
    if isinstance(error, ToolError):
        # The database took too long, or was asked to do too much.
        return Refused(503, error.message, "STATEMENT_TIMEOUT and MAX_QUERY_COST bound what a read costs.")
    return _gone(TAKEN_AWAY)


def _gone(reason: Reason) -> Refused:
    return Refused(404, NOTHING, reason.remedy, seen=reason.seen)


def _refuse(refused: Refused, use: str) -> HttpResponse:
    # The ticket itself would let whoever reads the log in.
    report(refused.status, f"a link to {use}: {refused.seen}", refused.remedy)
    return said(refused.status, refused.text, **refused.headers)


def said(status: int, text: str, **headers: str) -> HttpResponse:
    """Return a line of text."""
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


def _as_caller(
    original: HttpRequest, site: MCPSite, use: str, text: str, scope: str
) -> tuple[MCPRequest, tuple[str, ...]]:
    """Return the user's request, counted as one of their calls, and what the ticket is about.

    Raises:
        Refused: the ticket is not good, or no more.
        LimitExceeded: the user has to wait.
    """
    ticket, scopes = read_ticket(site.name, use, text), expand([scope])
    if ticket is None:
        is_old = read_ticket(site.name, use, text, max_age=LONG_AGO) is not None
        raise _gone(TOO_OLD if is_old else NOT_MADE_HERE)
    user = _user_of(ticket)
    if user is None:
        raise _gone(NO_USER)
    if not _is_live(ticket, scopes):
        raise _gone(TOKEN_ENDED)
    facts = scope_from_wsgi(original)
    request = build_request(facts, headers_of(facts), site)
    request.META.pop("HTTP_AUTHORIZATION", None)
    request.__dict__.update(middleware_attributes(original))
    request.user = user
    request.mcp.scopes = scopes
    request.mcp.facts = facts_of(ticket.checksum) if ticket.checksum else {}
    if not is_current(user, request.mcp.facts):
        raise _gone(TOKEN_ENDED)
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
