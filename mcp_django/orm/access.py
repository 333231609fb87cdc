"""The one gate: which exposure, field and row may a request touch (filters and order: ``filtering``, ``ordering``).

What the caller may not see is not there: each function here gives the same answer for what is missing, hidden,
filtered out and forbidden. Names that clients send are looked up in allow-lists and never become ORM keywords.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import orjson
from django.db.models import Model, QuerySet

from ..context.places import at_page
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..runtime.hooks import asked, note_failure
from .columns import Column, is_json_field, plain_key, read_fields, resolve_column
from .instances import row_by_key
from .kinds import kind_of, stored_field
from .managers import leaves_out_nothing
from .rendering import iso_text
from .unreadable import all_readable

T = TypeVar("T")
D = TypeVar("D")
MAX_NAME: Final = 200
# Rows that stand for all, where a hook takes one.
MAX_SAMPLE: Final = 3


# Models


def _remembered(request: MCPRequest) -> dict[Any, Any]:
    """Return what was decided for this request; another user on the same object starts anew."""
    kept = request.__dict__.get("_mcp_visibility")
    if kept is None or kept[0] is not request.user:
        kept = request.__dict__["_mcp_visibility"] = (request.user, {})
    found: dict[Any, Any] = kept[1]
    return found


def on_list(
    request: MCPRequest, exposure: Exposure, hook: str, ask: Callable[..., T], *arguments: Any, default: D
) -> T | D:
    """Return what the hook, one of permissions, gives for a request on the admin's list; ``default`` if it fails."""
    if not exposure.permits_by_place:
        try:
            return ask(request, *arguments)
        except Exception as error:
            note_failure(exposure.label, hook, error)
            return default
    with at_page(request, exposure, "changelist"):
        return asked(exposure.label, hook, ask, request, *arguments, default=default)


def may_view(request: MCPRequest, exposure: Exposure) -> bool:
    """Return whether the caller may view the model at all; decided once for each request.

    A model that is switched off is not there.
    """
    off = request.mcp.off
    if off is not None and off.model(exposure.label) is not None:
        return False
    return permits_view(request, exposure)


def permits_view(request: MCPRequest, exposure: Exposure) -> bool:
    """Return whether permissions let the caller view the model, be it switched off or not."""
    kept = _remembered(request)
    if exposure not in kept:
        verdict = on_list(request, exposure, "has_view_permission", exposure.has_view_permission, default=False)
        kept[exposure] = bool(verdict)
    may: bool = kept[exposure]
    return may


def sees_any(request: MCPRequest) -> bool:
    """Return whether the caller may view any model."""
    kept = _remembered(request)
    if "any" not in kept:
        exposures = request.mcp.site.exposures_by_label.values()
        kept["any"] = any(may_view(request, exposure) for exposure in exposures)
    found: bool = kept["any"]
    return found


def visible_exposures(request: MCPRequest) -> list[Exposure]:
    """Return the exposures that the caller may view, in the site's order."""
    kept = _remembered(request)
    if "visible" not in kept:
        exposures = request.mcp.site.exposures_by_label.values()
        kept["visible"] = [exposure for exposure in exposures if may_view(request, exposure)]
    found: list[Exposure] = kept["visible"]
    return found


def permits_any(request: MCPRequest, hook: str, ask: Callable[..., Any]) -> bool:
    """Return whether the hook, one of permissions, allows something with any model that the caller may view."""
    for exposure in visible_exposures(request):
        if on_list(request, exposure, hook, ask, exposure, default=False):
            return True
    return False


def refusal(request: MCPRequest) -> str:
    """Return why the caller sees no model at all, where that is not for their permissions; "" otherwise."""
    if visible_exposures(request):
        return ""
    exposures = request.mcp.site.exposures_by_label.values()
    return next((text for exposure in exposures if (text := exposure.get_refusal(request))), "")


def caller_actions(request: MCPRequest, exposure: Exposure) -> Mapping[str, Any]:
    """Return the actions of the exposure that the caller may run; those that are switched off are not there."""
    found, off = permitted_actions(request, exposure), request.mcp.off
    if off is None:
        return found
    return {name: action for name, action in found.items() if off.action(exposure.label, name) is None}


def permitted_actions(request: MCPRequest, exposure: Exposure) -> Mapping[str, Any]:
    """Return the actions that permissions let the caller run, switched off or not; asked once for each request."""
    kept = _remembered(request)
    key = (exposure, "actions")
    if key not in kept:
        kept[key] = on_list(request, exposure, "get_actions", exposure.get_actions, default={})
    found: Mapping[str, Any] = kept[key]
    return found


