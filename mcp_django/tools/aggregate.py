"""``aggregate_records``: counts and sums over all rows of the caller, by groups."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Avg, Count, F, Max, Min, QuerySet, Sum
from django.db.models.functions import TruncDay, TruncMonth, TruncYear

from ..context import MCPRequest
from ..exceptions import ToolError
from ..kinds import kind_of
from ..queries import narrowed
from ..relations import labels_for
from ..serializers import Column, field_renderer, render, render_column, resolve_column
from ..visibility import visible_fields, visible_name
from .arguments import (
    alternatives,
    check_names,
    exposure_argument,
    filters_argument,
    json_or_text,
    limit_argument,
    search_argument,
)
from .base import RecordTool, ToolResult

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["AggregateRecords"]

MAX_GROUPS: Final = 200
MAX_TERMS: Final = 10
MAX_DECIMALS: Final = 6
MAX_DIGITS: Final = 100
FUNCTIONS: Final[Mapping[str, type[Any]]] = {"count": Count, "sum": Sum, "avg": Avg, "min": Min, "max": Max}
PERIODS: Final[Mapping[str, tuple[type[Any], int]]] = {
    "year": (TruncYear, 4),
    "month": (TruncMonth, 7),
    "day": (TruncDay, 10),
}
_TITLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Term:
    """One column of the result: the client's ``title``, the ``alias`` in the query, and what it stands for.

    The alias is made here: what a client writes is never a name in SQL.
    """

    title: str
    alias: str
    expression: Any
    column: Column | None = None
    digits: int | None = None
    places: int | None = None


def _visible_column(request: MCPRequest, exposure: "ModelExposure", text: str, usable: Any) -> Column:
    name = visible_name(request, exposure, text)
    column = resolve_column(exposure, name) if name is not None else None
    if column is None or not usable(column):
        known = [
            name
            for name in visible_fields(request, exposure)
            if (found := resolve_column(exposure, name)) is not None and usable(found)
        ]
        raise ToolError(f"{exposure.label} has no field {text[:60]!r} for this. {alternatives(text, known)}")
    return column


def _is_countable(column: Column) -> bool:
    return column.is_plain and column.kind in ("field", "relation")


def _is_summable(column: Column) -> bool:
    return _is_countable(column) and column.kind == "field" and kind_of(column.field).summable


def _is_comparable(column: Column) -> bool:
    return _is_countable(column) and column.kind == "field" and "gt" in kind_of(column.field).lookups


def _is_groupable(column: Column) -> bool:
    return _is_countable(column) and kind_of(column.field).sortable


def _is_period(column: Column) -> bool:
    return _is_countable(column) and kind_of(column.field).word in ("date", "datetime")


def _aggregate(request: MCPRequest, exposure: "ModelExposure", given: Any, position: int) -> Term:
    function, field, title = _spelt(given)
    if function not in FUNCTIONS:
        raise ToolError(f"Unknown aggregate {str(function)[:40]!r}. {alternatives(function, FUNCTIONS)}")
    if field in (None, "", "*"):
        if function != "count":
            raise ToolError(f'The aggregate {function} needs a field, such as "{function}:total".')
        return Term(title or "count", f"a{position}", Count("pk"))
    usable = {"count": _is_countable, "sum": _is_summable, "avg": _is_summable}.get(function, _is_comparable)
    column = _visible_column(request, exposure, str(field), usable)
    expression = FUNCTIONS[function](F(column.path))
    shown = None if function == "count" else column
    # An average has decimals of its own; every other number has those of its column.
    places = None if function == "avg" else getattr(column.field, "decimal_places", None)
    return Term(title or f"{function}_{column.name}", f"a{position}", expression, shown, places=places)


def _spelt(given: Any) -> tuple[Any, Any, str]:
    """Return function, field and title of ``"sum:total"`` or ``{"function": "sum", "field": "total", "as": "all"}``."""
    given = json_or_text(given)
    if isinstance(given, str):
        name, _, of = given.partition(":")
        return name.strip().lower(), of.strip(), ""
    if not isinstance(given, dict) or not given.keys() <= {"function", "field", "as"}:
        raise ToolError('An aggregate is "count", "sum:field", or {"function", "field", "as"}.')
    function, field, title = given.get("function"), given.get("field"), given.get("as") or ""
    if not isinstance(function, str) or not isinstance(field, (str, type(None))) or not isinstance(title, str):
        raise ToolError('An aggregate is "count", "sum:field", or {"function", "field", "as"}.')
    if title and not _TITLE.fullmatch(title):
        raise ToolError("as must be a short name of letters, digits and underscores.")
    return function.lower(), field, title


def _group(request: MCPRequest, exposure: "ModelExposure", given: Any, position: int) -> Term:
    if not isinstance(given, str):
        raise ToolError('group_by is a list of fields, a date also as "created:month".')
    name, _, period = given.partition(":")
    if not period:
        column = _visible_column(request, exposure, name, _is_groupable)
        return Term(column.name, f"g{position}", F(column.path), column)
    if period not in PERIODS:
        raise ToolError(f"Unknown period {period[:40]!r}. {alternatives(period, PERIODS)}")
    column = _visible_column(request, exposure, name, _is_period)
    function, digits = PERIODS[period]
    return Term(f"{column.name}:{period}", f"g{position}", function(F(column.path)), column, digits)


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


def _order(terms: Sequence[Term], groups: Sequence[Term], value: Any) -> list[str]:
    """Return the order by aliases: as asked for, then by the groups, so that it is total."""
    found: list[str] = []
    for text in _list(value, "ordering"):
        name = str(text).lstrip("+-")
        term = next((term for term in terms if term.title == name), None)
        if term is None:
            known = [term.title for term in terms]
            raise ToolError(f"The result has no column {name[:60]!r} to order by. {alternatives(name, known)}")
        found.append(("-" if str(text).startswith("-") else "") + term.alias)
    named = {alias.lstrip("-") for alias in found}
    return found + [group.alias for group in groups if group.alias not in named]


def _base(request: MCPRequest, exposure: "ModelExposure", arguments: Mapping[str, Any]) -> QuerySet[Any]:
    """Return the rows to aggregate.

    Where the exposure's own queryset joins, annotates or deduplicates, it becomes a subquery: its joins would multiply
    the sums.
    """
    conditions = filters_argument(request, exposure, arguments.get("filters"))
    search = search_argument(request, exposure, arguments.get("search"))
    rows = narrowed(request, exposure, conditions, search)
    query = rows.query
    joined = sum(1 for alias in query.alias_map if query.alias_refcount.get(alias)) > 1
    if joined or query.annotations or query.distinct or query.combinator or query.is_sliced or query.extra:
        return exposure.model._base_manager.filter(pk__in=rows.values("pk"))
    return rows


def _trimmed(value: Any, places: int | None) -> Any:
    """Return a decimal with the digits of its column, an average without those that the division alone made."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    if places is not None:
        return value.quantize(Decimal(1).scaleb(-places), context=Context(prec=MAX_DIGITS))
    return round(value, MAX_DECIMALS).normalize()


