"""Intermediate pages of actions for callers without a browser: what a page asks, and what an answer to it posts.

It is a question to the client's user where the client can ask.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.forms import Field, FileField, ModelChoiceField

from ..context.request import MCPRequest
from ..forms.filling import field_entries
from ..forms.html import Button, Control, Pair, posted
from ..orm.columns import pk_text
from ..orm.wording import alternatives
from ..schema.forms import MAX_CHOICES, Option, fields_of, form_schema, is_required, model_of, options_of
from .responses import Page

BUTTON: Final = "_button"
CANCELLING: Final = frozenset({"cancel", "_cancel", "back", "_back", "abort"})
# Characters of the labels of a select.
MAX_LABELS: Final = 1_000
CSRF: Final = "csrfmiddlewaretoken"


def page_schema(page: Page) -> dict[str, Any]:
    """Return the JSON Schema of what the page asks: its Django form, other controls, and which of several buttons."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if page.form is not None:
        hidden = [name for name, found in page.form.fields.items() if found.widget.is_hidden]
        schema = dict(form_schema(page.form, exclude=hidden))
    properties = dict(schema.get("properties", {}))
    for name, control in own_controls(page).items():
        properties[name] = control_schema(control)
    buttons = buttons_of(page)
    if len(buttons) > 1:
        labels = "; ".join(f"{key}: {button.label}" for key, button in buttons.items())
        properties[BUTTON] = {"type": "string", "enum": list(buttons), "description": f"The button to press. {labels}"}
    schema = {**schema, "properties": properties, "required": required_names(page)}
    return schema if schema["required"] else {name: value for name, value in schema.items() if name != "required"}


def required_names(page: Page) -> list[str]:
    """Return what has to be entered: also where the page shows a choice that nobody has made."""
    names = []
    for name, field in page.form.fields.items() if page.form is not None else ():
        control = page.html.controls.get(page.form.add_prefix(name)) if page.form is not None else None
        shown = not field.widget.is_hidden and not field.disabled
        if shown and (is_required(field) or (control is not None and control.required)):
            names.append(name)
    names += [name for name, control in own_controls(page).items() if control.required]
    return [*names, BUTTON] if len(buttons_of(page)) > 1 else names


def control_schema(control: Control) -> dict[str, Any]:
    """Return the JSON Schema of what a control takes."""
    one: dict[str, Any] = {"type": "string"}
    if control.choices:
        one["enum"] = [choice for choice in control.choices if choice]
    if control.labels:
        one["description"] = "; ".join(f"{value}: {label}" for value, label in control.labels.items())[:MAX_LABELS]
    return {"type": "array", "items": one} if control.many else one


def own_controls(page: Page) -> dict[str, Control]:
    """Return the visible controls that are not part of the Django form."""
    fields = page.form.fields if page.form is not None else {}
    taken = {html_name for name in fields for html_name in _html_names(page, name)}
    return {name: control for name, control in page.html.controls.items() if name not in taken}


def _html_names(page: Page, name: str) -> set[str]:
    """Return the names of the controls that a field of the Django form has on the page."""
    assert page.form is not None
    html_name = page.form.add_prefix(name)
    return {html_name, *(part for part, _ in posted(page.form.fields[name].widget, html_name, None))}


def buttons_of(page: Page) -> dict[str, Button]:
    """Return the buttons that go on, by name, or by name and value where a name is there twice."""
    going = [button for button in page.html.buttons if button.name.lower() not in CANCELLING]
    names = [button.name for button in going]
    return {
        button.name if names.count(button.name) == 1 else f"{button.name}={button.value}": button for button in going
    }


def page_entries(request: MCPRequest, page: Page, form: Mapping[str, Any]) -> tuple[list[Pair], list[str]]:
    """Return what a browser posts for the page after a person entered ``form``, and what is wrong with ``form``."""
    entries = [pair for pair in page.html.entries if pair[0] != CSRF]
    own, buttons = own_controls(page), buttons_of(page)
    fields = page.form.fields if page.form is not None else {}
    known = [
        *(name for name, found in fields.items() if not found.widget.is_hidden),
        *own,
        *([BUTTON] if len(buttons) > 1 else []),
    ]
    wrong = [f"Unknown field {name[:60]!r}. {alternatives(name, known)}" for name in form if name not in known]
    # What the page shows at first is no answer.
    absent = [name for name in required_names(page) if name != BUTTON and form.get(name) in (None, "", [])]
    wrong += [f"{name}: {_required_words(fields.get(name))}" for name in absent]
    for name, value in form.items():
        if name in absent:
            continue
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
            choices = own[name].choices
            if choices and not all(str(item) in choices for item in items):
                wrong.append(
                    f"{name}: choose {'any' if own[name].many else 'one'} of {', '.join(choices)[:MAX_LABELS]}."
                )
            entries = [pair for pair in entries if pair[0] != name] + [(name, str(item)) for item in items]
    pressed = form.get(BUTTON) if len(buttons) > 1 else next(iter(buttons), None)
    if isinstance(pressed, str) and pressed in buttons:
        entries.append((buttons[pressed].name, buttons[pressed].value))
    elif buttons:
        wrong.append(f"{BUTTON}: choose one of {', '.join(buttons)}.")
    return entries, wrong


def _required_words(field: Field | None) -> str:
    return str((field or Field()).error_messages["required"])


def page_question(request: MCPRequest, page: Page) -> dict[str, Any] | None:
    """Return the page as a form of plain fields, None where it has a field that such a form cannot have."""
    properties: dict[str, Any] = {}
    required = required_names(page)
    if page.form is not None:
        fields = fields_of(page.form, lambda field: _visible_options(request, field))
        for name, field in fields.items():
            if field is not None:
                properties[name] = field
            elif not isinstance(page.form.fields[name], FileField) or name in required:
                return None
    for name, control in own_controls(page).items():
        if control.many and not control.choices:
            return None
        properties[name] = {**control_schema(control), "title": name.replace("_", " ").strip().capitalize()}
    buttons = buttons_of(page)
    if len(buttons) > 1:
        choices = [{"const": key, "title": button.label} for key, button in buttons.items()]
        properties[BUTTON] = {"type": "string", "title": "Go on with", "oneOf": choices}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _visible_options(request: MCPRequest, field: Any) -> list[Option] | None:
    """Return the choices of a field; of those that lead to rows the ones that the caller may see."""
    if not isinstance(field, ModelChoiceField):
        return options_of(field)
    exposure = request.mcp.site.exposures.get(model_of(field))
    if exposure is None or not exposure.has_view_permission(request):
        return None
    choices: Any = field.choices
    found = (getattr(value, "instance", None) for value, _ in choices)
    rows = list(islice((row for row in found if row is not None), MAX_CHOICES + 1))
    if len(rows) > MAX_CHOICES:
        return None
    visible = {
        row.pk
        for row in exposure.get_queryset(request).filter(pk__in=[row.pk for row in rows])
        if exposure.has_view_permission(request, row)
    }
    return [(str(pk_text(row.pk)), field.label_from_instance(row)) for row in rows if row.pk in visible]
