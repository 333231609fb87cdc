"""Calls that show what can be asked of a model: each works as it stands for the caller whom it is shown to.

Values are those that the model declares. None is read from a row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..orm.access import columns_of, related_exposure, visible_fields
from ..orm.columns import Column
from ..orm.kinds import choices_of, holds_many, kind_of
from ..orm.parsing import filters_argument
from ..orm.ways import is_countable, is_groupable, is_period, is_summable, links_of
from ..schema.types import texts_of
from .aggregation import measures_of
from .grouping import group_of

T = TypeVar("T")

# What finds rows by a column of the type, where no choice does.
LOOKUPS: Final[Mapping[str, tuple[str, Any]]] = {
    "boolean": ("", True),
    "date": ("__gte", "start of last year"),
    "datetime": ("__gte", "start of last year"),
    "integer": ("__gt", 0),
    "decimal": ("__gt", 0),
    "number": ("__gt", 0),
    "text": ("__icontains", "a"),
}
MATCHING: Final = "matching"


def examples_of(request: MCPRequest, exposure: Exposure) -> list[dict[str, Any]]:
    """Return a page, filtered through a relation where there is one, and an aggregate with a condition."""
    made = {"query_records": _page, "aggregate_records": _aggregate}
    found: list[dict[str, Any]] = [
        {"tool": tool, "arguments": {"model": exposure.label, **arguments(request, exposure)}}
        for tool, arguments in made.items()
        if request.mcp.site.get_tool(request, tool) is not None
    ]
    if settings.SCHEMAS == "plain":
        for example in found:
            example["arguments"] = {name: texts_of(value) for name, value in example["arguments"].items()}
    return found


def _page(request: MCPRequest, exposure: Exposure) -> dict[str, Any]:
    conditions = (*_through_relations(request, exposure), *_conditions(request, exposure))
    found = _first(conditions, lambda filters: filters_argument(request, exposure, filters))
    return {"filters": found} if found else {"limit": 5}


def _aggregate(request: MCPRequest, exposure: Exposure) -> dict[str, Any]:
    columns = [column for column in _columns(request, exposure) if column.name != exposure.opts.pk.name]
    summed = (f"sum:{column.name}" for column in columns if is_summable(column))
    measure = _first(summed, lambda text: measures_of(request, exposure, [text])) or "count"
    function, _, field = measure.partition(":")
    conditional = {"function": function, **({"field": field} if field else {}), "as": MATCHING}
    conditions = (*_conditions(request, exposure), *_through_relations(request, exposure))
    part = _first(
        ({**conditional, "where": where} for where in conditions),
        lambda item: measures_of(request, exposure, [measure, item]),
    )
    periods = (f"{column.name}:month" for column in columns if is_period(column))
    names = (column.name for column in columns if is_groupable(column) and _has_few_values(column))
    group = _first((*periods, *names), lambda text: group_of(request, exposure, text, 0))
    return {"aggregates": [measure, *([part] if part else [])], **({"group_by": [group]} if group else {})}


def _first(candidates: Iterable[T], read: Callable[[T], Any]) -> T | None:
    """Return the first of the candidates that can be read, as the call will be."""
    for candidate in candidates:
        try:
            read(candidate)
        except ToolError:
            continue
        return candidate
    return None


def _columns(request: MCPRequest, exposure: Exposure) -> Sequence[Column]:
    columns = columns_of(exposure, visible_fields(request, exposure))
    return [column for column in columns if is_countable(column) and _is_stored_as_usual(column.field)]


def _is_stored_as_usual(field: Any) -> bool:
    """Return whether the database has a type for the field that Django chose: of others little is known."""
    return type(field).db_type.__module__.startswith("django.")


def _has_few_values(column: Column) -> bool:
    return column.kind == "relation" or bool(column.field.choices) or kind_of(column.field).word == "boolean"


def _through_relations(request: MCPRequest, exposure: Exposure) -> Iterator[dict[str, Any]]:
    links = links_of(request, exposure)
    for link in links:
        yield from ({link.name: {"some": condition}} for condition in _conditions(request, link.exposure))
    yield from ({link.name: {"count__gte": 2}} for link in links)
    for column in _columns(request, exposure):
        related = related_exposure(request, column.field) if column.kind == "relation" else None
        if related is not None:
            for condition in _conditions(request, related):
                yield {f"{column.name}.{name}": value for name, value in condition.items()}


def _conditions(request: MCPRequest, exposure: Exposure) -> Iterator[dict[str, Any]]:
    """Yield conditions on the columns, those first that say most of the model."""
    columns = [column for column in _columns(request, exposure) if column.kind == "field"]
    for column in columns:
        stored = [value for value, _ in choices_of(column.field) if value and isinstance(value, str | int)]
        if stored and not holds_many(column.field):
            yield {column.name: stored[-1]}
    for word, (lookup, value) in LOOKUPS.items():
        for column in columns:
            if kind_of(column.field).word == word and not column.field.choices and not column.field.primary_key:
                yield {f"{column.name}{lookup}": value}
