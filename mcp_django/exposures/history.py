"""Entries in the admin's history for what callers write, marked with the client and the tool.

The messages have the admin's own structure (``construct_change_message``), so that its history page shows them like
those of people: "Changed Status. Changed via MCP: Claude (client-id), update_record."
"""

import json
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model

from ..context.request import Exposure, MCPRequest
from ..orm.access import visible_fields
from ..orm.rendering import iso_text
from ..schema.jsonable import clean_text

MAX_NAME: Final = 80
# Entries of one row that are shown, and characters of the message of each.
MAX_ENTRIES: Final = 20
MAX_MESSAGE: Final = 500
# Entries in one query.
CHUNK: Final = 200
# Characters of a row's name in an entry.
MAX_REPR: Final = 200

Message = list[dict[str, Any]] | str


def author(request: MCPRequest, tool: str) -> str:
    """Return who wrote: what the client calls itself, the id it signed in with, and the tool."""
    name, client_id = _clean(request.mcp.client.name), _clean(request.mcp.client_id)
    client = f"{name} ({client_id})" if name and client_id else name or client_id
    return f"{client}, {tool}" if client else tool


def _clean(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char)[0] != "C")[:MAX_NAME]


def log_addition(request: MCPRequest, exposure: Exposure, obj: Model, message: Message, tool: str) -> None:
    """Log that the row was added."""
    mark = {"added": {"name": "via MCP", "object": author(request, tool)}}
    if has_history(request):
        exposure.log_addition(request, obj, _marked(request, message, mark, tool))


def log_change(request: MCPRequest, exposure: Exposure, obj: Model, message: Message, tool: str) -> None:
    """Log that the row was changed."""
    if has_history(request):
        exposure.log_change(request, obj, _marked(request, message, _change_mark(request, tool), tool))


def log_deletion(request: MCPRequest, exposure: Exposure, obj: Model, tool: str) -> None:
    """Log that the row will be deleted; to be called before it is."""
    log_deletions(request, exposure, [obj], tool)


def log_deletions(request: MCPRequest, exposure: Exposure, objs: Sequence[Model], tool: str) -> None:
    """Log that the rows will be deleted; to be called before they are."""
    if not has_history(request):
        return
    mark = json.dumps([{"deleted": {"name": "via MCP", "object": author(request, tool)}}])
    # A ModelAdmin's log_deletions takes no message: what it wrote is marked afterwards.
    logged = [entry for entry in exposure.log_deletions(request, objs) or () if isinstance(entry, Model) and entry.pk]
    unmarked = [entry for entry in logged if not getattr(entry, "change_message", mark)]
    for entry in unmarked:
        entry.change_message = mark  # type: ignore[attr-defined]
    if unmarked:
        type(unmarked[0])._default_manager.bulk_update(unmarked, ["change_message"], batch_size=CHUNK)


def log_action(
    request: MCPRequest, objects: Sequence[Model], tool: str, changes: Sequence[Sequence[str]] | None = None
) -> None:
    """Log for each row that an action ran on it; ``changes`` are, for each, what it changed in the row."""
    if not has_history(request):
        return
    mark, logged = _change_mark(request, tool), dict[tuple[str, ...], list[Model]]()
    for obj, changed in zip(objects, changes if changes is not None else [()] * len(objects), strict=True):
        logged.setdefault(tuple(changed), []).append(obj)
    messages = {words: [*([{"changed": {"fields": words}}] if words else []), mark] for words in logged}
    if len(logged) == 1:
        [(words, rows)] = logged.items()
        log(request, rows, flag="CHANGE", message=messages[words])
    elif logged:
        _log_each(request, [(obj, json.dumps(messages[words])) for words, rows in logged.items() for obj in rows])


def _log_each(request: MCPRequest, entries: Sequence[tuple[Model, str]]) -> None:
    """Write entries with a message each, in as few queries as the admin takes for one message."""
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.admin.options import get_content_type_for_model

    kinds = {type(obj): get_content_type_for_model(obj).pk for obj, _ in entries}
    LogEntry.objects.bulk_create(
        [
            LogEntry(
                user_id=request.user.pk,  # type: ignore[misc]
                content_type_id=kinds[type(obj)],
                object_id=obj.pk,
                object_repr=str(obj)[:MAX_REPR],
                action_flag=CHANGE,
                change_message=message,
            )
            for obj, message in entries
        ],
        batch_size=CHUNK,
    )


