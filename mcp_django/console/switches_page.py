"""The console's switches page: what is off, a form that turns something off, buttons that turn it on."""

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.functional import cached_property
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..context.untrusted_text import plain
from ..models import CallEntry, Switch
from ..operating.switches import end_switch, known_names, set_switch
from .call_query import LOOKED_THROUGH, KnownValues
from .console_pages import Page
from .known_sites import known_sites

CHANGE: Final = "mcp_django.change_switch"
# Maximum numbers of ended switches that are shown (the latest), of clients with one name (those that called last), and
# of names that the form can complete.
MAX_ENDED: Final = 20
MAX_CLIENTS: Final = 50
MAX_OFFERED: Final = 1_000
LASTS: Final = {
    "": gettext_lazy("until it is turned on again"),
    "30": gettext_lazy("30 minutes"),
    "60": gettext_lazy("an hour"),
    "120": gettext_lazy("2 hours"),
    "480": gettext_lazy("8 hours"),
    "1440": gettext_lazy("a day"),
    "10080": gettext_lazy("a week"),
}
# Maximum characters of the path to which a form leads back.
MAX_PATH: Final = 2_000
TARGETLESS: Final = (Switch.Kind.EVERYTHING, Switch.Kind.WRITES)


class SwitchForm(forms.Form):
    """What to turn off, why and for how long."""

    kind = forms.ChoiceField(label=gettext_lazy("What"), choices=Switch.Kind.choices, initial=Switch.Kind.TOOL)
    target = forms.CharField(
        label=gettext_lazy("Which"),
        max_length=255,
        required=False,
        widget=forms.TextInput(attrs={"list": "mcp-targets", "dir": "auto", "autocomplete": "off"}),
        help_text=gettext_lazy(
            "The name of the tool; the model, such as shop.order, or its app; the action, such as shop.order.ship; the "
            "id or host of the client; the name of the user or the service account."
        ),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"), max_length=200, required=False, help_text=gettext_lazy("Callers are told.")
    )
    lasts = forms.ChoiceField(label=gettext_lazy("How long"), choices=list(LASTS.items()), required=False)
    until = forms.DateTimeField(
        label=gettext_lazy("Or until"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    def __init__(self, data: Any = None, *, initial: Any = None) -> None:
        super().__init__(data, initial=initial, auto_id="switch_%s")

    @cached_property
    def names(self) -> dict[str, set[str]]:
        """The known names that can be switched off, by kind of switch."""
        return known_names(known_sites().values())

    @property
    def offered(self) -> list[str]:
        """The names that a browser can complete."""
        return sorted({name for names in self.names.values() for name in names})[:MAX_OFFERED]

    def clean(self) -> dict[str, Any]:
        """Validate the target: the site has to have such a tool or action."""
        cleaned = super().clean() or {}
        kind = cleaned.get("kind")
        target = cleaned.get("target", "").strip()
        if kind in TARGETLESS:
            target = ""
        elif kind in (Switch.Kind.TOOL, Switch.Kind.ACTION) and target not in self.names[kind]:
            self.add_error("target", _("Nothing has this name."))
        cleaned["target"] = target
        return cleaned

    def switch_off(self, user: Any) -> Switch | None:
        """Set the switch and return it; if that fails, put the error into the form and return None."""
        chosen = self.cleaned_data
        until = chosen["until"] or (timedelta(minutes=int(chosen["lasts"])) if chosen["lasts"] else None)
        try:
            return set_switch(chosen["kind"], chosen["target"], reason=chosen["reason"], by=user, until=until)
        except ValueError as error:
            self.add_error(None, str(error))
            return None


def proposed(request: HttpRequest) -> dict[str, str]:
    """Return what the link of an "off" button fills into the form: by default off for an hour, with a reason."""
    values = {name: request.GET[name][:255] for name in ("kind", "target", "reason", "lasts") if name in request.GET}
    if not values:
        return {}
    return {"reason": _("Off while we look into a problem."), "lasts": "60", **values}


def clients_named(name: str) -> dict[str, Any]:
    """Return the clients with this name or id: their ids, with the times of their last calls."""
    column, values = KnownValues().look("client", name.replace("\0", "")[:255])
    calls = CallEntry._default_manager.filter(**{f"{column}__in": values}).exclude(client_id="").order_by("-time")
    clients: dict[str, Any] = {}
    for client_id, time in calls.values_list("client_id", "time")[:LOOKED_THROUGH]:
        clients.setdefault(client_id, time)
    return dict(list(clients.items())[:MAX_CLIENTS])


def way_back(request: HttpRequest) -> str:
    """Return the path of this site from which the user came by an "off" button, "" for none."""
    path = request.POST.get("back", request.GET.get("back", ""))
    is_own = path.startswith("/") and len(path) <= MAX_PATH and url_has_allowed_host_and_scheme(path, None)
    return path if is_own else ""


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Answer a request for the page."""
    user: Any = request.user
    may_change = bool(user.has_perm(CHANGE))
    initial = proposed(request)
    back = way_back(request)
    named = request.GET.get("named", "") if may_change and page.home.has_view_permission(request) else ""
    clients = clients_named(named) if named else {}
    chosen = (request.POST.getlist("target")[:MAX_CLIENTS] if request.method == "POST" else [*clients]) or [""]
    form = SwitchForm(initial={"target": chosen[0], **initial}) if may_change else None
    if request.method == "POST":
        if not may_change:
            raise PermissionDenied
        if "on" in request.POST:
            switch = ModelAdmin(Switch, page.home.admin_site).get_object(request, request.POST["on"])
            if switch is not None and end_switch(switch, by=user):
                text = _("On again: %(what)s. All workers apply it within 5 seconds.")
                messages.success(request, text % {"what": switch})
            else:
                messages.warning(request, _("It is on already."))
            return redirect(back or page.url)
        filled = [SwitchForm({**request.POST.dict(), "target": target}) for target in chosen]
        is_good = all(each.is_valid() for each in filled)
        made = [each.switch_off(user) for each in filled] if is_good else []
        if is_good and all(made):
            what = ", ".join(dict.fromkeys(map(str, made)))
            messages.success(request, _("Off: %(what)s. All workers apply it within 5 seconds.") % {"what": what})
            return redirect(back or page.url)
        form = next(each for each in filled if each.errors)
    off = list(Switch.active().order_by("begins", "pk")[:MAX_OFFERED])
    rows = Switch._default_manager.exclude(pk__in=[switch.pk for switch in off]).order_by("-pk")
    context = {"form": form, "off": off, "ended": rows[:MAX_ENDED], "may_change": may_change, "back": back}
    return page.render(
        request, context | {"is_proposed": bool(initial), "named": plain(named), "clients": clients, "chosen": chosen}
    )
