"""The console's page of one call: its outcome, arguments and result, the parts of its time, and its conversation."""

import json
from typing import Any, Final

from django.apps import apps
from django.contrib.admin.utils import unquote
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils import timezone

from ..context.untrusted_text import doubts_about
from ..models import CallEntry
from .call_log_admin import BODIES
from .call_query import CallQuery
from .console_pages import Page
from .conversations_page import Conversation, admin_url, written
from .undo_page import changes_of

# Maximum number of calls of the conversation that are shown before and after the call.
AROUND: Final = 3
# Fields of ``CallEntry`` with the parts of a call's time, in milliseconds.
PARTS: Final = ("waiting", "token_check", "query_time", "own_code", "rendering")


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the page of the call that the address names."""
    match: Any = request.resolver_match
    user: Any = request.user
    call = page.home.get_object(request, unquote(match.kwargs["object_id"]))
    if call is None:
        raise Http404
    may_see_bodies = user.has_perm("mcp_django.view_bodies")
    query = CallQuery.parse(request.GET.get("q", ""), timezone.now())
    log = CallEntry._default_manager.all()
    bodies = BODIES if may_see_bodies else ()
    read = log.values(*bodies, **query.beside(log, call)).get(pk=call.pk)
    try:
        model: Any = apps.get_model(call.model)
    except (LookupError, ValueError):
        model = None
    context = {
        "entry": call,
        "query": query,
        "newer": read["newer"],
        "older": read["older"],
        "arguments": pretty(read.get("arguments", "")),
        "result": pretty(read.get("result", "")),
        "may_see_bodies": may_see_bodies,
        "doubts": doubts_about(call.client_name, [call.client_host] if call.client_host else ()),
        "parts": parts_of(call),
        "conversation": Conversation.around(call, AROUND),
        "model_link": admin_url(page.home, request, model, "changelist"),
        "written": list(written(page.home, request, [call])),
        "changes": list(changes_of(page.home, request, [call])),
    }
    return page.render(request, context)


def parts_of(call: CallEntry) -> list[dict[str, Any]]:
    """Return the measured parts of the call's time and the rest: ms, and the place of the bar in percent."""
    measured = {name: getattr(call, name) or 0.0 for name in PARTS}
    took = sum(measured.values())
    begins = 0.0
    bars = []
    for name, ms in {**measured, "rest": call.duration - took}.items():
        if ms > 0:
            # Parts that ran in several threads at once can add up to more than the duration.
            share = 100 * ms / max(call.duration, took)
            bars.append({"name": name, "ms": ms, "share": share, "x": f"{begins:.2f}", "width": f"{share:.2f}"})
            begins += share
    return bars


def pretty(text: str) -> str:
    """Return a captured JSON text with line breaks and indents; one that was cut comes back as it is."""
    try:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    # Escape invisible characters and those that turn the direction of a text: they can mislead the reader.
    return "".join(map(_readable, text))


def _readable(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    return json.dumps(char)[1:-1]
