"""Entries in the admin's history for what callers write, marked with the client and the tool.

The messages have the admin's own structure (``construct_change_message``), so that its history page shows them like
those of people: "Changed Status. Changed via MCP: Claude (client-id), update_record."
"""

import json
import unicodedata
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.utils import translation
from django.utils.text import capfirst

from ..context.request import MCPRequest
from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess
from ..orm.column_values import render
from ..schema.secrets import clean_text
from ..signin import FactName
from .inline_rows import PageInlines

MAX_NAME: Final = 80
# Maximum number of entries shown for one row, and maximum characters of each message.
MAX_ENTRIES: Final = 20
MAX_MESSAGE: Final = 500
# Maximum number of entries written in one query.
CHUNK: Final = 200
# Maximum number of entries whose keys are noted in the record of a call.
MAX_NOTED: Final = 200
# Maximum characters of a row's label in an entry (``LogEntry.object_repr``).
MAX_REPR: Final = 200

Message = list[dict[str, Any]] | str


def made_by(message: str, client_id: str) -> bool:
    """Return whether a message of the admin's history was written for the client with this id."""
    own = _clean(client_id)
    return bool(own) and _mark_of(message).get("client_id") == own


def call_of(message: str) -> str:
    """Return the id of the call that wrote a message of the admin's history, "" for any other message."""
    return str(_mark_of(message).get("via MCP", ""))


def _mark_of(message: str) -> dict[str, Any]:
    """Return the hidden mark in a message that a call wrote, an empty one for any other message."""
    try:
        parts = json.loads(message)
    except ValueError:
        return {}
    mark = parts[-1] if isinstance(parts, list) and parts else None
    return mark if isinstance(mark, dict) and "via MCP" in mark else {}


def _clean(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char)[0] != "C")[:MAX_NAME]


def has_history(request: MCPRequest) -> bool:
    """Return whether the admin's history is installed, and can name the caller as its user."""
    return apps.is_installed("django.contrib.admin") and isinstance(request.user, get_user_model())


