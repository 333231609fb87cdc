"""What can be taken back of a row, and which calls read it, on the admin's own history page of it.

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
from django.utils import timezone

from ..conf import settings
from ..context.call_record import MAX_KEY
from ..emulation.history import call_of
from ..orm.column_values import pk_text
from .call_query import CallQuery, Term
from .console_pages import CHANGES, UNDO, Home
from .known_sites import known_sites
from .undo_page import changes_of_calls

TEMPLATE: Final = "mcp_django/console/admin_history.html"


def with_changes(home: Home, request: HttpRequest, response: Any) -> Any:
    """Return the response of a history page, which then lists the changes of its row that the user can take back, and
    leads to the calls about the row."""
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
    query = query_of(context.get("object"))
    around = getattr(response.resolve_template(response.template_name), "template", None)
    if (changes or query) and isinstance(around, Template):
        urls = {
            "mcp_calls_url": query and query.url(home.calls_url),
            "mcp_all_changes_url": query and query.url(replace(CHANGES, home=home).url),
        }
        response.context_data = {**context, **urls, "mcp_changes": changes, "mcp_around": around}
        response.template_name = TEMPLATE
    return response


def query_of(row: Any) -> CallQuery | None:
    """Return the query of the calls about a row, None for a row that no site exposes, or of which no keys are kept."""
    if row is None or not settings.CALL_LOG or not settings.CALL_LOG["rows"]:
        return None
    label = row._meta.label_lower
    if all(site.find_exposure(label) is None for site in known_sites().values()):
        return None
    return CallQuery((Term("model", label), Term("row", pk_text(row.pk)[:MAX_KEY])), timezone.now())


def _calls(entries: Iterable[Any]) -> list[str]:
    """Return the ids of the calls that wrote entries of the history; those of other packages are none of ours."""
    messages = (getattr(entry, "change_message", "") for entry in entries)
    return list(filter(None, dict.fromkeys(map(call_of, messages))))
