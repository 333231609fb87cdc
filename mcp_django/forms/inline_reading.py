"""The rows of inlines, as callers read them with the row that they belong to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db.models import Model, QuerySet, prefetch_related_objects

from ..conf import settings
from ..context.admin_page import as_page
from ..context.request import Exposure, MCPRequest
from ..orm.access import columns_of, has_every_row, may_view
from ..orm.columns import Column
from ..orm.pages import show_rows
from ..orm.unreadable import salvaged_rows
from ..runtime.hooks import asked
from ..schema.jsonable import clean_text
from .inlines import Inline, inlines_of, is_djangos, is_generic, link_of

__all__ = ["InlineRows", "read_inlines", "show_inlines", "visible_pks"]

# Rows of one inline that are shown with their row.
MAX_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class InlineRows:
    """The first rows of an inline, with their columns; ``more`` tells that there are others."""

    inline: Inline
    rows: Sequence[Model]
    columns: tuple[Column, ...]
    more: bool


def read_inlines(
    request: MCPRequest, exposure: Exposure, obj: Model, names: Sequence[str] | None = None
) -> list[InlineRows]:
    """Return the first rows of each inline, or of those that are named: one query for each."""
    found = []
    for inline in inlines_of(request, exposure, obj):
        verdict, hook = inline.admin.has_view_or_change_permission, f"has_view_permission of {inline.name}"
        if asked(exposure.label, hook, verdict, request, obj, default=False) and (
            names is None or inline.name in names
        ):
            columns = columns_of(exposure.exposure_of_inline(inline.admin), [inline.admin.opts.pk.name, *inline.fields])
            hook = f"The queryset of {inline.name}"
            rows = asked(exposure.label, hook, _rows, request, exposure, inline, obj, columns, default=None)
            if rows is None:
                continue
            found.append(InlineRows(inline, rows[:MAX_SHOWN], columns, len(rows) > MAX_SHOWN))
    return found


def _rows(
    request: MCPRequest, exposure: Exposure, inline: Inline, obj: Model, columns: tuple[Column, ...]
) -> list[Model]:
    queryset = _queryset(request, exposure, inline.admin, obj)
    own = _narrowing(exposure, inline.admin)
    if own is not None and isinstance(queryset, QuerySet):
        queryset = queryset.filter(pk__in=own.get_queryset(request).order_by().values("pk"))
    if isinstance(queryset, QuerySet):
        rows = salvaged_rows([queryset], queryset, MAX_SHOWN + 1)
    else:
        rows = list(queryset[: MAX_SHOWN + 1])
    for row in rows:
        row.mcp_inline = inline.admin  # type: ignore[attr-defined]
    link = None if is_generic(inline.admin) else link_of(exposure, inline.admin)
    if link is not None:
        for row in rows:
            if isinstance(obj, link.remote_field.model):
                link.set_cached_value(row, obj)
    if any(column.kind == "computed" for column in columns):
        # What computes a column may follow any of the relations beside it.
        relations = [column.field.name for column in columns if column.kind == "relation" and column.field.is_relation]
        prefetch_related_objects(rows, *relations)
    return rows


def _queryset(request: MCPRequest, exposure: Exposure, admin: Any, obj: Model) -> Any:
    """Return the rows that the formset of the inline would hold."""
    page: Any = type(exposure.inline_admin)
    formset = admin.formset
    methods = (page.get_formset_kwargs, page._create_formsets, type(admin).get_formset)
    if not all(map(is_djangos, (*methods, formset.__init__, formset.get_queryset))):
        with as_page(request, "GET"):
            pairs = exposure.get_formsets(request, obj, True)
        # The instances are new ones of the same classes, in the same order.
        same = [formset for inline, formset in pairs if type(inline) is type(admin)]
        return same[0].get_queryset() if same else admin.model._default_manager.none()
    rows = admin.get_queryset(request)
    if is_generic(admin):
        from django.contrib.contenttypes.models import ContentType

        rows = rows.filter(**{admin.ct_field: ContentType.objects.get_for_model(obj), admin.ct_fk_field: obj.pk})
    else:
        rows = rows.filter(**{link_of(exposure, admin).name: obj})
    return rows if rows.ordered else rows.order_by(admin.opts.pk.name)


def _narrowing(exposure: Exposure, admin: Any) -> Exposure | None:
    """Return the exposure of the inline's model where the project registered one that shows fewer rows."""
    own = exposure.site.exposures.get(admin.model)
    return own if own is not None and own.narrows_inlines and not has_every_row(own) else None


def visible_pks(request: MCPRequest, exposure: Exposure, admin: Any, pks: Iterable[Any]) -> set[Any] | None:
    """Return which of the rows the caller may know of, None for all."""
    own = _narrowing(exposure, admin)
    if own is None:
        return None
    return set(own.get_queryset(request).filter(pk__in=list(pks)).values_list("pk", flat=True))


def show_inlines(
    request: MCPRequest, exposure: Exposure, found: Sequence[InlineRows]
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Return the rows as JSON objects by the name of their inline, as they can be sent back, and hints on them."""
    shown: dict[str, list[dict[str, Any]]] = {}
    notes = []
    room = request.mcp.result_chars // 2
    for item in found:
        page = show_rows(
            request, exposure.exposure_of_inline(item.inline.admin), item.rows, item.columns, settings.TEXT_CHARS
        )
        rows = [dict(zip(["pk", *page.names[1:]], row, strict=True)) for row in page.rows]
        kept = []
        for row in rows:
            room -= len(orjson.dumps(row))
            if room < 0:
                break
            kept.append(row)
        shown[item.inline.name] = kept
        notes += page.notes
        if item.more or len(kept) < len(rows):
            notes.append(_more(request, exposure, item.inline, len(kept)))
    return shown, notes


def _more(request: MCPRequest, exposure: Exposure, inline: Inline, kept: int) -> str:
    own = exposure.site.exposures.get(inline.admin.model)
    where = f", query_records on {own.label} gives them" if own is not None and may_view(request, own) else ""
    return clean_text(f"{inline.name}: only {kept} rows shown, there are more{where}")
