"""The one gate: which exposure, field, lookup, order and row may a request touch.

What the caller may not see is not there: each function here gives the same answer for what is missing, hidden,
filtered out and forbidden. Names that clients send are looked up in allow-lists and never become ORM keywords.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.db.models import CompositePrimaryKey, F, Model
from django.db.models.expressions import OrderBy

from .context import MCPRequest
from .exceptions import NotFound
from .lookups import Path, declared_lookups, kind_of, resolve_path, stored_field
from .pagination import OrderKey
from .serializers import Column, is_json_field, read_fields, resolve_column

if TYPE_CHECKING:
    from .exposures import ModelExposure
    from .tools.actions import Action

__all__ = [
    "caller_actions",
    "client_order_key",
    "columns_of",
    "default_ordering",
    "find_filter",
    "get_exposure",
    "get_row",
    "has_every_row",
    "is_sensitive",
    "may_view",
    "page_fields",
    "parse_pk",
    "related_exposure",
    "visible_exposures",
    "visible_fields",
]

MAX_NAME: Final = 200
_SENSITIVE: Final = re.compile(
    r"(?:^|_)(?:pass(?:word|wd|phrase|code)|pwd|secrets?|tokens?|otp|totp|mfa|pin|cvv|cvc|iban|ssn|salt|hash|credentials?"
    r"|(?:api|private|secret|access|session|encryption|signing|auth|ssh|recovery)_?(?:key|code)s?)(?:_?hash)?(?:$|_)"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_sensitive(name: str) -> bool:
    """Return whether a field's name says that it holds a credential (``password``, ``api_key``, ``card_token``)."""
    return _SENSITIVE.search(_CAMEL.sub("_", name).lower()) is not None


# Models


def _remembered(request: MCPRequest) -> dict[Any, Any]:
    """Return what was decided for this request; another user on the same object starts anew."""
    kept = request.__dict__.get("_mcp_visibility")
    if kept is None or kept[0] is not request.user:
        kept = request.__dict__["_mcp_visibility"] = (request.user, {})
    found: dict[Any, Any] = kept[1]
    return found


def may_view(request: MCPRequest, exposure: "ModelExposure") -> bool:
    """Return whether the caller may view the model at all; decided once for each request."""
    kept = _remembered(request)
    if exposure not in kept:
        kept[exposure] = bool(exposure.has_view_permission(request))
    verdict: bool = kept[exposure]
    return verdict


def visible_exposures(request: MCPRequest) -> list["ModelExposure"]:
    """Return the exposures that the caller may view, in the order of their labels."""
    kept = _remembered(request)
    if "visible" not in kept:
        exposures = request.mcp.site.exposures_by_label.values()
        kept["visible"] = [exposure for exposure in exposures if may_view(request, exposure)]
    found: list[ModelExposure] = kept["visible"]
    return found


def caller_actions(request: MCPRequest, exposure: "ModelExposure") -> Mapping[str, "Action"]:
    """Return the actions of the exposure that the caller may run; asked once for each request."""
    kept = _remembered(request)
    key = (exposure, "actions")
    if key not in kept:
        kept[key] = exposure.get_actions(request)
    found: Mapping[str, Action] = kept[key]
    return found


def get_exposure(request: MCPRequest, label: Any) -> "ModelExposure":
    """Return the exposure of a label such as ``shop.order``, in any case.

    Raises:
        NotFound: there is none for this caller.
    """
    exposure = None
    if isinstance(label, str) and len(label) <= MAX_NAME:
        exposure = request.mcp.site.exposures_by_label.get(label.lower())
    if exposure is None or not may_view(request, exposure):
        raise NotFound
    return exposure


def related_exposure(request: MCPRequest, field: Any) -> "ModelExposure | None":
    """Return the exposure of the model that a relation leads to, None where the caller may not view it."""
    model = field.related_model
    exposure = request.mcp.site.exposures.get(model) if model is not None else None
    return exposure if exposure is not None and may_view(request, exposure) else None


def has_every_row(exposure: "ModelExposure") -> bool:
    """Return whether all rows of the table are the caller's: nothing of the project's own narrows them.

    A queryset that is declared stable may still hold parameters of the caller, so a declaration is no proof.
    """
    return exposure.stable_queryset is None and exposure.has_stable_queryset


# Fields


