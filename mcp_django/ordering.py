"""What a caller may sort by, and the order of a page: always total, so that it can be paged by keys."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db.models import CompositePrimaryKey, F, Model
from django.db.models.expressions import OrderBy

from .context import MCPRequest
from .kinds import kind_of
from .lookups import resolve_path
from .pagination import OrderKey
from .serializers import resolve_column
from .visibility import MAX_NAME, visible_name

if TYPE_CHECKING:
    from .exposures import ModelExposure

__all__ = ["client_order_key", "default_ordering", "total_order"]


def default_ordering(request: MCPRequest, exposure: "ModelExposure") -> tuple[OrderKey, ...]:
    """Return the exposure's own order as keys, made total by the primary key.

    An entry that is no column of one value (an expression, ``?``, an annotation) is left out.
    """
    keys = (_own_key(exposure.model, entry) for entry in exposure.get_ordering(request))
    return total_order(exposure, [key for key in keys if key is not None])


def _own_key(model: type[Model], entry: Any) -> OrderKey | None:
    descending = False
    if isinstance(entry, OrderBy):
        descending, entry = entry.descending, entry.expression
    if isinstance(entry, F):
        entry = getattr(entry, "name", None)
    return _named_key(model, entry, descending) if isinstance(entry, str) else None


@lru_cache(maxsize=4096)
def _named_key(model: type[Model], entry: str, descending: bool) -> OrderKey | None:
    if entry[:1] in "+-":
        descending, entry = entry[0] == "-", entry[1:]
    path = resolve_path(model, entry) if entry else None
    if path is None or path.many or not _is_sortable(path.field):
        return None
    return OrderKey(path.column, path.field, descending, path.nullable)


def _is_sortable(field: Any) -> bool:
    return isinstance(field, CompositePrimaryKey) or kind_of(field).sortable


def client_order_key(request: MCPRequest, exposure: "ModelExposure", text: str, *, descending: bool) -> OrderKey | None:
    """Return the key of a name that the caller may sort by, None for any other name.

    A column that the admin computes is sorted by its ``admin_order_field``.
    """
    name = visible_name(request, exposure, text) if len(text) <= MAX_NAME else None
    column = resolve_column(exposure, name) if name is not None else None
    if column is None:
        return None
    order = column.order_field if not column.is_plain else column.name
    key = _own_key(exposure.model, order) if order and order[:1] not in "+" else None
    if key is None:
        return None
    return OrderKey(key.path, key.field, key.descending is not descending, key.nullable)


def total_order(exposure: "ModelExposure", keys: Sequence[OrderKey]) -> tuple[OrderKey, ...]:
    """Return the keys with the primary key added, and nothing after it: no two rows are equal."""
    found: dict[str, OrderKey] = {}
    pk_fields = {field.attname: field for field in exposure.opts.pk_fields}
    for key in keys:
        parts = pk_fields.values() if isinstance(key.field, CompositePrimaryKey) else [key.field]
        for part in parts:
            path = part.attname if len(parts) > 1 else key.path
            found.setdefault(path, OrderKey(path, part, key.descending, key.nullable))
        if found.keys() >= pk_fields.keys():
            return tuple(found.values())
    descending = bool(keys) and keys[-1].descending
    for attname, field in pk_fields.items():
        found.setdefault(attname, OrderKey(attname, field, descending, False))
    return tuple(found.values())
