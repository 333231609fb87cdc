"""The conditions of a query: what a filter is on a queryset, and which related rows it may know of.

A condition through a relation holds by rows that the caller may view, and by no others: what a hidden row holds must
not be told by which rows are found.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.sql.where import AND

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from .access import has_every_row, related_exposure, sees_every_row
from .expressions import Applied, Filter, Junction, conditions_of
from .kinds import is_joinable
from .lookups import Condition
from .patterns import check_patterns, is_pattern_lookup
from .plans import bound_condition, condition_values, is_plannable, joined, places

__all__ = ["filtered", "leads_to_hidden_model", "leads_to_hidden_rows", "search_paths", "searched"]


def filtered(
    request: MCPRequest,
    exposure: Exposure,
    queryset: QuerySet[Any],
    filters: Sequence[Filter],
    params: Sequence[Any],
) -> tuple[QuerySet[Any], int]:
    """Return the rows that pass all filters, and how many of ``params`` (slots, or values) they took.

    Raises:
        ToolError: a filter of the project's own does not take its values, or the database has no such value.
    """
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


def searched(request: MCPRequest, exposure: Exposure, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the rows that the exposure's search finds, each once.

    Raises:
        ToolError: a search field, such as ``year__gte``, does not take the term.
    """
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
        visible, is_column = _visible_on(request, queryset.model, name)
        if visible is None:
            found.append(text)
        elif visible and is_column:
            alias = f"mcp_search{number}"
            queryset = queryset.alias(**{alias: Case(When(Q(*visible), then=F(name)))})
            found.append(text.removesuffix(name) + alias)
    return queryset, found


def _visible_on(request: MCPRequest, model: Any, path: str) -> tuple[list[Q] | None, bool]:
    """Return the conditions for visible rows all along the path, and whether it ends at a column.

    There are None where nothing is hidden, and no conditions where all is.
    """
    names = path.split("__")
    found: list[Q] = []
    for position, name in enumerate(names):
        try:
            field = model._meta.get_field(model._meta.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            return found or None, False
        is_last = position == len(names) - 1
        if is_last or field.related_model is None:
            return found or None, is_last
        if not is_joinable(field):
            return [], False
        if _hides_rows(request, field):
            related = related_exposure(request, field)
            if related is None:
                return [], False
            if not sees_every_row(request, related):
                key = field.target_field.attname if field.concrete else "pk"
                rows = related.get_queryset(request).order_by().values(key)
                found.append(Q(("__".join([*names[: position + 1], "in"]), rows)))
        model = field.related_model
    return found or None, False


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


def _condition(request: MCPRequest, exposure: Exposure, using: str, item: Filter, negated: bool) -> Q:
    if isinstance(item, Junction):
        negated = negated or item.connector == "not"
        return joined(item.connector, [_condition(request, exposure, using, part, negated) for part in item.parts])
    if isinstance(item, Applied):
        return Q(pk__in=_keys(item.source.narrow(exposure.get_queryset(request).using(using), item.values)))
    if item.path.many:
        return _through_many(request, exposure, item)
    if item.path.guarded:
        return _guarded(request, exposure.model, item)
    if is_plannable(item):
        return bound_condition(item, condition_values(item, using), negated)
    return _plain(item, item.path.column)


def _plain(condition: Condition, path: str) -> Q:
    """Return the condition as Django writes it; path and lookup come from the model and the closed list of lookups."""
    value: Any = list(condition.values) if condition.lookup in ("in", "range") else condition.values[0]
    return Q((f"{path}__{condition.lookup}", value))


def _through_many(request: MCPRequest, exposure: Exposure, condition: Condition) -> Q:
    """Return the condition on a many-to-many relation, as a subquery, so that no row comes twice.

    Of the related rows only those count that the caller may view.
    """
    root, _, rest = condition.path.column.partition("__")
    related = related_exposure(request, exposure.opts.get_field(root))
    if related is None:
        return Q(pk__in=[])
    inner = _guarded(request, related.model, condition, rest) if rest else _plain(condition, "pk")
    targets = related.get_queryset(request).order_by().filter(inner)
    sources = exposure.model._base_manager.using(targets.db).filter(Q((f"{root}__in", targets.values("pk"))))
    return Q(pk__in=sources.values("pk"))


def _guarded(request: MCPRequest, model: Any, condition: Condition, path: str | None = None) -> Q:
    """Return the condition, in which each relation on the way leads to rows that the caller may view.

    A related row that is hidden has no values: it is found by none, and by ``isnull``.
    """
    path = path or condition.path.column
    names = path.split("__")
    for position, name in enumerate(names[:-1]):
        field = model._meta.get_field(name)
        if _hides_rows(request, field):
            missing = condition.lookup == "isnull" and condition.values[0]
            found = Condition(condition.path, "isnull", (False,)) if missing else condition
            related, through = related_exposure(request, field), Q(pk__in=[])
            if related is not None:
                inner = _guarded(request, related.model, found, "__".join(names[position + 1 :]))
                targets = related.get_queryset(request).order_by().filter(inner)
                key = field.target_field.attname if field.concrete else "pk"
                through = Q(("__".join([*names[: position + 1], "in"]), targets.values(key)))
            return ~through if missing else through
        model = field.related_model
    return _plain(condition, path)


def leads_to_hidden_rows(request: MCPRequest, model: Any, column: str) -> bool:
    """Return whether the path leads through rows of a model of which the caller may not see all."""
    return any(_hides_rows(request, field) for field in _relations(model, column))


def leads_to_hidden_model(request: MCPRequest, model: Any, column: str) -> bool:
    """Return whether the path leads through an exposed model that the caller may not view."""
    exposed = request.mcp.site.exposures
    fields = _relations(model, column)
    return any(field.related_model in exposed and related_exposure(request, field) is None for field in fields)


def _relations(model: Any, column: str) -> Iterator[Any]:
    for name in column.split("__")[:-1]:
        field = model._meta.get_field(name)
        yield field
        model = field.related_model


def _hides_rows(request: MCPRequest, field: Any) -> bool:
    """Return whether some rows that the relation leads to are not the caller's.

    Where the model is not exposed at all, what the project declared on it stands.
    """
    if field.related_model not in request.mcp.site.exposures:
        return False
    related = related_exposure(request, field)
    return related is None or not has_every_row(related)
