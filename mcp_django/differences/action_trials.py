"""Actions whose author says that they can be tried: tried with ``dry_run`` and for each question, and kept.

Such an action runs on the picked rows like a write of our own. Its difference is that of these rows, of their links in
many-to-many relations, and of what goes with those that it deletes; what else it writes is only named. If it writes
nothing else, what it did can be taken back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from django.db import connections, router, transaction
from django.db.models import Model

from ..context.confirmation import DirectAnswers
from ..context.previews import Preview
from ..context.questions import Answers
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.action_calls import NOT_TRIED, ActionCall
from ..emulation.action_responses import ActionPage
from ..emulation.page_requests import changelist_entries
from ..exceptions import InputRequired, ToolError
from ..exposures.declared_actions import Action
from ..orm.tool_arguments import Arguments
from .bulk_writes import counted
from .cascades import TooManyRows
from .differing_rows import Target
from .footprints import Footprint, StoredDifference
from .going_rows import GoingRows
from .kept_changes import TOO_LARGE, Changes, KeptChange, why_not_kept
from .other_rows import OtherRows
from .rehearsals import CHANGING, NotRehearsable, name_of, own_tables
from .statements import Statement, TableName
from .trials import UNDO_OFF, UNSURE, Trial
from .writes import Write

CHANGED: Final = "Someone else was changing these rows. Nothing was changed. Repeat the call."
# The members of an action's result that an answer to a dry run has too.
TOLD: Final = ("result", "text")


class AsksFirst(ToolError):
    """Raised where an action that is tried asks for something that the call does not have."""

    def __init__(self, names: Sequence[str], errors: Sequence[str] = ()) -> None:
        asked = f"This action asks for {', '.join(names)}: give form with it." if names else "This action asks first."
        super().__init__(" ".join([*errors, asked, "Nothing was changed."]))


class TriedCall(ActionCall):
    """The call of an action that is only tried: nobody confirms it, and the call has all answers."""

    tries = True
    going: GoingRows

    def watching(self, rows: Sequence[Model]) -> AbstractContextManager[None]:
        return self.going.watching()

    def run_unasked(self) -> ToolResult:
        """Run the action on the rows that were selected; raise ``AsksFirst`` if it asks for more than ``form`` has."""
        mcp = self.request.mcp
        before = mcp.answers
        mcp.answers = Answers(self.form, direct=True, trusted=True)
        try:
            values, entries = self.action.validate(self.request, self.arguments)
            values = {**values, **self.action.answers(self.request, values)}
            outcome = self.attempt(values, [*changelist_entries(self.action.name, self.rows), *entries])
            if isinstance(outcome, ActionPage):
                return self.answer(outcome, values)
            return outcome
        except InputRequired as asked:
            names = DirectAnswers(self.request, asked.questions).schema()["properties"]
            raise AsksFirst(list(names), [question.reason for question in asked.questions if question.reason]) from None
        finally:
            mcp.answers = before

    def page_result(self, page: ActionPage, errors: Sequence[str] = ()) -> ToolResult:
        raise AsksFirst(page.required_names() or list(page.schema()["properties"]), errors)


class ActionRun(Write):
    """An action on the rows of a call, run as a write that is tried. ``digest`` is that of the rows as they were."""

    permission = "change"
    done = "done"

    def __init__(self, call: TriedCall) -> None:
        super().__init__(call.model, call.action.key)
        self.call = call
        self.keys: list[Any] = []
        self.digest = ""

    def refusals(self) -> AbstractContextManager[None]:
        # The call has its own.
        return nullcontext()

    @property
    def can_be_tried(self) -> bool:
        return True

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"model": self.exposure.label, "arguments": self.call.arguments, "form": self.call.form}

    def prepare(self) -> None:
        self.call.select()
        # An action that deletes rows takes the keys from their instances.
        self.keys = [row.pk for row in self.call.rows]

    def track(self, footprint: Footprint) -> None:
        self.digest = tracked(footprint, self.call.rows)
        self.call.going = GoingRows(footprint, self.exposure.model)

    @property
    def targets(self) -> Sequence[Target]:
        return [Target(self.model, key) for key in self.keys]

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        return dict(self.call.run_unasked().structured or {})


def tracked(footprint: Footprint, rows: Sequence[Model]) -> str:
    """Read rows on which an action runs, and their links; return the digest of the rows themselves."""
    for row in rows:
        footprint.add_row(row)
    footprint.before()
    digest = footprint.digest()
    footprint.add_links(rows)
    footprint.before()
    return digest


class ActionTrial(Trial):
    """An action that was tried."""

    def _run(self) -> bool:
        super()._run()
        assert isinstance(self.write, ActionRun)
        if self.write.call.going.are_too_many:
            self.cannot_undo = self.cannot_undo or TOO_LARGE
        if self.rehearsal is not None and self.rehearsal.also_written:
            self.cannot_undo = self.cannot_undo or KeptChange.NOT_RECORDED
        # Rows that were written before they were named are among those that were also written.
        return True

    def to_wire(self) -> dict[str, Any]:
        wire = super().to_wire()
        if not wire.get("messages"):
            wire.pop("messages", None)
        return wire | {name: self.result[name] for name in TOLD if name in self.result}


class Outlook(Preview):
    """What an action would do, or why that is not known (``untried``)."""

    def __init__(self, trial: ActionTrial | None, untried: str = "") -> None:
        self.trial = trial
        self.untried = untried

    @property
    def message(self) -> str:
        if self.trial is None:
            return self.untried
        return self.trial.taken_back

    @property
    def question(self) -> str:
        if self.trial is None:
            return self.untried
        return f"{self.message}\n\n{self.trial.difference.text()}"

    @property
    def shown(self) -> Mapping[str, Any]:
        if self.trial is None:
            return {"not_tried": [NOT_TRIED]}
        return {"difference": self.trial.to_wire()}

    @property
    def columns(self) -> Mapping[str, Any]:
        if self.trial is None:
            return {}
        return {"summary": self.trial.difference.sentence, "cannot_undo": self.trial.cannot_undo}


class WrittenTables:
    """Notes which tables the statements of a block write."""

    def __init__(self) -> None:
        self._names: set[tuple[str, TableName]] = set()
        self._has_others = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the statements of this thread on all databases."""
        with ExitStack() as stack:
            for using in connections:
                stack.enter_context(connections[using].execute_wrapper(self._note))
            yield

    def _note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        connection = context["connection"]
        result = execute(sql, params, many, context)
        for statement in Statement.read(Statement.text(sql, connection)):
            is_counted = statement.word in CHANGING and "RETURNING" not in str(sql)
            if statement.table is not None and not (is_counted and context["cursor"].rowcount == 0):
                self._names.add((connection.alias, statement.table))
            elif statement.table is None and not statement.reads:
                self._has_others = True
        return result

    def are_all_in(self, footprint: Footprint) -> bool:
        """Return whether nothing was written besides the tables of a footprint and those of Django and of this app."""
        known = {(using, name) for using, _ in self._names for name in own_tables(using)}
        known |= {(footprint.using, name_of(footprint.using, table)) for table in footprint.tables}
        return self._names <= known and not self._has_others


