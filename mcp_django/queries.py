"""The rows that a caller asked for, as a queryset: the exposure's own rows, narrowed by filters and search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import Q, QuerySet

from .context import MCPRequest
from .exceptions import ToolError
from .lookups import Condition
from .pagination import OrderKey, keyset
from .plans import Bind, Slot, bound_condition, condition_values, is_plannable, places, prepare
from .serializers import Column
from .visibility import related_exposure

if TYPE_CHECKING:
    from .exposures import ModelExposure

__all__ = ["COUNT_CAP", "PageQuery", "count_rows", "narrowed", "params_of", "rows_of", "slots_of"]

COUNT_CAP: Final = 10_000


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What one page shows: ``limit`` rows after the sort values ``after``, with these columns.

    ``text_limit`` is where long texts are cut, None for nowhere.
    """

    exposure: "ModelExposure"
    columns: tuple[Column, ...]
    ordering: tuple[OrderKey, ...]
    limit: int
    conditions: tuple[Condition, ...] = ()
    search: str = ""
    after: tuple[Any, ...] | None = None
    text_limit: int | None = None


def using_of(exposure: "ModelExposure", queryset: QuerySet[Any] | None) -> str:
    """Return the alias of the database that the rows are read from."""
    return queryset.db if queryset is not None else str(exposure.model._default_manager.db)


def params_of(query: PageQuery, using: str) -> list[Any]:
    """Return the values of the query in the order of its slots: filters first, then the cursor.

    Raises:
        ToolError: the database has no such value.
    """
    found: list[Any] = []
    for condition in query.conditions:
        if is_plannable(condition):
            found += condition_values(condition, using)
    for key, value in zip(query.ordering, query.after or (), strict=False):
        found.append(None if value is None else prepare(key.field, value, using))
    return found


def slots_of(params: Sequence[Any]) -> list[Any]:
    """Return slots for as many parameters."""
    return [Slot(index) for index in range(len(params))]


def rows_of(
    request: MCPRequest, query: PageQuery, queryset: QuerySet[Any], params: Sequence[Any], using: str
) -> QuerySet[Any]:
    """Return the rows of the page and one more, in order; ``params`` are slots or values."""
    exposure = query.exposure
    rows, used = _filtered(request, exposure, queryset, query.conditions, params)
    rows = _searched(request, exposure, rows, query.search)
    if query.after is not None:
        nulls = [value is None for value in query.after]
        largest = connections[using].features.nulls_order_largest
        rows = rows.filter(
            keyset(query.ordering, nulls, lambda index: Bind(params[used + index]), nulls_largest=largest)
        )
    names = [("-" if key.descending else "") + key.path for key in query.ordering]
    return rows.order_by(*names)[: query.limit + 1]


def narrowed(
    request: MCPRequest, exposure: "ModelExposure", conditions: Sequence[Condition], search: str
) -> QuerySet[Any]:
    """Return all rows that match, in no order.

    Raises:
        ToolError: the database has no such value.
    """
    queryset = exposure.get_queryset(request).order_by()
    params = [
        param
        for condition in conditions
        if is_plannable(condition)
        for param in condition_values(condition, queryset.db)
    ]
    rows, _ = _filtered(request, exposure, queryset, conditions, params)
    return _searched(request, exposure, rows, search).order_by()


def count_rows(request: MCPRequest, query: PageQuery) -> int:
    """Return how many rows match, or one more than ``COUNT_CAP`` for any number beyond it."""
    rows = narrowed(request, query.exposure, query.conditions, query.search)
    return rows.values("pk")[: COUNT_CAP + 1].count()


def _filtered(
    request: MCPRequest,
    exposure: "ModelExposure",
    queryset: QuerySet[Any],
    conditions: Sequence[Condition],
    params: Sequence[Any],
) -> tuple[QuerySet[Any], int]:
    used = 0
    for condition in conditions:
        if is_plannable(condition):
            count = places(condition)
            queryset = queryset.filter(bound_condition(condition, params[used : used + count]))
            used += count
        elif condition.path.many:
            queryset = queryset.filter(_through_many(request, exposure, condition))
        else:
            queryset = queryset.filter(_plain(condition, condition.path.column))
    return queryset, used


def _plain(condition: Condition, path: str) -> Q:
    """Return the condition as Django writes it; path and lookup come from the model and the closed list of lookups."""
    value: Any = list(condition.values) if condition.lookup in ("in", "range") else condition.values[0]
    return Q((f"{path}__{condition.lookup}", value))


def _through_many(request: MCPRequest, exposure: "ModelExposure", condition: Condition) -> Q:
    """Return the condition on a many-to-many relation, as a subquery, so that no row comes twice.

    Of the related rows only those count that the caller may view.
    """
    root, _, rest = condition.path.column.partition("__")
    field = exposure.opts.get_field(root)
    related = related_exposure(request, field)
    if related is None:
        return Q(pk__in=[])
    targets = related.get_queryset(request).order_by().filter(_plain(condition, rest or "pk"))
    sources = exposure.model._base_manager.filter(Q((f"{root}__in", targets.values("pk"))))
    return Q(pk__in=sources.values("pk"))


def _searched(request: MCPRequest, exposure: "ModelExposure", queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    if not term:
        return queryset
    found, may_have_duplicates = exposure.get_search_results(request, queryset, term)
    return queryset.filter(pk__in=found.order_by().values("pk")) if may_have_duplicates else found


def check_searchable(request: MCPRequest, exposure: "ModelExposure") -> None:
    """Pass if the exposure can be searched.

    Raises:
        ToolError: it has no search fields, so that a search would give every row.
    """
    admin = getattr(exposure, "model_admin", None)
    own = admin is not None and getattr(exposure, "overrides", lambda name: False)("get_search_results")
    if not own and not exposure.get_search_fields(request):
        raise ToolError(f"{exposure.label} has no text search. Use filters instead; describe_model lists them.")
