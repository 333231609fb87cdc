"""The page with which an action asks, as a question to the client's user."""

from itertools import islice
from typing import Any

from django.forms import FileField, ModelChoiceField

from ..context.request import MCPRequest
from ..orm.columns import pk_text
from ..schema.form_questions import MAX_CHOICES, Option, fields_of, model_of, options_of
from .pages import BUTTON, buttons_of, control_schema, own_controls, required_names
from .responses import Page

__all__ = ["page_question"]


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
