"""Fields of a row that a caller can name in a write."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from django.db.models import Model

from ..context.request import Exposure, MCPRequest
from ..orm.access import visible_fields
from ..orm.repairs import with_value
from ..orm.wording import misnamed

NOT_SAVED: Final = "Nothing was saved:"


def nameable(request: MCPRequest, exposure: Exposure, obj: Model | None) -> set[str]:
    """Return the fields that the caller may name; a row does not change its primary key."""
    names = {*visible_fields(request, exposure, obj), *unread_fields(request, exposure, obj)}
    key = {exposure.opts.pk.name, *(part.name for part in exposure.opts.pk_fields)}
    return names - key if obj is not None else names


def unread_fields(request: MCPRequest, exposure: Exposure, obj: Model | None = None) -> list[str]:
    """Return the fields that may be written although there is nothing to read: links to rows of no exposure too."""
    declared, known = exposure.get_fields(request, obj), exposure.site.exposures
    links = (field.name for field in exposure.opts.many_to_many if field.related_model not in known)
    return [*exposure.get_form_only_fields(request, obj), *(name for name in links if name in declared)]


def named_values(exposure: Exposure, values: Mapping[str, Any], writable: Collection[str]) -> dict[str, Any]:
    """Return the values by field name; a foreign key may be named by its column, as in filters.

    Raises:
        ToolError: a name is not writable; one text for hidden, read-only and missing fields.
    """
    columns = {field.attname: field.name for field in exposure.opts.concrete_fields if field.name in writable}
    found = {name if name in writable else columns.get(name, name): value for name, value in values.items()}
    unknown = [name for name in found if name not in writable]
    if unknown:
        names = ", ".join(repr(name[:60]) for name in unknown[:5])
        message = f"You cannot write {names} of {exposure.label}."
        near: list[str] | None = None if len(unknown) == 1 else []
        repair = partial(with_value, unknown[0])
        raise misnamed(message, unknown[0], writable, repair, near, " Nothing was saved.")
    return found
