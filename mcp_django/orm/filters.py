"""Apply filters and search without revealing hidden rows.

Names are looked up in allow-lists and lead to columns and lookups. A condition through a relation holds by rows that
the caller may view, and by no others: what a hidden row holds must not be told by which rows are found.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import (
    BooleanField,
    Case,
    Exists,
    ExpressionWrapper,
    F,
    ForeignObjectRel,
    IntegerField,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.lookups import IsNull
from django.db.models.sql.where import AND

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from ..exposures.managers import among
from ..schema.values import is_sensitive
from .access import MAX_NAME, access_of, has_every_row
from .columns import resolve_column
from .conditions import (
    COMPARISONS,
    TRUE,
    bound_condition,
    condition_values,
    is_plannable,
    joined,
    missing,
    places,
    quantified,
)
from .kinds import is_file_field, is_joinable, kind_of
from .lookups import (
    Applied,
    Comparison,
    Condition,
    Filter,
    Junction,
    Path,
    Quantified,
    check_patterns,
    conditions_of,
    declared_lookups,
    is_pattern_lookup,
    resolve_path,
    usual_lookups,
)
from .path import Link, computed_target, guards_on, is_ordering, linked_rows, related_column

# What a column that the admin computes is compared by.
COMPUTED: Final = (*COMPARISONS, "in", "range", "isnull")


def filters_of(request: MCPRequest, exposure: ModelExposure) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Yield what the caller may filter on: the name, the column it leads to, and the lookups it takes."""
    declared = exposure.get_filter_fields(request)
    names: Iterable[str] = declared or ()
    if declared is None:
        named = (path for path in _admin_paths(request, exposure) if _is_of_admin(request, exposure, path))
        names = dict.fromkeys([*access_of(request)[exposure].fields, *named])
    for name in names:
        found = _filter(request, exposure, name, declared)
        if found is not None:
            yield name, *found


def find_filter(request: MCPRequest, exposure: ModelExposure, text: str) -> tuple[Path, tuple[str, ...]] | None:
    """Return the column and the lookups of a filter that the caller may use, None for any other name."""
    if len(text) > MAX_NAME:
        return None
    declared = exposure.get_filter_fields(request)
    text = access_of(request)[exposure].field_named(text) or text
    if declared is not None:
        return _filter(request, exposure, text, declared) if text in declared else None
    allowed = text in access_of(request)[exposure].fields or _is_of_admin(request, exposure, text)
    allowed = allowed or related_column(request, exposure, text) is not None
    found = _filter(request, exposure, text, None) if allowed else None
    root, _, rest = text.partition("__")
    field = exposure.fields_by_name.get(root)
    if found is not None or (rest and field is not None and not field.is_relation):
        # One that begins with a field which leads nowhere is that field with a lookup, as most are.
        return found
    # A column that the admin computes, of numbers and dates: a text may be shown as another.
    target = computed_target(request, exposure, text, is_ordering)
    if target is None:
        return None
    lookups = tuple(name for name in usual_lookups(target.column.field) if name in COMPUTED)
    return Path(target.name, target.column.field, False, True, expression=target.expression), lookups


def is_offered_path(request: MCPRequest, exposure: ModelExposure, path: str) -> bool:
    """Return whether code of the project may filter by the path for the caller: no row on the way is hidden."""
    if path not in access_of(request)[exposure].fields and not _is_of_admin(request, exposure, path):
        return False
    found = resolve_path(exposure.model, path)
    return found is not None and not leads_to_hidden_rows(request, exposure.model, found.column)


def is_hidden_path(exposure: ModelExposure, text: str) -> bool:
    """Return whether the path of a search leads through a field that is sensitive, or that an exposure leaves out."""
    name = text.lstrip("^=@")
    path = resolve_path(exposure.model, name)
    if path is not None and is_sensitive(path.field.name, path.field.model):
        return True
    seen: ModelExposure | None = exposure
    for part in name.split("__"):
        if is_sensitive(part) or (seen is not None and seen.leaves_out(part)):
            return True
        field = seen.fields_by_name.get(part) if seen is not None else None
        seen = exposure.site.exposures.get(field.related_model) if field is not None else None
    return False