def log(request: MCPRequest, objects: Sequence[Model], *, flag: str, message: Message = "") -> Any:
    """Write the admin's entries; ``flag`` is ADDITION, CHANGE or DELETION of ``django.contrib.admin.models``."""
    from django.contrib.admin import models

    return models.LogEntry.objects.log_actions(
        user_id=request.user.pk,  # type: ignore[arg-type]
        queryset=objects,
        action_flag=getattr(models, flag),
        change_message=message,
    )


def history_of(request: MCPRequest, exposure: Exposure, obj: Model) -> list[dict[str, Any]]:
    """Return what the admin's history page says of the row, the newest first; nothing where it shows no such page."""
    if not _may_read_history(request, exposure, obj):
        return []
    from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
    from django.contrib.admin.options import get_content_type_for_model

    hidden = _hidden_names(request, exposure, obj)
    words = {ADDITION: "added", CHANGE: "changed"}
    entries = LogEntry.objects.filter(content_type=get_content_type_for_model(exposure.model), object_id=str(obj.pk))
    return [
        {
            "time": iso_text(entry.action_time),
            "user": clean_text(entry.user.get_username()),
            "action": words.get(entry.action_flag, "deleted"),
            "message": clean_text(_told(entry, hidden), MAX_MESSAGE),
        }
        for entry in entries.select_related("user").order_by("-action_time", "-pk")[:MAX_ENTRIES]
    ]


def _hidden_names(request: MCPRequest, exposure: Exposure, obj: Model) -> set[str]:
    """Return what messages call the fields of the row that the caller does not see."""
    seen = visible_fields(request, exposure, obj)
    fields = (field for field in (*exposure.opts.fields, *exposure.opts.many_to_many) if field.name not in seen)
    return {text.lower() for field in fields for text in (field.name, str(field.verbose_name))}


def _told(entry: Any, hidden: Collection[str]) -> str:
    """Return the message without the names of hidden fields; rows of inlines have names of their own."""
    try:
        parts = json.loads(entry.change_message)
    except ValueError:
        return str(entry.get_change_message())
    if not isinstance(parts, list):
        return str(entry.get_change_message())
    told = []
    for part in parts:
        changed = part.get("changed") if isinstance(part, dict) else None
        if isinstance(changed, dict) and "name" not in changed and isinstance(changed.get("fields"), list):
            changed["fields"] = [text for text in changed["fields"] if not _is_about(str(text).lower(), hidden)]
            if not changed["fields"]:
                continue
        told.append(part)
    entry.change_message = json.dumps(told)
    return str(entry.get_change_message())


def _is_about(text: str, hidden: Collection[str]) -> bool:
    """Return whether the text is the name of a hidden field, with or without what became of its value."""
    return text in hidden or any(text.startswith(f"{name}: ") for name in hidden)


def _may_read_history(request: MCPRequest, exposure: Exposure, obj: Model) -> bool:
    """Return whether the admin would show the caller the history of the row."""
    admin_site = exposure.site.admin_site or admin.site
    if not has_history(request) or not admin_site.is_registered(exposure.model):
        return False
    model_admin = admin_site.get_model_admin(exposure.model)
    # The admin has its own idea of which rows there are.
    return (
        admin_site.has_permission(request)
        and model_admin.has_view_or_change_permission(request, obj)
        and model_admin.get_object(request, str(obj.pk)) is not None
    )


def _marked(request: MCPRequest, message: Message, mark: dict[str, Any], tool: str) -> Message:
    # A ModelAdmin may construct a text instead.
    return f"{message} (via MCP: {author(request, tool)})" if isinstance(message, str) else [*message, mark]


def _change_mark(request: MCPRequest, tool: str) -> dict[str, Any]:
    return {"changed": {"fields": [f"via MCP: {author(request, tool)}"]}}


def has_history(request: MCPRequest) -> bool:
    """Return whether there is a history, and the caller is a user that it can name."""
    return apps.is_installed("django.contrib.admin") and isinstance(request.user, get_user_model())
