"""Entries in the admin's history for what callers write, marked with the client and the tool.

The messages have the admin's own structure (``construct_change_message``), so that its history page shows them like
those of people: "Changed Status. Changed via MCP: Claude (client-id), update_record."
"""

import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.utils import translation
from django.utils.text import capfirst

from ..context.request import Exposure, MCPRequest
from ..orm.access import visible_fields
from ..orm.rendering import iso_text
from ..schema.jsonable import clean_text
from ..signin import SERVICE_ACCOUNT

MAX_NAME: Final = 80
# Entries of one row that are shown, and characters of the message of each.
MAX_ENTRIES: Final = 20
MAX_MESSAGE: Final = 500
# Entries in one query.
CHUNK: Final = 200
# Entries that the record of a call names.
MAX_NOTED: Final = 200
# Characters of a row's name in an entry.
MAX_REPR: Final = 200

# What follows the client in a mark, at the end of a message.
_ENDING: Final = re.compile(r', [a-z0-9_]{1,64}"(?:\}\}|\]\}\})\]\Z')

Message = list[dict[str, Any]] | str


def author(request: MCPRequest, tool: str) -> str:
    """Return who wrote: what the client calls itself, the id it signed in with, and the tool.

    Of a service account it is the account's name.
    """
    name, client_id = _clean(request.mcp.client.name), _clean(request.mcp.client_id)
    if SERVICE_ACCOUNT in request.mcp.facts:
        # What an administrator called it, not what its program calls itself.
        name = f"service account {_clean(str(request.mcp.facts.get('name', '')))}"
    client = f"{name} ({client_id})" if name and client_id else name or client_id
    return f"{client}, {tool}" if client else tool


def made_by(message: str, client_id: str) -> bool:
    """Return whether an entry with this message was made by the client that signed in with the id.

    Only the end counts, which this app wrote: what a client calls itself stands before it, and could name another one.
    """
    ending = _ENDING.search(message)
    if ending is None or not (own := _clean(client_id)):
        return False
    written = json.dumps(own)[1:-1]
    return message[: ending.start()].endswith((f" ({written})", f'"object": "{written}', f'["via MCP: {written}'))


def _clean(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char)[0] != "C")[:MAX_NAME]


def log_addition(request: MCPRequest, exposure: Exposure, obj: Model, message: Message, tool: str) -> None:
    """Log that the row was added."""
    mark = {"added": {"name": "via MCP", "object": author(request, tool)}}
    request.mcp.record.rows_changed += 1
    if has_history(request):
        _note(request, exposure.log_addition(request, obj, _marked(request, message, mark, tool)))


def log_change(request: MCPRequest, exposure: Exposure, obj: Model, message: Message, tool: str) -> None:
    """Log that the row was changed."""
    request.mcp.record.rows_changed += 1
    if has_history(request):
        _note(request, exposure.log_change(request, obj, _marked(request, message, _change_mark(request, tool), tool)))


def log_deletion(request: MCPRequest, exposure: Exposure, obj: Model, tool: str) -> None:
    """Log that the row will be deleted; to be called before it is."""
    log_deletions(request, exposure, [obj], tool)


def log_deletions(request: MCPRequest, exposure: Exposure, objs: Sequence[Model], tool: str) -> None:
    """Log that the rows will be deleted; to be called before they are."""
    request.mcp.record.rows_changed += len(objs)
    if not has_history(request):
        return
    mark = json.dumps([_call_mark(request), {"deleted": {"name": "via MCP", "object": author(request, tool)}}])
    # A ModelAdmin's log_deletions takes no message: what it wrote is marked afterwards.
    logged = [entry for entry in exposure.log_deletions(request, objs) or () if isinstance(entry, Model) and entry.pk]
    _note(request, logged)
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
    call = _call_mark(request)
    messages = {words: [*([{"changed": {"fields": words}}] if words else []), call, mark] for words in logged}
    if len(logged) == 1:
        [(words, rows)] = logged.items()
        _note(request, log(request, rows, flag="CHANGE", message=messages[words]))
    elif logged:
        _log_each(request, [(obj, json.dumps(messages[words])) for words, rows in logged.items() for obj in rows])


