"""Resources that ``get_record`` returns too: the guide on how to ask, exports, and the files that actions made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeGuard

from ..conf import settings
from ..context.request import MCPRequest
from ..emulation.downloads import Download
from ..exceptions import NotFound, ToolError
from ..exports.kept_exports import KeptExport
from ..orm.access import access_of
from ..protocol.content import EmbeddedResource

# The URI of every model has more than one part, so this one cannot clash.
URI: Final = "django://asking"
TYPE: Final = "text/markdown"
TEXT: Final = """\
# Asking

The examples are for a shop. describe_model lists your fields and relations, and has examples that run.

## Paths

`customer.city.name` goes through relations, in fields, filters, ordering, group_by and aggregates. A result calls it
`customer__city__name`, and `sum:total` `sum_total`.

## Filters

All members of an object must hold. null is `isnull`, a list is `in`, a date without a time is the whole day.

- `{"or": [{..}, {..}], "not": {..}, "and": [{..}]}`
- related rows: `{"orders": {"some": {"status": "paid"}}}`, `none`, `every`; without orders: `{"orders": {"none": {}}}`
- paths on one list mean one row of it, also across `and` and `or`: `{"lines.product.name": "Oak",
  "lines.quantity__gte": 4}` is one line with both; for two rows, write two `some` in `and`
- their number: `{"orders": {"count__gte": 3}}`, `{"orders": {"count": 1, "where": {"status": "paid"}}}`
- another field: `{"delivered_at__gt": {"field": "shipped_at", "plus": "3d"}}`, `{"field": "quantity*unit_price"}`
- an aggregate of all rows: `{"total__gt": {"avg": "total", "where": {..}}}`; also median, min, max
- lookups: exact, in, isnull, gt, gte, lt, lte, range; texts: contains, startswith, endswith, with an i before them to
  ignore case; dates: year, quarter, month, week, week_day, day, hour
- dates: `today-30d`, `last month`, `last 30 days`, `start of year`, `2025-Q4`, `now-2h`

## Aggregates

`aggregates` takes texts such as `count`, `sum:total`, `avg:delivered_at-shipped_at`, `count:orders`, or objects:
`{"function": "sum", "field": "quantity*unit_price", "where": {..}, "as": "revenue"}`.

- functions: count, count_distinct, sum, avg, min, max, median, percentile (`percentile:total:0.9`), stddev, variance
- first and last take an order: `{"function": "last", "field": "status", "order": "created"}`
- `unit` of a duration: seconds, minutes, hours, days, weeks
- from aggregates of the same call, by their names: `{"ratio": ["paid", "count"], "as": "share"}`,
  `{"difference": ["count", "paid"]}`, `percent_of_total:count`, `change:count` (in percent, from the period before)
- group_by: `status`, `customer.name`, `created:month` (hour, day, week, month, quarter, year; weekday, hour_of_day,
  day_of_month, week_of_year, month_of_year, quarter_of_year), `total:100` (steps of a hundred)
- fill: also the periods without rows. top: the first N of the first group. per: N for each value of that group
- having: `{"sum_total__gte": 1000}`, `{"sum_total__gt": {"field": "sum_paid"}}`; ordering: `["-sum_total"]`

## Calls

query_records {"model": "shop.product", "filters": {"lines": {"none": {}}}, "fields": ["name", "category.name"]}
query_records {"model": "shop.customer", "filters": {"orders": {"count__gte": 2, "where": {"status": "paid"}}}}
aggregate_records {"model": "shop.orderline", "aggregates": [{"function": "sum", "field": "quantity*unit_price", \
"as": "revenue"}, "percent_of_total:revenue"], "group_by": ["product.category.name"], "ordering": ["-revenue"]}
aggregate_records {"model": "shop.order", "aggregates": ["count", {"function": "count", "where": {"status": \
"refunded"}, "as": "refunded"}, {"ratio": ["refunded", "count"]}], "group_by": ["created:month"], "fill": true}
aggregate_records {"model": "shop.orderline", "aggregates": ["sum:quantity"], "group_by": ["product.name"], "per": \
"product.category.name", "top": 2}
"""


@dataclass(frozen=True, slots=True)
class OwnText:
    """What stands at a URI of no model: an explanatory text, an export, or a file made by an action."""

    found: EmbeddedResource
    cache_hints: Mapping[str, Any] = field(default_factory=dict)

    # The guide, as resources/list shows it.
    GUIDE: ClassVar[Mapping[str, Any]] = {
        "uri": URI,
        "name": "asking",
        "title": "How to ask",
        "description": "All that filters and aggregates can do",
        "mimeType": TYPE,
    }

    @staticmethod
    def is_at(uri: Any) -> TypeGuard[str]:
        """Return whether this is the URI of the guide, of an export, or of a file that an action made."""
        return isinstance(uri, str) and (uri == URI or uri.startswith((Download.SCHEME, KeptExport.SCHEME)))

    @classmethod
    def at(cls, request: MCPRequest, uri: str) -> "OwnText":
        """Return what is at a URI for which :meth:`is_at` is true. Raises ``NotFound`` if the caller cannot see it, and
        ``ToolError`` if it is too long."""
        if uri.startswith(KeptExport.SCHEME):
            return cls(_exported(request, uri))
        if uri != URI:
            return cls(Download.kept(request, uri))
        if not access_of(request).may_any("view"):
            raise NotFound
        return cls(EmbeddedResource(URI, TEXT, TYPE))

    def read(self) -> list[dict[str, Any]]:
        """Return the contents."""
        return [self.found.contents()]


def _exported(request: MCPRequest, uri: str) -> EmbeddedResource:
    try:
        kept = KeptExport.of_uri(request, uri)
    except ToolError:
        # The caller could not ask for it now.
        raise NotFound from None
    most = settings.MAX_FILE_BYTES
    size = kept.row.size
    if size > most:
        where = f" The user can open it in a browser: {kept.url}" if kept.url is not None else ""
        raise ToolError(f"The file is too long: {size} bytes, of which at most {most} can be read.{where}")
    with kept.open() as file:
        data = file.read()
    # A text has no byte order mark: its encoding is known.
    body = data.decode("utf-8-sig") if kept.is_text else data
    return EmbeddedResource(uri, body, kept.mime_type)
