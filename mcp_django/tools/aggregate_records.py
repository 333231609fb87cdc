"""``aggregate_records``: counts and sums over all rows of the caller, by groups."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, NotSupportedError
from django.db.models import (
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    IntegerField,
    Q,
    QuerySet,
    Value,
    When,
    Window,
)
from django.db.models.expressions import OrderBy
from django.db.models.functions import Cast, Lag, NullIf, RowNumber
from django.db.models.lookups import IsNull

from ..context.admin_page_and_language import go_to
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.picked_rows import Selection
from ..exceptions import ToolError
from ..orm.aggregates.functions import AfterWindows, OverGroups
from ..orm.aggregates.groups import STRETCHES, Group, group_of, periods, shared_labels
from ..orm.aggregates.having import having_of
from ..orm.aggregates.measure_reader import MeasureReader
from ..orm.aggregates.measures import Measure, find_title, position_of
from ..orm.alternative_spellings import json_or_text, order_meant, order_texts
from ..orm.arithmetic import FLOAT
from ..orm.conditions import Filter, opening_hint
from ..orm.empty_results import empty_hints
from ..orm.pagination import narrowed
from ..orm.suggestions import naming
from ..orm.undecodable_values import UNDECODABLE, is_out_of_range, is_undecodable, salvaged_tuples
from ..schema.value_types import FREE_OBJECT, any_of
from .base import RecordTool
from .query_records import RecordCall

MAX_GROUPS: Final = 200
DEFAULT_GROUPS: Final = 50
MAX_TOP: Final = 50
MAX_TERMS: Final = 10
MAX_PERIODS: Final = 1_000
PLACE: Final = "mcp_place"
NULL_PLACES: Final = ("nulls_first", "nulls_last")


class Way(NamedTuple):
    """Direction of a column in the ordering of ``aggregate_records``, NULL last unless the caller puts NULL first."""

    descending: bool
    nulls_first: bool = False


UP: Final = Way(False)
DOWN: Final = Way(True)


# The question


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of ``aggregate_records``: the rows, ``more`` if others were left out, and the rest summed up.

    ``tied`` is the measure that ranks the rows, if the first one that was left out has the same value as the last row.
    """

    rows: list[tuple[Any, ...]]
    more: bool = False
    rest: Mapping[str, Any] | None = None
    tied: str = ""


def _list(value: Any, what: str) -> list[Any]:
    value = json_or_text(value)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or len(value) > MAX_TERMS:
        raise ToolError(f"{what} must be a list of at most {MAX_TERMS}.")
    return [item.strip() if isinstance(item, str) else item for item in value]


def _path(given: Any) -> Any:
    """Read a path in the arguments of ``aggregate_records``: dots become ``__``."""
    if not isinstance(given, str):
        return given
    name, colon, period = given.partition(":")
    return f"{name.replace('.', '__')}{colon}{period}"


def _order_of(terms: Sequence[Group | Measure], value: Any) -> list[tuple[Group | Measure, Way]]:
    """Read the ordering of ``aggregate_records``: columns of the result and their directions."""
    found: list[tuple[Group | Measure, Way]] = []
    titles = [term.title for term in terms]

    def placed(text: str) -> tuple[str, str]:
        """Split an ordering of ``aggregate_records``, ``-total:nulls_first``, into the column and the place of null."""
        name, _, place = text.rpartition(":")
        return (name, place) if place in NULL_PLACES else (text, "")

    for item in _list(order_texts(value), "ordering"):
        text, place = placed(str(item))
        other, other_place = placed(order_meant(str(item)))
        if find_title(titles, text.lstrip("+-")) is None and find_title(titles, other.lstrip("-")) is not None:
            text = other
            place = other_place
        name = text.lstrip("+-")
        position = position_of(titles, name, f"The result has no column {name[:60]!r} to order by.", "ordering")
        found.append((terms[position], Way(text.startswith("-"), place == "nulls_first")))
    return found


def _ordered(order: Sequence[tuple[str, Way]]) -> list[OrderBy]:
    """Return the ORDER BY of ``aggregate_records``, with NULL at the same end on every database."""
    return [
        OrderBy(F(alias), descending=down, **{"nulls_first" if first else "nulls_last": True})
        for alias, (down, first) in order
    ]


