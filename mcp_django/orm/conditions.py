"""The conditions of a query as SQL that is the same for all of their values, which plans keep."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from django.db import connections
from django.db.models import Exists, F, IntegerField, Q, QuerySet, Subquery, Value, lookups
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from .access import has_every_row
from .kinds import is_file_field, stored_field
from .lookups import Condition, Filter, Junction, Quantified
from .path import linked
from .plans import Bind, BoundIn, prepare

COMPARISONS: Final[Mapping[str, type[Any]]] = {
    "exact": Exact,
    "gt": GreaterThan,
    "gte": GreaterThanOrEqual,
    "lt": LessThan,
    "lte": LessThanOrEqual,
}

# Of texts: these take a pattern, which is made of the value before it is bound.
TEXTS: Final[Mapping[str, type[Any]]] = {
    "iexact": lookups.IExact,
    "contains": lookups.Contains,
    "icontains": lookups.IContains,
    "startswith": lookups.StartsWith,
    "istartswith": lookups.IStartsWith,
    "endswith": lookups.EndsWith,
    "iendswith": lookups.IEndsWith,
}

# Holds for every row, also as a part of another condition, where one without parts would be left out.
TRUE: Final = ~Q(pk__in=())


def is_plannable(item: Filter) -> bool:
    """Return whether the filter has the same SQL for all of its values."""
    if isinstance(item, Condition):
        path = item.path
        is_plain = not path.many and not path.guards and path.expression is None
        return is_plain and _is_bindable(path.field, item.lookup)
    if isinstance(item, Quantified) and not has_every_row(item.link.exposure):
        return False
    return isinstance(item, (Junction, Quantified)) and all(map(is_plannable, item.parts))


def places(item: Filter) -> int:
    """Return the number of slots: lists are filled up to a power of two, which bounds the number of shapes."""
    if not isinstance(item, Condition):
        parts = sum(map(places, item.parts)) if isinstance(item, (Junction, Quantified)) else 0
        return parts + len(item.values) if isinstance(item, Quantified) else parts
    if item.lookup == "isnull":
        return 0
    count = len(item.values)
    return 1 << (count - 1).bit_length() if item.lookup == "in" else count


def condition_shape(item: Filter) -> Hashable:
    """Return what the SQL of the filter depends on, where it is plannable."""
    if isinstance(item, Quantified):
        link = (item.link.name, item.link.exposure, item.quantifier, item.lookup)
        return (*link, tuple(map(condition_shape, item.parts)))
    if not isinstance(item, Condition):
        return (item.connector, tuple(map(condition_shape, item.parts))) if isinstance(item, Junction) else ()
    detail = item.values[0] if item.lookup == "isnull" else places(item)
    return item.path.column, item.lookup, detail


def condition_values(item: Filter, using: str) -> list[Any]:
    """Return the values of the filter's slots."""
    if not isinstance(item, Condition):
        parts = item.parts if isinstance(item, (Junction, Quantified)) else ()
        found = [value for part in parts for value in condition_values(part, using)]
        return [*found, *item.values] if isinstance(item, Quantified) else found
    if item.lookup == "isnull":
        return []
    if item.lookup in TEXTS:
        return [_pattern(item.lookup, item.values[0], using)]
    found = [prepare(item.path.field, value, using) for value in item.values]
    return found + found[-1:] * (places(item) - len(found))


def bound_condition(item: Filter, params: Sequence[Any], negated: bool = False) -> Q:
    """Return the filter with these parameters: slots, or the values that :func:`condition_values` gave.

    ``negated`` says that it stands below a ``not``: NULL is there false rather than unknown, as for Django's
    ``exclude``, so that a filter and its negation are all rows together.
    """
    if isinstance(item, Quantified):
        return _bound_quantified(item, params)
    if isinstance(item, Junction):
        negated = negated or item.connector == "not"
        parts, used = [], 0
        for part in item.parts:
            parts.append(bound_condition(part, params[used : used + places(part)], negated))
            used += places(part)
        return joined(item.connector, parts)
    assert isinstance(item, Condition)
    column = item.path.expression if item.path.expression is not None else F(item.path.column)
    if item.lookup == "isnull":
        return missing(item, column)
    found = _compared(item, column, params)
    return found & Q(IsNull(column, False)) if negated and item.path.nullable else found