def is_searched(request: MCPRequest, exposure: ModelExposure, text: str) -> bool:
    """Return whether the admin's search may look into the path: the caller could read each field on it, there at least.

    Into a column of the model's own that no page shows, too. Of a model that is not exposed, and that nothing forbids
    to show, what the admin declares stands.
    """
    if is_hidden_path(exposure, text):
        return False
    seen, site = exposure, request.mcp.site
    for name in text.lstrip("^=@").split("__"):
        field = seen.opts.pk if name == "pk" else seen.fields_by_name.get(name)
        if field is None:
            # An annotation of the project's own, or a lookup after the column.
            return True
        if not isinstance(field, ForeignObjectRel) and access_of(request)[seen].field_named(name) is None:
            # JSON may hold secrets, which are hidden wherever it is shown.
            is_own = seen is exposure and _is_shown_by_admin(request, exposure, name) and kind_of(field).word != "json"
            if not is_own:
                return False
        if field.is_relation and not is_joinable(field):
            return False
        model = field.related_model if field.is_relation else None
        closed = exposure.closed_exposure(model) if model is not None else None
        if closed is None and (model is None or model not in site.exposures):
            return model is None or site.may_show(model)
        related = access_of(request).exposure_of(model) if closed is None else closed
        if related is None:
            return False
        # What the admin shows of a model that is exposed to nobody is for those who may view it all.
        if closed is not None and not (
            access_of(request)[closed].is_there and access_of(request)[closed].sees_every_row
        ):
            return False
        seen = related
    return True


def unsearched(request: MCPRequest, exposure: ModelExposure) -> list[str]:
    """Return the columns that the caller reads and by which others search, but not this caller."""

    def root(text: str) -> str:
        return text.lstrip("^=@").partition("__")[0]

    def is_left(text: str) -> bool:
        path = resolve_path(exposure.model, text.lstrip("^=@"))
        return path is not None and guards_on(request, exposure.model, path.column) is None

    declared, searched = exposure.declared_search(request), exposure.get_search_fields(request)
    looked_at = {root(text) for text in searched if not is_left(text)}
    roots = dict.fromkeys(root(text) for text in declared if not is_hidden_path(exposure, text))
    is_seen = access_of(request)[exposure].field_named
    return [name for name in roots if name not in looked_at and is_seen(name) is not None]


def _is_of_admin(request: MCPRequest, exposure: ModelExposure, path: str) -> bool:
    """Return whether the admin offers to filter by the path, and the caller may."""
    if path not in _admin_paths(request, exposure):
        return False
    root, _, rest = path.partition("__")
    if not rest:
        return _is_shown_by_admin(request, exposure, path)
    column = resolve_column(exposure, root)
    if column is None or root in access_of(request)[exposure].fields or not _is_shown_by_admin(request, exposure, root):
        return _sees_path(request, exposure, path)
    related = access_of(request).exposure_of(column.field.related_model)
    return related is not None and _sees_path(request, related, rest)


def _admin_paths(request: MCPRequest, exposure: ModelExposure) -> Iterator[str]:
    """Yield the fields and paths that the admin offers to filter by."""
    for item in exposure.get_list_filter(request):
        path = item[0] if isinstance(item, (list, tuple)) else item
        if isinstance(path, str):
            yield path


def _is_shown_by_admin(request: MCPRequest, exposure: ModelExposure, name: str) -> bool:
    """Return whether a field that is no column may be filtered on because the admin's sidebar does so.

    An exposure that names its own fields has said what may be known of a row.
    """
    if exposure.fields is not None or name in exposure.exclude or is_sensitive(name, exposure.model):
        return False
    column = resolve_column(exposure, name)
    if column is None or not column.is_plain or column.field.model is not exposure.model:
        return False
    return column.kind != "many" or access_of(request).exposure_of(column.field.related_model) is not None


def _sees_path(request: MCPRequest, exposure: ModelExposure, path: str) -> bool:
    """Return whether the caller could follow the path through the models by reading them one after the other."""
    *hops, last = path.split("__")
    seen: ModelExposure | None = exposure
    for name in hops:
        if seen is None:
            return False
        relation = _relation(request, seen, name)
        seen = access_of(request).exposure_of(relation.related_model) if relation is not None else None
    if seen is None:
        return False
    return access_of(request)[seen].field_named(last) is not None or _is_shown_by_admin(request, seen, last)


def _relation(request: MCPRequest, exposure: ModelExposure, name: str) -> Any:
    """Return the relation that a filter may follow: one that the caller reads, or one from elsewhere to this model."""
    try:
        field = exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return None
    if isinstance(field, ForeignObjectRel):
        return field if access_of(request).exposure_of(field.related_model) is not None else None
    column = resolve_column(exposure, name) if name in access_of(request)[exposure].fields else None
    return field if column is not None and column.kind in ("relation", "many") else None


