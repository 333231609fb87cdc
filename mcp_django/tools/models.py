"""``list_models`` and ``describe_model``: what there is, in as few words as a model needs to use it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..addresses import page_uri, row_uri_pattern
from ..conf import settings
from ..context import MCPRequest
from ..exceptions import ToolError
from ..filtering import filters_of
from ..kinds import kind_of
from ..ordering import default_ordering
from ..serializers import Column, clean_text
from ..visibility import caller_actions, columns_of, page_fields, related_exposure, visible_exposures, visible_fields
from .arguments import check_names, exposure_argument
from .base import WRITE, RecordTool, ToolResult
from .query import ALWAYS_LOAD

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["DescribeModel", "ListModels", "describe"]

MAX_LINE: Final = 120
MAX_CHOICES: Final = 30


def may_words(request: MCPRequest, exposure: "ModelExposure") -> str:
    """Return what the caller may do with the model: "view", with "add change delete" as far as they go."""
    words = ["view"]
    if WRITE in request.mcp.scopes and not settings.READ_ONLY:
        verdicts = {
            "add": exposure.has_add_permission,
            "change": exposure.has_change_permission,
            "delete": exposure.has_delete_permission,
        }
        words += [word for word, verdict in verdicts.items() if verdict(request)]
    return " ".join(words)


class ListModels(RecordTool):
    """The models that the caller may view."""

    name = "list_models"
    title = "List models"
    description = "Use this first: the models you may see, and what you may do with the records of each."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Part of a name"}},
    }
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["columns", "rows"],
    }
    read_only = True
    meta = ALWAYS_LOAD

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each model."""
        query = check_names(arguments, self.input_schema["properties"]).get("query") or ""
        if not isinstance(query, str):
            raise ToolError("query must be a text.")
        rows: list[list[str]] = []
        used = 0
        hint = None
        for row in self._rows(request, query.lower()):
            used += sum(map(len, row)) + 16
            if used > settings.RESULT_CHARS:
                hint = "There are more models: name a part of what you look for in query."
                break
            rows.append(row)
        if not rows:
            hint = "No model matches: leave query out to see all." if query else "You may not view any model."
        payload: dict[str, Any] = {"returned": len(rows)}
        if hint is not None:
            payload["hint"] = hint
        payload["columns"] = ["model", "title", "may", "description"]
        payload["rows"] = rows
        return ToolResult(structured=payload)

    def _rows(self, request: MCPRequest, query: str) -> Iterator[list[str]]:
        for exposure in visible_exposures(request):
            title = str(exposure.opts.verbose_name_plural)
            about = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
            if query in f"{exposure.label} {title} {about}".lower():
                yield [exposure.label, title, may_words(request, exposure), about]


def describe(request: MCPRequest, exposure: "ModelExposure") -> dict[str, Any]:
    """Return what a client has to know of a model: one line for each field, in display order."""
    payload: dict[str, Any] = {"model": exposure.label, "title": str(exposure.opts.verbose_name)}
    if exposure.description:
        payload["description"] = exposure.description.strip()
    payload["may"] = may_words(request, exposure)
    lookups = {path.column: (name, found) for name, path, found in filters_of(request, exposure)}
    writable = _writable(request, exposure)
    columns = columns_of(exposure, visible_fields(request, exposure))
    payload["fields"] = [_line(request, exposure, column, writable, lookups) for column in columns]
    own = {column.path for column in columns}
    paths = [f"{name}: {' '.join(found)}" for path, (name, found) in lookups.items() if path not in own]
    if paths:
        payload["filters_on_related"] = paths
    if exposure.get_search_fields(request):
        payload["search"] = True
    shown = [key for key in default_ordering(request, exposure) if key.path in own]
    payload["ordering"] = [("-" if key.descending else "") + key.path for key in shown]
    payload["default_columns"] = list(page_fields(request, exposure))
    if WRITE in request.mcp.scopes and not settings.READ_ONLY and (actions := _actions(request, exposure)):
        payload["actions"] = actions
    payload["uris"] = [row_uri_pattern(exposure), page_uri(exposure)]
    return payload


