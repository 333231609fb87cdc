"""A model in few words: what a language model needs to query and write its records, and no more."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Model
from django.forms import ModelChoiceField

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..exposures.actions import Action
from ..forms.filling import writable_names
from ..forms.html import first_choice
from ..orm.access import caller_actions, columns_of, page_rows, visible_fields
from ..orm.columns import Column
from ..orm.filters import filters_of, unsearched
from ..orm.lookups import Offer, named_filters_of
from ..orm.ways import computed_word, link_of, links_of
from ..runtime.hooks import asked
from ..schema.forms import form_schema
from ..schema.jsonable import clean_text
from ..scopes import WRITE
from ..writes.list_editing import listed_fields
from ..writes.naming import unread_fields
from .inline_words import inline_names
from .type_words import choice_words, type_words

MAX_LINE: Final = 120


def may_write(request: MCPRequest) -> bool:
    """Return whether the token, the site and its switches let the caller write anything."""
    off = request.mcp.off
    return WRITE in request.mcp.scopes and not settings.READ_ONLY and (off is None or off.writes is None)


def may_words(request: MCPRequest, exposure: Exposure) -> str:
    """Return what the caller may do with the model: "view", with "add change delete" as far as they go."""
    words = ["view"]
    if may_write(request):
        verdicts = {
            "add": exposure.has_add_permission,
            "change": exposure.has_change_permission,
            "delete": exposure.has_delete_permission,
        }
        words += [
            word
            for word, verdict in verdicts.items()
            if asked(exposure.label, verdict.__name__, verdict, request, default=False)
        ]
    return " ".join(words)


@dataclass(frozen=True, slots=True)
class Writing:
    """A form that the caller may fill: the unbound form of a page, and those of its fields that they may set."""

    form: Any
    names: Sequence[str]

    def schema(self, among: Collection[str] | None = None) -> dict[str, Any]:
        """Return the JSON Schema of the fields that may be set, or of those among them."""
        shown = set(self.names) if among is None else {*self.names} & {*among}
        return form_schema(self.form, exclude=self.form.fields.keys() - shown) if shown else {}


@dataclass(frozen=True, slots=True)
class Use:
    """How a field is written: ``only`` is "create only" or "update only" where one of the two pages lacks it."""

    required: bool
    only: str = ""


def writing_forms(request: MCPRequest, exposure: Exposure) -> tuple[Writing | None, Writing | None]:
    """Return the forms by which the caller may add and change rows, None for each that is not theirs."""
    if not may_write(request):
        return None, None
    verdicts = exposure.has_add_permission, exposure.has_change_permission
    may_add, may_change = (
        asked(exposure.label, verdict.__name__, verdict, request, default=False) for verdict in verdicts
    )
    add = asked(exposure.label, "The add page", _writing, request, exposure, None, default=None) if may_add else None
    return add, _change_form(request, exposure, add.names if add is not None else ()) if may_change else None


def _change_form(request: MCPRequest, exposure: Exposure, added: Collection[str]) -> Writing | None:
    """Return the form of the change page of an empty row, or of one of the caller's where that lets them set more.

    Those are tried where the empty row's lets them set nothing, or not all that they set in a new one (``added``).
    """
    best: Writing | None = None
    for number, row in enumerate(page_rows(request, exposure)):
        owner = exposure.label if number else ""
        found = asked(owner, "The change page", _writing, request, exposure, row, default=None)
        if found is not None and (best is None or len(found.names) > len(best.names)):
            best = found
        if best is not None and (not exposure.has_own_pages or (best.names and {*added} <= {*best.names})):
            break
    return best


def _writing(request: MCPRequest, exposure: Exposure, row: Model | None) -> Writing:
    # The admin's form of a row that the caller may not change has no fields, and there may be rows that they may.
    change = row is not None and exposure.has_change_permission(request, row)
    form: Any = exposure.get_form(request, row, change=change)(instance=row)
    if row is not None:
        # New rows get these in the list, once they are there.
        for name, field in listed_fields(request, exposure, row, form).items():
            form.fields[name] = copy(field)
            form.fields[name].required = False
    for field in form.fields.values():
        if isinstance(field, ModelChoiceField):
            # Rows are named by their primary key, whatever the column stores.
            field.to_field_name = None
    known = {*visible_fields(request, exposure, row), *unread_fields(request, exposure, row)}
    return Writing(form, writable_names(form, known))


def writable_fields(request: MCPRequest, exposure: Exposure) -> Mapping[str, Use]:
    """Return how each field that the caller may set is written."""
    add, change = writing_forms(request, exposure)
    if add is None or change is None:
        return {name: Use(_is_required(form.form, name)) for form in (add, change) if form for name in form.names}
    found = {name: Use(_is_required(add.form, name), _only(name, change, "create only")) for name in add.names}
    return {name: Use(False, _only(name, add, "update only")) for name in change.names} | found


def _only(name: str, other: Writing, word: str) -> str:
    return "" if name in other.names else word


def _is_required(form: Any, name: str) -> bool:
    """Return whether a new row needs the field: what the page shows filled in stays as it is."""
    field = form.fields[name]
    if not field.required or form.get_initial_for_field(field, name) not in field.empty_values:
        return False
    # A browser posts the first option of a select that has no blank one.
    looks_up = isinstance(field, ModelChoiceField)
    return looks_up or not any(value for _, value in first_choice(field.widget, name))


def overview(request: MCPRequest, exposure: Exposure) -> dict[str, Any]:
    """Return the model in few words: text unless a type is given, ``*`` is required, ``ro`` cannot be written.

    The type of a relation is the label of the model that it leads to; who may add, change and delete may ``write``.
    """
    may = may_words(request, exposure).replace("view add change delete", "write")
    may += " search" if exposure.get_search_fields(request) else ""
    may += f", no search in {' '.join(left)}" if (left := unsearched(request, exposure)) else ""
    payload: dict[str, Any] = {"model": exposure.label, "may": may}
    if exposure.description:
        payload["description"] = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
    columns = columns_of(exposure, visible_fields(request, exposure))
    writable = writable_fields(request, exposure)
    payload["fields"] = ", ".join(_field(request, exposure, column, writable) for column in columns)
    own_names = {column.name for column in columns}
    if extra := [_named_use(name, use) for name, use in writable.items() if name not in own_names]:
        payload["write_only"] = ", ".join(extra)
    if inlines := inline_names(request, exposure):
        payload["inlines"] = inlines
    if related := related_words(request, exposure):
        payload["related"] = ", ".join(related)
    if filters := _filters(request, exposure, columns):
        payload["filters"] = ", ".join(filters)
    if may_write(request) and (actions := caller_actions(request, exposure)):
        payload["actions"] = ", ".join(_call(name, action) for name, action in actions.items())
    return payload


def related_words(request: MCPRequest, exposure: Exposure) -> list[str]:
    """Return the relations by which other rows point here, and which filters and aggregates may follow.

    They stand beside the columns; each has its name and the label of the model that it leads to.
    """
    if exposure.get_filter_fields(request) is not None:
        return []
    shown = set(visible_fields(request, exposure))
    singles = (rel.get_accessor_name() for rel in exposure.opts.related_objects if rel.one_to_one)
    links = [*links_of(request, exposure), *(link_of(request, exposure, name) for name in singles if name)]
    return [f"{link.name} {link.exposure.label}" for link in links if link is not None and link.name not in shown]


def _named_use(name: str, use: Use) -> str:
    return f"{name}{'*' * use.required} {use.only}".strip()


def _field(request: MCPRequest, exposure: Exposure, column: Column, writable: Mapping[str, Use]) -> str:
    use = writable.get(column.name)
    words = [column.name + "*" * (use is not None and use.required), *type_words(request, column)]
    if column.kind == "computed" and (word := computed_word(request, exposure, column.name)):
        # Those without a type are shown alone.
        words.append(word)
    if column.name == exposure.opts.pk.name:
        return words[0] if words[1:] == ["integer"] else " ".join(words)
    if use is not None:
        words += [use.only] if use.only else []
    elif writable and column.kind != "computed":
        words.append("ro")
    return " ".join(words)


def _filters(request: MCPRequest, exposure: Exposure, columns: Iterable[Column]) -> list[str]:
    """Return the filters that are not simply the fields, and those that the project wrote."""
    own = {column.path for column in columns}
    narrowed = exposure.get_filter_fields(request) is not None
    found = [name for name, path, _ in filters_of(request, exposure) if narrowed or path.column not in own]
    return found + [_named(offer) for offer in named_filters_of(request, exposure, told=True)]


def _named(offer: Offer) -> str:
    return f"{offer.name} {choice_words(offer.choices)}" if offer.choices else offer.name


def _call(name: str, action: Action) -> str:
    schema = action.schema
    required = schema.get("required", ())
    arguments = [argument + ("*" if argument in required else "") for argument in schema.get("properties", {})]
    call = f"{name}({', '.join(arguments)})" if arguments else name
    return f"{call} asks for {' and '.join(action.asks_for)}" if action.asks_for else call
