"""``list_models`` and ``describe_model``: what there is, in as few words as a model needs to use it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from ..context.request import Exposure, MCPRequest
from ..context.results import ToolResult
from ..exceptions import ToolError
from ..forms.files import FILE_WORDS
from ..orm.access import (
    caller_actions,
    columns_of,
    page_fields,
    refusal,
    related_exposure,
    visible_exposures,
    visible_fields,
)
from ..orm.arguments import check_names, exposure_argument, flag_argument
from ..orm.columns import Column, is_file
from ..orm.filters import filters_of, find_filter, unsearched
from ..orm.kinds import choices_of, holds_many, kind_of
from ..orm.lookups import Offer, named_filters_of, usual_lookups
from ..orm.ordering import default_ordering
from ..orm.uris import page_uri, row_uri_pattern
from ..orm.ways import computed_word
from ..orm.wording import json_or_text
from ..schema.jsonable import clean_text
from .base import RecordTool
from .examples import examples_of
from .finding import found_models
from .inline_words import inline_lines
from .overviews import Use, may_words, may_write, overview, related_words, writable_fields, writing_forms
from .query import ALWAYS_LOAD

MAX_LINE: Final = 120
MAX_CHOICES: Final = 30
# Models of one call.
MAX_MODELS: Final = 50
# Characters of a question that are read.
MAX_QUERY: Final = 500


class ListModels(RecordTool):
    """The models that the caller may view."""

    name = "list_models"
    title = "List models"
    description = "Models you may see, or that fit a query, and what you may do there."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "In any words"}},
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

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether there is a model to list, or something to say of why there is none."""
        return super().has_permission(request) or bool(refusal(request))

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each model.

        Raises:
            ToolError: the caller is not let in.
        """
        if refused := refusal(request):
            raise ToolError(refused)
        query = check_names(arguments, self.input_schema["properties"]).get("query") or ""
        if not isinstance(query, str):
            raise ToolError("query must be a text.")
        exposures: Sequence[Exposure] = visible_exposures(request)
        found = found_models(request, exposures, query[:MAX_QUERY]) if query.strip() else []
        rows = _fitting(request, found or exposures)
        hint = "Next: describe_model (several models in one call)."
        if not rows:
            hint = "You may not view any model."
        elif query.strip() and not found:
            hint = "No model matches, so these are all: ask for the nearest, or in other words."
        elif found and len(found) < len(exposures):
            hint = f"Best first. {hint} Not among them? leave query out to see all {len(exposures)}."
        if len(rows) < len(found or exposures):
            hint = "There are more models: say in query what you look for."
        payload: dict[str, Any] = {"returned": len(rows), "hint": hint}
        payload["columns"] = ["model", "title", "may", "description"]
        payload["rows"] = rows
        return ToolResult(structured=payload)


def _fitting(request: MCPRequest, exposures: Sequence[Exposure]) -> list[list[str]]:
    """Return a row for each model, for as many as a result holds."""
    rows: list[list[str]] = []
    used = 0
    for exposure in exposures:
        about = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
        row = [exposure.label, str(exposure.opts.verbose_name_plural), may_words(request, exposure), about]
        used += sum(map(len, row)) + 16
        if used > request.mcp.result_chars:
            break
        rows.append(row)
    return rows


def describe(request: MCPRequest, exposure: Exposure) -> dict[str, Any]:
    """Return what a client has to know of a model: one line for each field, in display order."""
    payload: dict[str, Any] = {"model": exposure.label, "title": str(exposure.opts.verbose_name)}
    if exposure.description:
        payload["description"] = exposure.description.strip()
    payload["may"] = may_words(request, exposure)
    lookups = {path.column: (name, found) for name, path, found in filters_of(request, exposure)}
    writable = writable_fields(request, exposure)
    columns = columns_of(exposure, visible_fields(request, exposure))
    payload["fields"] = [_line(request, exposure, column, writable, lookups) for column in columns]
    if extra := _form_only(request, exposure):
        payload["write_only_fields"] = extra
    if lines := inline_lines(request, exposure):
        payload["inlines"] = lines
    if related := related_words(request, exposure):
        payload["related"] = related
    own = {column.path for column in columns}
    paths = [f"{name}: {' '.join(found)}" for path, (name, found) in lookups.items() if path not in own]
    if paths:
        payload["filters_on_related"] = paths
    if named := [_named_line(offer) for offer in named_filters_of(request, exposure, told=True)]:
        payload["named_filters"] = named
    if exposure.get_search_fields(request):
        payload["search"] = True
    if left := unsearched(request, exposure):
        payload["not_searched"] = left
    shown = [key for key in default_ordering(request, exposure) if key.path in own]
    payload["ordering"] = [("-" if key.descending else "") + key.path for key in shown]
    payload["default_columns"] = list(page_fields(request, exposure))
    if may_write(request) and (actions := _actions(request, exposure)):
        payload["actions"] = actions
    payload["uris"] = [row_uri_pattern(exposure), page_uri(exposure)]
    return payload


def _form_only(request: MCPRequest, exposure: Exposure) -> Mapping[str, Any]:
    """Return the schemas of the fields that only a form has."""
    found: dict[str, Any] = {}
    for writing in writing_forms(request, exposure):
        if writing is not None:
            extra = [name for name in writing.names if name not in visible_fields(request, exposure)]
            found = {**writing.schema(extra).get("properties", {}), **found}
    return found


def _line(
    request: MCPRequest,
    exposure: Exposure,
    column: Column,
    writable: Mapping[str, Use],
    lookups: Mapping[str, tuple[str, tuple[str, ...]]],
) -> str:
    words = [_type_words(request, column), *_computed_words(request, exposure, column)]
    if column.name == exposure.opts.pk.name:
        words.append("pk")
    use = writable.get(column.name)
    if use is not None:
        words.append(" ".join(["required" if use.required else "optional", *([use.only] if use.only else [])]))
        words += [FILE_WORDS] if is_file(exposure, column.name) else []
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
    if column.kind == "generic":
        return "[key, label, model] of any record"
    linked = column.kind in ("relation", "many", "reverse")
    related = related_exposure(request, column.field) if linked else None
    word = kind_of(column.field).word
    if linked:
        target = f" → {related.label}" if related is not None else " key of another record"
        single = column.kind == "relation" or column.field.one_to_one
        return ("" if single else "list of ") + word + target
    word = f"list of {word}" if holds_many(column.field) else word
    null = " or null" if column.field.null else ""
    return word + null if column.kind == "field" else "computed"


def _computed_words(request: MCPRequest, exposure: Exposure, column: Column) -> list[str]:
    """Return what to say of the use of a column that the admin computes, nothing of one that is shown alone."""
    word = computed_word(request, exposure, column.name) if column.kind == "computed" else ""
    if not word:
        return []
    uses = ["filtered"] if find_filter(request, exposure, column.name) is not None else []
    return [f"{word} that can be {' and '.join([*uses, 'used in aggregates'])}"]


def _filter_words(column: Column, lookups: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[str]:
    """Return what to say of the lookups: nothing where they are those of the field's type."""
    found = lookups.get(column.path) if column.is_plain else None
    if found is None:
        return ["no filter"] if column.is_plain and kind_of(column.field).lookups else []
    usual = [lookup for lookup in usual_lookups(column.field) if lookup != "isnull"]
    if [lookup for lookup in found[1] if lookup != "isnull"] == usual:
        return []
    return [f"filter {' '.join(found[1])}"]