def get_exposure(request: MCPRequest, label: Any) -> Exposure:
    """Return the exposure of a label such as ``shop.order``, in any case.

    Raises:
        NotFound: there is none for this caller.
        CallRefused: it is switched off.
    """
    exposure = None
    if isinstance(label, str) and len(label) <= MAX_NAME:
        exposure = request.mcp.site.exposures_by_label.get(label.lower())
    if exposure is None or not permits_view(request, exposure):
        raise NotFound
    if request.mcp.off is not None:
        refuse_switched(request, exposure)
    return exposure


def refuse_switched(request: MCPRequest, exposure: Exposure, action: str = "") -> None:
    """Look whether the model, or an action of it, is switched off; the caller may know of both.

    Raises:
        CallRefused: it is.
    """
    off = request.mcp.off
    if off is None:
        return
    found = off.model(exposure.label) or (off.action(exposure.label, action) if action else None)
    if found is not None:
        raise found.refusal()


def related_exposure(request: MCPRequest, field: Any) -> Exposure | None:
    """Return the exposure of the model that a relation leads to, None where the caller may not view it."""
    return related_to(request, field.related_model)


def related_to(request: MCPRequest, model: type[Model] | None) -> Exposure | None:
    """Return the exposure of the model, None where the caller may not view it."""
    exposure = request.mcp.site.exposures.get(model) if model is not None else None
    return exposure if exposure is not None and may_view(request, exposure) else None


def has_every_row(exposure: Exposure) -> bool:
    """Return whether all rows of the table are the caller's: nothing of the project's own narrows them.

    A queryset that is declared stable may still hold parameters of the caller, so a declaration is no proof.
    """
    return exposure.stable_queryset is None and exposure.has_stable_queryset


def sees_every_row(request: MCPRequest, exposure: Exposure) -> bool:
    """Return whether this caller's rows are all of the table, by what ``get_queryset`` gives for this request."""
    kept = _remembered(request)
    key = (exposure, "every row")
    if key not in kept:
        kept[key] = has_every_row(exposure) or asked(
            exposure.label, "get_queryset", lambda: leaves_out_nothing(exposure.get_queryset(request)), default=False
        )
    verdict: bool = kept[key]
    return verdict


# Fields


def visible_fields(request: MCPRequest, exposure: Exposure, obj: Model | None = None) -> tuple[str, ...]:
    """Return the names that the caller may read, the primary key's first."""
    kept = _remembered(request)
    key = (exposure, "fields")
    if obj is None and key in kept:
        names: tuple[str, ...] = kept[key]
        return names
    found = visible_among(request, exposure, _named(request, exposure, obj))
    if obj is None:
        kept[key] = found
    return found


