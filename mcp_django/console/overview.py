"""The overview: what the clients of a site do, how it ends, and what goes on now."""

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _

from .charts import HEIGHT, WIDTH, bars, lines, table
from .figures import SPANS, Figures, Span, figures
from .live import counted
from .pages import Page

SHARES: Final = {"p50": 0.5, "p95": 0.95}


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Answer with the overview."""
    span = SPANS.get(request.GET.get("span", ""), SPANS["day"])
    return page.render(request, Overview(page.home.calls_url).context(span))


class Overview:
    """Figures, charts and lists of a span; each number leads to the calls behind it, in the list at ``calls_url``."""

    def __init__(self, calls_url: str) -> None:
        self.calls_url = calls_url

    def context(self, span: Span) -> dict[str, Any]:
        """Return what the page shows of a span."""
        found = figures(span, timezone.now())
        curves, most = lines(found.steps, SHARES)
        return {
            "span": span,
            "spans": SPANS.values(),
            "figures": found,
            "numbers": self._numbers(found),
            "live": counted(),
            "bars": bars(found.steps),
            "curves": curves,
            "most_ms": most,
            "most_calls": max((sum(step.counts.values()) for step in found.steps), default=0),
            "box": f"0 0 {WIDTH} {HEIGHT}",
            "rows": [self._linked(span, row) for row in table(found.steps, SHARES)],
            "tops": self._tops(found),
            "refusals": self._outcomes(found),
        }

    def _link(self, found: Figures, **chosen: str) -> str:
        query = {"time__gte": found.begins.isoformat(), "time__lte": found.ends.isoformat(), **chosen}
        return f"{self.calls_url}?{urlencode(query)}"

    def _numbers(self, found: Figures) -> list[dict[str, Any]]:
        refused, failed = found.of_group("refused"), found.of_group("failed")
        return [
            {"title": _("Calls"), "value": found.calls, "url": self._link(found)},
            {"title": _("Refused"), "value": refused, "url": self._link(found, outcome__startswith="refused:")},
            {"title": _("Failed"), "value": failed, "url": self._link(found, outcome__contains="error")},
            {"title": _("p50 (ms)"), "value": found.p50, "url": ""},
            {"title": _("p95 (ms)"), "value": found.p95, "url": self._link(found, duration__gte=f"{found.p95:.3f}")},
            {"title": _("Rows read"), "value": found.rows_read, "url": self._link(found, rows_read__gt="0")},
            {"title": _("Rows changed"), "value": found.rows_changed, "url": self._link(found, rows_changed__gt="0")},
            {"title": _("Tokens sent (about)"), "value": found.tokens, "url": ""},
        ]

    def _linked(self, span: Span, row: dict[str, Any]) -> dict[str, Any]:
        step = row["step"]
        query = urlencode({"time__gte": step.begins.isoformat(), "time__lt": step.ends.isoformat()})
        return {**row, "url": f"{self.calls_url}?{query}"}

    def _tops(self, found: Figures) -> list[dict[str, Any]]:
        titles = {"tool": _("Tools"), "model": _("Models"), "client_id": _("Clients"), "user": _("Users")}
        return [
            {
                "title": titles[name],
                "entries": [
                    {"entry": entry, "url": self._link(found, **{f"{name}__exact": entry.value})} for entry in entries
                ],
            }
            for name, entries in found.tops.items()
        ]

    def _outcomes(self, found: Figures) -> list[dict[str, Any]]:
        return [
            {"outcome": outcome, "count": count, "url": self._link(found, outcome__exact=outcome)}
            for outcome, count in found.outcomes.most_common()
            if outcome != "ok"
        ]
