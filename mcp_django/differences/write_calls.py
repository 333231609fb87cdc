"""One call that writes: its write is prepared, confirmed where it asks, performed, and kept, in one transaction.

With ``dry_run``, and for each question, the write is tried first: the difference that it makes is what is shown.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any

from django.db import router

from ..context.approval_checks import Unforeseen
from ..context.confirmation import Confirmation
from ..context.person_consent import digest_of
from ..context.previews import Preview
from ..context.tool_results import ToolResult
from ..orm.database_writes import one_transaction
from ..orm.tool_arguments import Arguments
from .cascades import TooManyRows
from .footprints import Footprint
from .kept_changes import TOO_LARGE, Changes, why_not_kept
from .trials import UNDO_OFF, UNSURE, Trial
from .writes import Write


class WritePreview(Preview):
    """What a write would do, tried when it is asked for."""

    def __init__(self, write: Write, make: Callable[[], Write], trial: Trial | None = None) -> None:
        self.write = write
        self.make = make
        self.tried = trial

    @cached_property
    def trial(self) -> Trial:
        """The write, tried."""
        tried: Trial | None = self.tried or getattr(self.write, "trial", None)
        return tried or Trial(self.make)

    @property
    def message(self) -> str:
        return f"{self.write.message} {self.trial.taken_back}"

    @property
    def question(self) -> str:
        return "\n\n".join([self.message, self.trial.difference.text(), self.write.listing])

    @property
    def shown(self) -> Mapping[str, Any]:
        return {**self.write.shown, "difference": self.trial.to_wire()}

    @property
    def columns(self) -> Mapping[str, Any]:
        trial = self.trial
        return {
            "digest": digest_of(trial.confirmation),
            "summary": trial.difference.sentence,
            "rows": trial.difference.total,
            "labels": [model.exposure.label for model in trial.difference.counts],
            "using": trial.stored.using,
            "cannot_undo": trial.cannot_undo,
        }


class WriteCall:
    """The call of a tool that makes a write. ``make`` returns the write, anew each time: a write that was tried has
    changed its instances."""

    def __init__(self, make: Callable[[], Write], arguments: Arguments) -> None:
        self.make = make
        self.arguments = arguments
        self.write = make()
        self.request = self.write.request
        self.using = router.db_for_write(self.write.exposure.model)
        why_not = why_not_kept(self.using)
        self.is_kept = not why_not
        self.cannot_undo = why_not if self.write.keeps_undo else UNDO_OFF

    def run(self) -> ToolResult:
        """Make the write, try it, or ask first; return its result, or what is to be confirmed."""
        if self.arguments.flag("dry_run"):
            return self._tried()
        while True:
            try:
                return self._run()
            except Unforeseen:
                self.write = self.make()

    def _run(self) -> ToolResult:
        write = self.write
        with write.refusals(), one_transaction(write.exposure.model, self.request):
            footprint = self._prepared()
            if (pin := self.arguments.get("version")) and Confirmation.is_pin(pin):
                write.confirmation(footprint).check_pin(pin)
            approvals = self.request.mcp.approvals
            trial = approvals.check_write(write, footprint, self.make) if approvals is not None else None
            if self.is_asked and (asked := self._asked(footprint, trial)):
                return asked
            self.request.mcp.begin_work(rows=write.many, using=self.using)
            with approvals.guard() if approvals is not None else nullcontext():
                return ToolResult(structured=self.perform(footprint))

    def run_pinned(self, pin: str) -> dict[str, Any]:
        """Make the write that a person has seen tried, and has said yes to; return its result.

        Raises ``ToolError`` if it would no longer do what it did when this pin was made.
        """
        with self.write.refusals(), one_transaction(self.write.exposure.model, self.request):
            footprint = self._prepared()
            self.write.confirmation(footprint).check_pin(pin)
            return self.perform(footprint)

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        """Make the prepared write and keep it, in the transaction of the caller; return its result."""
        with footprint.watching():
            result = self.write.perform(footprint)
        return {**result, **self._kept(footprint)}

    @property
    def is_asked(self) -> bool:
        """Whether the prepared write has to be confirmed, or was confirmed by a person."""
        mcp = self.request.mcp
        is_approved = mcp.approvals is not None and mcp.approvals.is_needed
        return self.write.asks or is_approved or mcp.consent is not None

    def _prepared(self) -> Footprint:
        """Prepare the write, and return its footprint. The rows are read as they are, if that is needed to take the
        write back or to ask."""
        self.write.prepare()
        footprint = Footprint(self.using)
        if not self.cannot_undo or self.is_asked or self.request.mcp.approvals is not None:
            try:
                self.write.track(footprint)
            except TooManyRows:
                self.cannot_undo = TOO_LARGE
        return footprint

    # Asking

    def _asked(self, footprint: Footprint, trial: Trial | None) -> ToolResult | None:
        """Ask for confirmation: return the preview to confirm, None once exactly this is confirmed."""
        token = self.arguments.get("confirm_token")
        preview = WritePreview(self.write, self.make, trial)
        return self.write.confirmation(footprint).confirm(token, preview, again=self.write.asks_again)

    # Trying

    def _tried(self) -> ToolResult:
        """Return what the write would do."""
        approvals = self.request.mcp.approvals
        trial = Trial(self.make) if approvals is None else approvals.check_trial(self.make)
        trial.settle()
        wire = {"dry_run": True, **trial.to_wire(), "version": trial.pin}
        if approvals is not None and approvals.is_needed:
            wire["next"] = approvals.told
        elif trial.write.asks:
            wire["next"] = Trial.WILL_ASK
        return ToolResult(structured=wire)

    # Keeping

    def _kept(self, footprint: Footprint) -> dict[str, Any]:
        """Keep what the write has done, and return the number by which it is found."""
        write = self.write
        consent = self.request.mcp.consent
        if consent is None and not self.is_kept:
            return {}
        stored = write.outcome(footprint) if not self.cannot_undo else None
        has_written = bool(stored)
        if consent is None and not has_written and not self.cannot_undo:
            return {}
        if footprint.unsure:
            self.cannot_undo = self.cannot_undo or UNSURE
        number = Changes(self.request).keep_done(
            using=self.using,
            tool=write.tool,
            labels=write.labels,
            undoes=write.undoes,
            rows=len(write.targets),
            summary=write.summary,
            shown=write.rows_to_keep(),
            footprint=stored.to_json() if stored is not None and has_written else b"",
            cannot_undo=self.cannot_undo,
        )
        return {"change": number}