def _shown(request: MCPRequest, term: Term, values: list[Any]) -> list[Any]:
    column = term.column
    if term.digits is not None:
        return [None if value is None else value.isoformat()[: term.digits] for value in values]
    if column is None:
        return values
    if term.alias.startswith("a"):
        return [render(_trimmed(value, term.places)) for value in values]
    renderer = field_renderer(column.field, 200, "")
    keys, _ = render_column(column.name, renderer, values)
    if column.kind != "relation":
        return keys
    labels = labels_for(request, column.field, values)
    return [None if key is None else [key, labels.get(value)] for key, value in zip(keys, values, strict=True)]


class AggregateRecords(RecordTool):
    """Counts, sums, averages, extremes, over all matching rows or by groups."""

    name = "aggregate_records"
    title = "Aggregate records"
    description = (
        "Use this for totals and statistics instead of reading rows: count, sum, avg, min, max, by groups. Example: "
        '{"model":"shop.order","aggregates":["count","sum:total"],"group_by":["status","created:month"],'
        '"ordering":["-sum_total"]}'
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "aggregates": {"type": "array", "items": {"type": "string"}, "description": '"count" or "function:field"'},
            "group_by": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Fields; dates also as field:year, :month or :day",
            },
            "filters": {"type": "object", "description": "As in query_records"},
            "search": {"type": "string"},
            "ordering": {"type": "array", "items": {"type": "string"}, "description": "Columns of the result"},
            "limit": {"type": "integer", "description": "Groups, 1-200, default 50"},
        },
        "required": ["model"],
    }
    read_only = True

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each group."""
        given = check_names(arguments, self.input_schema["properties"])
        exposure = exposure_argument(request, given.get("model"))
        groups = [
            _group(request, exposure, item, position)
            for position, item in enumerate(_list(given.get("group_by"), "group_by"))
        ]
        asked = _list(given.get("aggregates"), "aggregates") or ["count"]
        aggregates = [_aggregate(request, exposure, item, position) for position, item in enumerate(asked)]
        terms = [*groups, *aggregates]
        if len({term.title for term in terms}) < len(terms):
            raise ToolError('Two columns have one name: name one of them otherwise, by "as".')
        limit = limit_argument(given.get("limit"), 50, MAX_GROUPS)
        order = _order(terms, groups, given.get("ordering"))
        rows = _base(request, exposure, given)
        if groups:
            found = rows.values(**{term.alias: term.expression for term in groups})
            found = found.annotate(**{term.alias: term.expression for term in aggregates})
            read = list(found.order_by(*order).values_list(*[term.alias for term in terms])[: limit + 1])
        else:
            totals = rows.aggregate(**{term.alias: term.expression for term in aggregates})
            read = [tuple(totals[term.alias] for term in aggregates)]
        return ToolResult(structured=_payload(request, exposure, terms, read, limit))


def _payload(
    request: MCPRequest, exposure: "ModelExposure", terms: Sequence[Term], rows: list[tuple[Any, ...]], limit: int
) -> dict[str, Any]:
    payload: dict[str, Any] = {"model": exposure.label, "returned": min(len(rows), limit)}
    if len(rows) > limit:
        payload["truncated"] = True
        payload["hint"] = f"There are more than {limit} groups: narrow the filters, or group more coarsely."
    columns = [list(values) for values in zip(*rows[:limit], strict=True)] or [[] for _ in terms]
    shown = [_shown(request, term, values) for term, values in zip(terms, columns, strict=True)]
    payload["columns"] = [term.title for term in terms]
    payload["rows"] = [list(row) for row in zip(*shown, strict=True)]
    return payload
