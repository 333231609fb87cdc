"""One call of an action: permissions of every row, confirmation, the action itself, its page, its history.

An action runs in a transaction of its own, with the entries in the history. Where it answers with a page that asks
something, or refuses, the transaction is rolled back: a question has changed nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpResponseBase

from ..conf import settings
from ..context import MCPRequest
from ..elicitation import issue, redeem
from ..exceptions import NotFound, ToolError
from ..protocol.content import EmbeddedResource
from ..schemas import form_schema, to_jsonable
from ..serializers import label_of
from .arguments import RECORD_NOT_FOUND, alternatives
from .base import ToolResult
from .controls import Button, Control, Pair, posted
from .forms import error_lines, field_entries
from .history import log_action
from .inputs import one_transaction, pick_rows, refusals
from .posting import changelist_entries, changelist_request, said
from .responses import Page, read_response

if TYPE_CHECKING:
    from .actions import Action

__all__ = ["ActionCall"]

MAX_LABELS: Final = 20
BUTTON: Final = "_button"
CANCELLING: Final = frozenset({"cancel", "_cancel", "back", "_back", "abort"})
CSRF: Final = "csrfmiddlewaretoken"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave: a page that asks, or a result."""

    page: Page | None = None
    result: ToolResult | None = None


@dataclass(slots=True)
class ActionCall:
    """A call of ``action`` on the rows with these primary keys.

    ``arguments`` are the action's own. ``form`` answers the action's page; it counts only with the ``confirm_token``
    that came with the question.
    """

    request: MCPRequest
    action: "Action"
    pks: Sequence[Any]
    arguments: Mapping[str, Any]
    form: Mapping[str, Any] = field(default_factory=dict)
    confirm_token: str | None = None
    rows: list[Model] = field(default_factory=list)
    queryset: QuerySet[Any] | None = None

    def run(self) -> ToolResult:
        """Run the action, or ask first.

        Raises:
            ToolError: the action refused, the call does not fit it, or a row is not there; nothing was changed.
        """
        try:
            self.queryset, self.rows = pick_rows(self.request, self.action.exposure, self.pks)
        except NotFound:
            raise ToolError(RECORD_NOT_FOUND) from None
        self._check_rows()
        values, entries = self.action.read(self.request, self.arguments)
        if self.confirm_token is not None:
            redeem(self.request, self.confirm_token, *self._bound())
        elif self.form:
            raise ToolError("form answers a question: call without it first, then again with it and confirm_token.")
        elif self.action.confirms:
            return self._ask(f"{self.action.title}: this cannot be undone by itself. Confirm it for these rows.")
        outcome = self._attempt(values, [*changelist_entries(self.action.name, self.rows), *entries])
        if outcome.page is not None and self.confirm_token is not None:
            return self._answer(outcome.page, values)
        return outcome.result or self._ask_page(outcome.page)

    def _check_rows(self) -> None:
        refused = [row for row in self.rows if not self.action.has_object_permission(self.request, row)]
        if refused:
            labels = ", ".join(self._labels(refused[:5]))
            raise ToolError(
                f"You may not run {self.action.name} on {len(refused)} of these rows ({labels}). Nothing was changed. "
                "Leave them out."
            )

    def _bound(self) -> tuple[str, Mapping[str, Any], list[Model]]:
        return self.action.key, dict(self.arguments), self.rows

    # Running

    def _attempt(self, values: Mapping[str, Any], entries: Iterable[Pair], pks: Sequence[str] | None = None) -> Outcome:
        assert self.queryset is not None
        queryset = self.queryset.all()
        if pks is not None:
            queryset = queryset.filter(pk__in=[row.pk for row in self.rows if str(row.pk) in pks])
        with refusals(), _transaction(self.action) as aliases:
            posting = changelist_request(self.request, self.action.exposure, entries)
            value = self.action.invoke(posting, queryset, values)
            outcome = self._read(posting, value)
            if outcome.page is not None:
                for alias in aliases:
                    transaction.set_rollback(True, using=alias)
            elif self.action.is_logged:
                log_action(self.request, self.rows, self.action.name)
        return outcome

    def _read(self, posting: MCPRequest, value: Any) -> Outcome:
        result: dict[str, Any] = {
            "action": self.action.name,
            "model": self.action.exposure.label,
            "done": True,
            "rows": len(self.rows),
            "messages": [],
        }
        if isinstance(value, ToolResult):
            return Outcome(result=value)
        content = []
        if isinstance(value, HttpResponseBase):
            answer = read_response(posting, value)
            if answer.page is not None:
                return Outcome(page=answer.page)
            result |= {key: text for key, text in (("note", answer.note), ("text", answer.text)) if text}
            if answer.file is not None:
                result["file"] = answer.file.described()
                uri = f"attachment:{self.action.key}/{answer.file.name}"
                content.append(EmbeddedResource(uri, answer.file.body, answer.file.mime_type))
        elif value is not None:
            result["result"] = to_jsonable(value)
        result["messages"] = said(posting)
        return Outcome(result=ToolResult(structured=result, content=list(content)))

    # Asking

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
        return ToolResult(structured=question)

    def _ask_page(self, page: Page | None, errors: Sequence[str] = ()) -> ToolResult:
        assert page is not None
        schema = page_schema(page)
        form = {"form": schema} if schema["properties"] else {}
        failed = {"errors": list(errors)} if errors else {}
        result = self._ask(page.message or self.action.title, **failed, **form)
        result.is_error = bool(errors)
        return result

    def _labels(self, rows: Iterable[Model]) -> list[str]:
        return [label_of(self.action.exposure, row) or str(row.pk) for row in rows]

    def _answer(self, page: Page, values: Mapping[str, Any]) -> ToolResult:
        """Post the page as a browser would, with the caller's values in its form."""
        entries, wrong = page_entries(self.request, page, self.form)
        if wrong:
            return self._ask_page(page, wrong)
        if not any(name == "action" for name, _ in entries):
            entries.insert(0, ("action", self.action.name))
        outcome = self._attempt(values, entries, page.selected)
        if outcome.page is None:
            assert outcome.result is not None
            return outcome.result
        again = outcome.page.form
        if again is not None and again.is_bound and again.errors:
            return self._ask_page(page, error_lines(again, again.fields))
        raise ToolError(
            "The action asked again and nothing was changed: it has more than one page. Run it in the admin."
        )


