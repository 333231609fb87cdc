"""The console's page on which a person takes back all that one client wrote in a time.

It is for those who may take back changes of others; the rights of their own account decide about each row.
"""

from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..context.untrusted_text import plain
from ..differences.client_times import ClientTime, Step, Writers
from ..exceptions import CallRefused, ToolError
from ..models import CallEntry
from ..operating.recorded_calls import RecordedCall
from ..templatetags.mcp_console import local_time
from .console_pages import Home, Page
from .known_sites import usable_sites
from .sights import Sights
from .switches_page import way_back
from .undo_page import request_of, summary_of

# What the log of calls has as the method.
METHOD: Final = "console/client_time"
# Maximum number of clients, users and models to choose from, and of changes that are listed before they are taken back.
MAX_OFFERED: Final = 500
MAX_LISTED: Final = 200
# How much time is proposed, unless a link says which.
PROPOSED: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
# As browsers write a time in a form.
FORMAT: Final = "%Y-%m-%dT%H:%M"


class TimeForm(forms.Form):
    """Whose time, and from when to when. The choices are those of whom anything is kept at a site."""

    site = forms.ChoiceField(label=gettext_lazy("Site"), required=False)
    client = forms.ChoiceField(label=gettext_lazy("Client"))
    since = forms.DateTimeField(
        label=gettext_lazy("Since"), widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=FORMAT)
    )
    until = forms.DateTimeField(
        label=capfirst(gettext_lazy("until")),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=FORMAT),
    )
    user = forms.ChoiceField(label=gettext_lazy("User"), required=False)
    model = forms.ChoiceField(label=gettext_lazy("Model"), required=False)

    def __init__(self, writers: Writers, sites: list[str], data: Any, initial: dict[str, Any]) -> None:
        super().__init__(data, initial=initial, auto_id="time_%s")
        fields: Any = self.fields
        fields["site"].choices = [(name, name) for name in sites]
        if len(sites) == 1:
            fields["site"].widget = forms.HiddenInput()
        # A link may name a client that has written nothing.
        named = {initial["client"]: ""} if initial["client"] else {}
        clients = {**named, **dict(list(writers.clients.items())[:MAX_OFFERED])}
        texts = {key: " ".join(filter(None, [plain(name), f"({plain(key, 80)})"])) for key, name in clients.items()}
        fields["client"].choices = sorted(texts.items(), key=lambda pair: pair[1].lower())
        for name, values in (("user", writers.users), ("model", writers.models)):
            fields[name].choices = [
                ("", capfirst(_("all"))),
                *((key, plain(key)) for key in sorted(values)[:MAX_OFFERED]),
            ]

    def clean(self) -> dict[str, Any]:
        """Check that the time has a length."""
        cleaned = super().clean() or {}
        if "since" in cleaned and "until" in cleaned and cleaned["since"] >= cleaned["until"]:
            self.add_error("until", _("The end is not after the beginning."))
        return cleaned


class TimeOnPage:
    """What a request for the page asks for: a client's time at a site, as the form reads it."""

    def __init__(self, request: HttpRequest) -> None:
        sites = usable_sites()
        query = request.POST if request.method == "POST" else request.GET
        site = sites.get(query.get("site") or next(iter(sites), ""))
        if site is None:
            raise Http404
        self.request = request_of(request, site)
        self.writers = Writers(self.request)
        until = local_time(timezone.now()) + MINUTE
        initial = {"since": f"{until - PROPOSED:{FORMAT}}", "until": f"{until:{FORMAT}}"}
        initial |= {name: query[name] for name in ("since", "until", "user", "model") if query.get(name)}
        initial |= {"site": site.name, "client": query.get("client", "").replace("\0", "")[:255]}
        self.is_asked = request.method == "POST" or "look" in query
        self.form = TimeForm(self.writers, list(sites), query if self.is_asked else None, initial)

    @property
    def writes(self) -> ClientTime | None:
        """What the client wrote in this time, None if that is not asked for, or not rightly."""
        if not self.is_asked or not self.form.is_valid():
            return None
        chosen = self.form.cleaned_data
        since, until = chosen["since"], chosen["until"]
        return ClientTime(self.request, chosen["client"], since, until, user=chosen["user"], model=chosen["model"])


def link_to(home: Home, request: HttpRequest, calls: list[CallEntry]) -> str:
    """Return the address of the page for the time of some calls of one client, "" if they changed nothing, or if the
    user may not open the page."""
    changing = [call for call in calls if call.rows_changed and call.client_id]
    if not changing or changing[-1].site not in usable_sites():
        return ""
    begins = min(call.time for call in changing)
    # A call writes before it ends.
    ends = max(call.time + timedelta(milliseconds=call.duration) for call in changing) + MINUTE
    times = {"since": f"{local_time(begins):{FORMAT}}", "until": f"{local_time(ends):{FORMAT}}"}
    named = {"site": changing[-1].site, "client": changing[-1].client_id}
    return home.client_time_url(request, **named, **times, back=request.get_full_path())


def listed(home: Home, request: HttpRequest, plan: list[Step]) -> dict[str, Any]:
    """Return what the page shows of a plan: all that is left out and why, and the first changes of the others."""
    address = reverse(f"{home.admin_site.name}:mcp_django_console_undo")
    back = urlencode({"back": request.get_full_path()})
    sights = Sights(home, request)
    rows = [
        {
            "change": step.change,
            "summary": summary_of(sights, step.change),
            "user": plain(step.change.username),
            "url": f"{address}?change={step.change.pk}&{back}",
            "why_not": step.why_not,
        }
        for step in plan
    ]
    ready = [row for row in rows if not row["why_not"]]
    left = [row for row in rows if row["why_not"]]
    return {"ready": ready[:MAX_LISTED], "count": len(ready), "more": len(ready[MAX_LISTED:]), "left": left}


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Show what a client wrote in a time and what of it can be taken back, and take it back."""
    asked = TimeOnPage(request)
    writes = asked.writes
    back = way_back(request)
    context: dict[str, Any] = {"form": asked.form, "back": back}
    if writes is None:
        return page.render(request, context)
    try:
        if request.method == "POST":
            return _take_back(page, request, writes, back)
        plan = writes.plan()
    except ClientTime.TooMany as error:
        text = _(
            "The client wrote %(rows)s rows in this time, and %(most)s is the most at once. Choose a shorter time."
        )
        context["why_not"] = text % {"rows": error.rows, "most": ClientTime.MAX_ROWS}
    except (ToolError, CallRefused) as error:
        context["why_not"] = error.message
    else:
        context |= {"plan": plan, "pin": ClientTime.pin(plan), **listed(page.home, request, plan)}
        context["is_unknown"] = writes.client_id not in asked.writers.clients
    return page.render(request, context)


def _take_back(page: Page, request: HttpRequest, writes: ClientTime, back: str) -> HttpResponseBase:
    recorded = RecordedCall(writes.request)
    try:
        with recorded.by_operator(METHOD, writes.TOOL, model=writes.model, arguments=writes.told):
            steps = writes.run(request.POST.get("pin", ""))
    except (ToolError, CallRefused) as error:
        messages.error(request, error.message)
        query = {name: request.POST.get(name, "") for name in TimeForm.base_fields}
        return redirect(f"{page.url}?{urlencode({**query, 'back': back, 'look': '1'})}")
    count = sum(not step.why_not for step in steps)
    messages.success(request, _("Changes taken back: %(count)s") % {"count": count})
    return redirect(back or page.home.calls_url)
