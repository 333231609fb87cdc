"""Aggregation: counts, sums and other measures of the rows that the caller may read, all together or by groups."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Final

from django.db import DatabaseError, NotSupportedError
from django.db.models import BooleanField, Case, Count, F, IntegerField, Q, QuerySet, Value, When, Window
from django.db.models.functions import Lag, NullIf, RowNumber
from django.db.models.lookups import IsNull

from ...exceptions import ToolError
from ..access import ModelAccess
from ..arithmetic import FLOAT, Float
from ..conditions import Filter
from ..pagination import narrowed
from ..row_arguments import RowArguments
from ..suggestions import naming
from ..undecodable_values import UNDECODABLE, is_out_of_range
from .arguments import MAX_GROUPS, MAX_TOP, UP, AggregateArguments, Order
from .functions import AfterWindows, OverGroups
from .groups import STRETCHES, Group, periods, shared_labels
from .having import having_of
from .measures import Measure
from .queries import PLACE, first_rows, grouped, order_by, totals

MAX_PERIODS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AggregateResult:
    """The groups that an aggregation gives, in its order: ``rows`` with a value for each of its ``terms``.

    ``is_cut`` says that groups were left out because of the limit; ``others`` sums up the groups that were left out.
    ``tied`` is the title of the measure that ranks the groups, if the first one that was left out has the same value
    as the last row. ``unconverted`` are hints about times that the database does not convert to the time zone.
    """

    aggregation: "Aggregation"
    rows: list[tuple[Any, ...]]
    is_cut: bool = False
    others: Mapping[str, Any] | None = None
    tied: str = ""
    unconverted: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row was aggregated, as far as the groups tell: there are none, or they have only 0 and NULL."""
        first = len(self.aggregation.groups)
        return not any(value for row in self.rows for value in row[first:] if value is not UNDECODABLE)

    @property
    def rest(self) -> dict[str, Any] | None:
        """The groups left out as JSON: how many, and their measures together where these can be combined."""
        if self.others is None or not self.others["mcp_groups"]:
            return None
        request = self.aggregation.model.request
        rest = {"groups": self.others["mcp_groups"]}
        for measure in self.aggregation.measures:
            alias = f"mcp_r{measure.alias}"
            if alias in self.others:
                rest[measure.title] = measure.shown(request, [self.others[alias]])[0]
        return rest

    @property
    def unreadable(self) -> list[str]:
        """The titles of the columns in which a value cannot be decoded."""
        columns = zip(self.aggregation.terms, self._columns(), strict=True)
        return [term.title for term, values in columns if any(value is UNDECODABLE for value in values)]

    def cells(self) -> list[list[Any]]:
        """Return the rows as JSON, with null for a value that cannot be decoded."""
        cells = []
        for term, values in zip(self.aggregation.terms, self._columns(), strict=True):
            readable = [None if value is UNDECODABLE else value for value in values]
            cells.append(term.shown(self.aggregation.model.request, readable))
        return [list(row) for row in zip(*cells, strict=True)]

    def label_hints(self) -> Iterator[str]:
        """Yield a hint for each group by labels that puts several related rows together."""
        groups = self.aggregation.groups
        if self.rows:
            yield from shared_labels(self.aggregation.model, groups, self._columns()[: len(groups)])

    def _columns(self) -> list[Sequence[Any]]:
        return list(zip(*self.rows, strict=True)) or [() for _ in self.aggregation.terms]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Measures of a model's rows by groups, in an order, at most ``limit``; without groups, of all rows together.

    ``top`` keeps only the values of the first group that the order's ``rank`` puts first or, if ``per`` names a group,
    only the first groups for each value of that group. ``fill`` adds the periods without rows.
    """

    model: ModelAccess
    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    having: Q
    order: Order
    limit: int
    top: int | None
    per: Group | None
    fill: bool
    conditions: tuple[Filter, ...]
    search: str

    max_groups: ClassVar[int] = MAX_GROUPS
    max_top: ClassVar[int] = MAX_TOP

    @classmethod
    def read(cls, model: ModelAccess, given: Mapping[str, Any], *, most: int | None = None) -> "Aggregation":
        """Parse the arguments of ``aggregate_records``; raise ``ToolError`` for those that do not fit together.

        The aggregation has ``most`` groups, or by default as many as the arguments say.
        """
        rows = RowArguments(model, given)
        with naming("aggregates", "group_by", "per"):
            arguments = AggregateArguments(model, rows.given)
            arguments.check()
            limit, top = arguments.limits(most)
            order = arguments.order()
            fill = rows.given.flag("fill")
            having = having_of(arguments.measures, given.get("having"))
            if fill:
                arguments.check_fill(order, having)
        return cls(
            model=model,
            groups=arguments.groups,
            measures=arguments.measures,
            having=having,
            order=order,
            limit=limit,
            top=top,
            per=arguments.per,
            fill=fill,
            conditions=rows.filters(),
            search=rows.search(),
        )

    @property
    def terms(self) -> tuple[Group | Measure, ...]:
        """All columns of the result."""
        return (*self.groups, *self.measures)

    @property
    def has_change(self) -> bool:
        """Whether a measure compares one group with another."""
        return any(measure.has_change for measure in self.measures)

    def rows(self) -> AggregateResult:
        """Aggregate the rows that the caller may read; raise ``ToolError`` for what the database cannot compute."""
        try:
            rows = narrowed(self.model, self.conditions, self.search)
            query = rows.query
            joined = sum(1 for alias in query.alias_map if query.alias_refcount.get(alias)) > 1
            if joined or query.annotations or query.distinct or query.combinator or query.is_sliced or query.extra:
                # The joins of the exposure's own queryset would multiply the sums.
                manager = self.model.exposure.model._base_manager
                rows = manager.using(rows.db).filter(pk__in=rows.values("pk"))
            if not self.groups:
                return AggregateResult(self, totals(rows, self.measures))
            result = self._settled(rows)._by_groups(rows)
            hints = (hint for group in self.groups for hint in group.unconverted_hints(rows))
            return replace(result, unconverted=tuple(hints))
        except NotSupportedError as error:
            raise ToolError(f"The database cannot compute that: {error}") from None
        except DatabaseError as error:
            if not is_out_of_range(error):
                raise
            raise ToolError("A sum or an average is too large for the database. Narrow the filters.") from None

    def _by_groups(self, rows: QuerySet[Any]) -> AggregateResult:
        """Aggregate the rows by groups; a second query sums up the groups left out."""
        if self.per is not None:
            return self._best_of_each(rows)
        place, has_others = self._leaders(rows)
        if self.top is not None and place is None:
            return AggregateResult(self, [])

        # All groups in their order, and those of them that "top" keeps.
        found = self._meeting(grouped(rows, self.groups, self.measures, place), self.having)
        found = found.order_by(*([PLACE] if place is not None else []), *order_by(self.order.keys))
        wanted = found
        if place is not None:
            wanted = self._meeting(found, Q((f"{PLACE}__lt", self.top)))
        if self.fill:
            return self._filled(found)

        shown, following = self._first(wanted, self.limit)
        if not following and not has_others:
            return AggregateResult(self, shown)
        tied = self._tied(shown[-1], following[0]) if following else ""
        return AggregateResult(self, shown, bool(following), self._rest(found, len(shown)), tied)

    def _first(self, rows: QuerySet[Any], limit: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Read the groups up to the limit, and the one that follows, if there is one."""
        return first_rows(rows, [term.alias for term in self.terms], limit)

    def _tied(self, last: tuple[Any, ...], following: tuple[Any, ...]) -> str:
        """Return the title of the measure that the order begins with, if two groups have the same value of it."""
        first, _ = self.order.keys[0]
        position = [term.alias for term in self.terms].index(first)
        term = self.terms[position]
        value = last[position]
        is_tie = isinstance(term, Measure) and value is not None and value == following[position]
        return term.title if is_tie else ""

    def _rest(self, found: QuerySet[Any], start: int) -> dict[str, Any]:
        """Count the groups from ``start`` on, and combine the measures whose values can be combined."""
        combined = {f"mcp_r{measure.alias}": measure.combined() for measure in self.measures}
        known = {name: expression for name, expression in combined.items() if expression is not None}
        return found[start:].aggregate(mcp_groups=Count("*"), **known)

    def _settled(self, rows: QuerySet[Any]) -> "Aggregation":
        """Return the aggregation with expressions for what depends on all groups (percent of total, change)."""
        made: dict[Measure, Measure] = {}
        for measure in self.measures:
            expression = None
            if measure.function == "percent_of_total":
                expression = self._percent(measure.sources[0], rows)
            elif measure.function == "change":
                expression = self._change(measure.sources[0])
            if expression is not None:
                made[measure] = replace(measure, expression=OverGroups(expression, output_field=FLOAT))
        measure, way = self.order.rank
        measures = tuple(made.get(measure, measure) for measure in self.measures)
        order = self.order._replace(rank=(made.get(measure, measure), way))
        return replace(self, measures=measures, order=order)

    @staticmethod
    def _percent(source: Measure, rows: QuerySet[Any]) -> Any:
        """Return the expression for a measure of a group in percent of the measure of all rows."""
        ((value,),) = totals(rows, [source])
        total = source.number(value)
        if total:
            return source.amount * Value(100.0 / total)
        # A cast, because PostgreSQL cannot sort by NULL alone.
        return Float(Value(None))

    def _change(self, source: Measure) -> Any:
        """Return the expression for the change of a measure since the period before, in percent."""
        period = next(group for group in self.groups if group.period in STRETCHES)
        others: list[Any] = [F(group.alias) for group in self.groups if group is not period]
        # Rows without a date form a partition of their own: they are neither before nor after a period.
        others.append(IsNull(F(period.alias), True))
        window: dict[str, Any] = {"partition_by": others, "order_by": F(period.alias).asc()}
        before = Window(Lag(source.amount), **window)
        change = (source.amount - before) * Value(100.0) / NullIf(before, Value(0.0))
        # After a period without rows there is nothing to compare with: it has 0, or no value.
        return Case(When(period.is_next(window), then=change), output_field=FLOAT)

    def _meeting(self, found: QuerySet[Any], condition: Q) -> QuerySet[Any]:
        """Return the groups that meet a condition, after each ``change`` was computed."""
        if condition and self.has_change:
            return found.filter(AfterWindows(condition, output_field=BooleanField()))
        return found.filter(condition)

    def _best_of_each(self, rows: QuerySet[Any]) -> AggregateResult:
        """Return the top groups for each value of the group ``per``."""
        assert self.per is not None
        measure, way = self.order.rank
        rest = [group.alias for group in self.groups if group is not self.per]
        # A condition on a change applies after the ranking, so rank the groups that meet it by themselves.
        parts: list[Any] = [F(self.per.alias)]
        if self.having and self.has_change:
            parts.append(OverGroups(self.having, output_field=BooleanField()))
        found = self._meeting(grouped(rows, self.groups, self.measures), self.having)
        order = order_by([(measure.alias, way), *((alias, UP) for alias in rest)])
        ranked = found.annotate(mcp_rank=Window(RowNumber(), partition_by=parts, order_by=order))
        best = ranked.filter(mcp_rank__lte=self.top).order_by(*order_by(self.order.keys))
        shown, following = self._first(best, self.limit)
        return AggregateResult(self, shown, bool(following), {"mcp_groups": found.count() - len(shown)})

    def _leaders(self, rows: QuerySet[Any]) -> tuple[Any, bool]:
        """Return an expression for the place of a row by the value of its first group, as ``top`` ranks these values,
        and whether some rows have no place.

        The expression is None without ``top``, or if there are no groups.
        """
        if self.top is None:
            return None, False
        first = self.groups[0]
        measure, way = self.order.rank
        if measure.has_change:
            raise ToolError('"top" cannot rank by a change: order by it, or rank by what changes.')
        ranked = grouped(rows, [first], list(self._needed(measure).values()))
        ranked = ranked.order_by(*order_by([(measure.alias, way), (first.alias, UP)]))
        values = list(ranked.values_list(first.alias, flat=True)[: self.top + 1])
        if not values:
            return None, False
        places = [When(first.equals(value), then=Value(place)) for place, value in enumerate(values[: self.top])]
        return Case(*places, default=Value(self.top), output_field=IntegerField()), len(values) > self.top

    def _needed(self, measure: Measure) -> dict[str, Measure]:
        """Return a measure and all that it is derived from, by their aliases, the sources first."""
        needed: dict[str, Measure] = {}
        for source in measure.sources:
            needed |= self._needed(source)
        # A measure does not know its sources as they are here, with what depends on all groups.
        needed[measure.alias] = next(item for item in self.measures if item.alias == measure.alias)
        return needed

    def _filled(self, found: QuerySet[Any]) -> AggregateResult:
        """Return the periods, those without rows too, up to the bounds that the filters set on their dates."""
        group = self.groups[0]
        _, way = self.order.keys[0]
        rows, further = self._first(found, MAX_PERIODS + 1)
        known = {row[0]: row for row in rows if row[0] is not None and row[0] is not UNDECODABLE}
        ends = [period for period in (*known, *group.bounds(self.conditions)) if period is not None]
        # The measures that some period has a value for: those of which the total is not zero.
        places = enumerate(self.measures, 1)
        shared = {measure.alias for place, measure in places if any(row[place] is not None for row in rows)}

        # All periods in their order. Without rows, a filter has to bound the periods at both ends.
        dated: list[tuple[Any, ...]] = []
        if known or len(ends) > 1:
            for period in islice(periods(min(ends), max(ends), group.period), MAX_PERIODS + 1):
                before = dated[-1][1:] if dated else None
                dated.append(known.get(period) or (period, *self._empty(before, shared)))
        if further or len(dated) > MAX_PERIODS:
            raise ToolError(
                f"There are more than {MAX_PERIODS} periods to fill: narrow the filters or group more coarsely."
            )
        if way.descending:
            dated.reverse()

        # Rows without a date stand at one end.
        dateless = [row for row in rows if row[0] not in known]
        filled = [*dateless, *dated] if way.nulls_first else [*dated, *dateless]
        shown = filled[: self.limit]
        if len(shown) == len(filled):
            return AggregateResult(self, shown)
        start = sum(1 for row in shown if row[0] in known or row in dateless)
        rest = {**self._rest(found, start), "mcp_groups": len(filled) - len(shown)}
        return AggregateResult(self, shown, True, rest)

    def _empty(self, before: Sequence[Any] | None, shared: Collection[str]) -> list[Any]:
        """Return the measures of a period without rows, after a period with the values ``before``.

        ``shared`` are the aliases of the measures that some period has a value for.
        """
        aliases = [measure.alias for measure in self.measures]
        earlier = dict(zip(aliases, before, strict=True)) if before is not None else {}
        values: dict[str, Any] = {}
        for measure in sorted(self.measures, key=lambda measure: measure.depth):
            sources = [values[source.alias] for source in measure.sources]
            if measure.function == "percent_of_total":
                values[measure.alias] = 0.0 if sources[0] == 0 and measure.alias in shared else None
            elif measure.function == "change":
                (source,) = measure.sources
                fell = sources[0] == 0 and source.number(earlier.get(source.alias))
                values[measure.alias] = -100.0 if fell else None
            elif measure.derive is not None:
                values[measure.alias] = measure.derive(*sources)
            else:
                values[measure.alias] = 0 if measure.function in ("count", "count_distinct", "sum") else None
        return [values[alias] for alias in aliases]