def missing(item: Condition, column: Any) -> Q:
    """Return the condition ``isnull`` on a value; a file that is not there is stored as an empty text."""
    wanted = item.values[0]
    found = Q(IsNull(column, wanted))
    if not is_file_field(item.path.field):
        return found
    stored = Q(Exact(column, Value("")))
    return found | stored if wanted else found & ~stored


def _compared(item: Condition, column: Any, params: Sequence[Any]) -> Q:
    if item.lookup == "in":
        return Q(BoundIn(column, tuple(params)))
    if item.lookup == "range":
        first, last = params
        return Q(GreaterThanOrEqual(column, Bind(first))) & Q(LessThanOrEqual(column, Bind(last)))
    compare = _BOUND_TEXTS[item.lookup] if item.lookup in TEXTS else COMPARISONS[item.lookup]
    return Q(compare(column, Bind(params[0])))


def _bound_quantified(item: Quantified, params: Sequence[Any]) -> Q:
    # Of those that do not pass, those count whose verdict is unknown: a condition and its denial are all rows.
    denied = item.quantifier == "every"
    parts = Junction("and", item.parts)
    passes = bound_condition(Junction("not", item.parts) if denied else parts, params[: places(parts)])
    rows = linked(item.link)
    if denied and not item.parts:
        return TRUE
    return quantified(item, rows.filter(passes), Bind(params[-1]) if item.values else None)


class _BoundText:
    """Mixed into a lookup of Django's for texts: its pattern is a parameter."""

    rhs: Bind
    lookup_name: str

    def process_rhs(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Return the placeholder and the parameter."""
        return "%s", [self.rhs.param]

    def get_rhs_op(self, connection: Any, rhs: str) -> str:
        """Return what Django writes for a plain text."""
        return str(connection.operators[self.lookup_name] % rhs)


_BOUND_TEXTS: Final = {name: type(f"Bound{found.__name__}", (_BoundText, found), {}) for name, found in TEXTS.items()}


def _pattern(lookup: str, value: str, using: str) -> str:
    """Return what a text lookup of Django's makes of its value."""
    ops = connections[using].ops
    if lookup == "iexact":
        return str(ops.prep_for_iexact_query(value))
    return str(TEXTS[lookup].param_pattern % ops.prep_for_like_query(value))


@lru_cache(maxsize=4096)
def _is_bindable(field: Any, lookup: str) -> bool:
    """Return whether the lookup of the field is one of those that are written here, not one of the field's own."""
    if lookup in TEXTS:
        return stored_field(field).get_lookup(lookup) is TEXTS[lookup]
    return lookup in COMPARISONS or lookup in ("in", "range", "isnull")


class Some(Exists):
    """Whether a query has rows; unlike Django's, without a parameter of its own, which a plan could not keep."""

    def __init__(self, queryset: QuerySet[Any], **kwargs: Any) -> None:
        # Django's has it select a number in place of its columns, and that is a parameter.
        Subquery.__init__(self, queryset, **kwargs)

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the query as it is."""
        return Subquery.as_sql(self, compiler, connection, *args, **kwargs)


class Number(Subquery):
    """How many rows a query has."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) mcp_counted)"
    output_field = IntegerField()


def quantified(item: Quantified, rows: QuerySet[Any], number: Any) -> Q:
    """Return the condition on related rows: of ``every``, ``rows`` are those that do not pass, else those that do.

    Each is a subquery of its own, so that no row comes twice. ``number`` is what ``count`` is compared with.
    """
    keys = rows.order_by().values("pk")
    if item.quantifier == "count":
        return Q(COMPARISONS[item.lookup](Number(keys), number))
    return Q(Some(keys)) if item.quantifier == "some" else ~Q(Some(keys))


def joined(connector: str, parts: Sequence[Q]) -> Q:
    """Return the parts joined by ``and``, ``or``, or ``not``, which denies that all of them hold."""
    found = Q(*parts, _connector=Q.OR if connector == "or" else Q.AND)
    return ~found if connector == "not" else found