class TriableActionCall(ActionCall):
    """The call of an action whose author says that it can be tried.

    With ``dry_run`` the action is only tried. Its preview shows what it would do, and a confirmation holds it to the
    rows as they were shown. What it did is kept as a change.
    """

    # The preview says whether it can be taken back.
    WARNING = ""
    footprint: Footprint
    written: WrittenTables
    others: OtherRows
    going: GoingRows
    # Of the rows as they were shown, and of all that the action writes as it was when a version was made.
    digest = ""
    tried_digest = ""

    def __init__(
        self, request: MCPRequest, action: Action, arguments: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        super().__init__(request, action, arguments, own)
        self.is_dry = Arguments(arguments).flag("dry_run")
        self.version: str | None = arguments.get("version")
        self.using = router.db_for_write(self.exposure.model)
        why_not = why_not_kept(self.using)
        self.is_kept = not why_not
        self.cannot_undo = why_not if self.exposure.undo else UNDO_OFF

    @staticmethod
    def fits(action: Action) -> bool:
        """Return whether an action may run to show what it would do: its author says so, and a rollback undoes it. One
        that only reads is not tried."""
        return action.options.dry_run and action.atomic and not action.read_only

    def run(self) -> ToolResult:
        """Run the action, try it, or ask first."""
        if self.is_dry:
            return self._tried()
        if self.version is not None:
            self._check_version(self.version)
        return super().run()

    def _check_version(self, version: str) -> None:
        """Raise ``ToolError`` unless the action would run on the rows that a dry run has shown, as they were."""
        trial = self._trial()
        trial.confirmation.check_pin(version)
        self.tried_digest = trial.digest

    def _trial(self, look: Callable[[Trial], None] | None = None) -> ActionTrial:
        given = {**self.picked, "form": dict(self.form)}
        return ActionTrial(lambda: ActionRun(TriedCall(self.request, self.action, given, self.arguments)), look)

    def tried(self, look: Callable[[Any], None]) -> ActionTrial | None:
        """Return the action, tried, after ``look`` has seen it; None where it asks for more than the call has."""
        if self.action.only_looks:
            return None
        try:
            return self._trial(look)
        except (AsksFirst, NotRehearsable):
            return None

    def _tried(self) -> ToolResult:
        """Return what the action would do."""
        trial = self._trial()
        run = trial.write
        assert isinstance(run, ActionRun)
        trial.settle(len(run.keys))
        about = {"action": self.action.name, "model": self.exposure.label, "rows": len(run.keys)}
        wire = {"dry_run": True, **about, **trial.to_wire(), "version": trial.pin}
        if run.call.confirms:
            wire["next"] = Trial.WILL_ASK
        self.select()
        if self._is_approved(self.form):
            assert self.request.mcp.approvals is not None
            wire["next"] = self.request.mcp.approvals.told
        return ToolResult(structured=wire)

    # Asking

    def bound(self) -> Sequence[Any]:
        """Return what a confirmation is bound to: the rows, as they are."""
        if self.action.only_looks:
            return self.rows
        footprint = Footprint(self.using)
        for row in self.rows:
            footprint.add_row(row)
        # Too many to take back are still held to.
        with transaction.atomic(using=self.using), suppress(TooManyRows):
            footprint.before()
        self.digest = footprint.digest()
        return [*self.rows, ["rows", self.digest]]

    @cached_property
    def _outlook(self) -> Outlook | None:
        try:
            trial = self._trial()
        except AsksFirst:
            return None
        except NotRehearsable as error:
            return Outlook(None, error.message)
        assert isinstance(trial.write, ActionRun)
        if self.digest and trial.write.digest != self.digest:
            raise ToolError(CHANGED)
        return Outlook(trial)

    def outlook(self) -> Preview | None:
        """Return what the action would do, tried once; None if it asks for something first."""
        return self._outlook

    def ask_user(self) -> None:
        """Return once the client's user has confirmed the action, of which the question shows the difference."""
        self.confirmation.ask_showing(self._question)

    def _question(self) -> str:
        outlook = self.outlook()
        told = f" {outlook.question}" if outlook is not None else ""
        return self.shown(f"{self.consent}{told}")

    # Keeping

    @contextmanager
    def watching(self, rows: Sequence[Model]) -> Iterator[None]:
        """Watch what the action does to rows; raise ``ToolError`` if they are others than those that were shown."""
        footprint = self.footprint = Footprint(self.using)
        self.written = WrittenTables()
        self.others = OtherRows(footprint)
        self.going = GoingRows(footprint, self.exposure.model)
        try:
            digest = tracked(footprint, rows)
        except TooManyRows:
            digest = footprint.digest()
            self.cannot_undo = self.cannot_undo or TOO_LARGE
        # The action's own page can leave rows out.
        if self.digest and len(rows) == len(self.rows) and digest != self.digest:
            raise ToolError(CHANGED)
        with footprint.watching(), self.written.watching(), self.others.watching(), self.going.watching():
            yield

    def kept(self, result: ToolResult) -> ToolResult:
        """Keep what the action did, and return its result with the number of the change."""
        consent = self.request.mcp.consent
        if consent is None and not self.is_kept:
            return result
        if self.tried_digest and self.footprint.digest() != self.tried_digest:
            raise ToolError(CHANGED)
        if self.going.are_too_many:
            self.cannot_undo = self.cannot_undo or TOO_LARGE
        stored = self.footprint.after() if not self.cannot_undo else StoredDifference(self.using, {})
        reason = self.cannot_undo
        if not self.written.are_all_in(self.footprint) or self.others.tables(stored):
            reason = reason or KeptChange.NOT_RECORDED
        if self.footprint.unsure:
            reason = reason or UNSURE
        if consent is None and not stored and not reason:
            return result
        action = {"action": self.action.name, "model": self.exposure.label, "rows": len(self.rows)}
        number = Changes(self.request).keep_done(
            using=self.using,
            tool=self.request.mcp.record.target,
            labels=[self.exposure.label],
            rows=len(self.rows),
            summary=f"{self.action.title}: {counted(self.rows)} of {self.exposure.label}",
            shown=[{**action, "objects": self.selection.labels}],
            footprint=stored.to_json() if stored else b"",
            cannot_undo=reason,
        )
        if result.structured is None:
            return result
        return replace(result, structured={**result.structured, "change": number})