def _transaction(action: "Action") -> AbstractContextManager[list[str]]:
    return one_transaction(action.exposure.model) if action.atomic else nullcontext([])


# Pages


def page_schema(page: Page) -> dict[str, Any]:
    """Return the JSON Schema of what the page asks: its Django form, other controls, and which of several buttons."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if page.form is not None:
        hidden = [name for name, found in page.form.fields.items() if found.widget.is_hidden]
        schema = dict(form_schema(page.form, exclude=hidden))
    required = list(schema.get("required", ()))
    properties = dict(schema.get("properties", {}))
    for name, control in _own_controls(page).items():
        properties[name] = _control_schema(control)
        required += [name] if control.required else []
    buttons = _buttons(page)
    if len(buttons) > 1:
        labels = "; ".join(f"{key}: {button.label}" for key, button in buttons.items())
        properties[BUTTON] = {"type": "string", "enum": list(buttons), "description": f"The button to press. {labels}"}
        required.append(BUTTON)
    schema["properties"] = properties
    if required:
        schema["required"] = required
    return schema


def _control_schema(control: Control) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "string"}
    if control.choices:
        one["enum"] = [choice for choice in control.choices if choice]
    return {"type": "array", "items": one} if control.many else one


def _own_controls(page: Page) -> dict[str, Control]:
    """Return the visible controls that are not part of the Django form."""
    fields = page.form.fields if page.form is not None else {}
    taken = {html_name for name in fields for html_name in _html_names(page, name)}
    return {name: control for name, control in page.html.controls.items() if name not in taken}


def _html_names(page: Page, name: str) -> set[str]:
    """Return the names of the controls that a field of the Django form has on the page."""
    assert page.form is not None
    html_name = page.form.add_prefix(name)
    return {html_name, *(part for part, _ in posted(page.form.fields[name].widget, html_name, None))}


def _buttons(page: Page) -> dict[str, Button]:
    """Return the buttons that go on, by name, or by name and value where a name is there twice."""
    going = [button for button in page.html.buttons if button.name.lower() not in CANCELLING]
    names = [button.name for button in going]
    return {
        button.name if names.count(button.name) == 1 else f"{button.name}={button.value}": button for button in going
    }


def page_entries(request: MCPRequest, page: Page, form: Mapping[str, Any]) -> tuple[list[Pair], list[str]]:
    """Return what a browser posts for the page after a person entered ``form``, and what is wrong with ``form``."""
    entries = [pair for pair in page.html.entries if pair[0] != CSRF]
    own, buttons = _own_controls(page), _buttons(page)
    fields = page.form.fields if page.form is not None else {}
    known = [
        *(name for name, found in fields.items() if not found.widget.is_hidden),
        *own,
        *([BUTTON] if len(buttons) > 1 else []),
    ]
    wrong = [f"Unknown field {name[:60]!r}. {alternatives(name, known)}" for name in form if name not in known]
    for name, value in form.items():
        if name in fields and page.form is not None:
            try:
                entered = field_entries(request, fields[name], page.form.add_prefix(name), value)
            except ValidationError as error:
                wrong.append(f"{name}: {' '.join(error.messages)}")
                continue
            replaced = _html_names(page, name)
            entries = [pair for pair in entries if pair[0] not in replaced] + entered
        elif name in own:
            items = value if isinstance(value, list) else [value]
            entries = [pair for pair in entries if pair[0] != name] + [(name, str(item)) for item in items]
    pressed = form.get(BUTTON) if len(buttons) > 1 else next(iter(buttons), None)
    if pressed in buttons:
        entries.append((buttons[pressed].name, buttons[pressed].value))
    elif buttons:
        wrong.append(f"{BUTTON}: choose one of {', '.join(buttons)}.")
    return entries, wrong
