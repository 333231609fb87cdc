"""What a caller may filter by and search in, without revealing hidden rows.

Names are looked up in allow-lists and lead to columns and lookups. What a hidden row holds must not be told by which
rows are found, so that a path leads no further than the caller could follow it by reading.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Case, F, ForeignObjectRel, Q, QuerySet, When

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from ..schema.values import is_sensitive
from .access import MAX_NAME, ModelAccess, access_of
from .columns import Column, resolve_column
from .conditions import COMPARISONS, check_patterns, is_part_of, keys_of
from .kinds import FieldPath, is_file_field, is_joinable, kind_of, resolve_path
from .lookups import declared_lookups, usual_lookups
from .path import Path, computed_target, guards_on, leads_to_hidden_rows

# What a column that the admin computes is compared by.
COMPUTED: Final = (*COMPARISONS, "in", "range", "isnull")


def filters_of(model: ModelAccess) -> Iterator[tuple[str, FieldPath, tuple[str, ...]]]:
    """Yield what the caller may filter on: the name, the column it leads to, and the lookups it takes."""
    declared = model.exposure.get_filter_fields(model.request)
    names: Iterable[str] = declared or ()
    if declared is None:
        names = dict.fromkeys([*model.fields, *(path for path in _admin_paths(model) if _is_of_admin(model, path))])
    for name in names:
        found = _filter(model, name, declared)
        if found is not None:
            yield name, *found


def find_filter(model: ModelAccess, text: str) -> tuple[FieldPath, tuple[str, ...]] | None:
    """Return the column and the lookups of a filter that the caller may use, None for any other name."""
    if len(text) > MAX_NAME:
        return None
    declared = model.exposure.get_filter_fields(model.request)
    text = model.field_named(text) or text
    if declared is not None:
        return _filter(model, text, declared) if text in declared else None
    allowed = text in model.fields or _is_of_admin(model, text) or Path.read(model, text).shown_column is not None
    found = _filter(model, text, None) if allowed else None
    root, _, rest = text.partition("__")
    field = model.exposure.options.model_fields.get(root)
    if found is not None or (rest and field is not None and not field.is_relation):
        # One that begins with a field which leads nowhere is that field with a lookup, as most are.
        return found
    # A column that the admin computes, of numbers and dates: a text may be shown as another.
    target = computed_target(model, text, Column.is_ordering)
    if target is None:
        return None
    lookups = tuple(name for name in usual_lookups(target.column.field) if name in COMPUTED)
    return FieldPath(target.name, target.column.field, False, True, expression=target.expression), lookups


def _filter(
    model: ModelAccess, name: str, declared: Mapping[str, Sequence[str]] | None
) -> tuple[FieldPath, tuple[str, ...]] | None:
    exposure = model.exposure
    root, _, rest = name.partition("__")
    path = resolve_path(exposure.model, name)
    if path is None or not _is_open(model, root, rest, declared):
        return None
    # Through many-valued relations only the first hop is followed: the others are seen from the related rows.
    field: Any = exposure.opts.pk if root == "pk" else exposure.opts.get_field(root)
    leads_to_many = bool(field.many_to_many or field.one_to_many)
    inner = resolve_path(field.related_model, rest) if path.many and rest and leads_to_many else None
    if path.many and (not leads_to_many or (rest and (inner is None or inner.many))):
        return None
    if path.field.many_to_many and not is_joinable(path.field):
        return None
    if rest:
        guards = guards_on(model.access, exposure.model, path.column)
        if guards is not None and inner is not None:
            guards = guards_on(model.access, field.related_model, inner.column)
        if guards is None:
            return None
        path = replace(path, guards=guards)
    lookups = usual_lookups(path.field)
    if declared is not None and isinstance(declared, Mapping):
        lookups = declared_lookups(path, declared[name])
    if not path.nullable and not is_file_field(path.field):
        lookups = tuple(lookup for lookup in lookups if lookup != "isnull")
    return (path, lookups) if lookups else None


def _is_open(model: ModelAccess, name: str, rest: str, declared: Mapping[str, Sequence[str]] | None) -> bool:
    """Return whether a filter may use the field: the caller reads it as it is, or the admin's sidebar has it.

    A relation from elsewhere is no column, so that a path which begins with it is open by its declaration.
    """
    if name in model.fields:
        column = model.column(name)
        return column is not None and column.is_plain
    if rest and isinstance(_relation(model, name), ForeignObjectRel):
        return True
    return declared is None and _is_of_admin(model, f"{name}__{rest}" if rest else name)


# What the admin offers


def is_offered_path(model: ModelAccess, path: str) -> bool:
    """Return whether code of the project may filter by the path for the caller: no row on the way is hidden."""
    if path not in model.fields and not _is_of_admin(model, path):
        return False
    found = resolve_path(model.exposure.model, path)
    return found is not None and not leads_to_hidden_rows(model.access, model.exposure.model, found.column)


def _admin_paths(model: ModelAccess) -> Iterator[str]:
    """Yield the fields and paths that the admin offers to filter by."""
    for item in model.exposure.get_list_filter(model.request):
        path = item[0] if isinstance(item, (list, tuple)) else item
        if isinstance(path, str):
            yield path


def _is_of_admin(model: ModelAccess, path: str) -> bool:
    """Return whether the admin offers to filter by the path, and the caller may."""
    if path not in _admin_paths(model):
        return False
    root, _, rest = path.partition("__")
    if not rest:
        return _is_shown_by_admin(model, path)
    column = resolve_column(model.exposure, root)
    if column is None or root in model.fields or not _is_shown_by_admin(model, root):
        return _sees_path(model, path)
    related = model.access.exposure_of(column.field.related_model)
    return related is not None and _sees_path(model.access[related], rest)


def _is_shown_by_admin(model: ModelAccess, name: str) -> bool:
    """Return whether a field that is no column may be filtered on because the admin's sidebar does so.

    An exposure that names its own fields has said what may be known of a row.
    """
    exposure = model.exposure
    if exposure.fields is not None or name in exposure.exclude or is_sensitive(name, exposure.model):
        return False
    column = resolve_column(exposure, name)
    if column is None or not column.is_plain or column.field.model is not exposure.model:
        return False
    return column.kind != "many" or model.access.exposure_of(column.field.related_model) is not None


def _sees_path(model: ModelAccess, path: str) -> bool:
    """Return whether the caller could follow the path through the models by reading them one after the other."""
    *hops, last = path.split("__")
    for name in hops:
        relation = _relation(model, name)
        related = model.access.exposure_of(relation.related_model) if relation is not None else None
        if related is None:
            return False
        model = model.access[related]
    return model.field_named(last) is not None or _is_shown_by_admin(model, last)


def _relation(model: ModelAccess, name: str) -> Any:
    """Return the relation that a filter may follow: one that the caller reads, or one from elsewhere to this model."""
    try:
        field = model.exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return None
    if isinstance(field, ForeignObjectRel):
        return field if model.access.exposure_of(field.related_model) is not None else None
    column = model.column(name)
    return field if column is not None and column.kind in ("relation", "many") else None


# Search


def is_hidden_path(exposure: ModelExposure, text: str) -> bool:
    """Return whether the path of a search leads through a field that is sensitive, or that an exposure leaves out."""
    name = text.lstrip("^=@")
    path = resolve_path(exposure.model, name)
    if path is not None and is_sensitive(path.field.name, path.field.model):
        return True
    seen: ModelExposure | None = exposure
    for part in name.split("__"):
        if is_sensitive(part) or (seen is not None and seen.options.leaves_out(part)):
            return True
        field = seen.options.model_fields.get(part) if seen is not None else None
        seen = exposure.site.exposures.get(field.related_model) if field is not None else None
    return False


def is_searched(model: ModelAccess, text: str) -> bool:
    """Return whether the admin's search may look into the path: the caller could read each field on it, there at least.

    Into a column of the model's own that no page shows, too. Of a model that is not exposed, and that nothing forbids
    to show, what the admin declares stands.
    """
    exposure, access, site = model.exposure, model.access, model.request.mcp.site
    if is_hidden_path(exposure, text):
        return False
    seen = model
    for name in text.lstrip("^=@").split("__"):
        field = seen.exposure.opts.pk if name == "pk" else seen.exposure.options.model_fields.get(name)
        if field is None:
            # An annotation of the project's own, or a lookup after the column.
            return True
        # JSON may hold secrets, which are hidden wherever it is shown.
        if (
            not isinstance(field, ForeignObjectRel)
            and seen.field_named(name) is None
            and not (seen is model and _is_shown_by_admin(model, name) and kind_of(field).word != "json")
        ):
            return False
        if field.is_relation and not is_joinable(field):
            return False
        related = field.related_model if field.is_relation else None
        closed = exposure.options.closed_exposure(related) if related is not None else None
        if closed is None and (related is None or related not in site.exposures):
            return related is None or site.may_show(related)
        there = access.exposure_of(related) if closed is None else closed
        # What the admin shows of a model that is exposed to nobody is for those who may view it all.
        if there is None or (closed is not None and not (access[closed].is_there and access[closed].sees_every_row)):
            return False
        seen = access[there]
    return True


def unsearched(model: ModelAccess) -> list[str]:
    """Return the columns that the caller reads and by which others search, but not this caller."""
    exposure, request = model.exposure, model.request

    def root(text: str) -> str:
        return text.lstrip("^=@").partition("__")[0]

    def is_left(text: str) -> bool:
        path = resolve_path(exposure.model, text.lstrip("^=@"))
        return path is not None and guards_on(model.access, exposure.model, path.column) is None

    declared, searched = exposure.options.search_fields(request), exposure.get_search_fields(request)
    looked_at = {root(text) for text in searched if not is_left(text)}
    roots = dict.fromkeys(root(text) for text in declared if not is_hidden_path(exposure, text))
    return [name for name in roots if name not in looked_at and model.field_named(name) is not None]


def searched(model: ModelAccess, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the rows that the exposure's search finds, each once."""
    exposure, request = model.exposure, model.request
    if not term and not exposure.get_listing(request).narrows_without_search():
        return queryset
    try:
        found, may_have_duplicates = exposure.get_search_results(request, queryset, term)
    except (ValidationError, ValueError):
        raise ToolError(f"The search does not take {term[:60]!r}. Use filters instead.") from None
    check_patterns(found, re.split(r"[\s\"']+", term))
    if may_have_duplicates or not is_part_of(found, queryset, joins=True):
        return queryset.filter(pk__in=keys_of(found))
    return found


def search_paths(
    request: MCPRequest, queryset: QuerySet[Any], fields: Sequence[str]
) -> tuple[QuerySet[Any], list[str]]:
    """Return the rows, and what to search in them: paths through hidden rows become columns that are empty there.

    A path through a model that the caller may not view is left out, one with a lookup through hidden rows, and one into
    another database.
    """
    found = []
    for number, text in enumerate(fields):
        name = text.lstrip("^=@")
        guards = guards_on(access_of(request), queryset.model, name)
        if guards == ():
            found.append(text)
        elif guards and resolve_path(queryset.model, name) is not None:
            alias = f"mcp_search{number}"
            queryset = queryset.alias(**{alias: Case(When(Q(*guards), then=F(name)))})
            found.append(text.removesuffix(name) + alias)
    return queryset, found
