"""``aggregate_records``: counts and sums over all rows of the caller, by groups."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, NotSupportedError
from django.db.models import (
    BooleanField,
    Case,
    Count,
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

from ..context.places import go_to
from ..context.request import Exposure, MCPRequest
from ..context.results import ToolResult
from ..exceptions import ToolError
from ..orm.aggregates import AfterWindows, OverGroups
from ..orm.arguments import (
    check_names,
    exposure_argument,
    flag_argument,
    limit_argument,
    limit_hint,
    search_argument,
)
from ..orm.arithmetic import FLOAT
from ..orm.lookups import Filter, opening_hint
from ..orm.meanings import naming
from ..orm.parsing import filters_argument
from ..orm.queries import narrowed
from ..orm.repairs import with_field
from ..orm.spellings import order_meant, order_texts
from ..orm.unreadable import is_out_of_range, is_unreadable, salvaged_tuples
from ..orm.wording import json_or_text, misnamed
from ..schema.types import FREE_OBJECT, any_of
from ..writes.selection import SEARCH
from .aggregation import Measure, amount, find_title, measures_of, number
from .base import RecordTool
from .grouping import STRETCHES, Group, group_of, periods
from .having import having_of

MAX_GROUPS: Final = 200
DEFAULT_GROUPS: Final = 50
MAX_TOP: Final = 50
MAX_TERMS: Final = 10
MAX_PERIODS: Final = 1_000
PLACE: Final = "mcp_place"
NULL_PLACES: Final = ("nulls_first", "nulls_last")


class Way(NamedTuple):
    """A direction of an order: null is last in both, where it is not said to be first."""

    descending: bool
    nulls_first: bool = False


UP: Final = Way(False)
DOWN: Final = Way(True)


@dataclass(frozen=True, slots=True)
class Question:
    """What a call asks of the rows: groups and their measures, in an order, as many as ``limit``.

    With ``top``, of only so many values of the first group: those that ``rank`` puts first; or, where ``per`` names a
    group, so many groups for each of its values. With ``fill``, periods without rows are among the groups.
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

    @property
    def terms(self) -> tuple[Group | Measure, ...]:
        """All columns of the result."""
        return (*self.groups, *self.measures)

    @property
    def has_change(self) -> bool:
        """Whether a measure looks from one group to another."""
        return any(measure.has_change for measure in self.measures)


@dataclass(frozen=True, slots=True)
class Answer:
    """The groups found, ``more`` if there are others among those asked for, and what all others hold together."""

    rows: list[tuple[Any, ...]]
    more: bool = False
    rest: Mapping[str, Any] | None = None


# Arguments


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
    """Return a group with its path in one spelling."""
    if not isinstance(given, str):
        return given
    name, colon, period = given.partition(":")
    return f"{name.replace('.', '__')}{colon}{period}"


def _question(request: MCPRequest, exposure: Exposure, given: Mapping[str, Any]) -> Question:
    wanted = [_path(item) for item in _list(given.get("group_by"), "group_by")]
    named = _path(given.get("per"))
    if "per" in given and named not in wanted:
        wanted.insert(0, named)
    groups = tuple(group_of(request, exposure, item, position) for position, item in enumerate(wanted))
    per = groups[wanted.index(named)] if "per" in given else None
    measures = measures_of(request, exposure, _list(given.get("aggregates"), "aggregates") or ["count"])
    terms: list[Group | Measure] = [*groups, *measures]
    _check(given, groups, measures, per)
    top = limit_argument(given["top"], MAX_TOP, MAX_TOP) if "top" in given else None
    limit = limit_argument(given.get("limit"), DEFAULT_GROUPS if top is None else MAX_GROUPS, MAX_GROUPS)
    order = _order(terms, given.get("ordering"))
    rank = next(((term, way) for term, way in order if isinstance(term, Measure)), (measures[0], DOWN))
    if top is not None:
        order = [(term, way) for term, way in order if term is not rank[0]]
    if top is not None and len(groups) == 1:
        order, limit, top = [rank, *order], min(limit, top), None
    if per is not None:
        order = [(per, UP), rank]
    # By all groups in the end, so that the order is total.
    named = {term.alias: way for term, way in reversed([*order, *((group, UP) for group in groups)])}
    aliases = dict.fromkeys([*(term.alias for term, _ in order), *(group.alias for group in groups)])
    total = tuple((alias, named[alias]) for alias in aliases)
    fill = flag_argument(given.get("fill"), "fill")
    having = having_of(measures, given.get("having"))
    if fill and (len(groups) != 1 or groups[0].period not in STRETCHES or total[0][0] != groups[0].alias or having):
        raise ToolError('"fill" needs one period in group_by, such as "created:month", its order, and no having.')
    return Question(groups, measures, having, total, rank, limit, top, per, fill)


