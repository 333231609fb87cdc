"""Inlines: the rows of another model that an admin's page shows and saves together with a row, and reading them.

Callers know an inline by the name of its relation, as in ``order.lines``. What the inline's class decides is obeyed:
its permissions, its queryset, its fields.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import Model, QuerySet, prefetch_related_objects
from django.forms.models import _get_foreign_key

from ..conf import settings
from ..context.admin_page import as_page
from ..context.request import Exposure, MCPRequest
from ..orm.access import columns_of, has_every_row, may_view, page_rows, visible_among
from ..orm.columns import Column, plain_key
from ..orm.pages import show_rows
from ..orm.unreadable import salvaged_rows
from ..runtime.hooks import asked
from ..schema.jsonable import clean_text
from ..sensitive import is_sensitive

# The methods that decide which fields an inline shows.
FIELD_HOOKS: Final = (
    "get_fields",
    "get_fieldsets",
    "get_readonly_fields",
    "get_exclude",
    "get_formset",
    "_get_form_for_get_fields",
    "formfield_for_choice_field",
    "formfield_for_dbfield",
    "formfield_for_foreignkey",
    "formfield_for_manytomany",
)


@dataclass(frozen=True, slots=True)
class Inline:
    """An inline by its name for callers; ``fields`` are what they may know of its rows, beside the primary key."""

    name: str
    admin: Any
    fields: tuple[str, ...]


def is_djangos(function: Callable[..., Any]) -> bool:
    """Return whether the method is Django's own, not one of the project's."""
    return function.__module__.startswith("django.")


def inlines_of(
    request: MCPRequest, exposure: Exposure, obj: Model | None, shown: Iterable[Any] | None = None
) -> list[Inline]:
    """Return the inlines that the caller may know of; ``shown`` are their instances, where there are some already."""
    if exposure.serializer_class is not None:
        return []
    found: list[Inline] = []
    taken = {field.name for field in (*exposure.opts.concrete_fields, *exposure.opts.many_to_many)}
    for admin in _shown(request, exposure, obj) if shown is None else shown:
        hook = f"The inline {type(admin).__name__}"
        made = asked(exposure.label, hook, _named_fields, request, exposure, admin, obj, default=None)
        if made is None:
            continue
        relation, fields = made
        name, number = relation, 2
        while name in taken:
            name, number = f"{relation}_{number}", number + 1
        taken.add(name)
        found.append(Inline(name, admin, fields))
    return found


def _shown(request: MCPRequest, exposure: Exposure, obj: Model | None) -> list[Any]:
    none: list[Any] = []
    return asked(exposure.label, "get_inlines", exposure.get_inlines, request, obj, default=none)


def inlines_of_any_row(request: MCPRequest, exposure: Exposure) -> tuple[list[Inline], Model | None]:
    """Return the inlines of the change page and those of the add page alone, and the row that the hooks took."""
    if exposure.serializer_class is not None:
        return [], None
    found, taken = None, None
    for number, row in enumerate(page_rows(request, exposure)):
        owner = exposure.label if number else ""
        found, taken = asked(owner, "get_inlines", exposure.get_inlines, request, row, default=None), row
        if found is not None:
            break
    shown = found or []
    if exposure.has_add_permission(request):
        shown = [*shown, *(new for new in _shown(request, exposure, None) if type(new) not in set(map(type, shown)))]
    return inlines_of(request, exposure, taken, shown), taken


def _named_fields(
    request: MCPRequest, exposure: Exposure, admin: Any, obj: Model | None
) -> tuple[str, tuple[str, ...]]:
    return _relation_name(exposure, admin), _fields(request, exposure, admin, obj)


def _relation_name(exposure: Exposure, admin: Any) -> str:
    default = f"{admin.model._meta.model_name}_set"
    if is_generic(admin):
        for field in exposure.opts.private_fields:
            names = getattr(field, "content_type_field_name", None), getattr(field, "object_id_field_name", None)
            if field.related_model is admin.model and names == (admin.ct_field, admin.ct_fk_field):
                return field.name
        return default
    link = link_of(exposure, admin)
    name = link.remote_field.get_accessor_name(model=admin.model) if link is not None else None
    return (name or "").replace("+", "") or default


def is_generic(admin: Any) -> bool:
    """Return whether rows of the inline point to their row by a generic foreign key."""
    return hasattr(admin, "ct_fk_field")


def link_of(exposure: Exposure, admin: Any) -> Any:
    """Return the foreign key by which rows of the inline point to their row, None where its formset finds them."""
    try:
        return _get_foreign_key(exposure.model, admin.model, fk_name=admin.fk_name)
    except ValueError:
        if is_djangos(type(admin).get_formset):
            raise
        return None


def _fields(request: MCPRequest, exposure: Exposure, admin: Any, obj: Model | None) -> tuple[str, ...]:
    """Return the names that the inline shows, but for keys, what is sensitive, and what its model's exposure hides."""
    names = dict.fromkeys(_declared(request, exposure, admin, obj))
    closed = {admin.opts.pk.name}
    link = None if is_generic(admin) else link_of(exposure, admin)
    closed |= {admin.ct_field, admin.ct_fk_field} if is_generic(admin) else {link.name} if link is not None else set()
    own = exposure.site.exposures.get(admin.model)
    if own is not None:
        closed.update(own.exclude)
        if own.has_allow_list:
            names = {name: None for name in names if name in own.get_fields(request)}
    kept = [name for name in names if name not in closed and not is_sensitive(name, admin.model)]
    return visible_among(request, exposure.exposure_of_inline(admin), kept)


def _declared(request: MCPRequest, exposure: Exposure, admin: Any, obj: Model | None) -> Sequence[str]:
    """Return the names that the inline shows; worked out once where nothing of the project's own decides them."""
    kept = exposure.exposure_of_inline(admin)
    if kept.declared is not None:
        return kept.declared
    names = [*flatten_fieldsets(admin.get_fieldsets(request, obj)), *admin.get_readonly_fields(request, obj)]
    found = [name if isinstance(name, str) else name.__name__ for name in names]
    if all(is_djangos(getattr(type(admin), hook)) for hook in FIELD_HOOKS):
        kept.declared = found
    return found


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
        rows = [dict(zip(["pk", *page.names[1:]], [plain_key(key), *row], strict=True)) for key, *row in page.rows]
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
