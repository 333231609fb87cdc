"""The version of a row: a short text that changes when what the caller sees of the row, or of its inlines, is changed.

It is a keyed digest (HMAC with ``SECRET_KEY``), bound to the endpoint and the row, of the values as they are stored, or
as a serializer of the project's own makes them: it tells nothing of them. What the caller does not see has no part in
it, so that it does not tell of changes there either.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.utils.crypto import constant_time_compare, salted_hmac

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..forms.inlines import InlineRows, read_inlines
from ..orm.access import columns_of, visible_fields
from ..orm.columns import Column, pk_text, represented
from ..orm.relations import related_lists
from ..orm.unreadable import LOST

SALT: Final = "mcp_django.tools.versions"
LENGTH: Final = 12
CHANGED: Final = (
    "The row has changed since you read it; nothing was written. Read it again with get_record, and repeat the call "
    "with the new version if it is still right."
)


def version_of(
    request: MCPRequest,
    exposure: Exposure,
    row: Model,
    inlines: Sequence[InlineRows],
    *,
    shown: Mapping[str, Any] = MappingProxyType({}),
    key: Any = None,
) -> str:
    """Return the version of the row.

    ``inlines`` are what :func:`~.inlinereading.read_inlines` gives for it; ``shown`` are values that are read already.
    """
    columns = columns_of(exposure, visible_fields(request, exposure, row))
    stored: list[Any] = [request.mcp.site.name, request.mcp.resource.removesuffix("/")]
    stored += [exposure.label, pk_text(row.pk), *_values(row, columns)]
    for column in columns:
        if column.kind == "many" and column.field in row._meta.many_to_many:
            stored.append([column.name, _linked(request, column, row, shown.get(column.name))])
    fields = row._meta.concrete_fields
    if changed := [column for column in columns if column.field in fields and _is_represented(column)]:
        # As it is shown: what a serializer masks is not told by a version either.
        values = represented(request, exposure, [row])[0]
        stored.append([[column.name, values.get(column.name)] for column in changed])
    for found in inlines:
        rows = [[pk_text(child.pk), *_values(child, found.columns)] for child in found.rows]
        stored.append([found.inline.name, rows, found.more])
    digest = salted_hmac(SALT, _encode(stored), secret=key, algorithm="sha256").digest()[:LENGTH]
    return base64.urlsafe_b64encode(digest).decode()


def _values(row: Model, columns: Sequence[Column]) -> Iterator[Any]:
    for column in _stored(type(row), tuple(columns)):
        yield [column.name, _prepared(column.field, column.field.value_from_object(row))]


@lru_cache(maxsize=2048)
def _stored(model: type[Model], columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns that are those of the model's tables."""
    fields = model._meta.concrete_fields
    return tuple(column for column in columns if column.field in fields and not _is_represented(column))


def _is_represented(column: Column) -> bool:
    """Return whether a serializer of the project's own makes something else of the stored value."""
    return column.kind == "serialized" and not column.is_plain


def _prepared(field: Any, value: Any) -> Any:
    """Return the value as it is stored, or itself where the field does not take what the database holds."""
    if value is LOST:
        return ["lost"]
    if isinstance(value, (dict, list)):
        return value
    try:
        return field.get_prep_value(value)
    except (ValidationError, ValueError, TypeError):
        return value


def _linked(request: MCPRequest, column: Column, row: Model, shown: Any) -> list[Any]:
    """Return the keys of a many-to-many value; one that was too long to be shown was cut to a text."""
    pairs = shown if isinstance(shown, list) else related_lists(request, column.field, [row.pk])[0].get(row.pk, [])
    return [pair[0] for pair in pairs]


def _plain(value: Any) -> str:
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else str(value)


_encode: Final = json.JSONEncoder(default=_plain, sort_keys=True).encode


def check_version(request: MCPRequest, exposure: Exposure, row: Model, version: Any) -> None:
    """Compare a version that the caller gives with that of the row, which should be locked.

    Raises:
        ToolError: they differ.
    """
    if version is None:
        return
    inlines = read_inlines(request, exposure, row)
    for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
        if constant_time_compare(version_of(request, exposure, row, inlines, key=key), str(version)):
            return
    raise ToolError(CHANGED)
