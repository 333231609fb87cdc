"""Entries in the admin's history for what callers write, marked with the client and the tool.

The messages have the admin's own structure (``construct_change_message``), so that its history page shows them like
those of people: "Changed Status. Changed via MCP: Claude (client-id), update_record."
"""

import json
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model

from ..context import MCPRequest

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["author", "log", "log_action", "log_addition", "log_change", "log_deletion"]

MAX_NAME: Final = 80

Message = list[dict[str, Any]] | str


def author(request: MCPRequest, tool: str) -> str:
    """Return who wrote: what the client calls itself, the id it signed in with, and the tool."""
    name, client_id = _clean(request.mcp.client.name), _clean(request.mcp.client_id)
    client = f"{name} ({client_id})" if name and client_id else name or client_id
    return f"{client}, {tool}" if client else tool


def _clean(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char)[0] != "C")[:MAX_NAME]


def log_addition(request: MCPRequest, exposure: "ModelExposure", obj: Model, message: Message, tool: str) -> None:
    """Log that the row was added."""
    mark = {"added": {"name": "via MCP", "object": author(request, tool)}}
    if _has_history(request):
        exposure.log_addition(request, obj, _marked(request, message, mark, tool))


def log_change(request: MCPRequest, exposure: "ModelExposure", obj: Model, message: Message, tool: str) -> None:
    """Log that the row was changed."""
    if _has_history(request):
        exposure.log_change(request, obj, _marked(request, message, _change_mark(request, tool), tool))


def log_deletion(request: MCPRequest, exposure: "ModelExposure", obj: Model, tool: str) -> None:
    """Log that the row will be deleted; to be called before it is."""
    if not _has_history(request):
        return
    mark = json.dumps([{"deleted": {"name": "via MCP", "object": author(request, tool)}}])
    # A ModelAdmin's log_deletions takes no message: what it wrote is marked afterwards.
    for entry in exposure.log_deletions(request, [obj]) or ():
        if isinstance(entry, Model) and entry.pk and not getattr(entry, "change_message", mark):
            entry.change_message = mark  # type: ignore[attr-defined]
            entry.save(update_fields=["change_message"])


def log_action(request: MCPRequest, objects: Sequence[Model], tool: str) -> None:
    """Log for each row that an action ran on it."""
    if _has_history(request):
        log(request, objects, flag="CHANGE", message=[_change_mark(request, tool)])


def log(request: MCPRequest, objects: Sequence[Model], *, flag: str, message: Message = "") -> Any:
    """Write the admin's entries; ``flag`` is ADDITION, CHANGE or DELETION of ``django.contrib.admin.models``."""
    from django.contrib.admin import models

    return models.LogEntry.objects.log_actions(
        user_id=request.user.pk,  # type: ignore[arg-type]
        queryset=objects,
        action_flag=getattr(models, flag),
        change_message=message,
    )


def _marked(request: MCPRequest, message: Message, mark: dict[str, Any], tool: str) -> Message:
    # A ModelAdmin may construct a text instead.
    return f"{message} (via MCP: {author(request, tool)})" if isinstance(message, str) else [*message, mark]


def _change_mark(request: MCPRequest, tool: str) -> dict[str, Any]:
    return {"changed": {"fields": [f"via MCP: {author(request, tool)}"]}}


def _has_history(request: MCPRequest) -> bool:
    """Return whether there is a history, and the caller is a user that it can name."""
    return apps.is_installed("django.contrib.admin") and isinstance(request.user, get_user_model())