def visible_fields(request: MCPRequest, exposure: "ModelExposure", obj: Model | None = None) -> tuple[str, ...]:
    """Return the names that the caller may read, the primary key's first."""
    kept = _remembered(request)
    key = (exposure, "fields")
    if obj is None and key in kept:
        names: tuple[str, ...] = kept[key]
        return names
    found = tuple(name for name in _named(request, exposure, obj) if _is_there(request, exposure, name))
    if obj is None:
        kept[key] = found
    return found


def _named(request: MCPRequest, exposure: "ModelExposure", obj: Model | None) -> Iterable[str]:
    declared = exposure.get_fields(request, obj)
    if exposure.serializer_class is None:
        return declared
    shown = read_fields(exposure)
    if exposure.fields is not None and exposure.fields != "__all__":
        shown = tuple(name for name in shown if name in declared)
    return exposure.with_primary_key(name for name in shown if name not in exposure.exclude)


def _is_there(request: MCPRequest, exposure: "ModelExposure", name: str) -> bool:
    column = resolve_column(exposure, name)
    if column is None:
        return False
    if column.kind == "many":
        return related_exposure(request, column.field) is not None
    field = column.field
    if column.kind == "computed" or field is None or field.model is exposure.model or field.primary_key:
        return True
    return _is_declared(exposure, name) or not _hidden_by_parent(request, exposure, field)


def _is_declared(exposure: "ModelExposure", name: str) -> bool:
    admin = getattr(exposure, "model_admin", None)
    own = exposure.fields is not None and exposure.fields != "__all__"
    declared = own or name in exposure.list_display or "__" in name
    return declared or (admin is not None and bool(admin.fields or admin.fieldsets or name in admin.list_display))


def _hidden_by_parent(request: MCPRequest, exposure: "ModelExposure", field: Any) -> bool:
    """Return whether the model that an inherited field belongs to is exposed without the field."""
    parent = request.mcp.site.exposures.get(field.model)
    return parent is not None and field.name not in parent.get_fields(request)


def page_fields(request: MCPRequest, exposure: "ModelExposure") -> tuple[str, ...]:
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


