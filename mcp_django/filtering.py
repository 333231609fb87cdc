"""What a caller may filter on: names that are looked up in allow-lists and lead to columns and lookups."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from django.db.models import Model

from .context import MCPRequest
from .kinds import kind_of
from .lookups import Path, declared_lookups, resolve_path
from .serializers import resolve_column
from .visibility import MAX_NAME, related_exposure, visible_fields, visible_name

if TYPE_CHECKING:
    from .exposures import ModelExposure

__all__ = ["filters_of", "find_filter"]


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
