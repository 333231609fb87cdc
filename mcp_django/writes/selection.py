"""The rows that a tool works on: named by their primary keys, or all that a query finds.

What a query finds is frozen at once: a tool works on exactly the rows that it has shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Model, QuerySet

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.arguments import RECORD_NOT_FOUND, flag_argument, search_argument
from ..orm.inputs import as_pks, pick_rows, rows_by_key
from ..orm.keys import named_rows
from ..orm.parsing import filters_argument
from ..orm.queries import COUNT_CAP, narrowed
from ..schema.types import FREE_OBJECT, KEY

PKS: Final[Mapping[str, Any]] = {"type": "array", "items": KEY}
SEARCH: Final[Mapping[str, Any]] = {"type": "string", "description": "Free text"}
# What a tool that takes rows declares; what it takes; and what one that takes all of them does, too.
PICKING: Final[Mapping[str, Any]] = {"pks": PKS, "filters": FREE_OBJECT}
QUERY: Final[Mapping[str, Any]] = {**PICKING, "search": SEARCH}
EVERYTHING: Final[Mapping[str, Any]] = {**QUERY, "all": {"type": "boolean"}}


@dataclass(frozen=True, slots=True)
class Selection:
    """The picked rows, in a fixed order. ``by_query``: the caller has not named each of them."""

    rows: Sequence[Model]
    by_query: bool


def select_rows(request: MCPRequest, exposure: Exposure, arguments: Mapping[str, Any]) -> Selection:
    """Return the rows that ``pks``, or ``filters``, ``search`` and ``all`` pick, of those that the caller may see.

    Raises:
        ToolError: they pick no rows, too many, or one that is not there for the caller.
    """
    pks = arguments.get("pks")
    every = flag_argument(arguments.get("all"), "all")
    narrowing = [name for name in ("filters", "search") if arguments.get(name) not in (None, "", "{}", {}, [])]
    if pks is not None and (every or narrowing):
        raise ToolError("Give either pks or a query, not both. Nothing was changed.")
    if pks is not None:
        keys = as_pks(pks)
        try:
            return Selection(pick_rows(request, exposure, keys)[1], by_query=False)
        except NotFound:
            return Selection(named_rows(request, exposure, keys, RECORD_NOT_FOUND), by_query=False)
    if not every and not narrowing:
        raise ToolError("Say which rows: give pks, or filters or search for all rows that match. Nothing was changed.")
    return Selection(_found(request, exposure, arguments), by_query=True)


def _found(request: MCPRequest, exposure: Exposure, arguments: Mapping[str, Any]) -> list[Model]:
    conditions = filters_argument(request, exposure, arguments.get("filters"))
    search = search_argument(request, exposure, arguments.get("search"))
    queryset = narrowed(request, exposure, conditions, search)
    most = settings.MAX_BULK_ROWS
    keys = list(dict.fromkeys(queryset.order_by("pk").values_list("pk", flat=True)[: most + 1]))
    if len(keys) > most:
        count = queryset.values("pk")[: COUNT_CAP + 1].count()
        raise ToolError(
            f"{f'More than {COUNT_CAP}' if count > COUNT_CAP else count} rows of {exposure.label} match, and {most} is "
            "the most for one call. Nothing was changed. Narrow filters, such as to a range of dates or keys, and go "
            "through the rows in parts."
        )
    found = rows_by_key(request, exposure, keys).values()
    rows = [row for row in found if exposure.has_view_permission(request, row)]
    if not rows:
        raise ToolError(f"No rows of {exposure.label} match. Nothing was changed. query_records shows what there is.")
    return rows


def queryset_of(request: MCPRequest, exposure: Exposure, rows: Iterable[Model]) -> QuerySet[Any]:
    """Return these rows as a queryset of the exposure's, as the admin gives it to an action."""
    return exposure.get_queryset(request).filter(pk__in=[row.pk for row in rows])
