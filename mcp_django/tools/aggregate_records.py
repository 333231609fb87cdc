"""``aggregate_records``: counts and sums over all rows of the caller, by groups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.picked_rows import Selection
from ..orm.aggregates.aggregation import AggregateResult, Aggregation
from ..orm.conditions import condition_hints
from ..orm.empty_results import empty_hints
from ..schema.value_types import FREE_OBJECT
from .base import RecordTool
from .query_records import RecordCall


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
                "items": {"anyOf": [{"type": "string"}, FREE_OBJECT]},
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
        Aggregation.read(call.model, call.given)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each group, and totals of the groups left out."""
        call = RecordCall.read(request, self, arguments)
        request.go_to(call.exposure, "changelist")
        aggregation = Aggregation.read(call.model, call.given)
        result = aggregation.rows()

        # Hints that need a query come after the rows that they are about.
        bounds = [
            *call.given.limit_hint(aggregation.max_groups),
            *call.given.limit_hint(aggregation.max_top, "top"),
        ]
        hints = [*condition_hints(aggregation.conditions, call.exposure.model), *(f"{text}." for text in bounds)]
        hints += [*result.unconverted, *result.label_hints()]
        if result.is_empty:
            empty = empty_hints(call.model, aggregation.conditions)
            hints += [f"{text[0].upper()}{text[1:]}." for text in empty]
        request.mcp.record.rows_read += len(result.rows)
        return ToolResult(structured={"model": call.exposure.label, **_payload(result, hints)})


def _payload(result: AggregateResult, hints: Sequence[str]) -> dict[str, Any]:
    """Return the result as ``{returned, truncated?, rest?, hint?, columns, rows}``."""
    payload: dict[str, Any] = {"returned": len(result.rows)}
    if result.is_cut:
        payload["truncated"] = True
    rest = result.rest
    if rest is not None:
        payload["rest"] = rest
    if hint := " ".join([*_hints(result, has_rest=rest is not None), *hints]):
        payload["hint"] = hint
    payload["columns"] = [term.title for term in result.aggregation.terms]
    payload["rows"] = result.cells()
    return payload


def _hints(result: AggregateResult, *, has_rest: bool) -> Iterator[str]:
    """Yield what the caller should know about the rows: which groups are left out, which values are."""
    aggregation = result.aggregation
    if aggregation.per is not None and has_rest:
        yield f"Only the first {aggregation.top} of each {aggregation.per.title} are shown."
    if result.is_cut:
        ways = ["narrow the filters", "group more coarsely"]
        if aggregation.limit < aggregation.max_groups:
            ways.insert(0, "raise limit")
        if not aggregation.top:
            ways.append("use top")
        yield f"There are more than {aggregation.limit} groups: {', '.join(ways[:-1])} or {ways[-1]}."
    if result.tied:
        yield f"The last place is shared: others have the same {result.tied}."
    hidden = dict.fromkeys(label for term in aggregation.terms for label in term.narrowed)
    if hidden:
        yield f"Records of {', '.join(hidden)} that you may not see count as null."
    if result.unreadable:
        yield f"{', '.join(result.unreadable)}: a value cannot be read and is null."
