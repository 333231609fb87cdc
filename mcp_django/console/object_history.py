"""What can be taken back of a row, on the admin's own history page of it.

The page stays as the project or another package has it: its template is extended, whichever it is. What renders no
template of Django's stays as it is.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from django.db import DatabaseError
from django.http import HttpRequest
from django.template.base import Template
from django.template.response import TemplateResponse

from ..emulation.history import call_of
from .console_pages import UNDO, Home
from .undo_page import changes_of_calls

TEMPLATE: Final = "mcp_django/console/admin_history.html"


def with_changes(home: Home, request: HttpRequest, response: Any) -> Any:
    """Return the response of a history page, which then lists the changes of its row that the user can take back."""
    if not isinstance(response, TemplateResponse) or response.is_rendered:
        return response
    if not replace(UNDO, home=home).may_open(request):
        return response
    context = response.context_data or {}
    calls = _calls(context.get("action_list") or ())
    try:
        changes = [change for change in changes_of_calls(home, request, calls) if change["url"]]
    except DatabaseError:
        # Without the app's tables, the page of the admin works as before.
        return response
    around = getattr(response.resolve_template(response.template_name), "template", None)
    if changes and isinstance(around, Template):
        response.context_data = {**context, "mcp_changes": changes, "mcp_around": around}
        response.template_name = TEMPLATE
    return response


def _calls(entries: Iterable[Any]) -> list[str]:
    """Return the ids of the calls that wrote entries of the history; those of other packages are none of ours."""
    messages = (getattr(entry, "change_message", "") for entry in entries)
    return list(filter(None, dict.fromkeys(map(call_of, messages))))
