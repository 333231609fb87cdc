"""``query_records`` and ``get_record``: rows of a model as columns and rows, and one row in full."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.db.models import Model

from ..addresses import parse_uri, row_uri, row_uri_pattern
from ..conf import settings
from ..context import MCPRequest
from ..exceptions import NotFound, ToolError
from ..pages import Page, read_page, show_row
from ..pagination import read_cursor, write_cursor
from ..queries import COUNT_CAP, PageQuery, count_rows
from ..rows import FoundRow, find_row
from ..serializers import clean_text, label_of
from ..visibility import columns_of, get_exposure, visible_fields
from .arguments import (
    RECORD_NOT_FOUND,
    check_names,
    exposure_argument,
    fields_argument,
    filters_argument,
    flag_argument,
    limit_argument,
    ordering_argument,
    search_argument,
)
from .base import RecordTool, ToolResult

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["ALWAYS_LOAD", "GetRecord", "QueryRecords", "page_payload", "read_query", "record_payload"]

ALWAYS_LOAD: Final = {"anthropic/alwaysLoad": True}
NAMES: Final = {"type": "array", "items": {"type": "string"}}
# Characters of a value in a row that is too large for a result by itself.
LAST_RESORT: Final = 60


def _purpose(query: PageQuery) -> str:
    """Return what a cursor is bound to: the model and all that decides which rows come in which order."""
    conditions = [[c.path.column, c.lookup, [str(value) for value in c.values]] for c in query.conditions]
    order = [[key.path, key.descending] for key in query.ordering]
    digest = blake2b(orjson.dumps([conditions, order, query.search]), digest_size=16).hexdigest()
    return f"{query.exposure.label}:{digest}"


def read_query(request: MCPRequest, exposure: "ModelExposure", arguments: Mapping[str, Any]) -> PageQuery:
    """Return the page that ``fields``, ``filters``, ``search``, ``ordering``, ``limit`` and ``cursor`` ask for.

    Raises:
        ToolError: one of them is not what the caller may ask.
    """
    query = PageQuery(
        exposure=exposure,
        columns=fields_argument(request, exposure, arguments.get("fields")),
        ordering=ordering_argument(request, exposure, arguments.get("ordering")),
        limit=limit_argument(arguments.get("limit"), exposure.get_list_per_page(request)),
        conditions=filters_argument(request, exposure, arguments.get("filters")),
        search=search_argument(request, exposure, arguments.get("search")),
        text_limit=settings.TEXT_CHARS,
    )
    cursor = arguments.get("cursor")
    if cursor is None or cursor == "":
        return query
    after = read_cursor(request, _purpose(query), query.ordering, cursor)
    return PageQuery(**{name: getattr(query, name) for name in PageQuery.__slots__ if name != "after"}, after=after)


def page_payload(request: MCPRequest, query: PageQuery, *, count: bool = False) -> dict[str, Any]:
    """Return a page as ``{model, count?, returned, next_cursor?, truncated?, hint?, uri, columns, rows}``.

    What a reader must not miss stands before the rows: some clients cut the end of a long result.

    Raises:
        ToolError: the database has no such value as a filter names, or the order cannot be paged.
    """
    page = read_page(request, query)
    kept = _fitting(page, settings.RESULT_CHARS)
    payload: dict[str, Any] = {"model": query.exposure.label}
    if count:
        total = count_rows(request, query)
        payload["count"] = total if total <= COUNT_CAP else f"more than {COUNT_CAP}"
    payload["returned"] = kept
    hints = list(page.notes)
    if kept < len(page.rows) or page.more:
        payload["next_cursor"] = write_cursor(request, _purpose(query), query.ordering, page.keys[kept - 1])
    if kept < len(page.rows):
        payload["truncated"] = True
        hints.insert(0, f"only {kept} rows fit: go on with next_cursor, or name fewer fields")
    if hints:
        payload["hint"] = "; ".join(hints)
    payload["uri"] = row_uri_pattern(query.exposure)
    payload["columns"] = page.names
    payload["rows"] = page.rows[:kept]
    return payload


def _fitting(page: Page, limit: int) -> int:
    """Return how many rows fit into a result; one always does, if need be with its texts cut short."""
    if len(orjson.dumps(page.rows)) <= limit:
        return len(page.rows)
    used = 0
    for position, row in enumerate(page.rows):
        used += len(orjson.dumps(row).decode()) + 1
        if used > limit:
            if position == 0:
                page.rows[0] = [_short(value) for value in row]
                page.notes.append("the row is too long for a result and was cut")
            return max(position, 1)
    return len(page.rows)


def _short(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        value = orjson.dumps(value).decode()
    return clean_text(value, LAST_RESORT) if isinstance(value, str) else value


class QueryRecords(RecordTool):
    """Rows of a model: filtered, searched, sorted, paged."""

    name = "query_records"
    title = "Query records"
    description = (
        "Use this to list or find records: filter, search, sort, page. Returns columns and rows; a foreign key is "
        "[pk, label]. Go on with next_cursor until it is absent. Lookups are field__lookup: in, isnull, gt, gte, lt, "
        "lte, range, contains, icontains, startswith. Examples: "
        '{"model":"shop.order","filters":{"status":"paid","created__gte":"2026-01-01"},"ordering":["-total"],'
        '"fields":["number","customer","total"]} '
        '{"model":"shop.customer","search":"smith","limit":5,"count":true}'
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "filters": {"type": "object"},
            "search": {"type": "string"},
            "ordering": {**NAMES, "description": '"-" first: descending'},
            "fields": {**NAMES, "description": "Columns wanted"},
            "limit": {"type": "integer", "description": "1-200, default 20"},
            "cursor": {"type": "string"},
            "count": {"type": "boolean", "description": "Also count all matches"},
        },
        "required": ["model"],
    }
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "returned": {"type": "integer"},
            "next_cursor": {"type": "string"},
            "columns": NAMES,
            "rows": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["returned", "columns", "rows"],
    }
    read_only = True
    meta = ALWAYS_LOAD

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return one page."""
        given = check_names(arguments, self.input_schema["properties"])
        exposure = exposure_argument(request, given.get("model"))
        count = flag_argument(given.get("count"), "count")
        return ToolResult(structured=page_payload(request, read_query(request, exposure, given), count=count))