def _check(given: Mapping[str, Any], groups: Sequence[Group], measures: Sequence[Measure], per: Group | None) -> None:
    """Pass unless what is asked does not go together."""
    terms: list[Group | Measure] = [*groups, *measures]
    if len({term.title for term in terms}) < len(terms):
        raise ToolError('Two columns have the same name; rename one with "as".')
    for name in ("having", "top"):
        if name in given and not groups:
            raise ToolError(f'"{name}" needs "group_by".')
    if per is not None and ("top" not in given or len(groups) < 2):
        raise ToolError(
            '"per" needs "top" and another field in group_by: {"group_by": ["product"], "top": 3, "per": "country"}.'
        )
    stretches = [group for group in groups if group.period in STRETCHES]
    if any(measure.function == "change" for measure in measures) and len(stretches) != 1:
        raise ToolError('"change" needs one period in group_by, such as "created:month".')


def _order(terms: Sequence[Group | Measure], value: Any) -> list[tuple[Group | Measure, Way]]:
    """Return the columns to order by, and in which direction."""
    found: list[tuple[Group | Measure, Way]] = []
    titles = [term.title for term in terms]
    for item in _list(order_texts(value), "ordering"):
        text, place = _placed(str(item))
        name = text.lstrip("+-")
        position = find_title(titles, name)
        if position is None:
            text, place = _placed(order_meant(str(item)))
            position = find_title(titles, text.lstrip("-"))
        if position is None:
            message = f"The result has no column {name[:60]!r} to order by."
            raise misnamed(message, name, titles, partial(with_field, name, within=("ordering",)))
        found.append((terms[position], Way(text.startswith("-"), place == "nulls_first")))
    return found


def _placed(text: str) -> tuple[str, str]:
    """Return what ``-total:nulls_first`` says of the order, and where it puts null."""
    name, _, place = text.rpartition(":")
    return (name, place) if place in NULL_PLACES else (text, "")


# Queries


def _base(request: MCPRequest, exposure: Exposure, conditions: Sequence[Filter], search: str) -> QuerySet[Any]:
    """Return the rows to aggregate.

    Where the exposure's own queryset joins, annotates or deduplicates, it becomes a subquery: its joins would multiply
    the sums.
    """
    rows = narrowed(request, exposure, conditions, search)
    query = rows.query
    joined = sum(1 for alias in query.alias_map if query.alias_refcount.get(alias)) > 1
    if joined or query.annotations or query.distinct or query.combinator or query.is_sliced or query.extra:
        return exposure.model._base_manager.using(rows.db).filter(pk__in=rows.values("pk"))
    return rows


def _ordered(order: Sequence[tuple[str, Way]]) -> list[OrderBy]:
    """Return the order, in which null is where it is said to be on every database."""
    return [
        OrderBy(F(alias), descending=down, **{"nulls_first" if first else "nulls_last": True})
        for alias, (down, first) in order
    ]


def _grouped(
    rows: QuerySet[Any], groups: Sequence[Group], measures: Sequence[Measure], place: Any = None
) -> QuerySet[Any]:
    names = {group.alias: group.expression for group in groups}
    found = rows.annotate(**names)
    if place is not None:
        found = found.annotate(**{PLACE: place})
    found = found.values(*names, *([PLACE] if place is not None else []))
    found = found.annotate(**{measure.alias: measure.expression for measure in measures if not measure.sources})
    made = sorted((measure for measure in measures if measure.sources), key=lambda measure: measure.depth)
    return found.annotate(**{measure.alias: measure.expression for measure in made})