def _behind(measures: Iterable[Measure]) -> list[Measure]:
    """Return the plain aggregates of records that others are derived from, each once; a plain one stands for itself."""
    plain: dict[str, Measure] = {}
    for measure in measures:
        for item in _behind(measure.sources) if measure.sources else [measure]:
            plain[item.alias] = item
    return list(plain.values())


def _total(measure: Measure, totals: Mapping[str, Any]) -> Any:
    """Return one aggregate value over all rows, without groups; a derived aggregate is computed from ``totals``."""
    values = [_total(source, totals) for source in measure.sources]
    if any(value is UNDECODABLE for value in values):
        return UNDECODABLE
    if measure.derive is not None:
        return measure.derive(*values)
    if values:
        return 100.0 if values[0] else None
    return totals[measure.alias]


def _totals(rows: QuerySet[Any], measures: Sequence[Measure]) -> list[tuple[Any, ...]]:
    """Aggregate all rows without groups: return the values of all measures as one row."""
    plain = _behind(measures)
    try:
        totals = rows.aggregate(**{measure.alias: measure.expression for measure in plain})
    except Exception as error:
        if is_out_of_range(error) or not is_undecodable(error):
            raise
        if len(plain) == 1:
            totals = {plain[0].alias: UNDECODABLE}
        else:
            totals = {measure.alias: value for measure in plain for (value,) in _totals(rows, [measure])}
    return [tuple(_total(measure, totals) for measure in measures)]


def _grouped(
    rows: QuerySet[Any], groups: Sequence["Group"], measures: Sequence[Measure], place: Any = None
) -> QuerySet[Any]:
    """Aggregate rows: return the queryset of groups with their aggregates, and the ``place`` of each group."""
    names: dict[str, Any] = {group.alias: group.expression for group in groups}
    if len(groups) > 1:
        # A query that ranks its groups needs an expression for each, also for two columns of one value.
        read = rows.annotate(**names).query.annotations
        for position, group in enumerate(groups):
            if any(read[other.alias] == read[group.alias] for other in groups[:position]):
                field = read[group.alias].output_field
                names[group.alias] = ExpressionWrapper(names[group.alias], output_field=field)
    if place is not None:
        names[PLACE] = place
    found = rows.annotate(**names).values(*names)
    # Annotate derived measures after those that they are derived from.
    for depth in sorted({measure.depth for measure in measures}):
        found = found.annotate(**{item.alias: item.expression for item in measures if item.depth == depth})
    return found


