"""What a caller may filter on: names that are looked up in allow-lists and lead to columns and lookups."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import ForeignObjectRel, Model

from ..context.request import Exposure, MCPRequest
from .access import MAX_NAME, is_sensitive, related_exposure, visible_fields, visible_name
from .columns import resolve_column
from .kinds import is_joinable
from .lookups import Path, declared_lookups, resolve_path, usual_lookups
from .narrowing import leads_to_hidden_model, leads_to_hidden_rows

__all__ = ["filters_of", "find_filter", "is_offered_path", "is_searched"]


def filters_of(request: MCPRequest, exposure: Exposure) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Yield what the caller may filter on: the name, the column it leads to, and the lookups it takes."""
    declared = exposure.get_filter_fields(request)
    names: Iterable[str] = declared if declared is not None else _undeclared_filters(request, exposure)
    for name in names:
        found = _filter(request, exposure, name, declared)
        if found is not None:
            yield name, *found


def find_filter(request: MCPRequest, exposure: Exposure, text: str) -> tuple[Path, tuple[str, ...]] | None:
    """Return the column and the lookups of a filter that the caller may use, None for any other name."""
    if len(text) > MAX_NAME:
        return None
    declared = exposure.get_filter_fields(request)
    text = visible_name(request, exposure, text) or text
    if declared is not None:
        return _filter(request, exposure, text, declared) if text in declared else None
    allowed = text in visible_fields(request, exposure) or _is_of_admin(request, exposure, text)
    return _filter(request, exposure, text, None) if allowed else None


def is_offered_path(request: MCPRequest, exposure: Exposure, path: str) -> bool:
    """Return whether code of the project may filter by the path for the caller: no row on the way is hidden."""
    if path not in visible_fields(request, exposure) and not _is_of_admin(request, exposure, path):
        return False
    found = resolve_path(exposure.model, path)
    return found is not None and not leads_to_hidden_rows(request, exposure.model, found.column)


def is_searched(request: MCPRequest, exposure: Exposure, text: str) -> bool:
    """Return whether the admin's search may look into the path: the caller could read each field on it.

    Of a model that is not exposed, and that nothing forbids to show, what the admin declares stands.
    """
    seen = exposure
    for name in text.lstrip("^=@").split("__"):
        field = seen.opts.pk if name == "pk" else seen.fields_by_name.get(name)
        if field is None:
            # An annotation of the project's own, or a lookup after the column.
            return True
        if not isinstance(field, ForeignObjectRel) and visible_name(request, seen, name) is None:
            return False
        if field.is_relation and not is_joinable(field):
            return False
        model = field.related_model if field.is_relation else None
        if model is None or model not in request.mcp.site.exposures:
            return model is None or request.mcp.site.may_show(model)
        related = related_exposure(request, field)
        if related is None:
            return False
        seen = related
    return True


def _undeclared_filters(request: MCPRequest, exposure: Exposure) -> list[str]:
    """Return every visible field, and what else the admin's ``list_filter`` and ``date_hierarchy`` name."""
    named = (path for path in _admin_paths(request, exposure) if _is_of_admin(request, exposure, path))
    return list(dict.fromkeys([*visible_fields(request, exposure), *named]))


def _is_of_admin(request: MCPRequest, exposure: Exposure, path: str) -> bool:
    """Return whether the admin offers to filter by the path, and the caller may."""
    if path not in _admin_paths(request, exposure):
        return False
    root, _, rest = path.partition("__")
    if not rest:
        return _is_shown_by_admin(request, exposure, path)
    column = resolve_column(exposure, root)
    if column is None or root in visible_fields(request, exposure) or not _is_shown_by_admin(request, exposure, root):
        return _sees_path(request, exposure, path)
    related = related_exposure(request, column.field)
    return related is not None and _sees_path(request, related, rest)


def _admin_paths(request: MCPRequest, exposure: Exposure) -> Iterator[str]:
    """Yield the fields and paths that the admin offers to filter by."""
    for item in exposure.get_list_filter(request):
        path = item[0] if isinstance(item, (list, tuple)) else item
        if isinstance(path, str):
            yield path


def _is_shown_by_admin(request: MCPRequest, exposure: Exposure, name: str) -> bool:
    """Return whether a field that is no column may be filtered on because the admin's sidebar does so.

    An exposure that names its own fields has said what may be known of a row.
    """
    if exposure.fields is not None or name in exposure.exclude or is_sensitive(name, exposure.model):
        return False
    column = resolve_column(exposure, name)
    if column is None or not column.is_plain or column.field.model is not exposure.model:
        return False
    return column.kind != "many" or related_exposure(request, column.field) is not None


def _sees_path(request: MCPRequest, exposure: Exposure, path: str) -> bool:
    """Return whether the caller could follow the path through the models by reading them one after the other."""
    *hops, last = path.split("__")
    seen: Exposure | None = exposure
    for name in hops:
        if seen is None:
            return False
        relation = _relation(request, seen, name)
        seen = related_exposure(request, relation) if relation is not None else None
    return seen is not None and visible_name(request, seen, last) is not None


def _relation(request: MCPRequest, exposure: Exposure, name: str) -> Any:
    """Return the relation that a filter may follow: one that the caller reads, or one from elsewhere to this model."""
    try:
        field = exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return None
    if isinstance(field, ForeignObjectRel):
        return field if related_exposure(request, field) is not None else None
    column = resolve_column(exposure, name) if name in visible_fields(request, exposure) else None
    return field if column is not None and column.kind in ("relation", "many") else None


def _filter(
    request: MCPRequest, exposure: Exposure, name: str, declared: Mapping[str, Sequence[str]] | None
) -> tuple[Path, tuple[str, ...]] | None:
    root, _, rest = name.partition("__")
    path = resolve_path(exposure.model, name)
    if path is None or not _is_open(request, exposure, root, rest, declared):
        return None
    # Through many-valued relations only the first hop is followed: see narrowing.
    field: Any = exposure.opts.pk if root == "pk" else exposure.opts.get_field(root)
    leads_to_many = bool(field.many_to_many or field.one_to_many)
    if path.many and (not leads_to_many or (rest and _is_many(field.related_model, rest))):
        return None
    if path.field.many_to_many and not is_joinable(path.field):
        return None
    if rest and leads_to_hidden_rows(request, exposure.model, path.column):
        if leads_to_hidden_model(request, exposure.model, path.column):
            return None
        path = replace(path, guarded=True)
    lookups = usual_lookups(path.field)
    if declared is not None and isinstance(declared, Mapping):
        lookups = declared_lookups(path, declared[name])
    if not path.nullable:
        lookups = tuple(lookup for lookup in lookups if lookup != "isnull")
    return (path, lookups) if lookups else None


def _is_open(
    request: MCPRequest,
    exposure: Exposure,
    name: str,
    rest: str,
    declared: Mapping[str, Sequence[str]] | None,
) -> bool:
    """Return whether a filter may use the field: the caller reads it as it is, or the admin's sidebar has it.

    A relation from elsewhere is no column, so that a path which begins with it is open by its declaration.
    """
    if name in visible_fields(request, exposure):
        column = resolve_column(exposure, name)
        return column is not None and column.is_plain
    if rest and isinstance(_relation(request, exposure, name), ForeignObjectRel):
        return True
    return declared is None and _is_of_admin(request, exposure, f"{name}__{rest}" if rest else name)


def _is_many(model: type[Model], text: str) -> bool:
    path = resolve_path(model, text)
    return path is None or path.many