def visible_among(request: MCPRequest, exposure: Exposure, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are columns here, and that no other exposure hides from the caller."""
    names = tuple(names)
    if _are_its_own(exposure, names):
        return names
    return tuple(name for name in names if _is_there(request, exposure, name))


@lru_cache(maxsize=1024)
def _are_its_own(exposure: Exposure, names: tuple[str, ...]) -> bool:
    """Return whether the names are columns of the exposure's own table alone, which no other exposure hides."""
    columns = columns_of(exposure, names)
    own = (column.kind in ("field", "relation") and column.field.model is exposure.model for column in columns)
    return len(columns) == len(names) and all(own)


def _named(request: MCPRequest, exposure: Exposure, obj: Model | None) -> Iterable[str]:
    only_key = exposure.with_primary_key(())
    declared = asked(exposure.label, "get_fields", exposure.get_fields, request, obj, default=only_key)
    if exposure.serializer_class is None:
        return declared
    shown = read_fields(exposure)
    if exposure.fields is not None and exposure.fields != "__all__":
        shown = tuple(name for name in shown if name in declared)
    return exposure.with_primary_key(name for name in shown if name not in exposure.exclude)


def _is_there(request: MCPRequest, exposure: Exposure, name: str) -> bool:
    column = resolve_column(exposure, name)
    if column is None:
        return False
    if column.kind in ("many", "reverse"):
        return related_exposure(request, column.field) is not None
    field = column.field
    if column.kind == "computed" and field is not None:
        related = related_exposure(request, field)
        return related is not None and has_every_row(related)
    if column.kind == "computed" or field is None or field.model is exposure.model or field.primary_key:
        return True
    return exposure.declares_field(name) or not _hidden_by_parent(request, exposure, field)


def _hidden_by_parent(request: MCPRequest, exposure: Exposure, field: Any) -> bool:
    """Return whether the model that an inherited field belongs to is exposed without the field."""
    parent = request.mcp.site.exposures.get(field.model)
    if parent is None:
        return False
    return field.name not in asked(parent.label, "get_fields", parent.get_fields, request, default=())


def page_fields(request: MCPRequest, exposure: Exposure) -> tuple[str, ...]:
    """Return the names of the columns of a page when the caller chooses none."""
    kept = _remembered(request)
    key = (exposure, "page")
    if key not in kept:
        visible = visible_fields(request, exposure)
        if exposure.serializer_class is not None and not exposure.list_display:
            kept[key] = visible
        else:
            shown = set(exposure.get_list_display(request))
            kept[key] = tuple(name for name in visible if name in shown)
    names: tuple[str, ...] = kept[key]
    return names


def columns_of(exposure: Exposure, names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of names that :func:`visible_fields` gave."""
    return _columns_of(exposure, tuple(names))


@lru_cache(maxsize=2048)
def _columns_of(exposure: Exposure, names: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(column for name in names if (column := resolve_column(exposure, name)) is not None)


def visible_name(request: MCPRequest, exposure: Exposure, text: str) -> str | None:
    """Return the visible field that a client's name means: itself, ``pk``, or a column such as ``customer_id``."""
    visible = visible_fields(request, exposure)
    if text in visible:
        return text
    if text == "pk":
        return visible[0]
    for name in visible:
        column = resolve_column(exposure, name)
        if column is not None and column.kind == "relation" and column.field.attname == text:
            return name
    return None


# Rows


def page_rows(request: MCPRequest, exposure: Exposure) -> Iterator[Model]:
    """Yield rows for hooks that take one where the caller names none: an empty one, then some that the caller may view.

    The admin never asks such a hook without a row, but for its add page.
    """
    kept = _remembered(request)
    key = (exposure, "rows")
    empty = asked("", "__init__", exposure.model, default=None)
    if empty is not None:
        yield empty
    if key not in kept:
        none: list[Model] = []
        kept[key] = asked(exposure.label, "get_queryset", _first_rows, request, exposure, default=none)
    yield from kept[key]


def _first_rows(request: MCPRequest, exposure: Exposure) -> list[Model]:
    rows = exposure.get_queryset(request).order_by("pk")[:MAX_SAMPLE]
    return [row for row in rows if exposure.has_view_permission(request, row)]


def parse_pk(exposure: Exposure, raw: Any) -> Any:
    """Return the primary key that a client's text or number is, read strictly: one row has one spelling.

    Raises:
        NotFound: no row can have it.
    """
    fields: Sequence[Any] = exposure.opts.pk_fields
    if len(fields) == 1:
        return _strict(fields[0], plain_key(raw) if fields[0].is_relation else raw)
    if isinstance(raw, str) and len(raw) <= 1000:
        try:
            raw = orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise NotFound from None
    if not isinstance(raw, list) or len(raw) != len(fields):
        raise NotFound
    return tuple(_strict(field, part) for field, part in zip(fields, raw, strict=True))


def _strict(field: Any, raw: Any) -> Any:
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 2**64 else raw
    stored = stored_field(field)
    if not isinstance(text, str) or is_json_field(stored):
        raise NotFound
    try:
        value = kind_of(field).parse(stored, text)
    except ValueError:
        raise NotFound from None
    written = iso_text(value) if hasattr(value, "isoformat") else str(value)
    if written != text:
        raise NotFound
    return value


def get_row(request: MCPRequest, exposure: Exposure, pk: Any) -> Model:
    """Return the row with the primary key, which is read by :func:`parse_pk`.

    Raises:
        NotFound: the caller may not know of such a row.
        Unreadable: it holds a value that cannot be read.
    """
    rows, key = exposure.get_queryset(request), parse_pk(exposure, pk)
    with all_readable():
        found = _row_by_key(rows, key)
    if not found or not exposure.has_view_permission(request, found[0]):
        raise NotFound
    return found[0]


def _row_by_key(rows: QuerySet[Any], key: Any) -> list[Model]:
    try:
        found = row_by_key(rows, key)
    except ToolError:
        return []
    return list(rows.filter(pk=key)[:1]) if found is None else found