def _log_each(request: MCPRequest, entries: Sequence[tuple[Model, str]]) -> None:
    """Write entries with a message each, in as few queries as the admin takes for one message."""
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.admin.options import get_content_type_for_model

    kinds = {type(obj): get_content_type_for_model(obj).pk for obj, _ in entries}
    made = LogEntry.objects.bulk_create(
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
    _note(request, made)


def _note(request: MCPRequest, logged: Any) -> None:
    """Have the record of the call name the entries, as far as the database told their keys."""
    history = request.mcp.record.history
    for entry in logged if isinstance(logged, list | tuple) else [logged]:
        if isinstance(entry, Model) and entry.pk is not None and len(history) < MAX_NOTED:
            history.append(str(entry.pk))


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

    hidden = hidden_names(request, exposure, obj)
    words = {ADDITION: "added", CHANGE: "changed"}
    entries = LogEntry.objects.filter(content_type=get_content_type_for_model(exposure.model), object_id=str(obj.pk))
    return [
        {
            "time": iso_text(entry.action_time),
            "user": clean_text(entry.user.get_username()),
            "action": words.get(entry.action_flag, "deleted"),
            "message": told(entry, hidden),
        }
        for entry in entries.select_related("user").order_by("-action_time", "-pk")[:MAX_ENTRIES]
    ]


def hidden_names(request: MCPRequest, exposure: Exposure, obj: Model | None) -> set[str]:
    """Return what messages call the fields of the row that the caller does not see."""
    seen = visible_fields(request, exposure, obj)
    fields = (field for field in logged_fields(exposure) if field.name not in seen)
    return {text.lower() for field in fields for text in names_in_log(exposure, field)}


def logged_fields(exposure: Exposure) -> list[Any]:
    """Return the fields of a row that messages can name."""
    return [*exposure.opts.fields, *exposure.opts.many_to_many]


def names_in_log(exposure: Exposure, field: Any) -> set[str]:
    """Return what messages call a field: its name, or its label, which the admin writes untranslated."""
    labels = [field.verbose_name, getattr(_form_fields(exposure).get(field.name), "label", None)]
    texts = [field.name, *(str(label) for label in labels if label)]
    with translation.override(None):
        texts += [str(label) for label in labels if label]
    return {*texts, *map(capfirst, texts)}


def _form_fields(exposure: Exposure) -> Mapping[str, Any]:
    form = getattr(getattr(exposure, "model_admin", None), "form", None) or getattr(exposure, "form", None)
    fields: Mapping[str, Any] = getattr(form, "base_fields", {})
    return fields


def told_parts(message: str, hidden: Collection[str]) -> list[Any] | None:
    """Return the parts of a message without the names of hidden fields, None for a message that is plain text.

    Rows of inlines have names of their own.
    """
    try:
        parts = json.loads(message)
    except ValueError:
        return None
    if not isinstance(parts, list):
        return None
    told = []
    for part in parts:
        changed = changed_fields(part)
        if changed is not None:
            kept = [text for text in changed if not is_about(str(text).lower(), hidden)]
            if not kept:
                continue
            part = {**part, "changed": {**part["changed"], "fields": kept}}
        told.append(part)
    return told


def changed_fields(part: Any) -> list[Any] | None:
    """Return which fields of the row itself a part of a message says were changed, None if it says something else."""
    changed = part.get("changed") if isinstance(part, dict) else None
    if not isinstance(changed, dict) or "name" in changed or not isinstance(changed.get("fields"), list):
        return None
    fields: list[Any] = changed["fields"]
    return fields


def told(entry: Any, hidden: Collection[str]) -> str:
    """Return the message of an entry without the names of hidden fields."""
    parts = told_parts(entry.change_message, hidden)
    if parts is not None:
        entry.change_message = json.dumps(parts)
    try:
        text = str(entry.get_change_message())
    except (AttributeError, KeyError, TypeError):
        # JSON, but not of the admin's structure.
        text = entry.change_message
    return clean_text(text, MAX_MESSAGE)


def is_about(text: str, hidden: Collection[str]) -> bool:
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
    return (
        f"{message} (via MCP: {author(request, tool)})"
        if isinstance(message, str)
        else [*message, _call_mark(request), mark]
    )


def _call_mark(request: MCPRequest) -> dict[str, Any]:
    """Return the part of a message that has the id of the call, which pages do not show."""
    return {"via MCP": request.mcp.record.id.hex}


def _change_mark(request: MCPRequest, tool: str) -> dict[str, Any]:
    return {"changed": {"fields": [f"via MCP: {author(request, tool)}"]}}


def has_history(request: MCPRequest) -> bool:
    """Return whether there is a history, and the caller is a user that it can name."""
    return apps.is_installed("django.contrib.admin") and isinstance(request.user, get_user_model())
