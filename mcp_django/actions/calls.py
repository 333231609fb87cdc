"""One call of an action: permissions of every row, confirmation, the action itself, its page, its history.

An action runs in a transaction of its own, with the entries in the history. Where it answers with a page that asks
something, or refuses, or its client has gone, the transaction is rolled back: a question has changed nothing.
Rows that a query picked are always shown before anything is done to them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import transaction
from django.db.models import Model
from django.http import HttpResponseBase

from ..conf import settings
from ..context.admin_page import said
from ..context.confirmation import (
    CHANGED,
    CONFIRM,
    MAX_LABELS,
    answers_schema,
    can_ask,
    can_be_direct,
    confirm,
    issue,
    listed,
    quoted,
    redeem,
    rows_question,
    settle,
)
from ..context.places import go_to
from ..context.questions import Answers, Question, answered_together
from ..context.request import MCPRequest
from ..context.results import ToolResult
from ..exceptions import InputRequired, NotPermitted, ToolError
from ..exposures.actions import Action
from ..exposures.history import has_history, log_action
from ..forms.filling import error_lines
from ..forms.html import Pair
from ..forms.requests import changelist_entries, changelist_request, has_failed
from ..functions.progress import finished
from ..orm.inputs import as_object, one_transaction, refusals
from ..orm.relations import label_of
from ..protocol.content import Content, ResourceLink
from ..runtime.transactions import Mode
from ..schema.jsonable import to_jsonable
from ..signals import rows_changed
from ..writes.selection import EVERYTHING, queryset_of, select_rows
from ..writes.touched import changes_of, read_stored
from .pages import page_entries, page_question, page_schema
from .responses import Page, own_view, read_response

# Characters of the arguments in a question to the client's user.
MAX_ARGUMENTS: Final = 1_000
SELECT_ACROSS: Final = "select_across"
FAILED: Final = "The action reports an error. What it changed before that has been kept, as in the admin."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave: a page that asks, or a result."""

    page: Page | None = None
    result: ToolResult | None = None


