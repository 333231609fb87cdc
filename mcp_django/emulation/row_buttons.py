"""Buttons of a change page as actions on rows: what packages add to the page, by their own registries.

These are the ``change_actions`` of django-object-actions, and the transitions of django-fsm-2 that its admin shows. A
button needs the change permission unless it declares others, and runs only on rows whose page shows it to the caller.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Model, QuerySet
from django.http.response import HttpResponseBase, HttpResponseRedirectBase

from ..context.confirmation import quoted
from ..exceptions import ToolError
from .page_requests import said

# Maximum characters of what the admin says of a failed transition.
MAX_SAID: Final = 500
# What an author can declare of an action, by attributes.
DECLARED: Final = ("allowed_permissions", "mcp_destructive", "mcp_read_only", "mcp_atomic", "mcp_form", "mcp_task")


@dataclass(frozen=True, slots=True)
class RowButton:
    """A button of a change page: ``function`` has the signature of an action of the admin."""

    name: str
    description: str
    function: Callable[[Any, Any, QuerySet[Any]], Any]


def row_buttons(model_admin: Any) -> Iterator[RowButton]:
    """Yield the buttons that packages add to the change page of a ``ModelAdmin``."""
    if callable(getattr(model_admin, "get_change_actions", None)):
        for name in model_admin.change_actions:
            yield _object_action(model_admin, name)
    if callable(getattr(model_admin, "_apply_fsm_transition", None)):
        for field_name in model_admin.fsm_fields:
            yield from _transitions(model_admin, field_name)


def _object_action(model_admin: Any, name: str) -> RowButton:
    """Return a button of django-object-actions, a method ``(self, request, obj)``."""
    method = getattr(model_admin, name)

    def run(model_admin: Any, request: Any, queryset: QuerySet[Any]) -> Any:
        if "POST" not in getattr(method, "methods", ("POST",)):
            request.method = "GET"
        rows = list(queryset)
        response = None
        for row in rows:
            if name not in model_admin.get_change_actions(request, str(row.pk), ""):
                raise _not_shown(name, row)
            response = method(request, row)
            is_page = isinstance(response, HttpResponseBase) and not isinstance(response, HttpResponseRedirectBase)
            if is_page and len(rows) > 1:
                raise ToolError(f"{name} answers with a page of its own: run it on one row. Nothing was changed.")
        return response

    label = getattr(method, "label", "") or name.replace("_", " ").capitalize()
    return RowButton(name, str(getattr(method, "short_description", "") or label), _declaring(run, method))


def _transitions(model_admin: Any, field_name: str) -> Iterator[RowButton]:
    """Yield the transitions of a state field that the admin of django-fsm-2 shows, but for those with a form."""
    model = model_admin.model
    seen = set()
    for transition in model._meta.get_field(field_name).get_all_transitions(model):
        is_shown = model_admin.is_fsm_transition_visible(transition)
        if not is_shown or transition.name in seen or model_admin.get_fsm_transition_form(transition) is not None:
            continue
        seen.add(transition.name)
        help_text = model_admin.get_help_text(transition)
        description = f"{model_admin.get_fsm_label(transition)}{f': {help_text}' if help_text else ''}"
        run = _declaring(_transition(field_name, transition.name), getattr(model, transition.name))
        run.mcp_form = None  # type: ignore[attr-defined]
        yield RowButton(transition.name, description, run)


def _transition(field_name: str, name: str) -> Callable[[Any, Any, QuerySet[Any]], None]:
    def run(model_admin: Any, request: Any, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            available = getattr(row, f"get_available_user_{field_name}_transitions")(user=request.user)
            names = [item.name for item in available if model_admin.is_fsm_transition_visible(item)]
            if name not in names:
                raise _not_shown(name, row, names)
            if not model_admin._apply_fsm_transition(obj=row, transition_name=name, request=request):
                texts = [message["text"] for message in said(request)]
                raise ToolError(f"Nothing was changed. The admin says: {quoted(' '.join(texts), MAX_SAID)}")

    return run


def _declaring(run: Callable[..., Any], declared: Any) -> Callable[..., Any]:
    """Return the function with what the author has declared of the button."""
    for attribute in DECLARED:
        if hasattr(declared, attribute):
            setattr(run, attribute, getattr(declared, attribute))
    return run


def _not_shown(name: str, row: Model, names: list[str] | None = None) -> ToolError:
    others = f" It shows {', '.join(names)}." if names else ""
    return ToolError(f"The page of the row {row.pk} does not show {name} at present.{others} Nothing was changed.")
