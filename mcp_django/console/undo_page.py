"""The console's page on which a person takes a change back, and the changes that pages of calls list.

One's own changes need no permission but those of their rows; those of others need ``mcp_django.undo_change`` too. The
user's own rights decide, as for any write.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.contrib import messages
from django.db import router
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..differences.difference_tables import tables_of
from ..differences.kept_changes import KeptChange
from ..differences.trials import Trial
from ..differences.undo import OthersChanges, Undo
from ..differences.write_calls import WriteCall
from ..exceptions import CallRefused, NotFound, ToolError
from ..models import CallEntry, Change
from ..operating.recorded_calls import RecordedCall
from ..orm.access import access_of
from ..orm.tool_arguments import Arguments
from ..scopes import Scope
from ..signin import SignIn
from ..sites import MCPSite
from .console_pages import Home, Page, may_undo_others
from .known_sites import usable_sites
from .sights import Sights
from .switches_page import way_back

VIEW: Final = "mcp_django.view_change"
TOOL: Final = "undo_change"
NAME: Final = "console"
# What the log of calls has as the method.
METHOD: Final = "console/undo"
# Maximum number of changes that a page lists.
MOST: Final = 100
# The columns that they need.
SHOWN: Final = ("state", "user", "summary", "cannot_undo", "expires", "model", "labels")
INVISIBLE: Final = "You cannot see all models that it wrote."


def may_take_back(user: Any, change: Change) -> bool:
    """Return whether the user may take back a change, if they have the rights of its rows: it is theirs, or they have
    the permission for those of others."""
    return change.user == KeptChange.owner_of(user) or may_undo_others(user)


def changes_of(home: Home, request: HttpRequest, calls: Iterable[CallEntry]) -> Iterator[dict[str, Any]]:
    """Yield what calls changed, as :func:`changes_of_calls` does."""
    return changes_of_calls(home, request, [call.call_id for call in calls if call.rows_changed])


def changes_of_calls(home: Home, request: HttpRequest, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what the calls with these ids changed, the newest first, as far as the user may know
    (:func:`told_change`)."""
    sights = Sights(home, request)
    for change in changes_by(ids).only(*SHOWN)[:MOST]:
        if told := told_change(sights, change):
            yield told


def changes_by(ids: Sequence[str]) -> QuerySet[Change]:
    """Return the changes that calls with these ids made, the newest first."""
    if not ids:
        return Change.objects.none()
    states = (Change.State.DONE.value, Change.State.UNDONE.value)
    rows = Change.objects.using(router.db_for_write(Change)).order_by("-pk")
    # SQLite uses the index of some rows only for a query that asks for these.
    return rows.filter(call__in=ids, call__gt="", state__in=states)


def summary_of(sights: Sights, change: Change) -> str:
    """Return what a change did, which names rows: only its number and model, unless it is the user's own or they may
    view the models of all that its caller was shown."""
    user: Any = sights.request.user
    is_told = user.is_superuser or change.user == KeptChange.owner_of(user)
    if not is_told and (sight := sights.of(change.site)) is not None:
        is_told = sight.sees_models((change.labels or change.model).split())
    if is_told:
        return plain(change.summary, 160)
    return f"change {change.pk} of {change.model}"


def told_change(sights: Sights, change: Change) -> dict[str, Any]:
    """Return what a page tells of a change, nothing if the user may not know of it: with the address at which it is
    taken back, "" if it cannot be, or not by this user."""
    user: Any = sights.request.user
    may_undo = may_take_back(user, change)
    if not (may_undo or user.has_perm(VIEW)):
        return {}
    why_not = KeptChange(change).why_not_undone
    is_undone = change.state == Change.State.UNDONE
    url = ""
    if may_undo and not why_not:
        address = reverse(f"{sights.home.admin_site.name}:mcp_django_console_undo")
        url = f"{address}?change={change.pk}"
    return {
        "number": change.pk,
        "summary": summary_of(sights, change),
        "url": url,
        "is_undone": is_undone,
        "why": "" if is_undone else why_not,
    }


def request_of(request: HttpRequest, site: MCPSite) -> MCPRequest:
    """Return a request to a site by the user of a page, with their own rights."""
    # The pages that only list changes work without django-oauth-toolkit, which calls need.
    from ..transports.local_client import LocalClient

    user: Any = request.user
    facts = SignIn(request).facts()
    return LocalClient(site, user, [Scope.WRITE], facts, name=NAME, is_signed_in=True).new_request()


class UndoOnPage:
    """A change that a user takes back on a page."""

    def __init__(self, request: HttpRequest, change: Change) -> None:
        site = usable_sites().get(change.site)
        if site is None:
            raise Http404
        self.change = change
        self.site = site
        self.request = request_of(request, site)
        self.changes = OthersChanges(self.request)

    def trial(self) -> Trial:
        """Try it. Raises ``ToolError`` if it cannot be taken back by this user."""
        try:
            return Trial(self._new)
        except NotFound:
            raise ToolError(INVISIBLE) from None

    def run(self, pin: str) -> None:
        """Take it back. Raises ``ToolError`` if that is not possible, or would no longer do what was shown."""
        change = self.change
        recorded = RecordedCall(self.request)
        with recorded.by_operator(METHOD, TOOL, model=change.model, arguments={"change": change.pk}):
            try:
                WriteCall(self._new, Arguments()).run_pinned(pin)
            except NotFound:
                raise ToolError(INVISIBLE) from None

    def _new(self) -> Undo:
        return Undo(access_of(self.request).get_model(self.change.model), TOOL, self.change.pk, self.changes)


def find_change(request: HttpRequest, number: str) -> Change:
    """Return the change of this number; raise ``Http404`` unless the user may take it back."""
    key = int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else 0
    rows = Change.objects.using(router.db_for_write(Change)).defer("shown", "footprint", "kept", "result")
    change = rows.filter(pk=key).first() if 0 < key <= KeptChange.MAX_KEY else None
    if change is None or not may_take_back(request.user, change):
        raise Http404
    return change


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Show what taking a change back does, and take it back."""
    change = find_change(request, request.POST.get("change", request.GET.get("change", "")))
    undo = UndoOnPage(request, change)
    back = way_back(request)
    context: dict[str, Any] = {"change": change, "back": back}
    context["summary"] = summary_of(Sights(page.home, request), change)
    context |= {"client": plain(change.client_name or change.client_id), "user_name": plain(change.username)}
    if request.method == "POST":
        try:
            undo.run(request.POST.get("pin", ""))
        except (ToolError, CallRefused) as error:
            messages.error(request, error.message)
            return redirect(f"{page.url}?change={change.pk}")
        messages.success(request, _("Change %(number)s is taken back.") % {"number": change.pk})
        return redirect(back or page.home.calls_url)
    try:
        trial = undo.trial()
    except (ToolError, CallRefused) as error:
        return page.render(request, {**context, "why_not": error.message})
    shown = {
        "tables": tables_of(trial.difference.to_wire(), undo.site),
        "others": trial.difference.others,
        "pin": trial.pin,
    }
    return page.render(request, {**context, **shown})