def _writable(request: MCPRequest, exposure: "ModelExposure") -> Mapping[str, bool]:
    """Return the fields that the caller may set, and whether each is required."""
    if WRITE not in request.mcp.scopes or settings.READ_ONLY:
        return {}
    may_add = exposure.has_add_permission(request)
    if not may_add and not exposure.has_change_permission(request):
        return {}
    form = exposure.get_form(request, None, change=not may_add)
    fields: Mapping[str, Any] = getattr(form, "base_fields", {})
    return {name: bool(field.required) and not field.disabled for name, field in fields.items()}


def _line(
    request: MCPRequest,
    exposure: "ModelExposure",
    column: Column,
    writable: Mapping[str, bool],
    lookups: Mapping[str, tuple[str, tuple[str, ...]]],
) -> str:
    words = [_type_words(request, column)]
    if column.name == exposure.opts.pk.name:
        words.append("pk")
    if column.name in writable:
        words.append("required" if writable[column.name] else "optional")
    else:
        words.append("read-only")
    words += _filter_words(column, lookups)
    if getattr(column.field, "choices", None) and column.kind == "field":
        words.append(_choices(column.field))
    text = f"{column.name}: {', '.join(words)}"
    about = str(getattr(column.field, "help_text", "")).strip()
    return f"{text}. {clean_text(about, MAX_LINE)}" if about else text


def _type_words(request: MCPRequest, column: Column) -> str:
    if column.field is None:
        return "computed"
    related = related_exposure(request, column.field) if column.kind in ("relation", "many") else None
    word = kind_of(column.field).word
    if column.kind in ("relation", "many"):
        target = f" → {related.label}" if related is not None else " key of another record"
        return ("list of " if column.kind == "many" else "") + word + target
    null = " or null" if column.field.null else ""
    return word + null if column.kind == "field" else "computed"


def _filter_words(column: Column, lookups: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[str]:
    """Return what to say of the lookups: nothing where they are those of the field's type."""
    found = lookups.get(column.path) if column.is_plain else None
    if found is None:
        return ["no filter"] if column.is_plain and kind_of(column.field).lookups else []
    usual = [lookup for lookup in kind_of(column.field).lookups if lookup != "isnull"]
    if [lookup for lookup in found[1] if lookup != "isnull"] == usual:
        return []
    return [f"filter {' '.join(found[1])}"]


def _choices(field: Any) -> str:
    pairs = [(str(stored), str(label)) for stored, label in field.flatchoices if stored not in (None, "")]
    shown = [stored if stored.lower() == label.lower() else f"{stored}={label}" for stored, label in pairs]
    more = f" and {len(shown) - MAX_CHOICES} more" if len(shown) > MAX_CHOICES else ""
    return f"one of {' | '.join(shown[:MAX_CHOICES])}{more}"


def _actions(request: MCPRequest, exposure: "ModelExposure") -> list[dict[str, Any]]:
    found = []
    for name, action in caller_actions(request, exposure).items():
        entry: dict[str, Any] = {"name": name, "description": clean_text(action.description, MAX_LINE)}
        arguments = action.schema.get("properties", {})
        if arguments:
            entry["arguments"] = arguments
        found.append(entry)
    return found


class DescribeModel(RecordTool):
    """One model: its fields, filters, order, actions."""

    name = "describe_model"
    title = "Describe model"
    description = "Use this before the first query or write on a model: its fields, choices, filters, actions."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"model": {"type": "string", "description": "Label, e.g. shop.order"}},
        "required": ["model"],
    }
    read_only = True
    meta = ALWAYS_LOAD

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the description."""
        given = check_names(arguments, self.input_schema["properties"])
        return ToolResult(structured=describe(request, exposure_argument(request, given.get("model"))))
