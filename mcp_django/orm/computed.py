"""Columns that the admin computes, as values of the database: by their ``admin_order_field``, or by an annotation.

Such a value is made by code of the project, of whatever rows it names. It is the caller's to measure where they could
read all that it is made of: each column, and of other models all rows.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.core.exceptions import FieldError
from django.db.models import DecimalField, F, ForeignKey, OuterRef, QuerySet, Subquery, Window
from django.db.models.expressions import Col, OrderBy, RawSQL, Star
from django.db.models.sql import Query

from ..context.request import MCPRequest
from ..exposures.base import ModelExposure
from .access import access_of
from .columns import MAX_DIGITS, Column, resolve_column
from .kinds import kind_of
from .lookups import resolve_path

# The name of the value in its subquery.
VALUE: Final = "mcp_computed"
# Of decimals that the database computes.
PLACES: Final = 6
_OPAQUE: Final = (RawSQL, Star, Window)


def order_source(column: Column) -> Any:
    """Return what a computed column is sorted by, without a direction: a name, an expression, or its own name."""
    order = column.order_field if column.order_field is not None else column.name
    order = order.expression if isinstance(order, OrderBy) else order
    order = order.name if isinstance(order, F) else order  # type: ignore[attr-defined]
    return order.lstrip("+-") if isinstance(order, str) else order


def parts_of(expression: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of, conditions too."""
    yield expression
    for part in expression.get_source_expressions() if hasattr(expression, "get_source_expressions") else ():
        if part is not None:
            yield from parts_of(part)


def computed_value(
    request: MCPRequest, exposure: ModelExposure, column: Column, pk: str
) -> tuple[Column, "Subquery"] | None:
    """Return the column's values as those of a column, and their expression for a query that has the key as ``pk``.

    None stands for a value that the database does not compute, or that is made of what the caller may not read.
    """
    source = order_source(column)
    rows = exposure.get_queryset(request).order_by()
    if column.kind != "computed" or exposure.opts.is_composite_pk or rows.query.is_sliced or rows.query.combinator:
        return None
    if column.order_field is None and source not in rows.query.annotation_select:
        return None
    try:
        rows = rows.annotate(**{VALUE: F(source) if isinstance(source, str) else source})
        found = rows.query.annotations[VALUE]
        field = found.output_field
    except (FieldError, TypeError, ValueError):
        return None
    if not is_readable(request, exposure, rows, found) or (column.shows_truth and kind_of(field).word != "boolean"):
        return None
    if kind_of(field).word == "decimal" and field.decimal_places is None:
        field = DecimalField(max_digits=MAX_DIGITS, decimal_places=PLACES)
    value = Subquery(rows.filter(pk=OuterRef(pk)).values(VALUE)[:1], output_field=field)
    return Column(column.name, "field", field=field), value


def is_readable(
    request: MCPRequest, exposure: ModelExposure, rows: QuerySet[Any], expression: Any, *, nested: bool = False
) -> bool:
    """Return whether the caller could read all columns and rows that the value is made of, by subqueries if nested."""
    query: Any = rows.query
    own = _own_tables(query)
    parts = list(parts_of(expression))
    if any(isinstance(part, _OPAQUE) for part in parts):
        return False
    inner = [part for part in parts if isinstance(part, Query)]
    if not all(nested and _reads_query(request, exposure, part, own) for part in inner):
        return False
    columns = [part for part in parts if isinstance(part, Col)]
    if not all(_reads(request, exposure, column.target, column.alias in own) for column in columns):
        return False
    if expression.contains_aggregate:
        # What is joined for other reasons is counted with.
        joins = [alias for alias, count in query.alias_refcount.items() if count]
    else:
        joins = [alias for column in columns for alias in _way_to(query, column.alias)]
    return all(
        _follows(request, exposure, query.alias_map[alias], own, several=expression.contains_aggregate)
        for alias in joins
        if alias not in own
    )


def _reads_query(request: MCPRequest, exposure: ModelExposure, query: Any, own: set[str]) -> bool:
    """Return whether the caller could read the columns and rows of a subquery of one table."""
    found = [part for source in (*query.select, *query.annotations.values(), query.where) for part in parts_of(source)]
    tables = [alias for alias, count in query.alias_refcount.items() if count]
    names = [name.lstrip("+-") if isinstance(name, str) else "" for name in query.order_by]
    sorted_by = [resolve_path(query.model, name) for name in names]
    if len(tables) > 1 or query.combinator or not _sees_all(request, query.model) or None in sorted_by:
        return False
    columns = [part for part in found if isinstance(part, Col)]
    inside = [column.target for column in columns if column.alias in query.alias_map]
    inside += [path.field for path in sorted_by if path is not None and "__" not in path.column]
    outside = [column for column in columns if column.alias not in query.alias_map]
    return (
        not any(isinstance(part, (*_OPAQUE, Query)) for part in found)
        and not any("__" in name for name in names)
        and all(_reads(request, exposure, target, False) for target in inside)
        and all(column.alias in own and _reads(request, exposure, column.target, True) for column in outside)
    )


def _own_tables(query: Any) -> set[str]:
    """Return the tables that hold the row itself: the model's, and those of its parents."""
    own = {query.get_initial_alias()}
    for alias, join in query.alias_map.items():
        field = getattr(join, "join_field", None)
        if field is not None and join.parent_alias in own and isinstance(field, ForeignKey):
            own |= {alias} if field.remote_field.parent_link else set()
    return own


def _way_to(query: Any, alias: str) -> Iterator[str]:
    """Yield the tables that lead to one from the model's own."""
    while getattr(query.alias_map[alias], "parent_alias", None) is not None:
        yield alias
        alias = query.alias_map[alias].parent_alias


def _follows(request: MCPRequest, exposure: ModelExposure, join: Any, own: set[str], *, several: bool) -> bool:
    """Return whether the caller could follow a join, to rows all of which they may view."""
    field = join.join_field
    key = field if isinstance(field, ForeignKey) else getattr(field, "field", None)
    if join.filtered_relation is not None or not isinstance(key, ForeignKey):
        return False
    if field is not key and not several and not key.unique:
        return False
    if not _reads(request, exposure, key, field is key and join.parent_alias in own):
        return False
    return bool(field.related_model._meta.auto_created) or _sees_all(request, field.related_model)


def _sees_all(request: MCPRequest, model: Any) -> bool:
    related = access_of(request).exposure_of(model)
    return related is not None and access_of(request)[related].sees_every_row


def _reads(request: MCPRequest, exposure: ModelExposure, field: Any, is_own: bool) -> bool:
    """Return whether the caller reads the field as it is stored: on the row itself, or on all rows of its model."""
    owner = field.model._meta.auto_created
    if owner:
        # The table of a many-to-many relation, which is read as that.
        relation = next(item for item in owner._meta.local_many_to_many if item.remote_field.through is field.model)
        there = exposure if issubclass(exposure.model, owner) else access_of(request).exposure_of(owner)
        if there is None or access_of(request)[there].field_named(relation.name) is None:
            return False
        leads_to = field.related_model
        return leads_to is not None and (issubclass(exposure.model, leads_to) or _sees_all(request, leads_to))
    there = exposure if is_own else access_of(request).exposure_of(field.model)
    if there is None or not (is_own or access_of(request)[there].sees_every_row):
        return False
    name = access_of(request)[there].field_named(field.name)
    column = resolve_column(there, name) if name is not None else None
    return column is not None and column.is_stored