class Journal:
    """Writes entries in the admin's history for one tool call, marked with client and tool."""

    def __init__(self, request: MCPRequest, tool: str) -> None:
        self.request = request
        self.tool = tool
        name = _clean(request.mcp.client.name)
        facts = request.mcp.facts
        if FactName.SERVICE_ACCOUNT in facts:
            # Use the name that an administrator gave it, not the one that the client claims.
            name = f"service account {_clean(str(facts.get('name', '')))}"
        self.client_id = _clean(request.mcp.client_id)
        self.client = name or self.client_id
        client = f"{name} ({self.client_id})" if name and self.client_id else self.client
        # The author as the history page shows it.
        self.author = f"{client}, {tool}" if client else tool
        consent = request.mcp.consent
        if consent is not None and consent.approver is not None:
            self.author += f", approved by {_clean(consent.by)}"

    def _marked(self, message: Message, mark: dict[str, Any] | None = None) -> Message:
        """Return a history message with two marks of client and tool: one that pages show, and a hidden one. The module
        ``history_model`` relies on the order of the keys in the hidden mark."""
        if isinstance(message, str):
            # A ModelAdmin can construct a plain text.
            return f"{message} (via MCP: {self.author})"
        shown = mark or {"changed": {"fields": [f"via MCP: {self.author}"]}}
        call = self.request.mcp.record.id.hex
        hidden = {"via MCP": call, "tool": self.tool, "client": self.client, "client_id": self.client_id}
        return [*message, shown, hidden]

    def added(self, exposure: ModelExposure, obj: Model, message: Message) -> None:
        """Log that the row was added."""
        self.request.mcp.record.rows_changed += 1
        if has_history(self.request):
            marked = self._marked(message, {"added": {"name": "via MCP", "object": self.author}})
            self._note(exposure.log_addition(self.request, obj, marked))

    def changed(self, exposure: ModelExposure, obj: Model, message: Message) -> None:
        """Log that the row was changed."""
        self.request.mcp.record.rows_changed += 1
        if has_history(self.request):
            self._note(exposure.log_change(self.request, obj, self._marked(message)))

    def deletes(self, exposure: ModelExposure, objs: Sequence[Model]) -> None:
        """Write history entries for rows before they are deleted."""
        self.request.mcp.record.rows_changed += len(objs)
        if not has_history(self.request):
            return
        mark = json.dumps(self._marked([], {"deleted": {"name": "via MCP", "object": self.author}}))
        # ModelAdmin.log_deletions() takes no message, so mark its entries afterwards.
        found = exposure.log_deletions(self.request, objs) or ()
        logged = [entry for entry in found if isinstance(entry, Model) and entry.pk]
        self._note(logged)
        unmarked = [entry for entry in logged if not getattr(entry, "change_message", mark)]
        for entry in unmarked:
            entry.change_message = mark  # type: ignore[attr-defined]
        if unmarked:
            type(unmarked[0])._default_manager.bulk_update(unmarked, ["change_message"], batch_size=CHUNK)

    def acted(self, objects: Sequence[Model], changes: Sequence[Sequence[str]]) -> None:
        """Write a history entry for each row on which an action ran, with what it changed there."""
        if not has_history(self.request):
            return
        from django.contrib.admin.models import CHANGE

        made = []
        for obj, words in zip(objects, changes, strict=True):
            message = self._marked([{"changed": {"fields": list(words)}}] if words else [])
            made.append(self._entry(CHANGE, obj, str(obj), json.dumps(message)))
        self._store(made)

    def took_back(self, change: int, rows: Sequence[tuple[str, Model, str]]) -> None:
        """Write a history entry for each row that was written back, given as what was done with it ("add", "change" or
        "delete"), the row, and its text."""
        if not rows or not has_history(self.request):
            return
        from django.contrib.admin.models import ADDITION, CHANGE, DELETION

        flags = {"add": ADDITION, "change": CHANGE, "delete": DELETION}
        what = {"name": "taken back:", "object": f"change {change}"}
        told: dict[str, dict[str, Any]] = {
            "add": {"added": what},
            "change": {"changed": {"fields": [f"taken back: change {change}"]}},
            "delete": {"deleted": what},
        }
        messages = {deed: json.dumps(self._marked([part])) for deed, part in told.items()}
        self._store([self._entry(flags[deed], obj, text, messages[deed]) for deed, obj, text in rows])

    def _entry(self, flag: int, obj: Model, text: str, message: str) -> Any:
        """Return a new entry on a row, which has this text."""
        from django.contrib.admin.models import LogEntry
        from django.contrib.admin.options import get_content_type_for_model

        return LogEntry(
            user_id=self.request.user.pk,  # type: ignore[misc]
            content_type_id=get_content_type_for_model(obj).pk,
            object_id=obj.pk,
            object_repr=text[:MAX_REPR],
            action_flag=flag,
            change_message=message,
        )

    def _store(self, made: Sequence[Any]) -> None:
        """Store new entries."""
        if len(made) == 1:
            # Save a single entry as the admin does, so that post_save receivers run.
            made[0].save()
        elif made:
            type(made[0]).objects.bulk_create(made, batch_size=CHUNK)
        self._note(made)

    def _note(self, logged: Any) -> None:
        """Note the keys of the admin's new history entries in the record of the call."""
        history = self.request.mcp.record.history
        for entry in logged if isinstance(logged, list | tuple) else [logged]:
            if isinstance(entry, Model) and entry.pk is not None and len(history) < MAX_NOTED:
                history.append(str(entry.pk))


