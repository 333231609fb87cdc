"""Inlines: the rows of another model that an admin's page shows and saves together with a row.

Callers know an inline by the name of its relation, as in ``order.lines``. What the inline's class decides is obeyed:
its permissions, its queryset, its fields.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import Model
from django.forms.models import _get_foreign_key

from ..context.request import Exposure, MCPRequest
from ..orm.access import is_sensitive, page_rows, visible_among
from ..runtime.hooks import asked

__all__ = ["Inline", "inlines_of", "inlines_of_any_row", "is_djangos", "is_generic", "link_of"]

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