def _meeting(found: QuerySet[Any], question: Question, condition: Q) -> QuerySet[Any]:
    """Return the groups that meet a condition; a change is from the group before, whether that meets it or not."""
    if condition and question.has_change:
        return found.filter(AfterWindows(condition, output_field=BooleanField()))
    return found.filter(condition)


def _answer(rows: QuerySet[Any], question: Question) -> Answer:
    """Return the groups of the question; what they leave out is summed up by a query of its own."""
    if not question.groups:
        return Answer(_totals(rows, question.measures))
    question = _settled(rows, question)
    if question.per is not None:
        return _best_of_each(rows, question)
    place, others = _leaders(rows, question)
    if question.top is not None and place is None:
        return Answer([])
    found = _meeting(_grouped(rows, question.groups, question.measures, place), question, question.having)
    found = found.order_by(*([PLACE] if place is not None else []), *_ordered(question.order))
    wanted = _meeting(found, question, Q((f"{PLACE}__lt", question.top))) if place is not None else found
    aliases = [term.alias for term in question.terms]
    read = _read(wanted, aliases, question.limit + 1)
    shown, more = read[: question.limit], len(read) > question.limit
    if question.fill and not more:
        return Answer(_filled(shown, question))
    return Answer(shown, more, _rest(found[len(shown) :], question) if more or others else None)


def _settled(rows: QuerySet[Any], question: Question) -> Question:
    """Return the question with the expressions of those measures that depend on all groups."""
    period = next((group for group in question.groups if group.period in STRETCHES), None)
    found: dict[Measure, Any] = {}
    for measure in question.measures:
        source = measure.sources[0] if measure.sources else None
        if measure.function == "percent_of_total" and source is not None:
            ((value,),) = _totals(rows, [source])
            total = number(source, value)
            # A cast, because PostgreSQL cannot sort by NULL alone.
            found[measure] = amount(source) * Value(100.0 / total) if total else Cast(Value(None), FLOAT)
        elif measure.function == "change" and source is not None and period is not None:
            others: list[Any] = [F(group.alias) for group in question.groups if group is not period]
            # Rows without a date are of no period, neither before nor after one.
            others.append(IsNull(F(period.alias), True))
            before = Window(Lag(amount(source)), partition_by=others, order_by=F(period.alias).asc())
            found[measure] = (amount(source) - before) * Value(100.0) / NullIf(before, Value(0.0))
    made = {measure: replace(measure, expression=OverGroups(found[measure], output_field=FLOAT)) for measure in found}
    measure, way = question.rank
    return replace(
        question,
        measures=tuple(made.get(measure, measure) for measure in question.measures),
        rank=(made.get(measure, measure), way),
    )


def _best_of_each(rows: QuerySet[Any], question: Question) -> Answer:
    """Return the first groups for each value of the group ``per``."""
    assert question.per is not None
    measure, way = question.rank
    rest = [group.alias for group in question.groups if group is not question.per]
    found = _grouped(rows, question.groups, question.measures)
    # Those are counted that meet the condition.
    parts: list[Any] = [F(question.per.alias)]
    if question.having and question.has_change:
        parts.append(OverGroups(question.having, output_field=BooleanField()))
    found = _meeting(found, question, question.having)
    order = _ordered([(measure.alias, way), *((alias, UP) for alias in rest)])
    ranked = found.annotate(mcp_rank=Window(RowNumber(), partition_by=parts, order_by=order))
    wanted = ranked.filter(mcp_rank__lte=question.top).order_by(*_ordered(question.order))
    read = _read(wanted, [term.alias for term in question.terms], question.limit + 1)
    shown, more = read[: question.limit], len(read) > question.limit
    return Answer(shown, more, {"mcp_groups": found.count() - len(shown)})


