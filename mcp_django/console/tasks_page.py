"""The console's page of tasks: the list, and one task, which an operator cancels there.

Arguments and results are not shown: they are sealed, and the log of calls has them where it captures them.
"""

from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from ..context.untrusted_text import plain
from ..models import CallEntry
from ..operating.recorded_calls import RecordedCall
from ..sites import site as default_site
from ..tasks.stored_tasks import StoredTask
from .console_pages import Page
from .known_sites import known_sites
from .task_list import LISTS, NARROWED, SeenTask, TaskList, tasks
from .undo_page import request_of

CHANGE: Final = "mcp_django.change_task"
# What the log of calls has as the method.
METHOD: Final = "console/cancel_task"
PER_PAGE: Final = 50
# Maximum characters of the reason that an operator gives: the column has also who has cancelled the task.
MAX_REASON: Final = 80


def listed(request: HttpRequest) -> dict[str, Any]:
    """Return what the template of the list shows."""
    given = request.GET.dict()
    found = TaskList(given)
    name = found.name
    paginator = Paginator(found.rows(), PER_PAGE)
    # The number is known already.
    paginator.count = found.counts[name]
    shown = paginator.get_page(given.get("page"))
    here = {"list": name, **found.narrowed}
    lines = []
    for row in shown:
        values = {"user": row.username, "client": row.client_name or row.client_id, "tool": row.tool}
        urls = {key: _url({**here, key: value}) for key, value in values.items()}
        lines.append({"task": SeenTask(row), "urls": urls})
    lists = [
        {"title": title, "url": _url({**here, "list": key}), "count": found.counts[key], "is_current": key == name}
        for key, (title, _condition, _order) in LISTS.items()
    ]
    chips = [
        {
            "title": NARROWED[key][0],
            "text": plain(text),
            "url": _url({other: value for other, value in here.items() if other != key}),
        }
        for key, text in found.narrowed.items()
    ]
    fields = [
        {"name": key, "title": title, "value": found.narrowed.get(key, "")}
        for key, (title, _columns) in NARROWED.items()
    ]
    return {
        "lists": lists,
        "current": name,
        "lines": lines,
        "shown_page": shown,
        "chips": chips,
        "fields": fields,
        "kept": urlencode(here),
        "very_late": found.counts["very_late"],
    }


def _url(values: dict[str, str]) -> str:
    return f"?{urlencode(values)}"


class OneTask:
    """A task on its page, for the user who looks at it."""

    def __init__(self, page: Page, request: HttpRequest, task_id: str) -> None:
        row = tasks().filter(pk=task_id.replace("\0", "")).first()
        if row is None:
            raise Http404
        self.page = page
        self.request = request
        self.row = row
        self.user: Any = request.user
        self.may_cancel = bool(self.user.has_perm(CHANGE))

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"{self.page.url}?task={self.row.pk}"

    def context(self) -> dict[str, Any]:
        """Return what the template shows."""
        seen = SeenTask(self.row)
        return {
            "task": seen,
            "may_cancel": self.may_cancel and seen.is_open,
            "calls": self._calls(),
            "max_reason": MAX_REASON,
        }

    def _calls(self) -> dict[str, CallEntry]:
        """Return the calls in the log that made and ran the task, if the user may view them."""
        if not self.page.home.has_view_permission(self.request):
            return {}
        ids = {name: value for name in ("call", "run") if (value := getattr(self.row, name))}
        rows = CallEntry._default_manager.only("call_id").filter(call_id__in=ids.values())
        found = {entry.call_id: entry for entry in rows}
        return {name: found[value] for name, value in ids.items() if value in found}

    def cancel(self) -> None:
        """Cancel the task; raise ``PermissionDenied`` if the user may not."""
        if not self.may_cancel:
            raise PermissionDenied
        row = self.row
        site = known_sites().get(row.site, default_site)
        recorded = RecordedCall(request_of(self.request, site))
        reason = plain(self.request.POST.get("reason", ""), MAX_REASON)
        # In English, as all that models are told.
        told = f"Cancelled by {plain(self.user.get_username())}."
        if reason:
            told += f" Reason given: {reason}"
        with recorded.by_operator(METHOD, row.tool, model=row.model, arguments={"task": row.pk}):
            is_cancelled = StoredTask(row, row.now).cancel(told)
        if is_cancelled:
            messages.success(self.request, _("The task is cancelled. A worker that runs it stops within seconds."))
        else:
            messages.warning(self.request, _("The task had already ended."))


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Show the list, or one task, and cancel it."""
    task_id = request.POST.get("cancel", "") if request.method == "POST" else request.GET.get("task", "")
    if not task_id:
        if request.method == "POST":
            raise PermissionDenied
        return page.render(request, listed(request))
    one = OneTask(page, request, task_id)
    if request.method == "POST":
        one.cancel()
        return redirect(one.url)
    return page.render(request, one.context(), "task")