def _filter(
    request: MCPRequest, exposure: ModelExposure, name: str, declared: Mapping[str, Sequence[str]] | None
) -> tuple[Path, tuple[str, ...]] | None:
    root, _, rest = name.partition("__")
    path = resolve_path(exposure.model, name)
    if path is None or not _is_open(request, exposure, root, rest, declared):
        return None
    # Through many-valued relations only the first hop is followed: see narrowing.
    field: Any = exposure.opts.pk if root == "pk" else exposure.opts.get_field(root)
    leads_to_many = bool(field.many_to_many or field.one_to_many)
    inner = resolve_path(field.related_model, rest) if path.many and rest and leads_to_many else None
    if path.many and (not leads_to_many or (rest and (inner is None or inner.many))):
        return None
    if path.field.many_to_many and not is_joinable(path.field):
        return None
    if rest:
        guards = guards_on(request, exposure.model, path.column)
        if guards is not None and inner is not None:
            guards = guards_on(request, field.related_model, inner.column)
        if guards is None:
            return None
        path = replace(path, guards=guards)
    lookups = usual_lookups(path.field)
    if declared is not None and isinstance(declared, Mapping):
        lookups = declared_lookups(path, declared[name])
    if not path.nullable and not is_file_field(path.field):
        lookups = tuple(lookup for lookup in lookups if lookup != "isnull")
    return (path, lookups) if lookups else None


def _is_open(
    request: MCPRequest,
    exposure: ModelExposure,
    name: str,
    rest: str,
    declared: Mapping[str, Sequence[str]] | None,
) -> bool:
    """Return whether a filter may use the field: the caller reads it as it is, or the admin's sidebar has it.

    A relation from elsewhere is no column, so that a path which begins with it is open by its declaration.
    """
    if name in access_of(request)[exposure].fields:
        column = resolve_column(exposure, name)
        return column is not None and column.is_plain
    if rest and isinstance(_relation(request, exposure, name), ForeignObjectRel):
        return True
    return declared is None and _is_of_admin(request, exposure, f"{name}__{rest}" if rest else name)


def filtered(
    request: MCPRequest,
    exposure: ModelExposure,
    queryset: QuerySet[Any],
    filters: Sequence[Filter],
    params: Sequence[Any],
) -> tuple[QuerySet[Any], int]:
    """Return the rows that pass all filters, and how many of ``params`` (slots, or values) they took."""
    # What the project wrote comes first: it may run the queryset, which has no slots for values as yet.
    for item in filters:
        if isinstance(item, Applied):
            found = item.source.narrow(queryset, item.values)
            check_patterns(found, _texts(item))
            queryset = found if _is_part_of(found, queryset) else queryset.filter(pk__in=_keys(found))
    used = 0
    for item in filters:
        if is_plannable(item):
            count = places(item)
            queryset = queryset.filter(bound_condition(item, params[used : used + count]))
            used += count
        elif not isinstance(item, Applied):
            queryset = queryset.filter(_condition(request, exposure, queryset.db, item, False))
            check_patterns(queryset, _texts(item))
    return queryset, used


def all_of(
    request: MCPRequest, exposure: ModelExposure, using: str, filters: Sequence[Filter], inside: bool = False
) -> Q:
    """Return the condition that all of the filters hold, for a query on the alias ``using``."""
    return joined("and", [_condition(request, exposure, using, item, inside) for item in filters])