class HistoryReader:
    """Reads the admin's history of a model or a row for a caller, without hidden fields and rows of hidden inlines."""

    def __init__(self, model: ModelAccess, obj: Model | None = None) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.obj = obj
        exposure = model.exposure
        seen = model.fields_of(obj)
        form = exposure.form or exposure.model_admin.form
        # The names that messages use: of visible fields by field name, and of hidden fields in lower case.
        self.visible, self.hidden = _names_of(exposure.opts, form, seen)

    @cached_property
    def inlines(self) -> dict[str, set[str] | None]:
        """The hidden fields of each inline's rows by the name of the model in history messages; None for models whose
        rows the caller does not see as inline rows."""
        with translation.override(None):
            found: dict[str, set[str] | None] = {str(model._meta.verbose_name): None for model in apps.get_models(True)}
            for inline in PageInlines(self.model, self.obj).all:
                opts = inline.admin.opts
                name = str(opts.verbose_name)
                hidden = _names_of(opts, inline.admin.form, inline.fields)[1]
                # Two inlines can have rows of one model.
                found[name] = hidden | (found.get(name) or set())
        return found

    def is_hidden(self, text: str) -> bool:
        """Return whether a text of a history message names a hidden field."""
        return _names_one(text, self.hidden)

    def parts(self, message: str) -> list[Any] | None:
        """Return the parts of a history message without hidden fields and inline rows, None for plain text."""
        try:
            parts = json.loads(message)
        except ValueError:
            return None
        if not isinstance(parts, list):
            return None
        told = []
        for part in parts:
            verb, details = next(iter(part.items()), ("", None)) if isinstance(part, dict) else ("", None)
            if isinstance(details, dict):
                hidden = self.inlines.get(str(details["name"]), set()) if "name" in details else self.hidden
                if hidden is None:
                    continue
                if isinstance(details.get("fields"), list):
                    kept = [text for text in details["fields"] if not _names_one(str(text), hidden)]
                    if not kept:
                        continue
                    part = {**part, verb: {**details, "fields": kept}}
            told.append(part)
        return told

    def text(self, entry: Any) -> str:
        """Return the text of a history entry without the names of hidden fields."""
        parts = self.parts(entry.change_message)
        if parts is not None:
            entry.change_message = json.dumps(parts)
        try:
            text = str(entry.get_change_message())
        except (AttributeError, KeyError, TypeError):
            # The message is JSON, but not in the admin's structure.
            text = entry.change_message
        return clean_text(text, MAX_MESSAGE)

    def entries(self) -> list[dict[str, Any]]:
        """Return the row's history entries, the newest first, if the admin's history page shows them."""
        request = self.request
        exposure = self.exposure
        obj = self.obj
        assert obj is not None
        admin_site = exposure.site.admin_site or admin.site
        if not has_history(request) or not admin_site.is_registered(exposure.model):
            return []
        model_admin = admin_site.get_model_admin(exposure.model)
        if (
            not admin_site.has_permission(request)
            or not model_admin.has_view_or_change_permission(request, obj)
            # The ModelAdmin may have another queryset than the exposure.
            or model_admin.get_object(request, str(obj.pk)) is None
        ):
            return []
        from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
        from django.contrib.admin.options import get_content_type_for_model

        words = {ADDITION: "added", CHANGE: "changed"}
        entries = LogEntry.objects.filter(
            content_type=get_content_type_for_model(exposure.model), object_id=str(obj.pk)
        )
        return [
            {
                "time": render(entry.action_time),
                "user": clean_text(entry.user.get_username()),
                "action": words.get(entry.action_flag, "deleted"),
                "message": self.text(entry),
            }
            for entry in entries.select_related("user").order_by("-action_time", "-pk")[:MAX_ENTRIES]
        ]


def _names_of(opts: Any, form: Any, seen: Collection[str]) -> tuple[dict[str, set[str]], set[str]]:
    """Return the names that history messages in the admin use for fields, which are their names or untranslated labels:
    of visible fields by field name, and of hidden fields in lower case."""
    visible = dict[str, set[str]]()
    hidden = set[str]()
    for field in (*opts.fields, *opts.many_to_many):
        labels = [field.verbose_name, getattr(getattr(form, "base_fields", {}).get(field.name), "label", None)]
        texts = [field.name, *(str(label) for label in labels if label)]
        with translation.override(None):
            texts += [str(label) for label in labels if label]
        if field.name in seen:
            visible[field.name] = {*texts, *map(capfirst, texts)}
        else:
            hidden.update(text.lower() for text in texts)
    return visible, hidden


def _names_one(text: str, hidden: Collection[str]) -> bool:
    text = text.lower()
    return text in hidden or any(text.startswith(f"{name}: ") for name in hidden)


def changed_fields(part: Any) -> list[Any] | None:
    """Return the changed fields that a part of a history message names, None for any other part."""
    changed = part.get("changed") if isinstance(part, dict) else None
    if not isinstance(changed, dict) or "name" in changed or not isinstance(changed.get("fields"), list):
        return None
    fields: list[Any] = changed["fields"]
    return fields
