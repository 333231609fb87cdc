"""Compiled queries: SQL that Django compiles once for a queryset, and that runs many times with other parameters.

Building a queryset, its SQL and model instances is most of what a page costs. A compiled query keeps the SQL that
Django's compiler wrote for one shape (columns, filters, order, limit) with numbered slots where the values go. A call
binds its values, runs the SQL with a cursor and applies Django's own converters. No SQL is written here.

The project's ``get_queryset`` runs for each call. It usually returns a query of the same structure with other values:
the rows of this user, or the rows since some time. The structure is part of the cache key of the compiled query, and
the values fill its slots. A query has no shape, and is compiled for each call, if it contains anything whose SQL is not
known to be the same for all values.

All of this rests on internals of Django. :meth:`CompiledQuery.is_on` says whether compiled queries are used at all:
without them the ORM runs the same querysets and gives the same rows.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import count
from typing import Any, ClassVar, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from django.core.exceptions import EmptyResultSet, ValidationError
from django.core.signals import setting_changed
from django.db import connections, router
from django.db.models import DateField, F, Field, FloatField, Func, Model, Q, QuerySet, TimeField, lookups
from django.db.models.expressions import Col, Expression
from django.db.models.fields import related_lookups
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor
from django.db.models.lookups import Exact, In
from django.db.models.query import ModelIterable
from django.db.models.sql.datastructures import BaseTable, Join
from django.db.models.sql.query import Query
from django.db.models.sql.where import WhereNode

from ..conf import settings
from ..conf.tested_versions import is_newer_than_tested
from ..context.databases import Collation, gives_lost_dates
from ..exceptions import ToolError
from ..exposures.querysets import follows_every_row, is_plain
from .fields import stored_field
from .sqlite_converters import Converter, as_read, converters_of
from .undecodable_values import UNDECODABLE, is_undecodable, salvaged_rows

MAX_COMPILED: Final = 1000


# Parameters


class Slot(int):
    """The place of one parameter: an index into the values of a call."""


class Bind(Expression):
    """A parameter of a query: a :class:`Slot` that each call fills, or a value prepared for the database."""

    def __init__(self, param: Any) -> None:
        super().__init__(output_field=None)
        self.param = param

    @classmethod
    def slot(cls, number: int) -> "Bind":
        """Return the parameter that is the value of this number of a call."""
        return cls(Slot(number))

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """Return the placeholder and the parameter."""
        return "%s", [self.param]

    def get_group_by_cols(self) -> list[Any]:
        """Return nothing: rows are not grouped by a parameter."""
        return []


class AsStored(Func):
    """A value in the form in which the database stores it, to be bound again as a parameter.

    Python values are not enough for that: the type of a column can differ from that of its field (``inspectdb``), and
    then the driver or Django's converters make another value of it. PostgreSQL gives the text of the value, which it
    reads back in the type of the column that it is compared with. SQLite gives the value that it stores: the sign
    takes the declared type from the column, by which the driver would convert it. Others give the driver's value.
    """

    arity = 1
    template = "%(expressions)s"

    def __init__(self, expression: Any) -> None:
        # A field without a type has no converters.
        super().__init__(expression, output_field=Field())

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="(%(expressions)s)::text", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="+(%(expressions)s)", **extra)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Of a single-precision number, MySQL shows six digits, which no row equals. As a double, it has all of them.
        (source,) = self.get_source_expressions()
        template = self.template
        if isinstance(source.output_field, FloatField):
            template = "(%(expressions)s) + 0e0"
        elif isinstance(source.output_field, (DateField, TimeField)):
            # A driver makes NULL of a date such as 0000-00-00, by which MySQL sorts.
            template = "CAST(%(expressions)s AS CHAR)"
        elif isinstance(source, Col) and Collation(connection.alias).is_numbered(source.target):
            # Texts that are sorted by numbers: with a number, MySQL compares the number.
            template = "(%(expressions)s) + 0"
        return self.as_sql(compiler, connection, template=template, **extra)


class BoundIn(In):
    """The lookup ``IN`` with one parameter, as in :class:`Bind`, for each item of ``rhs``."""

    prepare_rhs = False

    def get_prep_lookup(self) -> Any:
        """Return the parameters as they are."""
        return self.rhs

    def process_rhs(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """Return the placeholders and the parameters."""
        return "(" + ", ".join(["%s"] * len(self.rhs)) + ")", list(self.rhs)

    def get_rhs_op(self, connection: Any, rhs: str) -> str:
        """Return the operator."""
        return f"IN {rhs}"


def prepare(field: Any, value: Any, using: str) -> Any:
    """Return a value of a field as the database driver takes it for a parameter.

    Raises ``ToolError`` for a value that the field or the driver does not take.
    """
    connection = connections[using]
    try:
        stored = stored_field(field)
        # In two steps, as Django's lookups do: in one, some fields check whether the value may be stored in a new row.
        found = stored.get_db_prep_value(stored.get_prep_value(value), connection, prepared=True)
        # SQLite stores a duration as an integer, and its driver only takes 64-bit integers.
        if connection.vendor == "sqlite" and isinstance(found, int) and not -(2**63) <= found < 2**63:
            raise OverflowError
    except (ValueError, ArithmeticError, TypeError, ValidationError):
        raise ToolError(f"{str(value)[:60]!r} is out of range.") from None
    return found


# Compiled queries


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CompiledQuery:
    """``sql`` with ``params``, of which each :class:`Slot` is replaced by a value of the call.

    ``select`` are the columns of the result, whose converters turn the driver's values into Python values; the
    compiler's ``klass_info`` and ``annotation_col_map`` assign them to the fields of instances. ``sql`` is None if
    Django proved that there are no rows. ``has_own_params`` says that the queryset brought values of its own, which may
    be the caller's. ``names`` are the names of the parameters, None if the parameters are positional.
    """

    sql: str | None
    params: tuple[Any, ...]
    select: Sequence[Any]
    has_own_params: bool
    names: tuple[str, ...] | None = None
    klass_info: Any = None
    annotation_col_map: Any = None

    @staticmethod
    @cache
    def is_on() -> bool:
        """Return whether queries are compiled: ``COMPILED_QUERIES`` is on, and Django is a release that was tested."""
        return bool(settings.COMPILED_QUERIES) and not is_newer_than_tested()

    @staticmethod
    def for_query(query: Any, using: str) -> "CompiledQuery":
        """Compile a query with Django's own SQL compiler, for its database."""
        compiler: Any = query.get_compiler(using=using)
        try:
            sql, params = compiler.as_sql()
        except EmptyResultSet:
            return CompiledQuery(None, (), (), False)
        return CompiledQuery.for_sql(compiler, sql, params)

    @staticmethod
    def for_sql(compiler: Any, sql: str, params: Sequence[Any]) -> "CompiledQuery":
        """Return the compiled query for SQL that a compiler of Django has written, with its parameters."""
        names = None
        # On SQLite, Django searches all of the SQL for positional placeholders on each run, so name them. This only
        # works if each percent sign belongs to a placeholder.
        rest = sql.replace("%%", "") if compiler.connection.vendor == "sqlite" else ""
        if rest and rest.count("%") == rest.count("%s") == len(params):
            names = tuple(f"p{number}" for number in range(len(params)))
            sql = sql.replace("%%", "%%%%") % tuple(f"%({name})s" for name in names)
        has_own_params = any(type(param) is not Slot for param in params)
        known = compiler.klass_info, compiler.annotation_col_map
        return CompiledQuery(sql, tuple(params), compiler.select, has_own_params, names, *known)

    @staticmethod
    def for_values(queryset: QuerySet[Any], using: str) -> "CompiledQuery":
        """Compile a query of ``values_list`` rows from a queryset whose filters may hold :class:`Bind` expressions."""
        query: Any = queryset.query.chain()
        # Only if the columns come first, in their order, and the annotations after them.
        if not query.distinct and list((query.selected or {}).values()) == [
            *range(len(query.select)),
            *query.annotation_select,
        ]:
            query.select = tuple(as_read(column, using) for column in query.select)
            # Without names: ORDER BY the name of a column would sort the text of as_read(), for which there is no
            # index.
            query.selected = None
        return CompiledQuery.for_query(query, using)

    @staticmethod
    def for_key(key: Hashable, build: "Callable[[], CompiledQuery]") -> "CompiledQuery":
        """Return the compiled query of a key from the cache; ``build`` compiles it when it is not there.

        A query with values outside its slots is not cached, because they may belong to one caller.
        """
        with _lock:
            plan = _plans.get(key)
            if plan is not None:
                _plans.move_to_end(key)
                return plan
        plan = build()
        if not plan.has_own_params:
            with _lock:
                _plans[key] = plan
                while len(_plans) > MAX_COMPILED:
                    _plans.popitem(last=False)
        return plan

    def run(self, using: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run the query with values of :func:`prepare`, and return its rows as tuples of Python values."""
        return list(zip(*self.columns(using, values), strict=True))

    def columns(self, using: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Run the query and return its result by column; no columns where there are no rows."""
        if self.sql is None:
            return []
        connection: Any = connections[using]
        # Without the block LostDatesAsText: each call runs some of these queries.
        token = gives_lost_dates.set(True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(self.sql, self._bound(values))
                found: list[Sequence[Any]] = list(zip(*cursor.fetchall(), strict=True))
        finally:
            gives_lost_dates.reset(token)
        for position, functions, expression in _converters(self, connection) if found else ():
            for function in functions:
                found[position] = function(found[position], expression, connection)
        return found

    def write(self, using: str, values: Sequence[Any]) -> int:
        """Run a query that writes, such as an ``UPDATE``, and return how many rows it changed."""
        assert self.sql is not None
        with connections[using].cursor() as cursor:
            cursor.execute(self.sql, self._bound(values))
            return int(cursor.rowcount)

    def insert(self, using: str, values: Sequence[Any]) -> int:
        """Run an ``INSERT`` of one row, and return the number that the database gave it as its key."""
        assert self.sql is not None
        connection: Any = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, self._bound(values))
            # The drivers of PostgreSQL know no last row: there, the statement returns the key.
            if connection.vendor == "postgresql":
                return int(cursor.fetchone()[0])
            return int(cursor.lastrowid)

    def _bound(self, values: Sequence[Any]) -> list[Any] | dict[str, Any]:
        params = [values[param] if type(param) is Slot else param for param in self.params]
        if self.names is None:
            return params
        return dict(zip(self.names, params, strict=True))

    def instances(self, using: str, values: Sequence[Any], queryset: QuerySet[Any]) -> list[Model] | None:
        """Run the query and return instances like those of ``queryset``; None if a value cannot be decoded.

        Django's ``ModelIterable`` makes the instances, with their related ones, from the rows.
        """
        columns = self.columns(using, values)
        if any(value is UNDECODABLE for column in columns for value in column):
            return None
        rows: Any = _QuerySetStandIn(self, using, list(zip(*columns, strict=True)), queryset)
        return list(ModelIterable(rows)) if columns else []


class _QuerySetStandIn:
    """Stands in for queryset, query and compiler at once, from which ``ModelIterable`` takes what it needs.

    It has the rows of a compiled query, which have been read.
    """

    _known_related_objects: ClassVar[dict[Any, Any]] = {}

    def __init__(self, plan: CompiledQuery, using: str, rows: list[Any], queryset: Any) -> None:
        self.db = using
        self.model = queryset.model
        self.rows = rows
        self.select = plan.select
        self.klass_info = plan.klass_info
        self.annotation_col_map = plan.annotation_col_map
        # Django 6.1: how fields and relations that were not loaded are fetched.
        self._fetch_mode = getattr(queryset, "_fetch_mode", None)

    @property
    def query(self) -> "_QuerySetStandIn":
        return self

    def get_compiler(self, using: str) -> "_QuerySetStandIn":
        return self

    def execute_sql(self, **options: Any) -> None:
        """Do nothing: the rows have been read."""

    def results_iter(self, results: None) -> Iterator[Any]:
        return iter(self.rows)


def _converters(plan: CompiledQuery, connection: Any) -> list[tuple[int, list[Converter], Any]]:
    """Return the converters of a compiled query's columns, kept with the connection to which they belong."""
    kept: Any = getattr(connection, "_mcp_converters", None)
    if kept is None:
        kept = connection._mcp_converters = WeakKeyDictionary()
    found: list[tuple[int, list[Converter], Any]] | None = kept.get(plan)
    if found is None:
        columns = [(position, *converters_of(column[0], connection)) for position, column in enumerate(plan.select)]
        found = kept[plan] = [column for column in columns if column[1]]
    return found


# The cache

_plans: OrderedDict[Hashable, CompiledQuery] = OrderedDict()
_lock = threading.Lock()


def clear(**kwargs: Any) -> None:
    """Empty the cache of compiled queries, which frees memory: new exposures of a registry have new keys."""
    CompiledQuery.is_on.cache_clear()
    with _lock:
        _plans.clear()


setting_changed.connect(clear)


# Rows that become instances


def compiled_instances(
    queryset: QuerySet[Any], key: Hashable, params: Sequence[Any], narrow: Callable[[QuerySet[Any]], QuerySet[Any]]
) -> list[Model] | None:
    """Return the instances of ``narrow(queryset)`` by a compiled query; None if Django has to run the queryset itself.

    ``key`` identifies ``narrow`` in the cache; ``params`` fill the first slots.
    """
    using = queryset.db
    own = shape_of_instances(queryset, using)
    if own is None:
        return None

    def build() -> CompiledQuery:
        return CompiledQuery.for_query(narrow(with_slots(queryset, len(params))).query, using)

    plan = CompiledQuery.for_key(("instances", queryset.model, using, own.key, key), build)
    return plan.instances(using, [*params, *own.values], queryset)


def first_rows(queryset: QuerySet[Any], limit: int) -> list[Model]:
    """Read the first rows of a queryset, by a compiled query if possible, with as much of each as can be decoded."""
    query: Any = queryset.query
    found = None
    if all(isinstance(name, str) for name in query.order_by):
        key = ("first", query.order_by, query.default_ordering, limit)
        try:
            found = compiled_instances(queryset, key, (), lambda rows: rows[:limit])
        except Exception as error:
            if not is_undecodable(error):
                raise
    if found is None:
        return salvaged_rows([queryset], queryset, limit)
    return found


def key_params(opts: Any, key: Any, using: str) -> list[Any]:
    """Return the parts of a primary key as parameters for :func:`by_key`."""
    fields = opts.pk_fields
    parts = [key] if len(fields) == 1 else key
    return [prepare(field, part, using) for field, part in zip(fields, parts, strict=True)]


def by_key(opts: Any) -> Q:
    """Return the condition that the primary key equals the first slots."""
    condition = Q()
    for index, field in enumerate(opts.pk_fields):
        condition &= Q(Exact(F(field.attname), Bind.slot(index)))
    return condition


def row_by_key(queryset: QuerySet[Any], key: Any) -> list[Model] | None:
    """Return the row with a primary key, if there is one, by a compiled query; None if the queryset has no shape."""
    opts = queryset.model._meta
    params = key_params(opts, key, queryset.db)
    return compiled_instances(queryset, "pk", params, lambda rows: rows.filter(by_key(opts)).order_by()[:1])


def load_related(row: Model, field: Any) -> None:
    """Load the row of a foreign key by a compiled query, where Django's own attribute would load the same row."""
    related: Any = field.related_model
    own = type(getattr(type(row), field.name, None)) is ForwardManyToOneDescriptor
    if not own or not follows_every_row(related) or len(field.foreign_related_fields) != 1 or field.is_cached(row):
        return
    rows = related._base_manager.using(router.db_for_read(related, instance=row))
    target: Any = field.target_field
    try:
        params = [prepare(target, getattr(row, field.attname), rows.db)]
    except ToolError:
        return
    condition = Q(Exact(F(target.attname), Bind.slot(0)))
    found = compiled_instances(rows, target, params, lambda rows: rows.filter(condition).order_by()[:1])
    if found:
        field.set_cached_value(row, found[0])


# The structure of a queryset

# Django's lookups that write one placeholder for one value, whatever the value.
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
# Maximum number of items of a list that is compiled once: each length is a shape of its own.
MAX_LIST: Final = 100
# Attributes of a query that are part of the shape or follow from it, and those that a page sets anew: the order and
# the columns. If any other attribute differs from a new query's, the query has no shape.
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
    """The structure of a queryset, as a key, and its values, prepared for the database."""

    key: Hashable
    values: Sequence[Any]


class _Unknown(Exception):
    """Raised for a part of a query that cannot be compiled once, since its SQL may depend on its values."""


def shape_of(queryset: QuerySet[Any], using: str) -> Shape | None:
    """Return the shape of a queryset, as the key of its compiled query.

    Return None where the SQL may depend on the values, and if compiled queries are off.
    """
    if not CompiledQuery.is_on():
        return None
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


def shape_of_instances(queryset: QuerySet[Any], using: str) -> Shape | None:
    """Return the shape of a queryset of instances that come from its SQL alone, None for one without a shape."""
    rows: Any = queryset
    if rows._iterable_class is not ModelIterable or rows._prefetch_related_lookups or rows._known_related_objects:
        return None
    shape = shape_of(queryset, using)
    if shape is None:
        return None
    names, is_defer = rows.query.deferred_loading
    return Shape((shape.key, _frozen(rows.query.select_related), frozenset(names), is_defer), shape.values)


def _frozen(related: Any) -> Any:
    if isinstance(related, dict):
        return tuple((name, _frozen(inner)) for name, inner in related.items())
    return related


def _join(join: Any) -> Hashable:
    if type(join) is BaseTable:
        return join.table_alias, join.table_name
    if type(join) is not Join or join.filtered_relation is not None:
        raise _Unknown
    return join.table_alias, join.table_name, join.parent_alias, join.join_type, join.join_field, join.nullable


def _condition(node: Any, connection: Any, values: list[Any]) -> Hashable:
    """Return the structure of a WHERE clause; its values are added to ``values``.

    Raises ``_Unknown`` if its SQL may depend on them.
    """
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
    """Return whether Django writes the usual SQL: for an integer outside the column's range it writes another."""
    looks = issubclass(type(lookup), lookups.IntegerFieldOverflow)
    if not looks or not isinstance(lookup.rhs, int):
        return True
    least, most = connection.ops.integer_field_range(lookup.lhs.output_field.get_internal_type())
    return (least is None or least <= lookup.rhs) and (most is None or lookup.rhs <= most)


def _members(lookup: Any) -> list[Any]:
    """Return the unique items of an ``IN`` lookup; none for NULL, too many items or a subquery."""
    found = lookup.rhs
    if not isinstance(found, list | tuple | set | frozenset) or not all(isinstance(item, _VALUES) for item in found):
        return []
    unique = list(dict.fromkeys(found))
    return unique if len(unique) <= MAX_LIST else []


def with_slots(queryset: QuerySet[Any], first: int) -> QuerySet[Any]:
    """Return the queryset to compile once, with slots in place of its values, numbered from ``first``."""
    rows = queryset.all()
    slots = (Slot(number) for number in count(first))
    rows.query.where = _bound(rows.query.where, slots)
    return rows


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