def searched(request: MCPRequest, exposure: ModelExposure, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the rows that the exposure's search finds, each once."""
    if not term and not exposure.narrows_without_search(request):
        return queryset
    try:
        found, may_have_duplicates = exposure.get_search_results(request, queryset, term)
    except (ValidationError, ValueError):
        raise ToolError(f"The search does not take {term[:60]!r}. Use filters instead.") from None
    check_patterns(found, re.split(r"[\s\"']+", term))
    if may_have_duplicates or not _is_part_of(found, queryset, joins=True):
        return queryset.filter(pk__in=_keys(found))
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
        guards = guards_on(request, queryset.model, name)
        if guards == ():
            found.append(text)
        elif guards and resolve_path(queryset.model, name) is not None:
            alias = f"mcp_search{number}"
            queryset = queryset.alias(**{alias: Case(When(Q(*guards), then=F(name)))})
            found.append(text.removesuffix(name) + alias)
    return queryset, found


def _texts(item: Filter) -> Iterator[str]:
    """Yield the texts of the filter that may be regular expressions."""
    for part in conditions_of([item]):
        if isinstance(part, Applied):
            yield from chain.from_iterable(part.values.values())
        elif is_pattern_lookup(part.lookup):
            yield from part.values


def _keys(queryset: QuerySet[Any]) -> QuerySet[Any]:
    return (queryset if queryset.query.is_sliced else queryset.order_by()).values("pk")


def _is_part_of(found: QuerySet[Any], queryset: QuerySet[Any], *, joins: bool = False) -> bool:
    """Return whether all rows of ``found`` are rows of the queryset, each once, and can be filtered and sorted on.

    Joins may repeat a row, unless it is known that these do not.
    """
    query: Any = found.query
    given: Any = queryset.query
    if query.distinct or query.combinator or query.is_sliced or query.group_by or query.model is not given.model:
        return False
    if not joins and sum(1 for alias in query.alias_map if query.alias_refcount.get(alias)) > 1:
        return False
    kept = query.where.connector == AND and not query.where.negated
    return not given.where or (kept and all(child in query.where.children for child in given.where.children))


def _condition(request: MCPRequest, exposure: ModelExposure, using: str, item: Filter, inside: bool) -> Q:
    """Return the filter as a condition.

    ``inside`` says that it stands below an ``or`` or a ``not``, or in a query on related rows. It is an expression
    there, which neither makes joins inner ones nor depends on those that other parts made, and NULL is false.
    """
    if isinstance(item, Junction):
        inside = inside or item.connector != "and"
        return joined(item.connector, [_condition(request, exposure, using, part, inside) for part in item.parts])
    if isinstance(item, Applied):
        return among(item.source.narrow(exposure.get_queryset(request).using(using), item.values))
    if isinstance(item, Quantified):
        rows, passes = linked_rows(request, item.link), all_of(request, item.link.exposure, using, item.parts, True)
        if item.quantifier == "every" and not item.parts:
            return TRUE
        if item.quantifier == "every":
            # What is neither true nor false, as a comparison with NULL, does not pass.
            verdict = Case(When(passes, then=Value(1)), default=Value(0), output_field=IntegerField())
            rows = rows.annotate(mcp_passes=verdict).filter(mcp_passes=0)
        else:
            rows = rows.filter(passes)
        return quantified(item, rows, Value(item.values[0]) if item.values else None)
    if isinstance(item, Comparison):
        left, right = item.left.expression, item.right.expression
        found = Q(COMPARISONS[item.lookup](left, right))
        # A value that is NULL does not pass.
        return found & Q(IsNull(left, False)) & Q(IsNull(right, False)) if inside else found
    if item.path.many:
        return _through_many(request, exposure, item, inside)
    if is_plannable(item) or item.path.expression is not None:
        return bound_condition(item, condition_values(item, using), inside)
    found = _plain(item, item.path.column)
    if not inside:
        return found
    known = Q(IsNull(F(item.path.column), False)) if item.path.nullable and item.lookup != "isnull" else Q()
    return Q(ExpressionWrapper(found, BooleanField())) & known


def _plain(condition: Condition, path: str) -> Q:
    """Return the condition as Django writes it; path and lookup come from the model and the closed list of lookups.

    What a row holds that is hidden is found by none, and by ``isnull``.
    """
    guards, is_null = condition.path.guards, condition.lookup == "isnull"
    if is_null and is_file_field(condition.path.field):
        found = missing(condition, F(path))
    else:
        several = condition.lookup.rpartition("__")[2] in ("in", "range")
        value: Any = list(condition.values) if several else condition.values[0]
        found = Q((f"{path}__{condition.lookup}", value))
    if not guards:
        return found
    return ~Q(*guards) | found if is_null and condition.values[0] else Q(*guards) & found


def _through_many(request: MCPRequest, exposure: ModelExposure, condition: Condition, inside: bool) -> Q:
    """Return the condition on a many-to-many relation, as a subquery, so that no row comes twice.

    Of the related rows only those count that the caller may view.
    """
    root, _, rest = condition.path.column.partition("__")
    field = exposure.opts.get_field(root)
    related = access_of(request).exposure_of(field.related_model)
    if related is None:
        return Q(pk__in=[])
    inner = _plain(condition, rest or "pk")
    if inside:
        return Q(Exists(linked_rows(request, Link(root, field, related)).filter(inner)))
    targets = related.get_queryset(request).order_by().filter(inner)
    sources = exposure.model._base_manager.using(targets.db).filter(Q((f"{root}__in", targets.values("pk"))))
    return Q(pk__in=sources.values("pk"))


def leads_to_hidden_rows(request: MCPRequest, model: Any, column: str) -> bool:
    """Return whether the path leads through rows of a model of which some callers may not see all.

    Where a model is not exposed at all, what the project declared on it stands.
    """
    for name in column.split("__")[:-1]:
        model = model._meta.get_field(name).related_model
        if model in request.mcp.site.exposures:
            related = access_of(request).exposure_of(model)
            if related is None or not has_every_row(related):
                return True
    return False
