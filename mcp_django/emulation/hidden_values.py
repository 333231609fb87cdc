"""Files and texts that an action of the admin hands out: do they hold columns that are hidden from the caller?

An action of the admin is written for people who see every column, such as an export. A file that names a hidden
column, holds its values or cannot be searched is not handed over, and such values in a text become ``<hidden>``. An
action that declares ``mcp_file = True``, or that is written for this app (``@mcp.action``), hands out what it likes.
"""

import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from typing import Any, Final
from uuid import UUID
from zipfile import BadZipFile, ZipFile

from django.db.models import Model

from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess
from ..schema.secrets import HIDDEN, is_long, is_withheld

# Minimum number of letters and digits by which a value is recognised in a file.
TELLING: Final = 6
# Maximum number of bytes that are unpacked from a file, and of files in it.
MAX_UNPACKED: Final = 20_000_000
MAX_MEMBERS: Final = 500
# Between the cells of a table, the members of an object, or the tags of a document.
_BETWEEN: Final = re.compile(r"[\r\n,;\t|<>\"'=:{}\[\]]+")
_WORD: Final = re.compile(r"\w+")
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")


class HiddenValues:
    """What is hidden from a caller of the columns of some rows: names and values."""

    def __init__(self, model: ModelAccess, rows: Sequence[Model]) -> None:
        self.model = model
        self.rows = rows

    @property
    def _exposure(self) -> ModelExposure:
        return self.model.exposure

    @cached_property
    def fields(self) -> tuple[Any, ...]:
        """The columns that are hidden from the caller on purpose, in the order of the model."""
        return tuple(
            field
            for field in self._exposure.opts.concrete_fields
            if is_hidden_on_purpose(self._exposure, field) and not self._is_read(field.name)
        )

    def _is_read(self, name: str) -> bool:
        rows: list[Model | None] = [*self.rows] or [None]
        return all(name in self.model.fields_of(row) for row in rows)

    # Files

    def are_in(self, body: str | bytes) -> bool:
        """Return whether a file may hold hidden columns: it names one, holds a value of one, or cannot be searched."""
        if not self.fields:
            return False
        text = body if isinstance(body, str) else _unpacked(body)
        if text is None:
            return True
        return self._names_column(text) or self._holds_value(text)

    def _names_column(self, text: str) -> bool:
        names = {str(name).casefold() for field in self.fields for name in _names_of(field)}
        text = text.casefold()
        cells = {cell.strip(" -*#") for cell in _BETWEEN.split(text)}
        # A word of a sentence can be the name of a column, but not one such as ``api_key``.
        words = {word for word in _WORD.findall(text) if "_" in word}
        return not names.isdisjoint(cells | words)

    def _holds_value(self, text: str) -> bool:
        shown = {_squeezed(value) for row in self.rows for value in self._values(row, self._seen)}
        squeezed = _squeezed(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text))
        hidden = {_squeezed(value) for value in self._stored_values()}
        return any(len(value) >= TELLING and value in squeezed for value in hidden - shown)

    @cached_property
    def _seen(self) -> tuple[Any, ...]:
        return tuple(field for field in self._exposure.opts.concrete_fields if field not in self.fields)

    def _stored_values(self) -> Iterator[Any]:
        """Yield the values of hidden columns, as they were before the action and as they are stored now."""
        fields = [field for field in self.fields if not field.choices]
        for row in self.rows:
            yield from self._values(row, fields)
        keys = [row.pk for row in self.rows]
        names = [field.attname for field in fields]
        if keys and names:
            stored = self._exposure.model._base_manager.using(self.rows[0]._state.db).filter(pk__in=keys)
            for values in stored.order_by().values_list(*names):
                yield from (value for value in values if _is_text(value))

    def _values(self, row: Model, fields: Iterable[Any]) -> Iterator[Any]:
        values = (row.__dict__.get(field.attname) for field in fields)
        yield from (value for value in values if _is_text(value))

    # Texts

    def masked(self, value: Any) -> Any:
        """Return a text or JSON value with ``HIDDEN`` in place of values of columns that are hidden on purpose."""
        if not self.fields:
            return value
        if isinstance(value, Mapping):
            names = {name for field in self.fields for name in (field.name, field.attname)}
            return {key: HIDDEN if key in names and item else self.masked(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.masked(item) for item in value]
        if not isinstance(value, str):
            return value
        for secret in self._secrets:
            value = value.replace(secret, HIDDEN)
        return value

    @cached_property
    def _secrets(self) -> list[str]:
        fields = [field for field in self.fields if not field.choices]
        found = {str(value) for row in self.rows for value in self._values(row, fields)}
        shown = {str(value) for row in self.rows for value in self._values(row, self._seen)}
        return sorted((text for text in found - shown if len(_squeezed(text)) >= TELLING), key=len, reverse=True)


def is_hidden_on_purpose(exposure: ModelExposure, field: Any) -> bool:
    """Return whether a column that no page shows is one that the project hides, or holds a secret.

    A column that is not editable is on no page by itself, such as the time when a row was made. Of these only a text
    that can be long counts, such as the key of an account elsewhere.
    """
    options = exposure.options
    if field.primary_key:
        return False
    if is_withheld(field.name, field.model) or options.leaves_out(field.name) or options.may_take(field):
        return True
    return field.editable or bool(is_long(field) and field.max_length and not field.choices)


def _names_of(field: Any) -> Iterator[str]:
    yield from (field.name, field.attname, field.column or field.name, str(field.verbose_name))


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, int, Decimal, UUID)) and not isinstance(value, bool)


def _squeezed(value: Any) -> str:
    """Return a value without what formats of files add to it: only letters and digits, in one case."""
    return "".join(filter(str.isalnum, str(value))).casefold()


def _unpacked(body: bytes) -> str | None:
    """Return the text in a file of bytes, and in those of a ZIP archive such as a spreadsheet; None if unknown."""
    if body[:2] == b"\x1f\x8b":
        unpacking = zlib.decompressobj(31)
        try:
            content = unpacking.decompress(body, MAX_UNPACKED)
        except zlib.error:
            return None
        if unpacking.eof and not unpacking.unused_data:
            return _unpacked(content)
        return None
    if body[:4] == b"PK\x03\x04":
        return _members(body)
    is_wide = body[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
    if body[:4] == b"%PDF" or (b"\0" in body and not is_wide):
        return None
    try:
        return body.decode("utf-16" if is_wide else "utf-8")
    except UnicodeDecodeError:
        return None


def _members(body: bytes) -> str | None:
    parts: list[str] = []
    left = MAX_UNPACKED
    try:
        with ZipFile(BytesIO(body)) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                return None
            for member in members:
                with archive.open(member) as opened:
                    content = opened.read(left + 1)
                left -= len(content)
                # What is packed again is not searched.
                text = _unpacked(content) if left >= 0 and content[:4] != b"PK\x03\x04" else None
                if text is None:
                    return None
                parts.append(text)
    except (BadZipFile, NotImplementedError, RuntimeError, zlib.error):
        return None
    return "\n".join(parts)
