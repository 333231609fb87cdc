"""The pages of rows in the admin as they show them: inlines, history, and the version of what is shown."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.utils.crypto import constant_time_compare, salted_hmac

from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.column_values import pk_text
from ..orm.columns import Column
from ..orm.labels import linked_values
from ..orm.serializer_columns import represented
from ..orm.undecodable_values import UNDECODABLE
from .history import HistoryReader
from .inline_rows import PageInlines, ShownRows

NONE: Final[Mapping[str, Any]] = MappingProxyType({})
# Salt of the digest that is a row's version, and how many of its bytes are kept.
SALT: Final = "mcp_django.emulation.versions"
LENGTH: Final = 12
CHANGED: Final = (
    "The row has changed since you read it; nothing was written. Read it again with get_record, and repeat the call "
    "with the new version if it is still right."
)


class ShownPage:
    """The page of a saved or new row in the admin, as it shows the row to one caller."""

    def __init__(self, model: ModelAccess, obj: Model | None) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.obj = obj

    @cached_property
    def inlines(self) -> PageInlines:
        """The inlines of the page."""
        return PageInlines(self.model, self.obj)

    def history(self) -> list[dict[str, Any]]:
        """Return the row's entries in the admin's history, the newest first, if the admin's history page shows them."""
        return HistoryReader(self.model, self.obj).entries()

    def version(self, inlines: Sequence[ShownRows], *, shown: Mapping[str, Any] = NONE, key: Any = None) -> str:
        """Return the version that saving the row checks: a text that changes when the row does, as the caller sees it.

        It is a keyed digest (HMAC with ``SECRET_KEY``), bound to the endpoint and the row, so that it reveals nothing.
        It covers only what the caller sees: stored values, or those that the project's serializer returns. ``inlines``
        come from :meth:`PageInlines.shown_rows`; ``shown`` has values that have been read already.
        """
        request = self.request
        exposure = self.exposure
        row = self.obj
        assert row is not None
        columns = Column.all(exposure, self.model.fields_of(row))
        stored: list[Any] = [request.mcp.site.name, request.mcp.resource.removesuffix("/")]
        stored += [exposure.label, pk_text(row.pk), *_stored_values(row, columns)]
        for column in columns:
            if column.lists_rows and column.field in row._meta.many_to_many:
                pairs = shown.get(column.name)
                if not isinstance(pairs, list):
                    # A list that was too long to show was cut to a text.
                    pairs = linked_values(request, column.field, [row.pk])[0][0]
                stored.append([column.name, [pair[0] for pair in pairs]])
        fields = row._meta.concrete_fields
        changed = [column for column in columns if column.is_made and not column.is_plain]
        if masked := [column for column in changed if column.field in fields]:
            # Use the serializer's values: a version must not reveal a change that the serializer masks.
            values = represented(request, exposure, [row])[0]
            stored.append([[column.name, values.get(column.name)] for column in masked])
        for inline in inlines:
            rows = [[pk_text(child.pk), *_stored_values(child, inline.columns)] for child in inline.rows]
            stored.append([inline.inline.name, rows, inline.more])
        digest = salted_hmac(SALT, _encode(stored), secret=key, algorithm="sha256").digest()[:LENGTH]
        return base64.urlsafe_b64encode(digest).decode()

    def check_version(self, version: Any) -> None:
        """Refuse to save a row whose version is not the one that the caller read."""
        if version is None:
            return
        inlines = self.inlines.shown_rows()
        for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
            if constant_time_compare(self.version(inlines, key=key), str(version)):
                return
        raise ToolError(CHANGED)


# Versions


def _stored_values(row: Model, columns: Iterable[Column]) -> Iterator[Any]:
    """Yield the saved values of a row, for the version that is checked before saving."""
    names = {field.name for field in row._meta.concrete_fields}
    for column in columns:
        field = column.field
        if field is None or field.name not in names or (column.is_made and not column.is_plain):
            continue
        value = field.value_from_object(row)
        if value is UNDECODABLE:
            value = ["lost"]
        elif not isinstance(value, (dict, list)):
            # Keep the value as it is if the field does not accept what the database holds.
            with suppress(ValidationError, ValueError, TypeError):
                value = field.get_prep_value(value)
        yield [column.name, value]


def _plain(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return str(value)


_encode: Final = json.JSONEncoder(default=_plain, sort_keys=True).encode
