"""One row by its primary key, for reading: from a plan that was compiled before, with the labels of what it points to.

That is for exposures whose rows are those of the table. Any other row is what the exposure's own queryset gives, which
may hold annotations and classes that a plan does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from django.db.models import Model, QuerySet

from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError, Unreadable
from .access import columns_of, get_row, has_every_row, parse_pk, visible_fields
from .instances import by_key, key_params
from .plans import Plan, cached_plan, compile_plan
from .queries import using_of
from .relations import joined_label, ways_to, with_labels
from .unreadable import is_unreadable, salvaged_rows

# Databases bound the number of tables of one query; the labels of further relations are queried by themselves.
MAX_JOINS: Final = 20


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row and, by the path of their column, the labels that came with it."""

    row: Model
    labels: Mapping[str, str | None]


def find_row(request: MCPRequest, exposure: Exposure, pk: Any) -> FoundRow:
    """Return the row that :func:`~mcp_django.orm.access.get_row` returns.

    Raises:
        NotFound: the caller may not know of such a row.
    """
    if not _is_table(exposure):
        return FoundRow(whole_row(request, exposure, pk), {})
    using = using_of(exposure, None)
    params = _params(exposure, parse_pk(exposure, pk), using)
    names = [field.attname for field in exposure.opts.concrete_fields]
    joins = _joins(request, exposure)

    def build() -> Plan:
        rows = exposure.get_queryset(request).filter(by_key(exposure.opts)).order_by()
        return compile_plan(
            with_labels(rows, [*names, *joins], [name for join in joins for name in ways_to(join)]), using
        )

    try:
        found = cached_plan((exposure, using, "row", joins), build).run(using, params)
    except Exception as error:
        if not is_unreadable(error):
            raise
        found = []
    if not found:
        return FoundRow(whole_row(request, exposure, pk), {})
    row = exposure.model.from_db(using, names, found[0][: len(names)])
    if not exposure.has_view_permission(request, row):
        raise NotFound
    return FoundRow(row, dict(zip(joins, found[0][len(names) :], strict=True)))


def whole_row(request: MCPRequest, exposure: Exposure, pk: Any) -> Model:
    """Return the row of the exposure's own queryset, or as much of it as can be read.

    Raises:
        NotFound: the caller may not know of such a row.
    """
    try:
        return get_row(request, exposure, pk)
    except Unreadable:
        rows = exposure.get_queryset(request).filter(pk=parse_pk(exposure, pk))
        row = next(iter(salvaged_rows([rows.order_by()[:1]], rows, 1)), None)
        if row is None or not exposure.has_view_permission(request, row):
            raise NotFound from None
        return row


def _is_table(exposure: Exposure) -> bool:
    manager: Any = exposure.model._default_manager
    return has_every_row(exposure) and manager._queryset_class is QuerySet


def _params(exposure: Exposure, value: Any, using: str) -> list[Any]:
    try:
        return key_params(exposure.opts, value, using)
    except ToolError:
        raise NotFound from None


def _joins(request: MCPRequest, exposure: Exposure) -> tuple[str, ...]:
    columns = columns_of(exposure, visible_fields(request, exposure))
    labels = (joined_label(request, column) for column in columns if column.kind == "relation")
    return tuple(islice((label for label in labels if label is not None), MAX_JOINS))
