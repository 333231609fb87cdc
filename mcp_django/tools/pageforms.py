"""The page with which an action asks, for those who see no page: what it asks for, and what answering it posts."""

from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError

from ..context import MCPRequest
from ..schemas import form_schema
from .arguments import alternatives
from .controls import Button, Control, Pair, posted
from .forms import field_entries
from .responses import Page

__all__ = ["BUTTON", "buttons_of", "control_schema", "own_controls", "page_entries", "page_schema"]

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
    required = list(schema.get("required", ()))
    properties = dict(schema.get("properties", {}))
    for name, control in own_controls(page).items():
        properties[name] = control_schema(control)
        required += [name] if control.required else []
    buttons = buttons_of(page)
    if len(buttons) > 1:
        labels = "; ".join(f"{key}: {button.label}" for key, button in buttons.items())
        properties[BUTTON] = {"type": "string", "enum": list(buttons), "description": f"The button to press. {labels}"}
        required.append(BUTTON)
    schema["properties"] = properties
    if required:
        schema["required"] = required
    return schema


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
