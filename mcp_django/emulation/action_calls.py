"""One call of an action: permissions of every row, confirmation, the action, its page.

An action and its history entries share one transaction. It is rolled back if the action answers with a page that asks
something, if it refuses, or if its client has cancelled the call: a question never changes anything.
Rows picked by a query are shown before the action runs, unless it only reads.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Final

from django.db import router, transaction
from django.db.models import Model
from django.http import HttpResponseBase
from django.utils.translation import gettext_noop

from ..context.approval_checks import Unforeseen
from ..context.confirmation import Confirmation, DirectAnswers, quoted
from ..context.person_consent import CHANGED, confirmation_class, digest_of, needs_person
from ..context.previews import Preview
from ..context.questions import Answers, Question
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import InputRequired, NotConfirmed, ToolError
from ..exposures.declared_actions import Action
from ..exposures.model_exposure import ModelExposure
from ..functions.asked_parameters import finished
from ..orm.access import access_of
from ..orm.database_writes import one_transaction, refusals
from ..orm.tool_arguments import Arguments
from ..protocol.content import Content, ResourceLink
from ..schema.json_values import to_jsonable
from ..signals import rows_changed
from .action_responses import MAX_PAGE_TEXT, ActionPage, own_view, read_response
from .admin_actions import AdminAction
from .hidden_values import HiddenValues
from .history import Journal, has_history
from .html_forms import Pair
from .page_requests import changelist_entries, changelist_request, has_failed, recording, said
from .picked_rows import Selection
from .row_changes import RowChanges
from .validation_errors import error_lines

logger = logging.getLogger("mcp_django.actions")

# Maximum characters of the arguments in a question to the client's user.
MAX_ARGUMENTS: Final = 1_000
SELECT_ACROSS: Final = "select_across"
HELD_BACK: Final = "Its file is not shown, because it may hold columns that are hidden from you."
FILL_IN: Final = "Nothing has been changed yet. Call again with form filled in as the user wants it."
NOT_TRIED: Final = gettext_noop("the action")
NOT_SO: Final = "Nothing was changed. Call again with these values as form, which the user has entered."
NOT_FILLED_IN: Final = "The form has to be filled in in another way. Nothing was changed."
UNUSED_FORM: Final = "The action asked nothing, so form was not used."
FAILED: Final = "The action reports an error. What it changed before that has been kept, as in the admin."


class ActionPreview(Preview):
    """What a run of an action is about, and what it would do as far as that is known (``outlook``)."""

    def __init__(self, message: str, shown: Mapping[str, Any], call: "ActionCall", outlook: Preview | None) -> None:
        if outlook is None:
            super().__init__(message, message, {**shown, "not_tried": [NOT_TRIED]})
        else:
            message = f"{message} {outlook.message}"
            super().__init__(message, message, {**shown, **outlook.shown})
        self.call = call
        self.outlook = outlook

    @property
    def columns(self) -> Mapping[str, Any]:
        exposure = self.call.exposure
        return {
            "summary": f"{self.call.action.title}: {self.call.selection.listing}",
            "rows": len(self.call.rows),
            "labels": [exposure.label],
            "using": router.db_for_write(exposure.model),
            **(self.outlook.columns if self.outlook is not None else {}),
        }


class ActionCall:
    """Runs an action as the admin does, on the rows of a tool call, after confirmation and its page's questions.

    ``form`` has the answers to the action's page or questions. It is accepted only with the ``confirm_token`` of a
    preview that asked for these answers, or showed exactly them.

    A subclass can look at what the action does (:meth:`watching`, :meth:`kept`), and show it before (:meth:`outlook`).
    """

    # Whether the action is only tried.
    tries: ClassVar = False
    # What a question says of the way back.
    WARNING: ClassVar = "this cannot be undone by itself. "
    # Whether only a person confirms the call, and whether it waits for the yes of another person, or has it.
    by_person = False
    is_approved = False
    # Whether the call has to be confirmed.
    confirms: bool

    def __init__(
        self, request: MCPRequest, action: Action, arguments: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        self.request = request
        self.action = action
        self.arguments = own
        self.exposure: ModelExposure = action.exposure
        self.model = access_of(request)[self.exposure]
        self.picked = {name: arguments.get(name) for name in Selection.EVERYTHING}
        self.form: Mapping[str, Any] = Arguments(arguments).object("form")
        self.confirm_token = arguments.get("confirm_token")
        # The question to the client's user that shows the action's page, once it is asked.
        self.asked: Question | None = None
        # Whether the token only covers the rows: no preview has asked for a form, or shown this one.
        self.covers_rows_only = False

    def run(self) -> ToolResult:
        """Run the action, or ask first."""
        request = self.request
        action = self.action
        self.select()
        self.is_approved = self._is_approved(self.form)
        # The page of an action that asks by itself comes first.
        self.confirms = self.confirms or (self.is_approved and not action.asks_by_page)
        self.by_person = request.mcp.consent is not None or self.is_approved
        self.by_person |= needs_person(action.options.confirm, self.exposure.confirm, rows=len(self.rows))
        self.bound_rows = self.bound()
        self.confirmation = self._confirmation(dict(self.arguments))
        if self.confirm_token is None:
            self._check_form()
        try:
            return self._run()
        except InputRequired as asked:
            direct = DirectAnswers(request, asked.questions)
            if not (direct.suit or (self.by_person and all(map(_is_form, asked.questions)))):
                raise
            if action.destructive and not self.by_person:
                direct.check()
            return self._ask_directly(direct)

    def select(self) -> None:
        """Find the rows of the call; raise ``ToolError`` unless the caller may run the action on all of them."""
        request = self.request
        action = self.action
        request.mcp.record.model = self.exposure.label
        request.mcp.record.action = action.name
        request.go_to(self.exposure, "changelist")
        self.selection = Selection(self.model, self.picked)
        self.rows = self.selection.rows
        self.by_query = self.selection.by_query
        refused = [row for row in self.rows if not action.has_object_permission(request, row)]
        if refused:
            raise self.selection.refusal(f"run {action.name} on", refused)
        # Nobody has named the rows that a query picks: show them first.
        self.confirms = (action.confirms and not action.asks_by_page) or (self.by_query and not action.only_looks)

    def _is_approved(self, given: Mapping[str, Any]) -> bool:
        """Return whether the call with these answers waits for the yes of another person, or has it."""
        approvals = self.request.mcp.approvals
        if approvals is None or self.action.only_looks:
            return False
        approvals.check_action(self, {**self.arguments, **given})
        return approvals.is_needed

    # What a subclass can do with the action

    def tried(self, look: Callable[[Any], None]) -> Any:
        """Return the action, tried, after ``look`` has seen it; None where it cannot be tried."""
        return None

    def bound(self) -> Sequence[Any]:
        """Return what a confirmation of the action is bound to: the rows that it runs on, for a person as they are."""
        if not self.by_person:
            return self.rows
        names = [field.attname for field in self.exposure.opts.concrete_fields]
        values = [[str(row.pk), [row.__dict__.get(name) for name in names]] for row in self.rows]
        return [*self.rows, ["values", sorted(values, key=lambda item: item[0])]]

    def outlook(self) -> Preview | None:
        """Return what the action would do, for its preview; None where that is not known."""
        return None

    def watching(self, rows: Sequence[Model]) -> AbstractContextManager[None]:
        """Return the block in which the action runs on rows, inside its transaction."""
        return nullcontext()

    def kept(self, result: ToolResult) -> ToolResult:
        """Return the result of the action that was done, before its transaction ends."""
        return result

    # The steps of a call

    def _run(self) -> ToolResult:
        request = self.request
        values, entries = self.action.validate(request, self.arguments)
        # A person confirms the call with the form that the caller has filled in, on a page.
        asks_user = request.mcp.can("elicitation") and not self.by_person
        if self.by_person:
            is_confirmed = self._has_consent()
        else:
            is_confirmed = self.confirm_token is not None and self._redeem()
        steps: list[Callable[[], Any]] = [lambda: self.action.answers(request, values)]
        if asks_user and not is_confirmed:
            # The user fills in the form, whatever the model has put into it.
            self.form = {}
            if self.confirms:
                steps.append(self.ask_user)
        elif self.form or is_confirmed:
            request.mcp.answers = Answers(self.form, direct=True, trusted=True)
        answers, *_ = InputRequired.together(steps)

        # A client that cannot ask shows to its user what it has to confirm.
        if not is_confirmed and not asks_user:
            if self.confirm_token is not None and not self.by_person:
                return self._ask(self.consent, errors=[Confirmation.CHANGED])
            is_filled_in = bool(self.form and request.mcp.answers.seen)
            if self.confirms or is_filled_in:
                if self.form:
                    return self._ask_filled_in(self.consent)
                return self._ask(self.consent)
            request.mcp.answers = Answers()
        is_unseen = bool(self.form) and self.covers_rows_only
        if is_unseen:
            if request.mcp.answers.seen:
                return self._ask_filled_in(self.consent)
            request.mcp.answers = Answers()

        values = {**values, **answers}
        # The page of an action confirms it, if it shows the page that it declares.
        needs_page = (self.action.confirms or self.is_approved) and not self.confirms and not is_confirmed
        entries = [*changelist_entries(self.action.name, self.rows), *entries]
        outcome = self.attempt(values, entries, needs_page=needs_page)
        if isinstance(outcome, ToolResult):
            if needs_page:
                self.confirms = True
                return self._run()
            return outcome
        if is_confirmed and not is_unseen:
            return self.answer(outcome, values)
        return self._ask_page(outcome, values)

    def _check_form(self) -> None:
        """Raise ``ToolError`` if the call has a form, and the action is known to have none."""
        action = self.action
        if self.form and not (action.has_form or action.only_looks):
            raise ToolError(f"{action.name} has no form. Nothing was changed. Leave form out.")

    def _redeem(self) -> bool:
        """Redeem the ``confirm_token``; return False if the rows that a query picks have to be shown again."""
        if self.form and self._filled_in().has_signed(self.confirm_token):
            self._filled_in().redeem(self.confirm_token)
            return True
        if self._with_form().has_signed(self.confirm_token):
            self._with_form().redeem(self.confirm_token)
            return True
        try:
            self.confirmation.redeem(self.confirm_token)
        except NotConfirmed:
            if not self.by_query:
                raise
            return False
        self.covers_rows_only = True
        self._check_form()
        return True

    def _has_consent(self) -> bool:
        """Return whether a person has confirmed the call, False if nobody has been asked yet."""
        consent = self.request.mcp.consent
        if consent is None:
            return False
        if consent.digest not in map(digest_of, (self.confirmation, self._filled_in())):
            raise ToolError(CHANGED)
        return True

    def _confirmation(self, bound: Mapping[str, Any]) -> Confirmation:
        kind = confirmation_class(self.request, by_person=self.by_person)
        return kind(self.request, self.action.key, bound, self.bound_rows)

    def _filled_in(self) -> Confirmation:
        """Return the confirmation of the call with exactly this form."""
        return self._confirmation({"arguments": self.arguments, "form": self.form})

    def _with_form(self) -> Confirmation:
        """Return the confirmation of the call with the answers to a form that its preview asks for."""
        return self._confirmation({"arguments": self.arguments, "asks": "form"})

    # Running

    def attempt(
        self,
        values: Mapping[str, Any],
        entries: Sequence[Pair],
        page: ActionPage | None = None,
        *,
        needs_page: bool = False,
    ) -> ToolResult | ActionPage:
        """Run the action once as the admin does, in its transaction; return its result, or the page that asks.

        With ``needs_page`` a result is undone, because nobody has confirmed it.
        """
        request = self.request
        action = self.action
        exposure = self.exposure
        rows = self.rows
        self._check_answers(values)
        if page is not None or not (needs_page or self._shows_page):
            self._begin_work()
        if page is not None and page.selected is not None:
            posted = frozenset(page.selected)
            rows = [row for row in rows if str(row.pk) in posted]
        transaction_of_action: AbstractContextManager[list[str]] = nullcontext([])
        if action.atomic:
            # What is only tried can be stopped as long as the call goes on.
            stopped_by = None if self.tries else request
            transaction_of_action = one_transaction(exposure.model, stopped_by, locks=not action.only_looks)
        target = page.target if page is not None else ""
        with refusals(undone=action.atomic, model=exposure.model), transaction_of_action as aliases:
            posting = changelist_request(self.model, entries)
            versions = recording(posting, exposure.model_admin)
            changes = RowChanges(self.model, rows) if action.is_logged and has_history(request) else None
            with versions, self.watching(rows), self._guarded(), request.mcp.record.in_own_code():
                view = own_view(posting, target) if target else None
                if view is not None:
                    # The page posts to a view of its own.
                    posting.path = posting.path_info = target
                    value = view(posting)
                else:
                    queryset = self.selection.queryset(rows)
                    value = action.invoke(posting, queryset, values)
                    if inspect.isgenerator(value):
                        value = finished(posting, value)
            outcome = self._read(posting, value, len(rows))
            if page is None and isinstance(outcome, ToolResult) and not outcome.is_error:
                outcome = self._without_unused_form(outcome)
            if isinstance(outcome, ActionPage) or needs_page:
                for alias in aliases:
                    transaction.set_rollback(True, using=alias)
                return outcome
            if action.is_logged:
                touched = changes.changed_rows() if changes is not None else {row: [] for row in rows}
                if changes is not None:
                    Journal(request, action.name).acted(list(touched), list(touched.values()))
                request.mcp.record.rows_changed += len(touched)
                # The action may have used QuerySet.update(), which sends no signal.
                rows_changed.send(sender=exposure.model, rows=rows)
            outcome = self.kept(outcome)
        return outcome

    @property
    def _shows_page(self) -> bool:
        """Whether the action says that it first shows a page: that is not yet its work."""
        return isinstance(self.action, AdminAction) and self.action.declares_page

    def _begin_work(self) -> None:
        """Say that the action is about to do its work, which may go on as a task."""
        options = self.action.options.task
        if options is not None and not self.tries:
            using = router.db_for_write(self.exposure.model) if self.action.atomic else ""
            self.request.mcp.begin_work(options, using=using)

    def _check_answers(self, values: Mapping[str, Any]) -> None:
        """Raise ``ToolError`` if the answers of the client's user make the call one that waits for another person: it
        was not asked for in this way."""
        is_new = not (self.tries or self.by_person) and bool(self.form or self.request.mcp.answers.seen)
        if is_new and self._is_approved({**values, **self.form}):
            assert self.request.mcp.approvals is not None
            raise ToolError(f"{self.request.mcp.approvals.told} {NOT_SO}")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Run the action; raise ``ToolError``, which undoes it, before it writes rows of others that rules are
        about."""
        approvals = self.request.mcp.approvals
        if approvals is None or self.tries:
            yield
            return
        try:
            with approvals.guard():
                yield
        except Unforeseen:
            raise ToolError(approvals.surprise) from None

    def _without_unused_form(self, result: ToolResult) -> ToolResult:
        """Return the result of the action; raise ``ToolError``, which undoes it, if nothing asked for the call's form.

        What an action with its own transactions did stays, so its result only tells of it.
        """
        if not self.form or self.request.mcp.answers.seen:
            return result
        if self.action.atomic:
            raise ToolError(f"{self.action.name} asks nothing for these rows. Nothing was changed. Leave form out.")
        told = result.structured or {}
        note = " ".join(filter(None, [UNUSED_FORM, told.get("note")]))
        return replace(result, structured={**told, "note": note})

    def _read(self, posting: MCPRequest, value: Any, rows: int) -> ToolResult | ActionPage:
        if isinstance(value, ToolResult):
            return value
        about = {"action": self.action.name, "model": self.exposure.label}
        result: dict[str, Any] = {**about, "done": True, "rows": rows, "messages": []}
        content: list[Content] = []
        hidden = None
        if not self.action.hands_out_files:
            hidden = HiddenValues(self.model, self.rows)
        if isinstance(value, HttpResponseBase):
            answer = read_response(posting, value)
            if answer.page is not None:
                if hidden is not None:
                    answer.page.html.text = hidden.masked(answer.page.html.text)
                return answer.page
            result |= {key: text for key, text in (("note", answer.note), ("text", answer.text)) if text}
            if answer.record is not None:
                result["record"] = answer.record
                content.append(ResourceLink(answer.record["uri"], answer.record["label"] or answer.record["uri"]))
            if answer.file is not None and hidden is not None and hidden.are_in(answer.file.body):
                result["note"] = HELD_BACK
                logger.warning("A file of %s was held back: it may hold columns that are hidden", self.action.key)
            elif answer.file is not None and not self.tries:
                result["file"], blocks = answer.file.result(self.request, self.action.key)
                content += blocks
        elif value is not None:
            result["result"] = to_jsonable(value)
        result["messages"] = said(posting)
        if hidden is not None:
            result |= {key: hidden.masked(result[key]) for key in ("text", "result", "messages") if result.get(key)}
        failed = has_failed(posting)
        if failed:
            result["note"] = " ".join(filter(None, [FAILED, result.get("note")]))
        return ToolResult(structured=result, content=content, is_error=failed)

    # Asking

    def ask_user(self) -> None:
        """Return once the client's user has confirmed the action."""
        self.confirmation.ask(self.shown(self.consent))

    @property
    def consent(self) -> str:
        """The question whether the action shall run, in one or two sentences."""
        warning = self.WARNING if self.action.confirms else ""
        count = len(self.rows)
        which = "these rows" if count > 1 else "this row"
        if self.by_query:
            which = f"all {count} rows that match" if count > 1 else "the one row that matches"
        return f"{self.action.title}: {warning}Confirm it for {which}."

    def shown(self, message: str) -> str:
        """Return the confirmation message of the admin action, with its arguments and the labels of the rows."""
        given = "; ".join(f"{name} = {quoted(value)}" for name, value in self.arguments.items())
        told = f"\nWith {given[:MAX_ARGUMENTS]}" if given else ""
        return f"{message}{told}\n\n{self.selection.listing}"

    def _ask(self, message: str, **more: Any) -> ToolResult:
        """Let the admin action ask for its confirmation, by a result with a ``confirm_token``."""
        if "form" in more:
            return self._preview(self._with_form(), message, "form with the user's answers, and confirm_token", more)
        return self._preview(self.confirmation, message, "confirm_token", more)

    def _ask_filled_in(self, message: str, **more: Any) -> ToolResult:
        """Let the admin action ask for confirmation of its form as the call has filled it in."""
        return self._preview(self._filled_in(), message, "confirm_token", {**more, "filled_in": dict(self.form)})

    def _preview(self, confirmation: Confirmation, message: str, needed: str, more: Mapping[str, Any]) -> ToolResult:
        shown = {"action": self.action.name, "model": self.exposure.label, **more}
        labels = self.selection.labels
        if not self.by_person:
            if (outlook := self.outlook()) is not None:
                message = f"{message} {outlook.message}"
                shown |= outlook.shown
            return confirmation.preview(message, shown, needed, rows=len(self.rows), objects=labels)
        if more.get("errors") or more.get("form", {}).get("properties"):
            if self.request.mcp.consent is not None:
                # Nobody is there to fill in more.
                raise ToolError(" ".join([*more.get("errors", ()), NOT_FILLED_IN]))
            return ToolResult(structured={**shown, "message": message, "next": FILL_IN}, is_error="errors" in more)
        shown |= {"arguments": dict(self.arguments), "rows": len(self.rows), "objects": labels}
        shown = {name: value for name, value in shown.items() if value}
        preview = ActionPreview(message, shown, self, self.outlook())
        confirmation.confirm(None, preview)
        # A person has confirmed it, and now the action asks once more.
        raise ToolError(CHANGED)

    def _ask_directly(self, direct: DirectAnswers) -> ToolResult:
        """Return what an admin action asks before it runs, for the client to answer and confirm in its next call."""
        asked = [question for question in direct.asked if question.key != Confirmation.KEY]
        consent = [self.consent] if self.confirms else []
        message = "\n".join([*consent, *(str(question.params["message"]) for question in asked)])
        failed = [question.reason for question in asked if question.reason]
        more = {"errors": failed} if failed else {}
        return self._ask(message, **more, form=direct.schema())

    def _page_message(self, page: ActionPage) -> str:
        """Return the question of the admin action's page: the server's sentence, then what the page says, quoted."""
        said = f"\nIts page says: {quoted(page.message, MAX_PAGE_TEXT)}" if page.message else ""
        return f"{self.consent}{said}"

    def _ask_page(self, page: ActionPage, values: Mapping[str, Any]) -> ToolResult:
        """Ask the questions of the admin action's page: by elicitation if the client supports it, or by the result."""
        if self.form:
            wrong = page.entries(self.request, self.form)[1]
            if wrong:
                return self.page_result(page, wrong)
            return self._ask_filled_in(self._page_message(page))
        asks_user = self.request.mcp.can("elicitation") and not self.by_person
        schema = page.question(self.request) if asks_user else None
        if schema is None:
            return self.page_result(page)
        self.asked = self.confirmation.question("_form", self.shown(self._page_message(page)), schema)
        try:
            self.form = self.confirmation.settle(self.asked)
        except InputRequired as unanswered:
            [question] = unanswered.questions
            direct = DirectAnswers(self.request, [question])
            if not direct.suit:
                raise
            if self.action.destructive:
                direct.check()
            self.asked = None
            return self.page_result(page, [question.reason])
        return self.answer(page, values)

    def page_result(self, page: ActionPage, errors: Sequence[str] = ()) -> ToolResult:
        """Return the question of the action's page, with what is wrong with the answers so far."""
        if self.asked is not None:
            raise InputRequired([self.asked.because(" ".join(errors))])
        schema = page.schema()
        form = {"form": schema} if schema["properties"] else {}
        failed = {"errors": list(errors)} if errors else {}
        return self._ask(self._page_message(page), **failed, **form)

    def answer(self, page: ActionPage, values: Mapping[str, Any]) -> ToolResult:
        """Post the admin action's page as a browser would, with the caller's values in its form."""
        entries, wrong = page.entries(self.request, self.form)
        if not self.form and self.asked is None and page.schema().get("required"):
            # The token confirmed only the rows: now ask what the page asks.
            return self.page_result(page)
        if wrong:
            return self.page_result(page, wrong)
        if not any(name == "action" for name, _ in entries):
            entries.insert(0, ("action", self.action.name))
        # Never "select across": the action runs on the picked rows only.
        entries = [(name, "0" if name == SELECT_ACROSS else value) for name, value in entries]
        outcome = self.attempt(values, entries, page)
        if isinstance(outcome, ToolResult):
            return outcome
        again = outcome.form
        if again is not None and again.is_bound and again.errors:
            return self.page_result(page, error_lines(again, again.fields))
        # The page's form is not in its context: take text that was not on the page before as its errors.
        said = outcome.said_since(page)
        if said and page.controls and outcome.controls.keys() == page.controls.keys():
            return self.page_result(page, [said])
        raise ToolError(
            "The action asked again and nothing was changed: it has more than one page. Run it in the admin."
        )


def _is_form(question: Question) -> bool:
    """Return whether arguments can answer a question."""
    return question.method == question.ELICITATION and "requestedSchema" in question.params
