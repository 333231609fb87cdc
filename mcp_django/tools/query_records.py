"""``query_records``: rows of a model as columns and rows."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from time import monotonic
from typing import Any, Final

from django.db.models import Model

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.picked_rows import Selection
from ..exceptions import ToolError
from ..orm.conditions import condition_hints
from ..orm.empty_results import empty_hints
from ..orm.ordering import Orderings
from ..orm.pagination import PageQuery
from ..orm.query_limits import read_limits
from ..orm.row_arguments import RowArguments
from ..orm.row_reading import read_page
from ..orm.tool_arguments import Arguments
from ..orm.trigram_search import similar_page
from ..orm.uris import Address
from ..schema.value_types import FREE_OBJECT
from .base import RecordTool

ALWAYS_LOAD: Final = {"anthropic/alwaysLoad": True}
NAMES: Final = {"type": "array", "items": {"type": "string"}}
# Number of rows above which a slow order gets a hint, seconds for which the size of a table is cached, and maximum
# number of faster orders that the hint names.
LONG_TABLE: Final = 10_000
KNOWN_FOR: Final = 3_600
MAX_QUICK: Final = 3
# Hint where the model's own order is used without a part of it.
UNORDERED: Final = "pages cannot follow a part of the model's own order: name an ordering"
# Share of the call's time that counting the matching rows can take.
COUNT_SHARE: Final = 0.5


class RecordCall(RowArguments):
    """One call that queries records (``query_records``): the caller, the model and the arguments."""

    @classmethod
    def read(cls, request: MCPRequest, tool: RecordTool, arguments: Mapping[str, Any]) -> "RecordCall":
        """Read the arguments of ``query_records``, or of a tool with its filters; each must be known."""
        given = Arguments.read(arguments, tool.input_schema["properties"])

        def fits(label: str) -> bool:
            try:
                tool.check(request, {**given, "model": label})
            except ToolError:
                return False
            return True

        return cls(given.model(request, fits), given)

    def payload(self, query: PageQuery, *, count: bool = False, notes: Iterable[str] = ()) -> dict[str, Any]:
        """Return the result of ``query_records``: a page as ``{model, count?, returned, next_cursor?, truncated?,
        hint?, uri, columns, rows}``.

        Everything important stands before the rows, because some clients cut off the end of a long result. ``notes``
        are hints about the call, for ``hint``.
        """
        page = read_page(query)
        if query.search and not page.rows and query.after is None:
            page = similar_page(query, page)
        if page.more and not query.conditions and not query.search:
            page.notes += _order_hint(query)
        kept = page.fit(self.model.request.mcp.result_chars)
        payload: dict[str, Any] = {"model": self.model.exposure.label}
        if count:
            # Never lose the page, which has been read already, to a slow count.
            try:
                with read_limits(COUNT_SHARE):
                    payload["count"] = query.total()
            except ToolError:
                page.notes.append("counting took too long: narrow the filters")
                payload["count"] = "unknown"
        payload["returned"] = kept
        hints = [*notes, *page.notes, *condition_hints(query.conditions, self.model.exposure.model)]
        if not page.rows and query.after is None:
            hints += empty_hints(self.model, query.conditions)
        if (kept < len(page.rows) or page.more) and page.keys:
            try:
                payload["next_cursor"] = query.next_cursor(page.keys[kept - 1])
            except ToolError as error:
                hints.append(f"there are more rows. {error.message}")
        if kept < len(page.rows):
            payload["truncated"] = True
            hints.insert(0, f"only {kept} rows fit: continue with next_cursor, or name fewer fields")
        if hints:
            payload["hint"] = "; ".join(hints)
        payload["uri"] = Address(self.model).pattern()
        payload["columns"] = page.names
        payload["rows"] = page.rows[:kept]
        return payload


def _order_hint(query: PageQuery) -> list[str]:
    """Return the hint of ``query_records`` on a long table that no index serves in this order: faster ones."""
    model = query.model
    table = model.exposure.model
    orderings = Orderings(model)
    if orderings.is_served(query.ordering) or not _is_long(table, int(monotonic() // KNOWN_FOR)):
        return []
    known = orderings.names()
    keys = {name: key for name in known if (key := orderings.key(name)) is not None}
    names = ", ".join(islice((name for name, key in keys.items() if orderings.is_served([key])), MAX_QUICK))
    instead = f": filters, or ordering by {names}, are faster" if names else ": filters make it faster"
    # The exposure's own order may begin with a column that the caller does not see.
    path = query.ordering[0].path
    path = next((name for name, key in keys.items() if key.path == path), path)
    order = f"the order by {path}" if orderings.key(path) is not None else "this order"
    return [f"no index serves {order}, so each page sorts all rows{instead}"]


@lru_cache(maxsize=1024)
def _is_long(model: type[Model], when: int) -> bool:
    """Return whether the table queried by ``query_records`` is long, looked up once for each ``when``."""
    with read_limits():
        return bool(model._base_manager.order_by("pk").values_list("pk")[LONG_TABLE : LONG_TABLE + 1])


class QueryRecords(RecordTool):
    """Rows of a model: filtered, searched, sorted, paged."""

    name = "query_records"
    title = "Query records"
    description = (
        "Find records. A foreign key comes as [pk, label]. "
        "Lookups: in, isnull, gt, gte, lt, lte, contains, icontains, startswith, endswith."
    )
    example: Mapping[str, Any] | None = {
        "model": "shop.order",
        "filters": {"created__gte": "2026-01-01"},
        "ordering": ["-total"],
    }
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "filters": {
                **FREE_OBJECT,
                "description": (
                    "or: [{..}], not: {..}; orders: {some|none|every: {..}} or {count__gte: 2}; "
                    "lines.a, lines.b: one line; "
                    "total__gt: {field: paid, plus: 5} or {avg: total}; dates as today-30d, last month"
                ),
            },
            "search": Selection.SEARCH,
            "ordering": {**NAMES, "description": "-field: descending"},
            "fields": {
                **NAMES,
                "description": ("customer.name, orders.count, orders.sum.total, orders.last.created, admin_url"),
            },
            "limit": {"type": "integer", "description": "1-200, default 20"},
            "cursor": {"type": "string", "description": "next_cursor"},
            "count": {"type": "boolean", "description": "Count all"},
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
    meta = ALWAYS_LOAD

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        call = RecordCall.read(request, self, arguments)
        call.given.flag("count")
        call.query()

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return one page."""
        call = RecordCall.read(request, self, arguments)
        given = call.given
        request.go_to(call.exposure, "changelist")
        count = given.flag("count")
        with_urls = False
        if "fields" in given and call.model.field_named(Address.ADMIN_URL) is None:
            names = given.names("fields")
            others = [name for name in names if name != Address.ADMIN_URL]
            with_urls = len(others) < len(names)
            call.given = Arguments(given, fields=others or ["pk"])
        query = call.query()
        notes = list(given.limit_hint())
        if call.leaves_out_order:
            notes.append(UNORDERED)
        payload = call.payload(query, count=count, notes=notes)
        if with_urls:
            rows = payload["rows"]
            payload["columns"].append(Address.ADMIN_URL)
            for row, url in zip(rows, Address(call.model).urls_of(rows), strict=True):
                row.append(url)
        return ToolResult(structured=payload)
