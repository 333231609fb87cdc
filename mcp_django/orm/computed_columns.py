"""Columns that the admin computes, as expressions that the database can filter, sort and add up.

Code of the project defines such a value, and may use any rows for it. A caller can use it only if they could read
everything that it is made of: each column, and all rows of other models.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.core.exceptions import FieldError
from django.db.models import DecimalField, F, ForeignKey, OuterRef, QuerySet, Subquery, Window
from django.db.models.expressions import Col, OrderBy, RawSQL, Star
from django.db.models.sql import Query

from .access import ModelAccess
from .column_values import MAX_DIGITS
from .columns import Column, ComputedColumn, FieldColumn
from .fields import is_joinable, kind_of, resolve_path

# Name of the computed value in its subquery.
VALUE: Final = "mcp_computed"
# Decimal places of decimals that the database computes.
PLACES: Final = 6
_OPAQUE: Final = (RawSQL, Star, Window)


def order_source(column: ComputedColumn) -> Any:
    """Return the source that sorts a computed column, without a direction: a name, an expression, or its own name."""
    order = column.order_field if column.order_field is not None else column.name
    order = order.expression if isinstance(order, OrderBy) else order
    order = order.name if isinstance(order, F) else order  # type: ignore[attr-defined]
    return order.lstrip("+-") if isinstance(order, str) else order


def parts_of(expression: Any) -> Iterator[Any]:
    """Yield an expression of a computed column and all expressions within it, conditions too."""
    yield expression
    for part in expression.get_source_expressions() if hasattr(expression, "get_source_expressions") else ():
        if part is not None:
            yield from parts_of(part)


def computed_value(model: ModelAccess, column: ComputedColumn, pk: str) -> tuple[Column, Subquery] | None:
    """Return the type of a computed column's values, and their expression for a query with the key as ``pk``.

    Returns None if the database does not compute the value, or if it is made of anything that the caller may not read.
    """
    source = order_source(column)
    exposure = model.exposure
    rows = exposure.get_queryset(model.request).order_by()
    if exposure.opts.is_composite_pk or rows.query.is_sliced or rows.query.combinator:
        return None
    if column.order_field is None and source not in rows.query.annotation_select:
        return None
    try:
        rows = rows.annotate(**{VALUE: F(source) if isinstance(source, str) else source})
        found = rows.query.annotations[VALUE]
        field = found.output_field
    except (FieldError, TypeError, ValueError):
        return None
    if not Reading(model, rows).allows(found) or (column.shows_truth and kind_of(field).word != "boolean"):
        return None
    if kind_of(field).word == "decimal" and field.decimal_places is None:
        field = DecimalField(max_digits=MAX_DIGITS, decimal_places=PLACES)
    value = Subquery(rows.filter(pk=OuterRef(pk)).values(VALUE)[:1], output_field=field)
    return FieldColumn(column.name, field=field), value


class Reading:
    """Decides whether a caller could read all columns and rows that a computed column is made of.

    With ``has_own``, all columns of the row itself count as readable.
    """

    def __init__(self, model: ModelAccess, rows: QuerySet[Any], *, has_own: bool = False) -> None:
        self.model = model
        self.access = model.access
        self.exposure = model.exposure
        self.has_own = has_own
        self.query: Any = rows.query
        # Aliases of the tables that hold the row itself: the model's and those of its parents.
        self.own = {self.query.get_initial_alias()}
        for alias, join in self.query.alias_map.items():
            field = getattr(join, "join_field", None)
            if isinstance(field, ForeignKey) and field.remote_field.parent_link and join.parent_alias in self.own:
                self.own.add(alias)

    def allows(self, expression: Any, *, nested: bool = False) -> bool:
        """Return whether the caller could read a computed column's expression; ``nested`` allows subqueries in it."""
        parts = list(parts_of(expression))
        inner = [part for part in parts if isinstance(part, Query)]
        columns = [part for part in parts if isinstance(part, Col)]
        if any(isinstance(part, _OPAQUE) for part in parts) or not all(nested and self._query(part) for part in inner):
            return False
        if not all(self._field(column.target, column.alias in self.own) for column in columns):
            return False
        several = expression.contains_aggregate
        if several:
            # An aggregate also counts the rows of joins that were made for other reasons.
            joins = {alias for alias, count in self.query.alias_refcount.items() if count}
        else:
            joins = {alias for column in columns for alias in self._way_to(column.alias)}
        return all(self._join(self.query.alias_map[alias], several) for alias in joins - self.own)

    def _way_to(self, alias: str) -> Iterator[str]:
        """Yield the joined tables that a computed column uses, between the model's own table and this one."""
        while getattr(self.query.alias_map[alias], "parent_alias", None) is not None:
            yield alias
            alias = self.query.alias_map[alias].parent_alias

    def _query(self, query: Any) -> bool:
        """Return whether the caller could read the columns and rows of a subquery in the computed column."""
        if not all(isinstance(name, str) for name in query.order_by):
            return False
        names = [name.lstrip("+-") for name in query.order_by]
        sorted_by = [resolve_path(query.model, name) for name in names]
        tables = [alias for alias, count in query.alias_refcount.items() if count]
        if len(tables) > 1 or query.combinator or not self._all_rows(query.model) or None in sorted_by:
            return False
        parts = [part for item in (*query.select, *query.annotations.values(), query.where) for part in parts_of(item)]
        columns = [part for part in parts if isinstance(part, Col)]
        inside = [column.target for column in columns if column.alias in query.alias_map]
        inside += [path.field for path in sorted_by if path is not None and "__" not in path.column]
        outside = [column for column in columns if column.alias not in query.alias_map]
        return (
            not any(isinstance(part, (*_OPAQUE, Query)) for part in parts)
            and not any("__" in name for name in names)
            and all(self._field(target, False) for target in inside)
            and all(column.alias in self.own and self._field(column.target, True) for column in outside)
        )

    def _join(self, join: Any, several: bool) -> bool:
        """Return whether the caller could follow a join of the computed column to rows that are all open to them."""
        field = join.join_field
        key = field if isinstance(field, ForeignKey) else getattr(field, "field", None)
        if join.filtered_relation is not None or not isinstance(key, ForeignKey) or not is_joinable(key):
            return False
        if field is not key and not several and not key.unique:
            return False
        if not self._field(key, field is key and join.parent_alias in self.own):
            return False
        return bool(field.related_model._meta.auto_created) or self._all_rows(field.related_model)

    def _all_rows(self, model: Any) -> bool:
        related = self.access.model_of(model)
        return related is not None and related.sees_every_row

    def _field(self, field: Any, is_own: bool) -> bool:
        """Return whether the caller reads a field of the computed column as it is stored: here, or on all its rows."""
        owner = field.model._meta.auto_created
        if owner:
            # The link table of a many-to-many relation can be read if the relation can.
            relation = next(item for item in owner._meta.local_many_to_many if item.remote_field.through is field.model)
            there = self.model if issubclass(self.exposure.model, owner) else self.access.model_of(owner)
            if there is None or there.field_named(relation.name) is None:
                return False
            leads_to = field.related_model
            return leads_to is not None and (issubclass(self.exposure.model, leads_to) or self._all_rows(leads_to))
        if is_own and self.has_own:
            return True
        there = self.model if is_own else self.access.model_of(field.model)
        if there is None or not (is_own or there.sees_every_row):
            return False
        column = there.column_named(field.name)
        return column is not None and column.is_countable()