def _read(rows: QuerySet[Any], aliases: Sequence[str], limit: int) -> list[tuple[Any, ...]]:
    try:
        return list(rows.values_list(*aliases)[:limit])
    except Exception as error:
        if is_out_of_range(error) or not is_unreadable(error):
            raise
    return salvaged_tuples(rows, aliases, limit)


def _filled(rows: Sequence[tuple[Any, ...]], question: Question) -> list[tuple[Any, ...]]:
    """Return the groups with those between the first and the last period that no row is of."""
    known = {row[0]: row for row in rows if row[0] is not None}
    if not known:
        return list(rows)
    empty = tuple(
        0 if measure.function in ("count", "sum") and not measure.sources else None for measure in question.measures
    )
    stretch = islice(periods(min(known), max(known), question.groups[0].period), MAX_PERIODS + 1)
    found = [known.get(period, (period, *empty)) for period in stretch]
    if len(found) > MAX_PERIODS:
        raise ToolError(
            f"There are more than {MAX_PERIODS} periods to fill: narrow the filters or group more coarsely."
        )
    way = question.order[0][1]
    none = [row for row in rows if row[0] is None]
    dated = found[::-1] if way.descending else found
    return [*none, *dated] if way.nulls_first else [*dated, *none]


def _totals(rows: QuerySet[Any], measures: Sequence[Measure]) -> list[tuple[Any, ...]]:
    plain = _behind(measures)
    try:
        totals = rows.aggregate(**{measure.alias: measure.expression for measure in plain})
    except Exception as error:
        if is_out_of_range(error) or not is_unreadable(error):
            raise
        if len(plain) == 1:
            totals = {plain[0].alias: None}
        else:
            totals = {measure.alias: value for measure in plain for (value,) in _totals(rows, [measure])}
    return [tuple(_total(measure, totals) for measure in measures)]


def _needed(measure: Measure, measures: Sequence[Measure]) -> list[Measure]:
    """Return a measure and all that it is made of, as they are among ``measures``."""
    own = next(item for item in measures if item.alias == measure.alias)
    parts = (item for source in measure.sources for item in _needed(source, measures))
    return list({item.alias: item for item in (*parts, own)}.values())


def _behind(measures: Iterable[Measure]) -> list[Measure]:
    """Return the measures of rows that these are, or are made of."""
    found = (item for measure in measures for item in (_behind(measure.sources) if measure.sources else [measure]))
    return list({item.alias: item for item in found}.values())


def _total(measure: Measure, totals: Mapping[str, Any]) -> Any:
    """Return the value of a measure over all rows."""
    values = [_total(source, totals) for source in measure.sources]
    if measure.derive is not None:
        return measure.derive(*values)
    return (100.0 if values[0] else None) if values else totals[measure.alias]


def _leaders(rows: QuerySet[Any], question: Question) -> tuple[Any, bool]:
    """Return an expression of the place of a row by the value of its first group, and whether some have no place.

    The expression is None where no place is asked for, or there is nothing to place.
    """
    if question.top is None:
        return None, False
    first, (measure, way) = question.groups[0], question.rank
    if measure.has_change:
        raise ToolError('"top" cannot rank by a change: order by it, or rank by what changes.')
    ranked = _grouped(rows, [first], _needed(measure, question.measures)).order_by(
        *_ordered([(measure.alias, way), (first.alias, UP)])
    )
    values = list(ranked.values_list(first.alias, flat=True)[: question.top + 1])
    if not values:
        return None, False
    places = [When(first.equals(value), then=Value(place)) for place, value in enumerate(values[: question.top])]
    return Case(*places, default=Value(question.top), output_field=IntegerField()), len(values) > question.top


def _rest(found: QuerySet[Any], question: Question) -> dict[str, Any]:
    """Return how many groups there are, and what those measures come to that can be told from their parts."""
    combined = {measure.alias: measure.combined() for measure in question.measures}
    known = {f"mcp_r{alias}": expression for alias, expression in combined.items() if expression is not None}
    return found.aggregate(mcp_groups=Count("*"), **known)


