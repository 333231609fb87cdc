"""Separate the structure of a project's own query from its values.

A ``get_queryset`` of the project's own is asked for each call. Mostly it gives a query of the same structure with other
values: the rows of this user, the rows since a moment. The structure is the key by which its plan is kept
(:mod:`mcp_django.orm.plans`), and the values fill slots of it. A query with anything that is not known here to have
one SQL for all values has no shape: it is compiled for each call.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet, lookups
from django.db.models.expressions import Col
from django.db.models.fields import related_lookups
from django.db.models.sql.datastructures import BaseTable, Join
from django.db.models.sql.query import Query
from django.db.models.sql.where import WhereNode

from .managers import is_plain
from .plans import Bind, BoundIn, Slot

# Lookups of Django's that write one placeholder for one value, whichever that is.
_SINGLE: Final = frozenset(
    {
        *(lookups.Exact, lookups.GreaterThan, lookups.GreaterThanOrEqual, lookups.LessThan, lookups.LessThanOrEqual),
        *(lookups.IntegerFieldExact, lookups.IntegerGreaterThan, lookups.IntegerGreaterThanOrEqual),
        *(lookups.IntegerLessThan, lookups.IntegerLessThanOrEqual),
        *(related_lookups.RelatedExact, related_lookups.RelatedGreaterThan, related_lookups.RelatedLessThan),
        *(related_lookups.RelatedGreaterThanOrEqual, related_lookups.RelatedLessThanOrEqual),
    }
)
_LISTS: Final = frozenset({lookups.In, related_lookups.RelatedIn})
_NULLS: Final = frozenset({lookups.IsNull, related_lookups.RelatedIsNull})
_EXACT: Final = frozenset({lookups.Exact, related_lookups.RelatedExact})
_VALUES: Final = (str, int, float, Decimal, date, time, timedelta, UUID)
# A longer list is compiled each time: each length is a shape.
MAX_LIST: Final = 100
# Attributes of a query that are in the shape or follow from what is, and those that a page sets anew: its order and its
# columns. Whatever else differs from a fresh query is unknown.
_READ: Final = frozenset(
    {
        *("alias_map", "alias_refcount", "base_table", "distinct", "model", "table_map", "used_aliases", "where"),
        *("default_ordering", "deferred_loading", "filter_is_sticky", "max_depth", "order_by", "select_related"),
        "_lookup_joins",
    }
)
_FRESH: Final[Mapping[str, Any]] = vars(Query(None))
_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of a query, and the values of it, prepared for the database."""

    key: Hashable
    values: Sequence[Any]


class _Unknown(Exception):
    """There is something in the query of which it is not known what its SQL depends on."""


def shape_of(queryset: QuerySet[Any], using: str) -> Shape | None:
    """Return the shape of a queryset, None where it has none."""
    query: Any = queryset.query
    if type(query) is not Query or not is_plain(type(queryset)) or queryset._fields is not None:  # type: ignore[attr-defined]
        return None
    for name, value in vars(query).items():
        if name not in _READ and value != _FRESH.get(name, getattr(Query, name, _UNKNOWN)):
            return None
    values: list[Any] = []
    try:
        where = _condition(query.where, connections[using], values)
        joins = tuple(map(_join, query.alias_map.values()))
    except _Unknown:
        return None
    counts = tuple(query.alias_refcount.items())
    return Shape((type(queryset), joins, counts, frozenset(query.used_aliases), query.distinct, where), values)


def _join(join: Any) -> Hashable:
    if type(join) is BaseTable:
        return join.table_alias, join.table_name
    if type(join) is not Join or join.filtered_relation is not None:
        raise _Unknown
    return join.table_alias, join.table_name, join.parent_alias, join.join_type, join.join_field, join.nullable


def _condition(node: Any, connection: Any, values: list[Any]) -> Hashable:
    """Return the structure of a condition; its values are added to those that are known."""
    kind = type(node)
    if kind is WhereNode:
        parts = tuple(_condition(child, connection, values) for child in node.children)
        return node.connector, node.negated, parts
    if type(getattr(node, "lhs", None)) is not Col or node.bilateral_transforms:
        raise _Unknown
    column = (kind, node.lhs.alias, node.lhs.target, node.lhs.output_field)
    if kind in _NULLS or (kind in _EXACT and type(node.rhs) is bool):
        return *column, bool(node.rhs)
    if kind in _SINGLE and isinstance(node.rhs, _VALUES) and _is_in_range(node, connection):
        values += node.get_db_prep_lookup(node.rhs, connection)[1]
        return *column, type(node.rhs)
    if kind in _LISTS and (found := _members(node)):
        values += node.get_db_prep_lookup(found, connection)[1]
        return *column, len(found)
    raise _Unknown


def _is_in_range(lookup: Any, connection: Any) -> bool:
    """Return whether the value is one that the column can have: others make a comparison always true, or never."""
    looks = issubclass(type(lookup), lookups.IntegerFieldOverflow)
    if not looks or not isinstance(lookup.rhs, int):
        return True
    least, most = connection.ops.integer_field_range(lookup.lhs.output_field.get_internal_type())
    return (least is None or least <= lookup.rhs) and (most is None or lookup.rhs <= most)


def _members(lookup: Any) -> list[Any]:
    """Return what is in the list, each once and without NULL, as Django does; nothing for what is not a list."""
    found = lookup.rhs
    if not isinstance(found, list | tuple | set | frozenset) or not all(isinstance(item, _VALUES) for item in found):
        return []
    unique = list(dict.fromkeys(found))
    return unique if len(unique) <= MAX_LIST else []


def with_slots(queryset: QuerySet[Any], first: int) -> QuerySet[Any]:
    """Return the queryset with slots in place of the values of its shape, numbered from ``first``."""
    rows = queryset.all()
    slots = (Slot(number) for number in _count(first))
    rows.query.where = _bound(rows.query.where, slots)
    return rows


def _count(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def _bound(node: Any, slots: Iterator[Slot]) -> Any:
    if type(node) is WhereNode:
        return WhereNode([_bound(child, slots) for child in node.children], node.connector, node.negated)
    if type(node) in _LISTS:
        return BoundIn(node.lhs, tuple(next(slots) for _ in _members(node)))
    if type(node) in _NULLS or type(node.rhs) is bool:
        return node
    bound = copy(node)
    bound.rhs = Bind(next(slots))
    return bound
