"""Unique fields by which a caller names rows: the primary key, a unique field, or the fields of a constraint."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final

from django.db.models import Model

from ..exceptions import NotFound, ToolError
from .access import ModelAccess
from .allowed_filters import AllowedFilter
from .column_values import plain_key
from .fields import parse_value
from .row_finder import RowFinder

Key = tuple[Any, ...]
PK: Final = "pk"


class UniqueKey:
    """The fields ``names`` by which rows of a model are named: ``pk``, or fields of which the database allows one row.

    The caller must see each field and may filter by it. Raises ``ToolError`` with the keys that are possible.
    """

    # Maximum number of fields.
    MAX_FIELDS: ClassVar = 8

    def __init__(self, model: ModelAccess, names: Sequence[str]) -> None:
        self.model = model
        self.names = tuple(names)
        self.is_pk = self.names in ((PK,), (model.exposure.opts.pk.name,))
        self.fields = [] if self.is_pk else [_filter(model, name) for name in self.names]
        if not self.is_pk and (None in self.fields or not _is_unique(model, self.names)):
            raise ToolError(
                f"by must name a unique field of {model.exposure.label} that you can filter by: {self.possible}. "
                "Nothing was changed."
            )

    @property
    def possible(self) -> str:
        """The keys by which the caller can name rows of the model."""
        return "; ".join(", ".join(key) for key in [(PK,), *_possible(self.model)])

    def read(self, values: Sequence[Any]) -> Key:
        """Return a key as the fields hold it, from what the caller wrote; raise ``ToolError`` for what is no key."""
        if self.is_pk:
            try:
                return (self.model.parse_pk(values[0]),)
            except NotFound:
                raise ToolError(RowFinder.NOT_FOUND) from None
        key = []
        for name, allowed, value in zip(self.names, self.fields, values, strict=True):
            assert allowed is not None
            value = plain_key(value)
            if value is None or value == "":
                raise ToolError(f"{name} is empty in a row, and so names no row. Nothing was changed.")
            try:
                key.append(parse_value(allowed.path.field, value))
            except ValueError as error:
                raise ToolError(f"{name}: {error} Nothing was changed.") from None
        return tuple(key)

    def find(self, keys: Sequence[Key]) -> list[Model | None]:
        """Return the row of each key among those that the caller sees, None where there is none."""
        if self.is_pk:
            rows = RowFinder(self.model).by_key([key[0] for key in keys])
            found = {(pk,): row for pk, row in rows.items()}
        else:
            paths = [allowed.path.column for allowed in self.fields if allowed is not None]
            found = {self._of_row(row): row for row in RowFinder(self.model).by_values(paths, keys)}
        seen = {key: row for key, row in found.items() if self.model.may_row("view", row)}
        # Some collations find a text in another spelling.
        folded = {_folded(key): row for key, row in seen.items()}
        return [seen.get(key) or folded.get(_folded(key)) if found else None for key in keys]

    def _of_row(self, row: Model) -> Key:
        columns = [getattr(allowed.path.field, "attname", "") for allowed in self.fields if allowed is not None]
        values = attrgetter(*columns)(row)
        return values if len(columns) > 1 else (values,)


def _filter(model: ModelAccess, name: str) -> AllowedFilter | None:
    """Return the filter of a stored field of the model's own that the caller sees, None if there is none."""
    if name not in model.fields or name not in model.exposure.options.model_fields:
        return None
    found = AllowedFilter.find(model, name)
    is_exact = found is not None and found.path.expression is None and "exact" in found.lookups
    return found if is_exact else None


def _is_unique(model: ModelAccess, names: Sequence[str]) -> bool:
    return frozenset(names) in {frozenset(key) for key in _keys(model)}


def _keys(model: ModelAccess) -> Iterator[tuple[str, ...]]:
    """Yield the fields of which the database allows one row, without a condition."""
    opts = model.exposure.opts
    yield from ((field.name,) for field in opts.concrete_fields if field.unique and not field.primary_key)
    for parent in (opts, *(one._meta for one in opts.all_parents)):
        yield from (tuple(names) for names in parent.unique_together)
        yield from (tuple(constraint.fields) for constraint in parent.total_unique_constraints)


def _possible(model: ModelAccess) -> list[tuple[str, ...]]:
    keys = (key for key in dict.fromkeys(_keys(model)) if len(key) <= UniqueKey.MAX_FIELDS)
    return [key for key in keys if all(_filter(model, name) is not None for name in key)]


def _folded(key: Key) -> Key:
    return tuple(part.casefold().strip() if isinstance(part, str) else part for part in key)
