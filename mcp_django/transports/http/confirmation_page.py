"""The page on which a person confirms or refuses a call, at the address of the endpoint.

It takes nothing but the session of the very user whose call it is: a request with a bearer token gets nothing.
"""

from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.db import connections, router, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, re_path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext

from ...context.untrusted_text import plain
from ...differences.difference_tables import ShownCall
from ...differences.kept_changes import KeptChange
from ...models import Change
from ...oauth.recent_sign_ins import RecentSignIn
from ...oauth.resource_urls import resource_url, same_resource
from ...server.kept_calls import KeptCallExecutor
from ...server.person_requests import PAGE
from ...sites import MCPSite
from .session_page import SessionPage

State = Change.State
SAID_NO: Final = "The user has said no."


def confirmation_urls(site: MCPSite) -> list[URLPattern]:
    """Return the URL pattern of the page, relative to the site's endpoint."""
    view: Any = ConfirmationView.as_view(site=site)
    for alias in connections:
        # The call that is confirmed has a transaction of its own.
        view = transaction.non_atomic_requests(using=alias)(view)
    return [re_path(rf"^(?:/)?{PAGE}/(?P<number>[0-9]{{1,18}})/?$", view, name=PAGE)]


@method_decorator(login_not_required, name="dispatch")
class ConfirmationView(SessionPage):
    """The page of one request for a person's yes: what the call would do, Yes and No, and how it ended."""

    template_name = "mcp_django/confirm.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the call, or how it ended."""
        kept = self._kept()
        return self.render_to_response(self._context(kept))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Make the call, or refuse it, and show how it ended."""
        kept = self._kept()
        who: Any = request.user
        by = str(who.get_username())
        sign_in = RecentSignIn(request)
        if "again" in request.POST:
            return sign_in.repeat(self.get_login_url())
        if "yes" in request.POST and sign_in.is_recent:
            KeptCallExecutor(kept, self.site, request, by).run()
        elif "no" in request.POST:
            kept.claim(State.WAITING, State.REFUSED, decided=timezone.now(), by=by, outcome=SAID_NO)
        return HttpResponseRedirect(request.get_full_path())

    def _kept(self) -> KeptChange:
        """Return the request of this page; raise ``Http404`` unless it is one of this user at this endpoint."""
        number = int(self.kwargs["number"])
        owner = KeptChange.owner_of(self.request.user)
        rows = Change.objects.using(router.db_for_write(Change)).filter(user=owner, site=self.site.name)
        # What waits for another person is decided elsewhere.
        rows = rows.filter(digest__gt="", approval=None)
        change = rows.filter(pk=number).first() if owner and number <= KeptChange.MAX_KEY else None
        endpoint = resource_url(self.request, self.request.path_info.rpartition(f"/{PAGE}/")[0])
        if change is None or not same_resource(change.resource, endpoint):
            raise Http404
        return KeptChange(change)

    def _context(self, kept: KeptChange) -> dict[str, Any]:
        change = kept.change
        is_late = change.expires is not None and change.expires <= timezone.now()
        state = change.state
        if state == State.WAITING and is_late:
            state = State.EXPIRED.value
        context: dict[str, Any] = {
            "state": state,
            "change": change,
            "client": plain(change.client_name or change.client_id),
        }
        if state == State.FAILED:
            context |= told_outcome(change.outcome)
        if state == State.WAITING:
            context["shown"] = ShownCall(kept.shown, self.site)
            context["may_say_yes"] = RecentSignIn(self.request).is_recent
        return context


def told_outcome(outcome: str) -> dict[str, Any]:
    """Return why a call was not made: in the language of the page if this package says it, else as it was said."""
    told = gettext(outcome) if outcome else ""
    return {"outcome": plain(told, 300), "is_said_in_english": told == outcome}