def _named_line(offer: Offer) -> str:
    text = f"{offer.name}: {clean_text(offer.title, MAX_LINE)}"
    return f"{text}, {_one_of(offer.choices)}" if offer.choices else text


def _choices(field: Any) -> str:
    return _one_of([(str(stored), str(label)) for stored, label in choices_of(field) if stored not in (None, "")])


def _one_of(pairs: Sequence[tuple[str, str]]) -> str:
    shown = [stored if stored.lower() == label.lower() else f"{stored}={label}" for stored, label in pairs]
    more = f" and {len(shown) - MAX_CHOICES} more" if len(shown) > MAX_CHOICES else ""
    return f"one of {' | '.join(shown[:MAX_CHOICES])}{more}"


def _actions(request: MCPRequest, exposure: Exposure) -> list[dict[str, Any]]:
    found = []
    first: list[tuple[str, Mapping[str, Any]]] = []
    for name, action in caller_actions(request, exposure).items():
        entry: dict[str, Any] = {"name": name, "description": clean_text(action.description, MAX_LINE)}
        schema = action.told(request)
        arguments = schema.get("properties", {})
        other = next((known for known, told in first if told == arguments), "")
        if arguments:
            entry["arguments"] = f"As those of {other}" if other else arguments
            first.append((name, arguments))
        more = {"required": schema.get("required"), "asks_for": action.asks_for}
        entry |= {key: list(names) for key, names in more.items() if names}
        found.append(entry)
    return found


