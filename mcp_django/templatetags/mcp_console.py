"""Filters of the console's templates: the group, the word and the mark of a call's outcome, and times.

The console's Python imports them from here as well.
"""

from collections.abc import ItemsView, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from django import template
from django.contrib.admin.sites import all_sites
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext_lazy, override
from django.utils.translation import gettext as _

from ..conf import settings
from ..context.call_record import ANSWERED, OPEN
from ..context.untrusted_text import plain
from ..models import CallEntry

register: Final = template.Library()
register.filter("plain", plain)
# All times of the console: the same in every language, to be compared with the lines of a server's log.
TIME_FORMAT: Final = "Y-m-d H:i:s"

# The outcomes that are words of their own.
WORDS: Final = {
    "ok": gettext_lazy("answered"), "asked": gettext_lazy("asked"), "cancelled": gettext_lazy("cancelled"),
    "": gettext_lazy("running"), "refused": gettext_lazy("refused"), "failed": gettext_lazy("failed"),
    "tried": gettext_lazy("tried"), "task": gettext_lazy("task"),
}  # fmt: skip
# Why a call was refused or failed, by outcome.
REASONS: Final = {
    "refused:scope": gettext_lazy("missing scope"), "refused:permission": gettext_lazy("no permission"),
    "refused:confirmation": gettext_lazy("not confirmed"), "refused:rate": gettext_lazy("too many calls"),
    "refused:token": gettext_lazy("no valid token"), "refused:origin": gettext_lazy("foreign origin"),
    "refused:switch": gettext_lazy("switched off"), "refused:approval": gettext_lazy("approval rule"),
    "tool_error": gettext_lazy("tool error"),
    "error:timeout": gettext_lazy("timed out"), "error:-32700": gettext_lazy("not JSON"),
    "error:-32600": gettext_lazy("invalid request"), "error:-32601": gettext_lazy("unknown method"),
    "error:-32602": gettext_lazy("invalid arguments"), "error:-32603": gettext_lazy("internal error"),
    "error:-32002": gettext_lazy("not found"), "error:-32020": gettext_lazy("headers do not match"),
    "error:-32021": gettext_lazy("missing capability"), "error:-32022": gettext_lazy("unknown protocol version"),
    "error:400": gettext_lazy("invalid request"), "error:404": gettext_lazy("not found"),
    "error:413": gettext_lazy("request too large"), "error:500": gettext_lazy("internal error"),
    "error:503": gettext_lazy("server busy"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call by its ``code``, such as "refused:scope"; ``GROUPS`` are in the order of a chart's axis."""

    GROUPS: ClassVar = ("ok", "open", "refused", "failed")

    code: str

    @property
    def group(self) -> str:
        """Its group: "ok", also for what was only tried, "refused", "failed", or "open" if asked, cancelled, running
        or a task by now."""
        if self.code in ANSWERED:
            return "ok"
        if self.code in OPEN:
            return "open"
        return "refused" if self.code.startswith("refused:") else "failed"

    @property
    def word(self) -> str:
        """Its word in the reader's language, such as "refused: missing scope"."""
        if self.code in WORDS:
            return str(WORDS[self.code])
        reason = REASONS.get(self.code) or plain(self.code.partition(":")[2] or self.code)
        return _("%(outcome)s: %(reason)s") % {"outcome": WORDS[self.group], "reason": reason}

    @classmethod
    def spoken(cls) -> dict[str, list[str]]:
        """Return the codes by their words, in English and in the reader's language, in lower case."""
        codes: dict[str, list[str]] = {}
        for language in ("en", get_language() or "en"):
            with override(language):
                codes.setdefault(_("asked or cancelled").lower(), []).append("open")
                for code, text in (WORDS | REASONS).items():
                    # A call that runs has no code to ask for.
                    if code:
                        codes.setdefault(str(text).lower(), []).append(code)
                        codes.setdefault(cls(code).word.lower(), []).append(code)
        return {word: list(dict.fromkeys(found)) for word, found in codes.items()}


@register.filter
def group_of(outcome: str) -> str:
    """Return the group of an outcome."""
    return Outcome(outcome).group


@register.filter
def word_of(outcome: str) -> str:
    """Return the word of an outcome."""
    return Outcome(outcome).word


@register.filter
def outcome_mark(outcome: str) -> SafeString:
    """Return the mark of a call's outcome: its group's colour and sign, its word, and the code as title."""
    shown = Outcome(outcome)
    mark = '<span class="mcp-mark mcp-{}" title="{}"><bdi>{}</bdi></span>'
    return format_html(mark, shown.group, plain(outcome), shown.word)


def local_time(time: datetime) -> datetime:
    """Return a time in the current time zone; without ``USE_TZ`` it has none, and stays as it is."""
    return timezone.localtime(time) if timezone.is_aware(time) else time


@register.filter
def moment(time: datetime | None) -> Any:
    """Return a time to the second, in the reader's zone, "" for none."""
    if time is None:
        return ""
    local = local_time(time)
    return format_html('<time dir="ltr" datetime="{}">{}</time>', local.isoformat(), date_format(local, TIME_FORMAT))


def duration_text(ms: float) -> str:
    """Return a duration in ms as text, in ms or s: the same on every page, as exactly as a reader needs."""
    if round(ms) >= 1000:
        return _("%s s") % _rounded(ms / 1000)
    return _("%s ms") % _rounded(ms)


def _rounded(number: float) -> str:
    """Return a number as text, with a decimal if it is below 10 and not whole."""
    number = round(number, 0 if number >= 9.95 else 1)
    return number_format(number, 0 if number % 1 == 0 else 1)


@register.filter
def lasted(ms: float) -> SafeString:
    """Return a duration in ms as text, with the exact number as title."""
    exact = _("%s ms") % number_format(round(ms, 1), 1, use_l10n=True, force_grouping=True)
    return format_html('<bdi title="{}">{}</bdi>', exact, duration_text(ms))


@register.filter
def pairs(found: Mapping[str, Any]) -> ItemsView[str, Any]:
    """Return the items of a dict: in a template, ``found.items`` is first of all the value of a key of that name."""
    return found.items()


@register.simple_tag
def is_log_off() -> bool:
    """Return whether the settings keep no log of calls; False while they are wrong, which other pages tell."""
    with suppress(ImproperlyConfigured):
        return not settings.CALL_LOG
    return False


def _console_of(request: Any) -> Any:
    """Return the console of the admin site that a request is for, None if it has none."""
    sites = [site for site in all_sites if site.name == request.current_app and site.is_registered(CallEntry)]
    home: Any = sites[0].get_model_admin(CallEntry) if sites else None
    return home if hasattr(home, "in_zone") else None


@register.simple_tag(takes_context=True)
def approvals_card(context: Any) -> Any:
    """Return how many requests for approval the user may decide, and where, for the index of the admin."""
    request = context["request"]
    home = _console_of(request)
    for page in home.pages if home is not None else ():
        count = page.count(request) if page.may_open(request) else 0
        if count:
            return {"count": count, "url": page.url}
    return {}


@register.simple_tag(takes_context=True)
def calls_card(context: Any) -> Any:
    """Return what the card of calls shows on the index of the admin site that has the call log."""
    request = context["request"]
    home = _console_of(request)
    if home is None or not home.has_view_permission(request):
        return {}
    return home.in_zone(import_string("mcp_django.console.overview_charts.card"))(request, home)
