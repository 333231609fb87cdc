"""A model in few words: what a language model needs to query and write its records, and no more."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..conf import settings
from ..context import MCPRequest
from ..filtering import filters_of
from ..namedfilters import Offer, named_filters_of
from ..serializers import Column, clean_text
from ..visibility import caller_actions, columns_of, visible_fields
from .base import WRITE
from .forms import writable_names
from .inlinewords import inline_names
from .typewords import choice_words, type_words

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["may_words", "may_write", "overview", "writable_fields", "writing_form"]

MAX_LINE: Final = 120


def may_write(request: MCPRequest) -> bool:
    """Return whether the token and the site let the caller write anything."""
    return WRITE in request.mcp.scopes and not settings.READ_ONLY


def may_words(request: MCPRequest, exposure: "ModelExposure") -> str:
    """Return what the caller may do with the model: "view", with "add change delete" as far as they go."""
    words = ["view"]
    if may_write(request):
        verdicts = {
            "add": exposure.has_add_permission,
            "change": exposure.has_change_permission,
            "delete": exposure.has_delete_permission,
        }
        words += [word for word, verdict in verdicts.items() if verdict(request)]
    return " ".join(words)


def writing_form(request: MCPRequest, exposure: "ModelExposure") -> tuple[Any, list[str]]:
    """Return the form that the caller may fill, None if there is none, and those of its fields that they may set."""
    may_add = may_write(request) and exposure.has_add_permission(request)
    if not may_add and not (may_write(request) and exposure.has_change_permission(request)):
        return None, []
    form: Any = exposure.get_form(request, None, change=not may_add)()
    known = {*visible_fields(request, exposure), *exposure.get_form_only_fields(request)}
    return form, writable_names(form, known)


def writable_fields(request: MCPRequest, exposure: "ModelExposure") -> Mapping[str, bool]:
    """Return the fields that the caller may set, and whether each is required."""
    form, names = writing_form(request, exposure)
    return {name: _is_required(form, name) for name in names}


def _is_required(form: Any, name: str) -> bool:
    """Return whether a new row needs the field: what the page shows filled in stays as it is."""
    field = form.fields[name]
    return bool(field.required) and form.get_initial_for_field(field, name) in field.empty_values


def overview(request: MCPRequest, exposure: "ModelExposure") -> dict[str, Any]:
    """Return the model in few words: text unless a type is given, ``*`` is required, ``ro`` cannot be written.

    The type of a relation is the label of the model that it leads to; who may add, change and delete may ``write``.
    """
    may = may_words(request, exposure).replace("view add change delete", "write")
    may += " search" if exposure.get_search_fields(request) else ""
    payload: dict[str, Any] = {"model": exposure.label, "may": may}
    if exposure.description:
        payload["description"] = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
    columns = columns_of(exposure, visible_fields(request, exposure))
    writable = writable_fields(request, exposure)
    payload["fields"] = ", ".join(_field(request, exposure, column, writable) for column in columns)
    own_names = {column.name for column in columns}
    if extra := [name + "*" * required for name, required in writable.items() if name not in own_names]:
        payload["write_only"] = ", ".join(extra)
    if inlines := inline_names(request, exposure):
        payload["inlines"] = inlines
    if filters := _filters(request, exposure, columns):
        payload["filters"] = ", ".join(filters)
    if may_write(request) and (actions := caller_actions(request, exposure)):
        payload["actions"] = ", ".join(_call(name, action.schema) for name, action in actions.items())
    return payload


def _field(request: MCPRequest, exposure: "ModelExposure", column: Column, writable: Mapping[str, bool]) -> str:
    required = "*" if writable.get(column.name) else ""
    words = [column.name + required, *type_words(request, column)]
    if column.name == exposure.opts.pk.name:
        return words[0] if words[1:] == ["integer"] else " ".join(words)
    if writable and column.name not in writable and column.kind != "computed":
        words.append("ro")
    return " ".join(words)


def _filters(request: MCPRequest, exposure: "ModelExposure", columns: Iterable[Column]) -> list[str]:
    """Return the filters that are not simply the fields, and those that the project wrote."""
    own = {column.path for column in columns}
    narrowed = exposure.get_filter_fields(request) is not None
    found = [name for name, path, _ in filters_of(request, exposure) if narrowed or path.column not in own]
    return found + [_named(offer) for offer in named_filters_of(request, exposure)]


def _named(offer: Offer) -> str:
    return f"{offer.name} {choice_words(offer.choices)}" if offer.choices else offer.name


def _call(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    arguments = [argument + ("*" if argument in required else "") for argument in schema.get("properties", {})]
    return f"{name}({', '.join(arguments)})" if arguments else name