def record_payload(
    request: MCPRequest,
    exposure: "ModelExposure",
    obj: Model,
    fields: Sequence[str] | None = None,
    labels: Mapping[str, str | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return one row in full: ``{model, pk, uri, label, permissions, hint?, fields}``.

    ``fields`` are names that the caller may read, None for all; ``labels`` are what :func:`find_row` found. Long texts
    are not cut but where the whole would be longer than ``RESULT_CHARS``.
    """
    names = visible_fields(request, exposure, obj) if fields is None else exposure.with_primary_key(fields)
    page = show_row(request, exposure, obj, columns_of(exposure, names), labels)
    values = dict(zip(page.names, page.rows[0], strict=True))
    payload: dict[str, Any] = {
        "model": exposure.label,
        "pk": values[exposure.opts.pk.name],
        "uri": row_uri(exposure, obj.pk),
        "label": label_of(exposure, obj),
        "permissions": {
            "change": _may(request, exposure.has_change_permission, obj),
            "delete": _may(request, exposure.has_delete_permission, obj),
        },
    }
    cut = _cut(values, settings.RESULT_CHARS)
    hints = list(page.notes)
    if cut:
        hints.append(f"cut for length: {', '.join(cut)}; name one of them in fields to read more")
    if hints:
        payload["hint"] = "; ".join(hints)
    payload["fields"] = values
    return payload


def _may(request: MCPRequest, verdict: Any, obj: Model) -> bool:
    writes = "mcp:write" in request.mcp.scopes and not settings.READ_ONLY
    return writes and bool(verdict(request, obj))


def _cut(values: dict[str, Any], limit: int) -> list[str]:
    """Cut the longest values until all fit together, and return their names."""
    sizes = {name: len(orjson.dumps(value)) for name, value in values.items()}
    over, names = sum(sizes.values()) - limit, []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if over <= 0:
            break
        keep = max(sizes[name] - over - 100, settings.TEXT_CHARS)
        text = values[name] if isinstance(values[name], str) else orjson.dumps(values[name]).decode()
        values[name] = clean_text(text, keep)
        over -= sizes[name] - len(orjson.dumps(values[name]))
        names.append(name)
    return names


class GetRecord(RecordTool):
    """One row in full."""

    name = "get_record"
    title = "Get record"
    description = "Use this to read one record in full, long texts included. Name it by model and pk, or by its uri."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "pk": {"type": ["string", "integer"]},
            "uri": {"type": "string", "description": "django://app/model/pk"},
            "fields": NAMES,
        },
    }
    read_only = True

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the row."""
        given = check_names(arguments, self.input_schema["properties"])
        exposure, found = self._find(request, given)
        names = None
        if given.get("fields") is not None:
            names = [column.name for column in fields_argument(request, exposure, given["fields"])]
            shown = visible_fields(request, exposure, found.row)
            names = [name for name in names if name in shown]
        return ToolResult(structured=record_payload(request, exposure, found.row, names, found.labels))

    def _find(self, request: MCPRequest, given: Mapping[str, Any]) -> tuple["ModelExposure", FoundRow]:
        if given.get("uri") is not None:
            try:
                address = parse_uri(given["uri"])
                exposure = get_exposure(request, address.label)
                if address.pk is None or address.field_name is not None:
                    raise NotFound
                return exposure, find_row(request, exposure, address.pk)
            except NotFound:
                raise ToolError(RECORD_NOT_FOUND) from None
        if given.get("model") is None or given.get("pk") is None:
            raise ToolError("Name the record by model and pk, or by uri.")
        exposure = exposure_argument(request, given["model"])
        try:
            return exposure, find_row(request, exposure, given["pk"])
        except NotFound:
            raise ToolError(RECORD_NOT_FOUND) from None