@dataclass(frozen=True, slots=True)
class Question:
    """Arguments of one ``aggregate_records`` call, parsed: groups and their measures, in an order, at most ``limit``.

    ``top`` keeps only the values of the first group that ``rank`` puts first or, if ``per`` names a group, only the
    first groups for each value of that group. ``fill`` adds the periods without rows.
    """

    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    having: Q
    order: tuple[tuple[str, Way], ...]
    rank: tuple[Measure, Way]
    limit: int
    top: int | None
    per: Group | None = None
    fill: bool = False

    @classmethod
    def read(cls, call: RecordCall) -> "Question":
        """Parse the arguments of ``aggregate_records``; raise ``ToolError`` for those that do not fit together."""
        model = call.model
        given = call.given
        wanted = [_path(item) for item in _list(given.get("group_by"), "group_by")]
        named = _path(given.get("per"))
        if "per" in given and named not in wanted:
            wanted.insert(0, named)
        groups = tuple(group_of(model, item, position) for position, item in enumerate(wanted))
        per = groups[wanted.index(named)] if "per" in given else None
        asked = _list(given.get("aggregates"), "aggregates") or ["count"]
        measures = MeasureReader(model).read(asked)
        terms: list[Group | Measure] = [*groups, *measures]
        if len({term.title for term in terms}) < len(terms):
            raise ToolError('Two columns have the same name; rename one with "as".')
        if needing := next((name for name in ("having", "top") if name in given and not groups), ""):
            raise ToolError(f'"{needing}" needs "group_by".')
        if per is not None and ("top" not in given or len(groups) < 2):
            how = '{"group_by": ["product"], "top": 3, "per": "country"}'
            raise ToolError(f'"per" needs "top" and another field in group_by: {how}.')
        stretches = [group for group in groups if group.period in STRETCHES]
        if any(measure.function == "change" for measure in measures) and len(stretches) != 1:
            raise ToolError('"change" needs one period in group_by, such as "created:month".')
        top = given.limit(MAX_TOP, MAX_TOP, "top") if "top" in given else None
        limit = given.limit(DEFAULT_GROUPS if top is None else MAX_GROUPS, MAX_GROUPS)
        order = _order_of(terms, given.get("ordering"))
        rank = next(((term, way) for term, way in order if isinstance(term, Measure)), (measures[0], DOWN))
        if per is not None:
            order = [(per, UP), rank]
        elif top is not None:
            order = [(term, way) for term, way in order if term is not rank[0]]
            if len(groups) == 1:
                # The top values of a single group are simply the first rows.
                order = [rank, *order]
                limit = min(limit, top)
                top = None
        # End with all groups, so that the order is total.
        total: dict[str, Way] = {}
        for term, way in (*order, *((group, UP) for group in groups)):
            total.setdefault(term.alias, way)
        fill = given.flag("fill")
        having = having_of(measures, given.get("having"))
        is_stretch = len(groups) == 1 and groups[0].period in STRETCHES
        if fill and (not is_stretch or next(iter(total)) != groups[0].alias or having):
            raise ToolError('"fill" needs one period in group_by, such as "created:month", its order, and no having.')
        return cls(groups, measures, having, tuple(total.items()), rank, limit, top, per, fill)

    @property
    def terms(self) -> tuple[Group | Measure, ...]:
        """All columns of the result."""
        return (*self.groups, *self.measures)

    @property
    def has_change(self) -> bool:
        """Whether this call of ``aggregate_records`` compares one group with another."""
        return any(measure.has_change for measure in self.measures)

    def answer(self, rows: QuerySet[Any], conditions: Sequence[Filter]) -> Answer:
        """Aggregate the rows and return the groups; a second query sums up the groups left out.

        The ``conditions`` on the rows bound the periods that ``fill`` adds.
        """
        if not self.groups:
            return Answer(_totals(rows, self.measures))
        question = self._settled(rows)
        if question.per is not None:
            return question._best_of_each(rows)
        place, others = question._leaders(rows)
        if question.top is not None and place is None:
            return Answer([])
        found = question._meeting(_grouped(rows, question.groups, question.measures, place), question.having)
        found = found.order_by(*([PLACE] if place is not None else []), *_ordered(question.order))
        wanted = question._meeting(found, Q((f"{PLACE}__lt", question.top))) if place is not None else found
        if question.fill:
            return question._filled(found, conditions)
        shown, following = question._first(wanted, question.limit)
        if not following and not others:
            return Answer(shown)
        tied = question._tied(shown[-1], following[0]) if following else ""
        return Answer(shown, bool(following), question._rest(found, len(shown)), tied)

    def _tied(self, last: tuple[Any, ...], following: tuple[Any, ...]) -> str:
        """Return the title of the measure that ranks the aggregated rows if two of them have the same value."""
        position = [term.alias for term in self.terms].index(self.order[0][0])
        term = self.terms[position]
        value = last[position]
        is_tie = isinstance(term, Measure) and value is not None and value == following[position]
        return term.title if is_tie else ""

    def _rest(self, found: QuerySet[Any], start: int) -> dict[str, Any]:
        """Count the aggregated groups from ``start`` on, and combine the measures whose values can be combined."""
        combined = {f"mcp_r{measure.alias}": measure.combined() for measure in self.measures}
        known = {name: expression for name, expression in combined.items() if expression is not None}
        return found[start:].aggregate(mcp_groups=Count("*"), **known)

    def _settled(self, rows: QuerySet[Any]) -> "Question":
        """Return the question of ``aggregate_records`` with what depends on all groups (percent of total, change)."""
        period = next((group for group in self.groups if group.period in STRETCHES), None)
        found: dict[Measure, Any] = {}
        for measure in self.measures:
            source = measure.sources[0] if measure.sources else None
            if measure.function == "percent_of_total" and source is not None:
                ((value,),) = _totals(rows, [source])
                total = source.number(value)
                # A cast, because PostgreSQL cannot sort by NULL alone.
                found[measure] = source.amount * Value(100.0 / total) if total else Cast(Value(None), FLOAT)
            elif measure.function == "change" and source is not None and period is not None:
                others: list[Any] = [F(group.alias) for group in self.groups if group is not period]
                # Rows without a date form a partition of their own: they are neither before nor after a period.
                others.append(IsNull(F(period.alias), True))
                window: dict[str, Any] = {"partition_by": others, "order_by": F(period.alias).asc()}
                before = Window(Lag(source.amount), **window)
                change = (source.amount - before) * Value(100.0) / NullIf(before, Value(0.0))
                # After a period without rows there is nothing to compare with: it has 0, or no value.
                found[measure] = Case(When(period.is_next(window), then=change), output_field=FLOAT)
        made = {item: replace(item, expression=OverGroups(found[item], output_field=FLOAT)) for item in found}
        measure, way = self.rank
        measures = tuple(made.get(measure, measure) for measure in self.measures)
        return replace(self, measures=measures, rank=(made.get(measure, measure), way))

    def _meeting(self, found: QuerySet[Any], condition: Q) -> QuerySet[Any]:
        """Return the rows of ``aggregate_records`` that meet a condition, after each ``change`` was computed."""
        if condition and self.has_change:
            return found.filter(AfterWindows(condition, output_field=BooleanField()))
        return found.filter(condition)

    def _best_of_each(self, rows: QuerySet[Any]) -> Answer:
        """Return the aggregates of the top groups for each value of the group ``per``."""
        assert self.per is not None
        measure, way = self.rank
        rest = [group.alias for group in self.groups if group is not self.per]
        # A condition on a change applies after the ranking, so rank the groups that meet it by themselves.
        parts: list[Any] = [F(self.per.alias)]
        if self.having and self.has_change:
            parts.append(OverGroups(self.having, output_field=BooleanField()))
        found = self._meeting(_grouped(rows, self.groups, self.measures), self.having)
        order = _ordered([(measure.alias, way), *((alias, UP) for alias in rest)])
        ranked = found.annotate(mcp_rank=Window(RowNumber(), partition_by=parts, order_by=order))
        best = ranked.filter(mcp_rank__lte=self.top).order_by(*_ordered(self.order))
        shown, following = self._first(best, self.limit)
        return Answer(shown, bool(following), {"mcp_groups": found.count() - len(shown)})

    def _leaders(self, rows: QuerySet[Any]) -> tuple[Any, bool]:
        """Return an expression for ``top`` of ``aggregate_records``: the place of a row by the value of its first
        group; and whether some rows have no place.

        The expression is None without ``top``, or if there are no groups.
        """
        if self.top is None:
            return None, False
        first = self.groups[0]
        (measure, way) = self.rank
        if measure.has_change:
            raise ToolError('"top" cannot rank by a change: order by it, or rank by what changes.')

        def needed(measure: Measure) -> dict[str, Measure]:
            """Return an aggregate of records and all that it is derived from, as the question has them."""
            own = next(item for item in self.measures if item.alias == measure.alias)
            return {name: item for source in measure.sources for name, item in needed(source).items()} | {
                own.alias: own
            }

        ranked = _grouped(rows, [first], list(needed(measure).values()))
        ranked = ranked.order_by(*_ordered([(measure.alias, way), (first.alias, UP)]))
        values = list(ranked.values_list(first.alias, flat=True)[: self.top + 1])
        if not values:
            return None, False
        places = [When(first.equals(value), then=Value(place)) for place, value in enumerate(values[: self.top])]
        return Case(*places, default=Value(self.top), output_field=IntegerField()), len(values) > self.top

    def _first(self, rows: QuerySet[Any], limit: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Read the aggregated groups up to the limit, and the one that follows, if there is one."""
        aliases = [term.alias for term in self.terms]
        try:
            read = list(rows.values_list(*aliases)[: limit + 1])
        except Exception as error:
            if is_out_of_range(error) or not is_undecodable(error):
                raise
            read = salvaged_tuples(rows, aliases, limit + 1)
        return read[:limit], read[limit:]

    def _filled(self, found: QuerySet[Any], conditions: Sequence[Filter]) -> Answer:
        """Aggregate by periods, and add those without rows, up to the bounds of the ``conditions`` on their dates."""
        group = self.groups[0]
        way = self.order[0][1]
        rows, further = self._first(found, MAX_PERIODS + 1)
        known = {row[0]: row for row in rows if row[0] is not None and row[0] is not UNDECODABLE}
        ends = [period for period in (*known, *group.bounds(conditions)) if period is not None]
        places = enumerate(self.measures, 1)
        # The measures that some group has a value for: those of which the total is not zero.
        shared = {measure.alias for place, measure in places if any(row[place] is not None for row in rows)}
        dated: list[tuple[Any, ...]] = []
        # Without rows, a filter has to bound the periods at both ends.
        if known or len(ends) > 1:
            for period in islice(periods(min(ends), max(ends), group.period), MAX_PERIODS + 1):
                dated.append(known.get(period) or (period, *self._empty(dated[-1][1:] if dated else None, shared)))
        if further or len(dated) > MAX_PERIODS:
            raise ToolError(
                f"There are more than {MAX_PERIODS} periods to fill: narrow the filters or group more coarsely."
            )
        none = [row for row in rows if row[0] not in known]
        if way.descending:
            dated.reverse()
        filled = [*none, *dated] if way.nulls_first else [*dated, *none]
        shown = filled[: self.limit]
        if len(shown) == len(filled):
            return Answer(shown)
        start = sum(1 for row in shown if row[0] in known or row in none)
        return Answer(shown, True, {**self._rest(found, start), "mcp_groups": len(filled) - len(shown)})

    def _empty(self, before: Sequence[Any] | None, shared: Collection[str]) -> list[Any]:
        """Return the aggregates of a period without rows, after a period with the values ``before``.

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

    def finds_nothing(self, answer: Answer) -> bool:
        """Return whether no row was aggregated, as far as the answer tells: no group, or nothing but 0 and null."""
        return not any(value for row in answer.rows for value in row[len(self.groups) :] if value is not UNDECODABLE)

    def _columns(self, rows: Sequence[tuple[Any, ...]]) -> tuple[list[list[Any]], list[str]]:
        """Return the values of the aggregated rows by column, and the titles of columns with undecodable ones."""
        columns = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in self.terms]
        unread = []
        for position, (term, values) in enumerate(zip(self.terms, columns, strict=True)):
            if any(value is UNDECODABLE for value in values):
                unread.append(term.title)
                columns[position] = [None if value is UNDECODABLE else value for value in values]
        return columns, unread

    def shown(self, request: MCPRequest, answer: Answer, notes: Iterable[str]) -> dict[str, Any]:
        """Return the result of ``aggregate_records``: ``{returned, truncated?, rest?, hint?, columns, rows}``."""
        shown: dict[str, Any] = {"returned": len(answer.rows)}
        if answer.more:
            shown["truncated"] = True
        rest = answer.rest if answer.rest is not None and answer.rest["mcp_groups"] else None
        if rest is not None:
            known = [measure for measure in self.measures if f"mcp_r{measure.alias}" in rest]
            values = {item.title: item.shown(request, [rest[f"mcp_r{item.alias}"]])[0] for item in known}
            shown["rest"] = {"groups": rest["mcp_groups"], **values}
        hints = []
        if self.per is not None and rest is not None:
            hints.append(f"Only the first {self.top} of each {self.per.title} are shown.")
        if answer.more:
            ways = ["raise limit"] * (self.limit < MAX_GROUPS) + ["narrow the filters", "group more coarsely"]
            ways += ["use top"] * (not self.top)
            hints.append(f"There are more than {self.limit} groups: {', '.join(ways[:-1])} or {ways[-1]}.")
        if answer.tied:
            hints.append(f"The last place is shared: others have the same {answer.tied}.")
        hidden = {label: None for term in self.terms for label in term.narrowed}
        if hidden:
            hints.append(f"Records of {', '.join(hidden)} that you may not see count as null.")
        columns, unread = self._columns(answer.rows)
        if unread:
            hints.append(f"{', '.join(unread)}: a value cannot be read and is null.")
        if hint := " ".join([*hints, *notes]):
            shown["hint"] = hint
        cells = [term.shown(request, values) for term, values in zip(self.terms, columns, strict=True)]
        shown["columns"] = [term.title for term in self.terms]
        shown["rows"] = [list(row) for row in zip(*cells, strict=True)]
        return shown


