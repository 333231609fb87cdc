"""The results of checks: of the project, and of its endpoints over HTTP."""

from dataclasses import dataclass

from django.utils.translation import gettext as _


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: ``verdict`` is "ok", "info", "warning" or "error"; ``remedy`` is the fix."""

    title: str
    verdict: str
    seen: str
    remedy: str = ""

    @property
    def word(self) -> str:
        """The verdict in words."""
        return {"ok": _("ok"), "info": _("note"), "warning": _("warning")}.get(self.verdict, _("wrong"))