@dataclass(slots=True)
class ActionCall:
    """A call of ``action`` on the rows that ``picked`` picks (:func:`~mcp_django.writes.selection.select_rows`).

    ``arguments`` are the action's own. ``form`` answers the action's page or its questions; it counts only with the
    ``confirm_token`` that came with them. ``asked`` is the page as a question to the client's user.
    """

    request: MCPRequest
    action: Action
    picked: Mapping[str, Any]
    arguments: Mapping[str, Any]
    form: Mapping[str, Any] = field(default_factory=dict)
    confirm_token: str | None = None
    rows: Sequence[Model] = ()
    by_query: bool = False
    asked: Question | None = None

    @classmethod
    def of(
        cls, request: MCPRequest, action: Action, arguments: Mapping[str, Any], own: Mapping[str, Any]
    ) -> "ActionCall":
        """Return the call of a tool whose ``arguments`` pick rows, fill in and confirm; ``own`` are the action's.

        Raises:
            ToolError: ``form`` is no object.
        """
        return cls(
            request,
            action,
            picked={name: arguments.get(name) for name in EVERYTHING},
            arguments=own,
            form=as_object(arguments.get("form"), "form"),
            confirm_token=arguments.get("confirm_token"),
        )

    def run(self) -> ToolResult:
        """Run the action, or ask first.

        Raises:
            ToolError: the action refused, the call does not fit it, or a row is not there; nothing was changed.
        """
        record = self.request.mcp.record
        record.model, record.action = self.action.exposure.label, self.action.name
        go_to(self.request, self.action.exposure, "changelist")
        selection = select_rows(self.request, self.action.exposure, self.picked)
        self.rows, self.by_query = selection.rows, selection.by_query
        self._check_rows()
        try:
            return self._run()
        except InputRequired as asked:
            if not can_be_direct(self.request, asked.questions):
                raise
            return self._ask_directly(asked.questions)

    def _run(self) -> ToolResult:
        values, entries = self.action.read(self.request, self.arguments)
        steps: list[Callable[[], Any]] = [lambda: self.action.answers(self.request, values)]
        if self.confirm_token is not None:
            try:
                redeem(self.request, self.confirm_token, *self._bound())
            except ToolError:
                if not self.by_query:
                    raise
                return self._ask(self._consent, errors=[CHANGED])
            self.request.mcp.answers = Answers(self.form, direct=True, trusted=True)
        elif self.form:
            raise ToolError("form answers a question: call without it first, then again with it and confirm_token.")
        elif self._confirms and can_ask(self.request):
            steps.append(self._confirm)
        answers, *_ = answered_together(steps)
        if self._confirms and self.confirm_token is None and not can_ask(self.request):
            return self._ask(self._consent)
        values = {**values, **answers}
        outcome = self._attempt(values, [*changelist_entries(self.action.name, self.rows), *entries])
        if outcome.page is None:
            assert outcome.result is not None
            return outcome.result
        proceed = self._ask_page if self.confirm_token is None else self._answer
        return proceed(outcome.page, values)

    def _check_rows(self) -> None:
        refused = [row for row in self.rows if not self.action.has_object_permission(self.request, row)]
        if refused:
            labels = ", ".join(self._labels(refused[:5]))
            raise NotPermitted(
                f"You may not run {self.action.name} on {len(refused)} of these rows ({labels}). Nothing was changed. "
                "Leave them out."
            )

    def _bound(self) -> tuple[str, Mapping[str, Any], Sequence[Model]]:
        return self.action.key, dict(self.arguments), self.rows

    # Running

    def _attempt(self, values: Mapping[str, Any], entries: Iterable[Pair], page: Page | None = None) -> Outcome:
        rows = self.rows
        if page is not None and page.selected is not None:
            posted = frozenset(page.selected)
            rows = [row for row in rows if str(row.pk) in posted]
        exposure, is_logged = self.action.exposure, self.action.is_logged
        with refusals(undone=self.action.atomic), self._transaction() as aliases:
            posting = changelist_request(self.request, exposure, entries)
            logs = is_logged and has_history(self.request)
            before = read_stored(rows) if logs else None
            with exposure.recording(posting):
                value = self._invoke(posting, rows, values, page)
            outcome = self._read(posting, value, len(rows))
            if outcome.page is not None:
                for alias in aliases:
                    transaction.set_rollback(True, using=alias)
            elif is_logged:
                touched: dict[Model, list[str]] = {}
                if logs:
                    touched = dict(changes_of(self.request, exposure, rows, before))
                    log_action(self.request, list(touched), self.action.name, list(touched.values()))
                self.request.mcp.record.rows_changed += len(touched) if logs else len(rows)
                # It may have updated them by its queryset, which no signal tells of.
                rows_changed.send(sender=exposure.model, rows=rows)
        return outcome

    def _invoke(self, posting: MCPRequest, rows: Sequence[Model], values: Mapping[str, Any], page: Page | None) -> Any:
        """Run the action; or, where its page is posted to a view of its own, that view."""
        view = own_view(posting, page.target) if page is not None and page.target else None
        if view is not None and page is not None:
            posting.path = posting.path_info = page.target
            return view(posting)
        found = queryset_of(self.request, self.action.exposure, rows)
        return finished(posting, self.action.invoke(posting, found, values))

    def _transaction(self) -> AbstractContextManager[list[str]]:
        if self.action.atomic:
            mode: Mode = "" if self.action.only_looks else "IMMEDIATE"
            return one_transaction(self.action.exposure.model, self.request, mode)
        return nullcontext([])

    def _read(self, posting: MCPRequest, value: Any, rows: int) -> Outcome:
        result: dict[str, Any] = {
            "action": self.action.name,
            "model": self.action.exposure.label,
            "done": True,
            "rows": rows,
            "messages": [],
        }
        if isinstance(value, ToolResult):
            return Outcome(result=value)
        content: list[Content] = []
        if isinstance(value, HttpResponseBase):
            answer = read_response(posting, value)
            if answer.page is not None:
                return Outcome(page=answer.page)
            result |= {key: text for key, text in (("note", answer.note), ("text", answer.text)) if text}
            if answer.record is not None:
                result["record"] = answer.record
                content.append(ResourceLink(answer.record["uri"], answer.record["label"] or answer.record["uri"]))
            if answer.file is not None:
                result["file"], blocks = answer.file.result(self.request, self.action.key)
                content += blocks
        elif value is not None:
            result["result"] = to_jsonable(value)
        result["messages"] = said(posting)
        failed = has_failed(posting)
        if failed:
            result["note"] = " ".join(filter(None, [FAILED, result.get("note")]))
        return Outcome(result=ToolResult(structured=result, content=content, is_error=failed))

    # Asking

    @property
    def _confirms(self) -> bool:
        """Whether it is asked before the action runs: rows that nobody has named are shown first."""
        return self.action.confirms or (self.by_query and not self.action.only_looks)

    @property
    def _consent(self) -> str:
        warning = "this cannot be undone by itself. " if self.action.confirms else ""
        count = len(self.rows)
        matching = f"all {count} rows that match" if count > 1 else "the one row that matches"
        which = matching if self.by_query else "these rows" if count > 1 else "this row"
        return f"{self.action.title}: {warning}Confirm it for {which}."

    def _shown(self, message: str) -> str:
        """Return a message to the client's user: what is asked, and of which rows."""
        labels = listed(self._labels(self.rows[:MAX_LABELS]), len(self.rows))
        given = "; ".join(f"{name} = {quoted(value)}" for name, value in self.arguments.items())
        told = f"\nWith {given[:MAX_ARGUMENTS]}" if given else ""
        return f"{message}{told}\n\n{self.action.exposure.label} ({len(self.rows)}): {labels}"

    def _confirm(self) -> None:
        confirm(self.request, self._shown(self._consent), [self.action.key, *self.rows])

    def _ask_directly(self, asked: Sequence[Question]) -> ToolResult:
        """Ask by a result what the action asks the client's user, and for confirmation if it needs that."""
        asked = [question for question in asked if question.key != CONFIRM]
        consent = [self._consent] if self._confirms else []
        message = "\n".join([*consent, *(str(question.params["message"]) for question in asked)])
        failed = [question.reason for question in asked if question.reason]
        more = {"errors": failed} if failed else {}
        return self._ask(message, **more, form=answers_schema(self.request, asked, without=CONFIRM))

    def _ask_page(self, page: Page, values: Mapping[str, Any]) -> ToolResult:
        """Ask what the page asks: the client's user where the client can, and by a result where not."""
        schema = page_question(self.request, page) if can_ask(self.request) else None
        if schema is None:
            return self._page_result(page)
        message = self._shown(page.message or self.action.title)
        self.asked = rows_question("_form", message, [self.action.key, *self.rows], schema)
        try:
            self.form = settle(self.request, self.asked)
        except InputRequired as unanswered:
            [question] = unanswered.questions
            if not can_be_direct(self.request, [question]):
                raise
            self.asked = None
            return self._page_result(page, [question.reason])
        return self._answer(page, values)

    def _ask(self, message: str, **more: Any) -> ToolResult:
        repeat = "form with these fields, and confirm_token" if "form" in more else "confirm_token"
        question = {
            "confirmation_required": True,
            "message": message,
            "action": self.action.name,
            "model": self.action.exposure.label,
            **more,
            "next": f"Nothing has been changed yet. If it is right, call again with the same arguments and {repeat}.",
            "confirm_token": issue(self.request, *self._bound()),
            "expires_in": settings.CONFIRMATION_MAX_AGE,
            "rows": len(self.rows),
            "objects": self._labels(self.rows[:MAX_LABELS]),
        }
        return ToolResult(structured=question, is_error="errors" in more)

    def _page_result(self, page: Page, errors: Sequence[str] = ()) -> ToolResult:
        if self.asked is not None:
            raise InputRequired([self.asked.because(" ".join(errors))])
        schema = page_schema(page)
        form = {"form": schema} if schema["properties"] else {}
        failed = {"errors": list(errors)} if errors else {}
        return self._ask(page.message or self.action.title, **failed, **form)

    def _labels(self, rows: Iterable[Model]) -> list[str]:
        return [label_of(self.action.exposure, row) or str(row.pk) for row in rows]

    def _answer(self, page: Page, values: Mapping[str, Any]) -> ToolResult:
        """Post the page as a browser would, with the caller's values in its form."""
        entries, wrong = page_entries(self.request, page, self.form)
        if not self.form and self.asked is None and page_schema(page).get("required"):
            # The token confirmed the rows; what the page asks has not been asked yet.
            return self._page_result(page)
        if wrong:
            return self._page_result(page, wrong)
        if not any(name == "action" for name, _ in entries):
            entries.insert(0, ("action", self.action.name))
        # The picked rows are all that there is, whatever the page says of the admin's list.
        entries = [(name, "0" if name == SELECT_ACROSS else value) for name, value in entries]
        outcome = self._attempt(values, entries, page)
        if outcome.page is None:
            assert outcome.result is not None
            return outcome.result
        again = outcome.page.form
        if again is not None and again.is_bound and again.errors:
            return self._page_result(page, error_lines(again, again.fields))
        raise ToolError(
            "The action asked again and nothing was changed: it has more than one page. Run it in the admin."
        )