class AggregateRecords(RecordTool):
    """``aggregate_records``: counts, sums, averages and extremes, over all matching rows or by groups."""

    name = "aggregate_records"
    title = "Aggregate records"
    description = (
        "Totals, not rows: count, count_distinct, sum, avg, min, max, median, percentile, "
        "stddev, first, last, by groups."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "aggregates": {
                "type": "array",
                "items": any_of({"type": "string"}, FREE_OBJECT),
                "description": (
                    "count, sum:a*b, {function, field, where, as, unit, order}; of these {ratio: [a, b]}, difference, "
                    "percent_of_total, change"
                ),
            },
            "group_by": {
                "type": "array",
                "items": {"type": "string"},
                "description": (
                    "Fields; created:month (year, quarter, week, day, hour, weekday, hour_of_day, month_of_year), "
                    "total:100"
                ),
            },
            "filters": {**FREE_OBJECT, "description": "As in query_records"},
            "search": Selection.SEARCH,
            "having": {**FREE_OBJECT, "description": "sum_total__gte: 1000"},
            "ordering": {"type": "array", "items": {"type": "string"}, "description": "Result columns"},
            "top": {"type": "integer", "description": "First N groups"},
            "per": {"type": "string", "description": "Field: N for each value"},
            "fill": {"type": "boolean", "description": "Empty periods too"},
            "limit": {"type": "integer", "description": "1-200, default 50"},
        },
        "required": ["model"],
    }

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        call = RecordCall.read(request, self, arguments)
        with naming("aggregates", "group_by", "per"):
            Question.read(call)
        call.filters()
        call.search()

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Run ``aggregate_records``: return a row for each group, and totals of the groups left out."""
        call = RecordCall.read(request, self, arguments)
        given = call.given
        exposure = call.exposure
        go_to(request, exposure, "changelist")
        with naming("aggregates", "group_by", "per"):
            question = Question.read(call)
        conditions = call.filters()
        search = call.search()
        try:
            rows = narrowed(call.model, conditions, search)
            query = rows.query
            joined = sum(1 for alias in query.alias_map if query.alias_refcount.get(alias)) > 1
            if joined or query.annotations or query.distinct or query.combinator or query.is_sliced or query.extra:
                # The joins of the exposure's own queryset would multiply the sums.
                rows = exposure.model._base_manager.using(rows.db).filter(pk__in=rows.values("pk"))
            answer = question.answer(rows, conditions)
        except NotSupportedError as error:
            raise ToolError(f"The database cannot compute that: {error}") from None
        except DatabaseError as error:
            if not is_out_of_range(error):
                raise
            raise ToolError("A sum or an average is too large for the database. Narrow the filters.") from None
        bounds = [*given.limit_hint(MAX_GROUPS), *given.limit_hint(MAX_TOP, "top")]
        notes = [*opening_hint(conditions), *(f"{text}." for text in bounds)]
        if answer.rows:
            columns = list(zip(*answer.rows, strict=True))[: len(question.groups)]
            notes += shared_labels(call.model, question.groups, columns)
        if question.finds_nothing(answer):
            notes += [f"{text[0].upper()}{text[1:]}." for text in empty_hints(call.model, conditions)]
        request.mcp.record.rows_read += len(answer.rows)
        return ToolResult(structured={"model": exposure.label, **question.shown(request, answer, notes)})