# Result


def _payload(
    request: MCPRequest, exposure: Exposure, question: Question, answer: Answer, hints: Iterable[str]
) -> dict[str, Any]:
    payload: dict[str, Any] = {"model": exposure.label, "returned": len(answer.rows)}
    if answer.more:
        payload["truncated"] = True
    if answer.rest is not None and answer.rest["mcp_groups"]:
        payload["rest"] = _shown_rest(request, question, answer.rest)
    hint = " ".join([*_hints(question, answer), *hints])
    if hint:
        payload["hint"] = hint
    columns = [list(values) for values in zip(*answer.rows, strict=True)] or [[] for _ in question.terms]
    shown = [term.shown(request, values) for term, values in zip(question.terms, columns, strict=True)]
    payload["columns"] = [term.title for term in question.terms]
    payload["rows"] = [list(row) for row in zip(*shown, strict=True)]
    return payload


def _shown_rest(request: MCPRequest, question: Question, rest: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"groups": rest["mcp_groups"]}
    for measure in question.measures:
        name = f"mcp_r{measure.alias}"
        if name in rest:
            shown[measure.title] = measure.shown(request, [rest[name]])[0]
    return shown


def _hints(question: Question, answer: Answer) -> Iterator[str]:
    if question.per is not None and answer.rest is not None and answer.rest["mcp_groups"]:
        yield f"Only the first {question.top} of each {question.per.title} are shown."
    if answer.more:
        ways = ["raise limit"] * (question.limit < MAX_GROUPS) + ["narrow the filters", "group more coarsely"]
        ways += ["use top"] * (not question.top)
        yield f"There are more than {question.limit} groups: {', '.join(ways[:-1])} or {ways[-1]}."
    hidden = {label: None for term in question.terms for label in term.narrowed}
    if hidden:
        yield f"Records of {', '.join(hidden)} that you may not see count as null."


class AggregateRecords(RecordTool):
    """Counts, sums, averages, extremes, over all matching rows or by groups."""

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
            "search": SEARCH,
            "having": {**FREE_OBJECT, "description": "sum_total__gte: 1000"},
            "ordering": {"type": "array", "items": {"type": "string"}, "description": "Result columns"},
            "top": {"type": "integer", "description": "Of the first group"},
            "per": {"type": "string", "description": "Group with its own top"},
            "fill": {"type": "boolean", "description": "Empty periods too"},
            "limit": {"type": "integer", "description": "1-200, default 50"},
        },
        "required": ["model"],
    }
    read_only = True

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        """See :meth:`RecordTool.check`."""
        given = check_names(arguments, self.input_schema["properties"])
        exposure = exposure_argument(request, given.get("model"), given)
        with naming(request, "aggregates", "group_by", "per"):
            _question(request, exposure, given)
        filters_argument(request, exposure, given.get("filters"))
        search_argument(request, exposure, given.get("search"))

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each group, and what the groups beyond them hold together."""
        given = check_names(arguments, self.input_schema["properties"])
        exposure = exposure_argument(request, given.get("model"), given)
        go_to(request, exposure, "changelist")
        with naming(request, "aggregates", "group_by", "per"):
            question = _question(request, exposure, given)
        conditions = filters_argument(request, exposure, given.get("filters"))
        search = search_argument(request, exposure, given.get("search"))
        try:
            answer = _answer(_base(request, exposure, conditions, search), question)
        except NotSupportedError as error:
            raise ToolError(f"The database cannot compute that: {error}") from None
        except DatabaseError as error:
            if not is_out_of_range(error):
                raise
            raise ToolError("A sum or an average is too large for the database. Narrow the filters.") from None
        bounds = [*limit_hint(given.get("limit"), MAX_GROUPS), *limit_hint(given.get("top"), MAX_TOP, "top")]
        hints = [*opening_hint(conditions), *(f"{text}." for text in bounds)]
        request.mcp.record.rows_read += len(answer.rows)
        return ToolResult(structured=_payload(request, exposure, question, answer, hints))
