"""The conditions of a filter expression: on columns, on related rows, between columns, joined by and, or and not.

Each becomes a ``Q``. If its SQL is the same for all values, the values are bound as parameters, so that the compiled
query can be kept. A condition through a relation only sees rows that the caller may view: the rows that a filter finds
must not reveal what a hidden row holds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any, ClassVar, Final, Literal

from django.db import connections, router
from django.db.models import (
    BooleanField,
    Case,
    DateTimeField,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    Model,
    Q,
    QuerySet,
    Value,
    When,
    lookups,
)
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, IsNull, LessThan, LessThanOrEqual, Regex
from django.db.models.sql import Query
from django.utils.tree import Node

from ..context.databases import LocalTimes
from ..exceptions import ToolError
from ..exposures.querysets import Keys, among
from .access import Link, ModelAccess
from .compiled_queries import Bind, BoundIn, prepare
from .fields import PARTS, FieldPath, is_file_field, stored_field
from .hidden_parts import WHOLE, can_hide_parts, hides_parts, with_no_part_hidden
from .named_filters import NamedFilter
from .path import Target
from .shown_texts import as_shown
from .subqueries import Number, Some

COMPARISONS: Final[Mapping[str, type[Any]]] = {
    "exact": Exact,
    "gt": GreaterThan,
    "gte": GreaterThanOrEqual,
    "lt": LessThan,
    "lte": LessThanOrEqual,
}
# Lookups of text: each takes a pattern, which is made from the value before it is bound.
TEXTS: Final[Mapping[str, type[Any]]] = {
    "iexact": lookups.IExact,
    "contains": lookups.Contains,
    "icontains": lookups.IContains,
    "startswith": lookups.StartsWith,
    "istartswith": lookups.IStartsWith,
    "endswith": lookups.EndsWith,
    "iendswith": lookups.IEndsWith,
}
# Matches every row. An empty Q() would not do: Django drops it within another condition.
TRUE: Final = ~Q(pk__in=())


class _BoundText:
    """Mixed into the classes of conditions on text, so that the condition's pattern is an SQL parameter."""

    rhs: Bind
    lookup_name: str

    def process_rhs(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Return the placeholder and the parameter."""
        return "%s", [self.rhs.param]

    def get_rhs_op(self, connection: Any, rhs: str) -> str:
        """Return what Django writes for a plain text."""
        return str(connection.operators[self.lookup_name] % rhs)


_BOUND: Final[Mapping[str, type[Any]]] = {
    **COMPARISONS,
    **{name: type(f"Bound{found.__name__}", (_BoundText, found), {}) for name, found in TEXTS.items()},
}


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The query that conditions become a ``Q`` for: on a model's rows that the caller may view, in a database.

    ``using`` is the alias of the database. ``params`` yields what the values of the conditions are bound to, such as
    slots; None for the values themselves.
    """

    model: ModelAccess
    using: str
    params: Iterator[Any] | None = None

    def bound(self, item: "Filter") -> list[Any]:
        """Return what the condition's own values are bound to: the next SQL parameters."""
        if self.params is None:
            return item.own_params(self.using)
        return list(islice(self.params, item.places))

    def all_of(self, items: "Sequence[Filter]", *, inside: bool = False) -> Q:
        """Return the ``Q`` for rows that meet all of the conditions."""
        return joined("and", [item.q(self, inside) for item in items])


class Filter(ABC):
    """A condition on rows, which becomes a ``Q``; the condition may have others within it (``parts``)."""

    __slots__ = ()
    parts: "tuple[Filter, ...]" = ()
    # Whether the parts are conditions on other rows, such as related ones.
    is_on_related: ClassVar[bool] = False
    # Whether the SQL of the condition is the same for all values.
    is_plannable: bool = False
    # Number of SQL parameters for the condition's own values.
    places: int = 0

    @abstractmethod
    def q(self, context: QueryContext, inside: bool = False) -> Q:
        """Return the condition as a ``Q``.

        ``inside`` says that the condition is below a ``not``, or below an ``or`` or a query on related rows that is not
        plannable. It is then an expression, which neither turns joins into inner joins nor depends on the joins of
        other parts, and NULL counts as false, so that a condition and its negation together match every row.
        """

    @abstractmethod
    def wording(self) -> list[Any]:
        """Return the condition as JSON, equal for equal ones, with relative dates as the client wrote them."""

    def shape(self) -> Hashable:
        """Return everything besides its values that the condition's SQL depends on."""
        return ()

    def own_params(self, using: str) -> list[Any]:
        """Return the condition's own values, prepared for the database."""
        return []

    def params(self, using: str) -> list[Any]:
        """Return the condition's values as SQL parameters: those of its parts, and its own."""
        return [*(value for part in self.parts for value in part.params(using)), *self.own_params(using)]

    def sort_key(self) -> tuple[str, ...]:
        """Return the key by which conditions are sorted."""
        return "", repr(self.wording())


@dataclass(frozen=True, slots=True)
class Condition(Filter):
    """A condition on one column: ``path`` compared by ``lookup`` with ``values``.

    ``given`` is what the client wrote if it is a relative date, whose values change with the clock.
    """

    path: FieldPath
    lookup: str
    values: tuple[Any, ...]
    given: Any = None

    @property
    def is_plannable(self) -> bool:  # type: ignore[override]
        path = self.path
        if path.many or path.guards or path.expression is not None or any(map(hides_parts, self.values)):
            return False
        return _is_bindable(path.field, self.lookup)

    @property
    def places(self) -> int:  # type: ignore[override]
        """The number of SQL parameters of the condition; a list is filled up to a power of two."""
        if self.lookup == "isnull":
            return 0
        count = len(self.values)
        if self.lookup == "in":
            return 1 << (count - 1).bit_length()
        return count

    @property
    def is_on_local_time(self) -> bool:
        """Whether the database computes a part of a time, such as its month; of most years Django makes bounds."""
        part, _, word = self.lookup.partition("__")
        is_computed = part in PARTS and (part != "year" or word in ("in", "range"))
        return is_computed and isinstance(stored_field(self.path.field), DateTimeField)

    def shape(self) -> Hashable:
        return self.path.column, self.lookup, self.values[0] if self.lookup == "isnull" else self.places

    def own_params(self, using: str) -> list[Any]:
        if self.lookup == "isnull":
            return []
        if self.lookup in TEXTS:
            return [_pattern(self.lookup, self.values[0], using)]
        found = [prepare(self.path.field, value, using) for value in self.values]
        return found + found[-1:] * (self.places - len(found))

    def q(self, context: QueryContext, inside: bool = False) -> Q:
        if self.path.many:
            return self._through_many(context, inside)
        return self._on(self.path.column, context, inside)

    def _on(self, name: str, context: QueryContext, inside: bool) -> Q:
        """Return the condition on one column as a ``Q``; column and comparison come from the model and a closed list.

        A value behind a hidden row counts as NULL: only ``isnull`` finds it.
        """
        path = self.path
        is_null = self.lookup == "isnull"
        column = path.expression if path.expression is not None else F(name)
        if any(map(hides_parts, self.values)) and context.model.exposure.options.hides_parts:
            # A text is compared as it is shown, and no text is shown with this part.
            left = tuple(value for value in self.values if not hides_parts(value))
            if left:
                return replace(self, values=left)._on(name, context, inside)
            return Q(pk__in=[])

        # First the comparison, with bound values where Django's own lookup takes them.
        if is_null and (not path.many or is_file_field(path.field)):
            found = self._missing(column)
        elif path.expression is not None or (not path.many and _is_bindable(path.field, self.lookup)):
            found = self._compared(column, context.bound(self))
        else:
            if self.is_on_local_time:
                LocalTimes(connections[context.using]).check()
            several = self.lookup.rpartition("__")[2] in ("in", "range")
            found = Q((f"{name}__{self.lookup}", list(self.values) if several else self.values[0]))
            if inside:
                found = Q(ExpressionWrapper(found, BooleanField()))

        # Then what the caller may not see: a hidden part of a text, a hidden row on the path.
        if self.lookup not in WHOLE and can_hide_parts(path.field) and context.model.exposure.options.hides_parts:
            found &= with_no_part_hidden(column, inside=inside)
        if inside and path.nullable and not is_null:
            found &= Q(IsNull(column, False))
        if path.guards:
            seen = Q(*path.guards)
            if inside:
                seen = Q(ExpressionWrapper(seen, BooleanField()))
            if is_null and self.values[0]:
                found = ~seen | found
            else:
                found = seen & found
        return found

    def _missing(self, column: Any) -> Q:
        """Return the condition ``isnull`` as a ``Q``; a file that is not there is stored as an empty text."""
        wanted = self.values[0]
        found = Q(IsNull(column, wanted))
        if not is_file_field(self.path.field):
            return found
        stored = Q(Exact(column, Value("")))
        if wanted:
            return found | stored
        return found & ~stored

    def _compared(self, column: Any, params: Sequence[Any]) -> Q:
        if self.lookup == "in":
            return Q(BoundIn(column, tuple(params)))
        if self.lookup == "range":
            first, last = params
            return Q(GreaterThanOrEqual(column, Bind(first))) & Q(LessThanOrEqual(column, Bind(last)))
        return Q(_BOUND[self.lookup](column, Bind(params[0])))

    def _through_many(self, context: QueryContext, inside: bool) -> Q:
        """Return the condition on a many-to-many relation as a subquery, so that no row comes twice.

        Only related rows that the caller may view count.
        """
        model = context.model
        root, _, rest = self.path.column.partition("__")
        field = model.exposure.opts.get_field(root)
        related = model.access.model_of(field.related_model)
        if related is None:
            return Q(pk__in=[])

        inner = self._on(rest or "pk", context, False)
        if inside:
            return Q(Exists(Link(root, field, related).rows().filter(inner)))
        targets = related.exposure.get_queryset(model.request).order_by().filter(inner)
        sources = model.exposure.model._base_manager.using(targets.db).filter(Q((f"{root}__in", targets.values("pk"))))
        return Q(pk__in=sources.values("pk"))

    def wording(self) -> list[Any]:
        values = [str(value) for value in self.values] if self.given is None else [self.given]
        return [self.path.column, self.lookup, values]

    def sort_key(self) -> tuple[str, ...]:
        return self.path.column, self.lookup, repr(self.values if self.given is None else self.given)


@dataclass(frozen=True, slots=True)
class Junction(Filter):
    """Conditions joined by ``and``, ``or`` or ``not``: all of the parts, any of them, or not all of them."""

    connector: Literal["and", "or", "not"]
    parts: tuple[Filter, ...]

    @property
    def is_plannable(self) -> bool:  # type: ignore[override]
        return all(part.is_plannable for part in self.parts)

    def shape(self) -> Hashable:
        return self.connector, tuple(part.shape() for part in self.parts)

    def q(self, context: QueryContext, inside: bool = False) -> Q:
        inside = inside or self.connector == "not" or (self.connector == "or" and not self.is_plannable)
        return joined(self.connector, [part.q(context, inside) for part in self.parts])

    def wording(self) -> list[Any]:
        return [self.connector, [part.wording() for part in self.parts]]


@dataclass(frozen=True, slots=True)
class Applied(Filter):
    """A condition that the project's own code applies, with the values that the client gave by their names."""

    source: NamedFilter
    values: Mapping[str, tuple[str, ...]]

    def q(self, context: QueryContext, inside: bool = False) -> Q:
        model = context.model
        rows = model.exposure.get_queryset(model.request).using(context.using)
        return among(self.source.narrow(rows, self.values))

    def wording(self) -> list[Any]:
        return ["", sorted([name, *values] for name, values in self.values.items())]


@dataclass(frozen=True, slots=True)
class Quantified(Filter):
    """A condition on how many related rows pass all of ``parts``: some, none, every one, or a count.

    ``link`` is the relation. With ``count``, the number is compared by ``lookup`` with ``values``. ``is_path`` says
    that the client wrote "some" as a path, which can share its row with others.
    """

    link: Link
    quantifier: Literal["some", "none", "every", "count"]
    parts: tuple[Filter, ...]
    lookup: str = ""
    values: tuple[int, ...] = ()
    is_path: bool = False
    is_on_related: ClassVar[bool] = True

    @property
    def is_plannable(self) -> bool:  # type: ignore[override]
        return self.link.exposure.options.has_every_row and all(part.is_plannable for part in self.parts)

    @property
    def places(self) -> int:  # type: ignore[override]
        return len(self.values)

    def shape(self) -> Hashable:
        link = (self.link.name, self.link.exposure, self.quantifier, self.lookup)
        return (*link, tuple(part.shape() for part in self.parts))

    def own_params(self, using: str) -> list[Any]:
        return list(self.values)

    def q(self, context: QueryContext, inside: bool = False) -> Q:
        if self.quantifier == "every" and not self.parts:
            return TRUE

        rows = self.link.rows()
        related = QueryContext(self.link.related, context.using, context.params)
        every = self.quantifier == "every"
        has_plan = self.is_plannable
        passes = related.all_of(self.parts, inside=every or not has_plan)

        # For "every", look for rows that fail. A row that compares with NULL fails too.
        if not every:
            rows = rows.filter(passes)
        elif has_plan:
            rows = rows.filter(~passes)
        else:
            verdict = Case(When(passes, then=Value(1)), default=Value(0), output_field=IntegerField())
            rows = rows.annotate(mcp_passes=verdict).filter(mcp_passes=0)

        # A subquery, because a join would repeat rows.
        keys = rows.order_by().values("pk")
        if self.quantifier == "count":
            return Q(COMPARISONS[self.lookup](Number(keys), Bind(context.bound(self)[0])))
        if self.quantifier == "some":
            return Q(Some(keys))
        return ~Q(Some(keys))

    def wording(self) -> list[Any]:
        number = [self.lookup, *self.values]
        return [self.link.name, self.quantifier, number, [part.wording() for part in self.parts]]


@dataclass(frozen=True, slots=True)
class Comparison(Filter):
    """A condition between two values of a row; ``parts`` are conditions on the rows of an aggregate."""

    left: Target
    lookup: str
    right: Target
    parts: tuple[Filter, ...] = ()
    is_on_related: ClassVar[bool] = True

    def q(self, context: QueryContext, inside: bool = False) -> Q:
        shown = as_shown if context.model.exposure.options.hides_parts else lambda text, field: text
        left, right = (shown(target.expression, target.column.field) for target in (self.left, self.right))
        found = Q(COMPARISONS[self.lookup](left, right))
        # Below a "not", a comparison with NULL must be false, not NULL.
        if inside:
            return found & Q(IsNull(left, False)) & Q(IsNull(right, False))
        return found

    def wording(self) -> list[Any]:
        return [self.left.name, self.lookup, self.right.name, *(part.wording() for part in self.parts)]


@lru_cache(maxsize=4096)
def _is_bindable(field: Any, lookup: str) -> bool:
    """Return whether the condition's values can be bound: its lookup is Django's own, not the field's."""
    if lookup in TEXTS:
        return stored_field(field).get_lookup(lookup) is TEXTS[lookup]
    return lookup in COMPARISONS or lookup in ("in", "range", "isnull")


def _pattern(lookup: str, value: str, using: str) -> str:
    """Return the pattern that a lookup of text takes, as Django makes it of the value."""
    ops = connections[using].ops
    if lookup == "iexact":
        return str(ops.prep_for_iexact_query(value))
    return str(TEXTS[lookup].param_pattern % ops.prep_for_like_query(value))


def joined(connector: str, parts: Sequence[Q]) -> Q:
    """Join conditions by ``and``, ``or``, or ``not``, which denies that all of them hold."""
    found = Q(*parts, _connector=Q.OR if connector == "or" else Q.AND)
    if connector == "not":
        return ~found
    return found


# Expressions


def conditions_of(filters: Sequence[Filter], *, related: bool = True) -> Iterator[Condition | Applied]:
    """Yield the single conditions within joined ones, also those on ``related`` rows."""
    for item in filters:
        if isinstance(item, (Condition, Applied)):
            yield item
        elif related or not item.is_on_related:
            yield from conditions_of(item.parts, related=related)


def left_open(found: Sequence[Filter], opening: Sequence[NamedFilter]) -> Iterator[Applied]:
    """Yield the conditions that apply by default, because the client chose no value for them."""
    chosen = {name for item in conditions_of(found, related=False) if isinstance(item, Applied) for name in item.values}
    for source in opening:
        if chosen.isdisjoint(source.names()):
            yield Applied(source, {})


def condition_hints(filters: Sequence[Filter], model: type[Model]) -> Iterator[str]:
    """Yield a hint that names the conditions which apply by default, without the client having asked for them, and one
    if conditions compare parts of times that the database does not convert to the time zone."""
    names = [name for item in filters if isinstance(item, Applied) and not item.values for name in item.source.names()]
    if names:
        yield f"As in the admin, the filter {', '.join(names)} applies by default: describe_model lists its choices."
    if any(isinstance(item, Condition) and item.is_on_local_time for item in conditions_of(filters)):
        text = LocalTimes(connections[router.db_for_read(model)]).unconverted_text
        if text:
            yield text


def is_moving(filters: Sequence[Filter]) -> bool:
    """Return whether the conditions hold for other rows at another time, as "last 30 days" does."""
    return any(isinstance(item, Condition) and item.given is not None for item in conditions_of(filters))


def in_fixed_order(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Sort conditions, so that their sequence does not depend on how the client wrote them."""
    if len(filters) > 1:
        return tuple(sorted(filters, key=lambda item: item.sort_key()))
    return tuple(filters)


# Rows


def plannable_params(filters: Sequence[Filter], using: str) -> list[Any]:
    """Return the SQL parameters of the conditions that have one SQL for all values."""
    return [value for item in filters if item.is_plannable for value in item.params(using)]


def plannable_shapes(filters: Sequence[Filter], using: str) -> tuple[tuple[Hashable, ...] | None, list[Any]]:
    """Return the shapes of all the conditions, None if the SQL of one depends on its values, and their parameters."""
    params = plannable_params(filters, using)
    plannable = [item for item in filters if item.is_plannable]
    if len(plannable) < len(filters):
        return None, params
    return tuple([item.shape() for item in plannable]), params


def filtered(
    model: ModelAccess, queryset: QuerySet[Any], filters: Sequence[Filter], params: Iterable[Any]
) -> QuerySet[Any]:
    """Return the rows that meet all conditions; ``params`` are slots for :func:`plannable_params`, or these values."""
    # Apply the project's filters first: they may run the queryset, which is possible only before it has slots.
    for item in filters:
        if isinstance(item, Applied):
            found = item.source.narrow(queryset, item.values)
            check_patterns(found, _texts(item))
            queryset = found if is_part_of(found, queryset) else queryset.filter(pk__in=Keys.of(found))

    # Then the conditions: values are bound to parameters where the SQL is the same for all of them.
    bound = QueryContext(model, queryset.db, iter(params))
    for item in filters:
        if item.is_plannable:
            queryset = queryset.filter(item.q(bound))
        elif not isinstance(item, Applied):
            queryset = queryset.filter(item.q(QueryContext(model, queryset.db)))
            check_patterns(queryset, _texts(item))
    return queryset


def is_part_of(found: QuerySet[Any], queryset: QuerySet[Any], *, joins: bool = False) -> bool:
    """Return whether conditions only left out some of the given rows: each is there once, and conditions can be added.

    Joins may repeat a row; ``joins`` says that these are known not to.
    """
    query: Any = found.query
    given: Any = queryset.query
    if query.distinct or query.combinator or query.is_sliced or query.group_by or query.model is not given.model:
        return False
    if not joins and sum(1 for alias in query.alias_map if query.alias_refcount.get(alias)) > 1:
        return False

    # The conditions that the rows had before are still there.
    if not given.where:
        return True
    if query.where.connector != Q.AND or query.where.negated:
        return False
    return all(child in query.where.children for child in given.where.children)


# Characters that let a client's regular expression match in several ways. SQLite uses Python's matcher, which
# backtracks, holds the interpreter and obeys no timeout; without these characters it takes linear time.
_BRANCHING: Final = re.compile(r"[*+?{|]")


def is_pattern_lookup(lookup: str) -> bool:
    """Return whether a lookup, or a path that ends with one, takes a regular expression."""
    return lookup.rpartition("__")[2] in ("regex", "iregex")


def matches_here(using: str) -> bool:
    """Return whether regular expressions are matched by this process, not by a database server."""
    return connections[using].vendor == "sqlite"


def check_patterns(queryset: QuerySet[Any], texts: Iterable[str]) -> None:
    """Raise ``ToolError`` if a text is a regular expression that could take this process very long to match."""
    costly = [text.casefold() for text in texts if _BRANCHING.search(text)]
    if costly and matches_here(queryset.db):
        for pattern in _patterns(queryset.query):
            if any(text in pattern.casefold() for text in costly):
                raise ToolError("This database allows only simple regular expressions: leave out * + ? { and |.")


def _patterns(node: Any) -> Iterator[str]:
    if isinstance(node, Regex) and isinstance(node.rhs, str):
        yield node.rhs
    if isinstance(node, Query):
        inner: Iterable[Any] = (node.where, *node.annotations.values(), *node.combined_queries)
    elif isinstance(node, Node):
        inner = node.children
    elif hasattr(node, "get_source_expressions"):
        inner = node.get_source_expressions()
    else:
        inner = ()
    for item in inner:
        yield from _patterns(item)


def _texts(item: Filter) -> Iterator[str]:
    """Yield the texts of a condition that may be regular expressions."""
    for part in conditions_of([item]):
        if isinstance(part, Applied):
            yield from chain.from_iterable(part.values.values())
        elif is_pattern_lookup(part.lookup):
            yield from part.values
