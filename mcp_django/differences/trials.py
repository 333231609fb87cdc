"""Trials: a write is tried, by running it and rolling it back, and what it would do is told."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from django.db import router
from django.db.models import Model
from django.utils import timezone
from django.utils.translation import gettext_noop

from ..conf import settings
from ..context.request import MCPRequest
from ..exceptions import ToolError
from .cascades import TooManyRows
from .difference import Difference
from .differing_rows import DifferingRows, ShownSide
from .footprints import Footprint, StoredDifference
from .kept_changes import why_not_kept
from .other_rows import OtherRows
from .rehearsals import Rehearsal
from .stored_rows import Key
from .visible_tables import told_tables
from .writes import Write

# Why a change of a model cannot be taken back whose exposure says so.
UNDO_OFF: Final = "The project keeps nothing to take changes of this model back."
# Why a change cannot be taken back of which some new rows may be old ones, which a hook has moved.
UNSURE: Final = "A hook of the project may have moved rows that were there before."
HOOKS_UNTRIED: Final = gettext_noop("hooks of the project")
FILES_UNTRIED: Final = gettext_noop("files ({})")
KEYS_UNTRIED: Final = gettext_noop("foreign keys of {}")
# What is told of a mail.
MAILED: Final = gettext_noop("a mail to {}")
UNTRIABLE: Final = "What this changes is too much to show row by row. Nothing was changed. Narrow it down."


@contextmanager
def without_progress(request: MCPRequest) -> Iterator[None]:
    """Tell the client nothing of the block: what is only tried makes no progress."""
    mcp = request.mcp
    notify = mcp.notify
    mcp.notify = None
    try:
        yield
    finally:
        mcp.notify = notify


def told_of(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return as JSON what a rehearsal of a request has found besides the rows of a write, without what is empty."""
    told = {
        "also_written": told_tables(rehearsal, rehearsal.also_written),
        "on_commit": rehearsal.callbacks,
        # Not its text: it may hold what the caller does not see.
        "mails": [MAILED.format(mail.recipients) for mail in rehearsal.mails],
    }
    return {name: value for name, value in told.items() if value}


def untried_of(rehearsal: Rehearsal) -> list[str]:
    """Return what a rehearsal of a request has not tried."""
    number = len(rehearsal.files_untried)
    # Without names: hooks may make them of what the caller does not see.
    files = [FILES_UNTRIED.format(number)] if number else []
    return [*files, *map(KEYS_UNTRIED.format, told_tables(rehearsal, rehearsal.unchecked))]


class Trial:
    """One write that was tried.

    ``difference`` is what the caller sees of it, and ``stored`` what it does in all. ``pin`` holds the call to the rows
    as they were before it, ``digest`` is that of these rows, and ``confirmation`` is bound to them. ``result`` is what
    the call would return, and ``cannot_undo`` why it could not be taken back, "" if it could. ``keys`` are those of
    the rows that a write touches whose steps name them as they come, by model. ``look`` is called while the rows are as
    the write has left them.
    """

    # What is said of a call that asks, though its trial did not.
    WILL_ASK: ClassVar = "The call itself will ask for confirmation."

    write: Write
    difference: Difference
    stored: StoredDifference

    def __init__(self, make: Callable[[], Write], look: Callable[["Trial"], None] | None = None) -> None:
        self._look = look
        self.keys: Mapping[type[Model], Collection[Key]] = {}
        self._begin(make)
        self.request = self.write.request
        self.result: dict[str, Any] = {}
        self.untried: list[str] = []
        self.cannot_undo = ""
        self.rehearsal: Rehearsal | None = None
        self._written = self.request.mcp.record.rows_changed
        with without_progress(self.request), self.write.refusals():
            if not self.write.can_be_tried:
                self._plan()
            elif not self._run():
                # Now it is known from the start which rows these are.
                self._begin(make)
                self._run()

    def _begin(self, make: Callable[[], Write]) -> None:
        self.write = make()
        self.write.tries = True

    @property
    def taken_back(self) -> str:
        """Whether the write could be taken back, in a sentence."""
        if self.cannot_undo:
            return f"It cannot be taken back: {self.cannot_undo}"
        return f"It can be taken back for {settings.UNDO_DAYS} days."

    def settle(self, rows: int = 0) -> None:
        """End the call as one that was only tried. It counts as written rows, at least so many: else it would tell for
        nothing what is there."""
        record = self.request.mcp.record
        record.settle("tried")
        record.rows_changed = self._written + max(self.difference.total, rows)

    def _track(self, footprint: Footprint) -> None:
        try:
            self.write.track(footprint)
        except TooManyRows:
            raise ToolError(UNTRIABLE) from None

    def _hold(self, footprint: Footprint) -> None:
        """Hold the call to the rows as they were before the write."""
        self.digest = footprint.digest()
        self.confirmation = self.write.confirmation(footprint)
        self.pin = self.confirmation.pin()

    def _run(self) -> bool:
        """Try the write, with its hooks if no exposure forbids that; return whether all rows were named in time."""
        write = self.write
        began = timezone.now()
        before = ShownSide(self.request, began)
        after = ShownSide(self.request, began)
        using = router.db_for_write(write.exposure.model)
        footprint = Footprint(using)
        rehearsal = self.rehearsal = Rehearsal(write.exposure.model, request=self.request)
        with rehearsal:
            write.prepare()
            footprint.add_keys(self.keys)
            self._track(footprint)
            others = OtherRows(footprint)
            with footprint.watching(), others.watching():
                self.result = write.perform(footprint)
            if not write.names_late:
                self._hold(footprint)
            self.stored = write.outcome(footprint)
            if self._look is not None:
                self._look(self)
            rows = DifferingRows(self.request, self.stored, write.targets)
            rows.read(after)
            rehearsal.tables = {*write.tables(footprint)} - others.tables(self.stored)
        if write.names_late:
            there = footprint.again()
            rows.take_for_new(footprint.rows, there.rows)
            self.keys = there.rows
            self._hold(there)
        rows.read(before)
        self.difference = rows.difference(before, after, write.targets)
        self.untried = untried_of(rehearsal)
        reason = "" if write.keeps_undo else UNDO_OFF
        if footprint.unsure:
            reason = reason or UNSURE
        self.cannot_undo = reason or why_not_kept(using, len(self.stored.to_json()))
        return not others.are_named_too_late

    def _plan(self) -> None:
        """Check the write by its forms, and plan its deletions, without running it."""
        write = self.write
        began = timezone.now()
        side = ShownSide(self.request, began)
        using = router.db_for_write(write.exposure.model)
        footprint = Footprint(using)
        with Rehearsal(write.exposure.model, request=self.request):
            write.prepare()
            write.check()
            self._track(footprint)
            self._hold(footprint)
            rows = DifferingRows(self.request, StoredDifference(using, {}), write.targets)
            rows.read(side)
        self.stored = StoredDifference(using, {})
        self.difference = rows.planned(side, write.permission, write.targets)
        self.untried.append(HOOKS_UNTRIED)
        self.cannot_undo = why_not_kept(using)

    def to_wire(self) -> dict[str, Any]:
        """Return what the write would do as JSON."""
        wire = self.difference.to_wire()
        if "messages" in self.result:
            wire["messages"] = self.result["messages"]
        if self.rehearsal is not None:
            wire |= told_of(self.rehearsal)
        if self.untried:
            wire["not_tried"] = self.untried
        if self.cannot_undo:
            wire["cannot_undo"] = self.cannot_undo
        return wire