def describe_fully(request: MCPRequest, exposure: Exposure) -> dict[str, Any]:
    """Return the description with the schema of what the caller may write.

    ``update_schema`` stands beside it where the change page has other fields than the add page.
    """
    payload = describe(request, exposure)
    add, change = writing_forms(request, exposure)
    first = add or change
    if first is not None and first.names:
        payload["input_schema"] = first.schema()
    if add is not None and change is not None and set(add.names) != set(change.names):
        payload["update_schema"] = change.schema()
    return payload


class DescribeModel(RecordTool):
    """Models: their fields, filters, actions; in few words, or in full."""

    name = "describe_model"
    title = "Describe model"
    description = (
        "Before the first query or write on a model: its fields (* required, ro read-only), choices, filters, actions."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string", "description": "shop.order, or several by commas"},
            "detail": {"type": "boolean", "description": "Also lookups, help texts, schemas"},
        },
        "required": ["model"],
    }
    read_only = True
    meta = ALWAYS_LOAD

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the description, of several models as ``models``."""
        given = check_names(arguments, self.input_schema["properties"])
        detail = flag_argument(given.get("detail"), "detail")
        labels = _labels(given.get("model"))
        exposures = [_exposure(request, labels, number) for number in range(len(labels))]
        described = [
            describe_fully(request, exposure) if detail else overview(request, exposure) for exposure in exposures
        ]
        if detail or len(described) == 1:
            for payload, exposure in zip(described, exposures, strict=True):
                payload["examples"] = examples_of(request, exposure)
        if len(described) == 1:
            return ToolResult(structured=described[0])
        return ToolResult(structured=_bounded(described, request.mcp.result_chars))


def _exposure(request: MCPRequest, labels: Sequence[Any], number: int) -> Exposure:
    """Return the exposure of one of the labels; an error says which, in the same words whatever was written."""
    try:
        return exposure_argument(request, labels[number])
    except ToolError as error:
        which = f"Name {number + 1} of {len(labels)}: " if len(labels) > 1 else ""
        raise ToolError(f"{which}{error.message}", repair=error.repair) from None


def _labels(value: Any) -> list[Any]:
    value = json_or_text(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list):
        return [value]
    if not 0 < len(value) <= MAX_MODELS:
        raise ToolError(f"model names 1 to {MAX_MODELS} models.")
    return value


def _bounded(described: Sequence[Mapping[str, Any]], room: int) -> dict[str, Any]:
    """Return as many descriptions as a result of ``room`` characters holds."""
    used = 0
    kept: list[Mapping[str, Any]] = []
    for entry in described:
        used += len(orjson.dumps(entry, default=str))
        if kept and used > room:
            break
        kept.append(entry)
    payload: dict[str, Any] = {"returned": len(kept)}
    if len(kept) < len(described):
        payload["hint"] = "Ask for the others by themselves."
    payload["models"] = kept
    return payload
