"""The console's page of requests for approval: the queue, and one request, which a person decides there.

Whoever decides needs no permission of the console, but the one of the rule, and has to see the rows and columns that
the request is about. Those who asked see their own requests, and users with a permission for it those of everybody.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..approvals.deciders import DeciderSight
from ..approvals.queue import ApprovalQueue
from ..context.untrusted_text import plain
from ..differences.difference_tables import ShownCall
from ..differences.kept_changes import KeptChange
from ..models import ApprovalRequest, CallEntry, Change
from ..oauth.recent_sign_ins import RecentSignIn
from ..operating.recorded_calls import RecordedCall
from ..server.kept_calls import KeptCallExecutor
from .console_pages import Page
from .conversations_page import admin_url
from .known_sites import known_sites
from .sights import Sights
from .undo_page import may_take_back, request_of

State = Change.State
PER_PAGE: Final = 25
# What the log of calls has as the method, with "approve" or "refuse".
METHOD: Final = "console/{}"
# Maximum number of rows to which a page links.
MAX_LINKS: Final = 20
TABS: Final = {
    "mine": gettext_lazy("Mine to decide"),
    "asked": gettext_lazy("Asked by me"),
    "all": gettext_lazy("All"),
}


def look_up(sights: Sights, approvals: list[ApprovalRequest]) -> None:
    """Look for the rows of all requests of a list at once."""
    for name in {approval.change.site for approval in approvals}:
        there = [approval for approval in approvals if approval.change.site == name]
        if (sight := sights.of(name)) is not None:
            sight.look_up(there)


class OneRequest:
    """A request on its page, for the user who looks at it."""

    def __init__(self, page: Page, request: HttpRequest, approval: ApprovalRequest) -> None:
        self.page = page
        self.request = request
        self.approval = approval
        self.change = approval.change
        self.kept = KeptChange(self.change)
        self.queue = ApprovalQueue(request.user)
        self.sight = Sights(page.home, request).of(self.change.site)
        self.state = self.queue.state_of(approval)
        self.is_own = self.queue.has_asked(approval)

    @cached_property
    def may_decide(self) -> bool:
        """Whether the user is one of those who may decide it."""
        return self.queue.may_decide(self.approval)

    @cached_property
    def is_seen(self) -> bool:
        """Whether the user sees all that it is about."""
        return self.sight is not None and self.sight.sees(self.kept, self.approval)

    @cached_property
    def sign_in(self) -> RecentSignIn:
        """When the user has signed in, which can be too long ago for a yes."""
        return RecentSignIn(self.request)

    def decide(self) -> None:
        """Say yes or no, as the form says; raise ``PermissionDenied`` if the user may not."""
        if self.state != State.WAITING:
            self._tell_late()
            return
        if not (self.may_decide and self.is_seen):
            # Where somebody was faster, the rows may be gone.
            self.change.refresh_from_db(fields=["state"])
            if self.queue.state_of(self.approval) == State.WAITING:
                raise PermissionDenied
            self._tell_late()
            return
        if "yes" in self.request.POST and self.sign_in.is_recent:
            self._approve()
        elif "no" in self.request.POST:
            self._refuse()

    def _tell_late(self) -> None:
        messages.warning(self.request, _("It was decided already, or its time is over."))

    def _approve(self) -> None:
        user: Any = self.request.user
        site = known_sites()[self.change.site]
        KeptCallExecutor(self.kept, site, self.request, user.get_username(), approver=user).run()
        if not self.queue.approved(self.approval):
            self._tell_late()
            return
        self._log("approve")

    def _refuse(self) -> None:
        try:
            is_first = self.queue.refuse(self.approval, self.request.POST.get("word", ""))
        except ValueError:
            messages.error(self.request, _("Say in a word why not: whoever asked is told."))
            return
        if not is_first:
            self._tell_late()
            return
        self._log("refuse")

    def _log(self, decision: str) -> None:
        """Note the decision in the log of calls, where the call itself has a row of its own."""
        change = self.change
        recorded = RecordedCall(request_of(self.request, known_sites()[change.site]))
        given = {"request": change.pk}
        with recorded.by_operator(METHOD.format(decision), change.tool, model=change.model, arguments=given):
            pass

    def context(self) -> dict[str, Any]:
        """Return what the template shows."""
        change = self.change
        sight = self.sight
        can_look = self.queue.has_seen(self.approval) or self.is_seen
        context: dict[str, Any] = {
            "approval": self.approval,
            "change": change,
            "state": self.state,
            "is_own": self.is_own,
            "is_seen": can_look,
            "may_decide": self.may_decide,
            "can_decide": self.may_decide and self.is_seen,
            "may_say_yes": self.sign_in.is_recent,
            "summary": plain(change.summary, 160) if can_look else "",
            "who": plain(change.username),
            "client": plain(change.client_name or change.client_id),
            "rule": plain(self.approval.rule_name),
            "reason": plain(self.approval.reason, 500),
            "outcome": plain(change.outcome, 200),
            "word": plain(self.approval.word, 500),
            "call": self._call(),
            "undo_url": self._undo_url(),
        }
        shown = self.kept.shown
        if can_look and isinstance(shown, dict):
            context["shown"] = ShownCall(shown, known_sites().get(change.site))
        if self.is_seen and sight is not None:
            context["links"] = list(self._links(sight))
        return context

    def _links(self, sight: DeciderSight) -> Iterator[dict[str, str]]:
        """Yield links to the pages of the rows in the admin, as far as there are such pages for this user."""
        for model, key, row in sight.rows_of(self.approval)[:MAX_LINKS]:
            url = admin_url(self.page.home, self.request, model, "change", quote(key))
            if url:
                yield {"url": url, "name": str(model._meta.verbose_name), "label": plain(str(row))}

    def _call(self) -> CallEntry | None:
        """Return the call in the log, if the user may view it: its page leads to the conversation."""
        if not self.change.call or not self.page.home.has_view_permission(self.request):
            return None
        return CallEntry._default_manager.only("pk").filter(call_id=self.change.call).first()

    def _undo_url(self) -> str:
        """Return the page on which the change is taken back, "" if it cannot be, or not by this user."""
        user: Any = self.request.user
        if self.kept.why_not_undone or not may_take_back(user, self.change):
            return ""
        is_open = self.page.home.has_view_permission(self.request)
        return f"{self.page.url.replace('/approvals/', '/undo/')}?change={self.change.pk}" if is_open else ""


def listed(page: Page, request: HttpRequest) -> dict[str, Any]:
    """Return what the template of the queue shows."""
    queue = ApprovalQueue(request.user)
    counts = queue.counts()
    name = request.GET.get("tab", "")
    if name not in counts:
        name = "mine" if counts["mine"] or not counts["asked"] else "asked"
    rows = {"mine": queue.mine, "asked": queue.asked, "all": queue.all}[name]()
    paginator = Paginator(rows, PER_PAGE)
    # The number is known already.
    paginator.count = counts[name]
    shown = paginator.get_page(request.GET.get("page"))
    approvals = list(shown)
    sights = Sights(page.home, request)
    look_up(sights, approvals)
    lines = []
    for approval in approvals:
        sight = sights.of(approval.change.site)
        is_seen = queue.has_seen(approval) or (sight is not None and sight.sees_rows(approval))
        change = approval.change
        lines.append(
            {
                "number": approval.pk,
                "asked": approval.asked,
                "change": change,
                "rule": plain(approval.rule_name),
                "state": queue.state_of(approval),
                "summary": plain(change.summary, 160) if is_seen else "",
                "who": plain(change.username),
                "client": plain(change.client_name or change.client_id),
            }
        )
    tabs = [
        {"name": key, "title": TABS[key], "count": count, "is_current": key == name} for key, count in counts.items()
    ]
    return {"queue": tabs, "current": name, "lines": lines, "shown_page": shown}


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Show the queue, or one request, and decide it."""
    number = request.POST.get("request", request.GET.get("request", ""))
    if not number:
        if request.method == "POST":
            raise PermissionDenied
        return page.render(request, listed(page, request))
    approval = ApprovalQueue(request.user).find(number)
    if approval is None:
        raise Http404
    one = OneRequest(page, request, approval)
    if request.method == "POST":
        if "again" in request.POST:
            return one.sign_in.repeat(reverse(f"{page.home.admin_site.name}:login"))
        one.decide()
        return redirect(f"{page.url}?request={approval.pk}")
    return page.render(request, one.context(), "approval")