def columns_of(exposure: "ModelExposure", names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of names that :func:`visible_fields` gave."""
    return tuple(column for name in names if (column := resolve_column(exposure, name)) is not None)


def visible_name(request: MCPRequest, exposure: "ModelExposure", text: str) -> str | None:
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


# Filters


def filters_of(request: MCPRequest, exposure: "ModelExposure") -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Yield what the caller may filter on: the name, the column it leads to, and the lookups it takes."""
    declared = exposure.get_filter_fields(request)
    names: Iterable[str] = declared if declared is not None else _undeclared_filters(request, exposure)
    for name in names:
        found = _filter(request, exposure, name, declared)
        if found is not None:
            yield name, *found


def find_filter(request: MCPRequest, exposure: "ModelExposure", text: str) -> tuple[Path, tuple[str, ...]] | None:
    """Return the column and the lookups of a filter that the caller may use, None for any other name."""
    if len(text) > MAX_NAME:
        return None
    declared = exposure.get_filter_fields(request)
    text = visible_name(request, exposure, text) or text
    if declared is not None:
        return _filter(request, exposure, text, declared) if text in declared else None
    allowed = "__" not in text or text in _undeclared_filters(request, exposure)
    return _filter(request, exposure, text, None) if allowed else None


def _undeclared_filters(request: MCPRequest, exposure: "ModelExposure") -> list[str]:
    """Return every visible field, and the paths through relations that the admin's ``list_filter`` names."""
    names = list(visible_fields(request, exposure))
    admin = getattr(exposure, "model_admin", None)
    for item in admin.get_list_filter(request) if admin is not None else ():
        path = item[0] if isinstance(item, (list, tuple)) else item
        if isinstance(path, str) and "__" in path and _sees_path(request, exposure, path):
            names.append(path)
    return list(dict.fromkeys(names))


def _sees_path(request: MCPRequest, exposure: "ModelExposure", path: str) -> bool:
    """Return whether the caller could follow the path through the models by reading them one after the other."""
    *hops, last = path.split("__")
    seen: ModelExposure | None = exposure
    for name in hops:
        column = resolve_column(seen, name) if seen is not None and name in visible_fields(request, seen) else None
        if column is None or column.kind not in ("relation", "many"):
            return False
        seen = related_exposure(request, column.field)
    return seen is not None and visible_name(request, seen, last) is not None


def _filter(
    request: MCPRequest, exposure: "ModelExposure", name: str, declared: Mapping[str, Sequence[str]] | None
) -> tuple[Path, tuple[str, ...]] | None:
    root, _, rest = name.partition("__")
    column = resolve_column(exposure, root) if root in visible_fields(request, exposure) else None
    path = resolve_path(exposure.model, name)
    if column is None or path is None or not column.is_plain:
        return None
    # Through many-valued relations only the first hop is followed: see pages.condition_of.
    if path.many and (column.kind != "many" or (rest and _is_many(column.field.related_model, rest))):
        return None
    lookups = kind_of(path.field).lookups
    if declared is not None and isinstance(declared, Mapping):
        lookups = declared_lookups(path, declared[name])
    if not path.nullable:
        lookups = tuple(lookup for lookup in lookups if lookup != "isnull")
    return (path, lookups) if lookups else None


def _is_many(model: type[Model], text: str) -> bool:
    path = resolve_path(model, text)
    return path is None or path.many


# Order


def default_ordering(request: MCPRequest, exposure: "ModelExposure") -> tuple[OrderKey, ...]:
    """Return the exposure's own order as keys, made total by the primary key.

    An entry that is no column of one value (an expression, ``?``, an annotation) is left out.
    """
    keys = (_own_key(exposure.model, entry) for entry in exposure.get_ordering(request))
    return total_order(exposure, [key for key in keys if key is not None])


def _own_key(model: type[Model], entry: Any) -> OrderKey | None:
    descending = False
    if isinstance(entry, OrderBy):
        descending, entry = entry.descending, entry.expression
    if isinstance(entry, F):
        entry = getattr(entry, "name", None)
    return _named_key(model, entry, descending) if isinstance(entry, str) else None


@lru_cache(maxsize=4096)
def _named_key(model: type[Model], entry: str, descending: bool) -> OrderKey | None:
    if entry[:1] in "+-":
        descending, entry = entry[0] == "-", entry[1:]
    path = resolve_path(model, entry) if entry else None
    if path is None or path.many or not _is_sortable(path.field):
        return None
    return OrderKey(path.column, path.field, descending, path.nullable)


def _is_sortable(field: Any) -> bool:
    return isinstance(field, CompositePrimaryKey) or kind_of(field).sortable


def client_order_key(request: MCPRequest, exposure: "ModelExposure", text: str, *, descending: bool) -> OrderKey | None:
    """Return the key of a name that the caller may sort by, None for any other name.

    A column that the admin computes is sorted by its ``admin_order_field``.
    """
    name = visible_name(request, exposure, text) if len(text) <= MAX_NAME else None
    column = resolve_column(exposure, name) if name is not None else None
    if column is None:
        return None
    order = column.order_field if not column.is_plain else column.name
    key = _own_key(exposure.model, order) if order and order[:1] not in "+" else None
    if key is None:
        return None
    return OrderKey(key.path, key.field, key.descending is not descending, key.nullable)


def total_order(exposure: "ModelExposure", keys: Sequence[OrderKey]) -> tuple[OrderKey, ...]:
    """Return the keys with the primary key added, and nothing after it: no two rows are equal."""
    found: dict[str, OrderKey] = {}
    pk_fields = {field.attname: field for field in exposure.opts.pk_fields}
    for key in keys:
        parts = pk_fields.values() if isinstance(key.field, CompositePrimaryKey) else [key.field]
        for part in parts:
            path = part.attname if len(parts) > 1 else key.path
            found.setdefault(path, OrderKey(path, part, key.descending, key.nullable))
        if found.keys() >= pk_fields.keys():
            return tuple(found.values())
    descending = bool(keys) and keys[-1].descending
    for attname, field in pk_fields.items():
        found.setdefault(attname, OrderKey(attname, field, descending, False))
    return tuple(found.values())


# Rows


def parse_pk(exposure: "ModelExposure", raw: Any) -> Any:
    """Return the primary key that a client's text or number is, read strictly: one row has one spelling.

    Raises:
        NotFound: no row can have it.
    """
    fields: Sequence[Any] = exposure.opts.pk_fields
    if len(fields) == 1:
        return _strict(fields[0], raw)
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
    written = value.isoformat() if hasattr(value, "isoformat") else str(value)
    if written != text:
        raise NotFound
    return value


def get_row(request: MCPRequest, exposure: "ModelExposure", pk: Any) -> Model:
    """Return the row with the primary key, which is read by :func:`parse_pk`.

    Raises:
        NotFound: the caller may not know of such a row.
    """
    value = parse_pk(exposure, pk)
    found = list(exposure.get_queryset(request).filter(pk=value)[:1])
    if not found or not exposure.has_view_permission(request, found[0]):
        raise NotFound
    row: Model = found[0]
    return row
